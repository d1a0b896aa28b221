//! Statements at the admin CQL address while a core is away. Each ends in time, with all rows or
//! with a warning that names the core, and no change is lost when the core comes back.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::json;
use shunt_admin::Pages;
use shunt_admin_cql::{AdminCql, Listener};
use shunt_bench::stub::Action;
use shunt_proxy::admin::{Admin, ConfigChange};
use shunt_proxy::config::{Config, OPTIONS};
use shunt_proxy::control::{ClusterState, ControlRequest, CoreMail};
use shunt_reactor::sim::{HostId, SECOND};
use shunt_testing::blocking::Client;
use shunt_testing::{bytes, simulated};
use shunt_topology::NodeId;
use shunt_topology::schema::Cells;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;

use super::away::{AWAY, CORES, Post, admin_with, answer, clients, deliver, post_to_all};
use super::support::cluster;
use super::testbed::Testbed;

/// The node that the operator drains.
const DRAINED: usize = 1;
/// Requests of each client at a time.
const REQUESTS: i16 = 8;

type Started = Vec<HostId<simulated::Client>>;

/// The result of a statement: the number of its rows, and its warnings.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    rows: usize,
    warnings: Vec<String>,
}

/// Changes options as the main thread does: all cores get the new configuration.
fn change_options(admin: &Admin, config: watch::Sender<Arc<Config>>, post: &Post) {
    let post = Arc::clone(post);
    admin.take_config_changes(move |change| {
        let ConfigChange::SetOption { name, value, answer } = change else { panic!("{change:?}") };
        let option = OPTIONS.iter().find(|option| option.key == name).expect("an option");
        let mut new = Config::clone(&config.borrow());
        let faults = option.read_text(&mut new, &value.expect("a value"));
        assert!(faults.is_empty(), "{faults:?}");
        let new = Arc::new(new);
        post_to_all(&post, &CoreMail::Reload(Arc::clone(&new)));
        config.send_replace(new);
        answer.send(Ok(json!({ "changed": true })));
    });
}

/// Drains nodes as the control plane does: all cores get the new state of the ring.
async fn drain_nodes(
    mut requests: mpsc::Receiver<ControlRequest>,
    view: watch::Sender<Option<Arc<ClusterState>>>,
    post: Post,
) {
    while let Some(request) = requests.recv().await {
        let ControlRequest::DrainNode { host_id, drained } = request else { continue };
        let mut state = ClusterState::clone(view.borrow().as_ref().expect("a ring"));
        let node = state.routing.nodes().iter().find(|node| node.host_id == host_id);
        let id = node.expect("a node of the ring").id;
        state.drained = if drained { vec![id] } else { Vec::new() };
        state.generation += 1;
        let state = Arc::new(state);
        post_to_all(&post, &CoreMail::Cluster(Arc::clone(&state)));
        view.send_replace(Some(state));
    }
}

/// The ring as the cores know it.
fn ring(testbed: &Testbed) -> ClusterState {
    let scene = &testbed.scene;
    let cells = Cells::new(scene.columns.iter().copied(), false);
    let nodes = cluster::nodes(&scene.ring);
    let state = cluster::state_with(&scene.ring, nodes, cells, &scene.keyspaces, &scene.tables);
    ClusterState { generation: 2, ..state }
}

/// Runs statements at once, each over a connection of its own.
async fn run(
    testbed: &mut Testbed,
    post: &Post,
    is_away: bool,
    address: SocketAddr,
    statements: &[&'static str],
) -> Vec<Told> {
    let asked = statements.iter().copied().map(|statement| {
        spawn_blocking(move || {
            let answer = Client::connect(address, 4).query(statement);
            let prefix = answer.prefix();
            let warnings = prefix.warnings.iter().flat_map(|list| list.iter());
            Told { rows: answer.rows().len(), warnings: warnings.map(str::to_owned).collect() }
        })
    });
    let asked: Vec<_> = asked.collect();
    let mut told = Vec::new();
    for asked in asked {
        told.push(answer(testbed, post, is_away, asked).await.expect("a result"));
    }
    told
}

/// Has each client that is connected send queries, and waits for their answers.
fn query(testbed: &mut Testbed, started: &Started) {
    let open: Started =
        started.iter().copied().filter(|client| is_open(testbed, *client)).collect();
    for (number, client) in open.iter().enumerate() {
        testbed.take_answers(*client);
        for stream in 0..REQUESTS {
            let key = format!("key {number} {stream}");
            testbed.send(*client, &bytes::insert(4, stream, &key, 9));
        }
    }
    open.iter().for_each(|client| testbed.answered(*client, REQUESTS as usize));
}

fn is_open(testbed: &Testbed, client: HostId<simulated::Client>) -> bool {
    !testbed.scene.world.host(client).is_closed()
}

/// For each core: its slow queries, and its queries to the drained node.
fn counted(testbed: &Testbed) -> [(u64, u64); CORES] {
    [0, 1].map(|core| {
        let metrics = &testbed.scene.metrics[core];
        let node = metrics.nodes.node(NodeId(DRAINED as u16));
        (metrics.slow_queries.get(), node.queries.get())
    })
}

/// A proxy with clients on both cores, whose queries take a second.
fn started() -> (Testbed, Started) {
    let mut testbed = Testbed::bare(|options| {
        options.cores = CORES;
        options.config.slow_query_ms = 0;
    });
    let started: Started = (0..12).map(|_| testbed.started_offender(4)).collect();
    assert!((0..CORES).all(|core| clients(&testbed, core) > 0), "both cores have clients");
    query(&mut testbed, &started);
    testbed.answer_queries_with(|| Action::Delay(SECOND));
    query(&mut testbed, &started);
    assert!(counted(&testbed).iter().all(|(slow, queries)| *slow == 0 && *queries > 0));
    (testbed, started)
}

#[test]
fn statements_end_while_a_core_is_away_and_none_is_lost() {
    let (mut testbed, started) = started();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let post = Post::default();
        let (admin, config, view) = admin_with(&testbed, &post);
        view.send_replace(Some(Arc::new(ring(&testbed))));
        change_options(&admin, config, &post);
        let (control, requests) = mpsc::channel(1);
        admin.take_control(control.downgrade());
        tokio::spawn(drain_nodes(requests, view, Arc::clone(&post)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = AdminCql::new(Pages::new("1", vec![admin]));
        tokio::spawn(server.serve(Listener::Tcp(listener)));
        play(&mut testbed, &started, &post, address).await;
        drop(control);
    });
}

/// The statements of an operator, before and after the core comes back.
async fn play(testbed: &mut Testbed, started: &Started, post: &Post, address: SocketAddr) {
    let missing = format!("rows are missing: core {AWAY} has not answered in time");
    let reads = [
        "SELECT * FROM shunt_admin.clients",
        "SELECT * FROM shunt_admin.client_groups",
        "SELECT * FROM shunt_admin.links",
        "SELECT * FROM shunt_admin.digests",
        "SELECT * FROM shunt_admin.slow_queries",
    ];
    let told = run(testbed, post, true, address, &reads).await;
    assert!(told.iter().all(|told| told.warnings == [&*missing]), "{told:?}");
    assert_eq!(told[0].rows as u64, clients(testbed, 0), "the clients of the other core");
    let whole = ["SELECT * FROM shunt_admin.nodes", "SELECT * FROM shunt_admin.settings"];
    let told = run(testbed, post, true, address, &whole).await;
    assert!(told.iter().all(|told| told.rows > 0 && told.warnings.is_empty()), "{told:?}");

    // Changes are made, also by the core that is away, as soon as it is back.
    let changes = [
        "UPDATE shunt_admin.settings SET value = '500' WHERE name = 'slow_query_ms'",
        "UPDATE shunt_admin.nodes SET drained = true WHERE address = '10.1.0.2'",
    ];
    let told = run(testbed, post, true, address, &changes).await;
    assert!(told[0].warnings[0].starts_with("the value holds until"), "{told:?}");
    assert!(told[1].warnings[0].starts_with("the node has "), "{told:?}");
    deliver(testbed, post, true);
    testbed.run_for(SECOND);
    let before = counted(testbed);
    query(testbed, started);
    let after = counted(testbed);
    assert!(after[0].0 > 0 && after[0].1 == before[0].1, "{before:?} {after:?}");
    assert!(after[AWAY].0 == 0 && after[AWAY].1 > before[AWAY].1, "{before:?} {after:?}");

    let (of_here, of_away) = (clients(testbed, 0), clients(testbed, AWAY));
    let delete = ["DELETE FROM shunt_admin.clients WHERE all = true"];
    let told = run(testbed, post, true, address, &delete).await;
    let part = [
        format!("closed {of_here} clients"),
        format!("core {AWAY} did not answer in time; repeat the DELETE"),
    ];
    assert_eq!(told[0].warnings, part);
    testbed.run_for(SECOND);
    assert_eq!((clients(testbed, 0), clients(testbed, AWAY)), (0, of_away));

    // The core comes back to its mail. Nobody waits for its answers to the reads and the DELETE.
    let told = run(testbed, post, false, address, &whole).await;
    assert!(told.iter().all(|told| told.warnings.is_empty()), "{told:?}");
    deliver(testbed, post, false);
    testbed.run_for(SECOND);
    assert_eq!(clients(testbed, AWAY), of_away, "a DELETE that nobody waits for closes nothing");
    let before = counted(testbed);
    query(testbed, started);
    let after = counted(testbed);
    assert!(after[AWAY].0 > 0 && after[AWAY].1 == before[AWAY].1, "{before:?} {after:?}");
    let told = run(testbed, post, false, address, &delete).await;
    assert_eq!(told[0].warnings, [format!("closed {of_away} clients")]);
    testbed.run_for(SECOND);
    assert!(!started.iter().any(|client| is_open(testbed, *client)), "all clients are closed");
}

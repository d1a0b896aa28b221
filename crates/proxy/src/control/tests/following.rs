//! Events, lost nodes, requests of cores.

use std::time::Instant;

use shunt_topology::NodeId;
use shunt_wire::cql::message::{Event, SchemaChange};

use super::fake::{FIRST_SCHEMA_VERSION, FakeRing, FakeState, bind_soon};
use super::*;
use crate::config::Secret;
use crate::control::contact;

/// Longest wait of the plane for agreement.
const AGREEMENT_MAX: Duration = Duration::from_secs(10);

pub(super) async fn started(ring: &FakeRing) -> Bench {
    let mut bench = Bench::start(&[ring.address(1)], |_| {});
    bench.cluster_where(|_| true).await;
    // The first read is over, so that its queries do not count among those of a test.
    eventually(|| bench.metrics.refreshes.get() > 0).await;
    bench
}

pub(super) fn node_id(bench: &Bench, host_id: u128) -> NodeId {
    let state = bench.view.get().expect("view");
    state.routing.nodes().iter().find(|node| node.host_id == host_id).expect("node").id
}

fn schema_change(keyspace: &str) -> Event<'_> {
    Event::SchemaChange(SchemaChange {
        change: "CREATED",
        target: "KEYSPACE",
        keyspace,
        name: None,
        arguments: None,
    })
}

#[tokio::test]
async fn status_events_mark_nodes() {
    let ring = FakeRing::start(3).await;
    let mut bench = started(&ring).await;
    ring.event(&Event::StatusChange { change: "DOWN", address: ring.address(3) });
    let state = bench.cluster_where(|state| !is_up(state, 3)).await;
    assert!(is_up(&state, 1) && is_up(&state, 2));
    ring.event(&Event::StatusChange { change: "UP", address: ring.address(3) });
    bench.cluster_where(|state| is_up(state, 3)).await;
}

#[tokio::test]
async fn schema_events_reach_the_cores_as_they_came_and_then_the_new_schema() {
    let ring = FakeRing::start(1).await;
    let mut bench = started(&ring).await;
    ring.add_keyspace("fresh");
    let body = ring.event(&schema_change("fresh"));
    match bench.next_mail().await {
        CoreMail::SchemaEvent(received) => assert_eq!(&received[..], body),
        other => panic!("{other:?}"),
    }
    let state = bench.cluster_where(|_| true).await;
    assert!(
        state.routing.keyspace("fresh").is_some() && state.routing.table("fresh", "t").is_some()
    );
}

#[tokio::test]
async fn a_new_node_gets_a_new_number_and_the_others_keep_theirs() {
    let mut ring = FakeRing::start(2).await;
    let mut bench = started(&ring).await;
    let before = bench.view.get().expect("view");
    let address = ring.add_node(3, "127.0.0.1:0").await;
    ring.event(&Event::TopologyChange { change: "NEW_NODE", address });
    let after = bench.cluster_where(|state| state.routing.nodes().len() == 3).await;
    for node in before.routing.nodes() {
        assert_eq!(after.routing.node(node.id).map(|node| node.host_id), Some(node.host_id));
    }
    ring.kill(3);
    ring.edit(|state| state.nodes.retain(|node| node.host_id != 3));
    ring.event(&Event::TopologyChange { change: "REMOVED_NODE", address });
    bench.cluster_where(|state| state.routing.nodes().len() == 2).await;
}

#[tokio::test]
async fn the_loss_of_the_control_node_moves_the_connection_and_marks_the_node() {
    let mut ring = FakeRing::start(3).await;
    let mut bench = started(&ring).await;
    ring.kill(1);
    let state = bench.cluster_where(|state| !is_up(state, 1)).await;
    assert!(is_up(&state, 2) && is_up(&state, 3));
    assert_eq!(bench.metrics.connections_lost.get(), 1);
    eventually(|| bench.metrics.connected.get() == 1).await;
    ring.add_keyspace("later");
    ring.event(&schema_change("later"));
    bench.cluster_where(|state| state.routing.keyspace("later").is_some()).await;
}

#[tokio::test]
async fn changes_without_an_event_are_told_after_the_reconnect() {
    let mut ring = FakeRing::start(2).await;
    ring.add_keyspace("kept");
    ring.add_keyspace("same");
    let mut bench = started(&ring).await;
    // These cause no event.
    ring.add_keyspace("fresh");
    ring.edit(|state| {
        let (keyspace, table, column) = ("kept".to_owned(), "t".to_owned(), "w".to_owned());
        state.columns.push((keyspace, table, column, "regular", -1, "text"));
        state.nodes.iter_mut().for_each(|node| node.schema_version = 78);
    });
    ring.kill(1);
    let mut told = Vec::new();
    while told.len() < 4 {
        if let CoreMail::SchemaEvent(body) = bench.next_mail().await {
            let Event::SchemaChange(found) = Event::decode(&body).expect("event") else {
                panic!("{body:?}")
            };
            let name = found.name.unwrap_or_default();
            told.push(format!("{} {} {} {name}", found.change, found.target, found.keyspace));
        }
    }
    let new = [
        "CREATED KEYSPACE fresh ",
        "CREATED TABLE fresh c",
        "CREATED TABLE fresh t",
        "UPDATED TABLE kept t",
    ];
    assert_eq!(told, new);
    // Known changes are not announced again, nor those that come with an event.
    ring.edit(|state| state.nodes.iter_mut().for_each(|node| node.schema_version = 79));
    ring.add_keyspace("announced");
    let refreshes = bench.metrics.refreshes.get();
    let body = ring.event(&schema_change("announced"));
    eventually(|| bench.metrics.refreshes.get() > refreshes).await;
    let mut heard = Vec::new();
    while let Ok(mail) = bench.mail.try_recv() {
        if let CoreMail::SchemaEvent(received) = mail {
            heard.push(received.to_vec());
        }
    }
    assert_eq!(heard, [body]);
}

#[tokio::test]
async fn a_node_that_a_core_cannot_reach_is_looked_at() {
    let mut ring = FakeRing::start(3).await;
    let mut bench = started(&ring).await;
    let id = bench
        .view
        .get()
        .expect("view")
        .routing
        .nodes()
        .iter()
        .find(|node| node.host_id == 2)
        .expect("node")
        .id;
    // The probes of the start must be over, or they would find the loss.
    eventually(|| bench.metrics.connected.get() == 1).await;
    ring.kill(2);
    bench.ask(ControlRequest::NodeUnreachable(id)).await;
    bench.cluster_where(|state| !is_up(state, 2)).await;
}

#[tokio::test]
async fn reading_the_same_again_is_not_news() {
    let ring = FakeRing::start(2).await;
    let mut bench = started(&ring).await;
    let generation = bench.view.get().expect("view").generation;
    bench.ask(ControlRequest::Refresh).await;
    eventually(|| bench.metrics.refreshes.get() >= 2).await;
    assert_eq!(bench.view.get().expect("view").generation, generation);
    assert!(bench.mail.try_recv().is_err());
}

/// Checks that the plane waits for agreement, which `disagree` has ended and which comes back after
/// at least two checks; `node` made the change.
pub(super) async fn is_awaited(
    ring: &FakeRing,
    bench: &mut Bench,
    node: u128,
    disagree: fn(&mut FakeState),
) {
    for ticket in 5.. {
        ring.edit(disagree);
        let (queries, begun) = (ring.state.lock().expect("lock").queries, Instant::now());
        bench
            .ask(ControlRequest::AwaitSchemaAgreement {
                node: node_id(bench, node),
                core: 0,
                ticket,
                table: None,
            })
            .await;
        // Each check asks local and peers.
        eventually(|| ring.state.lock().expect("lock").queries >= queries + 6).await;
        let early = bench.mail.try_recv().ok();
        ring.edit(|state| {
            state.behind = None;
            state.nodes.iter_mut().for_each(|node| node.schema_version = 78);
        });
        let is_early = early.is_some();
        let mail = match early {
            Some(mail) => mail,
            None => bench.next_mail().await,
        };
        match mail {
            CoreMail::SchemaAgreed { ticket: of, agreed: true } if !is_early => {
                return assert_eq!(of, ticket);
            }
            // The machine was paused: try again.
            CoreMail::SchemaAgreed { agreed: false, .. } if begun.elapsed() >= AGREEMENT_MAX => {}
            other => panic!("{other:?} after {:?}, before agreement: {is_early}", begun.elapsed()),
        }
        ring.edit(agree_as_at_first);
    }
}

fn agree_as_at_first(state: &mut FakeState) {
    state.nodes.iter_mut().for_each(|node| node.schema_version = FIRST_SCHEMA_VERSION);
}

#[tokio::test]
async fn schema_agreement_is_awaited() {
    let ring = FakeRing::start(3).await;
    let mut bench = started(&ring).await;
    is_awaited(&ring, &mut bench, 1, |state| state.nodes[2].schema_version = 78).await;
}

/// The client that made a table may ask for several of its keys next.
#[tokio::test]
async fn a_table_is_known_before_whoever_made_it_is_answered() {
    let ring = FakeRing::start(2).await;
    let mut bench = started(&ring).await;
    for (ticket, node, keyspace) in [(1, 1, "fresh"), (2, 2, "later")] {
        ring.add_keyspace(keyspace);
        let table =
            Some(Box::new(TableName { keyspace: keyspace.to_owned(), table: "t".to_owned() }));
        let node = node_id(&bench, node);
        bench.ask(ControlRequest::AwaitSchemaAgreement { node, core: 0, ticket, table }).await;
        match bench.next_mail().await {
            CoreMail::Cluster(state) => {
                let key: Vec<_> =
                    state.routing.table(keyspace, "t").expect("the table").partition_key.to_vec();
                assert_eq!(
                    key.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(),
                    ["a", "b"]
                );
                assert!(state.routing.keyspace(keyspace).is_some());
            }
            other => panic!("{other:?}"),
        }
        match bench.next_mail().await {
            CoreMail::SchemaAgreed { ticket: of, agreed: true } => assert_eq!(of, ticket),
            other => panic!("{other:?}"),
        }
    }
    // Known tables are not published again.
    let table = Some(Box::new(TableName { keyspace: "fresh".to_owned(), table: "t".to_owned() }));
    let node = node_id(&bench, 1);
    bench.ask(ControlRequest::AwaitSchemaAgreement { node, core: 0, ticket: 3, table }).await;
    assert!(matches!(bench.next_mail().await, CoreMail::SchemaAgreed { ticket: 3, agreed: true }));
}

/// Many clients make tables at the same time, where a service starts on many hosts.
#[tokio::test]
async fn tables_that_are_made_together_are_published_once() {
    const TABLES: u64 = 5;
    let ring = FakeRing::start(2).await;
    let mut bench = started(&ring).await;
    ring.edit(|state| state.nodes[1].schema_version = 78);
    let node = node_id(&bench, 1);
    for ticket in 0..TABLES {
        let keyspace = format!("made{ticket}");
        ring.add_keyspace(&keyspace);
        let table = Some(Box::new(TableName { keyspace, table: "t".to_owned() }));
        bench.ask(ControlRequest::AwaitSchemaAgreement { node, core: 0, ticket, table }).await;
    }
    eventually(|| bench.requests.capacity() == bench.requests.max_capacity()).await;
    ring.edit(agree_as_at_first);
    let state = match bench.next_mail().await {
        CoreMail::Cluster(state) => state,
        other => panic!("{other:?}"),
    };
    for ticket in 0..TABLES {
        assert!(state.routing.table(&format!("made{ticket}"), "t").is_some(), "{ticket}");
        match bench.next_mail().await {
            CoreMail::SchemaAgreed { ticket: of, agreed: true } => assert_eq!(of, ticket),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_schema_event_waits_until_every_node_can_be_asked_about_it() {
    let ring = FakeRing::start(3).await;
    let mut bench = started(&ring).await;
    let body = loop {
        ring.edit(agree_as_at_first);
        ring.edit(|state| state.nodes[0].schema_version = 78);
        let (queries, begun) = (ring.state.lock().expect("lock").queries, Instant::now());
        let body = ring.event(&schema_change("fresh"));
        eventually(|| ring.state.lock().expect("lock").queries >= queries + 6).await;
        let mut is_early = false;
        while let Ok(mail) = bench.mail.try_recv() {
            match mail {
                // The plane may have read the ring again meanwhile.
                CoreMail::Cluster(_) => {}
                // The machine was paused: try again.
                CoreMail::SchemaEvent(_) if begun.elapsed() >= AGREEMENT_MAX => is_early = true,
                other => panic!("{other:?} after {:?}", begun.elapsed()),
            }
        }
        if !is_early {
            break body;
        }
    };
    ring.edit(|state| state.nodes.iter_mut().for_each(|node| node.schema_version = 78));
    loop {
        match bench.next_mail().await {
            CoreMail::SchemaEvent(received) => break assert_eq!(&received[..], body),
            CoreMail::Cluster(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn schema_agreement_is_looked_for_from_the_node_that_made_the_change() {
    let ring = FakeRing::start(3).await;
    let mut bench = started(&ring).await;
    // The control connection's node knows nothing: to it, all versions are the same.
    let disagree = |state: &mut FakeState| {
        state.behind = Some(1);
        state.nodes[1].schema_version = 78;
    };
    is_awaited(&ring, &mut bench, 2, disagree).await;
}

/// A busy node takes a connection and answers later than in the time of a step.
#[tokio::test]
async fn a_node_that_does_not_answer_in_time_is_asked_about_agreement_again() {
    let mut ring = FakeRing::start(2).await;
    let mut bench = Bench::start(&[ring.address(1)], |config| config.connect_timeout_ms = 300);
    bench.cluster_where(|_| true).await;
    let (node, begun) = (node_id(&bench, 2), Instant::now());
    ring.kill(2);
    let listener = bind_soon(ring.address(2)).await;
    let request = ControlRequest::AwaitSchemaAgreement { node, core: 0, ticket: 1, table: None };
    bench.ask(request).await;
    let mut silent = Vec::new();
    for _ in 0..2 {
        silent.push(timeout(GUARD, listener.accept()).await.expect("it asks only once"));
    }
    ring.serve(2, listener);
    loop {
        if let CoreMail::SchemaAgreed { agreed, .. } = bench.next_mail().await {
            // Or the machine was paused.
            return assert!(agreed || begun.elapsed() >= AGREEMENT_MAX);
        }
    }
}

#[tokio::test]
async fn schema_agreement_ignores_nodes_that_are_down() {
    let mut ring = FakeRing::start(3).await;
    ring.edit(|state| state.nodes[2].schema_version = 12);
    ring.kill(3);
    let mut bench = Bench::start(&[ring.address(1)], |_| {});
    bench.cluster_where(|state| !is_up(state, 3)).await;
    bench
        .ask(ControlRequest::AwaitSchemaAgreement {
            node: node_id(&bench, 1),
            core: 0,
            ticket: 1,
            table: None,
        })
        .await;
    match bench.next_mail().await {
        CoreMail::SchemaAgreed { ticket, agreed } => assert_eq!((ticket, agreed), (1, true)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn without_a_control_connection_nobody_waits_for_agreement() {
    let mut ring = FakeRing::start(1).await;
    let address = ring.address(1);
    ring.kill(1);
    let mut bench = Bench::start(&[address], |_| {});
    bench
        .ask(ControlRequest::AwaitSchemaAgreement {
            node: NodeId(0),
            core: 0,
            ticket: 9,
            table: None,
        })
        .await;
    match bench.next_mail().await {
        CoreMail::SchemaAgreed { ticket, agreed } => assert_eq!((ticket, agreed), (9, false)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_node_that_comes_back_with_a_login_is_news() {
    let mut ring = FakeRing::start(1).await;
    let mut bench = Bench::start(&[ring.address(1)], |config| {
        config.username = Some("ann".to_owned());
        config.password = Some(Secret::new("secret"));
    });
    assert_eq!(bench.cluster_where(|_| true).await.authenticator, None);
    ring.kill(1);
    ring.edit(|state| state.login = Some(("ann", "secret")));
    timeout(GUARD, ring.revive(1)).await.expect("its port is free again");
    bench.cluster_where(|state| state.authenticator.is_some()).await;
}

#[tokio::test]
async fn a_reload_changes_the_local_datacentre() {
    let ring = FakeRing::start(2).await;
    ring.edit(|state| state.nodes[1].datacentre = "dc2");
    let mut bench = started(&ring).await;
    bench
        .config
        .send_modify(|config| Arc::make_mut(config).local_datacentre = Some("dc2".to_owned()));
    bench.cluster_where(|state| state.datacentre == "dc2").await;
}

/// A member has agreed with its fleet by this datacentre's nodes. The look-up that would change the
/// datacentre ends at once, long before the refreshes.
#[tokio::test]
async fn other_contact_points_do_not_change_the_datacentre_of_a_fleets_proxy() {
    let ring = FakeRing::start(2).await;
    ring.edit(|state| (state.nodes[1].datacentre, state.modes) = ("dc2", Some(2)));
    let mut bench =
        Bench::start(&[ring.address(1)], |config| config.fleet = Some("main".to_owned()));
    let before = bench.cluster_where(|state| state.datacentre == "dc1").await.generation;
    bench.config.send_modify(|config| {
        Arc::make_mut(config).contact_points = vec![ring.address(2).to_string()];
    });
    bench.cluster_where(|state| state.generation > before).await;
    for _ in 0..3 {
        let refreshes = bench.metrics.refreshes.get();
        bench.requests.send(ControlRequest::Refresh).await.expect("the plane has ended");
        eventually(|| bench.metrics.refreshes.get() > refreshes).await;
    }
    assert_eq!(bench.view.get().expect("a ring").datacentre, "dc1");
}

#[tokio::test]
async fn a_look_up_that_hangs_holds_up_nothing() {
    let ring = FakeRing::start(1).await;
    let mut bench = started(&ring).await;
    let before = bench.view.get().expect("a ring").generation;
    bench.config.send_modify(|config| {
        Arc::make_mut(config).contact_points.push(contact::HANGING.to_owned());
    });
    bench.cluster_where(|state| state.generation > before).await;
    let refreshes = bench.metrics.refreshes.get();
    bench.requests.send(ControlRequest::Refresh).await.expect("the plane has ended");
    eventually(|| bench.metrics.refreshes.get() > refreshes).await;
}

#[tokio::test]
async fn the_plane_ends_with_the_cores() {
    let ring = FakeRing::start(1).await;
    let bench = started(&ring).await;
    let Bench { requests, plane, .. } = bench;
    drop(requests);
    timeout(GUARD, plane).await.expect("still running").expect("panicked").expect("no complaint");
}

/// The same holds with requests that nobody has taken yet.
#[tokio::test]
async fn the_plane_ends_with_the_cores_while_a_node_says_nothing() {
    for waiting in [0, 3] {
        let ring = FakeRing::start(1).await;
        let mut bench =
            Bench::start(&[ring.address(1)], |config| config.query_timeout_ms = 3_600_000);
        bench.cluster_where(|_| true).await;
        eventually(|| bench.metrics.refreshes.get() > 0).await;
        ring.edit(|state| (state.delay, state.queries) = (Duration::from_secs(3600), 0));
        bench.requests.send(ControlRequest::Refresh).await.expect("the plane has ended");
        eventually(|| ring.state.lock().expect("lock").queries > 0).await;
        for ticket in 0..waiting {
            let request = ControlRequest::AwaitSchemaAgreement {
                node: NodeId(0),
                core: 0,
                ticket,
                table: None,
            };
            bench.requests.send(request).await.expect("the plane has ended");
        }
        let Bench { requests, plane, .. } = bench;
        drop(requests);
        timeout(GUARD, plane)
            .await
            .expect("still running")
            .expect("panicked")
            .expect("no complaint");
    }
}

#[tokio::test]
async fn a_drained_node_stays_drained_and_loses_the_control_connection() {
    let mut ring = FakeRing::start(3).await;
    let mut bench = started(&ring).await;
    let (id, refreshes) = (node_id(&bench, 1), bench.metrics.refreshes.get());
    bench.ask(ControlRequest::DrainNode { host_id: 1, drained: true }).await;
    bench.cluster_where(|state| state.drained == [id]).await;
    eventually(|| bench.metrics.refreshes.get() > refreshes).await;
    assert_eq!(bench.metrics.connections_lost.get(), 0);
    // Nothing depends on the node any more.
    ring.kill(1);
    ring.add_keyspace("later");
    ring.event(&schema_change("later"));
    let state = bench.cluster_where(|state| state.routing.keyspace("later").is_some()).await;
    assert_eq!(state.drained, [id]);
    assert_eq!(bench.metrics.connections_lost.get(), 0);
    let config = Config { heartbeat_interval_ms: 3_500_000, ..(**bench.config.borrow()).clone() };
    bench.config.send_replace(Arc::new(config));
    let state = bench.cluster_where(|_| true).await;
    assert_eq!(state.drained, [id], "a reload keeps it");
    bench.ask(ControlRequest::DrainNode { host_id: 1, drained: false }).await;
    bench.cluster_where(|state| state.drained.is_empty()).await;
}

/// Somebody waits for agreement all the time, so that the control connection stays. The session
/// that is open for its place grows old meanwhile, and its node may end it.
#[tokio::test]
async fn a_drained_node_is_not_left_for_a_session_that_nobody_has_read_for_long() {
    let mut ring = FakeRing::start(3).await;
    let age_max = |plane: &mut ControlPlane| plane.next_age_max = Duration::from_millis(50);
    let mut bench = Bench::start_prepared(&[ring.address(1)], None, |_| {}, age_max);
    bench.cluster_where(|_| true).await;
    eventually(|| bench.metrics.refreshes.get() > 0).await;
    let (node, refreshes) = (node_id(&bench, 1), bench.metrics.refreshes.get());
    ring.edit(|state| state.nodes[2].schema_version = 78);
    for ticket in 0..3 {
        let request = ControlRequest::AwaitSchemaAgreement { node, core: 0, ticket, table: None };
        bench.ask(request).await;
    }
    bench.ask(ControlRequest::DrainNode { host_id: 1, drained: true }).await;
    bench.cluster_where(|state| state.drained == [node]).await;
    eventually(|| ring.state.lock().expect("lock").introductions > 2).await;
    ring.edit(agree_as_at_first);
    eventually(|| bench.metrics.refreshes.get() > refreshes).await;
    ring.kill(1);
    ring.add_keyspace("later");
    ring.event(&schema_change("later"));
    bench.cluster_where(|state| state.routing.keyspace("later").is_some()).await;
    assert_eq!(bench.metrics.connections_lost.get(), 0);
}

/// The address of the other node leads to the drained one: a connection to it is no way out.
#[tokio::test]
async fn a_drained_node_is_not_left_for_itself() {
    let mut ring = FakeRing::start(2).await;
    ring.kill(2);
    let elsewhere = bind_soon(ring.address(2)).await;
    ring.serve(1, elsewhere);
    let mut bench = started(&ring).await;
    let (id, refreshes) = (node_id(&bench, 1), bench.metrics.refreshes.get());
    let queries = ring.state.lock().expect("lock").queries;
    bench.ask(ControlRequest::DrainNode { host_id: 1, drained: true }).await;
    bench.cluster_where(|state| state.drained == [id]).await;
    // Its ring in two queries, and its host id.
    eventually(|| ring.state.lock().expect("lock").queries >= queries + 3).await;
    bench.ask(ControlRequest::DrainNode { host_id: 1, drained: false }).await;
    bench.cluster_where(|state| state.drained.is_empty()).await;
    assert_eq!(bench.metrics.refreshes.get(), refreshes, "it has another control connection");
}

#[tokio::test]
async fn the_last_node_that_takes_queries_is_not_drained() {
    let ring = FakeRing::start(2).await;
    let mut bench = started(&ring).await;
    let id = node_id(&bench, 2);
    // All at once, as two operators may ask.
    bench.ask(ControlRequest::DrainNode { host_id: 2, drained: true }).await;
    bench.ask(ControlRequest::DrainNode { host_id: 1, drained: true }).await;
    bench.ask(ControlRequest::DrainNode { host_id: 2, drained: false }).await;
    bench.cluster_where(|state| state.drained == [id]).await;
    loop {
        let state = bench.cluster_where(|_| true).await;
        assert!(state.drained.is_empty() || state.drained == [id], "{:?}", state.drained);
        if state.drained.is_empty() {
            return;
        }
    }
}

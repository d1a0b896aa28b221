//! The log names the clients that were closed, with the reason, and those that failed to log in;
//! and it stays short, however many they are.

use std::sync::Arc;

use shunt_admin::Label as _;
use shunt_bench::stub::Action;
use shunt_proxy::control::CoreMail;
use shunt_proxy::metrics::{Closing, GivenUp, PoolState, StallReason};
use shunt_reactor::sim::{HostId, SECOND};
use shunt_testing::{bytes, simulated};
use shunt_topology::NodeId;
use shunt_wire::cql::envelope::opcode;
use tokio::sync::mpsc;

use super::support::journal::Journal;
use super::support::scene::SceneOptions;
use super::testbed::Testbed;

fn with_login(options: &mut SceneOptions) {
    options.credentials = vec![("ann".into(), "secret".into())];
}

/// A client that was asked for a login and sends this token.
fn log_in(testbed: &mut Testbed, driver: &str, token: &[u8]) -> HostId<simulated::Client> {
    let client = testbed.offender();
    testbed.send(client, &bytes::startup_of(4, driver, "1.2"));
    testbed.answered(client, 1);
    assert_eq!(testbed.take_answers(client)[0].header.opcode, opcode::AUTHENTICATE);
    testbed.send(client, &bytes::auth_response(4, token));
    client
}

#[test]
fn a_failed_login_is_told_with_address_role_and_driver_but_no_password() {
    let journal = Journal::open();
    let mut testbed = Testbed::bare(with_login);
    let client = log_in(&mut testbed, "Driver X", b"\0eve\0hunter2");
    testbed.closed(client);
    let line = journal.only(&["closed a client", "reason=authentication", "role=eve"]);
    assert!(line.contains("driver=Driver X 1.2") && line.contains("address=10."), "{line}");
    journal.never("hunter2");
}

#[test]
fn malformed_logins_are_not_logged_and_odd_names_are_escaped_and_cut() {
    let journal = Journal::open();
    let mut testbed = Testbed::bare(with_login);
    for token in [&b"hunter2"[..], b"eve\0hunter2", b"\0eve\0hunter2\0more", b"\0\xffeve\0"] {
        let client = log_in(&mut testbed, "x", token);
        testbed.closed(client);
        testbed.run_for(2 * SECOND);
    }
    let long = [b"\0ev\x1b[2J\ne\"", "é".repeat(2_000).as_bytes(), b"\0hunter2"].concat();
    let client = log_in(&mut testbed, &"dr\x07".repeat(2_000), &long);
    testbed.closed(client);
    testbed.run_for(2 * SECOND);
    let lines = journal.with(&["closed a client", "reason=authentication"]);
    assert_eq!(lines.len(), 5, "{lines:#?}");
    assert!(lines[..4].iter().all(|line| line.contains("role=unknown")), "{lines:#?}");
    assert!(
        lines[4].contains(r"role=ev\u{1b}[2J\ne") && lines[4].contains(r"driver=dr\u{7}dr"),
        "{}",
        lines[4]
    );
    assert!(lines[4].len() < 800 && !lines[4].contains(|c: char| c.is_control()), "{}", lines[4]);
    journal.never("hunter2");
}

/// The log has a line for each way in which the proxy ends a connection.
#[test]
fn every_close_of_the_proxys_making_says_who_and_why() {
    let journal = Journal::open();
    let mut testbed = Testbed::bare(|options| {
        with_login(options);
        options.config.clients_max = 2;
        options.config.client_backlog_bytes = 100_000;
    });
    let inside = |testbed: &mut Testbed| {
        let client = log_in(testbed, "Driver Y", b"\0ann\0secret");
        testbed.answered(client, 1);
        assert_eq!(testbed.take_answers(client)[0].header.opcode, opcode::AUTH_SUCCESS);
        client
    };
    let told = |reason: &str| {
        let line = journal.only(&["closed a client", &format!("reason={reason} ")]);
        assert!(line.contains("role=ann") && line.contains("driver=Driver Y 1.2"), "{line}");
    };
    let client = inside(&mut testbed);
    testbed.send(client, &bytes::request(4, 1, 0x55, &[]));
    testbed.closed(client);
    told("protocol_error");

    let client = inside(&mut testbed);
    testbed.send(client, &bytes::query(4, 1, "SELECT v FROM bench.kv WHERE k = 0x00")[..20]);
    testbed.closed(client);
    told("request_timeout");

    let client = inside(&mut testbed);
    testbed.stop_reading(client);
    let query = bytes::query(4, 1, "SELECT * FROM system_schema.columns");
    (0..2_000).for_each(|_| testbed.send(client, &query));
    testbed.run_for(100 * SECOND);
    testbed.resume_reading(client);
    testbed.closed(client);
    told("replies_untaken");

    let late = testbed.offender();
    testbed.send(late, &bytes::startup(4, None)[..4]);
    testbed.closed(late);
    journal.only(&["closed a client", "reason=handshake_timeout"]);

    let clients = [inside(&mut testbed), inside(&mut testbed)];
    let third = testbed.offender();
    testbed.send(third, &bytes::startup(4, None));
    testbed.closed(third);
    journal.only(&["closed a client", "reason=too_many"]);
    assert!(clients.iter().all(|client| !testbed.scene.world.host(*client).is_closed()));
}

/// Drivers begin with the newest version that they know, on every connection: that is counted, and
/// not logged.
#[test]
fn a_driver_that_steps_down_is_no_news_and_a_knock_in_another_language_is() {
    let journal = Journal::open();
    let mut testbed = Testbed::bare(|_| ());
    let closed = |testbed: &Testbed, reason: Closing| {
        testbed.scene.metrics[0].clients_closed.of(reason).get()
    };
    // DataStax's drivers, and cqlsh with them, begin with those of DataStax Enterprise: 66, then
    // 65.
    for (count, version) in (1..).zip([6, 66, 65]) {
        let newer = testbed.offender();
        testbed.send(newer, &bytes::startup(version, None));
        testbed.closed(newer);
        assert_eq!(
            (closed(&testbed, Closing::Version), closed(&testbed, Closing::ProtocolError)),
            (count, 0)
        );
    }
    assert!(journal.with(&["closed a client"]).is_empty());
    let browser = testbed.offender();
    testbed.send(browser, b"GET / HTTP/1.1\r\n\r\n");
    testbed.closed(browser);
    assert_eq!(
        (closed(&testbed, Closing::Version), closed(&testbed, Closing::ProtocolError)),
        (3, 1)
    );
    journal.only(&["closed a client", "reason=protocol_error", "an HTTP request"]);
}

/// A client that does wrong a thousand times a second causes one line a second.
#[test]
fn a_flood_of_wrongs_is_a_line_a_second_with_the_number_of_the_others() {
    let journal = Journal::open();
    let mut testbed = Testbed::bare(|options| options.cores = 2);
    let mut wrongs = 0;
    for _ in 0..10 {
        let clients: Vec<_> = (0..60).map(|_| testbed.offender()).collect();
        clients.iter().for_each(|client| testbed.send(*client, &bytes::request(4, 1, 0x55, &[])));
        testbed.run_for(SECOND / 2);
        wrongs +=
            clients.iter().filter(|client| testbed.scene.world.host(**client).is_closed()).count()
                as u64;
    }
    testbed.run_for(3 * SECOND);
    let lines = journal.with(&["reason=protocol_error"]);
    assert!(wrongs == 600 && (3..=8).contains(&lines.len()), "{wrongs}: {lines:#?}");
    let told = journal.with(&["closed a client", "reason=protocol_error"]).len() as u64;
    assert_eq!(told + Journal::sum(&lines, "suppressed"), 600, "{lines:#?}");
}

/// A core's answer for `/status`: its clients, equal ones as one group.
#[test]
fn a_core_counts_its_clients_by_who_they_are() {
    let mut testbed = Testbed::bare(with_login);
    for (driver, keyspace) in [("A", None), ("A", None), ("B", None), ("B", Some("bench"))] {
        let client = log_in(&mut testbed, driver, b"\0ann\0secret");
        testbed.answered(client, 1);
        if let Some(keyspace) = keyspace {
            testbed.send(client, &bytes::query(4, 1, &format!("USE {keyspace}")));
            testbed.answered(client, 2);
        }
    }
    let late = testbed.offender();
    testbed.send(late, &bytes::startup_of(4, "C", ""));
    testbed.answered(late, 1);
    let (sender, mut answers) = mpsc::channel(1);
    testbed.scene.world.post(testbed.scene.cores[0], CoreMail::Census(sender));
    testbed.run_for(SECOND);
    let counted = answers.try_recv().expect("an answer");
    let mut found: Vec<_> = counted
        .groups
        .iter()
        .map(|(group, tally)| {
            let driver = group.driver.as_ref().map_or("", |driver| &*driver.name);
            let (role, keyspace) = (group.role.as_deref(), group.keyspace.as_deref());
            (driver.to_owned(), role.map(str::to_owned), keyspace.map(str::to_owned), tally.clients)
        })
        .collect();
    // The simulated network gives every host its own address.
    found.sort();
    let ann = || Some("ann".to_owned());
    let row = |driver: &str, role, keyspace: Option<&str>| {
        (driver.to_owned(), role, keyspace.map(str::to_owned), 1)
    };
    assert_eq!(
        found,
        [
            row("A", ann(), None),
            row("A", ann(), None),
            row("B", ann(), None),
            row("B", ann(), Some("bench")),
            row("C", None, None)
        ]
    );
    assert_eq!(counted.others.clients, 0);
    // Without a fleet a core has no locks to report.
    let (sender, mut answers) = mpsc::channel(1);
    testbed.scene.world.post(testbed.scene.cores[0], CoreMail::Locks(sender));
    testbed.run_for(SECOND);
    let told = answers.try_recv().expect("an answer");
    assert!(told.core == 0 && told.queues.is_empty() && told.fleet.is_none(), "{told:?}");
}

/// The admin tables of connections and of failed logins, for an operator who may go away.
#[test]
fn a_core_lists_its_connections_and_the_logins_that_failed() {
    let mut testbed = Testbed::bare(with_login);
    let inside = log_in(&mut testbed, "A\x1b[2J", b"\0ann\0secret");
    testbed.answered(inside, 1);
    testbed.send(inside, &bytes::query(4, 1, "SELECT v FROM bench.kv WHERE k = 0x00"));
    testbed.answered(inside, 2);
    let late = testbed.offender();
    testbed.send(late, &bytes::startup_of(4, "B", ""));
    testbed.answered(late, 1);
    for _ in 0..3 {
        let client = log_in(&mut testbed, "C", b"\0ann\0hunter2");
        testbed.closed(client);
        testbed.run_for(SECOND);
    }
    let core = testbed.scene.cores[0];
    // An operator who goes away ends a list, and the next one gets the answer.
    testbed.scene.world.post(core, CoreMail::Connections(mpsc::channel(1).0));
    let (sender, mut answers) = mpsc::channel(1);
    testbed.scene.world.post(core, CoreMail::Connections(sender));
    testbed.run_for(SECOND);
    let listed = answers.try_recv().expect("an answer");
    let mut clients: Vec<_> = listed
        .clients
        .iter()
        .map(|client| (client.stage, client.role.as_deref(), client.queries))
        .collect();
    clients.sort_unstable();
    assert_eq!(clients, [("AUTHENTICATING", None, 0), ("READY", Some("ann"), 1)]);
    let ready = listed.clients.iter().find(|client| client.stage == "READY").expect("a client");
    let driver = ready.driver.as_ref().map(|driver| &*driver.name);
    assert_eq!(driver, Some(r"A\u{1b}[2J"));
    let pool = listed.pools.iter().find(|pool| Some(pool.number) == ready.pool).expect("its pool");
    let of_pool = listed.links.iter().filter(|link| link.pool == pool.number).count();
    assert_eq!((pool.clients, pool.role.as_deref(), pool.links.0), (1, Some("ann"), of_pool));
    assert!(listed.links.iter().any(|link| link.state == "ready" && link.purpose == "serves"));
    let (sender, mut answers) = mpsc::channel(1);
    testbed.scene.world.post(core, CoreMail::RefusedLogins(sender));
    testbed.run_for(SECOND);
    let logins = answers.try_recv().expect("an answer").logins;
    let found: Vec<_> = logins
        .iter()
        .map(|login| (&*login.role, login.count, login.reason.text(), login.why.is_empty()))
        .collect();
    // Each of the simulated hosts has its own address.
    assert_eq!(found, [("ann", 1, "authentication", false); 3]);
    assert!(!format!("{logins:?}").contains("hunter2"));
    let (sender, mut answers) = mpsc::channel(1);
    testbed.scene.world.post(core, CoreMail::LockList(sender));
    testbed.run_for(SECOND);
    assert!(answers.try_recv().expect("an answer").locks.is_empty(), "without a fleet");
}

/// An error may repeat a client's own words; they must not get into the log unescaped.
#[test]
fn an_error_that_quotes_a_client_is_told_escaped_and_cut() {
    let journal = Journal::open();
    let mut testbed = Testbed::bare(|_| {});
    let client = testbed.offender();
    testbed.send(client, &bytes::startup(4, Some(&"\x1b[2J\nforged ".repeat(3_000))));
    testbed.closed(client);
    let line = journal.only(&["closed a client", "reason=protocol_error"]);
    assert!(line.contains(r"Unknown compression algorithm: \u{1b}[2j\nforged"), "{line}");
    assert!(
        line.len() < 800 && !line.contains(|c: char| c.is_control()),
        "{} bytes: {line}",
        line.len()
    );
}

/// Links given up, orphaned stream ids, stall reasons, and the state of the pool.
#[test]
fn a_silent_nodes_effects_are_counted() {
    let mut testbed = Testbed::bare(|options| options.nodes = 1);
    let client = testbed.started_offender(4);
    // Its links have asked for the identity.
    testbed.run_for(SECOND);
    testbed.hook_all(|| Box::new(|_| Action::Silence));
    (0..10).for_each(|stream| {
        testbed.send(client, &bytes::query(4, stream, "SELECT v FROM bench.kv WHERE k = 0x00"))
    });
    testbed.answered(client, 10);
    testbed.run_for(SECOND);
    let metrics = Arc::clone(&testbed.scene.metrics[0]);
    let node = metrics.nodes.node(NodeId(0));
    assert_eq!((node.streams_orphaned.get(), metrics.pools.of(PoolState::Open).get()), (10, 1));
    testbed.run_for(70 * SECOND);
    assert_eq!(node.links_given_up.of(GivenUp::UnansweredQuery).get(), 1);
    // The node is gone now, so the next query finds no link.
    testbed.scene.world.kill(testbed.scene.nodes[0]);
    testbed.run_for(3 * SECOND);
    testbed.take_answers(client);
    let before = metrics.client_stalls.of(StallReason::NoLink).get();
    testbed.send(client, &bytes::query(4, 1, "SELECT v FROM bench.kv WHERE k = 0x00"));
    testbed.run_for(SECOND);
    assert_eq!(
        (metrics.clients_stalled.of(StallReason::NoLink).get(), metrics.clients_paused.get()),
        (1, 1)
    );
    assert_eq!(metrics.pools.of(PoolState::Open).get(), 0);
    let without = [PoolState::Opening, PoolState::Unreachable]
        .map(|state| metrics.pool_clients.of(state).get());
    assert_eq!(without.iter().sum::<u64>(), 1);
    testbed.answered(client, 1);
    testbed.run_for(SECOND);
    let stalled: u64 =
        StallReason::ALL.iter().map(|reason| metrics.clients_stalled.of(*reason).get()).sum();
    assert_eq!((stalled, metrics.client_stalls.of(StallReason::NoLink).get()), (0, before + 1));
    assert_eq!(node.streams_orphaned.get(), 0);
    testbed.reset(client);
}

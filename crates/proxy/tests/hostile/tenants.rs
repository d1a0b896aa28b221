//! A tenant beyond its limits waits or is refused, and nobody else notices.

use shunt_bench::stub::Action;
use shunt_proxy::config::{Config, Readable as _, TenantList, Written};
use shunt_proxy::metrics::Refusal;
use shunt_reactor::sim::{HostId, MILLISECOND, SECOND, World};
use shunt_testing::{bytes, simulated};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::OVERLOADED;

use super::support::scene::SceneOptions;
use super::testbed::{ANN, Testbed};

type Client = HostId<simulated::Client>;

const BOB: (&str, &str) = ("bob", "secret");
const QUERY: &str = "SELECT v FROM bench.kv WHERE k = 0x01";

fn number(number: i128) -> Written {
    Written::Number(number)
}

fn text(text: &str) -> Written {
    Written::Text(text.to_owned())
}

fn table(entries: &[(&str, Written)]) -> Written {
    Written::Table(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
}

/// Sections for these roles, each with a name and limits.
fn sections(tenants: &[(&str, &[(&str, Written)])]) -> TenantList {
    let section = |(role, limits): &(&str, &[(&str, Written)])| {
        let clients = table(&[("role", text(role))]);
        table(&[&[("name", text(role)), ("match", clients)], *limits].concat())
    };
    let mut faults = Vec::new();
    let list = Written::List(tenants.iter().map(section).collect());
    let list = TenantList::read(&list, &mut faults).expect("a list");
    assert_eq!(faults, Vec::<String>::new());
    list
}

fn testbed(tenants: TenantList, change: impl FnOnce(&mut SceneOptions)) -> Testbed {
    Testbed::bare(|options| {
        options.nodes = 1;
        options.aggregate = vec![false];
        options.credentials = [ANN, BOB].map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        options.config.query_timeout_ms = 60_000;
        options.config.tenant = tenants;
        change(options);
        options.config.cores = options.cores;
    })
}

fn logged_in(testbed: &mut Testbed, (role, password): (&str, &str)) -> Client {
    let client = testbed.started_offender(4);
    let token = format!("\0{role}\0{password}");
    testbed.send(client, &bytes::auth_response(4, token.as_bytes()));
    testbed.answered(client, 1);
    assert_eq!(testbed.take_answers(client)[0].header.opcode, opcode::AUTH_SUCCESS);
    client
}

fn send_many(testbed: &mut Testbed, client: Client, count: i16) {
    let queries: Vec<u8> = (0..count).flat_map(|stream| bytes::query(4, stream, QUERY)).collect();
    testbed.send(client, &queries);
}

/// Answers so far: results and errors.
fn answers(testbed: &Testbed, client: Client) -> (usize, usize) {
    let answers = &testbed.scene.world.host(client).answers;
    let errors = answers.iter().filter(|answer| answer.header.opcode == opcode::ERROR).count();
    (answers.len() - errors, errors)
}

fn ask(testbed: &mut Testbed, client: Client) -> u64 {
    let start_ns = testbed.scene.world.now_ns();
    testbed.send(client, &bytes::query(4, 1, QUERY));
    testbed.answered(client, 1);
    let answers = testbed.take_answers(client);
    assert_eq!(answers[0].header.opcode, opcode::RESULT, "{answers:?}");
    testbed.scene.world.now_ns() - start_ns
}

fn is_at_rest(testbed: &Testbed) -> bool {
    let metrics = testbed.scene.metrics.iter();
    metrics.clone().all(|core| core.clients_paused.get() == 0 && core.in_flight.get() == 0)
}

#[test]
fn a_tenant_has_its_rate_and_a_free_client_notices_nothing() {
    for cores in [1, 2] {
        let limits = [("queries_per_s", number(100)), ("burst", number(10))];
        let tenants = sections(&[("ann", &limits)]);
        let mut testbed = testbed(tenants, |options| options.cores = cores);
        let limited: Vec<_> = (0..4).map(|_| logged_in(&mut testbed, ANN)).collect();
        let free = logged_in(&mut testbed, BOB);
        testbed.run_for(SECOND);
        limited.iter().for_each(|client| send_many(&mut testbed, *client, 400));
        for round in 0..20 {
            let took_ns = ask(&mut testbed, free);
            assert!(took_ns < 50 * MILLISECOND, "{round}: {} ms", took_ns / MILLISECOND);
            testbed.run_for(SECOND / 2 - took_ns);
        }
        let each: Vec<usize> = limited.iter().map(|it| answers(&testbed, *it).0).collect();
        let all: usize = each.iter().sum();
        assert!((980..=1_020).contains(&all), "{each:?}");
        if cores == 1 {
            assert!(each.iter().all(|count| (200..=300).contains(count)), "{each:?}");
        }
        let done = |world: &mut World| {
            limited.iter().all(|client| world.host(*client).answers.len() == 400)
        };
        assert!(testbed.scene.world.run_until(30 * SECOND, done), "a client is never woken");
        let streams = |client: &Client| {
            let answers = &testbed.scene.world.host(*client).answers;
            answers.iter().map(|answer| answer.header.stream).collect::<Vec<_>>()
        };
        let in_order: Vec<i16> = (0..400).collect();
        assert!(limited.iter().all(|client| streams(client) == in_order));
        assert!(is_at_rest(&testbed));
    }
}

#[test]
fn a_reload_changes_limits_and_lifts_them() {
    let limits = |rate: i128| sections(&[("ann", &[("queries_per_s", number(rate))])]);
    let mut testbed = testbed(limits(1), |_| {});
    let client = logged_in(&mut testbed, ANN);
    let reload = |testbed: &mut Testbed, tenant: TenantList| {
        // As a reload of the process does.
        let former = testbed.scene.options.config.clone();
        let config = former.reloaded(&Config { tenant, ..former.clone() });
        testbed.scene.options.config = config.config.clone();
        testbed.scene.reload_as(config.config);
    };
    send_many(&mut testbed, client, 1_000);
    testbed.run_for(3 * SECOND);
    assert!(answers(&testbed, client).0 <= 5, "{:?}", answers(&testbed, client));
    reload(&mut testbed, limits(100));
    testbed.run_for(3 * SECOND);
    let (right, _) = answers(&testbed, client);
    assert!((280..=420).contains(&right), "{right}");
    reload(&mut testbed, TenantList::default());
    testbed.run_for(SECOND);
    assert_eq!(answers(&testbed, client), (1_000, 0));
    reload(&mut testbed, limits(5));
    testbed.run_for(SECOND);
    testbed.take_answers(client);
    send_many(&mut testbed, client, 100);
    testbed.run_for(2 * SECOND);
    let (right, _) = answers(&testbed, client);
    assert!((10..=17).contains(&right), "a section that comes back limits again: {right}");
}

#[test]
fn queries_in_flight_are_bounded_even_if_their_clients_leave() {
    for cores in [1, 2] {
        let tenants = sections(&[("ann", &[("in_flight_max", number(8))])]);
        let mut testbed = testbed(tenants, |options| options.cores = cores);
        let free = logged_in(&mut testbed, BOB);
        let clients: Vec<_> = (0..6).map(|_| logged_in(&mut testbed, ANN)).collect();
        testbed.answer_queries_with(|| Action::Delay(200 * MILLISECOND));
        clients.iter().for_each(|client| send_many(&mut testbed, *client, 20));
        let most = 8 + cores as u64 - 1;
        let in_flight = |testbed: &Testbed| -> u64 {
            testbed.scene.metrics.iter().map(|core| core.in_flight.get()).sum()
        };
        for _ in 0..20 {
            testbed.run_for(10 * MILLISECOND);
            assert!(in_flight(&testbed) <= most, "{}", in_flight(&testbed));
        }
        assert!(in_flight(&testbed) >= 6, "{}", in_flight(&testbed));
        assert!(ask(&mut testbed, free) < 300 * MILLISECOND);
        // One that leaves and comes back has no second part.
        testbed.reset(clients[0]);
        let back = logged_in(&mut testbed, ANN);
        send_many(&mut testbed, back, 20);
        for _ in 0..20 {
            testbed.run_for(10 * MILLISECOND);
            assert!(in_flight(&testbed) <= most, "{}", in_flight(&testbed));
        }
        let others = [&clients[1..], &[back]].concat();
        let done =
            |world: &mut World| others.iter().all(|client| world.host(*client).answers.len() == 20);
        assert!(testbed.scene.world.run_until(60 * SECOND, done), "a client is never woken");
        assert!(others.iter().all(|client| answers(&testbed, *client) == (20, 0)));
        assert!(is_at_rest(&testbed));
    }
}

#[test]
fn overloaded_names_the_tenant_and_the_limit() {
    let limits =
        [("queries_per_s", number(10)), ("burst", number(5)), ("on_excess", text("overloaded"))];
    let mut testbed = testbed(sections(&[("ann", &limits)]), |_| {});
    let client = logged_in(&mut testbed, ANN);
    send_many(&mut testbed, client, 20);
    testbed.answered(client, 20);
    let (right, refused) = answers(&testbed, client);
    assert!((5..=7).contains(&right) && right + refused == 20, "{right} {refused}");
    let answers = testbed.take_answers(client);
    let error = answers.iter().find(|answer| answer.header.opcode == opcode::ERROR);
    let (code, why) = error.expect("an error").error();
    assert_eq!(code, OVERLOADED);
    assert!(why.contains("tenant `ann`") && why.contains("queries_per_s = 10"), "{why}");
    testbed.run_for(SECOND);
    ask(&mut testbed, client);
}

#[test]
fn a_client_that_waits_too_long_gets_an_error() {
    let limits = [("queries_per_s", number(1)), ("burst", number(1))];
    let mut testbed = testbed(sections(&[("ann", &limits)]), |options| {
        options.config.node_silence_ms = 2_000;
    });
    let clients: Vec<_> = (0..10).map(|_| logged_in(&mut testbed, ANN)).collect();
    clients.iter().for_each(|client| testbed.send(*client, &bytes::query(4, 1, QUERY)));
    let done =
        |world: &mut World| clients.iter().all(|client| world.host(*client).answers.len() == 1);
    assert!(testbed.scene.world.run_until(30 * SECOND, done), "nobody waits for ever");
    let refused: usize = clients.iter().map(|client| answers(&testbed, *client).1).sum();
    assert!((5..=9).contains(&refused), "{refused}");
    assert!(is_at_rest(&testbed));
}

#[test]
fn a_dry_run_counts_and_does_nothing() {
    let limits = [("queries_per_s", number(10)), ("dry_run", Written::Truth(true))];
    let tenants = sections(&[("ann", &limits)]);
    let mut testbed = testbed(tenants, |_| {});
    let client = logged_in(&mut testbed, ANN);
    send_many(&mut testbed, client, 100);
    testbed.answered(client, 100);
    assert_eq!(answers(&testbed, client), (100, 0));
    let stalls = shunt_proxy::metrics::StallReason::Tenant;
    assert_eq!(testbed.scene.metrics[0].client_stalls.of(stalls).get(), 0);
    let counted = testbed.scene.options.config.tenant.0[0].counted();
    assert_eq!(counted.queries, 100);
    assert!((85..=90).contains(&counted.would_limit), "{counted:?}");
    assert_eq!((counted.limited, counted.in_flight, counted.clients), (0, 0, 1));
}

#[test]
fn two_hundred_and_fifty_six_tenants_are_found_and_counted() {
    let names: Vec<String> = (0..255).map(|number| format!("role{number}")).collect();
    let limits = [("queries_per_s", number(1_000)), ("in_flight_max", number(10))];
    let mut all: Vec<(&str, &[(&str, Written)])> =
        names.iter().map(|name| (name.as_str(), &limits[..])).collect();
    all.push(("ann", &limits));
    let mut testbed = testbed(sections(&all), |_| {});
    let client = logged_in(&mut testbed, ANN);
    send_many(&mut testbed, client, 50);
    testbed.answered(client, 50);
    assert_eq!(answers(&testbed, client), (50, 0));
    let tenants = &testbed.scene.options.config.tenant;
    let counted: Vec<u64> = tenants.0.iter().map(|tenant| tenant.counted().queries).collect();
    assert_eq!((counted.iter().sum::<u64>(), counted[255]), (50, 50));
}

/// The count of queries in flight stays where it began.
#[test]
fn a_client_that_uses_a_keyspace_moves_and_leaves_its_queries_counted() {
    let clients = table(&[("keyspace", text("bench"))]);
    let section = |name: &str, entries: &[(&str, Written)]| {
        table(&[&[("name", text(name)), ("in_flight_max", number(5))], entries].concat())
    };
    let list = [section("bench", &[("match", clients)]), section("rest", &[])];
    let list = TenantList::read(&Written::List(list.into()), &mut Vec::new()).expect("a list");
    let mut testbed = testbed(list, |_| {});
    let client = logged_in(&mut testbed, ANN);
    ask(&mut testbed, client);
    testbed.hook_all(|| {
        Box::new(|request| {
            let is_slow = request.body.windows(QUERY.len()).any(|part| part == QUERY.as_bytes());
            if is_slow { Action::Delay(SECOND) } else { Action::Answer }
        })
    });
    send_many(&mut testbed, client, 4);
    testbed.send(client, &bytes::query(4, 9, "USE bench"));
    testbed.answered(client, 1);
    let counted = |testbed: &Testbed| {
        let tenants = &testbed.scene.options.config.tenant.0;
        [0, 1].map(|place| tenants[place].counted()).map(|it| (it.clients, it.in_flight))
    };
    assert_eq!(counted(&testbed), [(1, 0), (0, 4)], "it has moved without its queries");
    send_many(&mut testbed, client, 8);
    testbed.run_for(SECOND / 10);
    assert_eq!(counted(&testbed), [(1, 5), (0, 4)]);
    testbed.answered(client, 13);
    assert_eq!(counted(&testbed), [(1, 0), (0, 0)]);
}

fn clients_of(testbed: &Testbed, place: usize) -> (u64, u64, u64) {
    let counted = testbed.scene.options.config.tenant.0[place].counted();
    (counted.clients, counted.limited, counted.would_limit)
}

/// Logs in until the proxy closes the connection.
fn turned_away(testbed: &mut Testbed, (role, password): (&str, &str)) {
    let client = testbed.started_offender(4);
    let token = format!("\0{role}\0{password}");
    testbed.send(client, &bytes::auth_response(4, token.as_bytes()));
    testbed.closed(client);
    // Drivers take any ERROR to a password for a wrong one.
    assert!(testbed.take_answers(client).is_empty());
}

#[test]
fn a_tenant_takes_no_more_clients_than_its_limit_and_gives_places_back() {
    for cores in [1, 2] {
        let tenants = sections(&[("ann", &[("clients_max", number(3))])]);
        let mut testbed = testbed(tenants, |options| options.cores = cores);
        let clients: Vec<_> = (0..3).map(|_| logged_in(&mut testbed, ANN)).collect();
        for _ in 0..10 {
            turned_away(&mut testbed, ANN);
        }
        assert_eq!(clients_of(&testbed, 0), (3, 10, 0));
        let refused = Refusal::Tenant;
        let cores = testbed.scene.metrics.iter();
        assert_eq!(cores.map(|core| core.clients_refused.of(refused).get()).sum::<u64>(), 10);
        let free = logged_in(&mut testbed, BOB);
        clients.iter().chain([&free]).for_each(|client| _ = ask(&mut testbed, *client));
        // One ends, and one in the middle of a query.
        testbed.reset(clients[0]);
        testbed.answer_queries_with(|| Action::Delay(200 * MILLISECOND));
        testbed.send(clients[1], &bytes::query(4, 1, QUERY));
        testbed.run_for(50 * MILLISECOND);
        testbed.reset(clients[1]);
        testbed.run_for(SECOND);
        let more = [logged_in(&mut testbed, ANN), logged_in(&mut testbed, ANN)];
        turned_away(&mut testbed, ANN);
        testbed.reset(clients[2]);
        more.into_iter().for_each(|client| testbed.reset(client));
        testbed.run_for(SECOND);
        assert_eq!(clients_of(&testbed, 0), (0, 11, 0));
        assert!(is_at_rest(&testbed));
    }
}

#[test]
fn a_client_without_a_password_reads_why_it_has_no_place() {
    let section = table(&[("name", text("all")), ("clients_max", number(1))]);
    let list = TenantList::read(&Written::List(vec![section]), &mut Vec::new()).expect("a list");
    let mut testbed = testbed(list, |options| options.credentials.clear());
    let client = testbed.started_offender(4);
    let second = testbed.offender();
    testbed.send(second, &bytes::startup(4, None));
    testbed.closed(second);
    let answers = testbed.take_answers(second);
    let (code, why) = answers[0].error();
    assert!(code == OVERLOADED && answers.len() == 1, "{answers:?}");
    assert!(why.contains("tenant `all`") && why.contains("clients_max = 1"), "{why}");
    ask(&mut testbed, client);
}

/// A client whose USE is refused keeps its keyspace and its tenant.
#[test]
fn a_use_brings_no_client_to_a_full_tenant() {
    let clients = table(&[("keyspace", text("bench"))]);
    let limits = [("name", text("bench")), ("match", clients), ("clients_max", number(1))];
    let list = [table(&limits), table(&[("name", text("rest"))])];
    let list = TenantList::read(&Written::List(list.into()), &mut Vec::new()).expect("a list");
    let mut testbed = testbed(list, |_| {});
    let [first, second] = [logged_in(&mut testbed, ANN), logged_in(&mut testbed, ANN)];
    let name = |testbed: &mut Testbed, client: Client| {
        testbed.send(client, &bytes::query(4, 9, "USE bench"));
        testbed.answered(client, 1);
        testbed.take_answers(client).remove(0)
    };
    assert_eq!(name(&mut testbed, first).header.opcode, opcode::RESULT);
    let refused = name(&mut testbed, second);
    let (code, why) = refused.error();
    assert!(code == OVERLOADED && why.contains("clients_max = 1"), "{why}");
    assert_eq!([clients_of(&testbed, 0).0, clients_of(&testbed, 1).0], [1, 1]);
    ask(&mut testbed, second);
    testbed.send(second, &bytes::query(4, 1, "SELECT v FROM kv WHERE k = 0x01"));
    testbed.answered(second, 1);
    testbed.take_answers(second);
    testbed.reset(first);
    testbed.run_for(SECOND);
    assert_eq!(name(&mut testbed, second).header.opcode, opcode::RESULT, "the place is free");
    assert_eq!([clients_of(&testbed, 0).0, clients_of(&testbed, 1).0], [1, 0]);
}

#[test]
fn clients_beyond_a_limit_stay_after_a_reload_and_in_a_dry_run() {
    let limits = |most: i128, dry_run: bool| {
        let limits = [("clients_max", number(most)), ("dry_run", Written::Truth(dry_run))];
        sections(&[("ann", &limits)])
    };
    let mut testbed = testbed(limits(2, true), |_| {});
    let clients: Vec<_> = (0..4).map(|_| logged_in(&mut testbed, ANN)).collect();
    assert_eq!(clients_of(&testbed, 0), (4, 0, 2));
    let former = testbed.scene.options.config.clone();
    let tenant = limits(3, false);
    let config = former.reloaded(&Config { tenant, ..former.clone() }).config;
    testbed.scene.options.config = config.clone();
    testbed.scene.reload_as(config);
    testbed.run_for(SECOND);
    turned_away(&mut testbed, ANN);
    clients.iter().for_each(|client| _ = ask(&mut testbed, *client));
    clients[..2].iter().for_each(|client| testbed.reset(*client));
    testbed.run_for(SECOND);
    logged_in(&mut testbed, ANN);
    turned_away(&mut testbed, ANN);
    assert_eq!(clients_of(&testbed, 0), (3, 2, 2));
}

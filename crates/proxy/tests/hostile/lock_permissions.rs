//! Nodes decide which roles may use locks: a role without SELECT on a table gets none of its locks,
//! nor does one without any node's answer, and an answer about a role counts for no other and not
//! for longer than `auth_cache_ms`.
//!
//! The fleet has no tables here, so an allowed lock belongs to no shard: the error that says so
//! shows that it was allowed.

use shunt_reactor::sim::{HostId, MILLISECOND, SECOND};
use shunt_testing::{bytes, simulated};
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::error_code::{INVALID, IS_BOOTSTRAPPING, OVERLOADED, UNAUTHORIZED};
use shunt_wire::cql::message::{Consistency, encode, put};

use super::handshake_node::Reaction;
use super::handshake_testbed::{HandshakeTestbed, TOKEN as ANN};

const BOB: &[u8] = b"\0bob\0secret";
const CACHE_MS: u64 = 2_000;
const CACHE: u64 = CACHE_MS * MILLISECOND;

type Client = HostId<simulated::Client>;

struct Setup(HandshakeTestbed);

impl Setup {
    fn new(cache_ms: u64) -> Setup {
        let change = |config: &mut shunt_proxy::config::Config| {
            config.fleet = Some("main".into());
            config.auth_cache_ms = cache_ms;
        };
        Setup(HandshakeTestbed::with(3, true, change))
    }

    fn log_in(&mut self, token: &[u8]) -> Client {
        let client = self.0.log_in(token);
        assert_eq!(self.0.next_opcode(client), opcode::AUTH_SUCCESS);
        client
    }

    fn permit(&mut self, login: &'static [u8], table: &'static str) {
        self.0.all(|node| {
            node.permits.insert((login, table));
        });
    }

    fn revoke(&mut self, login: &'static [u8], table: &'static str) {
        self.0.all(|node| {
            node.permits.remove(&(login, table));
        });
    }

    fn react(&mut self, reaction: Reaction) {
        self.0.all(|node| node.permission = reaction);
    }

    fn questions(&self) -> u64 {
        self.0.count(|node| node.permission_queries)
    }

    fn error(&mut self, client: Client) -> (i32, String) {
        self.0.testbed.answered(client, 1);
        self.0.testbed.take_answers(client)[0].error()
    }

    fn ask(&mut self, client: Client, text: &str) -> (i32, String) {
        self.0.testbed.send(client, &bytes::query(4, 1, text));
        self.error(client)
    }

    fn is_allowed(&mut self, client: Client, table: &str) -> bool {
        let answer = self.ask(client, &insert(table));
        allowed(&answer)
    }

    fn passes(&mut self, nanoseconds: u64) {
        self.0.testbed.run_for(nanoseconds);
    }

    fn is_at_rest(&mut self) {
        self.passes(5 * SECOND);
        assert_eq!(self.0.testbed.scene.metrics[0].in_flight.get(), 0);
    }
}

fn insert(table: &str) -> String {
    let (column, value) = if table.ends_with("rwlocks") { (", mode", ", 'X'") } else { ("", "") };
    format!(
        "INSERT INTO shunt.{table} (name, owner{column}) VALUES ('n', 'o'{value}) IF NOT EXISTS USING TTL 5"
    )
}

/// The answer, if it is one of the two that these tests expect.
fn allowed((code, words): &(i32, String)) -> bool {
    match *code {
        UNAUTHORIZED => {
            assert_eq!(words, "the node says no");
            false
        }
        IS_BOOTSTRAPPING if words.contains("none does yet") || words.contains("no member") => true,
        _ => panic!("{code:#x} {words}"),
    }
}

#[test]
fn each_role_has_its_own_rights_on_each_table() {
    let mut setup = Setup::new(CACHE_MS);
    let (ann, bob) = (setup.log_in(ANN), setup.log_in(BOB));
    setup.permit(ANN, "locks");
    setup.permit(BOB, "fast_locks");
    for _ in 0..3 {
        assert!(setup.is_allowed(ann, "locks") && !setup.is_allowed(bob, "locks"));
        assert!(!setup.is_allowed(ann, "fast_locks") && setup.is_allowed(bob, "fast_locks"));
        assert!(!setup.is_allowed(ann, "rwlocks") && !setup.is_allowed(ann, "fast_rwlocks"));
        for text in [
            "SELECT * FROM shunt.lock_queue WHERE name = 'n'",
            "SELECT owner FROM shunt.rwlocks WHERE name = 'n'",
            "DELETE FROM shunt.fast_locks WHERE name = 'n' IF owner = 'o'",
            "UPDATE shunt.fast_locks USING TTL 5 SET owner = 'o' WHERE name = 'n' IF owner = 'o'",
        ] {
            assert!(!allowed(&setup.ask(ann, text)), "{text}");
        }
    }
}

#[test]
fn a_batch_needs_the_right_on_all_of_its_tables() {
    let mut setup = Setup::new(CACHE_MS);
    let ann = setup.log_in(ANN);
    setup.permit(ANN, "locks");
    let insert = |table: &str, name: &str| insert(table).replace("'n'", &format!("'{name}'"));
    let batch = |other: &str| {
        format!("BEGIN BATCH {}; {}; APPLY BATCH", insert("locks", "a"), insert(other, "b"))
    };
    assert!(allowed(&setup.ask(ann, &batch("locks"))));
    assert!(!allowed(&setup.ask(ann, &batch("rwlocks"))));
}

/// Any client can claim that a request was forwarded.
#[test]
fn a_request_that_says_it_was_forwarded_needs_the_same_right() {
    let mut setup = Setup::new(CACHE_MS);
    let (ann, bob) = (setup.log_in(ANN), setup.log_in(BOB));
    setup.permit(ANN, "locks");
    for (client, may) in [(ann, true), (bob, false)] {
        let body = bytes::body(|out| {
            put::bytes_map(out, [("shunt-hop", Some(&[1_u8][..]))]);
            encode::query_simple(out, 4, &insert("locks"), Consistency::ONE);
        });
        let header = Header { flags: flag::CUSTOM_PAYLOAD, ..Header::request(4, 1, opcode::QUERY) };
        setup.0.testbed.send(client, &bytes::envelope(header, &body));
        assert_eq!(allowed(&setup.error(client)), may);
    }
}

#[test]
fn a_right_that_was_revoked_counts_no_longer_than_the_cache_however_often_it_is_used() {
    for pause in [50, 700, 5_000].map(|ms| ms * MILLISECOND) {
        let mut setup = Setup::new(CACHE_MS);
        let ann = setup.log_in(ANN);
        setup.permit(ANN, "locks");
        let until = setup.0.testbed.scene.world.now_ns() + 8 * SECOND;
        while setup.0.testbed.scene.world.now_ns() < until {
            assert!(setup.is_allowed(ann, "locks"));
            setup.passes(pause);
        }
        setup.revoke(ANN, "locks");
        let revoked = setup.0.testbed.scene.world.now_ns();
        loop {
            let is_over = setup.0.testbed.scene.world.now_ns() > revoked + CACHE;
            if !setup.is_allowed(ann, "locks") {
                break;
            }
            assert!(!is_over, "asked every {pause} ns");
            setup.passes(pause);
        }
        setup.permit(ANN, "locks");
        setup.passes(CACHE + MILLISECOND);
        assert!(setup.is_allowed(ann, "locks"), "granted again");
    }
}

#[test]
fn without_a_cache_each_request_is_decided_by_what_holds_when_it_comes() {
    let mut setup = Setup::new(0);
    let ann = setup.log_in(ANN);
    for _ in 0..5 {
        assert!(!setup.is_allowed(ann, "locks"));
        setup.permit(ANN, "locks");
        assert!(setup.is_allowed(ann, "locks"));
        setup.revoke(ANN, "locks");
    }
}

#[test]
fn nodes_are_asked_once_for_many_requests_and_then_now_and_again() {
    let mut setup = Setup::new(CACHE_MS);
    let ann = setup.log_in(ANN);
    setup.permit(ANN, "locks");
    let many: Vec<u8> =
        (0..100).flat_map(|stream| bytes::query(4, stream, &insert("locks"))).collect();
    for _ in 0..10 {
        setup.0.testbed.send(ann, &many);
        setup.0.testbed.answered(ann, 100);
        assert!(setup.0.testbed.take_answers(ann).iter().all(|answer| allowed(&answer.error())));
    }
    // A request without an owner takes a second to fail.
    assert!((5..=12).contains(&setup.questions()), "{}", setup.questions());
}

/// Neither silence nor an error lets a client in, and no client waits for longer than drivers do.
#[test]
fn unanswered_permissions_are_refused_in_time_and_asked_again() {
    for reaction in [Reaction::Ignore, Reaction::Refuse(OVERLOADED), Reaction::Refuse(INVALID)] {
        let mut setup = Setup::new(CACHE_MS);
        let (ann, bob) = (setup.log_in(ANN), setup.log_in(BOB));
        setup.permit(ANN, "locks");
        setup.react(reaction);
        for client in [ann, bob] {
            setup.0.testbed.send(client, &bytes::query(4, 1, &insert("locks")));
        }
        setup.passes(1_600 * MILLISECOND);
        for client in [ann, bob] {
            let answers = setup.0.testbed.take_answers(client);
            assert_eq!(answers.len(), 1, "{reaction:?}: answered once and in time");
            let (code, words) = answers[0].error();
            assert!(
                code == IS_BOOTSTRAPPING && words.contains("no node has said"),
                "{code:#x} {words}"
            );
        }
        assert!(setup.questions() < 60, "{} questions", setup.questions());
        setup.react(Reaction::Accept);
        assert!(setup.is_allowed(ann, "locks") && !setup.is_allowed(bob, "locks"));
        setup.is_at_rest();
    }
}

#[test]
fn a_verdict_that_nodes_do_not_renew_grows_too_old() {
    let mut setup = Setup::new(CACHE_MS);
    let ann = setup.log_in(ANN);
    setup.permit(ANN, "locks");
    assert!(setup.is_allowed(ann, "locks"));
    setup.react(Reaction::Ignore);
    setup.passes(CACHE + MILLISECOND);
    let (code, words) = setup.ask(ann, &insert("locks"));
    assert!(code == IS_BOOTSTRAPPING && words.contains("no node has said"), "{code:#x} {words}");
}

#[test]
fn a_client_that_leaves_while_it_waits_leaves_nothing() {
    let mut setup = Setup::new(CACHE_MS);
    let (ann, bob) = (setup.log_in(ANN), setup.log_in(BOB));
    setup.permit(ANN, "locks");
    setup.react(Reaction::Ignore);
    for client in [ann, bob] {
        setup.0.testbed.send(client, &bytes::query(4, 1, &insert("locks")));
    }
    setup.passes(100 * MILLISECOND);
    setup.0.testbed.reset(ann);
    setup.passes(100 * MILLISECOND);
    setup.react(Reaction::Accept);
    setup.is_at_rest();
    // The next client's role is asked about anew.
    let (again, next) = (setup.log_in(ANN), setup.log_in(BOB));
    assert!(setup.is_allowed(again, "locks") && !setup.is_allowed(next, "locks"));
}

/// A proxy that is no member yet retries a request until it is, and must not then grant the lock
/// for longer than the fleet allows.
#[test]
fn locks_in_memory_are_not_asked_for_before_the_longest_ttl_is_known() {
    let change = |config: &mut shunt_proxy::config::Config| config.fleet = Some("main".into());
    let mut setup = Setup(HandshakeTestbed::with(3, false, change));
    let client = setup.0.testbed.started_offender(4);
    let renew =
        "UPDATE shunt.fast_locks USING TTL 50000 SET owner = 'o' WHERE name = 'n' IF owner = 'o'";
    for text in
        [&insert("fast_locks").replace("TTL 5", "TTL 50000"), &insert("fast_rwlocks"), renew]
    {
        let (code, words) = setup.ask(client, text);
        assert!(code == IS_BOOTSTRAPPING && words.contains("no member"), "{code:#x} {words}");
    }
}

#[test]
fn no_node_is_asked_without_logins() {
    let change = |config: &mut shunt_proxy::config::Config| config.fleet = Some("main".into());
    let mut setup = Setup(HandshakeTestbed::with(3, false, change));
    let client = setup.0.testbed.started_offender(4);
    assert!(setup.is_allowed(client, "locks"));
    assert_eq!(setup.questions(), 0);
}

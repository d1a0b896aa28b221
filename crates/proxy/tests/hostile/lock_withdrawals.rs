//! Any client can send a proxy's message that withdraws a request: an OPTIONS with a payload. It
//! withdraws waiting requests of the same connection, and nothing else.

use shunt_proxy::config::Secret;
use shunt_reactor::sim::{HostId, MILLISECOND, SECOND};
use shunt_testing::{Answer, bytes, simulated};
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::error_code::{IS_BOOTSTRAPPING, WRITE_TIMEOUT};
use shunt_wire::cql::message::{Consistency, encode, put};

use super::handshake_node::Reaction;
use super::handshake_testbed::{HandshakeTestbed, TOKEN};
use super::lock_ring::LockTestbed;

/// Wait of a request, longer than these tests check.
const WAIT: &str = "INSERT INTO shunt.fast_locks (name, owner, wait_ms) VALUES ('a', 'waits', 1500) IF NOT EXISTS USING TTL 20";
const TAKE: &str =
    "INSERT INTO shunt.fast_locks (name, owner) VALUES ('a', 'holds') IF NOT EXISTS USING TTL 20";
const RELEASE: &str = "DELETE FROM shunt.fast_locks WHERE name = 'a' IF owner = 'holds'";
const QUEUE: &str = "SELECT owner FROM shunt.lock_queue WHERE name = 'a'";

/// A request as another proxy forwards it.
fn forwarded(stream: i16, text: &str) -> Vec<u8> {
    forwarded_as(1, stream, text)
}

/// A forwarded request of another kind.
pub(super) fn forwarded_as(kind: u8, stream: i16, text: &str) -> Vec<u8> {
    let body = bytes::body(|out| {
        put::bytes_map(out, [("shunt-hop", Some(&[kind][..]))]);
        encode::query_simple(out, 4, text, Consistency::ONE);
    });
    let header =
        Header { flags: flag::CUSTOM_PAYLOAD, ..Header::request(4, stream, opcode::QUERY) };
    bytes::envelope(header, &body)
}

pub(super) fn withdraws(stream: i16) -> Vec<u8> {
    let [high, low] = stream.to_be_bytes();
    let body = bytes::body(|out| put::bytes_map(out, [("shunt-hop", Some(&[3, high, low][..]))]));
    let header = Header { flags: flag::CUSTOM_PAYLOAD, ..Header::request(4, 0, opcode::OPTIONS) };
    bytes::envelope(header, &body)
}

type Client = HostId<simulated::Client>;

fn queue(ring: &mut LockTestbed, client: Client) -> Vec<String> {
    let text = |value: &Option<Vec<u8>>| String::from_utf8(value.clone().unwrap()).unwrap();
    ring.ask(client, QUEUE).rows().iter().map(|row| text(&row[0])).collect()
}

/// The answers on the stream ids of requests, not of OPTIONS.
fn answers(ring: &mut LockTestbed, client: Client) -> Vec<Answer> {
    ring.testbed.run_for(100 * MILLISECOND);
    let all = ring.testbed.take_answers(client);
    all.into_iter().filter(|answer| answer.opcode() != opcode::SUPPORTED).collect()
}

#[test]
fn a_withdrawal_is_of_the_connections_own_request_that_waits() {
    let mut ring = LockTestbed::new(|_| {});
    let [holder, proxy, other] = [0; 3].map(|_| ring.client(None));
    assert!(ring.applies(holder, TAKE));
    ring.testbed.send(proxy, &forwarded(7, WAIT));
    ring.testbed.run_for(MILLISECOND);
    for (client, stream) in [(other, 7), (holder, 7), (proxy, 6), (proxy, 0), (proxy, -1)] {
        ring.testbed.send(client, &withdraws(stream));
    }
    assert!([proxy, other, holder].iter().all(|client| answers(&mut ring, *client).is_empty()));
    assert_eq!(queue(&mut ring, holder), ["holds", "waits"], "it waits on");
    // Withdraw its own request, and once more.
    ring.testbed.send(proxy, &[withdraws(7), withdraws(7)].concat());
    let told = answers(&mut ring, proxy);
    assert_eq!(
        told.iter().map(|answer| (answer.stream(), answer.error().0)).collect::<Vec<_>>(),
        [(7, WRITE_TIMEOUT)]
    );
    assert_eq!(queue(&mut ring, holder), ["holds"]);
    assert!(ring.applies(holder, RELEASE));
    assert_eq!(queue(&mut ring, holder), [""; 0], "nobody is granted what nobody waits for");
}

/// The request had been answered before, or a release in the same bytes answers it: the hold stays,
/// and so does a later request of the same stream id.
#[test]
fn a_granted_request_is_not_withdrawn() {
    let mut ring = LockTestbed::new(|_| {});
    let proxy = ring.client(None);
    ring.testbed.send(proxy, &forwarded(7, TAKE));
    assert_eq!(answers(&mut ring, proxy)[0].rows()[0][0].as_deref(), Some(&[1][..]));
    ring.testbed.send(proxy, &withdraws(7));
    assert_eq!(answers(&mut ring, proxy).len(), 0);
    assert_eq!(queue(&mut ring, proxy), ["holds"]);
    let wait = forwarded(7, WAIT);
    ring.testbed.send(
        proxy,
        &[withdraws(7), wait, forwarded(8, RELEASE), withdraws(7), withdraws(8)].concat(),
    );
    let told = answers(&mut ring, proxy);
    let mut applied: Vec<_> =
        told.iter().map(|answer| (answer.stream(), answer.rows()[0][0].clone())).collect();
    applied.sort();
    assert_eq!(applied, [(7, Some(vec![1])), (8, Some(vec![1]))]);
    assert_eq!(queue(&mut ring, proxy), ["waits"]);
}

/// A withdrawal does not concern requests that a client made itself, nor those that do not wait.
#[test]
fn other_requests_are_not_withdrawn() {
    let mut ring = LockTestbed::new(|_| {});
    let [holder, client] = [0; 2].map(|_| ring.client(None));
    assert!(ring.applies(holder, TAKE));
    let unreadable = bytes::envelope(
        Header { flags: flag::CUSTOM_PAYLOAD, ..Header::request(4, 0, opcode::OPTIONS) },
        &[0, 1, 0, 9, b's', b'h'],
    );
    ring.testbed.send(client, &[bytes::query(4, 7, WAIT), withdraws(7), unreadable].concat());
    assert_eq!(answers(&mut ring, client).len(), 0);
    assert_eq!(queue(&mut ring, holder), ["holds", "waits"]);
}

/// A request withdrawn before a node allows it never runs.
#[test]
fn a_request_that_waits_for_its_permission_is_withdrawn_too() {
    let change = |config: &mut shunt_proxy::config::Config| config.fleet = Some("main".into());
    let mut ring = HandshakeTestbed::with(3, true, change);
    let proxy = ring.log_in(TOKEN);
    assert_eq!(ring.next_opcode(proxy), opcode::AUTH_SUCCESS);
    ring.all(|node| node.permission = Reaction::Ignore);
    let testbed = &mut ring.testbed;
    testbed.send(proxy, &[forwarded(7, WAIT), forwarded(8, WAIT), withdraws(7)].concat());
    testbed.run_for(100 * MILLISECOND);
    let told = testbed.take_answers(proxy);
    let told: Vec<_> = told.iter().filter(|answer| answer.opcode() == opcode::ERROR).collect();
    assert_eq!(
        told.iter().map(|answer| (answer.stream(), answer.error().0)).collect::<Vec<_>>(),
        [(7, IS_BOOTSTRAPPING)]
    );
    testbed.run_for(3 * SECOND);
    assert_eq!(testbed.take_answers(proxy).iter().map(Answer::stream).collect::<Vec<_>>(), [8]);
    ring.all(|node| node.permission = Reaction::Accept);
    let testbed = &mut ring.testbed;
    testbed.run_for(5 * SECOND);
    assert_eq!(testbed.scene.metrics[0].in_flight.get(), 0);
}

/// A hundred thousand of them are answered, at no cost to other clients.
#[test]
fn a_flood_of_withdrawals_ends_nothing() {
    let mut ring = LockTestbed::new(|options| {
        options.credentials = vec![("ann".to_owned(), "secret".to_owned())];
        options.config.username = Some("ann".to_owned());
        options.config.password = Some(Secret::new("secret"));
    });
    let [holder, proxy, hostile] = [0; 3].map(|_| ring.client(Some(("ann", "secret"))));
    assert!(ring.applies(holder, TAKE));
    ring.testbed.send(proxy, &forwarded(7, WAIT));
    let flood: Vec<u8> = (0..100_000).flat_map(|number| withdraws(number as i16)).collect();
    ring.testbed.send(hostile, &flood);
    ring.testbed.run_for(200 * MILLISECOND);
    assert_eq!(queue(&mut ring, holder), ["holds", "waits"]);
    assert!(ring.applies(holder, RELEASE));
    assert_eq!(answers(&mut ring, proxy)[0].rows()[0][0].as_deref(), Some(&[1][..]));
}

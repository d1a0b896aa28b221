//! Bounds, pauses, and the route of a request.

use std::sync::Arc;

use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{Consistency, QueryParams, encode};
use shunt_wire::cql::statement;

use super::*;
use crate::client::account::Account;
use crate::ids::PoolId;
use crate::multiget::reasons::Whole;
use crate::plan::After;
use crate::prepared::{PreparedStatement, PreparedStore};
use crate::route;
use crate::router::Router;

/// The plan for an IN query on a table with this mode.
fn planned(mode: Option<&str>) -> After {
    let mut router = Router::new(Arc::new(PreparedStore::new()), 0, true);
    if let Some(mode) = mode {
        router.modes.add("ks", "t", mode);
    }
    let text = "SELECT v FROM ks.t WHERE k IN ?";
    let statement =
        PreparedStatement::opaque(b"sixteen bytes id", text, &statement::classify(text), None);
    let account = Account::default();
    router.prepared.learn(account, statement.of_partitions(Err(Whole::Where)));
    let mut body = Vec::new();
    encode::execute(
        &mut body,
        4,
        b"sixteen bytes id",
        None,
        &QueryParams::simple(Consistency::ONE),
    );
    let header = Header::request(4, 1, opcode::EXECUTE);
    route::plan_execute(&mut router, PoolId::NONE, &header, &body).unwrap().after
}

#[test]
fn a_table_of_which_proxies_decide_has_its_own_way() {
    assert_eq!(planned(None), After::Multiget);
    assert_eq!(planned(Some("full")), After::Transaction);
}

#[test]
fn bets_that_are_lost_pause_a_statement_longer_each_time() {
    let mut multigets = Multigets::default();
    let (id, other) = ([1; ID_BYTES], [2; ID_BYTES]);
    assert!(!multigets.is_paused(&id, 0));
    for times in 0..=limits::MULTIGET_PAUSE_DOUBLINGS + 2 {
        multigets.pause(id, 0);
        let length_ns = limits::MULTIGET_PAUSE_NS << times.min(limits::MULTIGET_PAUSE_DOUBLINGS);
        assert!(
            multigets.is_paused(&id, length_ns - 1) && !multigets.is_paused(&id, length_ns),
            "{times}"
        );
    }
    assert!(!multigets.is_paused(&other, 0));
    multigets.won(&id);
    multigets.pause(id, 0);
    assert!(!multigets.is_paused(&id, limits::MULTIGET_PAUSE_NS));
    for number in 0..2 * limits::MULTIGET_PAUSES_MAX as u128 {
        multigets.pause(number.to_be_bytes(), 0);
        assert!(multigets.pauses.len() <= limits::MULTIGET_PAUSES_MAX);
    }
}

#[test]
fn parts_requests_and_bytes_have_bounds() {
    let mut multigets = Multigets::default();
    assert!(multigets.has_room(limits::MULTIGET_PARTS_MAX, limits::MULTIGETS_BYTES_MAX));
    assert!(!multigets.has_room(limits::MULTIGET_PARTS_MAX + 1, 0));
    assert!(!multigets.has_room(1, limits::MULTIGETS_BYTES_MAX + 1));
    for place in 0..limits::MULTIGET_PARTS_MAX {
        multigets.parts.insert(Part { gather: 0, number: 1, place });
    }
    assert!(multigets.has_room(0, 1) && !multigets.has_room(1, 1));
}

/// A read of 128 KiB may hold a hundred requests with a hundred parts of a kilobyte each.
#[test]
fn a_turn_writes_so_many_parts_and_other_requests_go_whole() {
    let mut turn = Turn::default();
    let parts = |turn: &mut Turn, now_ns, count, bytes| {
        (0..1_000).filter(|_| turn.admits(now_ns, count, bytes)).count() * count
    };
    for now_ns in 1..4 {
        let written = parts(&mut turn, now_ns, 128, 1_024);
        assert_eq!(written * 1_024, limits::MULTIGET_TURN_BYTES_MAX);
    }
    assert_eq!(parts(&mut turn, 4, 10, 30), limits::MULTIGET_TURN_PARTS_MAX / 10 * 10);
    assert!(turn.admits(5, 2 * limits::MULTIGET_TURN_PARTS_MAX, 1), "the first of a turn");
    assert!(!turn.admits(5, 1, 1));
}

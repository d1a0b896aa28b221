//! A model of writes under guard: the [`crate::Transactions`] and [`crate::Opening`] of two
//! proxies, what is around them, and all that can happen, in every order.
//!
//! It is the real decision machine that runs, and the real recovery. Around them is a model of the
//! rest:
//!
//! | of the model | stands for |
//! |---|---|
//! | requests on their way | clients whose lock was held with their fence when its owner was asked; it may have passed on since, and a request may arrive at any later time |
//! | `fences.rs` | the proxy's `own_rows.rs` and `fences.rs`: the fence's row is locked, read at QUORUM unless it is known, compared, and written by the same record |
//! | messages (`state.rs`) | a mutation to three replicas: it reaches each at any later time or never, sent once or again, by its owner, by a recovery, or as a hint |
//! | `rest.rs` | what is read in the end: hints are replayed, and all replicas repaired |
//! | leases, `takes_over`, `dies` | `fleet`: a shard has another owner when the former one's lease has run out or its process has ended |
//! | `changes` | conditional statements on the row of a shard, carried out at any later time |
//!
//! Nobody has to do anything soon: a proxy that stands still is one to which nothing happens. Which
//! replicas have a message is settled when it makes a difference: when two of them are read, or a
//! quorum has acknowledged it. So all the times at which it may have come are one state until then.
//! What a proxy hears of the log without holding the shard, and requests that come to one without a
//! lease, are left out: it does nothing with them. So are low marks (`histories.rs` has them),
//! deadlines but in one search, clocks of different speed, and the refusal by the lock's owner,
//! without which all of this has to hold as well ([ADR
//! 20](../../../../docs/adr/0020-fences-are-compared-where-transactions-are-decided.md)).
//!
//! Once a request has been acknowledged, nothing with an earlier fence shows at rest that a quorum
//! need not have had by then, and nothing that it has not read; what was acknowledged is there, or
//! something that was written over it; of what was refused nothing was ever sent. For each step
//! that this relies on there is a search without it, which must find a violation: `--nocapture`
//! prints its history.

mod events;
mod fences;
mod happen;
mod machine;
mod opener;
mod rest;
mod search;
mod state;

use crate::engine::weakened::Without;
use events::{Bounds, Event, LeftOut};
use happen::Seen;
use search::{FoundRecord, led, search};
use state::{Request, X, Y};

/// Enough for every search of these tests.
const STATES_MAX: usize = 2_000_000;

const fn writes(fence: u8, row: u8) -> Request {
    Request { fence, reads: false, writes: Some(row) }
}

/// One writes a row; another, with a later fence, reads it and writes down what it has read.
const COPIED: &[Request] = &[writes(1, X), Request { fence: 2, reads: true, writes: Some(Y) }];
/// Both write the same row: timestamps count.
const OVERWRITTEN: &[Request] = &[writes(1, X), writes(2, X)];
/// Each writes a row of its own: they share nothing but the fence.
const APART: &[Request] = &[writes(1, X), writes(2, Y)];
/// A SELECT with a later fence: it writes nothing but the fence.
const SELECTED: &[Request] = &[writes(1, X), Request { fence: 2, reads: true, writes: None }];
/// The former holder has two on their way.
const THREE: &[Request] =
    &[writes(1, X), Request { fence: 2, reads: true, writes: Some(Y) }, writes(1, X)];

/// The holder has two on their way, the second of which comes when the fence is known; both write
/// the same row.
const KNOWN: &[Request] = &[writes(1, X), writes(1, X), writes(2, Y)];

/// One owner after another, no fault but that a proxy stands still.
const WHOLE: Bounds = Bounds {
    requests: COPIED,
    take_overs: 1,
    faults: 0,
    deadlines: false,
    without: None,
    left_out: LeftOut::Nothing,
    sought: "",
    begun: &[],
};

fn looked_at(name: &str, bounds: Bounds, states_max: usize) -> FoundRecord {
    let begun = std::time::Instant::now();
    let found = search(bounds, states_max);
    let FoundRecord { states, machines, depth, .. } = found;
    println!(
        "{name}: {states} states, {machines} of transactions, {depth} steps deep, {:?}",
        begun.elapsed()
    );
    if let Some((what, history)) = &found.violation {
        println!("{what}\n{history}");
    }
    found
}

/// No state is wrong, and all states were visited.
fn holds(name: &str, bounds: Bounds) -> Seen {
    let found = looked_at(name, bounds, STATES_MAX);
    assert!(found.violation.is_none(), "{name}: {}", found.violation.expect("one").0);
    assert!(!found.is_cut, "{name}: there are more than {STATES_MAX} states");
    found.seen
}

/// Something is wrong, of this kind.
fn is_missed(name: &str, bounds: Bounds, sought: &'static str) {
    let found = looked_at(name, Bounds { sought, ..bounds }, STATES_MAX);
    assert!(found.violation.is_some(), "{name}: nobody notices");
}

/// `make test-long` has a fault besides, which takes a third of the time of all tests here. The
/// searches of three requests and of known fences have some of its states.
#[test]
fn nothing_shows_that_a_later_fence_has_not_read() {
    let faults = u8::from(std::env::var_os("SHUNT_MODEL_STATES").is_some());
    let seen = holds("copied", Bounds { faults, ..WHOLE });
    assert!(
        seen.both_committed
            && seen.refused
            && seen.redone
            && seen.never_made
            && seen.in_doubt
            && seen.rests > 1_000
    );
    assert!(seen.read_under_the_later);
}

#[test]
fn nothing_shows_that_a_later_fence_has_overwritten() {
    let seen = holds("overwritten", Bounds { requests: OVERWRITTEN, ..WHOLE });
    assert!(seen.both_committed && seen.refused && seen.redone && seen.never_made && seen.in_doubt);
}

#[test]
fn nothing_shows_behind_a_later_fence_in_another_row() {
    let seen = holds("apart", Bounds { requests: APART, ..WHOLE });
    assert!(seen.both_committed && seen.refused && seen.redone && seen.never_made && seen.in_doubt);
}

#[test]
fn nothing_shows_that_a_select_with_a_later_fence_has_not_found() {
    let seen = holds("selected", Bounds { requests: SELECTED, ..WHOLE });
    assert!(
        seen.both_committed
            && seen.read_under_the_later
            && seen.redone
            && seen.never_made
            && seen.in_doubt
    );
    is_missed(
        "selected, not raised",
        Bounds { requests: SELECTED, left_out: LeftOut::Raise, ..WHOLE },
        "behind",
    );
}

#[test]
fn nothing_shows_behind_a_later_fence_where_fences_are_known() {
    let seen = holds(
        "known",
        Bounds { requests: KNOWN, take_overs: 0, faults: 1, deadlines: true, ..WHOLE },
    );
    assert!(seen.shared && seen.both_committed && seen.refused && seen.in_doubt);
}

#[test]
fn known_fences_that_outlive_the_ownership_let_the_former_holder_write() {
    let is_heard = |event: &Event| matches!(event, Event::Acknowledged { .. });
    let arrives = |request, proxy| move |event: &Event| matches!(event, Event::Arrives { request: of, proxy: at } if (*of, *at) == (request, proxy));
    let is_read = |event: &Event| matches!(event, Event::Reads { .. });
    let is_over = |event: &Event| matches!(event, Event::LeaseEnds { .. });
    let is_taken = |event: &Event| matches!(event, Event::TakesOver { .. });
    let is_told = |event: &Event| matches!(event, Event::HearsOfItsDeath { .. });
    // An opening asks for the shard's row, claims, reads the log, makes what it has found, and
    // seals.
    let opens = |event: &Event| {
        matches!(
            event,
            Event::ReadsRow { .. }
                | Event::Changes { .. }
                | Event::ReadsLog { .. }
                | Event::FoundRecord { .. }
        )
    };
    let mut wishes: Vec<&dyn Fn(&Event) -> bool> = vec![&is_read, &is_heard, &is_heard, &is_heard];
    let (first, second) = (arrives(0, 0), arrives(2, 1));
    wishes.insert(0, &first);
    wishes.extend([&is_over as &dyn Fn(&Event) -> bool, &is_taken, &is_told]);
    wishes.extend([&opens as &dyn Fn(&Event) -> bool; 12]);
    wishes.extend([&second as &dyn Fn(&Event) -> bool, &is_read, &is_heard, &is_heard, &is_heard]);
    wishes.extend([&is_over as &dyn Fn(&Event) -> bool, &is_taken]);
    let bounds = Bounds { requests: KNOWN, take_overs: 2, ..WHOLE };
    let begun = led(bounds, &wishes);
    is_missed(
        "known beyond ownership",
        Bounds { left_out: LeftOut::Ownership, begun, ..bounds },
        "behind",
    );
    assert_eq!(looked_at("known with it", Bounds { begun, ..bounds }, 100_000).violation, None);
}

#[test]
fn unless_it_is_forgotten_before_another_is_written_the_former_holder_writes() {
    let bounds = Bounds {
        requests: KNOWN,
        left_out: LeftOut::Forgetting,
        take_overs: 0,
        deadlines: true,
        faults: 1,
        ..WHOLE
    };
    is_missed("not forgotten", bounds, "descends");
}

#[test]
fn unless_whoever_waited_looks_again_the_former_holder_writes() {
    let bounds = Bounds { requests: KNOWN, left_out: LeftOut::SecondLook, take_overs: 0, ..WHOLE };
    is_missed("no second look", bounds, "behind");
}

#[test]
fn nothing_is_lost_that_was_acknowledged_at_its_deadline() {
    let seen = holds("deadlines", Bounds { deadlines: true, ..WHOLE });
    assert!(seen.both_committed && seen.redone && seen.in_doubt);
}

/// This search does not reach the end: `make test-long` goes further.
#[test]
fn three_requests_and_two_take_overs_hold_as_far_as_is_looked() {
    let states_max = std::env::var("SHUNT_MODEL_STATES")
        .map_or(50_000, |states| states.parse().expect("a number"));
    let bounds = Bounds { requests: THREE, take_overs: 2, faults: 2, deadlines: true, ..WHOLE };
    assert_eq!(looked_at("three requests, two take-overs", bounds, states_max).violation, None);
}

#[test]
fn without_the_record_something_comes_late() {
    let bounds = Bounds { without: Some(Without::Record), faults: 1, ..WHOLE };
    is_missed("no record", bounds, "behind");
    is_missed("no record, read", bounds, "not read");
    is_missed("no record, deadlines", Bounds { deadlines: true, ..bounds }, "lost");
}

#[test]
fn unless_a_record_is_repeated_what_was_refused_is_there() {
    is_missed(
        "no repetition",
        Bounds { without: Some(Without::RepeatedRecord), faults: 1, ..WHOLE },
        "refused",
    );
}

#[test]
fn unless_fences_are_compared_the_former_holder_writes() {
    is_missed("not compared", Bounds { left_out: LeftOut::Comparison, ..WHOLE }, "behind");
    is_missed("not raised", Bounds { left_out: LeftOut::Raise, ..WHOLE }, "behind");
}

#[test]
fn unless_the_row_of_the_fence_is_locked_both_pass() {
    is_missed(
        "not locked",
        Bounds { requests: APART, left_out: LeftOut::FenceLock, ..WHOLE },
        "behind",
    );
}

#[test]
fn unless_timestamps_rise_from_owner_to_owner_the_former_holder_has_the_last_word() {
    is_missed(
        "no floor",
        Bounds { requests: OVERWRITTEN, left_out: LeftOut::Floor, ..WHOLE },
        "behind",
    );
}

#[test]
fn with_locks_that_end_before_the_writes_something_comes_late() {
    is_missed(
        "locks end early",
        Bounds { without: Some(Without::LocksUntilApplied), ..WHOLE },
        "behind",
    );
}

#[test]
fn without_a_look_at_the_lease_after_the_record_something_comes_late() {
    is_missed(
        "no look at the lease",
        Bounds { without: Some(Without::CheckAfterRecord), ..WHOLE },
        "behind",
    );
}

#[test]
fn unless_the_log_is_recovered_something_comes_late() {
    is_missed("no recovery", Bounds { left_out: LeftOut::Recovery, faults: 1, ..WHOLE }, "behind");
}

/// The first request is recorded, perhaps on one replica only; nobody hears of it, and another
/// proxy takes the shard over.
const TAKEN_OVER: [Event; 6] = [
    Event::Arrives { request: 0, proxy: 0 },
    Event::Reads { request: 0, proxy: 0, pair: 0b011, new: 0 },
    Event::LeaseEnds { proxy: 0 },
    Event::TakesOver { proxy: 1 },
    Event::ReadsRow { proxy: 1 },
    Event::Changes { number: 0 },
];

#[test]
fn without_the_seal_a_later_recovery_makes_it_after_all() {
    const BEGUN: &[Event] = &{
        let [first, second, third, fourth, fifth, sixth] = TAKEN_OVER;
        [
            first,
            second,
            third,
            fourth,
            fifth,
            sixth,
            Event::ReadsLog { proxy: 1, pair: 0b011, new: 0 },
        ]
    };
    is_missed(
        "no seal",
        Bounds { left_out: LeftOut::Seal, take_overs: 2, begun: BEGUN, ..WHOLE },
        "behind",
    );
}

#[test]
fn unless_a_found_record_is_written_again_a_later_recovery_misses_it() {
    const BEGUN: &[Event] = &{
        let [first, second, third, fourth, fifth, sixth] = TAKEN_OVER;
        [
            first,
            second,
            third,
            fourth,
            fifth,
            sixth,
            Event::ReadsLog { proxy: 1, pair: 0b011, new: 1 },
        ]
    };
    is_missed(
        "not written again",
        Bounds { left_out: LeftOut::Rewriting, take_overs: 2, begun: BEGUN, ..WHOLE },
        "behind",
    );
    // The same with it: nobody misses it.
    let found =
        looked_at("written again", Bounds { take_overs: 2, begun: BEGUN, ..WHOLE }, 100_000);
    assert_eq!(found.violation, None);
}

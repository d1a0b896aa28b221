//! A model of locks: [`crate::Locks`] of two proxies, their surroundings, and all events that can
//! happen, in every order.
//!
//! The real `Locks` runs. States are distinguished by their effect on the future, so that each is
//! tried with each event once (`machine.rs`). Around it is a model of the rest:
//!
//! | in the model | stands for |
//! |---|---|
//! | `Event::Renews`, `TakesOver`, `HearsOfItsDeath` | `fleet`: `member/row.rs`, `claim` and `take_over` of `member/fleet.rs`, `End::Dead` |
//! | `Event::Drains`, `HandsOver`, `Resumes` | `gift` of `member/shards.rs`, `Word::Drain` and `Word::Resume` of `proxy`'s `locks/words.rs` |
//! | `Event::Crashes` | the process ends; its host knows it at once (`host_says_dead`), others when its lease has run out |
//! | `store.rs` | Cassandra: a write at QUORUM, with its timestamp; a read of a partition at QUORUM, with its repair |
//! | `answers.rs` | clients that count their time from when they asked |
//!
//! No process is forced to act soon: a paused proxy is one without events while time passes. Times
//! are a few ticks, and a tick is longer than the shortest wait. A request reaches the proxy when
//! it is sent, and its answer the client when it is given: later arrivals would leave less time to
//! believe in. The model leaves out clocks of different speed, for which the fleet has margins
//! (`fleet_sim` tests them), operators, several locks, and more than one page of rows.
//!
//! Properties: no two holders of whom one is exclusive, by the clients' beliefs; fences rise; a
//! holder that asks again gets the same fence; one answer to each request; no two rows of one
//! timestamp. For each step that the design relies on, a search without it must find a violation:
//! `--nocapture` prints its history, with the proxies' writes and answers.

mod events;
mod happen;
mod machine;
mod search;
mod state;
mod store;
mod answers;

use super::Without;
use crate::types::Namespace;
use events::{Bounds, Event, LeftOut, Seen};
use search::{Found, search};
use state::Operation;

/// Enough for every search of these tests.
const STATES_MAX: usize = 8_000_000;

/// Two clients, two requests, shared and not, one change of the owner, one fault.
const DURABLE: Bounds = Bounds {
    namespace: Namespace::Durable,
    clients: 2,
    modes: true,
    requests: 2,
    take_overs: 1,
    faults: 1,
    longest: 3,
    tokens: 2,
    replicas: 1,
    without: WHOLE,
    fleet: LeftOut::Nothing,
    sought: "",
    begun: &[],
};
const MEMORY: Bounds =
    Bounds { namespace: Namespace::Memory, requests: 3, take_overs: 2, faults: 2, ..DURABLE };
/// Without sharing and waiting: only faults between owners.
const EXCLUSIVE: Bounds = Bounds { modes: false, faults: 0, ..DURABLE };
const WHOLE: Without = Without {
    check_after_ack: false,
    limit: false,
    grace: false,
    confirmation: false,
    later_timestamp: false,
    free_shared_row: false,
    longer_row: false,
    refusal: false,
};

fn looked_at(name: &str, bounds: Bounds, states_max: usize) -> Found {
    let begun = std::time::Instant::now();
    let found = search(bounds, states_max);
    let Found { states, machines, depth, .. } = found;
    println!(
        "{name}: {states} states, {machines} of locks, {depth} steps deep, {:?}",
        begun.elapsed()
    );
    found
}

/// Asserts that all states were visited and none has a violation.
fn holds(name: &str, bounds: Bounds) -> Seen {
    let found = looked_at(name, bounds, STATES_MAX);
    if let Some((what, history)) = &found.violation {
        panic!("{name}: {what}\n{history}");
    }
    assert!(!found.cut, "{name}: there are more than {STATES_MAX} states");
    found.seen
}

/// Asserts that there is a violation of this kind.
fn is_missed(name: &str, bounds: Bounds, sought: &'static str) {
    let found = looked_at(name, Bounds { sought, ..bounds }, STATES_MAX);
    let (what, history) =
        found.violation.expect("without a step that is needed something is wrong");
    println!("{what}\n{history}");
}

const fn asks(client: u8, shared: bool, waits: bool) -> Event {
    Event::Asks { client, proxy: 0, operation: Operation::Acquire { shared, waits } }
}

const fn releases(client: u8) -> Event {
    Event::Asks { client, proxy: 0, operation: Operation::Release }
}

const fn acknowledged(client: u8) -> Event {
    Event::Acknowledged { proxy: 0, client, without: 0 }
}

/// Renewal of the lease, and of its limit of tokens.
const RENEWED: Event = Event::Renews { proxy: 0 };
const READ: Event = Event::Read { proxy: 0, replica: 0, way: 0 };

#[test]
fn durable_locks_hold_in_every_order() {
    let seen = holds("durable", DURABLE);
    let expected = Seen { told_by_next_owner: true, ..seen };
    assert_eq!(seen, expected);
    assert!(
        seen.exclusive
            && seen.shared
            && seen.shared_by_two
            && seen.renewed
            && seen.told_again
            && seen.after_wait
    );
}

#[test]
fn durable_locks_hold_through_two_take_overs() {
    holds("durable, two take-overs", Bounds { take_overs: 2, faults: 2, ..EXCLUSIVE });
}

/// Not exhaustive: `make test-long` goes further.
#[test]
fn durable_locks_of_three_clients_hold_as_far_as_is_looked() {
    let states_max = std::env::var("SHUNT_MODEL_STATES")
        .map_or(50_000, |states| states.parse().expect("a number"));
    let bounds =
        Bounds { clients: 3, replicas: 3, requests: 4, take_overs: 2, faults: 2, ..DURABLE };
    let found = looked_at("three clients, three replicas", bounds, states_max);
    assert_eq!(found.violation, None);
}

#[test]
fn locks_in_memory_hold_in_every_order() {
    let seen = holds("memory", MEMORY);
    assert!(
        seen.exclusive
            && seen.shared
            && seen.shared_by_two
            && seen.renewed
            && seen.told_again
            && seen.after_wait
    );
}

#[test]
fn without_a_look_at_the_lease_after_the_row_there_are_two_holders() {
    let without = Without { check_after_ack: true, ..WHOLE };
    is_missed("no look at the lease after the row", Bounds { without, ..EXCLUSIVE }, "two holders");
}

#[test]
fn with_tokens_beyond_the_limit_fences_fall() {
    let without = Without { limit: true, ..WHOLE };
    const MEMORY_BEGUN: &[Event] = &[
        asks(0, false, false),
        releases(0),
        asks(0, false, false),
        releases(0),
        asks(0, false, false),
    ];
    let memory = Bounds { without, tokens: 0, requests: 6, begun: MEMORY_BEGUN, ..MEMORY };
    is_missed("no limit of tokens, memory", memory, "fence");
    const BEGUN: &[Event] =
        &[asks(0, false, false), READ, acknowledged(0), releases(0), asks(0, false, false)];
    let durable =
        Bounds { without, tokens: 0, requests: 5, take_overs: 2, begun: BEGUN, ..EXCLUSIVE };
    is_missed("no limit of tokens", durable, "two holders");
}

#[test]
fn without_the_limit_of_the_owner_before_fences_fall() {
    is_missed("no floor of tokens, memory", Bounds { fleet: LeftOut::Floor, ..MEMORY }, "fence");
    is_missed(
        "no floor of tokens",
        Bounds { fleet: LeftOut::Floor, requests: 3, take_overs: 2, ..EXCLUSIVE },
        "two rows",
    );
}

#[test]
fn with_a_take_over_before_the_lease_has_run_out_there_are_two_holders() {
    is_missed(
        "lease not waited for",
        Bounds { fleet: LeftOut::LeaseOver, ..EXCLUSIVE },
        "two holders",
    );
}

#[test]
fn with_rows_read_from_one_replica_there_are_two_holders() {
    is_missed(
        "read at ONE",
        Bounds { fleet: LeftOut::Quorum, replicas: 3, ..EXCLUSIVE },
        "two holders",
    );
}

const RELEASED: &[Event] = &[asks(0, false, false), READ, acknowledged(0), RENEWED, releases(0)];

#[test]
fn without_a_row_before_a_found_holder_is_told_there_are_two_holders() {
    let without = Without { confirmation: true, ..WHOLE };
    let bounds = Bounds { without, requests: 4, take_overs: 2, begun: RELEASED, ..EXCLUSIVE };
    is_missed("a found holder is told at once", bounds, "two holders");
}

#[test]
fn without_a_later_timestamp_of_a_found_holder_there_are_two_holders() {
    let without = Without { later_timestamp: true, ..WHOLE };
    let bounds = Bounds { without, requests: 4, take_overs: 2, begun: RELEASED, ..EXCLUSIVE };
    is_missed("the timestamp of a found holder stays", bounds, "two holders");
}

#[test]
fn unless_a_free_row_of_a_reader_ends_an_exclusive_hold_fences_fall() {
    let without = Without { free_shared_row: true, ..WHOLE };
    const BEGUN: &[Event] = &[
        asks(0, false, false),
        READ,
        acknowledged(0),
        RENEWED,
        asks(1, true, true),
        releases(0),
        acknowledged(1),
    ];
    let bounds = Bounds { without, requests: 4, begun: BEGUN, ..EXCLUSIVE };
    is_missed("a reader's free row says nothing", bounds, "fence");
}

#[test]
fn without_a_row_for_a_longer_renewal_there_are_two_holders() {
    let without = Without { longer_row: true, ..WHOLE };
    const BEGUN: &[Event] = &[asks(0, false, false), READ, acknowledged(0)];
    let bounds = Bounds { without, requests: 4, longest: 4, begun: BEGUN, ..EXCLUSIVE };
    is_missed("a longer renewal is not written", bounds, "two holders");
}

#[test]
fn granting_a_repeated_request_makes_two_holders() {
    let without = Without { refusal: true, ..WHOLE };
    is_missed("who asks again is granted", Bounds { without, ..MEMORY }, "two holders");
}

#[test]
fn without_grace_for_locks_in_memory_there_are_two_holders() {
    let without = Without { grace: true, ..WHOLE };
    is_missed("no grace", Bounds { without, ..MEMORY }, "two holders");
}

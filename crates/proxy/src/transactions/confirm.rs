//! Commits that hang on no clock: `--transaction-commit lwt`.
//!
//! A shard is another's only once the row of its owner among the members says that this one is
//! dead, and that is written by a conditional statement. So a SERIAL read of this proxy's own row
//! that finds it alive shows that nobody had been given its shards up to the time at which the read
//! was sent: all that was heard before it was heard by the owner. With a lease the owner's clock
//! says the same, if it goes right.
//!
//! What such a word is needed for waits for it here, and is told then: that a record or a single
//! write is acknowledged, that a transaction which writes nothing has read, and two answers of an
//! opening. One read is under way on a core, for all that came before it was sent; what comes later
//! waits for the next.
//!
//! This must never: take a word that was asked for before what it is to confirm was heard; take the
//! row of another membership than the one in which it was heard; take an answer that failed for a
//! word.

use shunt_fleet::Incarnation;
use shunt_locks::{Now, Written};
use shunt_reactor::Io;
use shunt_transactions::no_lease;
use shunt_wire::cql::message::{ResultMessage, Value, ValueList};

use super::part::Part;
use super::unconfirmed::Unconfirmed;
use super::{VERSION, levels};
use crate::config::Commit;
use crate::core::Core;
use crate::fleet::statements::{self, Heard, Levels, Whose};
use crate::limits::SECOND_NS;

const QUESTION: &str = "SELECT inc, addr, state, beat, ts_limit, format, leaving FROM shunt_meta.member WHERE cluster = ? AND inc = ?";
/// The state of a member that is alive.
const ALIVE: &[u8] = &[1];

/// How often it is asked for the same in a row, and for how long: all rows of members are one
/// partition, and who reads at SERIAL may be kept from it by others who do, and by leases that are
/// renewed.
const TRIES: u32 = 5;
const TRIES_NS: u64 = 2 * SECOND_NS;

/// True if what this proxy hears counts only once that is confirmed.
pub(super) fn is_wanted(core: &Core) -> bool {
    core.context.config.transaction_commit == Commit::Lwt
}

/// The time to tell something by: one at which no lease is valid, where it is not confirmed.
pub(super) fn time_of(io: &mut Io, is_alive: bool) -> Now {
    let now = levels::now(io);
    if is_alive { now } else { no_lease(now) }
}

/// Confirms what was just heard. It comes back once, by [`super::outbox::Wanted::Confirmed`].
pub(super) fn want(core: &mut Core, io: &mut Io, heard: Unconfirmed) {
    core.fleet.transactions.confirming.waiting.push(heard);
    if core.fleet.transactions.confirming.asked.is_none() {
        ask(core, io);
    }
}

fn ask(core: &mut Core, io: &mut Io) {
    let now_ns = io.now_ns();
    let confirming = &mut core.fleet.transactions.confirming;
    let asked = std::mem::take(&mut confirming.waiting);
    if asked.is_empty() {
        return;
    }
    if confirming.failed == 0 {
        confirming.since_ns = now_ns;
    }
    let member = confirming.member;
    let fleet = core.context.config.fleet.clone().unwrap_or_default();
    let is_sent = member.is_some_and(|member| {
        let mut list = ValueList::positional(VERSION);
        list.push(Value::Bytes(fleet.as_bytes())).push(Value::Bytes(&member.0));
        let serial = levels::serial(core);
        let levels =
            Levels { consistency: serial, serial: None, timestamp_us: None, elsewhere: false };
        statements::ask::ask(
            core,
            io,
            Whose::Transaction(Part::Confirm(member)),
            QUESTION,
            list.values(),
            &levels,
            None,
        )
    });
    match is_sent {
        true => core.fleet.transactions.confirming.asked = Some(asked),
        false => {
            core.fleet.transactions.confirming.failed = 0;
            core.fleet.transactions.confirmed(asked, false);
        }
    }
}

/// A node has answered, or nobody has.
pub(super) fn heard(core: &mut Core, io: &mut Io, member: Incarnation, heard: &Heard<'_>) {
    let is_alive = match heard {
        Heard::Result(ResultMessage::Rows(rows)) => {
            let place = rows.metadata.column_index("state");
            let row = rows.rows().next().and_then(Result::ok);
            Some(row.zip(place).and_then(|(row, place)| row.get(place)) == Some(ALIVE))
        }
        Heard::Result(_) | Heard::Error(_) | Heard::Unreadable => None,
    };
    let now_ns = io.now_ns();
    let confirming = &mut core.fleet.transactions.confirming;
    let mut asked = confirming.asked.take().unwrap_or_default();
    let is_same = confirming.member == Some(member);
    let is_early =
        confirming.failed + 1 < TRIES && now_ns.saturating_sub(confirming.since_ns) < TRIES_NS;
    if is_alive.is_none() && is_same && is_early {
        // The next read is a later one, and so says as much of these, and of what has come since.
        confirming.failed += 1;
        asked.append(&mut confirming.waiting);
        confirming.waiting = asked;
    } else {
        confirming.failed = 0;
        // What another membership of this process has heard is not confirmed by this one's row. It
        // has lost all its shards.
        let is_alive = is_alive == Some(true) && is_same;
        core.fleet.transactions.confirmed(asked, is_alive);
    }
    ask(core, io);
}

/// What is confirmed of a record or write that a node has answered: only that it is acknowledged
/// needs it.
pub(super) fn needs(core: &Core, written: Written) -> bool {
    written == Written::Acknowledged && is_wanted(core)
}

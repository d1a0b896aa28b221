//! Commits that do not depend on clocks: `--transaction-commit lwt`.
//!
//! A shard gets another owner only once the row of its owner among the members says that this one
//! is dead, which a conditional statement writes. A SERIAL read of this proxy's own row that finds
//! it alive proves that its shards had no other owner until the read was sent: everything received
//! before was received by the owner. A lease proves the same if the owner's clock is right.
//!
//! Answers that need such a proof wait here: acknowledgements of records and single writes, reads
//! of transactions without writes, and two answers of an opening. One read is under way on a core,
//! for all answers that came before it was sent; later ones wait for the next.
//!
//! This must never: confirm an answer by a read that was sent before it came; confirm it by the row
//! of another membership; take a failed read for a proof.

use shunt_fleet::Incarnation;
use shunt_locks::{Now, Written};
use shunt_reactor::Io;
use shunt_transactions::no_lease;
use shunt_wire::cql::message::{ResultMessage, Value, ValueList};

use super::{VERSION, levels};
use crate::config::Commit;
use crate::core::Core;
use crate::fleet::statements::{self, Heard, Levels, Whose};
use crate::limits::SECOND_NS;
use crate::transactions::ownership::Unconfirmed;
use crate::transactions::part::Part;

const QUESTION: &str = "SELECT inc, addr, state, beat, ts_limit, format, leaving FROM shunt_meta.member WHERE cluster = ? AND inc = ?";
/// The state of a live member.
const ALIVE: &[u8] = &[1];

/// Attempts in a row, and for how long: all rows of members are one partition, and a SERIAL read
/// may be held up by other readers and by renewals of leases.
const TRIES: u32 = 5;
const TRIES_NS: u64 = 2 * SECOND_NS;

/// True if answers count only once they are confirmed.
pub(super) fn is_enabled(core: &Core) -> bool {
    core.context.config.transaction_commit == Commit::Lwt
}

/// The time to report an answer with: one without a valid lease if the answer is not confirmed.
pub(super) fn time_of(io: &mut Io, is_alive: bool) -> Now {
    let now = levels::now(io);
    if is_alive { now } else { no_lease(now) }
}

/// Confirms an answer. It comes back once, as [`super::effects::Effect::Confirmed`].
pub(super) fn request(core: &mut Core, io: &mut Io, heard: Unconfirmed) {
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

/// Takes in a node's answer.
pub(super) fn answered(core: &mut Core, io: &mut Io, member: Incarnation, heard: &Heard<'_>) {
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
        // The next read is later, and so confirms these answers and those that have come since.
        confirming.failed += 1;
        asked.append(&mut confirming.waiting);
        confirming.waiting = asked;
    } else {
        confirming.failed = 0;
        // Answers to another membership of this process are not confirmed by this one's row. That
        // membership has lost all its shards.
        let is_alive = is_alive == Some(true) && is_same;
        core.fleet.transactions.confirmed(asked, is_alive);
    }
    ask(core, io);
}

/// True if the outcome of a write needs a proof: only an acknowledgement does.
pub(super) fn needs(core: &Core, written: Written) -> bool {
    written == Written::Acknowledged && is_enabled(core)
}

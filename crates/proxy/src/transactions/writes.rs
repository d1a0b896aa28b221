//! The writes of committed transactions are made: those of this core's own, and those that former
//! owners of a shard have left undone.
//!
//! A write is one of a table, and not of whichever has its name: before each attempt a node is
//! asked which table that is. If it is another, or none, nothing is sent; an attempt has failed
//! then, and [`super::unmade`] says when it was the last.
//!
//! This must never: send a write of one table when another has its name; give one up whose table is
//! there, for what a node says that does not know it yet; give two outcomes of an attempt, or none.

use std::collections::VecDeque;
use std::sync::Arc;

use shunt_locks::Written;
use shunt_reactor::Io;
use shunt_transactions::Refused;
use shunt_transactions::record::{self, Record};
use shunt_wire::cql::message::{Value, ValueList, error_code};

use super::outbox::Wanted;
use super::part::{OneWrite, Parked, Part, Share, WaitsForName, Who};
use super::unmade::Attempt;
use super::{VERSION, levels, names};
use crate::core::Core;
use crate::fleet::statements::{self, Heard, Levels, Whose};
use crate::log_limits::Logged;
use shunt_transactions::catalogue::table_identity::{FLEETS_OWN, Found, Named, TableId};
use shunt_transactions::plan::push;

/// Writes that go on at a tick.
const UNPARKED_MAX: usize = 64;

/// The keyspace and name of a table.
type Name = (Box<str>, Box<str>);

/// What a write needs, to be sent.
struct Sent {
    who: Who,
    id: TableId,
    text: Arc<str>,
    list: ValueList,
    timestamp_us: i64,
}

/// The table of a write, by its name. None: nobody waits for the write any more.
fn name_of(core: &Core, write: OneWrite) -> Option<Name> {
    let keeper = &core.fleet.transactions;
    let place = usize::from(write.number());
    match write {
        OneWrite::Own { id, .. } => {
            let one = keeper.jobs.get(keeper.of_id.get(&id)?)?.write(place)?;
            Some((one.keyspace.into(), one.table.into()))
        }
        OneWrite::Found { claim, place: at, .. } => {
            let record = Record::decode(keeper.openings.get(&claim.0)?.bodies.get(&at)?).ok()?;
            record.writes.get(place).map(|one| (one.keyspace.into(), one.table.into()))
        }
    }
}

impl Sent {
    fn of(core: &Core, write: OneWrite) -> Option<Sent> {
        let keeper = &core.fleet.transactions;
        let place = usize::from(write.number());
        let mut list = ValueList::positional(VERSION);
        match write {
            OneWrite::Own { id, .. } => {
                let job = keeper.jobs.get(keeper.of_id.get(&id)?)?;
                let one = job.write(place)?;
                one.values.iter().for_each(|value| push(&mut list, value));
                // Of two on one row the later counts.
                let timestamp_us = job.timestamp_us + i64::from(write.number());
                Some(Sent {
                    who: Who::of(&job.who),
                    id: one.id,
                    text: Arc::clone(one.text),
                    list,
                    timestamp_us,
                })
            }
            OneWrite::Found { claim, place: at, .. } => {
                let record =
                    Record::decode(keeper.openings.get(&claim.0)?.bodies.get(&at)?).ok()?;
                let one = record.writes.get(place)?;
                for value in &one.values {
                    list.push(match value {
                        record::Value::Bytes(bytes) => Value::Bytes(bytes),
                        record::Value::Null => Value::Null,
                        record::Value::Unset => Value::Unset,
                    });
                }
                let (text, timestamp_us) =
                    (one.text.into(), record.timestamp_us + i64::from(write.number()));
                Some(Sent { who: Who::FORMER, id: one.id, text, list, timestamp_us })
            }
        }
    }
}

/// Makes one of the writes of a transaction. What has become of that is told once, later.
pub(super) fn make(core: &mut Core, io: &mut Io, write: OneWrite) {
    let Some((keyspace, table)) = name_of(core, write) else {
        return made(core, write, Ok(Written::NotSent));
    };
    if let Some(sent) = Sent::of(core, write).filter(|sent| sent.id == FLEETS_OWN) {
        return send_or_park(core, io, write, &sent);
    }
    let since_ns = io.now_ns().saturating_sub(names::FRESH_NS);
    names::want(core, io, (&keyspace, &table), since_ns, WaitsForName::Write(write));
}

/// It is known which table has the name of that which it is a write of.
pub(super) fn named(core: &mut Core, io: &mut Io, write: OneWrite, named: Named) {
    let Some(sent) = Sent::of(core, write) else { return made(core, write, Ok(Written::NotSent)) };
    let (is_refused, why) = match names::known(io, named) {
        Found::Table(id) if id == sent.id => {
            return send_or_park(core, io, write, &sent);
        }
        Found::Table(_) => (true, "its table was dropped, and another of the same name was made"),
        Found::Nothing => (true, "its table was dropped"),
        Found::Unknown => (false, "no node has said if its table is there"),
    };
    failed(core, io, write, (Written::NotSent, is_refused, why));
}

fn send_or_park(core: &mut Core, io: &mut Io, write: OneWrite, sent: &Sent) {
    let part = Part::Write { write, who: sent.who };
    if !core.fleet.statements.has_room(&Whose::Transaction(part)) {
        park(core, Parked::Write(write), sent.who);
    } else if !send(core, io, part, sent) {
        failed(core, io, write, (Written::NotSent, false, "no node could be asked to make it"));
    }
}

fn send(core: &mut Core, io: &mut Io, part: Part, sent: &Sent) -> bool {
    let levels = Levels {
        consistency: levels::quorum(core),
        serial: None,
        timestamp_us: Some(sent.timestamp_us),
        elsewhere: false,
    };
    statements::ask::ask_text(
        core,
        io,
        Whose::Transaction(part),
        &sent.text,
        sent.list.values(),
        &levels,
        None,
    )
}

/// There are as many in flight as may be, of all or of this client: it goes on when one of them has
/// come back. To have it tried again after a pause, as what fails is, would make take-overs slow
/// that have much to do.
pub(super) fn park(core: &mut Core, parked: Parked, who: Who) {
    core.fleet.transactions.parked.entry(who).or_default().push_back(parked);
}

/// One has come back: another may go.
fn go_on(core: &mut Core, io: &mut Io) {
    let Core { fleet, .. } = core;
    let has_room =
        |who: &Who, one: Parked| fleet.statements.has_room(&Whose::Transaction(one.part(*who)));
    let parked = &mut fleet.transactions.parked;
    let next =
        parked.iter_mut().find(|(who, queue)| queue.front().is_some_and(|one| has_room(who, *one)));
    let Some((who, Some(one))) = next.map(|(who, queue)| (*who, queue.pop_front())) else { return };
    if parked.get(&who).is_some_and(VecDeque::is_empty) {
        parked.remove(&who);
    }
    let outbox = &mut core.fleet.transactions.outbox;
    match one {
        Parked::Write(write) => make(core, io, write),
        Parked::Alone(id, timestamp_us) => outbox.wanted.push(Wanted::Alone { id, timestamp_us }),
        Parked::Passed(number) => outbox.wanted.push(Wanted::Pass(number)),
    }
}

/// A statement has come back: if it was a write, another may go.
pub(super) fn come_back(core: &mut Core, io: &mut Io, part: Part) {
    if !core.fleet.transactions.parked.is_empty()
        && matches!(part.share(), Share::Writes | Share::Found)
    {
        go_on(core, io);
    }
}

/// Others may have had all the room, of whom nobody comes back here.
pub(super) fn tick(core: &mut Core, io: &mut Io) {
    for _ in 0..core
        .fleet
        .transactions
        .parked
        .values()
        .map(VecDeque::len)
        .sum::<usize>()
        .min(UNPARKED_MAX)
    {
        go_on(core, io);
    }
}

/// A node has answered, or nobody has.
pub(super) fn heard(core: &mut Core, io: &mut Io, write: OneWrite, heard: &Heard<'_>) {
    let (is_refused, why) = match heard {
        Heard::Result(_) => return made(core, write, Ok(Written::Acknowledged)),
        Heard::Error(error) => (is_refusal(error.code), error.message),
        Heard::Unreadable => (false, "a node's answer cannot be read"),
    };
    failed(core, io, write, (levels::written(heard), is_refused, why));
}

/// True of an error that says what is wrong with a write: it will be refused the next time too,
/// unless the node does not know the schema yet.
fn is_refusal(code: i32) -> bool {
    matches!(code, error_code::INVALID | error_code::SYNTAX_ERROR | error_code::FUNCTION_FAILURE)
}

fn failed(
    core: &mut Core,
    io: &Io,
    write: OneWrite,
    (written, is_refused, why): (Written, bool, &str),
) {
    let Some((keyspace, table)) = name_of(core, write) else {
        return made(core, write, Ok(written));
    };
    let table = &*format!("{keyspace}.{table}");
    let attempt = Attempt { table, written, is_refused, why };
    let verdict = core.fleet.transactions.trials.failed(write, &attempt, io.now_ns());
    if verdict.is_err()
        && let Some(suppressed) = core.context.log_limits.admit(Logged::Transactions, io.now_ns())
    {
        tracing::error!(
            table,
            why,
            suppressed,
            "a write of a committed transaction was refused each time, and is given up"
        );
    }
    made(core, write, verdict);
}

fn made(core: &mut Core, write: OneWrite, outcome: Result<Written, Refused>) {
    if outcome == Ok(Written::Acknowledged) {
        core.fleet.transactions.trials.made(write);
    }
    core.fleet.transactions.outbox.wanted.push(Wanted::Made(write, outcome));
}

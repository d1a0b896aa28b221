//! The writes of committed transactions are made: this core's own, and those that former owners of
//! a shard left.
//!
//! A write belongs to a table, not to a name: before each attempt a node is asked which table has
//! the name. If it is another, or none, nothing is sent, and the attempt has failed; [`attempts`]
//! decides which attempt was the last.
//!
//! This must never: send a write when another table has its table's name; give a write up whose
//! table exists because a node does not know the table yet; report two outcomes of an attempt, or
//! none.

pub(crate) mod attempts;

use std::collections::VecDeque;
use std::sync::Arc;

use shunt_locks::Written;
use shunt_reactor::Io;
use shunt_transactions::Refused;
use shunt_transactions::catalogue::table_identity::{
    FLEETS_OWN, Identity, IdentityAnswer, TableId,
};
use shunt_transactions::plan::push;
use shunt_transactions::record::{self, Record};
use shunt_wire::cql::message::{Value, ValueList, error_code};

use super::{VERSION, levels, table_identity};
use crate::core::Core;
use crate::fleet::statements::{self, Heard, Levels, Whose};
use crate::log_limits::Logged;
use crate::transactions::effects::Effect;
use crate::transactions::part::{IdentityWaiter, OneWrite, Parked, Part, Share, Who};
use crate::transactions::writes::attempts::Attempt;

/// Parked statements that are sent at a tick.
const UNPARKED_MAX: usize = 64;

/// Keyspace and name of a table.
type Name = (Box<str>, Box<str>);

/// A write as it is sent.
struct WriteStatement {
    who: Who,
    id: TableId,
    text: Arc<str>,
    list: ValueList,
    timestamp_us: i64,
}

/// The table of a write. None if the write is no longer needed.
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

impl WriteStatement {
    fn build(core: &Core, write: OneWrite) -> Option<WriteStatement> {
        let keeper = &core.fleet.transactions;
        let place = usize::from(write.number());
        let mut list = ValueList::positional(VERSION);
        match write {
            OneWrite::Own { id, .. } => {
                let job = keeper.jobs.get(keeper.of_id.get(&id)?)?;
                let one = job.write(place)?;
                one.values.iter().for_each(|value| push(&mut list, value));
                // Of two writes to one row, the later wins.
                let timestamp_us = job.timestamp_us + i64::from(write.number());
                Some(WriteStatement {
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
                Some(WriteStatement { who: Who::FORMER, id: one.id, text, list, timestamp_us })
            }
        }
    }
}

/// Makes a write. The outcome is reported once, later.
pub(super) fn start(core: &mut Core, io: &mut Io, write: OneWrite) {
    let Some((keyspace, table)) = name_of(core, write) else {
        return finish(core, write, Ok(Written::NotSent));
    };
    if let Some(sent) = WriteStatement::build(core, write).filter(|sent| sent.id == FLEETS_OWN) {
        return send_or_park(core, io, write, &sent);
    }
    let since_ns = io.now_ns().saturating_sub(table_identity::FRESH_NS);
    let name = (&*keyspace, &*table);
    if let Some(known) =
        table_identity::look_up(core, io, name, since_ns, IdentityWaiter::Write(write))
    {
        identity_known(core, io, write, known);
    }
}

/// Takes in which table has the name.
pub(super) fn identity_known(core: &mut Core, io: &mut Io, write: OneWrite, named: IdentityAnswer) {
    let Some(sent) = WriteStatement::build(core, write) else {
        return finish(core, write, Ok(Written::NotSent));
    };
    let (is_refused, why) = match table_identity::current(io, named) {
        Identity::Table(id) if id == sent.id => {
            return send_or_park(core, io, write, &sent);
        }
        Identity::Table(_) => {
            (true, "its table was dropped, and another of the same name was made")
        }
        Identity::Nothing => (true, "its table was dropped"),
        Identity::Unknown => (false, "no node has said if its table is there"),
    };
    failed(core, io, write, (Written::NotSent, is_refused, why));
}

fn send_or_park(core: &mut Core, io: &mut Io, write: OneWrite, sent: &WriteStatement) {
    let part = Part::Write { write, who: sent.who };
    if !core.fleet.statements.has_room(&Whose::Transaction(part)) {
        park(core, Parked::Write(write), sent.who);
    } else if !send(core, io, part, sent) {
        failed(core, io, write, (Written::NotSent, false, "no node could be asked to make it"));
    }
}

fn send(core: &mut Core, io: &mut Io, part: Part, sent: &WriteStatement) -> bool {
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

/// Parks a statement while all room, or this client's, is taken: it goes on when another comes
/// back. Repeating it after a pause, like a failure, would slow down take-overs with much to do.
pub(super) fn park(core: &mut Core, parked: Parked, who: Who) {
    core.fleet.transactions.parked.entry(who).or_default().push_back(parked);
}

/// Sends one parked statement.
fn unpark_one(core: &mut Core, io: &mut Io) {
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
    let effects = &mut core.fleet.transactions.effects;
    match one {
        Parked::Write(write) => start(core, io, write),
        Parked::Unlogged(id, timestamp_us) => {
            effects.list.push(Effect::WriteUnlogged { id, timestamp_us })
        }
        Parked::Passed(number) => effects.list.push(Effect::PassToNode(number)),
    }
}

/// Sends a parked statement when a write has come back.
pub(super) fn statement_done(core: &mut Core, io: &mut Io, part: Part) {
    if !core.fleet.transactions.parked.is_empty()
        && matches!(part.share(), Share::Writes | Share::Found)
    {
        unpark_one(core, io);
    }
}

/// Sends parked statements: other kinds of statements, which do not come back here, may have taken
/// the room.
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
        unpark_one(core, io);
    }
}

/// Takes in a node's answer.
pub(super) fn answered(core: &mut Core, io: &mut Io, write: OneWrite, heard: &Heard<'_>) {
    let (is_refused, why) = match heard {
        Heard::Result(_) => return finish(core, write, Ok(Written::Acknowledged)),
        Heard::Error(error) => (is_refusal(error.code), error.message),
        Heard::Unreadable => (false, "a node's answer cannot be read"),
    };
    failed(core, io, write, (levels::written(heard), is_refused, why));
}

/// True of an error that blames the write: it fails the next time too, unless the node does not
/// know the schema yet.
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
        return finish(core, write, Ok(written));
    };
    let table = &*format!("{keyspace}.{table}");
    let attempt = Attempt { table, written, is_refused, why };
    let verdict = core.fleet.transactions.trials.failed(write, &attempt, io.now_ns());
    if verdict == Err(Refused::ForGood)
        && let Some(suppressed) = core.context.log_limits.admit(Logged::Transactions, io.now_ns())
    {
        tracing::error!(
            table,
            why,
            suppressed,
            "a write of a committed transaction was refused each time, and is given up"
        );
    }
    finish(core, write, verdict);
}

fn finish(core: &mut Core, write: OneWrite, outcome: Result<Written, Refused>) {
    if outcome == Ok(Written::Acknowledged) {
        core.fleet.transactions.trials.made(write);
    }
    core.fleet.transactions.effects.list.push(Effect::WriteDone(write, outcome));
}

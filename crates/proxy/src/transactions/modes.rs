//! Which tables take part in transactions, as the fleet's table says; and `ALTER TABLE .. WITH transactional_mode`.

use std::collections::BTreeSet;

use shunt_language::ast::quoted_name;
use shunt_language::transaction::mode::{self, TransactionalMode};
use shunt_locks::Ticket;
use shunt_reactor::Io;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{Consistency, ResultMessage, SchemaChange, Value, ValueList, encode};

use super::changes::{Change, Step};
use super::failed::Failed;
use super::outbox::Wanted;
use super::part::Part;
use super::routed::{self, TableModes};
use super::{VERSION, levels, schema};
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::ids::PoolId;
use crate::limits::SECOND_NS;
use crate::own::{self, Heard, Levels, Whose};

const SET: &str = "INSERT INTO shunt_meta.transactional (keyspace_name, table_name, mode) VALUES (?, ?, ?)";
const UNSET: &str = "DELETE FROM shunt_meta.transactional WHERE keyspace_name = ? AND table_name = ?";
/// Changes under way on one core.
const CHANGES_MAX: usize = 64;

/// Between two looks.
const EVERY_NS: u64 = 2 * SECOND_NS;

/// Looks, if it is time: shards of keyspaces with transactions are opened before one is asked for, so that what a dead proxy left undone is
/// not left so.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    let now_ns = io.now_ns();
    let modes = &core.fleet.transactions.modes;
    if core.fleet.locks.level().is_none() || modes.is_asked || now_ns < modes.next_ns {
        return;
    }
    let (pool, quorum) = (own::ask::pool(core, io), levels::quorum(core));
    let whose = Whose::Transaction(Part::Modes);
    let is_sent = pool.is_some_and(|pool| {
        // A replica that has missed a change would have statements go past transactions.
        own::ask::ask_in(core, io, pool, whose, routed::QUESTION, quorum)
    });
    let modes = &mut core.fleet.transactions.modes;
    (modes.is_asked, modes.next_ns) = (is_sent, now_ns + EVERY_NS);
}

/// A node has answered, or nobody has.
pub(super) fn heard(core: &mut Core, heard: &Heard<'_>) {
    let modes = &mut core.fleet.transactions.modes;
    modes.is_asked = false;
    let rows = match heard {
        Heard::Result(ResultMessage::Rows(rows)) => rows,
        // What is known stays so.
        _ => return,
    };
    let (mut shards, mut routed) = (BTreeSet::new(), TableModes::default());
    for row in rows.rows().map_while(Result::ok) {
        let text = |place: usize| std::str::from_utf8(row.get(place)?).ok();
        let (Some(keyspace), Some(table), Some(mode)) = (text(0), text(1), text(2)) else { continue };
        shards.insert(levels::shard_of_domain(keyspace));
        routed.add(keyspace, table, mode);
    }
    modes.shards = shards;
    core.router.modes = routed;
    let modes = &core.fleet.transactions.modes;
    for shard in modes.shards.clone() {
        core.fleet.transactions.outbox.wanted.push(Wanted::Open(shard));
    }
}

/// A client changes the mode of a table. It is answered once.
pub(super) fn change(core: &mut Core, io: &mut Io, ticket: Ticket, pool: PoolId, text: &str, session: Option<&str>) {
    if let Err(fault) = begin(core, io, ticket, pool, text, session) {
        core.fleet.transactions.fail(ticket, &fault.into());
    }
}

fn begin(
    core: &mut Core,
    io: &mut Io,
    ticket: Ticket,
    pool: PoolId,
    text: &str,
    session: Option<&str>,
) -> Result<(), Fault> {
    let Some(change) = mode::parse(text)? else { return Err(Fault::invalid("Shunt: this changes no mode")) };
    let keyspace = change.table.keyspace.or(session.map(str::to_owned));
    let keyspace = keyspace.ok_or_else(|| {
        Fault::invalid("No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename")
    })?;
    if !routed::may_have_modes(&keyspace) {
        return Err(Fault::invalid(format!("Shunt: the tables of {keyspace} take part in no transactions")));
    }
    let modes = &mut core.fleet.transactions.modes;
    if modes.changes.len() >= CHANGES_MAX {
        return Err(Fault::overloaded("Shunt: as many changes of modes are under way as may; ask again"));
    }
    modes.number += 1;
    let number = modes.number;
    let question = schema::comment_question(&keyspace, &change.table.name);
    let login = core.router.pools.get(pool).and_then(|pool| pool.key.login.clone());
    let modes = &mut core.fleet.transactions.modes;
    let change =
        Change { ticket, pool, login, keyspace, table: change.table.name, mode: change.mode, step: Step::Table };
    modes.changes.insert(number, change);
    let pool = own::ask::pool(core, io);
    let whose = Whose::Transaction(Part::Change(number));
    if pool.is_some_and(|pool| own::ask::ask_in(core, io, pool, whose, &question, Consistency::ONE)) {
        return Ok(());
    }
    core.fleet.transactions.modes.changes.remove(&number);
    Err(unasked())
}

fn unasked() -> Fault {
    Fault::new(FaultKind::Unserved, "Shunt: no node could be asked about this table; nothing was changed, ask again")
}

/// The answer to a step of a change.
pub(super) fn heard_change(core: &mut Core, io: &mut Io, number: u64, heard: &Heard<'_>) {
    let Some(change) = core.fleet.transactions.modes.changes.remove(&number) else { return };
    let ticket = change.ticket;
    let next = match change.step {
        Step::Table => looked_up(core, io, number, change, heard),
        Step::Allowed => allowed(core, io, number, change, heard),
        Step::Row => done(core, &change, heard),
    };
    if let Err(failed) = next {
        core.fleet.transactions.fail(ticket, &failed);
    }
}

fn of_node(heard: &Heard<'_>, what: &str) -> Failed {
    match heard {
        Heard::Error(error) if levels::is_clients(error.code) => {
            Failed::Node { code: error.code, message: error.message.to_owned() }
        }
        Heard::Error(error) => Fault::overloaded(format!("Shunt: {what}: {}", error.message)).into(),
        Heard::Result(_) | Heard::Unreadable => Fault::overloaded(format!("Shunt: {what}")).into(),
    }
}

fn looked_up(core: &mut Core, io: &mut Io, number: u64, change: Change, heard: &Heard<'_>) -> Result<(), Failed> {
    let Heard::Result(ResultMessage::Rows(rows)) = heard else {
        return Err(of_node(heard, "the table could not be looked up"));
    };
    let (keyspace, table) = (&change.keyspace, &change.table);
    let Some(Ok(row)) = rows.rows().next() else {
        return Err(Fault::invalid(format!("Table '{keyspace}.{table}' doesn't exist")).into());
    };
    let comment = row.get(0).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default();
    if !is_of(core, &change) {
        return Err(unasked().into());
    }
    if change.login.is_none() {
        return write(core, io, number, change);
    }
    // It changes nothing; a node lets whoever may change the table.
    let (name, comment) = (format!("{}.{}", quoted_name(keyspace), quoted_name(table)), schema::literal(comment));
    let text = format!("ALTER TABLE {name} WITH comment = {comment}");
    let pool = change.pool;
    let whose = Whose::Transaction(Part::MayChange { pool, number });
    core.fleet.transactions.modes.changes.insert(number, Change { step: Step::Allowed, ..change });
    if own::ask::ask_in(core, io, pool, whose, &text, Consistency::QUORUM) {
        return Ok(());
    }
    core.fleet.transactions.modes.changes.remove(&number);
    Err(unasked().into())
}

/// True if the pool is still that of the login which has asked.
fn is_of(core: &Core, change: &Change) -> bool {
    core.router.pools.get(change.pool).is_some_and(|pool| pool.key.login == change.login)
}

fn allowed(core: &mut Core, io: &mut Io, number: u64, change: Change, heard: &Heard<'_>) -> Result<(), Failed> {
    match heard {
        Heard::Result(_) if is_of(core, &change) => write(core, io, number, change),
        Heard::Result(_) => Err(unasked().into()),
        Heard::Error(_) | Heard::Unreadable => {
            Err(of_node(heard, "no node has said if this role may change the table"))
        }
    }
}

fn write(core: &mut Core, io: &mut Io, number: u64, change: Change) -> Result<(), Failed> {
    let mut list = ValueList::positional(VERSION);
    list.push(Value::Bytes(change.keyspace.as_bytes())).push(Value::Bytes(change.table.as_bytes()));
    let text = if change.mode == TransactionalMode::Off {
        UNSET
    } else {
        list.push(Value::Bytes(change.mode.name().as_bytes()));
        SET
    };
    core.fleet.transactions.modes.changes.insert(number, Change { step: Step::Row, ..change });
    let levels = Levels { consistency: levels::quorum(core), serial: None, timestamp_us: None, elsewhere: false };
    let whose = Whose::Transaction(Part::Change(number));
    if own::ask::ask(core, io, whose, text, list.values(), &levels, None) {
        return Ok(());
    }
    core.fleet.transactions.modes.changes.remove(&number);
    Err(unasked().into())
}

fn done(core: &mut Core, change: &Change, heard: &Heard<'_>) -> Result<(), Failed> {
    let Heard::Result(_) = heard else {
        return Err(of_node(heard, "the table's mode could not be written; perhaps it was"));
    };
    core.fleet.transactions.modes.next_ns = 0;
    let (keyspace, name) = (change.keyspace.as_str(), Some(change.table.as_str()));
    let changed = SchemaChange { change: "UPDATED", target: "TABLE", keyspace, name, arguments: None };
    let mut body = Vec::new();
    encode::schema_change(&mut body, &changed);
    core.fleet.transactions.tell(change.ticket, (opcode::RESULT, 0), body);
    Ok(())
}

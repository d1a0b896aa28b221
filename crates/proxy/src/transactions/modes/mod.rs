//! Modes of tables: polling of the fleet's table, and `ALTER TABLE .. WITH transactional_mode`.

pub(crate) mod denials;
pub(crate) mod polling;
mod table_poll;
pub(crate) mod rules;
pub(super) mod state;

use std::collections::BTreeSet;

use shunt_language::transaction::mode::{self, TransactionalMode};
use shunt_locks::Ticket;
use shunt_reactor::Io;
use shunt_transactions::Conditional;
use shunt_transactions::catalogue::alteration;
use shunt_transactions::catalogue::modes::{self as routed, Routing, TableModes};
use shunt_transactions::catalogue::switching::{
    self, MODES_TRUSTED_NS, Name, Next, SETTLES_NS, TableState,
};
use shunt_transactions::plan::Plan;
use shunt_transactions::plan::conditional::whole;
use shunt_transactions::plan::schema::{self, Retention, Table};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{
    Consistency, ResultMessage, SchemaChange, Value, ValueList, encode,
};

use super::{VERSION, answer, levels, log, observation, pause};
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::fleet::rights::probe as rights;
use crate::fleet::statements::{self, Heard, Levels, Whose};
use crate::ids::PoolId;
use crate::limits::SECOND_NS;
use crate::transactions::effects::Effect;
use crate::transactions::job::Failure;
use crate::transactions::modes::denials::Denial;
use crate::transactions::modes::state::{Change, Step};
use crate::transactions::modes::table_poll::TablePoll;
use crate::transactions::part::{Part, Poll};

const CURRENT: &str = "SELECT mode FROM shunt_meta.transactional WHERE enabled = true AND keyspace_name = ? AND table_name = ?";
const FIRST: &str = "INSERT INTO shunt_meta.transactional (enabled, keyspace_name, table_name, mode) VALUES (true, ?, ?, ?) IF NOT EXISTS";
const SET: &str = "UPDATE shunt_meta.transactional SET mode = ? WHERE enabled = true AND keyspace_name = ? AND table_name = ? IF mode = ?";
const UNSET: &str = "DELETE FROM shunt_meta.transactional WHERE enabled = true AND keyspace_name = ? AND table_name = ? IF mode = ?";
/// The question for all modes. A replica that missed a change would let statements bypass
/// transactions.
const MODES: TablePoll = TablePoll {
    table: "shunt_meta.transactional",
    text: routed::QUESTION,
    part: Part::Modes,
    polling: |core| &mut core.fleet.transactions.modes.polling,
};
/// Time for which a change waits until a node can be asked for its table.
const UNASKED_NS: u64 = 2 * SECOND_NS;

/// Reads the modes, if it is time. Shards of keyspaces with transactions are opened before a client
/// needs them, so that a dead proxy's work does not stay unfinished.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    let changes = core.fleet.transactions.modes.changes.iter();
    let unasked = changes
        .filter(|(_, change)| matches!(change.step, Step::Unasked(_)))
        .map(|(number, _)| *number);
    unasked.collect::<Vec<_>>().into_iter().for_each(|number| look_up(core, io, number));
    // The pause check covers the time from the last tick to this one.
    let now_ns = pause::check_for_pause(core, io);
    let level = core.fleet.locks.level();
    let modes = &mut core.fleet.transactions.modes;
    (modes.ticked_ns, modes.level) = (now_ns, level.or(modes.level));
    pause::end_overdue_wait(core, now_ns);
    pause::end_trust(core, now_ns);
    // The modes are read even while this proxy is no member: its clients' statements go to nodes.
    if pause::is_of_fleet(core) && now_ns >= core.fleet.transactions.modes.polling.next_ns {
        MODES.start(core, io);
    }
}

/// Takes in a node's answer.
pub(super) fn modes_read(core: &mut Core, io: &mut Io, poll: Poll, heard: &Heard<'_>) {
    // Later than any change that the answer has. The process may have been paused in this turn.
    let now_ns = io.read_clock_ns();
    let modes = &mut core.fleet.transactions.modes;
    if modes.polling.is_outdated(poll, now_ns) {
        return;
    }
    if let Heard::Error(error) = heard {
        modes.polling.note_error(error);
    }
    let rows = match heard {
        // A row that cannot be read would hide all that follow it.
        Heard::Result(ResultMessage::Rows(rows)) if rows.rows().all(|row| row.is_ok()) => rows,
        // The last modes are kept, for as long as they count.
        _ => {
            match Denial::of(heard) {
                // The fleet's level is known: the fleet exists.
                Some(denial) => {
                    let may_be_absent = modes.level.is_none();
                    MODES.deny(core, io, (poll, denial), may_be_absent, now_ns);
                }
                None => modes.polling.note_failure(now_ns),
            }
            return pause::end_finished_wait(core, now_ns);
        }
    };
    let (mut shards, mut routed, mut held) = (BTreeSet::new(), TableModes::default(), Vec::new());
    let mut full = Vec::new();
    for row in rows.rows().map_while(Result::ok) {
        let text = |place: usize| std::str::from_utf8(row.get(place)?).ok();
        let (Some(keyspace), Some(table), Some(mode)) = (text(0), text(1), text(2)) else {
            continue;
        };
        shards.insert(levels::shard_of_domain(keyspace));
        routed.add(keyspace, table, mode);
        held.push((keyspace, table, mode));
        if TableState::parse(mode) == TableState::Mode(TransactionalMode::Full) {
            full.push((keyspace, table));
        }
    }
    modes.shards = shards;
    let due = modes.held.see(held.into_iter(), now_ns);
    let is_gap = modes.polling.note_rows(poll, modes.woke_ns);
    modes.full.see(&full, is_gap, now_ns);
    // Nodes may have decided in between, or may decide next, while statements from before are under
    // way.
    let otherwise = routed.decided_otherwise(&core.router.modes);
    if is_gap {
        core.fleet.transactions.rows.forget_all();
    } else if !otherwise.is_empty() {
        let names: Vec<_> =
            otherwise.iter().map(|(keyspace, table)| whole(keyspace, table)).collect();
        core.fleet.transactions.rows.forget_named(&names);
    }
    if !routed.observes_no_more_than(&core.router.modes) {
        core.fleet.transactions.modes.compares_from_ns = now_ns + SETTLES_NS;
    }
    routed.rules = core.router.modes.rules.clone();
    routed.trust = core.router.modes.trust;
    if routed != core.router.modes {
        // A plan depends on the modes of its tables, as it was made with them. Changes of other
        // tables, which any role may make of its own, leave it as it is.
        let before = &core.router.modes;
        let is_other = |table: &Table| routed.differs_on(before, &table.keyspace, &table.name);
        let plans = &mut core.fleet.transactions.plannings.plans;
        plans.forget_where(|plan| plan.tables().into_iter().any(is_other));
    }
    core.router.modes = routed;
    pause::end_finished_wait(core, now_ns);
    observation::tell(core, io, poll.asked_ns);
    let modes = &core.fleet.transactions.modes;
    for shard in modes.shards.clone() {
        core.fleet.transactions.effects.list.push(Effect::OpenLog(shard));
    }
    for (name, said) in due {
        release(core, io, &name, &said);
    }
}

/// Gives a table its mode after it was held for long enough, if this core owns its keyspace's
/// shard.
fn release(core: &mut Core, io: &mut Io, (keyspace, table): &Name, said: &str) {
    let shard = levels::shard_of_domain(keyspace);
    let now = levels::now(io);
    let keeper = &mut core.fleet.transactions;
    let is_ours = keeper.table().0.holds(now, shard);
    // Nodes' next decisions have timestamps of their clocks, which must not be below those written
    // here. The table is held, so nothing was decided on it since; later timestamps of the shard's
    // other tables do not count.
    let last_us = keeper.last_timestamp_us(shard);
    let is_past =
        is_ours && now.wall_us > keeper.modes.held.last_us(keyspace, table, last_us) + 1_000_000;
    let told = TableState::parse(said);
    // Clients may have been told of writes that are not made yet, and no log is opened for a table
    // without a mode.
    let is_made = !keeper.may_write(shard, keyspace, table);
    let Some(mode) = told.next().filter(|_| is_ours && is_past && is_made) else { return };
    ask_change(core, io, Part::Nothing, (keyspace, table), Some(said), &switching::plain(mode));
}

/// Changes the row of a table, unless its text differs from `current` by now. `false` if no node
/// was asked, or nothing has to change.
fn ask_change(
    core: &mut Core,
    io: &mut Io,
    part: Part,
    (keyspace, table): (&str, &str),
    current: Option<&str>,
    next: &Next,
) -> bool {
    let mut list = ValueList::positional(VERSION);
    let text = match (next, current) {
        (Next::Same, _) | (Next::Unset, None) => return false,
        (Next::Set(_), None) => FIRST,
        (Next::Set(mode), Some(_)) => {
            list.push(Value::Bytes(mode.as_bytes()));
            SET
        }
        (Next::Unset, Some(_)) => UNSET,
    };
    list.push(Value::Bytes(keyspace.as_bytes())).push(Value::Bytes(table.as_bytes()));
    match (next, current) {
        (Next::Set(mode), None) => _ = list.push(Value::Bytes(mode.as_bytes())),
        (_, Some(current)) => _ = list.push(Value::Bytes(current.as_bytes())),
        _ => {}
    }
    let (consistency, serial) = (levels::quorum(core), Some(levels::serial(core)));
    let levels = Levels { consistency, serial, timestamp_us: None, elsewhere: false };
    statements::ask::ask(core, io, Whose::Transaction(part), text, list.values(), &levels, None)
}

/// The reason why no statement is carried out by a plan from before: its tables have other modes,
/// or their modes are unknown. `is_sent_on` says that the sender knows the table's mode as
/// `observe`.
pub(super) fn refusal(core: &Core, io: &Io, plan: &Plan, is_sent_on: bool) -> Option<Fault> {
    let is_alone = plan.draft.conditional.is_some();
    let mut tables = plan.tables().into_iter();
    let other =
        tables.find(|table| match core.router.modes.routing(&table.keyspace, &table.name) {
            Some(Routing::Held | Routing::HeldForAll) => true,
            Some(Routing::Mode(mode)) => mode.is_by_statement() != is_alone,
            // The mode was just set or removed; either way nodes decide.
            None => is_alone && !is_sent_on,
        });
    if let Some(table) = other {
        return Some(change_pending(&table.keyspace, &table.name));
    }
    (is_alone && !observes(core, plan) && !is_known(core, io)).then(|| {
        let why =
            "Shunt: the tables' modes could not be read recently; nothing was written, ask again";
        Fault::overloaded(why)
    })
}

/// True of a single statement that nodes decide.
pub(super) fn observes(core: &Core, plan: &Plan) -> bool {
    let decided = Some(Routing::Mode(TransactionalMode::Conditional));
    let modes = &core.router.modes;
    let mut tables = plan.tables().into_iter();
    plan.draft.conditional.is_some()
        && !tables.any(|table| modes.routing(&table.keyspace, &table.name) == decided)
}

/// True of a transaction that writes only to tables which clients read by transactions, so that no
/// reader can see that its writes are not made yet. This must be known now, and have been so for as
/// long as any proxy may go by older modes.
pub(super) fn is_read_by_transactions(core: &Core, io: &Io, plan: &Plan) -> bool {
    let modes = &core.fleet.transactions.modes;
    let is_full =
        |table: &Table| modes.full.is_known_to_all(&table.keyspace, &table.name, io.now_ns());
    is_known(core, io) && plan.written().all(is_full)
}

/// True if the modes were read recently.
fn is_known(core: &Core, io: &Io) -> bool {
    let known_ns = core.fleet.transactions.modes.polling.known_ns;
    known_ns.is_some_and(|known_ns| io.now_ns().saturating_sub(known_ns) <= MODES_TRUSTED_NS)
}

/// The error for a table whose mode is being changed.
pub(super) fn change_pending(keyspace: &str, table: &str) -> Fault {
    Fault::overloaded(format!(
        "Shunt: the mode of table {keyspace}.{table} is being changed, which takes about 20 seconds; nothing was written, ask again"
    ))
}

/// Error text for a change whose outcome no node has told: nodes may complete it later.
const MODE_IN_DOUBT: &str =
    "Shunt: it is not known whether the table's mode was changed; ask again";

/// Changes the mode of a table for a client, which is answered once.
pub(super) fn change(
    core: &mut Core,
    io: &mut Io,
    ticket: Ticket,
    pool: PoolId,
    text: &str,
    session: Option<&str>,
) {
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
    let Some(change) = mode::parse(text)? else {
        return Err(alteration_fault(text));
    };
    let keyspace = change.table.keyspace.or(session.map(str::to_owned));
    let keyspace = keyspace.ok_or_else(|| {
        Fault::invalid("No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename")
    })?;
    if !routed::may_have_modes(&keyspace) {
        return Err(Fault::invalid(format!(
            "Shunt: the tables of {keyspace} take part in no transactions"
        )));
    }
    let pool_of_client = core.router.pools.get(pool);
    let login = pool_of_client.and_then(|pool| pool.key.token());
    let account = pool_of_client.map(|pool| pool.account).unwrap_or_default();
    let modes = &mut core.fleet.transactions.modes;
    if !modes.has_room(account) {
        return Err(Fault::overloaded(
            "Shunt: too many changes of modes, in all or of this role, are under way; ask again",
        ));
    }
    modes.number += 1;
    let number = modes.number;
    let (table, mode) = (change.table.name, change.mode);
    let step = Step::Unasked(io.now_ns());
    let change = Change { ticket, pool, login, account, keyspace, table, mode, step };
    modes.changes.insert(number, change);
    look_up(core, io, number);
    Ok(())
}

/// The error for a change of a table's options after which proxies could not write to the table.
pub(super) fn alteration_fault(text: &str) -> Fault {
    let why = alteration::refusal(text);
    Fault::invalid(why.unwrap_or_else(|| "Shunt: this statement changes no mode".to_owned()))
}

/// Asks a node for the table, now or at the next tick, for as long as a core that has just begun
/// may need.
fn look_up(core: &mut Core, io: &mut Io, number: u64) {
    let now_ns = io.now_ns();
    let Some(change) = core.fleet.transactions.modes.changes.get(&number) else { return };
    let Step::Unasked(since_ns) = change.step else { return };
    let (ticket, question) =
        (change.ticket, schema::retention_question(&change.keyspace, &change.table));
    let pool = statements::ask::pool(core, io);
    let whose = Whose::Transaction(Part::Change(number));
    if pool.is_some_and(|pool| {
        statements::ask::ask_in(core, io, pool, whose, &question, Consistency::ONE)
    }) {
        let change = core.fleet.transactions.modes.changes.get_mut(&number);
        change.into_iter().for_each(|change| change.step = Step::Table);
    } else if now_ns.saturating_sub(since_ns) > UNASKED_NS {
        core.fleet.transactions.modes.changes.remove(&number);
        core.fleet.transactions.fail(ticket, &unasked().into());
    }
}

fn unasked() -> Fault {
    Fault::new(
        FaultKind::Unserved,
        "Shunt: no node could be asked about this table; nothing was changed, ask again",
    )
}

/// Takes in the answer to a step of a change.
pub(super) fn change_answered(core: &mut Core, io: &mut Io, number: u64, heard: &Heard<'_>) {
    let Some(change) = core.fleet.transactions.modes.changes.remove(&number) else { return };
    let ticket = change.ticket;
    let next = match change.step {
        Step::Unasked(_) | Step::Table => table_read(core, io, number, change, heard),
        Step::Columns => columns_read(core, io, number, change, heard),
        Step::Allowed => permission_answered(core, io, number, change, heard),
        Step::Current => current_read(core, io, number, change, heard),
        Step::Row => row_written(core, &change, heard),
    };
    if let Err(failed) = next {
        core.fleet.transactions.fail(ticket, &failed);
    }
}

fn of_node(heard: &Heard<'_>, what: &str) -> Failure {
    match heard {
        Heard::Error(error) if levels::is_clients(error.code) => {
            Failure::Node { code: error.code, message: error.message.to_owned() }
        }
        Heard::Error(error) => {
            Fault::overloaded(format!("Shunt: {what}: {}", error.message)).into()
        }
        Heard::Result(_) | Heard::Unreadable => Fault::overloaded(format!("Shunt: {what}")).into(),
    }
}

fn table_read(
    core: &mut Core,
    io: &mut Io,
    number: u64,
    change: Change,
    heard: &Heard<'_>,
) -> Result<(), Failure> {
    let Heard::Result(ResultMessage::Rows(rows)) = heard else {
        return Err(of_node(heard, "the table could not be looked up"));
    };
    let (keyspace, table) = (&change.keyspace, &change.table);
    let Some(Ok(row)) = rows.rows().next() else {
        return Err(Fault::invalid(format!("Table '{keyspace}.{table}' doesn't exist")).into());
    };
    // With 'unsafe', transactions may read such a table; writes to it are refused.
    if !matches!(change.mode, TransactionalMode::Off | TransactionalMode::Unsafe)
        && let Some(why) = Retention::read(row.get(0), row.get(1)).refusal()
    {
        return Err(unfit(&change, &why));
    }
    if !change.mode.is_by_statement() {
        return may_change(core, io, number, change);
    }
    let text = schema::columns_question(&change.keyspace, &change.table);
    let whose = Whose::Transaction(Part::Change(number));
    core.fleet.transactions.modes.changes.insert(number, Change { step: Step::Columns, ..change });
    let pool = statements::ask::pool(core, io);
    ask_or_fail(core, number, |core| {
        pool.is_some_and(|pool| {
            statements::ask::ask_in(core, io, pool, whose, &text, Consistency::ONE)
        })
    })
}

fn unfit(change: &Change, why: &str) -> Failure {
    let (keyspace, table, mode) = (&change.keyspace, &change.table, change.mode.name());
    Fault::invalid(format!(
        "Shunt: table {keyspace}.{table} cannot have transactional_mode = '{mode}': {why}; nothing was changed"
    ))
    .into()
}

/// Asks the next question of a change that is already noted.
fn ask_or_fail(
    core: &mut Core,
    number: u64,
    ask: impl FnOnce(&mut Core) -> bool,
) -> Result<(), Failure> {
    if ask(core) {
        return Ok(());
    }
    core.fleet.transactions.modes.changes.remove(&number);
    Err(unasked().into())
}

/// Checks whether the columns allow the mode.
fn columns_read(
    core: &mut Core,
    io: &mut Io,
    number: u64,
    change: Change,
    heard: &Heard<'_>,
) -> Result<(), Failure> {
    let Heard::Result(ResultMessage::Rows(rows)) = heard else {
        return Err(of_node(heard, "the table's columns could not be read"));
    };
    match schema::unfit_by_text(rows) {
        Some(why) => Err(unfit(&change, &why)),
        None => may_change(core, io, number, change),
    }
}

fn may_change(core: &mut Core, io: &mut Io, number: u64, change: Change) -> Result<(), Failure> {
    if !is_of(core, &change) {
        return Err(unasked().into());
    }
    if change.login.is_none() {
        return read_current(core, io, number, change);
    }
    let text = rights::alter(&rights::qualified(&change.keyspace, &change.table));
    let pool = change.pool;
    let whose = Whose::Transaction(Part::MayChange { pool, number });
    core.fleet.transactions.modes.changes.insert(number, Change { step: Step::Allowed, ..change });
    ask_or_fail(core, number, |core| {
        statements::ask::ask_in(core, io, pool, whose, &text, Consistency::QUORUM)
    })
}

/// True if the pool still has the login that asked.
fn is_of(core: &Core, change: &Change) -> bool {
    core.router.pools.get(change.pool).is_some_and(|pool| pool.key.token() == change.login)
}

fn permission_answered(
    core: &mut Core,
    io: &mut Io,
    number: u64,
    change: Change,
    heard: &Heard<'_>,
) -> Result<(), Failure> {
    match heard {
        Heard::Error(error) if rights::shows_alter(error) => match is_of(core, &change) {
            true => read_current(core, io, number, change),
            false => Err(unasked().into()),
        },
        _ => Err(of_node(heard, "no node has said whether this role may change the table")),
    }
}

fn read_current(core: &mut Core, io: &mut Io, number: u64, change: Change) -> Result<(), Failure> {
    let mut list = ValueList::positional(VERSION);
    list.push(Value::Bytes(change.keyspace.as_bytes())).push(Value::Bytes(change.table.as_bytes()));
    core.fleet.transactions.modes.changes.insert(number, Change { step: Step::Current, ..change });
    // A SERIAL read completes changes that others have begun.
    let levels = Levels {
        consistency: levels::serial(core),
        serial: None,
        timestamp_us: None,
        elsewhere: false,
    };
    let whose = Whose::Transaction(Part::Change(number));
    ask_or_fail(core, number, |core| {
        statements::ask::ask(core, io, whose, CURRENT, list.values(), &levels, None)
    })
}

/// Takes in the row's text.
fn current_read(
    core: &mut Core,
    io: &mut Io,
    number: u64,
    change: Change,
    heard: &Heard<'_>,
) -> Result<(), Failure> {
    let Heard::Result(ResultMessage::Rows(rows)) = heard else {
        return Err(of_node(heard, "the table's mode could not be read; nothing was changed"));
    };
    let row = rows.rows().next().and_then(Result::ok);
    let current = row.and_then(|row| std::str::from_utf8(row.get(0)?).ok());
    let next = switching::next(current, change.mode, core.context.random());
    if matches!((&next, current), (Next::Same, _) | (Next::Unset, None)) {
        return finish_change(core, &change);
    }
    let (keyspace, table) = (change.keyspace.clone(), change.table.clone());
    core.fleet.transactions.modes.changes.insert(number, Change { step: Step::Row, ..change });
    ask_or_fail(core, number, |core| {
        ask_change(core, io, Part::Change(number), (&keyspace, &table), current, &next)
    })
}

fn row_written(core: &mut Core, change: &Change, heard: &Heard<'_>) -> Result<(), Failure> {
    match log::conditional(heard) {
        Conditional::Applied => finish_change(core, change),
        Conditional::Refused => Err(Fault::overloaded(
            "Shunt: another client changed the table's mode at the same time; nothing was changed, ask again",
        )
        .into()),
        Conditional::Unknown => match heard {
            Heard::Error(error) if levels::is_clients(error.code) => {
                Err(of_node(heard, "the table's mode could not be written"))
            }
            _ => {
                answer::tell_in_doubt(core, change.ticket, MODE_IN_DOUBT);
                Ok(())
            }
        },
    }
}

fn finish_change(core: &mut Core, change: &Change) -> Result<(), Failure> {
    core.fleet.transactions.modes.polling.next_ns = 0;
    let (keyspace, name) = (change.keyspace.as_str(), Some(change.table.as_str()));
    let changed =
        SchemaChange { change: "UPDATED", target: "TABLE", keyspace, name, arguments: None };
    let mut body = Vec::new();
    encode::schema_change(&mut body, &changed);
    core.fleet.transactions.tell(change.ticket, (opcode::RESULT, 0), body);
    Ok(())
}

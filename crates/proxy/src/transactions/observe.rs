//! Tables with the mode `observe`: nodes decide their statements, and what the proxies would have
//! answered is compared.
//!
//! A single statement takes the way that it takes with the mode `conditional`, to the core that
//! owns its keyspace's shard, and has its row to itself there ([`super::lone`]). It is decided by
//! the row as this core knows it, and goes to a node all the same, as its client has sent it; the
//! node's answer is told. So an operator sees, before the proxies decide anything, whether they
//! would answer as nodes do: not if something writes to the table that they do not see.
//!
//! | a statement | goes |
//! |---|---|
//! | one that `conditional` would decide | by the core of its shard, one after the other on its row; compared if it has conditions |
//! | one that `conditional` would refuse | by the core of its shard, as it is; not compared |
//! | a batch, what cannot be read here, and what calls functions of users | to nodes, as on a table without a mode; not compared |
//!
//! This must never: answer anything but what a node has said; send a statement once more that a
//! node may have carried out; say that answers are the same, or that they differ, by a row that may
//! have expired, or been changed by a statement which this core has sent.

use std::sync::Arc;

use shunt_language::{CqlType, Refusal};
use shunt_locks::Written;
use shunt_reactor::Io;
use shunt_transactions::Partition;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::encode_result::RowsWriter;
use shunt_wire::cql::message::{
    Batch, BatchStatement, BytesMap, Consistency, Execute, Query, ResultMessage, Rows,
    split_request_prefix,
};
use shunt_wire::cql::statement::{Kind, classify};

use super::changes::Difference;
use super::levels;
use crate::core::Core;
use crate::fault::Fault;
use crate::fleet::peers;
use crate::fleet::statements::{self, Heard, Levels, Whose};
use crate::ids::PoolId;
use crate::log_limits::Logged;
use crate::metrics::Observation;
use shunt_transactions::catalogue::modes::{Named, tables_of};
use shunt_transactions::conditional::doubt::Doubt;
use shunt_transactions::conditional::state::Deciding;
use shunt_transactions::guard::request as besides;
use shunt_transactions::plan::conditional::whole;
use shunt_transactions::plan::{Single, qualified};
use shunt_transactions::request::{AsSent, Asked, Head, Known};
use shunt_wire::printable::printable_to;

/// A request that may go to nodes as on any table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// If it cannot be read here.
    Single,
    Batch,
}

/// What a client asks of tables of which none has another mode than `observe`; none of others.
pub(crate) fn left(core: &mut Core, pool: PoolId, header: &Header, body: &[u8]) -> Option<Left> {
    if !core.router.modes.has_observed() {
        return None;
    }
    let (payload, body) = split_request_prefix(header.flags, body).ok()?;
    let is_ours = |payload: &BytesMap<'_>| {
        besides::is_asked(payload) || payload.iter().any(|(key, _)| key == peers::TRANSACTION)
    };
    if payload.as_ref().is_some_and(is_ours) {
        return None;
    }
    let session = core.router.pools.get(pool)?.key.keyspace.clone();
    let (tables, left) = match header.opcode {
        opcode::QUERY => {
            let query = Query::decode(header.version, body).ok()?;
            let session = query.params.keyspace.or(session.as_deref());
            let tables = tables_of(&classify(query.text), query.text, session);
            (tables, left_of(query.text)?)
        }
        opcode::EXECUTE => {
            let execute = Execute::decode(header.version, body).ok()?;
            let statement = core.router.prepared.statement(execute.id)?;
            // A text that is too long to be kept is too long to be read here.
            let left = statement.text.as_deref().map_or(Some(Left::Batch), left_of)?;
            (statement.tables.as_deref().map(<[Named]>::to_vec), left)
        }
        opcode::BATCH => {
            let batch = Batch::decode(header.version, body).ok()?;
            let session = batch.params.keyspace.or(session.as_deref());
            (tables_of_batch(core, &batch, session), Left::Batch)
        }
        _ => return None,
    };
    core.router.modes.leaves_to_nodes(tables.as_deref()).then_some(left)
}

fn left_of(text: &str) -> Option<Left> {
    match classify(text).kind {
        Kind::Batch => Some(Left::Batch),
        Kind::Insert | Kind::Update | Kind::Delete | Kind::Truncate => Some(Left::Single),
        _ => None,
    }
}

/// The tables of all statements; none: nobody can say.
fn tables_of_batch(
    core: &mut Core,
    batch: &Batch<'_>,
    session: Option<&str>,
) -> Option<Vec<Named>> {
    let mut all = Vec::new();
    for child in batch.children() {
        match child.statement {
            BatchStatement::Text(text) => all.extend(tables_of(&classify(text), text, session)?),
            BatchStatement::Prepared(id) => {
                all.extend(core.router.prepared.statement(id)?.tables.as_deref()?.iter().cloned());
            }
        }
    }
    Some(all)
}

/// What is known of a text. On such a table it may be one that is no transaction: it goes by its
/// owner all the same, who would go on with rows that it has changed.
pub(super) fn known(core: &Core, text: &str, keyspace: Option<&str>) -> Result<Known, Refusal> {
    Known::read(text, keyspace).or_else(|refusal| {
        let single =
            core.router.modes.has_observed().then(|| Known::read_single(text, keyspace)).flatten();
        single.filter(|known| is_of(core, known)).ok_or(refusal)
    })
}

/// True of a single statement that is on such a table.
pub(super) fn is_of(core: &Core, known: &Known) -> bool {
    core.router.modes.has_observed()
        && known.tables.iter().any(|(table, _)| core.router.modes.is_observed(&known.domain, table))
}

/// Counts what came of a statement.
pub(super) fn count(core: &Core, observation: Observation) {
    core.context.metrics.transactions.observed.of(observation).add(1);
}

/// Refuses what is not asked by another connection than its client's: it may have no right to
/// execute the functions that it calls, or says what would not be said there.
pub(super) fn check(known: &Known, as_sent: AsSent) -> Result<(), Fault> {
    if as_sent.is_odd || known.calls_others {
        return Err(Fault::invalid(
            "Shunt: this statement is for a node to read, and under its client's role",
        ));
    }
    Ok(())
}

/// A single statement on such a table as it is sent on.
pub(super) struct Original {
    /// With its table named with its keyspace.
    pub(super) text: Arc<str>,
    pub(super) shard: u8,
    /// What stands for the table.
    pub(super) table: Partition,
}

/// A statement that may be sent on; none if it is another.
pub(super) fn original(core: &Core, message: &[u8]) -> Option<Original> {
    let asked = Asked::read(message).ok().filter(|asked| asked.besides.is_empty())?;
    let Single { table: name, .. } =
        Single::read(asked.text).filter(|single| !single.calls_others)?;
    let domain = name.keyspace.as_deref().unwrap_or(asked.keyspace);
    let named = (Some(domain.into()), name.name.as_str().into());
    if !core.router.modes.leaves_to_nodes(Some(&[named])) {
        return None;
    }
    let text = qualified(asked.text, &name, domain).ok()?;
    let (shard, table) = (levels::shard_of_domain(domain), whole(domain, &name.name));
    Some(Original { text, shard, table })
}

/// Sends a statement as its client has, and says for whom. `false`: it is none that may be, or
/// could not be sent.
pub(super) fn send(core: &mut Core, io: &mut Io, number: u64, whose: Whose) -> bool {
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else { return false };
    let message = std::mem::take(&mut job.message);
    let is_sent = send_message(core, io, &message, whose);
    if let Some(job) = core.fleet.transactions.jobs.get_mut(&number) {
        job.message = message;
    }
    is_sent
}

fn send_message(core: &mut Core, io: &mut Io, message: &[u8], whose: Whose) -> bool {
    let (Some(Original { text, .. }), Ok(asked)) = (original(core, message), Asked::read(message))
    else {
        return false;
    };
    let AsSent { consistency, serial, timestamp_us, .. } = as_sent(core, &asked);
    let levels = Levels { consistency, serial, timestamp_us, elsewhere: false };
    statements::ask::ask_text(core, io, whose, &text, asked.values, &levels, None)
}

/// How a statement is carried out; one of a proxy that had not read its table's mode yet has not
/// said.
fn as_sent(core: &Core, asked: &Asked<'_>) -> AsSent {
    asked.as_sent.unwrap_or_else(|| AsSent {
        consistency: levels::quorum(core),
        serial: Some(levels::serial(core)),
        timestamp_us: None,
        is_odd: false,
    })
}

/// What is in doubt about its row, now that a node has answered: by what came of it, and by when
/// it, or what was read, was written.
pub(super) fn doubt(
    core: &Core,
    io: &Io,
    message: &[u8],
    heard: &Heard<'_>,
    latest_us: i64,
) -> Doubt {
    let (now_ns, wall_us) = (io.now_ns(), io.wall_us());
    let sent_us = Asked::read(message).ok().and_then(|asked| as_sent(core, &asked).timestamp_us);
    match heard {
        Heard::Result(ResultMessage::Rows(_)) => Doubt::of_latest(latest_us, wall_us, now_ns),
        Heard::Result(_) => Doubt::of_plain(sent_us.unwrap_or(wall_us), wall_us, now_ns),
        Heard::Error(error) if levels::is_clients(error.code) => Doubt::default(),
        _ if levels::written(heard) == Written::NotSent => Doubt::default(),
        _ => Doubt::of_unknown(now_ns),
    }
}

/// At which level its row is read: that at which nodes will decide it.
pub(super) fn level(core: &Core, message: &[u8]) -> Consistency {
    let serial = Asked::read(message).ok().and_then(|asked| as_sent(core, &asked).serial);
    serial.unwrap_or(Consistency::SERIAL)
}

/// What a node has answered, as it is told; none if that cannot be read. `types`: the version in
/// which types are told.
pub(super) fn told(
    (version, types): (u8, u8),
    heard: &Heard<'_>,
    raw: &[u8],
) -> Option<(Head, Vec<u8>)> {
    match heard {
        Heard::Result(ResultMessage::Rows(rows)) if types != statements::VERSION => {
            Some(((opcode::RESULT, 0), retyped(rows, types)?))
        }
        Heard::Result(_) => Some(((opcode::RESULT, 0), raw.to_vec())),
        Heard::Error(error) => {
            let mut body = Vec::new();
            error.put(&mut body, version);
            Some(((opcode::ERROR, 0), body))
        }
        Heard::Unreadable => None,
    }
}

/// Rows with the types of another version of the protocol.
fn retyped(rows: &Rows<'_>, types: u8) -> Option<Vec<u8>> {
    let of = |mut option: &[u8]| {
        CqlType::read_option(&mut option).map(|cql_type| cql_type.option(types))
    };
    let options =
        rows.metadata.columns().map(|column| of(column.type_option)).collect::<Option<Vec<_>>>()?;
    let first = rows.metadata.columns().next()?;
    let columns: Vec<_> = rows
        .metadata
        .columns()
        .zip(&options)
        .map(|(column, option)| (column.name, &option[..]))
        .collect();
    let mut out = Vec::new();
    let mut writer = RowsWriter::new(&mut out, first.keyspace, first.table, &columns);
    for row in rows.rows() {
        row.ok()?.values().for_each(|value| _ = writer.value(value));
    }
    writer.finish();
    Some(out)
}

/// True if all proxies know by this time that the table of a statement is observed. Whoever has
/// sent it here does; before this core does too, others may know nothing of it, and send past it
/// what is written there.
pub(super) fn is_settled(core: &Core, number: u64, now_ns: u64) -> bool {
    let keeper = &core.fleet.transactions;
    let plan = keeper.jobs.get(&number).and_then(|job| job.plan.as_ref());
    let Some(table) = plan.and_then(|plan| plan.tables().first().copied()) else { return false };
    core.router.modes.is_observed(&table.keyspace, &table.name)
        && now_ns >= keeper.modes.compares_from_ns
}

/// A node has answered a statement: whether that is what the proxies would have. None where it says
/// nothing about them: it failed, for a time-out does not say what was decided.
pub(super) fn compared(
    deciding: &Deciding,
    heard: &Heard<'_>,
    raw: &[u8],
    now_ns: u64,
) -> Option<Observation> {
    let observed = deciding.observed.as_ref()?;
    match (heard, &observed.expected) {
        (Heard::Result(ResultMessage::Rows(_)), Some(expected)) if now_ns < observed.until_ns => {
            Some(if expected == raw { Observation::Same } else { Observation::Different })
        }
        (Heard::Result(_), _) => Some(Observation::NotCompared),
        (Heard::Error(_) | Heard::Unreadable, _) => None,
    }
}

/// A node has answered otherwise than the proxies would have. That counts once it is known that the
/// table's mode was still the same then: whoever knows already that it is another sends past this
/// core what is written to the table.
pub(super) fn differs(core: &mut Core, io: &Io, number: u64, raw: &[u8]) {
    let seen_ns = io.now_ns();
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.jobs.get(&number) else { return };
    let observed = job.deciding.as_ref().and_then(|one| one.observed.as_ref());
    let Some((plan, observed)) = job.plan.as_ref().zip(observed) else { return };
    let Some(table) = plan.tables().first().copied() else { return };
    if keeper.modes.differences.len() >= DIFFERENCES_MAX {
        return count(core, Observation::Different);
    }
    let applied_by_proxy = observed.expected.as_deref().and_then(applied);
    let (keyspace, table) = (table.keyspace.as_str().into(), table.name.as_str().into());
    let statement = Arc::clone(&plan.draft.outline.text);
    let applied_by_node = applied(raw);
    keeper.modes.differences.push(Difference {
        keyspace,
        table,
        statement,
        applied_by_node,
        applied_by_proxy,
        seen_ns,
    });
}

/// Between two looks at modes; more are counted at once.
const DIFFERENCES_MAX: usize = 1_024;

/// The modes are known as they were at this time, or later: tells the operator of what has differed
/// before.
pub(super) fn tell(core: &mut Core, io: &Io, asked_ns: u64) {
    if core.fleet.transactions.modes.differences.is_empty() {
        return;
    }
    let all = std::mem::take(&mut core.fleet.transactions.modes.differences);
    let (known, later) = all.into_iter().partition::<Vec<_>, _>(|one| one.seen_ns < asked_ns);
    core.fleet.transactions.modes.differences = later;
    for one in known {
        if !core.router.modes.is_observed(&one.keyspace, &one.table) {
            count(core, Observation::NotCompared);
            continue;
        }
        count(core, Observation::Different);
        if let Some(suppressed) = core.context.log_limits.admit(Logged::Observed, io.now_ns()) {
            tracing::warn!(
                table = %format_args!("{}.{}", one.keyspace, one.table),
                statement = %printable_to(&one.statement, STATEMENT_SHOWN_BYTES),
                applied_by_node = one.applied_by_node,
                applied_by_proxy = one.applied_by_proxy,
                suppressed,
                "a node has answered a statement otherwise than the proxies would have: something writes to this table past them"
            );
        }
    }
}

/// Of a statement that the log shows.
const STATEMENT_SHOWN_BYTES: usize = 1_000;

/// Whether a result says that a statement was applied.
fn applied(result: &[u8]) -> Option<bool> {
    let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(statements::VERSION, result) else {
        return None;
    };
    let row = rows.rows().next()?.ok()?;
    row.get(0).map(|value| value == [1])
}

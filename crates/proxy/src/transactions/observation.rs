//! Tables with the mode `observe`: nodes decide the statements, and their answers are compared with
//! those that the proxies would give.
//!
//! A single statement takes the same path as with the mode `conditional`, to the core that owns its
//! keyspace's shard, and locks its row there ([`super::conditional`]). The core decides it by the
//! row that it knows, but a node gets the client's statement all the same, and the node's answer is
//! returned. An operator thus sees, before the proxies decide anything, whether they would answer
//! as nodes do; they would not if something writes to the table past them.
//!
//! | a statement | path |
//! |---|---|
//! | one that `conditional` would decide | through the core of its shard, one after the other on its row; compared if it has conditions |
//! | one that `conditional` would refuse | through the core of its shard, unchanged; not compared |
//! | a batch, an unreadable statement, or one with user-defined functions | to nodes, as on a table without a mode; not compared |
//!
//! This must never: answer anything but a node's answer; send a statement again that a node may
//! have executed; report that answers agree or differ based on a row that may have expired, or that
//! a statement of this core has changed.

use std::sync::Arc;

use shunt_language::{CqlType, Refusal};
use shunt_locks::Written;
use shunt_reactor::Io;
use shunt_transactions::Partition;
use shunt_transactions::catalogue::modes::{TableName, tables_of};
use shunt_transactions::conditional::doubt::Doubt;
use shunt_transactions::conditional::state::ConditionalState;
use shunt_transactions::guard::request as safeguards;
use shunt_transactions::plan::conditional::whole;
use shunt_transactions::plan::{Single, qualified};
use shunt_transactions::request::{Head, QueryOptions, Request, Summary};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::encode_result::RowsWriter;
use shunt_wire::cql::message::{
    Batch, BatchStatement, BytesMap, Consistency, Execute, Query, ResultMessage, Rows,
    split_request_prefix,
};
use shunt_wire::cql::statement::{Kind, classify};
use shunt_wire::printable::printable_to;

use super::levels;
use crate::core::Core;
use crate::fault::Fault;
use crate::fleet::forwarding;
use crate::fleet::statements::{self, Heard, Levels, Whose};
use crate::ids::PoolId;
use crate::log_limits::Logged;
use crate::metrics::Observation;
use crate::transactions::modes::state::Difference;

/// A request that may go to nodes as on any table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeBound {
    /// A single statement, if this proxy cannot read it.
    Single,
    /// A batch.
    Batch,
}

/// The form of a request whose tables have no other mode than `observe`; none for other requests.
pub(crate) fn node_bound(
    core: &mut Core,
    pool: PoolId,
    header: &Header,
    body: &[u8],
) -> Option<NodeBound> {
    if !core.router.modes.has_observed() {
        return None;
    }
    let (payload, body) = split_request_prefix(header.flags, body).ok()?;
    let is_ours = |payload: &BytesMap<'_>| {
        safeguards::is_asked(payload)
            || payload.iter().any(|(key, _)| key == forwarding::TRANSACTION)
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
            (tables, node_bound_form(query.text)?)
        }
        opcode::EXECUTE => {
            let execute = Execute::decode(header.version, body).ok()?;
            let statement = core.router.prepared.statement(execute.id)?;
            // A text that is too long to be kept is too long to be parsed here.
            let left = statement.text.as_deref().map_or(Some(NodeBound::Batch), node_bound_form)?;
            (statement.tables.as_deref().map(<[TableName]>::to_vec), left)
        }
        opcode::BATCH => {
            let batch = Batch::decode(header.version, body).ok()?;
            let session = batch.params.keyspace.or(session.as_deref());
            (tables_of_batch(core, &batch, session), NodeBound::Batch)
        }
        _ => return None,
    };
    core.router.modes.leaves_to_nodes(tables.as_deref()).then_some(left)
}

fn node_bound_form(text: &str) -> Option<NodeBound> {
    match classify(text).kind {
        Kind::Batch => Some(NodeBound::Batch),
        Kind::Insert | Kind::Update | Kind::Delete | Kind::Truncate => Some(NodeBound::Single),
        _ => None,
    }
}

/// Tables of all statements; none if they are unknown.
fn tables_of_batch(
    core: &mut Core,
    batch: &Batch<'_>,
    session: Option<&str>,
) -> Option<Vec<TableName>> {
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

/// Summarises a text. On such a table it may be no transaction, but still goes through the owner,
/// which would otherwise keep rows that the statement changes.
pub(super) fn summarise(
    core: &Core,
    text: &str,
    keyspace: Option<&str>,
) -> Result<Summary, Refusal> {
    Summary::parse(text, keyspace).or_else(|refusal| {
        let single = core
            .router
            .modes
            .has_observed()
            .then(|| Summary::parse_single(text, keyspace))
            .flatten();
        single.filter(|known| is_of(core, known)).ok_or(refusal)
    })
}

/// True of a single statement on such a table.
pub(super) fn is_of(core: &Core, known: &Summary) -> bool {
    core.router.modes.has_observed()
        && known.tables.iter().any(|(table, _)| core.router.modes.is_observed(&known.domain, table))
}

/// Counts the result of a comparison.
pub(super) fn count(core: &Core, observation: Observation) {
    core.context.metrics.transactions.observed.of(observation).add(1);
}

/// Refuses a statement that must go over its client's own connection: its role may not be allowed
/// to execute the functions that it calls, or it has options that would be lost.
pub(super) fn check(known: &Summary, options: QueryOptions) -> Result<(), Fault> {
    if options.is_odd || known.calls_others {
        return Err(Fault::invalid(
            "Shunt: this statement has to go to a node under its client's role",
        ));
    }
    Ok(())
}

/// A single statement on such a table, as it is passed on.
pub(super) struct Original {
    /// The text, with the keyspace of its table.
    pub(super) text: Arc<str>,
    pub(super) shard: u8,
    /// Lock of the table.
    pub(super) table: Partition,
}

/// The statement to pass on; none if it has to be refused.
pub(super) fn original(core: &Core, message: &[u8]) -> Option<Original> {
    let asked = Request::decode(message).ok().filter(|asked| asked.safeguards.is_empty())?;
    let Single { table: name, .. } =
        Single::parse(asked.text).filter(|single| !single.calls_others)?;
    let domain = name.keyspace.as_deref().unwrap_or(asked.keyspace);
    let named = (Some(domain.into()), name.name.as_str().into());
    if !core.router.modes.leaves_to_nodes(Some(&[named])) {
        return None;
    }
    let text = qualified(asked.text, &name, domain).ok()?;
    let (shard, table) = (levels::shard_of_domain(domain), whole(domain, &name.name));
    Some(Original { text, shard, table })
}

/// Sends a client's statement unchanged. `false` if it has to be refused, or could not be sent.
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
    let (Some(Original { text, .. }), Ok(asked)) =
        (original(core, message), Request::decode(message))
    else {
        return false;
    };
    let QueryOptions { consistency, serial, timestamp_us, .. } = options(core, &asked);
    let levels = Levels { consistency, serial, timestamp_us, elsewhere: false };
    statements::ask::ask_text(core, io, whose, &text, asked.values, &levels, None)
}

/// The options of a statement. A proxy that had not read the table's mode yet has sent none.
fn options(core: &Core, asked: &Request<'_>) -> QueryOptions {
    asked.options.unwrap_or_else(|| QueryOptions {
        consistency: levels::quorum(core),
        serial: Some(levels::serial(core)),
        timestamp_us: None,
        is_odd: false,
    })
}

/// The doubt about the row after a node's answer: from the outcome, and from the timestamps of the
/// write or of the row.
pub(super) fn doubt(
    core: &Core,
    io: &Io,
    message: &[u8],
    heard: &Heard<'_>,
    latest_us: i64,
) -> Doubt {
    let (now_ns, wall_us) = (io.now_ns(), io.wall_us());
    let sent_us =
        Request::decode(message).ok().and_then(|asked| options(core, &asked).timestamp_us);
    match heard {
        Heard::Result(ResultMessage::Rows(_)) => Doubt::of_latest(latest_us, wall_us, now_ns),
        Heard::Result(_) => Doubt::of_plain(sent_us.unwrap_or(wall_us), wall_us, now_ns),
        Heard::Error(error) if levels::is_clients(error.code) => Doubt::default(),
        _ if levels::written(heard) == Written::NotSent => Doubt::default(),
        _ => Doubt::of_unknown(now_ns),
    }
}

/// The consistency level at which the row is read: that at which nodes decide.
pub(super) fn level(core: &Core, message: &[u8]) -> Consistency {
    let serial = Request::decode(message).ok().and_then(|asked| options(core, &asked).serial);
    serial.unwrap_or(Consistency::SERIAL)
}

/// A node's answer for the client; none if it cannot be decoded. `types` is the version in which
/// types are described.
pub(super) fn client_answer(
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

/// Rows with the types of another protocol version.
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

/// True if every proxy knows by this time that the table is observed. The sender of this statement
/// does; until this core does too, others may not, and may write past it.
pub(super) fn is_settled(core: &Core, number: u64, now_ns: u64) -> bool {
    let keeper = &core.fleet.transactions;
    let plan = keeper.jobs.get(&number).and_then(|job| job.plan.as_ref());
    let Some(table) = plan.and_then(|plan| plan.tables().first().copied()) else { return false };
    core.router.modes.is_observed(&table.keyspace, &table.name)
        && now_ns >= keeper.modes.compares_from_ns
}

/// The comparison of a node's answer with the proxies'. None for a failure, which does not show how
/// nodes decided.
pub(super) fn compared(
    state: &ConditionalState,
    heard: &Heard<'_>,
    raw: &[u8],
    now_ns: u64,
) -> Option<Observation> {
    let observed = state.observed.as_ref()?;
    match (heard, &observed.expected) {
        (Heard::Result(ResultMessage::Rows(_)), Some(expected)) if now_ns < observed.until_ns => {
            Some(if expected == raw { Observation::Same } else { Observation::Different })
        }
        (Heard::Result(_), _) => Some(Observation::NotCompared),
        (Heard::Error(_) | Heard::Unreadable, _) => None,
    }
}

/// Notes a difference. It counts once the table is known to have had the same mode then: a proxy
/// that knows a newer mode writes to the table past this core.
pub(super) fn differs(core: &mut Core, io: &Io, number: u64, raw: &[u8]) {
    let seen_ns = io.now_ns();
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.jobs.get(&number) else { return };
    let observed = job.conditional.as_ref().and_then(|one| one.observed.as_ref());
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

/// Differences noted between two reads of the modes; more are counted at once.
const DIFFERENCES_MAX: usize = 1_024;

/// Reports differences from before the modes were asked for.
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
                "a node's answer differs from the proxies': something writes to this table past them"
            );
        }
    }
}

/// Bytes of a statement that the log shows.
const STATEMENT_SHOWN_BYTES: usize = 1_000;

/// Whether a result says that the statement was applied.
fn applied(result: &[u8]) -> Option<bool> {
    let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(statements::VERSION, result) else {
        return None;
    };
    let row = rows.rows().next()?.ok()?;
    row.get(0).map(|value| value == [1])
}

//! Requests to links: the plan of a request, and the choice of a node for it.
//!
//! The plan comes first: the kind of the request, and the token of its partition key when that is
//! known. The choice follows: among the replicas of that token in the local datacentre the one with
//! the fewest queries in flight; without a token any node of the local datacentre. The proxy never
//! refuses a request that it does not understand: the request goes to any node, is not repeated,
//! and the node judges it.

mod choice;

pub(crate) use choice::{Choice, WhenFull, choose, choose_after_wait, choose_among};

use shunt_language::transaction::{TEXT_BYTES_MAX, guard, mode};
use shunt_topology::token;
use shunt_topology::{KeyspaceIndex, Token};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::split_request_prefix;
use shunt_wire::cql::message::{
    Batch, BatchStatement, BytesMap, ExecuteRouting, Prepare, Query, Reader, Values,
};
use shunt_wire::cql::statement::{self, Identifier, Kind, Statement, routing_key};
use shunt_wire::error::DecodeError;

use crate::client::account::Account;
use crate::hot_keys::HotKeys;
use crate::ids::{PoolId, Tag, TenantKey};
use crate::link::Pools;
use crate::locks::recognition as locks;
use crate::metrics::QueryKind;
use crate::plan::{After, NO_STATEMENT, Plan, Work, after_of, is_on_admin_tables, work_of};
use crate::prepared::{ID_BYTES, PreparedStatement};
use crate::router::Router;
use shunt_transactions::catalogue::modes as routed;
use shunt_transactions::catalogue::modes::Access;
use shunt_transactions::guard::request as besides;

/// Reads from a request other than EXECUTE the facts that routing needs. An error means that the
/// body is malformed.
pub(crate) fn plan(
    router: &mut Router,
    pool: PoolId,
    header: &Header,
    body: &[u8],
) -> Result<Plan, DecodeError> {
    let (payload, body) = split_request_prefix(header.flags, body)?;
    match header.opcode {
        opcode::QUERY => {
            let plan = plan_query(router, pool, &Query::decode(header.version, body)?);
            Ok(besides_of(payload.as_ref(), plan))
        }
        opcode::BATCH => {
            let plan = plan_batch(router, pool, &Batch::decode(header.version, body)?);
            Ok(besides_of(payload.as_ref(), plan))
        }
        opcode::PREPARE => {
            let asked = Prepare::decode(header.version, body)?;
            let session = router.pools.get(pool).and_then(|pool| pool.key.keyspace.as_deref());
            let after = if router.serves_locks && is_transaction(asked.text) {
                After::Transaction
            } else if router.takes_locks()
                && is_refused_on_locks(router, asked.text, asked.keyspace.or(session))
            {
                After::Lock
            } else if is_refused(asked.text, asked.keyspace.or(session)) {
                After::Refuse
            } else {
                After::Learn
            };
            Ok(Plan { kind: QueryKind::Prepare, after, ..Plan::anywhere() })
        }
        _ => Ok(Plan::anywhere()),
    }
}

/// Applies the options of a payload: they make a transaction of any statement, or an error of one
/// that cannot be one, so that nothing that relies on a lock runs as if it did not.
fn besides_of(payload: Option<&BytesMap<'_>>, plan: Plan) -> Plan {
    match payload {
        Some(payload) if plan.after != After::Unprepared && besides::is_asked(payload) => {
            Plan { after: After::Transaction, ..plan }
        }
        _ => plan,
    }
}

/// Longest statement that changes only a table's mode.
const MODE_CHANGE_BYTES_MAX: usize = 4_096;

/// True for a transaction, and for a change of a table's mode.
fn is_on_transactions(parsed: &Statement<'_>, text: &str) -> bool {
    match parsed.kind {
        Kind::Transaction => true,
        _ if is_guarded(parsed, text) => true,
        // A longer statement is no change of a mode alone, and is not parsed to see that.
        Kind::Ddl => {
            text.len() <= MODE_CHANGE_BYTES_MAX
                && mode::may_change_mode(text)
                && !matches!(mode::parse(text), Ok(None))
        }
        _ => false,
    }
}

/// True for a statement whose conditions name the lock that it relies on, or try to. Other
/// statements are only checked for conditions.
#[inline]
fn is_guarded(parsed: &Statement<'_>, text: &str) -> bool {
    parsed.conditional && guard::may_be_guarded(text) && !matches!(guard::guarded(text), Ok(None))
}

/// True if a text to prepare is a transaction, also because of the lock that it names.
fn is_transaction(text: &str) -> bool {
    let parsed = statement::classify(text);
    parsed.kind == Kind::Transaction || is_guarded(&parsed, text)
}

/// True if a text to prepare is on an admin table, or too long to see whether it shows a node.
fn is_refused(text: &str, session: Option<&str>) -> bool {
    let parsed = statement::classify(text);
    is_on_admin_tables(&parsed)
        || text.len() > statement::TEXT_BYTES_MAX
            && after_of(&parsed, session, text) == After::Refuse
}

/// The reason for which a request is refused ([`After::Refuse`]).
#[cold]
pub(crate) fn refusal(header: &Header, body: &[u8]) -> String {
    let message = split_request_prefix(header.flags, body).map(|(_, message)| message);
    let text = message.and_then(|message| Reader::new(message).long_string("query text"));
    if text.is_ok_and(|text| is_on_admin_tables(&statement::classify(text))) {
        return "Shunt: this address does not serve the tables of shunt_admin; set the proxy's option \
            admin_cql, and connect to the address that it names"
            .to_owned();
    }
    format!(
        "Shunt: this SELECT may read the keyspace system; the name of its table must stand within the \
         first {} bytes",
        statement::TEXT_BYTES_MAX
    )
}

/// True if a text to prepare is on a table of locks, and has no supported form or none that this
/// proxy supports.
#[cold]
fn is_refused_on_locks(router: &Router, text: &str, session: Option<&str>) -> bool {
    match locks::read(&statement::classify(text), session, text) {
        Some(Ok(_)) => router.refuses_locks,
        read => read.is_some(),
    }
}

/// Reads from an EXECUTE the facts that routing needs. A separate function, so that the results
/// stay in registers: EXECUTE is the most frequent request.
#[inline(always)]
pub(crate) fn plan_execute(
    router: &mut Router,
    pool: PoolId,
    header: &Header,
    body: &[u8],
) -> Result<Plan, DecodeError> {
    let (payload, body) = split_request_prefix(header.flags, body)?;
    let execute = ExecuteRouting::decode(header.version, body)?;
    let mut plan = Plan {
        kind: QueryKind::Execute,
        consistency: execute.consistency.0,
        after: After::Inspect,
        ..Plan::anywhere()
    };
    let Some((number, learned)) = router.prepared.look_up(execute.id) else {
        plan.after = after_unknown(execute.id);
        return Ok(plan);
    };
    plan.statement = number;
    plan.digest = learned.digest;
    plan.work = learned.statement.work;
    plan.conditional = learned.statement.conditional;
    plan.after = learned.statement.after;
    if let Some(keyspace) = learned.keyspace
        && let Some(token) = learned.token(&execute.values, &mut router.key_scratch)
    {
        plan.placement = Some((keyspace, token));
        plan.generation = router.generation;
        plan.alone = plan.conditional || execute.doubtful;
        if router.hot_keys.is_due() {
            let key = learned.routing_key(&execute.values, &mut router.key_scratch);
            let account = account_of(&router.pools, pool);
            sample_statement(&mut router.hot_keys, account, learned.statement, token, key);
        }
    }
    if !router.modes.is_empty()
        && (!plan.after.is_for_the_proxy() || plan.after == After::Multiget)
        && router.modes.take_any(learned.statement.tables.as_deref(), learned.statement.access)
    {
        plan.after = After::Transaction;
    }
    if router.refuses_locks && learned.statement.names_locks {
        plan.after = After::Lock;
    }
    if payload.is_some() {
        plan = besides_of(payload.as_ref(), plan);
    }
    Ok(plan)
}

/// Decides what happens to a request with an unknown statement: a proxy that restarted does not
/// know what its clients prepared before. UNPREPARED makes drivers prepare it, and the proxy can
/// route it from then on.
#[cold]
fn after_unknown(id: &[u8]) -> After {
    if id.len() == ID_BYTES { After::Unprepared } else { After::Inspect }
}

fn plan_query(router: &mut Router, pool: PoolId, query: &Query<'_>) -> Plan {
    let parsed = statement::classify(query.text);
    let placement =
        text_placement(router, pool, query.params.keyspace, &parsed, &query.params.values, true);
    let session = router.pools.get(pool).and_then(|pool| pool.key.keyspace.as_deref());
    let session = query.params.keyspace.or(session);
    let digest = router.texts.digest_of(QueryKind::Query, session, query.text);
    let is_on_locks = router.takes_locks() && locks::may_be_on_locks(&parsed, session, query.text);
    let after = match is_on_locks && locks::is_on_locks(&parsed, session, query.text) {
        true => After::Lock,
        false if router.serves_locks && is_on_transactions(&parsed, query.text) => {
            After::Transaction
        }
        false if is_routed(router, &parsed, query.text, session) => After::Transaction,
        false => after_of(&parsed, session, query.text),
    };
    Plan {
        placement,
        generation: router.generation,
        node: None,
        work: work_of(parsed.kind),
        kind: QueryKind::Query,
        conditional: parsed.conditional,
        alone: parsed.conditional || placement.is_none() || query.params.is_doubtful(),
        after,
        statement: NO_STATEMENT,
        consistency: query.params.consistency.0,
        digest,
        tenant: TenantKey::NONE,
        timeout_ms: 0,
        is_unhedged: false,
        tag: Tag::NONE,
    }
}

/// True for a statement that is a transaction because of its table.
#[inline]
fn is_routed(router: &Router, parsed: &Statement<'_>, text: &str, session: Option<&str>) -> bool {
    let modes = &router.modes;
    !modes.is_empty()
        && match parsed.kind {
            Kind::Batch if text.len() > statement::TEXT_BYTES_MAX && !modes.may_be_in(text) => {
                false
            }
            Kind::Batch if text.len() > TEXT_BYTES_MAX => true,
            kind => {
                let tables = routed::tables_of(parsed, text, session);
                modes.take_any(tables.as_deref(), Access::of_text(kind, text))
            }
        }
}

/// Shows what a text of a BATCH needs: the locks, a transaction, or neither. All texts of one BATCH
/// share the budgets, so that no BATCH costs more than the longest text that is parsed alone.
struct BatchParser {
    locks: locks::ParseBudget,
    transactions: locks::ParseBudget,
}

impl BatchParser {
    fn new() -> BatchParser {
        BatchParser {
            locks: locks::ParseBudget::of_locks(),
            transactions: locks::ParseBudget::of_bytes(TEXT_BYTES_MAX),
        }
    }

    /// True for a text on a table of locks.
    fn is_on_locks(
        &mut self,
        router: &Router,
        parsed: &Statement<'_>,
        text: &str,
        session: Option<&str>,
    ) -> bool {
        router.takes_locks()
            && locks::may_be_on_locks(parsed, session, text)
            && locks::is_on_locks_in_batch(parsed, session, text, &mut self.locks)
    }

    /// True for a text that makes a transaction of the BATCH. A text beyond the budget does, if it
    /// may: a transaction of so many bytes is refused.
    fn is_transaction(
        &mut self,
        router: &Router,
        parsed: &Statement<'_>,
        text: &str,
        session: Option<&str>,
    ) -> bool {
        if router.serves_locks && parsed.conditional && guard::may_be_guarded(text) {
            // A longer text alone is not parsed.
            let is_covered = text.len() > TEXT_BYTES_MAX || self.transactions.covers(text);
            if !is_covered || is_guarded(parsed, text) {
                return true;
            }
        }
        let modes = &router.modes;
        if modes.is_empty() {
            return false;
        }
        // Other kinds, and those whose table comes late, are parsed as a whole.
        let is_change = matches!(parsed.kind, Kind::Insert | Kind::Update | Kind::Delete);
        match is_change && parsed.table.is_some() || self.transactions.covers(text) {
            true => is_routed(router, parsed, text, session),
            false => modes.may_be_in(text),
        }
    }
}

/// A batch goes where its first statement with a key goes.
fn plan_batch(router: &mut Router, pool: PoolId, batch: &Batch<'_>) -> Plan {
    let mut plan = Plan {
        generation: router.generation,
        work: Work::Write,
        kind: QueryKind::Batch,
        consistency: batch.params.consistency.0,
        ..Plan::anywhere()
    };
    let (mut is_transaction, mut digest) = (false, None);
    let mut parser = BatchParser::new();
    for child in batch.children() {
        let (conditional, placement) = match child.statement {
            BatchStatement::Prepared(id) => match router.prepared.look_up(id) {
                None => {
                    plan.after = after_unknown(id);
                    (false, None)
                }
                Some((_, learned)) => {
                    digest.get_or_insert(learned.batch_digest);
                    let is_on_locks = learned.statement.after == After::Lock
                        || router.refuses_locks && learned.statement.names_locks;
                    if is_on_locks && plan.after != After::Unprepared {
                        plan.after = After::Lock;
                    }
                    is_transaction |= learned.statement.after == After::Transaction;
                    is_transaction |= !router.modes.is_empty()
                        && router
                            .modes
                            .take_any(learned.statement.tables.as_deref(), Access::Write);
                    let token = learned.token(&child.values, &mut router.key_scratch);
                    (learned.statement.conditional, learned.keyspace.zip(token))
                }
            },
            BatchStatement::Text(text) => {
                let parsed = statement::classify(text);
                let session = router.pools.get(pool).and_then(|pool| pool.key.keyspace.as_deref());
                let session = batch.params.keyspace.or(session);
                digest
                    .get_or_insert_with(|| router.texts.digest_of(QueryKind::Batch, session, text));
                if !matches!(plan.after, After::Unprepared | After::Lock)
                    && parser.is_on_locks(router, &parsed, text, session)
                {
                    plan.after = After::Lock;
                }
                is_transaction =
                    is_transaction || parser.is_transaction(router, &parsed, text, session);
                let wanted = plan.placement.is_none();
                let placement = if wanted {
                    text_placement(
                        router,
                        pool,
                        batch.params.keyspace,
                        &parsed,
                        &child.values,
                        false,
                    )
                } else {
                    None
                };
                (parsed.conditional, placement)
            }
        };
        plan.conditional |= conditional;
        plan.placement = plan.placement.or(placement);
    }
    plan.digest = digest.unwrap_or(plan.digest);
    plan.alone = plan.conditional || plan.placement.is_none() || batch.params.is_doubtful();
    if is_transaction && !plan.after.is_for_the_proxy() {
        plan.after = After::Transaction;
    }
    plan
}

/// The placement of a statement given as text, from its literals and bind values. `counts`: it
/// counts for hot keys, which those in a batch do not.
fn text_placement(
    router: &mut Router,
    pool: PoolId,
    keyspace: Option<&str>,
    parsed: &Statement<'_>,
    values: &Values<'_>,
    counts: bool,
) -> Option<(KeyspaceIndex, Token)> {
    let routing = &router.cluster.as_ref()?.routing;
    let session = router.pools.get(pool)?.key.keyspace.as_deref();
    let keyspace = parsed.keyspace.or_else(|| keyspace.or(session).map(Identifier::exact))?;
    let table = routing.resolve_table(&keyspace, &parsed.table?)?;
    let value = |bind: statement::Bind<'_>| bind.of(values)?.bytes();
    let scratch = &mut router.key_scratch;
    if !routing_key(parsed, &table.partition_key, value, scratch) {
        return None;
    }
    let placed = routing.resolve_keyspace(&keyspace)?;
    let token = token::token(scratch);
    if counts && router.hot_keys.is_due() {
        let names = (&keyspace, parsed.table.as_ref());
        let (account, work) = (account_of(&router.pools, pool), work_of(parsed.kind));
        sample_text(&mut router.hot_keys, account, (work, token, scratch), names);
    }
    Some((placed, token))
}

/// The account of a pool's clients.
#[cold]
fn account_of(pools: &Pools, pool: PoolId) -> Account {
    pools.get(pool).map_or(Account::default(), |pool| pool.account)
}

/// Shows the key of a prepared statement to its table's sketch.
#[cold]
fn sample_statement(
    hot_keys: &mut HotKeys,
    account: Account,
    statement: &PreparedStatement,
    token: Token,
    key: Option<&[u8]>,
) {
    hot_keys.go_on();
    let (Some(key), Some((keyspace, table))) = (key, statement.table()) else { return };
    let is_table = |known: &str, name: &str| known == keyspace && name == table;
    let name = || (keyspace.into(), table.into());
    hot_keys.add(account, (statement.work, token, key), is_table, name);
}

/// Shows the key of a text to its table's sketch.
#[cold]
fn sample_text(
    hot_keys: &mut HotKeys,
    account: Account,
    (work, token, key): (Work, Token, &[u8]),
    (keyspace, table): (&Identifier<'_>, Option<&Identifier<'_>>),
) {
    hot_keys.go_on();
    let Some(table) = table else { return };
    let is_table = |known: &str, name: &str| keyspace.matches(known) && table.matches(name);
    let name = || (keyspace.to_string().into(), table.to_string().into());
    hot_keys.add(account, (work, token, key), is_table, name);
}

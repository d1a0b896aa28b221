//! Records of slow queries, read from what the core still has of a query when it ends.

use shunt_reactor::Io;
use shunt_topology::NodeId;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{
    Batch, BatchStatement, Prepare, Query, error_code, split_request_prefix, split_response_prefix,
};
use shunt_wire::cql::statement::{self, Identifier, redact};
use shunt_wire::printable::printable_to;

use super::records::{SlowQueries, SlowQuery};
use crate::client::clients::Clients;
use crate::config::Switch;
use crate::context::Context;
use crate::core::Core;
use crate::ids::{ClientRef, LinkRef, PoolId};
use crate::limits;
use crate::link::{Pending, Purpose};
use crate::metrics::Outcome;
use crate::plan::{NO_STATEMENT, Plan};
use crate::query_end::{End, Served};
use crate::reply::Answer;
use crate::router::Router;

/// The owners that a record is read from.
pub(crate) struct Sources<'a> {
    pub(crate) clients: &'a Clients,
    pub(crate) router: &'a Router,
    pub(crate) context: &'a Context,
    /// The node that had the query.
    pub(crate) node: Option<NodeId>,
    /// The request's body, if it is kept.
    pub(crate) body: Option<&'a [u8]>,
}

/// Bytes of a BATCH that is read again for its first statement.
const BATCH_BYTES_MAX: usize = 256 << 10;

/// Handles a node's answer off the fast path: records it if it came late, or says that nodes could
/// not carry the query out. An error after which the proxy asks again is no end of the query. The
/// query's bytes must still be kept.
pub(crate) fn answered(
    core: &mut Core,
    io: &Io,
    at: LinkRef,
    pending: &Pending,
    answer: &Answer<'_>,
) {
    let elapsed_ns = io.now_ns().saturating_sub(pending.received_ns);
    let slow_ns = core.context.slow_query_ns;
    let is_error = answer.opcode == opcode::ERROR;
    if elapsed_ns < slow_ns && (!is_error || slow_ns == u64::MAX) {
        return;
    }
    let mut plain = Vec::new();
    let max = answer.plain_bytes_max(pending.plan.after, core.context.config.frame_bytes_max);
    let error = is_error
        .then(|| core.links.plain_body(at.key, answer.flags, answer.body, max, &mut plain))
        .flatten()
        .and_then(|body| split_response_prefix(answer.flags, body).ok())
        .and_then(|(_, body)| error_code::peek(body));
    if elapsed_ns < slow_ns && !error.is_some_and(is_failure_of_nodes)
        || error.is_some_and(is_asked_again)
    {
        return;
    }
    let outcome = if is_error { Outcome::Error } else { Outcome::Ok };
    record_on_link(core, io, at, pending, outcome, error);
}

/// Records a query that the node did not answer in time. Its bytes must still be kept.
pub(crate) fn timed_out(core: &mut Core, io: &Io, at: LinkRef, pending: &Pending) {
    record_on_link(core, io, at, pending, Outcome::TimedOut, None);
}

/// Records the end of a query that no single node answered: it is not sent again, or was split.
#[cold]
pub(crate) fn ended(
    core: &mut Core,
    io: &Io,
    pending: &Pending,
    body: Option<&[u8]>,
    outcome: Outcome,
) {
    let Core { reports, clients, router, context, .. } = core;
    let sources = Sources { clients, router, context, node: None, body };
    record(&mut reports.slow_queries, &sources, pending, io.now_ns(), outcome, None);
}

/// Records a query that no link took in time, so that the proxy refuses it.
#[cold]
pub(crate) fn refused(
    core: &mut Core,
    io: &Io,
    slot: u32,
    header: &Header,
    plan: &Plan,
    body: &[u8],
) {
    let Some(client) = core.clients.get(slot) else { return };
    let pending = Pending {
        client: ClientRef { slot, id: client.id },
        pool: client.pool.unwrap_or(PoolId::NONE),
        stream: header.stream,
        flags: header.flags,
        plan: *plan,
        ..Pending::own(io.now_ns(), Purpose::Client, header.opcode)
    };
    ended(core, io, &pending, Some(body), Outcome::Overloaded);
}

/// Records an answer that the client got from an agent, if it came late.
pub(crate) fn handed_over(core: &mut Core, io: &Io, at: LinkRef, pending: &Pending) {
    if io.now_ns().saturating_sub(pending.received_ns) >= core.context.slow_query_ns {
        record_on_link(core, io, at, pending, Outcome::Ok, None);
    }
}

/// Records a request that the proxy itself has served, on locks or in a transaction, if it took
/// long or its outcome is unknown. Its text is that of its digest.
pub(crate) fn served(
    core: &mut Core,
    (client, stream): (ClientRef, i16),
    served: &Served,
    end: &End,
    error: Option<i32>,
) {
    let slow_ns = core.context.slow_query_ns;
    let is_failure = slow_ns != u64::MAX && error.is_some_and(is_failure_of_nodes);
    if end.wait_ns < slow_ns && !is_failure {
        return;
    }
    core.context.metrics.slow_queries.add(1);
    let Core { reports, clients, router, context, .. } = core;
    let found = clients.find(client);
    if !reports.slow_queries.budget.take_served_record(end.now_ns, found.map(|one| one.peer)) {
        return;
    }
    let pool = found.and_then(|found| router.pools.get(found.pool?));
    let names = pool.map(|pool| &pool.names);
    let (statement, table) = reports.digests.names_of(served.digest).unzip();
    let query = SlowQuery {
        ended_ns: end.now_ns,
        outcome: Outcome::Intercepted,
        error,
        kind: served.kind,
        text: statement.map(|statement| statement.text.clone()),
        statements: 1,
        table: table.flatten().as_deref().map(Box::from),
        keyspace: names.and_then(|names| names.keyspace.clone()),
        role: names.and_then(|names| names.role.clone()),
        identity: names.and_then(|names| names.identity.clone()),
        client: found.map(|found| found.peer),
        driver: found.and_then(|found| found.driver.clone()),
        node: None,
        consistency: None,
        tag: None,
        retries: 0,
        stream,
        wait_ns: end.wait_ns,
        node_ns: 0,
    };
    reports.slow_queries.keep_served(context.index, query);
}

fn record_on_link(
    core: &mut Core,
    io: &Io,
    at: LinkRef,
    pending: &Pending,
    outcome: Outcome,
    error: Option<i32>,
) {
    let Core { reports, clients, router, retained, context, links, .. } = core;
    let node = links.find(at).map(|link| link.node);
    let body = retained.view(io, at.conn, pending.kept);
    let sources = Sources { clients, router, context, node, body };
    record(&mut reports.slow_queries, &sources, pending, io.now_ns(), outcome, error);
}

/// True for errors by which nodes say that they, and not the statement, are at fault.
fn is_failure_of_nodes(code: i32) -> bool {
    matches!(
        code,
        error_code::UNAVAILABLE
            | error_code::WRITE_TIMEOUT
            | error_code::READ_TIMEOUT
            | error_code::READ_FAILURE
            | error_code::WRITE_FAILURE
            | error_code::CDC_WRITE_FAILURE
            | error_code::CAS_WRITE_UNKNOWN
    )
}

/// True for errors after which the proxy may ask again, so that the query may end well.
fn is_asked_again(code: i32) -> bool {
    matches!(code, error_code::UNPREPARED | error_code::OVERLOADED | error_code::IS_BOOTSTRAPPING)
}

/// Records a query, if this second's budget and `slow_query_ms` allow it.
#[cold]
pub(crate) fn record(
    slow: &mut SlowQueries,
    sources: &Sources<'_>,
    pending: &Pending,
    now_ns: u64,
    outcome: Outcome,
    error: Option<i32>,
) {
    let Sources { clients, router, context, node, body } = *sources;
    // The parts of a split query are not what a client asked.
    let is_of_client = pending.client != ClientRef::PROXY && pending.client != ClientRef::PART;
    if !is_of_client || context.slow_query_ns == u64::MAX {
        return;
    }
    context.metrics.slow_queries.add(1);
    let client = clients.find(pending.client);
    if !slow.budget.take_record(now_ns, client.map(|client| client.peer)) {
        return;
    }
    let pool = router.pools.get(pending.pool);
    let names = pool.map(|pool| &pool.names);
    let version = pool.map_or(0, |pool| pool.key.version);
    let session = names.and_then(|names| names.keyspace.clone());
    let (text, statements) = text_of(router, pending, version, body);
    let table = text.and_then(|text| table_of(text, session.as_deref()));
    let sent_ns = pending.sent_ns.max(pending.received_ns);
    let query = SlowQuery {
        ended_ns: now_ns,
        outcome,
        error,
        kind: pending.plan.kind,
        text: text.map(|text| shown(text, context.config.log_values == Switch::On).into()),
        statements,
        table: table.map(Into::into),
        keyspace: session,
        role: names.and_then(|names| names.role.clone()),
        identity: names.and_then(|names| names.identity.clone()),
        client: client.map(|client| client.peer),
        driver: client.and_then(|client| client.driver.clone()),
        node: node.map(|node| router.node_named(node).into()),
        consistency: Some(pending.plan.consistency),
        tag: router.rules.tag(pending.plan.tag),
        retries: pending.retries,
        stream: pending.stream,
        wait_ns: sent_ns - pending.received_ns,
        node_ns: now_ns.saturating_sub(sent_ns),
    };
    slow.keep(context.index, query);
}

/// A statement for logs: without its values unless they are wanted, printable, and cut.
fn shown(text: &str, with_values: bool) -> String {
    let max = limits::SLOW_QUERY_TEXT_BYTES_MAX;
    if with_values { printable_to(text, max) } else { printable_to(&redact(text, max), max) }
}

/// The text of a request's statement, in a batch of the first, and the number of statements.
fn text_of<'a>(
    router: &'a Router,
    pending: &Pending,
    version: u8,
    body: Option<&'a [u8]>,
) -> (Option<&'a str>, u16) {
    if pending.plan.statement != NO_STATEMENT {
        let learned = router.prepared.get(pending.plan.statement);
        return (learned.and_then(|learned| learned.statement.text.as_deref()), 1);
    }
    let Some(Ok((_, body))) = body.map(|body| split_request_prefix(pending.flags, body)) else {
        return (None, 1);
    };
    match pending.opcode {
        opcode::QUERY => (Query::decode(version, body).ok().map(|query| query.text), 1),
        opcode::PREPARE => (Prepare::decode(version, body).ok().map(|asked| asked.text), 1),
        opcode::BATCH if body.len() <= BATCH_BYTES_MAX => {
            let Ok(batch) = Batch::decode(version, body) else { return (None, 1) };
            let text = match batch.children().next().map(|child| child.statement) {
                Some(BatchStatement::Text(text)) => Some(text),
                Some(BatchStatement::Prepared(id)) => router.prepared.text_of(id),
                None => None,
            };
            (text, u16::try_from(batch.len()).unwrap_or(u16::MAX))
        }
        _ => (None, 1),
    }
}

/// The table that a statement names, behind its keyspace or that of the session.
fn table_of(text: &str, session: Option<&str>) -> Option<String> {
    let parsed = statement::classify(text);
    let table = parsed.table?;
    let keyspace = parsed.keyspace.or(session.map(Identifier::exact));
    let named = match keyspace {
        Some(keyspace) => format!("{keyspace}.{table}"),
        None => table.to_string(),
    };
    Some(printable_to(&named, limits::SLOW_QUERY_TABLE_BYTES_MAX))
}

//! Attribution of queries to digests: the end of each query is added to the row of its digest. A
//! statement without a row gets one, if the limits allow it.

use shunt_reactor::Io;
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::{
    Batch, BatchStatement, ExecuteRouting, Query, error_code, split_request_prefix,
    split_response_prefix,
};
use shunt_wire::cql::statement::{self, Identifier, redact};
use shunt_wire::printable::printable_to;

use super::Digest;
use super::table::{DigestName, DigestTable, Origin};
use crate::client::Client;
use crate::client::account::Account;
use crate::client::clients::Clients;
use crate::config::{Config, Switch};
use crate::core::Core;
use crate::fleet::forwarding;
use crate::ids::{ClientRef, LinkRef, PoolId};
use crate::limits;
use crate::link::{Pending, Purpose};
use crate::metrics::{Outcome, QueryKind};
use crate::plan::{NO_STATEMENT, Plan};
use crate::query_end::{End, ErrorKind, Served};
use crate::reply::Answer;
use crate::router::Router;

/// Bytes of a BATCH that is read again for its first statement.
const BATCH_BYTES_MAX: usize = 64 << 10;

/// Switches digests on or off.
pub(crate) fn switch(digests: &mut DigestTable, router: &mut Router, config: &Config) {
    let is_on = config.digests == Switch::On;
    digests.switch(is_on);
    router.texts.is_on = is_on;
}

/// Tries to give a query a row, and counts it there or among those without one. `body` is its
/// request. Returns its digest.
#[cold]
pub(crate) fn count_unknown(
    digests: &mut DigestTable,
    router: &mut Router,
    clients: &Clients,
    pending: &Pending,
    body: Option<&[u8]>,
    end: &End,
) -> Digest {
    if !digests.is_on() {
        return pending.plan.digest;
    }
    let digest = digest_of(digests, router, clients, pending, body, end.now_ns);
    if !digests.count(digest, end) {
        digests.count_other(pending.plan.kind, end);
    }
    digest
}

/// Gives the statement of a query its row while the core still has the bytes of the query. The end
/// of the query is counted later.
#[cold]
pub(crate) fn identify(core: &mut Core, io: &Io, at: LinkRef, pending: &mut Pending) {
    if pending.client.is_client() && core.reports.digests.is_on() {
        let body = core.retained.view(io, at.conn, pending.kept);
        let Core { reports, router, clients, .. } = core;
        let digests = &mut reports.digests;
        pending.plan.digest = digest_of(digests, router, clients, pending, body, io.now_ns());
    }
}

/// Counts a query that ends off the fast path, with the bytes of its request.
pub(crate) fn count_end(
    core: &mut Core,
    io: &Io,
    pending: &Pending,
    bytes_in: usize,
    answer: &Answer<'_>,
    outcome: Outcome,
) {
    if !pending.client.is_client() || !core.reports.digests.is_on() {
        return;
    }
    let times = (pending.received_ns, pending.sent_ns);
    let end = End {
        rows: answer.row_count(),
        error: error_of(core.clients.find(pending.client), answer, outcome),
        ..End::new(times, io.now_ns(), bytes_in, answer.body.len())
    };
    count(core, pending, &end);
}

/// Counts a query whose answer the client got from an agent.
pub(crate) fn count_hand_over(core: &mut Core, io: &Io, pending: &Pending, bytes_out: usize) {
    let bytes_in = core.retained.length(pending.kept);
    let times = (pending.received_ns, pending.sent_ns);
    count(core, pending, &End::new(times, io.now_ns(), bytes_in, bytes_out));
}

/// Counts a query that no link took.
pub(crate) fn count_refusal(core: &mut Core, io: &Io, header: &Header, plan: &Plan) {
    let end = End {
        now_ns: io.now_ns(),
        wait_ns: 0,
        node_ns: 0,
        bytes_in: header.length.into(),
        bytes_out: 0,
        rows: None,
        error: Some(ErrorKind::Overloaded),
    };
    let digests = &mut core.reports.digests;
    if !digests.is_on() {
        return;
    }
    if !digests.count(plan.digest, &end) {
        digests.count_other(plan.kind, &end);
    }
}

/// Prepares the count of a request that the proxy itself serves: reads its statement, and gives it
/// a row if the limits allow one. `None`: another proxy has forwarded the request, and counts it.
pub(crate) fn identify_served(
    core: &mut Core,
    io: &Io,
    slot: u32,
    (header, body): (&Header, &[u8]),
    received_ns: u64,
) -> Option<Served> {
    if forwarding::is_forwarded(header, body) {
        return None;
    }
    let Core { reports, router, clients, .. } = core;
    let kind = kind_of(header.opcode);
    let body_bytes = body.len() as u32;
    let nothing = Served { digest: Digest::NONE, kind, body_bytes, received_ns };
    let client = clients.get(slot)?;
    if !reports.digests.is_on() || kind == QueryKind::Prepare {
        return Some(nothing);
    }
    let mut pending = Pending {
        client: ClientRef { slot, id: client.id },
        pool: client.pool.unwrap_or(PoolId::NONE),
        flags: header.flags,
        plan: Plan { kind, statement: executed(router, header, body), ..Plan::anywhere() },
        ..Pending::own(received_ns, Purpose::Client, header.opcode)
    };
    let subject = subject(router, &pending, Some(body));
    pending.plan.digest = subject.map_or(Digest::NONE, |subject| known(router, kind, &subject));
    let digests = &mut reports.digests;
    let digest = digest_of(digests, router, clients, &pending, Some(body), io.now_ns());
    Some(Served { digest, ..nothing })
}

/// The kind of a request that nobody has planned.
pub(crate) fn kind_of(op: u8) -> QueryKind {
    match op {
        opcode::EXECUTE => QueryKind::Execute,
        opcode::BATCH => QueryKind::Batch,
        opcode::PREPARE => QueryKind::Prepare,
        _ => QueryKind::Query,
    }
}

/// The number of the statement that an EXECUTE names.
fn executed(router: &Router, header: &Header, body: &[u8]) -> u32 {
    let read = || {
        let (_, body) = split_request_prefix(header.flags, body).ok()?;
        let execute = ExecuteRouting::decode(header.version, body).ok()?;
        router.prepared.number_of(execute.id)
    };
    (header.opcode == opcode::EXECUTE).then(read).flatten().unwrap_or(NO_STATEMENT)
}

/// The digest that a statement already has.
fn known(router: &Router, kind: QueryKind, subject: &Subject<'_>) -> Digest {
    match subject.place {
        Place::Text => router.texts.digest_of(kind, subject.session, subject.text),
        Place::Statement { number, is_in_batch } => {
            let learned = router.prepared.get(number);
            learned.map_or(Digest::NONE, |learned| match is_in_batch {
                true => learned.batch_digest,
                false => learned.digest,
            })
        }
    }
}

/// Counts a request that the proxy itself has served. Returns its end, and the code of its error.
pub(crate) fn count_served(
    core: &mut Core,
    io: &Io,
    client: ClientRef,
    served: &Served,
    answer: &Answer<'_>,
) -> (End, Option<i32>) {
    let found = core.clients.find(client);
    let is_error = answer.opcode == opcode::ERROR;
    let code = is_error.then(|| found.and_then(|found| code_of(found, answer))).flatten();
    let end = End {
        rows: answer.row_count(),
        error: error_of(found, answer, Outcome::Intercepted),
        ..End::new(
            (served.received_ns, 0),
            io.now_ns(),
            served.body_bytes as usize,
            answer.body.len(),
        )
    };
    add_served(core, served, &end);
    (end, code)
}

/// Counts a request that the proxy itself refuses, for its client and for its statement.
#[cold]
pub(crate) fn count_served_refusal(
    core: &mut Core,
    io: &Io,
    slot: u32,
    served: Option<Served>,
    code: i32,
) {
    let Some(served) = served else { return };
    let Some(error) = ErrorKind::of(Outcome::Intercepted, Some(code)) else { return };
    let bytes = served.body_bytes as usize;
    if let Some(client) = core.clients.get_mut(slot) {
        client.traffic.refuse(bytes, error);
    }
    let end = End::new((served.received_ns, 0), io.now_ns(), bytes, 0);
    add_served(core, &served, &End { error: Some(error), ..end });
}

fn add_served(core: &mut Core, served: &Served, end: &End) {
    let digests = &mut core.reports.digests;
    if digests.is_on() && !digests.count(served.digest, end) {
        digests.count_other(served.kind, end);
    }
}

/// Counts a query whose bytes may be gone. A prepared statement can still get its row.
fn count(core: &mut Core, pending: &Pending, end: &End) {
    let Core { reports, router, clients, .. } = core;
    count_unknown(&mut reports.digests, router, clients, pending, None, end);
}

/// The kind of the error by which an answer ends a query; `None`: it ends well.
#[cold]
pub(crate) fn error_of(
    client: Option<&Client>,
    answer: &Answer<'_>,
    outcome: Outcome,
) -> Option<ErrorKind> {
    let is_error = answer.opcode == opcode::ERROR;
    let code = is_error.then(|| client.and_then(|client| code_of(client, answer))).flatten();
    ErrorKind::of(outcome, code)
}

/// The code of an ERROR for a client.
pub(crate) fn code_of(client: &Client, answer: &Answer<'_>) -> Option<i32> {
    let mut plain = Vec::new();
    let mut body = answer.body;
    if answer.flags & flag::COMPRESSION != 0 {
        client.decompress(body, &mut plain).ok()?;
        body = &plain;
    }
    let (_, body) = split_response_prefix(answer.flags & !flag::COMPRESSION, body).ok()?;
    error_code::peek(body)
}

/// The place where the core finds a digest at the next query.
enum Place {
    Statement { number: u32, is_in_batch: bool },
    Text,
}

/// The statement to which a request counts.
struct Subject<'a> {
    text: &'a str,
    /// Keyspace of its unqualified names.
    session: Option<&'a str>,
    place: Place,
}

/// The digest of a query: the one in its plan if that still has its row, or else the digest that
/// its statement gets now.
fn digest_of(
    digests: &mut DigestTable,
    router: &mut Router,
    clients: &Clients,
    pending: &Pending,
    body: Option<&[u8]>,
    now_ns: u64,
) -> Digest {
    let Plan { digest, kind, .. } = pending.plan;
    if digest == Digest::NONE || digests.has(digest) {
        return digest;
    }
    let client = clients.find(pending.client).map(|client| client.peer);
    let is_prepared = pending.plan.statement != NO_STATEMENT;
    if !digests.take_attempt(now_ns, client, is_prepared) {
        return digest;
    }
    let Some(subject) = subject(router, pending, body) else { return digest };
    let (name, table) = name_of(&subject, kind);
    let pool = router.pools.get(pending.pool);
    let account = pool.map_or(Account::default(), |pool| pool.account);
    let role = pool.and_then(|pool| pool.names.role.clone());
    let hash = router.texts.hash(kind, subject.session, subject.text);
    let place = subject.place;
    let Some(digest) = digests.admit(now_ns, account, name, Origin { table, role }) else {
        return digest;
    };
    match place {
        Place::Statement { number, is_in_batch } => {
            router.prepared.set_digest(number, is_in_batch, digest);
        }
        Place::Text => router.texts.insert(hash, digest),
    }
    digest
}

/// The statement of a request, in a batch the first; `None` if its text is not kept.
fn subject<'a>(
    router: &'a Router,
    pending: &Pending,
    body: Option<&'a [u8]>,
) -> Option<Subject<'a>> {
    if pending.plan.statement != NO_STATEMENT {
        return prepared(router, pending.plan.statement, false);
    }
    let key = &router.pools.get(pending.pool)?.key;
    let session = key.keyspace.as_deref();
    let (_, body) = split_request_prefix(pending.flags, body?).ok()?;
    match pending.opcode {
        opcode::QUERY => {
            let query = Query::decode(key.version, body).ok()?;
            let session = query.params.keyspace.or(session);
            Some(Subject { text: query.text, session, place: Place::Text })
        }
        opcode::BATCH if body.len() <= BATCH_BYTES_MAX => {
            let batch = Batch::decode(key.version, body).ok()?;
            match batch.children().next()?.statement {
                BatchStatement::Text(text) => {
                    let session = batch.params.keyspace.or(session);
                    Some(Subject { text, session, place: Place::Text })
                }
                BatchStatement::Prepared(id) => {
                    prepared(router, router.prepared.number_of(id)?, true)
                }
            }
        }
        _ => None,
    }
}

fn prepared(router: &Router, number: u32, is_in_batch: bool) -> Option<Subject<'_>> {
    let statement = router.prepared.get(number)?.statement;
    let text = statement.text.as_deref()?;
    let place = Place::Statement { number, is_in_batch };
    Some(Subject { text, session: statement.keyspace.as_deref(), place })
}

/// The name of a statement's digest, and its table.
fn name_of(subject: &Subject<'_>, kind: QueryKind) -> (DigestName, Option<std::sync::Arc<str>>) {
    let name_bytes_max = limits::SLOW_QUERY_TABLE_BYTES_MAX;
    let parsed = statement::classify(subject.text);
    let table = parsed.table.map(|table| {
        let keyspace = parsed.keyspace.or(subject.session.map(Identifier::exact));
        let named = match keyspace {
            Some(keyspace) => format!("{keyspace}.{table}"),
            None => table.to_string(),
        };
        printable_to(&named, name_bytes_max).into()
    });
    let session = subject.session.filter(|_| parsed.keyspace.is_none());
    let text_bytes_max = limits::DIGEST_TEXT_BYTES_MAX;
    let text = printable_to(&redact(subject.text, text_bytes_max), text_bytes_max);
    let keyspace = session.map(|session| printable_to(session, name_bytes_max).into());
    (DigestName { kind, keyspace, text: text.into() }, table)
}

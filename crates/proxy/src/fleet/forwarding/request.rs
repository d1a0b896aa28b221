//! A request is written as a statement, with values, for the proxy whose lock it is about.

use std::net::SocketAddr;

use shunt_language::lock_tables::Table;
use shunt_locks::{Mode, Ticket};
use shunt_reactor::Io;
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, flag, opcode};
use shunt_wire::cql::message::{Consistency, QueryParams, Value, ValueList, encode, put};

use crate::core::Core;
use crate::fleet::forwarding::open::link_to;
use crate::fleet::forwarding::{
    FORWARDED, GIVES_BACK, Login, NAMES_MODE, PAYLOAD, Sent, SentLock, Step, TRANSACTION, VERSION,
    Via,
};
use crate::limits;
use crate::locks::request::{KeeperRequest as Request, Operation};

/// What another proxy has to read the rows of a lock before it serves it, and a second for the way.
const READ_NS: u64 = 3 * limits::SECOND_NS;

/// Sends a request to another proxy; its outcome comes later, once. None: it was not sent.
pub(crate) fn forward(
    core: &mut Core,
    io: &mut Io,
    to: SocketAddr,
    login: &Login,
    table: Table,
    request: &Request<'_>,
) -> Option<Via> {
    let Request { ticket, operation, namespace, .. } = *request;
    let mut texts = core.fleet.requests.spare_texts();
    if matches!(operation, Operation::Acquire { .. }) {
        texts.extend_from_slice(request.name);
        texts.extend_from_slice(request.owner);
    }
    let name_bytes = request.name.len().min(texts.len());
    let due_ns = io.now_ns() + answered_within_ns(core.context.config.query_timeout_ms, operation);
    let lock = Some(SentLock { operation, table, namespace });
    let sent = Sent { ticket, lock, texts, name_bytes, is_sent: false, due_ns, is_told: false };
    let mut body = std::mem::take(&mut core.scratch.body);
    body.clear();
    let kind = kind_of(operation);
    put::bytes_map(&mut body, [(PAYLOAD, Some(&[kind][..]))]);
    write(&mut body, table, request);
    let via = send(core, io, (to, login), sent, &body);
    core.scratch.body = body;
    via
}

/// Sends a transaction to the proxy that owns its keyspace; its answer comes later, once. None: it
/// was not sent.
pub(crate) fn forward_transaction(
    core: &mut Core,
    io: &mut Io,
    to: SocketAddr,
    login: &Login,
    ticket: Ticket,
    asked: &[u8],
) -> Option<Via> {
    // What is not in time there is told in time from there; here it is in doubt.
    let due_ns = io.now_ns() + core.context.config.query_timeout_ms * 1_000_000 + READ_NS;
    let sent = Sent {
        ticket,
        lock: None,
        texts: Vec::new(),
        name_bytes: 0,
        is_sent: false,
        due_ns,
        is_told: false,
    };
    let mut body = Vec::new();
    put::bytes_map(&mut body, [(PAYLOAD, Some(&[FORWARDED][..])), (TRANSACTION, Some(asked))]);
    // The statement is in the payload; this is what a proxy that does not know it makes of it:
    // nothing.
    encode::query(
        &mut body,
        VERSION,
        "BEGIN TRANSACTION COMMIT TRANSACTION",
        &QueryParams::simple(Consistency::QUORUM),
    );
    send(core, io, (to, login), sent, &body)
}

fn send(
    core: &mut Core,
    io: &mut Io,
    (to, login): (SocketAddr, &Login),
    sent: Sent,
    body: &[u8],
) -> Option<Via> {
    let key = link_to(core, io, to, login)?;
    let link = core.fleet.peers.links.get_mut(key)?;
    let waiting = link.unsent.len() + io.backlog(link.conn);
    if waiting > limits::LINK_BACKLOG_BYTES_MAX {
        return None;
    }
    let is_sent = link.step == Step::Ready;
    let via = core.fleet.peers.add(key, Sent { is_sent, ..sent })?;
    let link = core.fleet.peers.links.get_mut(key)?;
    link.used_ns = io.now_ns();
    let (flags, stream, length) = (flag::CUSTOM_PAYLOAD, via.stream(), body.len() as u32);
    let header =
        Header { version: VERSION, response: false, flags, stream, opcode: opcode::QUERY, length };
    let out = if is_sent { io.output(link.conn) } else { &mut link.unsent };
    out.reserve(HEADER_BYTES + body.len());
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(body);
    Some(via)
}

/// What the payload says.
fn kind_of(operation: Operation) -> u8 {
    match operation {
        Operation::GiveBack { .. } => GIVES_BACK,
        Operation::Renew { mode: Some(_), .. } => NAMES_MODE,
        _ => FORWARDED,
    }
}

/// How long the other proxy may take: to read a partition, to let the request wait, and to write a
/// row.
fn answered_within_ns(query_timeout_ms: u64, operation: Operation) -> u64 {
    let wait_ms = match operation {
        Operation::Acquire { wait_ms, .. } => u64::from(wait_ms),
        _ => 0,
    };
    (query_timeout_ms + wait_ms) * 1_000_000 + READ_NS
}

/// The statement of a request, on the table that the client has named: that is what its role is
/// allowed, or not.
fn write(out: &mut Vec<u8>, on: Table, request: &Request<'_>) {
    let Request { operation, name, owner, .. } = *request;
    let (table, is_shared) = (on.name(), on.is_shared());
    let mut values = ValueList::positional(VERSION);
    let seconds = |ttl_ms: u32| (ttl_ms.div_ceil(1_000) as i32).to_be_bytes();
    let text = match operation {
        Operation::Acquire { mode, ttl_ms, wait_ms } => {
            for value in [name, owner, &(wait_ms as i32).to_be_bytes(), &seconds(ttl_ms)] {
                values.push(Value::Bytes(value));
            }
            let (column, value) = match (is_shared, mode) {
                (false, _) => ("", ""),
                (true, Mode::Shared) => (", mode", ", 'S'"),
                (true, Mode::Exclusive) => (", mode", ", 'X'"),
            };
            format!(
                "INSERT INTO shunt.{table} (name, owner, wait_ms{column}) VALUES (?, ?, ?{value}) IF NOT EXISTS USING TTL ?"
            )
        }
        Operation::Renew { mode, ttl_ms, fence } => {
            values.push(Value::Bytes(&seconds(ttl_ms)));
            if !is_shared {
                values.push(Value::Bytes(owner));
            }
            let (key, condition) = held_by(&mut values, is_shared, (name, owner), fence);
            let set = match (is_shared, mode) {
                (false, _) => "owner = ?",
                (true, Some(Mode::Shared)) => "mode = 'S'",
                (true, Some(Mode::Exclusive) | None) => "mode = 'X'",
            };
            format!("UPDATE shunt.{table} USING TTL ? SET {set} WHERE {key} IF {condition}")
        }
        Operation::Release { fence } => {
            let (key, condition) = held_by(&mut values, is_shared, (name, owner), fence);
            format!("DELETE FROM shunt.{table} WHERE {key} IF {condition}")
        }
        Operation::GiveBack { fence } => {
            let (key, condition) = held_by(&mut values, is_shared, (name, owner), Some(fence));
            format!("DELETE FROM shunt.{table} WHERE {key} IF {condition}")
        }
        Operation::Look => {
            values.push(Value::Bytes(name));
            format!("SELECT owner, fence, ttl_ms, waiters FROM shunt.{table} WHERE name = ?")
        }
        Operation::List { fast } => {
            values.push(Value::Bytes(name));
            let (columns, which) = match (is_shared, fast) {
                (true, _) => ("owner, mode, fence, ttl_ms, waiters", ""),
                (false, None) => (QUEUE, ""),
                (false, Some(true)) => (QUEUE, " AND fast = true"),
                (false, Some(false)) => (QUEUE, " AND fast = false"),
            };
            format!("SELECT {columns} FROM shunt.{table} WHERE name = ?{which}")
        }
    };
    let params = QueryParams { values: values.values(), ..QueryParams::simple(Consistency::ONE) };
    encode::query(out, VERSION, &text, &params);
}

/// Columns of `lock_queue`.
const QUEUE: &str = "fast, state, mode, fence, ttl_ms, owner, role";

/// What comes behind WHERE and IF where the owner holds a lock, and its values.
fn held_by<'a>(
    values: &mut ValueList,
    is_shared: bool,
    (name, owner): (&'a [u8], &'a [u8]),
    fence: Option<i64>,
) -> (&'static str, &'static str) {
    values.push(Value::Bytes(name)).push(Value::Bytes(owner));
    if let Some(fence) = fence {
        values.push(Value::Bytes(&fence.to_be_bytes()));
    }
    match (is_shared, fence.is_some()) {
        (true, false) => ("name = ? AND owner = ?", "EXISTS"),
        (true, true) => ("name = ? AND owner = ?", "fence = ?"),
        (false, false) => ("name = ?", "owner = ?"),
        (false, true) => ("name = ?", "owner = ? AND fence = ?"),
    }
}

#[cfg(test)]
mod tests {
    use shunt_language::lock_tables::{self, Asked};
    use shunt_locks::Namespace;
    use shunt_wire::cql::message::Query;

    use super::*;

    /// What the other proxy reads in the statement of an operation.
    fn read(table: Table, operation: Operation) -> Asked {
        let (name, owner) = (&b"name"[..], &b"owner"[..]);
        let request = Request {
            ticket: Ticket(1),
            namespace: Namespace::Durable,
            operation,
            name,
            role: b"",
            owner,
        };
        let mut body = Vec::new();
        write(&mut body, table, &request);
        let query = Query::decode(VERSION, &body).expect("a query");
        let statement =
            lock_tables::parse(query.text, None).expect("allowed").expect("on a table of locks");
        let request = statement
            .bind(&query.params.values)
            .next()
            .expect("one")
            .expect("values that it takes");
        let has_owner = !matches!(request.asked, Asked::Look | Asked::Queue { .. });
        assert_eq!((request.table, request.name), (table, name), "{}", query.text);
        assert_eq!(request.owner, if has_owner { owner } else { b"" }, "{}", query.text);
        request.asked
    }

    #[test]
    fn a_forwarded_request_reads_as_the_original_on_the_clients_table() {
        let (ttl_ms, wait_ms) = (5_000, 1_500);
        for table in [Table::Locks, Table::FastLocks, Table::RwLocks, Table::FastRwLocks] {
            let is_shared = table.is_shared();
            for mode in [Mode::Exclusive, Mode::Shared] {
                let shared = is_shared && mode == Mode::Shared;
                let asked = read(table, Operation::Acquire { mode, ttl_ms, wait_ms });
                assert_eq!(asked, Asked::Acquire { shared, ttl_ms, wait_ms });
            }
            for fence in [None, Some(7)] {
                for mode in [None, Some(Mode::Exclusive), Some(Mode::Shared)] {
                    let asked = read(table, Operation::Renew { mode, ttl_ms, fence });
                    let shared = is_shared.then_some(mode == Some(Mode::Shared));
                    assert_eq!(asked, Asked::Renew { shared, ttl_ms, fence });
                }
                assert_eq!(read(table, Operation::Release { fence }), Asked::Release { fence });
            }
            let look = if is_shared {
                Operation::List { fast: Some(table.is_fast()) }
            } else {
                Operation::Look
            };
            assert_eq!(read(table, look), Asked::Look);
        }
        for fast in [None, Some(false), Some(true)] {
            assert_eq!(read(Table::LockQueue, Operation::List { fast }), Asked::Queue { fast });
        }
    }
}

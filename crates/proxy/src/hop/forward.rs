//! A request is written as a statement, with values, for the proxy whose lock it is about.

use std::net::SocketAddr;

use shunt_locks::{Mode, Namespace};
use shunt_reactor::Io;
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, flag, opcode};
use shunt_wire::cql::message::{Consistency, QueryParams, Value, ValueList, encode, put};

use crate::core::Core;
use crate::hop::open::link_to;
use crate::hop::{Login, PAYLOAD, Sent, Step, VERSION};
use crate::limits;
use crate::locks::request::{Operation, Request};

/// Requests in flight on one connection.
const IN_FLIGHT_MAX: usize = 16_384;

/// Sends a request to another proxy; its outcome comes later, once. `false`: it was not sent.
pub(crate) fn forward(core: &mut Core, io: &mut Io, to: SocketAddr, login: &Login, request: &Request<'_>) -> bool {
    let Some(key) = link_to(core, io, to, login) else { return false };
    let mut texts = core.fleet.locks.spare_texts();
    if matches!(request.operation, Operation::Acquire { .. }) {
        texts.extend_from_slice(request.name);
        texts.extend_from_slice(request.owner);
    }
    let Some(link) = core.fleet.hops.links.get_mut(key) else { return false };
    let waiting = link.unsent.len() + io.backlog(link.conn);
    if link.sent.len() >= IN_FLIGHT_MAX || waiting > limits::LINK_BACKLOG_BYTES_MAX {
        return false;
    }
    let is_sent = link.step == Step::Ready;
    let (ticket, operation, name_bytes) = (request.ticket, request.operation, request.name.len().min(texts.len()));
    let sent = Sent { ticket, operation, namespace: request.namespace, texts, name_bytes, is_sent };
    let stream = link.sent.insert(sent) as i16 + 1;
    link.used_ns = io.now_ns();
    let mut body = std::mem::take(&mut core.scratch.body);
    body.clear();
    put::bytes_map(&mut body, [(PAYLOAD, Some(&[1_u8][..]))]);
    write(&mut body, request);
    let flags = flag::CUSTOM_PAYLOAD;
    let length = body.len() as u32;
    let header = Header { version: VERSION, response: false, flags, stream, opcode: opcode::QUERY, length };
    let out = if is_sent { io.output(link.conn) } else { &mut link.unsent };
    out.reserve(HEADER_BYTES + body.len());
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(&body);
    core.scratch.body = body;
    true
}

/// The statement of a request. The tables of shared locks show all that there is to know, of exclusive ones too.
fn write(out: &mut Vec<u8>, request: &Request<'_>) {
    let Request { namespace, operation, name, owner, .. } = *request;
    let table = match namespace {
        Namespace::Durable => "rwlocks",
        Namespace::Memory => "fast_rwlocks",
    };
    let mut values = ValueList::positional(VERSION);
    let seconds = |ttl_ms: u32| (ttl_ms.div_ceil(1_000) as i32).to_be_bytes();
    let text = match operation {
        Operation::Acquire { mode, ttl_ms, wait_ms } => {
            let mode: &[u8] = if mode == Mode::Shared { b"S" } else { b"X" };
            for value in [name, owner, mode, &(wait_ms as i32).to_be_bytes(), &seconds(ttl_ms)] {
                values.push(Value::Bytes(value));
            }
            format!(
                "INSERT INTO shunt.{table} (name, owner, mode, wait_ms) VALUES (?, ?, ?, ?) IF NOT EXISTS USING TTL ?"
            )
        }
        Operation::Renew { ttl_ms, fence } => {
            for value in [&seconds(ttl_ms)[..], name, owner] {
                values.push(Value::Bytes(value));
            }
            let condition = condition(&mut values, fence);
            format!("UPDATE shunt.{table} USING TTL ? SET mode = 'X' WHERE name = ? AND owner = ? IF {condition}")
        }
        Operation::Release { fence } => {
            for value in [name, owner] {
                values.push(Value::Bytes(value));
            }
            let condition = condition(&mut values, fence);
            format!("DELETE FROM shunt.{table} WHERE name = ? AND owner = ? IF {condition}")
        }
        Operation::Look => {
            values.push(Value::Bytes(name));
            format!("SELECT owner, mode, fence, ttl_ms, waiters FROM shunt.{table} WHERE name = ? LIMIT 1")
        }
        Operation::List { fast } => {
            values.push(Value::Bytes(name));
            let columns = "fast, state, mode, fence, ttl_ms, owner, role";
            let which = match fast {
                None => "",
                Some(true) => " AND fast = true",
                Some(false) => " AND fast = false",
            };
            format!("SELECT {columns} FROM shunt.lock_queue WHERE name = ?{which}")
        }
    };
    let params = QueryParams { values: values.values(), ..QueryParams::simple(Consistency::ONE) };
    encode::query(out, VERSION, &text, &params);
}

fn condition(values: &mut ValueList, fence: Option<i64>) -> &'static str {
    match fence {
        None => "EXISTS",
        Some(fence) => {
            values.push(Value::Bytes(&fence.to_be_bytes()));
            "fence = ?"
        }
    }
}

//! Connections to other proxies: opened at their first use, watched, and closed when idle.

use shunt_locks::{NotServed, Ticket};
use shunt_reactor::{CloseReason, Io};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::encode;

use crate::control::client::{LOGIN_KEY, LOGIN_PASSWORD};
use crate::core::Core;
use crate::fleet::forwarding::answer;
use crate::fleet::forwarding::open::OPEN_NS;
use crate::fleet::forwarding::{HopLink, Login, STREAM, Sent, SentLock, Step, VERSION};
use crate::limits;
use crate::locks::dispatch;
use crate::locks::reply::{Reply, Verdict};
use crate::locks::request::LockRequest;
use crate::locks::request::Operation;
use crate::log_limits::Logged;
use crate::transactions::answer as transactions;

/// Silence after a probe at which a proxy is given up. Its requests may have been carried out.
const PROBE_NS: u64 = 2 * limits::SECOND_NS;
/// Time after its deadline at which a request will get no answer any more. Its place on the
/// connection is lost.
const LOST_NS: u64 = 60 * limits::SECOND_NS;
/// Idle time after which a connection is closed.
const IDLE_NS: u64 = 120 * limits::SECOND_NS;
/// Largest answer: a list of a thousand entries.
const ANSWER_BYTES_MAX: u32 = 4 * 1024 * 1024;

fn message(link: &HopLink, io: &mut Io, op: u8, body: &[u8]) {
    let length = body.len() as u32;
    let header =
        Header { version: VERSION, response: false, flags: 0, stream: STREAM, opcode: op, length };
    let out = io.output(link.conn);
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(body);
}

/// Notes that the TCP connection is open.
pub(crate) fn connected(core: &mut Core, io: &mut Io, key: u32) {
    let Some(link) = core.fleet.peers.links.get_mut(key as usize) else { return };
    link.step = Step::Startup;
    let mut body = Vec::new();
    let version = env!("CARGO_PKG_VERSION");
    encode::startup(
        &mut body,
        [
            ("CQL_VERSION", "3.0.0"),
            ("DRIVER_NAME", "Shunt"),
            ("DRIVER_VERSION", version),
            (LOGIN_KEY, LOGIN_PASSWORD),
        ],
    );
    message(link, io, opcode::STARTUP, &body);
}

/// Takes in bytes of another proxy.
pub(crate) fn received(core: &mut Core, io: &mut Io, key: u32, data: &[u8]) -> usize {
    let key = key as usize;
    let Some(link) = core.fleet.peers.links.get_mut(key) else { return data.len() };
    (link.last_received_ns, link.probed_ns) = (io.now_ns(), 0);
    let conn = link.conn;
    let mut reader = std::mem::take(&mut link.reader);
    let mut scratch = Vec::new();
    let mut envelopes = reader.read(data, &mut scratch);
    let mut list = Vec::new();
    let why = loop {
        let header = match envelopes.header() {
            Ok(Some(header)) if header.length <= ANSWER_BYTES_MAX && header.response => header,
            Ok(Some(_)) => break Some("an answer that cannot be"),
            Ok(None) => break None,
            Err(_) => break Some("what is no CQL"),
        };
        let Ok(Some(body)) = envelopes.body() else { break None };
        list.clear();
        if let Err(why) = take(core, io, key, &header, body, &mut list) {
            break Some(why);
        }
        if core.fleet.peers.links.get(key).is_none_or(|link| link.conn != conn) {
            return data.len();
        }
    };
    if let Some(why) = why {
        give_up(core, io, key, why);
        return data.len();
    }
    let used = envelopes.finish();
    if let Some(link) = core.fleet.peers.links.get_mut(key) {
        link.reader = reader;
    }
    used
}

fn take(
    core: &mut Core,
    io: &mut Io,
    key: usize,
    header: &Header,
    body: &[u8],
    list: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let Some(link) = core.fleet.peers.links.get_mut(key) else { return Ok(()) };
    if link.step == Step::Startup {
        core.context.count_handshake(io, core.context.outgoing.fleet.as_deref(), link.conn);
        core.fleet.peers.pauses.end(link.address);
    }
    match (link.step, header.opcode) {
        (Step::Startup, opcode::AUTHENTICATE) => {
            let Some(login) = link.login.clone() else {
                return Err("it asks for a login that the client does not have");
            };
            link.step = Step::Login;
            let mut token = Vec::new();
            encode::auth_response(&mut token, Some(&login));
            message(link, io, opcode::AUTH_RESPONSE, &token);
            Ok(())
        }
        (Step::Startup, opcode::READY) | (Step::Login, opcode::AUTH_SUCCESS) => {
            link.step = Step::Ready;
            core.fleet.peers.pauses.end_login(link.address, &link.login);
            let unsent = std::mem::take(&mut link.unsent);
            io.output(link.conn).extend_from_slice(&unsent);
            link.sent.iter_mut().for_each(|(_, sent)| sent.is_sent = true);
            Ok(())
        }
        (Step::Ready, opcode::RESULT | opcode::ERROR) if header.stream > 0 => {
            let login = link.login.clone();
            let Some(sent) = core.fleet.peers.take(key, header.stream as usize - 1) else {
                return Err("it sent an answer to no request");
            };
            let Some(SentLock { operation, .. }) = sent.lock else {
                transactions::forwarded(core, sent.ticket, header, body);
                return Ok(());
            };
            let outcome = answer::outcome(operation, header.flags, header.opcode, body, list);
            let outcome = outcome.unwrap_or_else(|| answer::unknown(operation).into());
            if !dispatch::answered_elsewhere(core, io, sent.ticket, &outcome) {
                release(core, io, &login, &sent, &outcome);
            }
            core.fleet.requests.keep_texts(sent.texts);
            Ok(())
        }
        (Step::Ready, opcode::SUPPORTED | opcode::EVENT) => Ok(()),
        (Step::Startup | Step::Login, opcode::ERROR) => {
            Err("it refused the client's login or version")
        }
        _ => Err("it sent what is no answer"),
    }
}

/// Verdict on a request that was sent and has no answer; `lock` is `None` for a transaction.
fn unknown(lock: Option<SentLock>) -> Verdict {
    lock.map_or(Verdict::InDoubt, |lock| answer::unknown(lock.operation))
}

/// Takes in the answer to a client that has left: a lock that was granted is released, unless the
/// client's owner has asked for it again elsewhere.
fn release(core: &mut Core, io: &mut Io, login: &Login, sent: &Sent, outcome: &Reply<'_>) {
    let Some(SentLock { operation: Operation::Acquire { .. }, table, namespace }) = sent.lock
    else {
        return;
    };
    let (Verdict::Granted, Some(held)) = (outcome.verdict, outcome.holder) else { return };
    let (name, owner) = sent.texts.split_at(sent.name_bytes);
    let operation = Operation::GiveBack { fence: held.fence };
    let question = LockRequest { table, namespace, operation, name, owner };
    dispatch::give_back(core, io, login, &question);
}

/// Notes that a connection has ended.
pub(crate) fn lost(core: &mut Core, io: &mut Io, key: u32, reason: CloseReason) {
    if let Some(link) = core.fleet.peers.links.get(key as usize) {
        let address = link.address;
        let is_unanswered = matches!(link.step, Step::Connecting | Step::Startup);
        let tls = (core.context.outgoing.fleet.as_deref(), is_unanswered);
        if core.context.note_tls_end(io, tls, &address, reason) {
            let random = core.context.random();
            core.fleet.peers.pauses.begin(address, io.now_ns(), random);
        }
    }
    end(core, io, key as usize);
}

fn give_up(core: &mut Core, io: &mut Io, key: usize, why: &str) {
    let Some(link) = core.fleet.peers.links.get(key) else { return };
    if let Some(suppressed) = core.context.log_limits.admit(Logged::ProxyGivenUp, io.now_ns()) {
        tracing::warn!(core = core.context.index, proxy = %link.address, why, suppressed, "a connection to another proxy was given up");
    }
    if matches!(link.step, Step::Startup | Step::Login) {
        let (to, random) = ((link.address, link.login.clone()), core.context.random());
        core.fleet.peers.pauses.begin_login(to, io.now_ns(), random);
    }
    io.abort(link.conn);
    end(core, io, key);
}

/// Answers all requests on a connection with what is known of them.
fn end(core: &mut Core, io: &mut Io, key: usize) {
    let Some(link) = core.fleet.peers.remove(key) else { return };
    core.fleet.peers.by.remove(&(link.address, link.login));
    core.connections.forget(link.conn);
    for (_, Sent { ticket, lock, is_sent, .. }) in link.sent {
        let verdict =
            if is_sent { unknown(lock) } else { Verdict::NotServed(NotServed::Elsewhere) };
        dispatch::answered_elsewhere(core, io, ticket, &verdict.into());
    }
}

/// Closes connections that do not answer or are idle.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    let now_ns = io.now_ns();
    core.fleet.peers.pauses.expire(now_ns);
    let keys: Vec<usize> = core.fleet.peers.links.iter().map(|(key, _)| key).collect();
    for key in keys {
        let Some(link) = core.fleet.peers.links.get_mut(key) else { continue };
        let silent_ns = now_ns.saturating_sub(link.last_received_ns);
        let late = link.sent.iter_mut().filter(|(_, sent)| !sent.is_told && now_ns > sent.due_ns);
        let late: Vec<(Ticket, Option<SentLock>)> = late
            .map(|(_, sent)| {
                sent.is_told = true;
                (sent.ticket, sent.lock)
            })
            .collect();
        for (ticket, lock) in &late {
            dispatch::answered_elsewhere(core, io, *ticket, &unknown(*lock).into());
        }
        let Some(link) = core.fleet.peers.links.get_mut(key) else { continue };
        let lost = |sent: &Sent| sent.is_told && now_ns.saturating_sub(sent.due_ns) > LOST_NS;
        if link.sent.iter().any(|(_, sent)| lost(sent)) {
            give_up(core, io, key, "it does not answer what it was asked");
        } else if link.step != Step::Ready {
            if now_ns.saturating_sub(link.opened_ns) > OPEN_NS {
                give_up(core, io, key, "it was not ready in time");
            }
        } else if link.probed_ns != 0 {
            if now_ns.saturating_sub(link.probed_ns) > PROBE_NS {
                give_up(core, io, key, "it did not answer a probe");
            }
        } else if !link.sent.is_empty() && silent_ns > limits::SECOND_NS {
            link.probed_ns = now_ns;
            message(link, io, opcode::OPTIONS, &[]);
        } else if link.sent.is_empty() && now_ns.saturating_sub(link.used_ns) > IDLE_NS {
            let conn = link.conn;
            io.close(conn);
            end(core, io, key);
        }
    }
}

/// Closes all connections at the end of the core.
pub(crate) fn close_all(core: &mut Core, io: &mut Io) {
    let keys: Vec<usize> = core.fleet.peers.links.iter().map(|(key, _)| key).collect();
    for key in keys {
        if let Some(link) = core.fleet.peers.links.get(key) {
            io.close(link.conn);
        }
        end(core, io, key);
    }
}

//! Whether a client's role may use the locks of a table: whoever may SELECT from the table may.
//!
//! A statement on these tables is answered here and reaches no node, so a node has to be asked. It
//! is given a SELECT that reads nothing, over a link of the client's own pool: the node carries it
//! out or refuses it in its own words, whatever its authoriser and however the role came by its
//! rights (ADR 16). What it said is kept with the pool, for `auth_cache_ms`.
//!
//! This must never:
//! - allow a request that was received later than `auth_cache_ms` after the node was asked. So the
//!   age of a verdict counts from when the question was sent, and is compared with the time at
//!   which the request came;
//! - use what was said of one login for another. It lies in the pool, which is all that has the
//!   same login, and an answer to what an earlier pool in the same place had asked is known by its
//!   number;
//! - allow what could not be found out, or keep a request for longer than [`WAIT_NS`];
//! - ask a node once for each request.
//!
//! A request that another proxy forwarded comes under the client's own login, and is looked at like
//! any other.

use std::sync::Arc;

use shunt_language::facade::Table;
use shunt_reactor::Io;
use shunt_wire::cql::envelope::Header;
use shunt_wire::cql::message::{Consistency, ResultMessage};

use crate::core::Core;
use crate::fault::{Fault, FaultKind, is_right_missing};
use crate::fleet::statements::{self, Heard, Whose};
use crate::ids::{ClientRef, PoolId};
use crate::link::permissions::{Said, WAIT_NS};
use crate::locks::judging::Waiting;
use crate::locks::{keep, statement};
use crate::log_limits::Logged;
use crate::metrics::{Outcome, PermissionAnswer};
use crate::reply;

/// How often those who wait are looked at.
const LOOK_NS: u64 = 20_000_000;
/// Of a node's words so much is kept.
const WORDS_BYTES_MAX: usize = 512;

/// The first of the tables of which it is not known if the client may use it; none: it may use them
/// all.
///
/// # Errors
/// It may not use one of them.
pub(super) fn unknown(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    tables: impl Iterator<Item = Table>,
    came_ns: u64,
) -> Result<Option<Table>, Fault> {
    let Some(id) = core.clients.get(slot).and_then(|client| client.pool) else {
        return Err(unlearnt());
    };
    let cache_ns = core.context.config.auth_cache_ms * 1_000_000;
    for table in tables {
        let Some(pool) = core.router.pools.get(id) else { return Err(unlearnt()) };
        if pool.key.login.is_none() {
            // Nobody logs in: the ring asks for nothing that permissions could be of.
            return Ok(None);
        }
        let known = pool.permissions.on(table);
        let said = known.said_of(came_ns, cache_ns);
        let refused = match said {
            Some(Said::No(words)) => Some(Fault::new(FaultKind::Unauthorized, words.to_string())),
            Some(Said::Yes) | None => None,
        };
        let is_unknown = said.is_none();
        if known.is_to_be_asked(came_ns, io.now_ns(), cache_ns) {
            ask(core, io, id, table);
        }
        if let Some(fault) = refused {
            return Err(fault);
        }
        if is_unknown {
            return Ok(Some(table));
        }
    }
    Ok(None)
}

/// The SELECT that a node decides on: no keys, so nothing is read.
fn question(table: Table) -> &'static str {
    match table {
        Table::Locks => "SELECT name FROM shunt.locks WHERE name IN ()",
        Table::FastLocks => "SELECT name FROM shunt.fast_locks WHERE name IN ()",
        Table::RwLocks => "SELECT name FROM shunt.rwlocks WHERE name IN ()",
        Table::FastRwLocks => "SELECT name FROM shunt.fast_rwlocks WHERE name IN ()",
        Table::LockQueue => "SELECT name FROM shunt.lock_queue WHERE name IN ()",
    }
}

fn ask(core: &mut Core, io: &mut Io, pool: PoolId, table: Table) {
    core.fleet.locks.judging.number += 1;
    let number = core.fleet.locks.judging.number;
    // Before it is sent: a node looks at the role's rights later than that.
    let asked_ns = io.read_clock_ns();
    let whose = Whose::Permission { pool, table, number };
    let is_sent =
        statements::ask::ask_in(core, io, pool, whose, question(table), Consistency::LOCAL_QUORUM);
    let Some(pool) = core.router.pools.get_mut(pool) else { return };
    let known = pool.permissions.on_mut(table);
    match is_sent {
        true => known.asks(number, asked_ns),
        false => known.is_unasked(asked_ns + LOOK_NS),
    }
}

/// Keeps a request until it is known if it is allowed.
pub(super) fn wait(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    (header, body): (&Header, &[u8]),
    (table, came_ns): (Table, u64),
) -> Result<(), Fault> {
    let pool = core.clients.get(slot).and_then(|client| core.router.pools.get(client.pool?));
    let role = pool
        .and_then(|pool| pool.names.whole_role.clone())
        .unwrap_or_else(|| Arc::clone(&core.fleet.locks.no_role));
    if !core.fleet.locks.judging.has_room(&role, body.len()) {
        return Err(Fault::overloaded(
            "Shunt: too many requests wait for a node to say if their roles may use locks",
        ));
    }
    if io.now_ns().saturating_sub(came_ns) >= WAIT_NS {
        return Err(unlearnt());
    }
    let Some(client) = core.clients.get_mut(slot) else { return Ok(()) };
    client.in_flight += 1;
    let client = ClientRef { slot, id: client.id };
    core.context.metrics.in_flight.add(1);
    let body = Box::from(body);
    core.fleet.locks.judging.put(Waiting { client, role, table, header: *header, body, came_ns });
    look_later(core, io);
    Ok(())
}

/// A proxy takes a request back that it has forwarded: it is not asked once it is known if it is
/// allowed.
pub(crate) fn withdrawn(core: &mut Core, io: &mut Io, client: ClientRef, stream: i16) {
    let judging = &mut core.fleet.locks.judging;
    let place =
        judging.waiting.iter().position(|one| one.client == client && one.header.stream == stream);
    let Some(one) = place.and_then(|place| judging.waiting.remove(place)) else { return };
    judging.took(&one);
    core.context.metrics.in_flight.sub(1);
    if let Some(client) = core.clients.find_mut(one.client) {
        client.in_flight = client.in_flight.saturating_sub(1);
    }
    core.context.metrics.outcomes.of(Outcome::Intercepted).add(1);
    reply::error(core, io, client.slot, stream, &unlearnt());
}

/// Codes after which drivers go to the next host: the request was certainly not carried out.
fn unlearnt() -> Fault {
    Fault::new(
        FaultKind::Unserved,
        "Shunt: no node has said in time if this role may use locks; nothing was carried out, ask the next host",
    )
}

fn look_later(core: &mut Core, io: &mut Io) {
    let judging = &mut core.fleet.locks.judging;
    if judging.look_ns <= io.now_ns() {
        judging.look_ns = io.now_ns() + LOOK_NS;
    }
    let at_ns = judging.look_ns;
    keep::wake(core, io, at_ns);
}

/// Looks at those who wait, if it is time: to refuse them, or to ask once more.
pub(super) fn due(core: &mut Core, io: &mut Io) {
    if core.fleet.locks.judging.waiting.is_empty() {
        return;
    }
    if io.now_ns() >= core.fleet.locks.judging.look_ns {
        go_on(core, io, |_, _| true);
    }
    if !core.fleet.locks.judging.waiting.is_empty() {
        look_later(core, io);
    }
}

/// A node has answered, or nobody has.
pub(crate) fn heard(
    core: &mut Core,
    io: &mut Io,
    (id, table, number): (PoolId, Table, u64),
    heard: &Heard<'_>,
) {
    let Some(pool) = core.router.pools.get_mut(id) else { return };
    let known = pool.permissions.on_mut(table);
    let Some(asked_ns) = known.answered(number) else { return };
    let answers = &core.context.metrics.locks.permissions;
    match heard {
        Heard::Result(ResultMessage::Rows(_)) => {
            known.learn(Said::Yes, asked_ns);
            answers.of(PermissionAnswer::Allowed).add(1);
        }
        Heard::Error(error) if is_right_missing(error.code, error.message) => {
            let end = error.message.floor_char_boundary(WORDS_BYTES_MAX);
            known.learn(Said::No(Box::from(&error.message[..end])), asked_ns);
            answers.of(PermissionAnswer::Refused).add(1);
        }
        Heard::Error(_) | Heard::Result(_) | Heard::Unreadable => {
            known.failed(io.now_ns());
            answers.of(PermissionAnswer::Failed).add(1);
            if let Some(suppressed) = core.context.log_limits.admit(Logged::Permission, io.now_ns())
            {
                let (code, why) = match heard {
                    Heard::Error(error) => (error.code, error.message),
                    _ => (0, "an answer that cannot be read"),
                };
                let table = table.name();
                tracing::warn!(
                    table,
                    code,
                    why,
                    suppressed,
                    "a node did not say if a role may use locks"
                );
            }
            return;
        }
    }
    go_on(core, io, |of, about| of == id && about == table);
}

/// Goes on with those who wait for this.
fn go_on(core: &mut Core, io: &mut Io, is_about: impl Fn(PoolId, Table) -> bool) {
    let mut waiting = std::mem::take(&mut core.fleet.locks.judging.waiting);
    for _ in 0..waiting.len() {
        let Some(one) = waiting.pop_front() else { break };
        let pool = core.clients.find(one.client).and_then(|client| client.pool);
        // A client that is gone leaves with the next that are looked at.
        if pool.is_some_and(|pool| !is_about(pool, one.table)) {
            waiting.push_back(one);
            continue;
        }
        core.fleet.locks.judging.took(&one);
        core.context.metrics.in_flight.sub(1);
        if let Some(client) = core.clients.find_mut(one.client) {
            client.in_flight = client.in_flight.saturating_sub(1);
            statement::go_on(core, io, one.client.slot, (&one.header, &one.body), one.came_ns);
        }
    }
    // Those that wait once more came later.
    waiting.append(&mut core.fleet.locks.judging.waiting);
    core.fleet.locks.judging.waiting = waiting;
}

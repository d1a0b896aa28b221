//! Whether a client's role may do what a transaction does: read and write its tables.
//!
//! The proxy carries its statements out under its own login, so a node is asked for each table, over a link of the client's own pool, by a
//! statement that the node refuses before it does anything: for the role's want of a right, or, if it has it, for what is wrong with
//! the statement. Nodes look at rights first. What was said is kept with the pool's login for `auth_cache_ms`.
//!
//! This must never: allow what was refused or not found out; use what was said of one login for another; allow a request that came later
//! than `auth_cache_ms` after the node was asked.

use std::sync::Arc;

use shunt_language::facade::Table;
use shunt_locks::Ticket;
use shunt_reactor::Io;
use shunt_wire::cql::message::{Consistency, error_code};

use super::known::Known;
use super::question;
use super::verdicts::Waiting;
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::hop::Login;
use crate::ids::PoolId;
use crate::own::{self, Heard, Whose};
use crate::transactions::part::Part;

/// Verdicts that are kept; beyond that all are forgotten.
const VERDICTS_MAX: usize = 16_384;
/// Requests that wait for one, and bytes of them.
const WAITING_MAX: usize = 4_096;
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Sends a transaction on when it is known that its client may do all that it does.
pub(super) fn ask(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    ticket: (Ticket, bool),
    known: (&Arc<Known>, Option<bool>),
    message: Vec<u8>,
) {
    // Not the turn's time: a right that was found before this process stood still may be gone by now.
    let came_ns = io.read_clock_ns();
    let Some(pool) = core.clients.get(slot).and_then(|client| client.pool) else { return };
    let Some(login) = core.router.pools.get(pool).map(|pool| pool.key.login.clone()) else { return };
    go_on(core, io, (pool, login), ticket, known, message, came_ns);
}

fn go_on(
    core: &mut Core,
    io: &mut Io,
    (pool, login): (PoolId, Login),
    ticket: (Ticket, bool),
    (known, guard): (&Arc<Known>, Option<bool>),
    message: Vec<u8>,
    came_ns: u64,
) {
    // Where nobody logs in, the ring asks for nothing that permissions could be of.
    let missing = login.as_ref().and_then(|login| {
        let right = |(table, writes): &(Box<str>, bool)| {
            let reads = (Some(Arc::clone(login)), question::qualified(&known.domain, table), false);
            [Some(reads.clone()), writes.then_some((reads.0, reads.1, true))]
        };
        // Whoever may SELECT from the table of locks may use them.
        let lock = guard.map(|is_fast| if is_fast { Table::FastLocks } else { Table::Locks });
        let lock = lock.map(|table| (Some(Arc::clone(login)), question::qualified("shunt", table.name()), false));
        let mut rights = known.tables.iter().flat_map(right).flatten().chain(lock);
        rights.find(|right| {
            core.fleet.transactions.allowed.verdicts.get(right).is_none_or(|until_ns| came_ns > *until_ns)
        })
    });
    let Some(right) = missing else {
        return core.fleet.transactions.allow(ticket, login, known, message);
    };
    let allowed = &mut core.fleet.transactions.allowed;
    if allowed.waiting.len() >= WAITING_MAX || allowed.bytes + message.len() > WAITING_BYTES_MAX {
        let fault = Fault::overloaded("Shunt: too many requests wait for a node to say if their roles may do this");
        return core.fleet.transactions.fail(ticket.0, &fault.into());
    }
    allowed.number += 1;
    let number = allowed.number;
    let asked_ns = io.read_clock_ns();
    let text = question::about(&right.1, right.2);
    let whose = Whose::Transaction(Part::Permission { pool, number });
    // The client may be gone, and another login have its pool's place.
    let is_same = core.router.pools.get(pool).is_some_and(|pool| pool.key.login == right.0);
    if !is_same || !own::ask::ask_in(core, io, pool, whose, &text, Consistency::LOCAL_ONE) {
        return core.fleet.transactions.fail(ticket.0, &unlearnt().into());
    }
    let allowed = &mut core.fleet.transactions.allowed;
    allowed.bytes += message.len();
    allowed
        .waiting
        .insert(number, Waiting { ticket, known: Arc::clone(known), guard, message, came_ns, right, asked_ns });
}

/// A node has answered, or nobody has.
pub(super) fn heard(core: &mut Core, io: &mut Io, (pool, number): (PoolId, u64), heard: &Heard<'_>) {
    let allowed = &mut core.fleet.transactions.allowed;
    let Some(Waiting { ticket, known, guard, message, came_ns, right, asked_ns }) = allowed.waiting.remove(&number)
    else {
        return;
    };
    allowed.bytes -= message.len();
    // An answer to what a former pool in this place had asked is of another login, perhaps.
    let is_same = core.router.pools.get(pool).is_some_and(|pool| pool.key.login == right.0);
    match heard {
        Heard::Error(error)
            if error.code == error_code::INVALID && is_same && question::is_about_nothing(error.message, right.2) =>
        {
            let cache_ns = core.context.config.auth_cache_ms * 1_000_000;
            let allowed = &mut core.fleet.transactions.allowed;
            if allowed.verdicts.len() >= VERDICTS_MAX {
                allowed.verdicts.clear();
            }
            // A request that waits counts from when the node was asked, which was after it came.
            let login = right.0.clone();
            allowed.verdicts.insert(right, asked_ns + cache_ns);
            go_on(core, io, (pool, login), ticket, (&known, guard), message, came_ns);
        }
        Heard::Error(error) if error.code == error_code::UNAUTHORIZED => {
            let fault = Fault::new(FaultKind::Unauthorized, error.message.to_owned());
            core.fleet.transactions.fail(ticket.0, &fault.into());
        }
        // There is no such table, perhaps.
        Heard::Error(error) if error.code == error_code::INVALID => {
            core.fleet.transactions.fail(ticket.0, &Fault::invalid(error.message.to_owned()).into());
        }
        _ => core.fleet.transactions.fail(ticket.0, &unlearnt().into()),
    }
}

fn unlearnt() -> Fault {
    let why = "Shunt: no node has said if this role may do this; nothing was written, ask the next host";
    Fault::new(FaultKind::Unserved, why)
}

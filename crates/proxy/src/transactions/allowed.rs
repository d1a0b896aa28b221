//! Whether a client's role may do what a transaction does: read and write its tables.
//!
//! The proxy carries its statements out under its own login, so a node is asked for each table,
//! over a link of the client's own pool, by a statement that the node refuses before it does
//! anything: for the role's want of a right, or, if it has it, for what is wrong with the
//! statement. Nodes look at rights first. What was said is kept with the pool's login for
//! `auth_cache_ms`.
//!
//! Requests that need the same right wait for one question, if they come at about the time it is
//! asked. What no node has said yes to is asked about each time; so one role has half of the
//! questions, and of the room to wait, at most.
//!
//! This must never: allow what was refused or not found out; use what was said of one login for
//! another; allow a request that came later than `auth_cache_ms` after the node was asked; refuse
//! one by what a node was asked before it came.

use std::sync::Arc;

use shunt_language::facade::Table;
use shunt_locks::Ticket;
use shunt_reactor::Io;
use shunt_wire::cql::message::{Consistency, error_code};

use super::question;
use super::verdicts::{Inquiry, Right, Waiting};
use crate::core::Core;
use crate::fault::{Fault, FaultKind, is_right_missing};
use crate::fleet::peers::Login;
use crate::fleet::statements::{self, Heard, Whose};
use crate::ids::PoolId;
use crate::transactions::part::{Part, Who};
use shunt_transactions::request::Known;

/// Sends a transaction on when it is known that its client may do all that it does.
pub(super) fn ask(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    ticket: (Ticket, bool),
    known: (&Arc<Known>, Option<bool>),
    message: Vec<u8>,
) {
    // Not the turn's time: a right that was found before this process stood still may be gone by
    // now.
    let came_ns = io.read_clock_ns();
    let Some(pool) = core.clients.get(slot).and_then(|client| client.pool) else { return };
    let Some(login) = core.router.pools.get(pool).map(|pool| pool.key.login.clone()) else {
        return;
    };
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
        let lock = lock.map(|table| {
            (Some(Arc::clone(login)), question::qualified("shunt", table.name()), false)
        });
        let mut rights = known.tables.iter().flat_map(right).flatten().chain(lock);
        rights.find(|right| !core.fleet.transactions.allowed.is_known(right, came_ns))
    });
    let Some(right) = missing else {
        return core.fleet.transactions.allow(ticket, login, known, message);
    };
    match wait_for(core, io, pool, &right, (came_ns, message.len())) {
        Ok((number, who)) => {
            let one =
                Waiting { who, pool, ticket, known: Arc::clone(known), guard, message, came_ns };
            core.fleet.transactions.allowed.wait(number, one);
        }
        Err(fault) => core.fleet.transactions.fail(ticket.0, &fault.into()),
    }
}

/// The number of the question whose answer says if there is this right, which is asked if it is not
/// yet; and whose share of those who wait for one a request counts to.
fn wait_for(
    core: &mut Core,
    io: &mut Io,
    pool: PoolId,
    right: &Right,
    (came_ns, bytes): (u64, usize),
) -> Result<(u64, Who), Fault> {
    // The client may be gone, and another login have its pool's place.
    let of_login = core.router.pools.get(pool).filter(|pool| pool.key.login == right.0);
    let Some(role) = of_login.map(|pool| pool.names.whole_role.as_deref()) else {
        return Err(unlearnt());
    };
    let who = role.map_or(Who::FORMER, Who::of);
    let allowed = &mut core.fleet.transactions.allowed;
    if !allowed.has_room(who, bytes) {
        return Err(Fault::overloaded(
            "Shunt: too many requests, or too many of this role, wait for a node to say if they may do this; nothing was written, ask again",
        ));
    }
    if let Some(number) = allowed.inquiry(right, came_ns) {
        return Ok((number, who));
    }
    let number = allowed.next_number();
    let whose = Whose::Transaction(Part::Permission { pool, number, who });
    if !core.fleet.statements.has_room(&whose) {
        return Err(Fault::overloaded(
            "Shunt: nodes are being asked about as many rights, or as many of this role, as they may be at once; nothing was written, ask again",
        ));
    }
    let asked_ns = io.read_clock_ns();
    let text = question::about(&right.1, right.2);
    if !statements::ask::ask_in(core, io, pool, whose, &text, Consistency::LOCAL_ONE) {
        return Err(unlearnt());
    }
    core.fleet.transactions.allowed.asks(number, right.clone(), asked_ns);
    Ok((number, who))
}

/// What is known of a right by the answer to a question.
enum Word {
    Yes,
    No(Fault),
    /// Nobody has said.
    Nothing,
}

fn word(heard: &Heard<'_>, writes: bool) -> Word {
    match heard {
        Heard::Error(error) if is_right_missing(error.code, error.message) => {
            Word::No(Fault::new(FaultKind::Unauthorized, error.message.to_owned()))
        }
        Heard::Error(error) if error.code != error_code::INVALID => Word::Nothing,
        Heard::Error(error) if question::is_about_nothing(error.message, writes) => Word::Yes,
        // There is no such table, perhaps.
        Heard::Error(error) => Word::No(Fault::invalid(error.message.to_owned())),
        _ => Word::Nothing,
    }
}

/// A node has answered, or nobody has.
pub(super) fn heard(
    core: &mut Core,
    io: &mut Io,
    (asked_in, number): (PoolId, u64),
    heard: &Heard<'_>,
) {
    let allowed = &mut core.fleet.transactions.allowed;
    let Some(Inquiry { right, asked_ns, mut waiting }) = allowed.answered(number) else { return };
    // An answer to what a former pool in this place had asked is of another login, perhaps.
    let is_same = core.router.pools.get(asked_in).is_some_and(|pool| pool.key.login == right.0);
    let word = if is_same { word(heard, right.2) } else { Word::Nothing };
    let login = right.0.clone();
    if matches!(word, Word::Yes) {
        let cache_ns = core.context.config.auth_cache_ms * 1_000_000;
        let allowed = &mut core.fleet.transactions.allowed;
        waiting.extend(allowed.others(&right));
        // Counted from when the node was asked, and so it counts for all that came before.
        allowed.allow(right, asked_ns.saturating_add(cache_ns));
    }
    for Waiting { pool, ticket, known, guard, message, came_ns, .. } in waiting {
        let fault = match &word {
            // Of one that came behind the question it says nothing: the right may have been
            // granted, or the table made, in between.
            Word::No(fault) if came_ns <= asked_ns => fault.clone(),
            // Others have links of their own.
            Word::Nothing if pool == asked_in => unlearnt(),
            _ => {
                go_on(core, io, (pool, login.clone()), ticket, (&known, guard), message, came_ns);
                continue;
            }
        };
        core.fleet.transactions.fail(ticket.0, &fault.into());
    }
}

fn unlearnt() -> Fault {
    let why =
        "Shunt: no node has said if this role may do this; nothing was written, ask the next host";
    Fault::new(FaultKind::Unserved, why)
}

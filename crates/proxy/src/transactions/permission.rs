//! Rights of a client's role: to read and write the tables of its transaction, and to use the lock
//! that the transaction names.
//!
//! Transactions that need the same right share one question, if they come at about the time at
//! which it is sent. A right that no node has granted is asked about each time. One role gets half
//! of the questions, and of the room to wait, at most. [`crate::fleet::rights`] keeps the verdicts,
//! and says what must never happen. Beyond that, this must never refuse a transaction by a verdict
//! whose question was sent before the transaction came.

use std::sync::Arc;

use shunt_language::lock_tables::Table;
use shunt_locks::Ticket;
use shunt_reactor::Io;
use shunt_transactions::request::Summary;

use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::fleet::requests::clients;
use crate::fleet::rights;
use crate::fleet::rights::ask::{Answer, NotAsked};
use crate::fleet::rights::cache::Verdict;
use crate::fleet::rights::probe::{Reading, qualified};
use crate::fleet::rights::right::{Action, Right};
use crate::fleet::rights::waiters::Waiter;
use crate::ids::PoolId;
use crate::transactions::intake::owner;
use crate::transactions::job::Undecided;
use crate::transactions::part::Who;

/// Sends a transaction on when it is known that its client may do all that it does.
pub(super) fn ask(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    ticket: (Ticket, bool),
    (known, guard): (&Arc<Summary>, Option<bool>),
    message: Vec<u8>,
) {
    // Not the turn's time: a right that was found before this process stood still may be gone by
    // now.
    let came_ns = io.read_clock_ns();
    let Some(client) = core.clients.get(slot) else { return };
    let Some(pool) = client.pool else { return };
    let Some(login_id) = core.router.pools.get(pool).map(|pool| pool.login_id) else { return };
    let login = (clients::login_of(&core.router, client), login_id);
    let known = Arc::clone(known);
    let undecided = Undecided { pool, login, ticket, known, guard, message, came_ns, number: 0 };
    decide(core, io, undecided);
}

/// Sends a transaction on, or has it wait for a verdict on the first right that is not known.
fn decide(core: &mut Core, io: &mut Io, undecided: Undecided) {
    let Undecided { pool, ticket, came_ns, .. } = undecided;
    let Some(right) = unknown_right(core, &undecided) else {
        let Undecided { known, message, login: (login, _), .. } = undecided;
        return owner::send_to_owner(core, io, ticket, &login, &known.domain, &message);
    };
    let bytes = undecided.message.len();
    match question(core, io, pool, &right, (came_ns, bytes)) {
        Ok((number, who)) => {
            let request = Undecided { number, ..undecided };
            core.fleet.transactions.undecided.push(Waiter { who, right, bytes, request });
        }
        Err(fault) => core.fleet.transactions.fail(ticket.0, &fault.into()),
    }
}

/// The first right that a transaction needs and that no node has granted; none: all are granted,
/// or nobody logs in, and the ring asks for nothing that rights could be of.
fn unknown_right(core: &Core, undecided: &Undecided) -> Option<Right> {
    let (token, login) = &undecided.login;
    token.as_ref()?;
    let Undecided { known, guard, came_ns, .. } = undecided;
    let cache_ns = core.context.config.auth_cache_ms * 1_000_000;
    let tables = known.tables.iter().flat_map(|(table, writes)| {
        let table = qualified(&known.domain, table);
        [Some(Action::Read(table.clone())), writes.then_some(Action::Write(table))]
    });
    // The right to SELECT from a table of locks is the right to use its locks.
    let lock = guard.map(|is_fast| if is_fast { Table::FastLocks } else { Table::Locks });
    let actions = tables.flatten().chain(lock.map(Action::UseLocks));
    let mut rights = actions.map(|action| Right { login: *login, action });
    rights.find(|right| {
        let verdict = core.fleet.rights.verdict(right, *came_ns, cache_ns);
        // A refusal is confirmed by a node each time.
        verdict != Some(&Verdict::Granted)
    })
}

/// The number of a question whose answer decides on this right, sent now if it must be; and the
/// role that a transaction which waits for it counts to.
fn question(
    core: &mut Core,
    io: &mut Io,
    pool: PoolId,
    right: &Right,
    (came_ns, bytes): (u64, usize),
) -> Result<(u64, Who), Fault> {
    // The client may be gone, and another login have its pool's place.
    let of_login = core.router.pools.get(pool).filter(|pool| pool.login_id == right.login);
    let Some(role) = of_login.map(|pool| pool.names.whole_role.as_deref()) else {
        return Err(undecided_fault());
    };
    let who = role.map_or(Who::FORMER, Who::of);
    if !core.fleet.transactions.undecided.has_room(who, bytes) {
        return Err(Fault::overloaded(
            "Shunt: too many requests, in all or of this role, wait for a node to decide on their rights; nothing was written, ask again",
        ));
    }
    if let Some(number) = core.fleet.rights.shared_question(right, came_ns) {
        return Ok((number, who));
    }
    match rights::ask::ask(core, io, pool, right, who) {
        Ok(number) => Ok((number, who)),
        Err(NotAsked::NoLink) => Err(undecided_fault()),
        Err(NotAsked::Full) => Err(Fault::overloaded(
            "Shunt: too many rights, in all or of this role, are being asked about; nothing was written, ask again",
        )),
    }
}

/// Goes on with transactions for which an answer decides.
pub(crate) fn take_answer(core: &mut Core, io: &mut Io, answer: &Answer) {
    let Answer { right, number, asked_ns, reading, .. } = answer;
    let is_granted = *reading == Reading::Granted;
    let decided = core.fleet.transactions.undecided.remove_where(|waiter| {
        // A grant decides for those too who wait for the answer to another question.
        waiter.request.number == *number || is_granted && waiter.right == *right
    });
    for Waiter { request, .. } in decided {
        let fault = match reading {
            // Of a transaction that came after the question a refusal says nothing: the right may
            // have been granted, or the table made, in between.
            Reading::Refused(message) if request.came_ns <= *asked_ns => {
                Fault::new(FaultKind::Unauthorized, message.to_string())
            }
            Reading::Invalid(message) if request.came_ns <= *asked_ns => {
                Fault::invalid(message.to_string())
            }
            // Clients of other pools have links of their own.
            Reading::Unknown(_) if request.pool == answer.pool => undecided_fault(),
            _ => {
                decide(core, io, request);
                continue;
            }
        };
        core.fleet.transactions.fail(request.ticket.0, &fault.into());
    }
}

/// No node has decided. Drivers go to the next host.
fn undecided_fault() -> Fault {
    let why = "Shunt: no node has decided whether this role may do this; nothing was written, ask the next host";
    Fault::new(FaultKind::Unserved, why)
}

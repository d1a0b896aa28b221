//! Rights to locks: a role that may SELECT from a table of locks may use its locks.
//!
//! [`crate::fleet::rights`] asks a node, keeps the verdict, and says what must never happen. A
//! request without a verdict waits here, and goes on once a node has decided. The right is checked
//! again every [`RETRY_NS`], and the request is refused after [`WAIT_NS`]. A verdict that has
//! passed half of its time is renewed while requests go on.
//!
//! A forwarded request comes under the client's own login, and is treated like any other.

use std::collections::HashSet;

use shunt_language::lock_tables::Table;
use shunt_reactor::Io;
use shunt_wire::cql::envelope::Header;

use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::fleet::rights;
use crate::fleet::rights::ask::Answer;
use crate::fleet::rights::cache::Verdict;
use crate::fleet::rights::inquiries::WAIT_NS;
use crate::fleet::rights::probe::Reading;
use crate::fleet::rights::right::{Action, Right};
use crate::fleet::rights::waiters::Waiter;
use crate::ids::{ClientRef, PoolId};
use crate::locks::state::UndecidedRequest as Request;
use crate::locks::{intake, keeper};
use crate::log_limits::Logged;
use crate::metrics::{Outcome, PermissionAnswer};
use crate::reply;
use crate::transactions::part::Who;

/// Pause between attempts for waiting requests.
const RETRY_NS: u64 = 20_000_000;
/// Pause after a question without an answer.
const PAUSE_NS: u64 = 100_000_000;
/// The first of the tables to which the client's right is not known; `None` if it may use all of
/// them.
///
/// # Errors
/// The client may not use one of them.
pub(super) fn unknown(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    tables: impl Iterator<Item = Table>,
    came_ns: u64,
) -> Result<Option<Table>, Fault> {
    let Some(id) = core.clients.get(slot).and_then(|client| client.pool) else {
        return Err(undecided_fault());
    };
    let Some(pool) = core.router.pools.get(id) else { return Err(undecided_fault()) };
    if pool.key.login.is_none() {
        // Without logins there are no rights.
        return Ok(None);
    }
    let login = pool.login_id;
    let who = pool.names.whole_role.as_deref().map_or(Who::FORMER, Who::of);
    let cache_ns = core.context.config.auth_cache_ms * 1_000_000;
    for table in tables {
        let right = Right { login, action: Action::UseLocks(table) };
        if core.fleet.rights.needs_question(&right, (came_ns, io.now_ns()), cache_ns) {
            ask(core, io, id, &right, who);
        }
        match core.fleet.rights.verdict(&right, came_ns, cache_ns) {
            Some(Verdict::Granted) => {}
            Some(Verdict::Refused(message)) => {
                return Err(Fault::new(FaultKind::Unauthorized, message.to_string()));
            }
            None => return Ok(Some(table)),
        }
    }
    Ok(None)
}

/// Keeps a request until there is a verdict on its right.
pub(super) fn wait(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    (header, body): (&Header, &[u8]),
    (table, came_ns): (Table, u64),
) -> Result<(), Fault> {
    let pool = core.clients.get(slot).and_then(|client| core.router.pools.get(client.pool?));
    let Some(pool) = pool else { return Err(undecided_fault()) };
    let who = pool.names.whole_role.as_deref().map_or(Who::FORMER, Who::of);
    let right = Right { login: pool.login_id, action: Action::UseLocks(table) };
    if !core.fleet.locks.undecided.has_room(who, body.len()) {
        return Err(Fault::overloaded(
            "Shunt: too many requests, in all or of this role, wait for a node to say if they may use locks",
        ));
    }
    if io.now_ns().saturating_sub(came_ns) >= WAIT_NS {
        return Err(undecided_fault());
    }
    let Some(client) = core.clients.get_mut(slot) else { return Ok(()) };
    client.in_flight += 1;
    let client = ClientRef { slot, id: client.id };
    core.context.metrics.in_flight.add(1);
    let request = Request { client, header: *header, body: Box::from(body), came_ns };
    core.fleet.locks.undecided.push(Waiter { who, right, bytes: body.len(), request });
    retry_later(core, io);
    Ok(())
}

/// Withdraws a request for the proxy that forwarded it: the request is refused, and is never
/// carried out.
pub(crate) fn withdraw(core: &mut Core, io: &mut Io, client: ClientRef, stream: i16) {
    let Some(request) = core.fleet.locks.undecided.withdraw(client, stream) else { return };
    if is_client_there(core, &request) {
        core.context.metrics.outcomes.of(Outcome::Intercepted).add(1);
        reply::error(core, io, client.slot, stream, &undecided_fault());
    }
}

/// The client and the stream id of each request that waits.
pub(crate) fn waiting(core: &Core) -> impl Iterator<Item = (ClientRef, i16)> {
    let waiters = core.fleet.locks.undecided.iter();
    waiters.map(|waiter| (waiter.request.client, waiter.request.header.stream))
}

/// The error for a request without a verdict. It was not carried out, so drivers try the next host.
fn undecided_fault() -> Fault {
    Fault::new(
        FaultKind::Unserved,
        "Shunt: no node has said in time if this role may use locks; nothing was carried out, ask the next host",
    )
}

/// Schedules another attempt for the requests that wait.
fn retry_later(core: &mut Core, io: &mut Io) {
    let undecided = &mut core.fleet.locks.undecided;
    if undecided.retry_ns <= io.now_ns() {
        undecided.retry_ns = io.now_ns() + RETRY_NS;
    }
    let at_ns = undecided.retry_ns;
    keeper::wake(core, io, at_ns);
}

/// Refuses waiting requests whose time is over, and asks nodes again about the others.
pub(super) fn due(core: &mut Core, io: &mut Io) {
    if core.fleet.locks.undecided.is_empty() {
        return;
    }
    if io.now_ns() >= core.fleet.locks.undecided.retry_ns {
        ask_again(core, io);
        let now_ns = io.now_ns();
        let cache_ns = core.context.config.auth_cache_ms * 1_000_000;
        let fleet = &mut core.fleet;
        let removed = fleet.locks.undecided.remove_where(|one| {
            let came_ns = one.request.came_ns;
            now_ns.saturating_sub(came_ns) >= WAIT_NS
                || fleet.rights.verdict(&one.right, came_ns, cache_ns).is_some()
        });
        resume(core, io, removed);
    }
    if !core.fleet.locks.undecided.is_empty() {
        retry_later(core, io);
    }
}

/// Asks nodes about the rights that requests wait for, once for each right. The requests stay in
/// place, because parsing thousands of them every few milliseconds would hold the core up.
fn ask_again(core: &mut Core, io: &mut Io) {
    let now_ns = io.now_ns();
    let cache_ns = core.context.config.auth_cache_ms * 1_000_000;
    let (mut questions, mut rights) = (Vec::new(), HashSet::new());
    for Waiter { who, right, request, .. } in core.fleet.locks.undecided.iter() {
        if core.fleet.rights.needs_question(right, (request.came_ns, now_ns), cache_ns)
            && !rights.contains(right)
            && let Some(pool) = core.clients.find(request.client).and_then(|client| client.pool)
        {
            rights.insert(right);
            questions.push((right.clone(), pool, *who));
        }
    }
    for (right, pool, who) in questions {
        ask(core, io, pool, &right, who);
    }
}

/// Asks a node about a right, or a little later if no link has room.
fn ask(core: &mut Core, io: &mut Io, pool: PoolId, right: &Right, who: Who) {
    if rights::ask::ask(core, io, pool, right, who).is_err() {
        let now_ns = io.now_ns();
        core.fleet.rights.pause(right, now_ns + RETRY_NS, now_ns);
    }
}

/// Continues the requests that an answer decides.
pub(crate) fn take_answer(core: &mut Core, io: &mut Io, answer: &Answer) {
    let Action::UseLocks(table) = answer.right.action else { return };
    let counted = match &answer.reading {
        Reading::Granted => PermissionAnswer::Allowed,
        Reading::Refused(_) => PermissionAnswer::Refused,
        Reading::Invalid(_) | Reading::Unknown(_) => PermissionAnswer::Failed,
    };
    core.context.metrics.locks.permissions.of(counted).add(1);
    if counted != PermissionAnswer::Failed {
        let undecided = &mut core.fleet.locks.undecided;
        let removed = undecided.remove_where(|one| one.right == answer.right);
        return resume(core, io, removed);
    }
    let now_ns = io.now_ns();
    core.fleet.rights.pause(&answer.right, now_ns + PAUSE_NS, now_ns);
    if let Some(suppressed) = core.context.log_limits.admit(Logged::Permission, now_ns) {
        let table = table.name();
        let (Reading::Invalid(why) | Reading::Unknown(why)) = &answer.reading else { return };
        tracing::warn!(
            table,
            why,
            suppressed,
            "a node did not decide whether a role may use locks"
        );
    }
}

/// Continues requests that have waited.
fn resume(core: &mut Core, io: &mut Io, requests: Vec<Request>) {
    for request in requests {
        if is_client_there(core, &request) {
            let Request { client, header, body, came_ns } = request;
            intake::resume(core, io, client.slot, (&header, &body), came_ns);
        }
    }
}

/// Ends the wait of a request. Returns false if its client has left.
fn is_client_there(core: &mut Core, request: &Request) -> bool {
    core.context.metrics.in_flight.sub(1);
    let Some(client) = core.clients.find_mut(request.client) else { return false };
    client.in_flight = client.in_flight.saturating_sub(1);
    true
}

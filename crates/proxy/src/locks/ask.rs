//! A client's requests go to the cores that keep the locks, and their outcomes to the client.

use std::net::SocketAddr;
use std::sync::Arc;

use shunt_locks::{NotServed, Quota, Ticket, shard_of};
use shunt_reactor::Io;

use crate::core::Core;
use crate::fleet::peers::Login;
use crate::fleet::peers::forward::forward;
use crate::fleet::peers::withdraw::withdraw;
use crate::fleet::statements;
use crate::ids::ClientRef;
use crate::limits;
use crate::link::Recipient;
use crate::locks::form::{Form, FormKind};
use crate::locks::outbox::{Reply, Verdict};
use crate::locks::question::Question;
use crate::locks::request::{Operation, Request};
use crate::locks::requests::{Again, Asker, At, Pending};
use crate::locks::{answer, core_of, keep, overview, requests, several};
use crate::metrics::Outcome;
use crate::reply::{self, Answer};
use crate::transactions::intake::guard;
use crate::transactions::{answer as transactions, execute};

/// A request that no proxy could serve, because its lock's owner had just changed, is made again
/// for so long.
const AGAIN_FOR_NS: u64 = limits::SECOND_NS;
/// And so often.
const AGAIN_AFTER_NS: u64 = 20_000_000;
/// So many at once: what is more is for the client to ask again.
const AGAIN_MAX: usize = 2_048;

/// Requests of a core's clients that may be at other proxies; those here and on other cores have
/// quotas there.
const PENDING_MAX: usize = 131_072;

/// A client that has not taken so much of its answers, or another core, gets no more lists: each is
/// hundreds of times as long as what asks for it.
const LISTS_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Lists of a core between two ticks, for all clients together.
const LISTS_BYTES_PER_TICK: usize = 32 * 1024 * 1024;

/// Asks for a client. It is answered once, now or later, unless it leaves before.
pub(super) fn ask(
    core: &mut Core,
    io: &mut Io,
    client: (u32, i16),
    was_forwarded: bool,
    question: &Question<'_>,
    form: Form,
) {
    if let Some((ticket, asker)) = note(core, io, client, was_forwarded, form) {
        if was_forwarded && question.operation.may_wait() {
            core.fleet.locks.requests.may_be_withdrawn(ticket);
        }
        send(core, io, ticket, &asker, question);
    }
}

/// Asks for a batch, or for nobody.
pub(crate) fn ask_for(
    core: &mut Core,
    io: &mut Io,
    asker: &Asker,
    question: &Question<'_>,
    form: Form,
) {
    let mut of_nobody = requests::NONE;
    let group = match form.kind {
        FormKind::Part { group, .. } => Some(group),
        _ => None,
    };
    let whose = (ClientRef::PROXY, 0, io.now_ns());
    let ticket = core.fleet.locks.requests.add(core.context.index, &mut of_nobody, whose, form);
    if let Some(group) = group.and_then(|group| core.fleet.locks.groups.get_mut(group as usize)) {
        group.asked = Some(ticket);
    }
    send(core, io, ticket, asker, question);
}

/// Asks another proxy, in the name of a client that is gone.
pub(crate) fn forward_for_nobody(
    core: &mut Core,
    io: &mut Io,
    to: SocketAddr,
    login: &Login,
    question: &Question<'_>,
) {
    let mut of_nobody = requests::NONE;
    let whose = (ClientRef::PROXY, 0, io.now_ns());
    let ticket =
        core.fleet.locks.requests.add(core.context.index, &mut of_nobody, whose, Form::default());
    let Question { table, namespace, operation, name, owner } = *question;
    let request = Request { ticket, namespace, operation, name, role: &[], owner };
    if forward(core, io, to, login, table, &request).is_none() {
        core.fleet.locks.requests.take(ticket);
    }
}

/// Notes a client's request, and says who it is. None: it is gone.
pub(crate) fn note(
    core: &mut Core,
    io: &Io,
    (slot, stream): (u32, i16),
    was_forwarded: bool,
    form: Form,
) -> Option<(Ticket, Asker)> {
    let (role, login) = asker_of(core, slot)?;
    let client = core.clients.get_mut(slot)?;
    let whose = (ClientRef { slot, id: client.id }, stream, io.now_ns());
    client.in_flight += 1;
    core.context.metrics.in_flight.add(1);
    let ticket =
        core.fleet.locks.requests.add(core.context.index, &mut client.lock_requests, whose, form);
    Some((ticket, Asker { role, login, was_forwarded }))
}

/// The role of a client, and its login.
pub(crate) fn asker_of(core: &Core, slot: u32) -> Option<(Arc<str>, Login)> {
    let pool = core.router.pools.get(core.clients.get(slot)?.pool?)?;
    let role =
        pool.names.whole_role.clone().unwrap_or_else(|| Arc::clone(&core.fleet.locks.no_role));
    Some((role, pool.key.login.clone()))
}

fn send(core: &mut Core, io: &mut Io, ticket: Ticket, asker: &Asker, question: &Question<'_>) {
    let shard = shard_of(question.name);
    let keeper = core_of(shard, core.context.config.cores);
    let Question { table, namespace, operation, name, owner } = *question;
    if let Some(pending) = core.fleet.locks.requests.get_mut(ticket)
        && !asker.was_forwarded
        && pending.again.is_none()
    {
        pending.again = Some(Again { asker: asker.clone(), table, namespace, operation });
    }
    let request =
        Request { ticket, namespace, operation, name, role: asker.role.as_bytes(), owner };
    if let Some(to) = core.fleet.peers.owner(shard).filter(|_| !asker.was_forwarded) {
        let is_full = core.fleet.locks.requests.len() > PENDING_MAX;
        let via = if is_full { None } else { forward(core, io, to, &asker.login, table, &request) };
        match (via, core.fleet.locks.requests.get_mut(ticket)) {
            (Some(via), Some(pending)) => pending.at = At::Elsewhere(via),
            (Some(_), None) => {}
            (None, _) => deliver(core, io, ticket, &Verdict::Quota(Quota::Requests).into()),
        }
    } else if keeper == core.context.index {
        let handle = keep::take(core, io, &request);
        if let Some(pending) = core.fleet.locks.requests.get_mut(ticket) {
            pending.at = At::Here(handle);
        }
    } else if core.fleet.lanes.ask(keeper, &request) {
        if let Some(pending) = core.fleet.locks.requests.get_mut(ticket) {
            pending.at = At::Core(keeper);
        }
    } else {
        deliver(core, io, ticket, &Verdict::Quota(Quota::Requests).into());
    }
}

/// The outcome of a request, of a client of this core or of another.
pub(super) fn answered(core: &mut Core, io: &mut Io, ticket: Ticket, outcome: &Reply<'_>) {
    let of = requests::core_of(ticket);
    if of == core.context.index {
        deliver(core, io, ticket, outcome);
    } else {
        core.fleet.locks.remote.remove(&ticket.0);
        core.fleet.lanes.answer(of, ticket, outcome);
    }
}

/// The outcome of a request that was forwarded. `false`: nobody waits for it any more.
pub(crate) fn answered_elsewhere(
    core: &mut Core,
    io: &mut Io,
    ticket: Ticket,
    outcome: &Reply<'_>,
) -> bool {
    let is_awaited = core.fleet.locks.requests.get_mut(ticket).is_some();
    deliver(core, io, ticket, outcome);
    is_awaited
}

/// True if whoever asked for a list, on this core or another, may be sent one now.
pub(super) fn has_room_for_list(core: &mut Core, io: &Io, ticket: Ticket) -> bool {
    if core.fleet.locks.lists_bytes >= LISTS_BYTES_PER_TICK {
        return false;
    }
    let of = requests::core_of(ticket);
    if of != core.context.index {
        return core.fleet.lanes.waiting_bytes(of) < LISTS_BYTES_MAX;
    }
    let client = core
        .fleet
        .locks
        .requests
        .get_mut(ticket)
        .and_then(|pending| core.clients.find(pending.client));
    client.is_none_or(|client| io.backlog(client.conn) < LISTS_BYTES_MAX)
}

/// Gives whoever asked on this core the answer.
pub(super) fn deliver(core: &mut Core, io: &mut Io, ticket: Ticket, outcome: &Reply<'_>) {
    let now_ns = io.now_ns();
    let is_list = matches!(outcome.verdict, Verdict::Listed | Verdict::Locks);
    let too_much = is_list && !has_room_for_list(core, io, ticket);
    let refused = Verdict::Quota(Quota::Requests).into();
    let outcome = if too_much { &refused } else { outcome };
    let Some(pending) = core.fleet.locks.requests.get_mut(ticket) else { return };
    if outcome.verdict == Verdict::NotServed(NotServed::Elsewhere)
        && pending.again.is_some()
        && core.fleet.locks.again.len() < AGAIN_MAX
        && now_ns.saturating_sub(pending.received_ns) < AGAIN_FOR_NS
    {
        pending.at = At::Here(None);
        core.fleet.locks.again.push_back((now_ns + AGAIN_AFTER_NS, ticket));
        keep::wake(core, io, now_ns + AGAIN_AFTER_NS);
        return;
    }
    match pending.form.kind {
        FormKind::Part { group, place } => {
            forget(core, ticket);
            several::heard(core, io, group, place, outcome);
        }
        FormKind::Back(group) => {
            forget(core, ticket);
            several::given_back(core, io, group, outcome.verdict);
        }
        FormKind::Share(gathered) => {
            forget(core, ticket);
            overview::heard(core, io, gathered, outcome);
        }
        FormKind::Fence(guarded) => {
            forget(core, ticket);
            guard::lock_answered(core, guarded, outcome);
        }
        FormKind::Nobody => forget(core, ticket),
        FormKind::Message => transactions::of_verdict(core, ticket, outcome.verdict),
        _ => {
            let form = std::mem::take(&mut pending.form);
            let mut body = std::mem::take(&mut core.scratch.message);
            body.clear();
            let version = version_of(core, ticket);
            let has_peers = is_list && core.fleet.peers.has_peers();
            let (opcode, flags) = answer::encode(&mut body, version, &form, outcome, has_peers);
            if is_list && !too_much {
                core.fleet.locks.lists_bytes += body.len();
            }
            answer_with(core, io, ticket, (opcode, flags), &body);
            core.scratch.message = body;
            core.fleet.locks.keep_texts(form.texts);
        }
    }
}

/// A request of the proxy's own has its outcome.
fn forget(core: &mut Core, ticket: Ticket) {
    if let Some((pending, _)) = core.fleet.locks.requests.take(ticket) {
        core.fleet.locks.keep_texts(pending.form.texts);
    }
}

/// Asks again what could not be served when a shard had just changed hands.
pub(super) fn ask_again(core: &mut Core, io: &mut Io) {
    let now_ns = io.now_ns();
    while let Some((due_ns, ticket)) = core.fleet.locks.again.front().copied() {
        if due_ns > now_ns {
            keep::wake(core, io, due_ns);
            return;
        }
        core.fleet.locks.again.pop_front();
        let Some(pending) = core.fleet.locks.requests.get_mut(ticket) else { continue };
        let Some(Again { asker, table, namespace, operation }) = pending.again.clone() else {
            continue;
        };
        let waited_ms = (now_ns.saturating_sub(pending.received_ns) / 1_000_000) as u32;
        let operation = match operation {
            Operation::Acquire { mode, ttl_ms, wait_ms } => {
                Operation::Acquire { mode, ttl_ms, wait_ms: wait_ms.saturating_sub(waited_ms) }
            }
            other => other,
        };
        // A copy, for the answer may come at once and needs its own.
        let (texts, name_bytes) = (pending.form.texts.clone(), pending.form.name_bytes);
        let (name, owner) = texts.split_at(name_bytes);
        send(core, io, ticket, &asker, &Question { table, namespace, operation, name, owner });
    }
}

/// The version of the client that made a request.
pub(crate) fn version_of(core: &mut Core, ticket: Ticket) -> u8 {
    let pending = core.fleet.locks.requests.get_mut(ticket).map(|pending| pending.client);
    pending.and_then(|client| core.clients.version_of(client)).unwrap_or(statements::VERSION)
}

/// Where a request is now.
pub(crate) fn is_at(core: &mut Core, ticket: Ticket, at: At) {
    if let Some(pending) = core.fleet.locks.requests.get_mut(ticket) {
        pending.at = at;
    }
}

/// Answers a client's request with this message: its opcode, its flags and its body.
pub(crate) fn answer_with(
    core: &mut Core,
    io: &mut Io,
    ticket: Ticket,
    (opcode, flags): (u8, u8),
    body: &[u8],
) {
    let Some((pending, first)) = core.fleet.locks.requests.take(ticket) else { return };
    if let (Some(first), Some(client)) = (first, core.clients.find_mut(pending.client)) {
        client.lock_requests = first;
    }
    let to = Recipient {
        client: pending.client,
        stream: pending.stream,
        received_ns: pending.received_ns,
    };
    let answer = Answer { flags, ..Answer::plain(opcode, pending.stream, body) };
    reply::deliver(&mut core.clients, &core.context, io, to, &answer, Outcome::Intercepted);
}

/// A client is gone: what it has asked is taken back.
pub(crate) fn client_gone(core: &mut Core, io: &mut Io, first: u32) {
    let mut next = first;
    while let Some((ticket, pending)) =
        core.fleet.locks.requests.take_first(core.context.index, next)
    {
        next = pending.after();
        core.context.metrics.in_flight.sub(1);
        match pending.form.kind {
            FormKind::Batch(group) => several::abandon(core, io, group),
            FormKind::Message if matches!(pending.at, At::Here(_)) => {
                execute::cancel(core, io, ticket)
            }
            _ => cancel(core, io, ticket, &pending),
        }
    }
}

/// Takes a batch's request back.
pub(super) fn take_back(core: &mut Core, io: &mut Io, ticket: Ticket) {
    if let Some((pending, _)) = core.fleet.locks.requests.take(ticket) {
        cancel(core, io, ticket, &pending);
    }
}

fn cancel(core: &mut Core, io: &mut Io, ticket: Ticket, pending: &Pending) {
    match pending.at {
        At::Core(keeper) => core.fleet.lanes.cancel(keeper, ticket, false),
        At::Here(Some(handle)) => keep::cancel(core, io, ticket, handle, false),
        // A lock that it was granted by then is released when the answer comes.
        At::Elsewhere(via) => withdraw(core, io, ticket, via),
        At::Here(None) => {}
    }
}

/// The proxy that has forwarded a request takes it back. It is answered once in any case: by what
/// it was granted before, which that proxy then gives back, or as one of which nobody knows what
/// came of it.
pub(crate) fn withdrawn(core: &mut Core, io: &mut Io, client: ClientRef, stream: i16) {
    let Some(ticket) = core.fleet.locks.requests.by_stream(client, stream) else { return };
    match core.fleet.locks.requests.get_mut(ticket).map(|pending| pending.at) {
        Some(At::Core(keeper)) => core.fleet.lanes.cancel(keeper, ticket, true),
        Some(At::Here(Some(handle))) => keep::cancel(core, io, ticket, handle, true),
        Some(At::Here(None) | At::Elsewhere(_)) | None => {}
    }
}

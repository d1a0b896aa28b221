//! Requests of clients go to the cores that keep the locks, and outcomes come back to the clients.
//!
//! A lock may be granted while its client leaves. The client's core then gives the lock back once
//! it reads the outcome. It must never give back a lock whose owner was told of it: the keeper
//! refuses if the owner has asked again and found the hold.

use shunt_locks::{NotServed, Quota, Ticket, shard_of};
use shunt_reactor::Io;

use crate::core::Core;
use crate::fleet::forwarding::Login;
use crate::fleet::forwarding::request::forward;
use crate::fleet::forwarding::withdrawal::withdraw;
use crate::fleet::requests;
use crate::fleet::requests::answer_form::{AnswerForm, AnswerKind};
use crate::fleet::requests::clients;
use crate::fleet::requests::{Again, Asker, At, Pending};
use crate::ids::ClientRef;
use crate::locks::reply::{Reply, Verdict};
use crate::locks::request::LockRequest;
use crate::locks::request::{KeeperRequest, Operation};
use crate::locks::validation;
use crate::locks::{answer, batch, core_of, keeper, overview};
use crate::transactions::{answer as transactions, intake::guard};

/// Bytes of unread answers above which a client, or another core, gets no list. A list is hundreds
/// of times as long as its request.
const LISTS_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of all lists that a core sends between two ticks.
const LISTS_BYTES_PER_TICK: usize = 32 * 1024 * 1024;

/// Sends a client's request to the keeper of its lock. The client gets one answer, unless it leaves
/// first.
pub(super) fn ask(
    core: &mut Core,
    io: &mut Io,
    client: (u32, i16),
    was_forwarded: bool,
    question: &LockRequest<'_>,
    form: AnswerForm,
) {
    if let Some((ticket, asker)) = clients::note(core, io, client, was_forwarded, form) {
        if was_forwarded && question.operation.may_wait() {
            core.fleet.requests.may_be_withdrawn(ticket);
        }
        send(core, io, ticket, &asker, question);
    }
}

/// Gives back a lock that was granted through another proxy to a client that has left. That proxy
/// may no longer own the lock.
pub(crate) fn give_back(core: &mut Core, io: &mut Io, login: &Login, question: &LockRequest<'_>) {
    // The request is forwarded with the login. If this proxy owns the lock by now, it gives back no
    // lock that belongs to a role.
    let role = core.fleet.requests.no_role();
    let asker = Asker { role, login: login.clone(), was_forwarded: false };
    let form = validation::form(core, AnswerKind::Nobody, question.name, question.owner, 0);
    ask_for(core, io, &asker, question, form);
}

/// Sends a request of a batch, or one whose answer nobody needs.
pub(crate) fn ask_for(
    core: &mut Core,
    io: &mut Io,
    asker: &Asker,
    question: &LockRequest<'_>,
    form: AnswerForm,
) {
    let mut of_nobody = requests::NONE;
    let batch = match form.kind {
        AnswerKind::Part { batch, .. } => Some(batch),
        _ => None,
    };
    let batch = batch.and_then(|batch| core.fleet.locks.batches.get_mut(batch as usize));
    let received_ns = match (&batch, question.operation) {
        (Some(batch), Operation::Release { .. }) => batch.began_ns,
        _ => io.now_ns(),
    };
    let whose = (ClientRef::PROXY, 0, received_ns);
    let ticket = core.fleet.requests.add(core.context.index, &mut of_nobody, whose, form);
    if let Some(batch) = batch {
        batch.asked = Some(ticket);
    }
    send(core, io, ticket, asker, question);
}

fn send(core: &mut Core, io: &mut Io, ticket: Ticket, asker: &Asker, question: &LockRequest<'_>) {
    let shard = shard_of(question.name);
    let keeper = core_of(shard, core.context.config.cores);
    let LockRequest { table, namespace, operation, name, owner } = *question;
    if let Some(pending) = core.fleet.requests.get_mut(ticket)
        && pending.again.is_none()
    {
        pending.again = Some(Again { asker: asker.clone(), table, namespace, operation });
    }
    let request =
        KeeperRequest { ticket, namespace, operation, name, role: asker.role.as_bytes(), owner };
    if let Some(to) = core.fleet.peers.owner(shard).filter(|_| !asker.was_forwarded) {
        let via = forward(core, io, to, &asker.login, table, &request);
        match (via, core.fleet.requests.get_mut(ticket)) {
            (Some(via), Some(pending)) => pending.at = At::Elsewhere(via),
            (Some(_), None) => {}
            (None, _) if core.fleet.peers.is_paused(to, &asker.login, io.now_ns()) => {
                deliver(core, io, ticket, &Verdict::NotServed(NotServed::Elsewhere).into());
            }
            (None, _) => deliver(core, io, ticket, &Verdict::Quota(Quota::Requests).into()),
        }
    } else if keeper == core.context.index {
        let handle = keeper::take_request(core, io, &request);
        if let Some(pending) = core.fleet.requests.get_mut(ticket) {
            pending.at = At::Here(handle);
        }
    } else if core.fleet.lanes.ask(keeper, &request) {
        if let Some(pending) = core.fleet.requests.get_mut(ticket) {
            pending.at = At::Core(keeper);
        }
    } else {
        deliver(core, io, ticket, &Verdict::Quota(Quota::Requests).into());
    }
}

/// Passes on the outcome of a request, to this core or to the core of the client.
pub(super) fn answered(core: &mut Core, io: &mut Io, ticket: Ticket, outcome: &Reply<'_>) {
    let of = requests::core_of(ticket);
    if of == core.context.index {
        deliver(core, io, ticket, outcome);
    } else {
        core.fleet.locks.remote.remove(&ticket.0);
        core.fleet.lanes.answer(of, ticket, outcome);
    }
}

/// Delivers the outcome of a forwarded request. Returns false if nobody waits for it any more.
pub(crate) fn answered_elsewhere(
    core: &mut Core,
    io: &mut Io,
    ticket: Ticket,
    outcome: &Reply<'_>,
) -> bool {
    let is_awaited = core.fleet.requests.get_mut(ticket).is_some();
    deliver(core, io, ticket, outcome);
    is_awaited
}

/// True if the sender of a request, on this core or another, has room for a list.
pub(super) fn has_room_for_list(core: &mut Core, io: &Io, ticket: Ticket) -> bool {
    if core.fleet.locks.lists_bytes >= LISTS_BYTES_PER_TICK {
        return false;
    }
    let of = requests::core_of(ticket);
    if of != core.context.index {
        return core.fleet.lanes.waiting_bytes(of) < LISTS_BYTES_MAX;
    }
    let client =
        core.fleet.requests.get_mut(ticket).and_then(|pending| core.clients.find(pending.client));
    client.is_none_or(|client| io.backlog(client.conn) < LISTS_BYTES_MAX)
}

/// Answers a request of this core.
pub(crate) fn deliver(core: &mut Core, io: &mut Io, ticket: Ticket, outcome: &Reply<'_>) {
    let now_ns = io.now_ns();
    let is_list = matches!(outcome.verdict, Verdict::Listed | Verdict::Locks);
    let too_much = is_list && !has_room_for_list(core, io, ticket);
    let refused = Verdict::Quota(Quota::Requests).into();
    let outcome = if too_much { &refused } else { outcome };
    let Some(pending) = core.fleet.requests.get_mut(ticket) else { return };
    if matches!(pending.form.kind, AnswerKind::Unwanted) {
        return end_unwanted(core, io, ticket, outcome);
    }
    let is_postponed = match outcome.verdict {
        Verdict::NotServed(NotServed::Elsewhere) => true,
        // Without it, nobody frees the lock before its TTL ends.
        Verdict::Quota(Quota::Requests) => pending.gives_back(),
        _ => false,
    };
    if is_postponed
        && let Some(again) = pending.again.as_ref().filter(|again| !again.asker.was_forwarded)
        && let Some(due_ns) = core.fleet.locks.retries.schedule(
            (pending.received_ns, now_ns),
            &again.asker.role,
            ticket,
            0,
        )
    {
        pending.at = At::Here(None);
        keeper::wake(core, io, due_ns);
        return;
    }
    match pending.form.kind {
        AnswerKind::Part { batch, place } => {
            forget(core, ticket);
            batch::take_outcome(core, io, batch, place, outcome);
        }
        AnswerKind::Back(batch) => {
            forget(core, ticket);
            batch::given_back(core, io, batch, outcome.verdict);
        }
        AnswerKind::Share(gathered) => {
            forget(core, ticket);
            overview::take_list(core, io, gathered, outcome);
        }
        AnswerKind::Fence(guarded) => {
            forget(core, ticket);
            guard::lock_answered(core, guarded, outcome);
        }
        AnswerKind::Nobody | AnswerKind::Unwanted => forget(core, ticket),
        AnswerKind::Message => transactions::of_verdict(core, ticket, outcome.verdict),
        _ => {
            let form = std::mem::take(&mut pending.form);
            let mut body = std::mem::take(&mut core.scratch.message);
            body.clear();
            let version = clients::version_of(core, ticket);
            let has_peers = is_list && core.fleet.peers.has_peers();
            let (opcode, flags) = answer::encode(&mut body, version, &form, outcome, has_peers);
            if is_list && !too_much {
                core.fleet.locks.lists_bytes += body.len();
            }
            clients::answer_with(core, io, ticket, (opcode, flags), &body);
            core.scratch.message = body;
            core.fleet.requests.keep_texts(form.texts);
        }
    }
}

/// Forgets a request of the proxy's own that has its outcome.
fn forget(core: &mut Core, ticket: Ticket) {
    if let Some((pending, _)) = core.fleet.requests.take(ticket) {
        core.fleet.requests.keep_texts(pending.form.texts);
    }
}

/// Sends requests again that found their shard between two owners, or no room to give a lock back.
pub(super) fn ask_again(core: &mut Core, io: &mut Io) {
    let now_ns = io.now_ns();
    while let Some(ticket) = core.fleet.locks.retries.pop_due(now_ns) {
        let Some(pending) = core.fleet.requests.get_mut(ticket) else { continue };
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
        // A copy, because an answer may come at once and take the texts.
        let (texts, name_bytes) = (pending.form.texts.clone(), pending.form.name_bytes);
        let (name, owner) = texts.split_at(name_bytes);
        send(core, io, ticket, &asker, &LockRequest { table, namespace, operation, name, owner });
    }
    if let Some(due_ns) = core.fleet.locks.retries.next_due_ns() {
        keeper::wake(core, io, due_ns);
    }
}

/// Cancels a request that nobody waits for any more. An acquisition by this process stays known
/// until its outcome is there, because the lock may be granted before the cancellation arrives. A
/// release goes on, or the lock would be held until its TTL ends.
///
/// This must never carry out a release after a later request of the same owner, who may have been
/// told since that it holds the lock. A keeper takes the requests for a lock in their order; a
/// release that waits to be sent again, or that the keeper sends back, is forgotten.
pub(crate) fn cancel(core: &mut Core, io: &mut Io, ticket: Ticket) {
    let Some(pending) = core.fleet.requests.get_mut(ticket) else { return };
    let at = pending.at;
    let operation = pending.again.as_ref().map(|again| again.operation);
    let is_sent = match at {
        At::Core(_) | At::Here(Some(_)) => true,
        At::Here(None) => !core.fleet.locks.retries.contains(ticket),
        // The answer's arrival releases the lock.
        At::Elsewhere(_) => false,
    };
    if is_sent && matches!(operation, Some(Operation::Release { .. })) {
        (pending.form.kind, pending.again) = (AnswerKind::Nobody, None);
        return;
    }
    let has_outcome = is_sent && matches!(operation, Some(Operation::Acquire { .. }));
    if has_outcome {
        pending.form.kind = AnswerKind::Unwanted;
    } else {
        forget(core, ticket);
    }
    match at {
        At::Core(keeper) => core.fleet.lanes.cancel(keeper, ticket, has_outcome),
        At::Here(Some(handle)) => keeper::cancel(core, io, ticket, handle, has_outcome),
        At::Elsewhere(via) => withdraw(core, io, ticket, via),
        At::Here(None) => {}
    }
}

/// Takes in the outcome of a request whose client has left: gives back a lock that was granted.
fn end_unwanted(core: &mut Core, io: &mut Io, ticket: Ticket, outcome: &Reply<'_>) {
    let Some((Pending { form, again, .. }, _)) = core.fleet.requests.take(ticket) else { return };
    if let (Verdict::Granted, Some(held), Some(Again { asker, table, namespace, .. })) =
        (outcome.verdict, outcome.holder, again)
    {
        let (operation, name) = (Operation::GiveBack { fence: held.fence }, form.name());
        let question = LockRequest { table, namespace, operation, name, owner: form.owner() };
        let kind = AnswerKind::Nobody;
        let answer = validation::form(core, kind, question.name, question.owner, 0);
        ask_for(core, io, &asker, &question, answer);
    }
    core.fleet.requests.keep_texts(form.texts);
}

/// Withdraws a request for the proxy that forwarded it. The request still gets one answer: the
/// grant that it got before, which that proxy then gives back, or an unknown outcome.
pub(super) fn withdraw_waiting(core: &mut Core, io: &mut Io, client: ClientRef, stream: i16) {
    let Some(ticket) = core.fleet.requests.by_stream(client, stream) else { return };
    match core.fleet.requests.get_mut(ticket).map(|pending| pending.at) {
        Some(At::Core(keeper)) => core.fleet.lanes.cancel(keeper, ticket, true),
        Some(At::Here(Some(handle))) => keeper::cancel(core, io, ticket, handle, true),
        Some(At::Here(None) | At::Elsewhere(_)) | None => {}
    }
}

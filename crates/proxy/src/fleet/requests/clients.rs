//! Requests of clients are noted, and answered.

use std::sync::Arc;

use shunt_locks::Ticket;
use shunt_reactor::Io;

use crate::core::Core;
use crate::fleet::forwarding::Login;
use crate::fleet::requests::answer_form::AnswerForm;
use crate::fleet::requests::{Asker, At};
use crate::fleet::statements;
use crate::ids::ClientRef;
use crate::link::Recipient;
use crate::metrics::Outcome;
use crate::reply::{self, Answer};

/// Notes a client's request, and says who it is. None: it is gone.
pub(crate) fn note(
    core: &mut Core,
    io: &Io,
    (slot, stream): (u32, i16),
    was_forwarded: bool,
    form: AnswerForm,
) -> Option<(Ticket, Asker)> {
    let (role, login) = asker_of(core, slot)?;
    let client = core.clients.get_mut(slot)?;
    let whose = (ClientRef { slot, id: client.id }, stream, io.now_ns());
    client.in_flight += 1;
    client.traffic.count();
    core.context.metrics.in_flight.add(1);
    let ticket =
        core.fleet.requests.add(core.context.index, &mut client.lock_requests, whose, form);
    Some((ticket, Asker { role, login, was_forwarded }))
}

/// The role of a client, and its login.
pub(crate) fn asker_of(core: &Core, slot: u32) -> Option<(Arc<str>, Login)> {
    let pool = core.router.pools.get(core.clients.get(slot)?.pool?)?;
    let role =
        pool.names.whole_role.clone().unwrap_or_else(|| Arc::clone(&core.fleet.requests.no_role));
    Some((role, pool.key.login.clone()))
}

/// The keyspace of a client's session.
pub(crate) fn session_keyspace(core: &Core, slot: u32) -> Option<Arc<str>> {
    let pool = core.clients.get(slot)?.pool?;
    core.router.pools.get(pool)?.key.keyspace.clone()
}

/// The version of the client that made a request.
pub(crate) fn version_of(core: &mut Core, ticket: Ticket) -> u8 {
    let pending = core.fleet.requests.get_mut(ticket).map(|pending| pending.client);
    pending.and_then(|client| core.clients.version_of(client)).unwrap_or(statements::VERSION)
}

/// Sets the place where a request waits.
pub(crate) fn is_at(core: &mut Core, ticket: Ticket, at: At) {
    if let Some(pending) = core.fleet.requests.get_mut(ticket) {
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
    let Some((pending, first)) = core.fleet.requests.take(ticket) else { return };
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

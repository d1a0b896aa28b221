//! Errors for the requests in flight of clients that an operator closes, so that drivers react
//! correctly. A request gets the same error as if the connection to its node had been lost: a write
//! timeout, which drivers do not repeat by themselves, if the request may have changed something,
//! and Overloaded otherwise.
//!
//! A client must never hear that a request was not carried out if it may have been. The requests
//! themselves end like those of any client that leaves: their answers are dropped and counted.

use shunt_reactor::Io;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{ErrorMessage, error_code};

use crate::core::Core;
use crate::fleet::requests::Unanswered;
use crate::ids::ClientRef;
use crate::link::{Pending, Purpose};
use crate::locks::permission;
use crate::metrics::{FinalError, Outcome};
use crate::reply::{self, Answer};
use crate::retry::failure;

/// Error text for a request that changed nothing.
const CLOSED: &str = "Shunt: an operator has closed this connection; ask again over another";
/// Error text for a request that may have changed something.
const IN_DOUBT: &str =
    "Shunt: an operator has closed this connection; this request may have been carried out";

/// Answers all requests in flight of these clients. The caller closes the connections.
pub(crate) fn send(core: &mut Core, io: &mut Io, closing: &[ClientRef]) {
    let is_busy = |core: &Core, client: &ClientRef| {
        let client = core.clients.find(*client);
        client.is_some_and(|client| {
            !client.is_away && (client.in_flight > 0 || client.switch.is_some())
        })
    };
    let mut busy: Vec<ClientRef> =
        closing.iter().copied().filter(|client| is_busy(core, client)).collect();
    if busy.is_empty() {
        return;
    }
    busy.sort_unstable_by_key(|client| (client.slot, client.id));
    for key in core.links.keys() {
        let Some(link) = core.links.get(key).filter(|link| !link.is_unused()) else { continue };
        let pending = link.streams.iter().map(|(_, pending)| pending);
        let is_meant = |one: &&Pending| is_first(one.purpose) && contains(&busy, one.client);
        let pending: Vec<Pending> = pending.filter(is_meant).copied().collect();
        answer_requests(core, io, pending);
    }
    // Those that wait for a node to prepare their statement may still be sent, and the nodes have
    // carried out those that wait for agreement.
    let repairs = core.retries.repairs.iter().map(|(_, repair)| repair.pending);
    let waiting = repairs.chain(core.retries.awaiting.requests().copied());
    let waiting: Vec<Pending> = waiting.filter(|one| contains(&busy, one.client)).collect();
    answer_requests(core, io, waiting);
    let split = core.retries.multigets.requests().chain(permission::waiting(core));
    let unchanged: Vec<(ClientRef, i16)> =
        split.filter(|(client, _)| contains(&busy, *client)).collect();
    for (client, stream) in unchanged {
        answer(core, io, client, stream, &ErrorMessage::plain(error_code::OVERLOADED, CLOSED));
    }
    for client in busy {
        answer_own_work(core, io, client);
    }
}

/// True for a client's request. The second request of a hedged read has no answer of its own.
fn is_first(purpose: Purpose) -> bool {
    matches!(purpose, Purpose::Client | Purpose::Hedged { is_second: false, .. })
}

/// True if this client is among the sorted ones.
fn contains(clients: &[ClientRef], wanted: ClientRef) -> bool {
    let key = |client: &ClientRef| (client.slot, client.id);
    clients.binary_search_by_key(&key(&wanted), key).is_ok()
}

/// Answers these requests.
fn answer_requests(core: &mut Core, io: &mut Io, requests: Vec<Pending>) {
    for pending in requests {
        let pending = Pending { fate_unknown: true, ..pending };
        let why = if failure::may_have_changed(&pending) { IN_DOUBT } else { CLOSED };
        let error = failure::failure(&pending, Outcome::LinkLost, why);
        answer(core, io, pending.client, pending.stream, &error);
    }
}

/// Answers the requests that the proxy itself works on: on locks, transactions, and USE.
fn answer_own_work(core: &mut Core, io: &mut Io, client: ClientRef) {
    let Some(found) = core.clients.find(client) else { return };
    let switch = found.switch.filter(|switch| !switch.login).map(|switch| switch.stream);
    let first = found.lock_requests;
    let own: Vec<Unanswered> = core.fleet.requests.unanswered(first).collect();
    for Unanswered { stream, may_have_changed } in own {
        let error = match may_have_changed {
            true => failure::in_doubt(IN_DOUBT),
            false => ErrorMessage::plain(error_code::OVERLOADED, CLOSED),
        };
        answer(core, io, client, stream, &error);
    }
    if let Some(stream) = switch {
        answer(core, io, client, stream, &ErrorMessage::plain(error_code::OVERLOADED, CLOSED));
    }
}

fn answer(core: &mut Core, io: &mut Io, client: ClientRef, stream: i16, error: &ErrorMessage<'_>) {
    let Some(version) = core.clients.version_of(client) else { return };
    let mut body = std::mem::take(&mut core.scratch.message);
    body.clear();
    error.put(&mut body, version);
    let answer = Answer::plain(opcode::ERROR, stream, &body);
    let kind = match error.code {
        error_code::WRITE_TIMEOUT => FinalError::WriteTimeout,
        _ => FinalError::Overloaded,
    };
    core.context.metrics.final_errors.of(kind).add(1);
    reply::write(&mut core.clients, &core.context, io, client.slot, &answer);
    core.scratch.message = body;
}

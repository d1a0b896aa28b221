//! A request goes to the core, or the proxy, that owns the shard of its keyspace, and is sent again
//! if the shard has just changed hands. The answer comes back the same way.

use shunt_locks::Ticket;
use shunt_reactor::Io;
use shunt_transactions::request::{Head, Request};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{ErrorMessage, error_code};

use super::{client, guard};
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::fleet::clock;
use crate::fleet::forwarding::Login;
use crate::fleet::forwarding::request::forward_transaction;
use crate::fleet::requests::{self, At, clients};
use crate::locks::core_of;
use crate::transactions::timer::set_due;
use crate::transactions::{VERSION, execute, levels};

/// Schedules a request that was certainly not executed to be sent again; `false` leaves that to the
/// client. This must never repeat a request whose client's rights were not checked: such a request
/// was not sent before, and has no keyspace yet.
pub(crate) fn retry_later(core: &mut Core, io: &mut Io, ticket: Ticket) -> bool {
    let now_ns = io.now_ns();
    let Some(pending) = core.fleet.requests.get_mut(ticket) else { return false };
    let (bytes, domain_bytes) = (pending.form.texts.len(), pending.form.name_bytes);
    let times_ns = (pending.received_ns, now_ns);
    let domain = String::from_utf8_lossy(&pending.form.texts[..domain_bytes]).into_owned();
    if core.fleet.transactions.retries.contains(ticket) {
        return true;
    }
    if domain_bytes == 0 {
        return false;
    }
    let who = client::share_of(core, ticket, &domain);
    if core.fleet.transactions.retries.schedule(times_ns, &who, ticket, bytes).is_none() {
        return false;
    }
    clients::is_at(core, ticket, At::Here(None));
    set_due(core, io);
    true
}

/// Sends requests again that are due.
pub(crate) fn retry_due(core: &mut Core, io: &mut Io) {
    let now_ns = io.now_ns();
    while let Some(ticket) = core.fleet.transactions.retries.pop_due(now_ns) {
        // The client may be gone.
        let Some(pending) = core.fleet.requests.get_mut(ticket) else { continue };
        let texts = pending.form.texts.clone();
        let (domain, message) = texts.split_at(pending.form.name_bytes);
        let (login, domain) =
            (client::login_of(core, ticket), String::from_utf8_lossy(domain).into_owned());
        send_to_owner(core, io, (ticket, false), &login, &domain, message);
    }
}

/// Sends a permitted request to the owner of its keyspace's shard.
pub(crate) fn send_to_owner(
    core: &mut Core,
    io: &mut Io,
    (ticket, was_forwarded): (Ticket, bool),
    login: &Login,
    domain: &str,
    message: &[u8],
) {
    let shard = levels::shard_of_domain(domain);
    let keeper = core_of(shard, core.context.config.cores);
    if !was_forwarded && let Some(pending) = core.fleet.requests.get_mut(ticket) {
        pending.form.name_bytes = domain.len();
    }
    if let Some(owner) = core.fleet.peers.owner(shard) {
        let via = if was_forwarded {
            None
        } else {
            forward_transaction(core, io, owner, login, ticket, message)
        };
        match via {
            Some(via) => clients::is_at(core, ticket, At::Elsewhere(via)),
            None => {
                let why = format!(
                    "Shunt: the proxy at {owner} decides transactions of keyspace {domain}; nothing was written, ask it or the next host"
                );
                core.fleet.transactions.fail(ticket, &Fault::new(FaultKind::Unserved, why).into());
            }
        }
        return;
    }
    let who = client::share_of(core, ticket, domain);
    match Request::decode(message).map(|asked| asked.safeguards.guard) {
        Ok(Some(guard)) => guard::check(core, io, ticket, (keeper, who), guard, message),
        _ => send_to_core(core, io, ticket, keeper, &who, message),
    }
}

/// Sends a request to the core of this proxy that owns its shard. `who` is the client whose quota
/// it counts against.
pub(crate) fn send_to_core(
    core: &mut Core,
    io: &mut Io,
    ticket: Ticket,
    keeper: usize,
    who: &str,
    message: &[u8],
) {
    if keeper == core.context.index {
        execute::start(core, io, ticket, who, message);
    } else if core.fleet.lanes.ask_transaction(keeper, ticket, who, message) {
        clients::is_at(core, ticket, At::Core(keeper));
    } else {
        let fault = Fault::overloaded("Shunt: too many transactions are waiting; ask again");
        core.fleet.transactions.fail(ticket, &fault.into());
    }
}

/// True for an error that says that nothing was executed, and that may be over within a second, as
/// during a take-over.
fn is_unserved(head: Head, body: &[u8]) -> bool {
    head.0 == opcode::ERROR
        && error_code::peek(body) == Some(error_code::IS_BOOTSTRAPPING)
        && ErrorMessage::decode(VERSION, body)
            .is_ok_and(|error| !clock::is_lasting_refusal(error.message))
}

/// Delivers an answer, to a client of this core or to the core whose client asked.
pub(crate) fn deliver(core: &mut Core, io: &mut Io, ticket: Ticket, head: Head, body: &[u8]) {
    let of = requests::core_of(ticket);
    if of != core.context.index {
        return core.fleet.lanes.answer_with(of, ticket, head, body);
    }
    if !is_unserved(head, body) || !retry_later(core, io, ticket) {
        clients::answer_with(core, io, ticket, head, body);
    }
}

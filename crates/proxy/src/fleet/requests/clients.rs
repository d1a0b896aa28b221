//! Clients' requests for locks and transactions are noted here, and answered.

use std::sync::Arc;

use shunt_locks::Ticket;
use shunt_reactor::Io;

use crate::client::Client;
use crate::config::{Identity, IdentityLogin};
use crate::core::Core;
use crate::digests::attribution;
use crate::fleet::forwarding::Login;
use crate::fleet::requests::answer_form::AnswerForm;
use crate::fleet::requests::{Asker, At};
use crate::fleet::statements;
use crate::ids::{ClientRef, TenantKey};
use crate::link::Recipient;
use crate::metrics::Outcome;
use crate::reply::{self, Answer};
use crate::router::Router;
use crate::slow_queries::capture;

/// Notes a client's request. Returns its ticket and its sender, or `None` if the client has left.
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
    let served = core.fleet.requests.current.take();
    client.traffic.count(served.map_or(0, |served| served.body_bytes as usize));
    core.context.metrics.in_flight.add(1);
    let ticket =
        core.fleet.requests.add(core.context.index, &mut client.lock_requests, whose, form);
    if let Some(pending) = core.fleet.requests.get_mut(ticket) {
        pending.served = served;
    }
    Some((ticket, Asker { role, login, was_forwarded }))
}

/// The role of a client, and its login at other proxies.
pub(crate) fn asker_of(core: &Core, slot: u32) -> Option<(Arc<str>, Login)> {
    let client = core.clients.get(slot)?;
    let pool = core.router.pools.get(client.pool?)?;
    let role = pool.names.whole_role.clone().unwrap_or_else(|| core.fleet.requests.no_role());
    Some((role, login_of(&core.router, client)))
}

/// The login for the connection to another proxy, which checks the client by it.
pub(crate) fn login_of(router: &Router, client: &Client) -> Login {
    let pool = router.pools.get(client.pool?)?;
    current_login(&pool.key.token(), client.identity.as_deref())
}

/// The login of a pool, with the present password of an identity. Links outlive a change of the
/// password, but another proxy has a node check the login again.
fn current_login(of_pool: &Login, identity: Option<&Identity>) -> Login {
    let login = of_pool.as_ref()?;
    match identity.map(|identity| &identity.login) {
        Some(IdentityLogin::Password(role)) if !role.has_token(login) => Some(role.token()),
        _ => Some(Arc::clone(login)),
    }
}

/// The keyspace of a client's session.
pub(crate) fn session_keyspace(core: &Core, slot: u32) -> Option<Arc<str>> {
    let pool = core.clients.get(slot)?.pool?;
    core.router.pools.get(pool)?.key.keyspace.clone()
}

/// Protocol version of the client of a request.
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

/// Answers a request with a message: its opcode, flags and body.
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
        tenant: TenantKey::NONE,
        received_ns: pending.received_ns,
        sent_ns: 0,
    };
    let answer = Answer { flags, ..Answer::plain(opcode, pending.stream, body) };
    if let Some(served) = &pending.served {
        let (end, code) = attribution::count_served(core, io, pending.client, served, &answer);
        capture::served(core, (pending.client, pending.stream), served, &end, code);
    }
    reply::deliver(&mut core.clients, &core.context, io, to, &answer, Outcome::Intercepted);
}

#[cfg(test)]
mod tests {
    use shunt_reactor::{NameKind, PeerName};

    use super::*;
    use crate::config::{RolePassword, Secret};

    #[test]
    fn a_new_password_of_an_identity_goes_to_other_proxies() {
        let identity = |password: &str| Identity {
            name: PeerName::new(NameKind::Uri, "spiffe://example/shop"),
            login: IdentityLogin::Password(RolePassword {
                username: "shop".to_owned(),
                file: "file".into(),
                password: Secret::new(password),
            }),
        };
        let of_pool: Login = Some(b"\0shop\0one".as_slice().into());
        for (password, token) in [("one", b"\0shop\0one".as_slice()), ("new", b"\0shop\0new")] {
            let login = current_login(&of_pool, Some(&identity(password)));
            assert_eq!(login.as_deref(), Some(token));
        }
        assert_eq!(current_login(&of_pool, None), of_pool, "a login by a password");
        assert_eq!(current_login(&None, Some(&identity("new"))), None, "nobody logs in");
    }
}

//! Who asked, by the ticket of what was asked.

use shunt_locks::Ticket;

use crate::client::Client;
use crate::core::Core;
use crate::hop::Login;
use crate::own;

fn client_of(core: &mut Core, ticket: Ticket) -> Option<&Client> {
    let client = core.fleet.locks.requests_mut().get_mut(ticket)?.client;
    core.clients.find(client)
}

/// The version of its protocol.
pub(super) fn version_of(core: &mut Core, ticket: Ticket) -> u8 {
    client_of(core, ticket).map_or(own::VERSION, |client| client.version)
}

/// Its login.
pub(super) fn login_of(core: &mut Core, ticket: Ticket) -> Login {
    let pool = client_of(core, ticket).and_then(|client| client.pool)?;
    core.router.pools.get(pool)?.key.login.clone()
}

//! The client behind a ticket.

use std::sync::Arc;

use shunt_locks::Ticket;

use crate::client::Client;
use crate::client::account::Account;
use crate::core::Core;
use crate::fleet::forwarding::Login;
use crate::fleet::requests::clients;
use crate::fleet::statements;

/// The client behind a ticket.
fn client_of(core: &mut Core, ticket: Ticket) -> Option<&Client> {
    let client = core.fleet.requests.get_mut(ticket)?.client;
    core.clients.find(client)
}

/// The client's protocol version.
pub(crate) fn version_of(core: &mut Core, ticket: Ticket) -> u8 {
    client_of(core, ticket).map_or(statements::VERSION, |client| client.version)
}

/// The client's login at other proxies.
pub(crate) fn login_of(core: &mut Core, ticket: Ticket) -> Login {
    let client = core.fleet.requests.get_mut(ticket)?.client;
    clients::login_of(&core.router, core.clients.find(client)?)
}

/// The account of the client's pool.
pub(crate) fn account_of(core: &mut Core, ticket: Ticket) -> Account {
    let pool = client_of(core, ticket).and_then(|client| client.pool);
    let pool = pool.and_then(|pool| core.router.pools.get(pool));
    pool.map(|pool| pool.account).unwrap_or_default()
}

/// The client in quotas: its role or, where nobody logs in, this keyspace.
pub(crate) fn share_of(core: &mut Core, ticket: Ticket, keyspace: &str) -> Arc<str> {
    let pool = client_of(core, ticket).and_then(|client| client.pool);
    let role = pool
        .and_then(|pool| core.router.pools.get(pool))
        .and_then(|pool| pool.names.whole_role.clone());
    role.unwrap_or_else(|| keyspace.into())
}

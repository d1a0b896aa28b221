//! The choice of a client's tenant, by its role, keyspace, application, address and certificate.

use shunt_reactor::Io;

use crate::client::Phase;
use crate::config::Subject;
use crate::core::Core;

/// Chooses the tenant of a client that has logged in.
pub(crate) fn place(core: &mut Core, io: &Io, slot: u32) {
    let Some(client) = core.clients.get(slot) else { return };
    let sections = &core.context.config.tenant;
    if client.phase != Phase::Ready || sections.0.is_empty() && !client.tenant.is_some() {
        return;
    }
    let pool = client.pool.and_then(|pool| core.router.pools.get(pool));
    let session = io.session_info(client.conn);
    let subject = Subject {
        role: pool.and_then(|pool| pool.names.whole_role.as_deref()),
        keyspace: pool.and_then(|pool| pool.key.keyspace.as_deref()),
        application: client.driver.as_deref().map(|driver| &*driver.application),
        address: client.peer,
        certificate: session.map_or(&[], |session| &session.peer_names[..]),
    };
    let key = core.clients.tenants.of_section(sections.of(&subject));
    core.clients.move_to_tenant(&core.context.metrics, slot, key);
}

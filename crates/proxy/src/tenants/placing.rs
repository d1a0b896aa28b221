//! The choice of a client's tenant, by its role, keyspace, application, address and certificate.

use shunt_reactor::Io;

use super::refusal;
use crate::client::Phase;
use crate::config::Subject;
use crate::core::Core;
use crate::fault::Fault;
use crate::ids::{PoolId, TenantKey};

/// Chooses the tenant of a client that has logged in. The tenant takes it even if it has no room:
/// a reload closes no client.
pub(crate) fn place(core: &mut Core, io: &Io, slot: u32) {
    let Some(client) = core.clients.get(slot).filter(|client| client.phase == Phase::Ready) else {
        return;
    };
    let pool = client.pool;
    if let Some(key) = tenant_of(core, io, slot, pool) {
        core.clients.move_to_tenant(&core.context.metrics, slot, key);
    }
}

/// Chooses the tenant of a client that goes to this pool by its login or by USE.
///
/// # Errors
/// The tenant has no room. The client stays where it was.
pub(crate) fn admit(core: &mut Core, io: &Io, slot: u32, pool: PoolId) -> Result<(), Fault> {
    let Some(key) = tenant_of(core, io, slot, Some(pool)) else { return Ok(()) };
    core.clients
        .admit_to_tenant(&core.context.metrics, slot, key)
        .map_err(|limit| refusal::fault(&core.clients.tenants, key, limit))
}

/// The tenant of a client in a pool. `None`: the client has none, and there are none.
fn tenant_of(core: &Core, io: &Io, slot: u32, pool: Option<PoolId>) -> Option<TenantKey> {
    let client = core.clients.get(slot)?;
    let sections = &core.context.config.tenant;
    if sections.0.is_empty() && !client.tenant.is_some() {
        return None;
    }
    let pool = pool.and_then(|pool| core.router.pools.get(pool));
    let session = io.session_info(client.conn);
    let subject = Subject {
        role: pool.and_then(|pool| pool.names.whole_role.as_deref()),
        keyspace: pool.and_then(|pool| pool.key.keyspace.as_deref()),
        application: client.driver.as_deref().map(|driver| &*driver.application),
        address: client.peer,
        certificate: session.map_or(&[], |session| &session.peer_names[..]),
    };
    Some(core.clients.tenants.of_section(sections.of(&subject)))
}

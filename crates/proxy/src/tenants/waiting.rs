//! Stalls the clients in the lines of tenants, and reads from them again in turn.
//!
//! The core looks at a line when its time has come, when a query of the tenant ends, and after a
//! reload. It calls one client at a time and reads from it before it calls the next, as long as the
//! limits have room. A client that reaches a limit again goes to the end of the line. One that has
//! waited for `node_silence_ms` gets an error instead.

use shunt_reactor::Io;

use crate::client::Stall;
use crate::core::Core;
use crate::ids::TenantKey;

/// Timer of the lines.
pub(crate) const TIMER: u64 = 15;

/// Stops reading from a client that has joined the line of its tenant.
pub(crate) fn hold(core: &mut Core, io: &mut Io, slot: u32) {
    core.clients.stall(&core.context.metrics, io, slot, Stall::TENANT);
    if let Some(key) = core.clients.get(slot).map(|client| client.tenant) {
        set_timer(core, io, key);
    }
}

/// Sets a timer for the line of a tenant, unless an earlier one is set.
fn set_timer(core: &mut Core, io: &mut Io, key: TenantKey) {
    let tenants = &mut core.clients.tenants;
    let Some(wake_ns) = tenants.get_mut(key).and_then(|tenant| tenant.line.wake_ns()) else {
        return;
    };
    if tenants.timer_ns == 0 || wake_ns < tenants.timer_ns {
        tenants.timer_ns = wake_ns;
        io.set_timer(wake_ns, TIMER);
    }
}

/// Looks at the lines whose time has come.
pub(crate) fn look(core: &mut Core, io: &mut Io) {
    let (now_ns, tenants) = (io.now_ns(), &mut core.clients.tenants);
    if now_ns < tenants.timer_ns {
        return; // A timer that an earlier one replaced.
    }
    tenants.timer_ns = 0;
    let (mut due, mut next) = (Vec::new(), None::<(u64, TenantKey)>);
    for (key, tenant) in tenants.iter_mut() {
        match tenant.line.wake_ns() {
            Some(wake_ns) if wake_ns <= now_ns => {
                tenant.line.look();
                due.push(key);
            }
            Some(wake_ns) if next.is_none_or(|(earliest, _)| wake_ns < earliest) => {
                next = Some((wake_ns, key));
            }
            _ => {}
        }
    }
    due.into_iter().for_each(|key| tenants.reconsider(key));
    if let Some((_, key)) = next {
        set_timer(core, io, key);
    }
}

/// Calls the next client of a line that may move. `false`: there is none.
pub(crate) fn unstall_next(core: &mut Core, io: &mut Io) -> bool {
    while let Some(key) = core.clients.tenants.due.last().copied() {
        let first = core.clients.tenants.get_mut(key).and_then(|tenant| tenant.line.first());
        let Some(first) = first else {
            end_look(core, key, None);
            continue;
        };
        let client = core.clients.find(first).filter(|client| client.tenant == key);
        let waits = client.is_some_and(|client| client.stalls.has(Stall::TENANT));
        let is_paid = client.is_some_and(|client| client.is_tenant_paid);
        let is_known = client.is_some();
        let Some(tenant) = core.clients.tenants.get_mut(key) else { continue };
        if let Some((_, ready_ns)) = tenant.holding_limit(io.now_ns(), is_paid).filter(|_| waits) {
            end_look(core, key, Some(ready_ns));
            set_timer(core, io, key);
            continue;
        }
        if waits {
            tenant.line.call();
        } else {
            tenant.line.skip();
        }
        tenant.announce();
        if is_known && let Some(client) = core.clients.find_mut(first) {
            let was_in_line = std::mem::take(&mut client.is_in_tenant_line);
            core.clients.tenants.leave_line(key, was_in_line);
        }
        if waits {
            core.clients.unstall(&core.context.metrics, first.slot, Stall::TENANT);
            return true;
        }
    }
    false
}

/// Ends the look at the last of the lines; the next is at this time.
fn end_look(core: &mut Core, key: TenantKey, ready_ns: Option<u64>) {
    let tenants = &mut core.clients.tenants;
    tenants.due.pop();
    let Some(tenant) = tenants.get_mut(key) else { return };
    (tenant.line.is_due, tenant.line.looks) = (false, false);
    if let Some(ready_ns) = ready_ns {
        tenant.line.wake_at(ready_ns);
    }
    tenant.announce();
}

/// Forgets clients in line that have left or no longer wait.
pub(crate) fn forget(core: &mut Core) {
    let mut tenants = std::mem::take(&mut core.clients.tenants);
    let clients = &core.clients;
    tenants.retain(|client, key| {
        clients.find(*client).is_some_and(|found| found.tenant == key && found.is_in_tenant_line)
    });
    core.clients.tenants = tenants;
}

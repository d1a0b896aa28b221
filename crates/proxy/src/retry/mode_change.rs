//! Requests that were for nodes on arrival, and are not for a second attempt: their table has
//! another mode now, or a rule; or this process was paused since and does not know.
//!
//! This must never let a request through that would not be sent to a node if it arrived now.

use shunt_reactor::Io;
use shunt_wire::cql::envelope::{Header, opcode};

use crate::core::Core;
use crate::ids::ClientRef;
use crate::link::Pending;
use crate::plan::After;
use crate::route;
use crate::transactions::observation;
use crate::transactions::pause;

/// The error text for its client, which asks again.
pub(crate) const WHY: &str = "Shunt: the proxies may have taken this table over from the nodes while the request was under way; try again";

/// True for a request that must not go to nodes any more. `body`: its bytes.
pub(crate) fn is_taken(core: &mut Core, io: &mut Io, pending: &Pending, body: &[u8]) -> bool {
    pause::check_for_pause(core, io);
    // Transactions consist of the proxy's own statements.
    if core.router.modes.is_empty() || pending.client == ClientRef::PROXY {
        return false;
    }
    let Some(version) = core.router.pools.get(pending.pool).map(|pool| pool.key.version) else {
        return false;
    };
    let (flags, opcode, length) = (pending.flags, pending.opcode, body.len() as u32);
    let header = Header { version, response: false, flags, stream: pending.stream, opcode, length };
    let planned = match opcode {
        opcode::EXECUTE => route::plan_execute(&mut core.router, &header, body),
        _ => route::plan(&mut core.router, pending.pool, &header, body),
    };
    planned.is_ok_and(|plan| plan.after == After::Transaction)
        && observation::node_bound(core, pending.pool, &header, body).is_none()
}

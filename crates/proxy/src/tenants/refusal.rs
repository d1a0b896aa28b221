//! The error for a query beyond a limit of its tenant.

use shunt_reactor::Io;
use shunt_wire::cql::envelope::{Header, flag};

use super::{Admission, Limit, Tenants, waiting};
use crate::core::Core;
use crate::digests::attribution;
use crate::fault::Fault;
use crate::ids::TenantKey;
use crate::limits;
use crate::overload;
use crate::plan::Plan;
use crate::route;

/// Holds a query, or refuses it. `true`: the core must not read from the client beyond the query.
#[cold]
pub(crate) fn holds(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    request: (&Header, &[u8]),
    admission: Admission,
) -> bool {
    match admission {
        Admission::Refused(limit) => refuse(core, io, slot, request, limit),
        _ => waiting::hold(core, io, slot),
    }
    admission == Admission::Waits
}

/// Refuses a query that its tenant may not send now.
fn refuse(core: &mut Core, io: &mut Io, slot: u32, (header, body): (&Header, &[u8]), limit: Limit) {
    let Some(client) = core.clients.get(slot) else { return };
    let fault = fault(&core.clients.tenants, client.tenant, limit);
    let is_read = is_read(header, body.len());
    let planned = client.pool.filter(|_| is_read).and_then(|pool| {
        let planned = route::plan(&mut core.router, pool, header, body);
        planned.ok()
    });
    let kind = attribution::kind_of(header.opcode);
    let plan = planned.unwrap_or(Plan { kind, ..Plan::anywhere() });
    let body = if is_read { body } else { &[] };
    overload::refuse(core, io, slot, (header, body), &plan, &fault);
}

/// True if the statement of a refused query is looked at, for its digest and the slow queries. A
/// query is refused without being decompressed, and before heavy requests wait for their turn.
fn is_read(header: &Header, bytes: usize) -> bool {
    let is_plain = header.flags & flag::COMPRESSION == 0 || header.version >= 5;
    is_plain && bytes < limits::HEAVY_BYTES_MIN
}

/// The error for what a limit of a tenant refuses.
pub(super) fn fault(tenants: &Tenants, key: TenantKey, limit: Limit) -> Fault {
    let name = tenants.name(key);
    let (option, value) = match limit {
        Limit::Queries(value) => ("queries_per_s", value),
        Limit::Bytes(value) => ("bytes_per_s", value),
        Limit::InFlight(value) => ("in_flight_max", u64::from(value)),
        Limit::Clients(value) => ("clients_max", u64::from(value)),
    };
    Fault::overloaded(format!(
        "Shunt: tenant `{name}` has reached its limit at this proxy: {option} = {value}"
    ))
}

#[cfg(test)]
mod tests {
    use shunt_wire::cql::envelope::opcode;

    use super::*;

    #[test]
    fn refused_queries_that_are_compressed_or_heavy_are_not_read() {
        let header = Header::response(4, 1, opcode::QUERY);
        assert!(is_read(&header, limits::HEAVY_BYTES_MIN - 1));
        assert!(!is_read(&header, limits::HEAVY_BYTES_MIN));
        let compressed = Header { flags: flag::COMPRESSION, ..header };
        assert!(!is_read(&compressed, 10));
        assert!(is_read(&Header { version: 5, ..compressed }, 10));
    }
}

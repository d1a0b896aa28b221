//! Requests that were for nodes on arrival, and are not for a second attempt: their table has
//! another mode now, or a rule; or this process does not know, because it was paused since or has
//! evicted the prepared statement.
//!
//! This must never let a request through that would not be sent to a node if it arrived now.

use shunt_reactor::Io;
use shunt_wire::cql::envelope::{Header, opcode};

use crate::core::Core;
use crate::ids::{ClientRef, PoolId};
use crate::link::Pending;
use crate::plan::After;
use crate::route;
use crate::router::Router;
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
    is_for_proxies(&mut core.router, pending.pool, &header, body)
        && observation::node_bound(core, pending.pool, &header, body).is_none()
}

/// True for a request that the proxies would carry out or refuse if it arrived now. A prepared
/// statement that was evicted since may be on any table.
fn is_for_proxies(router: &mut Router, pool: PoolId, header: &Header, body: &[u8]) -> bool {
    let planned = match header.opcode {
        opcode::EXECUTE => route::plan_execute(router, pool, header, body),
        _ => route::plan(router, pool, header, body),
    };
    let is_kept = |after| matches!(after, After::Transaction | After::Lock | After::Unprepared);
    planned.is_ok_and(|plan| is_kept(plan.after))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shunt_wire::cql::message::{
        BatchChild, BatchKind, BatchStatement, Consistency, QueryParams, ValueList, encode,
    };
    use shunt_wire::cql::statement;

    use super::*;
    use crate::client::account::Account;
    use crate::prepared::{PreparedStatement, PreparedStore};

    const ID: &[u8] = b"sixteen bytes id";
    const INSERT: &str = "INSERT INTO ks.plain (k, v) VALUES (?, ?)";

    /// Tells if EXECUTE and BATCH of a statement on a table without a mode are for the proxies.
    fn are_for_proxies(is_evicted: bool) -> [bool; 2] {
        let mut router = Router::new(Arc::new(PreparedStore::new()), 0, true);
        router.modes.add("ks", "t", "conditional");
        if !is_evicted {
            let parsed = statement::classify(INSERT);
            let learned = PreparedStatement::opaque(ID, INSERT, &parsed, None);
            router.prepared.learn(Account::default(), learned);
        }
        let params = QueryParams::simple(Consistency::ONE);
        let (mut execute, mut batch) = (Vec::new(), Vec::new());
        encode::execute(&mut execute, 4, ID, None, &params);
        let values = ValueList::positional(4);
        let child = BatchChild { statement: BatchStatement::Prepared(ID), values: values.values() };
        encode::batch(&mut batch, 4, BatchKind::Logged, [child], &params);
        [(opcode::EXECUTE, execute), (opcode::BATCH, batch)].map(|(opcode, body)| {
            let header = Header::request(4, 1, opcode);
            is_for_proxies(&mut router, PoolId(0), &header, &body)
        })
    }

    #[test]
    fn a_statement_that_was_evicted_goes_to_no_node() {
        assert_eq!(are_for_proxies(false), [false; 2]);
        assert_eq!(are_for_proxies(true), [true; 2]);
    }
}

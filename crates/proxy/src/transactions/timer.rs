//! The timer of a core's transactions.

use shunt_reactor::Io;

use super::TIMER;
use crate::core::Core;
use crate::transactions::ownership::Open;

/// Sets the timer for what is due next.
pub(super) fn set_due(core: &mut Core, io: &mut Io) {
    let keeper = &core.fleet.transactions;
    let of_openings = keeper.openings.values().filter_map(Open::next_due_ms);
    let due_ms =
        keeper.table.as_ref().and_then(|table| table.next_due_ms()).into_iter().chain(of_openings);
    let again_ms = keeper.retries.next_due_ns().map(|due_ns| due_ns.div_ceil(1_000_000));
    let due_ms = due_ms.chain(again_ms).min();
    if let Some(due_ms) = due_ms {
        let at_ns = due_ms.saturating_mul(1_000_000).max(io.now_ns() + 1);
        if core.fleet.transactions.wakes.wants(at_ns) {
            io.set_timer(at_ns, TIMER);
        }
    }
}

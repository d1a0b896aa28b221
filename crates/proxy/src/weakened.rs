//! Steps that a test may leave out, to see that its checks notice. A product runs them all.

use shunt_fleet::Step;
use shunt_locks::Without;
use shunt_transactions::OpeningStep;

use crate::core::Core;
use crate::limits::SECOND_NS;
use crate::locks::sweep::progress::Pace;
pub use crate::multiget::Mistake;

/// The steps to leave out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weakened {
    /// A step of the membership.
    pub step: Option<Step>,
    /// A step of the locks.
    pub locks: Without,
    /// A step of the transactions.
    pub transactions: Option<shunt_transactions::Without>,
    /// A step of the openings of transaction logs.
    pub opening: Option<OpeningStep>,
    /// The clock is not compared with those of nodes, and they are not asked for their time.
    pub clock: bool,
    /// A mistake in the merging of parts.
    pub multiget: Option<Mistake>,
}

/// Leaves these steps out, from the core's start on.
pub fn leave_out(core: &mut Core, weakened: Weakened) {
    core.fleet.membership.left_out = weakened.step;
    core.fleet.locks.leave_out(weakened.locks);
    core.fleet.transactions.leave_out(weakened.transactions, weakened.opening);
    core.fleet.clocks.is_left_out = weakened.clock;
    core.retries.multigets.mistake = weakened.multiget;
}

/// Deletes obsolete rows of locks as fast as possible, and does not wait for peers that may know
/// another mode of a table.
pub fn hurry(core: &mut Core) {
    core.fleet.transactions.trust_modes();
    core.fleet.locks.sweep.pace = Pace {
        round_ns: SECOND_NS / 4,
        page_ns: SECOND_NS / 8,
        shares_min: 1,
        rest_ns: SECOND_NS / 4,
        window_ns: 60 * SECOND_NS,
    };
}

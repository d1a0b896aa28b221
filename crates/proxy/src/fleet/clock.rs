//! How far this proxy's wall clock is behind the nodes' clocks.
//!
//! Writes of transactions have timestamps of this proxy's wall clock. If that clock is behind, rows
//! that an ordinary client wrote before, by a right clock, hide them. So each core asks nodes for
//! their time ([`question`]), and decides no transaction that writes while its clock is more than
//! [`CLOCK_BEHIND_MAX_US`] behind the nodes' median ([ADR
//! 33](../../../../docs/adr/0033-a-proxy-whose-clock-is-behind-decides-no-writes.md)).
//!
//! This must never: let a transaction be acknowledged whose write an earlier one of a client with a
//! right clock hides; take one node's word where others have told their time. A core that no node
//! has told its time yet decides no writes either.

mod estimate;
pub(crate) mod question;

use shunt_locks::Now;

use self::estimate::{Estimate, Sample};
use crate::fault::{Fault, FaultKind};
use crate::limits::{CLOCK_ASK_NS, CLOCK_ASKED_MAX, CLOCK_BEHIND_MAX_US};

/// The owner of what a core knows of the nodes' clocks.
#[derive(Default)]
pub(crate) struct NodeClocks {
    estimate: Estimate,
    /// Questions without an outcome yet.
    asked: usize,
    /// When nodes are asked next.
    next_ns: u64,
    /// The place of the node that is asked next.
    cursor: usize,
    /// The clock was too far behind when it was looked at last.
    is_behind: bool,
    /// A test leaves out that the clock is compared.
    #[cfg(feature = "weakened")]
    pub(crate) is_left_out: bool,
}

impl NodeClocks {
    /// True in a test that leaves this out: no node is asked, and nothing refused.
    fn is_left_out(&self) -> bool {
        #[cfg(feature = "weakened")]
        return self.is_left_out;
        #[cfg(not(feature = "weakened"))]
        false
    }

    /// How many nodes may be asked now.
    fn room(&self, now_ns: u64) -> usize {
        let is_due = now_ns >= self.next_ns && !self.is_left_out();
        if is_due { CLOCK_ASKED_MAX.saturating_sub(self.asked) } else { 0 }
    }

    /// A node was asked.
    fn count_asked(&mut self, now_ns: u64) {
        self.asked += 1;
        self.next_ns = now_ns + CLOCK_ASK_NS;
    }

    /// A node has told its time, or has not.
    fn learn(&mut self, sample: Option<Sample>) {
        self.asked = self.asked.saturating_sub(1);
        sample.into_iter().for_each(|sample| self.estimate.learn(sample));
    }

    /// Microseconds that the clock is behind, and whether that has become too many, or few enough,
    /// since the last call.
    fn look(&mut self, now: Now) -> (u64, bool) {
        let behind_us = self.estimate.behind_us(now.boot_ns, now.wall_us);
        let is_behind = behind_us.map_or(self.is_behind, |us| us > CLOCK_BEHIND_MAX_US);
        let has_changed = std::mem::replace(&mut self.is_behind, is_behind) != is_behind;
        (u64::try_from(behind_us.unwrap_or(0)).unwrap_or(0), has_changed)
    }

    /// Why this core decides nothing now that writes. `None`: it may.
    pub(crate) fn refusal(&self, now: Now) -> Option<Fault> {
        if self.is_left_out() {
            return None;
        }
        let why = match self.estimate.behind_us(now.boot_ns, now.wall_us) {
            Some(behind_us) if behind_us <= CLOCK_BEHIND_MAX_US => return None,
            Some(behind_us) => format!(
                "Shunt: the clock of the proxy that decides this is {} ms behind the nodes' clocks, and older writes could hide what it \
                 writes; nothing was written. Set its clock right (NTP), or stop it, so that another proxy decides",
                behind_us / 1_000
            ),
            None => "Shunt: no node has told the proxy that decides this its time lately, and its clock may be behind; nothing was written, \
                     ask again"
                .to_owned(),
        };
        Some(Fault::new(FaultKind::Unserved, why))
    }
}

//! The distance by which this proxy's wall clock is behind the nodes' clocks.
//!
//! Writes of transactions have timestamps of this proxy's wall clock. If that clock is behind, rows
//! that an ordinary client wrote before, by a right clock, hide them. So each core asks nodes for
//! their time ([`question`]), and decides no transaction that writes while its clock is more than
//! [`CLOCK_BEHIND_MAX_US`] behind the nodes' median ([ADR
//! 33](../../../../docs/adr/0033-a-proxy-whose-clock-is-behind-decides-no-writes.md)).
//!
//! A node that does not answer keeps no others from being asked ([`turns`]). A core without a
//! measurement says so in the log, the metrics and `/status`, since it refuses as well.
//!
//! This must never: let a transaction be acknowledged whose write an earlier one of a client with a
//! right clock hides; take one node's word where others have told their time. A core that no node
//! has told its time yet decides no writes either.

mod estimate;
pub(crate) mod sampling;
mod turns;

use shunt_locks::Now;
use shunt_topology::NodeId;

use self::estimate::{Estimate, Sample};
use self::turns::Turns;
use crate::fault::{Fault, FaultKind};
use crate::limits::{CLOCK_ASK_NS, CLOCK_BEHIND_MAX_US};

/// Beginnings of refusals that last for longer than a take-over. The proxy of the client, which may
/// be another and of another version, tells them from those of a take-over by these words.
const LASTING: [&str; 2] = [
    "Shunt: the clock of the proxy that decides this is ",
    "Shunt: no node has told the proxy that decides this its time lately",
];

/// True if an error says that a proxy decides nothing because of its clock. Nobody sends such a
/// request again within the second for which a take-over may last.
pub(crate) fn is_lasting_refusal(message: &str) -> bool {
    LASTING.iter().any(|beginning| message.starts_with(beginning))
}

/// State of a core's clock, for the log and the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    /// The core decides transactions that write.
    #[default]
    Right,
    /// The clock is too far behind.
    Behind,
    /// No node has told its time.
    Unmeasured,
}

/// The owner of a core's knowledge of the nodes' clocks.
#[derive(Default)]
pub(crate) struct NodeClocks {
    estimate: Estimate,
    turns: Turns,
    standing: Standing,
    /// Time at which the core first found that it knows no node's time.
    unmeasured_ns: Option<u64>,
    /// True if a test leaves out the comparison of clocks.
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

    /// The number of nodes that may be asked now.
    fn room(&self, now_ns: u64) -> usize {
        if self.is_left_out() { 0 } else { self.turns.room(now_ns) }
    }

    /// Notes whether a node that was asked at this time has answered.
    fn learn(&mut self, node: NodeId, sent_ns: u64, sample: Option<Sample>) {
        self.turns.close(node, sent_ns);
        sample.into_iter().for_each(|sample| self.estimate.learn(sample));
    }

    /// Takes a look at the clock, and logs a change for the worse or the better. Each core logs its
    /// own: it knows the nodes' time by answers of its own. Returns the microseconds that the clock
    /// is behind.
    fn show(&mut self, core: usize, now: Now) -> u64 {
        let (behind_us, before) = self.look(now);
        if self.standing == before {
            return behind_us;
        }
        let behind_ms = behind_us / 1_000;
        match self.standing {
            Standing::Behind => tracing::warn!(
                core,
                behind_ms,
                "this proxy's clock is behind the nodes': this core decides no transactions that write until the clock is right (NTP)"
            ),
            Standing::Unmeasured => tracing::warn!(
                core,
                "no node tells its time within a second: this core decides no transactions that write until one does"
            ),
            Standing::Right => tracing::info!(
                core,
                behind_ms,
                "this proxy's clock is right again: this core decides transactions"
            ),
        }
        behind_us
    }

    /// Microseconds that the clock is behind, and the core's view before this call.
    fn look(&mut self, now: Now) -> (u64, Standing) {
        let behind_us = self.estimate.behind_us(now.boot_ns, now.wall_us);
        let standing = match behind_us {
            Some(behind_us) if behind_us > CLOCK_BEHIND_MAX_US => Standing::Behind,
            Some(_) => Standing::Right,
            None => {
                let since_ns = *self.unmeasured_ns.get_or_insert(now.boot_ns);
                // A core that has just started has asked, and waits.
                let is_long = now.boot_ns.saturating_sub(since_ns) >= CLOCK_ASK_NS;
                if is_long { Standing::Unmeasured } else { self.standing }
            }
        };
        if behind_us.is_some() {
            self.unmeasured_ns = None;
        }
        let before = std::mem::replace(&mut self.standing, standing);
        (u64::try_from(behind_us.unwrap_or(0)).unwrap_or(0), before)
    }

    /// Reason why this core now decides nothing that writes, if there is one.
    pub(crate) fn refusal(&self, now: Now) -> Option<Fault> {
        if self.is_left_out() {
            return None;
        }
        let why = match self.estimate.behind_us(now.boot_ns, now.wall_us) {
            Some(behind_us) if behind_us <= CLOCK_BEHIND_MAX_US => return None,
            Some(behind_us) => format!(
                "{}{} ms behind the nodes' clocks, and older writes could hide what it writes; nothing was written. Set its clock right \
                 (NTP), or stop it, so that another proxy decides",
                LASTING[0],
                behind_us / 1_000
            ),
            None if self.standing == Standing::Unmeasured => format!(
                "{}, and its clock may be behind; nothing was written, ask again",
                LASTING[1]
            ),
            None => "Shunt: the proxy that decides this has just asked nodes for their time, since its clock may be behind; nothing was \
                     written, ask again"
                .to_owned(),
        };
        Some(Fault::new(FaultKind::Unserved, why))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Metadata, Subscriber};

    use super::*;
    use crate::limits::{CLOCK_KEPT_NS, SECOND_NS};

    /// Counts the lines of the log.
    struct Lines(Arc<AtomicUsize>);

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    fn sample(ahead_us: i64, heard_ns: u64) -> Sample {
        Sample { node: NodeId(1), ahead_us, round_trip_ns: 0, heard_ns }
    }

    /// Other cores may have heard other nodes, and find the clock right.
    #[test]
    fn each_core_logs_a_change_once() {
        let lines = Arc::new(AtomicUsize::new(0));
        let logged = || lines.load(Ordering::Relaxed);
        tracing::subscriber::with_default(Lines(Arc::clone(&lines)), || {
            for core in [0, 1] {
                let (mut clocks, before) = (NodeClocks::default(), logged());
                clocks.learn(NodeId(1), 0, Some(sample(2 * CLOCK_BEHIND_MAX_US, 0)));
                (0..3).for_each(|second| _ = clocks.show(core, at(second * SECOND_NS)));
                assert_eq!(logged(), before + 1, "core {core} is behind");
                clocks.learn(NodeId(1), 0, Some(sample(0, SECOND_NS)));
                (3..6).for_each(|second| _ = clocks.show(core, at(second * SECOND_NS)));
                assert_eq!(logged(), before + 2, "core {core} is right again");
            }
        });
    }

    #[test]
    fn a_refusal_lasts_unless_the_first_answers_are_under_way() {
        let mut clocks = NodeClocks::default();
        let lasts = |clocks: &NodeClocks, now_ns| {
            clocks.refusal(at(now_ns)).map(|fault| is_lasting_refusal(&fault.why))
        };
        clocks.look(at(0));
        assert_eq!(lasts(&clocks, 0), Some(false));
        clocks.look(at(CLOCK_ASK_NS));
        assert_eq!(lasts(&clocks, CLOCK_ASK_NS), Some(true));
        clocks.learn(NodeId(1), 0, Some(sample(0, CLOCK_ASK_NS)));
        assert_eq!(lasts(&clocks, CLOCK_ASK_NS), None);
        clocks.learn(NodeId(1), 0, Some(sample(2 * CLOCK_BEHIND_MAX_US, CLOCK_ASK_NS)));
        assert_eq!(lasts(&clocks, CLOCK_ASK_NS), Some(true));
    }

    fn at(boot_ns: u64) -> Now {
        Now { boot_ns, wall_us: i64::try_from(boot_ns / 1_000).expect("a time") }
    }

    #[test]
    fn a_core_that_no_node_has_told_its_time_shows_that_it_refuses() {
        let mut clocks = NodeClocks::default();
        let look = |clocks: &mut NodeClocks, now_ns| {
            let before = clocks.look(at(now_ns)).1;
            (before, clocks.standing, clocks.refusal(at(now_ns)).is_some())
        };
        let start_ns = 7 * CLOCK_KEPT_NS;
        assert_eq!(look(&mut clocks, start_ns), (Standing::Right, Standing::Right, true));
        let late_ns = start_ns + CLOCK_ASK_NS;
        assert_eq!(look(&mut clocks, late_ns), (Standing::Right, Standing::Unmeasured, true));
        clocks.learn(NodeId(1), start_ns, Some(sample(0, late_ns)));
        assert_eq!(look(&mut clocks, late_ns), (Standing::Unmeasured, Standing::Right, false));
        let lost_ns = late_ns + CLOCK_KEPT_NS + 1;
        clocks.estimate.expire(lost_ns);
        assert_eq!(look(&mut clocks, lost_ns), (Standing::Right, Standing::Right, true));
        let late_ns = lost_ns + CLOCK_ASK_NS;
        assert_eq!(look(&mut clocks, late_ns), (Standing::Right, Standing::Unmeasured, true));
    }
}

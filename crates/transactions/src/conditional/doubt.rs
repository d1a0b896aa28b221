//! Doubts about rows of tables with the mode `observe`, which nodes write: when the outcome of a
//! statement can be compared, and when a row may be kept.
//!
//! - The effect of a failed statement is unknown: its coordinator may still be trying, and apply it
//!   after later statements.
//! - Nodes compare timestamps of their own clocks. A timestamp in the future hides later writes,
//!   and so, briefly, may a plain write through the node with the fastest clock.

use std::collections::HashMap;

use crate::{Partition, SECOND_NS};

/// Time for which a node may go on trying a statement that has failed.
const UNKNOWN_NS: u64 = 15 * SECOND_NS;
/// Largest clock skew assumed between nodes.
const APART_NS: u64 = SECOND_NS;

/// Times by the boot-time clock; 0 without a doubt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubt {
    /// Statements on the row are not compared before this time.
    pub compares_from_ns: u64,
    /// The row has to be read each time before this time.
    pub keeps_from_ns: u64,
}

impl Doubt {
    /// The doubt after a statement with unknown effect.
    pub fn of_unknown(now_ns: u64) -> Doubt {
        let until_ns = now_ns.saturating_add(UNKNOWN_NS);
        Doubt { compares_from_ns: until_ns, keeps_from_ns: until_ns }
    }

    /// The doubt after a write without a condition and with this timestamp.
    pub fn of_plain(timestamp_us: i64, wall_us: i64, now_ns: u64) -> Doubt {
        let ahead_ns =
            u64::try_from(timestamp_us.saturating_sub(wall_us)).unwrap_or(0).saturating_mul(1_000);
        let keeps_from_ns = now_ns.saturating_add(ahead_ns).saturating_add(APART_NS);
        Doubt { compares_from_ns: 0, keeps_from_ns }
    }

    /// The doubt about a row with a value of this timestamp.
    pub fn of_latest(timestamp_us: i64, wall_us: i64, now_ns: u64) -> Doubt {
        if timestamp_us <= wall_us {
            Doubt::default()
        } else {
            Doubt::of_plain(timestamp_us, wall_us, now_ns)
        }
    }

    /// Both doubts.
    pub fn and(self, other: Doubt) -> Doubt {
        Doubt {
            compares_from_ns: self.compares_from_ns.max(other.compares_from_ns),
            keeps_from_ns: self.keeps_from_ns.max(other.keeps_from_ns),
        }
    }
}

/// Number of statements with unknown effect, by table.
#[derive(Debug, Default)]
pub struct Doubts {
    of: HashMap<Partition, u64>,
    others: u64,
}

/// Tables that are counted separately.
const TABLES_MAX: usize = 4_096;

impl Doubts {
    /// Counts a statement on a table.
    pub fn add(&mut self, table: Partition) {
        if self.of.len() >= TABLES_MAX && !self.of.contains_key(&table) {
            self.others += self.of.drain().map(|(_, count)| count).sum::<u64>();
        }
        *self.of.entry(table).or_default() += 1;
    }

    /// A number that changes with each statement on the table.
    pub fn count(&self, table: Partition) -> u64 {
        self.others + self.of.get(&table).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_in_doubt_for_as_long_as_clocks_and_coordinators_may_take() {
        let now_ns = 100 * SECOND_NS;
        let unknown = Doubt::of_unknown(now_ns);
        assert_eq!(
            (unknown.compares_from_ns, unknown.keeps_from_ns),
            (115 * SECOND_NS, 115 * SECOND_NS)
        );
        for (timestamp_us, keeps_from_ns) in [
            (5, 101 * SECOND_NS),
            (1_000_000, 101 * SECOND_NS),
            (4_000_000, 104 * SECOND_NS),
            (i64::MIN, 101 * SECOND_NS),
            (i64::MAX, u64::MAX),
        ] {
            let plain = Doubt::of_plain(timestamp_us, 1_000_000, now_ns);
            assert_eq!(plain, Doubt { compares_from_ns: 0, keeps_from_ns }, "{timestamp_us}");
            let is_ahead = timestamp_us > 1_000_000;
            let latest = Doubt::of_latest(timestamp_us, 1_000_000, now_ns);
            assert_eq!(latest, if is_ahead { plain } else { Doubt::default() }, "{timestamp_us}");
        }
        let both = unknown.and(Doubt::of_plain(31_000_000, 1_000_000, now_ns));
        assert_eq!((both.compares_from_ns, both.keeps_from_ns), (115 * SECOND_NS, 131 * SECOND_NS));
    }

    #[test]
    fn doubts_of_one_table_are_none_of_another_unless_there_are_too_many() {
        let (mut doubts, table) = (Doubts::default(), |number: usize| Partition(number as u128));
        doubts.add(table(0));
        assert_eq!((doubts.count(table(0)), doubts.count(table(1))), (1, 0));
        for number in 1..=TABLES_MAX {
            let before = doubts.count(table(number));
            doubts.add(table(number));
            assert!(doubts.count(table(number)) > before && doubts.of.len() <= TABLES_MAX);
        }
        assert!(doubts.count(table(0)) >= 1 && doubts.count(table(TABLES_MAX + 1)) > 0);
    }
}

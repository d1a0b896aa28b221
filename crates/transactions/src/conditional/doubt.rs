//! What is in doubt about a row of a table with the mode `observe`, which nodes write: when
//! statements on it say something, and when it may be kept.
//!
//! - Nobody knows what has come of a statement that failed: its coordinator may be trying still,
//!   and carry it out behind those that come next.
//! - Nodes decide by their own clocks which of two writes is the later one. One in the future hides
//!   what is applied behind it; and so, for a moment, may a plain write that the node with the
//!   fastest clock has taken.

use std::collections::HashMap;

use crate::Partition;

use crate::SECOND_NS;

/// How long a node may be trying to carry out a statement that has failed.
const UNKNOWN_NS: u64 = 15 * SECOND_NS;
/// So far nodes' clocks may be apart, as they are kept.
const APART_NS: u64 = SECOND_NS;

/// Times by the boot-time clock; 0 where nothing is in doubt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubt {
    /// Before that nothing is said of what is asked of the row.
    pub compares_from_ns: u64,
    /// Before that it has to be read each time.
    pub keeps_from_ns: u64,
}

impl Doubt {
    /// Nobody knows what has come of a statement.
    pub fn of_unknown(now_ns: u64) -> Doubt {
        let until_ns = now_ns.saturating_add(UNKNOWN_NS);
        Doubt { compares_from_ns: until_ns, keeps_from_ns: until_ns }
    }

    /// It was written to without a condition, with this timestamp.
    pub fn of_plain(timestamp_us: i64, wall_us: i64, now_ns: u64) -> Doubt {
        let ahead_ns =
            u64::try_from(timestamp_us.saturating_sub(wall_us)).unwrap_or(0).saturating_mul(1_000);
        let keeps_from_ns = now_ns.saturating_add(ahead_ns).saturating_add(APART_NS);
        Doubt { compares_from_ns: 0, keeps_from_ns }
    }

    /// A value with this timestamp was found in it.
    pub fn of_latest(timestamp_us: i64, wall_us: i64, now_ns: u64) -> Doubt {
        if timestamp_us <= wall_us {
            Doubt::default()
        } else {
            Doubt::of_plain(timestamp_us, wall_us, now_ns)
        }
    }

    /// Both.
    pub fn and(self, other: Doubt) -> Doubt {
        Doubt {
            compares_from_ns: self.compares_from_ns.max(other.compares_from_ns),
            keeps_from_ns: self.keeps_from_ns.max(other.keeps_from_ns),
        }
    }
}

/// How often statements were sent of which nobody knows what they change, by what stands for their
/// tables.
#[derive(Debug, Default)]
pub struct Doubts {
    of: HashMap<Partition, u64>,
    others: u64,
}

/// Tables of which it is counted; beyond that it is counted of all.
const TABLES_MAX: usize = 4_096;

impl Doubts {
    pub fn add(&mut self, table: Partition) {
        if self.of.len() >= TABLES_MAX && !self.of.contains_key(&table) {
            self.others += self.of.drain().map(|(_, count)| count).sum::<u64>();
        }
        *self.of.entry(table).or_default() += 1;
    }

    /// Another number than before the last that was added of this table.
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

//! Attempts to make writes of committed transactions: since when each fails, on which table, and
//! why.
//!
//! Writes are repeated until they are made. One is given up only if every attempt for
//! [`REFUSED_FOR_NS`] was refused as invalid, or found that the table is gone: a node that says so
//! once may not know the schema yet.

use std::collections::HashMap;

use shunt_locks::Written;
use shunt_transactions::Refused;
use shunt_wire::printable::printable_to;

use crate::limits::{self, SECOND_NS};
use crate::transactions::part::OneWrite;

/// Time for which a write must be refused each time before it is given up.
const REFUSED_FOR_NS: u64 = 30 * SECOND_NS;
/// Age at which an outstanding write is shown.
const SHOWN_AFTER_NS: u64 = 5 * SECOND_NS;
/// Interval of the warning that there are such writes.
const SAID_EVERY_NS: u64 = 60 * SECOND_NS;
/// Tables that are shown.
const SHOWN_MAX: usize = 10;

/// One outstanding write.
struct Trial {
    since_ns: u64,
    /// Start of an unbroken series of refusals.
    refused_since_ns: Option<u64>,
    /// The table, with the keyspace.
    table: Box<str>,
    why: Box<str>,
}

/// A failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt<'a> {
    /// The table, with its keyspace.
    pub(crate) table: &'a str,
    pub(crate) written: Written,
    /// The write was refused: its table or column is gone.
    pub(crate) is_refused: bool,
    pub(crate) why: &'a str,
}

/// A table with writes that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmade {
    /// The name, with its keyspace.
    pub table: String,
    /// Number of writes.
    pub writes: u64,
    /// Age of the oldest, milliseconds.
    pub since_ms: u64,
    /// Result of the last attempt at one of them.
    pub why: String,
    /// A former owner left them: no transaction of the shard is carried out before they are made.
    pub is_found: bool,
}

/// Outstanding writes of a core.
#[derive(Default)]
pub(crate) struct Trials {
    of: HashMap<OneWrite, Trial>,
    /// Time of the last warning.
    said_ns: u64,
}

impl Trials {
    /// Drops writes that are no longer needed. Visits all.
    pub(crate) fn forget(&mut self, is_over: impl Fn(OneWrite) -> bool) {
        if !self.of.is_empty() {
            self.of.retain(|write, _| !is_over(*write));
        }
    }

    /// Drops a write that was made, or is no longer needed.
    pub(crate) fn made(&mut self, write: OneWrite) {
        if !self.of.is_empty() {
            self.of.remove(&write);
        }
    }

    /// Notes a failed attempt.
    pub(crate) fn failed(
        &mut self,
        write: OneWrite,
        attempt: &Attempt<'_>,
        now_ns: u64,
    ) -> Result<Written, Refused> {
        let trial = self.of.entry(write).or_insert_with(|| Trial {
            since_ns: now_ns,
            refused_since_ns: None,
            table: attempt.table.into(),
            why: Box::default(),
        });
        if *trial.why != *attempt.why {
            trial.why = printable_to(attempt.why, limits::NAME_SHOWN_BYTES_MAX).into();
        }
        trial.refused_since_ns =
            attempt.is_refused.then(|| trial.refused_since_ns.unwrap_or(now_ns));
        let is_final = trial
            .refused_since_ns
            .is_some_and(|since_ns| now_ns.saturating_sub(since_ns) >= REFUSED_FOR_NS);
        if is_final {
            self.of.remove(&write);
            return Err(Refused::ForGood);
        }
        if attempt.is_refused { Err(Refused::ForNow) } else { Ok(attempt.written) }
    }

    /// Number of writes that are shown.
    pub(crate) fn count(&self, now_ns: u64) -> usize {
        self.of.values().filter(|trial| is_shown(trial, now_ns)).count()
    }

    /// Tables to warn about, if it is time.
    pub(crate) fn due(&mut self, now_ns: u64) -> Vec<Unmade> {
        if self.of.is_empty() || now_ns.saturating_sub(self.said_ns) < SAID_EVERY_NS {
            return Vec::new();
        }
        let shown = self.outstanding(now_ns);
        if !shown.is_empty() {
            self.said_ns = now_ns;
        }
        shown
    }

    /// Tables with such writes, oldest first.
    pub(crate) fn outstanding(&self, now_ns: u64) -> Vec<Unmade> {
        let mut tables: HashMap<(&str, bool), Unmade> = HashMap::new();
        for (write, trial) in self.of.iter().filter(|(_, trial)| is_shown(trial, now_ns)) {
            let is_found = matches!(write, OneWrite::Found { .. });
            let since_ms = now_ns.saturating_sub(trial.since_ns) / 1_000_000;
            let one = tables.entry((&trial.table, is_found)).or_insert_with(|| Unmade {
                table: trial.table.to_string(),
                writes: 0,
                since_ms: 0,
                why: String::new(),
                is_found,
            });
            one.writes += 1;
            if since_ms >= one.since_ms {
                (one.since_ms, one.why) = (since_ms, trial.why.to_string());
            }
        }
        let mut shown: Vec<Unmade> = tables.into_values().collect();
        oldest(&mut shown);
        shown
    }
}

fn is_shown(trial: &Trial, now_ns: u64) -> bool {
    now_ns.saturating_sub(trial.since_ns) >= SHOWN_AFTER_NS
}

/// Keeps the tables with the oldest writes.
pub(crate) fn oldest(tables: &mut Vec<Unmade>) {
    tables.sort_by(|a, b| b.since_ms.cmp(&a.since_ms).then_with(|| a.table.cmp(&b.table)));
    tables.truncate(SHOWN_MAX);
}

#[cfg(test)]
mod tests {
    use shunt_transactions::{Claim, Place};

    use super::*;

    fn write(number: u16) -> OneWrite {
        OneWrite::Found { claim: Claim(1), place: Place::default(), write: number }
    }

    const GONE: Attempt<'static> =
        Attempt { table: "ks.t", written: Written::NotSent, is_refused: true, why: "it is gone" };
    const DOWN: Attempt<'static> = Attempt {
        table: "ks.t",
        written: Written::NotSent,
        is_refused: false,
        why: "too few replicas",
    };

    /// A node may not know the schema yet: one that says otherwise in between, or nothing, is
    /// believed.
    #[test]
    fn a_write_is_given_up_when_it_was_refused_each_time_for_long_and_not_before() {
        let mut trials = Trials::default();
        let mut at = |second: u64, attempt: &Attempt<'_>| {
            trials.failed(write(0), attempt, second * SECOND_NS)
        };
        let (refused, not_sent) = (Err(Refused::ForNow), Ok(Written::NotSent));
        for (second, attempt, outcome) in [
            (1, &GONE, refused),
            (30, &GONE, refused),
            (31, &DOWN, not_sent),
            (32, &GONE, refused),
            (61, &GONE, refused),
        ] {
            assert_eq!(at(second, attempt), outcome, "at {second}");
        }
        assert_eq!(at(62, &GONE), Err(Refused::ForGood));
        assert_eq!(at(63, &GONE), refused, "another with this name");
    }

    #[test]
    fn long_attempts_are_shown_by_table_and_the_oldest_first() {
        let mut trials = Trials::default();
        for (number, table, second) in
            [(0, "ks.b", 3), (1, "ks.a", 2), (2, "ks.b", 1), (3, "ks.c", 9)]
        {
            let attempt = Attempt { table, ..DOWN };
            assert_eq!(
                trials.failed(write(number), &attempt, second * SECOND_NS),
                Ok(Written::NotSent)
            );
        }
        let now_ns = 10 * SECOND_NS;
        let shown = trials.outstanding(now_ns);
        let short: Vec<_> =
            shown.iter().map(|one| (one.table.as_str(), one.writes, one.since_ms)).collect();
        assert_eq!(short, [("ks.b", 2, 9_000), ("ks.a", 1, 8_000)]);
        let say = |trials: &mut Trials, second: u64| trials.due(second * SECOND_NS).len();
        let said = [say(&mut trials, 100), say(&mut trials, 159), say(&mut trials, 160)];
        assert_eq!(said, [3, 0, 3], "once a minute");
        assert!(
            shown[0].is_found && shown[0].why == "too few replicas" && trials.count(now_ns) == 3
        );
        trials.made(write(2));
        trials.forget(|one| one.number() == 1);
        assert_eq!(trials.outstanding(now_ns).len(), 1);
    }
}

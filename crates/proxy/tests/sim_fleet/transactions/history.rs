//! Clients' requests and answers, and the conditions that they must meet.

use super::checker::{self, Fate, INITIALLY, Seen, Summary, Transaction};
use super::spec::{ACCOUNTS, BALANCE, RowOf, SHIFTS, Spec};

/// A row in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub version: i64,
    pub writer: i64,
    pub value: i64,
}

/// A client's answer.
#[derive(Clone, Debug)]
pub enum Ending {
    /// Done. `applied`: whether it has written; `None` if the answer does not say.
    Done { found: Vec<Found>, applied: Option<bool> },
    /// Not done: nothing was written.
    NotDone,
    /// The outcome is unknown.
    InDoubt,
}

/// A requested transaction.
#[derive(Clone, Debug)]
pub struct Asked {
    pub spec: Spec,
    pub asked_ns: u64,
    /// Time and kind of its end.
    pub ending: Option<(u64, Ending)>,
}

/// The transactions; the number that one writes is its place from 1 on.
#[derive(Default)]
pub struct History {
    pub asked: Vec<Asked>,
}

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub applied: usize,
    pub read: usize,
    pub not_done: usize,
    pub in_doubt: usize,
}

impl Asked {
    /// True if it is done and has written.
    fn has_written(&self) -> Option<bool> {
        match &self.ending {
            Some((_, Ending::Done { found, applied })) => {
                let values: Vec<i64> = found.iter().map(|found| found.value).collect();
                let holds = self.spec.conditions.is_empty()
                    || self.spec.returns && self.spec.holds(&values);
                Some(applied.unwrap_or(!self.spec.writes.is_empty() && holds))
            }
            _ => None,
        }
    }
}

impl History {
    /// Notes a request. Returns the number that it writes.
    pub fn ask(&mut self, asked_ns: u64, spec: Spec) -> i64 {
        self.asked.push(Asked { spec, asked_ns, ending: None });
        self.asked.len() as i64
    }

    pub fn of(&self, writer: i64) -> &Asked {
        &self.asked[writer as usize - 1]
    }

    /// Notes an answer, or the lack of one. Returns the violation if the answer is wrong by itself.
    pub fn end(&mut self, writer: i64, now_ns: u64, ending: Ending) -> Option<String> {
        let asked = &mut self.asked[writer as usize - 1];
        if let Some(before) = asked.ending.replace((now_ns, ending)) {
            return Some(format!("transaction {writer} was answered twice: {before:?}, {asked:?}"));
        }
        let wrong = wrong(asked).or_else(|| self.wrong_holder(writer));
        let asked = self.of(writer);
        wrong.map(|what| format!("transaction {writer}: {what}: {asked:?}"))
    }

    /// Checks that a lease has the holder that its last writer has left.
    fn wrong_holder(&self, writer: i64) -> Option<String> {
        let Asked { spec, ending: Some((_, Ending::Done { found, .. })), .. } = self.of(writer)
        else {
            return None;
        };
        let found = found.first().filter(|found| spec.expects.is_some() && found.writer > 0)?;
        let holder = self.of(found.writer).spec.holder();
        (holder != Some(found.value))
            .then(|| format!("{found:?}, and its writer has left {holder:?}"))
    }

    /// Checks, at the end, that all answers are consistent.
    ///
    /// # Errors
    /// The first inconsistency.
    pub fn check(&self) -> Result<Summary, String> {
        let transactions: Vec<Transaction> = self.asked.iter().map(transaction).collect();
        checker::check(&transactions).map_err(|what| {
            let of = |index: &usize| what.contains(&format!("#{index} "));
            let shown = (0..self.asked.len())
                .filter(of)
                .map(|index| format!("\n#{index} {:?}", self.asked[index]));
            format!("{what}{}", shown.collect::<String>())
        })
    }

    /// Returns whether a transaction was reported as written; `None` if unknown.
    pub fn was_written(&self, writer: i64) -> Option<bool> {
        let asked = self.of(writer);
        match asked.ending {
            Some((_, Ending::NotDone)) => Some(false),
            _ => asked.has_written(),
        }
    }

    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for asked in &self.asked {
            *match (&asked.ending, asked.has_written()) {
                (_, Some(true)) => &mut counts.applied,
                (_, Some(false)) => &mut counts.read,
                (Some((_, Ending::NotDone)), _) => &mut counts.not_done,
                _ => &mut counts.in_doubt,
            } += 1;
        }
        counts
    }
}

/// The error of an answer by itself: totals, pairs without a member on call, conditions.
fn wrong(asked: &Asked) -> Option<String> {
    let Some((_, Ending::Done { found, applied })) = &asked.ending else { return None };
    let spec = &asked.spec;
    if found.len() != if spec.returns { spec.reads.len() } else { 0 } {
        return Some("it has not answered what it reads".to_owned());
    }
    let value = |row: RowOf| Some(found[spec.reads.iter().position(|read| *read == row)?].value);
    let row = |number: usize| RowOf { keyspace: spec.keyspace, number };
    if !found.is_empty() {
        let values: Option<Vec<i64>> = (0..ACCOUNTS).map(|number| value(row(number))).collect();
        if let Some(total) = values.map(|values| values.iter().sum::<i64>())
            && total != ACCOUNTS as i64 * BALANCE
        {
            return Some(format!("the total is {total}"));
        }
        for pair in (ACCOUNTS..ACCOUNTS + SHIFTS).step_by(2) {
            if let (Some(0), Some(0)) = (value(row(pair)), value(row(pair + 1))) {
                return Some("nobody is on call".to_owned());
            }
        }
        if let Some(found) =
            found.iter().zip(&spec.reads).find(|(found, row)| row.is_account() && found.value < 0)
        {
            return Some(format!("an account is overdrawn: {found:?}"));
        }
        let values: Vec<i64> = found.iter().map(|found| found.value).collect();
        let holds = spec.expects.map_or_else(|| spec.holds(&values), |expects| found[0] == expects);
        let writes = !spec.writes.is_empty() && holds;
        if applied.is_some_and(|applied| applied != writes) {
            return Some("it has written, and should not have, or the other way round".to_owned());
        }
    }
    None
}

/// Converts it for the checker.
fn transaction(asked: &Asked) -> Transaction {
    let writes: Vec<u32> = asked.spec.writes.iter().map(|(row, _)| row.index()).collect();
    let (fate, reads, writes) = match &asked.ending {
        Some((at_ns, Ending::Done { found, .. })) => {
            let reads = found.iter().zip(&asked.spec.reads).map(|(found, row)| {
                let writer = if found.writer == 0 { INITIALLY } else { found.writer as usize - 1 };
                Seen { key: row.index(), version: found.version, writer }
            });
            let writes = if asked.has_written() == Some(true) { writes } else { Vec::new() };
            (Fate::Done(*at_ns), reads.collect(), writes)
        }
        Some((_, Ending::NotDone)) => (Fate::NotDone, Vec::new(), writes),
        Some((_, Ending::InDoubt)) | None => (Fate::Unknown, Vec::new(), writes),
    };
    Transaction { asked_ns: asked.asked_ns, fate, reads, writes }
}

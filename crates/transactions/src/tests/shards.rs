//! State that each shard has of its own: limits, a log, and low marks.

use shunt_locks::{Lease, Now, Written};

use crate::engine::opening::Opened;
use crate::engine::types::{
    Begin, Decision, Effects, Limits, Mode, NotExecuted, Outcome, Partition, Ticket, TransactionId,
};
use crate::{BUCKET_RECORDS, Claim, Generation, Place, Position, Transactions};

const NOW: Now = Now { boot_ns: 0, wall_us: 0 };

#[derive(Default)]
pub(super) struct Said {
    pub(super) locked: Vec<TransactionId>,
    pub(super) replies: Vec<Outcome>,
    appends: Vec<(u8, Place)>,
    lows: Vec<(u8, Generation, Position)>,
    deletes: Vec<(u8, Generation, u64)>,
}

impl Effects for Said {
    fn locked(&mut self, transaction: TransactionId, _: Ticket) {
        self.locked.push(transaction);
    }
    fn reply(&mut self, _: Ticket, outcome: Outcome) {
        self.replies.push(outcome);
    }
    fn append(&mut self, _: TransactionId, shard: u8, place: Place, _: i64) {
        self.appends.push((shard, place));
    }
    fn apply(&mut self, _: TransactionId, _: u16, _: i64) {}
    fn write_unlogged(&mut self, _: TransactionId, _: i64) {}
    fn forget(&mut self, _: TransactionId) {}
    fn write_low(&mut self, shard: u8, generation: Generation, low: Position) {
        self.lows.push((shard, generation, low));
    }
    fn delete_bucket(&mut self, shard: u8, generation: Generation, bucket: u64) {
        self.deletes.push((shard, generation, bucket));
    }
}

/// With shards 1 and 2, open in generation 5.
pub(super) fn serving(limits: Limits, said: &mut Said) -> Transactions {
    let mut transactions = Transactions::new(limits);
    transactions.set_lease(NOW, Lease { valid_until_ns: u64::MAX, ts_limit_us: i64::MAX }, said);
    for shard in [1, 2] {
        gain(&mut transactions, shard, 5, said);
    }
    transactions
}

fn gain(transactions: &mut Transactions, shard: u8, generation: u64, said: &mut Said) {
    let claim = Claim(u128::from(generation));
    transactions.gain(shard, 0, claim);
    let opened = Opened { shard, claim, generation: Generation(generation), last_timestamp_us: 40 };
    assert!(transactions.open_shard(opened, said));
}

/// A transaction with one write whose record is under way, or was refused.
fn record(transactions: &mut Transactions, shard: u8, said: &mut Said) -> Option<TransactionId> {
    let partitions = [(Partition(transactions.arrivals.into()), Mode::Exclusive)];
    let asked = Begin { ticket: Ticket(0), shard, partitions: &partitions, deadline_ms: 1_000 };
    let id = transactions.begin(NOW, &asked, said)?;
    let before = said.appends.len();
    transactions.decided(NOW, id, Decision::Write(1), said);
    (said.appends.len() > before).then_some(id)
}

fn finish(transactions: &mut Transactions, id: TransactionId, said: &mut Said) {
    transactions.appended(NOW, id, Written::Acknowledged, said);
    transactions.applied(NOW, id, 0, Ok(Written::Acknowledged), said);
}

#[test]
fn no_shard_takes_all_records_and_all_together_no_more_than_there_may_be() {
    let mut said = Said::default();
    let limits = Limits { records: 3, records_of_shard: 2, ..Limits::default() };
    let mut transactions = serving(limits, &mut said);
    let first = record(&mut transactions, 1, &mut said).expect("room");
    assert!(
        record(&mut transactions, 1, &mut said).is_some()
            && record(&mut transactions, 1, &mut said).is_none()
    );
    assert!(
        record(&mut transactions, 2, &mut said).is_some()
            && record(&mut transactions, 2, &mut said).is_none()
    );
    assert_eq!(said.replies, [Outcome::NotExecuted(NotExecuted::Many); 2]);
    finish(&mut transactions, first, &mut said);
    assert!(record(&mut transactions, 2, &mut said).is_some());
    assert_eq!(transactions.open_records(), 3);
}

#[test]
fn a_shard_that_comes_back_has_a_log_of_its_own_whatever_is_left_of_the_former() {
    let mut said = Said::default();
    let mut transactions = serving(Limits::default(), &mut said);
    let [committed, recording] =
        [0, 1].map(|_| record(&mut transactions, 1, &mut said).expect("room"));
    transactions.appended(NOW, committed, Written::Acknowledged, &mut said);
    transactions.lose(1, &mut said);
    assert_eq!(
        (said.replies.as_slice(), transactions.open_records()),
        (&[Outcome::InDoubt][..], 1)
    );
    gain(&mut transactions, 1, 8, &mut said);
    transactions.appended(NOW, recording, Written::Acknowledged, &mut said);
    let next = record(&mut transactions, 1, &mut said).expect("room");
    let place = Place { generation: Generation(8), position: Position(0) };
    assert_eq!(said.appends.last(), Some(&(1, place)));
    transactions.applied(NOW, committed, 0, Ok(Written::Acknowledged), &mut said);
    assert!(
        matches!(said.replies[..], [_, Outcome::Committed { timestamp_us: 41 }]),
        "{:?}",
        said.replies
    );
    transactions.tell_lows(&mut said);
    assert_eq!(said.lows, [], "the first place of the new log is not done with");
    finish(&mut transactions, next, &mut said);
    transactions.tell_lows(&mut said);
    assert_eq!(
        (said.lows, transactions.open_records()),
        (vec![(1, Generation(8), Position(1))], 0)
    );
}

#[test]
fn partitions_of_the_log_are_deleted_by_whoever_has_the_shard_still() {
    let mut said = Said::default();
    let mut transactions = serving(Limits::default(), &mut said);
    for _ in 0..=BUCKET_RECORDS {
        for shard in [1, 2] {
            let id = record(&mut transactions, shard, &mut said).expect("room");
            finish(&mut transactions, id, &mut said);
        }
    }
    transactions.tell_lows(&mut said);
    transactions.tell_lows(&mut said);
    let low = Position(BUCKET_RECORDS + 1);
    assert_eq!(said.lows, [(1, Generation(5), low), (2, Generation(5), low)]);
    transactions.lose(2, &mut said);
    gain(&mut transactions, 2, 7, &mut said);
    for shard in [1, 2] {
        assert_eq!(said.deletes, [(1, Generation(5), 0)][..usize::from(shard - 1)]);
        transactions.low_written(shard, Generation(5), low, Written::Acknowledged, &mut said);
    }
    assert_eq!(said.deletes, [(1, Generation(5), 0)]);
}

//! Transactions that are one write, without a record; and records that are confirmed.

use shunt_locks::{Lease, Now, Written};

use crate::engine::opening::Opened;
use crate::engine::types::{
    Begin, Decision, Effects, Limits, Mode, NotExecuted, Outcome, Partition, Ticket, TransactionId,
};
use crate::{Claim, Generation, Place, Position, Refused, Transactions, no_lease};

const NOW: Now = Now { boot_ns: 0, wall_us: 50 };
const LATER: Now = Now { boot_ns: 2_000, wall_us: 51 };
const KEY: Partition = Partition(7);

#[derive(Default)]
struct Said {
    locked: Vec<TransactionId>,
    replies: Vec<Outcome>,
    unlogged: Vec<(TransactionId, i64)>,
    /// Records, and where they go.
    appended: Vec<(TransactionId, Place)>,
    /// Writes of what is committed by a record.
    applied: usize,
    forgotten: usize,
}

impl Effects for Said {
    fn locked(&mut self, transaction: TransactionId, _: Ticket) {
        self.locked.push(transaction);
    }
    fn reply(&mut self, _: Ticket, outcome: Outcome) {
        self.replies.push(outcome);
    }
    fn append(&mut self, id: TransactionId, _: u8, place: Place, _: i64) {
        self.appended.push((id, place));
    }
    fn apply(&mut self, _: TransactionId, _: u16, _: i64) {
        self.applied += 1;
    }
    fn write_unlogged(&mut self, id: TransactionId, timestamp_us: i64) {
        self.unlogged.push((id, timestamp_us));
    }
    fn forget(&mut self, _: TransactionId) {
        self.forgotten += 1;
    }
    fn write_low(&mut self, _: u8, _: Generation, _: Position) {}
    fn delete_bucket(&mut self, _: u8, _: Generation, _: u64) {}
}

/// One that is being written, and one that waits for the same.
fn two() -> (Transactions, Said, [TransactionId; 2]) {
    let (mut transactions, mut said, ids) = two_undecided();
    transactions.decided(NOW, ids[0], Decision::Unlogged(3), &mut said);
    assert_eq!((&said.unlogged[..], &said.appended[..]), (&[(ids[0], 61)][..], &[][..]));
    (transactions, said, ids)
}

fn two_undecided() -> (Transactions, Said, [TransactionId; 2]) {
    let mut said = Said::default();
    let mut transactions = Transactions::new(Limits::default());
    transactions.set_lease(NOW, Lease { valid_until_ns: 1_000, ts_limit_us: 1_000 }, &mut said);
    let claim = Claim(3);
    transactions.gain(1, 0, claim);
    let opened = Opened { shard: 1, claim, generation: Generation(3), last_timestamp_us: 60 };
    assert!(transactions.open_shard(opened, &mut said));
    let asked = Begin {
        ticket: Ticket(0),
        shard: 1,
        partitions: &[(KEY, Mode::Exclusive)],
        deadline_ms: 1,
    };
    let ids = [(); 2].map(|()| transactions.begin(NOW, &asked, &mut said).expect("room"));
    assert_eq!(said.locked, [ids[0]]);
    (transactions, said, ids)
}

#[test]
fn a_write_acknowledged_within_the_lease_is_committed_and_the_next_is_later() {
    let (mut transactions, mut said, [first, second]) = two();
    assert!(!transactions.is_idle(1));
    assert!(transactions.unlogged_written(NOW, first, Ok(Written::Acknowledged), &mut said));
    assert_eq!(said.replies, [Outcome::Committed { timestamp_us: 61 }]);
    assert_eq!((transactions.counters().unlogged, transactions.open_records()), (1, 0));
    assert!(
        !transactions.unlogged_written(NOW, first, Ok(Written::Acknowledged), &mut said),
        "it has ended"
    );
    assert_eq!(said.locked, [first, second]);
    assert!(
        transactions.raise(NOW, 1, 100) && !transactions.raise(NOW, 1, 1_000),
        "that is further than the lease allows"
    );
    transactions.decided(NOW, second, Decision::Unlogged(1), &mut said);
    assert_eq!(said.unlogged[1], (second, 101));
}

/// A client that writes to its own table can choose any timestamp; all keyspaces of the shard, and
/// the next lease, go by its clock.
#[test]
fn a_row_from_the_future_moves_the_clock_no_further_than_clocks_may_be_apart() {
    let (mut transactions, mut said, [first, second]) = two();
    assert!(transactions.unlogged_written(NOW, first, Ok(Written::Acknowledged), &mut said));
    let second_us = 1_000_000;
    let limit_us = |now: Now| now.wall_us + 12 * second_us;
    let mut now = NOW;
    for _ in 0..10 {
        let lease = Lease { valid_until_ns: u64::MAX, ts_limit_us: limit_us(now) };
        transactions.set_lease(now, lease, &mut said);
        let before = transactions.last_timestamp_us(1);
        assert!(
            !transactions.raise(now, 1, now.wall_us + 11 * second_us),
            "as far as the lease allows"
        );
        assert!(!transactions.raise(now, 1, now.wall_us + second_us + 1));
        assert_eq!(transactions.last_timestamp_us(1), before);
        // A clock that is ahead by as much as those of nodes are.
        assert!(transactions.raise(now, 1, now.wall_us + second_us));
        assert_eq!(transactions.last_timestamp_us(1), now.wall_us + second_us);
        now.wall_us += 2 * second_us;
    }
    // What a former owner's clock has come to is where this one began: rows of its are no news.
    let claim = Claim(4);
    transactions.gain(2, limit_us(now), claim);
    for (ahead_us, is_known) in
        [(11 * second_us, true), (12 * second_us, true), (12 * second_us + 1, false)]
    {
        assert_eq!(transactions.raise(now, 2, now.wall_us + ahead_us), is_known);
        assert_eq!(transactions.last_timestamp_us(2), limit_us(now));
    }
    assert!(transactions.raise(now, 1, i64::MIN) && !transactions.raise(now, 1, i64::MAX));
    transactions.decided(now, second, Decision::Unlogged(1), &mut said);
    assert_eq!(said.unlogged[1], (second, now.wall_us));
}

#[test]
fn a_write_without_an_answer_in_time_is_in_doubt() {
    let mut outcomes = Vec::new();
    for (now, written) in [
        (LATER, Ok(Written::Acknowledged)),
        (NOW, Ok(Written::Unknown)),
        (NOW, Ok(Written::NotSent)),
        (NOW, Err(Refused::ForGood)),
    ] {
        let (mut transactions, mut said, [first, second]) = two();
        assert!(!transactions.unlogged_written(now, first, written, &mut said));
        assert_eq!((said.locked.as_slice(), said.forgotten), (&[first, second][..], 1));
        outcomes.push(said.replies);
    }
    let store = Outcome::NotExecuted(NotExecuted::Store);
    assert_eq!(outcomes, [vec![Outcome::InDoubt], vec![Outcome::InDoubt], vec![store], vec![]]);
}

#[test]
fn a_write_keeps_its_partition_until_its_answer_or_the_loss_of_its_shard() {
    let (mut transactions, mut said, [first, _]) = two();
    let late = Now { boot_ns: 2_000_000, wall_us: 52 };
    transactions.tick(late, &mut said);
    // The second gave up waiting; the first is still on its way.
    assert_eq!(said.replies, [Outcome::InDoubt, Outcome::NotExecuted(NotExecuted::Locked)]);
    assert_eq!((said.locked.len(), transactions.is_idle(1)), (1, false));
    transactions.lose(1, &mut said);
    assert!(!transactions.unlogged_written(NOW, first, Ok(Written::Acknowledged), &mut said));
    assert_eq!((said.replies.len(), said.forgotten, transactions.open()), (2, 2, 0));
}

#[test]
fn a_record_that_is_not_confirmed_is_recorded_again_and_no_lease_commits_it() {
    for confirms in [true, false] {
        let (mut transactions, mut said, [first, _]) = two_undecided();
        transactions.confirm(confirms);
        transactions.decided(NOW, first, Decision::Write(2), &mut said);
        transactions.appended(no_lease(NOW), first, Written::Acknowledged, &mut said);
        assert_eq!(
            (said.appended.len(), said.applied, &said.replies[..]),
            (1, 0, &[Outcome::InDoubt][..])
        );
        transactions.set_lease(NOW, Lease { valid_until_ns: 3_000, ts_limit_us: 3_000 }, &mut said);
        if confirms {
            assert_eq!((said.appended.len(), said.applied), (2, 0));
            assert_eq!(said.appended[0], said.appended[1], "the same record at the same place");
            transactions.appended(NOW, first, Written::Acknowledged, &mut said);
        }
        assert_eq!(said.applied, 2, "{confirms}");
    }
}

//! Openings of a shard, step by step.

use shunt_locks::{Lease, Now, Written};

use crate::engine::types::{
    Begin, Effects, Limits, Mode, NotExecuted, Outcome, Partition, Ticket, TransactionId,
};
use crate::{
    BUCKET_RECORDS, Claim, Conditional, Failed, FoundRecord, Generation, Opening, OpeningEffects,
    Page, Place, Position, Refused, Row, Transactions,
};

const SHARD: u8 = 7;
const OURS: Claim = Claim(1);
const THEIRS: Claim = Claim(2);
/// After a pause.
const LATER_MS: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Row,
    Claim(Option<Row>),
    Low(u64),
    Read(Place),
    Append(Place),
    Apply(Place, u16),
    Forget(Place),
    Seal(u64),
    DeleteBucket(u64, u64),
    DeleteLow(u64),
}

#[derive(Default)]
struct Calls(Vec<Call>);

impl Calls {
    fn take(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.0)
    }
}

impl OpeningEffects for Calls {
    fn read_row(&mut self, _shard: u8) {
        self.0.push(Call::Row);
    }
    fn claim(&mut self, _shard: u8, row: Option<Row>, _claim: Claim) {
        self.0.push(Call::Claim(row));
    }
    fn read_low(&mut self, _shard: u8, generation: Generation) {
        self.0.push(Call::Low(generation.0));
    }
    fn read(&mut self, _shard: u8, from: Place) {
        self.0.push(Call::Read(from));
    }
    fn append(&mut self, _shard: u8, place: Place) {
        self.0.push(Call::Append(place));
    }
    fn apply(&mut self, _shard: u8, place: Place, write: u16) {
        self.0.push(Call::Apply(place, write));
    }
    fn forget(&mut self, _shard: u8, place: Place) {
        self.0.push(Call::Forget(place));
    }
    fn seal(&mut self, _shard: u8, claimed: Generation, _claim: Claim) {
        self.0.push(Call::Seal(claimed.0));
    }
    fn delete_bucket(&mut self, _shard: u8, generation: Generation, bucket: u64) {
        self.0.push(Call::DeleteBucket(generation.0, bucket));
    }
    fn delete_low(&mut self, _shard: u8, generation: Generation) {
        self.0.push(Call::DeleteLow(generation.0));
    }
}

fn at(ms: u64) -> Now {
    Now { boot_ns: ms * 1_000_000, wall_us: 0 }
}

fn place(generation: u64, position: u64) -> Place {
    Place { generation: Generation(generation), position: Position(position) }
}

fn row(generation: u64, claim: Claim, sealed: u64) -> Row {
    Row { generation: Generation(generation), claim, sealed: Generation(sealed) }
}

fn found(position: u64, writes: u16) -> FoundRecord {
    FoundRecord { position: Position(position), timestamp_us: 100 + position as i64, writes }
}

const EMPTY: Page<'static> = Page { records: &[], is_last: true };

/// An opening that has claimed generation `sealed + 2`, so that one is to be recovered.
fn claimed(sealed: u64) -> (Opening, Calls) {
    let mut calls = Calls::default();
    let mut opening = Opening::begin(SHARD, OURS, &mut calls);
    let read = Some(row(sealed + 1, THEIRS, sealed));
    opening.row_read(at(0), Ok(read), true, &mut calls);
    opening.claimed(at(0), Conditional::Applied, &mut calls);
    assert_eq!(calls.take(), [Call::Row, Call::Claim(read), Call::Low(sealed + 1)]);
    (opening, calls)
}

/// The log of the generation has no more than was read.
fn end_of_log(opening: &mut Opening, generation: u64, low: u64, calls: &mut Calls) {
    opening.low_read(at(0), Generation(generation), Ok(Position(low)), calls);
}

#[test]
fn a_shard_that_nobody_has_had_is_open_as_soon_as_its_first_generation_is_claimed() {
    let mut calls = Calls::default();
    let mut opening = Opening::begin(SHARD, OURS, &mut calls);
    opening.row_read(at(0), Ok(None), true, &mut calls);
    opening.claimed(at(0), Conditional::Applied, &mut calls);
    assert_eq!(calls.take(), [Call::Row, Call::Claim(None)]);
    assert_eq!(opening.opened().map(|opened| opened.generation), Some(Generation(1)));
}

/// The present owner of the shard may have claimed it already, and be serving it.
#[test]
fn a_row_that_was_read_without_holding_the_shard_is_read_again() {
    let mut calls = Calls::default();
    let mut opening = Opening::begin(SHARD, OURS, &mut calls);
    for row in [Ok(Some(row(5, THEIRS, 4))), Ok(None)] {
        calls.take();
        opening.row_read(at(0), row, false, &mut calls);
        opening.tick(at(LATER_MS), &mut calls);
        assert_eq!(calls.take(), [Call::Row]);
    }
}

#[test]
fn the_row_tells_if_a_claim_of_which_nobody_knows_was_made() {
    for (now, next) in [
        (row(6, OURS, 4), Call::Low(5)),
        (row(6, THEIRS, 5), Call::Claim(Some(row(6, THEIRS, 5)))),
        (row(5, THEIRS, 4), Call::Claim(Some(row(5, THEIRS, 4)))),
    ] {
        for outcome in [Conditional::Unknown, Conditional::Refused] {
            let mut calls = Calls::default();
            let mut opening = Opening::begin(SHARD, OURS, &mut calls);
            opening.row_read(at(0), Ok(Some(row(5, THEIRS, 4))), true, &mut calls);
            opening.claimed(at(0), outcome, &mut calls);
            opening.tick(at(LATER_MS), &mut calls);
            calls.take();
            opening.row_read(at(LATER_MS), Ok(Some(now)), true, &mut calls);
            assert_eq!(calls.take(), [next], "{now:?}");
        }
    }
}

#[test]
fn a_shard_opens_once_all_is_done_and_sealed() {
    let (mut opening, mut calls) = claimed(4);
    opening.low_read(at(0), Generation(5), Ok(Position(1)), &mut calls);
    let page = Page { records: &[found(0, 1), found(1, 2), found(3, 0)], is_last: true };
    opening.page_read(at(0), place(5, 1), Ok(page), &mut calls);
    let (first, second) = (place(5, 1), place(5, 3));
    let next = place(5, BUCKET_RECORDS);
    assert_eq!(
        calls.take(),
        [Call::Read(place(5, 1)), Call::Read(next), Call::Append(second), Call::Append(first)],
        "each is written again that was not done with"
    );
    opening.page_read(at(0), next, Ok(EMPTY), &mut calls);
    end_of_log(&mut opening, 5, 1, &mut calls);
    opening.appended(at(0), second, Written::Acknowledged, true, &mut calls);
    opening.appended(at(0), first, Written::Unknown, true, &mut calls);
    assert_eq!(calls.take(), [Call::Low(5), Call::Forget(second)]);
    opening.tick(at(LATER_MS), &mut calls);
    opening.appended(at(LATER_MS), first, Written::Acknowledged, true, &mut calls);
    assert_eq!(calls.take(), [Call::Append(first), Call::Apply(first, 1), Call::Apply(first, 0)]);
    opening.applied(at(LATER_MS), first, 0, Ok(Written::NotSent), &mut calls);
    opening.applied(at(LATER_MS), first, 1, Ok(Written::Acknowledged), &mut calls);
    opening.applied(at(LATER_MS), first, 1, Ok(Written::Acknowledged), &mut calls);
    assert_eq!((calls.take(), opening.opened()), (vec![], None));
    opening.tick(at(2 * LATER_MS), &mut calls);
    opening.applied(at(2 * LATER_MS), first, 0, Err(Refused::ForGood), &mut calls);
    assert_eq!(calls.take(), [Call::Apply(first, 0), Call::Forget(first), Call::Seal(6)]);
    assert_eq!((opening.opened(), opening.refused()), (None, 1));
    opening.sealed(at(2 * LATER_MS), Conditional::Applied, &mut calls);
    let opened = opening.opened().map(|opened| (opened.generation, opened.last_timestamp_us));
    assert_eq!(opened, Some((Generation(6), 103)), "above what was found");
    assert_eq!(calls.take(), [Call::DeleteBucket(5, 0), Call::DeleteLow(5)]);
}

/// The member may have been taken for dead, and another may have sealed the generation without the
/// record.
#[test]
fn no_write_of_a_record_is_made_without_holding_the_shard() {
    let (mut opening, mut calls) = claimed(0);
    opening.low_read(at(0), Generation(1), Ok(Position(0)), &mut calls);
    opening.page_read(
        at(0),
        place(1, 0),
        Ok(Page { records: &[found(0, 1)], is_last: true }),
        &mut calls,
    );
    calls.take();
    opening.appended(at(0), place(1, 0), Written::Acknowledged, false, &mut calls);
    assert_eq!(calls.take(), []);
    opening.tick(at(LATER_MS), &mut calls);
    opening.appended(at(LATER_MS), place(1, 0), Written::Acknowledged, true, &mut calls);
    assert_eq!(calls.take(), [Call::Append(place(1, 0)), Call::Apply(place(1, 0), 0)]);
}

/// The owner's last mark came after it was read here, and then that owner deleted what lay below.
#[test]
fn the_low_mark_is_read_again_at_the_apparent_end_of_the_log() {
    let (mut opening, mut calls) = claimed(0);
    opening.low_read(at(0), Generation(1), Ok(Position(0)), &mut calls);
    opening.page_read(at(0), place(1, 0), Ok(EMPTY), &mut calls);
    opening.low_read(at(0), Generation(1), Err(Failed), &mut calls);
    opening.tick(at(LATER_MS), &mut calls);
    assert_eq!(calls.take(), [Call::Read(place(1, 0)), Call::Low(1), Call::Low(1)]);
    let low = 3 * BUCKET_RECORDS + 1;
    opening.low_read(at(LATER_MS), Generation(1), Ok(Position(low)), &mut calls);
    opening.page_read(at(LATER_MS), place(1, low), Ok(EMPTY), &mut calls);
    let next = place(1, 4 * BUCKET_RECORDS);
    assert_eq!(
        calls.take(),
        [Call::Read(place(1, low)), Call::Read(next)],
        "the record before the mark was there"
    );
    opening.page_read(at(LATER_MS), next, Ok(EMPTY), &mut calls);
    end_of_log(&mut opening, 1, low, &mut calls);
    assert_eq!(calls.take(), [Call::Low(1), Call::Seal(2)]);
}

#[test]
fn a_log_is_read_page_by_page_and_each_that_fails_again() {
    let (mut opening, mut calls) = claimed(0);
    opening.low_read(at(0), Generation(1), Ok(Position(0)), &mut calls);
    opening.page_read(at(0), place(1, 0), Err(Failed), &mut calls);
    opening.tick(at(LATER_MS), &mut calls);
    assert_eq!(calls.take(), [Call::Read(place(1, 0)), Call::Read(place(1, 0))]);
    opening.page_read(
        at(0),
        place(1, 0),
        Ok(Page { records: &[found(1, 1)], is_last: false }),
        &mut calls,
    );
    assert_eq!(calls.take(), [Call::Read(place(1, 2)), Call::Append(place(1, 1))]);
    opening.page_read(at(0), place(1, 0), Ok(EMPTY), &mut calls);
    assert_eq!(calls.take(), [], "that was answered");
    let last = BUCKET_RECORDS - 1;
    opening.page_read(
        at(0),
        place(1, 2),
        Ok(Page { records: &[found(last, 1)], is_last: false }),
        &mut calls,
    );
    assert_eq!(calls.take(), [Call::Read(place(1, BUCKET_RECORDS)), Call::Append(place(1, last))]);
}

/// Each broken-off opening leaves a generation without records.
#[test]
fn all_generations_that_are_not_sealed_are_read() {
    let mut calls = Calls::default();
    let mut opening = Opening::begin(SHARD, OURS, &mut calls);
    opening.row_read(at(0), Ok(Some(row(9, THEIRS, 6))), true, &mut calls);
    opening.claimed(at(0), Conditional::Applied, &mut calls);
    calls.take();
    for generation in 7..=9 {
        opening.low_read(at(0), Generation(generation), Ok(Position(0)), &mut calls);
        opening.page_read(at(0), place(generation, 0), Ok(EMPTY), &mut calls);
        opening.low_read(at(0), Generation(generation), Ok(Position(0)), &mut calls);
        let next = if generation == 9 { Call::Seal(10) } else { Call::Low(generation + 1) };
        assert_eq!(calls.take(), [Call::Read(place(generation, 0)), Call::Low(generation), next]);
    }
}

#[test]
fn the_row_tells_the_outcome_of_a_seal() {
    let recovered = || {
        let (mut opening, mut calls) = claimed(0);
        opening.low_read(at(0), Generation(1), Ok(Position(0)), &mut calls);
        opening.page_read(at(0), place(1, 0), Ok(EMPTY), &mut calls);
        end_of_log(&mut opening, 1, 0, &mut calls);
        calls.take();
        (opening, calls)
    };
    for (outcome, now, next) in [
        (Conditional::Unknown, row(2, OURS, 1), vec![Call::DeleteLow(1)]),
        (Conditional::Unknown, row(2, OURS, 0), vec![Call::Seal(2)]),
        (Conditional::Refused, row(3, THEIRS, 0), vec![Call::Claim(Some(row(3, THEIRS, 0)))]),
        (Conditional::Unknown, row(3, THEIRS, 1), vec![Call::Claim(Some(row(3, THEIRS, 1)))]),
    ] {
        let (mut opening, mut calls) = recovered();
        opening.sealed(at(0), outcome, &mut calls);
        assert_eq!(opening.opened(), None);
        opening.tick(at(LATER_MS), &mut calls);
        calls.take();
        opening.row_read(at(LATER_MS), Ok(Some(now)), true, &mut calls);
        assert_eq!(
            (calls.take(), opening.opened().is_some()),
            (next, now.sealed.0 == 1 && now.claim == OURS)
        );
    }
}

/// Bodies are kept for what was read: no page more while there are dozens.
#[test]
fn no_more_is_read_while_much_is_not_done() {
    let (mut opening, mut calls) = claimed(0);
    opening.low_read(at(0), Generation(1), Ok(Position(0)), &mut calls);
    let mut from = place(1, 0);
    let mut held = Vec::new();
    loop {
        let records: Vec<FoundRecord> =
            (from.position.0..from.position.0 + BUCKET_RECORDS).map(|at| found(at, 0)).collect();
        held.extend(records.iter().map(|found| Place { position: found.position, ..from }));
        calls.take();
        opening.page_read(at(0), from, Ok(Page { records: &records, is_last: true }), &mut calls);
        from.position = Position(from.position.0 + BUCKET_RECORDS);
        if !calls.0.contains(&Call::Read(from)) {
            break;
        }
        assert!(held.len() < 1_000);
    }
    calls.take();
    let sent = held.into_iter().rev().find(|place| {
        opening.appended(at(0), *place, Written::Acknowledged, true, &mut calls);
        !calls.0.is_empty()
    });
    assert!(sent.is_some() && calls.0.contains(&Call::Read(from)), "{:?}", calls.0);
}

/// A failing write is tried less and less often, and at once when there is a reason to.
#[test]
fn retries_back_off_until_they_are_hurried() {
    let (mut opening, mut calls) = claimed(0);
    opening.low_read(at(0), Generation(1), Ok(Position(0)), &mut calls);
    opening.page_read(
        at(0),
        place(1, 0),
        Ok(Page { records: &[found(0, 2)], is_last: true }),
        &mut calls,
    );
    opening.appended(at(0), place(1, 0), Written::Acknowledged, true, &mut calls);
    let next = place(1, BUCKET_RECORDS);
    opening.page_read(at(0), next, Ok(EMPTY), &mut calls);
    end_of_log(&mut opening, 1, 0, &mut calls);
    opening.applied(at(0), place(1, 0), 1, Ok(Written::Acknowledged), &mut calls);
    calls.take();
    let (mut now, mut pauses) = (0, Vec::new());
    for _ in 0..10 {
        opening.applied(at(now), place(1, 0), 0, Ok(Written::NotSent), &mut calls);
        let due = opening.next_due_ms().expect("it is tried again");
        opening.tick(at(due - 1), &mut calls);
        assert_eq!(calls.take(), []);
        opening.tick(at(due), &mut calls);
        assert_eq!(calls.take(), [Call::Apply(place(1, 0), 0)]);
        pauses.push(due - now);
        now = due;
    }
    assert!(
        pauses[0] <= 200 && pauses[4] > 2 * pauses[1] && pauses.iter().all(|pause| *pause <= 5_000),
        "{pauses:?}"
    );
    opening.applied(at(now), place(1, 0), 0, Ok(Written::NotSent), &mut calls);
    opening.hurry(at(now), &mut calls);
    assert_eq!(calls.take(), [Call::Apply(place(1, 0), 0)]);
    opening.hurry(at(now), &mut calls);
    assert_eq!(calls.take(), [], "one attempt at a time");
    opening.applied(at(now), place(1, 0), 0, Ok(Written::NotSent), &mut calls);
    assert!(opening.next_due_ms().is_some_and(|due| due <= now + 200), "from the beginning");
    opening.hurry(at(now), &mut calls);
    opening.applied(at(now), place(1, 0), 0, Ok(Written::Acknowledged), &mut calls);
    opening.sealed(at(now), Conditional::Unknown, &mut calls);
    calls.take();
    opening.hurry(at(now), &mut calls);
    assert_eq!((calls.take(), opening.next_due_ms()), (vec![Call::Row], None));
}

#[derive(Default)]
struct Said {
    locked: Vec<u64>,
    replies: Vec<(u64, Outcome)>,
}

impl Effects for Said {
    fn locked(&mut self, _: TransactionId, ticket: Ticket) {
        self.locked.push(ticket.0);
    }
    fn reply(&mut self, ticket: Ticket, outcome: Outcome) {
        self.replies.push((ticket.0, outcome));
    }
    fn append(&mut self, _: TransactionId, _: u8, _: Place, _: i64) {}
    fn apply(&mut self, _: TransactionId, _: u16, _: i64) {}
    fn write_unlogged(&mut self, _: TransactionId, _: i64) {}
    fn forget(&mut self, _: TransactionId) {}
    fn write_low(&mut self, _: u8, _: Generation, _: Position) {}
    fn delete_bucket(&mut self, _: u8, _: Generation, _: u64) {}
}

fn ask(transactions: &mut Transactions, ticket: u64, deadline_ms: u64, said: &mut Said) {
    let partitions = [(Partition(u128::from(ticket)), Mode::Exclusive)];
    let asked =
        Begin { ticket: Ticket(ticket), shard: SHARD, partitions: &partitions, deadline_ms };
    transactions.begin(at(0), &asked, said);
}

#[test]
fn requests_wait_for_the_opening_in_order_until_their_deadline() {
    let limits = Limits { transactions_of_shard: 4, ..Limits::default() };
    let (mut transactions, mut said) = (Transactions::new(limits), Said::default());
    transactions.set_lease(
        at(0),
        Lease { valid_until_ns: u64::MAX, ts_limit_us: i64::MAX },
        &mut said,
    );
    transactions.gain(SHARD, 0, OURS);
    for (ticket, deadline_ms) in [(3, 900), (1, 900), (2, 100), (0, 900), (4, 900)] {
        ask(&mut transactions, ticket, deadline_ms, &mut said);
    }
    transactions.tick(at(100), &mut said);
    let many = (4, Outcome::NotExecuted(NotExecuted::Many));
    assert_eq!(said.replies, [many, (2, Outcome::NotExecuted(NotExecuted::NotOpen))]);
    assert!(said.locked.is_empty());
    let mut calls = Calls::default();
    let mut opening = |claim| {
        let mut opening = Opening::begin(SHARD, claim, &mut calls);
        opening.row_read(at(0), Ok(None), true, &mut calls);
        opening.claimed(at(0), Conditional::Applied, &mut calls);
        opening.opened().expect("open")
    };
    assert!(
        !transactions.open_shard(opening(THEIRS), &mut said),
        "of an earlier time with the shard"
    );
    assert!(
        transactions.open_shard(opening(OURS), &mut said)
            && !transactions.open_shard(opening(OURS), &mut said)
    );
    assert_eq!(said.locked, [3, 1, 0]);
}

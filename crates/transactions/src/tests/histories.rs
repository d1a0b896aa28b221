//! Random histories: a seal is what it says, and all transactions have one order, which is that of
//! their timestamps and that in which clients saw them end, and each reads what those before have
//! written; with a step left out, they have none.

use std::collections::{HashMap, HashSet};

use super::world::{Around, KEYS, Seen, Value, Weak, World};
use crate::engine::types::{NotExecuted, Outcome};
use crate::engine::weakened::Without;

const RUN_MS: u64 = 25_000;

/// Errors in the history of a world at rest.
fn fault_of(world: &World) -> Option<String> {
    let registers = world.registers();
    let read: HashSet<usize> = world
        .operations
        .iter()
        .flat_map(|operation| &operation.reads)
        .map(|(_, value)| value.operation)
        .collect();
    let mut order: Vec<(i64, usize)> = Vec::new();
    for (number, operation) in world.operations.iter().enumerate().skip(1) {
        let stays = registers
            .iter()
            .find(|value| value.operation == number)
            .map(|value| value.timestamp_us);
        let is_seen = stays.is_some() || read.contains(&number);
        match operation.outcome {
            Some(Outcome::Committed { timestamp_us } | Outcome::Read { timestamp_us }) => {
                order.push((timestamp_us, number))
            }
            Some(Outcome::NotExecuted(why)) if is_seen => {
                return Some(format!("{number} was not executed ({why:?}), and is"));
            }
            Some(Outcome::NotExecuted(_)) => {}
            Some(Outcome::InDoubt) | None if is_seen => {
                let seen = world
                    .operations
                    .iter()
                    .flat_map(|operation| &operation.reads)
                    .map(|(_, value)| *value);
                let value = seen.chain(registers).find(|value| value.operation == number)?;
                order.push((value.timestamp_us, number));
            }
            Some(Outcome::InDoubt) | None => {}
        }
    }
    order.sort_unstable();
    if let Some(pair) = order.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Some(format!("{} and {} have one timestamp", pair[0].1, pair[1].1));
    }
    let (mut now, mut latest) = ([registers[0]; KEYS], (0, 0));
    now.fill(Value { timestamp_us: 0, operation: 0, balance: super::world::BALANCE });
    for (timestamp_us, number) in order {
        let operation = &world.operations[number];
        if operation.returned_ms.is_some_and(|returned| returned < latest.0) {
            return Some(format!(
                "{number} ended before {} began, and is ordered after it",
                latest.1
            ));
        }
        latest = latest.max((operation.invoked_ms, number));
        if let Some((key, value)) =
            operation.reads.iter().find(|(key, value)| now[*key].operation != value.operation)
        {
            return Some(format!(
                "{number} read of {key} what {} wrote, after {}",
                value.operation, now[*key].operation
            ));
        }
        for (key, value) in &operation.writes {
            now[*key] = Value { timestamp_us, ..*value };
        }
    }
    let total: i64 = registers.iter().map(|value| value.balance).sum();
    if total != super::world::BALANCE * KEYS as i64 {
        return Some(format!("in the end there are {total}"));
    }
    (now != registers)
        .then(|| format!("in the end there is {registers:?}, and it should be {now:?}"))
}

fn first_fault(mut seeds: impl Iterator<Item = u64>, weak: Weak) -> Option<(u64, String)> {
    seeds.find_map(|seed| {
        let mut world = World::new(seed, weak);
        world.run(RUN_MS);
        world.come_to_rest();
        let fault = world.fault.clone().or_else(|| fault_of(&world));
        fault.map(|fault| (seed, fault))
    })
}

fn seeds(otherwise: u64) -> u64 {
    std::env::var("SHUNT_TRANSACTION_SEEDS")
        .map_or(otherwise, |seeds| seeds.parse().expect("a number"))
}

#[test]
fn transactions_have_one_order_whatever_fails() {
    assert_eq!(first_fault(1..=seeds(200), Weak::default()), None);
}

#[test]
fn histories_have_transactions_of_all_kinds_and_all_that_happens_to_an_opening() {
    let (mut counts, mut seen) = (HashMap::new(), Vec::new());
    for seed in 1..=40 {
        let mut world = World::new(seed, Weak::default());
        world.run(RUN_MS);
        world.come_to_rest();
        seen.push(world.seen);
        for operation in &world.operations {
            let kind = match operation.outcome {
                Some(Outcome::Committed { .. }) => "committed",
                Some(Outcome::Read { .. }) => "read",
                Some(Outcome::NotExecuted(NotExecuted::NotOpen)) => "not open",
                Some(Outcome::NotExecuted(_)) => "not executed",
                Some(Outcome::InDoubt) => "in doubt",
                None => "never answered",
            };
            *counts.entry(kind).or_insert(0) += 1;
        }
    }
    let least = [
        ("committed", 1_500),
        ("read", 200),
        ("not executed", 5_000),
        ("not open", 500),
        ("in doubt", 150),
    ];
    let is_enough =
        |(kind, least): (&str, usize)| counts.get(kind).is_some_and(|count| *count >= least);
    assert!(least.into_iter().all(is_enough), "{counts:?}");
    let sum = |of: fn(&Seen) -> usize| seen.iter().map(of).sum::<usize>();
    for (count, least, what) in [
        (sum(|seen| seen.take_overs), 200, "take-overs"),
        (sum(|seen| seen.given), 20, "gifts of live owners"),
        (sum(|seen| seen.rejoined), 50, "processes that go on with another membership"),
        (sum(|seen| seen.claims), 150, "claims"),
        (sum(|seen| seen.claims_refused), 20, "claims refused"),
        (sum(|seen| seen.seals_refused), 5, "seals refused"),
        (sum(|seen| seen.unknown), 50, "conditional statements of which nobody knows"),
        (sum(|seen| seen.opened), 120, "openings"),
        (sum(|seen| seen.found), 300, "records found"),
        (sum(|seen| seen.carried_forward), 100, "records carried forward"),
        (sum(|seen| seen.deleted), 500, "partitions of the log deleted"),
    ] {
        assert!(count >= least, "only {count} {what}");
    }
}

/// Looks for a history in which something is wrong. The search begins with the seed that showed it
/// when this test was written: a few steps show in one history of a thousand.
fn notice(weak: Weak, begin: u64) {
    let last = seeds(4_000).max(begin);
    let fault = first_fault((begin..=last).chain(1..begin), weak);
    // For whoever asks, with `--nocapture`, how and how soon.
    println!("{weak:?}: {fault:?}");
    assert!(fault.is_some(), "nobody notices that this is left out: {weak:?}");
}

#[test]
fn each_step_of_the_crate_is_needed() {
    for (without, begin) in [
        (Without::CheckAfterRecord, 116),
        (Without::Record, 3),
        (Without::LocksUntilApplied, 1),
        (Without::Locks, 1),
        (Without::RepeatedRecord, 2),
        (Without::AcknowledgedLow, 12),
        (Without::AcknowledgedForward, 1_259),
    ] {
        notice(Weak { member: Some(without), ..Weak::default() }, begin);
    }
}

#[test]
fn each_step_of_an_opening_is_needed() {
    for (without, begin) in [
        (Around::Recovery, 1),
        (Around::Seal, 16),
        (Around::SealBeforeService, 44),
        (Around::ClaimOfSeal, 234),
        (Around::RowOfClaim, 77),
        (Around::SealedOfClaim, 1_956),
        (Around::LeaseAtRow, 484),
        (Around::LeaseInRecovery, 96),
        (Around::Rewriting, 2_003),
        (Around::Floor, 5),
        (Around::TimestampOfLow, 987),
    ] {
        notice(Weak { around: Some(without), ..Weak::default() }, begin);
    }
}

//! Random histories: all transactions have one order, which is that of their timestamps and that in which clients saw them end, and each
//! reads what those before have written; with a step left out, they have none.

use std::collections::{HashMap, HashSet};

use super::world::{KEYS, Value, Weak, World};
use crate::types::Outcome;
use crate::weakened::Without;

const RUN_MS: u64 = 15_000;

/// What is wrong with the history of a world at rest.
fn fault_of(world: &World) -> Option<String> {
    let registers = world.registers();
    let read: HashSet<usize> =
        world.operations.iter().flat_map(|operation| &operation.reads).map(|(_, value)| value.operation).collect();
    let mut order: Vec<(i64, usize)> = Vec::new();
    for (number, operation) in world.operations.iter().enumerate().skip(1) {
        let stays = registers.iter().find(|value| value.operation == number).map(|value| value.timestamp_us);
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
                let seen = world.operations.iter().flat_map(|operation| &operation.reads).map(|(_, value)| *value);
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
            return Some(format!("{number} ended before {} began, and is ordered after it", latest.1));
        }
        latest = latest.max((operation.invoked_ms, number));
        if let Some((key, value)) = operation.reads.iter().find(|(key, value)| now[*key].operation != value.operation) {
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
    (now != registers).then(|| format!("in the end there is {registers:?}, and it should be {now:?}"))
}

fn first_fault(seeds: u64, weak: Weak) -> Option<(u64, String)> {
    (1..=seeds).find_map(|seed| {
        let mut world = World::new(seed, weak);
        world.run(RUN_MS);
        world.come_to_rest();
        let fault = world.fault.clone().or_else(|| fault_of(&world));
        fault.map(|fault| (seed, fault))
    })
}

fn seeds(otherwise: u64) -> u64 {
    std::env::var("SHUNT_TRANSACTION_SEEDS").map_or(otherwise, |seeds| seeds.parse().expect("a number"))
}

#[test]
fn transactions_have_one_order_whatever_fails() {
    assert_eq!(first_fault(seeds(1_000), Weak::default()), None);
}

#[test]
fn histories_have_transactions_of_all_kinds_and_take_overs() {
    let (mut counts, mut take_overs) = (HashMap::new(), 0);
    for seed in 1..=10 {
        let mut world = World::new(seed, Weak::default());
        world.run(RUN_MS);
        world.come_to_rest();
        take_overs += world.take_overs;
        for operation in &world.operations {
            let kind = match operation.outcome {
                Some(Outcome::Committed { .. }) => "committed",
                Some(Outcome::Read { .. }) => "read",
                Some(Outcome::NotExecuted(_)) => "not executed",
                Some(Outcome::InDoubt) => "in doubt",
                None => "never answered",
            };
            *counts.entry(kind).or_insert(0) += 1;
        }
    }
    let at_least = |kind: &str, least: usize| counts.get(kind).is_some_and(|count| *count >= least);
    assert!(at_least("committed", 300) && at_least("read", 80) && at_least("not executed", 500), "{counts:?}");
    assert!(at_least("in doubt", 20) && take_overs >= 30, "{counts:?}, {take_overs} take-overs");
}

#[test]
fn each_step_is_needed() {
    let member = |without| Weak { member: Some(without), ..Weak::default() };
    for (weak, what) in [
        (member(Without::CheckAfterRecord), "the look at the lease after the record"),
        (member(Without::Record), "the record"),
        (member(Without::LocksUntilApplied), "locks until the writes are acknowledged"),
        (member(Without::Locks), "locks"),
        (member(Without::RepeatedRecord), "repeating a record of which nobody knows"),
        (Weak { no_recovery: true, ..Weak::default() }, "recovery"),
        (Weak { no_rewriting: true, ..Weak::default() }, "writing found records again"),
        (Weak { no_seal: true, ..Weak::default() }, "the seal"),
        (Weak { no_floor: true, ..Weak::default() }, "the floor of timestamps"),
    ] {
        assert!(first_fault(3_000, weak).is_some(), "nobody notices that {what} is left out");
    }
}

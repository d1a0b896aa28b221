//! Memory and processor time per lock: a million names, in memory, one core. Run it with `cargo run
//! --release -p shunt-locks --example speed`.

use std::hint::black_box;
use std::time::Instant;

use shunt_locks::{
    Asked, Lease, Limits, LoadId, Locks, Mode, Namespace, Now, Outcome, SHARDS, Sink, Ticket, Write,
};

const NAMES: u64 = 1_000_000;
const WAITERS: u32 = 1000;

struct Heard(u64);

impl Sink for Heard {
    fn reply(&mut self, _: Ticket, outcome: Outcome<'_>) {
        self.0 += u64::from(matches!(outcome, Outcome::Granted { .. }));
    }

    fn write(&mut self, _: Write<'_>) {}

    fn load(&mut self, _: LoadId) {}
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn asked<'a>(name: &'a str, owner: &'a str) -> Asked<'a> {
    let namespace = Namespace::Memory;
    Asked {
        namespace,
        name: name.as_bytes(),
        role: b"app",
        owner: owner.as_bytes(),
        ticket: Ticket(0),
    }
}

fn main() {
    let now = Now { boot_ns: 1_000_000_000, wall_us: 1_700_000_000_000_000 };
    let mut heard = Heard(0);
    let mut locks =
        Locks::new(Limits { holds: u32::MAX, holds_per_role: u32::MAX, ..Limits::default() });
    let lease = Lease { valid_until_ns: u64::MAX, ts_limit_us: i64::MAX };
    locks.set_lease(now, lease, &mut heard);
    for shard in 0..SHARDS as u8 {
        locks.gain(now, shard, 0, 0, &mut heard);
    }
    let names: Vec<String> = (0..NAMES).map(|i| format!("{i:010}")).collect();
    let (before, begun) = (resident_bytes(), Instant::now());
    for name in &names {
        locks.acquire(now, &asked(name, "one"), Mode::Exclusive, (30_000, 0), &mut heard);
    }
    let bytes = (resident_bytes() - before) as f64 / NAMES as f64;
    println!(
        "{NAMES} locks: {:.0} ns each to acquire, {bytes:.1} bytes each",
        begun.elapsed().as_nanos() as f64 / NAMES as f64
    );
    let begun = Instant::now();
    for name in &names {
        locks.release(now, &asked(name, "one"), None, false, &mut heard);
    }
    println!("{:.0} ns each to release", begun.elapsed().as_nanos() as f64 / NAMES as f64);

    let mut state = 88_172_645_463_325_252u64;
    let begun = Instant::now();
    for _ in 0..NAMES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let asked = asked(&names[(state % NAMES) as usize], "two");
        locks.acquire(now, &asked, Mode::Exclusive, (30_000, 0), &mut heard);
        locks.release(now, &asked, None, false, &mut heard);
    }
    println!(
        "names at random: {:.0} ns to acquire and release",
        begun.elapsed().as_nanos() as f64 / NAMES as f64
    );

    let owners: Vec<String> = (0..=WAITERS).map(|i| format!("owner {i}")).collect();
    for owner in &owners {
        locks.acquire(now, &asked("hot", owner), Mode::Exclusive, (30_000, 20_000), &mut heard);
    }
    let begun = Instant::now();
    for turn in 0..NAMES {
        let owner = &owners[(turn % owners.len() as u64) as usize];
        locks.release(now, &asked("hot", owner), None, false, &mut heard);
        locks.acquire(now, &asked("hot", owner), Mode::Exclusive, (30_000, 20_000), &mut heard);
    }
    println!(
        "{WAITERS} waiters: {:.0} ns to hand over and queue up again",
        begun.elapsed().as_nanos() as f64 / NAMES as f64
    );
    black_box(heard.0);
}

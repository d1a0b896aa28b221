//! Kills the whole embedded node with SIGKILL at random moments under load, many times on one
//! directory. Each time the node starts again without a complaint, has all acknowledged writes, and
//! has no partial write. A control without durability shows that the test can detect a loss.
//!
//! `SHUNT_CRASH_ROUNDS` sets the number of kills, `SHUNT_CRASH_SEED` the choices of the loads and
//! the moments.

mod damage;
mod faults;
mod full_disk;
mod load;
mod model;
mod operator;
mod plain;

mod process;
mod rows;
mod shared;

use std::path::Path;
use std::time::Duration;

use load::Loads;
use model::Random;
use process::{Kind, Running, check};
use shunt_testing::number;

/// Kills of a node, and of `shunt up`.
const ROUNDS: (u64, u64) = (30, 12);
/// Longest time from the begin of the load to a kill.
const LOAD_MS_MAX: u64 = 200;
/// Longest time from the begin of the process to a kill that should hit the start.
const START_MS_MAX: u64 = 60;
/// Rounds between two checks of all files on disk.
const CHECKED_EVERY: u64 = 10;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name}: {text:?} is no number")))
}

fn seed() -> u64 {
    from_environment("SHUNT_CRASH_SEED").unwrap_or_else(|| {
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
        now.as_secs()
    })
}

/// A killed process loses nothing that the kernel has, so memory replaces a disk, and many more
/// writes are under way. `shunt up` is tested on the disk, where a sync takes long.
fn directory(kind: Kind) -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if kind == Kind::Node && memory.is_dir() {
        return tempfile::tempdir_in(memory).expect("directory");
    }
    tempfile::tempdir().expect("directory")
}

fn survives(kind: Kind, rounds: u64) {
    let seed = seed();
    let rounds = from_environment("SHUNT_CRASH_ROUNDS").unwrap_or(rounds);
    println!("{kind:?}: {rounds} rounds, SHUNT_CRASH_SEED={seed}");
    let directory = directory(kind);
    let (data, log) = (directory.path().join("data"), directory.path().join("log"));
    let (mut random, mut loads) = (Random::new(seed), Loads::new(kind, seed));
    let mut running = Running::start(kind, &data, &log);
    loads.prepare(&mut running.client());
    for round in 1..=rounds {
        let moment = Duration::from_millis(1 + random.below(LOAD_MS_MAX));
        let address = running.clients;
        loads.run(address, || {
            std::thread::park_timeout(moment);
            running.started_quietly();
            running.kill();
        });
        if random.one_in(4) {
            kill_at_start(kind, &data, random.below(START_MS_MAX));
        }
        if round % CHECKED_EVERY == 0 {
            assert_eq!(check(&data), None, "round {round} of seed {seed}");
        }
        running = Running::start(kind, &data, &log);
        loads.verify(&mut running.client());
        running.started_quietly();
    }
    println!("{kind:?}: {rounds} rounds, SHUNT_CRASH_SEED={seed}: {:?}", loads.seen);
    assert!(loads.seen.acknowledged > rounds && loads.seen.refused > 0);
    assert_eq!(running.stop(), Some(0));
    assert_eq!(check(&data), None);
}

/// Kills the process before it accepts clients, or shortly after.
fn kill_at_start(kind: Kind, data: &Path, after_ms: u64) {
    let mut child = kind.command(data).stderr(std::process::Stdio::null()).spawn().expect("start");
    std::thread::park_timeout(Duration::from_millis(after_ms));
    child.kill().expect("kill");
    child.wait().expect("wait");
}

#[test]
fn a_node_that_is_killed_loses_nothing() {
    survives(Kind::Node, ROUNDS.0);
}

#[test]
fn nodes_behind_their_proxy_that_are_killed_lose_nothing() {
    survives(Kind::Up, ROUNDS.1);
}

/// Writes just before a sync of the log are not lost; on a busy machine these may be all writes.
#[test]
fn the_control_without_durability_sees_a_loss() {
    assert!(
        (0..10).any(|_| loses_without_durability()),
        "nothing was lost without durability: the test cannot see a loss"
    );
}

fn loses_without_durability() -> bool {
    let directory = tempfile::tempdir().expect("directory");
    let (data, log) = (directory.path().join("data"), directory.path().join("log"));
    let running = Running::start(Kind::Node, &data, &log);
    let mut client = running.client();
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    client.run(&format!(
        "CREATE KEYSPACE p WITH replication = {replication} AND durability = 'periodic'"
    ));
    client.run("CREATE TABLE p.t (id int PRIMARY KEY)");
    let written = 500;
    (0..written).for_each(|id| client.run(&format!("INSERT INTO p.t (id) VALUES ({id})")));
    running.kill();
    let running = Running::start(Kind::Node, &data, &log);
    let rows = running.client().rows("SELECT count(*) FROM p.t");
    let found = number(rows[0][0].as_ref()).expect("a count");
    println!("of {written} acknowledged rows {} are lost", written - found);
    running.started_quietly();
    found < written
}

//! System calls on the data directory that fail at random points: `strace` injects the errors into
//! an unmodified node. No acknowledged write is lost and no wrong answer is given. The node refuses
//! writes with the reason and continues to serve reads. After a restart on a sound disk it works
//! normally.
//!
//! `SHUNT_FAULT_ROUNDS` sets the number of nodes that get a fault.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use shunt_testing::blocking::Client;

use crate::model::Random;
use crate::plain::Plain;
use crate::process::{Kind, Running, check};
use crate::{from_environment, seed};

/// Default number of nodes that get a fault.
const ROUNDS: u64 = 10;
/// Rounds of eight concurrent statements that each connection sends.
const VOLLEYS: usize = 60;
/// Upper bound of the file numbers that RocksDB uses in a round.
const FILES_MAX: usize = 120;

/// The faults: system calls; error; latest call at which the error may start; whether all later
/// calls fail as well.
const FAULTS: [(&str, &str, u64, bool); 10] = [
    ("fdatasync,fsync", "EIO", 60, false),
    ("fdatasync,fsync", "EIO", 60, true),
    ("write", "EIO", 80, false),
    ("write", "EIO", 80, true),
    ("write", "ENOSPC", 80, false),
    ("write", "ENOSPC", 80, true),
    ("pwrite64", "EIO", 40, true),
    ("pread64", "EIO", 20, true),
    ("pread64", "EIO", 20, false),
    ("openat", "ENOSPC", 40, true),
];

/// Every file that the node may have: `strace` selects files only by name.
fn files(data: &Path) -> Vec<String> {
    let (node, engine) = (data.join("node-0"), data.join("node-0/db"));
    let mut files = Vec::new();
    for number in 1..FILES_MAX {
        files.extend([
            format!("{number:06}.log"),
            format!("{number:06}.sst"),
            format!("MANIFEST-{number:06}"),
        ]);
    }
    let mut files: Vec<_> = files.iter().map(|name| engine.join(name)).collect();
    files.extend(["schema.json", "schema.new"].map(|name| data.join(name)));
    files.extend(["catalogue", "synced"].map(|name| node.join(name)));
    files.into_iter().map(|path| path.to_str().expect("text").to_owned()).collect()
}

/// Starts the node under `strace`, which detaches itself so that the child is the node.
fn failing(data: &Path, trace: &Path, calls: &str, error: &str, when: &str) -> Command {
    let node = Kind::Node.command(data);
    let mut command = Command::new("strace");
    command
        .args(["-D", "-f", "--seccomp-bpf", "-qq", "-e", &format!("trace={calls}")])
        .arg("-o")
        .arg(trace);
    files(data).iter().for_each(|path| {
        command.args(["-P", path]);
    });
    command.args(["-e", &format!("inject={calls}:error={error}:when={when}")]);
    command
        .arg(node.get_program())
        .args(node.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

fn can_trace() -> bool {
    let status = Command::new("strace")
        .args(["-D", "-f", "--seccomp-bpf", "-e", "trace=write", "-o", "/dev/null", "true"])
        .status();
    status.is_ok_and(|status| status.success())
}

#[test]
fn a_disk_that_fails_loses_nothing_and_is_named() {
    if !can_trace() {
        println!(
            "skipped: strace cannot be used here (Debian package strace; a container may not allow it)"
        );
        return;
    }
    let (seed, rounds) = (seed(), from_environment("SHUNT_FAULT_ROUNDS").unwrap_or(ROUNDS));
    println!("faults: {rounds} rounds, SHUNT_CRASH_SEED={seed}");
    let mut random = Random::new(seed);
    for round in 0..rounds {
        let (calls, error, first, persistent) = FAULTS[round as usize % FAULTS.len()];
        let when = format!("{}{}", 1 + random.below(first), if persistent { "+" } else { "" });
        println!("round {round}: {calls} {error} when={when}");
        meet(calls, error, &when);
    }
}

fn meet(calls: &str, error: &str, when: &str) {
    let directory = tempfile::tempdir().expect("directory");
    // The canonical path, because strace compares names with the kernel's.
    let root = directory.path().canonicalize().expect("directory");
    let (data, log, trace) = (root.join("data"), root.join("log"), root.join("trace"));
    let mut plain = Plain::default();
    let sound = Running::start(Kind::Node, &data, &log);
    Plain::prepare(&mut sound.client());
    plain.run(sound.clients, 20);
    assert_eq!(plain.refusals.len(), 0, "{:?}", plain.refusals);
    sound.kill();
    match Running::try_start(failing(&data, &trace, calls, error, when), &log) {
        Some(running) => {
            plain.run(running.clients, VOLLEYS);
            let injected = std::fs::read_to_string(&trace).expect("trace").contains("INJECTED");
            let mut client = running.client();
            let unread = plain.verify(&mut client);
            println!(
                "  injected: {injected}; refusals: {:?}; reads failed: {}",
                plain.refusals,
                unread.len()
            );
            assert!(calls == "pread64" || unread.is_empty(), "{unread:?}");
            assert!(
                unread.iter().chain(&plain.refusals).all(|why| says_what(why)),
                "{unread:?} {:?}",
                plain.refusals
            );
            if error == "ENOSPC" && !when.ends_with('+') {
                writes_again(&mut plain, &mut client);
            }
            running.kill();
        }
        None => {
            let said = std::fs::read_to_string(&log).expect("log");
            println!("  does not start: {said}");
            assert!(said.contains("node-0") || said.contains("schema.json"), "{said}");
        }
    }
    let running = Running::start(Kind::Node, &data, &log);
    let mut client = running.client();
    assert_eq!(plain.verify(&mut client), Vec::<String>::new());
    writes_again(&mut plain, &mut client);
    running.started_quietly();
    assert_eq!(running.stop(), Some(0));
    assert_eq!(check(&data), None);
}

/// True if the message contains the system's error text.
pub(crate) fn says_what(why: &str) -> bool {
    ["Input/output error", "No space left on device", "bytes are free"]
        .iter()
        .any(|word| why.contains(word))
}

pub(crate) fn writes_again(plain: &mut Plain, client: &mut Client) {
    let begun = Instant::now();
    while !plain.one(client) {
        assert!(
            begun.elapsed() < Duration::from_secs(180),
            "no writes are taken again: {:?}",
            plain.refusals
        );
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

//! Nodes on a small disk that really fills up, short writes included. Writes are refused and reads
//! are answered. A copy without enough space leaves nothing behind. With free space, writes
//! continue. No acknowledged write is lost, neither then nor after a kill on the full disk.
//!
//! The disk is a tmpfs in a separate mount namespace, in which this executable starts itself again.
//! Where the kernel does not allow that, the test prints so and checks nothing.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::faults::{says_what, writes_again};
use crate::plain::Plain;
use crate::process::{Kind, Running, check};

const DISK: &str = "SHUNT_SMALL_DISK";
/// Space left on the disk for the node; enough to start.
const LEFT_BYTES: u64 = 3 << 20;

/// Fills the disk, except for a small rest.
fn fill(ballast: &Path) {
    let mut file = std::fs::File::create(ballast).expect("ballast");
    let piece = vec![1; 64 << 10];
    while file.write_all(&piece).is_ok() {}
    let length = file.metadata().expect("length").len();
    file.set_len(length.saturating_sub(LEFT_BYTES)).expect("less ballast");
}

#[test]
fn a_disk_that_fills_up_loses_nothing() {
    if let Some(disk) = std::env::var_os(DISK) {
        return fill_and_recover(Path::new(&disk));
    }
    let disk = tempfile::tempdir().expect("directory");
    let script = "mount -t tmpfs -o size=24m none \"$0\" || exit 77; exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script])
        .arg(disk.path())
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", "full_disk::a_disk_that_fills_up_loses_nothing", "--nocapture"])
        .env(DISK, disk.path())
        .output();
    match output {
        Ok(output) if ![Some(1), Some(77)].contains(&output.status.code()) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
            assert!(said.contains("1 passed"), "{said}");
        }
        _ => println!("skipped: no small disk can be made here"),
    }
}

fn fill_and_recover(disk: &Path) {
    let (data, copy, ballast) = (disk.join("data"), disk.join("copy"), disk.join("ballast"));
    // Must not lie on the disk that fills up.
    let outside =
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("directory");
    let log = outside.path().join("log");
    fill(&ballast);
    let running = Running::start(Kind::Node, &data, &log);
    let mut client = running.client();
    Plain::prepare(&mut client);
    let mut plain = Plain::default();
    plain.run(running.clients, 100_000);
    println!("full after {} acknowledged writes: {:?}", plain.acknowledged(), plain.refusals);
    assert!(plain.acknowledged() > 100);
    assert!(plain.refusals.iter().all(|why| says_what(why)), "{:?}", plain.refusals);
    assert_eq!(plain.verify(&mut client), Vec::<String>::new());
    copying_leaves_nothing(&data, &copy);
    std::fs::remove_file(&ballast).expect("remove");
    writes_again(&mut plain, &mut client);
    plain.run(running.clients, 20);
    running.kill();
    let running = Running::start(Kind::Node, &data, &log);
    assert_eq!(plain.verify(&mut running.client()), Vec::<String>::new());
    running.started_quietly();

    // Filled again, then killed.
    fill(&ballast);
    plain.refusals.clear();
    plain.run(running.clients, 100_000);
    assert!(!plain.refusals.is_empty());
    running.kill();
    // It may start on a full disk, or fail with the reason.
    match Running::try_start(Kind::Node.command(&data), &log) {
        Some(running) => assert_eq!(plain.verify(&mut running.client()), Vec::<String>::new()),
        None => assert!(says_what(&std::fs::read_to_string(&log).expect("log"))),
    }
    std::fs::remove_file(&ballast).expect("remove");
    let running = Running::start(Kind::Node, &data, &log);
    let mut client = running.client();
    assert_eq!(plain.verify(&mut client), Vec::<String>::new());
    writes_again(&mut plain, &mut client);
    running.started_quietly();
    assert_eq!(running.stop(), Some(0));
    assert_eq!(check(&data), None);
}

/// A copy needs as much space as the data that is only in memory, which may fit. If it does not,
/// the copy must leave nothing behind.
fn copying_leaves_nothing(data: &Path, copy: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    let output =
        command.args(["node", "snapshot", "--data"]).arg(data).arg(copy).output().expect("start");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("copied: {} {said}", output.status);
    match output.status.code() {
        Some(0) => std::fs::remove_dir_all(copy).expect("remove"),
        code => {
            assert!(code == Some(5) && says_what(&said), "{said}");
            assert!(!copy.exists(), "half a copy was left");
        }
    }
}

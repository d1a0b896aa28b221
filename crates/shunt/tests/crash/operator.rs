//! Mistakes and accidents of operation: a data directory that is read-only, from another version,
//! already open, half a copy, under a long name, or to be copied into itself; concurrent commands;
//! and signals at the wrong time.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::damage::copy_all;
use crate::model::Random;
use crate::plain::Plain;
use crate::process::{Kind, Running, check};
use crate::seed;

fn shunt(arguments: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shunt")).arg("node").args(arguments).output().expect("start")
}

fn snapshot(data: &Path, to: &Path) -> Result<(), String> {
    let output = shunt(&["snapshot".as_ref(), "--data".as_ref(), data, to]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}

/// Returns the message of a node that does not start.
fn refusal(kind: Kind, data: &Path, log: &Path) -> String {
    assert!(Running::try_start(kind.command(data), log).is_none(), "{} was opened", data.display());
    fs::read_to_string(log).expect("log")
}

fn filled(data: &Path, log: &Path) -> (Running, Plain) {
    let running = Running::start(Kind::Node, data, log);
    Plain::prepare(&mut running.client());
    let mut plain = Plain::default();
    plain.run(running.clients, 5);
    (running, plain)
}

#[test]
fn unusable_directories_are_refused_by_name_and_left_unchanged() {
    let directory = tempfile::tempdir().expect("directory");
    let (data, log) = (directory.path().join("data"), directory.path().join("log"));
    let (running, plain) = filled(&data, &log);
    let other = directory.path().join("other-log");
    for kind in [Kind::Node, Kind::Up] {
        let said = refusal(kind, &data, &other);
        assert!(said.contains("LOCK") && said.contains("in use by process"), "{said}");
    }
    assert_eq!(running.stop(), Some(0));

    // Files of a later version; the copy has no socket.
    let copy = directory.path().join("copy");
    for (file, from, to) in [
        ("node-0/FORMAT", "storage 1", "storage 2"),
        ("schema.json", "\"format\": 2", "\"format\": 9"),
    ] {
        copy_all(&data, &copy);
        let text = fs::read_to_string(copy.join(file)).expect("read");
        assert!(text.contains(from), "{text}");
        fs::write(copy.join(file), text.replace(from, to)).expect("write");
        let said = refusal(Kind::Node, &copy, &other);
        assert!(said.contains(file), "{said}");
        fs::remove_dir_all(&copy).expect("remove");
    }
    // Half a copy: without one of the nodes, or without a file at the top.
    for gone in
        ["node-0", "nodes", "schema.json", "node-0/db", "node-0/db/CURRENT", "node-0/catalogue"]
    {
        copy_all(&data, &copy);
        let path = copy.join(gone);
        if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }
            .expect("remove");
        for _ in 0..2 {
            let said = refusal(Kind::Node, &copy, &other);
            assert!(said.contains(gone), "{gone}: {said}");
        }
        assert!(!path.exists(), "{gone} was made anew");
        assert!(!shunt(&["check".as_ref(), &copy]).status.success(), "{gone}");
        fs::remove_dir_all(&copy).expect("remove");
    }
    let running = Running::start(Kind::Node, &data, &log);
    assert_eq!(plain.verify(&mut running.client()), Vec::<String>::new());
}

#[test]
fn copies_are_whole_or_not_there() {
    let directory = tempfile::tempdir().expect("directory");
    // Longer than a socket's name may be.
    let data = directory.path().join("d".repeat(120)).join("data");
    let (log, copy) = (directory.path().join("log"), directory.path().join("copy"));
    let (running, plain) = filled(&data, &log);
    assert_eq!(fs::read_to_string(&log).expect("log"), "");
    for inside in [data.join("copy"), data.join("node-0/db/copy"), data.join("node-0/../copy")] {
        let said = snapshot(&data, &inside).expect_err("copied into itself");
        assert!(said.contains("inside of the data directory") && !inside.exists(), "{said}");
    }
    let said =
        snapshot(&data, &directory.path().join("nowhere/copy")).expect_err("copied to nowhere");
    assert!(said.contains("nowhere"), "{said}");
    // Concurrent copies, to one place and to two.
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    std::thread::scope(|scope| {
        let asked: Vec<_> =
            [&one, &one, &two].map(|to| scope.spawn(|| snapshot(&data, to))).into_iter().collect();
        let answers: Vec<_> =
            asked.into_iter().map(|asked| asked.join().expect("thread")).collect();
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 2, "{answers:?}");
        assert!(
            answers
                .iter()
                .flat_map(|answer| answer.as_ref().err())
                .all(|why| why.contains("is there already"))
        );
    });
    // A kill leaves the socket behind. Nothing answers there, so the copy works without the node.
    running.kill();
    assert!(data.join("control.sock").exists());
    assert_eq!(snapshot(&data, &copy), Ok(()));
    for copy in [&one, &two, &copy] {
        assert_eq!(check(copy), None);
        let running = Running::start(Kind::Node, copy, &log);
        assert_eq!(plain.verify(&mut running.client()), Vec::<String>::new());
    }
}

/// A signal before the node has started, as from a supervisor that changes its mind.
#[test]
fn a_signal_while_it_starts_does_no_harm() {
    let directory = tempfile::tempdir().expect("directory");
    let (data, log) = (directory.path().join("data"), directory.path().join("log"));
    let mut random = Random::new(seed());
    // Includes the very first start, when the directory is still empty.
    for kind in [Kind::Up; 8] {
        let mut child =
            kind.command(&data).stderr(std::process::Stdio::null()).spawn().expect("start");
        std::thread::park_timeout(std::time::Duration::from_millis(random.below(80)));
        let kill = format!("kill -TERM {}", child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("sh").success());
        child.wait().expect("wait");
    }
    let running = Running::start(Kind::Up, &data, &log);
    Plain::prepare(&mut running.client());
    running.started_quietly();
}

/// A directory of another user, and a read-only one.
#[test]
fn a_directory_that_cannot_be_written_to_is_named() {
    let directory = tempfile::tempdir().expect("directory");
    let (data, log) = (directory.path().join("data"), directory.path().join("log"));
    let (running, _) = filled(&data, &log);
    assert_eq!(running.stop(), Some(0));
    let script =
        "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" || exit 77; exec \"$@\"";
    let inside = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script]).arg(&data);
        command
            .arg(env!("CARGO_BIN_EXE_shunt"))
            .args(arguments)
            .arg(&data)
            .output()
            .expect("unshare")
    };
    let output = inside(&["node", "--listen", "127.0.0.1:0", "--admin", "off", "--data"]);
    if matches!(output.status.code(), Some(1 | 77)) {
        println!("skipped: no file system can be made read-only here");
        return;
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(5) && said.contains("LOCK: Read-only file system"),
        "{said}"
    );
    // A backup on a read-only medium can be checked.
    let output = inside(&["node", "check"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

//! A build without the embedded node: its proxy works as usual, and commands for a node say what to
//! do.

use std::process::Command;

use crate::support::output;

#[test]
fn a_build_without_the_node_lists_neither_node_nor_up_and_says_how_to_get_them() {
    let (code, help, _) = output(&["--help"]);
    assert_eq!(code, 0);
    let (commands, _) = help.split_once("Options:\n").expect("commands before options");
    let names: Vec<&str> = commands
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next())
        .collect();
    let expected = "proxy check ready top clients connections failed-logins nodes slow queries hot \
                    rules tenants alerts config log-level kick drain undrain reload fleet doctor \
                    lock locks dispatch agent switch multiget generate bench help";
    assert_eq!(names.join(" "), expected, "{help}");
    assert!(!help.contains("shunt up") && !help.contains("shunt node"), "{help}");
    for arguments in [
        &["node", "--data", "somewhere"][..],
        &["node", "check", "somewhere"],
        &["node", "--help"],
        &["up"],
        &["up", "--nodes", "2"],
    ] {
        let (code, said, complained) = output(arguments);
        assert_eq!((code, said.as_str()), (2, ""), "{arguments:?}: {complained}");
        for part in [
            &format!("`shunt {}`", arguments[0]),
            "embedded node",
            "default features",
            "package",
            "shunt proxy",
        ] {
            assert!(complained.contains(part), "{arguments:?}: {part} is not in {complained}");
        }
    }
    assert!(output(&["--version", "-v"]).1.contains("embedded node: no"));
}

#[test]
fn a_build_with_the_node_beside_this_one_runs_the_commands_of_the_node() {
    let directory = tempfile::tempdir().expect("a directory");
    let (own, other) = (directory.path().join("shunt"), directory.path().join("shunt-node"));
    // Programs of their own write both files: a process that another test starts meanwhile would
    // inherit an open file, and nothing runs a file that is open for writing.
    let script =
        "cp \"$0\" \"$1\" && printf '#!/bin/sh\\necho \"$@\"\\n' >\"$2\" && chmod 755 \"$2\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_shunt")]).args([&own, &other]);
    assert!(shell.status().expect("sh").success());
    for arguments in [&["node", "check", "somewhere"][..], &["up", "--nodes", "2"]] {
        let ran = Command::new(&own).args(arguments).output().expect("it runs");
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert_eq!(said, arguments.join(" ") + "\n", "{ran:?}");
    }
    let run = Command::new(&own).arg("--version").output().expect("it runs");
    assert!(run.stdout.starts_with(b"shunt "), "{run:?}");
}

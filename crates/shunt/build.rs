//! Tells the binary which commit and compiler it comes from, for `shunt --version -v`.

use std::process::Command;

fn main() {
    let commit = first_line(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]));
    println!("cargo::rustc-env=SHUNT_COMMIT={}", commit.unwrap_or_else(|| "unknown".to_owned()));
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let rustc = first_line(Command::new(rustc).arg("--version"));
    println!("cargo::rustc-env=SHUNT_RUSTC={}", rustc.unwrap_or_else(|| "unknown".to_owned()));
    println!("cargo::rerun-if-changed=build.rs");
    // Written by every commit and checkout.
    if let Some(log) =
        first_line(Command::new("git").args(["rev-parse", "--git-path", "logs/HEAD"]))
    {
        println!("cargo::rerun-if-changed={log}");
    }
}

/// First line of what a command prints; `None` if it fails, as git does outside a checkout.
fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    let line = String::from_utf8(output.stdout).ok()?.lines().next()?.trim().to_owned();
    (!line.is_empty()).then_some(line)
}

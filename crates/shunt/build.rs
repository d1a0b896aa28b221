//! Gives the binary its commit and compiler for `shunt --version -v`.

use std::process::Command;

fn main() {
    let commit = first_line(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]));
    println!("cargo::rustc-env=SHUNT_COMMIT={}", commit.unwrap_or_else(|| "unknown".to_owned()));
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let rustc = first_line(Command::new(rustc).arg("--version"));
    println!("cargo::rustc-env=SHUNT_RUSTC={}", rustc.unwrap_or_else(|| "unknown".to_owned()));
    println!("cargo::rerun-if-changed=build.rs");
    // Every commit and checkout writes this file.
    if let Some(log) =
        first_line(Command::new("git").args(["rev-parse", "--git-path", "logs/HEAD"]))
    {
        println!("cargo::rerun-if-changed={log}");
    }
}

/// Returns the first line of a command's output; `None` if it fails, as git does outside a
/// checkout.
fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    let line = String::from_utf8(output.stdout).ok()?.lines().next()?.trim().to_owned();
    (!line.is_empty()).then_some(line)
}

//! Runs a test over many seeds and prints how to replay the one that failed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Calls `run` with the seeds `0..default_count`.
///
/// `SHUNT_SIM_SEEDS=N` sets another count, `SHUNT_SIM_FIRST=N` another first one,
/// `SHUNT_SIM_SEED=x` (decimal, or hexadecimal after `0x`) runs that one seed alone. A panic inside
/// is passed on after a line with the command that replays it.
///
/// # Panics
/// If a variable is set and not a number: a typing error must not pass for a green run.
pub fn for_seeds(default_count: u64, mut run: impl FnMut(u64)) {
    if let Some(seed) = variable("SHUNT_SIM_SEED") {
        return run(seed);
    }
    let first = variable("SHUNT_SIM_FIRST").unwrap_or(0);
    for seed in first..first + variable("SHUNT_SIM_SEEDS").unwrap_or(default_count) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!("{}", replay_line(seed));
            resume_unwind(panic);
        }
    }
}

/// The command that replays a seed of the running test. The test harness names the thread after the
/// test; the package is known if cargo started the test.
fn replay_line(seed: u64) -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "<package>".to_owned());
    let current = std::thread::current();
    let test = current.name().filter(|&name| name != "main").unwrap_or("<test>");
    format!("replay with SHUNT_SIM_SEED={seed:#x} cargo test -p {package} {test}")
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    Some(number.unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command_that_replays_it() {
        let line = replay_line(31);
        assert!(
            line.starts_with("replay with SHUNT_SIM_SEED=0x1f cargo test -p shunt-reactor "),
            "{line}"
        );
    }
}

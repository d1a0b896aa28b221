//! Writes the seeds into the corpus. Run it after an encoder or `seeds.rs` has changed, and commit
//! the differences.

use std::io;

use shunt_fuzz::{TARGETS, runner, seeds};

fn main() -> io::Result<()> {
    for target in TARGETS {
        std::fs::create_dir_all(runner::folder(target))?;
    }
    for seed in seeds::seeds() {
        let target = TARGETS.into_iter().find(|target| target.name == seed.target);
        let target =
            target.ok_or_else(|| io::Error::other(format!("no target {}", seed.target)))?;
        std::fs::write(runner::folder(target).join(&seed.name), &seed.bytes)?;
    }
    Ok(())
}

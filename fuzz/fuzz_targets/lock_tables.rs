//! `cargo fuzz run lock_tables`; without cargo-fuzz, runs the files named on the command line once.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| shunt_fuzz::lock_tables::run(data));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    shunt_fuzz::replay(shunt_fuzz::lock_tables::run)
}

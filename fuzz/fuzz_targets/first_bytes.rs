//! `cargo fuzz run first_bytes`; without cargo-fuzz, runs the files named on the command line once.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| shunt_fuzz::first_bytes::run(data));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    shunt_fuzz::replay(shunt_fuzz::first_bytes::run)
}

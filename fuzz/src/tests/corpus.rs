//! Runs every target on its corpus and on mutations of it.

use crate::{TARGETS, runner, seeds};

const ITERATIONS: u64 = 2_500;
const SEED: u64 = 1;

/// Reads a number from the environment.
fn number(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => {
            text.parse().unwrap_or_else(|_| panic!("{name} must be a number, found {text:?}"))
        }
        Err(_) => otherwise,
    }
}

fn fuzz(name: &str) {
    let target =
        TARGETS.into_iter().find(|target| target.name == name).expect("a target of that name");
    let seed = number("SHUNT_FUZZ_SEED", SEED);
    println!("SHUNT_FUZZ_SEED={seed} repeats this run");
    runner::run(target, number("SHUNT_FUZZ_ITERATIONS", ITERATIONS), seed);
}

#[test]
fn requests() {
    fuzz("requests");
}

#[test]
fn responses() {
    fuzz("responses");
}

#[test]
fn segments() {
    fuzz("segments");
}

#[test]
fn envelopes() {
    fuzz("envelopes");
}

#[test]
fn compression() {
    fuzz("compression");
}

#[test]
fn aggregate() {
    fuzz("aggregate");
}

#[test]
fn statement() {
    fuzz("statement");
}

#[test]
fn types() {
    fuzz("types");
}

#[test]
fn language() {
    fuzz("language");
}

#[test]
fn lock_tables() {
    fuzz("lock_tables");
}

#[test]
fn redo() {
    fuzz("redo");
}

#[test]
fn transaction() {
    fuzz("transaction");
}

#[test]
fn fleet() {
    fuzz("fleet");
}

#[test]
fn locks() {
    fuzz("locks");
}

#[test]
fn values() {
    fuzz("values");
}

#[test]
fn records() {
    fuzz("records");
}

#[test]
fn http1() {
    fuzz("http1");
}

#[test]
fn netmc() {
    fuzz("netmc");
}

#[test]
fn resp() {
    fuzz("resp");
}

#[test]
fn shim() {
    fuzz("shim");
}

#[test]
fn merging() {
    fuzz("merging");
}

#[test]
fn sidecar() {
    fuzz("sidecar");
}

#[test]
fn control() {
    fuzz("control");
}

#[test]
fn moving() {
    fuzz("moving");
}

#[test]
fn the_corpus_has_every_seed_as_the_encoders_write_it_now() {
    for seed in seeds::seeds() {
        let target = TARGETS
            .into_iter()
            .find(|target| target.name == seed.target)
            .expect("a target of that name");
        let found = std::fs::read(runner::folder(target).join(&seed.name)).ok();
        let same = found.as_deref() == Some(&seed.bytes[..]);
        assert!(
            same,
            "corpus/{}/{} differs: cargo run --example write_seeds",
            seed.target, seed.name
        );
    }
}

#[test]
fn tls() {
    fuzz("tls");
}

#[test]
fn first_bytes() {
    fuzz("first_bytes");
}

#[test]
fn traces() {
    fuzz("traces");
}

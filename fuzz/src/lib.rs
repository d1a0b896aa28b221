//! Fuzz targets for every decoder, as plain functions from bytes.
//!
//! A target panics if a property does not hold: besides "no input panics", these are "encoding the
//! decoded value gives the same bytes" and "a decoder consumes only the bytes present". Two runners
//! exist:
//!
//! - `cargo test`: [`runner`] mutates the corpus by a seeded generator, on the stable toolchain and
//!   anywhere. Short by default; `SHUNT_FUZZ_ITERATIONS` sets the length, `SHUNT_FUZZ_SEED` the
//!   seed. A failing run prints its input as hex.
//! - `cargo fuzz run TARGET` (nightly): coverage-guided, for long runs. Its findings go into
//!   `corpus/TARGET/`.
//!
//! `cargo run --bin TARGET FILE..` runs a target once on each file. `corpus/` starts from
//! [`seeds`], which `cargo run --example write_seeds` rewrites after an encoder has changed.

pub mod aggregate;
pub mod compression;
pub mod control;
pub mod envelopes;
pub mod lock_tables;
pub mod first_bytes;
pub mod fleet;
pub mod http1;
pub mod language;
pub mod locks;
pub mod merging;
pub mod moving;
pub mod netmc;
pub mod proxy_protocol;
pub mod records;
pub mod redo;
pub mod requests;
pub mod resp;
pub mod responses;
pub mod runner;
pub mod seeds;
pub mod segments;
pub mod shim;
pub mod sidecar;
pub mod statement;
pub mod tls;
pub mod traces;
pub mod transaction;
pub mod types;
pub mod values;

#[cfg(test)]
mod tests;

use std::process::ExitCode;

use shunt_wire::cql::envelope::{HEADER_BYTES, Header};

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target and of its folder in `corpus/`.
    pub name: &'static str,
    /// Tries one input; panics if a property does not hold.
    pub run: fn(&[u8]),
}

/// The targets of this crate.
pub const TARGETS: [Target; 28] = [
    Target { name: "requests", run: requests::run },
    Target { name: "responses", run: responses::run },
    Target { name: "segments", run: segments::run },
    Target { name: "envelopes", run: envelopes::run },
    Target { name: "compression", run: compression::run },
    Target { name: "aggregate", run: aggregate::run },
    Target { name: "statement", run: statement::run },
    Target { name: "types", run: types::run },
    Target { name: "language", run: language::run },
    Target { name: "lock_tables", run: lock_tables::run },
    Target { name: "transaction", run: transaction::run },
    Target { name: "fleet", run: fleet::run },
    Target { name: "locks", run: locks::run },
    Target { name: "redo", run: redo::run },
    Target { name: "values", run: values::run },
    Target { name: "records", run: records::run },
    Target { name: "http1", run: http1::run },
    Target { name: "control", run: control::run },
    Target { name: "moving", run: moving::run },
    Target { name: "netmc", run: netmc::run },
    Target { name: "resp", run: resp::run },
    Target { name: "proxy_protocol", run: proxy_protocol::run },
    Target { name: "first_bytes", run: first_bytes::run },
    Target { name: "shim", run: shim::run },
    Target { name: "merging", run: merging::run },
    Target { name: "sidecar", run: sidecar::run },
    Target { name: "tls", run: tls::run },
    Target { name: "traces", run: traces::run },
];

/// Runs a target on each file named on the command line.
pub fn replay(run: fn(&[u8])) -> ExitCode {
    for name in std::env::args().skip(1) {
        match std::fs::read(&name) {
            Ok(data) => run(&data),
            Err(error) => {
                eprintln!("{name}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// Calls `body` with header and body of every envelope in `data`, the last one possibly truncated.
/// Headers of unknown versions get a known one, so that more inputs reach a body's decoder.
fn each_envelope(mut data: &[u8], body: impl Fn(Header, &[u8])) {
    while let Some(header) = Header::decode(data) {
        assert_eq!(header.to_bytes(), data[..HEADER_BYTES]);
        let rest = &data[HEADER_BYTES..];
        let (bytes, next) = rest.split_at(rest.len().min(header.length as usize));
        body(Header { version: 3 + header.version % 3, ..header }, bytes);
        data = next;
    }
}

/// The bytes that `write` appends.
fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

/// Returns the result of `decode`, which must never hold more than `each` bytes for each of the
/// `length` bytes of its input, and a page or two: a count in the input must not be trusted before
/// the counted items are read.
#[cfg(not(fuzzing))]
fn bounded<T>(each: usize, length: usize, decode: impl FnOnce() -> T) -> T {
    let mut decoded = None;
    let allocated = allocation_counter::measure(|| decoded = Some(decode()));
    let most = (each * length + 16 * 1024) as u64;
    assert!(allocated.bytes_max <= most, "{} bytes for an input of {length}", allocated.bytes_max);
    decoded.expect("it has run")
}

/// libFuzzer itself limits memory, and a counting allocator would interfere with its own.
#[cfg(fuzzing)]
fn bounded<T>(_each: usize, _length: usize, decode: impl FnOnce() -> T) -> T {
    decode()
}

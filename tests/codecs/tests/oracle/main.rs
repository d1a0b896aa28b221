//! Our codecs against independent ones: each side reads the other's output, and the bytes are
//! equal.
//!
//! `cassandra-protocol` knows v3 to v5, requests and responses, and both framings of v5;
//! `scylla-cql` knows v4.

#![allow(clippy::unwrap_used, reason = "a test may say what it expects and stop there")]

mod compression;
mod requests;
mod responses;
mod scylla;
mod segments;

use cassandra_protocol::frame::{Opcode, Version};

/// The protocol versions that both sides know.
const VERSIONS: [(u8, Version); 3] = [(3, Version::V3), (4, Version::V4), (5, Version::V5)];

/// A body written by `write`.
fn body(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

#[test]
fn opcodes_are_the_same() {
    use shunt_wire::cql::envelope::opcode;
    let pairs = [
        (opcode::ERROR, Opcode::Error),
        (opcode::STARTUP, Opcode::Startup),
        (opcode::READY, Opcode::Ready),
        (opcode::AUTHENTICATE, Opcode::Authenticate),
        (opcode::OPTIONS, Opcode::Options),
        (opcode::SUPPORTED, Opcode::Supported),
        (opcode::QUERY, Opcode::Query),
        (opcode::RESULT, Opcode::Result),
        (opcode::PREPARE, Opcode::Prepare),
        (opcode::EXECUTE, Opcode::Execute),
        (opcode::REGISTER, Opcode::Register),
        (opcode::EVENT, Opcode::Event),
        (opcode::BATCH, Opcode::Batch),
        (opcode::AUTH_CHALLENGE, Opcode::AuthChallenge),
        (opcode::AUTH_RESPONSE, Opcode::AuthResponse),
        (opcode::AUTH_SUCCESS, Opcode::AuthSuccess),
    ];
    for (ours, theirs) in pairs {
        assert_eq!(ours, u8::from(theirs));
    }
}

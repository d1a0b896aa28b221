//! The CQL native protocol, versions 3 to 5, the aggregated frame, HTTP/1.1, NetMC's datagrams and
//! Redis' RESP, as sans-IO codecs.
//!
//! Bytes come from the caller and go to a `Vec<u8>` of the caller; nothing here reads a socket, a
//! clock or a file. Decoders borrow from their input and check every length before they use it: no
//! input panics, and no length that a peer claims is believed before the bytes are there. What the
//! proxy calls per query allocates nothing.
//!
//! ```text
//! bytes ─ cql::frame_v5 (v5 segments) ─┐
//! bytes ───────────────────────────────┴─ cql::envelope ─ cql::compression (v3, v4) ─ cql::message
//! '──────────── cql::reader ─────────────────'  └─ aggregate (many envelopes in one, opcode 0x64)
//! ```
//!
//! `cql::reader` is the one way in, for every side of every connection; `cql::writer` the way out
//! for those that do not pass bodies on as they are.
//!
//! `cql::statement` looks into query text, `cql::types` into values; both are asked by routing
//! alone.

pub mod aggregate;
pub mod cql;
pub mod error;
pub mod http1;
pub mod netmc;
pub mod resp;

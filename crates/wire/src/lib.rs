//! The CQL native protocol, versions 3 to 5, the aggregated frame, HTTP/1.1, NetMC's datagrams,
//! Redis' RESP and the header of the PROXY protocol, as sans-IO codecs.
//!
//! The caller provides the bytes and a `Vec<u8>` for output; the crate reads no socket, clock or
//! file. Decoders borrow from their input and check every length before use: no input panics, and
//! no length claimed by a peer is trusted before the bytes have arrived. Functions that the proxy
//! calls per query do not allocate.
//!
//! ```text
//! bytes ─ cql::frame_v5 (v5 segments) ─┐
//! bytes ───────────────────────────────┴─ cql::envelope ─ cql::compression (v3, v4) ─ cql::message
//! '──────────── cql::reader ─────────────────'  └─ aggregate (many envelopes in one, opcode 0x64)
//! ```
//!
//! `cql::reader` reads every side of every connection; `cql::writer` writes for code that does not
//! pass bodies on unchanged.
//!
//! `cql::statement` reads query text and `cql::types` values; only routing uses them.

pub mod aggregate;
pub mod cql;
pub mod error;
pub mod http1;
pub mod netmc;
pub mod printable;
pub mod proxy_protocol;
pub mod resp;
pub mod trace_context;

//! CQL native protocol: framing, messages, value types and statement text.

pub mod compression;
pub mod envelope;
pub mod frame_v5;
pub mod framing;
pub mod message;
pub mod reader;
pub mod statement;
pub mod types;

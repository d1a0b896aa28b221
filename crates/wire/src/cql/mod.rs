//! CQL native protocol: framings, messages, value types and statement text.

pub mod compression;
pub mod envelope;
pub mod foreign;
pub mod frame_v5;
pub mod message;
pub mod reader;
pub mod statement;
pub mod types;
pub mod writer;

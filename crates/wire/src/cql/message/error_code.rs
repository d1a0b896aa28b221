//! Codes of ERROR messages (v5, section 8; v3 and v4, section 9).

/// Something unexpected happened in the server.
pub const SERVER_ERROR: i32 = 0x0000;
/// A message violated the protocol.
pub const PROTOCOL_ERROR: i32 = 0x000A;
/// Authentication was required and failed.
pub const BAD_CREDENTIALS: i32 = 0x0100;
/// Fewer replicas are alive than the consistency level needs.
pub const UNAVAILABLE: i32 = 0x1000;
/// The coordinator is overloaded.
pub const OVERLOADED: i32 = 0x1001;
/// The coordinator is joining the ring.
pub const IS_BOOTSTRAPPING: i32 = 0x1002;
/// A truncation failed.
pub const TRUNCATE_ERROR: i32 = 0x1003;
/// Too few replicas acknowledged a write in time.
pub const WRITE_TIMEOUT: i32 = 0x1100;
/// Too few replicas answered a read in time.
pub const READ_TIMEOUT: i32 = 0x1200;
/// Replicas failed a read; v4 and later.
pub const READ_FAILURE: i32 = 0x1300;
/// A user-defined function failed; v4 and later.
pub const FUNCTION_FAILURE: i32 = 0x1400;
/// Replicas failed a write; v4 and later.
pub const WRITE_FAILURE: i32 = 0x1500;
/// Change data capture has no space left; v5.
pub const CDC_WRITE_FAILURE: i32 = 0x1600;
/// A conditional write may or may not take effect; v5.
pub const CAS_WRITE_UNKNOWN: i32 = 0x1700;
/// The statement does not parse.
pub const SYNTAX_ERROR: i32 = 0x2000;
/// The role lacks a permission.
pub const UNAUTHORIZED: i32 = 0x2100;
/// The statement parses and is not valid.
pub const INVALID: i32 = 0x2200;
/// The statement is not valid under the configuration.
pub const CONFIG_ERROR: i32 = 0x2300;
/// The keyspace or table exists.
pub const ALREADY_EXISTS: i32 = 0x2400;
/// The node does not know the id of a prepared statement.
pub const UNPREPARED: i32 = 0x2500;

/// Returns the code of the ERROR in `body` without decoding the rest; `None` if the code is
/// missing.
pub fn peek(body: &[u8]) -> Option<i32> {
    body.first_chunk().map(|code| i32::from_be_bytes(*code))
}

//! Encoders, each of which appends the body of one message. [`crate::cql::envelope`] writes
//! headers.
//!
//! Views that hold every field of their message encode themselves; this file has a function for
//! each of the others.

use super::consistency::Consistency;
use super::errors::ErrorMessage;
use super::query_params::QueryParams;
use super::request::{BatchChild, BatchKind, BatchStatement, PREPARE_KEYSPACE};
use super::result::result_kind;
use super::{Event, SchemaChange, put};

/// STARTUP: options such as `("CQL_VERSION", "3.0.0")`.
pub fn startup<'s>(out: &mut Vec<u8>, options: impl IntoIterator<Item = (&'s str, &'s str)>) {
    put::string_map(out, options);
}

/// QUERY.
pub fn query(out: &mut Vec<u8>, version: u8, text: &str, params: &QueryParams<'_>) {
    put::long_string(out, text);
    params.put(out, version);
}

/// QUERY with only a consistency level.
pub fn query_simple(out: &mut Vec<u8>, version: u8, text: &str, consistency: Consistency) {
    query(out, version, text, &QueryParams::simple(consistency));
}

/// PREPARE. Versions before v5 omit the keyspace.
pub fn prepare(out: &mut Vec<u8>, version: u8, text: &str, keyspace: Option<&str>) {
    put::long_string(out, text);
    if version < 5 {
        return;
    }
    match keyspace {
        None => put::int(out, 0),
        Some(keyspace) => {
            put::int(out, PREPARE_KEYSPACE);
            put::string(out, keyspace);
        }
    }
}

/// EXECUTE. In v5 a `result_metadata_id` of `None` is written as an empty id; earlier versions omit
/// the field.
pub fn execute(
    out: &mut Vec<u8>,
    version: u8,
    id: &[u8],
    result_metadata_id: Option<&[u8]>,
    params: &QueryParams<'_>,
) {
    put::short_bytes(out, id);
    if version >= 5 {
        put::short_bytes(out, result_metadata_id.unwrap_or_default());
    }
    params.put(out, version);
}

/// BATCH. Omits children beyond the 65,535th.
pub fn batch<'s>(
    out: &mut Vec<u8>,
    version: u8,
    kind: BatchKind,
    children: impl IntoIterator<Item = BatchChild<'s>>,
    params: &QueryParams<'_>,
) {
    out.push(kind as u8);
    put::counted(out, children, |out, child| {
        match child.statement {
            BatchStatement::Text(text) => {
                out.push(0);
                put::long_string(out, text);
            }
            BatchStatement::Prepared(id) => {
                out.push(1);
                put::short_bytes(out, id);
            }
        }
        child.values.put(out);
    });
    params.put(out, version);
}

/// REGISTER.
pub fn register<'s>(out: &mut Vec<u8>, events: impl IntoIterator<Item = &'s str>) {
    put::string_list(out, events);
}

/// AUTH_RESPONSE.
pub fn auth_response(out: &mut Vec<u8>, token: Option<&[u8]>) {
    put::bytes(out, token);
}

/// ERROR with a code that has no extra fields.
pub fn error(out: &mut Vec<u8>, code: i32, message: &str) {
    put::int(out, code);
    put::string(out, message);
}

/// ERROR with the fields that its code adds.
pub fn error_with(out: &mut Vec<u8>, version: u8, message: &ErrorMessage<'_>) {
    message.put(out, version);
}

/// AUTHENTICATE.
pub fn authenticate(out: &mut Vec<u8>, class: &str) {
    put::string(out, class);
}

/// AUTH_SUCCESS.
pub fn auth_success(out: &mut Vec<u8>, token: Option<&[u8]>) {
    put::bytes(out, token);
}

/// SUPPORTED.
pub fn supported<'s, V>(out: &mut Vec<u8>, options: impl IntoIterator<Item = (&'s str, V)>)
where
    V: IntoIterator<Item = &'s str>,
{
    put::counted(out, options, |out, (key, values)| {
        put::string(out, key);
        put::string_list(out, values);
    });
}

/// EVENT.
pub fn event(out: &mut Vec<u8>, event: &Event<'_>) {
    event.put(out);
}

/// RESULT of kind void.
pub fn void(out: &mut Vec<u8>) {
    put::int(out, result_kind::VOID);
}

/// RESULT of kind set_keyspace.
pub fn set_keyspace(out: &mut Vec<u8>, keyspace: &str) {
    put::int(out, result_kind::SET_KEYSPACE);
    put::string(out, keyspace);
}

/// RESULT of kind schema_change.
pub fn schema_change(out: &mut Vec<u8>, change: &SchemaChange<'_>) {
    put::int(out, result_kind::SCHEMA_CHANGE);
    change.put(out);
}

//! The `traceparent` of a request: the first byte is the header's flags, the rest the body.

use shunt_wire::cql::envelope::flag;
use shunt_wire::cql::message::{put, split_request_prefix};
use shunt_wire::trace_context::{TRACEPARENT, TraceParent};

/// Tries one input.
pub fn run(data: &[u8]) {
    value(data);
    let Some((flags, body)) = data.split_first() else { return };
    let Ok((payload, rest)) = split_request_prefix(*flags, body) else { return };
    assert!(rest.len() <= body.len());
    assert_eq!(payload.is_some(), flags & flag::CUSTOM_PAYLOAD != 0);
    let found = payload.and_then(|payload| payload.iter().find(|(key, _)| *key == TRACEPARENT));
    if let Some((_, Some(text))) = found {
        value(text);
    }
}

/// Reads a value, and what is written of its meaning.
fn value(text: &[u8]) {
    let Some(parent) = TraceParent::parse(text) else { return };
    assert!(text.len() >= 55 && text.is_ascii() || text.len() > 55);
    assert!(parent.trace_id != [0; 16] && parent.parent_id != [0; 8]);
    let trace = u128::from_be_bytes(parent.trace_id);
    let span = u64::from_be_bytes(parent.parent_id);
    let written = format!("00-{trace:032x}-{span:016x}-{:02x}", u8::from(parent.is_sampled));
    assert_eq!(TraceParent::parse(written.as_bytes()), Some(parent));
    assert_eq!(&written.as_bytes()[2..52], &text[2..52], "nothing but the version and the flags");
    // The value survives the way through a payload.
    let mut body = Vec::new();
    put::bytes_map(&mut body, [(TRACEPARENT, Some(text))]);
    let (payload, rest) = split_request_prefix(flag::CUSTOM_PAYLOAD, &body).expect("well formed");
    let found = payload.and_then(|payload| payload.iter().next());
    assert_eq!((found, rest.len()), (Some((TRACEPARENT, Some(text))), 0));
}

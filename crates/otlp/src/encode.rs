//! Spans as JSON: `ExportTraceServiceRequest` of the OTLP specification, in the mapping of "JSON
//! Protobuf Encoding". 64-bit numbers are strings, ids are hexadecimal, enums are numbers.

use serde_json::{Value, json};

use crate::span::{Attribute, Kind, Span};

/// Most spans in one request.
pub(crate) const BATCH_SPANS_MAX: usize = 512;
/// Bytes of one request; its last span may exceed them.
pub(crate) const BATCH_BYTES_MAX: usize = 1 << 20;

/// Flags of a span (`SpanFlags`): sampled, and whether the parent is in another process.
const SAMPLED: u32 = 0x1;
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
/// `STATUS_CODE_ERROR`.
const STATUS_ERROR: u32 = 2;

/// Name and version of the program that produces the spans.
pub(crate) struct Resource<'a> {
    pub(crate) service_name: &'a str,
    pub(crate) version: &'a str,
    /// Name of the host; may be empty.
    pub(crate) host: &'a str,
}

/// Encodes the spans from `start` on, as many as fit into one request. Returns the request's body
/// and the number of its spans, which is 0 only if there are none.
pub(crate) fn request(resource: &Resource<'_>, spans: &[Span]) -> (Vec<u8>, usize) {
    let mut attributes = vec![
        text("service.name", resource.service_name),
        text("service.version", resource.version),
    ];
    if !resource.host.is_empty() {
        attributes.push(text("host.name", resource.host));
    }
    let resource_attributes = Value::Array(attributes);
    let scope = json!({ "name": "shunt", "version": resource.version });
    let mut body = format!(
        "{{\"resourceSpans\":[{{\"resource\":{{\"attributes\":{resource_attributes}}},\
         \"scopeSpans\":[{{\"scope\":{scope},\"spans\":["
    );
    let mut count = 0;
    for span in spans.iter().take(BATCH_SPANS_MAX) {
        if count > 0 {
            if body.len() >= BATCH_BYTES_MAX {
                break;
            }
            body.push(',');
        }
        body.push_str(&encoded(span).to_string());
        count += 1;
    }
    body.push_str("]}]}]}");
    (body.into_bytes(), count)
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn encoded(span: &Span) -> Value {
    let attributes: Vec<Value> = span
        .attributes
        .iter()
        .map(|(key, value)| match value {
            Attribute::Shared(value) => text(key, value),
            Attribute::Text(value) => text(key, value),
            Attribute::Word(value) => text(key, value),
            Attribute::Number(value) => {
                json!({ "key": key, "value": { "intValue": value.to_string() } })
            }
        })
        .collect();
    let kind = match span.kind {
        Kind::Server => 2,
        Kind::Client => 3,
    };
    let remote = if span.has_remote_parent { IS_REMOTE } else { 0 };
    let status = if span.is_error { json!({ "code": STATUS_ERROR }) } else { json!({}) };
    json!({
        "traceId": hex(&span.trace_id),
        "spanId": hex(&span.span_id),
        "parentSpanId": hex(&span.parent_id),
        "flags": SAMPLED | HAS_IS_REMOTE | remote,
        "name": &*span.name,
        "kind": kind,
        "startTimeUnixNano": span.start_unix_ns.to_string(),
        "endTimeUnixNano": span.end_unix_ns.to_string(),
        "attributes": attributes,
        "status": status,
    })
}

/// Bytes in hexadecimal.
fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

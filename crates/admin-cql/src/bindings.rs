//! Bind values of a request, and the inputs of functions.

use std::time::{SystemTime, UNIX_EPOCH};

use shunt_language::functions::Environment;
use shunt_language::terms::{Bindings, Value};
use shunt_wire::cql::message::{Value as Sent, Values};

use crate::fault::Fault;
use crate::limits::BOUND_BYTES_MAX;
use crate::plan::Marker;

/// Steps of 100 ns from the start of the Gregorian calendar to 1970 (RFC 9562).
const GREGORIAN_STEPS: u64 = 0x01B2_1DD2_1381_4000;

/// The values of a request's markers.
#[derive(Debug)]
pub(crate) struct Bound {
    values: Vec<Value>,
    now_ms: i64,
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

impl Bound {
    /// The values of a request for these markers.
    ///
    /// # Errors
    /// A value is missing, there are more values than markers, or the values are too long.
    pub(crate) fn new(markers: &[Marker], sent: &Values<'_>) -> Result<Bound, Fault> {
        if !sent.is_named() && sent.len() != markers.len() {
            let (markers, sent) = (markers.len(), sent.len());
            return Err(Fault::invalid(format!(
                "there were {markers} markers(?) in CQL but {sent} bound variables"
            )));
        }
        let found = values_of(markers, sent)?;
        let bytes: usize = found.iter().copied().filter_map(Sent::bytes).map(<[u8]>::len).sum();
        if bytes > BOUND_BYTES_MAX {
            return Err(Fault::invalid(format!(
                "the values of all bind markers have {bytes} bytes; the limit is {BOUND_BYTES_MAX} \
                 at the admin address"
            )));
        }
        let value = |sent: Sent<'_>| match sent {
            Sent::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
            Sent::Null => Value::Null,
            Sent::Unset => Value::Unset,
        };
        Ok(Bound { values: found.into_iter().map(value).collect(), now_ms: now_ms() })
    }
}

/// The value of each marker.
fn values_of<'v>(markers: &[Marker], sent: &Values<'v>) -> Result<Vec<Sent<'v>>, Fault> {
    if !sent.is_named() {
        return Ok(sent.iter().map(|(_, value)| value).collect());
    }
    let found = sent.with_names(markers.iter().map(|marker| &*marker.name));
    let value = |marker: &Marker| {
        let name = &marker.name;
        let value = found.get(name.as_str()).copied();
        value.ok_or_else(|| Fault::invalid(format!("the marker {name} has no value")))
    };
    markers.iter().map(value).collect()
}

impl Environment for Bound {
    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// A UUID with the time; nobody keeps it.
    fn timeuuid(&self) -> [u8; 16] {
        let steps = GREGORIAN_STEPS + self.now_ms.unsigned_abs() * 10_000;
        let most = (steps << 32) | (steps >> 16 & 0xFFFF_0000) | 0x1000 | (steps >> 48 & 0xFFF);
        (u128::from(most) << 64 | 1 << 63).to_be_bytes()
    }

    fn random(&self) -> u128 {
        0
    }

    fn token(&self, _: &[u8]) -> i64 {
        0
    }
}

impl Bindings for Bound {
    fn value(&self, index: u16) -> Value {
        self.values.get(usize::from(index)).cloned().unwrap_or(Value::Unset)
    }
}

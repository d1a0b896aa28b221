//! Bind values of a request, and the inputs of functions.

use std::time::{SystemTime, UNIX_EPOCH};

use shunt_language::functions::Environment;
use shunt_language::terms::{Bindings, Value};
use shunt_wire::cql::message::{Value as Sent, Values};

use crate::fault::Fault;
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
    /// A value is missing, or there are more values than markers.
    pub(crate) fn new(markers: &[Marker], sent: &Values<'_>) -> Result<Bound, Fault> {
        if !sent.is_named() && sent.len() != markers.len() {
            let (markers, sent) = (markers.len(), sent.len());
            return Err(Fault::invalid(format!(
                "there were {markers} markers(?) in CQL but {sent} bound variables"
            )));
        }
        let value = |(index, marker): (usize, &Marker)| {
            let name = &marker.name;
            let found = if sent.is_named() { sent.named(name) } else { sent.get(index) };
            match found {
                Some(Sent::Bytes(bytes)) => Ok(Value::Bytes(bytes.to_vec())),
                Some(Sent::Null) => Ok(Value::Null),
                Some(Sent::Unset) => Ok(Value::Unset),
                None => Err(Fault::invalid(format!("the marker {name} has no value"))),
            }
        };
        let values = markers.iter().enumerate().map(value).collect::<Result<_, _>>()?;
        Ok(Bound { values, now_ms: now_ms() })
    }
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

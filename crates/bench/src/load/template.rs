//! The two prepared statements of the load and their EXECUTE bodies, made once; per query only key and value change.

use shunt_wire::cql::message::{Consistency, QueryParams, Value, ValueList, encode, query_flag};

use crate::load::keys::{write_key, write_value};

/// What a query does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operation {
    /// SELECT by key.
    Select,
    /// INSERT of a key and its value.
    Insert,
}

/// The body of an EXECUTE with room for key and value.
#[derive(Clone, Debug, Default)]
pub struct Template {
    body: Vec<u8>,
    key_at: usize,
    key_bytes: usize,
    value_at: Option<usize>,
}

/// What bodies look like.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Protocol version.
    pub version: u8,
    /// Consistency level.
    pub consistency: u16,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
}

/// Byte that fills a value behind what identifies it.
const FILL: u8 = 0x2E;

impl Template {
    /// The EXECUTE of a statement prepared under `id` (and in v5 `metadata_id`).
    pub fn new(operation: Operation, id: &[u8], metadata_id: Option<&[u8]>, layout: Layout) -> Self {
        let key = vec![FILL; layout.key_bytes];
        let value = vec![FILL; layout.value_bytes];
        let mut values = ValueList::positional(layout.version);
        values.push(Value::Bytes(&key));
        if operation == Operation::Insert {
            values.push(Value::Bytes(&value));
        }
        let params = QueryParams {
            flags: if operation == Operation::Select { query_flag::SKIP_METADATA } else { 0 },
            values: values.values(),
            ..QueryParams::simple(Consistency(layout.consistency))
        };
        let mut body = Vec::new();
        encode::execute(&mut body, layout.version, id, metadata_id, &params);
        // The values are the last thing in the body, each behind its 4-byte length.
        let after_key = if operation == Operation::Insert { 4 + layout.value_bytes } else { 0 };
        let key_at = body.len() - after_key - layout.key_bytes;
        let value_at = (operation == Operation::Insert).then(|| body.len() - layout.value_bytes);
        Self { body, key_at, key_bytes: layout.key_bytes, value_at }
    }

    /// The body for this key. The next call changes it.
    #[inline]
    pub fn body(&mut self, key: u64) -> &[u8] {
        write_key(key, &mut self.body[self.key_at..self.key_at + self.key_bytes]);
        if let Some(value_at) = self.value_at {
            write_value(key, &mut self.body[value_at..]);
        }
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use shunt_wire::cql::message::{Execute, Value};

    use super::{Layout, Operation, Template};
    use crate::load::keys::{value_belongs, write_key};

    #[test]
    fn bodies_decode_to_their_key_and_value() {
        for version in [3, 4, 5] {
            let layout = Layout { version, consistency: 6, key_bytes: 16, value_bytes: 14 };
            let metadata_id = (version == 5).then_some(&b"meta"[..]);
            let mut key = [0; 16];
            write_key(77, &mut key);
            let mut insert = Template::new(Operation::Insert, b"0123456789abcdef", metadata_id, layout);
            insert.body(3);
            let request = Execute::decode(version, insert.body(77)).expect("valid");
            assert_eq!((request.id, request.params.consistency.0), (&b"0123456789abcdef"[..], 6));
            assert_eq!(request.params.values.get(0), Some(Value::Bytes(&key)));
            let Some(Value::Bytes(value)) = request.params.values.get(1) else { panic!("no value") };
            assert!(value.len() == 14 && value_belongs(77, value));
            let mut select = Template::new(Operation::Select, b"x", metadata_id, layout);
            let request = Execute::decode(version, select.body(77)).expect("valid");
            assert_eq!((request.params.values.len(), request.params.values.get(0)), (1, Some(Value::Bytes(&key))));
            assert!(request.params.skips_metadata());
        }
    }

    #[test]
    fn an_insert_of_14_bytes_is_70_bytes_on_the_wire() {
        let layout = Layout { version: 4, consistency: 1, key_bytes: 16, value_bytes: 14 };
        assert_eq!(Template::new(Operation::Insert, &[0; 16], None, layout).body(1).len() + 9, 70);
    }
}

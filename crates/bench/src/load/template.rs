//! The prepared statements of the load and their EXECUTE bodies. A body is built once; per query
//! only keys, values and the LIMIT change.

use shunt_wire::cql::message::{
    Consistency, QueryParams, Value, ValueList, encode, put, query_flag,
};

use crate::load::keys::{write_digits, write_key, write_value};

/// A statement of the load, by its place in the generator's list: first those that read, then those
/// that write.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Statement(u8);

impl Statement {
    /// SELECT of a key's value columns.
    pub const SELECT: Self = Self(0);
    /// SELECT of keys and values from a token on.
    pub const SCAN: Self = Self(1);
    /// SELECT of keys and values of several keys.
    pub const MULTIGET: Self = Self(2);
    /// INSERT of a key and all its value columns.
    pub const INSERT: Self = Self(3);

    /// Moves an amount.
    pub(super) const TRANSFER: Self = Self(u8::MAX - 2);
    /// Takes a lock.
    pub(super) const ACQUIRE: Self = Self(u8::MAX - 1);
    /// Releases a lock.
    pub(super) const RELEASE: Self = Self(u8::MAX);

    /// INSERT of a key and one of several value columns.
    pub fn update_of(column: u8) -> Self {
        Self(Self::INSERT.0 + 1 + column)
    }

    /// Index of the statement in a list.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// True if the answer has no rows.
    #[inline]
    pub fn writes(self) -> bool {
        self >= Self::INSERT
    }

    /// Returns the value columns that the statement writes, out of `columns`.
    fn columns_written(self, columns: u8) -> std::ops::Range<u8> {
        if self >= Self::ACQUIRE {
            return 0..1; // the owner, after the name
        }
        match self.0.checked_sub(Self::INSERT.0) {
            None => 0..0,
            Some(0) => 0..columns,
            Some(after) => after - 1..after,
        }
    }
}

/// The shape of the rows.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Keyspace and table, joined by a point.
    pub table: String,
    /// Number of value columns; a single one is `v`, several are `v0`, `v1`, ...
    pub columns: u8,
    /// Keys per multiget.
    pub multiget: u16,
    /// True if writes are lightweight transactions whose condition always holds.
    pub conditional: bool,
}

impl Shape {
    fn names(&self, columns: impl Iterator<Item = u8>) -> String {
        let names: Vec<_> = columns.map(|column| self.name(column)).collect();
        names.join(", ")
    }

    fn name(&self, column: u8) -> String {
        if self.columns == 1 { "v".into() } else { format!("v{column}") }
    }

    /// Returns the statement that creates the table.
    pub fn creation(&self) -> String {
        let columns: Vec<_> =
            (0..self.columns).map(|column| format!("{} blob", self.name(column))).collect();
        format!(
            "CREATE TABLE IF NOT EXISTS {} (k blob PRIMARY KEY, {})",
            self.table,
            columns.join(", ")
        )
    }

    /// Returns the text of a statement.
    pub fn text(&self, statement: Statement) -> String {
        let (table, values) = (&self.table, self.names(0..self.columns));
        match statement {
            Statement::SELECT => format!("SELECT {values} FROM {table} WHERE k = ?"),
            Statement::SCAN => {
                format!("SELECT k, {values} FROM {table} WHERE token(k) >= token(?) LIMIT ?")
            }
            Statement::MULTIGET => format!("SELECT k, {values} FROM {table} WHERE k IN ?"),
            write if self.conditional => {
                let set: Vec<_> = write
                    .columns_written(self.columns)
                    .map(|column| self.name(column) + " = ?")
                    .collect();
                format!(
                    "UPDATE {table} SET {} WHERE k = ? IF {} != 0x",
                    set.join(", "),
                    self.name(0)
                )
            }
            write => {
                let columns = write.columns_written(self.columns);
                let markers = ", ?".repeat(columns.len());
                format!("INSERT INTO {table} (k, {}) VALUES (?{markers})", self.names(columns))
            }
        }
    }
}

/// The body of an EXECUTE with room for keys and values.
#[derive(Clone, Debug, Default)]
pub struct Template {
    body: Vec<u8>,
    /// Position of the first key; others follow, each after a 4-byte length.
    key_at: usize,
    key_bytes: usize,
    /// Positions of the values, with their columns.
    values: Vec<(usize, u8)>,
    value_bytes: usize,
    limit_at: usize,
    /// The bytes of one key or value, before a text has them as digits.
    plain: Vec<u8>,
}

/// The layout of bodies.
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

/// Bytes of an `int`.
const INT_BYTES: usize = 4;

/// Byte that fills keys and values after their mark.
pub(super) const FILL: u8 = 0x2E;

impl Template {
    /// Creates the EXECUTE of a statement prepared under `id` (and `metadata_id` in v5).
    pub fn new(
        statement: Statement,
        shape: &Shape,
        id: &[u8],
        metadata_id: Option<&[u8]>,
        layout: Layout,
    ) -> Self {
        let key = vec![FILL; layout.key_bytes];
        let mut values = ValueList::positional(layout.version);
        // An UPDATE has its values before its key.
        let is_update = shape.conditional && statement.writes();
        // Bytes after the first key; the values end the body, each after its 4-byte length.
        let mut behind_key = 0;
        let columns = statement.columns_written(shape.columns);
        if statement == Statement::MULTIGET {
            let mut list = Vec::new();
            put::int(&mut list, i32::from(shape.multiget));
            (0..shape.multiget).for_each(|_| put::bytes(&mut list, Some(&key)));
            values.push(Value::Bytes(&list));
            behind_key = (usize::from(shape.multiget) - 1) * (4 + layout.key_bytes);
        } else if !is_update {
            values.push(Value::Bytes(&key));
        }
        if statement == Statement::SCAN {
            values.push(Value::Bytes(&1i32.to_be_bytes()));
            behind_key = 8;
        }
        let value = vec![FILL; layout.value_bytes];
        for _ in columns.clone() {
            values.push(Value::Bytes(&value));
            behind_key += 4 + layout.value_bytes;
        }
        let mut behind_values = 0;
        if is_update {
            values.push(Value::Bytes(&key));
            (behind_key, behind_values) = (0, 4 + layout.key_bytes);
        }
        let params = QueryParams {
            flags: if statement.writes() { 0 } else { query_flag::SKIP_METADATA },
            values: values.values(),
            ..QueryParams::simple(Consistency(layout.consistency))
        };
        let mut body = Vec::new();
        encode::execute(&mut body, layout.version, id, metadata_id, &params);
        let end = body.len();
        let value_at = |column| {
            end - behind_values - usize::from(columns.end - column) * (4 + layout.value_bytes) + 4
        };
        Self {
            body,
            key_at: end - behind_key - layout.key_bytes,
            key_bytes: layout.key_bytes,
            values: columns.clone().map(|column| (value_at(column), column)).collect(),
            value_bytes: layout.value_bytes,
            limit_at: end - 4,
            plain: Vec::new(),
        }
    }

    /// Creates the QUERY of a statement, a key and values as literals in the places of the markers.
    pub(super) fn of_text(statement: Statement, shape: &Shape, layout: Layout) -> Self {
        let columns = statement.columns_written(shape.columns);
        let literal = |bytes: usize| format!("0x{}", "2e".repeat(bytes));
        let markers = shape.text(statement);
        let mut pieces = markers.split('?');
        let mut text = pieces.next().unwrap_or_default().to_owned();
        let mut places = Vec::new();
        for (position, piece) in pieces.enumerate() {
            let bytes = if position == 0 { layout.key_bytes } else { layout.value_bytes };
            // The length of the text is before it, and `0x` before the digits.
            places.push(4 + text.len() + 2);
            text.push_str(&literal(bytes));
            text.push_str(piece);
        }
        let mut body = Vec::new();
        let consistency = Consistency(layout.consistency);
        encode::query(&mut body, layout.version, &text, &QueryParams::simple(consistency));
        Self {
            body,
            key_at: places.first().copied().unwrap_or_default(),
            key_bytes: layout.key_bytes,
            values: places.into_iter().skip(1).zip(columns).collect(),
            value_bytes: layout.value_bytes,
            limit_at: 0,
            plain: vec![FILL; layout.key_bytes.max(layout.value_bytes)],
        }
    }

    /// Creates the EXECUTE of a statement whose values are 4-byte integers.
    pub(super) fn of_ints(
        count: usize,
        id: &[u8],
        metadata_id: Option<&[u8]>,
        layout: Layout,
    ) -> Self {
        let mut values = ValueList::positional(layout.version);
        for _ in 0..count {
            values.push(Value::Bytes(&[0; INT_BYTES]));
        }
        let consistency = Consistency(layout.consistency);
        let params =
            QueryParams { flags: 0, values: values.values(), ..QueryParams::simple(consistency) };
        let mut body = Vec::new();
        encode::execute(&mut body, layout.version, id, metadata_id, &params);
        Self { body, ..Self::default() }
    }

    /// Returns the body with these integers, one per value. The next call changes it.
    #[inline]
    pub(super) fn ints(&mut self, values: &[i32]) -> &[u8] {
        let begin = self.body.len().saturating_sub(values.len() * (4 + INT_BYTES));
        for (slot, value) in self.body[begin..].chunks_exact_mut(4 + INT_BYTES).zip(values) {
            slot[4..].copy_from_slice(&value.to_be_bytes());
        }
        &self.body
    }

    /// Returns the body with this key. The next call changes it.
    #[inline]
    pub fn body(&mut self, key: u64) -> &[u8] {
        write_key(key, &mut self.body[self.key_at..self.key_at + self.key_bytes]);
        for &(at, column) in &self.values {
            write_value(key, column, &mut self.body[at..at + self.value_bytes]);
        }
        &self.body
    }

    /// Returns the body of a text with this key. The next call changes it.
    #[inline]
    pub(super) fn text(&mut self, key: u64) -> &[u8] {
        let Self { body, plain, .. } = self;
        let plain_key = &mut plain[..self.key_bytes];
        write_key(key, plain_key);
        write_hex(plain_key, &mut body[self.key_at..]);
        for &(at, column) in &self.values {
            let value = &mut plain[..self.value_bytes];
            value.fill(FILL);
            write_value(key, column, value);
            write_hex(value, &mut body[at..]);
        }
        &self.body
    }

    /// Returns the body of a scan from this key.
    pub(super) fn scan(&mut self, key: u64, limit: u32) -> &[u8] {
        self.body[self.limit_at..].copy_from_slice(&limit.to_be_bytes());
        self.body(key)
    }

    /// Returns the body that takes or releases the lock `name` for `owner`.
    #[inline]
    pub(super) fn lock(&mut self, name: u64, owner: u64) -> &[u8] {
        write_digits(name, &mut self.body[self.key_at..self.key_at + self.key_bytes]);
        for &(at, _) in &self.values {
            write_digits(owner, &mut self.body[at..at + self.value_bytes]);
        }
        &self.body
    }

    /// Returns the body of a multiget of these keys, as many as the shape has.
    pub(super) fn multiget(&mut self, keys: &[u64]) -> &[u8] {
        let slots = self.body[self.key_at..].chunks_mut(self.key_bytes + 4);
        for (slot, &key) in slots.zip(keys) {
            write_key(key, &mut slot[..self.key_bytes]);
        }
        &self.body
    }
}

/// Writes the bytes as hexadecimal digits to the start of `slot`.
fn write_hex(bytes: &[u8], slot: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, digits) in bytes.iter().zip(slot.chunks_exact_mut(2)) {
        digits[0] = DIGITS[usize::from(byte >> 4)];
        digits[1] = DIGITS[usize::from(byte & 0xF)];
    }
}

#[cfg(test)]
mod tests {
    use shunt_wire::cql::message::{Execute, Query, Reader, Value};

    use super::{Layout, Shape, Statement, Template};
    use crate::load::keys::{read_key, value_belongs, write_key};

    fn shape(columns: u8) -> Shape {
        Shape { table: "bench.kv".into(), columns, multiget: 3, conditional: false }
    }

    fn template(version: u8, statement: Statement, columns: u8) -> Template {
        let layout = Layout { version, consistency: 6, key_bytes: 16, value_bytes: 14 };
        let metadata_id = (version == 5).then_some(&b"meta"[..]);
        Template::new(statement, &shape(columns), b"0123456789abcdef", metadata_id, layout)
    }

    fn key(number: u64) -> [u8; 16] {
        let mut key = [0; 16];
        write_key(number, &mut key);
        key
    }

    #[test]
    fn bodies_decode_to_their_key_and_value() {
        for version in [3, 4, 5] {
            let mut insert = template(version, Statement::INSERT, 1);
            insert.body(3);
            let request = Execute::decode(version, insert.body(77)).expect("valid");
            assert_eq!((request.id, request.params.consistency.0), (&b"0123456789abcdef"[..], 6));
            assert_eq!(request.params.values.get(0), Some(Value::Bytes(&key(77))));
            let Some(Value::Bytes(value)) = request.params.values.get(1) else {
                panic!("no value")
            };
            assert!(value.len() == 14 && value_belongs(77, 0, value));
            let mut select = template(version, Statement::SELECT, 1);
            let request = Execute::decode(version, select.body(77)).expect("valid");
            assert_eq!(
                (request.params.values.len(), request.params.values.get(0)),
                (1, Some(Value::Bytes(&key(77))))
            );
            assert!(request.params.skips_metadata());
        }
    }

    #[test]
    fn texts_have_their_key_and_values_as_literals() {
        let layout = Layout { version: 4, consistency: 6, key_bytes: 16, value_bytes: 9 };
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        for (columns, statement) in
            [(1, Statement::INSERT), (2, Statement::INSERT), (1, Statement::SELECT)]
        {
            let mut template = Template::of_text(statement, &shape(columns), layout);
            template.text(3);
            let body = template.text(77);
            let query = Query::decode(4, body).expect("valid");
            assert_eq!(query.params.consistency.0, 6);
            let value = |column: u8| {
                let mut value = [super::FILL; 9];
                super::write_value(77, column, &mut value);
                hex(&value)
            };
            let key = hex(&key(77));
            let expected = match (columns, statement) {
                (1, Statement::SELECT) => format!("SELECT v FROM bench.kv WHERE k = 0x{key}"),
                (1, _) => format!("INSERT INTO bench.kv (k, v) VALUES (0x{key}, 0x{})", value(0)),
                _ => format!(
                    "INSERT INTO bench.kv (k, v0, v1) VALUES (0x{key}, 0x{}, 0x{})",
                    value(0),
                    value(1)
                ),
            };
            assert_eq!(query.text, expected);
        }
    }

    #[test]
    fn a_conditional_write_has_its_values_first() {
        let shape = Shape { conditional: true, ..shape(2) };
        let text = "UPDATE bench.kv SET v0 = ?, v1 = ? WHERE k = ? IF v0 != 0x";
        assert_eq!(shape.text(Statement::INSERT), text);
        let layout = Layout { version: 4, consistency: 6, key_bytes: 16, value_bytes: 14 };
        let mut update = Template::new(Statement::INSERT, &shape, &[0; 16], None, layout);
        update.body(3);
        let request = Execute::decode(4, update.body(77)).expect("valid");
        for column in 0..2 {
            let value =
                request.params.values.get(usize::from(column)).and_then(|value| value.bytes());
            assert!(
                value.is_some_and(|value| value.len() == 14 && value_belongs(77, column, value))
            );
        }
        assert_eq!(request.params.values.get(2), Some(Value::Bytes(&key(77))));
    }

    #[test]
    fn integers_are_the_values_in_their_order() {
        for version in [4, 5] {
            let layout = Layout { version, consistency: 4, key_bytes: 16, value_bytes: 14 };
            let mut transfer =
                Template::of_ints(3, &[7; 16], (version == 5).then_some(&b"meta"[..]), layout);
            transfer.ints(&[1, 2, 3]);
            let request = Execute::decode(version, transfer.ints(&[-5, 6, 70_000])).expect("valid");
            assert_eq!((request.params.consistency.0, request.params.values.len()), (4, 3));
            for (index, value) in [-5i32, 6, 70_000].into_iter().enumerate() {
                assert_eq!(
                    request.params.values.get(index),
                    Some(Value::Bytes(&value.to_be_bytes()))
                );
            }
        }
    }

    #[test]
    fn an_insert_of_14_bytes_is_70_bytes_on_the_wire() {
        let layout = Layout { version: 4, consistency: 1, key_bytes: 16, value_bytes: 14 };
        let mut insert = Template::new(Statement::INSERT, &shape(1), &[0; 16], None, layout);
        assert_eq!(insert.body(1).len() + 9, 70);
    }

    #[test]
    fn several_columns_have_a_value_each() {
        let mut insert = template(4, Statement::INSERT, 3);
        let request = Execute::decode(4, insert.body(5)).expect("valid");
        assert_eq!(
            (request.params.values.len(), request.params.values.get(0)),
            (4, Some(Value::Bytes(&key(5))))
        );
        for column in 0..3 {
            let Some(Value::Bytes(value)) = request.params.values.get(1 + column) else {
                panic!("no value")
            };
            assert!(value.len() == 14 && value_belongs(5, column as u8, value), "{column}");
        }
        let mut update = template(4, Statement::update_of(2), 3);
        let request = Execute::decode(4, update.body(5)).expect("valid");
        assert_eq!(
            (request.params.values.len(), request.params.values.get(0)),
            (2, Some(Value::Bytes(&key(5))))
        );
        assert!(
            request
                .params
                .values
                .get(1)
                .and_then(Value::bytes)
                .is_some_and(|value| value_belongs(5, 2, value))
        );
    }

    #[test]
    fn scans_and_multigets_decode() {
        let mut scan = template(5, Statement::SCAN, 1);
        let request = Execute::decode(5, scan.scan(8, 100)).expect("valid");
        let values = request.params.values;
        assert_eq!(values.get(0), Some(Value::Bytes(&key(8))));
        assert_eq!((values.len(), values.get(1)), (2, Some(Value::Bytes(&100i32.to_be_bytes()))));
        let mut multiget = template(3, Statement::MULTIGET, 1);
        let request = Execute::decode(3, multiget.multiget(&[1, 20, 300])).expect("valid");
        let list = request.params.values.get(0).and_then(Value::bytes).expect("a list");
        let mut reader = Reader::new(list);
        assert_eq!((request.params.values.len(), reader.int("count")), (1, Ok(3)));
        let mut next = || reader.bytes("key").expect("a key").and_then(read_key);
        assert_eq!([next(), next(), next()], [Some(1), Some(20), Some(300)]);
        assert!(reader.rest().is_empty());
    }

    #[test]
    fn texts_name_what_they_read_and_write() {
        assert_eq!(shape(1).text(Statement::INSERT), "INSERT INTO bench.kv (k, v) VALUES (?, ?)");
        assert_eq!(shape(1).text(Statement::SELECT), "SELECT v FROM bench.kv WHERE k = ?");
        assert_eq!(
            shape(2).text(Statement::INSERT),
            "INSERT INTO bench.kv (k, v0, v1) VALUES (?, ?, ?)"
        );
        assert_eq!(
            shape(2).text(Statement::update_of(1)),
            "INSERT INTO bench.kv (k, v1) VALUES (?, ?)"
        );
        assert_eq!(
            shape(2).text(Statement::MULTIGET),
            "SELECT k, v0, v1 FROM bench.kv WHERE k IN ?"
        );
        assert_eq!(
            shape(1).text(Statement::SCAN),
            "SELECT k, v FROM bench.kv WHERE token(k) >= token(?) LIMIT ?"
        );
        assert_eq!(
            shape(2).creation(),
            "CREATE TABLE IF NOT EXISTS bench.kv (k blob PRIMARY KEY, v0 blob, v1 blob)"
        );
    }
}

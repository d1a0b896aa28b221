//! CQL types: the type specifications in result and prepared metadata, type names of the schema
//! tables, and the encodings that routing needs: literals to bytes ([`literal`]) and the partition
//! key.
//!
//! Routing encodes the key columns of a statement exactly as the server will. If the encoding is
//! not certain (a literal whose meaning depends on the server's time zone, an unknown type), there
//! is no key and the query goes to any node: slower, never wrong.

mod literal;
mod spec;
#[cfg(test)]
mod tests;
mod time;

use std::fmt;

pub use literal::literal;
pub use spec::skip_spec;

/// A CQL type.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub enum CqlType {
    /// `ascii`
    Ascii,
    /// `bigint`
    Bigint,
    /// `blob`
    Blob,
    /// `boolean`
    Boolean,
    /// `counter`
    Counter,
    /// `decimal`
    Decimal,
    /// `double`
    Double,
    /// `float`
    Float,
    /// `int`
    Int,
    /// `timestamp`: milliseconds since 1970
    Timestamp,
    /// `uuid`
    Uuid,
    /// `text`, also called `varchar`
    Text,
    /// `varint`
    Varint,
    /// `timeuuid`
    Timeuuid,
    /// `inet`
    Inet,
    /// `date`: days, with 1970-01-01 at 2^31
    Date,
    /// `time`: nanoseconds of the day
    Time,
    /// `smallint`
    Smallint,
    /// `tinyint`
    Tinyint,
    /// `duration`
    Duration,
    /// `list<..>`
    List(Box<CqlType>),
    /// `set<..>`
    Set(Box<CqlType>),
    /// `map<.., ..>`
    Map(Box<CqlType>, Box<CqlType>),
    /// `tuple<..>`
    Tuple(Vec<CqlType>),
    /// A user-defined type, with its fields in order.
    Udt {
        /// Keyspace of the type.
        keyspace: String,
        /// Name of the type.
        name: String,
        /// Field names and types.
        fields: Vec<(String, CqlType)>,
    },
    /// A type known only by name: a custom class of the wire format, or a schema type name that is
    /// not a native type.
    Custom(String),
}

const NATIVE: [(&str, CqlType); 21] = [
    ("ascii", CqlType::Ascii),
    ("bigint", CqlType::Bigint),
    ("blob", CqlType::Blob),
    ("boolean", CqlType::Boolean),
    ("counter", CqlType::Counter),
    ("decimal", CqlType::Decimal),
    ("double", CqlType::Double),
    ("float", CqlType::Float),
    ("int", CqlType::Int),
    ("timestamp", CqlType::Timestamp),
    ("uuid", CqlType::Uuid),
    ("text", CqlType::Text),
    ("varchar", CqlType::Text),
    ("varint", CqlType::Varint),
    ("timeuuid", CqlType::Timeuuid),
    ("inet", CqlType::Inet),
    ("date", CqlType::Date),
    ("time", CqlType::Time),
    ("smallint", CqlType::Smallint),
    ("tinyint", CqlType::Tinyint),
    ("duration", CqlType::Duration),
];

impl CqlType {
    /// Parses a type name of `system_schema.columns.type`. Anything but a native type becomes
    /// [`CqlType::Custom`] with its name: routing cannot encode literals of it, and bind values
    /// need no type.
    #[must_use]
    pub fn parse(name: &str) -> CqlType {
        let native = NATIVE.iter().find(|(known, _)| name.trim().eq_ignore_ascii_case(known));
        native.map_or_else(|| CqlType::Custom(name.to_owned()), |(_, cql_type)| cql_type.clone())
    }

    /// Reads one type specification (`[option]`: native protocol v4, section 4.2.5.2) from the
    /// front of `input` and advances `input`. `None` if it is malformed, truncated or nested deeper
    /// than any real schema.
    pub fn decode(input: &mut &[u8]) -> Option<CqlType> {
        spec::decode(input, 0)
    }
}

impl fmt::Display for CqlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CqlType::List(element) => write!(f, "list<{element}>"),
            CqlType::Set(element) => write!(f, "set<{element}>"),
            CqlType::Map(key, value) => write!(f, "map<{key}, {value}>"),
            CqlType::Tuple(elements) => {
                f.write_str("tuple<")?;
                for (position, element) in elements.iter().enumerate() {
                    write!(f, "{}{element}", if position == 0 { "" } else { ", " })?;
                }
                f.write_str(">")
            }
            CqlType::Udt { keyspace, name, .. } => write!(f, "{keyspace}.{name}"),
            CqlType::Custom(name) => f.write_str(name),
            native => {
                let known = NATIVE.iter().find(|(_, cql_type)| cql_type == native);
                f.write_str(known.map_or("", |(name, _)| name))
            }
        }
    }
}

/// A partition key column.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Column {
    /// Name as stored (case-sensitive).
    pub name: String,
    /// Type of the column.
    pub cql_type: CqlType,
}

impl Column {
    /// A column from a name and a type name, as in `system_schema.columns`.
    #[must_use]
    pub fn new(name: impl Into<String>, type_name: &str) -> Column {
        Column { name: name.into(), cql_type: CqlType::parse(type_name) }
    }
}

/// Serializes a partition key into `out` (cleared first) from the values of its columns, in order:
/// the bare value of a single column, or `[u16 length][value][0]` for each of several
/// (`CompositeType`).
///
/// Returns false and leaves `out` empty if there is no column, or a value is missing (null or
/// unset) or too long for a key.
pub fn partition_key<'v, I>(values: I, out: &mut Vec<u8>) -> bool
where
    I: IntoIterator<Item = Option<&'v [u8]>>,
    I::IntoIter: ExactSizeIterator,
{
    let values = values.into_iter();
    let columns = values.len();
    let mut values = values;
    build_key(columns, out, |_, out| {
        values.next().flatten().map(|value| out.extend_from_slice(value)).is_some()
    })
}

/// Like [`partition_key`], but `write(column, out)` appends each value, or returns false if it
/// cannot.
pub(crate) fn build_key(
    columns: usize,
    out: &mut Vec<u8>,
    mut write: impl FnMut(usize, &mut Vec<u8>) -> bool,
) -> bool {
    out.clear();
    let composite = columns > 1;
    let complete = columns > 0
        && (0..columns).all(|column| {
            let start = out.len();
            if composite {
                out.extend_from_slice(&[0, 0]);
            }
            let value = out.len();
            if !write(column, out) {
                return false;
            }
            let Ok(length) = u16::try_from(out.len() - value) else {
                return false;
            };
            if composite {
                out[start..value].copy_from_slice(&length.to_be_bytes());
                out.push(0);
            }
            true
        });
    if !complete {
        out.clear();
    }
    complete
}

//! Types by the names of Cassandra's classes, the wire form of custom types and vectors.

use std::fmt::Write as _;
use std::sync::Arc;

use super::CqlType;
use crate::ast::NativeType;

const PACKAGE: &str = "org.apache.cassandra.db.marshal.";

const NATIVE: [(NativeType, &str); 20] = [
    (NativeType::Ascii, "AsciiType"),
    (NativeType::Bigint, "LongType"),
    (NativeType::Blob, "BytesType"),
    (NativeType::Boolean, "BooleanType"),
    (NativeType::Counter, "CounterColumnType"),
    (NativeType::Date, "SimpleDateType"),
    (NativeType::Decimal, "DecimalType"),
    (NativeType::Double, "DoubleType"),
    (NativeType::Duration, "DurationType"),
    (NativeType::Float, "FloatType"),
    (NativeType::Inet, "InetAddressType"),
    (NativeType::Int, "Int32Type"),
    (NativeType::Smallint, "ShortType"),
    (NativeType::Text, "UTF8Type"),
    (NativeType::Time, "TimeType"),
    (NativeType::Timestamp, "TimestampType"),
    (NativeType::Timeuuid, "TimeUUIDType"),
    (NativeType::Tinyint, "ByteType"),
    (NativeType::Uuid, "UUIDType"),
    (NativeType::Varint, "IntegerType"),
];

impl CqlType {
    /// The name of Cassandra's class for the type, with its parameters.
    #[must_use]
    pub fn class_name(&self) -> String {
        let freeze = |name: String| {
            if self.is_multi_cell() { name } else { format!("{PACKAGE}FrozenType({name})") }
        };
        match self {
            CqlType::Native(native) => {
                let found = NATIVE.iter().find(|(known, _)| known == native);
                format!("{PACKAGE}{}", found.map_or("BytesType", |(_, class)| class))
            }
            CqlType::List { element, .. } => {
                freeze(format!("{PACKAGE}ListType({})", element.class_name()))
            }
            CqlType::Set { element, .. } => {
                freeze(format!("{PACKAGE}SetType({})", element.class_name()))
            }
            CqlType::Map { key, value, .. } => {
                freeze(format!("{PACKAGE}MapType({},{})", key.class_name(), value.class_name()))
            }
            CqlType::Tuple(elements) => {
                let elements: Vec<_> = elements.iter().map(CqlType::class_name).collect();
                format!("{PACKAGE}TupleType({})", elements.join(","))
            }
            CqlType::Udt { definition, .. } => {
                let mut name =
                    format!("{PACKAGE}UserType({},{}", definition.keyspace, hex(&definition.name));
                for (field, field_type) in &definition.fields {
                    let _ = write!(name, ",{}:{}", hex(field), field_type.class_name());
                }
                freeze(name + ")")
            }
            CqlType::Vector { element, dimension } => {
                format!("{PACKAGE}VectorType({} , {dimension})", element.class_name())
            }
            CqlType::Custom(class) => class.to_string(),
        }
    }

    /// The type of a class: a native type or a vector of one, else a custom type.
    #[must_use]
    pub fn from_class_name(class: &str) -> CqlType {
        if let Some(native) = native(class) {
            return CqlType::Native(native);
        }
        let vector =
            short(class).strip_prefix("VectorType(").and_then(|inside| inside.strip_suffix(')'));
        if let Some((element, dimension)) = vector.and_then(|inside| inside.rsplit_once(','))
            && let Ok(dimension) = dimension.trim().parse()
            && let Some(element) = native(element.trim())
            && dimension > 0
        {
            return CqlType::Vector { element: Arc::new(element.into()), dimension };
        }
        CqlType::Custom(class.into())
    }
}

/// The name of a class without Cassandra's package.
fn short(class: &str) -> &str {
    class.strip_prefix(PACKAGE).unwrap_or(class)
}

fn native(class: &str) -> Option<NativeType> {
    NATIVE.iter().find(|(_, known)| *known == short(class)).map(|(native, _)| *native)
}

fn hex(text: &str) -> String {
    text.bytes().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

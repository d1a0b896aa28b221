//! Resolved types of columns, markers and selected values.

mod class_name;
mod option;
mod resolve;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::sync::Arc;

use crate::ast::{NativeType, quoted_name, quoted_type_name};

pub use resolve::TypeLookup;

/// A type. Cheap to clone.
#[derive(Clone, Debug, Eq, PartialEq, Hash)]
pub enum CqlType {
    /// A native type.
    Native(NativeType),
    /// `list<element>`
    List {
        /// Type of the elements.
        element: Arc<CqlType>,
        /// True for one value rather than many cells.
        frozen: bool,
    },
    /// `set<element>`
    Set {
        /// Type of the elements.
        element: Arc<CqlType>,
        /// True for one value rather than many cells.
        frozen: bool,
    },
    /// `map<key, value>`
    Map {
        /// Type of the keys.
        key: Arc<CqlType>,
        /// Type of the values.
        value: Arc<CqlType>,
        /// True for one value rather than many cells.
        frozen: bool,
    },
    /// `tuple<..>`, which is always one value.
    Tuple(Arc<[CqlType]>),
    /// A user-defined type.
    Udt {
        /// Definition of the type.
        definition: Arc<UserType>,
        /// True for one value rather than many cells.
        frozen: bool,
    },
    /// `vector<element, dimension>`, which is always one value.
    Vector {
        /// Type of the elements.
        element: Arc<CqlType>,
        /// Number of elements.
        dimension: u32,
    },
    /// A class known only by name; values are opaque bytes.
    Custom(Arc<str>),
}

/// The definition of a user-defined type.
#[derive(Clone, Debug, Eq, PartialEq, Hash)]
pub struct UserType {
    /// Keyspace of the type.
    pub keyspace: String,
    /// Name of the type.
    pub name: String,
    /// Names and types of the fields, in order.
    pub fields: Vec<(String, CqlType)>,
}

impl UserType {
    /// The position of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|(field, _)| field == name)
    }
}

impl From<NativeType> for CqlType {
    fn from(native: NativeType) -> CqlType {
        CqlType::Native(native)
    }
}

impl CqlType {
    /// `list<element>`, not frozen.
    #[must_use]
    pub fn list(element: CqlType) -> CqlType {
        CqlType::List { element: Arc::new(element), frozen: false }
    }

    /// `set<element>`, not frozen.
    #[must_use]
    pub fn set(element: CqlType) -> CqlType {
        CqlType::Set { element: Arc::new(element), frozen: false }
    }

    /// `map<key, value>`, not frozen.
    #[must_use]
    pub fn map(key: CqlType, value: CqlType) -> CqlType {
        CqlType::Map { key: Arc::new(key), value: Arc::new(value), frozen: false }
    }

    /// `tuple<elements>`
    #[must_use]
    pub fn tuple(elements: Vec<CqlType>) -> CqlType {
        CqlType::Tuple(elements.into())
    }

    /// True if values of the type are many cells: an unfrozen collection or user-defined type.
    #[must_use]
    pub fn is_multi_cell(&self) -> bool {
        match self {
            CqlType::List { frozen, .. }
            | CqlType::Set { frozen, .. }
            | CqlType::Map { frozen, .. }
            | CqlType::Udt { frozen, .. } => !frozen,
            _ => false,
        }
    }

    /// True for a list, set or map.
    #[must_use]
    pub fn is_collection(&self) -> bool {
        matches!(self, CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. })
    }

    /// True for `counter`.
    #[must_use]
    pub fn is_counter(&self) -> bool {
        *self == CqlType::Native(NativeType::Counter)
    }

    /// True if the type is or contains `duration`; such values have no order and cannot be in a
    /// key.
    #[must_use]
    pub fn references_duration(&self) -> bool {
        self.references(NativeType::Duration)
    }

    /// True if the type contains this native type.
    #[must_use]
    pub fn references(&self, wanted: NativeType) -> bool {
        match self {
            CqlType::Native(native) => *native == wanted,
            CqlType::List { element, .. }
            | CqlType::Set { element, .. }
            | CqlType::Vector { element, .. } => element.references(wanted),
            CqlType::Map { key, value, .. } => key.references(wanted) || value.references(wanted),
            CqlType::Tuple(elements) => elements.iter().any(|one| one.references(wanted)),
            CqlType::Udt { definition, .. } => {
                definition.fields.iter().any(|(_, field)| field.references(wanted))
            }
            CqlType::Custom(_) => false,
        }
    }

    /// The same type frozen, including its parts.
    #[must_use]
    pub fn freeze(&self) -> CqlType {
        let inner = |inner: &Arc<CqlType>| Arc::new(inner.freeze());
        match self {
            CqlType::List { element, .. } => {
                CqlType::List { element: inner(element), frozen: true }
            }
            CqlType::Set { element, .. } => CqlType::Set { element: inner(element), frozen: true },
            CqlType::Map { key, value, .. } => {
                CqlType::Map { key: inner(key), value: inner(value), frozen: true }
            }
            CqlType::Tuple(elements) => {
                CqlType::Tuple(elements.iter().map(CqlType::freeze).collect())
            }
            CqlType::Udt { definition, .. } => {
                let fields = definition
                    .fields
                    .iter()
                    .map(|(name, field)| (name.clone(), field.freeze()))
                    .collect();
                let UserType { keyspace, name, .. } = definition.as_ref();
                let definition =
                    UserType { keyspace: keyspace.clone(), name: name.clone(), fields };
                CqlType::Udt { definition: Arc::new(definition), frozen: true }
            }
            CqlType::Vector { element, dimension } => {
                CqlType::Vector { element: inner(element), dimension: *dimension }
            }
            CqlType::Native(_) | CqlType::Custom(_) => self.clone(),
        }
    }

    /// True if values of another type are valid for this one unchanged.
    #[must_use]
    pub fn accepts(&self, other: &CqlType) -> bool {
        use NativeType::{
            Ascii, Bigint, Blob, Date, Int, Text, Time, Timestamp, Timeuuid, Uuid, Varint,
        };
        match (self, other) {
            _ if self == other => true,
            (CqlType::Native(Blob), _) => true,
            (CqlType::Native(own), CqlType::Native(other)) => matches!(
                (own, other),
                (Text, Ascii)
                    | (Uuid, Timeuuid)
                    | (Bigint, Timestamp)
                    | (Timestamp, Bigint)
                    | (Date, Int)
                    | (Time, Bigint)
                    | (Varint, Int | Bigint | Timestamp)
            ),
            // Freezing only affects storage.
            _ if self.is_collection() || matches!(self, CqlType::Udt { .. }) => {
                self.freeze() == other.freeze()
            }
            _ => false,
        }
    }

    /// The common length of all nonempty values of the type, if there is one.
    #[must_use]
    pub fn fixed_length(&self) -> Option<usize> {
        match self {
            CqlType::Native(native) => match native {
                NativeType::Boolean => Some(1),
                NativeType::Float | NativeType::Int => Some(4),
                NativeType::Bigint | NativeType::Double | NativeType::Timestamp => Some(8),
                NativeType::Uuid | NativeType::Timeuuid => Some(16),
                // Other types have variable length in vectors: Cassandra does not rely on theirs.
                _ => None,
            },
            CqlType::Vector { element, dimension } => {
                element.fixed_length()?.checked_mul(usize::try_from(*dimension).ok()?)
            }
            _ => None,
        }
    }

    /// The type as text without `frozen<..>`, the form in messages about functions.
    #[must_use]
    pub fn unfrozen_name(&self) -> String {
        match self {
            CqlType::List { element, .. } => format!("list<{}>", element.unfrozen_name()),
            CqlType::Set { element, .. } => format!("set<{}>", element.unfrozen_name()),
            CqlType::Map { key, value, .. } => {
                format!("map<{}, {}>", key.unfrozen_name(), value.unfrozen_name())
            }
            CqlType::Tuple(elements) => {
                let elements: Vec<_> = elements.iter().map(CqlType::unfrozen_name).collect();
                format!("tuple<{}>", elements.join(", "))
            }
            CqlType::Udt { definition, .. } => quoted_name(&definition.name),
            CqlType::Vector { element, dimension } => {
                format!("vector<{}, {dimension}>", element.unfrozen_name())
            }
            CqlType::Native(_) | CqlType::Custom(_) => self.to_string(),
        }
    }
}

impl fmt::Display for CqlType {
    /// Formats the type as in `system_schema.columns` and `DESCRIBE`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frozen = !self.is_multi_cell()
            && (self.is_collection() || matches!(self, CqlType::Tuple(_) | CqlType::Udt { .. }));
        if frozen {
            f.write_str("frozen<")?;
        }
        match self {
            CqlType::Native(native) => write!(f, "{native}")?,
            CqlType::List { element, .. } => write!(f, "list<{element}>")?,
            CqlType::Set { element, .. } => write!(f, "set<{element}>")?,
            CqlType::Map { key, value, .. } => write!(f, "map<{key}, {value}>")?,
            CqlType::Tuple(elements) => {
                f.write_str("tuple<")?;
                for (position, element) in elements.iter().enumerate() {
                    write!(f, "{}{element}", if position == 0 { "" } else { ", " })?;
                }
                f.write_str(">")?;
            }
            CqlType::Udt { definition, .. } => f.write_str(&quoted_type_name(&definition.name))?,
            CqlType::Vector { element, dimension } => write!(f, "vector<{element}, {dimension}>")?,
            CqlType::Custom(class) => write!(f, "'{}'", class.replace('\'', "''"))?,
        }
        if frozen { f.write_str(">") } else { Ok(()) }
    }
}

//! Types as written.

use super::name::QualifiedName;

/// A type as named in a statement; user-defined types are not looked up yet.
#[derive(Clone, Debug, Eq, PartialEq, Hash)]
pub enum TypeName {
    /// A native type.
    Native(NativeType),
    /// `list<..>`
    List(Box<TypeName>),
    /// `set<..>`
    Set(Box<TypeName>),
    /// `map<.., ..>`
    Map(Box<TypeName>, Box<TypeName>),
    /// `tuple<..>`
    Tuple(Vec<TypeName>),
    /// `vector<.., n>`
    Vector(Box<TypeName>, u32),
    /// `frozen<..>`
    Frozen(Box<TypeName>),
    /// A user-defined type.
    UserDefined(QualifiedName),
    /// `'a.java.Class'`
    Custom(String),
}

/// The native types.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub enum NativeType {
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
    /// `date`
    Date,
    /// `decimal`
    Decimal,
    /// `double`
    Double,
    /// `duration`
    Duration,
    /// `float`
    Float,
    /// `inet`
    Inet,
    /// `int`
    Int,
    /// `smallint`
    Smallint,
    /// `text`, also called `varchar`
    Text,
    /// `time`
    Time,
    /// `timestamp`
    Timestamp,
    /// `timeuuid`
    Timeuuid,
    /// `tinyint`
    Tinyint,
    /// `uuid`
    Uuid,
    /// `varint`
    Varint,
}

/// The native types by name, including aliases.
const NAMES: [(&str, NativeType); 21] = [
    ("ascii", NativeType::Ascii),
    ("bigint", NativeType::Bigint),
    ("blob", NativeType::Blob),
    ("boolean", NativeType::Boolean),
    ("counter", NativeType::Counter),
    ("date", NativeType::Date),
    ("decimal", NativeType::Decimal),
    ("double", NativeType::Double),
    ("duration", NativeType::Duration),
    ("float", NativeType::Float),
    ("inet", NativeType::Inet),
    ("int", NativeType::Int),
    ("smallint", NativeType::Smallint),
    ("text", NativeType::Text),
    ("time", NativeType::Time),
    ("timestamp", NativeType::Timestamp),
    ("timeuuid", NativeType::Timeuuid),
    ("tinyint", NativeType::Tinyint),
    ("uuid", NativeType::Uuid),
    ("varint", NativeType::Varint),
    ("varchar", NativeType::Text),
];

impl NativeType {
    /// The native types, once each.
    pub fn all() -> impl Iterator<Item = NativeType> {
        NAMES.iter().take(NAMES.len() - 1).map(|(_, native)| *native)
    }

    /// The type of a name in lower case.
    #[must_use]
    pub fn by_name(name: &str) -> Option<NativeType> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, native)| *native)
    }

    /// Name of the type.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, native)| *native == self).map_or("", |(name, _)| name)
    }
}

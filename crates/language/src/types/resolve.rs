//! Resolves written types: looks up user-defined types, and refuses what Cassandra refuses, in its
//! words.

use std::sync::Arc;

use super::{CqlType, UserType};
use crate::ast::{NativeType, QualifiedName, TypeName};
use crate::error::InvalidRequest;
use crate::parse_type;

/// Most elements of a vector.
const DIMENSION_MAX: u32 = 8192;

/// Lookup of user-defined types.
pub trait TypeLookup {
    /// Keyspace of the statement or table, the default for names without one.
    fn keyspace(&self) -> Option<&str>;

    /// The type `name` of `keyspace`, if there is one.
    fn user_type(&self, keyspace: &str, name: &str) -> Option<Arc<UserType>>;
}

/// No user-defined types.
impl TypeLookup for () {
    fn keyspace(&self) -> Option<&str> {
        None
    }

    fn user_type(&self, _: &str, _: &str) -> Option<Arc<UserType>> {
        None
    }
}

impl CqlType {
    /// Resolves the type of a name.
    ///
    /// # Errors
    /// If a type in it is unknown, or not allowed at its place.
    pub fn resolve(name: &TypeName, lookup: &dyn TypeLookup) -> Result<CqlType, InvalidRequest> {
        let inner = |inner: &TypeName| CqlType::resolve(inner, lookup);
        match name {
            TypeName::Native(native) => Ok(CqlType::Native(*native)),
            TypeName::Frozen(frozen) => frozen_type(frozen, lookup).map(|inner| inner.freeze()),
            TypeName::List(_) | TypeName::Set(_) | TypeName::Map(..) => {
                collection(name, false, lookup)
            }
            TypeName::Tuple(elements) => {
                let elements: Vec<_> = elements.iter().map(inner).collect::<Result<_, _>>()?;
                if elements.iter().any(CqlType::is_counter) {
                    return Err(InvalidRequest::new("Counters are not allowed inside tuples"));
                }
                Ok(CqlType::Tuple(elements.iter().map(CqlType::freeze).collect()))
            }
            TypeName::Vector(element, dimension) => {
                if *dimension == 0 {
                    let message =
                        format!("vectors may only have positive dimensions; given {dimension}");
                    return Err(InvalidRequest::new(message));
                }
                if *dimension > DIMENSION_MAX {
                    let message = format!(
                        "vectors may only have {DIMENSION_MAX} dimensions; given {dimension}"
                    );
                    return Err(InvalidRequest::new(message));
                }
                let element = Arc::new(inner(element)?.freeze());
                Ok(CqlType::Vector { element, dimension: *dimension })
            }
            TypeName::UserDefined(name) => user_type(name, lookup),
            TypeName::Custom(class) => Ok(CqlType::from_class_name(class)),
        }
    }

    /// Parses and resolves a type's text, as in `system_schema`.
    ///
    /// # Errors
    /// If the text is not a type, or [`CqlType::resolve`] fails for it.
    pub fn parse(text: &str, lookup: &dyn TypeLookup) -> Result<CqlType, InvalidRequest> {
        let name = parse_type(text).map_err(|error| InvalidRequest::new(error.message))?;
        CqlType::resolve(&name, lookup)
    }
}

/// The type inside `frozen<..>`, where nested collections need not be frozen.
fn frozen_type(name: &TypeName, lookup: &dyn TypeLookup) -> Result<CqlType, InvalidRequest> {
    match name {
        TypeName::List(_) | TypeName::Set(_) | TypeName::Map(..) => collection(name, true, lookup),
        _ => CqlType::resolve(name, lookup),
    }
}

fn collection(
    name: &TypeName,
    frozen: bool,
    lookup: &dyn TypeLookup,
) -> Result<CqlType, InvalidRequest> {
    let refuse = |what: &str| Err(InvalidRequest::new(format!("{what}: {name}")));
    let inner = |inner: &TypeName| {
        let resolved =
            if frozen { frozen_type(inner, lookup)? } else { CqlType::resolve(inner, lookup)? };
        match &resolved {
            resolved if resolved.is_counter() => {
                refuse("Counters are not allowed inside collections")
            }
            resolved if !frozen && resolved.is_multi_cell() && resolved.is_collection() => {
                refuse("Non-frozen collections are not allowed inside collections")
            }
            resolved if !frozen && resolved.is_multi_cell() => {
                refuse("Non-frozen UDTs are not allowed inside collections")
            }
            _ => Ok(resolved),
        }
    };
    let duration = CqlType::Native(NativeType::Duration);
    match name {
        TypeName::List(element) => Ok(CqlType::list(inner(element)?)),
        TypeName::Set(element) => match inner(element)? {
            element if element == duration => refuse("Durations are not allowed inside sets"),
            element => Ok(CqlType::set(element)),
        },
        TypeName::Map(key, value) => {
            let key = inner(key)?;
            if key == duration {
                return refuse("Durations are not allowed as map keys");
            }
            Ok(CqlType::map(key, inner(value)?))
        }
        _ => CqlType::resolve(name, lookup),
    }
}

fn user_type(name: &QualifiedName, lookup: &dyn TypeLookup) -> Result<CqlType, InvalidRequest> {
    let keyspace = name.keyspace.as_deref().or(lookup.keyspace());
    let keyspace =
        keyspace.ok_or_else(|| InvalidRequest::new(format!("Unknown type {}", name.name)))?;
    if let Some(here) = lookup.keyspace()
        && here != keyspace
    {
        return Err(InvalidRequest::new(format!(
            "Statement on keyspace {here} cannot refer to a user type in keyspace {keyspace}; \
             user types can only be used in the keyspace they are defined in"
        )));
    }
    let definition = lookup.user_type(keyspace, &name.name);
    let definition = definition
        .ok_or_else(|| InvalidRequest::new(format!("Unknown type {keyspace}.{}", name.name)))?;
    Ok(CqlType::Udt { definition, frozen: false })
}

//! Times in JSON that nodes may take for different ones.

use super::decode::column_name;
use super::syntax::{self, Json};
use crate::ast::NativeType;
use crate::types::CqlType;
use crate::values::TimeDependence;

/// The most that a `timestamp` in JSON for a type depends on. JSON that is no value of the type is
/// refused elsewhere.
#[must_use]
pub fn time_dependence(cql_type: &CqlType, json: &Json) -> TimeDependence {
    match (cql_type, json) {
        (CqlType::Native(NativeType::Timestamp), Json::String(text)) => TimeDependence::of(text),
        (CqlType::Native(_) | CqlType::Custom(_), _) => TimeDependence::Nothing,
        // As in decode.rs, a string contains JSON.
        (_, Json::String(text)) => match syntax::parse(text) {
            Ok(Json::String(_)) | Err(_) => TimeDependence::Nothing,
            Ok(inner) => time_dependence(cql_type, &inner),
        },
        (
            CqlType::List { element, .. }
            | CqlType::Set { element, .. }
            | CqlType::Vector { element, .. },
            Json::Array(elements),
        ) => most(elements.iter().map(|json| time_dependence(element, json))),
        (CqlType::Map { key, value, .. }, Json::Object(entries)) => {
            most(entries.iter().flat_map(|(name, json)| {
                let name = Json::String(name.clone());
                [time_dependence(key, &name), time_dependence(value, json)]
            }))
        }
        (CqlType::Tuple(types), Json::Array(elements)) => {
            most(types.iter().zip(elements).map(|(one, json)| time_dependence(one, json)))
        }
        (CqlType::Udt { definition, .. }, Json::Object(entries)) => {
            most(entries.iter().filter_map(|(name, json)| {
                let field = definition.field(&column_name(name))?;
                Some(time_dependence(&definition.fields[field].1, json))
            }))
        }
        _ => TimeDependence::Nothing,
    }
}

fn most(found: impl Iterator<Item = TimeDependence>) -> TimeDependence {
    found.max().unwrap_or_default()
}

//! Evaluation of a selection's expressions for a row or a group of rows.

use std::borrow::Cow;

use shunt_language::error::InvalidRequest;
use shunt_language::functions::AggregateState;
use shunt_language::terms::Value;
use shunt_language::types::CqlType;
use shunt_language::values::{compare, split};

use super::filter::map_value;
use super::input::Input;
use super::metadata;
use crate::execute::bindings::Bound;
use crate::statement::select::selection::{Expression, Selection};

/// A value; `None` is null.
pub(super) type Computed<'v> = Result<Option<Cow<'v, [u8]>>, InvalidRequest>;

/// Context of expressions besides a row: the terms of the selection with the values of this
/// execution.
pub(super) struct Evaluator<'e> {
    bound: &'e Bound<'e>,
    terms: Vec<Value>,
}

impl<'e> Evaluator<'e> {
    pub(super) fn new(selection: &Selection, bound: &'e Bound<'e>) -> Result<Self, InvalidRequest> {
        let terms =
            selection.terms.iter().map(|term| term.evaluate(bound)).collect::<Result<_, _>>()?;
        Ok(Self { bound, terms })
    }

    /// A term that must have a value.
    pub(super) fn key(&self, term: usize, what: &str) -> Result<&[u8], InvalidRequest> {
        match &self.terms[term] {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Null => {
                Err(InvalidRequest::new(format!("Invalid null value for {what} selection")))
            }
            Value::Unset => {
                Err(InvalidRequest::new(format!("Invalid unset value for {what} selection")))
            }
        }
    }

    /// A bound of a slice; an unset one is no bound.
    pub(super) fn bound(&self, term: Option<usize>) -> Result<Option<&[u8]>, InvalidRequest> {
        match term {
            Some(term) if self.terms[term] != Value::Unset => self.key(term, "slice").map(Some),
            _ => Ok(None),
        }
    }

    /// Value of an expression; aggregates take the values of their states.
    pub(super) fn value<'v>(
        &'v self,
        expression: &Expression,
        input: &Input<'v>,
        aggregates: &[AggregateState],
    ) -> Computed<'v> {
        match expression {
            Expression::Column(position) => Ok(input.value(*position)),
            Expression::Term(term) => match &self.terms[*term] {
                Value::Bytes(bytes) => Ok(Some(Cow::Borrowed(bytes))),
                Value::Null | Value::Unset => Ok(None),
            },
            Expression::Aggregate(index) => Ok(aggregates[*index].finish().map(Cow::Owned)),
            Expression::Metadata { what, column, part } => {
                metadata::value(self, *what, *column, *part, input)
            }
            Expression::Call { function, arguments } => {
                let mut values = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    values.push(self.value(argument, input, aggregates)?);
                }
                let values: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
                Ok(function.evaluate(&values, self.bound)?.map(Cow::Owned))
            }
            Expression::Field { of, count, index } => {
                let Some(value) = self.value(of, input, aggregates)? else { return Ok(None) };
                let fields = split::tuple(*count, &value).unwrap_or_default();
                Ok(fields.get(*index).copied().flatten().map(|field| Cow::Owned(field.to_vec())))
            }
            Expression::Element { of, cql_type, key } => {
                let key = self.key(*key, "element")?;
                let Some(value) = self.value(of, input, aggregates)? else { return Ok(None) };
                Ok(element(cql_type, &value, key).map(|found| Cow::Owned(found.to_vec())))
            }
            Expression::Slice { of, cql_type, from, to } => {
                let (from, to) = (self.bound(*from)?, self.bound(*to)?);
                let Some(value) = self.value(of, input, aggregates)? else { return Ok(None) };
                Ok(slice(cql_type, &value, from, to)?.map(Cow::Owned))
            }
            Expression::Composite { cql_type, parts } => {
                let mut values = Vec::with_capacity(parts.len());
                for part in parts {
                    let value = part
                        .as_ref()
                        .map(|part| self.value(part, input, aggregates))
                        .transpose()?;
                    values.push(value.flatten());
                }
                composite(cql_type, values).map(|value| Some(Cow::Owned(value)))
            }
        }
    }
}

/// Element of a set or map with a key.
fn element<'c>(cql_type: &CqlType, collection: &'c [u8], key: &[u8]) -> Option<&'c [u8]> {
    match cql_type {
        CqlType::Map { key: key_type, .. } => map_value(key_type, collection, key),
        CqlType::Set { element, .. } => {
            let found = split::collection("set", collection).ok()?;
            found.into_iter().find(|own| compare(element, own, key).is_eq())
        }
        _ => None,
    }
}

/// True if a key is between two others, inclusive.
pub(super) fn is_between(
    cql_type: &CqlType,
    key: &[u8],
    from: Option<&[u8]>,
    to: Option<&[u8]>,
) -> bool {
    from.is_none_or(|from| compare(cql_type, key, from).is_ge())
        && to.is_none_or(|to| compare(cql_type, key, to).is_le())
}

/// Part of a set or map between two keys; null if empty.
fn slice(
    cql_type: &CqlType,
    collection: &[u8],
    from: Option<&[u8]>,
    to: Option<&[u8]>,
) -> Result<Option<Vec<u8>>, InvalidRequest> {
    let (what, key_type, step) = match cql_type {
        CqlType::Map { key, .. } => ("map", key, 2),
        CqlType::Set { element, .. } => ("set", element, 1),
        _ => return Ok(None),
    };
    let elements = split::collection(what, collection)?;
    let kept: Vec<&[&[u8]]> = elements
        .chunks_exact(step)
        .filter(|entry| is_between(key_type, entry[0], from, to))
        .collect();
    if kept.is_empty() && cql_type.is_multi_cell() {
        return Ok(None);
    }
    Ok(Some(split::join_collection(kept.len(), kept.into_iter().flatten())))
}

/// A list that may contain nulls, which no column can hold.
pub(super) fn list_with_nulls<V: AsRef<[u8]>>(
    values: impl ExactSizeIterator<Item = Option<V>>,
) -> Vec<u8> {
    let count = i32::try_from(values.len()).unwrap_or(i32::MAX).to_be_bytes();
    [&count[..], &split::join_tuple(values)].concat()
}

/// A value composed of its parts. Sets and maps are in the order of their type and have no null
/// keys.
fn composite(
    cql_type: &CqlType,
    parts: Vec<Option<Cow<'_, [u8]>>>,
) -> Result<Vec<u8>, InvalidRequest> {
    Ok(match cql_type {
        CqlType::Set { element, .. } => {
            let mut values: Vec<_> = parts.into_iter().flatten().collect();
            values.sort_by(|one, other| compare(element, one, other));
            values.dedup_by(|one, other| compare(element, one, other).is_eq());
            split::join_collection(values.len(), values)
        }
        CqlType::Map { key, .. } => {
            let mut entries = Vec::with_capacity(parts.len() / 2);
            let mut parts = parts.into_iter();
            while let (Some(own), Some(value)) = (parts.next(), parts.next()) {
                entries.extend(own.map(|own| (own, value)));
            }
            // The last of equal keys counts.
            entries.reverse();
            entries.sort_by(|(one, _), (other, _)| compare(key, one, other));
            entries.dedup_by(|(one, _), (other, _)| compare(key, one, other).is_eq());
            let count = i32::try_from(entries.len()).unwrap_or(i32::MAX).to_be_bytes();
            let values =
                split::join_tuple(entries.into_iter().flat_map(|(own, value)| [Some(own), value]));
            [&count[..], &values].concat()
        }
        CqlType::Vector { element, .. } => {
            let values: Option<Vec<_>> = parts.into_iter().collect();
            let values = values
                .ok_or_else(|| InvalidRequest::new("null is not supported inside vectors"))?;
            split::join_vector(element, values)
        }
        CqlType::List { .. } => list_with_nulls(parts.into_iter()),
        _ => split::join_tuple(parts),
    })
}

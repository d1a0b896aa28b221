//! References and conditions with the types of their columns, and their evaluation for the current
//! rows.

use std::cmp::Ordering;

use crate::ast::{Comparison, Condition, NativeType, Reference, Test, ValuePart};
use crate::error::InvalidRequest;
use crate::terms::{self, Bindings, Prepared, Scope, Value};
use crate::types::CqlType;
use crate::values::{check_numbers, compare, split};
use crate::work::Work;

/// A reference to a column, or to a part of its value, of a known type.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedReference {
    /// Name of the column.
    name: String,
    column: CqlType,
    value: CqlType,
    part: Part,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Whole,
    /// The key, and its name in messages.
    Element(Prepared, String),
    Field(usize),
}

/// A condition ready for evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedCondition {
    /// `None` for a whole row.
    reference: Option<PreparedReference>,
    test: PreparedTest,
}

#[derive(Clone, Debug, PartialEq)]
enum PreparedTest {
    IsNull,
    IsNotNull,
    Compare(Comparison, Prepared),
}

impl Reference {
    /// Prepares the reference for its column's type. Records the markers in its brackets, which are
    /// the client's, in `scope`.
    ///
    /// # Errors
    /// If values of the type have no such part, or the key is not of its type.
    pub fn prepare(
        &self,
        column: &CqlType,
        scope: &mut Scope<'_>,
    ) -> Result<PreparedReference, InvalidRequest> {
        let name = self.column.as_deref().unwrap_or_default();
        let (value, part) = match (&self.part, column) {
            (None, _) => (column.clone(), Part::Whole),
            (Some(ValuePart::Field(field)), CqlType::Udt { definition, .. }) => {
                let Some(position) = definition.field(field) else {
                    let type_name = &definition.name;
                    let message = format!(
                        "Unknown field '{field}' in value of user defined type {type_name}"
                    );
                    return Err(InvalidRequest::new(message));
                };
                (definition.fields[position].1.clone(), Part::Field(position))
            }
            (Some(ValuePart::Element(key)), collection) => {
                let (role, key_type, value) = match collection {
                    CqlType::List { element, .. } => {
                        ("idx", CqlType::from(NativeType::Int), element)
                    }
                    CqlType::Set { element, .. } => ("value", element.as_ref().clone(), element),
                    CqlType::Map { key, value, .. } => ("key", key.as_ref().clone(), value),
                    _ => return Err(no_part("an element", name, column)),
                };
                let key_name = format!("{role}({name})");
                let key = terms::prepare(key, &key_name, &key_type, scope)?;
                (value.as_ref().clone(), Part::Element(key, key_name))
            }
            (Some(ValuePart::Field(_)), _) => return Err(no_part("a field", name, column)),
        };
        Ok(PreparedReference { name: name.to_owned(), column: column.clone(), value, part })
    }

    /// Name of the value in a result, and of the compared term in the metadata of a marker.
    fn value_name(&self) -> String {
        let column = self.column.as_deref().unwrap_or_default();
        match &self.part {
            None => column.to_owned(),
            Some(ValuePart::Element(_)) => format!("value({column})"),
            Some(ValuePart::Field(field)) => format!("{column}.{field}"),
        }
    }
}

fn no_part(what: &str, column: &str, cql_type: &CqlType) -> InvalidRequest {
    InvalidRequest::new(format!(
        "{column} is of type {cql_type}, whose values have not {what} to refer to"
    ))
}

impl PreparedReference {
    /// Type of the referenced value.
    #[must_use]
    pub fn value_type(&self) -> &CqlType {
        &self.value
    }

    /// Checks that the referenced value can be assigned to a column of this name and type, the
    /// receiver of the marker that replaces it.
    ///
    /// # Errors
    /// If values of its type are not valid for the column.
    pub fn check_for(&self, receiver: &str, receiver_type: &CqlType) -> Result<(), InvalidRequest> {
        if receiver_type.accepts(&self.value) {
            return Ok(());
        }
        let (name, value) = (&self.name, &self.value);
        Err(InvalidRequest::new(format!(
            "Invalid reference type {value} ({name}) for \"{receiver}\" of type {receiver_type}"
        )))
    }

    /// Returns the referenced part of a column's value; `None` is null, also for an absent element.
    ///
    /// # Errors
    /// If the key has no value, is not of its type or is below the first element of a list, or if
    /// no `work` is left.
    pub fn evaluate<'v>(
        &self,
        value: Option<&'v [u8]>,
        bindings: &dyn Bindings,
        work: &Work,
    ) -> Result<Option<&'v [u8]>, InvalidRequest> {
        let (key, name, value) = match (&self.part, value) {
            (_, None) => return Ok(None),
            (Part::Whole, Some(value)) => return Ok(Some(value)),
            (Part::Field(position), Some(value)) => {
                work.charge(value.len())?;
                return Ok(field(&self.column, *position, value));
            }
            (Part::Element(key, name), Some(value)) => (key, name, value),
        };
        let key = match key.evaluate(bindings)? {
            Value::Bytes(key) => key,
            Value::Null => {
                return Err(InvalidRequest::new(format!("Invalid null value for {name}")));
            }
            Value::Unset => {
                return Err(InvalidRequest::new(format!("Invalid unset value for {name}")));
            }
        };
        element(&self.column, &key, value, work)
    }
}

fn field<'v>(column: &CqlType, position: usize, value: &'v [u8]) -> Option<&'v [u8]> {
    let CqlType::Udt { definition, .. } = column else { return None };
    // A type may have gained fields since the value was written, but never lost one.
    let fields = split::tuple(definition.fields.len(), value).ok()?;
    fields.get(position).copied().flatten()
}

fn element<'v>(
    column: &CqlType,
    key: &[u8],
    value: &'v [u8],
    work: &Work,
) -> Result<Option<&'v [u8]>, InvalidRequest> {
    if let CqlType::Set { element: compared, .. } | CqlType::Map { key: compared, .. } = column {
        work.search(compared, value, key)?;
        check_numbers(column, value)?;
        check_numbers(compared, key)?;
    }
    Ok(match column {
        CqlType::List { .. } => {
            work.charge(value.len())?;
            let index = <[u8; 4]>::try_from(key).map(i32::from_be_bytes);
            let index = index.map_err(|_| InvalidRequest::new("Invalid empty list index"))?;
            let index = usize::try_from(index);
            let index = index.map_err(|_| InvalidRequest::new("Invalid negative list index"))?;
            split::collection("list", value)?.get(index).copied()
        }
        CqlType::Set { element, .. } => {
            let same = |found: &&[u8]| compare(element, found, key) == Ordering::Equal;
            split::collection("set", value)?.into_iter().find(same)
        }
        CqlType::Map { key: key_type, .. } => {
            let parts = split::collection("map", value)?;
            let mut entries = parts.chunks_exact(2);
            entries
                .find(|entry| compare(key_type, entry[0], key) == Ordering::Equal)
                .map(|entry| entry[1])
        }
        _ => None,
    })
}

impl Condition {
    /// Prepares the condition for the type of the referenced column; `None` for a whole row.
    /// Records its markers, which are the client's, in `scope`.
    ///
    /// # Errors
    /// If the term is not of the type, or values of the type cannot be compared in this way.
    pub fn prepare(
        &self,
        column: Option<&CqlType>,
        scope: &mut Scope<'_>,
    ) -> Result<PreparedCondition, InvalidRequest> {
        let reference = column.map(|column| self.reference.prepare(column, scope)).transpose()?;
        let test = match (&self.test, &reference) {
            (Test::IsNull, _) => PreparedTest::IsNull,
            (Test::IsNotNull, _) => PreparedTest::IsNotNull,
            (Test::Compare(..), None) => {
                let row = &self.reference.row;
                let message = format!(
                    "Row reference ({row}) can only be used with IS NULL/IS NOT NULL conditions"
                );
                return Err(InvalidRequest::new(message));
            }
            (Test::Compare(comparison, term), Some(reference)) => {
                let (column, value_type) = (&reference.column, reference.value_type());
                if matches!((&reference.part, column), (Part::Element(..), CqlType::Set { .. })) {
                    let name = self.reference.column.as_deref().unwrap_or_default();
                    let message = format!(
                        "Element selection not supported for column {name} of type {column}"
                    );
                    return Err(InvalidRequest::new(message));
                }
                let ordered = !matches!(comparison, Comparison::Equal | Comparison::NotEqual);
                if ordered && value_type.references_duration() {
                    return Err(InvalidRequest::new(
                        "Slice conditions are not supported on durations",
                    ));
                }
                let name = self.reference.value_name();
                PreparedTest::Compare(*comparison, terms::prepare(term, &name, value_type, scope)?)
            }
        };
        Ok(PreparedCondition { reference, test })
    }
}

impl PreparedCondition {
    /// Evaluates the condition.
    ///
    /// * `exists`: whether the row exists.
    /// * `value`: the referenced column's value; `None` is null.
    ///
    /// A comparison with null is always false.
    ///
    /// # Errors
    /// If a bind value is unset or not of its type, or if no `work` is left.
    pub fn holds(
        &self,
        exists: bool,
        value: Option<&[u8]>,
        bindings: &dyn Bindings,
        work: &Work,
    ) -> Result<bool, InvalidRequest> {
        let found = match &self.reference {
            Some(reference) => reference.evaluate(value.filter(|_| exists), bindings, work)?,
            None => exists.then_some(&[][..]),
        };
        let (comparison, term) = match &self.test {
            PreparedTest::IsNull => return Ok(found.is_none()),
            PreparedTest::IsNotNull => return Ok(found.is_some()),
            PreparedTest::Compare(comparison, term) => (*comparison, term),
        };
        let wanted = match term.evaluate(bindings)? {
            Value::Bytes(wanted) => Some(wanted),
            Value::Null => None,
            Value::Unset => return Err(InvalidRequest::new("Invalid 'unset' value in condition")),
        };
        let (Some(reference), Some(found), Some(wanted)) = (&self.reference, found, wanted) else {
            return Ok(false);
        };
        work.compare(&reference.value, found, &wanted)?;
        check_numbers(&reference.value, found)?;
        check_numbers(&reference.value, &wanted)?;
        let order = compare(&reference.value, found, &wanted);
        // The grammar of conditions has only comparisons that depend on the order.
        Ok(comparison.of(order).unwrap_or(false))
    }
}

//! Conditions of single statements, `IF column = ..` (`ColumnCondition` of Cassandra): their
//! operands and evaluation.

use std::cmp::Ordering;

use crate::ast::{ColumnCondition, Comparison, NativeType};
use crate::error::InvalidRequest;
use crate::terms::{Bindings, Prepared, Scope, Value, prepare};
use crate::types::CqlType;
use crate::values::{check_numbers, compare, contains, split};
use crate::work::Work;

/// A condition on a column of a known type.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedColumnCondition {
    /// Name of the column.
    column: String,
    cql_type: CqlType,
    part: Part<Prepared>,
    test: Test,
}

/// Part of a column that a condition tests.
#[derive(Clone, Debug, PartialEq)]
enum Part<K> {
    Whole,
    Element(K),
    Field(usize),
}

/// The values that a condition compares with.
#[derive(Clone, Debug, PartialEq)]
enum Test {
    Compare(Comparison, Prepared),
    In(Vec<Prepared>),
    /// `IN ?`
    InList(Prepared),
}

/// A condition with the values of an execution.
#[derive(Clone, Debug)]
pub struct BoundColumnCondition<'a> {
    condition: &'a PreparedColumnCondition,
    part: Part<Option<Vec<u8>>>,
    comparison: Comparison,
    /// Alternatives; exactly one except for `IN`.
    values: Vec<Option<Vec<u8>>>,
}

impl ColumnCondition {
    /// Prepares the condition for its column's type; the column must not be in the primary key.
    /// Records its markers in `scope`.
    ///
    /// # Errors
    /// If values of the type have no such part, or no such comparison.
    pub fn prepare(
        &self,
        cql_type: &CqlType,
        scope: &mut Scope<'_>,
    ) -> Result<PreparedColumnCondition, InvalidRequest> {
        let name = &self.column;
        let wrong = || {
            InvalidRequest::new(format!(
                "Invalid element access in a condition on column {name} of type {cql_type}"
            ))
        };
        let of_element = format!("value({name})");
        let (part, compared, receiver) = match (&self.element, &self.field, cql_type) {
            (None, None, _) => {
                let (compared, receiver) = whole(self.comparison, name, cql_type);
                (Part::Whole, compared, receiver)
            }
            (Some(key), _, CqlType::List { element, .. }) => {
                let index = prepare(
                    key,
                    &format!("idx({name})"),
                    &CqlType::Native(NativeType::Int),
                    scope,
                )?;
                (Part::Element(index), of_element, CqlType::clone(element))
            }
            (Some(key), _, CqlType::Map { key: key_type, value, .. }) => {
                let key = prepare(key, &format!("key({name})"), key_type, scope)?;
                (Part::Element(key), of_element, CqlType::clone(value))
            }
            (None, Some(field), CqlType::Udt { definition, .. }) => {
                let index = definition.field(field).ok_or_else(wrong)?;
                (Part::Field(index), format!("{name}.{field}"), definition.fields[index].1.clone())
            }
            _ => return Err(wrong()),
        };
        self.check_comparison(cql_type, &receiver)?;
        let test = match self.comparison {
            Some(comparison) => {
                let value = self.values.first().ok_or_else(wrong)?;
                Test::Compare(comparison, prepare(value, &compared, &receiver, scope)?)
            }
            None if self.in_marker => {
                let value = self.values.first().ok_or_else(wrong)?;
                Test::InList(prepare(
                    value,
                    &format!("in({compared})"),
                    &CqlType::list(receiver),
                    scope,
                )?)
            }
            None => {
                let values =
                    self.values.iter().map(|value| prepare(value, &compared, &receiver, scope));
                Test::In(values.collect::<Result<_, _>>()?)
            }
        };
        Ok(PreparedColumnCondition { column: name.clone(), cql_type: cql_type.clone(), part, test })
    }

    /// Refuses comparisons that a condition cannot have.
    fn check_comparison(
        &self,
        cql_type: &CqlType,
        compared: &CqlType,
    ) -> Result<(), InvalidRequest> {
        let name = &self.column;
        match self.comparison {
            Some(Comparison::ContainsKey) if !matches!(cql_type, CqlType::Map { .. }) => Err(
                InvalidRequest::new(format!("Cannot use CONTAINS KEY on non-map column {name}")),
            ),
            Some(Comparison::Contains) if !cql_type.is_collection() => Err(InvalidRequest::new(
                format!("Cannot use CONTAINS on non-collection column {name}"),
            )),
            Some(
                Comparison::Less
                | Comparison::LessOrEqual
                | Comparison::Greater
                | Comparison::GreaterOrEqual,
            ) if compared.references_duration() => {
                Err(InvalidRequest::new("Slice conditions are not supported on durations"))
            }
            _ => Ok(()),
        }
    }
}

/// Operand of a comparison with a whole column: its name in metadata, and its type.
fn whole(comparison: Option<Comparison>, name: &str, cql_type: &CqlType) -> (String, CqlType) {
    match (comparison, cql_type) {
        (
            Some(Comparison::Contains),
            CqlType::List { element, .. } | CqlType::Set { element, .. },
        ) => (format!("value({name})"), CqlType::clone(element)),
        (Some(Comparison::Contains), CqlType::Map { value, .. }) => {
            (format!("value({name})"), CqlType::clone(value))
        }
        (Some(Comparison::ContainsKey), CqlType::Map { key, .. }) => {
            (format!("key({name})"), CqlType::clone(key))
        }
        (_, other) => (name.to_owned(), other.clone()),
    }
}

impl PreparedColumnCondition {
    /// Name of the column.
    #[must_use]
    pub fn column(&self) -> &str {
        &self.column
    }

    /// Binds the values of an execution.
    ///
    /// # Errors
    /// If a value is unset, or the list of `IN` is null.
    pub fn bind(
        &self,
        bindings: &dyn Bindings,
    ) -> Result<BoundColumnCondition<'_>, InvalidRequest> {
        let unset = || {
            InvalidRequest::new(format!("Invalid 'unset' value in condition on {}", self.column))
        };
        let given = |term: &Prepared| match term.evaluate(bindings)? {
            Value::Unset => Err(unset()),
            value => Ok(value.into_bytes()),
        };
        let part = match &self.part {
            Part::Whole => Part::Whole,
            Part::Element(key) => Part::Element(given(key)?),
            Part::Field(index) => Part::Field(*index),
        };
        let (comparison, values) = match &self.test {
            Test::Compare(comparison, term) => (*comparison, vec![given(term)?]),
            Test::In(terms) => (Comparison::Equal, alternatives(terms, bindings)?),
            Test::InList(term) => {
                let bytes = given(term)?
                    .ok_or_else(|| InvalidRequest::new("Invalid null list in IN condition"))?;
                let values = split::collection("list", &bytes)?
                    .into_iter()
                    .map(|value| Some(value.to_vec()));
                (Comparison::Equal, values.collect())
            }
        };
        Ok(BoundColumnCondition { condition: self, part, comparison, values })
    }
}

impl BoundColumnCondition<'_> {
    /// True if the condition holds for the value of its column; `None` is null. All values of an
    /// absent row are null.
    ///
    /// # Errors
    /// If the comparison with null does not exist, the element's key is null or not an index, the
    /// value is invalid, or no `work` is left.
    pub fn holds(&self, value: Option<&[u8]>, work: &Work) -> Result<bool, InvalidRequest> {
        let (value, cql_type) = self.part(value, work)?;
        let many_cells = matches!(self.part, Part::Whole)
            && cql_type.is_multi_cell()
            && cql_type.is_collection();
        for wanted in &self.values {
            let holds = if many_cells {
                self.holds_for_cells(cql_type, value, wanted.as_deref(), work)?
            } else {
                matches(cql_type, self.comparison, value, wanted.as_deref(), work)?
            };
            if holds {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// An empty collection stored element by element is the same as none.
    fn holds_for_cells(
        &self,
        cql_type: &CqlType,
        value: Option<&[u8]>,
        wanted: Option<&[u8]>,
        work: &Work,
    ) -> Result<bool, InvalidRequest> {
        let of_elements = matches!(self.comparison, Comparison::Contains | Comparison::ContainsKey);
        if wanted.is_none_or(|wanted| !of_elements && wanted == [0; 4]) {
            return match self.comparison {
                Comparison::Equal => Ok(value.is_none()),
                Comparison::NotEqual => Ok(value.is_some()),
                _ if wanted.is_none() => Err(with_null(self.comparison)),
                _ => Err(InvalidRequest::new(
                    "Invalid comparison with an empty collection for an operator that orders",
                )),
            };
        }
        if value.is_none() {
            return Ok(self.comparison == Comparison::NotEqual);
        }
        matches(cql_type, self.comparison, value, wanted, work)
    }

    /// The tested part of a column's value, and its type.
    fn part<'v>(
        &'v self,
        whole: Option<&'v [u8]>,
        work: &Work,
    ) -> Result<(Option<&'v [u8]>, &'v CqlType), InvalidRequest> {
        let name = &self.condition.column;
        match (&self.part, &self.condition.cql_type) {
            (Part::Element(key), CqlType::Map { key: key_type, value, .. }) => {
                let key = key.as_ref().ok_or_else(|| {
                    InvalidRequest::new("Invalid null value for map element access")
                })?;
                let Some(whole) = whole else { return Ok((None, value)) };
                work.search(key_type, whole, key)?;
                check_numbers(&self.condition.cql_type, whole)?;
                check_numbers(key_type, key)?;
                let elements = split::collection("map", whole)?;
                let found =
                    elements.chunks_exact(2).find(|pair| compare(key_type, pair[0], key).is_eq());
                Ok((found.map(|pair| pair[1]), value))
            }
            (Part::Element(index), CqlType::List { element, .. }) => {
                let index = index.as_ref().ok_or_else(|| {
                    InvalidRequest::new("Invalid null value for list element access")
                })?;
                let index = <[u8; 4]>::try_from(index.as_slice()).map(i32::from_be_bytes);
                let index = index
                    .map_err(|_| InvalidRequest::new(format!("Invalid list index for {name}")))?;
                let index = usize::try_from(index).map_err(|_| {
                    InvalidRequest::new(format!("Invalid negative list index {index}"))
                })?;
                work.charge(whole.map_or(0, <[u8]>::len))?;
                let elements = whole.map(|whole| split::collection("list", whole)).transpose()?;
                Ok((elements.unwrap_or_default().get(index).copied(), element))
            }
            (Part::Field(index), CqlType::Udt { definition, .. }) => {
                work.charge(whole.map_or(0, <[u8]>::len))?;
                let fields =
                    whole.map(|whole| split::tuple(definition.fields.len(), whole)).transpose();
                let broken = |_| InvalidRequest::new(format!("the value of {name} is broken"));
                let fields = fields.map_err(broken)?.unwrap_or_default();
                Ok((fields.get(*index).copied().flatten(), &definition.fields[*index].1))
            }
            (_, cql_type) => Ok((whole, cql_type)),
        }
    }
}

/// Values of `IN (..)` without unset ones.
fn alternatives(
    terms: &[Prepared],
    bindings: &dyn Bindings,
) -> Result<Vec<Option<Vec<u8>>>, InvalidRequest> {
    let mut values = Vec::with_capacity(terms.len());
    for term in terms {
        match term.evaluate(bindings)? {
            Value::Unset => {}
            value => values.push(value.into_bytes()),
        }
    }
    Ok(values)
}

fn with_null(comparison: Comparison) -> InvalidRequest {
    InvalidRequest::new(format!(
        "Invalid comparison with null for operator \"{}\"",
        symbol(comparison)
    ))
}

/// True if a value compares with the wanted one as required; only null equals null.
fn matches(
    cql_type: &CqlType,
    comparison: Comparison,
    value: Option<&[u8]>,
    wanted: Option<&[u8]>,
    work: &Work,
) -> Result<bool, InvalidRequest> {
    let (value, wanted) = match (value, wanted) {
        (value, None) => {
            return match comparison {
                Comparison::Equal => Ok(value.is_none()),
                Comparison::NotEqual => Ok(value.is_some()),
                _ => Err(with_null(comparison)),
            };
        }
        (None, Some(_)) => return Ok(comparison == Comparison::NotEqual),
        (Some(value), Some(wanted)) => (value, wanted),
    };
    check_numbers(cql_type, value)?;
    if matches!(comparison, Comparison::Contains | Comparison::ContainsKey) {
        let keys = comparison == Comparison::ContainsKey;
        if let CqlType::List { element, .. }
        | CqlType::Set { element, .. }
        | CqlType::Map { value: element, .. } = cql_type
        {
            let element = match cql_type {
                CqlType::Map { key, .. } if keys => key,
                _ => element,
            };
            work.search(element, value, wanted)?;
            check_numbers(element, wanted)?;
        }
        return Ok(contains(cql_type, value, wanted, keys));
    }
    work.compare(cql_type, value, wanted)?;
    check_numbers(cql_type, wanted)?;
    let order = if cql_type.references_duration() && value == wanted {
        Ordering::Equal
    } else {
        compare(cql_type, value, wanted)
    };
    comparison.of(order).ok_or_else(|| InvalidRequest::new("LIKE is not supported in conditions"))
}

fn symbol(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => "=",
        Comparison::NotEqual => "!=",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
        Comparison::Like => "LIKE",
        Comparison::Contains => "CONTAINS",
        Comparison::ContainsKey => "CONTAINS KEY",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::{Conditions, Mutation, Statement};
    use crate::functions::Environment;

    struct Given(Vec<Value>);

    impl Bindings for Given {
        fn value(&self, index: u16) -> Value {
            self.0.get(usize::from(index)).cloned().unwrap_or(Value::Unset)
        }
    }

    impl Environment for Given {
        fn now_ms(&self) -> i64 {
            0
        }
        fn timeuuid(&self) -> [u8; 16] {
            [0; 16]
        }
        fn random(&self) -> u128 {
            0
        }
        fn token(&self, _: &[u8]) -> i64 {
            0
        }
    }

    fn prepare_one(
        text: &str,
        cql_type: &CqlType,
    ) -> Result<PreparedColumnCondition, InvalidRequest> {
        let parsed = crate::parse(&format!("DELETE FROM t WHERE k = 1 IF {text}")).expect(text);
        let Statement::Mutation(Mutation::Delete(delete)) = parsed.statement else {
            panic!("{text}")
        };
        let Conditions::All(all) = delete.conditions else { panic!("{text}") };
        all[0].prepare(cql_type, &mut Scope::new(&(), None, 0, parsed.markers.len()))
    }

    fn int(number: i32) -> Vec<u8> {
        number.to_be_bytes().to_vec()
    }

    #[test]
    fn null_equals_null_alone_and_has_no_order() {
        let native = CqlType::Native(NativeType::Int);
        let holds = |text: &str, value: Option<i32>, given: Vec<Value>| {
            let prepared = prepare_one(text, &native).expect(text);
            let value = value.map(int);
            prepared
                .bind(&Given(given))
                .and_then(|bound| bound.holds(value.as_deref(), &Work::default()))
        };
        for (text, value, wanted) in [
            ("v = 1", Some(1), true),
            ("v = 1", None, false),
            ("v = null", None, true),
            ("v = null", Some(1), false),
            ("v != null", Some(1), true),
            ("v != 1", None, true),
            ("v != 1", Some(1), false),
            ("v < 2", Some(1), true),
            ("v < 2", None, false),
            ("v >= 2", Some(1), false),
            ("v IN (1, 3)", Some(3), true),
            ("v IN (1, 3)", Some(2), false),
            ("v IN (1, null)", None, true),
        ] {
            assert_eq!(holds(text, value, Vec::new()), Ok(wanted), "{text} of {value:?}");
        }
        assert_eq!(holds("v = ?", Some(5), vec![Value::Bytes(int(5))]), Ok(true));
        for (text, given, shown) in [
            ("v < null", vec![], "Invalid comparison with null"),
            ("v = ?", vec![Value::Unset], "Invalid 'unset' value in condition on v"),
            ("v IN ?", vec![Value::Null], "Invalid null list"),
        ] {
            let error = holds(text, Some(1), given).expect_err(text);
            assert!(error.message.contains(shown), "{text}: {}", error.message);
        }
    }

    #[test]
    fn parts_of_values_are_compared() {
        let list = CqlType::parse("frozen<list<int>>", &()).expect("a type");
        let value = [
            2_i32.to_be_bytes(),
            4_i32.to_be_bytes(),
            7_i32.to_be_bytes(),
            4_i32.to_be_bytes(),
            9_i32.to_be_bytes(),
        ]
        .concat();
        for (text, wanted) in [
            ("v[1] = 9", true),
            ("v[0] = 9", false),
            ("v[5] = null", true),
            ("v = [7, 9]", true),
            ("v CONTAINS 9", true),
            ("v CONTAINS 8", false),
        ] {
            let prepared = prepare_one(text, &list).expect(text);
            assert_eq!(prepared.column(), "v");
            let bound = prepared.bind(&Given(Vec::new())).expect(text);
            assert_eq!(bound.holds(Some(&value), &Work::default()), Ok(wanted), "{text}");
        }
        for (text, shown) in
            [("v[-1] = 1", "negative"), ("v[null] = 1", "null value for list element")]
        {
            let prepared = prepare_one(text, &list).expect(text);
            let error = prepared
                .bind(&Given(Vec::new()))
                .expect(text)
                .holds(Some(&value), &Work::default())
                .expect_err(text);
            assert!(error.message.contains(shown), "{text}: {}", error.message);
        }
        for (text, shown) in
            [("v CONTAINS KEY 1", "non-map column"), ("v.a = 1", "Invalid element access")]
        {
            assert!(prepare_one(text, &list).expect_err(text).message.contains(shown), "{text}");
        }
        let bigint = CqlType::Native(NativeType::Bigint);
        assert!(
            prepare_one("v CONTAINS 1", &bigint)
                .expect_err("no collection")
                .message
                .contains("non-collection")
        );
    }
}

//! Values that SELECT computes for each row: selectors with resolved columns, functions and types.
//!
//! Expressions refer to columns by position. Separate lists hold terms, which are equal for all
//! rows, and aggregates, which have one value for many rows.

mod call;
mod metadata;
mod name;

use shunt_language::ast::{CellMetadata, NativeType, Selector, Term};
use shunt_language::error::InvalidRequest;
use shunt_language::functions::{Aggregate, AggregateKind, Function};
use shunt_language::terms::{Prepared, Scope, prepare};
use shunt_language::types::CqlType;

use crate::schema::Table;
use crate::statement::restrictions::{column_of, invalid};

pub(super) use name::name_of;

/// A computed value.
#[derive(Clone, Debug)]
pub(crate) enum Expression {
    /// Value of the column at this position in the table.
    Column(usize),
    /// A term of [`Selection::terms`].
    Term(usize),
    /// An aggregate of [`Selection::aggregates`].
    Aggregate(usize),
    /// Metadata of a cell, or of the cells of a column.
    Metadata {
        what: CellMetadata,
        column: usize,
        part: Part,
    },
    Call {
        function: Function,
        arguments: Vec<Expression>,
    },
    /// A field of a user-defined type with `count` fields.
    Field {
        of: Box<Expression>,
        count: usize,
        index: usize,
    },
    /// An element of a set or map; the key is a term.
    Element {
        of: Box<Expression>,
        cql_type: CqlType,
        key: usize,
    },
    /// The elements between two terms.
    Slice {
        of: Box<Expression>,
        cql_type: CqlType,
        from: Option<usize>,
        to: Option<usize>,
    },
    /// A composed value; keys and values of a map alternate, missing fields are null.
    Composite {
        cql_type: CqlType,
        parts: Vec<Option<Expression>>,
    },
}

/// Selected cells of a column.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Whole,
    Field(usize),
    /// The element whose key is a term.
    Element(usize),
    /// Elements between terms.
    Slice(Option<usize>, Option<usize>),
}

/// A selected value, its type and its name.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) expression: Expression,
    pub(crate) cql_type: CqlType,
    pub(crate) name: String,
}

/// An aggregate and its argument; `None` counts rows.
#[derive(Clone, Debug)]
pub(crate) struct AggregateOf {
    pub(crate) aggregate: Aggregate,
    pub(crate) argument: Option<Expression>,
}

/// The whole selection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub(crate) items: Vec<Item>,
    pub(crate) terms: Vec<Prepared>,
    pub(crate) aggregates: Vec<AggregateOf>,
    /// True for `*`.
    pub(crate) is_all: bool,
    /// For each column of the table, whether it is used.
    pub(crate) uses: Vec<bool>,
}

/// Common name of markers in selectors.
const MARKER: &str = "[selection]";

/// An expression with its type.
type Typed = (Expression, CqlType);

/// Resolves selectors.
pub(super) struct Preparer<'t, 's, 'a> {
    table: &'t Table,
    scope: &'s mut Scope<'a>,
    selection: Selection,
    in_aggregate: bool,
}

impl<'t, 's, 'a> Preparer<'t, 's, 'a> {
    pub(super) fn new(table: &'t Table, scope: &'s mut Scope<'a>) -> Self {
        let selection =
            Selection { uses: vec![false; table.columns.len()], ..Selection::default() };
        Self { table, scope, selection, in_aggregate: false }
    }

    pub(super) fn finish(self) -> Selection {
        self.selection
    }

    /// Selects every column.
    pub(super) fn all(&mut self) {
        self.selection.is_all = true;
        for (position, column) in self.table.columns.iter().enumerate() {
            let (cql_type, name) = (column.cql_type.clone(), column.name.clone());
            self.selection.items.push(Item {
                expression: Expression::Column(position),
                cql_type,
                name,
            });
            self.selection.uses[position] = true;
        }
    }

    pub(super) fn item(
        &mut self,
        selector: &Selector,
        alias: Option<&str>,
    ) -> Result<(), InvalidRequest> {
        let (expression, cql_type) = self.prepare(selector, None)?;
        // A cast to the value's own type has no effect.
        let is_none =
            |of: &Selector, native: NativeType| self.known_or_literal(of) == Some(native.into());
        let name = alias.map_or_else(|| name::name_without(selector, &is_none), str::to_owned);
        self.selection.items.push(Item { expression, cql_type, name });
        Ok(())
    }

    /// Prepares a selector for a value of type `expected`, if known.
    fn prepare(
        &mut self,
        selector: &Selector,
        expected: Option<&CqlType>,
    ) -> Result<Typed, InvalidRequest> {
        match selector {
            Selector::Column(name) => {
                let (position, column) = column_of(self.table, name)?;
                self.selection.uses[position] = true;
                Ok((Expression::Column(position), column.cql_type.clone()))
            }
            Selector::Term(term) => {
                let Some(expected) = expected else { return untyped(selector) };
                Ok((Expression::Term(self.term(term, MARKER, expected)?), expected.clone()))
            }
            Selector::CountRows => self.aggregate(AggregateKind::CountRows, None),
            Selector::Metadata(what, argument) => self.metadata(*what, argument),
            Selector::Cast(inner, native) => {
                let Some(from) = self.known_or_literal(inner) else { return untyped(inner) };
                if from == (*native).into() {
                    return self.prepare(inner, Some(&from));
                }
                self.called(Function::cast(&from, *native)?, &[inner])
            }
            Selector::Call { name, arguments } => self.call(name, arguments, expected),
            Selector::Negation(inner) => self.operation("_negate", &[inner], expected),
            Selector::Arithmetic { operator, left, right } => {
                self.operation(&format!("_{}", operator.symbol()), &[left, right], expected)
            }
            Selector::Field(of, field) => self.field(of, field),
            Selector::Element(of, key) => self.element(of, key),
            Selector::Slice(of, from, to) => self.slice(of, from.as_ref(), to.as_ref()),
            Selector::Hint(type_name, inner) => {
                let hinted = CqlType::resolve(type_name, self.scope.types)?;
                if self.fits(inner, &hinted).is_none() {
                    let shown = name_of(selector);
                    return invalid(format!(
                        "Cannot assign value {shown} to {shown} of type {hinted}"
                    ));
                }
                let (expression, _) = self.prepare(inner, Some(&hinted))?;
                Ok((expression, hinted))
            }
            Selector::Tuple(parts) => match (&parts[..], expected) {
                // Plain parentheses.
                ([only], Some(expected)) if !matches!(expected, CqlType::Tuple(_)) => {
                    self.prepare(only, Some(expected))
                }
                _ => self.composite(selector, expected),
            },
            Selector::List(_) | Selector::Set(_) | Selector::Map(_) => {
                self.composite(selector, expected)
            }
        }
    }

    /// Adds a term of a type; returns its index in the list.
    fn term(
        &mut self,
        term: &Term,
        name: &str,
        cql_type: &CqlType,
    ) -> Result<usize, InvalidRequest> {
        let prepared = prepare(term, name, cql_type, self.scope)?;
        self.selection.terms.push(prepared);
        Ok(self.selection.terms.len() - 1)
    }

    /// A tuple, collection, vector or value of a user-defined type.
    fn composite(
        &mut self,
        selector: &Selector,
        expected: Option<&CqlType>,
    ) -> Result<Typed, InvalidRequest> {
        let known = self.known(selector);
        let Some(cql_type) = expected.cloned().or(known) else { return untyped(selector) };
        let mut parts = Vec::new();
        let mut part = |preparer: &mut Self, inner: &Selector, wanted: &CqlType| {
            let (expression, found) = preparer.prepare(inner, Some(wanted))?;
            if !wanted.accepts(&found) {
                let shown = name_of(inner);
                return invalid(format!(
                    "Invalid value {shown} of type {found}, it must be of type {wanted}"
                ));
            }
            parts.push(Some(expression));
            Ok(())
        };
        match (selector, &cql_type) {
            (Selector::Tuple(inner), CqlType::Tuple(types)) if inner.len() <= types.len() => {
                inner
                    .iter()
                    .zip(types.iter())
                    .try_for_each(|(inner, wanted)| part(self, inner, wanted))?;
                parts.resize_with(types.len(), || None);
            }
            (Selector::List(inner), CqlType::List { element, .. })
            | (Selector::Set(inner), CqlType::Set { element, .. }) => {
                inner.iter().try_for_each(|inner| part(self, inner, element))?;
            }
            (Selector::List(inner), CqlType::Vector { element, dimension })
                if inner.len() == *dimension as usize =>
            {
                inner.iter().try_for_each(|inner| part(self, inner, element))?;
            }
            (Selector::Set(inner), CqlType::Map { .. }) if inner.is_empty() => {}
            (Selector::Map(entries), CqlType::Map { key, value, .. }) => {
                for (own_key, own_value) in entries {
                    part(self, own_key, key)?;
                    part(self, own_value, value)?;
                }
            }
            (Selector::Map(entries), CqlType::Udt { definition, .. }) => {
                let definition = std::sync::Arc::clone(definition);
                parts.resize_with(definition.fields.len(), || None);
                for (field, value) in entries {
                    let field = name_of(field);
                    let Some(index) = definition.field(&field) else {
                        let name = &definition.name;
                        return invalid(format!(
                            "Unknown field '{field}' in value of user defined type {name}"
                        ));
                    };
                    parts[index] = Some(self.prepare(value, Some(&definition.fields[index].1))?.0);
                }
            }
            _ => {
                let shown = name_of(selector);
                return invalid(format!(
                    "Cannot assign value {shown} to a value of type {cql_type}"
                ));
            }
        }
        Ok((Expression::Composite { cql_type: cql_type.clone(), parts }, cql_type))
    }

    fn field(&mut self, of: &Selector, field: &str) -> Result<Typed, InvalidRequest> {
        let (expression, cql_type) = self.prepare(of, None)?;
        let (index, field_type, count) = field_of(of, &cql_type, field)?;
        Ok((Expression::Field { of: Box::new(expression), count, index }, field_type))
    }

    fn element(&mut self, of: &Selector, key: &Term) -> Result<Typed, InvalidRequest> {
        let (expression, cql_type) = self.prepare(of, None)?;
        let (key_name, key_type, value_type) = element_types(of, &cql_type, "Element")?;
        let key = self.term(key, &key_name, &key_type)?;
        Ok((Expression::Element { of: Box::new(expression), cql_type, key }, value_type))
    }

    fn slice(
        &mut self,
        of: &Selector,
        from: Option<&Term>,
        to: Option<&Term>,
    ) -> Result<Typed, InvalidRequest> {
        let (expression, cql_type) = self.prepare(of, None)?;
        let (from, to) = self.slice_bounds(of, &cql_type, from, to)?;
        let of = Box::new(expression);
        Ok((Expression::Slice { of, cql_type: cql_type.clone(), from, to }, cql_type))
    }

    fn slice_bounds(
        &mut self,
        of: &Selector,
        cql_type: &CqlType,
        from: Option<&Term>,
        to: Option<&Term>,
    ) -> Result<(Option<usize>, Option<usize>), InvalidRequest> {
        let (name, key_type, _) = element_types(of, cql_type, "Slice")?;
        let from = from.map(|term| self.term(term, &name, &key_type)).transpose()?;
        let to = to.map(|term| self.term(term, &name, &key_type)).transpose()?;
        Ok((from, to))
    }
}

fn untyped<T>(selector: &Selector) -> Result<T, InvalidRequest> {
    invalid(format!(
        "Cannot infer type for term {} in selection clause (try using a cast to force a type)",
        name_of(selector)
    ))
}

/// Position and type of a field, and the number of fields.
fn field_of(
    of: &Selector,
    cql_type: &CqlType,
    field: &str,
) -> Result<(usize, CqlType, usize), InvalidRequest> {
    let CqlType::Udt { definition, .. } = cql_type else {
        let shown = name_of(of);
        return invalid(format!(
            "Invalid field selection: {shown} of type {cql_type} is not a user type"
        ));
    };
    let Some(index) = definition.field(field) else {
        let shown = name_of(of);
        return invalid(format!("{shown} of type {cql_type} has no field {field}"));
    };
    Ok((index, definition.fields[index].1.clone(), definition.fields.len()))
}

/// Returns the name and type of a collection's keys, and the type of its elements.
fn element_types(
    of: &Selector,
    cql_type: &CqlType,
    what: &str,
) -> Result<(String, CqlType, CqlType), InvalidRequest> {
    let shown = name_of(of);
    match cql_type {
        CqlType::Map { key, value, .. } => {
            Ok((format!("key({shown})"), CqlType::clone(key), CqlType::clone(value)))
        }
        CqlType::Set { element, .. } => {
            Ok((format!("value({shown})"), CqlType::clone(element), CqlType::clone(element)))
        }
        CqlType::List { .. } => invalid(format!(
            "{what} selection is only allowed on sets and maps, but {shown} is a list"
        )),
        _ => {
            let what = what.to_lowercase();
            invalid(format!(
                "Invalid {what} selection: {shown} is of type {cql_type} is not a collection"
            ))
        }
    }
}

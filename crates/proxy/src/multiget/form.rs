//! Prepared statements that may be split: read once from the text, when a client prepares it.
//!
//! A statement must be recognised to its last word. For the others with an `IN` the proxy keeps the
//! reason, to count it when they are executed.

use shunt_language::ast::{
    self, Comparison, LiteralKind, NativeType, Relation, Select, SelectClause, Selector, Term,
};
use shunt_language::{CqlType, parse};
use shunt_wire::cql::message::{ColumnSpec, Prepared};

use crate::multiget::reasons::Whole;

/// A statement with an `IN`, or the reason why it goes whole.
pub(crate) type Form = Result<Split, Whole>;

/// A statement that may be split.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Split {
    pub(crate) keyspace: Box<str>,
    pub(crate) table: Box<str>,
    /// The column of `IN`.
    pub(crate) column: Box<str>,
    /// Type of that column; its order is the order of the rows.
    pub(crate) key_type: CqlType,
    pub(crate) keys: Keys,
    /// Columns with equality, and their markers.
    pub(crate) equal: Box<[(Box<str>, usize)]>,
    pub(crate) limit: Limit,
    /// Number of bind markers.
    pub(crate) markers: usize,
}

/// The markers of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// `IN ?`
    List(usize),
    /// `IN (?, ..)`
    Each(Box<[usize]>),
}

/// `LIMIT`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    None,
    Rows(usize),
    Marker(usize),
}

/// Reads a text and a node's answer to its PREPARE. `None`: it has no `IN`.
pub(crate) fn read(text: &str, prepared: &Prepared<'_>) -> Option<Form> {
    // Most texts need no parsing: an `IN` needs these two letters.
    if !text.as_bytes().windows(2).any(|pair| pair.eq_ignore_ascii_case(b"in")) {
        return None;
    }
    let parsed = parse(text).ok()?;
    let ast::Statement::Select(select) = &parsed.statement else { return None };
    let has_in = select.relations.iter().any(|relation| {
        matches!(
            relation,
            Relation::In { .. }
                | Relation::InMarker { .. }
                | Relation::TupleIn { .. }
                | Relation::TupleInMarker { .. }
        )
    });
    if !has_in {
        return None;
    }
    // A node may answer with any number of markers, so they are compared with the text's first.
    let is_named = parsed.markers.iter().any(Option::is_some);
    if is_named || prepared.bind.count != parsed.markers.len() {
        return Some(Err(Whole::Markers));
    }
    let markers: Vec<ColumnSpec<'_>> = prepared.bind.markers().collect();
    let is_told = markers.len() == parsed.markers.len();
    Some(if is_told { judge(select, &markers) } else { Err(Whole::Markers) })
}

fn judge(select: &Select, markers: &[ColumnSpec<'_>]) -> Form {
    refuse_clauses(select)?;
    let mut found = None;
    let mut equal = Vec::new();
    for relation in &select.relations {
        match relation {
            Relation::Column {
                column,
                comparison: Comparison::Equal,
                value: Term::Marker(index),
            } => {
                equal.push((column.as_str().into(), usize::from(*index)));
            }
            Relation::InMarker { column, marker } if found.is_none() => {
                found = Some((column, Keys::List(usize::from(*marker))));
            }
            Relation::In { column, values } if found.is_none() => {
                let index = |value: &Term| match value {
                    Term::Marker(index) => Ok(usize::from(*index)),
                    _ => Err(Whole::Literals),
                };
                let keys = values.iter().map(index).collect::<Result<Box<[_]>, _>>()?;
                found = Some((column, Keys::Each(keys)));
            }
            Relation::Column { comparison: Comparison::Equal, .. } => return Err(Whole::Literals),
            _ => return Err(Whole::Where),
        }
    }
    let (column, keys) = found.ok_or(Whole::Where)?;
    let first = match &keys {
        Keys::List(index) => Some(*index),
        Keys::Each(each) => each.first().copied(),
    };
    let marker = first.and_then(|index| markers.get(index)).ok_or(Whole::Markers)?;
    let limit = match &select.limit {
        None => Limit::None,
        Some(Term::Marker(index)) => Limit::Marker(usize::from(*index)),
        Some(Term::Literal(literal)) if literal.kind == LiteralKind::Integer => {
            let rows =
                literal.text.parse::<i32>().ok().filter(|rows| *rows > 0).ok_or(Whole::Limit)?;
            Limit::Rows(rows as usize)
        }
        Some(_) => return Err(Whole::Limit),
    };
    Ok(Split {
        keyspace: marker.keyspace.into(),
        table: marker.table.into(),
        column: column.as_str().into(),
        key_type: key_type(&keys, marker).ok_or(Whole::Type)?,
        keys,
        equal: equal.into(),
        limit,
        markers: markers.len(),
    })
}

/// Refuses clauses that do more with the rows than return them, or change their order.
fn refuse_clauses(select: &Select) -> Result<(), Whole> {
    if select.json {
        return Err(Whole::Json);
    }
    if select.distinct {
        return Err(Whole::Distinct);
    }
    if !select.group_by.is_empty() {
        return Err(Whole::GroupBy);
    }
    if !select.order_by.is_empty() {
        return Err(Whole::OrderBy);
    }
    if select.allow_filtering {
        return Err(Whole::Filtering);
    }
    // Functions may be aggregates, or have another result each time.
    let is_plain = match &select.clause {
        SelectClause::All => true,
        SelectClause::Items(items) => {
            items.iter().all(|item| matches!(item.selector, Selector::Column(_)))
        }
    };
    if is_plain { Ok(()) } else { Err(Whole::Selection) }
}

/// The type of the keys, if its order is known.
fn key_type(keys: &Keys, marker: &ColumnSpec<'_>) -> Option<CqlType> {
    let mut option = marker.type_option;
    let told = CqlType::read_option(&mut option)?;
    let of_key = match (keys, told) {
        (Keys::Each(_), told) => told,
        (Keys::List(_), CqlType::List { element, .. }) => (*element).clone(),
        (Keys::List(_), _) => return None,
    };
    match of_key {
        CqlType::Native(NativeType::Counter | NativeType::Duration) => None,
        CqlType::Native(_) => Some(of_key),
        _ => None,
    }
}

impl Split {
    /// Approximate memory of the form, bytes.
    pub(crate) fn bytes(&self) -> usize {
        let equal = self
            .equal
            .iter()
            .map(|(name, _)| name.len() + size_of::<(Box<str>, usize)>())
            .sum::<usize>();
        let keys = match &self.keys {
            Keys::List(_) => 0,
            Keys::Each(each) => size_of_val(&**each),
        };
        size_of::<Self>()
            + self.keyspace.len()
            + self.table.len()
            + self.column.len()
            + equal
            + keys
    }
}

#[cfg(test)]
mod tests;

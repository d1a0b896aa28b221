//! `.. IF "shunt:lock" = ? AND "shunt:fence" = ?`: a guard, which names in the conditions of a
//! statement the lock that it relies on. The names are not columns of the table; proxies remove
//! them before processing the statement.
//!
//! Guards are for clients that cannot send this information beside their statements. An `INSERT`
//! has no place for one; a batch may have one in any of its other statements.

use std::collections::HashSet;

use crate::ast::{
    ColumnCondition, Comparison, Conditions, Inner, Literal, LiteralKind, MarkerSource, Mutation,
    Statement, Term, Transaction,
};
use crate::error::InvalidRequest;
use crate::parser;

/// Prefix of guard names, reserved for them.
const OURS: &str = "shunt:";
const LOCK: &str = "shunt:lock";
const FAST_LOCK: &str = "shunt:fast_lock";
const FENCE: &str = "shunt:fence";

/// Source of a part of a guard.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Given<T> {
    /// The text.
    Literal(T),
    /// A bind marker of the whole text.
    Marker {
        /// Index of the marker.
        index: u16,
        /// Name of the marker in PREPARE, under which its value may come.
        name: String,
    },
}

/// A lock that must be held.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Guard {
    /// True for a lock in `shunt.fast_locks`.
    pub is_fast: bool,
    /// Name of the lock.
    pub lock: Given<String>,
    /// Fence of its grant.
    pub fence: Given<i64>,
}

/// Guards removed from a text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Guards {
    /// One for each guarded statement; at least one.
    pub all: Vec<Guard>,
    /// Number of bind markers in the text.
    pub markers: usize,
    /// Names of values that no marker uses any more.
    pub names: Vec<String>,
}

impl Guards {
    /// Approximate memory in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let lock = |guard: &Guard| match &guard.lock {
            Given::Literal(name) | Given::Marker { name, .. } => name.len(),
        };
        let names: usize =
            self.all.iter().map(lock).chain(self.names.iter().map(String::len)).sum();
        2 * names + self.all.len() * size_of::<Guard>() + self.names.len() * size_of::<String>()
    }

    /// The removed bind markers, in order; the flag is true for a fence (a `bigint`), false for
    /// text.
    pub fn gone(&self) -> impl Iterator<Item = (u16, &str, bool)> {
        let mut gone = Vec::new();
        for guard in &self.all {
            if let Given::Marker { index, name } = &guard.lock {
                gone.push((*index, name.as_str(), false));
            }
            if let Given::Marker { index, name } = &guard.fence {
                gone.push((*index, name.as_str(), true));
            }
        }
        gone.sort_unstable();
        gone.into_iter()
    }
}

/// True if a text may contain a guard, so that it must be parsed.
#[must_use]
pub fn may_be_guarded(text: &str) -> bool {
    let is_quoted =
        |part: &[u8]| part[0] == b'"' && part[1..].eq_ignore_ascii_case(OURS.as_bytes());
    text.as_bytes().windows(OURS.len() + 1).any(is_quoted)
}

/// Removes the guards from an `UPDATE`, a `DELETE` or a batch. `None` if there are none, or for
/// other statements.
///
/// # Errors
/// A condition uses a reserved name incorrectly or beside other conditions, or the rest has more
/// bind markers than a transaction may.
pub fn guarded(text: &str) -> Result<Option<(String, Guards)>, InvalidRequest> {
    if text.len() > super::TEXT_BYTES_MAX || !may_be_guarded(text) {
        return Ok(None);
    }
    // Unparsable text is refused elsewhere: no table has such columns.
    let Ok(transaction) = parser::alone(text, super::STATEMENTS_MAX) else { return Ok(None) };
    let (mut all, mut rest, mut at) = (Vec::new(), String::with_capacity(text.len()), 0);
    for (index, inner) in transaction.statements.iter().enumerate() {
        let Some(conditions) = conditions(inner).filter(|all| all.iter().any(is_ours)) else {
            continue;
        };
        let named = |problem: String| {
            InvalidRequest::new(format!("{}: {problem}", transaction.name_of(index, text)))
        };
        all.push(guard(conditions, inner, &transaction).map_err(named)?);
        let place = inner.condition.clone().unwrap_or_default();
        rest.push_str(text.get(at..place.start).unwrap_or_default());
        at = place.end;
    }
    if all.is_empty() {
        return Ok(None);
    }
    rest.push_str(text.get(at..).unwrap_or_default());
    let mut guards = Guards { all, markers: transaction.markers.len(), names: Vec::new() };
    let left = guards.markers.saturating_sub(guards.gone().count());
    if left > super::MARKERS_MAX {
        return Err(InvalidRequest::new(format!(
            "a statement that names a lock has {left} bind markers; the limit is {}",
            super::MARKERS_MAX
        )));
    }
    guards.names = names_gone(&guards, &transaction);
    Ok(Some((rest, guards)))
}

/// Names of removed markers that no other marker has.
fn names_gone(guards: &Guards, transaction: &Transaction) -> Vec<String> {
    // The sender of a text is not authorised yet: each marker is examined once, however many guards
    // there are.
    let gone: HashSet<usize> = guards.gone().map(|(index, ..)| usize::from(index)).collect();
    let left = transaction.markers.iter().enumerate().filter(|(index, _)| !gone.contains(index));
    let stay: HashSet<&str> = left.filter_map(|(_, marker)| marker.name.as_deref()).collect();
    guards
        .gone()
        .map(|(_, name, _)| name)
        .filter(|name| !stay.contains(name))
        .map(str::to_owned)
        .collect()
}

fn conditions(inner: &Inner) -> Option<&[ColumnCondition]> {
    match &inner.statement {
        Statement::Mutation(Mutation::Update(update)) => all_of(&update.conditions),
        Statement::Mutation(Mutation::Delete(delete)) => all_of(&delete.conditions),
        _ => None,
    }
}

fn all_of(conditions: &Conditions) -> Option<&[ColumnCondition]> {
    match conditions {
        Conditions::All(all) => Some(all),
        Conditions::None | Conditions::Exists => None,
    }
}

fn is_ours(condition: &ColumnCondition) -> bool {
    condition.column.get(..OURS.len()).is_some_and(|start| start.eq_ignore_ascii_case(OURS))
}

fn form() -> String {
    format!(
        "a guard is IF \"{LOCK}\" = ? AND \"{FENCE}\" = ?, or \"{FAST_LOCK}\", each once: the name of one lock, as text, and the number that it \
         was granted with"
    )
}

fn guard(
    conditions: &[ColumnCondition],
    inner: &Inner,
    transaction: &Transaction,
) -> Result<Guard, String> {
    let (mut lock, mut fence) = (None, None);
    for condition in conditions {
        let name = condition.column.as_str();
        let is_first = match name {
            LOCK | FAST_LOCK => lock.is_none(),
            FENCE => fence.is_none(),
            other if is_ours(condition) => {
                return Err(format!(
                    "there is no \"{other}\": \"{LOCK}\", \"{FAST_LOCK}\" and \"{FENCE}\" are taken, in lower case"
                ));
            }
            other => {
                return Err(format!(
                    "Updates within transactions may not specify their own conditions: there is one on {other} beside \"{LOCK}\""
                ));
            }
        };
        let is_plain =
            condition.element.is_none() && condition.field.is_none() && !condition.in_marker;
        let is_equal = condition.comparison == Some(Comparison::Equal);
        let [value] = &condition.values[..] else { return Err(form()) };
        if !is_first || !is_plain || !is_equal {
            return Err(form());
        }
        if name == FENCE {
            fence =
                Some(given_value(value, name, inner, transaction, |literal| match literal.kind {
                    LiteralKind::Integer => literal.text.parse().ok(),
                    _ => None,
                })?);
        } else {
            let text =
                given_value(value, name, inner, transaction, |literal| match literal.kind {
                    LiteralKind::String => Some(literal.text.clone()),
                    _ => None,
                })?;
            lock = Some((name == FAST_LOCK, text));
        }
    }
    let ((is_fast, lock), fence) = lock.zip(fence).ok_or_else(form)?;
    Ok(Guard { is_fast, lock, fence })
}

fn given_value<T>(
    value: &Term,
    column: &str,
    inner: &Inner,
    transaction: &Transaction,
    literal: impl Fn(&Literal) -> Option<T>,
) -> Result<Given<T>, String> {
    match value {
        Term::Literal(given) => literal(given).map(Given::Literal).ok_or_else(form),
        Term::Marker(place) => {
            let source = inner.markers.get(usize::from(*place)).map(|marker| &marker.source);
            let Some(MarkerSource::Client(index)) = source else { return Err(form()) };
            let name = transaction
                .markers
                .get(usize::from(*index))
                .and_then(|marker| marker.name.as_deref());
            Ok(Given::Marker { index: *index, name: name.unwrap_or(column).to_owned() })
        }
        _ => Err(form()),
    }
}

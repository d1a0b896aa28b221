//! Restrictions on transactions, whatever the tables: Cassandra's checks at preparation, in its
//! words.

use std::collections::{HashMap, HashSet};

use super::place::{at_condition, at_reference};
use crate::ast::{
    Inner, MarkerSource, Mutation, Reference, Returned, Select, SelectClause, Selector, Statement,
    Test, Transaction,
};
use crate::error::InvalidRequest;

/// The rows read, with the columns of each; `None` for all columns of its table.
type Rows<'a> = HashMap<&'a str, Option<HashSet<&'a str>>>;

/// Checks a transaction parsed from `text`.
pub(super) fn check(transaction: &Transaction, text: &str) -> Result<(), InvalidRequest> {
    let at = |statement: usize, problem: &str| {
        Err(InvalidRequest::new(format!("{}: {problem}", transaction.name_of(statement, text))))
    };
    if transaction.mutations().is_empty() && matches!(transaction.returned, Returned::Nothing) {
        return Err(InvalidRequest::new("Transaction contains no reads or writes"));
    }
    if let (Some(condition), []) = (transaction.conditions.first(), transaction.mutations()) {
        let problem = "there is no INSERT, UPDATE or DELETE that depends on it";
        return Err(at_condition(condition, text, problem));
    }
    let mut rows = Rows::new();
    for (index, (name, inner)) in transaction.lets.iter().zip(&transaction.statements).enumerate() {
        if rows.insert(name, selected(inner)).is_some() {
            return at(
                index,
                &format!("The name '{name}' has already been used by a LET assignment."),
            );
        }
    }
    for (index, inner) in transaction.statements.iter().enumerate() {
        let problem = match &inner.statement {
            Statement::Select(select) => select_problem(select),
            Statement::Mutation(mutation) => mutation_problem(mutation, transaction.is_alone),
            _ => None,
        };
        if let Some(problem) = problem {
            return at(index, problem);
        }
    }
    for reference in transaction.references() {
        check_reference(reference, &rows)
            .map_err(|problem| at_reference(reference, text, &problem))?;
    }
    check_whole_rows(transaction, text)
}

fn select_problem(select: &Select) -> Option<&'static str> {
    let aggregates = match &select.clause {
        SelectClause::All => false,
        SelectClause::Items(items) => items.iter().any(|item| has_aggregate(&item.selector)),
    };
    match () {
        () if !select.order_by.is_empty() => {
            Some("No ORDER BY clause allowed within a transaction")
        }
        () if !select.group_by.is_empty() => {
            Some("No GROUP BY clause allowed within a transaction")
        }
        () if aggregates => Some("No aggregation functions allowed within a transaction"),
        () => None,
    }
}

/// True if a selector or a part of it aggregates several rows. User-defined aggregates are unknown
/// here.
fn has_aggregate(selector: &Selector) -> bool {
    let is_one = match selector {
        Selector::CountRows => true,
        Selector::Call { name, .. } => {
            let native = matches!(name.keyspace.as_deref(), None | Some("system"));
            native && ["count", "min", "max", "sum", "avg"].contains(&name.name.as_str())
        }
        _ => false,
    };
    is_one || selector.parts().into_iter().any(has_aggregate)
}

const CONDITIONS: &str = "Updates within transactions may not specify their own conditions";
const TTLS: &str = "Updates within transactions may not specify custom ttls";

/// Checks parts of a single statement that only one table mode accepts.
pub(super) fn check_alone(transaction: &Transaction, text: &str) -> Result<(), InvalidRequest> {
    let problem = match transaction.lone_mutation().map(|inner| &inner.statement) {
        Some(Statement::Truncate(_)) => "it is no transaction, and takes no guards and keys",
        Some(Statement::Mutation(mutation)) if mutation.is_conditional() => CONDITIONS,
        Some(Statement::Mutation(mutation)) if mutation.attributes().time_to_live.is_some() => TTLS,
        _ => return Ok(()),
    };
    Err(InvalidRequest::new(format!("{}: {problem}", transaction.name_of(0, text))))
}

/// `is_alone`: the table's mode decides about the additional parts of such a statement.
fn mutation_problem(mutation: &Mutation, is_alone: bool) -> Option<&'static str> {
    let attributes = mutation.attributes();
    match () {
        () if mutation.is_conditional() && !is_alone => Some(CONDITIONS),
        () if attributes.timestamp.is_some() => {
            Some("Updates within transactions may not specify custom timestamps")
        }
        () if attributes.time_to_live.is_some() && !is_alone => Some(TTLS),
        () if matches!(mutation, Mutation::InsertJson(_)) => Some(
            "INSERT JSON is not taken in a transaction: name the columns, so that its key can be known before it is written",
        ),
        () => None,
    }
}

/// Columns of a row of a `LET`. Computed values have no name for references.
fn selected(inner: &Inner) -> Option<HashSet<&str>> {
    let Statement::Select(Select { clause: SelectClause::Items(items), .. }) = &inner.statement
    else {
        return None;
    };
    let columns = items.iter().filter_map(|item| match &item.selector {
        Selector::Column(name) => Some(name.as_str()),
        _ => None,
    });
    Some(columns.collect())
}

/// Checks that the row exists, and that it has the column if the text lists its columns.
fn check_reference(reference: &Reference, rows: &Rows<'_>) -> Result<(), String> {
    let row = &reference.row;
    let Some(columns) = rows.get(row.as_str()) else {
        return Err(format!("Cannot resolve reference to tuple '{row}'."));
    };
    match (&reference.column, columns) {
        (Some(column), Some(columns)) if !columns.contains(column.as_str()) => {
            Err(format!("Column '{column}' does not exist in tuple '{row}'."))
        }
        _ => Ok(()),
    }
}

/// A whole row can be null or not, but has no value.
fn check_whole_rows(transaction: &Transaction, text: &str) -> Result<(), InvalidRequest> {
    if let Returned::References(references) = &transaction.returned
        && let Some(whole) = references.iter().find(|reference| reference.column.is_none())
    {
        return Err(at_reference(whole, text, "SELECT references must specify a column."));
    }
    for condition in &transaction.conditions {
        if let (None, Test::Compare(..)) = (&condition.reference.column, &condition.test) {
            let row = &condition.reference.row;
            let problem = format!(
                "Row reference ({row}) can only be used with IS NULL/IS NOT NULL conditions"
            );
            return Err(at_condition(condition, text, &problem));
        }
    }
    for marker in transaction.statements.iter().flat_map(|inner| &inner.markers) {
        if let MarkerSource::Reference(reference @ Reference { column: None, row, .. }) =
            &marker.source
        {
            return Err(at_reference(
                reference,
                text,
                &format!("substitution references must reference a column ({row})"),
            ));
        }
    }
    Ok(())
}

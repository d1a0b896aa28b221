//! Refuses statements whose result would differ when they are executed again, or by another node.

use std::sync::Arc;

use shunt_language::ast::{
    Comparison, Conditions, Deletion, LiteralKind, Mutation, NativeType, Operation, QualifiedName,
    Relation, Select, SelectClause, Selector, Term,
};
use shunt_language::terms::{self, Scope};
use shunt_language::transaction::{Inner, is_pure};
use shunt_language::values::TimeDependence;
use shunt_language::{CqlType, InvalidRequest, functions};

use crate::plan::schema::Table;

/// The terms of an assignment.
fn terms_of(operation: &Operation) -> impl Iterator<Item = &Term> {
    let (first, second) = match operation {
        Operation::Set(term)
        | Operation::Add(term)
        | Operation::Subtract(term)
        | Operation::Prepend(term) => (term, None),
        Operation::SetElement(key, term) => (key, Some(term)),
        Operation::SetField(_, term) => (term, None),
    };
    std::iter::once(first).chain(second)
}

/// Refuses a call of a user-defined function, which two nodes, or one node at another time, may
/// evaluate differently.
pub(super) fn check_native(column: &str, term: &Term) -> Result<(), InvalidRequest> {
    if calls_native(term) {
        return Ok(());
    }
    Err(InvalidRequest::new(format!(
        "the value of {column} calls a user-defined function; a transaction may repeat a write, and the function could then return \
         another value: bind the value"
    )))
}

/// Refuses a value that a node computes from a bind value, and a null as an element's key: a node
/// could refuse it each time, after the commit.
pub(super) fn check_computable(column: &str, term: &Term) -> Result<(), InvalidRequest> {
    let computes = matches!(
        term,
        Term::Call { .. } | Term::Arithmetic { .. } | Term::Cast(..) | Term::Negation(_)
    );
    if computes && has_marker(term) {
        return Err(InvalidRequest::new(format!(
            "the value of {column} is computed from a bind marker or a row, which a node may refuse when it is committed: bind what comes of it"
        )));
    }
    term.parts().into_iter().try_for_each(|part| check_computable(column, part))
}

fn has_marker(term: &Term) -> bool {
    matches!(term, Term::Marker(_)) || term.parts().into_iter().any(has_marker)
}

fn check_element(column: &str, key: &Term) -> Result<(), InvalidRequest> {
    check_pure([key])?;
    let mut bare = key;
    while let Term::Hint(_, inner) | Term::Cast(inner, _) = bare {
        bare = inner;
    }
    match bare {
        Term::Null => {
            Err(InvalidRequest::new(format!("Invalid null value for an element of {column}")))
        }
        _ => check_computable(column, key),
    }
}

fn calls_native(term: &Term) -> bool {
    let is_native = match term {
        Term::Call { name, .. } => is_native(name),
        _ => true,
    };
    is_native && term.parts().into_iter().all(calls_native)
}

/// True if the selected values come from built-in functions. Others need rights that are not
/// checked here.
fn selects_native(selector: &Selector) -> bool {
    let is_native = match selector {
        Selector::Term(term) => calls_native(term),
        Selector::Call { name, .. } => is_native(name),
        _ => true,
    };
    is_native && selector.parts().into_iter().all(selects_native)
}

fn is_native(function: &QualifiedName) -> bool {
    matches!(function.keyspace.as_deref(), None | Some("system"))
        && functions::is_native(&function.name)
}

/// True if a statement calls only built-in functions. Calling others needs a right that is not
/// checked here.
pub(super) fn calls_only_native(mutation: &Mutation) -> bool {
    let attributes = mutation.attributes();
    let attributes = attributes.timestamp.iter().chain(&attributes.time_to_live);
    let (relations, conditions) = match mutation {
        Mutation::Insert(_) | Mutation::InsertJson(_) => (&[][..], &Conditions::None),
        Mutation::Update(update) => (&update.relations[..], &update.conditions),
        Mutation::Delete(delete) => (&delete.relations[..], &delete.conditions),
    };
    let written: Vec<&Term> = match mutation {
        Mutation::Insert(insert) => insert.values.iter().collect(),
        Mutation::InsertJson(insert) => vec![&insert.json],
        Mutation::Update(update) => {
            update.assignments.iter().flat_map(|one| terms_of(&one.operation)).collect()
        }
        Mutation::Delete(delete) => {
            let elements = delete.deletions.iter().filter_map(|one| match one {
                Deletion::Element(_, key) => Some(key),
                Deletion::Column(_) | Deletion::Field(..) => None,
            });
            elements.collect()
        }
    };
    let compared = match conditions {
        Conditions::All(all) => &all[..],
        Conditions::None | Conditions::Exists => &[],
    };
    let compared = compared.iter().flat_map(|one| one.element.iter().chain(&one.values));
    let named = relations.iter().flat_map(terms_of_relation);
    attributes.chain(written).chain(compared).chain(named).all(calls_native)
}

fn terms_of_relation(relation: &Relation) -> Vec<&Term> {
    match relation {
        Relation::Column { value, .. }
        | Relation::Token { value, .. }
        | Relation::Tuple { value, .. }
        | Relation::Custom { value, .. } => vec![value],
        Relation::Element { key, value, .. } => vec![key, value],
        Relation::In { values, .. } | Relation::TupleIn { values, .. } => values.iter().collect(),
        Relation::InMarker { .. } | Relation::TupleInMarker { .. } | Relation::IsNotNull(_) => {
            Vec::new()
        }
    }
}

/// Refuses literals that two nodes, or one node at another time, may read in two ways.
pub(super) fn check_literals(column: &str, scope: &Scope<'_>) -> Result<(), InvalidRequest> {
    match scope.time_dependence {
        TimeDependence::Nothing => {}
        TimeDependence::Zone => {
            return Err(InvalidRequest::new(format!(
                "a timestamp in the value of {column} has no time zone, and each node would use its own: write one, as in \
                 '2024-01-31 12:00:00+0000', or bind the timestamp itself"
            )));
        }
        TimeDependence::Now => return Err(frozen_now(column)),
    }
    match scope.is_ambiguous {
        true => Err(InvalidRequest::new(format!(
            "the value of {column} names an element of a set, or a key of a map, twice, and a node keeps either of the two: name each once"
        ))),
        false => Ok(()),
    }
}

/// A term, with the column and the type of its value.
type TypedTerm<'t> = (&'t str, &'t Term, CqlType);

/// The terms that a mutation writes. Nodes report columns and elements that do not exist.
fn terms_of_mutation<'t>(mutation: &'t Mutation, table: &Table) -> Vec<TypedTerm<'t>> {
    let of = |column: &'t String| Some((column.as_str(), table.column(column)?));
    match mutation {
        Mutation::Insert(insert) => {
            let values = insert.columns.iter().zip(&insert.values);
            let typed = values.filter_map(|(column, term)| {
                let (column, cql_type) = of(column)?;
                Some((column, term, cql_type.clone()))
            });
            typed.collect()
        }
        Mutation::Update(update) => {
            let assigned = update.assignments.iter().filter_map(|one| {
                let (column, cql_type) = of(&one.column)?;
                let terms = terms_of_assignment(&one.operation, cql_type).into_iter();
                Some(terms.map(move |(term, cql_type)| (column, term, cql_type)))
            });
            assigned.flatten().collect()
        }
        Mutation::Delete(delete) => {
            let elements = delete.deletions.iter().filter_map(|deletion| match deletion {
                Deletion::Element(column, key) => {
                    let (column, cql_type) = of(column)?;
                    Some((column, key, element_types(cql_type)?.0))
                }
                Deletion::Column(_) | Deletion::Field(..) => None,
            });
            elements.collect()
        }
        Mutation::InsertJson(_) => Vec::new(),
    }
}

/// The terms of an assignment to a column of this type, and the types of their values.
fn terms_of_assignment<'t>(operation: &'t Operation, column: &CqlType) -> Vec<(&'t Term, CqlType)> {
    match operation {
        Operation::Subtract(keys) if let CqlType::Map { key, .. } = column => {
            vec![(keys, CqlType::Set { element: Arc::clone(key), frozen: false })]
        }
        Operation::Set(term)
        | Operation::Add(term)
        | Operation::Subtract(term)
        | Operation::Prepend(term) => vec![(term, column.clone())],
        Operation::SetElement(key, term) => match element_types(column) {
            Some((key_type, value_type)) => vec![(key, key_type), (term, value_type)],
            None => Vec::new(),
        },
        Operation::SetField(name, term) => match column {
            CqlType::Udt { definition, .. } => {
                let field = definition.field(name);
                field.map(|field| (term, definition.fields[field].1.clone())).into_iter().collect()
            }
            _ => Vec::new(),
        },
    }
}

/// Types of the key and the value of a collection's elements.
fn element_types(column: &CqlType) -> Option<(CqlType, CqlType)> {
    match column {
        CqlType::List { element, .. } => {
            Some((CqlType::from(NativeType::Int), CqlType::clone(element)))
        }
        CqlType::Set { element, .. } => Some((CqlType::clone(element), CqlType::clone(element))),
        CqlType::Map { key, value, .. } => Some((CqlType::clone(key), CqlType::clone(value))),
        _ => None,
    }
}

/// The terms that a relation compares with.
fn terms_of_comparison<'t>(relation: &'t Relation, table: &Table) -> Vec<TypedTerm<'t>> {
    let of = |column: &'t String, term: &'t Term| {
        table.column(column).map(|cql_type| (column.as_str(), term, cql_type.clone()))
    };
    let tuple = |columns: &'t [String], value: &'t Term| {
        let parts = if let Term::Tuple(parts) = value { &parts[..] } else { &[] };
        columns.iter().zip(parts).filter_map(move |(column, part)| of(column, part))
    };
    match relation {
        Relation::Column { column, comparison, value } => {
            let Some((name, value, cql_type)) = of(column, value) else { return Vec::new() };
            let elements = element_types(&cql_type);
            let compared = match (comparison, elements) {
                (Comparison::Contains, Some((_, element))) => element,
                (Comparison::ContainsKey, Some((key, _))) => key,
                _ => cql_type,
            };
            vec![(name, value, compared)]
        }
        Relation::In { column, values } => {
            values.iter().filter_map(|value| of(column, value)).collect()
        }
        Relation::Element { column, key, value, .. } => {
            let Some((key_type, value_type)) = table.column(column).and_then(element_types) else {
                return Vec::new();
            };
            let column = column.as_str();
            vec![(column, key, key_type), (column, value, value_type)]
        }
        Relation::Tuple { columns, value, .. } => tuple(columns, value).collect(),
        Relation::TupleIn { columns, values } => {
            values.iter().flat_map(|value| tuple(columns, value)).collect()
        }
        Relation::InMarker { .. }
        | Relation::IsNotNull(_)
        | Relation::Token { .. }
        | Relation::TupleInMarker { .. }
        | Relation::Custom { .. } => Vec::new(),
    }
}

/// Refuses a SELECT with user-defined functions, or with `'now'`, for which a node takes the time
/// at which it prepared the SELECT. The time zone is the reading node's, as for any SELECT.
pub(super) fn check_select(
    select: &Select,
    inner: &Inner,
    table: &Table,
) -> Result<(), InvalidRequest> {
    let items = if let SelectClause::Items(items) = &select.clause { &items[..] } else { &[] };
    let mut compared_terms = select.relations.iter().flat_map(terms_of_relation);
    if !items.iter().all(|item| selects_native(&item.selector)) || !compared_terms.all(calls_native)
    {
        return Err(InvalidRequest::new("transactions do not support user-defined functions"));
    }
    for (column, term, cql_type) in
        select.relations.iter().flat_map(|relation| terms_of_comparison(relation, table))
    {
        let scope = scope_of(column, term, &cql_type, (inner, table));
        if scope.time_dependence == TimeDependence::Now {
            return Err(frozen_now(column));
        }
    }
    match items.iter().any(|item| computes_from_now(&item.selector, table)) {
        true => Err(frozen_now("a selected function")),
        false => Ok(()),
    }
}

fn frozen_now(what: &str) -> InvalidRequest {
    InvalidRequest::new(format!(
        "'now' in the value of {what} stands for the time at which a node prepared the statement, and nodes differ: bind the value"
    ))
}

/// True if a selector hands `'now'` to a function, or to the keys of a collection of times.
fn computes_from_now(selector: &Selector, table: &Table) -> bool {
    let is_now = |selector: &Selector| matches!(selector, Selector::Term(term) if is_now(term));
    match selector {
        Selector::Call { arguments, .. } if arguments.iter().any(is_now) => true,
        Selector::Hint(_, of) if is_now(of) => true,
        Selector::Element(of, key) if self::is_now(key) && has_time_keys(of, table) => true,
        Selector::Slice(of, from, to)
            if from.iter().chain(to).any(self::is_now) && has_time_keys(of, table) =>
        {
            true
        }
        _ => selector.parts().into_iter().any(|part| computes_from_now(part, table)),
    }
}

fn is_now(term: &Term) -> bool {
    match term {
        Term::Literal(literal) => {
            literal.kind == LiteralKind::String && literal.text.eq_ignore_ascii_case("now")
        }
        _ => term.parts().into_iter().any(is_now),
    }
}

fn has_time_keys(collection: &Selector, table: &Table) -> bool {
    let Selector::Column(column) = collection else { return false };
    let keys = table.column(column).and_then(element_types);
    keys.is_some_and(|(key, _)| key.references(NativeType::Timestamp))
}

/// Prepares a term to learn of its literals. Nodes report what else is wrong with it.
fn scope_of<'t>(
    column: &str,
    term: &Term,
    cql_type: &CqlType,
    (inner, table): (&Inner, &'t Table),
) -> Scope<'t> {
    let mut scope = Scope::new(&table.types, None, 0, inner.markers.len());
    drop(terms::prepare(term, column, cql_type, &mut scope));
    scope
}

pub(super) fn unrepeatable() -> InvalidRequest {
    InvalidRequest::new(
        "now(), uuid() and the like are taken as values of INSERT and SET in transactions, and nowhere else: bind the value",
    )
}

/// Refuses a term with a new value each time, where it is not computed once.
pub(super) fn check_pure<'t>(
    terms: impl IntoIterator<Item = &'t Term>,
) -> Result<(), InvalidRequest> {
    if terms.into_iter().all(is_pure) { Ok(()) } else { Err(unrepeatable()) }
}

/// Refuses a statement whose result would differ if it were repeated.
pub(super) fn check_repeatable(
    mutation: &Mutation,
    inner: &Inner,
    table: &Table,
) -> Result<(), InvalidRequest> {
    let terms: Vec<(&str, &Term)> = match mutation {
        Mutation::Insert(insert) => {
            insert.columns.iter().map(String::as_str).zip(&insert.values).collect()
        }
        Mutation::Update(update) => update
            .assignments
            .iter()
            .flat_map(|one| terms_of(&one.operation).map(|term| (one.column.as_str(), term)))
            .collect(),
        Mutation::Delete(_) | Mutation::InsertJson(_) => Vec::new(),
    };
    for (column, term) in terms {
        check_native(column, term)?;
        check_computable(column, term)?;
    }
    for (column, term, cql_type) in terms_of_mutation(mutation, table) {
        check_literals(column, &scope_of(column, term, &cql_type, (inner, table)))?;
    }
    match mutation {
        Mutation::Update(update) => {
            for assignment in &update.assignments {
                if let Operation::SetElement(key, _) = &assignment.operation {
                    check_element(&assignment.column, key)?;
                }
            }
        }
        Mutation::Delete(delete) => {
            for deletion in &delete.deletions {
                if let Deletion::Element(column, key) = deletion {
                    check_native(column, key)?;
                    check_element(column, key)?;
                }
            }
        }
        Mutation::Insert(_) | Mutation::InsertJson(_) => {}
    }
    let columns: Vec<&str> = match mutation {
        Mutation::Insert(insert) => insert.columns.iter().map(String::as_str).collect(),
        Mutation::Update(update) => {
            update.assignments.iter().map(|assignment| assignment.column.as_str()).collect()
        }
        Mutation::Delete(delete) => {
            let elements = delete.deletions.iter().filter_map(|deletion| match deletion {
                Deletion::Element(column, _) => Some(column.as_str()),
                _ => None,
            });
            elements.collect()
        }
        Mutation::InsertJson(_) => Vec::new(),
    };
    let is_list =
        |name: &&&str| matches!(table.column(name), Some(CqlType::List { frozen: false, .. }));
    if let Some(column) = columns.iter().find(is_list) {
        return Err(InvalidRequest::new(format!(
            "column {column} is a list that is not frozen: nodes name its elements anew each time they are written, and the writes \
             of a transaction may be made again; use frozen<list<..>>, a set or a map"
        )));
    }
    if let Mutation::Update(update) = mutation
        && update
            .assignments
            .iter()
            .any(|assignment| matches!(assignment.operation, Operation::Prepend(_)))
    {
        return Err(unrepeatable());
    }
    Ok(())
}

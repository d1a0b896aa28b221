//! The classifier: the input is query text.

use shunt_wire::cql::statement::{
    Bind, Cells, ColumnKind, Identifier, Kind, Repeatable, Setting, Statement, Term, classify,
    repeatable, routing_key,
};
use shunt_wire::cql::types::{Column, literal};

/// A schema in which every table is this one, with values for the markers at even places.
#[derive(Debug)]
struct Known(Cells);

impl Known {
    fn new() -> Known {
        use ColumnKind::{Keyed, List, Single};
        Known(Cells::new(
            [("a", Single), ("b", Single), ("k", Single), ("v", Single), ("l", List), ("m", Keyed)],
            false,
        ))
    }
}

impl Setting for Known {
    fn table(&self, _keyspace: Option<&Identifier<'_>>, _table: &Identifier<'_>) -> Option<&Cells> {
        Some(&self.0)
    }

    fn has_value(&self, marker: &Bind<'_>) -> bool {
        marker.index.is_multiple_of(2)
    }
}

/// Tries one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let statement = classify(text);
    let verdict = repeatable(text, &Known::new());
    check(text, &statement, verdict);
    // Meaningless parts of CQL change nothing.
    let padded = format!(" /* c */ -- c\n{text}");
    let again = classify(&padded);
    assert_eq!(summary(&again), summary(&statement));
    assert_eq!(repeatable(&padded, &Known::new()), verdict);
    route(&statement);
}

fn check(text: &str, statement: &Statement<'_>, verdict: Repeatable) {
    let terms = statement.key_terms().inspect(|found| {
        let (Term::Marker(index) | Term::NamedMarker { index, .. }) = found.term else { return };
        assert!(index < statement.markers);
    });
    assert!(terms.count() <= text.len());
    assert!(statement.selected_columns().count() <= text.len() + 1);
    if statement.conditional && statement.kind != Kind::Select {
        assert_eq!(verdict, Repeatable::Never);
    }
    if matches!(
        statement.kind,
        Kind::Other | Kind::Transaction | Kind::Use | Kind::Ddl | Kind::Truncate
    ) {
        assert!(verdict == Repeatable::Never && statement.key_terms().next().is_none());
    }
    assert_eq!(
        statement.selected_table().is_some(),
        statement.kind == Kind::Select && statement.table.is_some()
    );
}

/// All properties of a statement, for comparison.
fn summary(statement: &Statement<'_>) -> String {
    let Statement { kind, keyspace, table, conditional, markers, plain_where, has_tail, .. } =
        statement;
    let terms: Vec<_> = statement.key_terms().collect();
    let columns: Vec<_> = statement.selected_columns().collect();
    format!(
        "{kind:?} {keyspace:?} {table:?} {conditional} {markers} {plain_where} {has_tail} {terms:?} \
         {columns:?}"
    )
}

/// Builds keys from any columns that the statement names, as if they were of each type in turn.
fn route(statement: &Statement<'_>) {
    let mut names: Vec<String> =
        statement.key_terms().take(3).map(|term| term.column.to_string()).collect();
    names.push("k".to_owned());
    for type_name in super::types::NATIVE {
        let columns: Vec<Column> =
            names.iter().map(|name| Column::new(name.clone(), type_name)).collect();
        for columns in [&columns[..1], &columns[..columns.len() - 1]] {
            let mut key = b"before".to_vec();
            let complete = routing_key(statement, columns, |_| Some(b"value"), &mut key);
            assert_eq!(complete, !key.is_empty() || (complete && columns.len() == 1));
        }
    }
    for found in statement.key_terms() {
        let Term::Literal(text) = found.term else { continue };
        let mut out = Vec::new();
        literal(&Column::new("k", "text").cql_type, text, &mut out);
        assert!(out.len() <= text.len());
    }
}

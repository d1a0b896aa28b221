//! Transactions: the input is a text. Reading it whole and statement by statement agrees.

use shunt_language::functions::Environment;
use shunt_language::terms::{Bindings, Scope, Value};
use shunt_language::transaction::{
    self, Inner, MarkerPlace, MarkerSource, Reference, Returned, STATEMENTS_MAX, Test, Transaction,
    guard, mode,
};
use shunt_language::work::Work;
use shunt_language::{CqlType, Refusal, parse};
use shunt_wire::cql::statement::{Kind, classify};

use crate::values::TYPES;

/// Most memory per byte of text while it is parsed: that of statements, and the markers' places.
const BYTES_EACH_MAX: usize = 800;

/// Tries one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(Some(change)) = mode::parse(text) {
        assert!(classify(text).kind == Kind::Ddl && !change.table.name.is_empty());
    }
    without_guard(text);
    let found = match crate::bounded(BYTES_EACH_MAX, text.len(), || transaction::parse(text)) {
        Ok(found) => found,
        Err(Refusal::Syntax(error)) => return assert!(!error.message.is_empty()),
        Err(Refusal::Invalid(error)) => return assert!(!error.message.is_empty()),
    };
    assert_eq!(
        classify(text).kind,
        Kind::Transaction,
        "a proxy would take it for something else: {text}"
    );
    assert!(parse(text).is_err(), "it is a statement, too: {text}");
    assert_eq!(transaction::parse(&format!("{text}\n;")).as_ref(), Ok(&found));
    assert!((1..=STATEMENTS_MAX).contains(&found.statements.len()));
    for inner in &found.statements {
        alone(inner, text);
    }
    places(&found);
    for reference in found.references() {
        let shown = &text[reference.range.clone()];
        assert!(
            found.row(reference).is_some() && shown.to_ascii_lowercase().contains(&reference.row),
            "{shown}"
        );
    }
    conditions(&found);
}

/// A text without its guards is a valid unguarded text, with the other markers.
fn without_guard(text: &str) {
    let Ok(Some((rest, guards))) =
        crate::bounded(BYTES_EACH_MAX, text.len(), || guard::guarded(text))
    else {
        return;
    };
    assert!(!guards.all.is_empty() && rest.len() < text.len());
    assert_eq!(guard::guarded(&rest), Ok(None), "{rest}");
    // It may refer to rows, which do not exist here.
    let Ok(parsed) = parse(text) else { return };
    let left = parse(&rest).unwrap_or_else(|error| panic!("{rest}: {error}"));
    let gone: Vec<usize> = guards.gone().map(|(index, ..)| usize::from(index)).collect();
    let mut names = parsed.markers;
    assert_eq!(names.len(), guards.markers);
    gone.iter().rev().for_each(|index| drop(names.remove(*index)));
    assert_eq!(names, left.markers, "{rest}");
}

fn returned_references(found: &Transaction) -> &[Reference] {
    match &found.returned {
        Returned::References(references) => references,
        _ => &[],
    }
}

/// A statement is the same separately and in the transaction.
fn alone(inner: &Inner, text: &str) {
    let standalone = inner.standalone(text);
    let parsed = parse(&standalone).unwrap_or_else(|error| panic!("{standalone}: {error}"));
    assert_eq!(parsed.statement, inner.statement, "{standalone}");
    assert_eq!(parsed.markers.len(), inner.markers.len(), "{standalone}");
    let Ok(computed) = inner.computed(text, |_| true) else { return };
    let parsed = parse(&computed.text).unwrap_or_else(|error| panic!("{}: {error}", computed.text));
    assert_eq!(parsed.markers.len(), computed.markers.len(), "{}", computed.text);
}

/// Each of the client's markers has the place reported by its statement.
fn places(found: &Transaction) {
    for (index, marker) in found.markers.iter().enumerate() {
        match marker.place {
            MarkerPlace::Statement { statement, marker } => {
                let source = &found.statements[statement].markers[marker].source;
                assert_eq!(
                    *source,
                    MarkerSource::Client(u16::try_from(index).expect("few markers"))
                );
            }
            MarkerPlace::Element { statement, marker } => {
                let source = &found.statements[statement].markers[marker].source;
                assert!(matches!(source, MarkerSource::Reference(_)));
            }
            MarkerPlace::Condition(condition) => assert!(condition < found.conditions.len()),
            MarkerPlace::Returned(reference) => {
                assert!(reference < returned_references(found).len())
            }
        }
    }
    let sources = found.statements.iter().flat_map(|inner| &inner.markers);
    let of_client =
        sources.filter(|marker| matches!(marker.source, MarkerSource::Client(_))).count();
    assert!(of_client <= found.markers.len());
}

/// Conditions of any type, for a row with the value of its marker: of two opposites at most one
/// holds.
fn conditions(found: &Transaction) {
    for condition in found.conditions.iter().take(4) {
        for name in TYPES {
            let cql_type = CqlType::parse(name, &()).expect("a type");
            let column = condition.reference.column.as_ref().map(|_| &cql_type);
            let mut scope = Scope::new(&(), None, 0, found.markers.len());
            let Ok(prepared) = condition.prepare(column, &mut scope) else { continue };
            for value in [None, Some(&b""[..]), Some(&[0; 4]), Some(&[0, 0, 0, 1, 0, 0, 0, 1, 7])] {
                let work = Work::default();
                let Ok(holds) = prepared.holds(true, value, &Same, &work) else { continue };
                let absent = prepared.holds(false, value, &Same, &work);
                if let Test::Compare(..) = condition.test {
                    assert!(absent != Ok(true) && (!holds || value.is_some()));
                }
                if let (Test::IsNull, None) = (&condition.test, &condition.reference.column) {
                    assert_eq!((holds, absent), (false, Ok(true)));
                }
            }
        }
    }
}

/// Bindings with the same value for each marker.
struct Same;

impl Environment for Same {
    fn now_ms(&self) -> i64 {
        0
    }

    fn timeuuid(&self) -> [u8; 16] {
        [0x11; 16]
    }

    fn random(&self) -> u128 {
        0
    }

    fn token(&self, _: &[u8]) -> i64 {
        0
    }
}

impl Bindings for Same {
    fn value(&self, _: u16) -> Value {
        Value::Bytes(vec![0; 4])
    }
}

//! Transactions and their parsed form.

mod accepted;
mod standalone;
mod conditions;
mod guards;
mod keys;
mod limits;
mod modes;
mod never_panics;
mod plan;
mod rejected;

use super::{Inner, Transaction, parse};

fn transaction(text: &str) -> Transaction {
    parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Checks that each statement is the same separately and in the transaction.
fn check_standalone(transaction: &Transaction, text: &str) {
    for inner in &transaction.statements {
        let alone = inner.standalone(text);
        let parsed = crate::parse(&alone).unwrap_or_else(|error| panic!("{alone}: {error}"));
        assert_eq!(parsed.statement, inner.statement, "{alone}");
        assert_eq!(parsed.markers.len(), inner.markers.len(), "{alone}");
        check_computed(inner, text);
    }
}

/// Checks that a statement with everything computed has the reported number of markers.
fn check_computed(inner: &Inner, text: &str) {
    let Ok(computed) = inner.computed(text, |_| true) else { return };
    let parsed =
        crate::parse(&computed.text).unwrap_or_else(|error| panic!("{}: {error}", computed.text));
    assert_eq!(parsed.markers.len(), computed.markers.len(), "{}", computed.text);
    let none = inner.computed(text, |_| false).expect("nothing is computed");
    assert!(inner.calls.iter().any(|call| !call.is_pure()) || none.text == inner.standalone(text));
}

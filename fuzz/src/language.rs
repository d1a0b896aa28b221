//! The language of the embedded node: the input is text, tried as a statement, as a type, as a term
//! and as JSON.

use shunt_language::ast::{Mutation, Statement, Term};
use shunt_language::values::json;
use shunt_language::{CqlType, Parsed, parse, parse_type};

/// Most memory per byte of text while it is parsed: a token, and its nodes in the tree.
const BYTES_EACH_MAX: usize = 600;

/// Tries one input.
pub fn run(data: &[u8]) {
    // Turns non-text into text: the target is the language, not the decoder in front of it.
    let ascii: Vec<u8> = data.iter().map(|byte| byte & 0x7F).collect();
    let text = std::str::from_utf8(data).or_else(|_| std::str::from_utf8(&ascii)).expect("ASCII");
    let parsed = crate::bounded(BYTES_EACH_MAX, text.len(), || parse(text));
    match &parsed {
        Ok(parsed) => assert!(parsed.markers.len() <= text.len()),
        Err(error) => {
            assert!(!error.message.is_empty() && error.message.len() <= text.len() * 4 + 1000)
        }
    }
    // Meaningless parts of CQL change nothing.
    let padded = parse(&format!(" /* c */ -- c\n{text}\n;"));
    if let Ok(parsed) = parsed {
        assert_eq!(padded.as_ref(), Ok(&parsed));
    }
    types(text);
    if let Some(term) = term(text) {
        let shown = term.to_string();
        // As in Cassandra, a minus printed in front of another begins a comment.
        if !shown.contains("--") {
            let again = self::term(&shown).unwrap_or_else(|| panic!("{term:?} printed as {shown}"));
            assert_eq!(again.to_string(), shown);
            // In front of a number it becomes part of it.
            assert!(
                again == term || format!("{term:?}").contains("Negation("),
                "{term:?} printed as {shown}"
            );
        }
    }
    let _ = crate::bounded(BYTES_EACH_MAX, text.len(), || json::parse(text));
    let _ = json::from_json_row(text);
}

/// A type prints as text of the same type, resolved or not.
fn types(text: &str) {
    let Ok(name) = crate::bounded(BYTES_EACH_MAX, text.len(), || parse_type(text)) else { return };
    let shown = name.to_string();
    assert_eq!(parse_type(&shown).as_ref(), Ok(&name), "printed as {shown}");
    let Ok(resolved) = CqlType::resolve(&name, &()) else { return };
    let shown = resolved.to_string();
    assert_eq!(CqlType::parse(&shown, &()).as_ref(), Ok(&resolved), "printed as {shown}");
    let frozen = resolved.freeze();
    assert!(resolved.accepts(&resolved) && frozen == frozen.freeze() && !frozen.is_multi_cell());
    if let CqlType::Native(_) = resolved {
        assert_eq!(CqlType::from_class_name(&resolved.class_name()), resolved);
    }
}

/// The only value of an INSERT.
fn term(text: &str) -> Option<Term> {
    let Parsed { statement, .. } = parse(&format!("INSERT INTO t (a) VALUES ({text})")).ok()?;
    match statement {
        Statement::Mutation(Mutation::Insert(insert)) => match <[Term; 1]>::try_from(insert.values)
        {
            Ok([term]) => Some(term),
            Err(_) => None,
        },
        _ => None,
    }
}

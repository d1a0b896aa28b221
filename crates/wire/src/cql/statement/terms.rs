//! Iterators over the parts of a classified statement. They read its text again instead of storing
//! a list.

use super::Identifier;
use super::lexer::{Lexer, TokenKind};
use super::parser::Parser;

/// A term compared with or assigned to a column.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Term<'a> {
    /// A literal of one token as written, with its quotes; also `true`, `false`, `null`, `NaN` and
    /// `Infinity`. [`crate::cql::types::literal`] reads it.
    Literal(&'a str),
    /// `?`, with its position among the statement's markers, from 0.
    Marker(u16),
    /// `:name`
    NamedMarker {
        /// The name.
        name: Identifier<'a>,
        /// Position among the statement's markers, from 0; every appearance of a name counts.
        index: u16,
    },
}

/// A column fixed to one value.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct KeyTerm<'a> {
    /// The column.
    pub column: Identifier<'a>,
    /// Value of the column.
    pub term: Term<'a>,
}

/// The place of key terms. Only created for text that the parser has read once.
#[derive(Copy, Clone, Debug)]
pub(super) enum TermSource<'a> {
    None,
    /// Text between `WHERE` and the next clause.
    Where {
        text: &'a str,
        marker: u16,
    },
    /// The texts between the two pairs of parentheses.
    Insert {
        columns: &'a str,
        values: &'a str,
        marker: u16,
    },
}

impl<'a> TermSource<'a> {
    pub(super) fn iter(self) -> KeyTerms<'a> {
        KeyTerms(match self {
            TermSource::None => Walk::Done,
            TermSource::Where { text, marker } => Walk::Where(Parser::new(text, marker)),
            TermSource::Insert { columns, values, marker } => {
                Walk::Insert(Lexer::new(columns), Parser::new(values, marker))
            }
        })
    }
}

/// Iterator of [`super::Statement::key_terms`].
#[derive(Clone, Debug)]
pub struct KeyTerms<'a>(Walk<'a>);

#[derive(Clone, Debug)]
enum Walk<'a> {
    Done,
    Where(Parser<'a>),
    Insert(Lexer<'a>, Parser<'a>),
}

impl<'a> Iterator for KeyTerms<'a> {
    type Item = KeyTerm<'a>;

    fn next(&mut self) -> Option<KeyTerm<'a>> {
        loop {
            // Each step yields a term, or nothing for a complex one; iteration ends where the
            // parser stops.
            let (term, more) = match &mut self.0 {
                Walk::Done => return None,
                Walk::Where(parser) => (parser.relation(), parser.eat_word("AND")),
                Walk::Insert(columns, values) => {
                    let column = columns.next().identifier();
                    columns.next();
                    let term = values.term().map(|shape| shape.term);
                    (
                        column
                            .zip(term)
                            .map(|(column, term)| Some(KeyTerm { column, term: term? })),
                        values.eat(b','),
                    )
                }
            };
            if !more || term.is_none() {
                self.0 = Walk::Done;
            }
            if let Some(term) = term? {
                return Some(term);
            }
        }
    }
}

/// One item of a `SELECT` list.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Selected<'a> {
    /// `*`
    All,
    /// A column, with the name after `AS` if there is one.
    Column {
        /// The column.
        name: Identifier<'a>,
        /// Name of the column in the result.
        alias: Option<Identifier<'a>>,
    },
    /// Any other item: a function, a cast, `DISTINCT x`, `JSON x`.
    Other,
}

/// Iterator of [`super::Statement::selected_columns`].
#[derive(Clone, Debug)]
pub struct SelectedColumns<'a>(Option<Lexer<'a>>);

impl<'a> SelectedColumns<'a> {
    pub(super) fn new(selection: &'a str) -> SelectedColumns<'a> {
        SelectedColumns((!selection.is_empty()).then(|| Lexer::new(selection)))
    }
}

impl<'a> Iterator for SelectedColumns<'a> {
    type Item = Selected<'a>;

    fn next(&mut self) -> Option<Selected<'a>> {
        let lexer = self.0.as_mut()?;
        let first = lexer.next();
        let mut item = match first.identifier() {
            Some(name) => Selected::Column { name, alias: None },
            None if first.is(b'*') => Selected::All,
            None => Selected::Other,
        };
        if let Selected::Column { alias, .. } = &mut item
            && lexer.peek().is_word("AS")
        {
            lexer.next();
            *alias = lexer.next().identifier();
            if alias.is_none() {
                item = Selected::Other;
            }
        }
        // An item that continues is an expression: skip the rest of it.
        let mut depth = i32::from([b'(', b'[', b'{'].into_iter().any(|bracket| first.is(bracket)));
        loop {
            let token = lexer.next();
            match token.kind {
                TokenKind::End | TokenKind::Bad => {
                    self.0 = None;
                    return Some(item);
                }
                TokenKind::Punctuation(b',') if depth == 0 => return Some(item),
                TokenKind::Punctuation(b'(' | b'[' | b'{') => depth += 1,
                TokenKind::Punctuation(b')' | b']' | b'}') => depth -= 1,
                _ => {}
            }
            item = Selected::Other;
        }
    }
}

/// Iterator of [`super::Statement::selected_texts`].
#[derive(Clone, Debug)]
pub struct SelectedTexts<'a> {
    selection: &'a str,
    lexer: Lexer<'a>,
    /// Offset of the next item; `None` at the end.
    start: Option<usize>,
}

impl<'a> SelectedTexts<'a> {
    pub(super) fn new(selection: &'a str) -> SelectedTexts<'a> {
        SelectedTexts {
            selection,
            lexer: Lexer::new(selection),
            start: (!selection.is_empty()).then_some(0),
        }
    }
}

impl<'a> Iterator for SelectedTexts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let start = self.start.take()?;
        let mut depth = 0;
        let end = loop {
            let token = self.lexer.next();
            match token.kind {
                TokenKind::End | TokenKind::Bad => break self.selection.len(),
                TokenKind::Punctuation(b',') if depth == 0 => {
                    self.start = Some(token.start + 1);
                    break token.start;
                }
                TokenKind::Punctuation(b'(' | b'[' | b'{') => depth += 1,
                TokenKind::Punctuation(b')' | b']' | b'}') => depth -= 1,
                _ => {}
            }
        };
        Some(self.selection.get(start..end).unwrap_or_default().trim())
    }
}

//! The key terms of a classified statement, read again from its text instead of kept in a list.

use super::lexer::Lexer;
use super::parser::Parser;
use super::terms::{KeyTerm, TermSource};

/// Iterator of [`super::Statement::key_terms`].
#[derive(Clone, Debug)]
pub struct KeyTerms<'a>(Walk<'a>);

impl<'a> KeyTerms<'a> {
    pub(super) fn new(source: TermSource<'a>) -> KeyTerms<'a> {
        KeyTerms(match source {
            TermSource::None => Walk::Done,
            TermSource::Where { text, marker } => Walk::Where(Parser::new(text, marker)),
            TermSource::Insert { columns, values, marker } => {
                Walk::Insert(Lexer::new(columns), Parser::new(values, marker))
            }
        })
    }
}

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

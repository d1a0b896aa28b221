//! The items of a `SELECT` list, read from its text one after the other.

use super::identifier::Identifier;
use super::lexer::{Lexer, TokenKind};

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

//! Parses tokens to statements: recursive descent after Cassandra's `Parser.g`, one function per
//! rule, one file per family.
//!
//! Where the grammar needs to look far ahead (as for a type hint against a tuple), the parser tries
//! one alternative, backs up and tries the other. It tries only a type or a word, never a whole
//! expression.

mod access;
mod alter;
mod create;
mod describe;
mod mutation;
mod names;
mod options;
mod relation;
mod routine;
mod select;
mod selector;
mod table;
mod term;
#[cfg(test)]
mod tests;
mod transaction;
mod type_name;

use crate::ast::{Parsed, QualifiedName, SchemaStatement, Statement, TypeName};
use crate::error::SyntaxError;
use crate::lexer::{self, Kind, Token};

pub(crate) use transaction::{alone, shown_place, transaction};

/// Deepest nesting of terms, selectors and types, and most operators in one expression.
const DEPTH_MAX: u32 = 48;
/// Most elements of a list, and most bind markers: the limit of 16 bits in the protocol.
const ELEMENTS_MAX: usize = 65_535;
/// Most properties of one `WITH`. Each is compared with those before it.
const PROPERTIES_MAX: usize = 256;
/// Longest text, beyond the limit of a native protocol frame.
const TEXT_BYTES_MAX: usize = 256 << 20;
/// Number of tokens, including blanks, that Cassandra shows before the offending one.
const SNIPPET_TOKENS: usize = 10;

/// Parses one statement, with or without trailing semicolons.
///
/// # Errors
/// If the text is not a CQL statement; the message has the form of Cassandra's.
pub fn parse(text: &str) -> Result<Parsed, SyntaxError> {
    let mut parser = Parser::new(text)?;
    let statement = parser.statement()?;
    while parser.eat(";") {}
    parser.end()?;
    Ok(Parsed { statement, markers: parser.markers })
}

/// Parses a type as written in a statement or a schema table.
///
/// # Errors
/// If the text is not a type.
pub fn parse_type(text: &str) -> Result<TypeName, SyntaxError> {
    let mut parser = Parser::new(text)?;
    let type_name = parser.type_name()?;
    parser.end()?;
    Ok(type_name)
}

/// Index of the next of these markers.
fn marker_index(markers: &[Option<String>]) -> Result<u16, SyntaxError> {
    let index =
        u16::try_from(markers.len()).ok().filter(|index| usize::from(*index) < ELEMENTS_MAX);
    index.ok_or_else(|| SyntaxError::unplaced("Too many markers(?). markers must be <= 65535"))
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    depth: u32,
    /// Within [`Parser::attempt`], whose errors are discarded.
    attempting: bool,
    markers: Vec<Option<String>>,
    /// The transaction's statement that owns `markers`.
    open: Option<Box<transaction::OpenStatement>>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Parser<'a>, SyntaxError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(SyntaxError::unplaced(format!(
                "a statement has at most {TEXT_BYTES_MAX} bytes"
            )));
        }
        let tokens = lexer::tokens(text)?;
        Ok(Parser {
            text,
            tokens,
            at: 0,
            depth: 0,
            attempting: false,
            markers: Vec::new(),
            open: None,
        })
    }

    fn statement(&mut self) -> Result<Statement, SyntaxError> {
        let schema = |parsed: Result<SchemaStatement, SyntaxError>| parsed.map(Statement::Schema);
        match self.lower().as_str() {
            "select" => self.select().map(Statement::Select),
            "insert" | "update" | "delete" => self.mutation().map(Statement::Mutation),
            "begin" => self.batch().map(Statement::Batch),
            "truncate" => self.truncate().map(Statement::Truncate),
            "use" => {
                self.advance();
                self.name("keyspace").map(Statement::Use)
            }
            "create" | "drop" | "alter" if self.is_access() => self.access().map(Statement::Access),
            "create" => schema(self.create()),
            "alter" => schema(self.alter()),
            "drop" => schema(self.drop_statement()),
            "grant" | "revoke" | "list" | "add" => self.access().map(Statement::Access),
            "describe" | "desc" => self.describe().map(Statement::Describe),
            _ => Err(self.no_alternative()),
        }
    }

    fn end(&mut self) -> Result<(), SyntaxError> {
        if self.peek().kind == Kind::End { Ok(()) } else { Err(self.mismatch("EOF")) }
    }

    fn peek(&self) -> Token {
        self.ahead(0)
    }

    fn ahead(&self, count: usize) -> Token {
        let last = self.tokens.len().saturating_sub(1);
        self.tokens.get((self.at + count).min(last)).copied().unwrap_or(Token {
            kind: Kind::End,
            start: 0,
            end: 0,
        })
    }

    fn advance(&mut self) -> Token {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn text_of(&self, token: Token) -> &'a str {
        self.text.get(token.start..token.end).unwrap_or_default()
    }

    /// The next token in lower case if it is a word, else an empty string.
    fn lower(&self) -> String {
        self.lower_ahead(0)
    }

    fn lower_ahead(&self, count: usize) -> String {
        let token = self.ahead(count);
        if token.kind == Kind::Word {
            self.text_of(token).to_ascii_lowercase()
        } else {
            String::new()
        }
    }

    fn is_word_ahead(&self, count: usize, word: &str) -> bool {
        let token = self.ahead(count);
        token.kind == Kind::Word && self.text_of(token).eq_ignore_ascii_case(word)
    }

    fn truncate(&mut self) -> Result<QualifiedName, SyntaxError> {
        self.expect_word("truncate")?;
        let _ = self.eat_table();
        self.qualified_name("table")
    }

    fn is_word(&self, word: &str) -> bool {
        self.is_word_ahead(0, word)
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }

    /// Takes the words of `words` if they come next.
    fn eat_words(&mut self, words: &[&str]) -> bool {
        let found =
            words.iter().enumerate().all(|(position, word)| self.is_word_ahead(position, word));
        self.at += if found { words.len() } else { 0 };
        found
    }

    fn expect_word(&mut self, word: &str) -> Result<(), SyntaxError> {
        let token = match word {
            "table" => "K_COLUMNFAMILY".to_owned(),
            word => format!("K_{}", word.to_ascii_uppercase()),
        };
        if self.eat_word(word) { Ok(()) } else { Err(self.mismatch(&token)) }
    }

    fn expect_words(&mut self, words: &[&str]) -> Result<(), SyntaxError> {
        words.iter().try_for_each(|word| self.expect_word(word))
    }

    fn is_ahead(&self, count: usize, punctuation: &str) -> bool {
        let token = self.ahead(count);
        token.kind == Kind::Punctuation && self.text_of(token) == punctuation
    }

    fn is(&self, punctuation: &str) -> bool {
        self.is_ahead(0, punctuation)
    }

    fn eat(&mut self, punctuation: &str) -> bool {
        let found = self.is(punctuation);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, punctuation: &str) -> Result<(), SyntaxError> {
        if self.eat(punctuation) { Ok(()) } else { Err(self.mismatch(&format!("'{punctuation}'"))) }
    }

    /// `item (',' item)*`
    fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Parser<'a>) -> Result<T, SyntaxError>,
    ) -> Result<Vec<T>, SyntaxError> {
        let mut items = vec![item(self)?];
        while self.eat(",") {
            if items.len() >= ELEMENTS_MAX {
                return Err(self.problem(&format!("a list has at most {ELEMENTS_MAX} elements")));
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// `item (AND item)*`
    fn and_list<T>(
        &mut self,
        mut item: impl FnMut(&mut Parser<'a>) -> Result<T, SyntaxError>,
    ) -> Result<Vec<T>, SyntaxError> {
        let mut items = vec![item(self)?];
        while self.eat_word("and") {
            if items.len() >= ELEMENTS_MAX {
                return Err(self.problem(&format!("a list has at most {ELEMENTS_MAX} elements")));
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Runs `rule` one level deeper.
    fn nested<T>(
        &mut self,
        rule: impl FnOnce(&mut Parser<'a>) -> Result<T, SyntaxError>,
    ) -> Result<T, SyntaxError> {
        if self.depth >= DEPTH_MAX {
            return Err(
                self.problem(&format!("expressions and types nest at most {DEPTH_MAX} deep"))
            );
        }
        self.depth += 1;
        let result = rule(self);
        self.depth -= 1;
        result
    }

    /// Runs `rule`, and backs up to its start if it fails.
    fn attempt<T>(
        &mut self,
        rule: impl FnOnce(&mut Parser<'a>) -> Result<T, SyntaxError>,
    ) -> Option<T> {
        let (at, markers) = (self.at, self.markers.len());
        let client = self.open.as_ref().map_or(0, |open| open.client_markers());
        let outer = std::mem::replace(&mut self.attempting, true);
        let result = rule(self).ok();
        self.attempting = outer;
        if result.is_none() {
            self.at = at;
            self.markers.truncate(markers);
            if let Some(open) = &mut self.open {
                open.forget(markers, client);
            }
        }
        result
    }

    fn no_alternative(&self) -> SyntaxError {
        let token = self.shown(self.peek());
        self.problem(&format!("no viable alternative at input '{token}'"))
    }

    fn mismatch(&self, expected: &str) -> SyntaxError {
        let token = self.shown(self.peek());
        self.problem(&format!("mismatched input '{token}' expecting {expected}"))
    }

    fn shown(&self, token: Token) -> String {
        match token.kind {
            Kind::End => "<EOF>".to_owned(),
            Kind::String | Kind::QuotedName => self.unquoted(token),
            _ => self.text_of(token).to_owned(),
        }
    }

    /// An error at the next token, with the surrounding text as Cassandra shows it.
    fn problem(&self, problem: &str) -> SyntaxError {
        let token = self.peek();
        if self.attempting {
            // Finding the line scans all preceding text, once for each pair of parentheses.
            return SyntaxError::unplaced(problem);
        }
        if token.kind == Kind::End {
            return SyntaxError { line: 0, column: -1, message: format!("line 0:-1 {problem}") };
        }
        let (line, column) = lexer::place(self.text, token.start);
        let from = self.snippet_start();
        let shown = format!(
            "{problem} ({}{}[{}]{})",
            if from == 0 { "" } else { "..." },
            self.text.get(from..token.start).unwrap_or_default(),
            self.text_of(token),
            if token.end == self.text.len() { "" } else { "..." },
        );
        SyntaxError::at(line, column, &shown.replace('\n', ""))
    }

    /// Start of the text shown with an error: a number of tokens back, including blanks.
    fn snippet_start(&self) -> usize {
        let (mut left, mut at) = (SNIPPET_TOKENS, self.at.min(self.tokens.len().saturating_sub(1)));
        while at > 0 {
            let (token, before) = (self.tokens[at], self.tokens[at - 1]);
            let blank = usize::from(before.end < token.start);
            if left < blank + 1 {
                return if left == 0 { token.start } else { before.end };
            }
            left -= blank + 1;
            at -= 1;
        }
        self.tokens.first().map_or(0, |token| if left == 0 { token.start } else { 0 })
    }
}

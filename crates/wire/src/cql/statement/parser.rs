//! Recognises statements without recursion. Nesting is counted, so no text can exhaust the stack.
//!
//! Functions return `None` at text they do not understand. The statement keeps the facts found so
//! far but is neither routed by key nor repeated.

mod clause;
mod mutation;
mod shape;

use super::classification::{Kind, Statement, TEXT_BYTES_MAX};
use super::identifier::Identifier;
use super::lexer::{Lexer, Token, TokenKind};
use super::setting::{Cells, Setting};
use super::terms::{Term, TermSource};

pub(super) fn statement(text: &str) -> Statement<'_> {
    read(&mut Parser::new(text, 0)).0
}

/// Reads only the head of a text, from its first word on.
#[cold]
pub(super) fn head(text: &str) -> Statement<'_> {
    let start = Parser::new(text, 0).token.start;
    let rest = text.get(start..).unwrap_or_default();
    let head = &rest[..rest.floor_char_boundary(TEXT_BYTES_MAX)];
    if head.len() == rest.len() {
        return statement(rest);
    }
    let mut parser = Parser { is_cut: true, ..Parser::new(head, 0) };
    let begins = parser.token.is_word("BEGIN");
    let (found, _) = read(&mut parser);
    let kind = match found.kind {
        // The keyword behind BEGIN may lie beyond the head. A transaction says so at its beginning,
        // or nodes refuse it.
        Kind::Other if begins => Kind::Batch,
        kind => kind,
    };
    let mut found =
        Statement { kind, terms: TermSource::None, plain_where: false, has_tail: true, ..found };
    if kind == Kind::Use {
        found.keyspace = None;
    }
    found.conditional |= matches!(kind, Kind::Insert | Kind::Update | Kind::Delete | Kind::Batch);
    found
}

/// Findings about a second execution.
pub(super) struct Verdict {
    /// The statement was understood to its end and has no part that makes a second execution differ
    /// from the first.
    pub(super) repeatable: bool,
    /// Each of its writes has an explicit timestamp.
    pub(super) stamped: bool,
}

/// The statement, and whether it may be executed twice.
pub(super) fn judged<'a>(text: &'a str, setting: &'a dyn Setting) -> (Statement<'a>, Verdict) {
    let mut parser = Parser { setting: Some(setting), ..Parser::new(text, 0) };
    let (statement, clean) = read(&mut parser);
    (
        statement,
        Verdict {
            repeatable: clean && parser.repeatable,
            stamped: parser.stamped || !parser.unstamped,
        },
    )
}

/// The statement, and whether it was understood to its end.
fn read<'a>(parser: &mut Parser<'a>) -> (Statement<'a>, bool) {
    let mut statement = Statement::unknown(parser.kind());
    let found = match statement.kind {
        Kind::Select => parser.select(&mut statement),
        Kind::Insert => parser.insert(&mut statement),
        Kind::Update => parser.update(&mut statement),
        Kind::Delete => parser.delete(&mut statement),
        Kind::Batch => parser.batch(&mut statement),
        Kind::Use => parser.use_keyspace(&mut statement),
        Kind::Truncate => parser.truncate(&mut statement),
        Kind::Ddl | Kind::Transaction | Kind::Other => return (statement, false),
    };
    let ending = found.map(|()| parser.ending());
    statement.markers = parser.markers;
    match ending {
        Some(Ending::Clean) => return (statement, true),
        // Only a comment may follow the part that was read.
        Some(Ending::AnotherStatement) if statement.kind != Kind::Use && !parser.is_cut => {
            return (Statement::unknown(Kind::Other), false);
        }
        Some(Ending::AnotherStatement | Ending::Unknown) | None => {
            statement.terms = TermSource::None;
            statement.plain_where = false;
            if statement.kind == Kind::Use {
                statement.keyspace = None;
            }
        }
    }
    (statement, false)
}

enum Ending {
    Clean,
    AnotherStatement,
    Unknown,
}

#[derive(Clone, Debug)]
pub(super) struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The next token, not taken yet.
    token: Token<'a>,
    /// The text continues beyond the part that is read.
    is_cut: bool,
    markers: u16,
    /// Facts that the text lacks; `None` if no caller asks about a second execution.
    setting: Option<&'a dyn Setting>,
    /// No part seen so far makes a second execution differ from the first.
    repeatable: bool,
    /// A batch has a timestamp for all its writes.
    stamped: bool,
    /// A write has no explicit timestamp.
    unstamped: bool,
}

impl<'a> Parser<'a> {
    /// `markers`: number of bind markers before this text.
    pub(super) fn new(text: &'a str, markers: u16) -> Parser<'a> {
        let mut lexer = Lexer::new(text);
        let token = lexer.next();
        Parser {
            lexer,
            token,
            is_cut: false,
            markers,
            setting: None,
            repeatable: true,
            stamped: false,
            unstamped: false,
        }
    }

    /// The table that a statement writes, if the verdict is wanted and the table is known.
    fn cells(&self, statement: &Statement<'a>) -> Option<&'a Cells> {
        self.setting?.table(statement.keyspace.as_ref(), statement.table.as_ref()?)
    }

    fn bump(&mut self) -> Token<'a> {
        std::mem::replace(&mut self.token, self.lexer.next())
    }

    pub(super) fn eat(&mut self, punctuation: u8) -> bool {
        let found = self.token.is(punctuation);
        if found {
            self.bump();
        }
        found
    }

    pub(super) fn eat_word(&mut self, keyword: &str) -> bool {
        let found = self.token.is_word(keyword);
        if found {
            self.bump();
        }
        found
    }

    fn expect(&mut self, punctuation: u8) -> Option<()> {
        self.eat(punctuation).then_some(())
    }

    fn expect_word(&mut self, keyword: &str) -> Option<()> {
        self.eat_word(keyword).then_some(())
    }

    fn identifier(&mut self) -> Option<Identifier<'a>> {
        let name = self.token.identifier()?;
        self.bump();
        Some(name)
    }

    fn at_end(&self) -> bool {
        self.token.kind == TokenKind::End || self.token.is(b';')
    }

    /// Position of the next marker; `None` beyond the number that a message can carry.
    fn count_marker(&mut self) -> Option<u16> {
        let index = self.markers;
        self.markers = index.checked_add(1)?;
        Some(index)
    }

    /// Takes `?` or `:name` if one is next; the inner option is `None` if not.
    fn marker(&mut self) -> Option<Option<Term<'a>>> {
        if self.eat(b'?') {
            return Some(Some(Term::Marker(self.count_marker()?)));
        }
        if !self.eat(b':') {
            return Some(None);
        }
        let name = self.identifier()?;
        Some(Some(Term::NamedMarker { name, index: self.count_marker()? }))
    }

    fn ending(&mut self) -> Ending {
        let semicolon = self.token.is(b';');
        while self.eat(b';') {}
        match (self.token.kind, semicolon) {
            (TokenKind::End, _) => Ending::Clean,
            (_, true) => Ending::AnotherStatement,
            _ => Ending::Unknown,
        }
    }

    /// Takes the first words.
    fn kind(&mut self) -> Kind {
        const KINDS: [(&str, Kind); 10] = [
            ("SELECT", Kind::Select),
            ("INSERT", Kind::Insert),
            ("UPDATE", Kind::Update),
            ("DELETE", Kind::Delete),
            ("BEGIN", Kind::Batch),
            ("USE", Kind::Use),
            ("CREATE", Kind::Ddl),
            ("ALTER", Kind::Ddl),
            ("DROP", Kind::Ddl),
            ("TRUNCATE", Kind::Truncate),
        ];
        let first = self.bump();
        let kind = KINDS
            .iter()
            .find(|(word, _)| first.is_word(word))
            .map_or(Kind::Other, |&(_, kind)| kind);
        match kind {
            // Roles are not part of the schema.
            Kind::Ddl if self.token.is_any_word(&["ROLE", "USER", "IDENTITY"]) => Kind::Other,
            Kind::Batch => {
                if self.eat_word("BATCH") {
                    return Kind::Batch;
                }
                if self.token.is_any_word(&["UNLOGGED", "COUNTER"]) {
                    self.repeatable &= !self.bump().is_word("COUNTER");
                    return if self.eat_word("BATCH") { Kind::Batch } else { Kind::Other };
                }
                if self.token.is_word("TRANSACTION") { Kind::Transaction } else { Kind::Other }
            }
            kind => kind,
        }
    }

    fn select(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        let start = self.token.start;
        let mut is_understood = true;
        while !self.token.is_word("FROM") {
            if self.pass().is_some() {
                continue;
            }
            // The table is still found: FROM is not a name unless it is quoted.
            is_understood = false;
            while !self.token.is_word("FROM") {
                if matches!(self.bump().kind, TokenKind::End | TokenKind::Bad) {
                    return None;
                }
            }
        }
        statement.selection = self.lexer.slice(start, self.token.start);
        self.bump();
        self.table(statement)?;
        if !is_understood {
            return None;
        }
        statement.plain_where = true;
        if self.eat_word("WHERE") {
            self.where_clause(statement)?;
        }
        statement.has_tail = !self.at_end();
        let tail = self.token.start;
        while !self.at_end() {
            self.pass()?;
        }
        statement.tail = self.lexer.slice(tail, self.token.start);
        // Reading twice is harmless, whatever functions the statement calls.
        self.repeatable = true;
        Some(())
    }

    /// Skips one token, or a bracket and its content.
    fn pass(&mut self) -> Option<()> {
        if self.marker()?.is_some() {
            return Some(());
        }
        match self.bump().kind {
            TokenKind::End | TokenKind::Bad | TokenKind::Punctuation(b';' | b')' | b']' | b'}') => {
                None
            }
            TokenKind::Punctuation(b'(' | b'[' | b'{') => self.nested().map(drop),
            _ => Some(()),
        }
    }

    fn use_keyspace(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        statement.keyspace = Some(self.identifier()?);
        Some(())
    }

    fn truncate(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        if self.token.is_any_word(&["TABLE", "COLUMNFAMILY"]) {
            self.bump();
        }
        self.table(statement)
    }
}

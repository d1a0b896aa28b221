//! Recognises statements, without recursion: nesting is counted, so no text can exhaust the stack.
//!
//! Functions return `None` when they meet something they do not understand; the statement then keeps what was found so
//! far but is neither routed by key nor repeated.

use super::lexer::{Lexer, Token, TokenKind};
use super::terms::{KeyTerm, Term, TermSource};
use super::{Identifier, Kind, Statement};

/// Words that end a list of relations or conditions. All but `GROUP` and `PER` are reserved, and these two can only be
/// columns at the start of a relation, where they are not looked for.
const CLAUSE_ENDS: [&str; 12] =
    ["ORDER", "GROUP", "LIMIT", "PER", "ALLOW", "IF", "WITH", "USING", "INSERT", "UPDATE", "DELETE", "APPLY"];

pub(super) fn statement(text: &str) -> Statement<'_> {
    let mut parser = Parser::new(text, 0);
    let mut statement = Statement::unknown(parser.kind());
    let found = match statement.kind {
        Kind::Select => parser.select(&mut statement),
        Kind::Insert => parser.insert(&mut statement),
        Kind::Update => parser.update(&mut statement),
        Kind::Delete => parser.delete(&mut statement),
        Kind::Batch => parser.batch(&mut statement),
        Kind::Use => parser.use_keyspace(&mut statement),
        Kind::Truncate => parser.truncate(&mut statement),
        Kind::Ddl | Kind::Other => return statement,
    };
    let ending = found.map(|()| parser.ending());
    statement.markers = parser.markers;
    match ending {
        Some(Ending::Clean) => {
            let repeats = matches!(statement.kind, Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Batch);
            statement.idempotent = repeats && parser.repeatable && !statement.conditional;
        }
        Some(Ending::AnotherStatement) if statement.kind != Kind::Use => return Statement::unknown(Kind::Other),
        Some(Ending::AnotherStatement | Ending::Unknown) | None => {
            statement.terms = TermSource::None;
            statement.plain_where = false;
        }
    }
    statement
}

enum Ending {
    Clean,
    AnotherStatement,
    Unknown,
}

/// What a term is made of.
#[derive(Copy, Clone, Debug)]
pub(super) struct Shape<'a> {
    /// The term, if it is one literal or one marker.
    pub(super) term: Option<Term<'a>>,
    /// Nothing but literals and markers: executing it twice gives the same value.
    fixed: bool,
    /// Starts with `{`: a set, map or UDT literal.
    braces: bool,
}

impl<'a> Shape<'a> {
    fn simple(term: Term<'a>) -> Shape<'a> {
        Shape { term: Some(term), fixed: true, braces: false }
    }

    fn compound(fixed: bool) -> Shape<'a> {
        Shape { term: None, fixed, braces: false }
    }
}

/// What was seen between brackets.
struct Nested {
    function: bool,
    /// Words that are neither constants nor field names of a UDT: perhaps columns, perhaps a type.
    words: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The next token, not taken yet.
    token: Token<'a>,
    markers: u16,
    /// Nothing was seen that makes a second execution differ from the first.
    repeatable: bool,
}

impl<'a> Parser<'a> {
    /// `markers`: how many bind markers come before this text.
    pub(super) fn new(text: &'a str, markers: u16) -> Parser<'a> {
        let mut lexer = Lexer::new(text);
        let token = lexer.next();
        Parser { lexer, token, markers, repeatable: true }
    }

    // ---- tokens ----

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

    fn at_clause_end(&self) -> bool {
        self.at_end() || self.token.is_any_word(&CLAUSE_ENDS)
    }

    /// The next marker's position. More than a message can carry is not understood.
    fn count_marker(&mut self) -> Option<u16> {
        let index = self.markers;
        self.markers = index.checked_add(1)?;
        Some(index)
    }

    /// Takes `?` or `:name` if one is next; inner `None` if not.
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

    // ---- terms ----

    /// `primary (operator primary)*`
    pub(super) fn term(&mut self) -> Option<Shape<'a>> {
        let mut shape = self.primary()?;
        loop {
            match self.token.kind {
                TokenKind::Punctuation(b'+' | b'-' | b'*' | b'/' | b'%') => {
                    self.bump();
                }
                // `c -1` is two tokens to Cassandra's lexer too, a name and a number.
                TokenKind::Number if self.token.text.starts_with('-') => {}
                _ => return Some(shape),
            }
            let right = self.primary()?;
            shape = Shape::compound(shape.fixed && right.fixed);
        }
    }

    fn primary(&mut self) -> Option<Shape<'a>> {
        // What stands before the value proper: signs and casts.
        let mut prefixed = false;
        let mut fixed = true;
        loop {
            if let Some(term) = self.marker()? {
                return Some(if prefixed { Shape::compound(fixed) } else { Shape::simple(term) });
            }
            let token = self.bump();
            let shape = match token.kind {
                _ if token.is_literal() => Shape::simple(Term::Literal(token.text)),
                TokenKind::Word | TokenKind::Quoted => self.named(token)?,
                TokenKind::Punctuation(b'-') => {
                    prefixed = true;
                    continue;
                }
                TokenKind::Punctuation(b'(') => {
                    let nested = self.nested()?;
                    fixed &= !nested.function;
                    if self.at_cast_value() {
                        prefixed = true;
                        continue;
                    }
                    Shape::compound(!nested.words)
                }
                TokenKind::Punctuation(opening @ (b'[' | b'{')) => {
                    let nested = self.nested()?;
                    let fixed = !nested.function && !nested.words;
                    Shape { term: None, fixed, braces: opening == b'{' }
                }
                _ => return None,
            };
            return Some(if prefixed || !fixed { Shape::compound(fixed && shape.fixed) } else { shape });
        }
    }

    /// After `(..)`: does a value follow, so that it was a cast? A negative number is taken for subtraction instead,
    /// which is the cautious reading, and so is a word, which may be the next clause.
    fn at_cast_value(&self) -> bool {
        let negative = self.token.kind == TokenKind::Number && self.token.text.starts_with('-');
        (self.token.is_literal() && !negative)
            || matches!(self.token.kind, TokenKind::Punctuation(b'?' | b':' | b'(' | b'[' | b'{'))
    }

    /// What starts with a name: a constant, a function call or a column.
    fn named(&mut self, first: Token<'a>) -> Option<Shape<'a>> {
        let mut qualified = false;
        while self.eat(b'.') {
            self.identifier()?;
            qualified = true;
        }
        if self.eat(b'(') {
            self.nested()?;
            return Some(Shape::compound(false));
        }
        if !qualified && is_constant(&first) {
            return Some(Shape::simple(Term::Literal(first.text)));
        }
        Some(Shape::compound(false))
    }

    /// Passes over everything up to the bracket that closes the one just taken, counting markers. Kinds of brackets
    /// need not be told apart: text that mixes them is refused by every server.
    fn nested(&mut self) -> Option<Nested> {
        let mut nested = Nested { function: false, words: false };
        let mut depth = 1u32;
        // In `{'k': :v}` the first colon separates and the second begins a marker: it is where a value is due.
        let mut value_due = true;
        while depth > 0 {
            if self.token.is(b'?') || (value_due && self.token.is(b':')) {
                self.marker()?;
                value_due = false;
                continue;
            }
            let token = self.bump();
            value_due = false;
            match token.kind {
                TokenKind::End | TokenKind::Bad | TokenKind::Punctuation(b';') => return None,
                TokenKind::Punctuation(b'(' | b'[' | b'{') => {
                    depth = depth.checked_add(1)?;
                    value_due = true;
                }
                TokenKind::Punctuation(b')' | b']' | b'}') => depth -= 1,
                TokenKind::Punctuation(_) => value_due = true,
                TokenKind::Word | TokenKind::Quoted => {
                    nested.function |= self.token.is(b'(');
                    nested.words |= !is_constant(&token) && !self.token.is(b':');
                }
                TokenKind::String | TokenKind::Number | TokenKind::Uuid | TokenKind::Blob => {}
            }
        }
        Some(nested)
    }

    // ---- clauses ----

    /// `[keyspace.]table`
    fn table(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        let first = self.identifier()?;
        if self.eat(b'.') {
            statement.table = Some(self.identifier()?);
            statement.keyspace = Some(first);
        } else {
            statement.table = Some(first);
        }
        Some(())
    }

    /// What follows `WHERE`, up to the next clause.
    fn where_clause(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        let (start, marker) = (self.token.start, self.markers);
        let mut plain = true;
        loop {
            plain &= self.relation()?.is_some();
            if !self.eat_word("AND") {
                break;
            }
        }
        statement.plain_where = plain;
        statement.terms = TermSource::Where { text: self.lexer.slice(start, self.token.start), marker };
        Some(())
    }

    /// One relation of `WHERE` or condition of `IF`, up to `AND` or the next clause; the inner option is its term if
    /// it is `column = literal or marker`.
    pub(super) fn relation(&mut self) -> Option<Option<KeyTerm<'a>>> {
        let key_term = match self.token.identifier() {
            Some(column) if self.lexer.peek().is(b'=') => {
                self.bump();
                self.bump();
                let shape = self.term()?;
                self.repeatable &= shape.fixed;
                shape.term.map(|term| KeyTerm { column, term })
            }
            _ => {
                self.other_relation()?;
                None
            }
        };
        (self.at_clause_end() || self.token.is_word("AND")).then_some(key_term)
    }

    /// `a IN (..)`, `a > ?`, `(a, b) <= (..)`, `token(a) > ..`, `a['x'] = ..`, `a CONTAINS KEY ..`, `EXISTS`, ..
    fn other_relation(&mut self) -> Option<()> {
        let mut between = false;
        let mut first = true;
        while first || !self.at_clause_end() {
            if self.token.is_word("AND") && !std::mem::take(&mut between) {
                return (!first).then_some(());
            }
            if self.marker()?.is_some() {
                first = false;
                continue;
            }
            let token = self.bump();
            match token.kind {
                TokenKind::End | TokenKind::Bad | TokenKind::Punctuation(b';' | b')' | b']' | b'}' | b',') => return None,
                TokenKind::Punctuation(b'(' | b'[' | b'{') => {
                    let nested = self.nested()?;
                    self.repeatable &= !nested.function;
                }
                TokenKind::Word if token.is_word("BETWEEN") => between = true,
                TokenKind::Word if token.is_word("IN") => {}
                TokenKind::Word | TokenKind::Quoted => self.repeatable &= !self.token.is(b'('),
                _ => {}
            }
            first = false;
        }
        Some(())
    }

    /// `USING TTL 10 AND TIMESTAMP ?`, if it is next.
    fn using(&mut self) -> Option<()> {
        if !self.eat_word("USING") {
            return Some(());
        }
        loop {
            if !self.token.is_any_word(&["TIMESTAMP", "TTL", "TIMEOUT"]) {
                return None;
            }
            self.bump();
            if self.marker()?.is_none() && self.bump().kind != TokenKind::Number {
                return None;
            }
            if !self.eat_word("AND") {
                return Some(());
            }
        }
    }

    /// `IF ..`, if it is next.
    fn condition(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        if !self.eat_word("IF") {
            return Some(());
        }
        statement.conditional = true;
        loop {
            self.relation()?;
            if !self.eat_word("AND") {
                return Some(());
            }
        }
    }

    // ---- statements ----

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
        let kind = KINDS.iter().find(|(word, _)| first.is_word(word)).map_or(Kind::Other, |&(_, kind)| kind);
        match kind {
            // Roles are not part of the schema.
            Kind::Ddl if self.token.is_any_word(&["ROLE", "USER", "IDENTITY"]) => Kind::Other,
            Kind::Batch => {
                if self.token.is_any_word(&["UNLOGGED", "COUNTER"]) {
                    self.repeatable &= !self.bump().is_word("COUNTER");
                }
                // `BEGIN TRANSACTION` is something else.
                if self.eat_word("BATCH") { Kind::Batch } else { Kind::Other }
            }
            kind => kind,
        }
    }

    fn select(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        let start = self.token.start;
        while !self.token.is_word("FROM") {
            self.pass()?;
        }
        statement.selection = self.lexer.slice(start, self.token.start);
        self.bump();
        self.table(statement)?;
        statement.plain_where = true;
        if self.eat_word("WHERE") {
            self.where_clause(statement)?;
        }
        statement.has_tail = !self.at_end();
        while !self.at_end() {
            self.pass()?;
        }
        // Reading twice does no harm, whatever functions it calls.
        self.repeatable = true;
        Some(())
    }

    /// Passes over one token, or a bracket and all in it.
    fn pass(&mut self) -> Option<()> {
        if self.marker()?.is_some() {
            return Some(());
        }
        match self.bump().kind {
            TokenKind::End | TokenKind::Bad | TokenKind::Punctuation(b';' | b')' | b']' | b'}') => None,
            TokenKind::Punctuation(b'(' | b'[' | b'{') => self.nested().map(drop),
            _ => Some(()),
        }
    }

    fn insert(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        self.expect_word("INTO")?;
        self.table(statement)?;
        if self.eat_word("JSON") {
            // The key is inside the document: not looked into.
            if self.marker()?.is_none() && self.bump().kind != TokenKind::String {
                return None;
            }
            if self.eat_word("DEFAULT") && !self.eat_word("NULL") {
                self.expect_word("UNSET")?;
            }
        } else {
            self.columns_and_values(statement)?;
        }
        if self.eat_word("IF") {
            statement.conditional = true;
            self.expect_word("NOT")?;
            self.expect_word("EXISTS")?;
        }
        self.using()
    }

    /// `(a, b) VALUES (1, ?)`
    fn columns_and_values(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        self.expect(b'(')?;
        let columns_start = self.token.start;
        let mut columns = 0u32;
        loop {
            self.identifier()?;
            columns += 1;
            if !self.eat(b',') {
                break;
            }
        }
        let columns_text = self.lexer.slice(columns_start, self.token.start);
        self.expect(b')')?;
        self.expect_word("VALUES")?;
        self.expect(b'(')?;
        let (values_start, marker) = (self.token.start, self.markers);
        let mut values = 0u32;
        loop {
            self.repeatable &= self.term()?.fixed;
            values += 1;
            if !self.eat(b',') {
                break;
            }
        }
        let values_text = self.lexer.slice(values_start, self.token.start);
        self.expect(b')')?;
        if columns != values {
            return None;
        }
        statement.plain_where = true;
        statement.terms = TermSource::Insert { columns: columns_text, values: values_text, marker };
        Some(())
    }

    fn update(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        self.table(statement)?;
        self.using()?;
        self.expect_word("SET")?;
        loop {
            self.repeatable &= self.assignment()?;
            if !self.eat(b',') {
                break;
            }
        }
        self.expect_word("WHERE")?;
        self.where_clause(statement)?;
        self.condition(statement)
    }

    /// One assignment of `SET`; whether executing it twice is the same as once.
    fn assignment(&mut self) -> Option<bool> {
        let column = self.identifier()?;
        let mut subscript = None;
        if self.eat(b'[') {
            subscript = Some(self.term()?);
            self.expect(b']')?;
        } else if self.eat(b'.') {
            self.identifier()?;
        }
        if self.token.is(b'+') || self.token.is(b'-') {
            // `c += 1`
            self.bump();
            self.expect(b'=')?;
            return self.addend();
        }
        self.expect(b'=')?;
        let ahead = self.lexer.peek();
        if self.token.identifier() == Some(column) && (ahead.is(b'+') || ahead.is(b'-')) {
            // `c = c + 1`
            self.bump();
            self.bump();
            return self.addend();
        }
        let value = self.term()?;
        let repeatable = value.fixed && subscript.is_none_or(|subscript| is_safe_element(&subscript, &value));
        Some(repeatable)
    }

    /// What is added to or taken from a column. A counter, and a list that grows, differ after a second execution; a
    /// set or a map does not, and only these are written with braces. A marker may be anything.
    fn addend(&mut self) -> Option<bool> {
        let shape = self.term()?;
        Some(shape.fixed && shape.braces)
    }

    fn delete(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        while !self.token.is_word("FROM") {
            self.identifier()?;
            if self.eat(b'[') {
                // Deleting an element of a list moves the later ones up, so a second time deletes another.
                let subscript = self.term()?;
                self.repeatable &= is_map_key(&subscript);
                self.expect(b']')?;
            } else if self.eat(b'.') {
                self.identifier()?;
            }
            if !self.eat(b',') {
                break;
            }
        }
        self.expect_word("FROM")?;
        self.table(statement)?;
        self.using()?;
        self.expect_word("WHERE")?;
        self.where_clause(statement)?;
        self.condition(statement)
    }

    /// Statements up to `APPLY BATCH`, with or without semicolons. The first one's table and terms stand for all.
    fn batch(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        self.using()?;
        loop {
            while self.eat(b';') {}
            if self.eat_word("APPLY") {
                return self.expect_word("BATCH");
            }
            let mut child = Statement::unknown(Kind::Other);
            let word = self.bump();
            if word.is_word("INSERT") {
                self.insert(&mut child)?;
            } else if word.is_word("UPDATE") {
                self.update(&mut child)?;
            } else if word.is_word("DELETE") {
                self.delete(&mut child)?;
            } else {
                return None;
            }
            if statement.table.is_none() {
                (statement.keyspace, statement.table) = (child.keyspace, child.table);
                (statement.terms, statement.plain_where) = (child.terms, child.plain_where);
            }
            statement.conditional |= child.conditional;
        }
    }

    fn use_keyspace(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        let keyspace = self.identifier()?;
        if self.at_end() {
            statement.keyspace = Some(keyspace);
        }
        Some(())
    }

    fn truncate(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        if self.token.is_any_word(&["TABLE", "COLUMNFAMILY"]) {
            self.bump();
        }
        self.table(statement)
    }
}

fn is_constant(token: &Token<'_>) -> bool {
    token.is_any_word(&["true", "false", "null", "nan", "infinity"])
}

/// A subscript that can only be the key of a map: the index of a list is an integer.
fn is_map_key(subscript: &Shape<'_>) -> bool {
    matches!(subscript.term, Some(Term::Literal(text)) if text.starts_with(['\'', '$']))
}

/// `l[1] = 'x'` can be repeated; `l[1] = null` deletes an element, and the next one moves up. A marker may be null.
fn is_safe_element(subscript: &Shape<'_>, value: &Shape<'_>) -> bool {
    let value_is_set = match value.term {
        Some(Term::Literal(text)) => !text.eq_ignore_ascii_case("null"),
        Some(_) => false,
        None => true,
    };
    subscript.fixed && (is_map_key(subscript) || value_is_set)
}

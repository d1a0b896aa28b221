//! `BEGIN TRANSACTION .. COMMIT TRANSACTION`.
//!
//! Statements in a transaction follow the same rules as outside. In addition, a value may be a
//! reference to a row, which the statement replaces by a marker. There are therefore two lists of
//! markers, the client's and that of the current statement ([`OpenStatement`]).

use std::collections::HashMap;
use std::mem;
use std::ops::Range;

use super::{Parser, marker_index};
use crate::ast::{
    Assignment, CallValue, ClientMarker, Comparison, Condition, Inner, Marker, MarkerPlace,
    MarkerSource, Mutation, Operation, Reference, Returned, Select, SelectClause, SelfAssignment,
    Statement, Term, Test, Transaction, ValuePart,
};
use crate::error::{InvalidRequest, Refusal, SyntaxError};
use crate::keyword;
use crate::lexer::{self, Kind};

/// Keywords of this grammar, which cannot name a row.
const KEYWORDS: [&str; 5] = ["commit", "end", "let", "then", "transaction"];

/// Parses a transaction, with or without trailing semicolons and `APPLY BATCH`: `cqlsh` takes
/// `BEGIN` as the start of a batch, and sends nothing before it has seen its end.
///
/// # Errors
/// If the text is not a transaction, or has more than `statements_max` statements.
pub(crate) fn transaction(text: &str, statements_max: usize) -> Result<Transaction, Refusal> {
    let mut parser = Parser::new(text)?;
    let transaction = parser.transaction(statements_max)?;
    while parser.eat(";") {}
    if parser.eat_words(&["apply", "batch"]) {
        while parser.eat(";") {}
    }
    parser.end()?;
    Ok(transaction)
}

/// Parses a statement that reads or writes rows, or a batch of writes, as a transaction of that
/// alone.
///
/// # Errors
/// If the text is none of these, or has more than `statements_max` statements.
pub(crate) fn alone(text: &str, statements_max: usize) -> Result<Transaction, Refusal> {
    let mut parser = Parser::new(text)?;
    let mut progress = Progress::new(statements_max);
    progress.transaction.is_alone = true;
    if parser.is_word("select") {
        parser.inner_statement(&mut progress, "SELECT", |parser| {
            parser.select().map(Statement::Select)
        })?;
        progress.transaction.returned = Returned::Select;
    } else if parser.eat_word("begin") {
        progress.transaction.is_alone = false;
        if !parser.eat_word("unlogged") && !parser.is_word("batch") {
            return Err(parser.no_alternative().into());
        }
        parser.expect_words(&["batch"])?;
        parser.mutations(&mut progress, false)?;
        parser.expect_words(&["apply", "batch"])?;
    } else if parser.is_word("truncate") {
        parser.inner_statement(&mut progress, "TRUNCATE", |parser| {
            parser.truncate().map(Statement::Truncate)
        })?;
    } else {
        let name = parser.mutation_ahead().ok_or_else(|| parser.no_alternative())?;
        parser.inner_statement(&mut progress, name, |parser| {
            parser.mutation().map(Statement::Mutation)
        })?;
    }
    while parser.eat(";") {}
    parser.end()?;
    Ok(progress.finish(mem::take(&mut parser.markers)))
}

/// Line and character of a place, both from 1, as Cassandra shows the place of a statement in a
/// transaction.
pub(crate) fn shown_place(text: &str, offset: usize) -> String {
    let (line, column) = lexer::place(text, offset);
    format!("at [{line}:{}]", column.saturating_add(1))
}

/// The transaction's statement being parsed, and the state saved in the meantime.
pub(super) struct OpenStatement {
    index: usize,
    markers: Vec<Marker>,
    self_assignments: Vec<SelfAssignment>,
    calls: Vec<CallValue>,
    condition: Option<Range<usize>>,
    /// Names of the client's markers.
    client: Vec<Option<String>>,
    /// Places of the client's markers.
    places: Vec<MarkerPlace>,
}

impl OpenStatement {
    /// Number of the client's markers seen so far.
    pub(super) fn client_markers(&self) -> usize {
        self.client.len()
    }

    /// Backs up to these numbers of the statement's and the client's markers.
    pub(super) fn forget(&mut self, own: usize, client: usize) {
        self.markers.truncate(own);
        self.client.truncate(client);
        self.places.truncate(client);
    }
}

/// The part of a transaction parsed so far.
struct Progress {
    transaction: Transaction,
    places: Vec<MarkerPlace>,
    statements_max: usize,
}

impl Progress {
    fn new(statements_max: usize) -> Progress {
        let transaction = Transaction {
            lets: Vec::new(),
            returned: Returned::Nothing,
            conditions: Vec::new(),
            statements: Vec::new(),
            markers: Vec::new(),
            is_alone: false,
        };
        Progress { transaction, places: Vec::new(), statements_max }
    }

    /// Completes the transaction with the names of the client's markers.
    fn finish(self, names: Vec<Option<String>>) -> Transaction {
        let markers =
            names.into_iter().zip(self.places).map(|(name, place)| ClientMarker { name, place });
        Transaction { markers: markers.collect(), ..self.transaction }
    }
}

impl Parser<'_> {
    fn transaction(&mut self, statements_max: usize) -> Result<Transaction, Refusal> {
        let mut progress = Progress::new(statements_max);
        self.expect_words(&["begin", "transaction"])?;
        while self.is_word("let") {
            self.let_row(&mut progress)?;
        }
        if self.is_word("select") {
            self.returned_clause(&mut progress)?;
        }
        let conditional = self.eat_word("if");
        if conditional {
            self.transaction_conditions(&mut progress)?;
        }
        self.mutations(&mut progress, true)?;
        if conditional {
            self.expect_words(&["end", "if"])?;
        } else if !self.is_word("commit") && !self.is_word("end") {
            return Err(self.no_alternative().into());
        }
        self.expect_words(&["commit", "transaction"])?;
        Ok(progress.finish(mem::take(&mut self.markers)))
    }

    /// The kind of the writing statement that comes next, if any.
    fn mutation_ahead(&self) -> Option<&'static str> {
        ["INSERT", "UPDATE", "DELETE"].into_iter().find(|word| self.is_word(word))
    }

    /// Parses the writing statements. A batch needs no semicolons.
    fn mutations(&mut self, progress: &mut Progress, semicolons: bool) -> Result<(), Refusal> {
        while let Some(name) = self.mutation_ahead() {
            self.inner_statement(progress, name, |parser| {
                parser.mutation().map(Statement::Mutation)
            })?;
            if semicolons {
                self.expect(";")?;
            } else {
                self.eat(";");
            }
        }
        Ok(())
    }

    /// `LET v = (SELECT ..);`
    fn let_row(&mut self, progress: &mut Progress) -> Result<(), Refusal> {
        let start = self.peek().start;
        self.expect_word("let")?;
        let word = self.lower();
        if word.is_empty() || keyword::is_reserved(&word) {
            return Err(self.in_part("LET", start, self.no_alternative()).into());
        }
        if keyword::is_unreserved_keyword(&word) || KEYWORDS.contains(&word.as_str()) {
            let problem =
                self.problem(&format!("'{word}' is a keyword and cannot be the name of a row"));
            return Err(self.in_part("LET", start, problem).into());
        }
        self.advance();
        let name = format!("LET {word}");
        for symbol in ["=", "("] {
            self.expect(symbol).map_err(|error| self.in_part(&name, start, error))?;
        }
        self.inner_statement(progress, &name, |parser| {
            let select = parser.select()?;
            match outside_let(&select) {
                Some(what) => Err(parser.problem(&format!("the SELECT of a LET has no {what}"))),
                None if select.relations.is_empty() => Err(parser.mismatch("K_WHERE")),
                None => Ok(Statement::Select(select)),
            }
        })?;
        for symbol in [")", ";"] {
            self.expect(symbol).map_err(|error| self.in_part(&name, start, error))?;
        }
        progress.transaction.lets.push(word);
        Ok(())
    }

    /// `SELECT .. FROM ..;` or `SELECT v.a, w.b;`
    fn returned_clause(&mut self, progress: &mut Progress) -> Result<(), Refusal> {
        // Only a table comes behind `FROM`, and no reference contains that word.
        let until = |word: &lexer::Token| {
            self.text_of(*word).eq_ignore_ascii_case("from") || self.text_of(*word) == ";"
        };
        let rest = self.tokens.get(self.at..).unwrap_or_default();
        let from_table =
            rest.iter().find(|token| until(token)).is_some_and(|token| token.kind == Kind::Word);
        if from_table {
            self.inner_statement(progress, "SELECT", |parser| {
                parser.select().map(Statement::Select)
            })?;
            progress.transaction.returned = Returned::Select;
        } else {
            let start = self.advance().start;
            let mut references = 0;
            let list = self.list(|parser| {
                let reference = parser.reference()?;
                progress.places.resize(parser.markers.len(), MarkerPlace::Returned(references));
                references += 1;
                parser.no_operator()?;
                Ok(reference)
            });
            progress.transaction.returned =
                Returned::References(list.map_err(|error| self.in_part("SELECT", start, error))?);
        }
        Ok(self.expect(";")?)
    }

    /// `condition (AND condition)* THEN`
    fn transaction_conditions(&mut self, progress: &mut Progress) -> Result<(), SyntaxError> {
        let start = self.tokens.get(self.at.saturating_sub(1)).map_or(0, |token| token.start);
        let mut count = 0;
        let conditions = self.and_list(|parser| {
            let condition = parser.transaction_condition()?;
            progress.places.resize(parser.markers.len(), MarkerPlace::Condition(count));
            count += 1;
            Ok(condition)
        });
        progress.transaction.conditions =
            conditions.map_err(|error| self.in_part("IF", start, error))?;
        if self.eat_word("then") {
            Ok(())
        } else {
            Err(self.in_part("IF", start, self.no_alternative()))
        }
    }

    fn transaction_condition(&mut self) -> Result<Condition, SyntaxError> {
        let start = self.peek().start;
        let (reference, test) = if self.starts_reference() {
            let reference = self.reference()?;
            let test = match () {
                () if self.eat_words(&["is", "not", "null"]) => Test::IsNotNull,
                () if self.eat_words(&["is", "null"]) => Test::IsNull,
                () => Test::Compare(self.comparison()?, self.term()?),
            };
            (reference, test)
        } else {
            let term = self.term()?;
            let comparison = turned_round(self.comparison()?);
            (self.reference()?, Test::Compare(comparison, term))
        };
        Ok(Condition { reference, test, range: start..self.last_end() })
    }

    /// Parses a statement and stores it with its markers.
    fn inner_statement(
        &mut self,
        progress: &mut Progress,
        name: &str,
        rule: impl FnOnce(&mut Self) -> Result<Statement, SyntaxError>,
    ) -> Result<(), Refusal> {
        let start = self.peek().start;
        let index = progress.transaction.statements.len();
        if index >= progress.statements_max {
            let most = progress.statements_max;
            return Err(InvalidRequest::new(format!(
                "a transaction has at most {most} statements"
            ))
            .into());
        }
        let (client, places) = (mem::take(&mut self.markers), mem::take(&mut progress.places));
        self.open = Some(Box::new(OpenStatement {
            index,
            markers: Vec::new(),
            self_assignments: Vec::new(),
            calls: Vec::new(),
            condition: None,
            client,
            places,
        }));
        let statement = rule(self).map_err(|error| self.in_part(name, start, error))?;
        if let Some(open) = self.open.take() {
            let OpenStatement {
                markers, self_assignments, calls, condition, client, places, ..
            } = *open;
            self.markers = client;
            progress.places = places;
            let range = start..self.last_end();
            let inner = Inner { statement, range, markers, self_assignments, calls, condition };
            check_references(&inner).map_err(|error| self.in_part(name, start, error))?;
            progress.transaction.statements.push(inner);
        }
        Ok(())
    }

    /// End of the token before the next one.
    fn last_end(&self) -> usize {
        self.at.checked_sub(1).and_then(|at| self.tokens.get(at)).map_or(0, |token| token.end)
    }

    /// Adds the part of the transaction to an error.
    fn in_part(&self, name: &str, start: usize, error: SyntaxError) -> SyntaxError {
        SyntaxError {
            message: format!("{name} {}: {}", shown_place(self.text, start), error.message),
            ..error
        }
    }

    /// Records a parsed marker inside a statement of a transaction.
    pub(super) fn note_marker(
        &mut self,
        start: usize,
        name: Option<&str>,
    ) -> Result<(), SyntaxError> {
        let (end, marker) = (self.last_end(), self.markers.len());
        if let Some(open) = &mut self.open {
            let client = marker_index(&open.client)?;
            open.client.push(name.map(str::to_owned));
            open.places.push(MarkerPlace::Statement { statement: open.index, marker });
            open.markers.push(Marker { range: start..end, source: MarkerSource::Client(client) });
        }
        Ok(())
    }

    /// Records a parsed assignment, behind the name of its column.
    pub(super) fn note_assignment(&mut self, start: usize, assignment: &Assignment) {
        let end = self.last_end();
        let Some(open) = &mut self.open else { return };
        let (subtract, term) = match &assignment.operation {
            Operation::Add(term) => (false, term.clone()),
            Operation::Subtract(term) => (true, term.clone()),
            _ => return,
        };
        let column = assignment.column.clone();
        open.self_assignments.push(SelfAssignment { column, subtract, term, range: start..end });
    }

    /// Records the `IF ..` of a statement, which starts at `start`.
    pub(super) fn note_condition(&mut self, start: usize) {
        let end = self.last_end();
        if let Some(open) = self.open.as_mut().filter(|_| end > start) {
            open.condition = Some(start..end);
        }
    }

    /// True if a reference to a row comes next, where a reference or a term is allowed.
    pub(super) fn starts_reference(&self) -> bool {
        self.identifier_ahead(0).is_some()
            && !self.is_call()
            && !(self.is_word("cast") && self.is_ahead(1, "("))
    }

    /// A term or, in a transaction, a reference to a row.
    pub(super) fn value(&mut self) -> Result<Term, SyntaxError> {
        if self.is_reference() { self.reference_marker() } else { self.noted_term() }
    }

    /// A term, recorded if it contains a function call inside a statement of a transaction.
    pub(super) fn noted_term(&mut self) -> Result<Term, SyntaxError> {
        let start = self.peek().start;
        let term = self.term()?;
        let end = self.last_end();
        if let Some(open) = &mut self.open
            && has_call(&term)
        {
            open.calls.push(CallValue { term: term.clone(), range: start..end });
        }
        Ok(term)
    }

    /// True if a reference to a row comes next, in a statement of a transaction.
    pub(super) fn is_reference(&self) -> bool {
        self.open.is_some() && self.starts_reference()
    }

    /// The statement's marker that replaces a reference. A marker in its brackets belongs only to
    /// the client.
    fn reference_marker(&mut self) -> Result<Term, SyntaxError> {
        let Some(mut open) = self.open.take() else { return Err(self.no_alternative()) };
        let own = mem::replace(&mut self.markers, mem::take(&mut open.client));
        let reference = self.reference();
        open.client = mem::replace(&mut self.markers, own);
        let marker = marker_index(&self.markers)?;
        let place = MarkerPlace::Element { statement: open.index, marker: self.markers.len() };
        open.places.resize(open.client.len(), place);
        let reference = reference?;
        self.markers.push(None);
        open.markers.push(Marker {
            range: reference.range.clone(),
            source: MarkerSource::Reference(reference),
        });
        self.open = Some(open);
        self.no_operator()?;
        Ok(Term::Marker(marker))
    }

    /// References allow no arithmetic.
    fn no_operator(&self) -> Result<(), SyntaxError> {
        let token = self.peek();
        let is_number = matches!(token.kind, Kind::Integer | Kind::Float | Kind::Duration);
        let is_operator = ["+", "-", "*", "/", "%"].iter().any(|symbol| self.is(symbol));
        if is_operator || is_number { Err(self.no_alternative()) } else { Ok(()) }
    }

    /// `v`, `v.a`, `v.a[key]` or `v.a.f`
    fn reference(&mut self) -> Result<Reference, SyntaxError> {
        let start = self.peek().start;
        let row = self.identifier()?;
        let column = if self.eat(".") { Some(self.identifier()?) } else { None };
        let part = match () {
            () if column.is_none() => None,
            () if self.eat(".") => Some(ValuePart::Field(self.identifier()?)),
            () if self.eat("[") => {
                let key = self.term()?;
                self.expect("]")?;
                Some(ValuePart::Element(key))
            }
            () => None,
        };
        if part.is_some() && (self.is(".") || self.is("[")) {
            return Err(
                self.problem("a reference goes to an element or field of a column, and no deeper")
            );
        }
        Ok(Reference { row, column, part, range: start..self.last_end() })
    }
}

/// A part of a SELECT that the grammar forbids within `LET`.
fn outside_let(select: &Select) -> Option<&'static str> {
    let aliases = match &select.clause {
        SelectClause::All => false,
        SelectClause::Items(items) => items.iter().any(|item| item.alias.is_some()),
    };
    let found = [
        (select.json, "JSON"),
        (select.distinct, "DISTINCT"),
        (aliases, "AS"),
        (!select.group_by.is_empty(), "GROUP BY"),
        (!select.order_by.is_empty(), "ORDER BY"),
        (select.per_partition_limit.is_some(), "PER PARTITION LIMIT"),
        (select.allow_filtering, "ALLOW FILTERING"),
    ];
    found.into_iter().find(|(is_there, _)| *is_there).map(|(_, what)| what)
}

/// True if a term contains a function call.
fn has_call(term: &Term) -> bool {
    matches!(term, Term::Call { .. }) || term.parts().into_iter().any(has_call)
}

/// A comparison with its sides exchanged.
fn turned_round(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
        other => other,
    }
}

/// A column set to a reference, as a whole or in part, must not be set otherwise.
fn check_references(inner: &Inner) -> Result<(), SyntaxError> {
    let Statement::Mutation(Mutation::Update(update)) = &inner.statement else { return Ok(()) };
    let is_reference = |term: &Term| {
        let Term::Marker(index) = term else { return false };
        let marker = inner.markers.get(usize::from(*index));
        marker.is_some_and(|marker| matches!(marker.source, MarkerSource::Reference(_)))
    };
    let mut seen = HashMap::new();
    for Assignment { column, operation } in &update.assignments {
        let (Operation::Set(value)
        | Operation::Add(value)
        | Operation::Subtract(value)
        | Operation::Prepend(value)
        | Operation::SetElement(_, value)
        | Operation::SetField(_, value)) = operation;
        let refers = is_reference(value);
        if seen.insert(column.as_str(), refers).is_some_and(|before| before || refers) {
            return Err(SyntaxError::unplaced(format!(
                "Normal and reference operations for {column}"
            )));
        }
    }
    Ok(())
}

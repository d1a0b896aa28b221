//! A transaction's plan: what is read, what is decided by it, and what is written, for any bind values.
//!
//! 1. [`Outline`]: the text is read, and the tables in it are named.
//! 2. [`Draft`]: with the tables, the statements are checked, and there are texts for nodes to prepare.
//! 3. [`Plan`]: with what nodes say of their markers and columns, it can be carried out.
//!
//! Everything here is free of I/O. What must never be: a write that gives another result when it is made again, for a recovery
//! makes it again; a partition that is read or written and not locked.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use shunt_language::ast::{
    Deletion, LiteralKind, Mutation, NativeType, Operation, QualifiedName, Relation, SelectClause, Selector, Statement,
    Term, quoted_name,
};
use shunt_language::functions;
use shunt_language::terms::{self, Prepared, Scope};
use shunt_language::transaction::{
    self, ComputedMarker, Inner, MarkerPlace, MarkerSource, OneRow, PreparedCondition, PreparedReference,
    PreparedSelfAssignment, Reference, Returned, SelfAssignment, Transaction,
};
use shunt_language::{CqlType, InvalidRequest, Refusal};
use shunt_transactions::Partition;
use shunt_wire::cql::message::{Prepared as Answer, Rows};
use shunt_wire::cql::statement;
use shunt_wire::cql::types as wire;

use super::schema::{Several, Table};

/// A text that was read, and the tables in it.
#[derive(Debug)]
pub(super) struct Outline {
    pub(super) text: Arc<str>,
    /// Of names without one; empty: none.
    pub(super) keyspace: Arc<str>,
    pub(super) transaction: Transaction,
    /// The keyspace of all tables: the domain in which transactions exclude each other.
    pub(super) domain: String,
    /// Names of the tables in it, each once, and whether the transaction writes to it.
    pub(super) tables: Vec<(String, bool)>,
}

/// References to rows in one transaction, and its bind markers: each is looked for among what is read.
const REFERENCES_MAX: usize = 1_000;
const MARKERS_MAX: usize = 4_096;

fn table_of(inner: &Inner) -> Option<&QualifiedName> {
    match &inner.statement {
        Statement::Select(select) => Some(&select.table),
        Statement::Mutation(mutation) => Some(mutation.table()),
        _ => None,
    }
}

impl Outline {
    /// Reads a text. `keyspace`: that of the session, empty if it has none.
    pub(super) fn read(text: &str, keyspace: &str) -> Result<Outline, Refusal> {
        let transaction = transaction::parse(text)?;
        let (references, markers) = (transaction.references().count(), transaction.markers.len());
        if references > REFERENCES_MAX || markers > MARKERS_MAX {
            return Err(Refusal::from(InvalidRequest::new(format!(
                "a transaction has {references} references to rows and {markers} bind markers: {REFERENCES_MAX} and {MARKERS_MAX} are \
                 the most"
            ))));
        }
        let (mut domain, mut tables): (Option<&str>, Vec<(String, bool)>) = (None, Vec::new());
        for (index, inner) in transaction.statements.iter().enumerate() {
            let at = |problem: &str| {
                Refusal::from(InvalidRequest::new(format!("{}: {problem}", transaction.name_of(index, text))))
            };
            let Some(table) = table_of(inner) else { continue };
            let named = table.keyspace.as_deref().unwrap_or(keyspace);
            if named.is_empty() {
                return Err(at(
                    "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename",
                ));
            }
            if *domain.get_or_insert(named) != named {
                return Err(at(
                    "the tables of a transaction are of one keyspace: one proxy decides all transactions of a keyspace",
                ));
            }
            let writes = matches!(inner.statement, Statement::Mutation(_));
            match tables.iter_mut().find(|(known, _)| *known == table.name) {
                Some((_, is_written)) => *is_written |= writes,
                None => tables.push((table.name.clone(), writes)),
            }
        }
        let domain = domain.unwrap_or_default().to_owned();
        Ok(Outline { text: text.into(), keyspace: keyspace.into(), transaction, domain, tables })
    }
}

/// The text with its table's keyspace in it: whoever executes it, in whichever session, means the same table.
fn qualified(text: &str, name: &QualifiedName, table: &Table) -> Result<Arc<str>, InvalidRequest> {
    if name.keyspace.is_some() {
        return Ok(text.into());
    }
    let parsed = statement::classify(text);
    let place = parsed.table.filter(|found| parsed.keyspace.is_none() && found.matches(&table.name));
    let place = place.and_then(|found| found.place_in(text));
    let Some((before, after)) = place.and_then(|place| text.split_at_checked(place)) else {
        let (keyspace, name) = (quoted_name(&table.keyspace), quoted_name(&table.name));
        return Err(InvalidRequest::new(format!("name the table with its keyspace here: {keyspace}.{name}")));
    };
    Ok(format!("{before}{}.{after}", quoted_name(&table.keyspace)).into())
}

/// A statement by itself.
#[derive(Debug)]
pub(super) struct Standalone {
    pub(super) text: Arc<str>,
    /// The value of each marker.
    values: Vec<Source>,
}

/// Where the value of a marker comes from.
#[derive(Clone, Debug)]
enum Source {
    /// The client's, by its index.
    Client(u16),
    /// What a row that was read has; an index in [`Draft::references`].
    Reference(usize),
    /// It is computed from the row that is written; an index in [`Draft::computed`].
    Computed(usize),
    /// A column of the key of a statement.
    Key { statement: usize, part: usize },
}

/// A statement's row, or partition.
#[derive(Debug)]
struct Key {
    table: Arc<Table>,
    /// Of the partition, then of the clustering as far as it is given.
    parts: Vec<Prepared>,
}

/// `a = a + x`, and where `a` was read.
#[derive(Debug)]
struct Computed {
    assignment: PreparedSelfAssignment,
    statement: usize,
    read: usize,
    column: usize,
}

/// A reference, and where it was read.
#[derive(Debug)]
struct Referred {
    reference: PreparedReference,
    read: usize,
    column: Place,
}

/// Where a column is in what was read.
#[derive(Clone, Debug)]
enum Place {
    /// By its name, for `SELECT *`.
    Named(String),
    At(usize),
}

/// A plan without what nodes know of it.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) outline: Outline,
    one_row: Vec<OneRow>,
    /// First those of `LET`, then the one that is returned, then one for each write that computes something from its row.
    pub(super) reads: Vec<Standalone>,
    pub(super) writes: Vec<Standalone>,
    keys: Vec<Key>,
    /// Of each statement, the values of its markers.
    sources: Vec<Vec<Source>>,
    references: Vec<Referred>,
    computed: Vec<Computed>,
    conditions: Vec<(PreparedCondition, usize, Option<Place>)>,
    returned: Vec<usize>,
    /// Names and types of the client's markers, as far as no node is asked for them.
    known_markers: Vec<Option<(String, CqlType)>>,
}

/// A column or marker, as a node tells of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shown {
    pub(super) name: Box<str>,
    pub(super) type_option: Box<[u8]>,
}

/// What a node says of a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ShownText {
    markers: Vec<Shown>,
    columns: Vec<Shown>,
}

impl ShownText {
    pub(super) fn of(prepared: &Answer<'_>) -> ShownText {
        let markers = prepared
            .bind
            .markers()
            .map(|marker| Shown { name: marker.name.into(), type_option: marker.type_option.into() });
        let columns = prepared
            .result
            .columns()
            .map(|column| Shown { name: column.name.into(), type_option: column.type_option.into() });
        ShownText { markers: markers.collect(), columns: columns.collect() }
    }
}

/// A transaction that can be carried out.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) draft: Draft,
    /// The client's markers.
    pub(super) markers: Vec<Shown>,
    /// Columns of what it answers; none if it answers no rows.
    pub(super) columns: Vec<Shown>,
    /// The columns of each read.
    read_columns: Vec<Vec<Shown>>,
    /// Of each write, names and types of its markers.
    write_markers: Vec<Vec<(Box<str>, CqlType)>>,
}

fn at(transaction: &Transaction, statement: usize, text: &str, error: InvalidRequest) -> InvalidRequest {
    InvalidRequest::new(format!("{}: {}", transaction.name_of(statement, text), error.message))
}

impl Draft {
    /// `now_ms`: milliseconds since 1970, for the literal `'now'`.
    pub(super) fn new(outline: Outline, tables: &[Arc<Table>], now_ms: i64) -> Result<Draft, InvalidRequest> {
        let several = Several { keyspace: &outline.keyspace, tables };
        let one_row = outline.transaction.check(&outline.text, &several)?;
        let mut drafting = Drafting {
            text: &outline.text,
            transaction: &outline.transaction,
            tables: &several,
            now_ms,
            reads: Vec::new(),
            writes: Vec::new(),
            keys: Vec::new(),
            sources: Vec::new(),
            references: Vec::new(),
            computed: Vec::new(),
            known: vec![None; outline.transaction.markers.len()],
        };
        for (index, inner) in outline.transaction.statements.iter().enumerate() {
            drafting.statement(index, inner).map_err(|error| at(&outline.transaction, index, &outline.text, error))?;
        }
        let conditions = drafting.conditions()?;
        let returned = drafting.returned()?;
        let Drafting { reads, writes, keys, sources, references, computed, known: known_markers, .. } = drafting;
        Ok(Draft {
            outline,
            one_row,
            reads,
            writes,
            keys,
            sources,
            references,
            computed,
            conditions,
            returned,
            known_markers,
        })
    }

    /// The texts that nodes are to prepare, in the order in which [`Plan::new`] takes what they say.
    pub(super) fn texts(&self) -> impl Iterator<Item = &Arc<str>> {
        self.reads.iter().chain(&self.writes).map(|standalone| &standalone.text)
    }

    /// The statement of a read or write, as messages name it; `index` as in [`Draft::texts`].
    pub(super) fn name_of(&self, index: usize) -> String {
        let transaction = &self.outline.transaction;
        let first_write = transaction.statements.len() - transaction.mutations().len();
        let statement = match index.checked_sub(self.reads.len()) {
            Some(write) => first_write + write,
            None => index.min(first_write.saturating_sub(1)),
        };
        transaction.name_of(statement, &self.outline.text)
    }
}

struct Drafting<'a> {
    text: &'a str,
    transaction: &'a Transaction,
    tables: &'a Several<'a>,
    now_ms: i64,
    reads: Vec<Standalone>,
    writes: Vec<Standalone>,
    keys: Vec<Key>,
    sources: Vec<Vec<Source>>,
    references: Vec<Referred>,
    computed: Vec<Computed>,
    known: Vec<Option<(String, CqlType)>>,
}

impl<'a> Drafting<'a> {
    fn statement(&mut self, index: usize, inner: &Inner) -> Result<(), InvalidRequest> {
        let Some((name, table)) = table_of(inner).and_then(|name| Some((name, Arc::clone(self.tables.find(name)?))))
        else {
            return Ok(());
        };
        if let Some(why) = &table.unfit {
            return Err(InvalidRequest::new(format!(
                "table {}.{} cannot be in a transaction: {why}",
                table.keyspace, table.name
            )));
        }
        let sources = inner.markers.iter().map(|marker| self.source(&marker.source)).collect::<Result<Vec<_>, _>>()?;
        self.key(inner, &table)?;
        match &inner.statement {
            Statement::Mutation(mutation) => {
                check_repeatable(mutation, inner, &table)?;
                self.check_references(mutation, &sources, &table)?;
                self.write(index, inner, &sources, (name, &table))?;
            }
            _ => {
                if let Statement::Select(select) = &inner.statement
                    && let SelectClause::Items(items) = &select.clause
                    && !items.iter().all(|item| selects_native(&item.selector))
                {
                    return Err(InvalidRequest::new(
                        "functions that users have defined are not taken in a transaction",
                    ));
                }
                if sources.iter().any(|source| matches!(source, Source::Reference(_))) {
                    return Err(InvalidRequest::new("what is read cannot refer to another row that is read"));
                }
                let text = qualified(&inner.standalone(self.text), name, &table)?;
                self.reads.push(Standalone { text, values: sources.clone() });
            }
        }
        self.sources.push(sources);
        Ok(())
    }

    /// Checks that a row's value can be that of the column which it is written to.
    fn check_references(&self, mutation: &Mutation, sources: &[Source], table: &Table) -> Result<(), InvalidRequest> {
        let check = |column: &str, term: &Term| {
            let Term::Marker(place) = term else { return Ok(()) };
            let (Some(Source::Reference(reference)), Some(cql_type)) =
                (sources.get(usize::from(*place)), table.column(column))
            else {
                return Ok(());
            };
            self.references[*reference].reference.check_for(column, cql_type)
        };
        match mutation {
            Mutation::Insert(insert) => {
                insert.columns.iter().zip(&insert.values).try_for_each(|(column, value)| check(column, value))
            }
            Mutation::Update(update) => {
                update.assignments.iter().try_for_each(|assignment| match &assignment.operation {
                    Operation::Set(value) | Operation::Add(value) | Operation::Subtract(value) => {
                        check(&assignment.column, value)
                    }
                    Operation::Prepend(_) | Operation::SetElement(..) | Operation::SetField(..) => Ok(()),
                })
            }
            Mutation::InsertJson(_) | Mutation::Delete(_) => Ok(()),
        }
    }

    /// The key of a statement: of its partition, and the rest as far as it is given.
    fn key(&mut self, inner: &Inner, table: &Arc<Table>) -> Result<(), InvalidRequest> {
        let mut scope = Scope::new(&table.types, None, self.now_ms, inner.markers.len());
        let mut parts = Vec::new();
        for (place, column) in table.partition_key.iter().chain(&table.clustering).enumerate() {
            let term = match key_term(&inner.statement, column) {
                Some(term) => term,
                None if place < table.partition_key.len() => {
                    let why = format!(
                        "its partition key is not known before it is executed: name {column} by =, with one value"
                    );
                    return Err(InvalidRequest::new(why));
                }
                None => break,
            };
            let cql_type =
                table.column(column).ok_or_else(|| InvalidRequest::new(format!("Undefined column name {column}")))?;
            check_term(column, term, Some(cql_type))?;
            let part = terms::prepare(term, column, cql_type, &mut scope)?;
            if !part.is_pure() {
                let why = format!("the value of {column} must be known before the transaction is executed: bind it");
                return Err(InvalidRequest::new(why));
            }
            parts.push(part);
        }
        self.keys.push(Key { table: Arc::clone(table), parts });
        Ok(())
    }

    fn write(
        &mut self,
        statement: usize,
        inner: &Inner,
        sources: &[Source],
        (name, table): (&QualifiedName, &Arc<Table>),
    ) -> Result<(), InvalidRequest> {
        let column_type =
            |name: &str| table.column(name).ok_or_else(|| InvalidRequest::new(format!("Undefined column name {name}")));
        inner.self_assignments.iter().try_for_each(|assignment| column_type(&assignment.column).map(drop))?;
        let is_computed = |assignment: &SelfAssignment| {
            table.column(&assignment.column).is_some_and(|cql_type| assignment.is_computed(cql_type))
        };
        let standalone = inner.computed(self.text, is_computed)?;
        let (read, mut columns) = (self.reads.len(), Vec::new());
        let mut values = Vec::with_capacity(standalone.markers.len());
        for marker in &standalone.markers {
            values.push(match *marker {
                ComputedMarker::Same(place) => sources.get(place).cloned().ok_or_else(unrepeatable)?,
                ComputedMarker::SelfAssignment(place) => {
                    let assignment = &inner.self_assignments[place];
                    let mut scope = Scope::new(&table.types, None, self.now_ms, inner.markers.len());
                    let prepared = assignment.prepare(column_type(&assignment.column)?, &mut scope)?;
                    self.note(inner, &scope);
                    self.computed.push(Computed { assignment: prepared, statement, read, column: columns.len() });
                    columns.push(quoted_name(&assignment.column));
                    Source::Computed(self.computed.len() - 1)
                }
                ComputedMarker::Call(_) => return Err(unrepeatable()),
            });
        }
        // What is computed needs the row as it is.
        if !columns.is_empty() {
            let given = self.keys[statement].parts.len();
            let key = table.partition_key.iter().chain(&table.clustering).take(given);
            let key: Vec<String> = key.map(|column| format!("{} = ?", quoted_name(column))).collect();
            let (keyspace, table) = (quoted_name(&table.keyspace), quoted_name(&table.name));
            let text = format!("SELECT {} FROM {keyspace}.{table} WHERE {}", columns.join(", "), key.join(" AND "));
            let values = (0..given).map(|part| Source::Key { statement, part }).collect();
            self.reads.push(Standalone { text: text.into(), values });
        }
        self.writes.push(Standalone { text: qualified(&standalone.text, name, table)?, values });
        Ok(())
    }

    /// Types of the client's markers in terms that were prepared here.
    fn note(&mut self, inner: &Inner, scope: &Scope<'_>) {
        for (marker, known) in inner.markers.iter().zip(&scope.markers) {
            if let (MarkerSource::Client(client), Some(known)) = (&marker.source, known) {
                self.known[usize::from(*client)] = Some(known.clone());
            }
        }
    }

    fn source(&mut self, source: &MarkerSource) -> Result<Source, InvalidRequest> {
        Ok(match source {
            MarkerSource::Client(client) => Source::Client(*client),
            MarkerSource::Reference(reference) => Source::Reference(self.reference(reference)?),
        })
    }

    /// Prepares a reference; its place in [`Draft::references`].
    fn reference(&mut self, reference: &Reference) -> Result<usize, InvalidRequest> {
        let (read, place, cql_type) = self.column(reference)?;
        let Some((place, cql_type)) = place.zip(cql_type) else {
            return Err(InvalidRequest::new(format!("{} is a row, and no value", reference.row)));
        };
        let tables = self.tables;
        let table = self.transaction.table(reference).and_then(|name| tables.find(name));
        let none = ();
        let types: &dyn shunt_language::types::TypeLookup = table.map_or(&none, |table| &table.types);
        let mut scope = Scope::new(types, None, self.now_ms, self.known.len());
        let prepared = reference.prepare(&cql_type, &mut scope)?;
        self.learn(&scope);
        self.references.push(Referred { reference: prepared, read, column: place });
        Ok(self.references.len() - 1)
    }

    /// Types of the client's markers in a term that is the transaction's own.
    fn learn(&mut self, scope: &Scope<'_>) {
        for (known, found) in self.known.iter_mut().zip(&scope.markers) {
            if found.is_some() {
                known.clone_from(found);
            }
        }
    }

    /// The read that a reference is to, and where the column is in it and of which type; none for a whole row.
    fn column(&self, reference: &Reference) -> Result<(usize, Option<Place>, Option<CqlType>), InvalidRequest> {
        let read = self.transaction.row(reference).unwrap_or_default();
        let Some(column) = &reference.column else { return Ok((read, None, None)) };
        let table = self.transaction.table(reference).and_then(|name| self.tables.find(name));
        let cql_type = table.and_then(|table| table.column(column)).cloned();
        let cql_type = cql_type.ok_or_else(|| self.transaction.unknown_column(reference, self.text))?;
        let place = match &self.transaction.statements[read].statement {
            Statement::Select(select) => match &select.clause {
                SelectClause::All => Place::Named(column.clone()),
                SelectClause::Items(items) => {
                    let is_it = |item: &shunt_language::ast::SelectedItem| matches!(&item.selector, Selector::Column(name) if name == column);
                    let found = items.iter().position(is_it);
                    Place::At(found.ok_or_else(|| self.transaction.unknown_column(reference, self.text))?)
                }
            },
            _ => return Err(self.transaction.unknown_column(reference, self.text)),
        };
        Ok((read, Some(place), Some(cql_type)))
    }

    fn conditions(&mut self) -> Result<Vec<(PreparedCondition, usize, Option<Place>)>, InvalidRequest> {
        let mut prepared = Vec::new();
        for condition in &self.transaction.conditions {
            let (read, place, cql_type) = self.column(&condition.reference)?;
            let tables = self.tables;
            let table = self.transaction.table(&condition.reference).and_then(|name| tables.find(name));
            let none = ();
            let types: &dyn shunt_language::types::TypeLookup = table.map_or(&none, |table| &table.types);
            let mut scope = Scope::new(types, None, self.now_ms, self.known.len());
            let one = condition.prepare(cql_type.as_ref(), &mut scope)?;
            self.learn(&scope);
            prepared.push((one, read, place));
        }
        Ok(prepared)
    }

    fn returned(&mut self) -> Result<Vec<usize>, InvalidRequest> {
        match &self.transaction.returned {
            Returned::References(references) => references.iter().map(|reference| self.reference(reference)).collect(),
            _ => Ok(Vec::new()),
        }
    }
}

/// The value that a statement gives a column of its key.
fn key_term<'s>(statement: &'s Statement, column: &str) -> Option<&'s Term> {
    let relations = match statement {
        Statement::Mutation(Mutation::Insert(insert)) => {
            let place = insert.columns.iter().position(|name| name == column)?;
            return insert.values.get(place);
        }
        Statement::Mutation(Mutation::Update(update)) => &update.relations,
        Statement::Mutation(Mutation::Delete(delete)) => &delete.relations,
        Statement::Select(select) => &select.relations,
        _ => return None,
    };
    let equal = shunt_language::ast::Comparison::Equal;
    relations.iter().find_map(|relation| match relation {
        Relation::Column { column: named, comparison, value } if named == column && *comparison == equal => Some(value),
        Relation::Tuple { columns, comparison, value: Term::Tuple(values) } if *comparison == equal => {
            values.get(columns.iter().position(|named| named == column)?)
        }
        _ => None,
    })
}

/// The terms of an assignment.
fn terms_of(operation: &Operation) -> impl Iterator<Item = &Term> {
    let (first, second) = match operation {
        Operation::Set(term) | Operation::Add(term) | Operation::Subtract(term) | Operation::Prepend(term) => {
            (term, None)
        }
        Operation::SetElement(key, term) => (key, Some(term)),
        Operation::SetField(_, term) => (term, None),
    };
    std::iter::once(first).chain(second)
}

/// Refuses a term that two nodes, or the same at another time, may take for different values: one with a function that users have defined, or
/// a time that does not say in which zone it is.
fn check_term(column: &str, term: &Term, cql_type: Option<&CqlType>) -> Result<(), InvalidRequest> {
    if !calls_native(term) {
        return Err(InvalidRequest::new(format!(
            "the value of {column} calls a function that users have defined, which is not taken in a transaction: its writes may be made \
             again, and would differ; bind the value"
        )));
    }
    if cql_type.is_some_and(has_timestamp) && !texts_in(term).iter().all(|text| names_zone(text)) {
        return Err(InvalidRequest::new(format!(
            "the time in the value of {column} says no time zone, and each node would take its own: say it, as in \
             '2024-01-31 12:00:00+0000', or bind the value"
        )));
    }
    Ok(())
}

fn parts_of(term: &Term) -> Vec<&Term> {
    match term {
        Term::Literal(_) | Term::Null | Term::Marker(_) => Vec::new(),
        Term::List(terms) | Term::Set(terms) | Term::Tuple(terms) => terms.iter().collect(),
        Term::Map(entries) => entries.iter().flat_map(|(key, value)| [key, value]).collect(),
        Term::Udt(fields) => fields.iter().map(|(_, term)| term).collect(),
        Term::Call { arguments, .. } => arguments.iter().collect(),
        Term::Hint(_, term) | Term::Cast(term, _) | Term::Negation(term) => vec![term],
        Term::Arithmetic { left, right, .. } => vec![left, right],
    }
}

fn calls_native(term: &Term) -> bool {
    let is_native = match term {
        Term::Call { name, .. } => {
            matches!(name.keyspace.as_deref(), None | Some("system")) && functions::is_native(&name.name)
        }
        _ => true,
    };
    is_native && parts_of(term).into_iter().all(calls_native)
}

/// True if what is selected is computed by functions that nodes have of themselves: others need rights that nobody asks for here.
fn selects_native(selector: &Selector) -> bool {
    match selector {
        Selector::Column(_) | Selector::CountRows => true,
        Selector::Term(term) => calls_native(term),
        Selector::Call { name, arguments } => {
            let is_native =
                matches!(name.keyspace.as_deref(), None | Some("system")) && functions::is_native(&name.name);
            is_native && arguments.iter().all(selects_native)
        }
        Selector::Metadata(_, of)
        | Selector::Cast(of, _)
        | Selector::Field(of, _)
        | Selector::Element(of, _)
        | Selector::Slice(of, _, _)
        | Selector::Hint(_, of)
        | Selector::Negation(of) => selects_native(of),
        Selector::Tuple(of) | Selector::List(of) | Selector::Set(of) => of.iter().all(selects_native),
        Selector::Map(entries) => entries.iter().all(|(key, value)| selects_native(key) && selects_native(value)),
        Selector::Arithmetic { left, right, .. } => selects_native(left) && selects_native(right),
    }
}

/// The strings in a term.
fn texts_in(term: &Term) -> Vec<&str> {
    match term {
        Term::Literal(literal) if literal.kind == LiteralKind::String => vec![&literal.text],
        _ => parts_of(term).into_iter().flat_map(texts_in).collect(),
    }
}

/// True if a time says in which zone it is, or a text is none: `'now'` is one that says nothing.
fn names_zone(text: &str) -> bool {
    let is_a_time = text.eq_ignore_ascii_case("now") || text.starts_with(|first: char| first.is_ascii_digit());
    let zone = text.rsplit(['+', '-']).next().unwrap_or_default();
    let is_offset =
        zone.len() >= 4 && zone.len() < text.len() && zone.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
    !is_a_time || text.ends_with(['Z', 'z']) || text.contains(':') && is_offset
}

fn has_timestamp(cql_type: &CqlType) -> bool {
    match cql_type {
        CqlType::Native(native) => *native == NativeType::Timestamp,
        CqlType::List { element, .. } | CqlType::Set { element, .. } | CqlType::Vector { element, .. } => {
            has_timestamp(element)
        }
        CqlType::Map { key, value, .. } => has_timestamp(key) || has_timestamp(value),
        CqlType::Tuple(elements) => elements.iter().any(has_timestamp),
        CqlType::Udt { definition, .. } => definition.fields.iter().any(|(_, field)| has_timestamp(field)),
        CqlType::Custom(_) => false,
    }
}

fn unrepeatable() -> InvalidRequest {
    InvalidRequest::new(
        "now(), uuid() and the like are not taken in a transaction: its writes may be made again, and would differ; bind the value",
    )
}

/// Refuses what would give another result if it were made again.
fn check_repeatable(mutation: &Mutation, inner: &Inner, table: &Table) -> Result<(), InvalidRequest> {
    if inner.calls.iter().any(|call| !call.is_pure()) {
        return Err(unrepeatable());
    }
    let terms: Vec<(&str, &Term)> = match mutation {
        Mutation::Insert(insert) => insert.columns.iter().map(String::as_str).zip(&insert.values).collect(),
        Mutation::Update(update) => update
            .assignments
            .iter()
            .flat_map(|one| terms_of(&one.operation).map(|term| (one.column.as_str(), term)))
            .collect(),
        Mutation::Delete(_) | Mutation::InsertJson(_) => Vec::new(),
    };
    for (column, term) in terms {
        check_term(column, term, table.column(column))?;
    }
    let columns: Vec<&str> = match mutation {
        Mutation::Insert(insert) => insert.columns.iter().map(String::as_str).collect(),
        Mutation::Update(update) => update.assignments.iter().map(|assignment| assignment.column.as_str()).collect(),
        Mutation::Delete(delete) => {
            let elements = delete.deletions.iter().filter_map(|deletion| match deletion {
                Deletion::Element(column, _) => Some(column.as_str()),
                _ => None,
            });
            elements.collect()
        }
        Mutation::InsertJson(_) => Vec::new(),
    };
    let is_list = |name: &&&str| matches!(table.column(name), Some(CqlType::List { frozen: false, .. }));
    if let Some(column) = columns.iter().find(is_list) {
        return Err(InvalidRequest::new(format!(
            "column {column} is a list that is not frozen: nodes name its elements anew each time they are written, and the writes \
             of a transaction may be made again; use frozen<list<..>>, a set or a map"
        )));
    }
    if let Mutation::Update(update) = mutation
        && update.assignments.iter().any(|assignment| matches!(assignment.operation, Operation::Prepend(_)))
    {
        return Err(unrepeatable());
    }
    Ok(())
}

impl Plan {
    /// `shown`: what nodes say of each of [`Draft::texts`].
    pub(super) fn new(draft: Draft, shown: &[ShownText]) -> Result<Plan, InvalidRequest> {
        let transaction = &draft.outline.transaction;
        let unknown = |what: &str| InvalidRequest::new(format!("a node does not say of which type {what} is"));
        let mut markers = Vec::with_capacity(transaction.markers.len());
        for (index, marker) in transaction.markers.iter().enumerate() {
            let mut found = None;
            if let MarkerPlace::Statement { .. } = marker.place {
                let all = draft.reads.iter().chain(&draft.writes).zip(shown);
                found = all
                    .flat_map(|(standalone, shown)| standalone.values.iter().zip(&shown.markers))
                    .find(|(source, _)| matches!(source, Source::Client(client) if usize::from(*client) == index))
                    .map(|(_, shown)| shown.clone());
            }
            let known = || {
                let (name, cql_type) = draft.known_markers[index].as_ref()?;
                let mut type_option = Vec::new();
                cql_type.write_option(super::VERSION, &mut type_option);
                Some(Shown { name: name.as_str().into(), type_option: type_option.into() })
            };
            let mut shown = found.or_else(known).ok_or_else(|| unknown("a bind marker"))?;
            if let Some(name) = &marker.name {
                shown.name = name.as_str().into();
            }
            markers.push(shown);
        }
        let read_columns = shown.iter().take(draft.reads.len()).map(|shown| shown.columns.clone()).collect();
        let write_markers = shown.iter().skip(draft.reads.len()).map(|shown| {
            let typed = shown.markers.iter().map(|marker| {
                let found = wire::CqlType::decode(&mut &*marker.type_option);
                let cql_type = found.map_or_else(|| CqlType::Custom("".into()), |found| CqlType::from_wire(&found));
                (marker.name.clone(), cql_type)
            });
            typed.collect()
        });
        let write_markers = write_markers.collect();
        let columns = match &transaction.returned {
            Returned::Nothing => Vec::new(),
            Returned::Select => {
                shown.get(transaction.lets.len()).map(|shown| shown.columns.clone()).unwrap_or_default()
            }
            Returned::References(references) => {
                let typed = references.iter().zip(&draft.returned).map(|(reference, place)| {
                    let mut type_option = Vec::new();
                    draft.references[*place].reference.value_type().write_option(super::VERSION, &mut type_option);
                    let text = draft.outline.text.get(reference.range.clone()).unwrap_or_default();
                    Shown { name: text.into(), type_option: type_option.into() }
                });
                typed.collect()
            }
        };
        Ok(Plan { draft, markers, columns, read_columns, write_markers })
    }

    /// True if the columns of a read are those that it was planned with: the table may be another by now.
    pub(super) fn has_columns(&self, read: usize, rows: &Rows<'_>) -> bool {
        let planned = self.read_columns.get(read).map(Vec::as_slice).unwrap_or_default();
        let found = rows.metadata.columns().map(|column| (column.name, column.type_option));
        found.eq(planned.iter().map(|column| (&*column.name, &*column.type_option)))
    }

    /// True of the read whose rows are returned as they are.
    pub(super) fn is_returned(&self, read: usize) -> bool {
        let transaction = &self.draft.outline.transaction;
        transaction.returns_rows() && read == transaction.lets.len()
    }

    /// Rows that a read may find.
    pub(super) fn rows_max(&self, read: usize) -> i32 {
        if self.is_returned(read) { transaction::ROWS_MAX as i32 } else { 1 }
    }

    /// Keyspace and table that metadata names.
    pub(super) fn names(&self) -> (&str, &str) {
        let outline = &self.draft.outline;
        (&outline.domain, outline.tables.first().map_or("", |(name, _)| name))
    }
}

/// The hash of a partition.
pub(super) fn partition(table: &Table, parts: &[Vec<u8>]) -> Partition {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        // By its names: one plan may know a table that was dropped, and another the one that was made in its place.
        (&table.keyspace, &table.name).hash(&mut hasher);
        parts.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    Partition(half(0) << 64 | half(1))
}

mod carry_out;
#[cfg(test)]
mod tests;

pub(super) use carry_out::{Decided, RowRead, push};

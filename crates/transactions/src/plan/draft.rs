//! Statements are checked against their tables and split into reads and writes.

use std::sync::Arc;

use shunt_language::ast::{
    Comparison, Mutation, Operation, QualifiedName, Relation, SelectClause, SelectedItem, Selector,
    Statement, Term,
};
use shunt_language::terms::{self, Prepared, Scope};
use shunt_language::transaction::{
    ComputedMarker, Inner, MarkerSource, PreparedCondition, Reference, Returned, SelfAssignment,
    Test, Transaction, ValuePart,
};
use shunt_language::types::TypeLookup;
use shunt_language::{CqlType, InvalidRequest};

use super::calls::{CallValue, place_in_key};
use super::conditional::ConditionalPlan;
use super::outline::{qualified, table_of};
use super::parts::{Computed, Key, Place, ReferenceRead, Source, Standalone};
use super::repeatable::{
    check_literals, check_native, check_pure, check_repeatable, check_select, unrepeatable,
};
use super::row_reads::StaticRead;
use crate::plan::schema::{Several, Table};

/// A draft in the making.
pub(super) struct Drafting<'a> {
    pub(super) text: &'a str,
    pub(super) transaction: &'a Transaction,
    pub(super) tables: &'a Several<'a>,
    pub(super) now_ms: i64,
    pub(super) reads: Vec<Standalone>,
    pub(super) writes: Vec<Standalone>,
    pub(super) keys: Vec<Key>,
    pub(super) sources: Vec<Vec<Source>>,
    pub(super) references: Vec<ReferenceRead>,
    pub(super) computed: Vec<Computed>,
    pub(super) called: Vec<CallValue>,
    pub(super) static_reads: Vec<StaticRead>,
    pub(super) known: Vec<Option<(String, CqlType)>>,
    pub(super) is_conditional: bool,
    pub(super) conditional: Option<ConditionalPlan>,
}

impl<'a> Drafting<'a> {
    pub(super) fn statement(&mut self, index: usize, inner: &Inner) -> Result<(), InvalidRequest> {
        let Some((name, table)) =
            table_of(inner).and_then(|name| Some((name, Arc::clone(self.tables.find(name)?))))
        else {
            return Ok(());
        };
        if let Some(why) = &table.unfit {
            return Err(InvalidRequest::new(format!(
                "table {}.{} cannot be in a transaction: {why}",
                table.keyspace, table.name
            )));
        }
        if self.is_conditional {
            self.conditional = Some(self.conditional(inner, name, &table)?);
            return Ok(());
        }
        let mut sources = inner
            .markers
            .iter()
            .map(|marker| self.source(&marker.source))
            .collect::<Result<Vec<_>, _>>()?;
        self.key(inner, &table)?;
        match &inner.statement {
            Statement::Mutation(mutation) => {
                if let Some(why) = table.retention.refusal() {
                    let (keyspace, name) = (&table.keyspace, &table.name);
                    return Err(InvalidRequest::new(format!(
                        "no transaction may write to table {keyspace}.{name}: {why}"
                    )));
                }
                check_repeatable(mutation, inner, &table)?;
                self.calls((index, inner), mutation, &table, &mut sources)?;
                self.check_references(mutation, &sources, &table)?;
                self.write(index, inner, &sources, (name, &table))?;
            }
            _ => {
                if let Statement::Select(select) = &inner.statement {
                    check_select(select, inner, &table)?;
                }
                if sources.iter().any(|source| matches!(source, Source::Reference(_))) {
                    return Err(InvalidRequest::new(
                        "what is read cannot refer to another row that is read",
                    ));
                }
                let text = qualified(&inner.standalone(self.text), name, &table.keyspace)?;
                self.reads.push(Standalone { text, values: sources.clone() });
            }
        }
        self.sources.push(sources);
        Ok(())
    }

    /// Checks that a row's value fits the column that it is written to.
    fn check_references(
        &self,
        mutation: &Mutation,
        sources: &[Source],
        table: &Table,
    ) -> Result<(), InvalidRequest> {
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
            Mutation::Insert(insert) => insert
                .columns
                .iter()
                .zip(&insert.values)
                .try_for_each(|(column, value)| check(column, value)),
            Mutation::Update(update) => {
                update.assignments.iter().try_for_each(|assignment| match &assignment.operation {
                    Operation::Set(value) | Operation::Add(value) | Operation::Subtract(value) => {
                        check(&assignment.column, value)
                    }
                    Operation::Prepend(_) | Operation::SetElement(..) | Operation::SetField(..) => {
                        Ok(())
                    }
                })
            }
            Mutation::InsertJson(_) | Mutation::Delete(_) => Ok(()),
        }
    }

    /// The key of a statement: the partition key, and the clustering as far as it is given.
    pub(super) fn key(&mut self, inner: &Inner, table: &Arc<Table>) -> Result<(), InvalidRequest> {
        let mut scope = Scope::new(&table.types, None, self.now_ms, inner.markers.len());
        let mut parts = Vec::new();
        for (place, column) in table.partition_key.iter().chain(&table.clustering).enumerate() {
            let term = match key_term(&inner.statement, column) {
                Some(term) => term,
                None if place < table.partition_key.len() => {
                    let why = format!(
                        "the statement's partition is not known in advance: give {column} one value with ="
                    );
                    return Err(InvalidRequest::new(why));
                }
                None => break,
            };
            let cql_type = table
                .column(column)
                .ok_or_else(|| InvalidRequest::new(format!("Undefined column name {column}")))?;
            check_native(column, term)?;
            let part = terms::prepare(term, column, cql_type, &mut scope)?;
            check_literals(column, &scope)?;
            if part.is_pure() {
                parts.push(part);
                continue;
            }
            let place = match &inner.statement {
                Statement::Mutation(mutation) => place_in_key(mutation, column, inner),
                _ => None,
            };
            let index = place.and_then(|place| u16::try_from(place).ok()).ok_or_else(|| {
                let why = format!("the value of {column} must be known before the transaction is executed: bind it");
                InvalidRequest::new(why)
            })?;
            parts.push(Prepared::Marker { index, cql_type: cql_type.clone() });
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
        let column_type = |name: &str| {
            table
                .column(name)
                .ok_or_else(|| InvalidRequest::new(format!("Undefined column name {name}")))
        };
        inner
            .self_assignments
            .iter()
            .try_for_each(|assignment| column_type(&assignment.column).map(drop))?;
        let is_computed = |assignment: &SelfAssignment| {
            table
                .column(&assignment.column)
                .is_some_and(|cql_type| assignment.is_computed(cql_type))
        };
        let standalone = inner.computed(self.text, is_computed)?;
        // A computed value needs the current row, or the partition's static row.
        let is_static = |assignment: &SelfAssignment| table.is_static(&assignment.column);
        let reads_row = inner
            .self_assignments
            .iter()
            .any(|assignment| is_computed(assignment) && !is_static(assignment));
        let row_read = self.reads.len();
        let (mut of_row, mut statics) = (Vec::new(), Vec::new());
        let mut values = Vec::with_capacity(standalone.markers.len());
        for marker in &standalone.markers {
            values.push(match *marker {
                ComputedMarker::Same(place) => {
                    sources.get(place).cloned().ok_or_else(unrepeatable)?
                }
                ComputedMarker::SelfAssignment(place) => {
                    let assignment = &inner.self_assignments[place];
                    let mut scope =
                        Scope::new(&table.types, None, self.now_ms, inner.markers.len());
                    let prepared =
                        assignment.prepare(column_type(&assignment.column)?, &mut scope)?;
                    self.note(inner, &scope);
                    let (read, columns) = match is_static(assignment) {
                        true => (row_read + usize::from(reads_row), &mut statics),
                        false => (row_read, &mut of_row),
                    };
                    let column = columns.len();
                    columns.push(assignment.column.as_str());
                    self.computed.push(Computed { assignment: prepared, statement, read, column });
                    Source::Computed(self.computed.len() - 1)
                }
                ComputedMarker::Call(place) => {
                    let before =
                        inner.calls.iter().take(place).filter(|call| !call.is_pure()).count();
                    sources.get(inner.markers.len() + before).cloned().ok_or_else(unrepeatable)?
                }
            });
        }
        if !of_row.is_empty() {
            self.read_row(statement, &of_row)?;
        }
        if !statics.is_empty() {
            self.read_static_row(statement, &statics);
        }
        self.writes
            .push(Standalone { text: qualified(&standalone.text, name, &table.keyspace)?, values });
        Ok(())
    }

    /// Notes the types of the client's markers in terms that were prepared here.
    pub(super) fn note(&mut self, inner: &Inner, scope: &Scope<'_>) {
        for (marker, known) in inner.markers.iter().zip(&scope.markers) {
            if let (MarkerSource::Client(client), Some(known)) = (&marker.source, known) {
                self.known[usize::from(*client)] = Some(known.clone());
            }
        }
    }

    pub(super) fn source(&mut self, source: &MarkerSource) -> Result<Source, InvalidRequest> {
        Ok(match source {
            MarkerSource::Client(client) => Source::Client(*client),
            MarkerSource::Reference(reference) => Source::Reference(self.reference(reference)?),
        })
    }

    /// Prepares a reference. Returns its place in [`super::Draft`]'s references.
    fn reference(&mut self, reference: &Reference) -> Result<usize, InvalidRequest> {
        let (read, place, cql_type) = self.column(reference)?;
        check_pure(element_of(reference))?;
        let Some((place, cql_type)) = place.zip(cql_type) else {
            return Err(InvalidRequest::new(format!("{} is a row, and no value", reference.row)));
        };
        let tables = self.tables;
        let table = self.transaction.table(reference).and_then(|name| tables.find(name));
        let none = ();
        let types: &dyn TypeLookup = table.map_or(&none, |table| &table.types);
        let mut scope = Scope::new(types, None, self.now_ms, self.known.len());
        let prepared = reference.prepare(&cql_type, &mut scope)?;
        check_literals(reference.column.as_deref().unwrap_or_default(), &scope)?;
        self.learn(&scope);
        self.references.push(ReferenceRead { reference: prepared, read, column: place });
        Ok(self.references.len() - 1)
    }

    /// Notes the types of the client's markers in a term of the transaction itself.
    fn learn(&mut self, scope: &Scope<'_>) {
        for (known, found) in self.known.iter_mut().zip(&scope.markers) {
            if found.is_some() {
                known.clone_from(found);
            }
        }
    }

    /// The read that a reference names, with the column's place and type; none for a whole row.
    fn column(
        &mut self,
        reference: &Reference,
    ) -> Result<(usize, Option<Place>, Option<CqlType>), InvalidRequest> {
        let read = self.transaction.row(reference).unwrap_or_default();
        let Some(column) = &reference.column else { return Ok((read, None, None)) };
        let tables = self.tables;
        let table = self.transaction.table(reference).and_then(|name| tables.find(name));
        let found = table.and_then(|table| Some((table, table.column(column)?.clone())));
        let (table, cql_type) =
            found.ok_or_else(|| self.transaction.unknown_column(reference, self.text))?;
        let place = match &self.transaction.statements[read].statement {
            Statement::Select(select) => match &select.clause {
                SelectClause::All => Place::Named(column.clone()),
                SelectClause::Items(items) => {
                    let is_it = |item: &SelectedItem| matches!(&item.selector, Selector::Column(name) if name == column);
                    let found = items.iter().position(is_it);
                    Place::At(
                        found
                            .ok_or_else(|| self.transaction.unknown_column(reference, self.text))?,
                    )
                }
            },
            _ => return Err(self.transaction.unknown_column(reference, self.text)),
        };
        let (read, place) = self.static_column(read, column, table).unwrap_or((read, place));
        Ok((read, Some(place), Some(cql_type)))
    }

    pub(super) fn conditions(
        &mut self,
    ) -> Result<Vec<(PreparedCondition, usize, Option<Place>)>, InvalidRequest> {
        let mut prepared = Vec::new();
        for condition in &self.transaction.conditions {
            let (read, place, cql_type) = self.column(&condition.reference)?;
            let tables = self.tables;
            let table =
                self.transaction.table(&condition.reference).and_then(|name| tables.find(name));
            let none = ();
            let types: &dyn TypeLookup = table.map_or(&none, |table| &table.types);
            let compared =
                if let Test::Compare(_, term) = &condition.test { Some(term) } else { None };
            check_pure(element_of(&condition.reference).into_iter().chain(compared))?;
            let mut scope = Scope::new(types, None, self.now_ms, self.known.len());
            let one = condition.prepare(cql_type.as_ref(), &mut scope)?;
            check_literals(condition.reference.column.as_deref().unwrap_or_default(), &scope)?;
            self.learn(&scope);
            prepared.push((one, read, place));
        }
        Ok(prepared)
    }

    pub(super) fn returned(&mut self) -> Result<Vec<usize>, InvalidRequest> {
        match &self.transaction.returned {
            Returned::References(references) => {
                references.iter().map(|reference| self.reference(reference)).collect()
            }
            _ => Ok(Vec::new()),
        }
    }
}

/// The term in the brackets of a reference.
fn element_of(reference: &Reference) -> Option<&Term> {
    if let Some(ValuePart::Element(term)) = &reference.part { Some(term) } else { None }
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
    let equal = Comparison::Equal;
    relations.iter().find_map(|relation| match relation {
        Relation::Column { column: named, comparison, value }
            if named == column && *comparison == equal =>
        {
            Some(value)
        }
        Relation::Tuple { columns, comparison, value: Term::Tuple(values) }
            if *comparison == equal =>
        {
            values.get(columns.iter().position(|named| named == column)?)
        }
        _ => None,
    })
}

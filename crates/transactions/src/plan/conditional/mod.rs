//! A single statement on a table with the mode `conditional`: its read, its conditions, its change
//! and its answer.
//!
//! Nodes are sent the statement without its `IF`. If writes of unknown outcome may be outstanding
//! for the row, the statement goes in one batch behind statements that rewrite the row as it was
//! read: a late write then changes nothing, because its timestamp is earlier. If the conditions do
//! not hold, the row is rewritten all the same before the answer: otherwise the answer could report
//! a write that another, later write still undoes.

mod bind;

use std::collections::HashMap;
use std::sync::Arc;

use shunt_language::ast::{
    Conditions, Deletion, Mutation, Operation, QualifiedName, Statement, Term, quoted_name,
};
use shunt_language::conditions::PreparedColumnCondition;
use shunt_language::terms::{self, Prepared, Scope};
use shunt_language::transaction::{ComputedMarker, Inner};
use shunt_language::{CqlType, InvalidRequest};
use shunt_wire::cql::message::encode_result::native;

use crate::Partition;
use crate::plan::draft::Drafting;
use crate::plan::outline::qualified;
use crate::plan::parts::{ColumnSpec, Key, Source, Standalone, partition};
use crate::plan::repeatable::{check_literals, check_pure, check_repeatable, unrepeatable};
use crate::plan::schema::Table;

/// Timestamps that such a statement takes: one to rewrite its row, and its own.
pub const TIMESTAMPS: u16 = 2;
/// Bytes of a row that is rewritten, with its key for each column. Nodes accept messages of 16 MiB,
/// and the statement itself may have 3 of these.
const ANEW_BYTES_MAX: usize = 12 << 20;
/// Largest TTL in seconds, as Cassandra limits it.
const LIFE_MAX: i32 = 20 * 365 * 24 * 60 * 60;

/// A single statement.
#[derive(Debug)]
pub struct ConditionalPlan {
    /// The table's regular columns, in Cassandra's order.
    pub columns: Vec<(String, CqlType)>,
    /// Hash of the table's columns and their types.
    pub layout: u64,
    condition: Condition,
    time_to_live: Option<Prepared>,
    change: PreparedChange,
    /// Batches with the statement behind the rewritten row.
    anew: Anew,
    /// Batches that only rewrite the row.
    settle: Anew,
}

/// Conditions of the statement.
#[derive(Debug)]
enum Condition {
    None,
    NotExists,
    Exists,
    Columns(Vec<(usize, PreparedColumnCondition)>),
}

/// Change that the statement makes to its row.
#[derive(Debug)]
enum PreparedChange {
    Insert(Vec<(usize, Prepared)>),
    Update(Vec<(usize, Prepared)>),
    /// Deletes these columns.
    DeleteColumns(Vec<usize>),
    Delete,
    Truncate,
}

/// Batches that rewrite a row.
#[derive(Debug, Default)]
struct Anew {
    /// For a row that does not exist: it is deleted.
    absent: Arc<str>,
    /// For a row that exists: each column is written as it was read. How long the row lives without
    /// values is unknown, and stays as it is.
    present: Arc<str>,
}

/// The outcome of the conditions.
#[derive(Debug)]
pub enum Verdict {
    /// The statement is carried out.
    Write,
    /// The statement is refused, with these columns and values as the answer.
    Refuse(Vec<ColumnSpec>, Vec<Option<Vec<u8>>>),
}

impl ConditionalPlan {
    /// True of TRUNCATE.
    pub fn is_truncate(&self) -> bool {
        matches!(self.change, PreparedChange::Truncate)
    }

    /// Approximate size in memory.
    pub(super) fn bytes(&self) -> usize {
        [&self.anew, &self.settle]
            .into_iter()
            .map(|anew| anew.absent.len() + anew.present.len())
            .sum()
    }

    /// True if the answer says whether the statement was applied.
    pub fn is_conditional(&self) -> bool {
        !matches!(self.condition, Condition::None)
    }
}

impl Drafting<'_> {
    /// Drafts a single statement.
    pub(super) fn conditional(
        &mut self,
        inner: &Inner,
        name: &QualifiedName,
        table: &Arc<Table>,
    ) -> Result<ConditionalPlan, InvalidRequest> {
        if let Some(why) = table.unfit_for_conditional() {
            let (keyspace, name) = (&table.keyspace, &table.name);
            return Err(InvalidRequest::new(format!(
                "table {keyspace}.{name} cannot have transactional_mode = 'conditional': {why}"
            )));
        }
        let columns = table.regular();
        let mut conditional = ConditionalPlan {
            layout: table.layout(),
            columns,
            condition: Condition::None,
            time_to_live: None,
            change: PreparedChange::Truncate,
            anew: Anew::default(),
            settle: Anew::default(),
        };
        let full_name = format!("{}.{}", quoted_name(&table.keyspace), quoted_name(&table.name));
        let Statement::Mutation(mutation) = &inner.statement else {
            self.keys.push(Key { table: Arc::clone(table), parts: Vec::new() });
            self.sources.push(Vec::new());
            self.writes.push(Standalone {
                text: format!("TRUNCATE {full_name}").into(),
                values: Vec::new(),
            });
            return Ok(conditional);
        };
        if !inner.self_assignments.is_empty() {
            return Err(InvalidRequest::new(
                "only transactions compute a value from the row: the table's mode is 'conditional'",
            ));
        }
        let sources = inner
            .markers
            .iter()
            .map(|marker| self.source(&marker.source))
            .collect::<Result<Vec<_>, _>>()?;
        self.key(inner, table)?;
        if inner.calls.iter().any(|call| !call.is_pure()) {
            return Err(unrepeatable());
        }
        check_repeatable(mutation, inner, table)?;
        let mut scope = Scope::new(&table.types, None, self.now_ms, inner.markers.len());
        let columns = Columns::new(&conditional.columns);
        conditional.change = change(mutation, &columns, &mut scope)?;
        conditional.condition = condition(mutation, table, &columns, &mut scope)?;
        if let Some(term) = &mutation.attributes().time_to_live {
            let int = CqlType::from(shunt_language::ast::NativeType::Int);
            conditional.time_to_live = Some(terms::prepare(term, "[ttl]", &int, &mut scope)?);
        }
        self.note(inner, &scope);
        let standalone = inner.computed(self.text, |_| false)?;
        let values = standalone.markers.iter().map(|marker| match *marker {
            ComputedMarker::Same(place) => sources.get(place).cloned().ok_or_else(unrepeatable),
            ComputedMarker::SelfAssignment(_) | ComputedMarker::Call(_) => Err(unrepeatable()),
        });
        let values = values.collect::<Result<Vec<_>, _>>()?;
        let text = qualified(&standalone.text, name, &table.keyspace)?;
        let names =
            table.partition_key.iter().chain(&table.clustering).map(|column| quoted_name(column));
        let names: Vec<String> = names.collect();
        let key =
            names.iter().map(|column| format!("{column} = ?")).collect::<Vec<_>>().join(" AND ");
        conditional.anew = anew(&full_name, &key, &conditional.columns, &format!("{text};\n"));
        conditional.settle = anew(&full_name, &key, &conditional.columns, "");
        let read = read_text(&full_name, &key, &conditional.columns);
        let of_key = (0..names.len()).map(|part| Source::Key { statement: 0, part });
        self.reads.push(Standalone { text: read.into(), values: of_key.collect() });
        self.writes.push(Standalone { text, values });
        self.sources.push(sources);
        Ok(conditional)
    }
}

/// The statement that reads a row, with the TTL and timestamp of each column.
fn read_text(table: &str, key: &str, columns: &[(String, CqlType)]) -> String {
    let selected = columns.iter().map(|(column, _)| {
        let column = quoted_name(column);
        format!("{column}, TTL({column}), WRITETIME({column})")
    });
    format!("SELECT {} FROM {table} WHERE {key}", selected.collect::<Vec<_>>().join(", "))
}

fn anew(table: &str, key: &str, columns: &[(String, CqlType)], statement: &str) -> Anew {
    let delete = format!("DELETE FROM {table} USING TIMESTAMP ? WHERE {key};\n");
    let updates: String = columns
        .iter()
        .map(|(column, _)| {
            let column = quoted_name(column);
            format!("UPDATE {table} USING TIMESTAMP ? AND TTL ? SET {column} = ? WHERE {key};\n")
        })
        .collect();
    let batch = |part: &str| format!("BEGIN UNLOGGED BATCH\n{part}{statement}APPLY BATCH").into();
    Anew { absent: batch(&delete), present: batch(&updates) }
}

/// The table's regular columns. A statement may name thousands, so each is looked up.
struct Columns<'c> {
    all: &'c [(String, CqlType)],
    places: HashMap<&'c str, usize>,
}

impl<'c> Columns<'c> {
    fn new(all: &'c [(String, CqlType)]) -> Self {
        let places = all.iter().enumerate().map(|(place, (name, _))| (name.as_str(), place));
        Self { all, places: places.collect() }
    }

    /// The place and type of a column.
    fn find(&self, name: &str) -> Result<(usize, &'c CqlType), InvalidRequest> {
        let place = self.places.get(name).copied();
        let place =
            place.ok_or_else(|| InvalidRequest::new(format!("Undefined column name {name}")))?;
        Ok((place, &self.all[place].1))
    }
}

fn change(
    mutation: &Mutation,
    columns: &Columns<'_>,
    scope: &mut Scope<'_>,
) -> Result<PreparedChange, InvalidRequest> {
    let mut set = |name: &String, term: &Term| {
        let (place, cql_type) = columns.find(name)?;
        Ok((place, terms::prepare(term, name, cql_type, scope)?))
    };
    let refused = || {
        InvalidRequest::new(
            "only whole columns can be set and deleted: the table's mode is 'conditional'",
        )
    };
    Ok(match mutation {
        Mutation::Insert(insert) => {
            let given = insert.columns.iter().zip(&insert.values);
            let others = given.filter(|(name, _)| columns.places.contains_key(name.as_str()));
            PreparedChange::Insert(
                others.map(|(name, term)| set(name, term)).collect::<Result<_, _>>()?,
            )
        }
        Mutation::Update(update) => {
            let assigned =
                update.assignments.iter().map(|assignment| match &assignment.operation {
                    Operation::Set(term) => set(&assignment.column, term),
                    _ => Err(refused()),
                });
            PreparedChange::Update(assigned.collect::<Result<_, _>>()?)
        }
        Mutation::Delete(delete) if delete.deletions.is_empty() => PreparedChange::Delete,
        Mutation::Delete(delete) => {
            let deleted = delete.deletions.iter().map(|deletion| match deletion {
                Deletion::Column(name) => columns.find(name).map(|(place, _)| place),
                Deletion::Element(..) | Deletion::Field(..) => Err(refused()),
            });
            PreparedChange::DeleteColumns(deleted.collect::<Result<_, _>>()?)
        }
        Mutation::InsertJson(_) => return Err(refused()),
    })
}

fn condition(
    mutation: &Mutation,
    table: &Table,
    columns: &Columns<'_>,
    scope: &mut Scope<'_>,
) -> Result<Condition, InvalidRequest> {
    let conditions = match mutation {
        Mutation::Insert(insert) if insert.if_not_exists => return Ok(Condition::NotExists),
        Mutation::Update(update) => &update.conditions,
        Mutation::Delete(delete) => &delete.conditions,
        Mutation::Insert(_) | Mutation::InsertJson(_) => return Ok(Condition::None),
    };
    match conditions {
        Conditions::None => Ok(Condition::None),
        Conditions::Exists => Ok(Condition::Exists),
        Conditions::All(all) => {
            let prepared = all.iter().map(|condition| {
                let name = &condition.column;
                if table.partition_key.contains(name) || table.clustering.contains(name) {
                    return Err(InvalidRequest::new(format!(
                        "PRIMARY KEY column '{name}' cannot have IF conditions"
                    )));
                }
                check_pure(condition.element.iter().chain(&condition.values))?;
                let (place, cql_type) = columns.find(name)?;
                let prepared = condition.prepare(cql_type, scope)?;
                check_literals(name, scope)?;
                Ok((place, prepared))
            });
            Ok(Condition::Columns(prepared.collect::<Result<_, _>>()?))
        }
    }
}

/// A column of an answer, for a client of this protocol version.
fn column_spec(name: &str, cql_type: &CqlType, version: u8) -> ColumnSpec {
    ColumnSpec { name: name.into(), type_option: cql_type.option(version).into() }
}

/// The first column of an answer.
fn applied() -> ColumnSpec {
    ColumnSpec { name: "[applied]".into(), type_option: native::BOOLEAN.into() }
}

/// The answer to a statement that was applied.
pub fn when_applied() -> (Vec<ColumnSpec>, Vec<Option<Vec<u8>>>) {
    (vec![applied()], vec![Some(vec![1])])
}

/// The lock of a whole table.
pub fn whole(keyspace: &str, table: &str) -> Partition {
    partition(keyspace, table, &[])
}

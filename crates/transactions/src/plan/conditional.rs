//! A single statement on a table with the mode `conditional`: what is read for it, when it holds,
//! what it changes, and what it answers.
//!
//! The statement itself goes to nodes without its `IF`. Where the row may have writes on their way
//! to it of which nobody has heard, it goes in one batch, behind statements that make the row anew
//! as it was read: what comes late then changes nothing, for it has an earlier timestamp. If its
//! conditions do not hold, the row is made anew all the same before that is told: else it could be
//! told of a write that another, later one, which is still on its way, makes undone.

use std::sync::Arc;

use crate::{Mode, Partition};
use shunt_language::ast::{
    Conditions, Deletion, Mutation, Operation, QualifiedName, Statement, Term, quoted_name,
};
use shunt_language::conditions::PreparedColumnCondition;
use shunt_language::terms::{self, Prepared, Scope, Value};
use shunt_language::transaction::{ComputedMarker, Inner};
use shunt_language::values::ordered;
use shunt_language::{CqlType, InvalidRequest};
use shunt_wire::cql::message::encode_result::native;
use shunt_wire::cql::message::{Value as Wire, ValueList};

use super::bind::{Bound, InnerBindings, push};
use super::draft::Drafting;
use super::outline::qualified;
use super::repeatable::{check_pure, check_repeatable, unrepeatable};
use super::{Key, Shown, Source, Standalone, partition};
use crate::conditional::row::{Cells, Change, ReadRow};
use crate::plan::schema::Table;

/// Timestamps that such a statement takes: to make its row anew, and its own.
pub const TIMESTAMPS: u16 = 2;
/// Bytes of a row that is made anew, with its key for each column: nodes take messages of 16 MiB,
/// and the statement may have 3 of these.
const ANEW_BYTES_MAX: usize = 12 << 20;
/// Most seconds that a value may live, as Cassandra has them.
const LIFE_MAX: i32 = 20 * 365 * 24 * 60 * 60;

/// A single statement.
#[derive(Debug)]
pub struct Lone {
    /// The table's columns beside its key, in Cassandra's order.
    pub columns: Vec<(String, CqlType)>,
    /// A hash of the table's columns and their types.
    pub layout: u64,
    condition: Condition,
    time_to_live: Option<Prepared>,
    effect: Effect,
    /// In front of the statement.
    anew: Anew,
    /// By itself, where the statement is not carried out.
    settle: Anew,
}

#[derive(Debug)]
enum Condition {
    None,
    NotExists,
    Exists,
    Columns(Vec<(usize, PreparedColumnCondition)>),
}

#[derive(Debug)]
enum Effect {
    Insert(Vec<(usize, Prepared)>),
    Update(Vec<(usize, Prepared)>),
    /// Of these columns.
    DeleteColumns(Vec<usize>),
    Delete,
    Truncate,
}

/// Batches that make a row anew.
#[derive(Debug, Default)]
struct Anew {
    /// Where there was no row: it is deleted.
    absent: Arc<str>,
    /// Where there is one: each of its columns is written as it was read. Nothing tells how long it
    /// would live without values, so that stays as it is.
    present: Arc<str>,
}

/// What becomes of the statement.
#[derive(Debug)]
pub enum Verdict {
    /// It is carried out.
    Write,
    /// It is not: this is its answer, of these columns.
    Refuse(Vec<Shown>, Vec<Option<Vec<u8>>>),
}

impl Lone {
    pub fn is_truncate(&self) -> bool {
        matches!(self.effect, Effect::Truncate)
    }

    /// About what it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        [&self.anew, &self.settle]
            .into_iter()
            .map(|anew| anew.absent.len() + anew.present.len())
            .sum()
    }

    fn new(table: &Table) -> Lone {
        Lone {
            layout: table.layout(),
            columns: table.regular(),
            condition: Condition::None,
            time_to_live: None,
            effect: Effect::Truncate,
            anew: Anew::default(),
            settle: Anew::default(),
        }
    }

    /// It is answered whether it was applied.
    pub fn is_conditional(&self) -> bool {
        !matches!(self.condition, Condition::None)
    }
}

impl Drafting<'_> {
    /// A single statement.
    pub(super) fn lone(
        &mut self,
        inner: &Inner,
        name: &QualifiedName,
        table: &Arc<Table>,
    ) -> Result<Lone, InvalidRequest> {
        if let Some(why) = table.unfit_alone() {
            let (keyspace, name) = (&table.keyspace, &table.name);
            return Err(InvalidRequest::new(format!(
                "table {keyspace}.{name} cannot have transactional_mode = 'conditional': {why}"
            )));
        }
        let mut lone = Lone::new(table);
        let full_name = format!("{}.{}", quoted_name(&table.keyspace), quoted_name(&table.name));
        let Statement::Mutation(mutation) = &inner.statement else {
            self.keys.push(Key { table: Arc::clone(table), parts: Vec::new() });
            self.sources.push(Vec::new());
            self.writes.push(Standalone {
                text: format!("TRUNCATE {full_name}").into(),
                values: Vec::new(),
            });
            return Ok(lone);
        };
        if !inner.self_assignments.is_empty() {
            return Err(InvalidRequest::new(
                "a value that is computed from the row as it is, is for transactions: the table's mode is 'conditional'",
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
        lone.effect = effect(mutation, &lone.columns, &mut scope)?;
        lone.condition = condition(mutation, table, &lone.columns, &mut scope)?;
        if let Some(term) = &mutation.attributes().time_to_live {
            let int = CqlType::from(shunt_language::ast::NativeType::Int);
            lone.time_to_live = Some(terms::prepare(term, "[ttl]", &int, &mut scope)?);
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
        lone.anew = anew(&full_name, &key, &lone.columns, &format!("{text};\n"));
        lone.settle = anew(&full_name, &key, &lone.columns, "");
        let shown = lone.columns.iter().map(|(column, _)| {
            let column = quoted_name(column);
            format!("{column}, TTL({column}), WRITETIME({column})")
        });
        let read =
            format!("SELECT {} FROM {full_name} WHERE {key}", shown.collect::<Vec<_>>().join(", "));
        let of_key = (0..names.len()).map(|part| Source::Key { statement: 0, part });
        self.reads.push(Standalone { text: read.into(), values: of_key.collect() });
        self.writes.push(Standalone { text, values });
        self.sources.push(sources);
        Ok(lone)
    }
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

fn place_of(columns: &[(String, CqlType)], name: &str) -> Result<usize, InvalidRequest> {
    let found = columns.iter().position(|(column, _)| column == name);
    found.ok_or_else(|| InvalidRequest::new(format!("Undefined column name {name}")))
}

fn effect(
    mutation: &Mutation,
    columns: &[(String, CqlType)],
    scope: &mut Scope<'_>,
) -> Result<Effect, InvalidRequest> {
    let mut set = |name: &String, term: &Term| {
        let place = place_of(columns, name)?;
        Ok((place, terms::prepare(term, name, &columns[place].1, scope)?))
    };
    let refused = || {
        InvalidRequest::new(
            "only whole columns can be set and deleted: the table's mode is 'conditional'",
        )
    };
    Ok(match mutation {
        Mutation::Insert(insert) => {
            let given = insert.columns.iter().zip(&insert.values);
            let others =
                given.filter(|(name, _)| columns.iter().any(|(column, _)| column == *name));
            Effect::Insert(others.map(|(name, term)| set(name, term)).collect::<Result<_, _>>()?)
        }
        Mutation::Update(update) => {
            let assigned =
                update.assignments.iter().map(|assignment| match &assignment.operation {
                    Operation::Set(term) => set(&assignment.column, term),
                    _ => Err(refused()),
                });
            Effect::Update(assigned.collect::<Result<_, _>>()?)
        }
        Mutation::Delete(delete) if delete.deletions.is_empty() => Effect::Delete,
        Mutation::Delete(delete) => {
            let deleted = delete.deletions.iter().map(|deletion| match deletion {
                Deletion::Column(name) => place_of(columns, name),
                Deletion::Element(..) | Deletion::Field(..) => Err(refused()),
            });
            Effect::DeleteColumns(deleted.collect::<Result<_, _>>()?)
        }
        Mutation::InsertJson(_) => return Err(refused()),
    })
}

fn condition(
    mutation: &Mutation,
    table: &Table,
    columns: &[(String, CqlType)],
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
                let place = place_of(columns, name)?;
                Ok((place, condition.prepare(&columns[place].1, scope)?))
            });
            Ok(Condition::Columns(prepared.collect::<Result<_, _>>()?))
        }
    }
}

/// A column of an answer, for a client of this version of the protocol.
fn shown(name: &str, cql_type: &CqlType, version: u8) -> Shown {
    Shown { name: name.into(), type_option: cql_type.option(version).into() }
}

/// The first column of an answer.
fn applied() -> Shown {
    Shown { name: "[applied]".into(), type_option: native::BOOLEAN.into() }
}

/// What is answered where it was applied.
pub fn when_applied() -> (Vec<Shown>, Vec<Option<Vec<u8>>>) {
    (vec![applied()], vec![Some(vec![1])])
}

/// What is locked for a whole table.
pub fn whole(keyspace: &str, table: &str) -> Partition {
    partition(keyspace, table, &[])
}

impl Bound<'_> {
    fn bindings(&self) -> InnerBindings<'_> {
        InnerBindings { bound: *self, statement: 0, rows: &[] }
    }

    /// What is locked for a single statement: its row, its partition against transactions of the
    /// table's former mode that are committed and not made yet, and its table against TRUNCATE. The
    /// row's comes first, if there is one.
    pub(super) fn lone_partitions(
        &self,
        lone: &Lone,
    ) -> Result<Vec<(Partition, Mode)>, InvalidRequest> {
        let (table, mut key) = (&self.plan.draft.keys[0].table, self.row_key()?);
        let whole = whole(&table.keyspace, &table.name);
        if lone.is_truncate() {
            return Ok(vec![(whole, Mode::Exclusive)]);
        }
        let of_partition = partition(
            &table.keyspace,
            &table.name,
            &key[..table.partition_key.len().min(key.len())],
        );
        // Nodes know partitions by their bytes, and rows in them by the order of values: 1.0 is
        // 1.00 there.
        for (name, part) in
            table.clustering.iter().zip(key.iter_mut().skip(table.partition_key.len()))
        {
            if let Some(cql_type) = table.column(name) {
                let mut in_order = Vec::new();
                ordered::encode(cql_type, false, part, &mut in_order)
                    .map_err(|error| self.at(0, error))?;
                *part = in_order;
            }
        }
        let row = partition(&table.keyspace, &table.name, &key);
        let mut locked = vec![(row, Mode::Exclusive), (whole, Mode::Shared)];
        if row != of_partition {
            locked.push((of_partition, Mode::Shared));
        }
        Ok(locked)
    }

    /// The values of its row's whole key.
    fn row_key(&self) -> Result<Vec<Vec<u8>>, InvalidRequest> {
        self.check_keys()?;
        let parts = self.plan.draft.keys[0].parts.len();
        let values =
            (0..parts).map(|part| Ok(self.key_part(0, part)?.into_bytes().unwrap_or_default()));
        values.collect()
    }

    /// Whether it is carried out on a row as it is, or what it answers to a client of this version
    /// of the protocol.
    pub fn verdict(
        &self,
        lone: &Lone,
        cells: Option<&Cells>,
        version: u8,
    ) -> Result<Verdict, InvalidRequest> {
        let bindings = self.bindings();
        let holds = match &lone.condition {
            Condition::None => true,
            Condition::NotExists => cells.is_none(),
            Condition::Exists => cells.is_some(),
            Condition::Columns(all) => {
                let mut hold = true;
                for (place, condition) in all {
                    let value = cells.and_then(|cells| cells.get(*place)?.as_deref());
                    let holds = condition.bind(&bindings).and_then(|bound| bound.holds(value));
                    hold = hold && holds.map_err(|error| self.at(0, error))?;
                }
                hold
            }
        };
        if holds {
            return Ok(Verdict::Write);
        }
        let (mut columns, mut values) = (vec![applied()], vec![Some(vec![0])]);
        let Some(cells) = cells else { return Ok(Verdict::Refuse(columns, values)) };
        let mut show = |place: usize| {
            let (name, cql_type) = &lone.columns[place];
            columns.push(shown(name, cql_type, version));
            values.push(cells.get(place).cloned().flatten().map(Vec::from));
        };
        if let Condition::Columns(all) = &lone.condition {
            // There may be as many conditions as a text has room for.
            let mut is_shown = vec![false; lone.columns.len()];
            for (place, _) in all {
                if !std::mem::replace(&mut is_shown[*place], true) {
                    show(*place);
                }
            }
            return Ok(Verdict::Refuse(columns, values));
        }
        (0..lone.columns.len()).for_each(show);
        let table = &self.plan.draft.keys[0].table;
        let names = table.partition_key.iter().chain(&table.clustering);
        for (place, (name, value)) in names.zip(self.row_key()?).enumerate() {
            let cql_type =
                table.column(name).cloned().unwrap_or_else(|| CqlType::Custom("".into()));
            columns.insert(1 + place, shown(name, &cql_type, version));
            values.insert(1 + place, Some(value));
        }
        Ok(Verdict::Refuse(columns, values))
    }

    /// For how many seconds it is that what it writes lives; none for ever.
    pub fn lives(&self, lone: &Lone) -> Result<Option<u32>, InvalidRequest> {
        let Some(term) = &lone.time_to_live else { return Ok(None) };
        let Value::Bytes(bytes) = term.evaluate(&self.bindings())? else { return Ok(None) };
        let seconds = <[u8; 4]>::try_from(bytes).map(i32::from_be_bytes);
        let refuse = |why: String| Err(self.at(0, InvalidRequest::new(why)));
        match seconds {
            Ok(0) => Ok(None),
            Ok(seconds) if (1..=LIFE_MAX).contains(&seconds) => Ok(Some(seconds.cast_unsigned())),
            Ok(seconds) if seconds < 0 => {
                refuse(format!("A TTL must be greater or equal to 0, but was {seconds}"))
            }
            Ok(seconds) => {
                refuse(format!("ttl is too large. requested ({seconds}) maximum ({LIFE_MAX})"))
            }
            Err(_) => refuse("Invalid int value for TTL".to_owned()),
        }
    }

    /// What it does to its row.
    pub fn change(&self, lone: &Lone) -> Result<Change, InvalidRequest> {
        let bindings = self.bindings();
        let values = |set: &[(usize, Prepared)]| {
            let evaluated = set.iter().map(|(place, term)| Ok((*place, term.evaluate(&bindings)?)));
            evaluated.collect::<Result<Vec<_>, InvalidRequest>>().map_err(|error| self.at(0, error))
        };
        Ok(match &lone.effect {
            Effect::Insert(set) => Change::Insert(values(set)?),
            Effect::Update(set) => Change::Update(values(set)?),
            Effect::DeleteColumns(places) => {
                Change::Update(places.iter().map(|place| (*place, Value::Null)).collect())
            }
            Effect::Delete | Effect::Truncate => Change::Delete,
        })
    }

    /// Checks what it writes: a node would refuse it, after this core has decided by it.
    pub fn check_lone(&self) -> Result<(), InvalidRequest> {
        let write = &self.plan.draft.writes[0];
        let values = write
            .values
            .iter()
            .map(|source| self.value(source, &[]))
            .collect::<Result<Vec<_>, _>>()?;
        self.check_values(0, &values)
    }

    /// Checks that the row can be made anew in one message that nodes take, with the statement
    /// behind it.
    pub fn check_anew(&self, row: &ReadRow) -> Result<(), InvalidRequest> {
        let key: usize = self.row_key()?.iter().map(Vec::len).sum();
        let cells = row.cells.iter().flatten();
        let bytes: usize =
            cells.map(|cell| cell.as_ref().map_or(0, |value| value.len()) + key).sum();
        if bytes <= ANEW_BYTES_MAX {
            return Ok(());
        }
        Err(InvalidRequest::new(format!(
            "Shunt: the row has {bytes} bytes, its key counted for each column: {ANEW_BYTES_MAX} are the most for a statement with conditions on a table with the mode 'conditional'; DELETE it, or write less by statements without conditions"
        )))
    }

    /// The statement as nodes are sent it, with the values of its markers. `anew`: the row as it
    /// was read, where it has to be made anew before it is changed. `timestamp_us`: the first of
    /// its timestamps. `is_refused`: the row is made anew, and that is all.
    pub fn lone_write(
        &self,
        lone: &Lone,
        anew: Option<&ReadRow>,
        timestamp_us: i64,
        is_refused: bool,
    ) -> Result<(Arc<str>, ValueList), InvalidRequest> {
        let mut list = ValueList::positional(crate::PROTOCOL_VERSION);
        let write = &self.plan.draft.writes[0];
        let mut text = &write.text;
        if let Some(row) = anew {
            let (key, anew_us) = (self.row_key()?, timestamp_us.to_be_bytes());
            let batches = if is_refused { &lone.settle } else { &lone.anew };
            text = if row.cells.is_some() { &batches.present } else { &batches.absent };
            if row.cells.is_none() {
                list.push(Wire::Bytes(&anew_us));
                key.iter().for_each(|part| _ = list.push(Wire::Bytes(part)));
            }
            for (cell, seconds) in row.cells.iter().flatten().zip(&row.lives) {
                list.push(Wire::Bytes(&anew_us))
                    .push(Wire::Bytes(&seconds.unwrap_or(0).to_be_bytes()));
                list.push(cell.as_deref().map_or(Wire::Null, Wire::Bytes));
                key.iter().for_each(|part| _ = list.push(Wire::Bytes(part)));
            }
        }
        for source in write.values.iter().filter(|_| !is_refused) {
            push(&mut list, &self.value(source, &[])?);
        }
        Ok((Arc::clone(text), list))
    }
}

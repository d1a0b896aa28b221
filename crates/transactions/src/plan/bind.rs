//! A plan with bind values: which partitions are locked, what is read, what is decided, and what is
//! written.

use crate::record::RECORD_BYTES_MAX;
use crate::{Mode, Partition};
use shunt_language::InvalidRequest;
use shunt_language::ast::Statement;
use shunt_language::functions::Environment;
use shunt_language::terms::{Bindings, Value};
use shunt_language::transaction::{PreparedReference, Returned};
use shunt_language::values::validate;
use shunt_wire::cql::message::{Value as Wire, ValueList, Values};

use super::{Place, Plan, Source};

/// Bytes of a key, as Cassandra has them at most.
const KEY_BYTES_MAX: usize = 65_535;

/// That driver prepares what begins with `BEGIN` only if it is a batch for it, and sends no values
/// with a text.
const GOCQL: &str = "; gocql sends the values of a transaction if its text ends with APPLY BATCH behind COMMIT TRANSACTION";

/// Bytes of the values that are bound: as many as a request may have. A value that is named more
/// often than it is sent counts as often as it is named, for that is what is kept of it.
const BOUND_BYTES_MAX: usize = 3 << 20;

/// Bytes of the values that a transaction answers: they have to fit between proxies too.
const RETURNED_BYTES_MAX: usize = 3 << 20;

fn too_much(what: &str, most: usize) -> InvalidRequest {
    InvalidRequest::new(format!("this transaction {what} values of more than {most} bytes"))
}

/// A row that was read: the values of its columns, none for null. None: there is no such row.
pub type RowRead = Option<Vec<Option<Box<[u8]>>>>;

/// What is done with what was read.
#[derive(Debug, PartialEq)]
pub enum Decided {
    /// Nothing: its conditions do not hold, or it writes nothing.
    Nothing,
    /// These values are bound to its writes, in order.
    Write(Vec<Vec<Value>>),
}

/// A plan with the values of a client, as [`Plan::bind`] gives them.
#[derive(Clone, Copy)]
pub struct Bound<'a> {
    pub(super) plan: &'a Plan,
    values: &'a [Value],
}

/// The transaction's own markers, as terms see them.
struct Clients<'b>(&'b [Value]);

/// The markers of one of its statements.
pub(super) struct InnerBindings<'b> {
    pub(super) bound: Bound<'b>,
    pub(super) statement: usize,
    pub(super) rows: &'b [RowRead],
}

/// Nothing that is evaluated here needs any of it: what gives another value each time is computed
/// before ([`Plan::call`]), or refused.
macro_rules! without_environment {
    ($($type:ty),*) => {$(
        impl Environment for $type {
            fn now_ms(&self) -> i64 {
                0
            }
            fn timeuuid(&self) -> [u8; 16] {
                [0; 16]
            }
            fn random(&self) -> u128 {
                0
            }
            fn token(&self, _: &[u8]) -> i64 {
                0
            }
        }
    )*};
}
without_environment!(Clients<'_>, InnerBindings<'_>);

impl Bindings for Clients<'_> {
    fn value(&self, index: u16) -> Value {
        self.0.get(usize::from(index)).cloned().unwrap_or(Value::Unset)
    }
}

impl Bindings for InnerBindings<'_> {
    fn value(&self, index: u16) -> Value {
        let sources = self.bound.plan.draft.sources.get(self.statement);
        match sources.and_then(|sources| sources.get(usize::from(index))) {
            Some(source) => self.bound.value(source, self.rows).unwrap_or(Value::Unset),
            None => Value::Unset,
        }
    }
}

impl Plan {
    /// The values that a client sent, in the order of the markers.
    pub fn bind(&self, values: &Values<'_>) -> Result<Vec<Value>, InvalidRequest> {
        let wanted = self.markers.len();
        if !values.is_named() && values.len() != wanted {
            let is_gocql = values.is_empty() && !self.draft.outline.transaction.is_alone;
            return Err(InvalidRequest::new(format!(
                "there were {wanted} markers(?) in CQL but {} bound variables{}",
                values.len(),
                if is_gocql { GOCQL } else { "" }
            )));
        }
        let given: Vec<Wire<'_>> = if values.is_named() {
            let names = || self.markers.iter().map(|marker| &*marker.name);
            let found = values.with_names(names());
            names().map(|name| found.get(name).copied().unwrap_or(Wire::Unset)).collect()
        } else {
            values.iter().map(|(_, value)| value).collect()
        };
        // Before anything is copied.
        let bytes: usize = given.iter().filter_map(|value| value.bytes()).map(<[u8]>::len).sum();
        if bytes > BOUND_BYTES_MAX {
            let why = too_much("binds", BOUND_BYTES_MAX).message;
            return Err(InvalidRequest::new(format!(
                "{why}, each counted as often as its name stands in the text"
            )));
        }
        let owned = |value: Wire<'_>| match value {
            Wire::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
            Wire::Null => Value::Null,
            Wire::Unset => Value::Unset,
        };
        let values: Vec<Value> = given.into_iter().map(owned).collect();
        let transaction = &self.draft.outline.transaction;
        for one_row in &self.draft.one_row {
            if values.get(usize::from(one_row.marker))
                != Some(&Value::Bytes(1_i32.to_be_bytes().to_vec()))
            {
                return Err(transaction.not_one_row(*one_row, &self.draft.outline.text));
            }
        }
        Ok(values)
    }

    /// The plan with these values.
    pub fn with<'a>(&'a self, values: &'a [Value]) -> Bound<'a> {
        Bound { plan: self, values }
    }
}

impl Bound<'_> {
    /// What is locked: each partition that is read or written, those that are written exclusively.
    pub fn partitions(&self) -> Result<Vec<(Partition, Mode)>, InvalidRequest> {
        let draft = &self.plan.draft;
        if let Some(lone) = &draft.lone {
            return self.lone_partitions(lone);
        }
        let mut partitions = Vec::with_capacity(draft.keys.len());
        for (index, key) in draft.keys.iter().enumerate() {
            let mut parts = Vec::with_capacity(key.table.partition_key.len());
            for part in 0..key.table.partition_key.len() {
                match self.key_part(index, part)? {
                    Value::Bytes(bytes) => parts.push(bytes),
                    Value::Null | Value::Unset => {
                        let column = &key.table.partition_key[part];
                        return Err(self.at(
                            index,
                            InvalidRequest::new(format!(
                                "Invalid null value in condition for column {column}"
                            )),
                        ));
                    }
                }
            }
            let writes = matches!(
                draft.outline.transaction.statements[index].statement,
                Statement::Mutation(_)
            );
            let mode = if writes { Mode::Exclusive } else { Mode::Shared };
            partitions.push((super::partition(&key.table.keyspace, &key.table.name, &parts), mode));
        }
        Ok(partitions)
    }

    pub(super) fn at(&self, statement: usize, error: InvalidRequest) -> InvalidRequest {
        let outline = &self.plan.draft.outline;
        super::at(&outline.transaction, statement, &outline.text, error)
    }

    pub(super) fn key_part(&self, statement: usize, part: usize) -> Result<Value, InvalidRequest> {
        let Some(key) = self.plan.draft.keys.get(statement).and_then(|key| key.parts.get(part))
        else {
            return Ok(Value::Unset);
        };
        let value = key.evaluate(&InnerBindings { bound: *self, statement, rows: &[] });
        value.map_err(|error| self.at(statement, error))
    }

    /// The values of a read.
    pub fn read_values(&self, read: usize) -> Result<ValueList, InvalidRequest> {
        let mut list = ValueList::positional(crate::PROTOCOL_VERSION);
        for source in &self.plan.draft.reads[read].values {
            push(&mut list, &self.value(source, &[])?);
        }
        Ok(list)
    }

    pub(super) fn value(&self, source: &Source, rows: &[RowRead]) -> Result<Value, InvalidRequest> {
        Ok(match source {
            Source::Client(client) => Clients(self.values).value(*client),
            Source::Key { statement, part } => self.key_part(*statement, *part)?,
            Source::Called(called) => {
                self.values.get(self.plan.markers.len() + called).cloned().unwrap_or(Value::Unset)
            }
            Source::Reference(reference) => {
                self.referred(*reference, rows)?.map_or(Value::Null, Value::Bytes)
            }
            Source::Computed(computed) => {
                let computed = &self.plan.draft.computed[*computed];
                let row = rows.get(computed.read).and_then(Option::as_ref);
                let current = row.and_then(|row| row.get(computed.column)?.as_deref());
                let inner = InnerBindings { bound: *self, statement: computed.statement, rows };
                let new = computed
                    .assignment
                    .evaluate(current, &inner)
                    .map_err(|error| self.at(computed.statement, error))?;
                new.map_or(Value::Unset, Value::Bytes)
            }
        })
    }

    fn column<'r>(&self, read: usize, place: &Place, rows: &'r [RowRead]) -> Option<&'r [u8]> {
        let row = rows.get(read)?.as_ref()?;
        let place = match place {
            Place::At(place) => *place,
            Place::Named(name) => self
                .plan
                .read_columns
                .get(read)?
                .iter()
                .position(|column| *column.name == **name)?,
        };
        row.get(place)?.as_deref()
    }

    fn referred(
        &self,
        reference: usize,
        rows: &[RowRead],
    ) -> Result<Option<Vec<u8>>, InvalidRequest> {
        let referred = &self.plan.draft.references[reference];
        let reference: &PreparedReference = &referred.reference;
        reference
            .evaluate(self.column(referred.read, &referred.column, rows), &Clients(self.values))
    }

    /// Decides, now that each read has its row.
    pub fn decide(&self, rows: &[RowRead]) -> Result<Decided, InvalidRequest> {
        let draft = &self.plan.draft;
        for (condition, read, place) in &draft.conditions {
            let exists = rows.get(*read).is_some_and(Option::is_some);
            let value = place.as_ref().and_then(|place| self.column(*read, place, rows));
            if !condition.holds(exists, value, &Clients(self.values))? {
                return Ok(Decided::Nothing);
            }
        }
        if draft.writes.is_empty() {
            return Ok(Decided::Nothing);
        }
        self.check_keys()?;
        let mut all = Vec::with_capacity(draft.writes.len());
        let mut left = RECORD_BYTES_MAX;
        for (index, write) in draft.writes.iter().enumerate() {
            let mut bound: Vec<Value> = Vec::with_capacity(write.values.len());
            for source in &write.values {
                let value = self.value(source, rows)?;
                let bytes = if let Value::Bytes(bytes) = &value { bytes.len() } else { 0 };
                left =
                    left.checked_sub(bytes).ok_or_else(|| too_much("writes", RECORD_BYTES_MAX))?;
                bound.push(value);
            }
            self.check_values(index, &bound)?;
            all.push(bound);
        }
        Ok(Decided::Write(all))
    }

    /// Checks the keys of what is written: a node would refuse such a write each time, and by then
    /// it is committed.
    pub(super) fn check_keys(&self) -> Result<(), InvalidRequest> {
        let draft = &self.plan.draft;
        for (index, key) in draft.keys.iter().enumerate() {
            let names = key.table.partition_key.iter().chain(&key.table.clustering);
            let mut bytes = 0;
            for (part, name) in names.take(key.parts.len()).enumerate() {
                let is_alone = part == 0 && key.table.partition_key.len() == 1;
                let problem = match self.key_part(index, part)? {
                    Value::Null | Value::Unset => {
                        format!("Invalid null value in condition for column {name}")
                    }
                    Value::Bytes(value) if value.is_empty() && is_alone => {
                        "Key may not be empty".to_owned()
                    }
                    Value::Bytes(value) => {
                        bytes += value.len() + 3;
                        if bytes <= KEY_BYTES_MAX {
                            continue;
                        }
                        format!(
                            "the key of the row has more than {KEY_BYTES_MAX} bytes, at column {name}"
                        )
                    }
                };
                return Err(self.at(index, InvalidRequest::new(problem)));
            }
        }
        Ok(())
    }

    /// Checks the values of a write against the types that nodes have said of its markers.
    pub(super) fn check_values(
        &self,
        write: usize,
        values: &[Value],
    ) -> Result<(), InvalidRequest> {
        let transaction = &self.plan.draft.outline.transaction;
        let statement = transaction.statements.len() - transaction.mutations().len() + write;
        let Some(markers) = self.plan.write_markers.get(write) else { return Ok(()) };
        for (value, (name, cql_type)) in values.iter().zip(markers) {
            match value {
                Value::Bytes(bytes) => {
                    validate(cql_type, bytes).map_err(|error| self.at(statement, error))?
                }
                // `m[?]`
                Value::Null | Value::Unset
                    if name.starts_with("key(") || name.starts_with("idx(") =>
                {
                    return Err(self.at(
                        statement,
                        InvalidRequest::new(format!("Invalid null value for {name}")),
                    ));
                }
                Value::Null | Value::Unset => {}
            }
        }
        Ok(())
    }

    /// The values that it answers; none if it answers what a read has found as it is, or nothing.
    pub fn returned(
        &self,
        rows: &[RowRead],
    ) -> Result<Option<Vec<Option<Vec<u8>>>>, InvalidRequest> {
        let draft = &self.plan.draft;
        if !matches!(draft.outline.transaction.returned, Returned::References(_)) {
            return Ok(None);
        }
        let mut left = RETURNED_BYTES_MAX;
        let mut returned = Vec::with_capacity(draft.returned.len());
        for reference in &draft.returned {
            let value = self.referred(*reference, rows)?;
            let bytes = value.as_ref().map_or(0, Vec::len);
            left =
                left.checked_sub(bytes).ok_or_else(|| too_much("answers", RETURNED_BYTES_MAX))?;
            returned.push(value);
        }
        Ok(Some(returned))
    }
}

/// About what these take in memory.
pub fn bytes_of(values: &[Value]) -> usize {
    let bytes = |value: &Value| if let Value::Bytes(bytes) = value { bytes.len() } else { 0 };
    size_of_val(values) + values.iter().map(bytes).sum::<usize>()
}

pub fn push(list: &mut ValueList, value: &Value) {
    list.push(match value {
        Value::Bytes(bytes) => Wire::Bytes(bytes),
        Value::Null => Wire::Null,
        Value::Unset => Wire::Unset,
    });
}

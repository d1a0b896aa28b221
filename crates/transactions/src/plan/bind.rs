//! A plan with bind values: the partitions to lock, the reads, the decision and the writes.

use std::cell::Cell;

use shunt_language::InvalidRequest;
use shunt_language::ast::Statement;
use shunt_language::functions::{Environment, timeuuid};
use shunt_language::terms::{Bindings, Value};
use shunt_language::transaction::{PreparedReference, Returned};
use shunt_language::values::validate;
use shunt_language::work::Work;
use shunt_wire::cql::message::{Value as Wire, ValueList, Values};

use super::Plan;
use super::calls::CallValue;
use super::parts::{Place, Source};
use crate::record::RECORD_BYTES_MAX;
use crate::{Mode, Partition};

/// Bytes of a key, as Cassandra limits it.
const KEY_BYTES_MAX: usize = 65_535;

/// gocql prepares a text that begins with `BEGIN` only if it takes it for a batch, and sends no
/// values with a text.
const GOCQL: &str = "; gocql sends the values of a transaction if its text ends with APPLY BATCH behind COMMIT TRANSACTION";

/// Bytes of bind values, as many as a request may have. A value that is named several times counts
/// each time, since each place keeps a copy.
const BOUND_BYTES_MAX: usize = 3 << 20;

/// Bytes of the values in an answer, which must also fit between proxies.
const RETURNED_BYTES_MAX: usize = 3 << 20;

fn too_much(what: &str, most: usize) -> InvalidRequest {
    InvalidRequest::new(format!("this transaction {what} values of more than {most} bytes"))
}

/// A row that was read, with none for null; none if there is no such row.
pub type RowRead = Option<Vec<Option<Box<[u8]>>>>;

/// The decision on a transaction.
#[derive(Debug, PartialEq)]
pub enum PlanDecision {
    /// The conditions do not hold, or there are no writes.
    Nothing,
    /// Values of the writes, in order.
    Write(Vec<Vec<Value>>),
}

/// A plan with a client's values from [`Plan::bind`].
pub struct Bound<'a> {
    pub(super) plan: &'a Plan,
    values: &'a [Value],
    /// The work of the evaluation at hand.
    pub(super) work: Work,
}

/// The transaction's own markers, as terms see them.
struct Clients<'b>(&'b [Value]);

/// The markers of one statement.
pub(super) struct InnerBindings<'b> {
    pub(super) bound: &'b Bound<'b>,
    pub(super) statement: usize,
    pub(super) rows: &'b [RowRead],
}

/// Terms evaluated here need no environment: a term with a new value each time is computed before
/// ([`Plan::call`]) or refused.
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
    /// Reads the values that a client sent, in the order of the markers.
    ///
    /// # Errors
    /// There are too few or too many, or they are too large.
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

    /// Adds values to the plan.
    pub fn with<'a>(&'a self, values: &'a [Value]) -> Bound<'a> {
        Bound { plan: self, values, work: Work::default() }
    }
}

impl Bound<'_> {
    /// The partitions to lock: exclusively if they are written, else shared.
    ///
    /// # Errors
    /// A value of a key is null.
    pub fn partitions(&self) -> Result<Vec<(Partition, Mode)>, InvalidRequest> {
        let draft = &self.plan.draft;
        if let Some(conditional) = &draft.conditional {
            return self.conditional_partitions(conditional);
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
            partitions.push((
                super::parts::partition(&key.table.keyspace, &key.table.name, &parts),
                mode,
            ));
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
        let value = key.evaluate(&InnerBindings { bound: self, statement, rows: &[] });
        value.map_err(|error| self.at(statement, error))
    }

    /// Values of a read.
    ///
    /// # Errors
    /// A term cannot be evaluated.
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
                let found = self.referred(*reference, rows)?;
                self.work.charge(found.map_or(0, <[u8]>::len))?;
                found.map_or(Value::Null, |value| Value::Bytes(value.to_vec()))
            }
            Source::Computed(computed) => {
                let computed = &self.plan.draft.computed[*computed];
                let row = rows.get(computed.read).and_then(Option::as_ref);
                let current = row.and_then(|row| row.get(computed.column)?.as_deref());
                let inner = InnerBindings { bound: self, statement: computed.statement, rows };
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

    fn referred<'r>(
        &self,
        reference: usize,
        rows: &'r [RowRead],
    ) -> Result<Option<&'r [u8]>, InvalidRequest> {
        let referred = &self.plan.draft.references[reference];
        let reference: &PreparedReference = &referred.reference;
        let column = self.column(referred.read, &referred.column, rows);
        reference.evaluate(column, &Clients(self.values), &self.work)
    }

    /// Decides the transaction once all rows are read.
    ///
    /// # Errors
    /// A write would be refused by nodes.
    pub fn decide(&self, rows: &[RowRead]) -> Result<PlanDecision, InvalidRequest> {
        let draft = &self.plan.draft;
        for (condition, read, place) in &draft.conditions {
            let exists = rows.get(*read).is_some_and(Option::is_some);
            let value = place.as_ref().and_then(|place| self.column(*read, place, rows));
            if !condition.holds(exists, value, &Clients(self.values), &self.work)? {
                return Ok(PlanDecision::Nothing);
            }
        }
        if draft.writes.is_empty() {
            return Ok(PlanDecision::Nothing);
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
        // A value that could not be computed may look like one that is unset.
        self.work.check()?;
        Ok(PlanDecision::Write(all))
    }

    /// Checks the keys of writes: nodes would refuse a bad key each time, after the commit.
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

    /// Checks the values of a write against the types that nodes report.
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

    /// Values of the answer; none if it consists of a read's rows, or of nothing.
    ///
    /// # Errors
    /// The values are too large.
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
            let bytes = value.map_or(0, <[u8]>::len);
            left =
                left.checked_sub(bytes).ok_or_else(|| too_much("answers", RETURNED_BYTES_MAX))?;
            returned.push(value.map(<[u8]>::to_vec));
        }
        Ok(Some(returned))
    }
}

/// Approximate size of values in memory.
pub fn bytes_of(values: &[Value]) -> usize {
    let bytes = |value: &Value| if let Value::Bytes(bytes) = value { bytes.len() } else { 0 };
    size_of_val(values) + values.iter().map(bytes).sum::<usize>()
}

/// Appends a value to a list.
pub fn push(list: &mut ValueList, value: &Value) {
    list.push(match value {
        Value::Bytes(bytes) => Wire::Bytes(bytes),
        Value::Null => Wire::Null,
        Value::Unset => Wire::Unset,
    });
}

/// Input of functions: the time when the transaction was accepted, and random numbers.
pub struct Moment {
    wall_us: i64,
    numbers: Cell<u64>,
}

impl Moment {
    /// The wall-clock time in microseconds, and a random number.
    pub fn new(wall_us: i64, number: u64) -> Moment {
        Moment { wall_us, numbers: Cell::new(number) }
    }

    /// The next number of SplitMix64.
    fn number(&self) -> u64 {
        let next = self.numbers.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.numbers.set(next);
        let mixed = (next ^ next >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
}

/// The values of a statement's markers at a moment.
struct At<'b> {
    inner: InnerBindings<'b>,
    moment: &'b Moment,
}

impl Environment for At<'_> {
    fn now_ms(&self) -> i64 {
        self.moment.wall_us / 1_000
    }

    fn timeuuid(&self) -> [u8; 16] {
        timeuuid(self.moment.wall_us.saturating_mul(10), self.moment.number())
    }

    fn random(&self) -> u128 {
        // The time is mixed in, because another proxy may have started with the same number.
        let halves =
            [self.moment.number(), self.moment.number() ^ self.moment.wall_us.cast_unsigned()];
        u128::from(halves[0]) << 64 | u128::from(halves[1])
    }

    fn token(&self, _: &[u8]) -> i64 {
        0
    }
}

impl Bindings for At<'_> {
    fn value(&self, index: u16) -> Value {
        self.inner.value(index)
    }
}

impl Plan {
    /// True if a value differs with each call.
    pub fn has_calls(&self) -> bool {
        !self.draft.called.is_empty()
    }

    /// Computes the values of functions at this moment, and appends them to the client's values.
    ///
    /// # Errors
    /// A term cannot be evaluated.
    pub fn call(&self, values: &mut Vec<Value>, moment: &Moment) -> Result<(), InvalidRequest> {
        let mut given = Vec::with_capacity(self.draft.called.len());
        for CallValue { statement, value } in &self.draft.called {
            let bound: Bound<'_> = self.with(values);
            let at = At {
                inner: InnerBindings { bound: &bound, statement: *statement, rows: &[] },
                moment,
            };
            given.push(value.evaluate(&at).map_err(|error| bound.at(*statement, error))?);
        }
        values.extend(given);
        Ok(())
    }
}

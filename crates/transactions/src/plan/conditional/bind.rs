//! A single statement with bind values: its locks, its verdict, its change of the row and its
//! write.

use std::sync::Arc;

use shunt_language::terms::{Prepared, Value};
use shunt_language::values::ordered;
use shunt_language::{CqlType, InvalidRequest};
use shunt_wire::cql::message::{Value as Wire, ValueList};

use super::{
    ANEW_BYTES_MAX, Condition, ConditionalPlan, LIFE_MAX, PreparedChange, Verdict, applied,
    column_spec, whole,
};
use crate::conditional::row::{Cells, Change, ReadRow};
use crate::plan::bind::{Bound, InnerBindings, push};
use crate::plan::parts::partition;
use crate::{Mode, Partition};

impl Bound<'_> {
    fn bindings(&self) -> InnerBindings<'_> {
        InnerBindings { bound: self, statement: 0, rows: &[] }
    }

    /// Locks of a single statement: its row; its partition, against committed but unfinished
    /// transactions of the table's former mode; and its table, against TRUNCATE. The row's lock
    /// comes first, if there is one.
    pub(crate) fn conditional_partitions(
        &self,
        conditional: &ConditionalPlan,
    ) -> Result<Vec<(Partition, Mode)>, InvalidRequest> {
        let (table, mut key) = (&self.plan.draft.keys[0].table, self.row_key()?);
        let whole = whole(&table.keyspace, &table.name);
        if conditional.is_truncate() {
            return Ok(vec![(whole, Mode::Exclusive)]);
        }
        let of_partition = partition(
            &table.keyspace,
            &table.name,
            &key[..table.partition_key.len().min(key.len())],
        );
        // Nodes compare partition keys by bytes, and clustering values by order: 1.0 equals 1.00.
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

    /// Values of the row's whole key.
    fn row_key(&self) -> Result<Vec<Vec<u8>>, InvalidRequest> {
        self.check_keys()?;
        let parts = self.plan.draft.keys[0].parts.len();
        let values =
            (0..parts).map(|part| Ok(self.key_part(0, part)?.into_bytes().unwrap_or_default()));
        values.collect()
    }

    /// Evaluates the conditions on a row. The answer has types for a client of this protocol
    /// version.
    ///
    /// # Errors
    /// A condition cannot be evaluated.
    pub fn verdict(
        &self,
        conditional: &ConditionalPlan,
        cells: Option<&Cells>,
        version: u8,
    ) -> Result<Verdict, InvalidRequest> {
        let bindings = self.bindings();
        let holds = match &conditional.condition {
            Condition::None => true,
            Condition::NotExists => cells.is_none(),
            Condition::Exists => cells.is_some(),
            Condition::Columns(all) => {
                let mut hold = true;
                for (place, condition) in all {
                    let value = cells.and_then(|cells| cells.get(*place)?.as_deref());
                    // As in Cassandra, values of all conditions are checked, and columns up to the
                    // first that does not hold.
                    let holds = condition
                        .bind(&bindings)
                        .and_then(|bound| Ok(hold && bound.holds(value, &self.work)?));
                    hold = holds.map_err(|error| self.at(0, error))?;
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
            let (name, cql_type) = &conditional.columns[place];
            columns.push(column_spec(name, cql_type, version));
            values.push(cells.get(place).cloned().flatten().map(Vec::from));
        };
        if let Condition::Columns(all) = &conditional.condition {
            // A text has room for very many conditions.
            let mut is_shown = vec![false; conditional.columns.len()];
            for (place, _) in all {
                if !std::mem::replace(&mut is_shown[*place], true) {
                    show(*place);
                }
            }
            return Ok(Verdict::Refuse(columns, values));
        }
        (0..conditional.columns.len()).for_each(show);
        let table = &self.plan.draft.keys[0].table;
        let names = table.partition_key.iter().chain(&table.clustering);
        for (place, (name, value)) in names.zip(self.row_key()?).enumerate() {
            let cql_type =
                table.column(name).cloned().unwrap_or_else(|| CqlType::Custom("".into()));
            columns.insert(1 + place, column_spec(name, &cql_type, version));
            values.insert(1 + place, Some(value));
        }
        Ok(Verdict::Refuse(columns, values))
    }

    /// TTL of the write in seconds; none for ever.
    ///
    /// # Errors
    /// The TTL is out of range.
    pub fn lives(&self, conditional: &ConditionalPlan) -> Result<Option<u32>, InvalidRequest> {
        let Some(term) = &conditional.time_to_live else { return Ok(None) };
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

    /// The change of the row.
    ///
    /// # Errors
    /// A value cannot be evaluated.
    pub fn change(&self, conditional: &ConditionalPlan) -> Result<Change, InvalidRequest> {
        let bindings = self.bindings();
        let values = |set: &[(usize, Prepared)]| {
            let evaluated = set.iter().map(|(place, term)| Ok((*place, term.evaluate(&bindings)?)));
            evaluated.collect::<Result<Vec<_>, InvalidRequest>>().map_err(|error| self.at(0, error))
        };
        Ok(match &conditional.change {
            PreparedChange::Insert(set) => Change::Insert(values(set)?),
            PreparedChange::Update(set) => Change::Update(values(set)?),
            PreparedChange::DeleteColumns(places) => {
                Change::Update(places.iter().map(|place| (*place, Value::Null)).collect())
            }
            PreparedChange::Delete | PreparedChange::Truncate => Change::Delete,
        })
    }

    /// True if the change leaves columns of the row as they are. A value that cannot be evaluated
    /// is reported later.
    pub fn keeps_columns(&self, conditional: &ConditionalPlan) -> bool {
        let columns = conditional.columns.len();
        self.change(conditional).is_ok_and(|change| !change.replaces_row(columns))
    }

    /// Checks the values of the write: a node would refuse them only after this core has decided.
    ///
    /// # Errors
    /// A value does not fit its column.
    pub fn check_conditional(&self) -> Result<(), InvalidRequest> {
        let write = &self.plan.draft.writes[0];
        let values = write
            .values
            .iter()
            .map(|source| self.value(source, &[]))
            .collect::<Result<Vec<_>, _>>()?;
        self.check_values(0, &values)
    }

    /// Checks that a message which nodes accept has room for the rewritten row and the statement.
    ///
    /// # Errors
    /// The row is too large.
    pub fn check_anew(&self, row: &ReadRow) -> Result<(), InvalidRequest> {
        let key: usize = self.row_key()?.iter().map(Vec::len).sum();
        let cells = row.cells.iter().flatten();
        let bytes: usize =
            cells.map(|cell| cell.as_ref().map_or(0, |value| value.len()) + key).sum();
        if bytes <= ANEW_BYTES_MAX {
            return Ok(());
        }
        Err(InvalidRequest::new(format!(
            "Shunt: the row has {bytes} bytes, its key counted for each column; the limit is {ANEW_BYTES_MAX} for a statement with conditions on a table with the mode 'conditional'; DELETE it, or write less by statements without conditions"
        )))
    }

    /// The text and values for nodes. `anew` is the row as it was read, if it has to be rewritten
    /// first; `timestamp_us` is the first timestamp; `is_refused` says that only the row is
    /// rewritten.
    ///
    /// # Errors
    /// A value cannot be evaluated.
    pub fn conditional_write(
        &self,
        conditional: &ConditionalPlan,
        anew: Option<&ReadRow>,
        timestamp_us: i64,
        is_refused: bool,
    ) -> Result<(Arc<str>, ValueList), InvalidRequest> {
        let mut list = ValueList::positional(crate::PROTOCOL_VERSION);
        let write = &self.plan.draft.writes[0];
        let mut text = &write.text;
        if let Some(row) = anew {
            let (key, anew_us) = (self.row_key()?, timestamp_us.to_be_bytes());
            let batches = if is_refused { &conditional.settle } else { &conditional.anew };
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

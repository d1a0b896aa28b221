//! Answers a request of a stub node: from the request's body to the response's body.
//!
//! The module knows nothing of connections and framing; it gets the keyspace of the connection and
//! the memory as arguments.

use std::sync::PoisonError;

use shunt_topology::token;
use shunt_wire::cql::{
    envelope::opcode,
    message::{
        Batch, BatchStatement, Execute, Prepare, Query, QueryParams, Values, encode,
        encode_result::{PreparedSpec, RowsWriter, native, prepared},
        result_kind,
    },
};

use crate::stub::{
    counts::Counts,
    failure::Failure,
    plan::{Plan, Planned, plan},
    reads::put_bench_rows,
    ring::{Placement, Ring},
    rows::Memory,
    statements::{StatementId, Statements, statement_id},
    system_tables::{self, KEYSPACE, TABLE, TABLE_COLUMNS},
    table::{Column, Table},
};

/// Bit of a statement id's first byte: the statement reads the bench table.
const READS: u8 = 1;
/// A RESULT of kind void.
const VOID: [u8; 4] = result_kind::VOID.to_be_bytes();

/// The effect of a request on its connection: the new keyspace, or the reason for an ERROR.
type Outcome = Result<Option<String>, Failure>;

/// One node: its tables and prepared statements.
#[derive(Debug)]
pub struct Node {
    pub(super) index: usize,
    tables: Vec<Table>,
    pub(super) placement: Option<Placement>,
    statements: Statements,
    pub(super) memory: Option<Memory>,
    /// Value that a SELECT finds when nothing is remembered.
    pub(super) value: Vec<u8>,
    /// Complete bodies for `SELECT v` of a known value: with and without metadata.
    pub(super) ready: [Vec<u8>; 2],
}

/// The facts of a response other than its body.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Answered {
    /// Response opcode.
    pub opcode: u8,
    /// New keyspace of the connection.
    pub keyspace: Option<String>,
}

impl Node {
    /// Creates node `index` of `ring`, with values of `value_bytes`.
    pub fn new(ring: &Ring, index: usize, value_bytes: usize, memory: Option<Memory>) -> Self {
        let value = vec![0x5A; value_bytes];
        let ready = [false, true].map(|skip_metadata| {
            let mut body = Vec::new();
            put_bench_rows(&mut body, &[1], skip_metadata, [(None, &value[..])]);
            body
        });
        let mut node = Self {
            index,
            tables: Vec::new(),
            placement: None,
            statements: Statements::default(),
            memory,
            value,
            ready,
        };
        node.set_ring(ring);
        node
    }

    /// Replaces the ring that the node shows.
    pub fn set_ring(&mut self, ring: &Ring) {
        self.tables = system_tables::build(ring, self.index);
        self.placement = (ring.nodes.len() > 1).then(|| Placement::of(ring));
    }

    /// Returns the answer to an EXECUTE of a statement whose id begins with this byte, for any
    /// values.
    pub(super) fn fixed_answer(&self, id_first: u8) -> &[u8] {
        if id_first & READS != 0 { &self.ready[1] } else { &VOID }
    }

    /// Forgets all prepared statements, as after a restart.
    pub fn forget_statements(&mut self) {
        self.statements.clear();
    }

    /// Answers QUERY, PREPARE, EXECUTE or BATCH: appends the response's body to `out`.
    pub fn answer(
        &mut self,
        version: u8,
        request_opcode: u8,
        body: &[u8],
        keyspace: Option<&str>,
        counts: &mut Counts,
        out: &mut Vec<u8>,
    ) -> Answered {
        let start = out.len();
        let outcome = match request_opcode {
            opcode::EXECUTE => self.execute(version, body, counts, out),
            opcode::QUERY => self.query(version, body, keyspace, counts, out),
            opcode::PREPARE => self.prepare(version, body, keyspace, counts, out),
            opcode::BATCH => self.batch(version, body, keyspace, counts, out),
            _ => Err(Failure::Protocol("unexpected opcode".into())),
        };
        match outcome {
            Ok(keyspace) => Answered { opcode: opcode::RESULT, keyspace },
            Err(failure) => {
                out.truncate(start);
                counts.errors += 1;
                failure.put(out, version);
                Answered { opcode: opcode::ERROR, keyspace: None }
            }
        }
    }

    fn execute(
        &mut self,
        version: u8,
        body: &[u8],
        counts: &mut Counts,
        out: &mut Vec<u8>,
    ) -> Outcome {
        counts.queries += 1;
        let request = Execute::decode(version, body)?;
        let id = StatementId::try_from(request.id)
            .map_err(|_| Failure::Unprepared(request.id.to_vec()))?;
        let planned =
            self.statements.get(&id).ok_or_else(|| Failure::Unprepared(request.id.to_vec()))?;
        self.perform(&planned.plan, &request.params, counts, out)
    }

    fn query(
        &mut self,
        version: u8,
        body: &[u8],
        keyspace: Option<&str>,
        counts: &mut Counts,
        out: &mut Vec<u8>,
    ) -> Outcome {
        counts.queries += 1;
        let request = Query::decode(version, body)?;
        let planned = plan(request.text, request.params.keyspace.or(keyspace), &self.tables);
        self.perform(&planned.plan, &request.params, counts, out)
    }

    fn batch(
        &mut self,
        version: u8,
        body: &[u8],
        keyspace: Option<&str>,
        counts: &mut Counts,
        out: &mut Vec<u8>,
    ) -> Outcome {
        counts.queries += 1;
        let batch = Batch::decode(version, body)?;
        for child in batch.children() {
            match child.statement {
                BatchStatement::Text(text) => {
                    let planned = plan(text, batch.params.keyspace.or(keyspace), &self.tables);
                    self.write(&planned.plan, &child.values, batch.params.timestamp, counts);
                }
                BatchStatement::Prepared(id) => {
                    let known =
                        StatementId::try_from(id).ok().and_then(|id| self.statements.get(&id));
                    let planned = known.ok_or_else(|| Failure::Unprepared(id.to_vec()))?;
                    self.write(&planned.plan, &child.values, batch.params.timestamp, counts);
                }
            }
        }
        encode::void(out);
        Ok(None)
    }

    fn prepare(
        &mut self,
        version: u8,
        body: &[u8],
        keyspace: Option<&str>,
        counts: &mut Counts,
        out: &mut Vec<u8>,
    ) -> Outcome {
        counts.prepares += 1;
        let request = Prepare::decode(version, body)?;
        let keyspace = request.keyspace.or(keyspace);
        let planned = plan(request.text, keyspace, &self.tables);
        if let Plan::Invalid(reason) = planned.plan {
            return Err(Failure::Invalid(reason));
        }
        let mut id = statement_id(keyspace, request.text);
        id[0] = id[0] & !READS | u8::from(planned.plan.bench_columns().is_some());
        self.put_prepared(version, id, &planned, out);
        self.statements.insert(id, planned);
        Ok(None)
    }

    fn put_prepared(&self, version: u8, id: StatementId, planned: &Planned, out: &mut Vec<u8>) {
        let (source, columns, result): (_, &[Column], Vec<Column>) = match &planned.plan {
            Plan::System { table, columns, .. } => {
                let table = &self.tables[*table];
                ((table.keyspace, table.name), table.columns, table.specifications(columns))
            }
            plan => {
                let columns = plan.bench_columns().unwrap_or_default();
                (
                    (KEYSPACE, TABLE),
                    TABLE_COLUMNS,
                    columns.iter().map(|&column| TABLE_COLUMNS[column]).collect(),
                )
            }
        };
        let of_bench =
            planned.plan.bench_columns().is_some() || matches!(planned.plan, Plan::Write { .. });
        let bind: Vec<(&str, &[u8])> = planned
            .markers
            .iter()
            .map(|marker| {
                let of_column =
                    marker.column.map_or(TABLE_COLUMNS[0].1, |column| columns[column].1);
                (marker.name.as_str(), marker.type_option.unwrap_or(of_column))
            })
            .collect();
        // Of several keys the last one counts, as in Cassandra.
        let key = planned
            .markers
            .iter()
            .rposition(|marker| marker.column == Some(0))
            .filter(|_| of_bench);
        let partition_key: Vec<u16> = key.map(|index| index as u16).into_iter().collect();
        let spec = PreparedSpec {
            id: &id,
            result_metadata_id: &id,
            keyspace: source.0,
            table: source.1,
            bind: &bind,
            partition_key: &partition_key,
            result: &result,
        };
        prepared(out, version, &spec);
    }

    fn perform(
        &self,
        plan: &Plan,
        params: &QueryParams<'_>,
        counts: &mut Counts,
        out: &mut Vec<u8>,
    ) -> Outcome {
        match plan {
            Plan::Write { conditional, .. } => {
                self.write(plan, &params.values, params.timestamp, counts);
                if *conditional {
                    let mut writer =
                        RowsWriter::new(out, KEYSPACE, TABLE, &[("[applied]", native::BOOLEAN)]);
                    writer.value(Some(&[1]));
                    writer.finish();
                } else {
                    encode::void(out);
                }
            }
            Plan::Read { columns, key } => {
                let key = key.as_ref().and_then(|key| key.resolve(&params.values));
                self.check_route(key, counts);
                self.read(columns, key, params.skips_metadata(), out);
            }
            Plan::Multiget { columns, keys } => {
                self.multiget(columns, keys, params, counts, out)?
            }
            Plan::Scan { columns, from, rows } => {
                self.check_route(from.resolve(&params.values), counts);
                self.scan(columns, from, rows.as_ref(), params, out)?;
            }
            Plan::System { table, columns, filters } => {
                let wanted = |row: &[Option<Vec<u8>>]| {
                    filters.iter().all(|(column, operand)| {
                        row[*column].as_deref() == operand.resolve(&params.values)
                    })
                };
                self.tables[*table].put_rows(out, columns, params.skips_metadata(), wanted);
            }
            Plan::Use(name) => {
                encode::set_keyspace(out, name);
                return Ok(Some(name.clone()));
            }
            Plan::Nothing => encode::void(out),
            Plan::Invalid(reason) => return Err(Failure::Invalid(reason.clone())),
        }
        Ok(None)
    }

    fn write(
        &self,
        plan: &Plan,
        values: &Values<'_>,
        timestamp_us: Option<i64>,
        counts: &mut Counts,
    ) {
        let Plan::Write { key, value, .. } = plan else { return };
        if self.memory.is_none() && self.placement.is_none() {
            return;
        }
        let key = key.as_ref().and_then(|key| key.resolve(values));
        self.check_route(key, counts);
        if let Some((memory, key)) = self.memory.as_ref().zip(key) {
            let mut rows = memory.lock().unwrap_or_else(PoisonError::into_inner);
            rows.write(key, value.as_ref().and_then(|value| value.resolve(values)), timestamp_us);
        }
    }

    fn check_route(&self, key: Option<&[u8]>, counts: &mut Counts) {
        if let Some((placement, key)) = self.placement.as_ref().zip(key) {
            let here = placement.replicas(token::token(key).0) >> self.index & 1;
            counts.misrouted += 1 - here;
        }
    }
}

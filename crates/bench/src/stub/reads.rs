//! Reads of the bench table: one key, several keys, and a scan from a token on.

use std::sync::PoisonError;

use shunt_topology::token;
use shunt_wire::cql::message::{QueryParams, Reader, encode_result::RowsWriter};

use crate::stub::{
    answer::Node,
    counts::Counts,
    failure::Failure,
    plan::{Keys, Operand},
    system_tables::{KEYSPACE, TABLE, TABLE_COLUMNS},
    table::Column,
};

/// Rows of a scan without LIMIT.
const SCAN_ROWS: i32 = 100;
/// Most rows of a scan, whatever its LIMIT.
const SCAN_ROWS_MAX: usize = 10_000;
/// Approximate maximum of a scan's bytes.
const SCAN_BYTES_MAX: usize = 16 << 20;

impl Node {
    /// Answers with the row of one key.
    pub(super) fn read(
        &self,
        columns: &[usize],
        key: Option<&[u8]>,
        skip_metadata: bool,
        out: &mut Vec<u8>,
    ) {
        if let Some(memory) = &self.memory {
            let rows = memory.lock().unwrap_or_else(PoisonError::into_inner);
            let value = key.and_then(|key| rows.get(key));
            put_bench_rows(out, columns, skip_metadata, value.map(|value| (key, value)));
        } else if columns == [1] {
            out.extend_from_slice(&self.ready[usize::from(skip_metadata)]);
        } else {
            put_bench_rows(out, columns, skip_metadata, [(key, &self.value[..])]);
        }
    }

    /// Answers with the rows of several keys, in the order of the request.
    pub(super) fn multiget(
        &self,
        columns: &[usize],
        keys: &Keys,
        params: &QueryParams<'_>,
        counts: &mut Counts,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let keys = resolve(keys, params)?;
        self.check_routes(&keys, counts);
        let skip_metadata = params.skips_metadata();
        if let Some(memory) = &self.memory {
            let rows = memory.lock().unwrap_or_else(PoisonError::into_inner);
            let found = keys.iter().filter_map(|&key| Some((Some(key), rows.get(key)?)));
            put_bench_rows(out, columns, skip_metadata, found);
        } else {
            put_bench_rows(
                out,
                columns,
                skip_metadata,
                keys.iter().map(|&key| (Some(key), &self.value[..])),
            );
        }
        Ok(())
    }

    /// Answers with the row of a key and as many others as the LIMIT allows: remembered rows in any
    /// order, or the same row again.
    pub(super) fn scan(
        &self,
        columns: &[usize],
        from: &Operand,
        rows: Option<&Operand>,
        params: &QueryParams<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let key = from
            .resolve(&params.values)
            .ok_or_else(|| Failure::Invalid("token() of null".into()))?;
        let rows = rows.map_or(Some(SCAN_ROWS), |rows| {
            Some(i32::from_be_bytes(rows.resolve(&params.values)?.try_into().ok()?))
        });
        let rows = rows.and_then(|rows| usize::try_from(rows).ok()).filter(|&rows| rows > 0);
        let rows =
            rows.ok_or_else(|| Failure::Invalid("LIMIT must be strictly positive".into()))?;
        let most = rows.min(SCAN_ROWS_MAX);
        let skip_metadata = params.skips_metadata();
        if let Some(memory) = &self.memory {
            let rows = memory.lock().unwrap_or_else(PoisonError::into_inner);
            let others = rows.iter().filter(|(other, _)| *other != key);
            let found = rows.get(key).map(|value| (key, value)).into_iter().chain(others);
            let mut left = SCAN_BYTES_MAX;
            let fitting = found.take(most).take_while(|(key, value)| {
                let fits = left > 0;
                left = left.saturating_sub(key.len() + value.len() + 8);
                fits
            });
            let fitting = fitting.map(|(key, value)| (Some(key), value));
            put_bench_rows(out, columns, skip_metadata, fitting);
        } else {
            let row = (Some(key), &self.value[..]);
            let most = most.min(SCAN_BYTES_MAX / (key.len() + self.value.len() + 8) + 1);
            put_bench_rows(out, columns, skip_metadata, std::iter::repeat_n(row, most));
        }
        Ok(())
    }

    /// Counts the keys of a query that are on other nodes.
    fn check_routes(&self, keys: &[&[u8]], counts: &mut Counts) {
        counts.multigets += 1;
        counts.multiget_keys += keys.len() as u64;
        if let Some(placement) = &self.placement {
            let is_here =
                |key: &&&[u8]| placement.replicas(token::token(key).0) >> self.index & 1 == 1;
            let here = keys.iter().filter(is_here).count();
            counts.multiget_keys_elsewhere += (keys.len() - here) as u64;
            counts.misrouted += u64::from(here == 0 && !keys.is_empty());
        }
    }
}

/// Returns the bytes of all keys.
fn resolve<'a>(keys: &'a Keys, params: &QueryParams<'a>) -> Result<Vec<&'a [u8]>, Failure> {
    let null = || Failure::Invalid("Invalid null value for column k".into());
    match keys {
        Keys::Each(operands) => operands
            .iter()
            .map(|operand| operand.resolve(&params.values).ok_or_else(null))
            .collect(),
        Keys::List(operand) => {
            let mut reader = Reader::new(operand.resolve(&params.values).ok_or_else(null)?);
            let count = reader.count("keys")?;
            (0..count).map(|_| reader.bytes("key")?.ok_or_else(null)).collect()
        }
    }
}

/// Appends a RESULT with these rows of keys and values.
pub(super) fn put_bench_rows<'a>(
    out: &mut Vec<u8>,
    columns: &[usize],
    skip_metadata: bool,
    rows: impl IntoIterator<Item = (Option<&'a [u8]>, &'a [u8])>,
) {
    let mut writer = if skip_metadata {
        RowsWriter::without_metadata(out, columns.len())
    } else {
        let specifications: Vec<Column> =
            columns.iter().map(|&column| TABLE_COLUMNS[column]).collect();
        RowsWriter::new(out, KEYSPACE, TABLE, &specifications)
    };
    for (key, value) in rows {
        for &column in columns {
            writer.value(if column == 0 { key } else { Some(value) });
        }
    }
    writer.finish();
}

//! Partition keys and clustering prefixes of a statement with its values, encoded for storage.

use shunt_language::InvalidRequest;
use shunt_language::terms::{Bindings, Prepared, Value};
use shunt_language::types::CqlType;
use shunt_language::values::{ordered, split, validate};
use shunt_storage::CLUSTERING_BYTES_MAX;
use shunt_storage::row::{Cell, CellValue, ColumnId};
use shunt_topology::{Token, token};
use shunt_wire::cql::types::partition_key;

use crate::limits;
use crate::schema::{Column, Table};
use crate::statement::restrictions::{ClusteringRestriction, OneOf, Operand, TupleIn};

/// Most combinations of values from the `IN`s of one statement.
const COMBINATIONS_MAX: usize = 10_000;

/// Most bytes of a partition's key, and of a row's clustering columns together.
const KEY_BYTES_MAX: usize = 65_535;

/// Length of the token before a partition's key.
const TOKEN_BYTES: usize = 8;

/// A partition: its token, and its key as stored.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Partition {
    pub(crate) token: Token,
    /// Token in byte order, then the key as the protocol serializes it.
    pub(crate) key: Vec<u8>,
}

impl Partition {
    /// The partition with these values of its key columns.
    pub(crate) fn new<V: AsRef<[u8]>>(values: &[V]) -> Result<Partition, InvalidRequest> {
        let bytes: usize = values.iter().map(|value| value.as_ref().len() + 3).sum();
        let mut key = Vec::with_capacity(TOKEN_BYTES + bytes);
        key.extend_from_slice(&[0; TOKEN_BYTES]);
        match values {
            [only] => key.extend_from_slice(only.as_ref()),
            several => {
                let mut serialized = Vec::with_capacity(bytes);
                if !partition_key(several.iter().map(|value| Some(value.as_ref())), &mut serialized)
                {
                    return Err(InvalidRequest::new("Key length is longer than maximum of 65535"));
                }
                key.append(&mut serialized);
            }
        }
        let serialized = &key[TOKEN_BYTES..];
        if serialized.is_empty() {
            return Err(InvalidRequest::new("Key may not be empty"));
        }
        if serialized.len() > KEY_BYTES_MAX {
            return Err(too_long(serialized.len()));
        }
        let token = token::token(serialized);
        key[..TOKEN_BYTES].copy_from_slice(&token_bytes(token));
        Ok(Partition { token, key })
    }
}

fn too_long(bytes: usize) -> InvalidRequest {
    InvalidRequest::new(format!("Key length of {bytes} is longer than maximum of {KEY_BYTES_MAX}"))
}

/// Encodes a token so that byte order is token order.
pub(crate) fn token_bytes(token: Token) -> [u8; 8] {
    (token.0 as u64 ^ 1 << 63).to_be_bytes()
}

/// A value that must be present.
fn required(value: Value, column: &Column) -> Result<Vec<u8>, InvalidRequest> {
    match value {
        Value::Bytes(bytes) => Ok(bytes),
        Value::Null => Err(InvalidRequest::new(format!(
            "Invalid null value in condition for column {}",
            column.name
        ))),
        Value::Unset => {
            Err(InvalidRequest::new(format!("Invalid unset value for column {}", column.name)))
        }
    }
}

/// The value of an operand.
pub(crate) fn operand(operand: &Operand, bindings: &dyn Bindings) -> Result<Value, InvalidRequest> {
    match operand {
        Operand::Term(term) => term.evaluate(bindings),
        Operand::Part { tuple, types, index } => match tuple.evaluate(bindings)? {
            Value::Bytes(bytes) => {
                let parts = split::tuple(types.len(), &bytes)
                    .map_err(|_| InvalidRequest::new("Invalid tuple value"))?;
                Ok(parts
                    .get(*index)
                    .copied()
                    .flatten()
                    .map_or(Value::Null, |part| Value::Bytes(part.to_vec())))
            }
            other => Ok(other),
        },
    }
}

/// The values of a list.
fn list(
    term: &Prepared,
    bindings: &dyn Bindings,
    column: &str,
) -> Result<Vec<Vec<u8>>, InvalidRequest> {
    match term.evaluate(bindings)? {
        Value::Bytes(bytes) => {
            Ok(split::collection("list", &bytes)?.into_iter().map(<[u8]>::to_vec).collect())
        }
        Value::Null => Err(InvalidRequest::new(format!("Invalid null value for column {column}"))),
        Value::Unset => {
            Err(InvalidRequest::new(format!("Invalid unset value for column {column}")))
        }
    }
}

/// Possible values of a column, each once, in the order of its type.
pub(crate) fn alternatives(
    one_of: &OneOf,
    column: &Column,
    bindings: &dyn Bindings,
) -> Result<Vec<Vec<u8>>, InvalidRequest> {
    let mut values = match one_of {
        OneOf::Equal(value) => return Ok(vec![required(operand(value, bindings)?, column)?]),
        OneOf::In(terms) => {
            let values = terms.iter().map(|term| required(term.evaluate(bindings)?, column));
            values.collect::<Result<Vec<_>, _>>()?
        }
        OneOf::InList(term) => list(term, bindings, &column.name)?,
    };
    values.sort_by(|one, other| shunt_language::values::compare(&column.cql_type, one, other));
    values.dedup();
    Ok(values)
}

/// Must be called before combinations of values are made: each has copies of its values, and a few
/// long values have many combinations with short ones.
fn check_combinations(count: usize, bytes: usize) -> Result<(), InvalidRequest> {
    if count > COMBINATIONS_MAX {
        return Err(InvalidRequest::new(format!(
            "IN relations with more than {COMBINATIONS_MAX} combinations"
        )));
    }
    let bytes_max = limits::GATHERED_BYTES_MAX;
    if bytes > bytes_max {
        return Err(InvalidRequest::new(format!(
            "IN relations whose combinations have more than {bytes_max} bytes: use several requests"
        )));
    }
    Ok(())
}

/// All combinations, the last column changing fastest.
fn product(columns: Vec<Vec<Vec<u8>>>) -> Result<Vec<Vec<Vec<u8>>>, InvalidRequest> {
    let count = columns.iter().try_fold(1_usize, |count, values| count.checked_mul(values.len()));
    let count = count.unwrap_or(usize::MAX);
    // Each value is in its part of the combinations.
    let bytes_of = |values: &Vec<Vec<u8>>| {
        let bytes: usize = values.iter().map(Vec::len).sum();
        bytes.saturating_mul(count / values.len().max(1))
    };
    check_combinations(count, columns.iter().map(bytes_of).fold(0, usize::saturating_add))?;
    let mut rows: Vec<Vec<Vec<u8>>> = vec![Vec::new()];
    for values in columns {
        let longer = |row: &Vec<Vec<u8>>| {
            let row = row.clone();
            values
                .iter()
                .map(move |value| [row.clone(), vec![value.clone()]].concat())
                .collect::<Vec<_>>()
        };
        rows = rows.iter().flat_map(longer).collect();
    }
    Ok(rows)
}

/// Values of columns with one value each; `None` if a column may have several.
fn equal<'k>(
    columns: impl Iterator<Item = (&'k OneOf, &'k Column)>,
    bindings: &dyn Bindings,
) -> Result<Option<Vec<Vec<u8>>>, InvalidRequest> {
    let mut values = Vec::with_capacity(columns.size_hint().0);
    for (one_of, column) in columns {
        let OneOf::Equal(value) = one_of else { return Ok(None) };
        values.push(required(operand(value, bindings)?, column)?);
    }
    Ok(Some(values))
}

/// Partitions named by a statement.
pub(crate) fn partitions(
    table: &Table,
    keys: &[OneOf],
    bindings: &dyn Bindings,
) -> Result<Vec<Partition>, InvalidRequest> {
    let columns = keys.iter().zip(table.partition_key());
    // Nearly all statements name one.
    if let Some(values) = equal(columns.clone(), bindings)? {
        return Ok(vec![Partition::new(&values)?]);
    }
    let values = columns.map(|(one_of, column)| alternatives(one_of, column, bindings));
    product(values.collect::<Result<_, _>>()?)?.iter().map(|key| Partition::new(key)).collect()
}

/// Encodes values of the first clustering columns.
pub(crate) fn clustering<V: AsRef<[u8]>>(
    table: &Table,
    values: &[V],
) -> Result<Vec<u8>, InvalidRequest> {
    let mut out = Vec::new();
    for (column, value) in table.clustering().iter().zip(values) {
        validate(&column.cql_type, value.as_ref())?;
        ordered::encode(&column.cql_type, column.descending, value.as_ref(), &mut out)?;
    }
    Ok(out)
}

/// Encodes the values of all clustering columns of a row that is written.
pub(crate) fn row<V: AsRef<[u8]>>(table: &Table, values: &[V]) -> Result<Vec<u8>, InvalidRequest> {
    let bytes = values.iter().map(|value| value.as_ref().len()).sum();
    let encoded = clustering(table, values)?;
    // Cassandra's limit, and the remainder for nested types, whose stored form is many times as
    // large.
    if bytes > KEY_BYTES_MAX || encoded.len() >= CLUSTERING_BYTES_MAX {
        return Err(too_long(bytes));
    }
    Ok(encoded)
}

/// Returns the written form of `values` that a row keeps beside its key, if equal keys can be
/// written differently.
pub(crate) fn as_written<V: AsRef<[u8]>>(
    table: &Table,
    values: &[V],
    timestamp: i64,
) -> Option<Cell> {
    let value =
        || CellValue::Live(split::join_tuple(values.iter().map(|value| Some(value.as_ref()))));
    let cell = || Cell {
        column: ColumnId::KEY_AS_WRITTEN,
        path: None,
        timestamp,
        expiry: None,
        value: value(),
    };
    table.keeps_written_keys.then(cell)
}

/// Values of the clustering columns given by equality, `IN` and tuples: one row, or several.
pub(crate) fn clustering_values(
    table: &Table,
    restriction: &ClusteringRestriction,
    bindings: &dyn Bindings,
) -> Result<Vec<Vec<Vec<u8>>>, InvalidRequest> {
    let columns = restriction.equal.iter().zip(table.clustering());
    let equal = columns.map(|(one_of, column)| alternatives(one_of, column, bindings));
    let rows = product(equal.collect::<Result<_, _>>()?)?;
    let Some((types, tuples)) = &restriction.tuples else { return Ok(rows) };
    let tuples = tuple_values(types, tuples, bindings)?;
    let bytes_of = |rows: &[Vec<Vec<u8>>]| rows.iter().flatten().map(Vec::len).sum::<usize>();
    let of_rows = bytes_of(&rows).saturating_mul(tuples.len());
    let of_tuples = bytes_of(&tuples).saturating_mul(rows.len());
    let count = rows.len().saturating_mul(tuples.len());
    check_combinations(count, of_rows.saturating_add(of_tuples))?;
    Ok(rows
        .iter()
        .flat_map(|row| tuples.iter().map(|tuple| [row.clone(), tuple.clone()].concat()))
        .collect())
}

/// A row: its clustering bytes, and the values of the clustering columns.
pub(super) type NamedRow = (Vec<u8>, Vec<Vec<u8>>);

/// Rows given in this way: clustering bytes with the values, each row once, in order.
pub(crate) fn rows(
    table: &Table,
    restriction: &ClusteringRestriction,
    bindings: &dyn Bindings,
) -> Result<Vec<NamedRow>, InvalidRequest> {
    let values = clustering_values(table, restriction, bindings)?;
    let encoded = values.into_iter().map(|values| Ok((row(table, &values)?, values)));
    let mut rows = encoded.collect::<Result<Vec<_>, InvalidRequest>>()?;
    rows.sort_by(|one, other| one.0.cmp(&other.0));
    rows.dedup_by(|one, other| one.0 == other.0);
    Ok(rows)
}

fn tuple_values(
    types: &[CqlType],
    tuples: &TupleIn,
    bindings: &dyn Bindings,
) -> Result<Vec<Vec<Vec<u8>>>, InvalidRequest> {
    let parts = |bytes: &[u8]| -> Result<Vec<Vec<u8>>, InvalidRequest> {
        let parts = split::tuple(types.len(), bytes)
            .map_err(|_| InvalidRequest::new("Invalid tuple value"))?;
        let null = || InvalidRequest::new("Invalid null value in condition for clustering columns");
        parts.into_iter().map(|part| part.map(<[u8]>::to_vec).ok_or_else(null)).collect()
    };
    let tuples: Vec<Vec<u8>> = match tuples {
        TupleIn::Terms(terms) => {
            let bytes = |term: &Prepared| {
                let value = term.evaluate(bindings)?.into_bytes();
                value.ok_or_else(|| {
                    InvalidRequest::new("Invalid null value in condition for clustering columns")
                })
            };
            terms.iter().map(bytes).collect::<Result<_, _>>()?
        }
        TupleIn::List(term) => list(term, bindings, "clustering columns")?,
    };
    tuples.iter().map(|tuple| parts(tuple)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_are_limited_in_number_and_bytes() {
        let values = |count: usize, bytes: usize| vec![vec![0; bytes]; count];
        let made = |columns: Vec<Vec<Vec<u8>>>| product(columns).map(|rows| rows.len());
        assert_eq!(made(vec![values(1, 60_000), values(100, 4)]), Ok(100));
        assert_eq!(made(vec![values(100, 4), values(100, 4)]), Ok(10_000));
        assert_eq!(made(vec![values(100, 60_000), Vec::new()]), Ok(0), "an empty IN");
        assert!(made(vec![values(101, 4), values(100, 4)]).is_err());
        // 160 KB of a statement are 600 MB of keys.
        let error = made(vec![values(1, 60_000), values(10_000, 4)]).expect_err("bytes");
        assert!(error.message.contains("bytes"), "{}", error.message);
        // Long values count once for each combination that they are part of.
        let mixed = [values(1, 60_000), values(9_999, 4)].concat();
        assert_eq!(made(vec![mixed]), Ok(10_000));
    }
}

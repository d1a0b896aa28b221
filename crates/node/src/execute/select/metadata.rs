//! Write times and times to live of cells.

use std::borrow::Cow;

use shunt_language::ast::CellMetadata;
use shunt_language::types::CqlType;
use shunt_language::values::compare;

use super::super::rows::{CellInfo, field_of, infos};
use super::evaluate::{Computed, Evaluator, is_between, list_with_nulls};
use super::input::Input;
use crate::statement::select::selection::Part;

fn bytes(what: CellMetadata, info: CellInfo) -> Option<Vec<u8>> {
    match what {
        CellMetadata::TimeToLive => info.ttl.map(|seconds| seconds.to_be_bytes().to_vec()),
        CellMetadata::WriteTime | CellMetadata::MaxWriteTime => {
            Some(info.timestamp.to_be_bytes().to_vec())
        }
    }
}

/// Returns the metadata of a column's cells.
pub(super) fn value<'v>(
    evaluator: &Evaluator<'_>,
    what: CellMetadata,
    position: usize,
    part: Part,
    input: &Input<'v>,
) -> Computed<'v> {
    let column = &input.table.columns[position];
    let Some(row) = input.row_of(column) else { return Ok(None) };
    let mut cells: Vec<(Option<&[u8]>, CellInfo)> = infos(row, column, input.now).collect();
    if !column.is_multi_cell() {
        return Ok(cells.first().and_then(|(_, info)| bytes(what, *info)).map(Cow::Owned));
    }
    let key_type = match &column.cql_type {
        CqlType::Map { key, .. } => Some(key),
        CqlType::Set { element, .. } => Some(element),
        _ => None,
    };
    if let Some(key_type) = key_type {
        cells.sort_by(|one, other| {
            compare(key_type, one.0.unwrap_or_default(), other.0.unwrap_or_default())
        });
    }
    let same = |path: &Option<&[u8]>, key: &[u8]| match key_type {
        Some(key_type) => path.is_some_and(|path| compare(key_type, path, key).is_eq()),
        None => *path == Some(key),
    };
    let single = match part {
        Part::Field(index) => cells.iter().find(|(path, _)| path.and_then(field_of) == Some(index)),
        Part::Element(key) => {
            let key = evaluator.key(key, "element")?;
            cells.iter().find(|(path, _)| same(path, key))
        }
        Part::Whole if what == CellMetadata::MaxWriteTime => {
            cells.iter().max_by_key(|(_, info)| info.timestamp)
        }
        Part::Slice(from, to) => {
            let (from, to) = (evaluator.bound(from)?, evaluator.bound(to)?);
            if let Some(key_type) = key_type {
                cells.retain(|(path, _)| is_between(key_type, path.unwrap_or_default(), from, to));
            }
            let greatest = cells.iter().max_by_key(|(_, info)| info.timestamp);
            if what != CellMetadata::MaxWriteTime {
                return Ok(several(what, &column.cql_type, &cells));
            }
            greatest
        }
        Part::Whole => return Ok(several(what, &column.cql_type, &cells)),
    };
    Ok(single.and_then(|(_, info)| bytes(what, *info)).map(Cow::Owned))
}

/// A list with an entry per cell; per field for a user-defined type.
fn several<'v>(
    what: CellMetadata,
    cql_type: &CqlType,
    cells: &[(Option<&[u8]>, CellInfo)],
) -> Option<Cow<'v, [u8]>> {
    if cells.is_empty() {
        return None;
    }
    let values: Vec<Option<Vec<u8>>> = match cql_type {
        CqlType::Udt { definition, .. } => {
            let field = |index: usize| {
                let found = cells.iter().find(|(path, _)| path.and_then(field_of) == Some(index));
                found.and_then(|(_, info)| bytes(what, *info))
            };
            (0..definition.fields.len()).map(field).collect()
        }
        _ => cells.iter().map(|(_, info)| bytes(what, *info)).collect(),
    };
    Some(Cow::Owned(list_with_nulls(values.into_iter())))
}

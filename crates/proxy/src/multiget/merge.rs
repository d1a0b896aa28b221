//! Merges the answers of all parts into one: the rows of the first, then those of the next. It
//! inspects no row.

use std::collections::HashSet;
use std::hash::Hash;

use shunt_wire::cql::envelope::flag;
use shunt_wire::cql::message::result;
use shunt_wire::cql::message::{
    Metadata, ResultMessage, metadata_flag, put, result_kind, split_response_prefix,
};

use crate::limits;
use crate::multiget::reasons::Lost;
use crate::multiget::{Rows, Wanted};

/// An answer that was written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Merged {
    pub(crate) flags: u8,
    pub(crate) body: Vec<u8>,
}

/// Values in the order in which they came, each once. A node's answer may have very many warnings
/// that differ in their last byte, so a new one must never be compared with all others.
struct Distinct<T> {
    known: HashSet<T>,
    list: Vec<T>,
}

impl<T> Default for Distinct<T> {
    fn default() -> Self {
        Self { known: HashSet::new(), list: Vec::new() }
    }
}

impl<T: Copy + Eq + Hash> Distinct<T> {
    fn add(&mut self, value: T) {
        if self.known.insert(value) {
            self.list.push(value);
        }
    }
}

/// The rows of a part that can be one of several: complete, and accompanied by warnings only.
pub(crate) fn complete<'a>(
    version: u8,
    flags: u8,
    body: &'a [u8],
) -> Result<(Vec<&'a str>, result::Rows<'a>), Lost> {
    if flags & !flag::WARNING != 0 {
        return Err(Lost::Unreadable);
    }
    let (prefix, body) = split_response_prefix(flags, body).map_err(|_| Lost::Unreadable)?;
    let warnings = prefix.warnings.map(|warnings| warnings.iter().collect()).unwrap_or_default();
    let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(version, body) else {
        return Err(Lost::Unreadable);
    };
    if rows.metadata.flags & metadata_flag::HAS_MORE_PAGES != 0 {
        return Err(Lost::Pages);
    }
    if rows.metadata.flags & !metadata_flag::GLOBAL_TABLE != 0 {
        return Err(Lost::Metadata);
    }
    Ok((warnings, rows))
}

/// Merges the answers, in the order of the keys. `bytes_max`: bound on the whole answer.
pub(crate) fn merge(wanted: &Wanted, answers: &[&Rows], bytes_max: usize) -> Result<Merged, Lost> {
    let mut warnings = Distinct::default();
    let mut warned = 0;
    let mut metadata: Option<Metadata<'_>> = None;
    let mut content = Vec::new();
    let mut count = 0;
    for answer in answers {
        let (told, rows) = complete(wanted.version, answer.flags, &answer.body)?;
        warned += told.len();
        if warned > limits::MULTIGET_WARNINGS_MAX {
            return Err(Lost::Unreadable);
        }
        told.into_iter().for_each(|warning| warnings.add(warning));
        if metadata.is_some_and(|first| first.raw != rows.metadata.raw) {
            return Err(Lost::Metadata);
        }
        metadata = Some(rows.metadata);
        let left = wanted
            .limit
            .map_or(usize::MAX, |limit| limit.saturating_sub(count))
            .min(rows.row_count);
        let mut bytes = 0;
        for (index, row) in rows.rows().enumerate() {
            let row = row.map_err(|_| Lost::Unreadable)?;
            bytes += row.raw.len();
            if index < left {
                content.extend_from_slice(row.raw);
            }
        }
        if bytes != rows.content.len() {
            return Err(Lost::Unreadable);
        }
        count += left;
    }
    // After a full page a node says that there may be more, even if there is not.
    if wanted.page_rows.is_some_and(|rows| count >= rows) {
        return Err(Lost::Pages);
    }
    let merged = write(wanted, &warnings.list, &metadata.ok_or(Lost::Unreadable)?, count, &content);
    if merged.body.len() > bytes_max { Err(Lost::Bytes) } else { Ok(merged) }
}

fn write(
    wanted: &Wanted,
    warnings: &[&str],
    metadata: &Metadata<'_>,
    count: usize,
    content: &[u8],
) -> Merged {
    let mut body = Vec::with_capacity(content.len() + metadata.raw.len() + 16);
    let mut flags = 0;
    if !warnings.is_empty() {
        flags |= flag::WARNING;
        put::string_list(&mut body, warnings.iter().copied());
    }
    put::int(&mut body, result_kind::ROWS);
    if wanted.skips_metadata {
        put::int(&mut body, metadata.flags | metadata_flag::NO_METADATA);
        put::int(&mut body, metadata.column_count as i32);
    } else {
        body.extend_from_slice(metadata.raw);
    }
    put::int(&mut body, count as i32);
    body.extend_from_slice(content);
    Merged { flags, body }
}

#[cfg(test)]
mod tests;

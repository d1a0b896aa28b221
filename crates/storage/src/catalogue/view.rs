//! Reads records in place: the row's own times first, columns by position on demand.

use super::bytes::Reader;
use super::error::DecodeError;
use super::layout::*;
use super::registry::Catalogue;
use super::schema::Schema;
use crate::row::{ColumnId, Deletion, Expiry, Liveness};
use std::sync::Arc;

/// The columns of a record, in the order of its values.
#[derive(Debug)]
enum Columns<'a> {
    None,
    Exact(Arc<Schema>),
    Base(Arc<Schema>, &'a [u8]),
    Inline(Vec<ColumnId>),
}

/// A borrowed record of a row. Parsing reads the row's own times and the list of columns, but no
/// value.
#[derive(Debug)]
pub struct RecordView<'a> {
    pub(super) liveness: Option<Liveness>,
    pub(super) deletion: Option<Deletion>,
    pub(super) complex: Vec<(ColumnId, Deletion)>,
    base: i64,
    expiry: Option<Expiry>,
    metadata: bool,
    uniform: Option<usize>,
    columns: Columns<'a>,
    /// Positioned at the first column's metadata.
    reader: Reader<'a>,
}

/// The value of a cell, borrowed from its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueView<'a> {
    /// See [`crate::row::CellValue`].
    Live(&'a [u8]),
    /// A deletion.
    Tombstone {
        /// Time of the deletion in seconds.
        local: i64,
    },
    /// Value of a counter.
    Counter(i64),
    /// The number to be added to a counter.
    CounterDelta(i64),
    /// The elements of a collection, for [`RecordView::elements`].
    Elements(&'a [u8]),
}

/// A cell, borrowed from its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellView<'a> {
    /// Timestamp in µs.
    pub timestamp: i64,
    /// Expiry of a value with a TTL.
    pub expiry: Option<Expiry>,
    /// Content of the cell.
    pub value: ValueView<'a>,
}

/// An element of a collection: its path and its cell.
pub type Element<'a> = (Option<&'a [u8]>, CellView<'a>);

impl<'a> RecordView<'a> {
    /// Reads a row's record.
    pub fn parse(bytes: &'a [u8], catalogue: &Catalogue) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        kind(&mut reader, KIND_ROW)?;
        let flags = reader.byte("flags")?;
        let base = EPOCH_US.wrapping_add(reader.signed("base timestamp")?);
        let expiry = if flags & EXPIRY != 0 { Some(read_expiry(&mut reader, base)?) } else { None };
        let liveness = read_liveness(&mut reader, flags, base, expiry)?;
        let (deletion, complex) = if flags & DELETIONS != 0 {
            read_deletions(&mut reader, base)?
        } else {
            (None, Vec::new())
        };
        let columns = read_presence(&mut reader, flags >> PRESENCE_SHIFT, catalogue)?;
        let uniform =
            if flags & UNIFORM != 0 { Some(reader.count("length of all values")?) } else { None };
        let metadata = flags & METADATA != 0;
        if metadata && uniform.is_some() {
            return Err(reader.error("flags that exclude each other"));
        }
        Ok(RecordView {
            liveness,
            deletion,
            complex,
            base,
            expiry,
            metadata,
            uniform,
            columns,
            reader,
        })
    }

    /// Liveness of an inserted row.
    pub fn liveness(&self) -> Option<Liveness> {
        self.liveness
    }

    /// The columns with content, in order.
    pub fn columns(&self) -> Vec<ColumnId> {
        match &self.columns {
            Columns::None => Vec::new(),
            Columns::Exact(schema) => schema.columns.to_vec(),
            Columns::Base(schema, bitmap) => {
                let set = |at: &usize| bitmap[at / 8] >> (at % 8) & 1 == 1;
                (0..schema.columns.len()).filter(set).map(|at| schema.columns[at]).collect()
            }
            Columns::Inline(columns) => columns.clone(),
        }
    }

    /// True if readers can see any content: the insertion, or a column.
    pub fn has_content(&self) -> bool {
        self.liveness.is_some() || self.count() > 0
    }

    /// True if the column has content.
    pub fn has_column(&self, column: ColumnId) -> bool {
        self.position(column).is_some()
    }

    /// Total size of the values and of the data for finding them, in bytes.
    pub fn value_bytes(&self) -> usize {
        self.reader.remaining()
    }

    /// The schema id that the record names.
    pub fn schema_id(&self) -> Option<u32> {
        match &self.columns {
            Columns::Exact(schema) | Columns::Base(schema, _) => Some(schema.id),
            Columns::None | Columns::Inline(_) => None,
        }
    }

    fn position(&self, column: ColumnId) -> Option<usize> {
        match &self.columns {
            Columns::None => None,
            Columns::Exact(schema) => schema.columns.binary_search(&column).ok(),
            Columns::Inline(columns) => columns.binary_search(&column).ok(),
            Columns::Base(schema, bitmap) => {
                let at = schema.columns.binary_search(&column).ok()?;
                let whole: u32 = bitmap[..at / 8].iter().map(|byte| byte.count_ones()).sum();
                let byte = bitmap[at / 8];
                let before = byte & ((1u8 << (at % 8)) - 1);
                (byte >> (at % 8) & 1 == 1).then_some((whole + before.count_ones()) as usize)
            }
        }
    }

    fn count(&self) -> usize {
        match &self.columns {
            Columns::None => 0,
            Columns::Exact(schema) => schema.columns.len(),
            Columns::Inline(columns) => columns.len(),
            Columns::Base(_, bitmap) => bitmap.iter().map(|byte| byte.count_ones() as usize).sum(),
        }
    }

    /// Reads one column without decoding the others: skips their lengths and never touches their
    /// values.
    pub fn column(&self, column: ColumnId) -> Result<Option<CellView<'a>>, DecodeError> {
        let Some(position) = self.position(column) else { return Ok(None) };
        let mut reader = self.reader;
        if let Some(length) = self.uniform {
            reader.take(position.saturating_mul(length), "values before the column")?;
            return Ok(Some(self.plain(reader.take(length, "value")?)));
        }
        let (mut before, mut found) = (0usize, None);
        for at in 0..self.count() {
            let (head, length) = self.column_head(&mut reader)?;
            if at < position {
                before = before.saturating_add(length);
            } else if at == position {
                found = Some((head, length));
            }
        }
        let Some((head, length)) = found else { return Ok(None) };
        reader.take(before, "values before the column")?;
        Ok(Some(head.with(reader.take(length, "value")?)?))
    }

    /// Passes every column in order to a visitor.
    pub(super) fn each_column(
        &self,
        mut visit: impl FnMut(ColumnId, CellView<'a>) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        let columns = self.columns();
        let mut reader = self.reader;
        if let Some(length) = self.uniform {
            for column in columns {
                visit(column, self.plain(reader.take(length, "value")?))?;
            }
            return reader.end("bytes after the last value");
        }
        let mut heads = Vec::with_capacity(columns.len());
        for column in columns {
            heads.push((column, self.column_head(&mut reader)?));
        }
        for (column, (head, length)) in heads {
            visit(column, head.with(reader.take(length, "value")?)?)?;
        }
        reader.end("bytes after the last value")
    }

    /// The elements of a column's [`ValueView::Elements`], each with its path.
    pub fn elements(&self, body: &'a [u8]) -> Result<Vec<Element<'a>>, DecodeError> {
        let mut reader = Reader::new(body);
        let count = reader.count("number of elements")?;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            let path = match reader.varint("length of a path")? {
                0 => None,
                length => {
                    let length = usize::try_from(length - 1)
                        .map_err(|_| reader.error("length of a path"))?;
                    Some(reader.take(length, "path")?)
                }
            };
            let head = self.cell_head(&mut reader)?;
            if head.kind == ELEMENTS {
                return Err(reader.error("elements within an element"));
            }
            elements.push((path, head.with(reader.bytes("value of an element")?)?));
        }
        reader.end("bytes after the last element")?;
        Ok(elements)
    }

    fn plain(&self, value: &'a [u8]) -> CellView<'a> {
        CellView { timestamp: self.base, expiry: self.expiry, value: ValueView::Live(value) }
    }

    fn column_head(&self, reader: &mut Reader<'a>) -> Result<(CellHead, usize), DecodeError> {
        let head = if self.metadata {
            self.cell_head(reader)?
        } else {
            CellHead { kind: CELL_LIVE, timestamp: self.base, expiry: self.expiry, local: 0 }
        };
        Ok((head, reader.count("length of a value")?))
    }

    fn cell_head(&self, reader: &mut Reader<'a>) -> Result<CellHead, DecodeError> {
        let flags = reader.byte("flags of a cell")?;
        if flags & CELL_UNKNOWN != 0 {
            return Err(reader.error("unknown flags of a cell"));
        }
        if flags & CELL_ELEMENTS != 0 {
            return Ok(CellHead { kind: ELEMENTS, timestamp: self.base, expiry: None, local: 0 });
        }
        let timestamp = match flags & CELL_TIMESTAMP {
            0 => self.base,
            _ => self.base.wrapping_add(reader.signed("timestamp of a cell")?),
        };
        let expiry = match flags & (CELL_EXPIRY | CELL_STAYS) {
            0 => self.expiry,
            CELL_EXPIRY => Some(read_expiry(reader, timestamp)?),
            _ => None,
        };
        let kind = flags & CELL_KIND;
        let local = match kind {
            CELL_TOMBSTONE => {
                seconds(timestamp).wrapping_add(reader.signed("local time of a tombstone")?)
            }
            _ => 0,
        };
        Ok(CellHead { kind, timestamp, expiry, local })
    }
}

/// Used together with the two bits of a cell's kind.
const ELEMENTS: u8 = CELL_ELEMENTS;

/// A cell without its value.
#[derive(Clone, Copy)]
struct CellHead {
    kind: u8,
    timestamp: i64,
    expiry: Option<Expiry>,
    local: i64,
}

impl CellHead {
    fn with(self, bytes: &[u8]) -> Result<CellView<'_>, DecodeError> {
        let number = || {
            let bytes = bytes
                .try_into()
                .map_err(|_| DecodeError::Malformed { what: "value of a counter", at: 0 })?;
            Ok(i64::from_be_bytes(bytes))
        };
        let value = match self.kind {
            CELL_TOMBSTONE => ValueView::Tombstone { local: self.local },
            CELL_COUNTER => ValueView::Counter(number()?),
            CELL_DELTA => ValueView::CounterDelta(number()?),
            ELEMENTS => ValueView::Elements(bytes),
            _ => ValueView::Live(bytes),
        };
        Ok(CellView { timestamp: self.timestamp, expiry: self.expiry, value })
    }
}

/// Reads the first byte of a record, which must be of this kind.
pub(super) fn kind(reader: &mut Reader<'_>, expected: u8) -> Result<(), DecodeError> {
    let first = reader.byte("first byte")?;
    if first >> 4 != VERSION {
        return Err(DecodeError::Version { found: first >> 4 });
    }
    match first & 0x0f {
        kind if kind == expected => Ok(()),
        KIND_UNMERGED => Err(DecodeError::Unmerged),
        _ => Err(DecodeError::Malformed { what: "kind of record", at: 0 }),
    }
}

fn read_expiry(reader: &mut Reader<'_>, timestamp: i64) -> Result<Expiry, DecodeError> {
    let ttl = reader.number("TTL")?;
    let off = reader.signed("expiry")?;
    Ok(Expiry { ttl, at: off.wrapping_add(seconds(timestamp)).wrapping_add(i64::from(ttl)) })
}

fn read_liveness(
    reader: &mut Reader<'_>,
    flags: u8,
    base: i64,
    expiry: Option<Expiry>,
) -> Result<Option<Liveness>, DecodeError> {
    if flags & LIVENESS_AT_BASE != 0 {
        return Ok(Some(Liveness { timestamp: base, expiry }));
    }
    if flags & LIVENESS_OWN == 0 {
        return Ok(None);
    }
    let timestamp = base.wrapping_add(reader.signed("timestamp of the row")?);
    let expiry = match reader.byte("expiry of the row")? {
        0 => None,
        _ => Some(read_expiry(reader, timestamp)?),
    };
    Ok(Some(Liveness { timestamp, expiry }))
}

pub(super) fn read_deletion(reader: &mut Reader<'_>, base: i64) -> Result<Deletion, DecodeError> {
    let timestamp = base.wrapping_add(reader.signed("timestamp of a deletion")?);
    let local = seconds(timestamp).wrapping_add(reader.signed("local time of a deletion")?);
    Ok(Deletion { timestamp, local })
}

type Deletions = (Option<Deletion>, Vec<(ColumnId, Deletion)>);

fn read_deletions(reader: &mut Reader<'_>, base: i64) -> Result<Deletions, DecodeError> {
    let head = reader.varint("deletions")?;
    let deletion = if head & 1 == 1 { Some(read_deletion(reader, base)?) } else { None };
    let count = usize::try_from(head >> 1).ok().filter(|count| *count <= reader.remaining());
    let count = count.ok_or_else(|| reader.error("number of deletions"))?;
    let mut complex = Vec::with_capacity(count);
    let mut last = None;
    for _ in 0..count {
        let column = next_column(reader, last)?;
        complex.push((column, read_deletion(reader, base)?));
        last = Some(column);
    }
    Ok((deletion, complex))
}

/// Columns are stored as differences and rise.
fn next_column(reader: &mut Reader<'_>, last: Option<ColumnId>) -> Result<ColumnId, DecodeError> {
    let step = reader.number("column")?;
    let column = match last {
        None => Some(step),
        Some(last) => last.0.checked_add(step).filter(|_| step > 0),
    };
    column.map(ColumnId).ok_or_else(|| reader.error("columns out of order"))
}

fn read_presence<'a>(
    reader: &mut Reader<'a>,
    how: u8,
    catalogue: &Catalogue,
) -> Result<Columns<'a>, DecodeError> {
    match how {
        PRESENCE_NONE => Ok(Columns::None),
        PRESENCE_INLINE => {
            let count = reader.count("number of columns")?;
            let mut columns = Vec::with_capacity(count);
            for _ in 0..count {
                columns.push(next_column(reader, columns.last().copied())?);
            }
            Ok(Columns::Inline(columns))
        }
        _ => {
            let id = reader.number("schema id")?;
            let schema = catalogue.schema(id).ok_or(DecodeError::UnknownSchema { id })?;
            if how == PRESENCE_EXACT {
                return Ok(Columns::Exact(schema));
            }
            let bitmap = reader.take(schema.bitmap_bytes(), "presence bitmap")?;
            let spare = schema.bitmap_bytes() * 8 - schema.columns.len();
            if bitmap.last().is_some_and(|last| u32::from(*last) >> (8 - spare) != 0) {
                return Err(reader.error("columns beyond the schema's"));
            }
            Ok(Columns::Base(schema, bitmap))
        }
    }
}

/// True for a row's record with values of one time and no other content; cheap, from its flags.
pub fn is_plain(record: &[u8]) -> bool {
    const MORE: u8 = EXPIRY | METADATA | DELETIONS | LIVENESS_OWN;
    matches!(record, [first, flags, ..] if *first == VERSION << 4 | KIND_ROW && flags & MORE == 0)
}

/// True if a row's record may contain data that expires or can be purged; cheap, from its flags.
pub fn needs_purge(record: &[u8]) -> bool {
    match record {
        [first, flags, ..] if *first == VERSION << 4 | KIND_ROW => {
            let plain = is_plain(record);
            let nothing = flags >> PRESENCE_SHIFT == PRESENCE_NONE && flags & LIVENESS_AT_BASE == 0;
            !plain || nothing
        }
        _ => false,
    }
}

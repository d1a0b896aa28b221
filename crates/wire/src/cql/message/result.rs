//! RESULT in its five kinds (v5, section 4.2.5).

use super::event::SchemaChange;
use super::metadata::{ColumnSpec, Columns, Metadata, metadata_flag};
use super::primitive::Reader;
use crate::error::{DecodeError, Problem};

/// Kinds of results.
pub mod result_kind {
    use super::metadata_flag;

    /// No content.
    pub const VOID: i32 = 1;
    /// Rows.
    pub const ROWS: i32 = 2;
    /// Answer to USE.
    pub const SET_KEYSPACE: i32 = 3;
    /// Answer to PREPARE.
    pub const PREPARED: i32 = 4;
    /// Answer to a statement that changed the schema.
    pub const SCHEMA_CHANGE: i32 = 5;

    /// Returns the kind of the result in `body` without decoding the rest; `None` if the kind is
    /// missing.
    pub fn peek(body: &[u8]) -> Option<i32> {
        body.first_chunk().map(|kind| i32::from_be_bytes(*kind))
    }

    /// Returns the number of rows in `body` without decoding the metadata: `None` for a result of
    /// another kind, and for rows with column specifications, which are before the number and of
    /// any length.
    #[inline]
    pub fn row_count(body: &[u8]) -> Option<u32> {
        let int = |bytes: &[u8]| bytes.first_chunk().map(|int| i32::from_be_bytes(*int));
        if peek(body)? != ROWS {
            return None;
        }
        let flags = int(body.get(4..)?)?;
        let is_bare = flags & metadata_flag::NO_METADATA != 0;
        if !is_bare || flags & metadata_flag::METADATA_CHANGED != 0 {
            return None;
        }
        // The flags, and the number of columns.
        let mut rest = body.get(12..)?;
        if flags & metadata_flag::HAS_MORE_PAGES != 0 {
            let length = usize::try_from(int(rest)?).unwrap_or(0);
            rest = rest.get(4..)?.get(length..)?;
        }
        u32::try_from(int(rest)?).ok()
    }

    /// Returns the id in an answer to PREPARE without decoding the metadata behind it.
    pub fn prepared_id(body: &[u8]) -> Option<&[u8]> {
        let mut reader = super::Reader::new(body);
        let kind = reader.int("result kind").ok()?;
        if kind == PREPARED { reader.short_bytes("prepared id").ok() } else { None }
    }
}

/// A view of a RESULT body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ResultMessage<'a> {
    /// No content (section 4.2.5.1).
    Void,
    /// Rows (section 4.2.5.2).
    Rows(Rows<'a>),
    /// The keyspace that USE has set (section 4.2.5.3).
    SetKeyspace(&'a str),
    /// A prepared statement (section 4.2.5.4).
    Prepared(Prepared<'a>),
    /// A change of the schema (section 4.2.5.5).
    SchemaChange(SchemaChange<'a>),
}

impl<'a> ResultMessage<'a> {
    /// Reads a RESULT body. Of rows, only the metadata is validated.
    ///
    /// # Errors
    /// An unknown kind, or a missing or invalid part.
    pub fn decode(version: u8, body: &'a [u8]) -> Result<ResultMessage<'a>, DecodeError> {
        let mut reader = Reader::new(body);
        Ok(match reader.int("result kind")? {
            result_kind::VOID => ResultMessage::Void,
            result_kind::ROWS => ResultMessage::Rows(Rows::read(&mut reader, version)?),
            result_kind::SET_KEYSPACE => ResultMessage::SetKeyspace(reader.string("keyspace")?),
            result_kind::PREPARED => ResultMessage::Prepared(Prepared::read(&mut reader, version)?),
            result_kind::SCHEMA_CHANGE => {
                ResultMessage::SchemaChange(SchemaChange::read(&mut reader)?)
            }
            found => {
                let problem = Problem::Unknown { found: found as u32, expected: "kind 1 to 5" };
                return Err(DecodeError { problem, field: "result kind", offset: 0 });
            }
        })
    }
}

/// A view of a result with rows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rows<'a> {
    /// Columns, paging state and the rest.
    pub metadata: Metadata<'a>,
    /// Number of rows.
    pub row_count: usize,
    /// The rows as received, and any bytes behind them.
    pub content: &'a [u8],
    /// Offset of `content` in the body.
    pub content_offset: usize,
}

impl<'a> Rows<'a> {
    fn read(reader: &mut Reader<'a>, version: u8) -> Result<Rows<'a>, DecodeError> {
        let metadata = Metadata::read(reader, version)?;
        let count_at = *reader;
        let row_count = reader.count("row count")?;
        let content = reader.rest();
        // A row has at least the 4-byte length of each column. The end of a row without columns
        // cannot be found.
        let row_bytes_min = (metadata.column_count as u64).saturating_mul(4);
        let row_count_max = (content.len() as u64).checked_div(row_bytes_min).unwrap_or(0);
        if row_count as u64 > row_count_max {
            let problem = Problem::TooLarge { found: row_count as u64, max: row_count_max };
            return Err(count_at.error("row count", problem));
        }
        Ok(Rows { metadata, row_count, content, content_offset: reader.position() })
    }

    /// The rows in order. Ends after an error, whose offset counts from `content`.
    pub fn rows(&self) -> impl Iterator<Item = Result<Row<'a>, DecodeError>> + use<'a> {
        let mut reader = Reader::new(self.content);
        let mut left = self.row_count;
        let column_count = self.metadata.column_count;
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let start = reader.position();
            for _ in 0..column_count {
                if let Err(error) = reader.bytes("column value") {
                    left = 0;
                    return Some(Err(error));
                }
            }
            Some(Ok(Row { column_count, raw: reader.since(start) }))
        })
    }
}

/// A view of a row.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Row<'a> {
    column_count: usize,
    /// The row as received.
    pub raw: &'a [u8],
}

impl<'a> Row<'a> {
    /// The values in the order of the columns; `None` is null.
    pub fn values(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let mut reader = Reader::new(self.raw);
        (0..self.column_count).map_while(move |_| reader.bytes("column value").ok())
    }

    /// The value of the column at `index`; `None` if it is null or there is no such column.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.values().nth(index).flatten()
    }
}

/// A view of a prepared statement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Prepared<'a> {
    /// Id of the statement.
    pub id: &'a [u8],
    /// Id of the result's metadata (v5; `None` before).
    pub result_metadata_id: Option<&'a [u8]>,
    /// The bind markers.
    pub bind: BindMetadata<'a>,
    /// Metadata of the statement's result.
    pub result: Metadata<'a>,
}

/// A view of the metadata of bind markers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BindMetadata<'a> {
    /// Number of bind markers.
    pub count: usize,
    /// The bytes of this metadata as received.
    pub raw: &'a [u8],
    partition_key: &'a [u8],
    markers: Columns<'a>,
}

impl<'a> Prepared<'a> {
    fn read(reader: &mut Reader<'a>, version: u8) -> Result<Prepared<'a>, DecodeError> {
        Ok(Prepared {
            id: reader.short_bytes("prepared id")?,
            result_metadata_id: match version {
                ..5 => None,
                _ => Some(reader.short_bytes("result metadata id")?),
            },
            bind: BindMetadata::read(reader, version)?,
            result: Metadata::read(reader, version)?,
        })
    }
}

impl<'a> BindMetadata<'a> {
    fn read(reader: &mut Reader<'a>, version: u8) -> Result<BindMetadata<'a>, DecodeError> {
        let start = reader.position();
        let flags = reader.int("bind metadata flags")?;
        let count = reader.count("bind marker count")?;
        // v4, section 10: "Added partition-key bind indexes to prepared statement metadata".
        let partition_key = match version {
            ..4 => &[],
            _ => {
                let length = reader.count("partition key count")?.saturating_mul(2);
                reader.take(length, "partition key indexes")?
            }
        };
        let markers = match flags & metadata_flag::NO_METADATA {
            0 => Columns::read(reader, count, flags & metadata_flag::GLOBAL_TABLE != 0)?,
            _ => Columns::default(),
        };
        Ok(BindMetadata { count, raw: reader.since(start), partition_key, markers })
    }

    /// The index of the bind marker for each column of the partition key, in key order. Empty if a
    /// key column has no marker, and always in v3.
    pub fn partition_key(&self) -> impl ExactSizeIterator<Item = u16> + use<'a> {
        self.partition_key.as_chunks::<2>().0.iter().map(|index| u16::from_be_bytes(*index))
    }

    /// The bind markers in order.
    pub fn markers(&self) -> impl Iterator<Item = ColumnSpec<'a>> + use<'a> {
        self.markers.iter()
    }
}

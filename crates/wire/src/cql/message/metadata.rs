//! Metadata of columns and bind markers in results (v5, sections 4.2.5.2 and 4.2.5.4).

use super::primitive::Reader;
use crate::error::{DecodeError, Problem};

/// Bits of the metadata's flags.
pub mod metadata_flag {
    /// One keyspace and table for all columns.
    pub const GLOBAL_TABLE: i32 = 0x0001;
    /// A paging state follows.
    pub const HAS_MORE_PAGES: i32 = 0x0002;
    /// No column specifications.
    pub const NO_METADATA: i32 = 0x0004;
    /// A new metadata id follows; v5.
    pub const METADATA_CHANGED: i32 = 0x0008;
}

/// Most columns of rows that are read. Column specifications may have four bytes each, and whoever
/// keeps them takes many times as much; no client asks for so many columns.
const COLUMNS_MAX: usize = 65_535;

/// A view of the metadata of rows, or of the result of a prepared statement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Metadata<'a> {
    /// Bits of [`metadata_flag`].
    pub flags: i32,
    /// Columns in each row, even if the specifications are absent.
    pub column_count: usize,
    /// Start of the next page, if there is one.
    pub paging_state: Option<&'a [u8]>,
    /// New id of metadata that changed after the statement was prepared (v5).
    pub new_metadata_id: Option<&'a [u8]>,
    /// The bytes of the metadata as received.
    pub raw: &'a [u8],
    /// Offset of `raw` in the body.
    pub offset: usize,
    columns: Columns<'a>,
}

impl<'a> Metadata<'a> {
    /// Reads the metadata of rows and validates the column specifications.
    ///
    /// # Errors
    /// If a part that the flags announce is missing or invalid.
    pub fn read(reader: &mut Reader<'a>, version: u8) -> Result<Metadata<'a>, DecodeError> {
        let offset = reader.position();
        let flags = reader.int("metadata flags")?;
        let count_at = *reader;
        let column_count = reader.count("column count")?;
        if column_count > COLUMNS_MAX {
            let problem = Problem::TooLarge { found: column_count as u64, max: COLUMNS_MAX as u64 };
            return Err(count_at.error("column count", problem));
        }
        let has = |flag: i32| flags & flag != 0;
        let paging_state = match has(metadata_flag::HAS_MORE_PAGES) {
            true => reader.bytes("paging state")?,
            false => None,
        };
        let new_metadata_id = match version >= 5 && has(metadata_flag::METADATA_CHANGED) {
            true => Some(reader.short_bytes("new metadata id")?),
            false => None,
        };
        let columns = match has(metadata_flag::NO_METADATA) {
            true => Columns::default(),
            false => Columns::read(reader, column_count, has(metadata_flag::GLOBAL_TABLE))?,
        };
        let raw = reader.since(offset);
        Ok(Metadata { flags, column_count, paging_state, new_metadata_id, raw, offset, columns })
    }

    /// The column specifications; empty if the metadata was omitted.
    pub fn columns(&self) -> impl Iterator<Item = ColumnSpec<'a>> + use<'a> {
        self.columns.iter()
    }

    /// The index of the column named `name`.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns().position(|column| column.name == name)
    }
}

/// One column or bind marker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ColumnSpec<'a> {
    /// Keyspace of the table.
    pub keyspace: &'a str,
    /// The table.
    pub table: &'a str,
    /// Name of the column, alias or bind marker.
    pub name: &'a str,
    /// The type as an `[option]`, for [`crate::cql::types`].
    pub type_option: &'a [u8],
}

/// Validated column specifications; reading them again cannot fail.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Columns<'a> {
    count: usize,
    global: Option<(&'a str, &'a str)>,
    items: &'a [u8],
}

impl<'a> Columns<'a> {
    pub(super) fn read(
        reader: &mut Reader<'a>,
        count: usize,
        global: bool,
    ) -> Result<Columns<'a>, DecodeError> {
        let global = match global {
            true => Some((reader.string("keyspace")?, reader.string("table")?)),
            false => None,
        };
        let start = reader.position();
        // Each iteration reads at least 4 bytes or fails, so a false count costs no more than the
        // body's length.
        for _ in 0..count {
            read_column(reader, global)?;
        }
        Ok(Columns { count, global, items: reader.since(start) })
    }

    pub(super) fn iter(self) -> impl Iterator<Item = ColumnSpec<'a>> + use<'a> {
        let mut reader = Reader::new(self.items);
        (0..self.count).map_while(move |_| read_column(&mut reader, self.global).ok())
    }
}

fn read_column<'a>(
    reader: &mut Reader<'a>,
    global: Option<(&'a str, &'a str)>,
) -> Result<ColumnSpec<'a>, DecodeError> {
    let (keyspace, table) = match global {
        Some(global) => global,
        None => (reader.string("keyspace")?, reader.string("table")?),
    };
    let name = reader.string("column name")?;
    let start = reader.position();
    skip_type(reader, 0)?;
    Ok(ColumnSpec { keyspace, table, name, type_option: reader.since(start) })
}

/// Deepest nesting of types that is accepted. Cassandra's recursive parser gives up long before a
/// real schema comes near this depth.
const TYPE_DEPTH_MAX: u32 = 64;

/// Skips one type `[option]` (section 4.2.5.2).
pub(super) fn skip_type(reader: &mut Reader<'_>, depth: u32) -> Result<(), DecodeError> {
    if depth > TYPE_DEPTH_MAX {
        let problem = Problem::TooLarge { found: u64::from(depth), max: u64::from(TYPE_DEPTH_MAX) };
        return Err(reader.error("nesting of column type", problem));
    }
    match reader.short("column type")? {
        // Custom: the class name.
        0x0000 => drop(reader.string("custom type")?),
        // List and set.
        0x0020 | 0x0022 => skip_type(reader, depth + 1)?,
        // Map.
        0x0021 => {
            skip_type(reader, depth + 1)?;
            skip_type(reader, depth + 1)?;
        }
        // User-defined type.
        0x0030 => {
            reader.string("keyspace of type")?;
            reader.string("name of type")?;
            for _ in 0..reader.short("field count of type")? {
                reader.string("field of type")?;
                skip_type(reader, depth + 1)?;
            }
        }
        // Tuple.
        0x0031 => {
            for _ in 0..reader.short("tuple size")? {
                skip_type(reader, depth + 1)?;
            }
        }
        // A native type has no value.
        _ => {}
    }
    Ok(())
}

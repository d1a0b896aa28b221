//! File of the catalogue: one entry per schema, appended and synced before any record uses the id.
//!
//! An entry consists of its payload's length, a checksum of that length, a checksum of the payload,
//! and the payload. A truncated entry at the end is dropped, since its ids were never used. Any
//! other damage is an error, because lost ids could be assigned again to other columns.

use super::bytes::{Reader, put_varint};
use super::error::DecodeError;
use super::schema::Schema;
use crate::files::{self, ReplaceError};
use crate::row::{ColumnId, TableId};
use std::fmt;
use std::fs;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// First bytes of a catalogue, before its version.
const MAGIC: &[u8; 7] = b"SHUNTCA";
/// The version of the format, one byte.
const VERSION: u8 = 1;
const HEAD_BYTES: usize = MAGIC.len() + 1;
const ENTRY_HEAD_BYTES: usize = 12;

const ENTRY_EXACT: u8 = 1;
const ENTRY_BASE: u8 = 2;
/// Ids below this one are assigned.
const ENTRY_NEXT_ID: u8 = 3;

/// Reasons why the catalogue's file cannot be used.
#[derive(Debug)]
pub enum CatalogueError {
    /// An error of the operating system.
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file is damaged or of another version.
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Offset of the fault.
        at: usize,
        /// Description of the fault.
        what: String,
    },
}

impl fmt::Display for CatalogueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CatalogueError::Io { path, source } => {
                write!(f, "schema catalogue {}: {source}", path.display())
            }
            CatalogueError::Corrupt { path, at, what } => {
                write!(f, "schema catalogue {} is corrupt at byte {at}: {what}", path.display())
            }
        }
    }
}

impl std::error::Error for CatalogueError {}

/// The contents of a file.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) schemas: Vec<Arc<Schema>>,
    pub(crate) next_id: u32,
}

/// The open file.
#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    file: fs::File,
    /// Offset of the next entry; bytes beyond it come from a failed write.
    end: u64,
    /// Schemas below this id were appended since the file was opened or rewritten. A schema that
    /// cannot be used yet is passed again.
    appended: u32,
    /// True if another file may lie at the path, now or after a power failure. The next append must
    /// rewrite the file first, since this one may be lost.
    uncertain: bool,
}

impl File {
    pub(super) fn open(path: &Path) -> Result<(File, Contents), CatalogueError> {
        let failed = |source| CatalogueError::Io { path: path.to_owned(), source };
        if !path.exists() {
            write_whole(path, 0, &[]).map_err(|error| failed(error.into()))?;
        }
        let (contents, end) = File::read(path)?;
        let mut file = fs::OpenOptions::new().write(true).open(path).map_err(failed)?;
        file.set_len(end).map_err(failed)?;
        file.seek(SeekFrom::Start(end)).map_err(failed)?;
        Ok((File { path: path.to_owned(), file, end, appended: 0, uncertain: false }, contents))
    }

    /// Reads the contents, and the end of the last complete entry.
    pub(super) fn read(path: &Path) -> Result<(Contents, u64), CatalogueError> {
        let bytes = fs::read(path)
            .map_err(|source| CatalogueError::Io { path: path.to_owned(), source })?;
        read_file(path, &bytes)
    }

    /// Appends the schemas that are not in the file yet; their ids rise.
    pub(super) fn append(&mut self, schemas: &[Arc<Schema>]) -> Result<(), CatalogueError> {
        if self.uncertain {
            return self.append_anew(schemas);
        }
        let mut bytes = Vec::new();
        let new = schemas.iter().filter(|schema| schema.id >= self.appended);
        new.for_each(|schema| put_schema(&mut bytes, schema));
        if bytes.is_empty() {
            return Ok(());
        }
        let written = self
            .file
            .seek(SeekFrom::Start(self.end))
            .and_then(|_| self.file.write_all(&bytes))
            .and_then(|()| self.file.sync_data());
        if let Err(source) = written {
            // Removes the partial entry, so that no whole entry follows it. If this fails too, the
            // next append overwrites it.
            let _ = self.file.set_len(self.end);
            return Err(CatalogueError::Io { path: self.path.clone(), source });
        }
        self.end += bytes.len() as u64;
        self.appended =
            schemas.iter().map(|schema| schema.id.saturating_add(1)).fold(self.appended, u32::max);
        Ok(())
    }

    /// Writes the schemas of the file at the path, and these, as a new file.
    fn append_anew(&mut self, schemas: &[Arc<Schema>]) -> Result<(), CatalogueError> {
        let (Contents { schemas: mut all, mut next_id }, _) = File::read(&self.path)?;
        for schema in schemas {
            if all.iter().all(|known| known.id != schema.id) {
                all.push(Arc::clone(schema));
            }
            next_id = next_id.max(schema.id.saturating_add(1));
        }
        self.rewrite(next_id, &all)?;
        self.appended = next_id;
        Ok(())
    }

    /// On failure the old file stays in place or the new one has replaced it.
    pub(super) fn rewrite(
        &mut self,
        next_id: u32,
        schemas: &[Arc<Schema>],
    ) -> Result<(), CatalogueError> {
        let path = self.path.clone();
        let failed = |source| CatalogueError::Io { path: path.clone(), source };
        let replaced = write_whole(&self.path, next_id, schemas);
        if let Err(ReplaceError::Unchanged(source)) = replaced {
            return Err(failed(source));
        }
        self.uncertain = true;
        replaced.map_err(|error| failed(error.into()))?;
        let mut file = fs::OpenOptions::new().write(true).open(&self.path).map_err(failed)?;
        self.end = file.seek(SeekFrom::End(0)).map_err(failed)?;
        self.file = file;
        (self.appended, self.uncertain) = (0, false);
        Ok(())
    }
}

/// Decodes the file's bytes: the contents, and the end of the last complete entry. The path is only
/// for messages.
pub(crate) fn read_file(path: &Path, bytes: &[u8]) -> Result<(Contents, u64), CatalogueError> {
    let corrupt = |at, what: &str| CatalogueError::Corrupt {
        path: path.to_owned(),
        at,
        what: what.to_owned(),
    };
    match bytes.strip_prefix(MAGIC).map(<[u8]>::first) {
        Some(Some(&VERSION)) => {}
        Some(Some(found)) => {
            return Err(corrupt(
                0,
                &format!("its format is {found}, this program knows {VERSION}"),
            ));
        }
        _ => return Err(corrupt(0, "it is no schema catalogue")),
    }
    let mut contents = Contents::default();
    let mut at = HEAD_BYTES;
    while let Some(head) = bytes.get(at..at + ENTRY_HEAD_BYTES) {
        if bytes[at..].iter().all(|byte| *byte == 0) {
            break;
        }
        let number = |from: usize| {
            u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]])
        };
        if crc32fast::hash(&head[..4]) != number(4) {
            return Err(corrupt(at, "checksum of an entry's length"));
        }
        let start = at + ENTRY_HEAD_BYTES;
        let Some(payload) = bytes.get(start..start.saturating_add(number(0) as usize)) else {
            break;
        };
        if crc32fast::hash(payload) != number(8) {
            return Err(corrupt(at, "checksum of an entry"));
        }
        read_entry(payload, &mut contents).map_err(|error| corrupt(at, &error.to_string()))?;
        at = start + payload.len();
    }
    Ok((contents, at as u64))
}

/// The entry of a payload.
pub(crate) fn file_entry(payload: &[u8]) -> Vec<u8> {
    let mut entry = Vec::new();
    put_entry(&mut entry, payload);
    entry
}

/// Writes beside the path first, so that one of the two files is always complete.
fn write_whole(path: &Path, next_id: u32, schemas: &[Arc<Schema>]) -> Result<(), ReplaceError> {
    let mut bytes = [&MAGIC[..], &[VERSION]].concat();
    let mut payload = vec![ENTRY_NEXT_ID];
    put_varint(&mut payload, u64::from(next_id));
    put_entry(&mut bytes, &payload);
    schemas.iter().for_each(|schema| put_schema(&mut bytes, schema));
    files::replace(path, &bytes)
}

fn put_schema(out: &mut Vec<u8>, schema: &Schema) {
    let mut payload = vec![if schema.base { ENTRY_BASE } else { ENTRY_EXACT }];
    put_varint(&mut payload, u64::from(schema.id));
    put_varint(&mut payload, u64::from(schema.table.0));
    put_varint(&mut payload, schema.columns.len() as u64);
    let mut last = 0;
    for column in &schema.columns {
        put_varint(&mut payload, u64::from(column.0.wrapping_sub(last)));
        last = column.0;
    }
    put_entry(out, &payload);
}

fn put_entry(out: &mut Vec<u8>, payload: &[u8]) {
    let length = (payload.len() as u32).to_le_bytes();
    out.extend_from_slice(&length);
    out.extend_from_slice(&crc32fast::hash(&length).to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
    out.extend_from_slice(payload);
}

fn read_entry(payload: &[u8], contents: &mut Contents) -> Result<(), DecodeError> {
    let mut reader = Reader::new(payload);
    let kind = reader.byte("kind of an entry")?;
    let id = reader.number("schema id")?;
    match kind {
        ENTRY_NEXT_ID => contents.next_id = contents.next_id.max(id),
        ENTRY_EXACT | ENTRY_BASE => {
            let table = TableId(reader.number("table")?);
            let count = reader.count("number of columns")?;
            let mut columns: Vec<ColumnId> = Vec::with_capacity(count);
            for at in 0..count {
                let step = reader.number("column")?;
                let column = columns.last().map_or(0, |last| last.0).checked_add(step);
                let column =
                    column.filter(|_| at == 0 || step > 0).ok_or_else(|| reader.error("column"))?;
                columns.push(ColumnId(column));
            }
            contents.next_id = contents.next_id.max(id.saturating_add(1));
            contents.schemas.push(Arc::new(Schema::new(
                id,
                table,
                columns.into(),
                kind == ENTRY_BASE,
            )));
        }
        _ => return Err(reader.error("kind of an entry")),
    }
    reader.end("bytes after an entry")
}

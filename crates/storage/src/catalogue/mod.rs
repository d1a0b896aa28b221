//! The schema catalogue and the record format: rows on disk name a set of columns, not each column.
//!
//! A schema id (32 bits, increasing, never reused) stands for a table's sorted set of columns. The
//! catalogue assigns an id when a row with a new set is written, but a record may use the id only
//! once the catalogue's file holds it, synced. Until then, and whenever the file cannot be written,
//! records list their columns. No writer therefore ever waits for the catalogue, and no record is
//! ever without its schema.
//!
//! A table may have [`Limits::exact`] exact sets. Rows of other sets refer to a *base*: a larger
//! set, with a bit for each of its columns in the record. Very wide tables have several bases.

mod bytes;
mod decode;
mod encode;
mod error;
mod file;
mod header;
mod layout;
mod presence;
mod registry;
mod schema;
mod view;

#[cfg(test)]
mod tests;

pub(crate) use bytes::Reader;
pub(crate) use file::{file_entry, read_file};

pub use decode::{decode_row, decode_unmerged};
pub use encode::{encode_header, encode_row, encode_unmerged};
pub use error::DecodeError;
pub use file::CatalogueError;
pub use header::{covering, decode_header, is_worth_folding};
pub use presence::Limits;
pub use registry::{Catalogue, CatalogueCounts};
pub use schema::Schema;
pub use view::{CellView, Element, RecordView, ValueView, is_plain, needs_purge};

//! The body of a RESULT with rows (native protocol v5, section 4.2.5.2).
//!
//! Rows are written directly behind the metadata. Only a full page shows that the metadata needs a
//! paging state, which then moves the rows.

use shunt_wire::cql::message::metadata::metadata_flag;
use shunt_wire::cql::message::{put, result_kind};

use super::Page;
use crate::statement::ResultColumn;

/// Positions that are filled in at the end.
pub(super) struct Head {
    flags_at: usize,
    flags: i32,
    paging_at: usize,
    count_at: usize,
}

/// Appends everything before the rows.
pub(super) fn put_head(out: &mut Vec<u8>, columns: &[ResultColumn], page: &Page) -> Head {
    put::int(out, result_kind::ROWS);
    let changed = page.new_metadata_id.filter(|_| page.version >= 5);
    let with_columns = !page.skip_metadata || changed.is_some();
    // As in Cassandra: all columns are of one table, even if omitted.
    let mut flags = metadata_flag::GLOBAL_TABLE;
    if !with_columns {
        flags |= metadata_flag::NO_METADATA;
    }
    if changed.is_some() {
        flags |= metadata_flag::METADATA_CHANGED;
    }
    let flags_at = out.len();
    put::int(out, flags);
    put::int(out, i32::try_from(columns.len()).unwrap_or(i32::MAX));
    let paging_at = out.len();
    if let Some(id) = changed {
        put::short_bytes(out, &id);
    }
    if let (true, Some(first)) = (with_columns, columns.first()) {
        put::string(out, &first.keyspace);
        put::string(out, &first.table);
        for column in columns {
            put::string(out, &column.name);
            column.cql_type.write_option(page.version, out);
        }
    }
    let count_at = out.len();
    put::int(out, 0);
    Head { flags_at, flags, paging_at, count_at }
}

impl Head {
    /// Fills in the number of rows and the start of the next page, if there is one.
    pub(super) fn finish(self, out: &mut Vec<u8>, rows: u32, paging_state: Option<&[u8]>) {
        patch(out, self.count_at, rows as i32);
        if let Some(state) = paging_state {
            patch(out, self.flags_at, self.flags | metadata_flag::HAS_MORE_PAGES);
            let mut field = Vec::with_capacity(4 + state.len());
            put::bytes(&mut field, Some(state));
            out.splice(self.paging_at..self.paging_at, field);
        }
    }
}

fn patch(out: &mut [u8], at: usize, value: i32) {
    if let Some(field) = out.get_mut(at..at + 4) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use shunt_language::ast::NativeType;
    use shunt_wire::cql::message::{Metadata, ResultMessage};

    use super::*;

    fn column() -> ResultColumn {
        let cql_type = NativeType::Int.into();
        ResultColumn {
            keyspace: "k".to_owned(),
            table: "t".to_owned(),
            name: "c".to_owned(),
            cql_type,
        }
    }

    /// Reads back a body with one row behind other bytes.
    fn check(page: &Page, state: Option<&[u8]>, test: impl FnOnce(&Metadata<'_>)) {
        let mut out = b"before".to_vec();
        let head = put_head(&mut out, &[column()], page);
        put::bytes(&mut out, Some(b"1234"));
        head.finish(&mut out, 1, state);
        let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(page.version, &out[6..]) else {
            panic!("{out:?}")
        };
        assert_eq!(rows.metadata.paging_state, state);
        let values: Vec<_> =
            rows.rows().map(|row| row.map(|row| row.get(0).map(<[u8]>::to_vec))).collect();
        assert_eq!(values, [Ok(Some(b"1234".to_vec()))]);
        test(&rows.metadata);
    }

    #[test]
    fn metadata_are_what_was_asked_for() {
        for version in 3..=5 {
            for state in [None, Some(&b"somewhere"[..])] {
                let page = |skip_metadata, new_metadata_id| Page {
                    version,
                    page_size: None,
                    paging_state: None,
                    skip_metadata,
                    new_metadata_id,
                };
                check(&page(false, None), state, |metadata| {
                    assert_eq!(metadata.column_index("c"), Some(0))
                });
                check(&page(true, None), state, |metadata| {
                    assert_eq!((metadata.column_count, metadata.columns().count()), (1, 0));
                });
                check(&page(true, Some([7; 16])), state, |metadata| {
                    assert_eq!(metadata.new_metadata_id, (version == 5).then_some(&[7; 16][..]));
                    assert_eq!(metadata.columns().count(), usize::from(version == 5));
                });
            }
        }
    }
}

//! Results.

use super::super::encode_result::{PreparedSpec, RowsWriter, native, prepared};
use super::super::metadata::metadata_flag;
use super::super::*;
use super::{body, refuses_every_start};

fn rows(version: u8, bytes: &[u8]) -> Rows<'_> {
    match ResultMessage::decode(version, bytes).unwrap() {
        ResultMessage::Rows(rows) => rows,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_results_without_columns() {
    let bytes = body(encode::void);
    assert_eq!(ResultMessage::decode(4, &bytes), Ok(ResultMessage::Void));
    let bytes = body(|out| encode::set_keyspace(out, "ks"));
    refuses_every_start(&bytes, |bytes| ResultMessage::decode(4, bytes));
    assert_eq!(ResultMessage::decode(4, &bytes), Ok(ResultMessage::SetKeyspace("ks")));
    let change = SchemaChange {
        change: "DROPPED",
        target: "TYPE",
        keyspace: "ks",
        name: Some("t"),
        arguments: None,
    };
    let bytes = body(|out| encode::schema_change(out, &change));
    refuses_every_start(&bytes, |bytes| ResultMessage::decode(4, bytes));
    assert_eq!(ResultMessage::decode(4, &bytes), Ok(ResultMessage::SchemaChange(change)));
    assert_eq!(result_kind::peek(&bytes), Some(result_kind::SCHEMA_CHANGE));
    let error = ResultMessage::decode(4, &[0, 0, 0, 6]).unwrap_err();
    assert_eq!(error.to_string(), "result kind at byte 0: expected kind 1 to 5, found 0x6");
}

#[test]
fn rows_survive_the_round_trip() {
    let columns = [("key", native::TEXT), ("tokens", native::SET_OF_TEXT)];
    let bytes = body(|out| {
        let mut rows = RowsWriter::new(out, "system", "local", &columns);
        rows.value(Some(b"local")).value(Some(&0i32.to_be_bytes()));
        rows.value(None);
        rows.finish();
    });
    let rows = rows(4, &bytes);
    assert_eq!((rows.row_count, rows.metadata.column_count), (2, 2));
    assert_eq!(&bytes[rows.content_offset..], rows.content);
    let specs: Vec<_> = rows.metadata.columns().collect();
    assert!(specs.iter().all(|spec| (spec.keyspace, spec.table) == ("system", "local")));
    assert_eq!((specs[1].name, specs[1].type_option), columns[1]);
    assert_eq!(rows.metadata.column_index("tokens"), Some(1));
    let found: Vec<_> = rows.rows().collect::<Result<_, _>>().unwrap();
    assert_eq!(found[0].get(0), Some(&b"local"[..]));
    assert_eq!(found[0].get(1), Some(&[0, 0, 0, 0][..]));
    assert!(found[1].values().eq([None, None]));
    let start = rows.metadata.offset;
    assert_eq!(&bytes[start..start + rows.metadata.raw.len()], rows.metadata.raw);
}

#[test]
fn rows_of_more_columns_than_anybody_asks_for_are_refused() {
    for flags in [0, metadata_flag::NO_METADATA] {
        for (count, is_read) in [(65_535, true), (65_536, false)] {
            let bytes = body(|out| {
                put::int(out, result_kind::ROWS);
                put::int(out, flags | metadata_flag::GLOBAL_TABLE);
                put::int(out, count);
                if flags == 0 {
                    out.extend([0; 4]);
                    (0..count).for_each(|_| out.extend([0, 0, 0, 9]));
                }
                put::int(out, 0);
            });
            assert_eq!(ResultMessage::decode(4, &bytes).is_ok(), is_read, "{flags} {count}");
        }
    }
}

#[test]
fn rows_without_metadata_still_have_columns() {
    let bytes = body(|out| {
        let mut rows = RowsWriter::without_metadata(out, 2);
        rows.value(Some(b"a")).value(Some(b"b"));
        rows.finish();
    });
    let rows = rows(4, &bytes);
    assert_eq!(rows.metadata.columns().count(), 0);
    let row = rows.rows().next().unwrap().unwrap();
    assert!(row.values().eq([Some(&b"a"[..]), Some(b"b")]));
    assert_eq!(row.get(2), None);
}

#[test]
fn rows_are_counted_without_metadata() {
    let bare = |rows: i32, page: Option<&[u8]>, more: i32| {
        body(|out| {
            put::int(out, result_kind::ROWS);
            let paged = page.map_or(0, |_| metadata_flag::HAS_MORE_PAGES);
            put::int(out, metadata_flag::NO_METADATA | paged | more);
            put::int(out, 1);
            if let Some(page) = page {
                put::bytes(out, Some(page));
            }
            put::int(out, rows);
        })
    };
    for page in [None, Some(&b""[..]), Some(b"next page")] {
        let bytes = bare(7, page, 0);
        assert_eq!(result_kind::row_count(&bytes), Some(7), "{page:?}");
        for length in 0..bytes.len() {
            assert_eq!(result_kind::row_count(&bytes[..length]), None, "{page:?} {length}");
        }
        assert_eq!(result_kind::row_count(&bare(-1, page, 0)), None);
    }
    assert_eq!(result_kind::row_count(&bare(7, None, metadata_flag::METADATA_CHANGED)), None);
    let described = body(|out| {
        put::int(out, result_kind::ROWS);
        put::int(out, 0);
        put::int(out, 0);
        put::int(out, 7);
    });
    assert_eq!(result_kind::row_count(&described), None, "its columns are before the number");
    assert_eq!(result_kind::row_count(&body(|out| put::int(out, result_kind::VOID))), None);
}

#[test]
fn metadata_may_name_a_table_per_column_and_page_on() {
    let flags = metadata_flag::HAS_MORE_PAGES | metadata_flag::METADATA_CHANGED;
    let bytes = body(|out| {
        put::int(out, result_kind::ROWS);
        put::int(out, flags);
        put::int(out, 1);
        put::bytes(out, Some(b"next"));
        put::short_bytes(out, b"new");
        for text in ["ks", "t", "c"] {
            put::string(out, text);
        }
        // map<frozen<udt{f: int}>, tuple<text, custom>>
        out.extend_from_slice(&[0, 0x21, 0, 0x30]);
        put::string(out, "ks");
        put::string(out, "u");
        put::short(out, 1);
        put::string(out, "f");
        out.extend_from_slice(&[0, 9, 0, 0x31, 0, 2, 0, 0x0D, 0, 0]);
        put::string(out, "org.example.Type");
        put::int(out, 0);
    });
    refuses_every_start(&bytes, |bytes| ResultMessage::decode(5, bytes));
    let metadata = rows(5, &bytes).metadata;
    assert_eq!(metadata.paging_state, Some(&b"next"[..]));
    assert_eq!(metadata.new_metadata_id, Some(&b"new"[..]));
    let column = metadata.columns().next().unwrap();
    assert_eq!((column.keyspace, column.table, column.name), ("ks", "t", "c"));
    assert_eq!(column.type_option.len(), 44);
}

#[test]
fn a_row_count_is_not_believed() {
    let claim = |columns, rows| {
        let bytes = body(|out| {
            put::int(out, result_kind::ROWS);
            put::int(out, metadata_flag::NO_METADATA);
            put::int(out, columns);
            put::int(out, rows);
            out.extend_from_slice(&[0; 16]);
        });
        ResultMessage::decode(4, &bytes).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(claim(2, 2), Ok(()));
    assert_eq!(claim(2, 3), Err("row count at byte 12: expected at most 2, found 3".to_owned()));
    assert_eq!(claim(0, 0), Ok(()));
    assert_eq!(claim(0, 1), Err("row count at byte 12: expected at most 0, found 1".to_owned()));
    assert!(claim(i32::MAX, i32::MAX).is_err() && claim(-1, 0).is_err() && claim(1, -1).is_err());
}

#[test]
fn after_a_damaged_row_comes_nothing() {
    let bytes = body(|out| {
        put::int(out, result_kind::ROWS);
        put::int(out, metadata_flag::NO_METADATA);
        put::int(out, 1);
        put::int(out, 2);
        put::bytes(out, Some(b"a"));
        put::int(out, 9);
        out.extend_from_slice(b"short");
    });
    let mut rows = rows(4, &bytes).rows();
    assert!(rows.next().unwrap().is_ok());
    let error = rows.next().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "column value at byte 9: expected 9 bytes, 5 are left");
    assert_eq!(rows.next(), None);
}

#[test]
fn deep_types_are_refused_and_not_followed() {
    let bytes = body(|out| {
        put::int(out, result_kind::ROWS);
        put::int(out, metadata_flag::GLOBAL_TABLE);
        put::int(out, 1);
        for text in ["ks", "t", "c"] {
            put::string(out, text);
        }
        out.extend_from_slice(&[0, 0x20].repeat(100_000));
    });
    let error = ResultMessage::decode(4, &bytes).unwrap_err().to_string();
    assert!(error.ends_with("expected at most 64, found 65"), "{error}");
}

#[test]
fn prepared_says_where_the_partition_key_is() {
    let spec = PreparedSpec {
        id: b"id",
        result_metadata_id: b"meta",
        keyspace: "ks",
        table: "t",
        bind: &[("v", native::INT), ("k2", native::TEXT), ("k1", native::UUID)],
        partition_key: &[2, 1],
        result: &[("v", native::INT)],
    };
    for version in 3..=5 {
        let bytes = body(|out| prepared(out, version, &spec));
        refuses_every_start(&bytes, |bytes| ResultMessage::decode(version, bytes));
        let ResultMessage::Prepared(found) = ResultMessage::decode(version, &bytes).unwrap() else {
            panic!("not prepared")
        };
        assert_eq!(found.id, b"id");
        assert_eq!(found.result_metadata_id, (version == 5).then_some(&b"meta"[..]));
        let key: Vec<u16> = found.bind.partition_key().collect();
        assert_eq!(key, if version == 3 { vec![] } else { vec![2, 1] });
        let markers = found.bind.markers().map(|marker| (marker.name, marker.type_option));
        assert!(markers.eq(spec.bind.iter().copied()));
        assert_eq!(found.bind.count, 3);
        let result: Vec<_> = found.result.columns().map(|column| column.name).collect();
        assert_eq!(result, ["v"]);
        assert_eq!(&bytes[found.result.offset..], found.result.raw);
    }
}

#[test]
fn prepared_may_have_neither_markers_nor_result() {
    let spec = PreparedSpec {
        id: b"id",
        result_metadata_id: b"",
        keyspace: "",
        table: "",
        bind: &[],
        partition_key: &[],
        result: &[],
    };
    let bytes = body(|out| prepared(out, 5, &spec));
    let ResultMessage::Prepared(found) = ResultMessage::decode(5, &bytes).unwrap() else {
        panic!("not prepared")
    };
    assert_eq!((found.bind.count, found.bind.partition_key().len()), (0, 0));
    assert_eq!(found.result.columns().count(), 0);
}

//! Answers of parts, and the ones that lose the bet.

use std::cell::Cell;
use std::hash::{Hash, Hasher};

use shunt_wire::cql::message::encode_result::{RowsWriter, native};

use super::*;

const COLUMNS: &[(&str, &[u8])] = &[("k", native::INT), ("v", native::TEXT)];

fn body(columns: &[(&str, &[u8])], rows: &[(i32, Option<&str>)]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut writer = RowsWriter::new(&mut body, "ks", "t", columns);
    for (key, value) in rows {
        writer.value(Some(&key.to_be_bytes())).value(value.map(str::as_bytes));
    }
    writer.finish();
    body
}

fn rows(rows: &[(i32, Option<&str>)]) -> Rows {
    Rows { flags: 0, body: body(COLUMNS, rows) }
}

const WANTED: Wanted = Wanted { version: 4, skips_metadata: false, page_rows: None, limit: None };

fn merged(wanted: Wanted, parts: &[Rows]) -> Result<Merged, Lost> {
    merge(&wanted, &parts.iter().collect::<Vec<_>>(), 1 << 20)
}

#[test]
fn rows_of_parts_follow_one_another() {
    let parts =
        [rows(&[(1, Some("a")), (1, None)]), rows(&[]), rows(&[(2, Some("")), (9, Some("z"))])];
    let whole = rows(&[(1, Some("a")), (1, None), (2, Some("")), (9, Some("z"))]);
    assert_eq!(merged(WANTED, &parts), Ok(Merged { flags: 0, body: whole.body }));
    let none = [rows(&[]), rows(&[])];
    assert_eq!(merged(WANTED, &none).unwrap().body, rows(&[]).body);
}

#[test]
fn a_limit_cuts_the_whole() {
    let parts = [rows(&[(1, None), (2, None)]), rows(&[(3, None), (4, None)])];
    for limit in 1..6 {
        let all = [(1, None), (2, None), (3, None), (4, None)];
        let whole = rows(&all[..limit.min(4)]);
        let wanted = Wanted { limit: Some(limit), ..WANTED };
        assert_eq!(merged(wanted, &parts).unwrap().body, whole.body, "{limit}");
    }
}

#[test]
fn rows_that_fill_a_page_lose_the_bet() {
    let parts = [rows(&[(1, None), (2, None)]), rows(&[(3, None)])];
    for (page, limit, is_lost) in [
        (4, None, false),
        (3, None, true),
        (2, None, true),
        (3, Some(2), false),
        (2, Some(2), true),
    ] {
        let wanted = Wanted { page_rows: Some(page), limit, ..WANTED };
        assert_eq!(merged(wanted, &parts) == Err(Lost::Pages), is_lost, "{page} {limit:?}");
    }
    let mut paged = rows(&[(1, None)]);
    // The flags follow the kind, and the state the number of columns.
    paged.body[7] |= metadata_flag::HAS_MORE_PAGES as u8;
    paged.body.splice(12..12, [0, 0, 0, 1, 7]);
    assert_eq!(merged(WANTED, &[rows(&[]), paged]), Err(Lost::Pages));
}

#[test]
fn parts_with_other_columns_lose_the_bet() {
    let other = Rows { flags: 0, body: body(&[("k", native::INT), ("w", native::TEXT)], &[]) };
    assert_eq!(merged(WANTED, &[rows(&[]), other]), Err(Lost::Metadata));
    let mut none = Vec::new();
    RowsWriter::without_metadata(&mut none, 2).finish();
    assert_eq!(merged(WANTED, &[Rows { flags: 0, body: none }]), Err(Lost::Metadata));
    let mut changed = rows(&[]);
    changed.body[7] |= metadata_flag::METADATA_CHANGED as u8;
    changed.body.splice(12..12, [0, 1, 7]);
    assert_eq!(merged(Wanted { version: 5, ..WANTED }, &[changed, rows(&[])]), Err(Lost::Metadata));
}

#[test]
fn answers_other_than_plain_rows_lose_the_bet() {
    let void = Rows { flags: 0, body: vec![0, 0, 0, 1] };
    assert_eq!(merged(WANTED, &[rows(&[]), void]), Err(Lost::Unreadable));
    for flags in [flag::TRACING, flag::CUSTOM_PAYLOAD, flag::COMPRESSION] {
        let answer = Rows { flags, ..rows(&[]) };
        assert_eq!(merged(WANTED, &[answer]), Err(Lost::Unreadable));
    }
    let mut behind = rows(&[(1, None)]);
    behind.body.push(7);
    assert_eq!(merged(WANTED, &[behind]), Err(Lost::Unreadable));
    let mut cut = rows(&[(1, Some("abc"))]);
    cut.body.pop();
    assert_eq!(merged(WANTED, &[cut]), Err(Lost::Unreadable));
    assert_eq!(merge(&WANTED, &[&rows(&[(1, None)])], 10), Err(Lost::Bytes));
    assert_eq!(merged(WANTED, &[]), Err(Lost::Unreadable));
}

fn warned(texts: &[&str]) -> Rows {
    let mut with = Vec::new();
    put::string_list(&mut with, texts.iter().copied());
    with.extend_from_slice(&rows(&[(1, None)]).body);
    Rows { flags: flag::WARNING, body: with }
}

/// A value that counts the times it is compared with another.
#[derive(Clone, Copy, Eq)]
struct Counted<'c>(usize, &'c Cell<usize>);

impl PartialEq for Counted<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.1.set(self.1.get() + 1);
        self.0 == other.0
    }
}

impl Hash for Counted<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn a_warning_is_not_compared_with_all_others() {
    let compared = Cell::new(0);
    let mut warnings = Distinct::default();
    for number in 0..limits::MULTIGET_WARNINGS_MAX {
        warnings.add(Counted(number / 2, &compared));
    }
    assert_eq!(warnings.list.len(), limits::MULTIGET_WARNINGS_MAX / 2);
    let compared = compared.get();
    assert!(compared < 4 * limits::MULTIGET_WARNINGS_MAX, "{compared} comparisons");
}

#[test]
fn very_many_warnings_lose_the_bet() {
    let half: Vec<String> =
        (0..limits::MULTIGET_WARNINGS_MAX / 2).map(|number| number.to_string()).collect();
    let half: Vec<&str> = half.iter().map(String::as_str).collect();
    assert!(merged(WANTED, &[warned(&half), warned(&half)]).is_ok());
    assert_eq!(
        merged(WANTED, &[warned(&half), warned(&half), warned(&["more"])]),
        Err(Lost::Unreadable)
    );
}

#[test]
fn warnings_are_told_once() {
    let found =
        merged(WANTED, &[warned(&["slow", "old"]), rows(&[]), warned(&["old", "large"])]).unwrap();
    let (prefix, rest) = split_response_prefix(found.flags, &found.body).unwrap();
    assert_eq!(prefix.warnings.unwrap().iter().collect::<Vec<_>>(), ["slow", "old", "large"]);
    assert_eq!(rest, rows(&[(1, None), (1, None)]).body);
}

/// Cassandra writes the flags unchanged, and a number of columns of zero.
#[test]
fn metadata_that_are_not_wanted_are_left_out() {
    let wanted = Wanted { skips_metadata: true, ..WANTED };
    let found = merged(wanted, &[rows(&[(1, None)]), rows(&[(2, None)])]).unwrap();
    let Ok(ResultMessage::Rows(read)) = ResultMessage::decode(4, &found.body) else {
        panic!("no rows")
    };
    assert_eq!(read.metadata.flags, metadata_flag::GLOBAL_TABLE | metadata_flag::NO_METADATA);
    assert_eq!((read.metadata.column_count, read.row_count, read.metadata.raw.len()), (2, 2, 8));
}

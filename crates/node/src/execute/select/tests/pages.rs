//! Pages: all rows once in the same order, whatever the page size and whatever happens between
//! pages.

use super::super::paging::forgery;
use super::{Asked, Nodes};

fn table() -> Nodes {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE t (k int, c int, s int static, v int, PRIMARY KEY (k, c)) WITH CLUSTERING ORDER BY (c DESC)",
    ]);
    for key in 0..8 {
        for c in 0..key {
            nodes
                .all(&[&format!("INSERT INTO t (k, c, v) VALUES ({key}, {c}, {})", (key + c) % 3)]);
        }
    }
    nodes.all(&["INSERT INTO t (k, s) VALUES (0, 1)", "INSERT INTO t (k, s) VALUES (5, 1)"]);
    nodes
}

#[test]
fn pages_have_all_rows_once() {
    let mut nodes = table();
    let statements = [
        "SELECT * FROM t",
        "SELECT DISTINCT k FROM t",
        "SELECT k, c FROM t LIMIT 11",
        "SELECT k, c FROM t PER PARTITION LIMIT 2",
        "SELECT k, c FROM t PER PARTITION LIMIT 2 LIMIT 5",
        "SELECT k, c FROM t WHERE k IN (7, 3, 0, 5)",
        "SELECT c FROM t WHERE k = 7",
        "SELECT c FROM t WHERE k = 7 ORDER BY c",
        "SELECT c FROM t WHERE k = 7 AND c > 1 AND c <= 5",
        "SELECT c FROM t WHERE k = 7 AND c IN (1, 6, 3, 4)",
        "SELECT c FROM t WHERE k IN (6, 7) AND c IN (1, 6, 3, 4) PER PARTITION LIMIT 2",
        "SELECT k, c FROM t WHERE v = 1 ALLOW FILTERING",
        "SELECT k, c FROM t WHERE c < 3 ALLOW FILTERING",
        "SELECT k, c FROM t WHERE s = 1 ALLOW FILTERING",
    ];
    for text in statements {
        let all = nodes.ask(text, &Asked::default()).expect(text).rows;
        assert!(all.len() > 3, "{text}: {all:?}");
        for page_size in [1, 2, 3, 5, 1000] {
            let (rows, pages) = nodes.pages(text, page_size);
            assert_eq!(rows, all, "{text} in pages of {page_size}");
            let filters = text.ends_with("FILTERING");
            assert!(
                filters || pages <= all.len() / page_size as usize + 1,
                "{text}: {pages} pages of {page_size}"
            );
        }
    }
}

#[test]
fn rows_that_come_and_go_between_pages_do_not_disturb_it() {
    let mut nodes = table();
    let text = "SELECT c FROM t WHERE k = 7";
    let first = nodes.ask(text, &Asked { page_size: Some(3), ..Asked::default() }).unwrap();
    assert_eq!(first.rows, ["6", "5", "4"]);
    // The last row of the page is deleted, one is inserted before it and one after.
    nodes.all(&["DELETE FROM t WHERE k = 7 AND c = 4", "INSERT INTO t (k, c) VALUES (7, 9)"]);
    nodes.all(&["DELETE FROM t WHERE k = 7 AND c = 2"]);
    let asked = Asked { state: first.state.as_deref(), page_size: Some(3), ..Asked::default() };
    let second = nodes.ask(text, &asked).unwrap();
    assert_eq!(second.rows, ["3", "1", "0"]);
    assert_eq!(second.state, None);
}

#[test]
fn a_full_last_page_has_none_behind_it() {
    let mut nodes = table();
    assert_eq!(nodes.pages("SELECT c FROM t WHERE k = 6", 3).1, 2);
    assert_eq!(nodes.pages("SELECT c FROM t WHERE k = 7 LIMIT 4", 2).1, 2);
}

#[test]
fn states_of_others_are_refused() {
    let mut nodes = table();
    nodes.all(&["CREATE TABLE other (k int, c int, PRIMARY KEY (k, c))"]);
    let text = "SELECT c FROM t WHERE k = 7";
    let state =
        nodes.ask(text, &Asked { page_size: Some(3), ..Asked::default() }).unwrap().state.unwrap();
    let mut refuse = |text: &str, state: &[u8]| {
        let asked = Asked { state: Some(state), page_size: Some(3), ..Asked::default() };
        nodes.ask(text, &asked).expect_err("a wrong state")
    };
    let message = "Invalid value for the paging state";
    assert_eq!(refuse("SELECT c FROM other WHERE k = 7", &state), message);
    assert_eq!(refuse("SELECT c FROM t WHERE k = 6", &state), message);
    assert_eq!(refuse("SELECT c FROM t WHERE k = 7 ORDER BY c ASC", &state), message);
    assert_eq!(refuse("SELECT count(*) FROM t", &state), message);
    for at in 0..state.len() {
        let mut broken = state.clone();
        broken[at] ^= 0x40;
        assert_eq!(refuse(text, &broken), message, "byte {at}");
        assert_eq!(refuse(text, &state[..at]), message, "{at} bytes");
    }
}

#[test]
fn states_with_other_numbers_do_no_harm() {
    let mut nodes = table();
    let text = "SELECT c FROM t WHERE k = 7 LIMIT 6";
    let asked = Asked { page_size: Some(3), ..Asked::default() };
    let state = nodes.ask(text, &asked).unwrap().state.unwrap();
    let schema = nodes.executor.shared.schema();
    let of = |numbers| forgery::with(&state, schema.table("k", "t").unwrap(), numbers);
    let mut next = |state: &[u8]| {
        let asked = Asked { state: Some(state), page_size: Some(3), ..Asked::default() };
        nodes.ask(text, &asked).map(|answer| answer.rows.len())
    };
    assert_eq!(next(&of((0, 3))), Err("Invalid value for the paging state".to_owned()));
    assert_eq!(next(&of((2, u32::MAX))), Ok(2));
    assert_eq!(next(&of((3, 3))), Ok(3));
}

#[test]
fn a_filter_that_little_passes_gives_short_pages() {
    let mut nodes = table();
    for (condition, count) in [("v = 77", 0), ("v = 1", 10), ("k = 3 AND v = 0", 1)] {
        let text = format!("SELECT k, c FROM t WHERE {condition} ALLOW FILTERING");
        let all = nodes.ask(&text, &Asked::default()).expect(&text);
        assert_eq!(all.rows.len(), count, "{text}");
        let (rows, pages) = nodes.pages(&text, 1000);
        assert_eq!(rows, all.rows, "{text}");
        // In tests the node rejects ten rows before it ends a page.
        assert_eq!(
            pages,
            1 + (28 - count) / 10 * usize::from(!condition.starts_with('k')),
            "{text}"
        );
    }
}

//! Results of 6,000 rows, fetched page by page.

use std::collections::HashSet;
use std::ops::ControlFlow;

use drivers_rust::{Scenario, in_every_setup};
use futures::{StreamExt, TryStreamExt, stream};
use scylla::response::PagingState;
use scylla::statement::unprepared::Statement;
use tokio::sync::OnceCell;

/// More than drivers ask for at once by default.
const ROWS: i32 = 6_000;
const PARTITION: &str = "paged";
static FILLED: OnceCell<()> = OnceCell::const_new();

/// Makes one partition of 6,000 lines, and 6,000 partitions of one row.
async fn fill(s: &Scenario) {
    let lines =
        s.session.prepare("INSERT INTO lines (key, line, body) VALUES (?, ?, ?)").await.unwrap();
    let scanned =
        s.session.prepare("INSERT INTO scanned (key, number) VALUES (?, ?)").await.unwrap();
    stream::iter(0..ROWS)
        .for_each_concurrent(400, async |i| {
            s.session.execute_unpaged(&lines, (PARTITION, i, format!("body {i}"))).await.unwrap();
            s.session.execute_unpaged(&scanned, (format!("row {i}"), i)).await.unwrap();
        })
        .await;
}

async fn lines_in_order(s: &Scenario, page_size: Option<i32>) {
    FILLED.get_or_init(|| fill(s)).await;
    let mut select = s.session.prepare("SELECT line, body FROM lines WHERE key = ?").await.unwrap();
    if let Some(rows) = page_size {
        select.set_page_size(rows);
    }
    let pager = s.session.execute_iter(select, (PARTITION,)).await.unwrap();
    let rows: Vec<(i32, String)> = pager.rows_stream().unwrap().try_collect().await.unwrap();
    assert_eq!(rows.len(), ROWS as usize);
    for (expected, (line, body)) in rows.into_iter().enumerate() {
        assert_eq!((line, body), (expected as i32, format!("body {expected}")));
    }
}

#[test]
fn one_partition_at_the_default_page_size() {
    in_every_setup(async |s| lines_in_order(s, None).await);
}

#[test]
fn one_partition_in_pages_of_701() {
    in_every_setup(async |s| lines_in_order(s, Some(701)).await);
}

#[test]
fn all_partitions_of_a_table() {
    in_every_setup(async |s| {
        FILLED.get_or_init(|| fill(s)).await;
        let scan = Statement::new("SELECT key, number FROM scanned").with_page_size(1000);
        let mut rows =
            s.session.query_iter(scan, ()).await.unwrap().rows_stream::<(String, i32)>().unwrap();
        let mut seen = HashSet::new();
        while let Some(row) = rows.next().await {
            let (key, number) = row.unwrap();
            assert_eq!(key, format!("row {number}"));
            assert!(seen.insert(number));
        }
        assert_eq!(seen.len(), ROWS as usize);
    });
}

#[test]
fn all_rows_in_one_answer() {
    in_every_setup(async |s| {
        FILLED.get_or_init(|| fill(s)).await;
        let rows = s.rows::<(i32,)>("SELECT line FROM lines WHERE key = ?", (PARTITION,)).await;
        assert_eq!(rows.len(), ROWS as usize);
    });
}

#[test]
fn paging_state_is_good_in_another_session() {
    in_every_setup(async |s| {
        FILLED.get_or_init(|| fill(s)).await;
        let select = || Statement::new("SELECT line FROM lines WHERE key = ?").with_page_size(100);
        let first = s
            .session
            .query_single_page(select(), (PARTITION,), PagingState::start())
            .await
            .unwrap();
        let ControlFlow::Continue(state) = first.1.into_paging_control_flow() else {
            panic!("one page only")
        };
        let other = s.setup.open_with_keyspace().await;
        let (rest, _) = other.query_single_page(select(), (PARTITION,), state).await.unwrap();
        assert_eq!(rest.into_rows_result().unwrap().first_row::<(i32,)>().unwrap(), (100,));
    });
}

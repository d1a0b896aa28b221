//! The concurrent work on the one connection.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use futures::TryStreamExt;
use futures::future::{join, join_all, join3};
use scylla::client::session::Session;
use scylla::statement::prepared::PreparedStatement;

use crate::data::{Data, FIRST_SMALL, KEYSPACE, MIB, PAGE_SIZES, SMALL_ROWS, SMALL_SIZE, content};
use crate::moves;

const WRITES: i32 = 3;
const FIRST_WRITTEN: i32 = 10_000;
const READERS: usize = 8;
const READS_MAX: usize = 1_000;

pub struct Work<'a> {
    session: Session,
    data: &'a Data,
    name: &'static str,
    number: i32,
    /// Moves that the test waits for.
    until: usize,
    select: PreparedStatement,
    page: PreparedStatement,
    insert: PreparedStatement,
    reads: AtomicUsize,
    small: AtomicUsize,
    moved: AtomicBool,
    over: AtomicBool,
}

/// Reads one row, which has to be as it was written.
pub async fn read(session: &Session, select: &PreparedStatement, key: i32, expected: &[u8]) {
    let result = session
        .execute_unpaged(select, (key,))
        .await
        .unwrap_or_else(|error| panic!("row {key}: {error}"));
    let rows = result.into_rows_result().expect("rows");
    let (found,) =
        rows.single_row::<(&[u8],)>().unwrap_or_else(|error| panic!("row {key}: {error}"));
    assert!(
        found == expected,
        "row {key}: {} bytes that are not the {} that were written",
        found.len(),
        expected.len()
    );
}

impl<'a> Work<'a> {
    pub async fn new(
        session: Session,
        data: &'a Data,
        name: &'static str,
        number: usize,
        until: usize,
    ) -> Self {
        let prepare = async |text: String| session.prepare(text).await.expect("prepare");
        let select = prepare(format!("SELECT v FROM {KEYSPACE}.blobs WHERE k = ?")).await;
        let page = prepare(format!("SELECT n, v FROM {KEYSPACE}.lines WHERE k = ?")).await;
        let insert = prepare(format!("INSERT INTO {KEYSPACE}.blobs (k, v) VALUES (?, ?)")).await;
        let (reads, small, moved, over) = Default::default();
        let number = number as i32;
        Self { session, data, name, number, until, select, page, insert, reads, small, moved, over }
    }

    pub async fn all(&self) {
        let small = join_all((0..SMALL_ROWS).map(|first| self.read_small(first)));
        let large = join_all((0..READERS).map(|_| self.read_large()));
        join(small, async {
            join3(large, self.write(), self.change_schema()).await;
            self.over.store(true, Relaxed);
        })
        .await;
    }

    /// Number of small answers.
    pub fn small(&self) -> usize {
        self.small.load(Relaxed)
    }

    /// Rows that are inserted, by their keys.
    pub fn written(&self) -> impl Iterator<Item = (i32, Vec<u8>)> {
        let first = FIRST_WRITTEN + self.number * WRITES;
        (first..first + WRITES).map(|key| (key, content(key, 5 * MIB)))
    }

    async fn read_small(&self, first: i32) {
        for row in (0..SMALL_ROWS).cycle().skip(first as usize) {
            if self.over.load(Relaxed) {
                return;
            }
            let key = FIRST_SMALL + row;
            read(&self.session, &self.select, key, &content(key, SMALL_SIZE)).await;
            self.small.fetch_add(1, Relaxed);
        }
    }

    /// Reads blobs and pages until the connection has been moved as often as it is to be.
    async fn read_large(&self) {
        while !self.moved.load(Relaxed) {
            let number = self.reads.fetch_add(1, Relaxed);
            assert!(
                number < READS_MAX,
                "the connection was not moved as often as it was to be by {READS_MAX} reads"
            );
            let blobs = &self.data.blobs;
            let which = number % (blobs.len() + PAGE_SIZES.len());
            match blobs.get(which) {
                Some(expected) => read(&self.session, &self.select, which as i32, expected).await,
                None => self.read_pages(PAGE_SIZES[which - blobs.len()]).await,
            }
            if tokio::task::spawn_blocking(moves).await.expect("metrics") >= self.until {
                self.moved.store(true, Relaxed);
            }
        }
    }

    async fn read_pages(&self, size: i32) {
        let mut select = self.page.clone();
        select.set_page_size(size);
        let pager = self
            .session
            .execute_iter(select, (0,))
            .await
            .unwrap_or_else(|error| panic!("pages of {size}: {error}"));
        let mut rows = pager.rows_stream::<(i32, Vec<u8>)>().expect("types");
        let mut expected = 0;
        while let Some((line, found)) =
            rows.try_next().await.unwrap_or_else(|error| panic!("pages of {size}: {error}"))
        {
            assert!(
                line as usize == expected && found == self.data.lines[expected],
                "pages of {size}: line {line} where {expected} was to come"
            );
            expected += 1;
        }
        assert_eq!(expected, self.data.lines.len(), "lines, in pages of {size}");
    }

    async fn write(&self) {
        for (key, value) in self.written() {
            self.session
                .execute_unpaged(&self.insert, (key, &value))
                .await
                .unwrap_or_else(|error| panic!("insert {key}: {error}"));
            read(&self.session, &self.select, key, &value).await;
        }
    }

    async fn change_schema(&self) {
        for change in 0..2 {
            let table = format!("changed_{}{change}", self.name);
            for statement in [
                format!("CREATE TABLE {KEYSPACE}.{table} (k int PRIMARY KEY)"),
                format!("ALTER TABLE {KEYSPACE}.{table} ADD v text"),
            ] {
                self.session
                    .query_unpaged(statement.as_str(), ())
                    .await
                    .unwrap_or_else(|error| panic!("{statement}: {error}"));
            }
            self.session.refresh_metadata().await.expect("metadata");
            let state = self.session.get_cluster_state();
            let known =
                state.get_keyspace(KEYSPACE).and_then(|keyspace| keyspace.tables.get(&table));
            assert!(
                known.is_some_and(|table| table.columns.contains_key("v")),
                "{table} is not known with its column"
            );
            let drop = format!("DROP TABLE {KEYSPACE}.{table}");
            self.session
                .query_unpaged(drop.as_str(), ())
                .await
                .unwrap_or_else(|error| panic!("{drop}: {error}"));
        }
    }
}

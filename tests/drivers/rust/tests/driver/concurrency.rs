//! Many queries outstanding on one session.

use drivers_rust::in_every_setup;
use futures::future::join_all;

const QUERIES: i32 = 1000;

#[test]
fn thousand_writes_and_then_thousand_reads_at_once() {
    in_every_setup(async |s| {
        let insert =
            s.session.prepare("INSERT INTO items (key, number) VALUES (?, ?)").await.unwrap();
        let select =
            s.session.prepare("SELECT key, number FROM items WHERE key = ?").await.unwrap();
        let key = |i: i32| format!("{}{i}", s.key);
        let writes = (0..QUERIES).map(|i| s.session.execute_unpaged(&insert, (key(i), i)));
        for write in join_all(writes).await {
            write.unwrap();
        }
        let reads = (0..QUERIES).map(|i| s.session.execute_unpaged(&select, (key(i),)));
        for (i, read) in (0..).zip(join_all(reads).await) {
            let rows = read.unwrap().into_rows_result().unwrap();
            assert_eq!(rows.single_row::<(String, i32)>().unwrap(), (key(i), i));
        }
    });
}

#[test]
fn thousand_text_queries_at_once() {
    in_every_setup(async |s| {
        let queries = (0..QUERIES).map(|i| format!("SELECT (int) {i} AS n FROM system.local"));
        let answers = join_all(queries.map(|query| s.session.query_unpaged(query, ()))).await;
        for (i, answer) in (0..).zip(answers) {
            let rows = answer.unwrap().into_rows_result().unwrap();
            assert_eq!(rows.single_row::<(i32,)>().unwrap(), (i,));
        }
    });
}

#[test]
fn failures_among_successes_go_to_their_own_queries() {
    in_every_setup(async |s| {
        let tables = ["items", "missing"];
        let queries =
            (0..200).map(|i| format!("SELECT key FROM {} WHERE key = 'nobody'", tables[i % 2]));
        let answers = join_all(queries.map(|query| s.session.query_unpaged(query, ()))).await;
        for (i, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.is_err(), i % 2 == 1, "query {i}: {answer:?}");
        }
    });
}

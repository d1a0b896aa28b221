//! Errors of the store arrive as the driver's own variant for them.

use drivers_rust::{FIVE_REPLICAS, KEYSPACE, in_every_setup, replication};
use scylla::client::session::Session;
use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};
use scylla::serialize::row::SerializeRow;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::unprepared::Statement;

/// The error of the store, as kind and message.
fn said(error: ExecutionError) -> (DbError, String) {
    match error {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(kind, message)) => {
            (kind, message)
        }
        ExecutionError::PrepareError(PrepareError::AllAttemptsFailed { first_attempt, .. }) => {
            said(ExecutionError::LastAttemptError(first_attempt))
        }
        other => panic!("not an error of the store: {other:?}"),
    }
}

/// Runs a statement that must fail.
async fn refused(
    session: &Session,
    statement: impl Into<Statement>,
    values: impl SerializeRow,
) -> (DbError, String) {
    said(session.query_unpaged(statement, values).await.expect_err("must fail"))
}

#[test]
fn syntax_error() {
    in_every_setup(async |s| {
        let (kind, message) = refused(s.session, "SELEKT * FROM items", ()).await;
        assert_eq!(kind, DbError::SyntaxError);
        assert!(message.contains("SELEKT"), "{message}");
    });
}

#[test]
fn syntax_error_on_prepare() {
    in_every_setup(async |s| {
        let error = s.session.prepare("INSERT INTO items VALUES").await.expect_err("must fail");
        assert_eq!(said(error.into()).0, DbError::SyntaxError);
    });
}

#[test]
fn unknown_table() {
    in_every_setup(async |s| {
        let (kind, message) = refused(s.session, "SELECT * FROM no_such_table", ()).await;
        assert_eq!(kind, DbError::Invalid);
        assert!(message.contains("no_such_table"), "{message}");
    });
}

#[test]
fn unknown_column_on_prepare() {
    in_every_setup(async |s| {
        let error =
            s.session.prepare("SELECT no_such_column FROM items").await.expect_err("must fail");
        assert_eq!(said(error.into()).0, DbError::Invalid);
    });
}

#[test]
fn missing_partition_key() {
    in_every_setup(async |s| {
        assert_eq!(
            refused(s.session, "INSERT INTO items (number) VALUES (1)", ()).await.0,
            DbError::Invalid
        );
    });
}

#[test]
fn impossible_configuration() {
    in_every_setup(async |s| {
        let create =
            "CREATE KEYSPACE driver_rust_bad WITH replication = {'class': 'NoSuchStrategy'}";
        assert_eq!(refused(s.session, create, ()).await.0, DbError::ConfigError);
    });
}

#[test]
fn table_that_already_exists() {
    in_every_setup(async |s| {
        let expected = DbError::AlreadyExists { keyspace: KEYSPACE.into(), table: "items".into() };
        assert_eq!(
            refused(s.session, "CREATE TABLE items (key text PRIMARY KEY)", ()).await.0,
            expected
        );
    });
}

#[test]
fn keyspace_that_already_exists() {
    in_every_setup(async |s| {
        let expected = DbError::AlreadyExists { keyspace: KEYSPACE.into(), table: String::new() };
        let create = format!("CREATE KEYSPACE {KEYSPACE} WITH replication = {}", replication());
        assert_eq!(refused(s.session, create, ()).await.0, expected);
    });
}

#[test]
fn batch_that_is_too_large() {
    in_every_setup(async |s| {
        // More than batch_size_fail_threshold, whose default is 50 KiB.
        let insert =
            s.session.prepare("INSERT INTO items (key, note) VALUES (?, ?)").await.unwrap();
        let mut batch = Batch::new(BatchType::Logged);
        batch.append_statement(insert.clone());
        batch.append_statement(insert);
        let note = "x".repeat(30_000);
        let other = format!("{}b", s.key);
        let error = s
            .session
            .batch(&batch, ((&s.key, &note), (&other, &note)))
            .await
            .expect_err("must fail");
        assert_eq!(said(error).0, DbError::Invalid);
    });
}

#[test]
fn unavailable() {
    in_every_setup(async |s| {
        // Five replicas can be asked for on any ring; to have them all alive this one is too small.
        let mut insert =
            Statement::new(format!("INSERT INTO {FIVE_REPLICAS}.items (key) VALUES (?)"));
        insert.set_consistency(Consistency::All);
        match refused(s.session, insert, (&s.key,)).await.0 {
            DbError::Unavailable {
                consistency: Consistency::All,
                required: 5,
                alive: 1..5,
                ..
            } => {}
            other => panic!("{other}"),
        }
    });
}

#[test]
fn session_is_as_good_as_new_after_an_error() {
    in_every_setup(async |s| {
        for i in 0..20 {
            assert_eq!(refused(s.session, "NOT CQL", ()).await.0, DbError::SyntaxError);
            s.exec("INSERT INTO items (key, number) VALUES (?, ?)", (&s.key, i)).await;
            assert_eq!(s.number(&s.key).await, i);
        }
    });
}

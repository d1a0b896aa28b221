//! Refused statements, each with its error.

use scylla::errors::DbError;

use crate::client::{TTL, in_every_setup, said};

#[test]
fn unsupported_statements_on_locks_are_invalid() {
    in_every_setup(async |c| {
        for statement in [
            "INSERT INTO shunt.locks (name, owner) VALUES ('n', 'o') USING TTL 5",
            "INSERT INTO shunt.locks (name, owner) VALUES ('n', 'o') IF NOT EXISTS",
            "UPDATE shunt.locks SET owner = 'x' WHERE name = 'n'",
            "DELETE FROM shunt.locks WHERE name = 'n'",
            "SELECT count(*) FROM shunt.locks WHERE name = 'n'",
            "TRUNCATE shunt.locks",
        ] {
            let error = c.session.query_unpaged(statement, ()).await.expect_err(statement);
            assert_eq!(said(&error), Some(&DbError::Invalid), "{statement}: {error}");
        }
    });
}

#[test]
fn one_owner_in_both_modes_is_invalid() {
    in_every_setup(async |c| {
        let take = "INSERT INTO shunt.rwlocks (name, owner, mode) VALUES (?, ?, ?) IF NOT EXISTS USING TTL ?";
        assert!(c.ask(take, (&c.name, "ann", "S", TTL)).await.applied);
        let error = c.once(take, (&c.name, "ann", "X", TTL)).await.expect_err("the other mode");
        assert_eq!(said(&error), Some(&DbError::Invalid), "{error}");
        assert!(
            c.ask(
                "DELETE FROM shunt.rwlocks WHERE name = ? AND owner = ? IF EXISTS",
                (&c.name, "ann")
            )
            .await
            .applied
        );
    });
}

//! Changes of the mode of a table.

use crate::ast::QualifiedName;
use crate::transaction::mode::{ModeChange, TransactionalMode, may_change_mode, parse};

#[test]
fn changes_of_modes() {
    let of = |keyspace: Option<&str>, name: &str| QualifiedName {
        keyspace: keyspace.map(str::to_owned),
        name: name.to_owned(),
    };
    let cases = [
        (
            "ALTER TABLE ks.t WITH transactional_mode = 'full'",
            of(Some("ks"), "t"),
            false,
            TransactionalMode::Full,
        ),
        (
            "alter columnfamily if exists \"T\" with Transactional_Mode='OFF';",
            of(None, "T"),
            true,
            TransactionalMode::Off,
        ),
        (
            "ALTER TABLE t WITH \"transactional_mode\" = 'mixed_reads'",
            of(None, "t"),
            false,
            TransactionalMode::MixedReads,
        ),
    ];
    for (text, table, if_exists, mode) in cases {
        assert_eq!(parse(text), Ok(Some(ModeChange { table, if_exists, mode })), "{text}");
    }
}

#[test]
fn others_are_left_alone_or_refused() {
    for text in [
        "ALTER TABLE t WITH comment = 'full'",
        "ALTER TABLE t WITH comment = 'transactional_mode'",
        "ALTER TABLE t ADD transactional_mode text",
        "CREATE TABLE t (k int PRIMARY KEY) WITH transactional_mode = 'full'",
        "ALTER TABLE t WITH transactional_mode = full",
        "SELECT transactional_mode FROM t",
        "",
    ] {
        assert_eq!(parse(text), Ok(None), "{text}");
    }
    assert!(
        may_change_mode("ALTER TABLE t WITH TRANSACTIONAL_mode = ''")
            && !may_change_mode("ALTER TABLE t WITH mode = 1")
    );
    let refused = |text: &str| parse(text).expect_err(text).message;
    for other in [
        "comment = 'x' AND transactional_mode = 'full'",
        "transactional_mode = 'full' AND transactional_migration_from = 'off'",
    ] {
        let message = refused(&format!("ALTER TABLE ks.t WITH {other}"));
        assert!(
            message.starts_with(
                "ALTER TABLE ks.t WITH transactional_mode: this option has to stand alone"
            ),
            "{message}"
        );
    }
    for value in ["'on'", "'test_unsafe'", "1", "true", "{'a': 'full'}"] {
        let message = refused(&format!("ALTER TABLE t WITH transactional_mode = {value}"));
        let all = "'off', 'unsafe', 'mixed_reads', 'full', 'conditional' or 'observe'";
        assert_eq!(message, format!("ALTER TABLE t WITH transactional_mode: it is {all}"));
    }
}

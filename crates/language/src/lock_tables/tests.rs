//! Parsed texts, bound values, and refusals.

use shunt_wire::cql::message::{ResultMessage, Value, ValueList, Values};
use shunt_wire::cql::statement::{Identifier, Kind, classify};

use super::reply::{self, Row};
use super::{Asked, KEYSPACE, Request, Statement, Table, may_change, parse};

fn read(text: &str) -> Statement {
    parse(text, None).expect("it is allowed").expect("it is on one of the tables")
}

/// Binds texts (unchanged) and numbers.
fn values(given: &[Value<'_>]) -> ValueList {
    let mut list = ValueList::positional(4);
    for value in given {
        list.push(*value);
    }
    list
}

fn bind<'a>(statement: &'a Statement, values: &'a Values<'a>) -> Request<'a> {
    statement.bind(values).next().expect("a request").expect("it is allowed")
}

const SECONDS: [u8; 4] = 20_i32.to_be_bytes();

#[test]
fn each_form_is_read_with_literals_and_with_markers() {
    let none = Values::default();
    let acquire = Asked::Acquire { shared: false, ttl_ms: 20_000, wait_ms: 0 };
    let cases = [
        (
            "INSERT INTO shunt.locks (owner, name) VALUES ('o', 'n') IF NOT EXISTS USING TTL 20",
            acquire,
        ),
        (
            "insert into Shunt.Fast_Locks (name, owner, wait_ms) values ('n', 'o', 500) if not exists using ttl 20;",
            Asked::Acquire { shared: false, ttl_ms: 20_000, wait_ms: 500 },
        ),
        (
            "INSERT INTO shunt.rwlocks (name, owner, mode) VALUES ('n', 'o', 'S') IF NOT EXISTS USING TTL 20",
            Asked::Acquire { shared: true, ttl_ms: 20_000, wait_ms: 0 },
        ),
        (
            "UPDATE shunt.locks USING TTL 20 SET owner = 'o' WHERE name = 'n' IF owner = 'o' AND fence = 7",
            Asked::Renew { shared: None, ttl_ms: 20_000, fence: Some(7) },
        ),
        (
            "UPDATE shunt.rwlocks USING TTL 20 SET mode = 'X' WHERE owner = 'o' AND name = 'n' IF EXISTS",
            Asked::Renew { shared: Some(false), ttl_ms: 20_000, fence: None },
        ),
        (
            "DELETE FROM shunt.locks WHERE name = 'n' IF fence = 7 AND owner = 'o'",
            Asked::Release { fence: Some(7) },
        ),
        (
            "DELETE FROM shunt.fast_rwlocks WHERE name = 'n' AND owner = 'o' IF EXISTS",
            Asked::Release { fence: None },
        ),
    ];
    for (text, asked) in cases {
        let statement = read(text);
        let request = bind(&statement, &none);
        assert_eq!(
            (request.asked, request.name, request.owner),
            (asked, &b"n"[..], &b"o"[..]),
            "{text}"
        );
    }
    let statement =
        read("SELECT waiters AS w, owner FROM shunt.locks WHERE name = $$it's$$ LIMIT 3");
    let request = bind(&statement, &none);
    assert_eq!((request.asked, request.name, request.limit), (Asked::Look, &b"it's"[..], 3));
    let shown: Vec<&str> =
        statement.selected().expect("columns").iter().map(|column| &*column.shown).collect();
    assert_eq!(shown, ["w", "owner"]);
    for text in [
        "SELECT waiters AS w, owner FROM shunt.locks LIMIT 3",
        "SELECT waiters AS w, owner FROM shunt.fast_locks LIMIT 3",
    ] {
        let statement = read(text);
        let request = bind(&statement, &none);
        assert_eq!(
            (request.asked, request.name, request.limit),
            (Asked::Longest, &b""[..], 3),
            "{text}"
        );
        assert_eq!(statement.selected().map(<[_]>::len), Some(2));
    }
    for table in ["rwlocks", "fast_rwlocks", "lock_queue"] {
        assert!(
            parse(&format!("SELECT * FROM shunt.{table}"), None).is_err(),
            "{table} is shown one lock at a time"
        );
    }

    let statement =
        read("INSERT INTO shunt.locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL ?");
    let list = values(&[Value::Bytes(b"n"), Value::Bytes(b"o"), Value::Bytes(&SECONDS)]);
    assert_eq!(bind(&statement, &list.values()).asked, acquire);
    let statement =
        read("INSERT INTO shunt.locks (name, owner) VALUES (:n, :o) IF NOT EXISTS USING TTL :t");
    let mut named = ValueList::named(4);
    for (name, value) in [("t", &SECONDS[..]), ("o", b"o"), ("n", b"n")] {
        named.push_named(name, Value::Bytes(value));
    }
    let named = named.values();
    let request = bind(&statement, &named);
    assert_eq!((request.asked, request.name), (acquire, &b"n"[..]));
}

#[test]
fn values_that_no_lock_can_have_are_refused_in_words_that_name_the_column() {
    let statement = read(
        "INSERT INTO shunt.rwlocks (name, owner, mode, wait_ms) VALUES (?, ?, ?, ?) IF NOT EXISTS USING TTL ?",
    );
    let (name, owner) = (vec![b'n'; 1025], vec![b'o'; 257]);
    let int = |number: i32| number.to_be_bytes();
    let (zero, wait, minus, long) = (int(0), int(19_000), int(-1), int(i32::MAX));
    let good = [
        Value::Bytes(b"n"),
        Value::Bytes(b"o"),
        Value::Bytes(b"S"),
        Value::Bytes(&zero),
        Value::Bytes(&SECONDS),
    ];
    let cases: [(usize, Value<'_>, &str); 12] = [
        (0, Value::Bytes(b""), "name has 0 bytes"),
        (0, Value::Bytes(&name), "name has 1025 bytes"),
        (0, Value::Bytes(&[0xff]), "name is not UTF-8"),
        (0, Value::Null, "name must have a value"),
        (1, Value::Unset, "owner must have a value"),
        (1, Value::Bytes(&owner), "owner has 257 bytes"),
        (2, Value::Bytes(b"R"), "mode is 'S'"),
        (3, Value::Bytes(&minus), "wait_ms is -1"),
        (3, Value::Bytes(b"x"), "wait_ms has 1 bytes"),
        (3, Value::Bytes(&wait), "must be longer than wait_ms"),
        (4, Value::Bytes(&zero), "the TTL is 0"),
        (4, Value::Bytes(&long), "too long"),
    ];
    for (place, value, why) in cases {
        let mut given = good;
        given[place] = value;
        let list = values(&given);
        let list = list.values();
        let error = statement.bind(&list).next().expect("a request").expect_err(why);
        assert!(error.message.contains(why), "{}", error.message);
    }
    let few = values(&good[..3]);
    let few = few.values();
    assert!(statement.bind(&few).next().expect("a request").is_err());
}

#[test]
fn an_owner_cannot_be_changed_by_renewing() {
    let statement =
        read("UPDATE shunt.locks USING TTL 5 SET owner = ? WHERE name = 'n' IF owner = ?");
    let list = values(&[Value::Bytes(b"new"), Value::Bytes(b"old")]);
    let list = list.values();
    assert!(statement.bind(&list).next().expect("a request").is_err());
}

#[test]
fn other_tables_are_the_nodes_business() {
    for text in [
        "SELECT * FROM other.locks WHERE name = 'n'",
        "SELECT * FROM \"Shunt\".locks WHERE name = 'n'",
        "SELECT * FROM shunt.\"Locks\" WHERE name = 'n'",
        "SELECT * FROM shunt.others",
        "SELECT * FROM locks",
        "this is no CQL at all",
        "BEGIN BATCH INSERT INTO a.b (c) VALUES (1); APPLY BATCH",
    ] {
        assert_eq!(parse(text, Some("elsewhere")), Ok(None), "{text}");
    }
    assert!(
        parse("SELECT * FROM locks WHERE name = 'n'", Some(KEYSPACE)).expect("allowed").is_some()
    );
    assert_eq!(parse("SELECT * FROM locks WHERE name = 'n'", Some("Shunt")), Ok(None));
}

const CHANGES: [&str; 15] = [
    "CREATE TABLE IF NOT EXISTS {} (name text PRIMARY KEY)",
    "create columnfamily {} (name text, owner text, primary key (name, owner)) with comment = 'mine'",
    "ALTER TABLE {} ADD more int",
    "ALTER TABLE IF EXISTS {} DROP owner",
    "ALTER TABLE {} RENAME name TO lock",
    "ALTER TABLE {} WITH gc_grace_seconds = 0",
    "DROP TABLE {}",
    "drop columnfamily if exists {} ;",
    "DROP MATERIALIZED VIEW {}",
    "-- comment\n/* another */ CREATE INDEX ON {} (owner)",
    "CREATE CUSTOM INDEX IF NOT EXISTS i ON {} (owner) USING 'sai'",
    "CREATE TRIGGER IF NOT EXISTS t ON {} USING 'a.B'",
    "DROP TRIGGER IF EXISTS t ON {}",
    "CREATE MATERIALIZED VIEW a.v AS SELECT * FROM {} WHERE name IS NOT NULL PRIMARY KEY (name)",
    "ALTER TABLE {} FORGET owner",
];

/// True if the proxy refuses a change of the schema, after parsing it or because it cannot parse
/// it.
fn is_refused(text: &str, session: Option<&str>) -> bool {
    assert_eq!(classify(text).kind, Kind::Ddl, "a proxy would not look at it: {text}");
    match parse(text, session) {
        Err(_) => {
            assert!(may_change(text, session), "{text}");
            true
        }
        Ok(read) => {
            assert_eq!(read, None, "{text}");
            crate::parse(text).is_err() && may_change(text, session)
        }
    }
}

#[test]
fn the_tables_are_not_changed() {
    let spellings = [
        "shunt.locks",
        "Shunt . FAST_locks",
        "\"shunt\".\"rwlocks\"",
        "shunt/* x */.\n-- y\nlock_queue",
    ];
    for form in CHANGES {
        for spelling in spellings {
            for session in [None, Some(KEYSPACE), Some("elsewhere")] {
                assert!(
                    is_refused(&form.replacen("{}", spelling, 1), session),
                    "{form} of {spelling}"
                );
            }
        }
        let inside = form.replacen("{}", "fast_rwlocks", 1);
        assert!(
            is_refused(&inside, Some(KEYSPACE)) && !is_refused(&inside, Some("elsewhere")),
            "{form}"
        );
        for other in ["elsewhere.locks", "shunt.others", "\"Shunt\".locks", "shunt.\"Locks\""] {
            assert!(
                !is_refused(&form.replacen("{}", other, 1), Some("elsewhere")),
                "{form} of {other}"
            );
        }
    }
    for text in [
        "CREATE KEYSPACE IF NOT EXISTS {} WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}",
        "ALTER KEYSPACE {} WITH durable_writes = false",
        "alter keyspace if exists {} with durable_writes = false",
        "DROP KEYSPACE {}",
        "Drop Keyspace If Exists {};",
        "ALTER KEYSPACE {} FORGET it",
    ] {
        for (name, refused) in [
            ("shunt", true),
            ("SHUNT", true),
            ("\"shunt\"", true),
            ("\"Shunt\"", false),
            ("shunt_meta", false),
        ] {
            assert_eq!(
                is_refused(&text.replacen("{}", name, 1), Some(KEYSPACE)),
                refused,
                "{text} of {name}"
            );
        }
    }
}

#[test]
fn refusals_name_the_change_and_the_remedy() {
    for (text, says) in [
        (
            "ALTER TABLE shunt.locks ADD a int",
            ["ALTER TABLE shunt.locks is refused", "shunt fleet init"],
        ),
        ("DROP TABLE IF EXISTS shunt.locks", ["DROP TABLE shunt.locks is refused", "at a node"]),
        ("DROP KEYSPACE shunt", ["DROP KEYSPACE shunt is refused", "at a node"]),
        (
            "ALTER KEYSPACE shunt WITH durable_writes = true",
            ["ALTER KEYSPACE shunt is refused", "at a node"],
        ),
        (
            "CREATE TABLE shunt.locks (name text PRIMARY KEY)",
            ["CREATE TABLE shunt.locks is refused", "shunt fleet init"],
        ),
        (
            "CREATE INDEX ON shunt.rwlocks (owner)",
            ["CREATE INDEX ON shunt.rwlocks is refused", "shunt locks"],
        ),
        (
            "CREATE TRIGGER t ON shunt.locks USING 'x'",
            ["CREATE TRIGGER ON shunt.locks is refused", "no rows"],
        ),
    ] {
        let error = parse(text, None).expect_err("it is not allowed").message;
        assert!(says.iter().all(|says| error.contains(says)), "{error}");
    }
}

/// Other elements of the keyspace, or texts that merely mention the tables.
#[test]
fn other_changes_of_the_schema_are_the_nodes_business() {
    for text in [
        "CREATE TABLE shunt.others (locks text PRIMARY KEY)",
        "CREATE TYPE shunt.locks (name text)",
        "DROP INDEX shunt.locks",
        "CREATE FUNCTION shunt.f (locks text) CALLED ON NULL INPUT RETURNS text LANGUAGE java AS 'return shunt.locks;'",
        "CREATE TABLE shunts.locks (name text PRIMARY KEY)",
    ] {
        assert!(!is_refused(text, Some(KEYSPACE)), "{text}");
    }
    let body = "x".repeat(100_000);
    let long = format!(
        "CREATE FUNCTION a.f (locks text) CALLED ON NULL INPUT RETURNS text LANGUAGE java AS 'shunt.locks {body}'"
    );
    assert!(!may_change(&long, None));
    for text in [
        "GRANT SELECT ON shunt.locks TO reports",
        "REVOKE MODIFY ON KEYSPACE shunt FROM reports",
        "LIST ALL PERMISSIONS ON shunt.locks",
        "DESCRIBE TABLE shunt.locks",
        "DROP ROLE locks",
    ] {
        assert_eq!(
            (parse(text, Some(KEYSPACE)), classify(text).kind),
            (Ok(None), Kind::Other),
            "{text}"
        );
    }
}

#[test]
fn batches_are_of_one_kind() {
    let insert = |table: &str, name: &str| {
        format!(
            "INSERT INTO shunt.{table} (name, owner) VALUES ('{name}', 'o') IF NOT EXISTS USING TTL 5"
        )
    };
    let batch = |parts: &[String]| format!("BEGIN BATCH {}; APPLY BATCH", parts.join("; "));
    assert_eq!(read(&batch(&[insert("locks", "a"), insert("locks", "b")])).len(), 2);
    let delete = "DELETE FROM shunt.locks WHERE name = 'n' IF owner = 'o'".to_owned();
    let other = "INSERT INTO a.b (c) VALUES (1)".to_owned();
    let many: Vec<String> = (0..17).map(|number| insert("locks", &number.to_string())).collect();
    let refused = [
        batch(&[insert("locks", "a"), delete]),
        batch(&[insert("locks", "a"), insert("fast_locks", "b")]),
        batch(&[other, insert("locks", "a")]),
        batch(&many),
        format!("BEGIN COUNTER BATCH {}; APPLY BATCH", insert("locks", "a")),
        format!("BEGIN BATCH USING TIMESTAMP 1 {}; APPLY BATCH", insert("locks", "a")),
    ];
    for text in refused {
        assert!(parse(&text, None).is_err(), "{text}");
    }
}

/// The proxy parses a text only if its quick check says that it may be on one of the tables. Every
/// text on the tables, or refused for that reason, must pass the check.
#[test]
fn the_quick_check_passes_every_text_on_the_tables() {
    let spellings = [
        "shunt.locks",
        "Shunt . Locks",
        "\"shunt\".\"locks\"",
        "SHUNT.fast_rwlocks",
        "shunt /* x */ . lock_queue",
    ];
    let forms = [
        "SELECT * FROM {} WHERE name = 'n'",
        "SELECT a, b AS c, count(*) FROM {}",
        "SELECT JSON * FROM {}",
        "INSERT INTO {} (name) VALUES ('n')",
        "INSERT INTO {} JSON '{}'",
        "-- comment\nINSERT INTO {} (name, owner) VALUES ('n', 'o') IF NOT EXISTS USING TTL 5",
        "UPDATE {} SET owner = 'o' WHERE name = 'n'",
        "UPDATE {} USING TTL 5 AND TIMESTAMP 7 SET owner = 'o' WHERE name = 'n' IF owner = 'o'",
        "DELETE FROM {} WHERE name = 'n'",
        "DELETE owner, fence FROM {} USING TIMESTAMP 5 WHERE name = 'n'",
        "TRUNCATE {}",
        "truncate table {} ;",
    ];
    for form in forms {
        for spelling in spellings {
            let text = form.replacen("{}", spelling, 1);
            assert!(!matches!(parse(&text, None), Ok(None)), "{text}");
            let parsed = classify(&text);
            let keyspace = parsed
                .keyspace
                .or_else(|| parsed.selected_table().and_then(|(keyspace, _)| keyspace));
            assert!(
                keyspace.is_some_and(|keyspace| keyspace.matches(KEYSPACE)),
                "{text}: {parsed:?}"
            );
            let unqualified = form.replacen("{}", "locks", 1);
            let parsed = classify(&unqualified);
            assert!(
                parsed.keyspace.is_none() && parsed.kind != Kind::Other,
                "{unqualified}: {parsed:?}"
            );
            let _: Option<Identifier<'_>> = parsed.keyspace;
        }
    }
    let batch = "BEGIN BATCH INSERT INTO a.b (c) VALUES (1); INSERT INTO SHUNT.locks (name) VALUES ('n'); APPLY BATCH";
    assert!(parse(batch, None).is_err());
    assert_eq!(classify(batch).kind, Kind::Batch);
}

#[test]
fn answers_are_rows_that_every_version_reads() {
    let row = Row {
        name: Some(b"n"),
        owner: Some(b"o"),
        shared: Some(true),
        fence: Some(7),
        ttl_ms: Some(8),
        waiters: Some(9),
        ..Row::default()
    };
    for version in 3..=5 {
        let mut body = Vec::new();
        reply::conditional(
            &mut body,
            Table::RwLocks,
            [(true, row), (false, Row::default())].into_iter(),
        );
        let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(version, &body) else {
            panic!("rows")
        };
        let names: Vec<&str> = rows.metadata.columns().map(|column| column.name).collect();
        assert_eq!(names, ["[applied]", "name", "owner", "mode", "fence", "ttl_ms", "waiters"]);
        let values: Vec<Vec<Option<&[u8]>>> =
            rows.rows().map(|row| row.expect("a row").values().collect()).collect();
        let fence = 7_i64.to_be_bytes();
        let numbers = [8_i32.to_be_bytes(), 9_i32.to_be_bytes()];
        let expected =
            [&[1][..], b"n", b"o", b"S", &fence, &numbers[0], &numbers[1]].map(Some).to_vec();
        assert_eq!(
            values,
            [expected, [Some(&[0][..]), None, None, None, None, None, None].to_vec()]
        );

        let statement = read("SELECT fence, wait_ms AS w FROM shunt.locks WHERE name = 'n'");
        for skip in [false, true] {
            body.clear();
            let columns = statement.selected().expect("columns");
            reply::selected(&mut body, statement.table(), columns, skip, std::iter::once(row));
            let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(version, &body) else {
                panic!("rows")
            };
            assert_eq!(rows.metadata.column_count, 2);
            let first = rows.rows().next().expect("a row").expect("a row");
            assert_eq!(first.values().collect::<Vec<_>>(), [Some(&fence[..]), None]);
        }
    }
}

/// A prepared statement is kept, and its answer has a value for each named column, in a thousand
/// rows.
#[test]
fn statements_are_no_larger_than_they_need_to_be() {
    let select = |columns: usize| {
        format!(
            "SELECT {} FROM shunt.lock_queue WHERE name = 'n'",
            vec!["owner"; columns].join(", ")
        )
    };
    read(&select(16));
    assert!(parse(&select(17), None).expect_err("too many").message.contains("17 columns"));
    let insert = |bytes: usize| {
        let name = "n".repeat(bytes);
        format!(
            "INSERT INTO shunt.locks (name, owner) VALUES ('{name}', 'o') IF NOT EXISTS USING TTL 20"
        )
    };
    let (short, long) = (read(&insert(10)).bytes(), read(&insert(1_024)).bytes());
    assert_eq!(long - short, 1_014);
    assert!(parse(&insert(1_025), None).expect_err("too long").message.contains("1025 bytes"));
}

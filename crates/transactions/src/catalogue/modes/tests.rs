//! Statements on tables with modes and rules, and on tables without.

use shunt_wire::cql::statement::classify;

use super::*;
use crate::SECOND_NS;
use crate::catalogue::rules;
use crate::catalogue::switching::EVERY_NS;

/// A table may get another mode while a node or the process takes its time.
#[test]
fn modes_read_before_a_core_begins_count_for_as_long_as_its_own() {
    let mut read = InitialModes { modes: TableModes::default(), asked_ns: 7 * SECOND_NS };
    for (age_ns, wanted) in [
        (0, None),
        (EVERY_NS, None),
        (EVERY_NS + 1, Some(Doubt::Old)),
        (27 * SECOND_NS, Some(Doubt::Old)),
    ] {
        assert_eq!(read.doubt(read.asked_ns + age_ns), wanted, "{age_ns}");
    }
    assert_eq!(read.doubt(read.asked_ns - 1), None, "it was asked in this core's turn");
    read.modes.set_in_doubt();
    for age_ns in [0, 27 * SECOND_NS] {
        assert_eq!(read.doubt(read.asked_ns + age_ns), Some(Doubt::NoQuorum));
    }
}

/// Only the head of a long text is read at first. A table that comes behind it counts like any
/// other.
#[test]
fn no_long_text_hides_a_table_with_a_mode() {
    let mut modes = TableModes::default();
    modes.add("ks", "full", "full");
    let padding = " ".repeat(statement::TEXT_BYTES_MAX);
    for (text, is_taken) in [
        ("INSERT INTO full (k) VALUES (1); /* {} */", true),
        ("INSERT INTO ks./* {} */full (k) VALUES (1)", true),
        ("UPDATE {} full SET v = 1 WHERE k = 1", true),
        ("UPDATE {} other SET v = 1 WHERE k = 1", false),
        ("DELETE {} full FROM other USING TIMESTAMP 9 WHERE k = 'full'", false),
        ("DELETE {} v FROM ks.full WHERE k = 1", true),
        ("DELETE {} v FROM \"full\" WHERE k = 1", true),
        ("DELETE {} v FRM full WHERE k = 1", true),
        ("SELECT {} a FROM full WHERE k = 1", true),
        ("SELECT {} a FROM other WHERE k = 1", false),
        // Like a short one: a table of this mode may be emptied at the nodes.
        ("TRUNCATE full {}", false),
        ("INSERT INTO other (k) VALUES (1); /* {} */", false),
        ("SELECT a FROM other WHERE k = 1 {} LIMIT 1", false),
    ] {
        let text = text.replace("{}", &padding);
        let parsed = classify(&text);
        let tables = tables_of(&parsed, &text, Some("ks"));
        assert_eq!(
            modes.take_any(tables.as_deref(), Access::of(parsed.kind)),
            is_taken,
            "{}",
            text.replace("  ", "")
        );
    }
}

fn modes_of_all_kinds() -> TableModes {
    let mut modes = TableModes::default();
    for (table, mode) in [
        ("mixed", "mixed_reads"),
        ("full", "full"),
        ("bare", "unsafe"),
        ("later", "later's"),
        ("leases", "conditional"),
        ("watched", "observe"),
        ("opened", "opening:1"),
        ("closed", "closing:unsafe:2"),
        ("left", "leaving:unsafe:2"),
    ] {
        modes.add("ks", table, mode);
        modes.add("system", "local", mode);
    }
    modes
}

#[test]
fn statements_on_tables_with_a_mode_are_taken() {
    let modes = modes_of_all_kinds();
    let takes = |text: &str, session: Option<&str>| {
        let parsed = classify(text);
        modes.take_any(
            tables_of(&parsed, text, session).as_deref(),
            Access::of_text(parsed.kind, text),
        )
    };
    for (text, session, taken) in [
        ("INSERT INTO ks.mixed (k) VALUES (1)", None, true),
        ("UPDATE mixed SET a = 1 WHERE k = 1", Some("ks"), true),
        ("DELETE FROM \"ks\".MIXED WHERE k = 1", Some("other"), true),
        ("UPDATE mixed SET a = 1 WHERE k = 1", Some("other"), false),
        ("UPDATE mixed SET a = 1 WHERE k = 1", None, false),
        ("SELECT * FROM mixed WHERE k = 1", Some("ks"), false),
        ("SELECT * FROM full WHERE k = 1", Some("ks"), true),
        ("SELECT * FROM ks.full", None, true),
        ("INSERT INTO ks.bare (k) VALUES (1)", None, false),
        ("INSERT INTO ks.later (k) VALUES (1)", None, true),
        ("DELETE m[(int)blobAsInt(0x01)] FROM ks.mixed WHERE k = 1", None, true),
        ("DELETE m[(int) :x] FROM ks.bare WHERE k = 1", None, false),
        ("SELECT * FROM system.local", None, false),
        (
            "BEGIN BATCH INSERT INTO ks.bare (k) VALUES (1) INSERT INTO mixed (k) VALUES (1) APPLY BATCH",
            Some("ks"),
            true,
        ),
        ("BEGIN BATCH INSERT INTO ks.bare (k) VALUES (1) APPLY BATCH", Some("ks"), false),
        ("TRUNCATE ks.mixed", None, false),
        ("TRUNCATE full", Some("ks"), false),
        ("TRUNCATE TABLE leases", Some("ks"), true),
        ("TRUNCATE ks.closed", None, true),
        ("SELECT * FROM ks.leases", None, false),
        ("UPDATE ks.leases SET owner = ? WHERE name = ? IF owner = ?", None, true),
        ("UPDATE ks.opened SET owner = ? WHERE name = ?", None, true),
        ("SELECT * FROM ks.opened", None, false),
        ("SELECT * FROM ks.left", None, true),
        ("INSERT INTO ks.left (k) VALUES (1)", None, true),
        ("TRUNCATE ks.left", None, true),
        ("DELETE FROM ks.closed WHERE name = ?", None, true),
        ("UPDATE ks.watched SET owner = ? WHERE name = ? IF owner = ?", None, true),
        ("INSERT INTO watched (name) VALUES (?)", Some("ks"), true),
        ("TRUNCATE ks.watched", None, true),
        ("SELECT * FROM ks.watched", None, false),
        ("ALTER TABLE ks.leases WITH gc_grace_seconds = 60", None, true),
        ("ALTER TABLE mixed WITH default_time_to_live = 60", Some("ks"), true),
        ("ALTER TABLE ks.watched WITH gc_grace_seconds = 0", None, true),
        ("ALTER TABLE ks.opened WITH read_repair = 'NONE'", None, true),
        ("ALTER TABLE ks.leases WITH gc_grace_seconds = 86400", None, false),
        ("ALTER TABLE ks.leases ADD a int", None, false),
        ("ALTER TABLE ks.leases ADD a int STATIC", None, true),
        ("ALTER TABLE watched ADD m map<int, int>", Some("ks"), true),
        ("ALTER TABLE ks.opened ADD a int STATIC", None, true),
        ("ALTER TABLE ks.full ADD a int STATIC", None, false),
        ("ALTER TABLE ks.mixed ADD m map<int, int>", None, false),
        ("ALTER TABLE ks.bare ADD a int STATIC", None, false),
        ("ALTER TABLE ks.bare WITH gc_grace_seconds = 0", None, false),
        ("ALTER TABLE other.leases WITH gc_grace_seconds = 0", None, false),
        ("CREATE TABLE ks.leases (k int PRIMARY KEY) WITH gc_grace_seconds = 0", None, false),
    ] {
        assert_eq!(takes(text, session), taken, "{text}");
    }
    let deep = format!(
        "BEGIN BATCH UPDATE ks.bare SET v = 1{} WHERE k = 1 APPLY BATCH",
        " + 1".repeat(60)
    );
    assert!(shunt_language::parse(&deep).is_err() && takes(&deep, None));
    assert!(
        modes.may_be_in("BEGIN BATCH insert into KS.MIXED")
            && !modes.may_be_in("INSERT INTO ks.bare")
    );
    assert!(!modes.is_empty() && TableModes::default().is_empty());
}

#[test]
fn no_statement_goes_to_nodes_while_modes_are_unknown() {
    let modes = modes_of_all_kinds();
    let behind = TableModes { trust: Trust::Nothing, ..TableModes::default() };
    let named = |keyspace: &str| [(Some(Box::from(keyspace)), Box::from("t"))];
    for access in [Access::Read, Access::Write, Access::Truncate] {
        assert!(
            behind.take_any(Some(&named("ks")), access)
                && !behind.take_any(Some(&named("system")), access)
        );
    }
    assert!(!behind.is_empty() && !behind.leaves_to_nodes(None));
    assert!(!behind.leaves_to_nodes(Some(&named("ks"))));
    assert_eq!(modes.decided_otherwise(&modes.clone()), []);
    assert_eq!(TableModes::default().decided_otherwise(&modes), [("ks", "leases")]);
    assert_eq!(modes.decided_otherwise(&TableModes::default()), [("ks", "leases")]);
}

/// Another table of such a keyspace may have got a mode or a rule since.
#[test]
fn keyspaces_without_transactions_are_served_by_old_modes() {
    let named = |keyspace: &str| [(Some(Box::from(keyspace)), Box::from("other"))];
    let rule = rules::Row {
        table_name: "ruled.t",
        lock: Some("l"),
        is_fast: false,
        mode: Some("require"),
    };
    for (keyspace, mode) in [("ks", "full"), ("ks", "unsafe"), ("ruled", "off")] {
        let mut old = TableModes { trust: Trust::OnlyUnusedKeyspaces, ..TableModes::default() };
        assert!(!old.has_use());
        old.add("ks", "t", mode);
        if keyspace == "ruled" {
            assert!(old.rules.add(&rule));
        }
        assert!(old.has_use() && !old.is_empty(), "{mode}");
        for (asked, is_taken) in [(keyspace, true), ("plain", false), ("system", false)] {
            for access in [Access::Read, Access::Write, Access::Truncate] {
                assert_eq!(old.take_any(Some(&named(asked)), access), is_taken, "{asked} {mode}");
            }
            assert_eq!(old.leaves_to_nodes(Some(&named(asked))), !is_taken, "{asked} {mode}");
        }
        assert!(!old.leaves_to_nodes(None) && old.take_any(None, Access::Read));
        assert!(old.may_be_in("BEGIN BATCH INSERT INTO ks.other"));
        old.trust = Trust::Full;
        assert!(!old.take_any(Some(&named(keyspace)), Access::Read), "{mode}");
    }
}

#[test]
fn tables_that_are_observed_are_left_to_nodes() {
    let mut modes = TableModes::default();
    let named = |table: &str| -> TableName { (Some("ks".into()), table.into()) };
    modes.add("ks", "bare", "unsafe");
    assert!(!modes.has_observed());
    modes.add("ks", "watched", "observe");
    let before = TableModes::default();
    assert!(!modes.observes_no_more_than(&before) && before.observes_no_more_than(&modes));
    assert!(modes.observes_no_more_than(&modes));
    assert!(
        modes.has_observed()
            && modes.is_observed("ks", "watched")
            && !modes.is_observed("other", "watched")
    );
    assert!(
        modes.leaves_to_nodes(None)
            && modes.leaves_to_nodes(Some(&[named("watched"), named("bare")]))
    );
    assert!(!modes.leaves_to_nodes(Some(&[(None, "watched".into())])), "nobody knows which it is");
    assert!(!modes.may_be_in("BEGIN BATCH INSERT INTO ks.watched"));
    for (table, mode) in
        [("leases", "conditional"), ("later", "later's"), ("opened", "opening:1"), ("full", "full")]
    {
        let mut modes = modes.clone();
        modes.add("ks", table, mode);
        assert!(
            !modes.leaves_to_nodes(None)
                && !modes.leaves_to_nodes(Some(&[named("watched"), named(table)])),
            "{mode}"
        );
        assert!(modes.leaves_to_nodes(Some(&[named("watched")])));
    }
    let row = crate::catalogue::rules::Row {
        table_name: "ks.watched",
        lock: Some("l"),
        is_fast: false,
        mode: Some("require"),
    };
    assert!(modes.rules.add(&row) && !modes.leaves_to_nodes(Some(&[named("watched")])));
    assert!(!modes.leaves_to_nodes(None));
}

#[test]
fn writes_to_tables_with_a_rule_are_taken_whatever_the_mode() {
    let mut modes = TableModes::default();
    assert!(modes.is_empty());
    for table_name in
        ["ks.Ruled", "shunt_meta.lock", "systematic.ruled", "system_auth.roles", "none"]
    {
        let row = crate::catalogue::rules::Row {
            table_name,
            lock: Some("l"),
            is_fast: false,
            mode: Some("require"),
        };
        assert_eq!(modes.rules.add(&row), table_name != "none");
    }
    assert!(!modes.is_empty());
    let takes = |text: &str| {
        let parsed = classify(text);
        modes.take_any(
            tables_of(&parsed, text, Some("ks")).as_deref(),
            Access::of_text(parsed.kind, text),
        )
    };
    for (text, taken) in [
        ("INSERT INTO ruled (k) VALUES (1)", true),
        ("UPDATE ks.RULED SET a = 1 WHERE k = 1 IF EXISTS", true),
        ("TRUNCATE ks.ruled", true),
        ("ALTER TABLE ruled WITH gc_grace_seconds = 0", true),
        ("ALTER TABLE ruled ADD a int STATIC", false),
        (
            "BEGIN BATCH INSERT INTO bare (k) VALUES (1) INSERT INTO ruled (k) VALUES (1) APPLY BATCH",
            true,
        ),
        ("SELECT * FROM ruled WHERE k = 1", false),
        ("INSERT INTO bare (k) VALUES (1)", false),
        ("INSERT INTO other.ruled (k) VALUES (1)", false),
        ("UPDATE shunt_meta.lock SET a = 1 WHERE k = 1", false),
        ("UPDATE systematic.ruled SET a = 1 WHERE k = 1", true),
        ("INSERT INTO system_auth.roles (role) VALUES ('a')", false),
    ] {
        assert_eq!(takes(text), taken, "{text}");
    }
    assert!(
        modes.may_be_in("BEGIN BATCH insert into KS.RULED")
            && !modes.may_be_in("INSERT INTO ks.bare")
    );
    assert!(modes.take_any(None, Access::Write) && !modes.take_any(None, Access::Read));
}

/// To miss one would let a write past what a transaction holds.
#[test]
fn a_table_is_found_in_a_text_however_it_is_written() {
    let mut modes = TableModes::default();
    for table in ["mixed", "Quoted", "_low", "9th", "n\u{e4}me"] {
        modes.add("ks", table, "mixed_reads");
    }
    for text in [
        "INSERT INTO ks.mixed(k) VALUES (1)",
        "INSERT INTO ks.MiXeD (k) VALUES (1)",
        "INSERT INTO KS .\tmixed(k) VALUES (1)",
        "INSERT INTO \"ks\".\"mixed\"(k) VALUES (1)",
        "INSERT INTO\"mixed\"(k) VALUES (1)",
        "INSERT INTO ks./* */mixed/* */(k) VALUES (1)",
        "INSERT INTO --\nmixed--\n(k) VALUES (1)",
        "INSERT INTO //\rmixed//\r(k) VALUES (1)",
        "UPDATE mixed",
        "UPDATE ks.\"Quoted\" SET v = 1 WHERE k = 1",
        "DELETE FROM ks.\"_low\" WHERE k = 1",
        "DELETE FROM ks.\"9th\" WHERE k = 1",
        "DELETE FROM ks.\"n\u{e4}me\" WHERE k = 1",
        "DELETE FROM \"a\"\"b\".mixed WHERE k = 1",
        "INSERT INTO bare (k) VALUES ('''') UPDATE mixed SET v = 1 WHERE k = 'x'",
        "INSERT INTO bare (k) VALUES ($$'$$)UPDATE \u{e4}mixed",
    ] {
        assert!(modes.may_be_in(text), "{text}");
    }
    assert!(!modes.may_be_in("INSERT INTO ks.bare (k) VALUES (1)") && !modes.may_be_in(""));
}

/// Each of these names looked for in the whole of this text would be more than a hundred
/// billion steps.
#[test]
fn ten_thousand_tables_are_looked_for_in_the_longest_text_at_once() {
    let mut modes = TableModes::default();
    for number in 0..10_000 {
        modes.add("ks", &format!("tabletabletable{number}"), "mixed_reads");
    }
    let text = "tabletable ".repeat((16 << 20) / 11);
    assert!(!modes.may_be_in(&text));
    assert!(modes.may_be_in(&format!("{text} tabletabletable9999")));
}

/// Any role may change the modes of its own tables, again and again.
#[test]
fn a_change_of_one_table_concerns_plans_on_it_alone() {
    let modes = |rows: &[(&str, &str, &str)]| {
        let mut modes = TableModes::default();
        rows.iter().for_each(|(keyspace, table, mode)| modes.add(keyspace, table, mode));
        modes
    };
    let before = modes(&[("ks", "one", "full"), ("ks", "two", "mixed_reads")]);
    let after = modes(&[("ks", "one", "full"), ("ks", "two", "full"), ("mine", "t", "unsafe")]);
    for (modes, other) in [(&before, &after), (&after, &before)] {
        for (keyspace, table, differs) in
            [("ks", "one", false), ("ks", "two", true), ("ks", "three", false), ("mine", "t", true)]
        {
            assert_eq!(modes.differs_on(other, keyspace, table), differs, "{keyspace}.{table}");
        }
    }
}

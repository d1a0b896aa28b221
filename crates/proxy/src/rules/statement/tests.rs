//! Which statements match which rules.

use shunt_topology::Table;
use shunt_topology::schema::Cells;
use shunt_wire::cql::types::Column;

use super::*;
use crate::config::RuleActions;

fn rule(matches: RuleMatch) -> Vec<Rule> {
    let actions = RuleActions { refuse: Some("no".into()), ..RuleActions::default() };
    vec![Rule::new("a", matches, actions)]
}

fn matches(matches: RuleMatch, text: &str) -> bool {
    matching(&rule(matches), &Subject::of_text(text, Some("shop")), None).has(0)
}

fn on_table(text: &str) -> RuleMatch {
    let (keyspace, table) = match text.split_once('.') {
        Some((keyspace, table)) => (Some(keyspace.to_owned()), table),
        None => (None, text),
    };
    RuleMatch { table: vec![(keyspace, table.to_owned())], ..RuleMatch::default() }
}

fn of_kind(kind: KindSet) -> RuleMatch {
    RuleMatch { kind, ..RuleMatch::default() }
}

#[test]
fn tables_match_however_they_are_written() {
    for text in [
        "SELECT v FROM items WHERE k = 1",
        "SELECT v FROM /* items2 */ Shop.\"items\" WHERE k = 'x'",
        "INSERT INTO shop.items (k) VALUES (1)",
        "UPDATE items SET v = 1 WHERE k = 1",
        "DELETE FROM ITEMS WHERE k = 1",
        "TRUNCATE items",
        "BEGIN BATCH INSERT INTO a (k) VALUES (1); UPDATE items SET v = 1 WHERE k = 1; APPLY BATCH",
    ] {
        assert!(matches(on_table("items"), text), "{text}");
        assert!(matches(on_table("shop.items"), text), "{text}");
        assert!(!matches(on_table("other.items"), text), "{text}");
        assert!(!matches(on_table("Items"), text), "{text}");
    }
    assert!(!matches(on_table("items"), "SELECT items FROM a WHERE k = 'FROM items'"));
    assert!(!matches(on_table("items"), "SELECT v FROM \"Items\""));
    assert!(!matches(on_table("items"), "DROP TABLE items"), "tables of DDL are not read");
}

#[test]
fn system_tables_match_nothing_and_own_tables_only_by_name() {
    for text in ["SELECT * FROM system.local", "SELECT * FROM \"system_schema\".tables"] {
        assert!(!matches(RuleMatch::default(), text), "{text}");
        assert!(!matches(RuleMatch { unbounded: true, ..RuleMatch::default() }, text), "{text}");
    }
    let text = "SELECT * FROM shunt.locks";
    assert!(!matches(RuleMatch::default(), text) && !matches(on_table("locks"), text));
    assert!(matches(on_table("shunt.locks"), text));
    let keyspace = RuleMatch { keyspace: vec!["shunt".to_owned()], ..RuleMatch::default() };
    assert!(matches(keyspace, text));
}

#[test]
fn kinds_are_those_of_the_statement() {
    let lwt = KindSet::INSERT.with(KindSet::LWT);
    for (text, kind, others) in [
        ("SELECT v FROM t", KindSet::SELECT, KindSet::INSERT),
        ("INSERT INTO t (k) VALUES (1)", KindSet::INSERT, KindSet::LWT),
        ("INSERT INTO t (k) VALUES (1) IF NOT EXISTS", lwt, KindSet::UPDATE),
        ("UPDATE t SET v = 1 WHERE k = f(?) + {}[3] IF v = 2", KindSet::LWT, KindSet::INSERT),
        ("CREATE TABLE t (k int PRIMARY KEY)", KindSet::DDL, KindSet::UNKNOWN),
        ("USE shop", KindSet::USE, KindSet::UNKNOWN),
        ("TRUNCATE t", KindSet::TRUNCATE, KindSet::DDL),
        ("GRANT SELECT ON t TO a", KindSet::UNKNOWN, KindSet::SELECT),
        ("SELECT what", KindSet::UNKNOWN, KindSet::INSERT),
    ] {
        assert!(matches(of_kind(kind), text) && !matches(of_kind(others), text), "{text}");
    }
    let member = Subject::of_text("DELETE FROM t WHERE k = 1", None).in_batch();
    let batch = rule(of_kind(KindSet::BATCH));
    assert!(matching(&batch, &member, None).has(0));
    let long = format!("SELECT v FROM t WHERE k = '{}'", "x".repeat(TEXT_BYTES_MAX));
    assert!(matches(of_kind(KindSet::UNKNOWN), &long), "the end of a long text is not read");
    let unknown = Subject::unknown();
    assert!(matching(&rule(RuleMatch::default()), &unknown, None).has(0));
    assert!(!matching(&rule(on_table("t")), &unknown, None).has(0));
}

#[test]
fn statements_in_a_text_batch_have_their_kind_and_table() {
    let text = "BEGIN BATCH INSERT INTO a (k) VALUES (1); DELETE FROM b WHERE k = 1; APPLY BATCH";
    for (kind, table, expected) in [
        (KindSet::INSERT, "a", true),
        (KindSet::DELETE, "b", true),
        (KindSet::BATCH, "b", true),
        (KindSet::DELETE, "a", false),
        (KindSet::INSERT, "b", false),
        (KindSet::UNKNOWN, "a", false),
    ] {
        assert_eq!(matches(RuleMatch { kind, ..on_table(table) }, text), expected, "{table}");
    }
    let many = format!("BEGIN BATCH {} APPLY BATCH", "DELETE FROM a WHERE k = 1;".repeat(257));
    assert!(matches(of_kind(KindSet::UNKNOWN), &many), "not all tables are read");
}

#[test]
fn an_exception_for_one_table_of_a_batch_exempts_no_other() {
    let exempt = |matches: RuleMatch| {
        let actions = RuleActions { refuse: Some("".into()), ..RuleActions::default() };
        vec![Rule::new("a", matches, actions)]
    };
    let batch = |tables: &[&str]| {
        let one = |table: &&str| format!("DELETE FROM {table} WHERE k = 1; ");
        format!("BEGIN BATCH {}APPLY BATCH", tables.iter().map(one).collect::<String>())
    };
    for (tables, expected) in
        [(&["a", "a"][..], true), (&["a", "b"][..], false), (&["b"][..], false)]
    {
        let text = batch(tables);
        let subject = Subject::of_text(&text, Some("shop"));
        assert_eq!(matching(&exempt(on_table("a")), &subject, None).has(0), expected, "{text}");
    }
    let many = batch(&["a"; 300]);
    let subject = Subject::of_text(&many, Some("shop"));
    assert!(!matching(&exempt(on_table("a")), &subject, None).has(0), "the rest is not read");
}

#[test]
fn unbounded_selects_name_no_partition_and_have_no_limit() {
    let unbounded = || RuleMatch { unbounded: true, ..RuleMatch::default() };
    for (text, expected) in [
        ("SELECT * FROM t", true),
        ("SELECT count(*) FROM t", true),
        ("SELECT * FROM t PER PARTITION LIMIT 2", true),
        ("SELECT * FROM t WHERE v > 5 ALLOW FILTERING", true),
        ("SELECT * FROM t LIMIT 10", false),
        ("SELECT * FROM t WHERE k = ?", false),
        ("SELECT * FROM t WHERE k IN (1, 2)", false),
        ("SELECT * FROM t WHERE token(k) > 5 AND token(k) < 9", false),
        ("DELETE FROM t WHERE k = 1", false),
    ] {
        assert_eq!(matches(unbounded(), text), expected, "{text}");
    }
    let filtering = || RuleMatch { allow_filtering: true, ..RuleMatch::default() };
    assert!(matches(filtering(), "SELECT * FROM t WHERE v = 5 allow filtering"));
    assert!(!matches(filtering(), "SELECT * FROM t WHERE v = 'ALLOW FILTERING'"));
    assert!(!matches(filtering(), "SELECT * FROM t -- ALLOW FILTERING"));
}

#[test]
fn every_column_of_the_partition_key_must_be_restricted() {
    let tables = vec![Table {
        keyspace: "shop".into(),
        name: "visits".into(),
        partition_key: ["shop", "Day"].map(|name| Column::new(name, "int")).into(),
        cells: Cells::default(),
    }];
    let routing = RoutingTable::build(vec![], vec![], tables, None);
    let rules = rule(RuleMatch { unbounded: true, ..RuleMatch::default() });
    for (clauses, expected) in [
        ("WHERE shop = 1 AND \"Day\" = 2", false),
        ("WHERE \"Day\" IN (1, 2) AND SHOP = 1", false),
        ("WHERE token(shop, \"Day\") > 5", false),
        ("WHERE shop = 1 ALLOW FILTERING", true),
        ("WHERE shop = 1 AND shop = 2 ALLOW FILTERING", true),
        ("WHERE shop = 1 AND day = 2 ALLOW FILTERING", true),
        ("WHERE shop = 1 AND \"Day\" > 2 ALLOW FILTERING", true),
        ("WHERE shop = 1 ALLOW FILTERING LIMIT 5", false),
    ] {
        let text = format!("SELECT v FROM visits {clauses}");
        let subject = Subject::of_text(&text, Some("shop"));
        assert_eq!(matching(&rules, &subject, Some(&routing)).has(0), expected, "{text}");
    }
}

#[test]
fn a_digest_is_the_statement_without_values() {
    let digest = |text: &str| RuleMatch { digest: vec![text.to_owned()], ..RuleMatch::default() };
    let known = "SELECT v FROM t WHERE k = ?";
    for text in ["SELECT v FROM t WHERE k = 5", "SELECT  v FROM t -- a\n WHERE k = 'x'", known] {
        assert!(matches(digest(known), text), "{text}");
    }
    assert!(!matches(digest(known), "SELECT w FROM t WHERE k = 5"));
}

//! Rules are read from the file, and each fault names its rule.

use super::*;

fn table(entries: &[(&str, Written)]) -> Written {
    let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
    Written::Table(entries.collect())
}

fn text(text: &str) -> Written {
    Written::Text(text.to_owned())
}

fn read(tables: Vec<Written>) -> (RuleList, Vec<String>) {
    let mut faults = Vec::new();
    (RuleList::read(&Written::List(tables), &mut faults).expect("a list"), faults)
}

fn refusing(name: &str, matches: &[(&str, Written)]) -> Written {
    table(&[("name", text(name)), ("match", table(matches)), ("refuse", text("no"))])
}

#[test]
fn a_rule_is_read_with_all_keys() {
    let (rules, faults) = read(vec![
        refusing(
            "a",
            &[
                ("digest", text("SELECT v FROM t WHERE k = ?")),
                ("keyspace", text("shop")),
                ("table", Written::List(vec![text("items"), text("shop.prices")])),
                ("role", text("cron")),
                ("application", text("report")),
                ("consistency", Written::List(vec![text("ALL"), text("EACH_QUORUM")])),
                ("kind", Written::List(vec![text("select"), text("lwt")])),
                ("unbounded", Written::Truth(true)),
                ("allow_filtering", Written::Truth(true)),
            ],
        ),
        table(&[("name", text("b")), ("refuse", Written::Truth(false))]),
        table(&[("name", text("c")), ("refuse", text("no")), ("dry_run", Written::Truth(true))]),
    ]);
    assert_eq!(faults, Vec::<String>::new());
    let RuleMatch { table, consistency, kind, unbounded, .. } = &rules.0[0].matches;
    let tables = [(None, "items".to_owned()), (Some("shop".to_owned()), "prices".to_owned())];
    assert_eq!(table[..], tables);
    assert_eq!((*consistency, *kind), (1 << 5 | 1 << 7, KindSet::SELECT.with(KindSet::LWT)));
    assert!(*unbounded && rules.0[1].actions.has(Action::Refuse));
    assert_eq!(rules.text().as_deref(), Some("a refuse,b refuse false,c refuse dry_run"));
    assert_eq!(rules.faults(), Vec::<String>::new());
}

#[test]
fn all_actions_are_read_and_shown() {
    let (rules, faults) = read(vec![table(&[
        ("name", text("a")),
        ("queries_per_s", Written::Number(7)),
        ("timeout_ms", Written::Number(500)),
        ("consistency", text("LOCAL_ONE")),
        ("weaken", Written::Truth(true)),
        ("hedge", text("off")),
        ("tag", text("b")),
    ])]);
    assert_eq!(faults, Vec::<String>::new());
    let shown = "a queries_per_s 7 timeout_ms 500 consistency LOCAL_ONE weaken tag b hedge off";
    assert_eq!(rules.text().as_deref(), Some(shown));
    let pin = Pin { level: Consistency::LOCAL_ONE, weakens: true };
    assert_eq!(rules.0[0].actions.consistency, Some(pin));
}

#[test]
fn faults_say_which_rule_and_why() {
    let wrong = |entries: &[(&str, Written)]| refusing("a", entries);
    let acting = |key: &str, value: Written| {
        table(&[("name", text("a")), ("refuse", text("no")), (key, value)])
    };
    for (wrong, words) in [
        (table(&[("refuse", text("no"))]), "`name` is missing"),
        (table(&[("name", text("a\n")), ("refuse", text("no"))]), "printable"),
        (table(&[("name", text("a"))]), "does nothing"),
        (table(&[("name", text("a")), ("dry_run", Written::Truth(true))]), "does nothing"),
        (table(&[("name", text("a")), ("refuse", text(""))]), "the words that clients get"),
        (table(&[("name", text("a")), ("refuse", Written::Truth(true))]), "or false"),
        (table(&[("name", text("a")), ("deny", text("no"))]), "unknown key `deny`"),
        (table(&[("name", text("a")), ("table", text("t"))]), "match = { table = .. }"),
        (acting("weaken", Written::Truth(true)), "`weaken` needs `consistency`"),
        (acting("timeout_ms", Written::Number(65_536)), "a number of 1 to 65535"),
        (acting("timeout_ms", Written::Number(-1)), "a number of 1 to 65535"),
        (acting("queries_per_s", text("5")), "a number of 1 to"),
        (acting("consistency", text("SERIAL")), "a rule cannot set SERIAL"),
        (acting("tag", text("a\n")), "`tag` must be one printable"),
        (acting("hedge", text("p99")), "expected \"off\""),
        (acting("consistency", text("ANY")), "a rule cannot set ANY"),
        (wrong(&[("tables", text("t"))]), "unknown key `tables`"),
        (wrong(&[("kind", text("read"))]), "`read` is none of select"),
        (wrong(&[("consistency", text("quorum"))]), "no consistency level"),
        (wrong(&[("unbounded", Written::Truth(false))]), "expected true"),
        (wrong(&[("keyspace", text("system"))]), "no rule matches statements on"),
        (wrong(&[("table", text("system_auth.roles"))]), "keyspace `system_auth`"),
        (wrong(&[("unbounded", Written::Truth(true)), ("kind", text("ddl"))]), "only a SELECT"),
        (wrong(&[("application", text(&"x".repeat(65)))]), "never matches"),
        (wrong(&[("role", Written::List(vec![]))]), "the list is empty"),
    ] {
        let (_, faults) = read(vec![refusing("good", &[]), wrong]);
        assert_eq!(faults.len(), 1, "{words}: {faults:?}");
        assert!(faults[0].starts_with("[[rule]] number 2"), "{faults:?}");
        assert!(faults[0].contains(words), "{words}: {faults:?}");
    }
    let (_, faults) = read(vec![wrong(&[("kind", text("read"))])]);
    assert!(faults[0].starts_with("[[rule]] number 1 (`a`): "), "{faults:?}");
}

#[test]
fn names_differ_and_there_are_not_too_many() {
    let faults =
        |names: &[String]| read(names.iter().map(|name| refusing(name, &[])).collect()).0.faults();
    assert!(faults(&["a".to_owned(), "a".to_owned()])[0].contains("already has the name `a`"));
    let many: Vec<String> = (0..=limits::RULES_MAX).map(|number| number.to_string()).collect();
    assert!(faults(&many)[0].contains("256 are allowed"));
}

#[test]
fn a_reload_keeps_the_numbers_of_a_name() {
    let (old, _) = read(vec![refusing("a", &[]), refusing("b", &[])]);
    let (mut new, _) = read(vec![refusing("b", &[("kind", text("ddl"))])]);
    new.adopt(&old);
    assert!(Arc::ptr_eq(&new.0[0].shared, &old.0[1].shared));
    assert_ne!(new.0[0], old.0[1], "a change of a match is a change");
}

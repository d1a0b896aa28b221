//! Times whose meaning depends on the node, or on the moment.

use super::*;

fn days() -> Arc<Table> {
    table(
        "days",
        &[
            ("d", "partition_key", 0, "date"),
            ("at", "clustering", 0, "timestamp"),
            ("n", "regular", -1, "int"),
            ("ms", "regular", -1, "bigint"),
            ("day", "regular", -1, "date"),
            ("expires", "regular", -1, "timestamp"),
            ("names", "regular", -1, "frozen<map<text, timestamp>>"),
            ("seen", "regular", -1, "map<timestamp, int>"),
            ("counts", "regular", -1, "map<text, int>"),
            ("pair", "regular", -1, "frozen<tuple<text, timestamp>>"),
        ],
    )
}

fn single() -> Arc<Table> {
    table(
        "single",
        &[
            ("k", "partition_key", 0, "int"),
            ("ts", "regular", -1, "timestamp"),
            ("v", "regular", -1, "int"),
            ("pair", "regular", -1, "frozen<tuple<text, timestamp>>"),
        ],
    )
}

fn draft_of(text: &str, table: Arc<Table>, is_conditional: bool) -> Result<Draft, String> {
    let outline = Outline::parse(text, "ks").map_err(|refusal| refusal.to_string())?;
    Draft::new(outline, &[table], 0, is_conditional).map_err(|error| error.message)
}

const KEY: &str = "d = '2024-01-31' AND at = 5";

/// Checks that a text is refused with `'now'` and with a time without a zone for `TIME`, and taken
/// with a time that names its zone.
fn check(text: &str, table: fn() -> Arc<Table>, is_conditional: bool) {
    for time in ["now", "Now", "2024-01-31", "2024-01-31 12:00", "2024-01-31T12:00:00.5"] {
        let text = text.replace("TIME", time);
        let refused = draft_of(&text, table(), is_conditional).expect_err(&text);
        let why = match time.eq_ignore_ascii_case("now") {
            true => "stands for the time at which a node prepared the statement",
            false => "has no time zone",
        };
        assert!(refused.contains(why), "{text}: {refused}");
    }
    for time in ["2024-01-31 12:00+0000", "2024-01-31T12:00:00.5Z", "1706702400000"] {
        let text = text.replace("TIME", time);
        if let Err(refused) = draft_of(&text, table(), is_conditional) {
            panic!("{text}: {refused}");
        }
    }
}

#[test]
fn times_in_conditions_keys_and_arguments_name_their_zone() {
    let read = format!("LET c = (SELECT * FROM days WHERE {KEY});");
    let delete = format!("DELETE FROM days WHERE {KEY};");
    let insert = "INSERT INTO days (d, at,";
    for body in [
        format!("{read} IF c.expires > 'TIME' THEN {delete} END IF"),
        format!("{read} IF c.seen['TIME'] = 1 THEN {delete} END IF"),
        format!("{read} IF c.names['now'] > 'TIME' THEN {delete} END IF"),
        format!("{read} IF c.ms > to_unix_timestamp((timestamp) 'TIME') THEN {delete} END IF"),
        format!("{read} SELECT c.seen['TIME'];"),
        format!("UPDATE days SET n = c.seen['TIME'] WHERE {KEY};")
            .replace("UPDATE", &format!("{read} UPDATE")),
        format!("{insert} day) VALUES ('2024-01-31', 5, to_date('TIME'));"),
        format!("{insert} ms) VALUES ('2024-01-31', 5, to_unix_timestamp((timestamp) 'TIME'));"),
        format!("{insert} expires) VALUES ('2024-01-31', 5, 'TIME');"),
        format!("{insert} pair) VALUES ('2024-01-31', 5, ('now', 'TIME'));"),
        format!("{insert} names) VALUES ('2024-01-31', 5, {{'2024-01-31': 'TIME'}});"),
        format!("{insert} names) VALUES ('2024-01-31', 5, from_json('{{\"now\": \"TIME\"}}'));"),
        format!("UPDATE days SET seen['TIME'] = 1 WHERE {KEY};"),
        format!("UPDATE days SET seen = seen + {{'TIME': 1}} WHERE {KEY};"),
        format!("UPDATE days SET seen = seen - {{'TIME'}} WHERE {KEY};"),
        format!("UPDATE days SET ms += to_unix_timestamp((timestamp) 'TIME') WHERE {KEY};"),
        format!("DELETE seen['TIME'] FROM days WHERE {KEY};"),
        "UPDATE days SET n += 1 WHERE d = to_date('TIME') AND at = 5;".to_owned(),
        "INSERT INTO days (d, at, n) VALUES (to_date('TIME'), 5, 1);".to_owned(),
        "INSERT INTO days (d, at, n) VALUES ('2024-01-31', from_json('\"TIME\"'), 1);".to_owned(),
        "DELETE FROM days WHERE d = '2024-01-31' AND at = 'TIME';".to_owned(),
        "SELECT n FROM days WHERE d = to_date('TIME') LIMIT 5;".to_owned(),
    ] {
        check(&format!("BEGIN TRANSACTION {body} COMMIT TRANSACTION"), days, false);
    }
    for text in [
        "UPDATE single SET v = 1 WHERE k = 1 IF ts = 'TIME'",
        "UPDATE single SET v = 1 WHERE k = 1 IF ts IN (null, 'TIME')",
        "DELETE FROM single WHERE k = 1 IF pair = ('now', 'TIME')",
        "UPDATE single SET ts = 'TIME' WHERE k = 1 IF EXISTS",
    ] {
        check(text, single, true);
    }
    // A bind value's times are unknown.
    let json = format!(
        "BEGIN TRANSACTION {read} IF c.expires > from_json(?) THEN {delete} END IF COMMIT TRANSACTION"
    );
    assert!(draft_of(&json, days(), false).is_err_and(|why| why.contains("has no time zone")));
}

#[test]
fn texts_that_are_no_times_are_taken() {
    let insert = "INSERT INTO days (d, at,";
    for body in [
        format!("{insert} pair) VALUES ('2024-01-31', 5, ('2024-01-31', 5));"),
        format!("{insert} counts) VALUES ('2024-01-31', 5, {{'now': 1, '2024-01-31': 2}});"),
        format!("UPDATE days SET counts['now'] = 1, day = '2024-01-31' WHERE {KEY};"),
        format!("DELETE counts['2024-01-31'] FROM days WHERE {KEY};"),
    ] {
        let text = format!("BEGIN TRANSACTION {body} COMMIT TRANSACTION");
        if let Err(refused) = draft_of(&text, days(), false) {
            panic!("{text}: {refused}");
        }
    }
}

/// A node takes its own time zone for any SELECT, but `'now'` from when it prepared the statement.
#[test]
fn reads_take_no_moment_of_their_preparation() {
    let read = |rest: &str| {
        let text = format!("BEGIN TRANSACTION SELECT {rest}; COMMIT TRANSACTION");
        draft_of(&text, days(), false).map(drop)
    };
    let now = "stands for the time at which a node prepared the statement";
    for rest in [
        "n FROM days WHERE d = '2024-01-31' AND at < 'now'",
        "n FROM days WHERE d = '2024-01-31' AND at IN (5, 'NOW')",
        "n FROM days WHERE d = '2024-01-31' AND (at) > ('now')",
        "n FROM days WHERE d = '2024-01-31' AND seen CONTAINS KEY 'now' ALLOW FILTERING",
        "n FROM days WHERE d = '2024-01-31' AND seen['now'] = 1 ALLOW FILTERING",
        "to_unix_timestamp('now') FROM days WHERE d = '2024-01-31'",
        "n + to_unix_timestamp('now') FROM days WHERE d = '2024-01-31'",
        "seen['now'] FROM days WHERE d = '2024-01-31'",
    ] {
        let refused = read(rest).expect_err(rest);
        assert!(refused.contains(now), "{rest}: {refused}");
    }
    for rest in [
        "n FROM days WHERE d = '2024-01-31' AND at < 5",
        "n FROM days WHERE d = '2024-01-31' AND at < '2024-01-31 12:00'",
        "counts['now'], to_date('2024-01-31') FROM days WHERE d = '2024-01-31'",
        "n FROM days WHERE d = '2024-01-31' AND counts['now'] = 1 ALLOW FILTERING",
    ] {
        assert_eq!(read(rest), Ok(()), "{rest}");
    }
    let other = "n FROM days WHERE d = '2024-01-31' AND at < ks.f('a')";
    assert!(read(other).is_err_and(|why| why.contains("user-defined functions")));
}

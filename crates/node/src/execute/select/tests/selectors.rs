//! Computed selectors, their names and types.

use super::{Asked, Nodes};

fn values() -> Nodes {
    Nodes::new(&[
        "CREATE TYPE u (a int, b text)",
        "CREATE TABLE t (k int PRIMARY KEY, i int, w text, d double, m map<text, int>, s set<int>, l list<int>, \
         u u, fu frozen<u>)",
        "INSERT INTO t (k, i, w, d, m, s, l, u, fu) VALUES (1, 7, 'it', 1.5, {'a': 1, 'b': 2, 'c': 3}, {1, 2, 3}, \
         [5, 6], {a: 4, b: 'x'}, {a: 9, b: 'y'}) USING TIMESTAMP 1000",
        "CREATE TABLE c (k int PRIMARY KEY, n counter)",
        "UPDATE c SET n = n + 5 WHERE k = 1",
    ])
}

#[test]
fn selectors_have_values_names_and_types() {
    let mut nodes = values();
    let cases = [
        ("i", "7", "i", "int"),
        ("i AS x", "7", "x", "int"),
        ("(int) 5", "5", "(int)5", "int"),
        ("i + 1", "8", "i + 1", "int"),
        ("(i + 1) * 2", "16", "(i + 1) * 2", "int"),
        ("-i", "-7", "-i", "int"),
        ("i + d", "8.5", "i + d", "double"),
        ("cast(i AS text)", "'7'", "cast(i as text)", "text"),
        ("int_as_blob(i)", "0x00000007", "system.int_as_blob(i)", "blob"),
        ("token(k)", "-4069959284402364209", "system.token(k)", "bigint"),
        ("to_json(l)", "'[5, 6]'", "system.to_json(l)", "text"),
        ("writetime(i)", "1000", "writetime(i)", "bigint"),
        ("ttl(i)", "null", "ttl(i)", "int"),
        ("maxwritetime(m)", "1000", "maxwritetime(m)", "bigint"),
        ("writetime(m)", "[1000, 1000, 1000]", "writetime(m)", "list<bigint>"),
        ("writetime(m['b'])", "1000", "writetime(m['b'])", "bigint"),
        ("writetime(m['z'])", "null", "writetime(m['z'])", "bigint"),
        ("writetime(u.a)", "1000", "writetime(u.a)", "bigint"),
        ("writetime(s[2..])", "[1000, 1000]", "writetime(s[2..])", "list<bigint>"),
        ("m['b']", "2", "m['b']", "int"),
        ("m['z']", "null", "m['z']", "int"),
        ("m['b'..'c']", "{'b': 2, 'c': 3}", "m['b'..'c']", "map<text, int>"),
        ("s[2]", "2", "s[2]", "int"),
        ("s[..2]", "{1, 2}", "s[..2]", "set<int>"),
        ("u.a", "4", "u.a", "int"),
        ("fu.b", "'y'", "fu.b", "text"),
        ("(k, i)", "(1, 7)", "(k, i)", "frozen<tuple<int, int>>"),
        ("[k, i]", "[1, 7]", "[k, i]", "list<int>"),
        ("{i, k, i}", "{1, 7}", "{i, k, i}", "set<int>"),
        ("(map<text, int>) {'x': i}", "{'x': 7}", "(map<text, int>){'x': i}", "map<text, int>"),
        ("map_keys(m)", "{'a', 'b', 'c'}", "system.map_keys(m)", "set<text>"),
        ("collection_sum(l)", "11", "system.collection_sum(l)", "int"),
        ("(u) {a: i, b: w}", "{a: 7, b: 'it'}", "(u){a: i, b: w}", "u"),
    ];
    for (selector, value, name, cql_type) in cases {
        let text = format!("SELECT {selector} FROM t WHERE k = 1");
        let answer = nodes.ask(&text, &Asked::default()).expect(&text);
        let found = (answer.rows.join("; "), &answer.names[..], &answer.types[..]);
        assert_eq!(
            found,
            (value.to_owned(), &[name.to_owned()][..], &[cql_type.to_owned()][..]),
            "{text}"
        );
    }
    nodes.check(&[
        ("SELECT n, n + 1 FROM c WHERE k = 1", "5, 6"),
        ("SELECT uuid() FROM t WHERE k = 2", ""),
    ]);
}

#[test]
fn json_is_one_column() {
    let mut nodes = values();
    let answer = nodes.ask("SELECT JSON k, w AS \"Wo\", m FROM t", &Asked::default()).unwrap();
    assert_eq!((&answer.names[0][..], &answer.types[0][..]), ("[json]", "text"));
    let expected = r#"'{"k": 1, "\"Wo\"": "it", "m": {"a": 1, "b": 2, "c": 3}}'"#;
    assert_eq!(answer.rows, [expected]);
    nodes.check(&[("SELECT JSON count(*) FROM t", "'{\"count\": 1}'")]);
}

#[test]
fn markers_have_the_type_that_is_wanted() {
    let mut nodes = values();
    let (key, two) = (1_i32.to_be_bytes(), 2_i32.to_be_bytes());
    let asked =
        Asked { values: &[Some(&two), Some(b"c"), Some(&key), Some(&two)], ..Asked::default() };
    let answer = nodes.ask("SELECT (int) ?, m[?] FROM t WHERE k = ? LIMIT ?", &asked).unwrap();
    assert_eq!(answer.rows, ["2, 3"]);
}

/// A literal list is a vector of as many floats.
#[test]
fn similarities_of_literals_and_null() {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE v (k int PRIMARY KEY, v vector<float, 2>, l list<float>, i vector<int, 2>)",
        "INSERT INTO v (k, v, l, i) VALUES (1, [1, 0], [1, 2], [1, 2])",
    ]);
    let of = |arguments: &str| format!("SELECT similarity_cosine({arguments}) FROM v WHERE k = 1");
    for (arguments, value) in [
        ("v, [0, 1]", "0.5"),
        ("[0, 1], v", "0.5"),
        ("[1, 0], [0, 1]", "0.5"),
        ("v, null", "null"),
        ("null, v", "null"),
        ("[1, 0], null", "null"),
    ] {
        assert_eq!(nodes.rows(&of(arguments)), value, "{arguments}");
    }
    let wanted = "error: Function system.similarity_cosine requires a float vector argument, but found argument";
    let lengths = "error: All arguments must have the same vector dimensions";
    for (arguments, message) in [
        ("null, null", "error: Cannot infer type of argument NULL in call to function".to_owned()),
        ("?, ?", "error: Cannot infer type of argument ? in call to function".to_owned()),
        ("[1, 2], [3]", lengths.to_owned()),
        ("v, [1]", lengths.to_owned()),
        ("l, v", format!("{wanted} l of type list<float>")),
        ("[1, 2], l", format!("{wanted} l of type list<float>")),
        ("[1, 2], i", format!("{wanted} i of type vector<int, 2>")),
        (
            "[0, 0], v",
            "error: Function system.similarity_cosine doesn't support all-zero".to_owned(),
        ),
    ] {
        let refused = nodes.rows(&of(arguments));
        assert!(refused.starts_with(&message), "{arguments}: {refused}");
    }
}

//! The schema on disk: saved content is loaded again, and an incomplete file is refused.

use std::fs;
use std::io;
use std::path::Path;

use proptest::prelude::*;

use super::{Schema, after, schema_of, statements};
use crate::schema::Column;
use crate::schema::change::SYSTEM_KEYSPACES;
use crate::schema::persist::{load, save, sealed};

const FILE: &str = "schema.json";

fn assert_same(loaded: &Schema, saved: &Schema) {
    assert_eq!(loaded.keyspaces, saved.keyspaces);
    let numbers = |schema: &Schema| (schema.version, schema.number, schema.next_table);
    assert_eq!(numbers(loaded), numbers(saved));
}

fn saved_and_loaded(schema: &Schema) -> Schema {
    let directory = tempfile::tempdir().unwrap();
    save(schema, directory.path()).unwrap();
    load(directory.path()).unwrap().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_saved_schema_is_loaded(statements in statements()) {
        let schema = schema_of(&statements);
        assert_same(&saved_and_loaded(&schema), &schema);
    }
}

/// A small schema with a bit of everything.
fn sample() -> Schema {
    let statements = [
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} \
         AND durability = 'batch'",
        "CREATE TYPE point (x int, y int)",
        "CREATE TABLE t (p int, c text, s int static, v frozen<point>, old frozen<point>, PRIMARY KEY (p, c)) \
         WITH CLUSTERING ORDER BY (c DESC) AND gc_grace_seconds = 1",
        "ALTER TABLE t DROP old",
    ];
    after(&Schema::empty(), &statements)
}

#[test]
fn types_with_the_names_of_others_stay_what_they_are() {
    let statements = [
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TYPE \"int\" (x text)",
        "CREATE TYPE \"ttl\" (x frozen<\"int\">)",
        "CREATE TABLE t (p int PRIMARY KEY, a \"int\", b frozen<\"ttl\">, c list<frozen<\"int\">>)",
    ];
    let schema = after(&Schema::empty(), &statements);
    assert_same(&saved_and_loaded(&schema), &schema);
}

/// Indexes of the tables in a fixture.
const INDEXES: [&str; 3] = [
    "CREATE INDEX ON t (s)",
    "CREATE INDEX ON n (keys(m))",
    "CREATE CUSTOM INDEX \"ByText\" ON t (c) USING 'StorageAttachedIndex' WITH OPTIONS = {'case_sensitive': 'true'}",
];

/// A file as written by the version that began its format. `SHUNT_WRITE_FIXTURES=1` writes that of
/// today's format if it is missing; see "Changing a format" in CONTRIBUTING.md.
fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    if std::env::var_os("SHUNT_WRITE_FIXTURES").is_some()
        && !path.exists()
        && name != "schema-1.json"
    {
        let directory = tempfile::tempdir().unwrap();
        let more =
            ["CREATE TABLE n (p uuid PRIMARY KEY, m map<text, frozen<point>>, v vector<float, 3>)"];
        let mut schema = after(&sample(), &more);
        if name == "schema-3.json" {
            schema = after(&schema, &INDEXES);
        }
        save(&schema, directory.path()).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(directory.path().join(FILE), &path).unwrap();
    }
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn files_of_every_format_are_read() {
    for name in ["schema-1.json", "schema-2.json", "schema-3.json"] {
        let directory = tempfile::tempdir().unwrap();
        let kept = fixture(name);
        fs::write(directory.path().join(FILE), &kept).unwrap();
        let loaded = load(directory.path())
            .unwrap_or_else(|error| panic!("a format that was released stays readable: {error}"));
        let schema = loaded.unwrap();
        let keyspace = &schema.keyspaces["k"];
        let mut lines = vec![format!("{} {:?}", keyspace.durable_writes, keyspace.durability)];
        lines.extend(
            keyspace.types.values().map(|found| format!("{} {:?}", found.name, found.fields.len())),
        );
        for table in keyspace.tables.values() {
            let number = table.number.unwrap().0;
            lines.push(format!(
                "{number} {} {} {}",
                table.name, table.next_column, table.options.gc_grace_seconds
            ));
            let dropped = table.dropped.iter().map(|dropped| &dropped.column);
            for column in table.columns.iter().chain(dropped) {
                let Column { name, kind, position, descending, cql_type, id, .. } = column;
                lines
                    .push(format!("  {} {name} {cql_type} {kind:?} {position} {descending}", id.0));
            }
        }
        let expected = [
            "true Batch",
            "point 2",
            "1 n 3 864000",
            "  0 p uuid PartitionKey 0 false",
            "  1 m map<text, frozen<point>> Regular 0 false",
            "  2 v vector<float, 3> Regular 0 false",
            "0 t 5 1",
            "  0 p int PartitionKey 0 false",
            "  1 c text Clustering 0 true",
            "  2 s int Static 0 false",
            "  3 v frozen<point> Regular 0 false",
            "  4 old frozen<tuple<int, int>> Regular 0 false",
        ];
        assert_eq!(lines, expected, "{name}");
        let indexes: Vec<String> = keyspace
            .tables
            .values()
            .flat_map(|table| &table.indexes)
            .map(|index| {
                format!(
                    "{} {} {:?} {:?}",
                    index.name,
                    index.target_text(),
                    index.class,
                    index.options
                )
            })
            .collect();
        let expected: &[&str] = match name {
            "schema-3.json" => &[
                "n_m_idx keys(m) None {}",
                "ByText c Some(\"StorageAttachedIndex\") {\"case_sensitive\": \"true\"}",
                "t_s_idx s None {}",
            ],
            _ => &[],
        };
        assert_eq!(indexes, expected, "{name}");
        save(&schema, directory.path()).unwrap();
        let written = fs::read(directory.path().join(FILE)).unwrap();
        assert!(
            name == "schema-1.json" || written == kept,
            "what is written differs from {name}: raise FORMAT in schema/persist.rs, keep this fixture, and add one of the new \
             format: see \"Changing a format\" in CONTRIBUTING.md"
        );
    }
}

#[test]
fn a_format_to_come_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let later = String::from_utf8(fixture("schema-2.json"))
        .unwrap()
        .replace("\"format\": 2", "\"format\": 4");
    let message = refusal(directory.path(), later.as_bytes());
    assert!(message.ends_with("its format is 4, this program knows 3"), "{message}");
}

#[test]
fn a_directory_has_no_schema_before_the_first_save() {
    let directory = tempfile::tempdir().unwrap();
    assert!(load(directory.path()).unwrap().is_none());
}

#[test]
fn the_last_one_saved_counts() {
    let directory = tempfile::tempdir().unwrap();
    let first = sample();
    save(&first, directory.path()).unwrap();
    let second = after(&first, &["ALTER TABLE t ADD more int"]);
    save(&second, directory.path()).unwrap();
    assert_same(&load(directory.path()).unwrap().unwrap(), &second);
    // Half of a third schema that was never completed.
    fs::write(directory.path().join("schema.json.new"), "{\"format\": 1, \"ver").unwrap();
    assert_same(&load(directory.path()).unwrap().unwrap(), &second);
}

/// Assigned numbers must not be reused, whatever was dropped.
#[test]
fn numbers_go_on_after_a_restart() {
    let schema = after(
        &sample(),
        &["DROP TABLE t", "CREATE TABLE u (p int PRIMARY KEY, v int)", "ALTER TABLE u DROP v"],
    );
    let loaded = saved_and_loaded(&schema);
    let statements = [
        "ALTER TABLE u ADD w int",
        "ALTER TABLE u ADD v int",
        "CREATE TABLE t (p int PRIMARY KEY)",
    ];
    let again = after(&loaded, &statements);
    let (before, now) = (schema.table("k", "u").unwrap(), again.table("k", "u").unwrap());
    assert!(now.column("w").unwrap().id > before.dropped[0].column.id);
    assert_eq!(now.column("v").unwrap().id, before.dropped[0].column.id);
    assert!(again.table("k", "t").unwrap().number > before.number);
}

/// A dropped column does not keep its type from being dropped, nor the schema from being read.
#[test]
fn a_type_that_only_a_dropped_column_had_can_go() {
    let schema = after(&sample(), &["ALTER TABLE t DROP v", "DROP TYPE point"]);
    assert_same(&saved_and_loaded(&schema), &schema);
}

/// The node recreates its own keyspaces at every start.
#[test]
fn system_keyspaces_are_not_on_disk() {
    let mut schema = sample();
    let user = schema.clone();
    for keyspace in crate::system::keyspaces().unwrap() {
        schema.keyspaces.insert(keyspace.name.clone(), keyspace.into());
    }
    let loaded = saved_and_loaded(&schema);
    assert!(
        SYSTEM_KEYSPACES.iter().all(|name| loaded.keyspace(name).is_none()),
        "{:?}",
        loaded.keyspaces.keys()
    );
    assert_same(&loaded, &user);
}

#[test]
fn an_unreadable_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE);
    fs::create_dir(&path).unwrap();
    let message = load(directory.path()).unwrap_err().to_string();
    assert!(message.contains(&path.display().to_string()), "{message}");
}

/// Returns the error of `load` for a file with these bytes; it must name the file.
fn refusal(directory: &Path, bytes: &[u8]) -> String {
    fs::write(directory.join(FILE), bytes).unwrap();
    let text = String::from_utf8_lossy(bytes);
    let error = load(directory).err().unwrap_or_else(|| panic!("taken: {text}"));
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{text}");
    let message = error.to_string();
    let path = directory.join(FILE);
    assert!(message.starts_with(&path.display().to_string()), "{message}: does not name the file");
    message
}

/// Places at which a file is damaged: all at its beginning and its end, and every seventh between,
/// as one checksum covers all bytes.
fn places(length: usize) -> impl Iterator<Item = usize> {
    (0..length).filter(move |at| *at < 256 || *at + 64 > length || at.is_multiple_of(7))
}

#[test]
fn a_torn_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    save(&sample(), directory.path()).unwrap();
    let whole = fs::read(directory.path().join(FILE)).unwrap();
    for length in places(whole.len()) {
        refusal(directory.path(), &whole[..length]);
    }
    let mut longer = whole.clone();
    longer.extend_from_slice(b"}");
    refusal(directory.path(), &longer);
}

#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    let directory = tempfile::tempdir().unwrap();
    save(&sample(), directory.path()).unwrap();
    let mut bytes = fs::read(directory.path().join(FILE)).unwrap();
    for at in places(bytes.len()) {
        bytes[at] ^= 1 << (at % 8);
        refusal(directory.path(), &bytes);
        bytes[at] ^= 1 << (at % 8);
    }
}

/// Without indexes, a program that does not support them can read the file again.
#[test]
fn indexes_are_on_disk() {
    let indexed = after(&sample(), &INDEXES[..1]);
    assert_same(&saved_and_loaded(&indexed), &indexed);
    let directory = tempfile::tempdir().unwrap();
    for (schema, format) in
        [(&indexed, "\"format\": 3"), (&after(&indexed, &["DROP INDEX t_s_idx"]), "\"format\": 2")]
    {
        save(schema, directory.path()).unwrap();
        let text = fs::read_to_string(directory.path().join(FILE)).unwrap();
        assert!(text.contains(format), "{format}: {text}");
    }
    save(&indexed, directory.path()).unwrap();
    let whole = fs::read_to_string(directory.path().join(FILE)).unwrap();
    for (from, to, said) in [
        ("\"target\": 0", "\"target\": 9", "on no known part of a column"),
        (
            "\"column\": \"s\"",
            "\"column\": \"x\"",
            "index t_s_idx is on column x, which its table does not have",
        ),
    ] {
        assert!(whole.contains(from), "{from}");
        let foreign = whole.split_once('\n').unwrap().1.replacen(from, to, 1);
        let message = refusal(directory.path(), &sealed(&format!("{{\n{foreign}")));
        assert!(message.contains(said), "{message}");
    }
}

/// The form of files before checksums.
#[test]
fn a_foreign_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    save(&sample(), directory.path()).unwrap();
    let whole = fs::read_to_string(directory.path().join(FILE)).unwrap();
    for (what, from, to, said) in [
        ("of a later format", "\"format\": 2", "\"format\": 4", "its format is 4"),
        ("with a type that is not there", "frozen<point>", "frozen<circle>", "keyspace k: "),
        ("with a type that is no type", "frozen<point>", "frozen<", "keyspace k: "),
        ("with a kind of column that is none", "\"kind\": 1", "\"kind\": 9", "of no known kind"),
        (
            "without the name of a keyspace",
            "\"name\": \"k\"",
            "\"nome\": \"k\"",
            "missing field `name`",
        ),
        ("with a number that is none", "\"next_table\": 1", "\"next_table\": -1", "invalid value"),
    ] {
        assert!(whole.contains(from), "{what}");
        let foreign = whole.split_once('\n').unwrap().1.replacen(from, to, 1);
        let message = refusal(directory.path(), &sealed(&format!("{{\n{foreign}")));
        assert!(message.contains(said), "{what}: {message}");
    }
    for text in ["", "null", "{}", "[]", "\u{0}\u{0}\u{0}", "not JSON"] {
        refusal(directory.path(), text.as_bytes());
    }
}

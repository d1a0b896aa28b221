//! CREATE INDEX and DROP INDEX, with the messages of Cassandra 5.0.

use super::{Schema, after, carry_out};
use crate::error::CqlError;
use crate::schema::change::{Change, Object};
use crate::schema::index::INDEXES_MAX;

const TABLES: [&str; 7] = [
    "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE u (x int, y text)",
    "CREATE TYPE du (x duration)",
    "CREATE TABLE t (p1 int, p2 int, c1 int, c2 int, s text static, i int, v text, b blob, l list<int>, lb list<blob>, \
     st set<text>, m map<text, int>, fl frozen<list<int>>, fm frozen<map<int, int>>, ut frozen<u>, un u, \
     tu tuple<int, int>, d duration, fd frozen<list<duration>>, td tuple<int, duration>, ud frozen<du>, \
     ve vector<float, 2>, \"Up\" int, \"we ird\" int, PRIMARY KEY ((p1, p2), c1, c2))",
    "CREATE TABLE o (p int PRIMARY KEY, a int)",
    "CREATE TABLE n (p int PRIMARY KEY, c counter)",
    "CREATE KEYSPACE other WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
];

fn schema() -> Schema {
    after(&Schema::empty(), &TABLES)
}

/// The message of a refusal.
fn refusal(schema: &Schema, text: &str) -> String {
    match carry_out(schema, text, Some("k")) {
        Err(CqlError::Invalid(message) | CqlError::Config(message)) => message,
        Err(CqlError::Syntax(message) | CqlError::Unauthorized(message)) => message,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn indexes_that_cannot_be() {
    let schema = schema();
    let frozen = "Frozen collections are immutable and must be fully indexed by using the 'full(fl)' modifier";
    for (statement, expected) in [
        ("INDEX ON none.t (a)", "Keyspace 'none' doesn't exist".to_owned()),
        ("INDEX IF NOT EXISTS ON nix (a)", "Table 'nix' doesn't exist".to_owned()),
        ("INDEX ON t (nope)", "Undefined column name nope in table k.t".to_owned()),
        ("INDEX ON t ()", "Only CUSTOM indexes can be created without specifying a target column".to_owned()),
        ("INDEX ON t (i, v)", "Only CUSTOM indexes support multiple columns".to_owned()),
        ("INDEX ON o (p)", "Cannot create secondary index on the only partition key column p".to_owned()),
        ("INDEX ON n (c)", "Secondary indexes on counter tables aren't supported".to_owned()),
        ("INDEX ON t (d)", "Secondary indexes are not supported on duration columns".to_owned()),
        ("INDEX ON t (full(fd))", "Secondary indexes are not supported on collections containing durations".to_owned()),
        ("INDEX ON t (td)", "Secondary indexes are not supported on tuples containing durations".to_owned()),
        ("INDEX ON t (ud)", "Secondary indexes are not supported on UDTs containing durations".to_owned()),
        ("INDEX ON t (un)", "Cannot create index on non-frozen UDT column un".to_owned()),
        ("INDEX ON t (fl)", format!("Cannot create values() index on frozen column fl. {frozen}")),
        ("INDEX ON t (keys(fl))", format!("Cannot create keys() index on frozen column fl. {frozen}")),
        ("INDEX ON t (full(l))", "full() indexes can only be created on frozen collections".to_owned()),
        ("INDEX ON t (full(tu))", "full() indexes can only be created on frozen collections".to_owned()),
        ("INDEX ON t (keys(l))", "Cannot create index on keys of column l with non-map type".to_owned()),
        ("INDEX ON t (entries(st))", "Cannot create index on entries of column st with non-map type".to_owned()),
        (
            "INDEX ON t (values(ut))",
            "Cannot create values() index on ut. Non-collection columns only support simple indexes".to_owned(),
        ),
        ("INDEX \"we ird\" ON t (i)", "Illegal index name we ird".to_owned()),
        ("CUSTOM INDEX ON t (i)", "Unable to find custom indexer class 'legacy_local_table'".to_owned()),
        ("INDEX ON t (i) USING 'nonsense'", "Unable to find custom indexer class 'nonsense'".to_owned()),
        (
            "CUSTOM INDEX ON t (v) USING 'org.apache.cassandra.index.sasi.SASIIndex'",
            "SASI indexes are disabled: this node does not have them. Create a storage-attached index (USING 'sai') instead".to_owned(),
        ),
        ("INDEX ON t (i) WITH OPTIONS = {}", "Cannot specify options for a non-CUSTOM index".to_owned()),
        ("INDEX ON t (i) WITH foo = 'b'", "Unknown property 'foo'".to_owned()),
        (
            "INDEX ON t (i) USING 'sai' WITH OPTIONS = 'a'",
            "Invalid value for property 'options'. It should be a map.".to_owned(),
        ),
        (
            "INDEX ON t (i) USING 'sai' WITH OPTIONS = {'zz': '1', 'case_sensitive': 'true'}",
            "Properties specified [zz] are not understood by StorageAttachedIndex".to_owned(),
        ),
        (
            "INDEX ON t (i) USING 'sai' WITH OPTIONS = {'target': 'b'}",
            "Cannot specify target as a CUSTOM option".to_owned(),
        ),
        (
            "INDEX ON t (i) USING 'sai' WITH OPTIONS = {'case_sensitive': 'true'}",
            "CQL type int cannot be analyzed.".to_owned(),
        ),
        (
            "INDEX ON t (v) USING 'sai' WITH OPTIONS = {'case_sensitive': 'maybe'}",
            "Illegal value for boolean option 'case_sensitive': maybe".to_owned(),
        ),
        (
            "INDEX ON t (v) USING 'sai' WITH OPTIONS = {'case_sensitive': 'false'}",
            "Option 'case_sensitive' of an index is not supported by this node unless it is true".to_owned(),
        ),
        (
            "INDEX ON t (i) USING 'sai' WITH OPTIONS = {'similarity_function': 'dot_product'}",
            "CQL type int cannot have vector options".to_owned(),
        ),
        ("INDEX ON t (b) USING 'sai'", "Unsupported type: blob".to_owned()),
        ("INDEX ON t (lb) USING 'sai'", "Unsupported type: blob".to_owned()),
        ("INDEX ON t (ve) USING 'sai'", "Vector indexes are not supported by this node".to_owned()),
        (
            "INDEX ON t (\"we ird\") USING 'sai'",
            "Column 'we ird' contains non-alphanumeric-underscore characters".to_owned(),
        ),
        (
            "CUSTOM INDEX ON t (l, i) USING 'sai'",
            "A storage-attached index cannot be created over multiple columns: values(l), i".to_owned(),
        ),
        ("CUSTOM INDEX ON t (i, i) USING 'sai'", "Duplicate column 'i' in index target list".to_owned()),
        ("INDEX ON system.local (key)", "system keyspace is not user-modifiable.".to_owned()),
    ] {
        assert_eq!(refusal(&schema, &format!("CREATE {statement}")), expected, "{statement}");
    }
}

#[test]
fn names_are_given_once_in_a_keyspace() {
    let statements = [
        "CREATE INDEX ON t (i)",
        "CREATE INDEX ON t (m)",
        "CREATE INDEX ON t (keys(m))",
        "CREATE INDEX ON t (entries(m))",
        "CREATE INDEX ON t (\"we ird\")",
        "CREATE INDEX ON t (i) USING 'SAI'",
        "CREATE CUSTOM INDEX ON t (keys(m)) USING 'StorageAttachedIndex'",
    ];
    let schema = after(&schema(), &statements);
    let table = schema.table("k", "t").unwrap();
    let named: Vec<String> = table
        .indexes
        .iter()
        .map(|index| format!("{} {}", index.name, index.target_text()))
        .collect();
    assert_eq!(
        named,
        [
            "t_i_idx i",
            "t_i_idx_1 i",
            "t_m_idx values(m)",
            "t_m_idx_1 keys(m)",
            "t_m_idx_2 entries(m)",
            "t_m_idx_3 keys(m)",
            "t_weird_idx \"we ird\"",
        ]
    );
    for (statement, expected) in [
        (
            "CREATE INDEX ON t (values(m))",
            "Index t_m_idx_4 is a duplicate of existing index t_m_idx",
        ),
        ("CREATE INDEX again ON t (i)", "Index again is a duplicate of existing index t_i_idx"),
        ("CREATE INDEX t_i_idx ON o (a)", "Index 't_i_idx' already exists"),
        (
            "CREATE INDEX ON t (i) USING 'sai'",
            "Cannot create more than one storage-attached index on the same column: i",
        ),
    ] {
        assert_eq!(refusal(&schema, statement), expected, "{statement}");
    }
    for statement in
        ["CREATE INDEX IF NOT EXISTS again ON t (i)", "CREATE INDEX IF NOT EXISTS t_i_idx ON o (a)"]
    {
        assert_eq!(
            carry_out(&schema, statement, Some("k")).unwrap().map(|_| ()),
            None,
            "{statement}"
        );
    }
}

#[test]
fn an_index_changes_its_table_and_goes_with_it() {
    let schema = schema();
    let updated =
        Change { kind: "UPDATED", keyspace: "k".to_owned(), object: Object::Table("t".to_owned()) };
    let (schema, change) = carry_out(&schema, "CREATE INDEX i ON k.t (i)", None).unwrap().unwrap();
    assert_eq!(change, updated);
    for (statement, expected) in [
        (
            "ALTER TABLE t DROP i",
            "Cannot drop column i because it has dependent secondary indexes (i)",
        ),
        (
            "ALTER TABLE t DROP IF EXISTS i",
            "Cannot drop column i because it has dependent secondary indexes (i)",
        ),
        ("DROP INDEX nope", "Index 'k.nope' doesn't exist'"),
        ("DROP INDEX other.i", "Index 'other.i' doesn't exist'"),
        ("DROP INDEX none.i", "Index 'none.i' doesn't exist'"),
        ("DROP INDEX system.i", "System keyspace 'system' is not user-modifiable"),
    ] {
        assert_eq!(refusal(&schema, statement), expected, "{statement}");
    }
    assert_eq!(
        carry_out(&schema, "DROP INDEX IF EXISTS none.i", Some("k")).unwrap().map(|_| ()),
        None
    );
    let (without, change) = carry_out(&schema, "DROP INDEX k.i", None).unwrap().unwrap();
    assert_eq!((change, &without.table("k", "t").unwrap().indexes[..]), (updated, &[][..]));
    after(&without, &["ALTER TABLE t DROP i"]);
    let keyed = after(&schema, &["CREATE INDEX ON t (c1)"]);
    let renamed = refusal(&keyed, "ALTER TABLE t RENAME c1 TO d1");
    assert_eq!(
        renamed,
        "Can't rename column c1 because it has dependent secondary indexes (t_c1_idx)"
    );
    let again = after(&schema, &["DROP TABLE t", TABLES[3], "CREATE INDEX i ON t (v)"]);
    assert_eq!(again.table("k", "t").unwrap().indexes.len(), 1);
}

#[test]
fn indexes_of_a_table_have_a_bound() {
    let columns: Vec<String> = (0..=INDEXES_MAX).map(|number| format!("v{number} int")).collect();
    let create = format!("CREATE TABLE w (p int PRIMARY KEY, {})", columns.join(", "));
    let indexes = (0..INDEXES_MAX).map(|number| format!("CREATE INDEX ON w (v{number})"));
    let statements: Vec<String> = std::iter::once(create).chain(indexes).collect();
    let schema = after(&schema(), &statements);
    let refused = refusal(&schema, &format!("CREATE INDEX one ON w (v{INDEXES_MAX})"));
    assert_eq!(
        refused,
        "Tables cannot have more than 64 secondary indexes, failed to create secondary index one on table w"
    );
}

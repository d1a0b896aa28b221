//! Text and map options of tables: the given value, and the resulting one or the refusal.

use super::{Schema, after, carry_out};

const LZ4: &str = "chunk_length_in_kb: 16, class: org.apache.cassandra.io.compress.LZ4Compressor";

/// An option and the value shown afterwards, or words of the error.
const CASES: [(&str, &str); 40] = [
    ("speculative_retry = '99PERCENTILE'", "99p"),
    ("speculative_retry = '99.95p'", "99.95p"),
    ("speculative_retry = '10.7ms'", "10ms"),
    ("speculative_retry = 'none'", "NEVER"),
    ("additional_write_policy = 'max(20ms, 90p)'", "MAX(90p,20ms)"),
    ("speculative_retry = '101percentile'", "refused: between (0.0 and 100.0)"),
    ("speculative_retry = 'often'", "refused: is not supported"),
    ("speculative_retry = '-1ms'", "refused: is not supported"),
    ("speculative_retry = 'MIN(1ms,2ms)'", "refused: is not supported"),
    ("memtable = 'trie'", "trie"),
    ("memtable = 'no_such_memtable'", "refused: not found"),
    ("read_repair = 'none'", "NONE"),
    ("read_repair = 'perhaps'", "refused: Invalid value"),
    (
        "caching = {'keys': 'none', 'rows_per_partition': '0'}",
        "keys: NONE, rows_per_partition: NONE",
    ),
    ("caching = {'rows_per_partition': 'all'}", "keys: NONE, rows_per_partition: ALL"),
    ("caching = {'keys': 'SOME'}", "refused: 'ALL' and 'NONE' are allowed"),
    ("caching = {'rows_per_partition': '-1'}", "refused: integer values are allowed"),
    ("caching = {'columns': 'ALL'}", "refused: [columns]"),
    ("compression = {}", "enabled: false"),
    ("compression = {'class': ''}", "enabled: false"),
    ("compression = {'enabled': 'true', 'class': 'LZ4Compressor'}", LZ4),
    ("compression = {'enabled': 'false', 'class': 'LZ4Compressor'}", "refused: no other options"),
    (
        "compression = {'class': 'LZ4Compressor', 'chunk_length_kb': 64}",
        "refused: options chunk_length_kb",
    ),
    ("compression = {'class': 'LZ4Compressor', 'chunk_length_in_kb': 3}", "refused: power of 2"),
    (
        "compression = {'class': 'LZ4Compressor', 'chunk_length_in_kb': 0}",
        "refused: negative or null",
    ),
    (
        "compression = {'class': 'LZ4Compressor', 'min_compress_ratio': 0.5}",
        "refused: greater than",
    ),
    (
        "compression = {'class': 'LZ4Compressor', 'compression_level': 3}",
        "refused: options compression_level",
    ),
    ("compression = {'class': 'NoSuchCompressor'}", "refused: io.compress.NoSuchCompressor"),
    ("compaction = {}", "refused: Missing sub-option 'class'"),
    (
        "compaction = {'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'T4'}",
        "class: org.apache.cassandra.db.compaction.UnifiedCompactionStrategy, scaling_parameters: T4",
    ),
    (
        "compaction = {'class': 'SizeTieredCompactionStrategy', 'min_threshold': 8}",
        "class: org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy, max_threshold: 32, min_threshold: 8",
    ),
    ("compaction = {'class': 'NoSuchCompaction'}", "refused: db.compaction.NoSuchCompaction'"),
    ("compaction = {'class': 'org.example.Compaction'}", "refused: class 'org.example.Compaction'"),
    (
        "compaction = {'class': 'SizeTieredCompactionStrategy', 'bucket_hihg': 2}",
        "refused: [bucket_hihg]",
    ),
    (
        "compaction = {'class': 'SizeTieredCompactionStrategy', 'bucket_high': 0.1}",
        "refused: bucket low",
    ),
    (
        "compaction = {'class': 'SizeTieredCompactionStrategy', 'min_threshold': 1}",
        "refused: less than 2",
    ),
    (
        "compaction = {'class': 'SizeTieredCompactionStrategy', 'min_threshold': 99}",
        "refused: greater than max",
    ),
    (
        "compaction = {'class': 'SizeTieredCompactionStrategy', 'sstable_size_in_mb': 1}",
        "refused: [sstable_size",
    ),
    (
        "compaction = {'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': -1}",
        "refused: 1 or more",
    ),
    (
        "compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'WEEKS'}",
        "refused: compaction_window_unit",
    ),
];

fn shown_value(schema: &Schema, option: &str) -> String {
    match carry_out(schema, &format!("CREATE TABLE t (p int PRIMARY KEY) WITH {option}"), Some("k"))
    {
        Ok(Some((schema, _))) => {
            let options = &schema.table("k", "t").unwrap().options;
            let name = option.split(' ').next().unwrap();
            let map = || options.maps[name].iter().map(|(part, value)| format!("{part}: {value}"));
            options.texts.get(name).cloned().unwrap_or_else(|| map().collect::<Vec<_>>().join(", "))
        }
        other => format!("refused: {:?}", other.map(drop)),
    }
}

#[test]
fn they_are_those_that_cassandra_knows() {
    let keyspace =
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
    let schema = after(&Schema::empty(), &[keyspace]);
    let wrong = CASES.iter().filter_map(|(option, expected)| {
        let found = shown_value(&schema, option);
        let same = match expected.strip_prefix("refused: ") {
            Some(words) => found.starts_with("refused: Err(Config(") && found.contains(words),
            None => found == *expected,
        };
        (!same).then(|| format!("{option}\n    expected: {expected}\n    found: {found}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

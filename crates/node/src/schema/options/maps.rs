//! Map options: the parts and values that Cassandra accepts, and its form of showing them.

use std::collections::BTreeMap;

use super::refused;
use crate::error::CqlError;

/// Permitted values of a part.
#[derive(Clone, Copy)]
enum Kind {
    Any,
    Flag,
    /// A whole number with a minimum.
    Whole(i64),
    /// A number with a minimum.
    Number(f64),
    Words(&'static [&'static str]),
}

type Parts = [(&'static str, Kind)];

const COMPACTION: &str = "org.apache.cassandra.db.compaction.";
const COMPRESSION: &str = "org.apache.cassandra.io.compress.";

/// The parts that every compaction strategy has.
const EVERY_STRATEGY: &Parts = &[
    ("enabled", Kind::Flag),
    ("log_all", Kind::Flag),
    ("only_purge_repaired_tombstones", Kind::Flag),
    ("provide_overlapping_tombstones", Kind::Words(&["NONE", "ROW", "CELL"])),
    ("tombstone_compaction_interval", Kind::Whole(0)),
    ("tombstone_threshold", Kind::Number(0.0)),
    ("unchecked_tombstone_compaction", Kind::Flag),
];

const SIZE_TIERED: &Parts = &[
    ("bucket_high", Kind::Number(f64::MIN)),
    ("bucket_low", Kind::Number(f64::MIN)),
    ("max_threshold", Kind::Whole(i64::MIN)),
    ("min_sstable_size", Kind::Whole(0)),
    ("min_threshold", Kind::Whole(i64::MIN)),
];

const LEVELLED: &Parts = &[
    ("fanout_size", Kind::Whole(1)),
    ("single_sstable_uplevel", Kind::Flag),
    ("sstable_size_in_mb", Kind::Whole(1)),
];

const TIME_WINDOW: &Parts = &[
    ("compaction_window_size", Kind::Whole(1)),
    ("compaction_window_unit", Kind::Words(&["MINUTES", "HOURS", "DAYS"])),
    ("expired_sstable_check_frequency_seconds", Kind::Whole(0)),
    (
        "timestamp_resolution",
        Kind::Words(&["SECONDS", "MILLISECONDS", "MICROSECONDS", "NANOSECONDS"]),
    ),
    ("unsafe_aggressive_sstable_expiration", Kind::Flag),
];

const UNIFIED: &Parts = &[
    ("base_shard_count", Kind::Whole(1)),
    ("expired_sstable_check_frequency_seconds", Kind::Whole(0)),
    ("flush_size_override", Kind::Any),
    ("max_sstables_to_compact", Kind::Whole(i64::MIN)),
    ("min_sstable_size", Kind::Any),
    ("overlap_inclusion_method", Kind::Words(&["NONE", "SINGLE", "TRANSITIVE"])),
    ("scaling_parameters", Kind::Any),
    ("sstable_growth", Kind::Number(0.0)),
    ("target_sstable_size", Kind::Any),
    ("unsafe_aggressive_sstable_expiration", Kind::Flag),
];

/// Compaction strategies with their additional parts.
const STRATEGIES: [(&str, &[&Parts]); 4] = [
    ("LeveledCompactionStrategy", &[SIZE_TIERED, LEVELLED]),
    ("SizeTieredCompactionStrategy", &[SIZE_TIERED]),
    ("TimeWindowCompactionStrategy", &[SIZE_TIERED, TIME_WINDOW]),
    ("UnifiedCompactionStrategy", &[UNIFIED]),
];

/// Compressors with their additional parts.
const COMPRESSORS: [(&str, &Parts); 5] = [
    ("DeflateCompressor", &[]),
    (
        "LZ4Compressor",
        &[
            ("lz4_compressor_type", Kind::Words(&["fast", "high"])),
            ("lz4_high_compressor_level", Kind::Whole(1)),
        ],
    ),
    ("NoopCompressor", &[]),
    ("SnappyCompressor", &[]),
    ("ZstdCompressor", &[("compression_level", Kind::Whole(i64::MIN))]),
];

/// A map as Cassandra shows it: with defaults for missing parts, and classes with their package.
pub(super) fn whole_map(
    option: &str,
    default: &[(&str, &str)],
    given: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, CqlError> {
    match option {
        "caching" => caching(given),
        "compaction" => compaction(default, given),
        "compression" => compression(default, given),
        _ => Ok(given),
    }
}

/// Refuses an invalid value of a part.
fn check(part: &str, value: &str, kind: Kind) -> Result<(), CqlError> {
    let number = || refused(format!("{value} is not a parsable int (base10) for {part}"));
    match kind {
        Kind::Any => Ok(()),
        Kind::Flag if value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false") => {
            Ok(())
        }
        Kind::Flag => refused(format!("{part} should be either 'true' or 'false', not '{value}'")),
        Kind::Whole(least) => match value.parse::<i64>() {
            Ok(given) if given >= least => Ok(()),
            Ok(given) => refused(format!("{part} must be {least} or more, but was {given}")),
            Err(_) => number(),
        },
        Kind::Number(least) => match value.parse::<f64>() {
            Ok(given) if given >= least => Ok(()),
            Ok(given) => refused(format!("{part} must be {least} or more, but was {given}")),
            Err(_) => number(),
        },
        Kind::Words(words) if words.iter().any(|word| word.eq_ignore_ascii_case(value)) => Ok(()),
        Kind::Words(words) => {
            refused(format!("{value} is not valid for {part}: it is one of {}", words.join(", ")))
        }
    }
}

/// The class in an option and its name without package, which is one of `known`.
fn class_of<T: Copy>(
    class: &str,
    package: &str,
    known: &[(&'static str, T)],
) -> Option<(&'static str, T)> {
    let name = class.strip_prefix(package).unwrap_or(class);
    known.iter().find(|(known, _)| *known == name).copied()
}

fn compaction(
    default: &[(&str, &str)],
    mut map: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, CqlError> {
    let Some(given) = map.remove("class") else {
        return refused("Missing sub-option 'class' for the 'compaction' option.".to_owned());
    };
    let Some((class, parts)) = class_of(&given, COMPACTION, &STRATEGIES) else {
        let package = if given.contains('.') { "" } else { COMPACTION };
        return refused(format!("Unable to find compaction strategy class '{package}{given}'"));
    };
    let known = || parts.iter().copied().flatten().chain(EVERY_STRATEGY);
    for (part, value) in &map {
        let Some((_, kind)) = known().find(|(known, _)| known == part) else {
            return refused(format!("Properties specified [{part}] are not understood by {class}"));
        };
        check(part, value, *kind)?;
    }
    for (part, value) in default.iter().filter(|(part, _)| known().any(|(known, _)| known == part))
    {
        map.entry((*part).to_owned()).or_insert_with(|| (*value).to_owned());
    }
    check_thresholds(&map)?;
    map.insert("class".to_owned(), format!("{COMPACTION}{class}"));
    Ok(map)
}

/// Refuses thresholds that no compaction can use.
fn check_thresholds(map: &BTreeMap<String, String>) -> Result<(), CqlError> {
    let whole = |part: &str| map.get(part).and_then(|value| value.parse::<i64>().ok());
    if let (Some(min), Some(max)) = (whole("min_threshold"), whole("max_threshold")) {
        if min <= 0 || max <= 0 {
            return refused(
                "Disabling compaction by setting compaction thresholds to 0 has been removed, set the compaction \
                 option 'enabled' to false instead."
                    .to_owned(),
            );
        }
        if min < 2 {
            return refused(format!("Min compaction threshold cannot be less than 2 (got {min})"));
        }
        if min > max {
            return refused(format!(
                "Min compaction threshold (got {min}) cannot be greater than max compaction threshold (got {max})"
            ));
        }
    }
    let bucket = |part: &str, default: f64| {
        map.get(part).and_then(|value| value.parse().ok()).unwrap_or(default)
    };
    let (low, high): (f64, f64) = (bucket("bucket_low", 0.5), bucket("bucket_high", 1.5));
    if high <= low {
        return refused(format!(
            "Bucket high value ({high}) is less than or equal bucket low value ({low})"
        ));
    }
    Ok(())
}

fn compression(
    default: &[(&str, &str)],
    mut map: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, CqlError> {
    let none = || BTreeMap::from([("enabled".to_owned(), "false".to_owned())]);
    if map.is_empty() {
        return Ok(none());
    }
    if map.remove("enabled").is_some_and(|enabled| !enabled.eq_ignore_ascii_case("true")) {
        return match map.is_empty() {
            true => Ok(none()),
            false => refused(
                "If the 'enabled' option is set to false no other options must be specified"
                    .to_owned(),
            ),
        };
    }
    let Some(given) = map.remove("class") else {
        return refused("Missing sub-option 'class' for the 'compression' option.".to_owned());
    };
    if given.is_empty() && map.is_empty() {
        return Ok(none());
    }
    let Some((class, parts)) = class_of(&given, COMPRESSION, &COMPRESSORS) else {
        let package = if given.contains('.') { "" } else { COMPRESSION };
        return refused(format!("Could not create Compression for type {package}{given}"));
    };
    for (part, value) in &map {
        match part.as_str() {
            "chunk_length_in_kb" => check_chunk(value)?,
            "min_compress_ratio" => check_ratio(value)?,
            _ => match parts.iter().find(|(known, _)| known == part) {
                Some((_, kind)) => check(part, value, *kind)?,
                None => return refused(format!("Unknown compression options {part}")),
            },
        }
    }
    for (part, value) in default.iter().filter(|(part, _)| *part != "class") {
        map.entry((*part).to_owned()).or_insert_with(|| (*value).to_owned());
    }
    map.insert("class".to_owned(), format!("{COMPRESSION}{class}"));
    Ok(map)
}

fn check_chunk(value: &str) -> Result<(), CqlError> {
    match value.parse::<i32>() {
        Ok(length) if length > i32::MAX / 1024 => {
            refused(format!("Value of chunk_length_in_kb is too large ({length})"))
        }
        Ok(length) if length <= 0 => {
            refused("Invalid negative or null chunk_length_in_kb".to_owned())
        }
        Ok(length) if length.count_ones() != 1 => {
            refused("chunk_length_in_kb must be a power of 2".to_owned())
        }
        Ok(_) => Ok(()),
        Err(_) => refused("Invalid value for chunk_length_in_kb".to_owned()),
    }
}

fn check_ratio(value: &str) -> Result<(), CqlError> {
    match value.parse::<f64>() {
        Ok(ratio) if ratio == 0.0 || ratio >= 1.0 => Ok(()),
        Ok(_) => {
            refused("min_compress_ratio can either be 0 or greater than or equal to 1".to_owned())
        }
        Err(_) => refused("Invalid value for min_compress_ratio".to_owned()),
    }
}

fn caching(map: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, CqlError> {
    let known = ["keys", "rows_per_partition"];
    let others: Vec<&str> =
        map.keys().map(String::as_str).filter(|part| !known.contains(part)).collect();
    if !others.is_empty() {
        return refused(format!(
            "Invalid caching sub-options [{}]: only 'keys' and 'rows_per_partition' are allowed",
            others.join(", ")
        ));
    }
    let mut shown = BTreeMap::new();
    for part in known {
        let value = map.get(part).map_or("NONE", String::as_str);
        let word = value.to_ascii_uppercase();
        let rows = value
            .parse::<u32>()
            .ok()
            .filter(|rows| part == "rows_per_partition" && *rows <= i32::MAX as u32);
        let value = match rows {
            Some(0) => "NONE".to_owned(),
            Some(rows) if rows == i32::MAX as u32 => "ALL".to_owned(),
            Some(rows) => rows.to_string(),
            None if word == "ALL" || word == "NONE" => word,
            None => {
                let more = if part == "keys" {
                    "'ALL' and 'NONE'"
                } else {
                    "'ALL', 'NONE', and integer values"
                };
                return refused(format!(
                    "Invalid value '{value}' for caching sub-option '{part}': only {more} are allowed"
                ));
            }
        };
        shown.insert(part.to_owned(), value);
    }
    Ok(shown)
}

//! Options of a table: those of Cassandra 5.0, with its defaults. A node applies
//! `default_time_to_live` and `gc_grace_seconds`; it checks and keeps the others, so that schemas
//! move in both directions unchanged.

mod maps;
mod texts;

use std::collections::BTreeMap;

use shunt_language::ast::{LiteralKind, PropertyValue};

use crate::error::CqlError;

/// Twenty years, Cassandra's limit on time to live, in seconds.
pub(crate) const TTL_MAX: i64 = 20 * 365 * 24 * 60 * 60;

/// The options of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableOptions {
    pub(crate) comment: String,
    /// Seconds; 0 for none.
    pub(crate) default_time_to_live: u32,
    /// Seconds.
    pub(crate) gc_grace_seconds: u32,
    /// Numeric options, by name.
    pub(crate) numbers: BTreeMap<&'static str, f64>,
    /// Text options, by name.
    pub(crate) texts: BTreeMap<&'static str, String>,
    /// Map options, by name.
    pub(crate) maps: BTreeMap<&'static str, BTreeMap<String, String>>,
    /// Boolean options, by name.
    pub(crate) flags: BTreeMap<&'static str, bool>,
}

/// Name, default, least and greatest value.
const NUMBERS: [(&str, f64, f64, f64); 5] = [
    ("bloom_filter_fp_chance", 0.01, 0.000_06, 1.0),
    ("crc_check_chance", 1.0, 0.0, 1.0),
    ("max_index_interval", 2048.0, 1.0, 2_147_483_647.0),
    ("memtable_flush_period_in_ms", 0.0, 0.0, 2_147_483_647.0),
    ("min_index_interval", 128.0, 1.0, 2_147_483_647.0),
];

const TEXTS: [(&str, &str); 4] = [
    ("additional_write_policy", "99p"),
    ("memtable", "default"),
    ("read_repair", "BLOCKING"),
    ("speculative_retry", "99p"),
];

const MAPS: [(&str, &[(&str, &str)]); 4] = [
    ("caching", &[("keys", "ALL"), ("rows_per_partition", "NONE")]),
    (
        "compaction",
        &[
            ("class", "org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy"),
            ("max_threshold", "32"),
            ("min_threshold", "4"),
        ],
    ),
    (
        "compression",
        &[
            ("chunk_length_in_kb", "16"),
            ("class", "org.apache.cassandra.io.compress.LZ4Compressor"),
        ],
    ),
    ("extensions", &[]),
];

const FLAGS: [(&str, bool); 3] =
    [("allow_auto_snapshot", true), ("cdc", false), ("incremental_backups", true)];

impl Default for TableOptions {
    fn default() -> Self {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
        };
        Self {
            comment: String::new(),
            default_time_to_live: 0,
            gc_grace_seconds: 864_000,
            numbers: NUMBERS.iter().map(|(name, default, ..)| (*name, *default)).collect(),
            texts: TEXTS.iter().map(|(name, default)| (*name, (*default).to_owned())).collect(),
            maps: MAPS.iter().map(|(name, default)| (*name, map(default))).collect(),
            flags: FLAGS.iter().copied().collect(),
        }
    }
}

/// A value of the wrong kind for its option.
fn malformed<T>(message: String) -> Result<T, CqlError> {
    Err(CqlError::Syntax(message))
}

fn refused<T>(message: String) -> Result<T, CqlError> {
    Err(CqlError::Config(message))
}

fn number(name: &str, value: &PropertyValue) -> Result<f64, CqlError> {
    match value {
        PropertyValue::Constant(_, text) => match text.parse() {
            Ok(number) => Ok(number),
            Err(_) => malformed(format!("Invalid double value {text} for '{name}'")),
        },
        PropertyValue::Map(_) => {
            malformed(format!("Invalid value for property '{name}'. It should be a string"))
        }
    }
}

fn whole_number(name: &str, value: &PropertyValue) -> Result<i64, CqlError> {
    match value {
        PropertyValue::Constant(_, text) => match text.parse() {
            Ok(number) => Ok(number),
            Err(_) => malformed(format!("Invalid integer value {text} for '{name}'")),
        },
        PropertyValue::Map(_) => {
            malformed(format!("Invalid value for property '{name}'. It should be a string"))
        }
    }
}

fn seconds(name: &str, value: &PropertyValue, max: i64) -> Result<u32, CqlError> {
    let given = whole_number(name, value)?;
    match u32::try_from(given) {
        Ok(seconds) if given <= max => Ok(seconds),
        _ => refused(format!("{name} must be between 0 and {max} (got {given})")),
    }
}

fn flag(name: &str, value: &PropertyValue) -> Result<bool, CqlError> {
    let given = text(name, value)?;
    match given.to_ascii_lowercase().as_str() {
        "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        _ => malformed(format!("Invalid boolean value {given} for '{name}'")),
    }
}

impl TableOptions {
    /// Sets one option by its name in `WITH`.
    ///
    /// # Errors
    /// A name or value that Cassandra refuses.
    pub(crate) fn set(&mut self, name: &str, value: &PropertyValue) -> Result<(), CqlError> {
        match name {
            "comment" => self.comment = text(name, value)?,
            "default_time_to_live" => self.default_time_to_live = seconds(name, value, TTL_MAX)?,
            "gc_grace_seconds" => {
                self.gc_grace_seconds = seconds(name, value, i64::from(i32::MAX))?
            }
            _ => return self.set_kept(name, value),
        }
        Ok(())
    }

    /// Sets an option that is only stored.
    fn set_kept(&mut self, name: &str, value: &PropertyValue) -> Result<(), CqlError> {
        if let Some((name, default, least, greatest)) =
            NUMBERS.iter().find(|(known, ..)| *known == name)
        {
            // Options with whole defaults must be whole.
            let fractional = default.fract() != 0.0 || *greatest <= 1.0;
            let given =
                if fractional { number(name, value)? } else { whole_number(name, value)? as f64 };
            if !(least..=greatest).contains(&&given) {
                return refused(format!(
                    "{name} must be between {least} and {greatest} (got {given})"
                ));
            }
            self.numbers.insert(name, given);
        } else if let Some((name, _)) = TEXTS.iter().find(|(known, _)| *known == name) {
            self.texts.insert(name, texts::shown(name, text(name, value)?)?);
        } else if let Some((name, default)) = MAPS.iter().find(|(known, _)| *known == name) {
            let PropertyValue::Map(pairs) = value else {
                return malformed(format!(
                    "Invalid value for property '{name}'. It should be a map."
                ));
            };
            let map = maps::whole_map(name, default, pairs.iter().cloned().collect())?;
            self.maps.insert(name, map);
        } else if let Some((name, _)) = FLAGS.iter().find(|(known, _)| *known == name) {
            self.flags.insert(name, flag(name, value)?);
        } else {
            return malformed(format!("Unknown property '{name}'"));
        }
        Ok(())
    }

    /// Refuses conflicting options.
    pub(crate) fn check(&self) -> Result<(), CqlError> {
        let interval = |name: &str| self.numbers.get(name).copied().unwrap_or_default();
        let (min, max) = (interval("min_index_interval"), interval("max_index_interval"));
        if min > max {
            return refused(format!(
                "max_index_interval must be greater than or equal to min_index_interval ({min}) (got {max})"
            ));
        }
        Ok(())
    }
}

fn text(name: &str, value: &PropertyValue) -> Result<String, CqlError> {
    match value {
        PropertyValue::Constant(LiteralKind::Hex, _) | PropertyValue::Map(_) => {
            malformed(format!("Invalid value for property '{name}'. It should be a string"))
        }
        PropertyValue::Constant(_, text) => Ok(text.clone()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    fn constant(text: &str) -> PropertyValue {
        PropertyValue::Constant(LiteralKind::Integer, text.to_owned())
    }

    #[test]
    fn options_that_cassandra_refuses_are_refused() {
        let mut options = TableOptions::default();
        for (name, value) in [
            ("gc_grace_seconds", "-1"),
            ("default_time_to_live", "999999999"),
            ("bloom_filter_fp_chance", "0"),
            ("caching", "1"),
            ("no_such_option", "1"),
        ] {
            assert!(options.set(name, &constant(value)).is_err(), "{name}");
        }
        assert_eq!(options, TableOptions::default());
    }

    #[test]
    fn given_options_are_kept() {
        let mut options = TableOptions::default();
        options.set("default_time_to_live", &constant("60")).unwrap();
        let class = vec![("class".to_owned(), "LeveledCompactionStrategy".to_owned())];
        options.set("compaction", &PropertyValue::Map(class)).unwrap();
        assert_eq!(options.default_time_to_live, 60);
        let class = &options.maps["compaction"]["class"];
        assert_eq!(class, "org.apache.cassandra.db.compaction.LeveledCompactionStrategy");
    }
}

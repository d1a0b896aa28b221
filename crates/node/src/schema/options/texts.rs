//! Text options: the words that Cassandra accepts, and its form of showing them.

use super::refused;
use crate::error::CqlError;

/// Memtable configurations of an unconfigured Cassandra.
const MEMTABLES: [&str; 3] = ["default", "skiplist", "trie"];

/// A text as Cassandra shows it.
pub(super) fn shown(option: &str, text: String) -> Result<String, CqlError> {
    match option {
        "memtable" if MEMTABLES.contains(&text.as_str()) => Ok(text),
        "memtable" => refused(format!("Memtable configuration \"{text}\" not found.")),
        "read_repair" => match text.to_ascii_uppercase() {
            word if word == "BLOCKING" || word == "NONE" => Ok(word),
            _ => refused(format!("Invalid value {text} for option 'read_repair'")),
        },
        _ => policy(option, &text),
    }
}

/// Speculative retry policy: `99p`, `10ms`, `ALWAYS`, `NEVER`, `MIN(99p,10ms)`.
fn policy(option: &str, text: &str) -> Result<String, CqlError> {
    let unknown =
        || refused(format!("Specified Speculative Retry Policy [{text}] is not supported"));
    let upper = text.to_ascii_uppercase();
    match upper.as_str() {
        "ALWAYS" => return Ok(upper),
        "NEVER" | "NONE" => return Ok("NEVER".to_owned()),
        _ => {}
    }
    let both = ["MIN", "MAX"].into_iter().find_map(|function| {
        let arguments = upper.strip_prefix(function)?.strip_prefix('(')?.strip_suffix(')')?;
        let (one, other) = arguments.split_once(',')?;
        Some((function, one, other.trim_start()))
    });
    let Some((function, one, other)) = both else {
        if let Some(percentile) = percentile(option, &upper)? {
            return Ok(percentile);
        }
        return fixed(&upper).map_or_else(unknown, Ok);
    };
    let (percentile, fixed) = match (percentile(option, one)?, percentile(option, other)?) {
        (Some(percentile), None) => (percentile, fixed(other)),
        (None, Some(percentile)) => (percentile, fixed(one)),
        _ => return unknown(),
    };
    fixed.map_or_else(unknown, |fixed| Ok(format!("{function}({percentile},{fixed})")))
}

/// Digits and points, as Java reads them.
fn number(text: &str) -> Option<f64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse().ok().filter(|_| plain)
}

fn percentile(option: &str, text: &str) -> Result<Option<String>, CqlError> {
    let value = text.strip_suffix("PERCENTILE").or_else(|| text.strip_suffix('P')).and_then(number);
    match value {
        None => Ok(None),
        Some(value) if value > 0.0 && value < 100.0 => {
            Ok(Some(format!("{}p", (value * 1e4).round() / 1e4)))
        }
        Some(_) => refused(format!(
            "Invalid value {text} for PERCENTILE option '{option}': must be between (0.0 and 100.0)"
        )),
    }
}

fn fixed(text: &str) -> Option<String> {
    let milliseconds = text.strip_suffix("MS").and_then(number)?;
    Some(format!("{}ms", milliseconds as i32))
}

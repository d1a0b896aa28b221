//! The page of hot keys: the module asks the cores for their sketches, and adds up those of one
//! key.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shunt_wire::printable::printable_to;

use super::ask::{self, Answer, PATIENCE};
use crate::control::{CoreMail, Mailbox};
use crate::hot_keys::CoreHotKeys;
use crate::hot_keys::sketch::{Entry, Sketch};
use crate::limits;

/// Name of the page.
pub(super) const PAGE: &str = "hot_keys";
/// Keys that the page shows of one table.
const KEYS_MAX: usize = 20;

/// The sketches, asked from the cores.
#[derive(Debug)]
pub(super) struct HotKeys(Answer);

impl HotKeys {
    pub(super) fn new(mailboxes: Arc<[Mailbox]>) -> Self {
        Self(Answer::new(mailboxes))
    }

    /// The hot keys of all cores; `with_values`: as they are, not only as tokens.
    pub(super) async fn page(&self, with_values: bool) -> Value {
        self.0.recent(|mailboxes| ask_cores(mailboxes, PATIENCE, with_values)).await
    }
}

/// A key of a table, in queries per second.
struct Hot {
    entry: Entry,
    reads: f64,
    writes: f64,
    error: f64,
    /// Samples that surely were of this key.
    sure: u32,
}

/// A core's sketch, and the queries per second for which one of its samples stands.
type Weighed = (Sketch, f64);

async fn ask_cores(mailboxes: &[Mailbox], patience: Duration, with_values: bool) -> Value {
    let mut tables = BTreeMap::<(Box<str>, Box<str>), [Vec<Weighed>; 2]>::new();
    let (mut sample, mut window_ns) = (0, 0);
    let take = |answer: CoreHotKeys| {
        (sample, window_ns) = (answer.sample, window_ns.max(answer.window_ns));
        let seconds = answer.window_ns.max(1) as f64 / 1e9;
        let weight = f64::from(answer.sample) / seconds;
        for table in answer.tables {
            let [reads, writes] = tables.entry((table.keyspace, table.table)).or_default();
            reads.extend(table.reads.into_iter().map(|sketch| (sketch, weight)));
            writes.extend(table.writes.into_iter().map(|sketch| (sketch, weight)));
        }
        answer.core
    };
    let missing = ask::all(mailboxes, patience, CoreMail::HotKeys, take).await;
    let mut rows = Vec::new();
    for ((keyspace, table), [reads, writes]) in &tables {
        let named =
            printable_to(&format!("{keyspace}.{table}"), limits::SLOW_QUERY_TABLE_BYTES_MAX);
        rows.extend(hot_of(reads, writes).into_iter().map(|hot| (named.clone(), hot)));
    }
    rows.sort_by(|(_, one), (_, other)| rate(other).total_cmp(&rate(one)));
    let rows: Vec<Value> = rows.iter().map(|(table, hot)| shown(table, hot, with_values)).collect();
    json!({
        "hot_keys": rows,
        "sample": sample,
        "window_ms": window_ns / 1_000_000,
        "cores_missing": missing,
    })
}

fn rate(hot: &Hot) -> f64 {
    hot.reads + hot.writes
}

/// The hottest keys of a table.
fn hot_of(reads: &[Weighed], writes: &[Weighed]) -> Vec<Hot> {
    let mut found = Vec::<Hot>::new();
    for (sketch, _) in reads.iter().chain(writes) {
        for entry in sketch.entries() {
            if !found.iter().any(|hot| hot.entry.is_same(entry)) {
                found.push(Hot { entry: *entry, reads: 0.0, writes: 0.0, error: 0.0, sure: 0 });
            }
        }
    }
    for hot in &mut found {
        let (mut rates, mut errors) = ([0.0, 0.0], 0.0);
        for (rate, sketches) in rates.iter_mut().zip([reads, writes]) {
            for (sketch, weight) in sketches {
                match sketch.entries().iter().find(|entry| entry.is_same(&hot.entry)) {
                    Some(entry) => {
                        *rate += f64::from(entry.count) * weight;
                        errors += f64::from(entry.error) * weight;
                        hot.sure = hot.sure.saturating_add(entry.count.saturating_sub(entry.error));
                    }
                    None => errors += f64::from(sketch.missed_max()) * weight,
                }
            }
        }
        ([hot.reads, hot.writes], hot.error) = (rates, errors);
    }
    // One sample is a chance.
    found.retain(|hot| hot.sure > 1);
    found.sort_by_key(|hot| Reverse((rate(hot) * 1e3) as u64));
    found.truncate(KEYS_MAX);
    found
}

fn shown(table: &str, hot: &Hot, with_values: bool) -> Value {
    let rounded = |rate: f64| (rate * 10.0).round() / 10.0;
    let key =
        if with_values { key_shown(&hot.entry) } else { format!("token {}", hot.entry.token) };
    json!({
        "table": table,
        "key": key,
        "token": hot.entry.token.to_string(),
        "reads_per_s": rounded(hot.reads),
        "writes_per_s": rounded(hot.writes),
        "error": rounded(hot.error),
    })
}

/// A key as a text if it is one, or else in hexadecimal; `…` if it is longer.
fn key_shown(entry: &Entry) -> String {
    let key = entry.key();
    let is_whole = key.len() == entry.key_bytes as usize;
    let text = std::str::from_utf8(key).ok().filter(|text| !text.chars().any(char::is_control));
    let mut shown = match text {
        Some(text) if !text.is_empty() => format!("'{}'", printable_to(text, 4 * key.len())),
        _ => key.iter().fold("0x".to_owned(), |hex, byte| format!("{hex}{byte:02x}")),
    };
    if !is_whole {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketch(keys: &[(&[u8], u32)]) -> Sketch {
        let mut sketch = Sketch::default();
        for (key, count) in keys {
            (0..*count).for_each(|_| sketch.add(key.len() as i64, key));
        }
        sketch
    }

    #[test]
    fn keys_of_several_cores_add_up_and_single_samples_are_left_out() {
        let reads = [(sketch(&[(b"ab", 10), (b"c", 1)]), 2.0), (sketch(&[(b"ab", 5)]), 4.0)];
        let writes = [(sketch(&[(b"abc", 3)]), 1.0)];
        let found = hot_of(&reads, &writes);
        let rates: Vec<_> =
            found.iter().map(|hot| (hot.entry.key(), hot.reads, hot.writes, hot.error)).collect();
        let expected: [(&[u8], f64, f64, f64); 2] =
            [(b"ab", 40.0, 0.0, 0.0), (b"abc", 0.0, 3.0, 0.0)];
        assert_eq!(rates, expected);
    }

    #[test]
    fn a_key_shows_as_text_or_in_hexadecimal_and_only_if_wanted() {
        let show = |key: &[u8], with_values| {
            let found = hot_of(&[(sketch(&[(key, 2)]), 1.0)], &[]);
            shown("t", &found[0], with_values)["key"].as_str().expect("text").to_owned()
        };
        assert_eq!(show(b"item-1", true), "'item-1'");
        assert_eq!(show(b"\x1b[2J", true), "0x1b5b324a");
        assert_eq!(show(&[0, 0, 1, 255], true), "0x000001ff");
        assert!(show(&[b'x'; 100], true).ends_with("x'…"));
        assert_eq!(show(b"item-1", false), "token 6");
    }
}

//! The page of hot keys: the module asks the cores for their sketches, and adds up those of one
//! key.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shunt_wire::printable::printable_to;

use super::core_answers::{CachedAnswer, PATIENCE, ask_all};
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
pub(super) struct HotKeys(CachedAnswer);

impl HotKeys {
    pub(super) fn new(mailboxes: Arc<[Mailbox]>) -> Self {
        Self(CachedAnswer::new(mailboxes))
    }

    /// The hot keys of all cores; `with_values` adds the keys themselves to their tokens.
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
    /// Samples that were certainly of this key.
    sure: u32,
}

/// A core's sketch, and the queries per second for which one of its samples stands.
type Weighed = (Sketch, f64);

/// The sketches of one table.
#[derive(Default)]
struct TableSketches {
    reads: Vec<Weighed>,
    writes: Vec<Weighed>,
    /// Queries per second that it may have had without a place on the cores, beyond those of a
    /// table without any place.
    missed: f64,
}

async fn ask_cores(mailboxes: &[Mailbox], patience: Duration, with_values: bool) -> Value {
    let mut tables = BTreeMap::<(Box<str>, Box<str>), TableSketches>::new();
    let (mut sample, mut window_ns) = (0, 0);
    // Queries per second of a table without any place.
    let mut missed = 0.0;
    let take = |answer: CoreHotKeys| {
        (sample, window_ns) = (answer.sample, window_ns.max(answer.window_ns));
        let seconds = answer.window_ns.max(1) as f64 / 1e9;
        let weight = f64::from(answer.sample) / seconds;
        let missed_here = f64::from(answer.missed_max) * weight;
        missed += missed_here;
        for table in answer.tables {
            let missed_of_table = f64::from(table.missed_max()) * weight;
            let all = tables.entry((table.keyspace, table.table)).or_default();
            all.missed += missed_of_table - missed_here;
            all.reads.extend(table.reads.into_iter().map(|sketch| (sketch, weight)));
            all.writes.extend(table.writes.into_iter().map(|sketch| (sketch, weight)));
        }
        answer.core
    };
    let missing = ask_all(mailboxes, patience, CoreMail::HotKeys, take).await;
    let mut rows = Vec::new();
    for ((keyspace, table), TableSketches { reads, writes, missed: more }) in &tables {
        let named =
            printable_to(&format!("{keyspace}.{table}"), limits::SLOW_QUERY_TABLE_BYTES_MAX);
        let hot = hot_of(reads, writes, (missed + more).max(0.0));
        rows.extend(hot.into_iter().map(|hot| (named.clone(), hot)));
    }
    rows.sort_by(|(_, one), (_, other)| rate(other).total_cmp(&rate(one)));
    let window_ms = window_ns / 1_000_000;
    let shown = |(table, hot): &(String, Hot)| shown(table, hot, window_ms, with_values);
    let rows: Vec<Value> = rows.iter().map(shown).collect();
    json!({
        "hot_keys": rows,
        "sample": sample,
        "window_ms": window_ms,
        "cores_missing": missing,
    })
}

fn rate(hot: &Hot) -> f64 {
    hot.reads + hot.writes
}

/// The hottest keys of a table, of which so many queries per second may have been missed while it
/// had no place.
fn hot_of(reads: &[Weighed], writes: &[Weighed], mut missed: f64) -> Vec<Hot> {
    let (mut found, mut places) = (Vec::<Hot>::new(), HashMap::new());
    // Each sketch without the key may have missed some of its queries, too.
    for (is_read, sketches) in [(true, reads), (false, writes)] {
        for (sketch, weight) in sketches {
            let missed_here = f64::from(sketch.missed_max()) * weight;
            missed += missed_here;
            for entry in sketch.entries() {
                let place = *places.entry(entry.identity()).or_insert(found.len());
                if place == found.len() {
                    let (reads, writes, error, sure) = (0.0, 0.0, 0.0, 0);
                    found.push(Hot { entry: *entry, reads, writes, error, sure });
                }
                let Some(hot) = found.get_mut(place) else { continue };
                let rate = if is_read { &mut hot.reads } else { &mut hot.writes };
                *rate += f64::from(entry.count) * weight;
                hot.error += f64::from(entry.error) * weight - missed_here;
                hot.sure = hot.sure.saturating_add(entry.count.saturating_sub(entry.error));
            }
        }
    }
    found.iter_mut().for_each(|hot| hot.error = (hot.error + missed).max(0.0));
    // A single sample proves nothing.
    found.retain(|hot| hot.sure > 1);
    found.sort_by_key(|hot| Reverse((rate(hot) * 1e3) as u64));
    found.truncate(KEYS_MAX);
    found
}

fn shown(table: &str, hot: &Hot, window_ms: u64, with_values: bool) -> Value {
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
        "window_ms": window_ms,
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
        let found = hot_of(&reads, &writes, 0.0);
        let rates: Vec<_> =
            found.iter().map(|hot| (hot.entry.key(), hot.reads, hot.writes, hot.error)).collect();
        let expected: [(&[u8], f64, f64, f64); 2] =
            [(b"ab", 40.0, 0.0, 0.0), (b"abc", 0.0, 3.0, 0.0)];
        assert_eq!(rates, expected);
        let errors: Vec<_> =
            hot_of(&reads, &writes, 8.0).iter().map(|hot| (hot.reads, hot.error)).collect();
        assert_eq!(errors, [(40.0, 8.0), (0.0, 8.0)], "of a table without a place for a while");
    }

    /// The numbers are powers of two, so that sums of them are exact.
    #[test]
    fn a_sketch_without_a_key_may_have_missed_it_and_one_with_it_has_its_error() {
        let names: Vec<String> = (0..16).map(|number| format!("{number:04}")).collect();
        let full: Vec<(&[u8], u32)> = names.iter().map(|name| (name.as_bytes(), 4)).collect();
        let mut with_error = sketch(&full);
        with_error.add(4, b"late");
        let [of_full, of_small] = [sketch(&full), sketch(&[(b"late", 2)])];
        let reads = [(with_error, 2.0), (of_full, 4.0)];
        let found = hot_of(&reads, &[(of_small, 8.0)], 0.0);
        let late = found.iter().find(|hot| hot.entry.key() == b"late").expect("it is hot");
        assert_eq!((late.reads, late.writes, late.sure), (10.0, 16.0, 3));
        assert_eq!(late.error, 4.0 * 2.0 + 4.0 * 4.0);
        let known = found.iter().find(|hot| hot.entry.key() == b"0015").expect("it is hot");
        assert_eq!((known.reads, known.writes, known.error), (24.0, 0.0, 0.0));
    }

    /// The time grows with the keys, not with the square of them.
    #[test]
    fn keys_of_thousands_of_sketches_are_added_up() {
        let all: Vec<Weighed> = (0..10_000)
            .map(|number: i64| {
                let mut sketch = sketch(&[(b"hot", 2)]);
                (0..15).for_each(|other| sketch.add(16 * number + other, &number.to_le_bytes()));
                (sketch, 1.0)
            })
            .collect();
        let found = hot_of(&all[..5_000], &all[5_000..], 0.0);
        assert_eq!((found.len(), found[0].reads, found[0].writes), (1, 10_000.0, 10_000.0));
    }

    #[test]
    fn a_key_shows_as_text_or_in_hexadecimal_and_only_if_wanted() {
        let show = |key: &[u8], with_values| {
            let found = hot_of(&[(sketch(&[(key, 2)]), 1.0)], &[], 0.0);
            shown("t", &found[0], 30_000, with_values)["key"].as_str().expect("text").to_owned()
        };
        assert_eq!(show(b"item-1", true), "'item-1'");
        assert_eq!(show(b"\x1b[2J", true), "0x1b5b324a");
        assert_eq!(show(&[0, 0, 1, 255], true), "0x000001ff");
        assert!(show(&[b'x'; 100], true).ends_with("x'…"));
        assert_eq!(show(b"item-1", false), "token 6");
    }
}

//! The page of digests: the module asks the cores for their rows, and adds up those of one digest.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use shunt_admin::Label as _;

use super::core_answers::{CachedAnswer, PATIENCE, ask_all};
use super::errors;
use crate::control::{CoreMail, Mailbox};
use crate::digests::table::{CoreDigests, DigestName, Origin};
use crate::digests::totals::Totals;
use crate::limits;
use crate::metrics::QueryKind;

/// Name of the page.
pub(super) const PAGE: &str = "digests";

/// The digests, asked from the cores.
#[derive(Debug)]
pub(super) struct Digests(CachedAnswer);

impl Digests {
    pub(super) fn new(mailboxes: Arc<[Mailbox]>) -> Self {
        Self(CachedAnswer::new(mailboxes))
    }

    /// The digests of all cores, the one with the most time first. Without `is_on`, their counts
    /// end when digests were switched off.
    pub(super) async fn page(&self, is_on: bool) -> Value {
        let mut page = self.0.recent(|mailboxes| ask_cores(mailboxes, PATIENCE)).await;
        page["on"] = is_on.into();
        page
    }
}

/// A digest of all cores.
struct Merged {
    origin: Origin,
    /// Age of its oldest row.
    age_ns: u64,
    /// Time since its last query.
    rest_ns: u64,
    totals: Totals,
}

async fn ask_cores(mailboxes: &[Mailbox], patience: Duration) -> Value {
    let mut merged = HashMap::<Arc<DigestName>, Merged>::new();
    let mut others: Vec<Totals> = vec![Totals::default(); QueryKind::COUNT];
    let take = |answer: CoreDigests| {
        for (sum, more) in others.iter_mut().zip(&answer.others) {
            sum.merge(more);
        }
        for row in answer.rows {
            // The cores' clocks have no common start.
            let age_ns = answer.now_ns.saturating_sub(row.since_ns);
            let rest_ns = answer.now_ns.saturating_sub(row.ended_ns);
            let entry = merged.entry(row.name).or_insert_with(|| Merged {
                origin: row.origin,
                age_ns,
                rest_ns,
                totals: Totals::default(),
            });
            entry.age_ns = entry.age_ns.max(age_ns);
            entry.rest_ns = entry.rest_ns.min(rest_ns);
            entry.totals.merge(&row.totals);
        }
        answer.core
    };
    let missing = ask_all(mailboxes, patience, CoreMail::Digests, take).await;
    let mut all: Vec<(Arc<DigestName>, Merged)> = merged.into_iter().collect();
    all.sort_by_cached_key(|(name, digest)| {
        let time_ns = digest.totals.wait_ns + digest.totals.node_ns;
        (Reverse(time_ns), name.kind.index(), name.text.clone(), name.keyspace.clone())
    });
    for (name, digest) in all.drain(all.len().min(limits::DIGESTS_MAX)..) {
        others[name.kind.index()].merge(&digest.totals);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let digests: Vec<Value> =
        all.iter().map(|(name, digest)| digest_shown(name, digest, now)).collect();
    let others = QueryKind::ALL.iter().zip(&others).filter(|(_, totals)| totals.count > 0);
    let others = others.map(|(kind, totals)| {
        let mut shown = totals_shown(totals);
        shown.insert("kind".to_owned(), kind.text().into());
        Value::Object(shown)
    });
    json!({ "digests": digests, "others": others.collect::<Vec<_>>(), "cores_missing": missing })
}

fn digest_shown(name: &DigestName, digest: &Merged, now: Duration) -> Value {
    let unix_ms = |ago_ns| now.saturating_sub(Duration::from_nanos(ago_ns)).as_millis() as u64;
    let mut shown = totals_shown(&digest.totals);
    let more = json!({
        "text": &name.text,
        "kind": name.kind.text(),
        "keyspace": name.keyspace.as_deref(),
        "table": digest.origin.table.as_deref(),
        "role": digest.origin.role.as_deref(),
        "first_unix_ms": unix_ms(digest.age_ns),
        "last_unix_ms": unix_ms(digest.rest_ns),
    });
    if let Value::Object(more) = more {
        shown.extend(more);
    }
    Value::Object(shown)
}

fn totals_shown(totals: &Totals) -> Map<String, Value> {
    let percentile = |share| totals.times.percentile_us(share);
    let errors: u64 = totals.errors.iter().sum();
    let shown = json!({
        "count": totals.count,
        "errors": errors,
        "errors_by_kind": errors::by_kind(&totals.errors),
        "bytes_in": totals.bytes_in,
        "bytes_out": totals.bytes_out,
        // Without a known number, 0 would say that no answer had a row.
        "rows": (totals.rows_known > 0).then_some(totals.rows),
        "rows_known": totals.rows_known,
        "sum_us": (totals.wait_ns + totals.node_ns) / 1_000,
        "wait_us": totals.wait_ns / 1_000,
        "node_us": totals.node_ns / 1_000,
        "p50_us": percentile(0.5),
        "p99_us": percentile(0.99),
        "wait_p50_us": totals.times.wait_percentile_us(0.5),
        "wait_p99_us": totals.times.wait_percentile_us(0.99),
        "node_p50_us": totals.times.node_percentile_us(0.5),
        "node_p99_us": totals.times.node_percentile_us(0.99),
    });
    match shown {
        Value::Object(shown) => shown,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::account::Account;
    use crate::digests::table::DigestTable;
    use crate::query_end::{End, ErrorKind};

    /// A core that had a query of each of these texts.
    fn core(core: usize, texts: &'static [&'static str]) -> Mailbox {
        Box::new(move |mail| {
            let CoreMail::Digests(answer) = mail else { panic!("{mail:?}") };
            let mut table = DigestTable::default();
            let end = End {
                now_ns: 5,
                wait_ns: 1_000,
                node_ns: 9_000,
                bytes_in: 20,
                bytes_out: 30,
                rows: Some(3),
                error: (core == 1).then_some(ErrorKind::Invalid),
            };
            for text in texts {
                let (kind, text) = (QueryKind::Query, Box::from(*text));
                let name = DigestName { kind, keyspace: None, text };
                let origin = Origin { table: Some("shop.items".into()), role: Some("app".into()) };
                let digest = table.admit(5, Account::default(), name, origin).expect("room");
                assert!(table.count(digest, &end));
            }
            table.count_other(QueryKind::Prepare, &end);
            table.report(core, 10, &answer);
            Ok(())
        })
    }

    #[tokio::test]
    async fn the_rows_of_a_digest_are_added_up_and_the_one_with_most_time_comes_first() {
        let mailboxes = [core(0, &["SELECT a", "SELECT b"]), core(1, &["SELECT b"])];
        let page = Digests::new(mailboxes.into()).page(true).await;
        let rows = page["digests"].as_array().expect("rows");
        assert_eq!((rows.len(), &page["cores_missing"]), (2, &json!([])));
        let first = &rows[0];
        assert_eq!((&first["text"], &first["count"]), (&json!("SELECT b"), &json!(2)));
        assert_eq!((&first["errors"], &first["errors_by_kind"]["invalid"]), (&json!(1), &json!(1)));
        assert_eq!((&first["sum_us"], &first["wait_us"]), (&json!(20), &json!(2)));
        assert_eq!((&first["p99_us"], &first["bytes_out"]), (&json!(10), &json!(60)));
        assert_eq!((&first["rows"], &first["rows_known"]), (&json!(6), &json!(2)));
        assert_eq!((&first["table"], &first["role"]), (&json!("shop.items"), &json!("app")));
        let others = &page["others"][0];
        assert_eq!((&others["kind"], &others["count"]), (&json!("prepare"), &json!(2)));
    }

    #[test]
    fn rows_show_no_number_while_none_is_known() {
        let shown = totals_shown(&Totals::default());
        assert_eq!((&shown["rows"], &shown["rows_known"]), (&Value::Null, &json!(0)));
    }
}

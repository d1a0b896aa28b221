//! The page of slow queries: the module asks the cores for their records, and merges them.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use shunt_admin::Label as _;
use shunt_wire::cql::message::Consistency;

use super::core_answers::{CachedAnswer, PATIENCE, ask_all};
use crate::control::{CoreMail, Mailbox};
use crate::limits;
use crate::slow_queries::records::{CoreSlowQueries, SlowQuery};

/// Name of the page.
pub(super) const PAGE: &str = "slow_queries";

/// The records, asked from the cores.
#[derive(Debug)]
pub(super) struct Records(CachedAnswer);

impl Records {
    pub(super) fn new(mailboxes: Arc<[Mailbox]>) -> Self {
        Self(CachedAnswer::new(mailboxes))
    }

    /// The last slow queries of all cores, the latest first.
    pub(super) async fn page(&self) -> Value {
        self.0.recent(|mailboxes| ask_cores(mailboxes, PATIENCE)).await
    }
}

async fn ask_cores(mailboxes: &[Mailbox], patience: Duration) -> Value {
    let mut all: Vec<(u64, usize, SlowQuery)> = Vec::new();
    let take = |CoreSlowQueries { core, now_ns, queries }| {
        // The cores' clocks have no common start, so their records are compared by age.
        all.extend(queries.into_iter().map(|query| {
            let age_ns = now_ns.saturating_sub(query.ended_ns);
            (age_ns, core, query)
        }));
        core
    };
    let missing = ask_all(mailboxes, patience, CoreMail::SlowQueries, take).await;
    all.sort_by_key(|(age_ns, core, query)| (*age_ns, *core, Reverse(query.ended_ns)));
    all.truncate(limits::SLOW_QUERIES_MAX);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let shown = all.iter().map(|(age_ns, core, query)| {
        let ended = now.saturating_sub(Duration::from_nanos(*age_ns));
        shown(query, *core, ended.as_millis() as u64)
    });
    json!({ "slow_queries": shown.collect::<Vec<_>>(), "cores_missing": missing })
}

fn shown(query: &SlowQuery, core: usize, ended_ms: u64) -> Value {
    let driver = query.driver.as_deref();
    let milliseconds = |ns: u64| ns as f64 / 1e6;
    json!({
        "ended_unix_ms": ended_ms,
        "outcome": query.outcome.text(),
        "error": query.error.map(|code| format!("0x{code:04x}")),
        "kind": query.kind.text(),
        "text": query.text.as_deref(),
        "statements": query.statements,
        "table": query.table.as_deref(),
        "keyspace": query.keyspace.as_deref(),
        "role": query.role.as_deref(),
        "identity": query.identity.as_deref(),
        "application": driver.map(|driver| &driver.application).filter(|name| !name.is_empty()),
        "driver": driver.map(|driver| &driver.name),
        "client": query.client.map(|client| client.to_string()),
        "node": query.node.as_deref(),
        "consistency": query.consistency.map(|level| Consistency(level).to_string()),
        "tag": query.tag.as_deref(),
        "retries": query.retries,
        "stream": query.stream,
        "core": core,
        "wait_ms": milliseconds(query.wait_ns),
        "node_ms": milliseconds(query.node_ns),
        "total_ms": milliseconds(query.total_ns()),
    })
}

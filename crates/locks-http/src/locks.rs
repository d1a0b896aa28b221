//! Requests as statements, and the proxy's rows as answers.
//!
//! Waiting must never report a lock that is no longer held. A grant that came late, or is found
//! again after a lost answer, is renewed before it is reported, and is in doubt if the renewal
//! fails. Nor may a lock be granted twice: a statement is repeated only after an answer to the one
//! before, which is a row or an error that says that it was certainly not carried out.

use std::time::{Duration, Instant};

use hyper::StatusCode;
use serde_json::{Map, Value as Json};
use shunt_proxy::control::client::{AsyncClient, Failed, Table};
use shunt_wire::cql::message::{Consistency, error_code};

use crate::limits::{PAUSE, RENEW_AFTER, STATEMENT_TIMEOUT};
use crate::reply::Reply;
use crate::request::{LockRequest, Operation};

/// A proxy that carries out statements.
pub(crate) trait Proxy: Send {
    /// Carries out one statement within `limit`.
    fn query(
        &mut self,
        text: &str,
        values: &[Option<Vec<u8>>],
        limit: Duration,
    ) -> impl Future<Output = Result<Table, Failed>> + Send;
}

impl Proxy for AsyncClient {
    fn query(
        &mut self,
        text: &str,
        values: &[Option<Vec<u8>>],
        limit: Duration,
    ) -> impl Future<Output = Result<Table, Failed>> + Send {
        AsyncClient::query(self, text, values, (Consistency::ONE, None), limit)
    }
}

/// Conditions for waiting at the proxy.
pub(crate) struct Waiting<'a> {
    /// Longest wait of one statement, `lock_wait_max_ms`.
    pub(crate) round_max: Duration,
    /// True once the proxy stops and waiting requests should end.
    pub(crate) is_stopping: &'a (dyn Fn() -> bool + Send + Sync),
}

/// Carries out a request. An error comes from the failed statement; with a code, the connection can
/// be reused.
pub(crate) async fn carry_out(
    proxy: &mut impl Proxy,
    request: &LockRequest,
    waiting: &Waiting<'_>,
) -> Result<Reply, Failed> {
    let lock = Lock { request };
    match &request.operation {
        Operation::Acquire { owner, ttl_s, wait_s } => {
            let wait = Duration::from_secs(u64::from(*wait_s));
            lock.acquire(proxy, owner, *ttl_s, wait, waiting).await
        }
        Operation::Renew { owner, ttl_s, fence } => {
            let row = lock.renew(proxy, owner, *ttl_s, *fence).await?;
            Ok(if row.applied { lock.done(row) } else { lock.not_held(row, owner) })
        }
        Operation::Release { owner, fence } => {
            let row = lock.release(proxy, owner, *fence).await?;
            Ok(if row.applied { lock.done(row) } else { lock.not_held(row, owner) })
        }
        Operation::Look => lock.look(proxy).await,
        Operation::Queue => lock.queue(proxy).await,
    }
}

/// The lock that a request names.
struct Lock<'a> {
    request: &'a LockRequest,
}

/// The first row of an answer.
struct Row {
    applied: bool,
    owner: Option<String>,
    fence: Option<i64>,
    known: Map<String, Json>,
}

impl Row {
    fn read(table: &Table) -> Self {
        let owner = table.get(0, "owner").map(|owner| String::from_utf8_lossy(owner).into_owned());
        let applied = table.get(0, "[applied]") == Some(&[1]);
        let known = shown(table, 0, &["name", "owner", "mode", "fence", "ttl_ms", "waiters"]);
        Self { applied, owner, fence: bigint(table, 0, "fence"), known }
    }

    /// The row's known columns, with the lock's name, which a row of a free lock lacks.
    fn shown(mut self, name: &str) -> Map<String, Json> {
        self.known.insert("applied".to_owned(), self.applied.into());
        self.known.insert("name".to_owned(), name.into());
        self.known
    }
}

impl Lock<'_> {
    fn name(&self) -> Option<Vec<u8>> {
        Some(self.request.name.clone().into_bytes())
    }

    fn table(&self) -> &'static str {
        match (self.request.fast, self.request.shared) {
            (false, false) => "locks",
            (false, true) => "rwlocks",
            (true, false) => "fast_locks",
            (true, true) => "fast_rwlocks",
        }
    }

    async fn acquire(
        &self,
        proxy: &mut impl Proxy,
        owner: &str,
        ttl_s: u32,
        wait: Duration,
        waiting: &Waiting<'_>,
    ) -> Result<Reply, Failed> {
        let (columns, marks) = if self.request.shared { (", mode", ", 'S'") } else { ("", "") };
        let text = format!(
            "INSERT INTO shunt.{} (name, owner{columns}, wait_ms) VALUES (?, ?{marks}, ?) IF NOT EXISTS USING TTL {ttl_s}",
            self.table()
        );
        // The proxy allows no wait that would leave hardly anything of the hold.
        let bearable =
            Duration::from_secs(u64::from(ttl_s)).saturating_sub(Duration::from_millis(1_001));
        let until = Instant::now() + wait;
        loop {
            let asked = Instant::now();
            let left = until.saturating_duration_since(asked);
            let round = left.min(waiting.round_max).min(bearable);
            let is_last = left.is_zero() || (waiting.is_stopping)();
            let wait_ms =
                if is_last { 0 } else { i32::try_from(round.as_millis()).unwrap_or(i32::MAX) };
            let values = [self.name(), Some(owner.into()), Some(wait_ms.to_be_bytes().to_vec())];
            match proxy.query(&text, &values, round + STATEMENT_TIMEOUT).await {
                Ok(table) => {
                    let mut row = Row::read(&table);
                    let is_granted = row.applied;
                    if is_granted && asked.elapsed() <= RENEW_AFTER {
                        return Ok(self.done(row));
                    }
                    // The grant is old, or went to an earlier request whose answer was lost: the
                    // hold may have ended.
                    if is_granted || row.owner.as_deref() == Some(owner) {
                        row = self.renew(proxy, owner, ttl_s, row.fence).await.map_err(in_doubt)?;
                        if row.applied {
                            row.applied = is_granted;
                            return Ok(self.done(row));
                        }
                    }
                    if is_last {
                        return Ok(self.not_granted(row));
                    }
                }
                // The statement was certainly not carried out.
                Err(failed) if failed.code == Some(error_code::IS_BOOTSTRAPPING) && !is_last => {}
                Err(failed) => return Err(failed),
            }
            if asked.elapsed() < PAUSE {
                tokio::time::sleep(PAUSE.min(left)).await;
            }
        }
    }

    async fn renew(
        &self,
        proxy: &mut impl Proxy,
        owner: &str,
        ttl_s: u32,
        fence: Option<i64>,
    ) -> Result<Row, Failed> {
        let set = if self.request.shared { "mode = 'S'" } else { "owner = ?" };
        let (condition, values) = self.condition(owner, fence);
        let text =
            format!("UPDATE shunt.{} USING TTL {ttl_s} SET {set} WHERE {condition}", self.table());
        let first = (!self.request.shared).then(|| Some(owner.into()));
        let values: Vec<_> = first.into_iter().chain(values).collect();
        proxy.query(&text, &values, STATEMENT_TIMEOUT).await.map(|table| Row::read(&table))
    }

    async fn release(
        &self,
        proxy: &mut impl Proxy,
        owner: &str,
        fence: Option<i64>,
    ) -> Result<Row, Failed> {
        let (condition, values) = self.condition(owner, fence);
        let text = format!("DELETE FROM shunt.{} WHERE {condition}", self.table());
        proxy.query(&text, &values, STATEMENT_TIMEOUT).await.map(|table| Row::read(&table))
    }

    /// WHERE and IF clauses that identify a hold, with their values.
    fn condition(&self, owner: &str, fence: Option<i64>) -> (&'static str, Vec<Option<Vec<u8>>>) {
        let text = match (self.request.shared, fence) {
            (false, None) => "name = ? IF owner = ?",
            (false, Some(_)) => "name = ? IF owner = ? AND fence = ?",
            (true, None) => "name = ? AND owner = ? IF EXISTS",
            (true, Some(_)) => "name = ? AND owner = ? IF fence = ?",
        };
        let fence = fence.map(|fence| Some(fence.to_be_bytes().to_vec()));
        (text, [self.name(), Some(owner.into())].into_iter().chain(fence).collect())
    }

    async fn look(&self, proxy: &mut impl Proxy) -> Result<Reply, Failed> {
        let mode = if self.request.shared { ", mode" } else { "" };
        let text = format!(
            "SELECT name, owner{mode}, fence, ttl_ms, waiters FROM shunt.{} WHERE name = ? LIMIT 1",
            self.table()
        );
        let row = Row::read(&proxy.query(&text, &[self.name()], STATEMENT_TIMEOUT).await?);
        Ok(if row.owner.is_some() { Reply::done(row.known) } else { self.nobody() })
    }

    async fn queue(&self, proxy: &mut impl Proxy) -> Result<Reply, Failed> {
        let columns = ["state", "owner", "role", "mode", "fence", "ttl_ms"];
        let text = format!(
            "SELECT {} FROM shunt.lock_queue WHERE name = ? AND fast = {}",
            columns.join(", "),
            self.request.fast
        );
        let table = proxy.query(&text, &[self.name()], STATEMENT_TIMEOUT).await?;
        if table.rows.is_empty() {
            return Ok(self.nobody());
        }
        let rows = (0..table.rows.len()).map(|row| Json::Object(shown(&table, row, &columns)));
        let mut body = Map::new();
        body.insert("name".to_owned(), self.request.name.as_str().into());
        body.insert("queue".to_owned(), rows.collect());
        Ok(Reply::done(body))
    }

    fn done(&self, row: Row) -> Reply {
        Reply::done(row.shown(&self.request.name))
    }

    /// Answer to a request for a lock that others have. `row` names the holder, if any.
    fn not_granted(&self, row: Row) -> Reply {
        let message = match &row.owner {
            Some(holder) => format!("{holder} holds the lock"),
            None => "the lock was lost again before it could be told of".to_owned(),
        };
        Reply::refused(StatusCode::CONFLICT, message, row.shown(&self.request.name))
    }

    /// Answer to a request whose owner does not hold the lock. `row` names the holder, if any.
    fn not_held(&self, row: Row, owner: &str) -> Reply {
        let Some(holder) = &row.owner else { return self.nobody() };
        let message = match holder == owner {
            true => format!("{owner} holds the lock with another fence"),
            false => format!("{owner} does not hold the lock, {holder} does"),
        };
        Reply::refused(StatusCode::CONFLICT, message, row.shown(&self.request.name))
    }

    fn nobody(&self) -> Reply {
        let known = Map::from_iter([("name".to_owned(), self.request.name.as_str().into())]);
        Reply::refused(StatusCode::NOT_FOUND, "nobody holds the lock", known)
    }
}

/// Marks a granted lock as in doubt when its renewal fails: it may be held, whatever the renewal's
/// error says.
fn in_doubt(mut failed: Failed) -> Failed {
    failed.code = failed.code.map(|_| error_code::WRITE_TIMEOUT);
    failed
}

/// The row's columns that are present, as JSON.
fn shown(table: &Table, row: usize, columns: &[&str]) -> Map<String, Json> {
    let is_there = |column: &&&str| table.columns.iter().any(|known| known == **column);
    let value = |column: &&str| {
        let value = match *column {
            "fence" => bigint(table, row, column).map(Json::from),
            "ttl_ms" | "waiters" => {
                let bytes = table.get(row, column).and_then(|bytes| bytes.try_into().ok());
                bytes.map(|bytes| i32::from_be_bytes(bytes).into())
            }
            _ => table.get(row, column).map(|text| String::from_utf8_lossy(text).into()),
        };
        ((*column).to_owned(), value.unwrap_or(Json::Null))
    };
    columns.iter().filter(is_there).map(value).collect()
}

fn bigint(table: &Table, row: usize, column: &str) -> Option<i64> {
    Some(i64::from_be_bytes(table.get(row, column)?.try_into().ok()?))
}

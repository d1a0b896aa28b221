//! A session with a fleet, and statements on locks.

use std::collections::HashMap;
use std::env;
use std::time::{Duration, Instant};

use scylla::client::Compression;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::Batch;
use scylla::value::{CqlValue, Row};

pub const ACQUIRE: &str =
    "INSERT INTO shunt.locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL ?";
pub const RELEASE: &str = "DELETE FROM shunt.locks WHERE name = ? IF owner = ?";
/// The lifetime that `tests/drivers/fleet.py` allows for locks in memory: no lock ends while a test
/// counts on it.
pub const TTL: i32 = 300;
/// Time limit of each wait.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// Between two questions.
pub const PAUSE: Duration = Duration::from_millis(50);

/// The addresses of the proxies.
pub fn proxies() -> Vec<String> {
    let text = env::var("SHUNT_FLEET")
        .expect("these tests need a fleet: tests/drivers/fleet.py starts one");
    text.split(',').map(str::to_owned).collect()
}

/// A session that was told of the first proxy only, and a name that no other test has.
pub struct Client {
    pub session: Session,
    pub name: String,
}

impl Client {
    pub async fn new(compression: Option<Compression>) -> Self {
        let profile = ExecutionProfile::builder().request_timeout(Some(PATIENCE)).build();
        let session = SessionBuilder::new()
            .known_node(&proxies()[0])
            .compression(compression)
            .connection_timeout(PATIENCE)
            .default_execution_profile_handle(profile.into_handle())
            .build()
            .await
            .expect("connect");
        Self { session, name: uuid::Uuid::new_v4().to_string() }
    }

    /// Runs a conditional statement.
    pub async fn once(
        &self,
        statement: &str,
        values: impl SerializeRow,
    ) -> Result<Answer, ExecutionError> {
        let result = self.session.query_unpaged(statement, values).await?;
        Ok(answers(result).remove(0))
    }

    /// The same, again and again while the lock is not served yet.
    pub async fn ask(&self, statement: &str, values: impl SerializeRow) -> Answer {
        let begun = Instant::now();
        loop {
            match self.once(statement, &values).await {
                Ok(answer) => return answer,
                Err(error) if is_not_served(&error) && begun.elapsed() < PATIENCE => {
                    tokio::time::sleep(PAUSE).await
                }
                Err(error) => panic!("{statement}: {error:?}"),
            }
        }
    }
}

impl Client {
    /// A batch likewise.
    pub async fn ask_all(&self, batch: &Batch, values: Vec<(&str, &str)>) -> Vec<Answer> {
        let begun = Instant::now();
        loop {
            match self.session.batch(batch, &values).await {
                Ok(result) => return answers(result),
                Err(error) if is_not_served(&error) && begun.elapsed() < PATIENCE => {
                    tokio::time::sleep(PAUSE).await
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}

/// Runs a test with and without compression.
pub fn in_every_setup(run: impl AsyncFn(&Client)) {
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    runtime.block_on(async {
        for compression in [None, Some(Compression::Lz4)] {
            eprintln!("compression: {compression:?}");
            run(&Client::new(compression).await).await;
        }
    });
}

/// `statement`, which is on `shunt.locks`, on another table.
pub fn on(table: &str, statement: &str) -> String {
    statement.replacen("shunt.locks", &format!("shunt.{table}"), 1)
}

/// A row that a conditional statement is answered by.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub applied: bool,
    pub name: Option<String>,
    pub owner: Option<String>,
    pub fence: Option<i64>,
    pub ttl_ms: Option<i32>,
    pub waiters: Option<i32>,
}

/// The rows of an answer, by the names of their columns.
pub fn rows(result: QueryResult) -> Vec<HashMap<String, CqlValue>> {
    let rows = result.into_rows_result().expect("rows");
    let names: Vec<String> =
        rows.column_specs().iter().map(|column| column.name().to_owned()).collect();
    let named = |row: Row| {
        names
            .iter()
            .cloned()
            .zip(row.columns)
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    };
    rows.rows::<Row>().expect("rows").map(|row| named(row.expect("row"))).collect()
}

/// The rows of a conditional statement or batch.
pub fn answers(result: QueryResult) -> Vec<Answer> {
    let text = |value: &CqlValue| value.as_text().cloned();
    let one = |row: HashMap<String, CqlValue>| Answer {
        applied: row["[applied]"].as_boolean().expect("[applied]"),
        name: row.get("name").and_then(text),
        owner: row.get("owner").and_then(text),
        fence: row.get("fence").and_then(CqlValue::as_bigint),
        ttl_ms: row.get("ttl_ms").and_then(CqlValue::as_int),
        waiters: row.get("waiters").and_then(CqlValue::as_int),
    };
    rows(result).into_iter().map(one).collect()
}

/// The error of a server; `None` for any other failure.
pub fn said(error: &ExecutionError) -> Option<&DbError> {
    match error {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(kind, _)) => Some(kind),
        _ => None,
    }
}

/// Certainly not executed.
pub fn is_not_served(error: &ExecutionError) -> bool {
    said(error) == Some(&DbError::IsBootstrapping)
}

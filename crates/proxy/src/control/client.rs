//! A CQL client: one connection, one statement at a time. [`Client`] is for the commands of the
//! binary, where nobody else waits for it, and [`AsyncClient`] for what has others to serve
//! meanwhile.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{Consistency, QueryParams, ResultMessage, Value, ValueList, encode};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::connection::Connection;
use super::error::ControlError;
use super::handshake::{self, Session};
use crate::config::{CQL_PORT, Credentials, split_host_port};

/// The option in SUPPORTED by which a proxy can be told from a node.
pub const PROXY_KEY: &str = "SHUNT_PROXY";

/// An option that only a proxy of a fleet has, to which statements on locks are more than rows; its
/// value is a version of them.
pub const LOCKS_KEY: &str = "SHUNT_LOCKS";

/// Wait for one host before the next is tried beside it.
const STAGGER: Duration = Duration::from_millis(250);

/// A statement that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The code of the node's or the proxy's error; none if there was no answer.
    pub code: Option<i32>,
    /// What happened, for people.
    pub message: String,
}

/// The rows of an answer; none where the answer has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Values as they were sent; none for null.
    pub rows: Vec<Vec<Option<Vec<u8>>>>,
}

impl Table {
    /// A value of a row.
    pub fn get(&self, row: usize, column: &str) -> Option<&[u8]> {
        let place = self.columns.iter().position(|name| name == column)?;
        self.rows.get(row)?.get(place)?.as_deref()
    }
}

/// A connection that is logged in. It ends when this is dropped, and with it what a proxy has
/// waiting for it.
#[derive(Debug)]
pub struct AsyncClient {
    connection: Connection,
    is_proxy: bool,
    keeps_locks: bool,
}

impl AsyncClient {
    /// Connects and logs in. `limit` holds for each step.
    ///
    /// # Errors
    /// It does not answer, or refuses the login; only then there is a code, that of the refusal.
    pub async fn connect(
        address: SocketAddr,
        credentials: Option<&Credentials>,
        limit: Duration,
    ) -> Result<AsyncClient, Failed> {
        let refused =
            |error: ControlError| Failed { code: error.code(), message: error.to_string() };
        let session = handshake::connect(address, credentials, limit).await.map_err(refused)?;
        let Session { connection, is_proxy, keeps_locks, .. } = session;
        Ok(AsyncClient { connection, is_proxy, keeps_locks })
    }

    /// Connects to the first of these addresses that answers. If one is silent for [`STAGGER`], the
    /// next is tried beside it, so that a dead host does not cost a whole time-out.
    ///
    /// # Errors
    /// No address answered. Each is there with its error, and the code of a refusal.
    pub(super) async fn connect_first(
        addresses: Vec<SocketAddr>,
        credentials: Option<&Credentials>,
        limit: Duration,
    ) -> Result<AsyncClient, Vec<(SocketAddr, Failed)>> {
        let (mut attempts, mut failed) = (JoinSet::new(), Vec::new());
        let mut untried = addresses.into_iter();
        loop {
            if let Some(address) = untried.next() {
                let credentials = credentials.cloned();
                attempts.spawn(async move {
                    let connected =
                        AsyncClient::connect(address, credentials.as_ref(), limit).await;
                    connected.map_err(|failed| (address, failed))
                });
            }
            tokio::select! {
                attempt = attempts.join_next() => match attempt {
                    None => return Err(failed),
                    Some(Ok(Ok(client))) => return Ok(client),
                    Some(Ok(Err(one))) => failed.push(one),
                    Some(Err(died)) => std::panic::resume_unwind(died.into_panic()),
                },
                () = sleep(STAGGER), if untried.len() > 0 => {}
            }
        }
    }

    /// As [`Client::keeps_locks`].
    pub fn keeps_locks(&self) -> bool {
        self.keeps_locks
    }

    /// Carries out a statement within `limit`.
    ///
    /// # Errors
    /// The error that answered it, or that nothing did. After the latter, or when the future was
    /// given up, the connection is of no use.
    pub async fn query(
        &mut self,
        text: &str,
        values: &[Option<Vec<u8>>],
        (consistency, serial): (Consistency, Option<Consistency>),
        limit: Duration,
    ) -> Result<Table, Failed> {
        let version = self.connection.version;
        let mut list = ValueList::positional(version);
        for value in values {
            list.push(value.as_deref().map_or(Value::Null, Value::Bytes));
        }
        let params = QueryParams {
            values: list.values(),
            serial_consistency: serial,
            ..QueryParams::simple(consistency)
        };
        let mut body = Vec::new();
        encode::query(&mut body, version, text, &params);
        let answer = self.connection.request(opcode::QUERY, &body, "a statement", limit).await?;
        if answer.opcode != opcode::RESULT {
            return Err(answer.refusal("a statement").into());
        }
        match ResultMessage::decode(answer.version, &answer.body) {
            Ok(ResultMessage::Rows(rows)) => {
                let columns =
                    rows.metadata.columns().map(|column| column.name.to_owned()).collect();
                let values = rows.rows().filter_map(Result::ok);
                let copied =
                    values.map(|row| row.values().map(|value| value.map(<[u8]>::to_vec)).collect());
                Ok(Table { columns, rows: copied.collect() })
            }
            Ok(_) => Ok(Table::default()),
            Err(error) => Err(failed(&format!("an answer that cannot be read: {error}"))),
        }
    }
}

/// An [`AsyncClient`] and what it runs on.
pub struct Client {
    runtime: Runtime,
    client: AsyncClient,
    limit: Duration,
}

impl Client {
    /// Connects to the first of these that answers, HOST or HOST:PORT. `limit` holds for each step,
    /// and for each statement later.
    ///
    /// # Errors
    /// None answers, or the login is refused; says what each of them did. There is a code if one
    /// has refused.
    pub fn connect(
        hosts: &[String],
        credentials: Option<&Credentials>,
        limit: Duration,
    ) -> Result<Client, Failed> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed(&error.to_string()))?;
        let (mut all, mut unknown) = (Vec::new(), Vec::new());
        for host in hosts {
            match addresses(host) {
                Ok(found) => all.extend(found),
                Err(failed) => unknown.push(failed.message),
            }
        }
        let refused = match runtime.block_on(AsyncClient::connect_first(all, credentials, limit)) {
            Ok(client) => return Ok(Client { runtime, client, limit }),
            Err(refused) => refused,
        };
        let code = refused.iter().rev().find_map(|(_, failed)| failed.code);
        let told = refused.iter().map(|(address, failed)| format!("{address}: {}", failed.message));
        Err(Failed { code, message: told.chain(unknown).collect::<Vec<_>>().join("; ") })
    }

    /// True if this is a proxy, and not a node.
    pub fn is_proxy(&self) -> bool {
        self.client.is_proxy
    }

    /// True if this is a proxy of a fleet: elsewhere a statement on locks may be carried out as one
    /// on rows.
    pub fn keeps_locks(&self) -> bool {
        self.client.keeps_locks
    }

    /// Which of the hosts this is.
    pub fn address(&self) -> SocketAddr {
        self.client.connection.address
    }

    /// Lets time pass.
    pub fn pause(&self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    /// Carries out a statement.
    ///
    /// # Errors
    /// The error that answered it, or that nothing did. After the latter the connection is of no
    /// use.
    pub fn query(
        &mut self,
        text: &str,
        values: &[Option<Vec<u8>>],
        consistency: Consistency,
        serial: Option<Consistency>,
    ) -> Result<Table, Failed> {
        let answer = self.client.query(text, values, (consistency, serial), self.limit);
        self.runtime.block_on(answer)
    }
}

impl From<ControlError> for Failed {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Node { code, message } => Failed { code: Some(code), message },
            other => failed(&other.to_string()),
        }
    }
}

fn failed(message: &str) -> Failed {
    Failed { code: None, message: message.to_owned() }
}

fn addresses(host: &str) -> Result<Vec<SocketAddr>, Failed> {
    let (name, port) = split_host_port(host).map_err(|why| failed(&format!("{host:?} {why}")))?;
    let found = (name, port.unwrap_or(CQL_PORT)).to_socket_addrs();
    Ok(found.map_err(|error| failed(&format!("{host}: {error}")))?.collect())
}

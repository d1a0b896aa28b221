//! A CQL client: one connection, one statement at a time. [`Client`] serves the commands of the
//! binary, which may block; [`AsyncClient`] serves callers with other work meanwhile.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{Consistency, QueryParams, ResultMessage, Value, ValueList, encode};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::access::Access;
use super::connection::Connection;
use super::error::ControlError;
use super::handshake::{self, Session};
use crate::config::{CQL_PORT, split_host_port};

/// Option in SUPPORTED that tells a proxy from a node.
pub const PROXY_KEY: &str = "SHUNT_PROXY";

/// Option in SUPPORTED of a proxy of a fleet, which executes statements on locks as such; the value
/// is their version.
pub const LOCKS_KEY: &str = "SHUNT_LOCKS";

/// Option in STARTUP to a proxy of a fleet: the way to log in. [`LOGIN_PASSWORD`] is the only one.
/// Members speak for clients, with the clients' logins and a certificate of their own, which must
/// not decide on the role.
pub const LOGIN_KEY: &str = "SHUNT_LOGIN";

/// The value of [`LOGIN_KEY`] that asks for a login by password.
pub const LOGIN_PASSWORD: &str = "password";

/// Wait for one host before the next is tried in parallel.
const STAGGER: Duration = Duration::from_millis(250);

/// A failed statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Code of the node's or the proxy's error; `None` if there was no answer.
    pub code: Option<i32>,
    /// Message for users.
    pub message: String,
}

/// The rows of an answer; empty if the answer has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Raw values; `None` for null.
    pub rows: Vec<Vec<Option<Vec<u8>>>>,
}

impl Table {
    /// A value of a row.
    pub fn get(&self, row: usize, column: &str) -> Option<&[u8]> {
        let place = self.columns.iter().position(|name| name == column)?;
        self.rows.get(row)?.get(place)?.as_deref()
    }
}

/// A logged-in connection. Dropping it closes the connection, and a proxy drops what waits for it.
#[derive(Debug)]
pub struct AsyncClient {
    connection: Connection,
    is_proxy: bool,
    keeps_locks: bool,
}

impl AsyncClient {
    /// Connects and logs in.
    ///
    /// # Errors
    /// The host does not answer, or refuses the login; only a refusal has a code.
    pub async fn connect(address: SocketAddr, access: &Access) -> Result<AsyncClient, Failed> {
        let refused =
            |error: ControlError| Failed { code: error.code(), message: error.to_string() };
        let session = handshake::connect(address, access).await.map_err(refused)?;
        let Session { connection, is_proxy, keeps_locks, .. } = session;
        Ok(AsyncClient { connection, is_proxy, keeps_locks })
    }

    /// Connects to the first of these servers that answers. If one is silent for [`STAGGER`], the
    /// next is tried in parallel, so that a dead host does not cost a whole time-out.
    ///
    /// # Errors
    /// No address answered: the error of each, and the code of a refusal.
    pub(super) async fn connect_first(
        servers: Vec<Server>,
        access: &Access,
    ) -> Result<AsyncClient, Vec<(SocketAddr, Failed)>> {
        let (mut attempts, mut failed) = (JoinSet::new(), Vec::new());
        let mut untried = servers.into_iter();
        loop {
            if let Some(Server { address, name }) = untried.next() {
                let access = Access { name, ..access.clone() };
                attempts.spawn(async move {
                    let connected = AsyncClient::connect(address, &access).await;
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

    /// Same as [`Client::keeps_locks`].
    pub fn keeps_locks(&self) -> bool {
        self.keeps_locks
    }

    /// Executes a statement within `limit`.
    ///
    /// # Errors
    /// The error in the answer, or the lack of one. After the latter, or when the caller dropped
    /// the future, the connection is unusable.
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

/// An [`AsyncClient`] with its runtime.
pub struct Client {
    runtime: Runtime,
    client: AsyncClient,
    limit: Duration,
}

impl Client {
    /// Connects to the first of these hosts (HOST or HOST:PORT) that answers. With TLS, its
    /// certificate must be for that host. The limit of `access` also holds for later statements.
    ///
    /// # Errors
    /// No host answers, or one refuses the login; the message has the outcome of each. A refusal
    /// has a code.
    pub fn connect(hosts: &[String], access: &Access) -> Result<Client, Failed> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed(&error.to_string()))?;
        let (mut all, mut unknown) = (Vec::new(), Vec::new());
        for host in hosts {
            match servers(host) {
                Ok(found) => all.extend(found),
                Err(failed) => unknown.push(failed.message),
            }
        }
        let refused = match runtime.block_on(AsyncClient::connect_first(all, access)) {
            Ok(client) => return Ok(Client { runtime, client, limit: access.limit }),
            Err(refused) => refused,
        };
        let code = refused.iter().rev().find_map(|(_, failed)| failed.code);
        let told = refused.iter().map(|(address, failed)| format!("{address}: {}", failed.message));
        Err(Failed { code, message: told.chain(unknown).collect::<Vec<_>>().join("; ") })
    }

    /// True if the host is a proxy, not a node.
    pub fn is_proxy(&self) -> bool {
        self.client.is_proxy
    }

    /// True if the host is a proxy of a fleet: other hosts may execute a statement on locks as one
    /// on rows.
    pub fn keeps_locks(&self) -> bool {
        self.client.keeps_locks
    }

    /// Address of the connected host.
    pub fn address(&self) -> SocketAddr {
        self.client.connection.address
    }

    /// Sleeps.
    pub fn pause(&self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    /// Executes a statement.
    ///
    /// # Errors
    /// The error in the answer, or the lack of one. After the latter the connection is unusable.
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

/// An address of a host, and the name that a user gave to the host.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) name: Option<Arc<str>>,
}

fn servers(host: &str) -> Result<Vec<Server>, Failed> {
    let (name, port) = split_host_port(host).map_err(|why| failed(&format!("{host:?} {why}")))?;
    let found = (name, port.unwrap_or(CQL_PORT)).to_socket_addrs();
    let found = found.map_err(|error| failed(&format!("{host}: {error}")))?;
    let name: Arc<str> = name.into();
    Ok(found.map(|address| Server { address, name: Some(Arc::clone(&name)) }).collect())
}

//! Requests go to the proxy of the fleet that owns them, over one connection for each core, proxy
//! and login. A request for a lock is an ordinary statement on the tables of locks. The connection
//! has the client's own login, and the statement names the client's table. The other proxy can thus
//! check the client, and ask a node about its rights ([`crate::locks::permission`]). The payload
//! gives a client that sends it no advantage.
//!
//! A forwarded statement says so in its custom payload, and is not forwarded again. Two proxies
//! that each take the other for the owner thus do not send it back and forth.
//!
//! A request must never have two answers, or none. An answer must never say that a request was not
//! carried out if it was sent and has no answer. If a client leaves, its request is withdrawn, and
//! a lock that it was granted is given back.
//!
//! | module | what happens there |
//! |---|---|
//! | [`request`] | a request is written as a statement |
//! | [`open`] | connections are opened |
//! | [`connection`] | connections are watched and closed; answers come in |
//! | [`pause`] | no connection is opened for a while after TLS or a login has failed |
//! | [`answer`] | an answer is read |
//! | [`quota`] | requests in flight have limits, of which each role has a share |
//! | [`withdrawal`] | requests of clients that are gone are withdrawn |

pub(crate) mod request;
pub(crate) mod connection;
mod open;
mod pause;
mod answer;
mod quota;
pub(crate) mod withdrawal;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use shunt_fleet::{SHARDS, Shard};
use shunt_language::lock_tables::Table;
use shunt_locks::{Namespace, Ticket};
use shunt_reactor::ConnId;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{BytesMap, split_request_prefix};
use shunt_wire::cql::reader::EnvelopeReader;
use slab::Slab;

use self::pause::Pauses;
use self::quota::{ForwardQuota, RequestKind, Usage};
use crate::locks::request::Operation;

/// Key in the custom payload of a forwarded statement.
pub(crate) const PAYLOAD: &str = shunt_transactions::guard::request::FORWARDED_STATEMENT;
/// Value under that key.
const FORWARDED: u8 = 1;
/// Value for the release of a lock whose client has left.
pub(crate) const GIVES_BACK: u8 = 2;
/// Key in the custom payload of a forwarded transaction. The value is the encoding of
/// [`shunt_transactions::request::Request`].
pub(crate) const TRANSACTION: &str = shunt_transactions::guard::request::FORWARDED_TRANSACTION;
/// Value for a renewal whose mode is the one that the client named. A proxy that does not know the
/// value reads [`FORWARDED`].
pub(crate) const NAMES_MODE: u8 = 4;
/// First byte of the value in an OPTIONS that withdraws a request. The stream id of the request
/// follows.
const WITHDRAWS: u8 = 3;
/// Version of the protocol between proxies.
const VERSION: u8 = 4;

/// The transaction in a statement that another proxy has forwarded; `None` in other statements.
/// Nothing proves that a proxy sent it.
pub(crate) fn transaction_in<'a>(
    header: &Header,
    payload: Option<&BytesMap<'a>>,
) -> Option<&'a [u8]> {
    let payload = payload.filter(|_| header.opcode == opcode::QUERY)?;
    payload.iter().find(|(key, _)| *key == TRANSACTION)?.1
}

/// True for a request that says that another proxy has forwarded it.
pub(crate) fn is_forwarded(header: &Header, body: &[u8]) -> bool {
    let read = split_request_prefix(header.flags, body);
    let payload = read.ok().and_then(|(payload, _)| payload);
    payload
        .is_some_and(|payload| payload.iter().any(|(key, _)| key == PAYLOAD || key == TRANSACTION))
}

/// True for a message with such a transaction. It waits at the proxy that forwarded it, not on this
/// connection, which other requests share. A client gains nothing by the payload, because the proxy
/// never sends such a message on, and begins no transaction while it does not know modes.
pub(crate) fn has_transaction(header: &Header, body: &[u8]) -> bool {
    split_request_prefix(header.flags, body)
        .is_ok_and(|(payload, _)| transaction_in(header, payload.as_ref()).is_some())
}

/// Stream id of probes, of the handshake, and of messages that withdraw requests.
const STREAM: i16 = 0;

/// Addresses of the owners of other proxies' shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owners(pub(crate) [Option<SocketAddr>; SHARDS]);

/// A login, as its SASL token; `None` without logins.
pub(crate) type Login = Option<Arc<[u8]>>;

/// Stage of a connection that is being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Connecting,
    Startup,
    Login,
    Ready,
}

/// Place of a forwarded request: a connection, and an index on it. Both may belong to another
/// request by now, which has another ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Via {
    link: usize,
    place: usize,
}

impl Via {
    fn stream(self) -> i16 {
        self.place as i16 + 1
    }
}

/// A request that was forwarded.
#[derive(Debug)]
struct Sent {
    ticket: Ticket,
    /// The request on a lock; `None` for a transaction.
    lock: Option<SentLock>,
    /// Name and owner of the lock, to release it if the client leaves.
    texts: Vec<u8>,
    name_bytes: usize,
    /// True once the request was written to the connection. Before that it was certainly not
    /// carried out.
    is_sent: bool,
    /// Deadline of the answer.
    due_ns: u64,
    /// True if the deadline has passed and the client has its answer.
    is_told: bool,
}

impl Sent {
    fn kind(&self) -> RequestKind {
        RequestKind::of(self.lock.map(|lock| lock.operation))
    }
}

/// A forwarded request for a lock.
#[derive(Clone, Copy, Debug)]
struct SentLock {
    operation: Operation,
    table: Table,
    namespace: Namespace,
}

/// A connection to another proxy.
struct HopLink {
    conn: ConnId,
    address: SocketAddr,
    login: Login,
    /// Login of the connection.
    role: Option<Arc<str>>,
    step: Step,
    reader: EnvelopeReader,
    /// Requests by stream id, less one.
    sent: Slab<Sent>,
    /// Numbers of these requests by kind.
    usage: Usage,
    /// Messages that wait until the connection is ready.
    unsent: Vec<u8>,
    opened_ns: u64,
    last_received_ns: u64,
    /// Time of the last use.
    used_ns: u64,
    /// Time of an OPTIONS without an answer; 0 if there is none.
    probed_ns: u64,
}

/// The owner of connections to other proxies.
#[derive(Default)]
pub(crate) struct Peers {
    links: Slab<HopLink>,
    by: HashMap<(SocketAddr, Login), usize>,
    pauses: Pauses,
    quota: ForwardQuota,
    pub(crate) owners: Option<Arc<Owners>>,
}

impl Peers {
    /// Puts a request on a connection. Returns `None` if the connection, or the share of the role,
    /// is full.
    fn add(&mut self, key: usize, sent: Sent) -> Option<Via> {
        let link = self.links.get_mut(key)?;
        let kind = sent.kind();
        if !link.usage.has_room_on_connection(kind) || !self.quota.has_room(&link.role, kind) {
            return None;
        }
        self.quota.add(&link.role, kind);
        link.usage.add(kind);
        Some(Via { link: key, place: link.sent.insert(sent) })
    }

    /// Removes an answered request from its connection.
    fn take(&mut self, key: usize, place: usize) -> Option<Sent> {
        let link = self.links.get_mut(key)?;
        let sent = link.sent.try_remove(place)?;
        link.usage.subtract(sent.kind());
        self.quota.subtract(&link.role, sent.kind());
        Some(sent)
    }

    /// Removes a connection with the requests on it.
    fn remove(&mut self, key: usize) -> Option<HopLink> {
        let link = self.links.try_remove(key)?;
        link.sent.iter().for_each(|(_, sent)| self.quota.subtract(&link.role, sent.kind()));
        Some(link)
    }

    /// The proxy that owns a shard, if it is another one.
    #[inline]
    pub(crate) fn owner(&self, shard: Shard) -> Option<SocketAddr> {
        self.owners.as_ref().and_then(|owners| owners.0[usize::from(shard) % SHARDS])
    }

    /// True if no connection to this proxy may be opened now with this login, because TLS failed or
    /// the proxy refused the login.
    pub(crate) fn is_paused(&self, to: SocketAddr, login: &Login, now_ns: u64) -> bool {
        self.pauses.holds(to, login, now_ns)
    }

    /// True if other proxies own shards.
    pub(crate) fn has_peers(&self) -> bool {
        self.owners.as_ref().is_some_and(|owners| owners.0.iter().any(Option::is_some))
    }
}

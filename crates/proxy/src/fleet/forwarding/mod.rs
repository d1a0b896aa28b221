//! Requests that another proxy of the fleet owns are forwarded to it, over one connection for each
//! core, proxy and login. A request for a lock is an ordinary statement on the tables of locks. The
//! connection has the client's own login, so that the other proxy checks it as it would check the
//! client, and asks a node what that login is allowed ([`crate::locks::permission`]): a statement
//! names the same table as the client's. The payload says nothing that could be of use to a client
//! that sends it.
//!
//! A statement that was forwarded says so in its custom payload, and is not forwarded again: two
//! proxies that think of each other as the owner do not send it round.
//!
//! This must never answer a request twice or not at all, nor say of one that was sent and not
//! answered that it was not carried out. The request of a client that leaves meanwhile is
//! withdrawn, and what it was granted by then is given back.
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

/// The key of the custom payload of a statement that was forwarded.
pub(crate) const PAYLOAD: &str = shunt_transactions::guard::request::FORWARDED_STATEMENT;
/// Value of that key.
const FORWARDED: u8 = 1;
/// Its value where a lock is released that was granted to nobody who wants it.
pub(crate) const GIVES_BACK: u8 = 2;
/// The key in the custom payload of a transaction that was forwarded; its value is what
/// [`shunt_transactions::request::Request`] writes.
pub(crate) const TRANSACTION: &str = shunt_transactions::guard::request::FORWARDED_TRANSACTION;
/// Its value of a renewal that names the mode that its client has named. For a proxy that does not
/// know it, it is [`FORWARDED`].
pub(crate) const NAMES_MODE: u8 = 4;
/// Its first byte in an OPTIONS that withdraws a request; the stream id of that is behind it.
const WITHDRAWS: u8 = 3;
/// Version of the protocol between proxies.
const VERSION: u8 = 4;

/// The transaction in a statement that another proxy has forwarded; none in others. Nothing proves
/// that it comes from a proxy.
pub(crate) fn transaction_in<'a>(
    header: &Header,
    payload: Option<&BytesMap<'a>>,
) -> Option<&'a [u8]> {
    let payload = payload.filter(|_| header.opcode == opcode::QUERY)?;
    payload.iter().find(|(key, _)| *key == TRANSACTION)?.1
}

/// True of a message with such a transaction. It waits at the proxy that has forwarded it, and not
/// on this connection, which other requests share. A client gains nothing by the payload: the
/// proxy never sends such a message on, and begins no transaction while it does not know modes.
pub(crate) fn has_transaction(header: &Header, body: &[u8]) -> bool {
    split_request_prefix(header.flags, body)
        .is_ok_and(|(payload, _)| transaction_in(header, payload.as_ref()).is_some())
}

/// The stream id of probes, of the handshake, and of what withdraws requests.
const STREAM: i16 = 0;

/// Addresses of the owners of other proxies' shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owners(pub(crate) [Option<SocketAddr>; SHARDS]);

/// A login, as its SASL token; none where nobody logs in.
pub(crate) type Login = Option<Arc<[u8]>>;

/// State of a connection that is being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Connecting,
    Startup,
    Login,
    Ready,
}

/// Where a request is that was forwarded: a connection, and its place there. Both may be another's
/// by now: the ticket says so.
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
    /// Name and owner of a lock that is asked for, to release it should the client be gone by then.
    texts: Vec<u8>,
    name_bytes: usize,
    /// The request was written to the connection; before that it certainly was not carried out.
    is_sent: bool,
    /// Deadline of the answer.
    due_ns: u64,
    /// The deadline passed, and the client was told so.
    is_told: bool,
}

impl Sent {
    fn kind(&self) -> RequestKind {
        RequestKind::of(self.lock.map(|lock| lock.operation))
    }
}

/// A request on a lock that was forwarded.
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
    /// By stream id, less one.
    sent: Slab<Sent>,
    /// Numbers of the requests in `sent`, by kind.
    usage: Usage,
    /// Messages that wait for the connection to be ready.
    unsent: Vec<u8>,
    opened_ns: u64,
    last_received_ns: u64,
    /// Time of the last use.
    used_ns: u64,
    /// Time of an OPTIONS that is not answered; 0 if there is none.
    probed_ns: u64,
}

/// The owner of the ways to other proxies.
#[derive(Default)]
pub(crate) struct Peers {
    links: Slab<HopLink>,
    by: HashMap<(SocketAddr, Login), usize>,
    pauses: Pauses,
    quota: ForwardQuota,
    pub(crate) owners: Option<Arc<Owners>>,
}

impl Peers {
    /// Puts a request on a connection. None: the connection, or the share of its role, is full.
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

    /// Takes a request off its connection: it is answered.
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

    /// The other proxy whose a shard is.
    #[inline]
    pub(crate) fn owner(&self, shard: Shard) -> Option<SocketAddr> {
        self.owners.as_ref().and_then(|owners| owners.0[usize::from(shard) % SHARDS])
    }

    /// True if no connection to this proxy is opened now with this login, because TLS with the
    /// proxy has failed, or because it has refused the login.
    pub(crate) fn is_paused(&self, to: SocketAddr, login: &Login, now_ns: u64) -> bool {
        self.pauses.holds(to, login, now_ns)
    }

    /// True if other proxies have shards.
    pub(crate) fn has_peers(&self) -> bool {
        self.owners.as_ref().is_some_and(|owners| owners.0.iter().any(Option::is_some))
    }
}

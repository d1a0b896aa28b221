//! The nodes behind the proxy and the links to them.
//!
//! A link is one connection to one node, shared by all clients of one pool. [`open`] connects it,
//! [`handshake`] and [`identity`] bring it to where it takes queries, [`keep`] keeps the right ones
//! open and gives up those that break, [`watch`] probes them, [`upgrade`] moves them to the port
//! where a node takes aggregated frames, [`ring`] follows the ring. [`streams`] remembers what is
//! in flight on a link; [`pool`] says who may share it, [`pools`] gives pools out, [`refusal`]
//! ends those whom no node takes any more. [`links`] holds them all.
//!
//! Requests are put on a link by [`crate::aggregate`] and come back through
//! [`crate::disaggregate`].

pub(crate) mod handshake;
pub(crate) mod identity;
pub(crate) mod keep;
pub(crate) mod links;
pub(crate) mod open;
pub(crate) mod pool;
pub(crate) mod pools;
pub(crate) mod refusal;
pub(crate) mod ring;
pub(crate) mod streams;
pub(crate) mod upgrade;
pub(crate) mod watch;

use std::sync::Arc;
use std::time::Duration;

use shunt_handover::session::OwnerHandshake;
use shunt_reactor::{ConnId, Io};
use shunt_topology::{Backoff, NodeId};
use shunt_wire::aggregate::{AggregateWriter, Limits, Offer};
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::frame_v5::SegmentWriter;
use shunt_wire::cql::reader::EnvelopeReader;

use crate::ids::{ClientRef, LinkRef, PoolId, Ticket};
use crate::limits;
use crate::metrics::NodeMetrics;

pub(crate) use pool::{Pool, PoolKey, Pools, Verdict};
pub(crate) use streams::{Kept, Pending, Purpose, Recipient, Streams};

/// How requests are laid out on a link.
#[allow(clippy::large_enum_variant, reason = "one per link, and used on every query")]
pub(crate) enum LinkWriter {
    /// v3/v4: one envelope after the other.
    Envelopes,
    /// v5: envelopes in segments.
    Segments(SegmentWriter),
    /// Aggregated frames (opcode 0x64) on a v4 connection.
    Aggregate(AggregateWriter),
}

/// How far the opening of a link has come; each step waits for the node's answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Connecting,
    /// The agent that it goes through and the proxy show one another the key.
    Agent,
    Options,
    Startup,
    Login,
    Identity,
    Use,
    Ready,
}

/// The purpose of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// To take queries.
    Serves,
    /// To see whether a login is right; closed afterwards.
    Verifies,
    /// To take the place of this link, if that is still there.
    Replaces(LinkRef),
}

/// One connection to a node.
pub(crate) struct Link {
    pub(crate) conn: ConnId,
    pub(crate) node: NodeId,
    pub(crate) pool: PoolId,
    pub(crate) step: Step,
    pub(crate) role: Role,
    /// The agent on its node's host that it goes through.
    pub(crate) via: Option<u32>,
    /// The handshake with that, until it is over.
    pub(crate) agent: Option<Box<OwnerHandshake>>,
    /// The node's port it is connected to.
    pub(crate) port: u16,
    pub(crate) writer: LinkWriter,
    /// v5: whether what the node sends is in segments.
    pub(crate) segmented: bool,
    /// Version of envelopes on this connection.
    pub(crate) version: u8,
    /// Version of what its pool's clients ask; in aggregated frames another than that of the
    /// envelopes.
    pub(crate) body_version: u8,
    /// Compression of its bodies (v3, v4), if they are compressed.
    pub(crate) compression: Option<Algorithm>,
    /// The node's offer of aggregated frames, if it made one for this link.
    pub(crate) aggregate: Option<Offer>,
    /// It has answered in aggregated frames.
    pub(crate) heard_frames: bool,
    pub(crate) streams: Streams,
    /// Something was written that is not flushed.
    pub(crate) dirty: bool,
    /// Queries among it.
    pub(crate) queries_unflushed: u32,
    /// Something among it must not wait for more.
    pub(crate) urgent: bool,
    /// When the first of it was written, nanoseconds.
    pub(crate) dirty_since_ns: u64,
    /// It takes no more for now; clients wait in `waiting`.
    pub(crate) full: bool,
    /// No new queries; closes when the last one in flight is answered.
    pub(crate) retiring: bool,
    /// Bytes of its requests that were copied out of its sent log or never lay in it.
    pub(crate) copied_bytes: usize,
    /// Clients held until it is not full.
    pub(crate) waiting: Vec<ClientRef>,
    pub(crate) reader: EnvelopeReader,
    pub(crate) last_received_ns: u64,
    /// When an OPTIONS was sent that is not answered; 0: none is.
    pub(crate) probe_sent_ns: u64,
    /// Streams held by timed-out queries.
    pub(crate) orphans: usize,
    /// Repairs that go on once it is ready.
    pub(crate) on_ready: Vec<Ticket>,
    /// When opening it is given up, nanoseconds.
    pub(crate) open_deadline_ns: u64,
    /// When it began to take queries, nanoseconds; 0: it does not yet.
    pub(crate) ready_ns: u64,
    /// When its node last said whether it takes aggregated frames, or was asked to, nanoseconds.
    pub(crate) offer_asked_ns: u64,
    /// Another link is being opened to take its place.
    pub(crate) is_being_replaced: bool,
}

impl Link {
    pub(crate) fn new(
        conn: ConnId,
        node: NodeId,
        port: u16,
        pool: PoolId,
        key: &PoolKey,
        in_flight_max: usize,
    ) -> Self {
        Self {
            conn,
            node,
            pool,
            step: Step::Connecting,
            role: Role::Serves,
            via: None,
            agent: None,
            port,
            writer: LinkWriter::Envelopes,
            segmented: false,
            version: key.version,
            body_version: key.version,
            compression: key.compression,
            aggregate: None,
            heard_frames: false,
            streams: Streams::new(in_flight_max),
            dirty: false,
            queries_unflushed: 0,
            urgent: false,
            dirty_since_ns: 0,
            full: false,
            retiring: false,
            copied_bytes: 0,
            waiting: Vec::new(),
            reader: EnvelopeReader::keeping(limits::CARRY_KEPT_BYTES as u32),
            last_received_ns: 0,
            probe_sent_ns: 0,
            orphans: 0,
            on_ready: Vec::new(),
            open_deadline_ns: 0,
            ready_ns: 0,
            offer_asked_ns: 0,
            is_being_replaced: false,
        }
    }

    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.step == Step::Ready && !self.retiring && self.role == Role::Serves
    }

    /// True if as many bytes as may be wait to be sent on it, or are kept for retries.
    #[inline]
    pub(crate) fn has_too_many_bytes(&self, io: &Io) -> bool {
        io.backlog(self.conn) > limits::LINK_BACKLOG_BYTES_MAX
            || io.retained_bytes(self.conn) + self.copied_bytes > limits::LINK_RETAINED_BYTES_MAX
    }

    /// From here on queries go out in the layout the node understands best.
    pub(crate) fn choose_layout(&mut self) {
        if let Some(offer) = self.aggregate {
            self.writer = LinkWriter::Aggregate(AggregateWriter::new(Limits::from(offer)));
        }
    }

    /// Something was written. Whether that is the first since the last flush: then the link is to
    /// be noted for the next.
    #[inline]
    pub(crate) fn becomes_dirty(&mut self, now_ns: u64) -> bool {
        if std::mem::replace(&mut self.dirty, true) {
            return false;
        }
        self.dirty_since_ns = now_ns;
        true
    }

    /// True if nobody waits for an answer on it.
    pub(crate) fn is_unused(&self) -> bool {
        self.streams.len() <= self.orphans
    }
}

/// The state that a core keeps of one node, whatever the pool.
pub(crate) struct NodeState {
    /// Queries in flight on all links of this core to it; what routing compares.
    pub(crate) in_flight: u32,
    /// Its answers of late that said it cannot serve; they count as queries in flight. An error
    /// comes sooner than an answer, so a node that has nothing but errors would look idle and get
    /// all there is.
    pub(crate) penalty: u32,
    /// Stream ids of its links held by queries that timed out, as of the last tick.
    pub(crate) orphaned: u64,
    /// It has been probed and has not answered: used only when nobody else can.
    pub(crate) silent: bool,
    /// Somebody else answered at its address when it was last looked at.
    pub(crate) stranger: bool,
    /// Where it takes aggregated frames, if not on its ordinary port.
    pub(crate) upgrade: Upgrade,
    pub(crate) metrics: Arc<NodeMetrics>,
}

/// A core's knowledge of where a node takes aggregated frames.
pub(crate) struct Upgrade {
    /// The port, as the node said last; `None`: it takes none.
    pub(crate) port: Option<u16>,
    pub(crate) backoff: Backoff,
    /// When frames may be tried again, nanoseconds.
    pub(crate) not_before_ns: u64,
}

impl Default for Upgrade {
    fn default() -> Self {
        let first = Duration::from_nanos(limits::UPGRADE_RETRY_FIRST_NS);
        let backoff = Backoff::new(first, Duration::from_nanos(limits::UPGRADE_RETRY_MAX_NS));
        Self { port: None, backoff, not_before_ns: 0 }
    }
}

impl Upgrade {
    /// Frames could not be used, or their link broke; returns after how many nanoseconds it is
    /// tried again. Failures before that do not lengthen it.
    pub(crate) fn failed(&mut self, now_ns: u64, random: u64) -> u64 {
        if now_ns >= self.not_before_ns {
            self.not_before_ns = now_ns + self.backoff.next(random).as_nanos() as u64;
        }
        self.not_before_ns - now_ns
    }
}

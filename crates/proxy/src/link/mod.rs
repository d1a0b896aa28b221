//! The nodes behind the proxy and the links to them.
//!
//! A link is one connection to one node, shared by all clients of one pool. [`open`] connects it,
//! [`handshake`] and [`identity`] prepare it for queries, [`lifecycle`] keeps the right ones open
//! and gives up those that break, [`client_certificate`] judges those whose certificate a node may
//! have refused ([`certificate_ends`] counts them), [`watch`] probes them, [`upgrade`] moves them
//! to the port where a node takes aggregated frames, [`renewal`] replaces those with old
//! certificates, [`ring`] follows the ring. [`judgement`] finds nodes that are [`outliers`], and
//! [`lateness`] reads that are late.
//! [`streams`] remembers the requests in flight on a link; [`pool`] defines who may share it,
//! [`pools`] assigns pools, [`verdict`] is a node's refusal, [`refusal`] closes the clients that no
//! node takes any more. Clients share a crowded link ([`shares`]) and wait for it ([`waiting`]).
//! [`links`] holds them all.
//!
//! [`crate::aggregate`] puts requests on a link, and they come back through
//! [`crate::disaggregate`].

pub(crate) mod allowance;
pub(crate) mod certificate_ends;
pub(crate) mod client_certificate;
pub(crate) mod closing;
pub(crate) mod handshake;
pub(crate) mod identity;
pub(crate) mod judgement;
pub(crate) mod lateness;
pub(crate) mod legs;
pub(crate) mod lifecycle;
pub(crate) mod links;
pub(crate) mod open;
pub(crate) mod openings;
pub(crate) mod outliers;
pub(crate) mod pool;
pub(crate) mod pool_table;
pub(crate) mod pools;
pub(crate) mod refusal;
pub(crate) mod renewal;
pub(crate) mod ring;
pub(crate) mod shares;
pub(crate) mod streams;
pub(crate) mod upgrade;
pub(crate) mod verdict;
pub(crate) mod waiting;
pub(crate) mod watch;

use std::collections::VecDeque;
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
use crate::limits::LINK_RESERVE_PARTS as PARTS;
use crate::metrics::NodeMetrics;

pub(crate) use openings::{Opening, Openings};
pub(crate) use pool::{Pool, PoolKey};
pub(crate) use pool_table::{Pools, Shortage};
pub(crate) use shares::{Bounds, Shares};
pub(crate) use streams::{Kept, Pending, Purpose, Recipient, Streams};
pub(crate) use verdict::Verdict;

/// The layout of requests on a link.
#[allow(clippy::large_enum_variant, reason = "one per link, and used on every query")]
pub(crate) enum LinkWriter {
    /// v3/v4: one envelope after the other.
    Envelopes,
    /// v5: envelopes in segments.
    Segments(SegmentWriter),
    /// Aggregated frames (opcode 0x64) on a v4 connection.
    Aggregate(AggregateWriter),
}

/// Progress of opening a link; each step waits for the node's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Connecting,
    /// The agent on the route and the proxy prove to each other that they have the key.
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
    /// Serves queries.
    Serves,
    /// Checks whether a login is right; closed afterwards.
    Verifies,
    /// Takes the place of this link, if that is still there, to carry aggregated frames.
    Replaces(LinkRef),
    /// Takes the place of this link, with the present certificates.
    Renews(LinkRef),
}

/// One connection to a node.
pub(crate) struct Link {
    pub(crate) conn: ConnId,
    pub(crate) node: NodeId,
    pub(crate) pool: PoolId,
    pub(crate) step: Step,
    pub(crate) role: Role,
    /// The agent on its node's host, if the link goes through it.
    pub(crate) via: Option<u32>,
    /// The handshake with the agent, until it is over.
    pub(crate) agent: Option<Box<OwnerHandshake>>,
    /// The node's port that it is connected to.
    pub(crate) port: u16,
    pub(crate) writer: LinkWriter,
    /// v5: true if the node's bytes are in segments.
    pub(crate) segmented: bool,
    /// Version of envelopes on this connection.
    pub(crate) version: u8,
    /// Version of its pool's requests; in aggregated frames it differs from that of the envelopes.
    pub(crate) body_version: u8,
    /// Compression of its bodies (v3, v4), if they are compressed.
    pub(crate) compression: Option<Algorithm>,
    /// The node's offer of aggregated frames, if it made one for this link.
    pub(crate) aggregate: Option<Offer>,
    /// True once the node has answered in aggregated frames.
    pub(crate) heard_frames: bool,
    pub(crate) streams: Streams,
    /// True if it has unflushed output.
    pub(crate) dirty: bool,
    /// Number of queries in the unflushed output.
    pub(crate) queries_unflushed: u32,
    /// True if a request in it must not wait for more.
    pub(crate) urgent: bool,
    /// Time of the first unflushed write, nanoseconds.
    pub(crate) dirty_since_ns: u64,
    /// True if it takes no more for now; clients wait in `waiting`.
    pub(crate) full: bool,
    /// True if the core reads from the clients in line at the end of this turn.
    pub(crate) is_reopening: bool,
    /// True if it takes no new queries; it closes when the last one in flight is answered.
    pub(crate) retiring: bool,
    /// Bytes of its requests that were copied out of its sent log or never lay in it.
    pub(crate) copied_bytes: usize,
    /// Clients held until it is not full.
    pub(crate) waiting: VecDeque<ClientRef>,
    /// True if less than the reserve is left: clients that have their part wait.
    pub(crate) crowded: bool,
    /// Its clients, if it is or was crowded.
    pub(crate) shares: Option<Box<Shares>>,
    pub(crate) reader: EnvelopeReader,
    pub(crate) last_received_ns: u64,
    /// Time of the unanswered OPTIONS; 0 if none is out.
    pub(crate) probe_sent_ns: u64,
    /// Streams held by timed-out queries.
    pub(crate) orphans: usize,
    /// Streams held by hedged reads that another node answered first. Such a node is slow, but its
    /// queries did not time out.
    pub(crate) overtaken: usize,
    /// Repairs that go on once it is ready.
    pub(crate) on_ready: Vec<Ticket>,
    /// The counter that it counts to until it is open; none: it costs no login of a client.
    pub(crate) opening: Option<Opening>,
    /// Deadline for opening it, nanoseconds.
    pub(crate) open_deadline_ns: u64,
    /// Time since which it takes queries, nanoseconds; 0: it does not yet.
    pub(crate) ready_ns: u64,
    /// Time of its node's last answer about aggregated frames, or of the last question,
    /// nanoseconds.
    pub(crate) offer_asked_ns: u64,
    /// True while another link opens to take its place.
    pub(crate) is_being_replaced: bool,
    /// Generation of TLS to nodes that it was opened with, or the number of what it proves and
    /// verifies by the certificate of an identity.
    pub(crate) generation: u64,
    /// Time of the last attempt to renew it, nanoseconds; 0: there was none.
    pub(crate) renewal_tried_ns: u64,
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
            waiting: VecDeque::new(),
            crowded: false,
            shares: None,
            is_reopening: false,
            reader: EnvelopeReader::keeping(limits::CARRY_KEPT_BYTES as u32),
            last_received_ns: 0,
            probe_sent_ns: 0,
            orphans: 0,
            overtaken: 0,
            on_ready: Vec::new(),
            opening: None,
            open_deadline_ns: 0,
            ready_ns: 0,
            offer_asked_ns: 0,
            is_being_replaced: false,
            generation: 0,
            renewal_tried_ns: 0,
        }
    }

    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.step == Step::Ready && !self.retiring && self.role == Role::Serves
    }

    /// True if the bytes that wait to be sent, or that are kept for retries, reach their bound.
    #[inline]
    pub(crate) fn has_too_many_bytes(&self, io: &Io) -> bool {
        io.backlog(self.conn) > limits::LINK_BACKLOG_BYTES_MAX
            || self.kept_bytes(io) > limits::LINK_RETAINED_BYTES_MAX
    }

    /// True if less than the reserve of its streams or bytes is left.
    #[inline]
    pub(crate) fn is_crowded(&self, io: &Io) -> bool {
        self.streams.is_crowded() || self.has_crowded_backlog(io) || self.keeps_many_bytes(io)
    }

    /// The same for a link whose clients wait. The buffers that the kernel has not taken completely
    /// count, too, at their whole size: the kept bytes have them a moment later. A link that is not
    /// crowded need not look at them, because the next large request crowds it by its unsent bytes.
    pub(crate) fn stays_crowded(&self, io: &Io) -> bool {
        let bytes = self.kept_bytes(io) + io.output_memory(self.conn);
        self.is_crowded(io) || bytes > limits::LINK_RETAINED_BYTES_CROWDED
    }

    /// Bytes kept for retries. Those in buffers that are still being sent do not count.
    #[inline]
    pub(crate) fn kept_bytes(&self, io: &Io) -> usize {
        io.retained_bytes(self.conn) + self.copied_bytes
    }

    #[inline]
    fn has_crowded_backlog(&self, io: &Io) -> bool {
        io.backlog(self.conn) > limits::LINK_BACKLOG_BYTES_MAX / PARTS * (PARTS - 1)
    }

    #[inline]
    fn keeps_many_bytes(&self, io: &Io) -> bool {
        self.kept_bytes(io) > limits::LINK_RETAINED_BYTES_CROWDED
    }

    /// True if it takes a request of this client now.
    #[inline]
    pub(crate) fn takes(&self, client: ClientRef) -> bool {
        !self.crowded || self.takes_in_a_crowd(client)
    }

    #[cold]
    fn takes_in_a_crowd(&self, client: ClientRef) -> bool {
        !self.full && !self.shares.as_ref().is_some_and(|shares| shares.has_part(client))
    }

    /// Notes that less than the reserve is left, and whether nothing is. `length`: that of a
    /// request's bytes.
    #[cold]
    pub(crate) fn crowd(&mut self, io: &mut Io, length: impl Fn(Kept) -> usize) {
        self.full |= self.streams.is_full() || self.has_too_many_bytes(io);
        self.crowded = true;
        let (has_backlog, keeps_many) = (self.has_crowded_backlog(io), self.keeps_many_bytes(io));
        let bounds = Bounds { streams: self.streams.max(), bytes: limits::LINK_RETAINED_BYTES_MAX };
        let requests = self.streams.iter();
        let requests = requests.map(|(_, it)| (it.client, length(it.kept)));
        let shares = self.shares.get_or_insert_with(|| Box::new(Shares::new(bounds, requests)));
        let bytes = match (has_backlog, keeps_many) {
            (true, _) => limits::LINK_BACKLOG_BYTES_MAX,
            // Buffers are larger than the requests in them.
            (false, true) => shares.bytes().min(bounds.bytes),
            (false, false) => bounds.bytes,
        };
        shares.crowd(Bounds { bytes, ..bounds });
        io.notify_drained(self.conn, limits::LINK_BACKLOG_BYTES_LOW);
    }

    /// Frees the stream of a request that has ended. `length`: that of its bytes.
    #[inline]
    pub(crate) fn end_request(&mut self, stream: i16, length: impl Fn(Kept) -> usize) {
        if self.shares.is_some() {
            self.end_share(stream, length);
        }
        self.streams.remove(stream);
    }

    #[cold]
    fn end_share(&mut self, stream: i16, length: impl Fn(Kept) -> usize) {
        let (Some(pending), Some(shares)) = (self.streams.get(stream), &mut self.shares) else {
            return;
        };
        if shares.end(pending.client, length(pending.kept)) {
            self.waiting.push_back(pending.client);
        }
    }

    /// Counts the bytes of a client's request that are kept no longer; its stream stays taken.
    pub(crate) fn free_bytes(&mut self, client: ClientRef, bytes: usize) {
        if self.shares.as_mut().is_some_and(|shares| shares.free(client, bytes)) {
            self.waiting.push_back(client);
        }
    }

    /// All clients that wait for it, which no longer do.
    pub(crate) fn take_waiting(&mut self) -> VecDeque<ClientRef> {
        let mut waiting = std::mem::take(&mut self.waiting);
        if let Some(shares) = &mut self.shares {
            waiting.extend(std::iter::from_fn(|| shares.next()));
        }
        waiting
    }

    /// Number of clients that wait for it.
    pub(crate) fn waiting_clients(&self) -> usize {
        self.waiting.len() + self.shares.as_ref().map_or(0, |shares| shares.in_line())
    }

    /// Chooses the best layout that the node understands for queries from here on.
    pub(crate) fn choose_layout(&mut self) {
        if let Some(offer) = self.aggregate {
            self.writer = LinkWriter::Aggregate(AggregateWriter::new(Limits::from(offer)));
        }
    }

    /// Marks the link as written to. Returns whether this is the first write since the last flush:
    /// the caller then notes the link for the next.
    #[inline]
    pub(crate) fn becomes_dirty(&mut self, now_ns: u64) -> bool {
        if std::mem::replace(&mut self.dirty, true) {
            return false;
        }
        self.dirty_since_ns = now_ns;
        true
    }

    /// True if no request waits for an answer on it.
    pub(crate) fn is_unused(&self) -> bool {
        self.unanswered() == 0
    }

    /// Requests whose answer something waits for.
    #[inline]
    pub(crate) fn unanswered(&self) -> usize {
        self.streams.len().saturating_sub(self.orphans + self.overtaken)
    }
}

/// The state that a core keeps of one node, whatever the pool.
pub(crate) struct NodeState {
    /// Queries in flight on all links of this core to it; routing compares these.
    pub(crate) in_flight: u32,
    /// Recent answers that said it cannot serve; they count as queries in flight. An error comes
    /// sooner than an answer, so a node that only sends errors would look idle and attract all
    /// queries.
    pub(crate) penalty: u32,
    /// Stream ids of its links held by queries that timed out, as of the last tick.
    pub(crate) orphaned: u64,
    /// Share of the node: in this many of 255 choices, it ranks with the first. See [`outliers`].
    pub(crate) share: u8,
    /// True if it has not answered a probe: used only as the last resort.
    pub(crate) silent: bool,
    /// True if an operator has drained it: it gets requests only if no other node can take them.
    pub(crate) drained: bool,
    /// True if another node answered at its address at the last check.
    pub(crate) stranger: bool,
    /// Links to it that are opening.
    pub(crate) opening: u32,
    /// Port for aggregated frames, if not the ordinary one.
    pub(crate) upgrade: Upgrade,
    /// Pauses between renewals that fail.
    pub(crate) renewal: Renewal,
    pub(crate) metrics: Arc<NodeMetrics>,
}

impl NodeState {
    /// A node of which nothing is known yet.
    pub(crate) fn new(metrics: Arc<NodeMetrics>) -> Self {
        Self {
            in_flight: 0,
            penalty: 0,
            share: outliers::SHARE_FULL,
            orphaned: 0,
            silent: false,
            drained: false,
            stranger: false,
            opening: 0,
            upgrade: Upgrade::default(),
            renewal: Renewal::default(),
            metrics,
        }
    }
}

/// A core's knowledge of the port where a node takes aggregated frames.
pub(crate) struct Upgrade {
    /// The port in the node's last answer; `None`: it takes no frames.
    pub(crate) port: Option<u16>,
    pub(crate) backoff: Backoff,
    /// Earliest time of the next attempt at frames, nanoseconds.
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
    /// Notes that frames failed or that their link broke; returns the nanoseconds until the next
    /// attempt. Failures before that do not lengthen the pause.
    pub(crate) fn failed(&mut self, now_ns: u64, random: u64) -> u64 {
        if now_ns >= self.not_before_ns {
            self.not_before_ns = now_ns + self.backoff.next(random).as_nanos() as u64;
        }
        self.not_before_ns - now_ns
    }
}

/// A core's pauses between renewals of links to one node that fail.
pub(crate) struct Renewal {
    pub(crate) backoff: Backoff,
    /// Earliest time of the next attempt, nanoseconds.
    pub(crate) not_before_ns: u64,
}

impl Default for Renewal {
    fn default() -> Self {
        let first = Duration::from_millis(limits::RECONNECT_FIRST_MS);
        let max = Duration::from_millis(limits::RECONNECT_MAX_MS);
        Self { backoff: Backoff::new(first, max), not_before_ns: 0 }
    }
}

impl Renewal {
    /// Notes a failure; returns the nanoseconds until the next attempt.
    pub(crate) fn failed(&mut self, now_ns: u64, random: u64) -> u64 {
        let pause_ns = self.backoff.next(random).as_nanos() as u64;
        self.not_before_ns = now_ns + pause_ns;
        pause_ns
    }
}

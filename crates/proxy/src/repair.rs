//! Requests that need a second look before they are answered: sent again because their link died or their node turned
//! them away, answered because their time is over. Those whose statement a node does not know are in
//! [`crate::reprepare`].
//!
//! Cold code: a request comes here at most a few times in its life, and then its bytes are copied.

use shunt_reactor::{ConnId, Io, SentLog};
use shunt_topology::NodeId;
use shunt_wire::cql::message::{ErrorMessage, error_code, split_response_prefix};

use crate::client::ClientRef;
use crate::core::Core;
use crate::limits;
use crate::metrics::{GivenUp, Outcome};
use crate::node::{Pending, PoolId, Purpose, Retained};
use crate::route::{Choice, Plan, Work};

/// What Cassandra 5 says, with code OVERLOADED, to queries that reach it after it began to shut down.
const SHUTTING_DOWN: &str = "Server is shutting down";

impl Core {
    // ---- nodes that turn queries away -------------------------------------------------------------------------------

    /// A node that says it cannot serve is asked less for a while; another may be able to.
    pub(crate) fn penalise(&mut self, key: u32, flags: u8, body: &[u8]) {
        let Ok((_, body)) = split_response_prefix(flags, body) else { return };
        if !error_code::peek(body).is_some_and(cannot_serve) {
            return;
        }
        let node = self.links.get(key as usize).and_then(|link| self.nodes.get_mut(usize::from(link.node.0)));
        if let Some(node) = node {
            node.penalty = (node.penalty + 1).min(limits::NODE_PENALTY_MAX);
        }
    }

    /// An ERROR answered a client's request. If it says that the node did not even begin, because it starts, stops or
    /// is overloaded, the request goes to another node once; `false` leaves the error to the client, whose driver sees
    /// a single host and could only give up.
    pub(crate) fn repair_turned_away(
        &mut self,
        io: &mut Io,
        key: u32,
        pending: &Pending,
        flags: u8,
        body: &[u8],
    ) -> bool {
        let Ok((_, body)) = split_response_prefix(flags, body) else { return false };
        let code = error_code::peek(body);
        if !matches!(code, Some(error_code::OVERLOADED | error_code::IS_BOOTSTRAPPING)) || pending.retries > 0 {
            return false;
        }
        let Ok(error) = ErrorMessage::decode(self.version_of(key), body) else { return false };
        let leaving = error.code == error_code::OVERLOADED && error.message == SHUTTING_DOWN;
        let Some(link) = self.links.get(key as usize) else { return false };
        let (node, conn) = (link.node, link.conn);
        let Some(bytes) = self.retained_bytes_of(io.sent_of(conn, pending.retained), pending.retained) else {
            return false;
        };
        // Nothing says how far an overloaded node got.
        if error.code == error_code::OVERLOADED && !leaving && !self.may_repeat(pending, &bytes) {
            return false;
        }
        let again = Pending { retained: Retained::Nothing, ..*pending };
        if leaving {
            let (now, random) = (io.now_ns(), self.random());
            self.health.failed(node, now, random);
            self.replace_link(io, key, GivenUp::NodeLeaving);
        }
        self.send_away(io, node, again, &bytes);
        true
    }

    /// Sends a request that this node did not carry out to another one, if there is any.
    pub(crate) fn send_away(&mut self, io: &mut Io, node: NodeId, pending: Pending, body: &[u8]) {
        // For this one choice the node comes after all others.
        let silent = self.nodes.get_mut(usize::from(node.0)).map(|node| std::mem::replace(&mut node.silent, true));
        self.send_elsewhere(io, pending, body);
        if let (Some(node), Some(silent)) = (self.nodes.get_mut(usize::from(node.0)), silent) {
            node.silent = silent;
        }
    }

    // ---- lost links -------------------------------------------------------------------------------------------------

    /// A request was in flight on a link that is gone.
    pub(crate) fn request_lost(&mut self, io: &mut Io, _node: NodeId, pending: &Pending, log: &SentLog) {
        match pending.purpose {
            Purpose::Client => {
                let body = match pending.retained {
                    Retained::Sent { sequence, .. } => {
                        self.retained_bytes_of(log.get(sequence).unwrap_or_default(), pending.retained)
                    }
                    other => self.retained_bytes_of(&[], other),
                };
                let mut pending = *pending;
                self.forget_copy(&mut pending);
                pending.fate_unknown = true;
                match body {
                    Some(body) if pending.retries == 0 && self.may_repeat(&pending, &body) => {
                        self.send_elsewhere(io, pending, &body);
                    }
                    _ => self.fail_request(io, &pending, Outcome::LinkLost, "the connection to the node was lost"),
                }
            }
            Purpose::Reprepare { repair } => {
                self.forget_copy(&mut { *pending });
                self.fail_repair(io, repair);
            }
            Purpose::Spread => self.forget_copy(&mut { *pending }),
            Purpose::Heartbeat | Purpose::Orphan => {}
        }
    }

    /// Sends a request once more, to whichever node is best now.
    pub(crate) fn send_elsewhere(&mut self, io: &mut Io, mut pending: Pending, body: &[u8]) {
        pending.retries += 1;
        if self.client(pending.client).is_none() {
            self.metrics.in_flight.sub(1);
            return;
        }
        let choice = match self.choose(pending.pool, &pending.plan) {
            // It cannot wait as a client's next query can; any node that has room will do.
            Choice::Full(_) => self.choose(pending.pool, &Plan { placement: None, ..pending.plan }),
            choice => choice,
        };
        match choice {
            Choice::Link(link) if self.send_on_link(io, link, pending, body) => {
                self.metrics.outcomes.of(Outcome::Retried).add(1);
            }
            Choice::Link(_) | Choice::Full(_) => {
                self.fail_request(io, &pending, Outcome::Overloaded, "the other nodes are overloaded")
            }
            Choice::Nothing if pending.plan.node.is_some() => {
                let why = "the node that began this read cannot be reached; begin it again";
                self.fail_request(io, &pending, Outcome::LinkLost, why);
            }
            Choice::Nothing => self.fail_request(io, &pending, Outcome::LinkLost, "no other node can be reached"),
        }
    }

    // ---- time limits ------------------------------------------------------------------------------------------------

    /// Queries of a link whose time is over. Their stream ids stay taken until the node answers; a link with some that
    /// it never answers is replaced, as they count in the choice of nodes.
    pub(crate) fn expire_requests(&mut self, io: &mut Io, key: u32) {
        let now = io.now_ns();
        let Some(link) = self.links.get(key as usize) else { return };
        let conn = link.conn;
        let sweep = io.retained_bytes(conn) > limits::LINK_RETAINED_BYTES_SWEEP;
        let late: Vec<(u16, Pending)> = link
            .streams
            .iter()
            .filter(|(_, pending)| {
                let age_ns = now.saturating_sub(pending.received_ns);
                age_ns > self.timeout_ns(&pending.plan) || (sweep && age_ns > limits::SECOND_NS)
            })
            .map(|(stream, pending)| (stream, *pending))
            .collect();
        let mut never_answered = false;
        for (stream, pending) in late {
            let age_ns = now.saturating_sub(pending.received_ns);
            if age_ns <= self.timeout_ns(&pending.plan) {
                self.copy_out(io, key, stream, &pending);
                continue;
            }
            never_answered |= pending.purpose == Purpose::Orphan
                && age_ns > self.timeout_ns(&pending.plan) + limits::ORPHAN_AGE_MAX_NS;
            if matches!(pending.purpose, Purpose::Heartbeat | Purpose::Orphan) {
                continue;
            }
            if let Some(link) = self.links.get_mut(key as usize)
                && let Some(slot) = link.streams.get_mut(stream)
            {
                slot.purpose = Purpose::Orphan;
                slot.retained = Retained::Nothing;
                link.orphans += 1;
            }
            self.release(io, conn, pending.retained);
            match pending.purpose {
                Purpose::Client => {
                    let pending = Pending { fate_unknown: true, ..pending };
                    self.fail_request(io, &pending, Outcome::TimedOut, "the node did not answer in time");
                }
                Purpose::Reprepare { repair } => self.repair_is_late(io, repair),
                Purpose::Spread | Purpose::Heartbeat | Purpose::Orphan => {}
            }
        }
        if never_answered {
            self.replace_link(io, key, GivenUp::UnansweredQuery);
        }
    }

    /// Moves a slow request's bytes out of the sent log, so that the buffers it shares with others can go.
    fn copy_out(&mut self, io: &mut Io, key: u32, stream: u16, pending: &Pending) {
        if !matches!(pending.retained, Retained::Sent { .. }) {
            return;
        }
        let Some(conn) = self.links.get(key as usize).map(|link| link.conn) else { return };
        let Some(bytes) = self.retained_bytes_of(io.sent_of(conn, pending.retained), pending.retained) else { return };
        let Some(link) = self.links.get_mut(key as usize) else { return };
        let Some(slot) = link.streams.get_mut(stream) else { return };
        link.copied_bytes += bytes.len();
        slot.retained = Retained::Copy { key: self.copies.insert(bytes) as u32 };
        self.release(io, conn, pending.retained);
    }

    pub(crate) fn tick_repairs(&mut self, io: &mut Io) {
        let now = io.now_ns();
        let late: Vec<u32> =
            self.repairs.iter().filter(|(_, repair)| now > repair.deadline_ns).map(|(key, _)| *key).collect();
        for key in late {
            self.repair_is_late(io, key);
        }
        self.expire_agreements(io);
        self.expire_switches(io);
    }

    // ---- helpers ----------------------------------------------------------------------------------------------------

    /// How long a request may take.
    pub(crate) fn timeout_ns(&self, plan: &Plan) -> u64 {
        let timeout_ns = self.config.query_timeout_ms * 1_000_000;
        match plan.work {
            Work::Schema => timeout_ns.max(limits::SCHEMA_TIMEOUT_NS),
            Work::Read | Work::Write | Work::Other => timeout_ns,
        }
    }

    /// Names a request that waits; not reused while its answer could still be on its way.
    pub(crate) fn next_ticket(&mut self) -> u32 {
        self.tickets = self.tickets.wrapping_add(1);
        self.tickets
    }

    /// A request of the proxy itself.
    pub(crate) fn own_request(&self, io: &Io, purpose: Purpose, op: u8) -> Pending {
        Pending {
            purpose,
            client: ClientRef::PROXY,
            pool: PoolId::NONE,
            stream: 0,
            opcode: op,
            flags: 0,
            retries: 0,
            fate_unknown: false,
            reprepares: 0,
            plan: Plan::anywhere(),
            received_ns: io.now_ns(),
            sent_ns: io.now_ns(),
            retained: Retained::Nothing,
        }
    }

    /// Version of the bodies on a link, which on aggregated links differs from that of its envelopes.
    pub(crate) fn version_of(&self, link: u32) -> u8 {
        let link = self.links.get(link as usize);
        link.map_or(4, |link| self.pools.get(link.pool).map_or(link.version, |pool| pool.key.version))
    }

    /// A copy of a request's bytes, found in `buffer` (of its link's sent log) or among the copies.
    pub(crate) fn retained_bytes_of(&self, buffer: &[u8], retained: Retained) -> Option<Vec<u8>> {
        match retained {
            Retained::Nothing => None,
            Retained::Sent { offset, length, .. } => {
                let start = offset as usize;
                buffer.get(start..start + length as usize).map(<[u8]>::to_vec)
            }
            Retained::Copy { key } => self.copies.get(key as usize).cloned(),
        }
    }

    /// Lets go of a request's copy, which belongs to the link on this connection.
    pub(crate) fn release_copy(&mut self, conn: ConnId, key: u32) {
        let Some(bytes) = self.copies.try_remove(key as usize) else { return };
        if let Some(link) = self.link_on(conn).and_then(|link| self.links.get_mut(link as usize)) {
            link.copied_bytes = link.copied_bytes.saturating_sub(bytes.len());
        }
    }

    /// The same for a link that is gone.
    fn forget_copy(&mut self, pending: &mut Pending) {
        if let Retained::Copy { key } = pending.retained {
            self.copies.try_remove(key as usize);
        }
        pending.retained = Retained::Nothing;
    }
}

/// The sent log's buffer a request lies in.
pub(crate) trait SentOf {
    fn sent_of(&self, conn: ConnId, retained: Retained) -> &[u8];
}

impl SentOf for Io {
    fn sent_of(&self, conn: ConnId, retained: Retained) -> &[u8] {
        match retained {
            Retained::Sent { sequence, .. } => self.sent(conn, sequence),
            Retained::Nothing | Retained::Copy { .. } => &[],
        }
    }
}

/// Whether an error's code is about the node that sends it, and not about the request.
pub(crate) fn cannot_serve(code: i32) -> bool {
    use error_code::{IS_BOOTSTRAPPING, OVERLOADED, SERVER_ERROR, UNAVAILABLE};
    matches!(code, SERVER_ERROR | UNAVAILABLE | OVERLOADED | IS_BOOTSTRAPPING)
}

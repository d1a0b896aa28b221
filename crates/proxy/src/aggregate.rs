//! Requests onto links: everything one turn of the loop produced for a node goes out in one write.
//!
//! A request's body is copied once, from the client's receive buffer behind what else goes to that node this turn,
//! and stays there (in the link's sent log) until it is answered, should it have to be sent again. Nodes that offer it
//! get aggregated frames (opcode 0x64), others ordinary envelopes or v5 segments; the choice is the link's.

use shunt_reactor::Io;
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, flag};
use shunt_wire::cql::message::error_code;

use crate::client::{ClientRef, Stall};
use crate::config::Window;
use crate::core::{Core, GATHER_TIMER};
use crate::decode::Taken;
use crate::limits;
use crate::metrics::{CoreMetrics, Outcome, Routing};
use crate::node::{Link, LinkWriter, Pending, PoolId, Purpose, Retained};
use crate::route::{After, Choice, Plan};

impl Core {
    /// A client's query: plan it, choose a link, put it there.
    #[inline]
    pub(crate) fn forward(&mut self, io: &mut Io, slot: u32, header: &Header, body: &[u8]) -> Taken {
        let mut plain = std::mem::take(&mut self.body_scratch);
        let taken = match self.decompress(slot, header, body, &mut plain) {
            Ok(false) => self.forward_plain(io, slot, header, body),
            Ok(true) => {
                // Not the client's own bytes: a node's decompressor may refuse what ours takes, and Cassandra says so on
                // stream 0, which tells nobody whose request it was.
                let header = Header { flags: header.flags & !flag::COMPRESSION, ..*header };
                self.forward_plain(io, slot, &header, &plain)
            }
            Err((code, why)) => {
                self.refuse_client(io, slot, header.stream, code, &why);
                Taken::Closed
            }
        };
        self.body_scratch = plain;
        taken
    }

    #[inline]
    fn forward_plain(&mut self, io: &mut Io, slot: u32, header: &Header, body: &[u8]) -> Taken {
        let Some(client) = self.clients.get(slot as usize) else { return Taken::Closed };
        let Some(pool) = client.pool else { return Taken::Closed };
        let plan = match self.plan(pool, header, body) {
            Ok(plan) => plan,
            Err(error) => {
                self.refuse_client(io, slot, header.stream, error_code::PROTOCOL_ERROR, &error.to_string());
                return Taken::Closed;
            }
        };
        match plan.after {
            After::Use => {
                self.use_keyspace(io, slot, header, &plan, body);
                Taken::Bytes(0)
            }
            After::Unprepared => {
                self.ask_to_prepare(io, slot, header, &plan, body);
                Taken::Bytes(0)
            }
            After::Local => self.forward_local(io, slot, pool, header, plan, body),
            _ => self.forward_planned(io, slot, pool, header, plan, body),
        }
    }

    /// Chooses a link for a planned query and puts it there.
    #[inline]
    pub(crate) fn forward_planned(
        &mut self,
        io: &mut Io,
        slot: u32,
        pool: PoolId,
        header: &Header,
        plan: Plan,
        body: &[u8],
    ) -> Taken {
        let Some(client) = self.clients.get(slot as usize) else { return Taken::Closed };
        let (client_ref, refuse) = (ClientRef { slot, id: client.id }, client.refuse_next);
        let link = match self.choose(pool, &plan) {
            Choice::Link(link) => link,
            Choice::Nothing if self.is_dismissed(pool) => {
                self.refuse_dismissed(io, slot, header.stream, &plan, pool);
                return Taken::Bytes(0);
            }
            _ if refuse => {
                self.refuse_query(io, slot, header.stream, &plan);
                return Taken::Bytes(0);
            }
            Choice::Full(link) => {
                if let Some(link) = self.links.get_mut(link as usize) {
                    link.waiting.push(client_ref);
                }
                self.stall(io, slot, Stall::LINK);
                return Taken::Held;
            }
            Choice::Nothing => {
                if let Some(pool) = self.pools.get_mut(pool) {
                    pool.waiting.push(client_ref);
                }
                self.stall(io, slot, Stall::POOL);
                self.ensure_links(io, pool);
                return Taken::Held;
            }
        };
        let now = io.now_ns();
        let pending = Pending {
            purpose: Purpose::Client,
            client: client_ref,
            pool,
            stream: header.stream,
            opcode: header.opcode,
            flags: header.flags,
            retries: 0,
            fate_unknown: false,
            reprepares: 0,
            plan,
            received_ns: now,
            sent_ns: now,
            retained: Retained::Nothing,
        };
        self.metrics.queries.of(plan.kind).add(1);
        let by = if plan.placement.is_some() { Routing::Token } else { Routing::Any };
        self.metrics.routed.of(by).add(1);
        self.metrics.in_flight.add(1);
        if let Some(client) = self.clients.get_mut(slot as usize) {
            client.in_flight += 1;
            client.refuse_next = false;
        }
        // `choose` gave a link with a free stream, so this cannot fail.
        self.send_on_link(io, link, pending, body);
        Taken::Bytes(0)
    }

    /// Bounds were hit and the client has waited long enough.
    #[cold]
    fn refuse_query(&mut self, io: &mut Io, slot: u32, stream: i16, plan: &Plan) {
        self.metrics.queries.of(plan.kind).add(1);
        self.metrics.outcomes.of(Outcome::Overloaded).add(1);
        let nowhere = self.cluster.as_ref().filter(|cluster| cluster.routing.local_nodes().is_empty());
        let why = match nowhere {
            Some(cluster) => format!("Shunt: the ring has no node in the local datacentre {:?}", cluster.datacentre),
            None => {
                "Shunt: no link to a node could take this query in time; the nodes are overloaded or unreachable".into()
            }
        };
        self.reply_error(io, slot, stream, error_code::OVERLOADED, &why);
    }

    /// Puts a request on a link; `false` when all its streams are in flight.
    #[inline]
    pub(crate) fn send_on_link(&mut self, io: &mut Io, key: u32, mut pending: Pending, body: &[u8]) -> bool {
        let Some(link) = self.links.get_mut(key as usize) else { return false };
        let keep = pending.purpose != Purpose::Heartbeat;
        let is_query = pending.purpose == Purpose::Client;
        let (client, flags, op, alone) = (pending.client, pending.flags, pending.opcode, pending.plan.alone);
        pending.sent_ns = io.now_ns();
        let Some(stream) = link.streams.insert(pending) else { return false };
        let header = Header {
            version: link.version,
            response: false,
            flags,
            stream: stream as i16,
            opcode: op,
            length: body.len() as u32,
        };
        let out = io.output(link.conn);
        let offset = match &mut link.writer {
            LinkWriter::Envelopes => {
                out.extend_from_slice(&header.to_bytes());
                let offset = out.len();
                out.extend_from_slice(body);
                offset
            }
            LinkWriter::Segments(writer) => {
                if alone {
                    writer.finish(out);
                }
                let offset = writer.push(out, &header.to_bytes(), body);
                if alone {
                    writer.finish(out);
                }
                offset
            }
            LinkWriter::Aggregate(writer) => {
                if alone {
                    writer.finish(out);
                }
                let version = self.pools.get(link.pool).map_or(link.version, |pool| pool.key.version);
                let offset = writer.push(out, stream as i16, client.id, version, flags, op, body);
                if alone {
                    writer.finish(out);
                }
                offset
            }
        };
        if keep {
            let retained = if offset == usize::MAX {
                link.copied_bytes += body.len();
                Retained::Copy { key: self.copies.insert(body.to_vec()) as u32 }
            } else {
                let sequence = io.retain(link.conn);
                Retained::Sent { sequence, offset: offset as u32, length: body.len() as u32 }
            };
            if let Some(pending) = link.streams.get_mut(stream) {
                pending.retained = retained;
            }
        }
        if link.becomes_dirty(io.now_ns()) {
            self.dirty_links.push(key);
        }
        if is_query {
            link.queries_unflushed += 1;
        } else {
            link.urgent = true;
        }
        if link.streams.is_full()
            || io.backlog(link.conn) > limits::LINK_BACKLOG_BYTES_MAX
            || io.retained_bytes(link.conn) + link.copied_bytes > limits::LINK_RETAINED_BYTES_MAX
        {
            link.full = true;
            io.notify_drained(link.conn, limits::LINK_BACKLOG_BYTES_LOW);
        }
        if let Some(node) = self.nodes.get_mut(usize::from(link.node.0)) {
            node.in_flight += 1;
            node.metrics.bytes_out.add((HEADER_BYTES + body.len()) as u64);
        }
        true
    }

    /// Whether a full link has room again; if so the clients held by it are read on.
    pub(crate) fn reconsider_full(&mut self, io: &mut Io, key: u32) {
        let Some(link) = self.links.get_mut(key as usize) else { return };
        if !link.full
            || link.streams.is_full()
            || io.backlog(link.conn) > limits::LINK_BACKLOG_BYTES_LOW
            || io.retained_bytes(link.conn) + link.copied_bytes > limits::LINK_RETAINED_BYTES_MAX / 2
        {
            return;
        }
        link.full = false;
        let mut waiting = std::mem::take(&mut link.waiting);
        self.unstall_all(&mut waiting, Stall::LINK);
        if let Some(link) = self.links.get_mut(key as usize)
            && link.waiting.is_empty()
        {
            link.waiting = waiting;
        }
    }

    /// Completes what was begun on links, just before it is flushed in one write each; a frame that had better gather
    /// more stays open.
    #[inline]
    pub(crate) fn finish_links(&mut self, io: &mut Io) {
        let (now, gather_ns) = (io.now_ns(), self.config.gather_us * 1_000);
        let mut queries = 0;
        let mut position = 0;
        let mut next_ns = u64::MAX;
        while let Some(&key) = self.dirty_links.get(position) {
            let Some(link) = self.links.get_mut(key as usize).filter(|link| link.dirty) else {
                self.dirty_links.swap_remove(position);
                continue;
            };
            if link.gathers(now, gather_ns) {
                io.hold(link.conn, true);
                next_ns = next_ns.min(link.dirty_since_ns + gather_ns);
                position += 1;
                continue;
            }
            self.dirty_links.swap_remove(position);
            (link.dirty, link.urgent) = (false, false);
            match &mut link.writer {
                LinkWriter::Envelopes => {}
                LinkWriter::Segments(writer) => writer.finish(io.output(link.conn)),
                LinkWriter::Aggregate(writer) => {
                    io.hold(link.conn, false);
                    writer.finish(io.output(link.conn));
                    self.metrics.aggregated_frames.add(u64::from(writer.take_frames()));
                }
            }
            let count = std::mem::take(&mut link.queries_unflushed);
            queries += count;
            if let Some(node) = self.nodes.get(usize::from(link.node.0)) {
                node.metrics.queries.add(u64::from(count));
                node.metrics.in_flight.set(u64::from(node.in_flight));
                if count > 0 {
                    node.metrics.writes.add(1);
                    self.metrics.queries_per_write.record(u64::from(count));
                }
            }
        }
        self.window.turn(queries);
        if next_ns < self.gather_timer_ns {
            self.gather_timer_ns = next_ns;
            io.set_timer(next_ns, GATHER_TIMER);
        }
    }
}

impl Link {
    /// Whether the open frame had better wait for more queries.
    ///
    /// A node takes the frames of a link one after the other, so while it works on one, the next is worth more full
    /// than early. It goes once it has as many queries as are unanswered (which bounds what waiting costs by what the
    /// node needs anyway), once there are enough to spread the cost of a frame, or after `gather_ns`.
    #[inline]
    fn gathers(&self, now_ns: u64, gather_ns: u64) -> bool {
        let LinkWriter::Aggregate(writer) = &self.writer else { return false };
        let gathered = writer.count() as usize;
        let unanswered = self.streams.len().saturating_sub(self.orphans + gathered);
        gathered < unanswered.min(limits::FRAME_GATHERED_MAX)
            && unanswered >= limits::FRAME_GATHER_UNANSWERED_MIN
            && !self.urgent
            && !self.full
            && !writer.has_frames()
            && now_ns < self.dirty_since_ns.saturating_add(gather_ns)
    }
}

/// Chooses how long a turn of the loop is delayed to gather more work.
///
/// Delaying the turn saves wake-ups at mid load. An idle loop would only add latency, and a saturated one gathers by
/// itself, so the window opens between the two: when queries come faster than one per window, but a turn still
/// carries few.
pub(crate) struct WindowControl {
    setting: Window,
    window_ns: u64,
    queries: u64,
    turns: u64,
    since_ns: u64,
}

/// Window while gathering pays, nanoseconds.
const WINDOW_OPEN_NS: u64 = 25_000;
/// Queries per turn from which the loop gathers enough by itself.
const ENOUGH_PER_TURN: u64 = 16;

impl WindowControl {
    pub(crate) fn new(setting: Window) -> Self {
        Self { setting, window_ns: 0, queries: 0, turns: 0, since_ns: 0 }
    }

    pub(crate) fn start(&mut self, io: &mut Io) {
        self.since_ns = io.now_ns();
        self.window_ns = match self.setting {
            Window::Fixed { us } => us * 1_000,
            Window::Auto => 0,
        };
        io.set_window_ns(self.window_ns);
    }

    #[inline]
    fn turn(&mut self, queries: u32) {
        self.queries += u64::from(queries);
        self.turns += u64::from(queries > 0);
    }

    pub(crate) fn tick(&mut self, io: &mut Io, metrics: &CoreMetrics) {
        if self.setting == Window::Auto {
            let elapsed_ns = io.now_ns().saturating_sub(self.since_ns).max(1);
            let window_ns = Self::fitting(self.queries, self.turns, elapsed_ns);
            if window_ns != self.window_ns {
                self.window_ns = window_ns;
                io.set_window_ns(window_ns);
            }
        }
        self.since_ns = io.now_ns();
        (self.queries, self.turns) = (0, 0);
        metrics.window_ns.set(self.window_ns);
    }

    fn fitting(queries: u64, turns: u64, elapsed_ns: u64) -> u64 {
        let per_window = queries.saturating_mul(WINDOW_OPEN_NS) / elapsed_ns;
        let gathers_by_itself = turns > 0 && queries / turns >= ENOUGH_PER_TURN;
        if per_window >= 1 && !gathers_by_itself { WINDOW_OPEN_NS } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_opens_only_between_idle_and_saturated() {
        let second = limits::SECOND_NS;
        let idle = WindowControl::fitting(1_000, 1_000, second);
        let mid = WindowControl::fitting(60_000, 30_000, second);
        let saturated = WindowControl::fitting(200_000, 8_000, second);
        assert_eq!((idle, mid, saturated), (0, WINDOW_OPEN_NS, 0));
    }
}

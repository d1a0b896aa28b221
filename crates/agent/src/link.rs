//! Links of proxies to the CQL server: bytes go both ways as they are, but for a large RESULT,
//! which is taken in and offered.
//!
//! ```text
//! proxy ── handshake, REQUEST(from how many bytes on) ──> link ── connection ──> stock server
//!       <── envelopes, OFFERED(ticket, length) ───────────     <── envelopes ──
//! ```
//! An offered answer leaves the link's stream, so that the others behind it are not held up by it.
//! It comes back into it, between two envelopes, when the proxy wants it relayed, or cannot be
//! asked: its session is lost, or it has not said anything in time. What there is not enough room
//! for is passed on as it comes.
//!
//! After the handshake v5 puts envelopes into segments, which [`crate::segments`] takes apart where
//! it has to.

use std::collections::VecDeque;

use shunt_handover::message::Ticket;
use shunt_handover::session::OwnerId;
use shunt_reactor::{ConnId, Io};
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, append, opcode};

use crate::kept::{self, Kept};
use crate::limits;
use crate::metrics::{Way, Why};
use crate::segments::{self, Run};
use crate::state::{Agent, Peer};

/// A link.
#[derive(Debug)]
pub(crate) struct Link {
    /// To the proxy.
    proxy: ConnId,
    /// To the server.
    server: ConnId,
    owner: OwnerId,
    /// Answers of so many bytes and more are offered.
    threshold_bytes: u32,
    reading: Reading,
    /// Answers that are to be relayed when the envelope that is being passed on is through.
    relayed: VecDeque<Ticket>,
}

/// Where in the server's stream a link is.
#[derive(Debug)]
enum Reading {
    /// Between two envelopes, or in a header.
    Header,
    /// So many bytes of an envelope are to be passed on.
    Passing(usize),
    /// The same, and behind them come segments.
    PassingLast(usize),
    /// An envelope is being taken in; with its header it has so many bytes.
    TakingIn(Vec<u8>, usize),
    /// In segments.
    Segments(Run),
    /// What comes is not known to be envelopes.
    Opaque,
}

/// A proxy has shown that it has the key and says that this connection is a link. Whatever comes
/// next on it is the server's.
pub(crate) fn begin(
    agent: &mut Agent,
    io: &mut Io,
    (proxy, owner): (ConnId, OwnerId),
    head: &[u8],
) {
    let is_full = agent.links.len() >= agent.options.upstream_connections_max;
    let Some(wanted) = head.first_chunk::<4>().filter(|_| !is_full && !agent.is_draining) else {
        agent.metrics.failed.add(1);
        return io.close(proxy);
    };
    let wanted = u64::from(u32::from_be_bytes(*wanted));
    let threshold = agent.options.threshold_bytes.map_or(u64::MAX, |own| own.max(wanted));
    let server = io.connect(agent.options.upstream, limits::CONNECT_NS);
    let threshold_bytes = u32::try_from(threshold).unwrap_or(u32::MAX);
    let (reading, relayed) = (Reading::Header, VecDeque::new());
    let link = agent.links.insert(Link { proxy, server, owner, threshold_bytes, reading, relayed });
    agent.set_peer(proxy, Peer::Link(link));
    agent.set_peer(server, Peer::Server(link));
}

/// Bytes of the proxy's. Returns how many were used.
pub(crate) fn of_proxy(agent: &mut Agent, io: &mut Io, key: usize, data: &[u8]) -> usize {
    let Some(link) = agent.links.get(key) else { return data.len() };
    if io.is_paused(link.proxy) {
        return 0;
    }
    io.output(link.server).extend_from_slice(data);
    if io.backlog(link.server) > limits::LINK_BACKLOG_BYTES_MAX {
        io.pause_reading(link.proxy);
        io.notify_drained(link.server, limits::LINK_BACKLOG_BYTES_LOW);
    }
    data.len()
}

/// Bytes of the server's. Returns how many were used.
pub(crate) fn of_server(agent: &mut Agent, io: &mut Io, key: usize, data: &[u8]) -> usize {
    let mut used = 0;
    while let Some(link) = agent.links.get_mut(key) {
        let rest = &data[used..];
        if rest.is_empty() || io.is_paused(link.server) {
            return used;
        }
        if io.backlog(link.proxy) > limits::LINK_BACKLOG_BYTES_MAX {
            io.pause_reading(link.server);
            io.notify_drained(link.proxy, limits::LINK_BACKLOG_BYTES_LOW);
            return used;
        }
        match &mut link.reading {
            Reading::Opaque => {
                io.output(link.proxy).extend_from_slice(rest);
                used = data.len();
            }
            Reading::Segments(_) => match read_segment(agent, io, key, rest) {
                0 => return used,
                taken => used += taken,
            },
            Reading::Passing(left) | Reading::PassingLast(left) => {
                let taken = rest.len().min(*left);
                io.output(link.proxy).extend_from_slice(&rest[..taken]);
                agent.metrics.answer_bytes.of(Way::Relayed).add(taken as u64);
                (used, *left) = (used + taken, *left - taken);
                if *left == 0 {
                    let is_last = matches!(link.reading, Reading::PassingLast(_));
                    link.reading =
                        if is_last { Reading::Segments(Run::Between) } else { Reading::Header };
                    relay_waiting(agent, io, key);
                }
            }
            Reading::TakingIn(envelope, whole) => {
                let taken = rest.len().min(*whole - envelope.len());
                envelope.extend_from_slice(&rest[..taken]);
                used += taken;
                if envelope.len() == *whole {
                    let envelope = std::mem::take(envelope);
                    link.reading = Reading::Header;
                    offer(agent, io, key, envelope);
                }
            }
            Reading::Header => match Header::decode(rest) {
                None => return used,
                // That is this agent's word, not the server's.
                Some(header) if header.opcode == opcode::OFFERED => {
                    closed(agent, io, key);
                    return data.len();
                }
                Some(header) => read_header(agent, key, header),
            },
        }
    }
    data.len()
}

/// What a segment of a link's has in it.
struct OfLink<'a> {
    agent: &'a mut Agent,
    io: &'a mut Io,
    key: usize,
    proxy: ConnId,
}

impl segments::Sink for OfLink<'_> {
    fn is_offered(&mut self, header: &Header) -> bool {
        is_offered(self.agent, self.key, header)
    }

    fn pass(&mut self, segment: &[u8], bytes: usize) {
        self.io.output(self.proxy).extend_from_slice(segment);
        self.agent.metrics.answer_bytes.of(Way::Relayed).add(bytes as u64);
    }

    fn write(&mut self, envelopes: &[u8]) {
        segments::append(self.io.output(self.proxy), false, envelopes);
        self.agent.metrics.answer_bytes.of(Way::Relayed).add(envelopes.len() as u64);
    }

    fn offer(&mut self, envelope: Vec<u8>) {
        offer(self.agent, self.io, self.key, envelope);
    }
}

/// Reads a segment. Returns how many bytes were used; 0: it is not there whole.
fn read_segment(agent: &mut Agent, io: &mut Io, key: usize, data: &[u8]) -> usize {
    let Some(link) = agent.links.get_mut(key) else { return data.len() };
    let Reading::Segments(run) = &mut link.reading else { return 0 };
    let (mut run, proxy) = (std::mem::replace(run, Run::Between), link.proxy);
    let outcome = segments::read(&mut run, data, &mut OfLink { agent, io, key, proxy });
    let is_broken = outcome.is_err();
    let (next, used) = outcome.unwrap_or(None).unwrap_or((run, 0));
    if let Some(link) = agent.links.get_mut(key) {
        link.reading = Reading::Segments(next);
    }
    if is_broken {
        closed(agent, io, key);
        return data.len();
    }
    relay_waiting(agent, io, key);
    used
}

/// Decides what becomes of an envelope; its bytes are read by the next step.
fn read_header(agent: &mut Agent, key: usize, header: Header) {
    let bytes = HEADER_BYTES + header.length as usize;
    let is_known = header.response && (3..=5).contains(&header.version);
    let answers_startup = matches!(header.opcode, opcode::READY | opcode::AUTHENTICATE);
    let reading = if !is_known {
        Reading::Opaque
    } else if header.version == 5 && answers_startup {
        Reading::PassingLast(bytes)
    } else if is_offered(agent, key, &header) {
        Reading::TakingIn(Vec::with_capacity(bytes), bytes)
    } else {
        Reading::Passing(bytes)
    };
    if let Some(link) = agent.links.get_mut(key) {
        link.reading = reading;
    }
}

/// Is this the answer to be taken in? Then there is room for it.
fn is_offered(agent: &mut Agent, key: usize, header: &Header) -> bool {
    let Some(link) = agent.links.get(key) else { return false };
    let is_large =
        header.response && header.opcode == opcode::RESULT && header.length >= link.threshold_bytes;
    let bytes = HEADER_BYTES + header.length as usize;
    if !is_large {
        return false;
    }
    let why = match kept::session_of(agent, link.owner) {
        None => Why::NoOwner,
        Some(_) if kept::reserve(agent, bytes) => return true,
        Some(_) => Why::NoRoom,
    };
    agent.metrics.relayed.of(why).add(1);
    false
}

/// A large answer is here: its proxy is asked how it is to go, if it can be asked.
fn offer(agent: &mut Agent, io: &mut Io, key: usize, envelope: Vec<u8>) {
    let (Some(link), Some(header)) = (agent.links.get(key), Header::decode(&envelope)) else {
        return;
    };
    let owner = link.owner;
    match kept::offer(agent, io, owner, key, envelope) {
        Ok(ticket) => {
            // What it has of flags is about the body that waits.
            let (header, length) = (Header { opcode: opcode::OFFERED, ..header }, header.length);
            let mut offered = Vec::new();
            append(&mut offered, header, |body| {
                body.extend_from_slice(&ticket.0.to_be_bytes());
                body.extend_from_slice(&length.to_be_bytes());
            });
            write(agent, io, key, &offered);
        }
        Err(envelope) => relay_bytes(agent, io, key, &envelope),
    }
    relay_waiting(agent, io, key);
}

/// An answer goes back into its link's stream, between two envelopes.
pub(crate) fn relay(agent: &mut Agent, io: &mut Io, ticket: Ticket) {
    let Some((key, proxy)) = agent.kept.answers.get(&ticket).map(|kept| (kept.link, kept.proxy))
    else {
        return;
    };
    match agent.links.get_mut(key).filter(|link| link.proxy == proxy) {
        Some(link) => link.relayed.push_back(ticket),
        // Who asked for it knows that the link is gone.
        None => kept::forget(agent, ticket),
    }
    relay_waiting(agent, io, key);
}

/// Those that wait for it go into the link's stream, if nothing is half passed on.
fn relay_waiting(agent: &mut Agent, io: &mut Io, key: usize) {
    use Reading::{Passing, PassingLast, Segments};
    while let Some(link) = agent.links.get_mut(key)
        && !matches!(link.reading, Passing(_) | PassingLast(_) | Segments(Run::Passing(_)))
        && let Some(ticket) = link.relayed.pop_front()
    {
        if let Some(Kept { envelope, .. }) = kept::take(agent, ticket) {
            relay_bytes(agent, io, key, &envelope);
            kept::release(agent, envelope.len());
        }
    }
}

fn relay_bytes(agent: &Agent, io: &mut Io, key: usize, envelope: &[u8]) {
    write(agent, io, key, envelope);
    agent.metrics.answers.of(Way::Relayed).add(1);
    agent.metrics.answer_bytes.of(Way::Relayed).add(envelope.len() as u64);
}

/// Puts a whole envelope into a link's stream.
fn write(agent: &Agent, io: &mut Io, key: usize, envelope: &[u8]) {
    match agent.links.get(key) {
        Some(Link { proxy, reading: Reading::Segments(_), .. }) => {
            segments::append(io.output(*proxy), false, envelope)
        }
        Some(link) => io.output(link.proxy).extend_from_slice(envelope),
        None => {}
    }
}

/// The proxy's end of a link.
pub(crate) fn proxy_of(agent: &Agent, key: usize) -> Option<ConnId> {
    agent.links.get(key).map(|link| link.proxy)
}

/// The kernel has taken what was written to one side: the other is read again.
pub(crate) fn drained(agent: &Agent, io: &mut Io, key: usize, is_server: bool) {
    if let Some(link) = agent.links.get(key) {
        io.resume_reading(if is_server { link.proxy } else { link.server });
    }
}

/// One side has ended, and so does the other, when it has what was written to it.
pub(crate) fn closed(agent: &mut Agent, io: &mut Io, key: usize) {
    let Some(link) = agent.links.try_remove(key) else { return };
    if let Reading::TakingIn(_, bytes) | Reading::Segments(Run::TakingIn(_, bytes)) = link.reading {
        kept::release(agent, bytes);
    }
    for ticket in &link.relayed {
        kept::forget(agent, *ticket);
    }
    for conn in [link.proxy, link.server] {
        agent.set_peer(conn, Peer::Nobody);
        io.close(conn);
    }
}

/// The agent ends: proxies go on without it.
pub(crate) fn close_all(agent: &mut Agent, io: &mut Io) {
    let keys: Vec<usize> = agent.links.iter().map(|(key, _)| key).collect();
    keys.into_iter().for_each(|key| closed(agent, io, key));
}

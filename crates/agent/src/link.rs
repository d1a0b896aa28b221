//! Links of proxies to the CQL server: bytes pass unchanged both ways, except that a large RESULT
//! is taken in and offered.
//!
//! ```text
//! proxy ── handshake, REQUEST(threshold in bytes) ──> link ── connection ──> stock server
//!       <── envelopes, OFFERED(ticket, length) ──────     <── envelopes ──
//! ```
//! An offered answer leaves the link's stream, so that it does not hold up those behind it. It
//! returns to the stream, between two envelopes, when the proxy wants it relayed or cannot be
//! asked: its session is lost, or it has not replied in time. An answer for which there is no room
//! is passed on as it comes.
//!
//! After the handshake v5 puts envelopes into segments, which [`crate::segments`] takes apart where
//! it has to.

use std::collections::VecDeque;

use shunt_handover::message::Ticket;
use shunt_handover::session::OwnerId;
use shunt_reactor::{ConnId, Io};
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, append, opcode};

use crate::limits;
use crate::metrics::{Way, Why};
use crate::offers::{self, Kept};
use crate::segments::{self, Run};
use crate::state::{Agent, Peer};

/// A proxy's link to the CQL server.
#[derive(Debug)]
pub(crate) struct Link {
    /// Connection to the proxy.
    proxy: ConnId,
    /// Connection to the server.
    server: ConnId,
    owner: OwnerId,
    /// Size in bytes from which answers are offered.
    threshold_bytes: u32,
    reading: Reading,
    /// Answers to relay once the current envelope has passed.
    relayed: VecDeque<Ticket>,
}

/// A link's position in the server's stream.
#[derive(Debug)]
enum Reading {
    /// Between two envelopes, or in a header.
    Header,
    /// This many bytes of an envelope are still to be passed on.
    Passing(usize),
    /// The same; segments follow the envelope.
    PassingLast(usize),
    /// An envelope is being taken in; its length with the header.
    TakingIn(Vec<u8>, usize),
    /// The stream is in segments.
    Segments(Run),
    /// The stream is not known to be envelopes; all of it passes.
    Opaque,
}

/// Makes a link of a connection whose proxy has proved that it has the key. All further bytes on it
/// are the server's.
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

/// Passes bytes from the proxy on. Returns how many it used.
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

/// Takes bytes from the server. Returns how many it used.
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
                // Only the agent may send this opcode, never the server.
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

/// Sink for the content of a link's segments.
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

/// Reads a segment. Returns how many bytes it used; 0 if the segment is incomplete.
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

/// Decides what to do with an envelope; the next step reads its bytes.
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

/// True if this answer is to be taken in; its room is then reserved.
fn is_offered(agent: &mut Agent, key: usize, header: &Header) -> bool {
    let Some(link) = agent.links.get(key) else { return false };
    let is_large =
        header.response && header.opcode == opcode::RESULT && header.length >= link.threshold_bytes;
    let bytes = HEADER_BYTES + header.length as usize;
    if !is_large {
        return false;
    }
    let why = match offers::session_of(agent, link.owner) {
        None => Why::NoOwner,
        Some(_) if offers::reserve(agent, bytes) => return true,
        Some(_) => Why::NoRoom,
    };
    agent.metrics.relayed.of(why).add(1);
    false
}

/// Offers a large answer to its proxy, if the proxy can be asked.
fn offer(agent: &mut Agent, io: &mut Io, key: usize, envelope: Vec<u8>) {
    let (Some(link), Some(header)) = (agent.links.get(key), Header::decode(&envelope)) else {
        return;
    };
    let owner = link.owner;
    match offers::offer(agent, io, owner, key, envelope) {
        Ok(ticket) => {
            // The header's flags describe the body that is kept.
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

/// Queues an answer to return to its link's stream, between two envelopes.
pub(crate) fn relay(agent: &mut Agent, io: &mut Io, ticket: Ticket) {
    let Some((key, proxy)) = agent.kept.answers.get(&ticket).map(|kept| (kept.link, kept.proxy))
    else {
        return;
    };
    match agent.links.get_mut(key).filter(|link| link.proxy == proxy) {
        Some(link) => link.relayed.push_back(ticket),
        // The proxy knows that the link is gone.
        None => offers::forget(agent, ticket),
    }
    relay_waiting(agent, io, key);
}

/// Writes the waiting answers to the link's stream, unless an envelope is half passed on.
fn relay_waiting(agent: &mut Agent, io: &mut Io, key: usize) {
    use Reading::{Passing, PassingLast, Segments};
    while let Some(link) = agent.links.get_mut(key)
        && !matches!(link.reading, Passing(_) | PassingLast(_) | Segments(Run::Passing(_)))
        && let Some(ticket) = link.relayed.pop_front()
    {
        if let Some(Kept { envelope, .. }) = offers::take(agent, ticket) {
            relay_bytes(agent, io, key, &envelope);
            offers::release(agent, envelope.len());
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

/// Connection to the proxy's end of a link.
pub(crate) fn proxy_of(agent: &Agent, key: usize) -> Option<ConnId> {
    agent.links.get(key).map(|link| link.proxy)
}

/// The kernel has taken one side's bytes: reads the other side again.
pub(crate) fn drained(agent: &Agent, io: &mut Io, key: usize, is_server: bool) {
    if let Some(link) = agent.links.get(key) {
        io.resume_reading(if is_server { link.proxy } else { link.server });
    }
}

/// One side has ended; closes the other once its output is sent.
pub(crate) fn closed(agent: &mut Agent, io: &mut Io, key: usize) {
    let Some(link) = agent.links.try_remove(key) else { return };
    if let Reading::TakingIn(_, bytes) | Reading::Segments(Run::TakingIn(_, bytes)) = link.reading {
        offers::release(agent, bytes);
    }
    for ticket in &link.relayed {
        offers::forget(agent, *ticket);
    }
    for conn in [link.proxy, link.server] {
        agent.set_peer(conn, Peer::Nobody);
        io.close(conn);
    }
}

/// Closes all links because the agent ends; proxies go on without it.
pub(crate) fn close_all(agent: &mut Agent, io: &mut Io) {
    let keys: Vec<usize> = agent.links.iter().map(|(key, _)| key).collect();
    keys.into_iter().for_each(|key| closed(agent, io, key));
}

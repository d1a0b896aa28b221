//! Large answers of the CQL server, from their offer until they are sent.

use std::collections::HashMap;

use shunt_handover::Flow;
use shunt_handover::agent::SessionId;
use shunt_handover::message::{SEGMENTS, SEGMENTS_LZ4, Ticket};
use shunt_handover::session::OwnerId;
use shunt_reactor::{ConnId, Io};
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, append};

use crate::connections;
use crate::limits;
use crate::link;
use crate::metrics::{Way, Why};
use crate::segments;
use crate::state::Agent;

/// Kind of a RESULT without content (v4, section 4.2.5.1).
const VOID: i32 = 1;

/// Store of kept answers.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) answers: HashMap<Ticket, Kept>,
    /// Bytes of answers being taken in, kept, or going out on clients' connections.
    bytes: usize,
    next_ticket: u64,
}

impl Answers {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// One kept answer.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) session: SessionId,
    pub(crate) link: usize,
    /// The proxy's end of the link, to tell a reused key.
    pub(crate) proxy: ConnId,
    pub(crate) envelope: Vec<u8>,
    offered_ns: u64,
    /// Header and framing for the client; `None` until the owner sends them.
    shape: Option<Shape>,
}

/// First bytes of an answer for its client, whose stream id differs, and its framing.
#[derive(Clone, Copy, Debug)]
struct Shape {
    header: [u8; HEADER_BYTES],
    /// v5: the answer goes in segments; true if they are LZ4.
    segments_lz4: Option<bool>,
}

impl Shape {
    /// Decodes the owner's form: the header, and one more byte if segments are used.
    fn decode(head: &[u8]) -> Option<Self> {
        let (header, rest) = head.split_first_chunk::<HEADER_BYTES>()?;
        let segments_lz4 = match rest {
            [] => None,
            [SEGMENTS] => Some(false),
            [SEGMENTS_LZ4] => Some(true),
            _ => return None,
        };
        Some(Self { header: *header, segments_lz4 })
    }
}

/// The session of an owner, if it has one.
pub(crate) fn session_of(agent: &Agent, owner: OwnerId) -> Option<SessionId> {
    let mut sessions = agent.sessions.iter().filter(|(_, session)| session.owner == Some(owner));
    sessions.next().map(|(_, session)| session.id)
}

/// Reserves room for an answer; false if there is not enough.
pub(crate) fn reserve(agent: &mut Agent, bytes: usize) -> bool {
    let is_room = agent.kept.bytes.saturating_add(bytes) <= limits::KEPT_BYTES_MAX;
    agent.kept.bytes += if is_room { bytes } else { 0 };
    is_room
}

/// Gives reserved room back.
pub(crate) fn release(agent: &mut Agent, bytes: usize) {
    agent.kept.bytes -= bytes;
}

/// Keeps an answer with reserved room if its owner can be asked about it. Otherwise returns the
/// answer and releases its room.
pub(crate) fn offer(
    agent: &mut Agent,
    io: &Io,
    owner: OwnerId,
    link: usize,
    envelope: Vec<u8>,
) -> Result<Ticket, Vec<u8>> {
    if agent.kept.next_ticket == 0 {
        let mut first = [0; 8];
        (agent.options.random)(&mut first);
        // Starting at random below 2^63 keeps two agents' tickets apart and leaves room to count.
        agent.kept.next_ticket = (u64::from_be_bytes(first) >> 1) + 1;
    }
    let ticket = Ticket(agent.kept.next_ticket);
    let (session, proxy) = (session_of(agent, owner), link::proxy_of(agent, link));
    let (Some(session), Some(proxy)) = (session, proxy) else {
        agent.metrics.relayed.of(Why::NoOwner).add(1);
        release(agent, envelope.len());
        return Err(envelope);
    };
    if !connections::may_offer(agent, io, session, ticket) {
        agent.metrics.relayed.of(Why::NoRoom).add(1);
        release(agent, envelope.len());
        return Err(envelope);
    }
    agent.kept.next_ticket += 1;
    agent.metrics.offers.add(1);
    let offered_ns = io.now_ns();
    agent
        .kept
        .answers
        .insert(ticket, Kept { session, link, proxy, envelope, offered_ns, shape: None });
    Ok(ticket)
}

/// Time at which this answer was offered, nanoseconds.
pub(crate) fn offered_ns(agent: &Agent, ticket: Ticket) -> Option<u64> {
    agent.kept.answers.get(&ticket).map(|kept| kept.offered_ns)
}

/// Notes the owner's header and framing for an answer.
pub(crate) fn set_shape(agent: &mut Agent, session: SessionId, ticket: Ticket, head: &[u8]) {
    if let Some(kept) = agent.kept.answers.get_mut(&ticket).filter(|kept| kept.session == session) {
        kept.shape = Shape::decode(head);
    }
}

/// Removes an answer; its room stays reserved.
pub(crate) fn take(agent: &mut Agent, ticket: Ticket) -> Option<Kept> {
    let kept = agent.kept.answers.remove(&ticket)?;
    connections::offer_over(agent, kept.session, ticket);
    Some(kept)
}

/// Drops an unwanted answer.
pub(crate) fn forget(agent: &mut Agent, ticket: Ticket) {
    if let Some(kept) = take(agent, ticket) {
        release(agent, kept.envelope.len());
    }
}

/// Replaces an unwanted answer by an empty one, which only frees its stream id. An answer for which
/// the owner has given a connection goes out on that.
pub(crate) fn empty(agent: &mut Agent, session: SessionId, ticket: Ticket) {
    if agent.moves.has_taken(session, ticket) {
        return;
    }
    let Some(kept) = agent.kept.answers.get_mut(&ticket).filter(|kept| kept.session == session)
    else {
        return;
    };
    let Some(header) = Header::decode(&kept.envelope) else { return };
    let before = kept.envelope.len();
    kept.envelope.clear();
    let header = Header { flags: 0, ..header };
    append(&mut kept.envelope, header, |body| body.extend_from_slice(&VOID.to_be_bytes()));
    agent.kept.bytes = agent.kept.bytes + kept.envelope.len() - before;
}

/// Sends an offered answer on its client's connection, if the link and the shape are still known.
pub(crate) fn start(agent: &mut Agent, io: &mut Io, flow: Flow, ticket: Ticket) {
    if !send(agent, io, flow, ticket) {
        connections::no_answer(agent, io, flow, 0);
    }
}

fn send(agent: &mut Agent, io: &mut Io, flow: Flow, ticket: Ticket) -> bool {
    let Some(key) = agent.of_flow.get(&flow).copied() else { return false };
    let Some(Kept { mut envelope, shape, .. }) = take(agent, ticket) else { return false };
    let room = envelope.len();
    let (Some(Shape { header, segments_lz4 }), Some(front), Some(taken)) =
        (shape, envelope.first_chunk_mut::<HEADER_BYTES>(), agent.taken.get_mut(key))
    else {
        release(agent, room);
        return false;
    };
    *front = header;
    taken.kept_bytes = envelope.len();
    let out = io.output(taken.conn);
    let before = out.len();
    match segments_lz4 {
        Some(lz4) => segments::append(out, lz4, &envelope),
        None if out.is_empty() => *out = envelope,
        None => out.extend_from_slice(&envelope),
    }
    taken.sent = (out.len() - before) as u64;
    agent.metrics.answer_bytes.of(Way::Direct).add(taken.sent);
    agent.metrics.answers.of(Way::Direct).add(1);
    connections::is_out(agent, io, key);
    true
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::SocketAddr;

    use shunt_handover::message::Message;
    use shunt_handover::session::{Instance, Protocol, SharedKey};
    use shunt_reactor::moving::{Frozen, TcpState, Window};
    use shunt_reactor::sim::{Options, World};
    use shunt_wire::cql::envelope::opcode;

    use super::*;
    use crate::options::AgentOptions;

    const OWN: SessionId = SessionId(1);
    const OTHER: SessionId = SessionId(2);

    fn agent(vip: SocketAddr) -> Agent {
        Agent::new(AgentOptions {
            protocol: Protocol::Cql,
            upstream: ([192, 0, 2, 9], 9042).into(),
            key: SharedKey::new(&[7; 32]).expect("it is long enough"),
            instance: Instance(1),
            threshold_bytes: Some(1),
            hold_ns: 0,
            vips: vec![vip],
            packet_filter: None,
            upstream_connections_max: 1,
            upstream_timeout_ns: 1,
            random: Box::new(|bytes| bytes.fill(1)),
        })
    }

    fn keep(agent: &mut Agent, io: &Io, ticket: Ticket) {
        let mut envelope = Vec::new();
        let header = Header { response: true, ..Header::request(4, 5, opcode::RESULT) };
        append(&mut envelope, header, |body| body.extend_from_slice(&[9; 100]));
        assert!(reserve(agent, envelope.len()) && connections::may_offer(agent, io, OWN, ticket));
        let proxy = ConnId { index: 0, generation: 1 };
        let kept = Kept { session: OWN, link: 0, proxy, envelope, offered_ns: 0, shape: None };
        agent.kept.answers.insert(ticket, kept);
    }

    /// A client's idle connection to this address.
    pub(crate) fn connection(vip: SocketAddr) -> Frozen {
        Frozen::without_queues(TcpState {
            local: vip,
            peer: ([198, 51, 100, 7], 5000).into(),
            send_sequence: 1,
            receive_sequence: 1,
            mss: 1448,
            timestamp: None,
            sack: true,
            window_scales: None,
            window: Window::default(),
        })
    }

    #[test]
    fn only_its_owner_empties_an_answer_and_only_until_it_has_given_a_connection_for_it() {
        let vip = ([192, 0, 2, 1], 9042).into();
        let mut world = World::new(1, Options::calm());
        let host = world.add("agent", agent(vip));
        world.with(host, |agent, io| {
            for (session, owner) in [(OWN, OwnerId(1)), (OTHER, OwnerId(2))] {
                connections::session_up(agent, io, session, owner, Instance(1));
            }
            let (given, free) = (Ticket(7), Ticket(8));
            [given, free].into_iter().for_each(|ticket| keep(agent, io, ticket));
            let take = Message::Take { connection: connection(vip), answer_sent: 0 };
            connections::heard(agent, io, OWN, given, &take).expect("owners say that");
            let bytes = |agent: &Agent, ticket| agent.kept.answers[&ticket].envelope.len();
            let (whole, of_void) = (HEADER_BYTES + 100, HEADER_BYTES + 4);
            for (session, left) in [(OTHER, whole), (OWN, of_void)] {
                empty(agent, session, given);
                empty(agent, session, free);
                assert_eq!((bytes(agent, given), bytes(agent, free)), (whole, left), "{session:?}");
            }
            assert_eq!(agent.kept.bytes(), whole + of_void);
        });
    }
}

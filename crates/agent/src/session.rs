//! Control connections: the handshake, messages out, and the end.

use shunt_handover::agent::SessionId;
use shunt_handover::message::{Error, Message, Ticket};
use shunt_handover::session::{AgentHandshake, NONCE_BYTES};
use shunt_handover::turns::Turns;
use shunt_reactor::{Accepted, ConnId, Io};
use tracing::{debug, error};

use crate::limits;
use crate::state::{Agent, Open, Peer, Phase, Session};

/// Starts a session for a new control connection: the agent sends first.
pub(crate) fn accepted(agent: &mut Agent, io: &mut Io, conn: ConnId, origin: &Accepted) {
    // A draining agent still lets owners in to take back their connections.
    let is_over = agent.is_draining && agent.moves.flows() == 0;
    let host = origin.peer.counted_host();
    let (most, of_host) = (limits::HANDSHAKES_MAX, limits::HANDSHAKES_OF_HOST_MAX);
    if is_over
        || agent.sessions.len() >= limits::SESSIONS_MAX
        || agent.handshakes.take(host, most, of_host).is_err()
    {
        debug!(peer = %origin.peer, "closed a new control connection: too many are open, in total or from its host, or the agent is ending");
        io.close(conn);
        return;
    }
    let mut nonce = [0; NONCE_BYTES];
    (agent.options.random)(&mut nonce);
    let handshake = AgentHandshake::new(
        agent.options.key.clone(),
        agent.options.protocol,
        agent.options.instance,
        nonce,
    );
    handshake.hello(io.output(conn));
    let until_ns = io.now_ns() + limits::HANDSHAKE_NS;
    agent.next_session += 1;
    let id = SessionId(agent.next_session);
    let key = agent.sessions.insert(Session {
        id,
        owner: None,
        conn,
        host,
        phase: Phase::Shaking { handshake: Box::new(handshake), until_ns },
        heard_ns: io.now_ns(),
        exchanges: Default::default(),
        turns: Turns::default(),
        takes_requests: !agent.is_draining,
    });
    agent.session_keys.insert(id, key);
    agent.set_peer(conn, Peer::Session(key));
}

impl Session {
    /// Continues the handshake; returns the bytes used.
    ///
    /// # Errors
    /// The peer lacks the key.
    pub(crate) fn shake(&mut self, io: &mut Io, input: &[u8]) -> Result<usize, Error> {
        let Phase::Shaking { handshake, .. } = &self.phase else { return Ok(0) };
        match handshake.read(input, io.output(self.conn))? {
            None => Ok(0),
            Some((used, session)) => {
                let (owner, instance) = (session.owner, session.instance);
                let open =
                    Open { owner, instance, encoder: session.encoder, decoder: session.decoder };
                self.phase = Phase::Open(Box::new(open));
                Ok(used)
            }
        }
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, io: &mut Io, ticket: Ticket, message: &Message<'_>) {
        let Phase::Open(open) = &mut self.phase else { return };
        if let Err(error) = open.encoder.message(ticket, message, io.output(self.conn)) {
            error!(%error, "a message could not be written");
            debug_assert!(false, "limits of heads and reasons fit messages: {error}");
        }
    }

    /// Sends bytes of an answer's body.
    pub(crate) fn send_body(&mut self, io: &mut Io, ticket: Ticket, bytes: &[u8]) {
        let Phase::Open(open) = &mut self.phase else { return };
        open.encoder.body(ticket, bytes, io.output(self.conn));
        self.turns.sent(ticket, bytes.len() as u64);
        if io.backlog(self.conn) > limits::SESSION_BACKLOG_BYTES_MAX && self.turns.fill() {
            io.notify_drained(self.conn, limits::SESSION_BACKLOG_BYTES_LOW);
        }
    }
}

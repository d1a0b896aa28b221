//! Clients whose connections have ended here are to hear of it, and no reset may leave this host: their owner may have given the connection to
//! another since, which this end cannot know. So the client is asked something: its answer goes to its owner's host, and whoever has the
//! connection there takes it for what it is, a packet without news; if nobody has, that host's kernel answers by a reset.
//!
//! It is asked for as long as a steering entry may send what it answers back here, where it is dropped. Bounded in number: clients beyond that
//! find out by their own time limits.

use shunt_handover::Flow;
use shunt_handover::owner::aged;
use shunt_reactor::moving::Frozen;
use shunt_reactor::{ConnId, Io};

use crate::limits;
use crate::state::{Agent, Asked, Peer, Taken};

/// The client of this connection, which is not here any more, is to hear that.
pub(crate) fn from_now_on(agent: &mut Agent, io: &Io, taken: &Taken) {
    if agent.own.keeps_resets_back() && agent.asked.len() < limits::ASKED_MAX {
        let (state, since_ns) = (taken.state, taken.since_ns);
        agent.asked.push_back(Asked { state, since_ns, due_ns: io.now_ns() + limits::TICK_NS, asks: 0 });
    }
}

/// Asks whom it is time to ask: the connection is put in, which makes its kernel ask the peer what it has, and taken out at once.
pub(crate) fn tick(agent: &mut Agent, io: &mut Io) {
    for _ in 0..agent.asked.len() {
        let Some(mut asked) = agent.asked.pop_front() else { return };
        let flow = Flow { local: asked.state.local, peer: asked.state.peer };
        // It has come back, or another of the same addresses.
        if agent.moves.has(flow) {
            continue;
        }
        if asked.due_ns <= io.now_ns() {
            asked.due_ns = io.now_ns() + limits::ASK_NS;
            asked.asks += 1;
            agent.own.expect(flow, limits::ASK_MS);
            // Of an older time it would not be answered.
            let state = aged(&asked.state, io.now_ns().saturating_sub(asked.since_ns) / 1_000_000);
            let conn = io.restore(Frozen::without_queues(state));
            agent.set_peer(conn, Peer::Asking(flow));
        }
        if asked.asks < limits::ASKS_MAX {
            agent.asked.push_back(asked);
        }
    }
}

/// What has asked is out again, or was not let in.
pub(crate) fn is_out(agent: &mut Agent, io: &mut Io, conn: ConnId, flow: Flow, is_out: bool) {
    agent.set_peer(conn, Peer::Nobody);
    // Of one that comes meanwhile the entry is its own.
    if !agent.moves.has(flow) {
        agent.own.disown(flow);
    }
    if !is_out {
        io.abort(conn);
    }
}

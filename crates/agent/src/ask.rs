//! Tells clients that their connection has ended here. No reset may leave this host: the owner may
//! have given the connection to another agent since, which this host cannot know. So the agent
//! makes the client send a packet: it reaches the owner's host. The host that holds the connection
//! takes the packet for one without news; if none does, the owner's kernel answers with a reset.
//!
//! The agent asks for as long as a steering entry may still send the client's packets back here,
//! where they are dropped. The number of such clients is bounded; those beyond it rely on their own
//! time limits.

use std::collections::VecDeque;

use shunt_handover::Flow;
use shunt_handover::owner::aged;
use shunt_reactor::moving::{Frozen, TcpState};
use shunt_reactor::{ConnId, Io};

use crate::limits;
use crate::state::{Agent, Asked, Peer, Taken};

/// Queues the client of a removed connection to be asked, so that it learns of the end.
pub(crate) fn from_now_on(agent: &mut Agent, io: &Io, taken: &Taken) {
    if agent.packet_filter.keeps_resets_back() && agent.asked.len() < limits::ASKED_MAX {
        let (state, since_ns) = (taken.state, taken.since_ns);
        agent.asked.push_back(Asked {
            state,
            since_ns,
            due_ns: io.now_ns() + limits::TICK_NS,
            asks: 0,
        });
    }
}

/// Asks clients whose time has come: restoring the connection makes the kernel probe the peer; then
/// the connection is taken out at once.
pub(crate) fn tick(agent: &mut Agent, io: &mut Io) {
    let Agent { asked, moves, .. } = &mut *agent;
    // A connection that has come back is not asked about, nor is another of the same addresses.
    for (flow, state) in due(asked, io.now_ns(), |flow| moves.has(flow)) {
        agent.packet_filter.expect(flow, limits::ASK_MS);
        let conn = io.restore(Frozen::without_queues(state));
        agent.set_peer(conn, Peer::Asking(flow));
    }
}

/// Takes the due entries out, with their state aged to now. At most [`limits::ASKS_AT_ONCE`] go in
/// one tick and the others in the next: if many clients are lost at once, asking all of them would
/// keep the loop busy.
fn due(
    all: &mut VecDeque<Asked>,
    now_ns: u64,
    is_here: impl Fn(Flow) -> bool,
) -> Vec<(Flow, TcpState)> {
    let mut due = Vec::new();
    for _ in 0..all.len() {
        let Some(mut asked) = all.pop_front() else { break };
        let flow = Flow { local: asked.state.local, peer: asked.state.peer };
        if is_here(flow) {
            continue;
        }
        if asked.due_ns <= now_ns && due.len() < limits::ASKS_AT_ONCE {
            asked.due_ns = now_ns + limits::ASK_NS;
            asked.asks += 1;
            // A client would not answer a packet with older timestamps.
            due.push((flow, aged(&asked.state, now_ns.saturating_sub(asked.since_ns) / 1_000_000)));
        }
        if asked.asks < limits::ASKS_MAX {
            all.push_back(asked);
        }
    }
    due
}

/// A probing connection is out again, or could not be restored.
pub(crate) fn is_out(agent: &mut Agent, io: &mut Io, conn: ConnId, flow: Flow, is_out: bool) {
    agent.set_peer(conn, Peer::Nobody);
    // A connection of the same addresses that came meanwhile needs its entry.
    if !agent.moves.has(flow) {
        agent.packet_filter.disown(flow);
    }
    if !is_out {
        io.abort(conn);
    }
}

#[cfg(test)]
mod tests {
    use shunt_reactor::moving::Window;

    use super::*;

    fn lost(port: u16) -> Asked {
        let state = TcpState {
            local: ([192, 0, 2, 1], 80).into(),
            peer: ([192, 0, 2, 2], port).into(),
            send_sequence: 1,
            receive_sequence: 1,
            mss: 1460,
            timestamp: Some(1),
            sack: true,
            window_scales: None,
            window: Window::default(),
        };
        Asked { state, since_ns: 0, due_ns: 0, asks: 0 }
    }

    #[test]
    fn a_tick_asks_few_of_many_lost_clients_and_all_are_asked_equally_often() {
        let clients = u16::try_from(limits::ASKED_MAX).expect("a port for each");
        let mut all: VecDeque<Asked> = (0..clients).map(lost).collect();
        let mut asks = vec![0; limits::ASKED_MAX];
        let (mut now_ns, mut ticks) = (0, 0);
        while !all.is_empty() {
            let now = due(&mut all, now_ns, |flow| flow.peer.port() == 7);
            assert!(now.len() <= limits::ASKS_AT_ONCE, "{} in one tick", now.len());
            now.iter().for_each(|(flow, _)| asks[usize::from(flow.peer.port())] += 1);
            (now_ns, ticks) = (now_ns + limits::TICK_NS, ticks + 1);
            assert!(ticks < 10_000, "{} are asked without end", all.len());
        }
        for (port, asked) in asks.iter().enumerate() {
            assert_eq!(*asked, if port == 7 { 0 } else { limits::ASKS_MAX }, "client {port}");
        }
    }
}

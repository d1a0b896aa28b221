//! Control connections to the agents: opened, kept, and reopened when they are lost.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use shunt_handover::message::{Message, Read, Ticket};
use shunt_handover::owner::AgentId;
use shunt_reactor::{CloseReason, Io, SessionFault};
use tracing::{debug, info, warn};

use super::connections;
use super::state::Control;
use crate::core::{Core, Peer};
use crate::limits;

/// Notes the agents of the ring's nodes, and connects to them.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    forget_gone(core, io);
    let Core { handover: Some(handover), router, connections, context, .. } = core else { return };
    if let Some(cluster) = &router.cluster {
        for node in cluster.routing.local_nodes() {
            let Some(node) = cluster.routing.node(*node) else { continue };
            let address = SocketAddr::new(node.address.ip(), context.config.handover_agent_port);
            if !handover.of_host.contains_key(&address.ip()) {
                handover.add_agent(address);
            }
        }
    }
    let now_ns = io.now_ns();
    let mut ended = Vec::new();
    // A core that ends hands over nothing new, but takes its connections back from agents.
    let goes_on = !context.draining || handover.owner.flows() > 0;
    for index in 0..handover.agents.len() {
        match &handover.agents[index].control {
            Control::Down { until_ns } if *until_ns <= now_ns && goes_on && !handover.is_off => {
                let handshake = handover.handshake();
                let agent = &mut handover.agents[index];
                let limit_ns = limits::AGENT_CONNECT_NS;
                let conn = context.outgoing.connect_to_agent(io, agent.address, limit_ns);
                agent.control = Control::Opening {
                    conn,
                    handshake,
                    until_ns: now_ns + limit_ns,
                    is_answered: false,
                };
                connections.set(conn, Peer::Agent(index as u32));
            }
            Control::Opening { until_ns, .. } if *until_ns <= now_ns => {
                // An agent with TLS waits for the client's part of a handshake.
                ended.push((
                    index,
                    match context.outgoing.agents {
                        Some(_) => "it does not answer",
                        None => "it does not answer; if it has TLS, set handover_tls = on",
                    },
                ));
            }
            Control::Open { .. } => {
                let agent = &mut handover.agents[index];
                if agent.heard_ns + limits::AGENT_SILENCE_NS <= now_ns {
                    ended.push((index, "nothing has come from it for too long"));
                } else if agent.pinged_ns + limits::AGENT_PING_NS <= now_ns {
                    agent.pinged_ns = now_ns;
                    agent.send(io, Ticket(0), &Message::Ping);
                }
            }
            _ => {}
        }
    }
    for (index, why) in ended {
        end(core, io, index, why);
    }
}

/// Forgets the agents of nodes that have left the ring, once no connection is with them, so that
/// nobody connects to them any more and agents of other nodes get their places.
fn forget_gone(core: &mut Core, io: &mut Io) {
    let (Some(handover), Some(cluster)) = (core.handover.as_deref(), &core.router.cluster) else {
        return;
    };
    let nodes = cluster.routing.local_nodes().iter();
    let hosts: HashSet<IpAddr> = nodes
        .filter_map(|node| cluster.routing.node(*node))
        .map(|node| node.address.ip())
        .collect();
    let gone: Vec<(IpAddr, u32)> = handover
        .of_host
        .iter()
        .filter(|(host, index)| !hosts.contains(*host) && !handover.owner.uses(AgentId(**index)))
        .map(|(host, index)| (*host, *index))
        .collect();
    for (host, index) in gone {
        if core.links.iter().any(|(_, link)| link.via == Some(index)) {
            continue;
        }
        let Some(handover) = core.handover.as_deref_mut() else { return };
        let Some(agent) = handover.agents.get_mut(index as usize) else { continue };
        let control = std::mem::replace(&mut agent.control, Control::Down { until_ns: u64::MAX });
        handover.of_host.remove(&host);
        handover.free.push(index);
        if let Control::Opening { conn, .. } | Control::Open { conn, .. } = control {
            core.connections.forget(conn);
            io.close(conn);
            connections::control_lost(core, io, index);
        }
    }
}

/// Handles bytes from an agent. Returns how many of them it consumed.
pub(crate) fn received(core: &mut Core, io: &mut Io, index: u32, data: &[u8]) -> usize {
    let mut used = 0;
    loop {
        let Some(handover) = core.handover.as_deref_mut() else { return data.len() };
        let Some(agent) = handover.agents.get_mut(index as usize) else { return data.len() };
        agent.heard_ns = io.now_ns();
        let input = &data[used..];
        if let Control::Opening { conn, is_answered, .. } = &mut agent.control
            && !std::mem::replace(is_answered, true)
        {
            core.context.count_handshake(io, core.context.outgoing.agents.as_deref(), *conn);
        }
        let why = match &mut agent.control {
            Control::Down { .. } => return data.len(),
            Control::Opening { conn, handshake, .. } => match handshake
                .read(input, io.output(*conn))
            {
                Ok(None) => return used,
                Ok(Some((read, None))) => {
                    used += read;
                    continue;
                }
                Ok(Some((read, Some(session)))) => {
                    used += read;
                    info!(agent = %agent.address, "connected to an agent");
                    let (encoder, decoder) = (Box::new(session.encoder), Box::new(session.decoder));
                    agent.control = Control::Open { conn: *conn, encoder, decoder };
                    agent.back_off_ns = limits::AGENT_BACK_OFF_FIRST_NS;
                    agent.reasons.clear();
                    agent.pinged_ns = io.now_ns();
                    // The agent knows by its first message that this is no link.
                    agent.send(io, Ticket(0), &Message::Ping);
                    connections::control_up(core, io, index, session.instance);
                    continue;
                }
                Err(error) => error.to_string(),
            },
            Control::Open { decoder, .. } => match decoder.next(input) {
                Ok(None) => return used,
                Ok(Some((read, Read::Message(ticket, message)))) => {
                    used += read;
                    if connections::heard(core, io, index, ticket, &message) {
                        continue;
                    }
                    "what it says of a connection cannot be".to_owned()
                }
                Ok(Some((_, Read::Body(..)))) => "it sends a body without a request".to_owned(),
                Err(error) => error.to_string(),
            },
        };
        end(core, io, index as usize, &why);
        return data.len();
    }
}

/// Ends a control connection.
pub(super) fn end(core: &mut Core, io: &mut Io, index: usize, why: &str) {
    let Some(handover) = core.handover.as_deref_mut() else { return };
    let conn = match handover.agents.get(index).map(|agent| &agent.control) {
        Some(Control::Opening { conn, .. } | Control::Open { conn, .. }) => *conn,
        Some(Control::Down { .. }) | None => return,
    };
    core.connections.forget(conn);
    io.abort(conn);
    lost(core, io, index as u32, why);
}

/// Handles the end of a control connection, or its failure to open.
pub(crate) fn closed(core: &mut Core, io: &mut Io, index: u32, reason: CloseReason) {
    let Some(handover) = core.handover.as_deref() else { return };
    let Some(agent) = handover.agents.get(index as usize) else { return };
    let is_unanswered = matches!(agent.control, Control::Opening { is_answered: false, .. });
    let tls = (core.context.outgoing.agents.as_deref(), is_unanswered);
    core.context.note_tls_end(io, tls, &agent.address, reason);
    let why = match reason {
        CloseReason::Session(SessionFault(why)) => why,
        _ => "its connection has ended",
    };
    lost(core, io, index, why);
}

/// Handles a control connection that ended or failed to open. The next attempt comes after a
/// back-off, longer each time.
pub(crate) fn lost(core: &mut Core, io: &mut Io, index: u32, why: &str) {
    let random = core.context.random();
    let Some(handover) = core.handover.as_deref_mut() else { return };
    let Some(agent) = handover.agents.get_mut(index as usize) else { return };
    let was_up = agent.is_up();
    // Half of the back-off is random, so that not all cores come back at once.
    let back_off_ns = agent.back_off_ns / 2 + random % (agent.back_off_ns / 2 + 1);
    agent.control = Control::Down { until_ns: io.now_ns() + back_off_ns };
    agent.back_off_ns = (agent.back_off_ns * 2).min(limits::AGENT_BACK_OFF_MAX_NS);
    let address = agent.address;
    // A later attempt may fail for a reason that says more.
    if agent.reasons.note(why) {
        warn!(agent = %address, why, "an agent cannot be reached: its node is asked without it, and the agent tried again until it can");
    } else {
        debug!(agent = %address, why, "an agent cannot be reached");
    }
    if was_up {
        connections::control_lost(core, io, index);
    }
}

/// Closes the control connections because the core ends: agents keep its connections for a while.
pub(crate) fn close_all(core: &mut Core, io: &mut Io) {
    let Some(handover) = core.handover.as_deref_mut() else { return };
    for agent in &mut handover.agents {
        if let Control::Opening { conn, .. } | Control::Open { conn, .. } = &agent.control {
            core.connections.forget(*conn);
            io.close(*conn);
        }
        agent.control = Control::Down { until_ns: u64::MAX };
    }
}

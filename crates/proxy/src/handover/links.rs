//! Links that go through the agent on their node's host.
//!
//! A link's connection begins with the handshake of the control protocol and one message, which
//! says from how many bytes on the agent offers answers; after that the bytes are the node's. If
//! the agent is unreachable, links bypass it, and are replaced when it is reachable again.

use shunt_handover::message::{Message, Ticket};
use shunt_reactor::Io;
use shunt_topology::NodeId;

use super::policy::way;
use crate::core::Core;
use crate::ids::{LinkKey, LinkRef, PoolId};
use crate::link::{Link, Role, handshake, lifecycle, open};

/// Handles the agent's bytes, which precede those of the node. Returns how many of them it
/// consumed.
#[cold]
pub(crate) fn shake(core: &mut Core, io: &mut Io, key: LinkKey, data: &[u8]) -> usize {
    let mut used = 0;
    loop {
        let Some(link) = core.links.get_mut(key) else { return data.len() };
        let Some(agent) = &mut link.agent else { return data.len() };
        match agent.read(&data[used..], io.output(link.conn)) {
            Ok(None) => return used,
            Ok(Some((read, None))) => used += read,
            Ok(Some((read, Some(mut session)))) => {
                used += read;
                let threshold = core.context.config.handover_threshold.to_be_bytes();
                let request =
                    Message::Request { head: &threshold, has_body: true, is_idempotent: false };
                link.agent = None;
                let tls = core.context.outgoing.agents.as_deref();
                core.context.count_handshake(io, tls, link.conn);
                let out = io.output(link.conn);
                if session.encoder.message(Ticket(0), &request, out).is_ok() {
                    handshake::begin(core, io, key);
                }
                return used;
            }
            Err(error) => {
                lifecycle::fault(core, io, key, &format!("the agent on its host: {error}"));
                return data.len();
            }
        }
    }
}

/// Replaces links that bypass their node's agent, now that it is reachable, by links through it.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    let is_direct = |link: &Link| link.via.is_none() && link.is_ready() && !link.is_being_replaced;
    let direct: Vec<(LinkRef, PoolId, NodeId)> = core
        .links
        .iter()
        .filter(|(_, link)| is_direct(link))
        .map(|(key, link)| (LinkRef { key, conn: link.conn }, link.pool, link.node))
        .collect();
    for (old, pool, node) in direct {
        if !core.context.draining
            && way(core, pool, node, io.now_ns()).is_some()
            && open::open(core, io, pool, node, Role::Replaces(old))
            && let Some(link) = core.links.get_mut(old.key)
        {
            link.is_being_replaced = true;
        }
    }
}

//! Opens connections to other proxies at their first use.

use std::net::SocketAddr;
use std::sync::Arc;

use shunt_reactor::Io;
use shunt_wire::cql::reader::EnvelopeReader;
use slab::Slab;

use crate::client::identity::PoolNames;
use crate::core::{Core, Peer};
use crate::fleet::forwarding::quota::Usage;
use crate::fleet::forwarding::{HopLink, Login, Step};
use crate::limits;

/// Most connections of a core to other proxies, one for each proxy and login. A role gets half of
/// them, because it can have any number of logins: the first part of a login may be anything.
const LINKS_MAX: usize = 1_024;
/// Deadline of a connection to be ready.
pub(super) const OPEN_NS: u64 = 2 * limits::SECOND_NS;

/// The connection to a proxy with this login. Opens it if there is none.
pub(super) fn link_to(
    core: &mut Core,
    io: &mut Io,
    to: SocketAddr,
    login: &Login,
) -> Option<usize> {
    let named = (to, login.clone());
    if let Some(key) = core.fleet.peers.by.get(&named) {
        return Some(*key);
    }
    let now_ns = io.now_ns();
    if core.fleet.peers.is_paused(to, login, now_ns) {
        return None;
    }
    let role = PoolNames::new(login.as_deref(), None).whole_role;
    let links = &core.fleet.peers.links;
    let has_part = links.iter().filter(|(_, link)| link.role == role).count() >= LINKS_MAX / 2;
    if (has_part || links.len() >= LINKS_MAX) && !close_idle(core, io, has_part.then_some(&role)) {
        return None;
    }
    let conn = match &core.context.outgoing.fleet {
        Some(tls) => io.connect_with(to, OPEN_NS, tls.session(to.ip())),
        None => io.connect(to, OPEN_NS),
    };
    let key = core.fleet.peers.links.insert(HopLink {
        conn,
        address: to,
        login: login.clone(),
        role,
        step: Step::Connecting,
        reader: EnvelopeReader::keeping(limits::CARRY_KEPT_BYTES as u32),
        sent: Slab::new(),
        usage: Usage::default(),
        unsent: Vec::new(),
        opened_ns: now_ns,
        last_received_ns: now_ns,
        used_ns: now_ns,
        probed_ns: 0,
    });
    core.fleet.peers.by.insert(named, key);
    core.connections.set(conn, Peer::Proxy(key as u32));
    Some(key)
}

/// Closes the connection that was idle for longest, of a role or of all. Returns false if every
/// connection has requests.
fn close_idle(core: &mut Core, io: &mut Io, of: Option<&Option<Arc<str>>>) -> bool {
    let is_meant = |link: &HopLink| of.is_none_or(|role| link.role == *role);
    let links = core.fleet.peers.links.iter().filter(|(_, link)| is_meant(link));
    let idle = links.filter(|(_, link)| link.step == Step::Ready && link.sent.is_empty());
    let Some(key) = idle.min_by_key(|(_, link)| link.used_ns).map(|(key, _)| key) else {
        return false;
    };
    let link = core.fleet.peers.links.remove(key);
    io.close(link.conn);
    core.connections.forget(link.conn);
    core.fleet.peers.by.remove(&(link.address, link.login));
    true
}

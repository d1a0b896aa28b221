//! Connections to other proxies are opened here, when they are needed.

use std::net::SocketAddr;

use shunt_reactor::Io;
use shunt_wire::cql::reader::EnvelopeReader;
use slab::Slab;

use crate::core::{Core, Peer};
use crate::hop::{HopLink, Login, Step};
use crate::limits;

/// Connections of one core to other proxies: one for each of them and each login.
const LINKS_MAX: usize = 1_024;
/// A connection has this long to be ready.
pub(super) const OPEN_NS: u64 = 2 * limits::SECOND_NS;

/// The connection to a proxy with this login, opened if there is none.
pub(super) fn link_to(core: &mut Core, io: &mut Io, to: SocketAddr, login: &Login) -> Option<usize> {
    let named = (to, login.clone());
    if let Some(key) = core.fleet.hops.by.get(&named) {
        return Some(*key);
    }
    if core.fleet.hops.links.len() >= LINKS_MAX && !close_idle(core, io) {
        return None;
    }
    let now_ns = io.now_ns();
    let conn = io.connect(to, OPEN_NS);
    let key = core.fleet.hops.links.insert(HopLink {
        conn,
        address: to,
        login: login.clone(),
        step: Step::Connecting,
        reader: EnvelopeReader::keeping(limits::CARRY_KEPT_BYTES as u32),
        sent: Slab::new(),
        unsent: Vec::new(),
        opened_ns: now_ns,
        last_received_ns: now_ns,
        used_ns: now_ns,
        probed_ns: 0,
    });
    core.fleet.hops.by.insert(named, key);
    core.connections.set(conn, Peer::Proxy(key as u32));
    Some(key)
}

/// Closes the connection that was not used for longest, of those on which nothing is awaited; `false`: there is none.
fn close_idle(core: &mut Core, io: &mut Io) -> bool {
    let idle = core.fleet.hops.links.iter().filter(|(_, link)| link.step == Step::Ready && link.sent.is_empty());
    let Some(key) = idle.min_by_key(|(_, link)| link.used_ns).map(|(key, _)| key) else { return false };
    let link = core.fleet.hops.links.remove(key);
    io.close(link.conn);
    core.connections.forget(link.conn);
    core.fleet.hops.by.remove(&(link.address, link.login));
    true
}

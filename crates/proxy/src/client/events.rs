//! Schema events for the clients that asked for them with REGISTER.
//!
//! Clients get no topology and status of the nodes behind the proxy, because the only hosts they
//! know are proxies ([`crate::client::announce`]). As there, a step writes to
//! [`limits::ANNOUNCE_CLIENTS`] clients, and the core serves connections in between.

use std::sync::Arc;

use shunt_reactor::Io;
use shunt_wire::cql::envelope::{EVENT_STREAM, opcode};

use crate::client::Phase;
use crate::core::Core;
use crate::limits;
use crate::reply::{self, Answer};

/// Timer of the next step.
pub(crate) const TIMER: u64 = 9;

/// Sends a schema event to the clients that registered, after those that came before.
pub(crate) fn schema_changed(core: &mut Core, io: &mut Io, body: Arc<[u8]>) {
    core.fleet.transactions.note_schema_change(io.now_ns());
    if core.clients.schema_news.add(body) {
        go_on(core, io);
    }
}

/// Tells the next clients.
pub(crate) fn go_on(core: &mut Core, io: &mut Io) {
    // The clients own the news, and are written to.
    let mut news = std::mem::take(&mut core.clients.schema_news);
    news.begin(core.clients.capacity());
    let (mut looked_at, mut told) = (0, 0);
    while looked_at < limits::ANNOUNCE_STEP && told < limits::ANNOUNCE_CLIENTS {
        let Some((slot, change)) = news.next() else { break };
        looked_at += 1;
        let client = core.clients.get(slot);
        let listener =
            client.filter(|client| client.registered.schema && client.phase == Phase::Ready);
        let Some(version) = listener.map(|client| client.version) else { continue };
        let event = Answer::plain(opcode::EVENT, EVENT_STREAM, change.body(version));
        reply::write(&mut core.clients, &core.context, io, slot, &event);
        told += 1;
    }
    if let Some(pause_ns) = news.end_round() {
        io.set_timer(io.now_ns() + pause_ns, TIMER);
    }
    core.clients.schema_news = news;
}

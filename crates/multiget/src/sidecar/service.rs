//! Events of the loop, each handed to the step it concerns, and the periodic work.

use std::net::SocketAddr;

use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};

use super::apps::App;
use super::{Peer, Sidecar};
use crate::Mail;
use crate::limits;

/// Key of the periodic timer.
const TICK: u64 = 1;

impl Service for Sidecar {
    type Mail = Mail;

    fn started(&mut self, io: &mut Io) {
        self.ask_for_slots(io);
        io.set_timer(io.now_ns() + limits::TICK_NS, TICK);
    }

    fn accepted(&mut self, io: &mut Io, conn: ConnId, origin: &Accepted) {
        if self.is_draining {
            return io.close(conn);
        }
        let host = self.metrics.hosts.connect(origin.peer.ip());
        let app = self.apps.insert(App::new(conn, host));
        self.set_peer(conn, Peer::App(app));
    }

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        // The first bytes are already in its output.
        if let Peer::Link(link) = self.peer(conn) {
            self.link_opened(io, link);
        }
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        match self.peer(conn) {
            Peer::App(_) => self.app_received(io, conn, data),
            Peer::Link(link) => {
                let taken = self.link_received(io, link, data);
                self.carry_out(io);
                taken
            }
            Peer::Nobody => data.len(),
        }
    }

    fn closed(&mut self, io: &mut Io, conn: ConnId, reason: CloseReason) {
        match self.peer(conn) {
            Peer::App(app) => {
                self.remove_app(app);
                self.abandon(io, conn);
            }
            Peer::Link(link) => {
                self.link_closed(io, link, reason);
                self.carry_out(io);
            }
            Peer::Nobody => {}
        }
    }

    fn drained(&mut self, io: &mut Io, conn: ConnId) {
        self.go_on(io, conn);
    }

    fn datagram(&mut self, io: &mut Io, from: SocketAddr, data: &[u8]) {
        self.replied(io, from, data);
    }

    fn timer(&mut self, io: &mut Io, key: u64) {
        if key == TICK {
            io.set_timer(io.now_ns() + limits::TICK_NS, TICK);
            self.lose_late(io);
            self.look_for_full_links(io);
            self.ask_for_slots(io);
            self.carry_out(io);
            self.weigh(io);
            self.tell_suppressed(io);
            self.health.tick(io.now_ns());
        } else if self.armed_ns.is_none_or(|armed_ns| armed_ns <= io.now_ns()) {
            // Timers cannot be cancelled, so overtaken ones fire too; each would set another one
            // for ever.
            self.armed_ns = None;
            self.look(io);
        }
    }

    fn mail(&mut self, io: &mut Io, mail: Mail) {
        self.is_draining = true;
        for conn in self.apps.iter().map(|(_, app)| app.conn).collect::<Vec<_>>() {
            let Some(app) = self.app_of(conn) else { continue };
            self.apps[app].is_closing = true;
            if self.apps[app].is_idle() {
                self.close(io, conn);
            }
        }
        if mail == Mail::End {
            io.stop();
        }
    }

    fn turn_ended(&mut self, io: &mut Io) {
        let metrics = &self.metrics;
        metrics.turns.add(1);
        metrics.clients.set(self.apps.len() as u64);
        metrics.under_way.set(self.client.under_way() as u64);
        metrics.splits.set(self.splits.len() as u64);
        metrics.groups.set(self.client.groups().0 as u64);
        metrics.silent.set(self.client.silent().count() as u64);
        metrics.unsent.set(io.datagrams_dropped());
        metrics.counts.show(&self.client.counts());
        let links = self.links.iter().filter(|link| link.conn.is_some()).count();
        if self.is_draining && self.apps.is_empty() && io.connections() <= links {
            io.stop();
        }
    }
}

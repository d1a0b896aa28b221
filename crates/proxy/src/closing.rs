//! A client's way out: whoever is closed by the proxy is counted and told in the log, with who it was and why.
//!
//! Not per query. There is no other way to close a client than the two here, so that none is closed without a reason.

use std::io::ErrorKind;

use shunt_admin::Label as _;
use shunt_reactor::{CloseReason, Io};

use crate::core::Core;
use crate::limits;
use crate::log_limits::Logged;
use crate::metrics::Closing;
use crate::who::printable_to;

impl Core {
    /// The client's connection ended by itself.
    pub(crate) fn client_lost(&mut self, io: &mut Io, slot: u32, reason: CloseReason) {
        if reason == CloseReason::Error(ErrorKind::TimedOut) {
            self.tell_closed(
                io,
                slot,
                Closing::Unreachable,
                "its host acknowledged nothing, or had no room, for too long",
            );
        }
        self.client_gone(io, slot);
    }

    fn client_gone(&mut self, io: &mut Io, slot: u32) {
        if let Some(client) = self.clients.get(slot as usize) {
            self.disown(client.conn);
        }
        self.forget_client(io, slot);
    }

    /// Closes a client after what was written to it is sent.
    pub(crate) fn close_client(&mut self, io: &mut Io, slot: u32, closing: Closing, why: &str) {
        self.tell_closed(io, slot, closing, why);
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        let conn = client.conn;
        if std::mem::take(&mut client.dirty) {
            client.writer.finish(io.output(conn));
        }
        io.close(conn);
        self.client_gone(io, slot);
    }

    /// Closes a client that would not take what is still written to it.
    pub(crate) fn drop_client(&mut self, io: &mut Io, slot: u32, closing: Closing, why: &str) {
        self.tell_closed(io, slot, closing, why);
        let Some(client) = self.clients.get(slot as usize) else { return };
        io.abort(client.conn);
        self.client_gone(io, slot);
    }

    fn forget_client(&mut self, io: &mut Io, slot: u32) {
        let Some(client) = self.clients.try_remove(slot as usize) else { return };
        self.metrics.clients.sub(1);
        if client.stalls.any() {
            self.metrics.clients_paused.sub(1);
        }
        for reason in client.stalls.reasons() {
            self.metrics.clients_stalled.of(reason).sub(1);
        }
        for pool in [client.pool, client.switch.map(|switch| switch.pool)].into_iter().flatten() {
            self.leave_pool(io, pool, client.id);
        }
    }

    /// `why` may quote a client or a node.
    fn tell_closed(&self, io: &Io, slot: u32, closing: Closing, why: &str) {
        let Some(client) = self.clients.get(slot as usize) else { return };
        self.metrics.clients_closed.of(closing).add(1);
        if closing == Closing::Version {
            // Each connection of a driver that begins with a newer version ends so once; there is nothing to do about it.
            return;
        }
        let Some(suppressed) = self.log_limits.admit(Logged::Closed(closing), io.now_ns()) else { return };
        let who = self.who(client);
        let why = printable_to(why, limits::REASON_SHOWN_BYTES_MAX);
        tracing::warn!(
            core = self.index,
            reason = closing.text(),
            address = %who.address,
            role = who.role(),
            keyspace = who.keyspace(),
            driver = who.driver(),
            in_flight = client.in_flight,
            why,
            suppressed,
            "closed a client"
        );
    }

    /// Tells how many lines were left out where none has come since.
    pub(crate) fn tell_suppressed(&self, io: &Io) {
        for (logged, suppressed) in self.log_limits.overdue(io.now_ns()) {
            let reason = logged.text();
            match logged {
                Logged::Closed(_) => tracing::warn!(reason, suppressed, "more clients were closed for the same reason"),
                Logged::LongAnswer | Logged::NoAccess => {
                    tracing::warn!(reason, suppressed, "the same happened more often")
                }
            }
        }
    }
}

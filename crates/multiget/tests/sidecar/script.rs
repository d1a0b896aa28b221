//! An application that sends what a test gives it, and keeps the answers.

use std::net::SocketAddr;

use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::resp::put_command;

use crate::app::CONNECT_NS;

pub(crate) struct Script {
    to: SocketAddr,
    conn: Option<ConnId>,
    unsent: Vec<u8>,
    pub(crate) received: Vec<u8>,
    pub(crate) is_closed: bool,
}

impl Script {
    pub(crate) fn new(to: SocketAddr) -> Self {
        Self { to, conn: None, unsent: Vec::new(), received: Vec::new(), is_closed: false }
    }

    pub(crate) fn send(&mut self, io: &mut Io, words: &[&[u8]]) {
        put_command(&mut self.unsent, words.iter().copied());
        if let Some(conn) = self.conn {
            io.output(conn).append(&mut self.unsent);
        }
    }

    /// Sends these bytes unchanged.
    pub(crate) fn send_raw(&mut self, io: &mut Io, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
        if let Some(conn) = self.conn {
            io.output(conn).append(&mut self.unsent);
        }
    }

    pub(crate) fn leave(&mut self, io: &mut Io) {
        self.conn.take().into_iter().for_each(|conn| io.abort(conn));
    }

    pub(crate) fn pause(&mut self, io: &mut Io) {
        self.conn.into_iter().for_each(|conn| io.pause_reading(conn));
    }
}

impl Service for Script {
    type Mail = ();

    fn started(&mut self, io: &mut Io) {
        io.connect(self.to, CONNECT_NS);
    }

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {}

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        self.conn = Some(conn);
        io.output(conn).append(&mut self.unsent);
    }

    fn received(&mut self, _io: &mut Io, _conn: ConnId, data: &[u8]) -> usize {
        self.received.extend_from_slice(data);
        data.len()
    }

    fn closed(&mut self, _io: &mut Io, _conn: ConnId, _reason: CloseReason) {
        (self.conn, self.is_closed) = (None, true);
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}

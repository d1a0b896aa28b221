//! A service whose connections the test moves: it echoes frames as [`Echo`] does and keeps frozen
//! connections.

use super::echo::Echo;
use shunt_reactor::moving::{Frozen, NotFrozen};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};

#[derive(Default)]
pub struct Station {
    pub echo: Echo,
    pub conn: Option<ConnId>,
    pub frozen: Option<Frozen>,
    pub not_frozen: Vec<NotFrozen>,
    pub restored: Vec<ConnId>,
    pub closed: Vec<CloseReason>,
}

impl Station {
    /// Freezes the connection that is here.
    pub fn freeze(&mut self, io: &mut Io) {
        io.freeze(self.conn.expect("a connection"));
    }
}

impl Service for Station {
    type Mail = ();

    fn accepted(&mut self, io: &mut Io, conn: ConnId, origin: &Accepted) {
        self.conn = Some(conn);
        self.echo.accepted(io, conn, origin);
    }

    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        self.echo.received(io, conn, data)
    }

    fn closed(&mut self, _io: &mut Io, conn: ConnId, reason: CloseReason) {
        self.closed.push(reason);
        if self.conn == Some(conn) {
            self.conn = None;
        }
    }

    fn drained(&mut self, io: &mut Io, conn: ConnId) {
        self.echo.drained(io, conn);
    }

    fn frozen(&mut self, io: &mut Io, conn: ConnId, outcome: Result<Frozen, NotFrozen>) {
        assert!(io.is_open(conn) && self.conn == Some(conn));
        match outcome {
            Ok(frozen) => {
                self.frozen = Some(frozen);
                self.conn = None;
            }
            Err(reason) => self.not_frozen.push(reason),
        }
    }

    fn restored(&mut self, io: &mut Io, conn: ConnId) {
        assert!(io.is_open(conn));
        self.restored.push(conn);
        self.conn = Some(conn);
    }

    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}

//! A service that only records its events; the test acts through its `Io`.

use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};

#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    Accepted(ConnId, u16),
    Connected(ConnId),
    Received(ConnId, Vec<u8>),
    Closed(ConnId, CloseReason),
    Drained(ConnId),
    Timer(u64),
    Mail(u32),
}

/// Consumes at most `appetite` bytes of each presentation, and nothing of one shorter than `least`.
pub struct Script {
    pub seen: Vec<Seen>,
    pub appetite: usize,
    pub least: usize,
    pub pause_after_received: bool,
    pub turns: u64,
}

impl Script {
    pub fn new() -> Script {
        Script {
            seen: Vec::new(),
            appetite: usize::MAX,
            least: 0,
            pause_after_received: false,
            turns: 0,
        }
    }

    pub fn accepted_conn(&self) -> Option<ConnId> {
        self.seen.iter().find_map(|seen| match seen {
            Seen::Accepted(conn, _) => Some(*conn),
            _ => None,
        })
    }

    pub fn bytes(&self) -> Vec<u8> {
        let received = self.seen.iter().filter_map(|seen| match seen {
            Seen::Received(_, bytes) => Some(bytes.as_slice()),
            _ => None,
        });
        received.collect::<Vec<_>>().concat()
    }

    pub fn closed(&self) -> Vec<CloseReason> {
        let closed = self.seen.iter().filter_map(|seen| match seen {
            Seen::Closed(_, reason) => Some(*reason),
            _ => None,
        });
        closed.collect()
    }
}

impl Service for Script {
    type Mail = u32;

    fn accepted(&mut self, _io: &mut Io, conn: ConnId, origin: &Accepted) {
        self.seen.push(Seen::Accepted(conn, origin.listener));
    }

    fn connected(&mut self, _io: &mut Io, conn: ConnId) {
        self.seen.push(Seen::Connected(conn));
    }

    /// Records the consumed bytes only.
    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        if data.len() < self.least {
            return 0;
        }
        let consumed = data.len().min(self.appetite);
        self.seen.push(Seen::Received(conn, data[..consumed].to_vec()));
        if self.pause_after_received {
            io.pause_reading(conn);
        }
        consumed
    }

    fn closed(&mut self, _io: &mut Io, conn: ConnId, reason: CloseReason) {
        self.seen.push(Seen::Closed(conn, reason));
    }

    fn drained(&mut self, _io: &mut Io, conn: ConnId) {
        self.seen.push(Seen::Drained(conn));
    }

    fn timer(&mut self, _io: &mut Io, key: u64) {
        self.seen.push(Seen::Timer(key));
    }

    fn mail(&mut self, _io: &mut Io, mail: u32) {
        self.seen.push(Seen::Mail(mail));
    }

    fn turn_ended(&mut self, _io: &mut Io) {
        self.turns += 1;
    }
}

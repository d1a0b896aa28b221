//! Connections to the servers, one each. They carry writes, values that datagrams did not bring,
//! and with `--way tcp` all multigets.

use std::{collections::VecDeque, net::SocketAddr};

use shunt_multiget::client::Ticket;
use shunt_reactor::{ConnId, Io};
use shunt_wire::resp::{Scanner, put_array, put_bulk};

/// Largest answer in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;
const CONNECT_NS: u64 = 5_000_000_000;

/// The request that the next answer belongs to.
#[derive(Debug)]
pub(super) enum Expected {
    /// The first write of a key.
    Filled,
    /// A write.
    Written(usize),
    /// The keys of an operation, with their number; the link's `positions` has the positions.
    Part(usize, usize),
    /// Keys that the library wants over TCP.
    Fetched(Ticket, Vec<u16>),
}

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) server: SocketAddr,
    pub(super) conn: Option<ConnId>,
    pub(super) is_up: bool,
    pub(super) scanner: Scanner,
    /// The requests under way, in order.
    pub(super) expected: VecDeque<Expected>,
    /// For the parts among them, the position of each value's key in its operation.
    pub(super) positions: VecDeque<u16>,
}

impl Link {
    pub(super) fn new(server: SocketAddr) -> Self {
        let (expected, positions) = (VecDeque::new(), VecDeque::new());
        Self {
            server,
            conn: None,
            is_up: false,
            scanner: Scanner::new(ANSWER_BYTES_MAX),
            expected,
            positions,
        }
    }

    pub(super) fn connect(&mut self, io: &mut Io) -> ConnId {
        let conn = io.connect(self.server, CONNECT_NS);
        self.conn = Some(conn);
        conn
    }

    /// Sends a SET.
    pub(super) fn set(&mut self, io: &mut Io, key: &[u8], value: &[u8], expected: Expected) {
        let Some(conn) = self.conn else { return };
        let out = io.output(conn);
        put_array(out, 3);
        [b"SET", key, value].iter().for_each(|argument| put_bulk(out, argument));
        self.expected.push_back(expected);
    }

    /// Sends an MGET.
    pub(super) fn multiget<'k>(
        &mut self,
        io: &mut Io,
        keys: impl ExactSizeIterator<Item = &'k [u8]>,
        expected: Expected,
    ) {
        let Some(conn) = self.conn else { return };
        let out = io.output(conn);
        put_array(out, keys.len() + 1);
        put_bulk(out, b"MGET");
        keys.for_each(|key| put_bulk(out, key));
        self.expected.push_back(expected);
    }
}

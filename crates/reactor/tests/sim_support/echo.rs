//! An echo server that consumes whole frames only and pauses readers whose answers pile up, and a
//! client that sends numbered frames of random length, starts again on another connection after a
//! loss, and checks every byte.

use shunt_reactor::sim::{MILLISECOND, Random, SECOND};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Answers that may pile up before the server stops reading.
const BACKLOG_BYTES: usize = 4096;

#[derive(Default)]
pub struct Echo {
    pub accepted: Vec<(ConnId, Accepted)>,
    pub frames: u64,
    pub paused: u64,
    pub backlog_most: usize,
    pub stop_reading_after: Option<u64>,
}

impl Service for Echo {
    type Mail = ();

    fn accepted(&mut self, _io: &mut Io, conn: ConnId, origin: &Accepted) {
        self.accepted.push((conn, *origin));
    }

    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let mut consumed = 0;
        while let Some(frame) = next_frame(&data[consumed..]) {
            io.output(conn).extend_from_slice(frame);
            consumed += frame.len();
            self.frames += 1;
            self.backlog_most = self.backlog_most.max(io.backlog(conn));
            if io.backlog(conn) > BACKLOG_BYTES {
                self.paused += 1;
                io.pause_reading(conn);
                io.notify_drained(conn, BACKLOG_BYTES / 2);
                break;
            }
        }
        consumed
    }

    fn closed(&mut self, _io: &mut Io, _conn: ConnId, _reason: CloseReason) {}

    fn drained(&mut self, io: &mut Io, conn: ConnId) {
        assert!(io.backlog(conn) <= BACKLOG_BYTES / 2);
        io.resume_reading(conn);
    }

    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}

/// The first frame: four bytes of length, then as many bytes.
fn next_frame(data: &[u8]) -> Option<&[u8]> {
    let length = u32::from_be_bytes(data.get(..4)?.try_into().unwrap()) as usize;
    data.get(..4 + length)
}

pub struct Client {
    to: SocketAddr,
    random: Random,
    conn: Option<ConnId>,
    /// Frames still to be answered.
    left: u32,
    frame_bytes_max: u64,
    /// Bytes sent on this connection that have not come back.
    expected: VecDeque<u8>,
    in_flight: VecDeque<usize>,
    pub losses: u32,
    pub partial_answers: u32,
}

impl Client {
    pub fn new(seed: u64, to: SocketAddr, frames: u32, frame_bytes_max: u64) -> Client {
        Client {
            to,
            random: Random::new(seed),
            conn: None,
            left: frames,
            frame_bytes_max,
            expected: VecDeque::new(),
            in_flight: VecDeque::new(),
            losses: 0,
            partial_answers: 0,
        }
    }

    pub fn done(&self) -> bool {
        self.left == 0
    }

    pub fn conn(&self) -> Option<ConnId> {
        self.conn
    }

    fn send(&mut self, io: &mut Io, conn: ConnId) {
        while self.in_flight.len() < 8.min(self.left as usize) && io.backlog(conn) < 64 << 10 {
            let mut frame = vec![0; 4 + self.random.below(self.frame_bytes_max) as usize];
            self.random.fill(&mut frame);
            let length = (frame.len() - 4) as u32;
            frame[..4].copy_from_slice(&length.to_be_bytes());
            io.output(conn).extend_from_slice(&frame);
            self.in_flight.push_back(frame.len());
            self.expected.extend(&frame);
        }
    }
}

impl Service for Client {
    type Mail = ();

    fn started(&mut self, io: &mut Io) {
        self.conn = Some(io.connect(self.to, 2 * SECOND));
    }

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {
        unreachable!("clients do not listen");
    }

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        assert_eq!(self.conn, Some(conn));
        self.send(io, conn);
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        assert_eq!(self.conn, Some(conn));
        let Some(&length) = self.in_flight.front() else { panic!("an answer to nothing") };
        if data.len() < length {
            self.partial_answers += 1;
            return 0;
        }
        let expected: Vec<u8> = self.expected.drain(..length).collect();
        assert_eq!(&data[..length], expected, "the bytes are not the ones sent");
        self.in_flight.pop_front();
        self.left -= 1;
        self.send(io, conn);
        if self.left == 0 {
            io.close(conn);
            self.conn = None;
            return length;
        }
        // One frame a call: the rest must be presented again, which takes a pause and a resume
        // without new bytes.
        io.pause_reading(conn);
        io.resume_reading(conn);
        length
    }

    fn closed(&mut self, io: &mut Io, conn: ConnId, _reason: CloseReason) {
        assert_eq!(self.conn.take(), Some(conn));
        self.losses += 1;
        self.expected.clear();
        self.in_flight.clear();
        io.set_timer(io.now_ns() + 10 * MILLISECOND, 1);
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn timer(&mut self, io: &mut Io, _key: u64) {
        self.conn = Some(io.connect(self.to, 2 * SECOND));
    }

    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}

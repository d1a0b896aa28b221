//! One simulated TCP connection: two ends and a bounded byte pipe towards each of them.
//!
//! Plain state without clock or chance; `network` decides when and whether bytes move.

use std::collections::VecDeque;
use std::net::SocketAddr;

/// One end of a wire. Side 0 is the end that connected, side 1 the one that accepted.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct End {
    pub(super) wire: usize,
    pub(super) side: usize,
}

impl End {
    pub(super) fn other(self) -> End {
        End { wire: self.wire, side: 1 - self.side }
    }
}

/// Progress of a wire.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum Stage {
    /// The connect request is in flight or was lost.
    Opening,
    /// Bytes may pass.
    Open,
    /// Refused: nothing passes any more.
    Broken,
}

/// News for an end that it has not yet acted upon.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum News {
    Connected,
    Refused,
    Reset,
    TimedOut,
}

/// The sequence numbers that the state of a restored end must have: the next one in each direction.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct Away {
    pub(super) to_send: u32,
    pub(super) to_receive: u32,
}

/// One host's view of the wire.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) host: usize,
    pub(super) address: SocketAddr,
    /// Slot in the connection table of the host's `Io`; `None` before the connection is accepted.
    pub(super) slot: Option<u32>,
    /// True if the host holds this end: it has a socket for it, or its backlog does.
    pub(super) attached: bool,
    /// True if the host lost its power: it would answer any packet with a reset once it is back.
    pub(super) forgotten: bool,
    pub(super) news: Option<News>,
    /// Set while the end is frozen and attached to no host.
    pub(super) away: Option<Away>,
    /// True if its kernel knows that the connection is lost: it sends nothing from here any more.
    pub(super) lost: bool,
    /// True if a write was refused or cut short; the end waits for room.
    pub(super) blocked: bool,
    /// True if word of room is on its way to the end.
    pub(super) room_announced: bool,
    /// True if it stands in its host's list of ready ends.
    pub(super) queued: bool,
}

/// Bytes on their way to one end.
#[derive(Debug)]
pub(super) struct Pipe {
    /// Bytes sent and not yet read; the first `arrived` ones can be read.
    pub(super) bytes: VecDeque<u8>,
    /// Number of bytes ever put in, and not lost: the number of the next one.
    pub(super) position: u64,
    pub(super) arrived: usize,
    /// Lengths of the parcels that have not arrived, oldest first.
    pub(super) parcels: VecDeque<usize>,
    /// Number of times that all parcels were lost, so that those are not taken for later ones.
    pub(super) losses: u32,
    /// Bound on bytes sent and unread.
    pub(super) window: usize,
    /// Arrival of the youngest parcel: none may overtake it.
    pub(super) last_arrival_ns: u64,
    /// True if the sender ended the stream; the end arrives after the last byte.
    pub(super) end_sent: bool,
    pub(super) end_arrived: bool,
}

impl Pipe {
    pub(super) fn new(window: usize) -> Pipe {
        Pipe {
            bytes: VecDeque::new(),
            position: 0,
            losses: 0,
            arrived: 0,
            parcels: VecDeque::new(),
            window: window.max(1),
            last_arrival_ns: 0,
            end_sent: false,
            end_arrived: false,
        }
    }

    pub(super) fn room(&self) -> usize {
        self.window.saturating_sub(self.bytes.len())
    }

    /// Puts bytes in; they travel once they are dispatched.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.position += bytes.len() as u64;
    }

    /// Delivers the oldest parcel. A parcel of no bytes is the end of the stream.
    pub(super) fn parcel_arrives(&mut self) {
        match self.parcels.pop_front() {
            Some(0) => self.end_arrived = true,
            Some(length) => self.arrived += length,
            None => {}
        }
    }

    /// Appends the first `count` of the arrived bytes to `into`, as slices: most of a simulation's
    /// time went into an iterator over single bytes.
    pub(super) fn take(&mut self, count: usize, into: &mut Vec<u8>) {
        let (front, back) = self.bytes.as_slices();
        let of_front = count.min(front.len());
        into.extend_from_slice(&front[..of_front]);
        into.extend_from_slice(&back[..count - of_front]);
        self.bytes.drain(..count);
        self.arrived -= count;
    }

    /// Loses all bytes that were sent and have not arrived.
    pub(super) fn lose_parcels(&mut self) {
        self.parcels.clear();
        self.losses += 1;
        self.position -= (self.bytes.len() - self.arrived) as u64;
        self.bytes.truncate(self.arrived);
    }

    /// Discards all bytes that have arrived.
    pub(super) fn discard_arrived(&mut self) {
        self.bytes.drain(..std::mem::take(&mut self.arrived));
    }

    /// Frees the memory, because both ends are gone.
    pub(super) fn discard(&mut self) {
        self.parcels.clear();
        self.bytes = VecDeque::new();
        self.arrived = 0;
    }
}

/// A simulated TCP connection.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) stage: Stage,
    pub(super) sockets: [Socket; 2],
    /// `pipes[side]` leads to `sockets[side]`.
    pub(super) pipes: [Pipe; 2],
    /// True if half-open: nothing passes any more.
    pub(super) silent: bool,
    /// Number of silences, so that a give-up set for an earlier one is not taken for this one's.
    pub(super) silences: u32,
}

impl Wire {
    pub(super) fn new(sockets: [Socket; 2], windows: [usize; 2]) -> Wire {
        Wire {
            stage: Stage::Opening,
            sockets,
            pipes: windows.map(Pipe::new),
            silent: false,
            silences: 0,
        }
    }

    /// Sequence number of the next byte of the pipe that leads to this end. The first ones are such
    /// that they pass through 0 early in some connections.
    pub(super) fn next_sequence(&self, to: End) -> u32 {
        let first =
            0u32.wrapping_sub((to.wire as u32 * 2 + to.side as u32).wrapping_mul(997) % 65_536);
        first.wrapping_add(self.pipes[to.side].position as u32)
    }

    pub(super) fn hosts(&self) -> [usize; 2] {
        [self.sockets[0].host, self.sockets[1].host]
    }
}

impl Socket {
    pub(super) fn new(
        host: usize,
        address: SocketAddr,
        slot: Option<u32>,
        attached: bool,
    ) -> Socket {
        Socket {
            host,
            address,
            slot,
            attached,
            forgotten: false,
            news: None,
            away: None,
            lost: false,
            blocked: false,
            room_announced: false,
            queued: false,
        }
    }
}

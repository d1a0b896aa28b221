//! From the socket to the service: presents bytes, keeps those that were not consumed, and joins
//! both without copying large messages twice.

use std::io;

use crate::connection::State;
use crate::engine::{Command, KEPT_COPY_MAX, close_reason};
use crate::io::Io;
use crate::service::{ConnId, Service};

/// Least room for the next read while a large message arrives.
const LARGE_ROOM_MIN: usize = 64 << 10;

/// Bytes kept for the service, taken out of their connection for a while.
#[derive(Debug)]
pub struct KeptInput {
    buffer: Vec<u8>,
    start: usize,
}

impl KeptInput {
    /// The bytes, which may be none.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }
}

impl Io {
    /// Takes the bytes that are kept for the service, so that it reads on at once, and not after
    /// [`resume_reading`](Io::resume_reading) in the next turn. [`return_kept`](Io::return_kept)
    /// must follow in the same callback.
    pub fn take_kept(&mut self, conn: ConnId) -> KeptInput {
        let open = self.get_mut(conn).filter(|connection| connection.state == State::Open);
        let Some(connection) = open else {
            return KeptInput { buffer: Vec::new(), start: 0 };
        };
        let buffer = std::mem::take(&mut connection.input);
        KeptInput { buffer, start: std::mem::take(&mut connection.input_start) }
    }

    /// Gives back the bytes of [`take_kept`](Io::take_kept) behind the first `consumed`.
    pub fn return_kept(&mut self, conn: ConnId, kept: KeptInput, consumed: usize) {
        let start = kept.start + consumed.min(kept.bytes().len());
        if self.is_open(conn) && start < kept.buffer.len() {
            self.put_back(conn.index, kept.buffer, start);
        } else {
            self.pool.put(kept.buffer);
        }
    }

    /// Hands over bytes that are already in memory. Discards bytes for a connection that the
    /// service has closed, keeps those for a paused one.
    #[inline]
    pub(crate) fn deliver<S: Service>(&mut self, index: u32, data: &[u8], service: &mut S) {
        self.counters.count_read(data.len());
        if self.connections[index as usize].tunnel.is_some() {
            let mut buffer = std::mem::take(&mut self.receive_buffer);
            buffer.clear();
            self.take_partial(index, &mut buffer);
            buffer.extend_from_slice(data);
            self.open(index, &mut buffer, service);
            self.receive_buffer = buffer;
            return;
        }
        self.present_opened(index, data, service);
    }

    /// Hands over plaintext that is already in memory.
    #[inline]
    pub(crate) fn present_opened<S: Service>(&mut self, index: u32, data: &[u8], service: &mut S) {
        let connection = &mut self.connections[index as usize];
        if connection.state != State::Open {
            return;
        }
        if connection.input.is_empty() && !connection.paused {
            if let Some(consumed) = self.present(index, data, service) {
                self.keep(index, &data[consumed..]);
            }
        } else {
            let paused = connection.paused;
            self.append_kept(index, data);
            if !paused {
                self.present_kept(index, service);
            }
        }
    }

    /// Reads once with `read(buffer, bytes_max)`, which appends to the buffer, and hands the bytes
    /// over. Ends the connection on the end of the stream and on errors.
    #[inline]
    pub(crate) fn receive<S: Service>(
        &mut self,
        index: u32,
        service: &mut S,
        read: impl FnOnce(&mut Vec<u8>, usize) -> io::Result<usize>,
    ) {
        let connection = &self.connections[index as usize];
        let kept = connection.unread();
        let outcome = if connection.tunnel.is_some() && connection.state != State::Lingering {
            self.receive_sealed(index, service, read)
        } else if connection.state != State::Open {
            self.receive_buffer.clear();
            read(&mut self.receive_buffer, self.receive_bytes_max)
        } else if kept <= KEPT_COPY_MAX {
            self.receive_behind_copy(index, kept, service, read)
        } else {
            self.receive_behind_kept(index, service, read)
        };
        match outcome {
            Ok(0) => self.end_of_stream(index, service),
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => self.ended(index, close_reason(error.kind()), service),
        }
    }

    /// Reads records behind the start of one that arrived before, and opens them.
    fn receive_sealed<S: Service>(
        &mut self,
        index: u32,
        service: &mut S,
        read: impl FnOnce(&mut Vec<u8>, usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut buffer = std::mem::take(&mut self.receive_buffer);
        buffer.clear();
        self.take_partial(index, &mut buffer);
        let before = buffer.len();
        let outcome = read(&mut buffer, self.receive_bytes_max);
        if let Ok(count @ 1..) = outcome {
            self.counters.count_read(count);
            self.open(index, &mut buffer, service);
        } else if before > 0 {
            self.put_partial(index, &buffer);
        }
        self.receive_buffer = buffer;
        outcome
    }

    /// Reads into the loop's receive buffer, after a copy of the (short or absent) kept part: the
    /// usual case.
    #[inline]
    fn receive_behind_copy<S: Service>(
        &mut self,
        index: u32,
        kept: usize,
        service: &mut S,
        read: impl FnOnce(&mut Vec<u8>, usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut buffer = std::mem::take(&mut self.receive_buffer);
        buffer.clear();
        if kept > 0 {
            let connection = &self.connections[index as usize];
            buffer.extend_from_slice(&connection.input[connection.input_start..]);
        }
        let outcome = read(&mut buffer, self.receive_bytes_max);
        if let Ok(count @ 1..) = outcome {
            self.counters.count_read(count);
            if let Some(consumed) = self.present(index, &buffer, service) {
                if kept == 0 {
                    self.keep(index, &buffer[consumed..]);
                } else if consumed == 0 {
                    self.append_kept(index, &buffer[kept..]);
                } else {
                    self.drop_kept(index);
                    self.keep(index, &buffer[consumed..]);
                }
            }
        }
        self.receive_buffer = buffer;
        outcome
    }

    /// Reads straight behind the kept bytes, because a large message is arriving.
    #[cold]
    fn receive_behind_kept<S: Service>(
        &mut self,
        index: u32,
        service: &mut S,
        read: impl FnOnce(&mut Vec<u8>, usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.compact_kept(index);
        let bytes_max = self.receive_bytes_max;
        let input = &mut self.connections[index as usize].input;
        if input.capacity() - input.len() < LARGE_ROOM_MIN {
            input.reserve(LARGE_ROOM_MIN);
        }
        let outcome = read(input, bytes_max);
        if let Ok(count @ 1..) = outcome {
            self.counters.count_read(count);
            self.present_kept(index, service);
        }
        outcome
    }

    /// Calls the service. Returns how much it consumed, or `None` if the connection is gone.
    #[inline]
    fn present<S: Service>(&mut self, index: u32, data: &[u8], service: &mut S) -> Option<usize> {
        let conn = self.id(index);
        let consumed = service.received(self, conn, data);
        debug_assert!(consumed <= data.len(), "consumed more than was there");
        (self.connections[index as usize].generation == conn.generation)
            .then_some(consumed.min(data.len()))
    }

    /// Presents the kept bytes, which must not be empty.
    fn present_kept<S: Service>(&mut self, index: u32, service: &mut S) {
        let connection = &mut self.connections[index as usize];
        let input = std::mem::take(&mut connection.input);
        let start = std::mem::take(&mut connection.input_start);
        match self.present(index, &input[start..], service) {
            None => self.pool.put(input),
            Some(consumed) => self.put_back(index, input, start + consumed),
        }
    }

    /// Keeps `input` from `start`. A short tail moves out of a large buffer.
    fn put_back(&mut self, index: u32, input: Vec<u8>, start: usize) {
        let rest = input.len() - start;
        if rest > 0 && (rest > KEPT_COPY_MAX || input.capacity() < 4 * KEPT_COPY_MAX) {
            let connection = &mut self.connections[index as usize];
            connection.input = input;
            connection.input_start = start;
        } else {
            self.keep(index, &input[start..]);
            self.pool.put(input);
        }
    }

    /// Keeps bytes of a connection without kept bytes.
    #[inline]
    fn keep(&mut self, index: u32, rest: &[u8]) {
        if !rest.is_empty() {
            let mut input = self.pool.take(rest.len());
            input.extend_from_slice(rest);
            self.connections[index as usize].input = input;
        }
    }

    fn append_kept(&mut self, index: u32, data: &[u8]) {
        if self.connections[index as usize].input.is_empty() {
            return self.keep(index, data);
        }
        self.compact_kept(index);
        self.connections[index as usize].input.extend_from_slice(data);
    }

    fn compact_kept(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        let start = std::mem::take(&mut connection.input_start);
        connection.input.drain(..start);
    }

    fn drop_kept(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        connection.input_start = 0;
        let input = std::mem::take(&mut connection.input);
        self.pool.put(input);
    }

    /// Presents the kept bytes of a resumed connection, then lets the driver read again.
    pub(crate) fn present_resumed<S: Service>(&mut self, index: u32, service: &mut S) {
        let connection = &mut self.connections[index as usize];
        connection.resumed = false;
        if connection.state != State::Open || connection.paused {
            return;
        }
        if connection.unread() > 0 {
            self.present_kept(index, service);
        }
        let connection = &mut self.connections[index as usize];
        if connection.state == State::Open && !connection.paused && connection.end_pending {
            connection.end_pending = false;
            self.end_of_stream(index, service);
        } else if connection.wants_read() {
            self.commands.push(Command::Resume { index });
        }
    }
}

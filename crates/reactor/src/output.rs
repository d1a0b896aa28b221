//! From the service to the socket. A connection sends at most one buffer at a time; later output
//! gathers in the next one. The driver's part: [`begin_send`](Io::begin_send), one write of
//! [`unsent`](Io::unsent), and [`wrote`](Io::wrote) for each success.

use crate::connection::State;
use crate::io::Io;
use crate::service::ConnId;

/// Bytes of a buffer that the kernel must have taken before its rest moves to a smaller one.
pub(crate) const MOVED_AFTER_BYTES: usize = 256 << 10;

impl Io {
    /// Puts a connection with output into the list for this turn's flush.
    pub(crate) fn mark_dirty(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        let has_output = !connection.output.is_empty()
            || connection
                .tunnel
                .as_ref()
                .is_some_and(|tunnel| tunnel.has_output(connection.state == State::Flushing));
        if !connection.dirty && has_output {
            connection.dirty = true;
            self.dirty.push(index);
        }
    }

    /// Makes the output the buffer to send. False if nothing is to send, or nothing may be sent
    /// now.
    #[inline]
    pub(crate) fn begin_send(&mut self, index: u32) -> bool {
        let connection = &mut self.connections[index as usize];
        connection.dirty = false;
        if connection.tunnel.is_some() {
            return self.begin_send_sealed(index);
        }
        if connection.output.is_empty() {
            if connection.log.as_ref().is_none_or(|log| !log.is_filling()) {
                let output = std::mem::take(&mut connection.output);
                self.pool.put(output);
            }
            return false;
        }
        let may_be_sent = match connection.state {
            State::Open => !connection.held,
            State::Flushing => true,
            _ => false,
        };
        if !may_be_sent || !connection.sending.is_empty() {
            return false;
        }
        std::mem::swap(&mut connection.output, &mut connection.sending);
        connection.sent = 0;
        connection.expect_output(connection.sending.len());
        if let Some(log) = &mut connection.log {
            log.started_sending();
        }
        true
    }

    /// The rest of the buffer being sent.
    #[inline]
    pub(crate) fn unsent(&self, index: u32) -> &[u8] {
        let connection = &self.connections[index as usize];
        &connection.sending[connection.sent..]
    }

    /// Notes that one write succeeded and the kernel took `count` bytes. True if nothing is left of
    /// the buffer.
    #[inline]
    pub(crate) fn wrote(&mut self, index: u32, count: usize) -> bool {
        self.counters.writes += 1;
        self.counters.bytes_out += count as u64;
        let connection = &mut self.connections[index as usize];
        connection.writes += 1;
        connection.sent += count;
        debug_assert!(connection.sent <= connection.sending.len());
        let complete = connection.sent == connection.sending.len();
        if complete {
            self.finish_send(index);
        } else {
            self.move_rest(index);
        }
        let connection = &mut self.connections[index as usize];
        if connection.notify {
            self.check_notify(index);
        }
        complete
    }

    /// Moves the rest of a large buffer to one of its size, once the kernel has taken most of it: a
    /// peer that leaves the last bytes must not hold the memory of all. The copies of one buffer
    /// are shorter than the buffer.
    fn move_rest(&mut self, index: u32) {
        let connection = &self.connections[index as usize];
        let rest = connection.sending.len() - connection.sent;
        // The log keeps whole buffers, and counts them as such.
        let is_kept = connection.log.is_some() && connection.tunnel.is_none();
        if connection.sent < MOVED_AFTER_BYTES || rest > connection.sent || is_kept {
            return;
        }
        let mut buffer = self.pool.take_close(rest);
        let connection = &mut self.connections[index as usize];
        buffer.extend_from_slice(&connection.sending[connection.sent..]);
        connection.sent = 0;
        let sent = std::mem::replace(&mut connection.sending, buffer);
        self.pool.put(sent);
    }

    #[inline]
    fn finish_send(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        connection.sent = 0;
        let buffer = std::mem::take(&mut connection.sending);
        match &mut connection.log {
            // The log has the plaintext of a tunnel.
            Some(log) if connection.tunnel.is_none() => {
                if let Some(buffer) = log.finished_sending(buffer) {
                    self.pool.put(buffer);
                }
            }
            _ => self.pool.put(buffer),
        }
        let connection = &self.connections[index as usize];
        if !connection.output.is_empty() || connection.tunnel.is_some() {
            self.mark_dirty(index);
        }
        if self.connections[index as usize].state == State::Flushing {
            self.flushed(index);
        }
    }

    /// Queues `drained` if it was requested and the backlog is low enough.
    pub(crate) fn check_notify(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        if connection.notify && connection.backlog() <= connection.notify_below {
            connection.notify = false;
            self.drained.push(ConnId { index, generation: connection.generation });
        }
    }

    /// Answers, after the flush, the requests for `drained` made in this turn.
    pub(crate) fn check_new_notifies(&mut self) {
        for position in 0..self.notify_check.len() {
            self.check_notify(self.notify_check[position]);
        }
        self.notify_check.clear();
    }
}

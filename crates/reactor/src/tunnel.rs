//! The encryption of a connection within the loop: between the socket's buffers and the service's.
//!
//! ```text
//! socket -> (partial record) -> Session::open -> service
//! service -> output -> plain -> Session::seal -> sending -> socket
//! ```
//!
//! Records are sealed only once the kernel has taken the previous ones, so a blocked connection
//! gathers plaintext and fills larger records. Plaintext goes to the sent log when all of it is
//! sealed, not when the kernel has taken the records: what another connection repeats is plaintext.

use crate::session::{Session, SessionFault};

/// A session and its buffers.
pub(crate) struct Tunnel {
    pub(crate) session: Box<dyn Session>,
    /// Start of a record whose rest has not arrived.
    pub(crate) partial: Vec<u8>,
    /// Output that is being sealed; bytes before `sealed` are.
    plain: Vec<u8>,
    sealed: usize,
    /// True once the end of the stream is sealed, or must not be.
    pub(crate) ended: bool,
}

/// A session that has completed its handshake elsewhere, with the bytes that came behind it.
pub(crate) struct Arrival {
    pub(crate) session: Box<dyn Session>,
    /// Start of an incomplete record.
    pub(crate) partial: Vec<u8>,
    /// Opened bytes that no service has seen.
    pub(crate) plain: Vec<u8>,
    /// True if the peer has announced the end of its stream behind them.
    pub(crate) ended: bool,
}

impl Tunnel {
    /// A tunnel with the start of a record that has arrived already.
    pub(crate) fn new(session: Box<dyn Session>, partial: Vec<u8>) -> Tunnel {
        Tunnel { session, partial, plain: Vec::new(), sealed: 0, ended: false }
    }

    /// Makes this output the one to seal. None may be unsealed.
    #[inline]
    pub(crate) fn begin(&mut self, output: &mut Vec<u8>) {
        debug_assert!(self.plain.is_empty());
        std::mem::swap(output, &mut self.plain);
    }

    /// True if all of the output is sealed.
    #[inline]
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed == self.plain.len()
    }

    /// Output that is not sealed yet.
    #[inline]
    pub(crate) fn unsealed(&self) -> &[u8] {
        &self.plain[self.sealed..]
    }

    /// The whole buffer that is being sealed.
    pub(crate) fn plain(&self) -> &Vec<u8> {
        &self.plain
    }

    /// Takes the buffer that is being sealed.
    pub(crate) fn take_plain(&mut self) -> Vec<u8> {
        self.sealed = 0;
        std::mem::take(&mut self.plain)
    }

    /// Replaces the buffer that is being sealed by one with its unsealed rest. Returns the old one.
    pub(crate) fn move_rest(&mut self, mut buffer: Vec<u8>) -> Vec<u8> {
        buffer.extend_from_slice(self.unsealed());
        self.sealed = 0;
        std::mem::replace(&mut self.plain, buffer)
    }

    /// True if records are to be made even without more output of the service; `closes`: it has
    /// closed the connection.
    #[inline]
    pub(crate) fn has_output(&self, closes: bool) -> bool {
        !self.plain.is_empty() || self.session.has_pending() || closes && !self.ended
    }

    /// Appends the pending records, `part` bytes of the unsealed output, and the end.
    pub(crate) fn make_records(
        &mut self,
        part: usize,
        ends: bool,
        records: &mut Vec<u8>,
    ) -> Result<(), SessionFault> {
        if self.session.has_pending() {
            self.session.take_pending(records);
        }
        if part > 0 {
            self.session.seal(&self.plain[self.sealed..][..part], records)?;
            self.sealed += part;
        }
        if ends {
            self.ended = true;
            self.session.end(records);
        }
        Ok(())
    }

    /// The buffers, for the pool.
    pub(crate) fn into_buffers(self) -> [Vec<u8>; 2] {
        [self.partial, self.plain]
    }
}

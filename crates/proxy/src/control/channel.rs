//! The bytes of a control connection: a TCP connection, and the TLS session over it, if any.
//!
//! A cancelled call loses nothing: bytes read or yet to be written stay in buffers of the channel.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use shunt_reactor::{Session, SessionFault};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::access::Access;
use super::error::ControlError;
use crate::metrics::HandshakeResult;
use crate::tls::OutgoingTls;

/// Bytes asked of the kernel at a time.
const READ_BYTES: usize = 64 * 1024;
/// A handshake that the node ends without an alert.
const NO_HANDSHAKE: SessionFault =
    SessionFault("the node closed the connection during the handshake");

/// One connection.
pub(super) struct Channel {
    stream: TcpStream,
    /// `None`: clear text.
    session: Option<Box<dyn Session>>,
    /// Counts the handshake; `None` once that has happened.
    counts: Option<Arc<OutgoingTls>>,
    /// Received records that the session has not opened.
    records: Vec<u8>,
    /// Bytes for the peer, as they travel.
    unsent: Vec<u8>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_tls = self.session.is_some();
        f.debug_struct("Channel").field("stream", &self.stream).field("has_tls", &has_tls).finish()
    }
}

impl Channel {
    /// Connects, and completes the TLS handshake if `access` has TLS. The limit of `access` holds
    /// for each of the two steps.
    pub(super) async fn open(address: SocketAddr, access: &Access) -> Result<Self, ControlError> {
        let connect = timeout(access.limit, TcpStream::connect(address));
        let stream = connect.await.map_err(|_| ControlError::TimedOut("connecting"))??;
        stream.set_nodelay(true)?;
        let session = access.session(address.ip());
        let counts = access.counts.clone();
        let mut channel = Self { stream, session, counts, records: Vec::new(), unsent: Vec::new() };
        let handshake = timeout(access.limit, channel.handshake()).await;
        let result = handshake.unwrap_or(Err(ControlError::TimedOut("the TLS handshake")));
        if result.is_err() {
            channel.count_handshake(false);
        }
        result.map(|()| channel)
    }

    /// Counts the handshake, if it is not counted yet: it succeeded if the server answers after it.
    fn count_handshake(&mut self, has_succeeded: bool) {
        let (Some(session), Some(counts)) = (&self.session, self.counts.take()) else { return };
        if has_succeeded {
            counts.count_session(session.info());
        } else {
            counts.count_handshake(HandshakeResult::Failed);
        }
    }

    /// True if the connection has TLS.
    pub(super) fn has_tls(&self) -> bool {
        self.session.is_some()
    }

    async fn handshake(&mut self) -> Result<(), ControlError> {
        let mut early = Vec::new();
        // A session that cannot begin, for a name that no certificate has, says so.
        self.open_records(&mut early).await?;
        while self.session.as_ref().is_some_and(|session| session.is_handshaking()) {
            self.send_pending().await?;
            self.records.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.records).await? == 0 {
                return Err(NO_HANDSHAKE.into());
            }
            self.open_records(&mut early).await?;
        }
        if !early.is_empty() {
            return Err(ControlError::Garbage("an answer before any request".to_owned()));
        }
        self.send_pending().await
    }

    /// Sends these bytes.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), ControlError> {
        match &mut self.session {
            Some(session) => session.seal(bytes, &mut self.unsent)?,
            None => self.unsent.extend_from_slice(bytes),
        }
        self.send_pending().await
    }

    /// Waits for bytes and appends them to `received`; `false` at the end of the stream.
    pub(super) async fn read(&mut self, received: &mut Vec<u8>) -> Result<bool, ControlError> {
        if self.session.is_none() {
            received.reserve(READ_BYTES);
            return Ok(self.stream.read_buf(received).await? > 0);
        }
        let outcome = self.read_opened(received).await;
        self.count_handshake(matches!(outcome, Ok(true)));
        outcome
    }

    async fn read_opened(&mut self, received: &mut Vec<u8>) -> Result<bool, ControlError> {
        let before = received.len();
        loop {
            self.send_pending().await?;
            self.records.reserve(READ_BYTES);
            let is_end = self.stream.read_buf(&mut self.records).await? == 0;
            let has_ended = is_end || self.open_records(received).await?;
            if received.len() > before {
                return Ok(true);
            }
            if has_ended {
                return Ok(false);
            }
        }
    }

    /// Opens the records that have arrived; `true` if the peer has announced its end.
    async fn open_records(&mut self, plain: &mut Vec<u8>) -> Result<bool, ControlError> {
        let Some(session) = &mut self.session else { return Ok(false) };
        match session.open(&mut self.records, plain) {
            Ok(opened) => {
                self.records.drain(..opened.consumed);
                Ok(opened.ended)
            }
            Err(fault) => {
                // The alert tells the peer's operator why; its loss changes nothing here.
                let _ = self.send_pending().await;
                Err(fault.into())
            }
        }
    }

    /// Sends what the session has to say, and what is left of earlier calls.
    async fn send_pending(&mut self) -> Result<(), ControlError> {
        if let Some(session) = self.session.as_mut().filter(|session| session.has_pending()) {
            session.take_pending(&mut self.unsent);
        }
        while !self.unsent.is_empty() {
            let sent = self.stream.write(&self.unsent).await?;
            self.unsent.drain(..sent);
        }
        Ok(())
    }
}

//! An encrypted stream on tokio: HTTP listeners serve it, and commands ask through it.
//!
//! ```text
//! accept_http -> handshake -> Stream -> hyper
//!     `-> clear text: an answer that says so
//! ```
//! The clients of the data path have no part in it: their sessions run in the event loop.

use std::fmt;
use std::future::poll_fn;
use std::io::{Error, ErrorKind, Result};
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use shunt_reactor::{Opened, Session, SessionFault, SessionInfo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout_at};

use crate::session::FaultySession;
use crate::turns::Turns;

/// Type of a TLS record with a part of a handshake.
pub const HANDSHAKE_RECORD: u8 = 0x16;
/// Bytes read at a time.
const READ_BYTES: usize = 16 << 10;
/// Most bytes that are read of a client that is refused.
const IGNORED_BYTES_MAX: usize = 256 << 10;
/// Most plaintext that one write seals.
const SEALED_BYTES_MAX: usize = 64 << 10;

/// Fault of a client that ends the connection within its handshake.
const CLOSED_EARLY: SessionFault = SessionFault("the client closed during the handshake");
/// Fault of a client whose connection the listener closes: it makes room, or the process ends.
const GIVEN_UP: SessionFault =
    SessionFault("the listener closed the connection during the handshake");
/// Fault of a client whose handshake does not end in time.
const TOO_SLOW: SessionFault = SessionFault("the handshake took too long");
/// Fault of a client without TLS.
pub const CLEAR_TEXT: SessionFault = SessionFault("the client sent clear text");

/// Words for a client that speaks plain HTTP to a port with TLS.
const CLEAR_TEXT_WORDS: &str = "{\"error\":\"this port requires TLS: ask with https://\"}\n";

/// The TLS of an HTTP listener: makes its sessions, and hears how their handshakes end.
pub trait Sessions: fmt::Debug + Send + Sync {
    /// A session at the start of its handshake.
    fn session(&self) -> Box<dyn Session>;

    /// Turns of the handshakes.
    fn turns(&self) -> &Turns;

    /// The handshake of a client has ended, or nothing has come of its connection in time.
    /// [`CLEAR_TEXT`] is the fault of a client without TLS.
    fn handshake_ended(
        &self,
        peer: SocketAddr,
        outcome: std::result::Result<&SessionInfo, SessionFault>,
    );
}

/// The answer to a client that speaks plain HTTP to a port with TLS.
pub fn clear_text_answer() -> Vec<u8> {
    format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{CLEAR_TEXT_WORDS}",
        CLEAR_TEXT_WORDS.len()
    )
    .into_bytes()
}

/// Does the handshake of an HTTP client within a time. A client in clear text gets an answer that
/// says so. `None` if no request can come; `sessions` has heard why, unless the client left without
/// a byte, as a probe of a port does.
pub async fn accept_http<T>(
    io: T,
    peer: SocketAddr,
    sessions: &dyn Sessions,
    time_max: Duration,
) -> Option<Stream<T>>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let deadline = Instant::now() + time_max;
    let outcome = Outcome { peer, sessions, is_told: false };
    let mut stream = Stream::new(io, sessions.session());
    match timeout_at(deadline, stream.accept(peer, sessions)).await {
        Ok(Ok(true)) => {
            outcome.tell(Ok(stream.session.info()));
            return Some(stream);
        }
        Ok(Ok(false)) => outcome.leave_untold(),
        Ok(Err(error)) => {
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
            outcome.tell(Err(inner.copied().unwrap_or(CLOSED_EARLY)));
            let _ = timeout_at(deadline, stream.close()).await;
        }
        Err(_) => outcome.tell(Err(TOO_SLOW)),
    }
    None
}

/// The outcome of a handshake, which is told once.
struct Outcome<'s> {
    peer: SocketAddr,
    sessions: &'s dyn Sessions,
    is_told: bool,
}

impl Outcome<'_> {
    fn tell(mut self, outcome: std::result::Result<&SessionInfo, SessionFault>) {
        self.is_told = true;
        self.sessions.handshake_ended(self.peer, outcome);
    }

    fn leave_untold(mut self) {
        self.is_told = true;
    }
}

impl Drop for Outcome<'_> {
    /// The listener has dropped the connection within its handshake.
    fn drop(&mut self) {
        if !self.is_told {
            self.sessions.handshake_ended(self.peer, Err(GIVEN_UP));
        }
    }
}

/// A connection with TLS.
pub struct Stream<T> {
    io: T,
    session: Box<dyn Session>,
    /// Received records that the session has not opened.
    records: Vec<u8>,
    /// Their content, of which `taken` bytes are taken.
    plain: Vec<u8>,
    taken: usize,
    /// Records for the peer, of which `sent` bytes are sent.
    unsent: Vec<u8>,
    sent: usize,
    /// The peer sends nothing more.
    peer_ended: bool,
    /// This side sends nothing more.
    ended: bool,
}

impl<T> fmt::Debug for Stream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("info", self.session.info()).finish_non_exhaustive()
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream<T> {
    fn new(io: T, session: Box<dyn Session>) -> Self {
        Self {
            io,
            session,
            records: Vec::new(),
            plain: Vec::new(),
            taken: 0,
            unsent: Vec::new(),
            sent: 0,
            peer_ended: false,
            ended: false,
        }
    }

    /// Does the handshake of the connecting side. The caller limits the time.
    ///
    /// # Errors
    /// The handshake or the connection fails. A failed handshake has a [`SessionFault`] inside.
    pub async fn connect(io: T, session: Box<dyn Session>) -> Result<Self> {
        let mut stream = Self::new(io, session);
        stream.handshake(None).await?;
        Ok(stream)
    }

    /// Does the handshake of a client. False if it has left without a byte.
    async fn accept(&mut self, peer: SocketAddr, sessions: &dyn Sessions) -> Result<bool> {
        let received = poll_fn(|context| self.poll_receive(context)).await;
        let first = received.ok().and_then(|()| self.records.first());
        match first {
            None => Ok(false),
            Some(&HANDSHAKE_RECORD) => {
                self.handshake(Some((sessions.turns(), peer.ip()))).await?;
                Ok(true)
            }
            Some(_) => {
                self.unsent = clear_text_answer();
                poll_fn(|context| self.poll_send(context)).await?;
                Err(CLEAR_TEXT.into())
            }
        }
    }

    /// Ends a connection so that its peer reads the last bytes: ends the stream, and waits for the
    /// peer to close. A socket that is closed with unread bytes would send a reset, which overtakes
    /// them.
    async fn close(&mut self) -> Result<()> {
        poll_fn(|context| Pin::new(&mut self.io).poll_shutdown(context)).await?;
        let mut ignored = 0;
        while !self.peer_ended && ignored < IGNORED_BYTES_MAX {
            self.records.clear();
            poll_fn(|context| self.poll_receive(context)).await?;
            ignored += self.records.len();
        }
        Ok(())
    }

    /// Does the handshake, within `turns` if there are any.
    async fn handshake(&mut self, turns: Option<(&Turns, IpAddr)>) -> Result<()> {
        loop {
            let outcome = match turns {
                Some((turns, address)) => self.take_step(turns, address).await?,
                None => self.session.open(&mut self.records, &mut self.plain),
            };
            let opened = self.opened(outcome);
            let sent = poll_fn(|context| self.poll_send(context)).await;
            opened?;
            sent?;
            if !self.session.is_handshaking() {
                return Ok(());
            }
            if self.peer_ended {
                return Err(CLOSED_EARLY.into());
            }
            poll_fn(|context| self.poll_receive(context)).await?;
        }
    }

    /// Has the session open the records that have arrived, once it is the client's turn.
    async fn take_step(
        &mut self,
        turns: &Turns,
        address: IpAddr,
    ) -> Result<std::result::Result<Opened, SessionFault>> {
        let absent = Box::new(FaultySession(CLOSED_EARLY, SessionInfo::default()));
        let mut session = mem::replace(&mut self.session, absent);
        let (mut records, mut plain) = (mem::take(&mut self.records), mem::take(&mut self.plain));
        let step = move || {
            let outcome = session.open(&mut records, &mut plain);
            (session, records, plain, outcome)
        };
        let done = turns.run(address, step).await;
        let died = || Error::other("the step of a handshake has died; the log says where");
        let (session, records, plain, outcome) = done.ok_or_else(died)?;
        (self.session, self.records, self.plain) = (session, records, plain);
        Ok(outcome)
    }

    /// Receives records.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut buffer = [0; READ_BYTES];
        let mut buffer = ReadBuf::new(&mut buffer);
        ready!(Pin::new(&mut self.io).poll_read(context, &mut buffer))?;
        self.peer_ended |= buffer.filled().is_empty();
        self.records.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(()))
    }

    /// Opens the records that have arrived.
    fn open(&mut self, context: &mut Context<'_>) -> Result<()> {
        let outcome = self.session.open(&mut self.records, &mut self.plain);
        let opened = self.opened(outcome);
        if opened.is_err() {
            // The alert tells the peer's operator why; its loss changes nothing here.
            let _ = self.poll_send(context);
        }
        opened
    }

    /// Notes what the session has opened, and takes what it has for the peer.
    fn opened(&mut self, outcome: std::result::Result<Opened, SessionFault>) -> Result<()> {
        self.session.take_pending(&mut self.unsent);
        let opened = outcome?;
        self.records.drain(..opened.consumed);
        self.peer_ended |= opened.ended;
        Ok(())
    }

    /// Sends all records.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        while self.sent < self.unsent.len() {
            let rest = &self.unsent[self.sent..];
            match ready!(Pin::new(&mut self.io).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                count => self.sent += count,
            }
        }
        (self.unsent, self.sent) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        loop {
            let ready = &self.plain[self.taken..];
            if !ready.is_empty() {
                let count = ready.len().min(buffer.remaining());
                buffer.put_slice(&ready[..count]);
                self.taken += count;
                if self.taken == self.plain.len() {
                    (self.plain, self.taken) = (Vec::new(), 0);
                }
                return Poll::Ready(Ok(()));
            }
            if self.peer_ended {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_receive(context))?;
            self.open(context)?;
            // Whatever does not leave now leaves with the next write.
            if let Poll::Ready(sent) = self.poll_send(context) {
                sent?;
            }
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        ready!(self.poll_send(context))?;
        let part = &bytes[..bytes.len().min(SEALED_BYTES_MAX)];
        let Self { session, unsent, .. } = &mut *self;
        session.seal(part, unsent).map_err(Error::from)?;
        if let Poll::Ready(sent) = self.poll_send(context) {
            sent?;
        }
        Poll::Ready(Ok(part.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if !self.ended {
            self.ended = true;
            let Self { session, unsent, .. } = &mut *self;
            session.end(unsent);
        }
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

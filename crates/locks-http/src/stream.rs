//! The stream of a connection, readable while hyper has it.
//!
//! hyper notices that a client has gone only if it has read everything, so a single byte after a
//! request would keep the request waiting for a client that has left.

use std::future::poll_fn;
use std::io::Result;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::limits::BYTES_BEHIND_MAX;

/// A connection, with or without TLS.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// One of the handles to the stream. All of them are used by one task.
#[derive(Clone)]
pub(crate) struct Stream {
    connection: Arc<Mutex<dyn Connection>>,
    /// A stream with TLS has words for the client at its end.
    has_tls: bool,
}

impl Stream {
    /// A connection in clear text.
    pub(crate) fn plain(stream: TcpStream) -> Self {
        Self { connection: Arc::new(Mutex::new(stream)), has_tls: false }
    }

    /// A connection with TLS.
    pub(crate) fn secured(stream: shunt_tls::Stream<TcpStream>) -> Self {
        Self { connection: Arc::new(Mutex::new(stream)), has_tls: true }
    }

    fn lock(&self) -> MutexGuard<'_, dyn Connection + 'static> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut *self.lock()).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut *self.lock()).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut *self.lock()).poll_flush(context)
    }

    /// Dropping the last handle closes a stream in clear text, which happens at once.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self.has_tls {
            true => Pin::new(&mut *self.lock()).poll_shutdown(context),
            false => Poll::Ready(Ok(())),
        }
    }
}

/// Waits until the client has gone. Bytes after its only request are discarded; a client that sends
/// too many counts as gone.
pub(crate) async fn gone(stream: &Stream) {
    let mut thrown_away = 0;
    while thrown_away <= BYTES_BEHIND_MAX {
        let read = poll_fn(|context| {
            let mut unwanted = [0; 512];
            let mut unwanted = ReadBuf::new(&mut unwanted);
            Pin::new(&mut *stream.lock())
                .poll_read(context, &mut unwanted)
                .map_ok(|()| unwanted.filled().len())
        });
        match read.await {
            Ok(0) | Err(_) => return,
            Ok(count) => thrown_away += count,
        }
        // Yield to other tasks, however much the client sends.
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_client_that_left_is_noticed_after_any_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("an address");
        let address = listener.local_addr().expect("an address");
        for sent in [&b""[..], b"X", &[b'X'; 2_000]] {
            let mut client = std::net::TcpStream::connect(address).expect("it listens");
            let (stream, _) = listener.accept().await.expect("a client");
            let stream = Stream::plain(stream);
            client.write_all(sent).expect("room");
            assert!(
                timeout(Duration::from_millis(20), gone(&stream)).await.is_err(),
                "it is there"
            );
            drop(client);
            timeout(Duration::from_secs(180), gone(&stream)).await.expect("it has gone");
        }
    }
}

//! The stream of a connection, readable while hyper has it.
//!
//! hyper notices that a client has gone only if it has read everything, so a single byte after a
//! request would keep the request waiting for a client that has left.

use std::io::{ErrorKind, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::limits::BYTES_BEHIND_MAX;

/// One of the handles to the stream.
pub(crate) struct Stream(pub(crate) Arc<TcpStream>);

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|count| buffer.advance(count))),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Dropping the last handle closes the stream, which happens at once.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Waits until the client has gone. Bytes after its only request are discarded; a client that sends
/// too many counts as gone.
pub(crate) async fn gone(stream: &TcpStream) {
    let (mut unwanted, mut thrown_away) = ([0; 512], 0);
    while thrown_away <= BYTES_BEHIND_MAX && stream.readable().await.is_ok() {
        match stream.try_read(&mut unwanted) {
            Ok(0) => return,
            Ok(count) => thrown_away += count,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return,
            Err(_) => {}
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

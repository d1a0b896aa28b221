//! The sockets of the pages: an address with a port, a path of this host, or both.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::task::Poll;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Listening sockets; at least one, or nobody is ever served.
#[derive(Debug, Default)]
pub struct Listeners {
    /// An address and a port.
    pub tcp: Option<TcpListener>,
    /// A path. Whoever may connect there has all rights: neither TLS nor a token is asked for.
    pub unix: Option<UnixListener>,
}

/// An accepted connection.
pub(crate) enum Accepted {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

/// The other side of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// The client's address; for a Unix socket, that of this machine.
    pub(crate) address: IpAddr,
    /// True at a Unix socket, whose permissions guard it.
    pub(crate) is_owner: bool,
}

impl Listeners {
    /// Waits for a connection.
    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        poll_fn(|context| {
            if let Some(unix) = &self.unix
                && let Poll::Ready(accepted) = unix.poll_accept(context)
            {
                return Poll::Ready(accepted.map(|(stream, _)| Accepted::Unix(stream)));
            }
            let Some(tcp) = &self.tcp else { return Poll::Pending };
            tcp.poll_accept(context).map_ok(|(stream, peer)| Accepted::Tcp(stream, peer))
        })
        .await
    }
}

impl From<TcpListener> for Listeners {
    fn from(tcp: TcpListener) -> Self {
        Self { tcp: Some(tcp), unix: None }
    }
}

impl Accepted {
    /// The other side.
    pub(crate) fn peer(&self) -> Peer {
        match self {
            Self::Tcp(_, peer) => Peer { address: peer.ip().to_canonical(), is_owner: false },
            Self::Unix(_) => Peer { address: IpAddr::V4(Ipv4Addr::LOCALHOST), is_owner: true },
        }
    }
}

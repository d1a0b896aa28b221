//! The listener and its connections.

use std::fmt;
use std::io::Result;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use shunt_admin::Pages;
use shunt_tls::accept_http;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::connection::Connection;
use crate::connection_limit::Connections;
use crate::execute::Session;
use crate::limits::{ACCEPT_RETRY, LOGIN_TIMEOUT};
use crate::login::Login;
use crate::prepared::Store;
use crate::schema::Identity;

/// Port that clients of a Unix socket see.
const UNIX_PORT: u16 = 9042;

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// An address and a port.
    Tcp(TcpListener),
    /// A path of this host.
    Unix(UnixListener),
}

/// The admin pages as CQL tables.
pub struct AdminCql {
    pages: Arc<Pages>,
    store: Store,
}

impl fmt::Debug for AdminCql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminCql").field("pages", &self.pages).finish_non_exhaustive()
    }
}

impl AdminCql {
    /// Creates a server of these pages, with their tokens as passwords and their TLS.
    pub fn new(pages: Arc<Pages>) -> Arc<AdminCql> {
        Arc::new(AdminCql { pages, store: Store::default() })
    }

    /// Serves until the task is dropped. Needs a tokio runtime with I/O and time.
    pub async fn serve(self: Arc<Self>, listener: Listener) {
        let (mut tasks, mut connections) = (JoinSet::new(), Connections::default());
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener) => accepted,
                Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            };
            let (socket, session) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    warn!(%error, "cannot accept connections at the admin CQL address for now");
                    sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            let (from, now) = (session.from, Instant::now());
            if !connections.make_room(from, now, &self.pages) {
                continue;
            }
            let login = Arc::<Login>::default();
            let work = Arc::clone(&self).connection(socket, session, Arc::clone(&login));
            connections.add(from, now, login, tasks.spawn(work));
        }
    }

    async fn connection(self: Arc<Self>, socket: Socket, session: Session, login: Arc<Login>) {
        match (socket, &self.pages.access().tls) {
            (Socket::Tcp(stream, peer), Some(tls)) => {
                if let Some(stream) = accept_http(stream, peer, &**tls, LOGIN_TIMEOUT).await {
                    self.serve_stream(stream, session, &login).await;
                }
            }
            (Socket::Tcp(stream, _), None) => {
                self.serve_stream(stream, session, &login).await;
            }
            (Socket::Unix(stream), _) => {
                self.serve_stream(stream, session, &login).await;
            }
        }
    }

    async fn serve_stream<T>(&self, stream: T, session: Session, login: &Login)
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let sources = (&*self.pages, &self.store);
        Connection::new(stream, sources, login, session).serve().await;
    }
}

enum Socket {
    Tcp(TcpStream, SocketAddr),
    Unix(tokio::net::UnixStream),
}

async fn accept(listener: &Listener) -> Result<(Socket, Session)> {
    let session = |from: IpAddr, address: IpAddr, port| Session {
        keyspace: None,
        identity: Identity { address: address.to_canonical(), port },
        from: from.to_canonical(),
    };
    match listener {
        Listener::Tcp(listener) => {
            let (stream, peer) = listener.accept().await?;
            let local = stream.local_addr()?;
            // Answers are short, and each is awaited.
            let _ = stream.set_nodelay(true);
            let session = session(peer.ip(), local.ip(), local.port());
            Ok((Socket::Tcp(stream, peer), session))
        }
        Listener::Unix(listener) => {
            let (stream, _) = listener.accept().await?;
            let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
            Ok((Socket::Unix(stream), session(here, here, UNIX_PORT)))
        }
    }
}

//! Listening sockets that a service manager has opened and passed to this process (`LISTEN_FDS`).

use std::io;
use std::net::TcpListener;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{SocketType, sockopt};

use crate::acceptor;

/// The sockets have an owner, which may have closed them already.
static ARE_TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes the sockets over, each ready for [`Acceptor`](crate::Acceptor). Returns them at the first
/// call only.
///
/// # Errors
/// The service manager announces a descriptor that is not open, or no listening TCP socket. The
/// text has its position.
pub fn inherited_listeners() -> io::Result<Vec<TcpListener>> {
    if ARE_TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let take = |(index, number)| {
        // SAFETY: `listen_fds` has made sure that the descriptor is open and meant for this process
        // (`LISTEN_PID`). Nothing else here uses it, and this code runs once.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        adopt(socket)
            .map_err(|error| io::Error::new(error.kind(), format!("socket {}: {error}", index + 1)))
    };
    sd_notify::listen_fds()?.enumerate().map(take).collect()
}

/// Makes a socket like one of [`listen`](crate::listen).
fn adopt(socket: OwnedFd) -> io::Result<TcpListener> {
    let is_stream = sockopt::socket_type(&socket)? == SocketType::STREAM;
    if !is_stream || !sockopt::socket_acceptconn(&socket)? {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it does not listen"));
    }
    let listener = TcpListener::from(socket);
    // Fails for a Unix socket.
    listener.local_addr()?;
    acceptor::prepare(&listener)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::net::{TcpStream, UdpSocket};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_listening_socket_is_taken_and_any_other_refused() {
        let own = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = own.local_addr().unwrap();
        let connected = TcpStream::connect(address).unwrap();
        let taken = adopt(own.into()).unwrap();
        assert_eq!(taken.local_addr().unwrap(), address);
        let accepted = taken.accept().unwrap();
        assert_eq!(accepted.1, connected.local_addr().unwrap());
        assert_eq!(taken.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let path = std::env::temp_dir().join(format!("shunt-inherited-{}", std::process::id()));
        let unix = UnixListener::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for other in [connected.into(), datagrams.into(), OwnedFd::from(unix)] {
            assert!(adopt(other).is_err());
        }
    }
}

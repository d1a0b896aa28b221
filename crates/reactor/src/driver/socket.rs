//! System calls on TCP sockets that both socket drivers share.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, ipproto, sockopt,
};

/// Idle time before keepalive probes: a dead idle peer is noticed after about 30 + 3 * 10 seconds
/// of silence, or, if that is longer, after the bound on unacknowledged bytes, because Linux counts
/// that time instead of the probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

/// Time for which a peer's kernel may leave bytes unacknowledged, or its window closed, before an
/// outgoing connection ends with `TimedOut`. Keepalive is for idle connections and not sent while
/// bytes are unacknowledged: without this bound, a peer that vanished then would hold its
/// connection for the 15 minutes that Linux goes on sending. A peer whose program is only paused
/// acknowledges, until its unread bytes have closed its window; then Linux counts the time of the
/// closed window, whatever the peer answers to its probes, until it has room for the next bytes.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

/// The same bound for an accepted connection. It is longer because of slow readers: a receive
/// buffer that has grown to 32 MiB opens its window by 2 MiB at a time, and a client that takes
/// less than that in this time would count as dead.
const UNACKNOWLEDGED_BY_CLIENT: Duration = Duration::from_secs(300);

/// Sets the options of every accepted TCP connection: no delay, keepalive, a bound on
/// unacknowledged time.
pub(crate) fn prepare_accepted(socket: &OwnedFd) -> io::Result<()> {
    prepare(socket, UNACKNOWLEDGED_BY_CLIENT)
}

fn prepare(socket: &OwnedFd, unacknowledged: Duration) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(socket, unacknowledged.as_millis() as u32)?;
    Ok(())
}

/// Makes the kernel buffer about this many bytes while nobody reads.
pub(crate) fn limit_receive(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    // Linux doubles the requested size, for its own overhead.
    Ok(sockopt::set_socket_recv_buffer_size(socket, bytes / 2)?)
}

/// Starts connecting without blocking; writability signals the end, [`connect_outcome`] gives the
/// result.
pub(crate) fn start_connect(to: SocketAddr) -> io::Result<OwnedFd> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    prepare(&socket, UNACKNOWLEDGED)?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// The outcome of a connect that is no longer in progress.
pub(crate) fn connect_outcome(socket: &OwnedFd) -> io::Result<()> {
    match sockopt::socket_error(socket) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) | Err(error) => Err(error.into()),
    }
}

/// Reads once, at most `bytes_max`, appending to `buffer` within its capacity.
#[inline]
pub(crate) fn receive_behind(
    socket: impl AsFd,
    buffer: &mut Vec<u8>,
    bytes_max: usize,
) -> io::Result<usize> {
    let spare = buffer.spare_capacity_mut();
    let room = spare.len().min(bytes_max);
    let (filled, _) = rustix::net::recv(socket, &mut spare[..room], RecvFlags::DONTWAIT)?.0;
    let count = filled.len();
    let length = buffer.len() + count;
    // SAFETY: the kernel has initialised the first `count` bytes of the spare capacity, which
    // starts at the length.
    unsafe { buffer.set_len(length) };
    Ok(count)
}

/// Writes once, without blocking.
#[inline]
pub(crate) fn send(socket: impl AsFd, bytes: &[u8]) -> rustix::io::Result<usize> {
    rustix::net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}

/// Announces the end of the stream. A connection that is gone needs none.
pub(crate) fn shutdown_write(socket: &OwnedFd) {
    let _ = rustix::net::shutdown(socket, Shutdown::Write);
}

/// Ends both directions at once.
pub(crate) fn shutdown_both(socket: &OwnedFd) {
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

/// Makes a close of the socket send a reset and free the kernel's buffers.
pub(crate) fn reset_on_close(socket: &OwnedFd) {
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledged or idle, no vanished node stays longer than the other; clients have more time
    /// to read.
    #[test]
    fn a_connection_that_is_made_has_an_end_to_silence() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        let socket = start_connect(listener.local_addr().expect("address")).expect("connect");
        let unacknowledged = u128::from(sockopt::tcp_user_timeout(&socket).expect("option"));
        let idle = KEEPALIVE_IDLE + KEEPALIVE_INTERVAL * KEEPALIVE_PROBES;
        assert_eq!(unacknowledged, idle.as_millis());
        assert!(sockopt::socket_keepalive(&socket).expect("option"));
        let (accepted, _) = listener.accept().expect("accept");
        let accepted = OwnedFd::from(accepted);
        prepare_accepted(&accepted).expect("options");
        assert_eq!(
            sockopt::tcp_user_timeout(&accepted).expect("option"),
            UNACKNOWLEDGED_BY_CLIENT.as_millis() as u32
        );
    }
}

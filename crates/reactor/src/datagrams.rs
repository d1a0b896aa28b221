//! Datagrams of a loop: one socket, beside its connections. The datagrams of a turn leave at its
//! end. They may be lost at any point, so a datagram without room is dropped and counted, and
//! nothing waits.

use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, ipproto, sockopt};

/// Datagrams handed over in one turn; the others wait in the kernel.
pub(crate) const RECEIVED_PER_TURN: usize = 256;
/// Datagrams that one turn may send.
const SENT_PER_TURN_MAX: usize = 16 << 10;
/// Datagrams per system call.
pub(crate) const AT_ONCE_MAX: usize = 32;
/// Room for the largest datagram of UDP.
pub(crate) const BYTES_MAX: usize = 64 << 10;
/// Receive buffer requested from the kernel for times when the loop is busy; it cuts this to
/// `net.core.rmem_max`.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Opens `count` sockets for datagrams at one address, one for each loop: the kernel spreads
/// senders over them. They never send a fragment: a datagram too large for the path is dropped.
///
/// # Errors
/// Those of bind: the address is in use or is not this host's, or permission is missing.
pub fn bind_datagrams(mut address: SocketAddr, count: usize) -> io::Result<Vec<UdpSocket>> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let mut sockets = Vec::new();
    for _ in 0..count {
        let socket =
            rustix::net::socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
        // A single socket must not share the address with another process that was started by
        // mistake.
        sockopt::set_socket_reuseport(&socket, count > 1)?;
        let _ = sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES);
        never_fragment(&socket, address.is_ipv4())?;
        rustix::net::bind(&socket, &address)?;
        let socket = UdpSocket::from(socket);
        // The others use the port that the first one got.
        address = socket.local_addr()?;
        sockets.push(socket);
    }
    Ok(sockets)
}

fn never_fragment(socket: &impl AsRawFd, is_ipv4: bool) -> io::Result<()> {
    let (level, option, value) = match is_ipv4 {
        true => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
        false => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO),
    };
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the call, and the value is an int of the given size that
    // outlives it.
    let outcome = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size)
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The socket of a loop, and the datagrams of the turn.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    pub(crate) socket: Option<Arc<UdpSocket>>,
    bytes: Vec<u8>,
    /// Receiver of each datagram, and its end in `bytes`.
    queue: Vec<(SocketAddr, usize)>,
    at_once: usize,
    pub(crate) dropped: u64,
}

impl Datagrams {
    /// `at_once`: bound on the datagrams per system call.
    pub(crate) fn new(socket: Option<Arc<UdpSocket>>, at_once: usize) -> Self {
        Self { socket, at_once: at_once.clamp(1, AT_ONCE_MAX), ..Self::default() }
    }

    pub(crate) fn push(&mut self, to: SocketAddr, bytes: &[u8]) {
        if self.queue.len() >= SENT_PER_TURN_MAX {
            self.dropped += 1;
            return;
        }
        self.bytes.extend_from_slice(bytes);
        self.queue.push((to, self.bytes.len()));
    }

    pub(crate) fn flush(&mut self) {
        let (mut start, mut next) = (0, 0);
        while let Some(socket) = &self.socket
            && next < self.queue.len()
        {
            let some = &self.queue[next..self.queue.len().min(next + self.at_once)];
            let sent = match some {
                [(to, end)] => usize::from(socket.send_to(&self.bytes[start..*end], *to).is_ok()),
                _ => send_together(socket, &self.bytes, start, some),
            };
            // The kernel's buffer is full, or ICMP reported an error of an earlier datagram: either
            // way the one after those that went is lost.
            let is_lost = sent < some.len();
            self.dropped += u64::from(is_lost);
            next += sent + usize::from(is_lost);
            start = self.queue[next - 1].1;
        }
        self.dropped += (self.queue.len() - next) as u64;
        self.queue.clear();
        self.bytes.clear();
    }
}

/// Sends these datagrams, the first of which begins at `start` of `bytes`, in one call; returns how
/// many the kernel took.
fn send_together(
    socket: &UdpSocket,
    bytes: &[u8],
    mut start: usize,
    queue: &[(SocketAddr, usize)],
) -> usize {
    let mut names = [const { MaybeUninit::<SocketAddrAny>::uninit() }; AT_ONCE_MAX];
    let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; AT_ONCE_MAX];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; AT_ONCE_MAX];
    let places = names.iter_mut().zip(&mut parts).zip(&mut messages);
    for ((to, end), ((name, part), message)) in queue.iter().zip(places) {
        let name = name.write(SocketAddrAny::from(*to));
        let payload = &bytes[start..*end];
        let part = part.write(libc::iovec {
            iov_base: payload.as_ptr().cast_mut().cast(),
            iov_len: payload.len(),
        });
        // SAFETY: numbers and pointers, for all of which zero is a valid value.
        let message = message.write(unsafe { std::mem::zeroed() });
        message.msg_hdr.msg_name = name.as_ptr().cast_mut().cast();
        message.msg_hdr.msg_namelen = name.addr_len();
        (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (part, 1);
        start = *end;
    }
    let count = queue.len().min(AT_ONCE_MAX) as libc::c_uint;
    // SAFETY: the descriptor is open for the call; the first `count` messages were written above,
    // and the memory they point to outlives it. The kernel only reads it.
    let sent =
        unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr().cast(), count, 0) };
    usize::try_from(sent).unwrap_or(0)
}

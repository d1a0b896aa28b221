//! Datagrams of a loop: one socket, beside its connections. The datagrams of a turn leave at its
//! end. They may be lost at any point, so a datagram without room is dropped and counted, and
//! nothing waits.

mod messages;

use std::cmp::Reverse;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use messages::Sent;
pub(crate) use messages::receive;

/// Datagrams handed over in one turn; the others wait in the kernel.
pub(crate) const RECEIVED_PER_TURN: usize = 256;
/// Datagrams that one turn may send.
const SENT_PER_TURN_MAX: usize = 16 << 10;
/// Messages per system call. One has a datagram, or several of one size for one peer.
pub(crate) const AT_ONCE_MAX: usize = 32;
/// Room for the largest message of UDP.
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
        messages::gather_received(&socket);
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
    messages::set_option(socket, level, option, value)
}

/// A datagram of the turn: its receiver, and its place in the bytes of all.
#[derive(Debug)]
struct Queued {
    to: SocketAddr,
    start: usize,
    length: usize,
}

/// The socket of a loop, and the datagrams of the turn.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    pub(crate) socket: Option<Arc<UdpSocket>>,
    bytes: Vec<u8>,
    queue: Vec<Queued>,
    at_once: usize,
    /// Datagrams of one size for one peer leave as one message.
    groups: bool,
    pub(crate) dropped: u64,
}

impl Datagrams {
    /// `at_once`: bound on the messages per system call.
    pub(crate) fn new(socket: Option<Arc<UdpSocket>>, at_once: usize, groups: bool) -> Self {
        let groups = groups && socket.as_deref().is_some_and(messages::can_group);
        Self { socket, at_once: at_once.clamp(1, AT_ONCE_MAX), groups, ..Self::default() }
    }

    pub(crate) fn push(&mut self, to: SocketAddr, bytes: &[u8]) {
        if self.queue.len() >= SENT_PER_TURN_MAX {
            self.dropped += 1;
            return;
        }
        let (start, length) = (self.bytes.len(), bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.queue.push(Queued { to, start, length });
    }

    pub(crate) fn flush(&mut self) {
        if self.groups {
            // Datagrams have no order of their own.
            self.queue.sort_unstable_by_key(|one| (one.to, Reverse(one.length)));
        }
        let mut next = 0;
        while let Some(socket) = &self.socket
            && next < self.queue.len()
        {
            let rest = &self.queue[next..];
            match messages::send(socket, &self.bytes, rest, self.at_once, self.groups) {
                Sent::Taken(count) => next += count.max(1),
                // The kernel's buffer is full, or the datagram is too large.
                Sent::Refused(1, _) => (self.dropped, next) = (self.dropped + 1, next + 1),
                Sent::Refused(count, error) => {
                    self.dropped += match error.raw_os_error() {
                        Some(libc::EAGAIN | libc::ENOBUFS) => count as u64,
                        _ => self.send_singly(next, count, &error),
                    };
                    next += count;
                }
            }
        }
        self.dropped += (self.queue.len() - next) as u64;
        self.queue.clear();
        self.bytes.clear();
    }

    /// Sends the datagrams of a refused message one by one; returns how many of them are lost.
    fn send_singly(&mut self, first: usize, count: usize, error: &io::Error) -> u64 {
        let Some(socket) = &self.socket else { return count as u64 };
        let lost = self.queue[first..first + count].iter().filter(|one| {
            socket.send_to(&self.bytes[one.start..one.start + one.length], one.to).is_err()
        });
        let lost = lost.count() as u64;
        // A route whose packets are encrypted, or a device that computes no checksums, takes no
        // messages to cut. Any other error is one of this message: its datagrams may be too large
        // for the route.
        self.groups &= error.raw_os_error() != Some(libc::EIO);
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_of_one_size_for_one_peer_are_one_message() {
        let bind =
            || Arc::new(bind_datagrams("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0));
        let (own, peer) = (bind(), bind());
        for groups in [true, false] {
            let mut datagrams = Datagrams::new(Some(Arc::clone(&own)), AT_ONCE_MAX, groups);
            assert_eq!(datagrams.groups, groups, "Linux 4.18 and later cut messages");
            for byte in 0..10 {
                datagrams.push(peer.local_addr().unwrap(), &[byte; 300]);
            }
            datagrams.flush();
            assert_eq!((datagrams.dropped, datagrams.groups), (0, groups));
            let mut buffer = vec![0; BYTES_MAX];
            let mut sizes = Vec::new();
            while let Ok(message) = receive(&peer, &mut buffer) {
                assert_eq!((message.from, message.segment), (own.local_addr().unwrap(), 300));
                sizes.push(message.bytes);
            }
            assert_eq!(sizes, if groups { vec![3_000] } else { vec![300; 10] });
        }
    }
}

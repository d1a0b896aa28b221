//! Messages of datagrams in system calls. The kernel takes several datagrams for one peer as one
//! message and cuts it at the way out, or the network card does (UDP_SEGMENT, "GSO"). It hands
//! over several from one peer as one message, too (UDP_GRO). The cost of a datagram is its way
//! through the kernel, so a message of ten costs little more than one alone.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;

use rustix::net::SocketAddrAny;

use super::{AT_ONCE_MAX, Queued};

/// Datagrams in one message: `UDP_MAX_SEGMENTS` of Linux before 6.9, which later ones exceed.
const SEGMENTS_MAX: usize = 64;
/// Bytes of a message: what one datagram may have over IPv6, without its headers.
const MESSAGE_BYTES_MAX: usize = 65_487;
/// Datagrams of one call in all.
const PARTS_MAX: usize = 512;

/// Has the kernel hand over datagrams of one size from one peer together. A kernel that cannot
/// (before Linux 5.0) hands them over one by one.
pub(super) fn gather_received(socket: &impl AsRawFd) {
    let _ = set_option(socket, libc::IPPROTO_UDP, libc::UDP_GRO, 1);
}

/// True if the kernel cuts messages (since Linux 4.18).
pub(super) fn can_group(socket: &impl AsRawFd) -> bool {
    set_option(socket, libc::IPPROTO_UDP, libc::UDP_SEGMENT, 0).is_ok()
}

/// Sets an option whose value is an int.
pub(super) fn set_option(
    socket: &impl AsRawFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the call, and the value is an int of the given size that
    // outlives it.
    let outcome = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size)
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Outcome of a call that sends.
pub(super) enum Sent {
    /// The kernel took this many datagrams; it may take the next, too.
    Taken(usize),
    /// The kernel refused the first message, which has this many datagrams.
    Refused(usize, io::Error),
}

/// The number of datagrams at the head of the queue that can be one message: they go to one peer
/// and have one size, but for the last, which may be shorter.
fn message_length(queue: &[Queued]) -> usize {
    let Some(first) = queue.first() else { return 0 };
    let (mut count, mut bytes) = (1, first.length);
    for next in &queue[1..] {
        bytes += next.length;
        if next.to != first.to
            || next.length > first.length
            || count == SEGMENTS_MAX
            || bytes > MESSAGE_BYTES_MAX
            // One without bytes would not be cut off from the one before it.
            || next.length == 0
        {
            break;
        }
        count += 1;
        if next.length < first.length {
            break;
        }
    }
    count
}

/// Room for the size of segments beside a message.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

// SAFETY: the function only computes with its argument.
const CONTROL_BYTES: usize = unsafe { libc::CMSG_SPACE(size_of::<u16>() as u32) } as usize;

/// Sends datagrams from the head of the queue in one call of at most `at_once` messages. With
/// `groups`, a message may have several datagrams.
pub(super) fn send(
    socket: &UdpSocket,
    bytes: &[u8],
    queue: &[Queued],
    at_once: usize,
    groups: bool,
) -> Sent {
    let mut names = [const { MaybeUninit::<SocketAddrAny>::uninit() }; AT_ONCE_MAX];
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; AT_ONCE_MAX];
    let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; PARTS_MAX];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; AT_ONCE_MAX];
    let mut lengths = [0; AT_ONCE_MAX];
    let (mut count, mut next) = (0, 0);
    while count < at_once.min(AT_ONCE_MAX) && next < queue.len() {
        let length = if groups { message_length(&queue[next..]) } else { 1 };
        if next + length > PARTS_MAX {
            break;
        }
        let own = &queue[next..next + length];
        for (one, part) in own.iter().zip(&mut parts[next..]) {
            let payload = &bytes[one.start..one.start + one.length];
            part.write(libc::iovec {
                iov_base: payload.as_ptr().cast_mut().cast(),
                iov_len: payload.len(),
            });
        }
        let name = names[count].write(SocketAddrAny::from(own[0].to));
        // SAFETY: numbers and pointers, for all of which zero is a valid value.
        let message = messages[count].write(unsafe { std::mem::zeroed() });
        message.msg_hdr.msg_name = name.as_ptr().cast_mut().cast();
        message.msg_hdr.msg_namelen = name.addr_len();
        message.msg_hdr.msg_iov = parts[next].as_mut_ptr();
        message.msg_hdr.msg_iovlen = length as _;
        if length > 1 {
            let control = controls[count].write(Control([0; CONTROL_BYTES]));
            write_segment(&mut message.msg_hdr, control, own[0].length as u16);
        }
        lengths[count] = length;
        (count, next) = (count + 1, next + length);
    }
    // SAFETY: the descriptor is open for the call. The first `count` messages were written above,
    // and so were the names, parts and control bytes to which they point, all of which outlive the
    // call. The kernel only reads what these point to.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr().cast(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT as _,
        )
    };
    match usize::try_from(sent) {
        Ok(sent) => Sent::Taken(lengths[..sent.min(count)].iter().sum()),
        Err(_) => Sent::Refused(lengths[0].max(1), io::Error::last_os_error()),
    }
}

/// Has the kernel cut a message every `bytes`.
fn write_segment(header: &mut libc::msghdr, control: &mut Control, bytes: u16) {
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: the header has CONTROL_BYTES of aligned room, which is what one control message with
    // two bytes takes; so the first exists, and its data lies within the room.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(header);
        (*first).cmsg_level = libc::IPPROTO_UDP;
        (*first).cmsg_type = libc::UDP_SEGMENT;
        (*first).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
        libc::CMSG_DATA(first).cast::<u16>().write_unaligned(bytes);
    }
}

/// A message that came: its sender, its bytes in the buffer, and the size of its datagrams. The
/// last of them may be shorter.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) from: SocketAddr,
    pub(crate) bytes: usize,
    pub(crate) segment: usize,
}

/// Takes a message from the socket into the buffer.
///
/// # Errors
/// Those of recvmsg: `WouldBlock` if there is none, or the error of a datagram that was sent.
pub(crate) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Received> {
    // An int of the kernel's, with room to spare.
    let mut control = [0_u64; 8];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: numbers alone, for all of which zero is a valid value.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    // SAFETY: numbers and pointers, for all of which zero is a valid value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the descriptor is open for the call, and the header names memory that outlives it,
    // with the sizes that it has.
    let bytes = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    let Ok(bytes) = usize::try_from(bytes) else { return Err(io::Error::last_os_error()) };
    let from = address_of(&name)?;
    let segment = segment_of(&header).filter(|segment| *segment > 0).unwrap_or(bytes.max(1));
    Ok(Received { from, bytes, segment })
}

/// The size of a message's datagrams, if it has several.
fn segment_of(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel has written the control messages of this header, whose memory is alive,
    // and the bytes of the first are read only if there is one that is long enough.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(header).as_ref()?;
        let is_segment = first.cmsg_level == libc::IPPROTO_UDP
            && first.cmsg_type == libc::UDP_GRO
            && first.cmsg_len as usize >= libc::CMSG_LEN(size_of::<libc::c_int>() as u32) as usize;
        let size = || libc::CMSG_DATA(first).cast::<libc::c_int>().read_unaligned();
        is_segment.then(size).and_then(|size| usize::try_from(size).ok())
    }
}

fn address_of(name: &libc::sockaddr_storage) -> io::Result<SocketAddr> {
    match libc::c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which address lies there, and the storage has room for each.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            Ok(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            Ok(SocketAddrV6::new(ip, port, name.sin6_flowinfo, name.sin6_scope_id).into())
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a sender without an IP address")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(datagrams: &[(u16, usize)]) -> Vec<Queued> {
        let to = |port| SocketAddr::from(([127, 0, 0, 1], port));
        datagrams
            .iter()
            .map(|(port, length)| Queued { to: to(*port), start: 0, length: *length })
            .collect()
    }

    #[test]
    fn a_message_has_one_peer_and_one_size_and_a_shorter_end() {
        let length = |datagrams: &[(u16, usize)]| message_length(&queue(datagrams));
        assert_eq!(length(&[]), 0);
        assert_eq!(length(&[(1, 10), (1, 10), (2, 10)]), 2, "another peer");
        assert_eq!(length(&[(1, 10), (1, 10), (1, 9), (1, 9)]), 3, "a shorter one is the last");
        assert_eq!(length(&[(1, 10), (1, 11)]), 1, "a longer one begins the next");
        assert_eq!(length(&[(1, 10), (1, 0)]), 1, "one without bytes goes alone");
        assert_eq!(length(&[(1, 0), (1, 0)]), 1);
        assert_eq!(length(&[(1, 1); 100]), SEGMENTS_MAX);
        assert_eq!(length(&[(1, 1_400); 100]), MESSAGE_BYTES_MAX / 1_400);
        assert_eq!(length(&[(1, 70_000), (1, 10)]), 1, "too large a one goes alone");
    }
}

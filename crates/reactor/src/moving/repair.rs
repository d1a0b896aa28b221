//! The socket options of a TCP connection under repair (`TCP_REPAIR`, `include/uapi/linux/tcp.h`).
//! This module decides nothing; `kernel` has the order of the calls.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags};

use super::frozen::Window;

/// Leaves repair without a window probe (`TCP_REPAIR_OFF_NO_WP`).
const OFF_WITHOUT_PROBE: i32 = -1;
const OFF_WITH_PROBE: i32 = 0;
const ON: i32 = 1;

/// `TCP_ESTABLISHED` of the kernel's `enum`.
const ESTABLISHED: u8 = 1;
/// `TCP_CLOSE` of the same.
const CLOSED: u8 = 7;
/// `TCP_CLOSE_WAIT` of the same.
const CLOSE_WAIT: u8 = 8;
/// Flags of `tcpi_options`.
const HAS_TIMESTAMPS: u8 = 1;
const HAS_SACK: u8 = 2;
const HAS_WINDOW_SCALES: u8 = 4;
const HAS_MICROSECOND_TIMESTAMPS: u8 = 64;

/// The first words of `struct tcp_info`, and the indices of `tcpi_bytes_received` and
/// `tcpi_bytes_sent` (Linux 4.19).
const COUNTED_WORDS: usize = 26;
const RECEIVED_WORD: usize = 16;
const SENT_WORD: usize = 25;

/// Codes of TCP options, in the form of `TCP_REPAIR_OPTIONS`.
const OPTION_MSS: u32 = 2;
const OPTION_WINDOW_SCALES: u32 = 3;
const OPTION_SACK_PERMITTED: u32 = 4;
const OPTION_TIMESTAMPS: u32 = 8;

/// A queue of the socket (`TCP_RECV_QUEUE`, `TCP_SEND_QUEUE`).
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum Queue {
    Receive = 1,
    Send = 2,
}

/// The beginning of `struct tcp_info`.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct Info {
    state: u8,
    options: u8,
    scales: u8,
}

impl Info {
    pub(super) fn is_established(self) -> bool {
        self.state == ESTABLISHED
    }

    /// True if the peer has ended its direction.
    pub(super) fn is_half_closed(self) -> bool {
        self.state == CLOSE_WAIT
    }

    /// True if the kernel has no connection any more.
    pub(super) fn is_closed(self) -> bool {
        self.state == CLOSED
    }

    pub(super) fn has_timestamps(self) -> bool {
        self.options & HAS_TIMESTAMPS != 0
    }

    pub(super) fn has_sack(self) -> bool {
        self.options & HAS_SACK != 0
    }

    /// True if its timestamps have a unit that `TCP_TIMESTAMP` does not carry over.
    pub(super) fn has_microsecond_timestamps(self) -> bool {
        self.options & HAS_MICROSECOND_TIMESTAMPS != 0
    }

    /// Shifts of the send and the receive window. On the wire, two shifts of zero equal no scaling.
    pub(super) fn window_scales(self) -> Option<(u8, u8)> {
        // Two bit fields of four bits, the send shift first, in the machine's bit order.
        let halves = (self.scales & 15, self.scales >> 4);
        let scales = if cfg!(target_endian = "little") { halves } else { (halves.1, halves.0) };
        (self.options & HAS_WINDOW_SCALES != 0 && scales != (0, 0)).then_some(scales)
    }
}

/// Bytes of the stream since the connection was made, or put in.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct Counts {
    pub(super) received: u64,
    /// Bytes sent; one sent twice counts twice.
    pub(super) sent: u64,
}

/// `struct tcp_repair_window`.
#[repr(C)]
#[derive(Copy, Clone)]
struct RawWindow {
    send_update: u32,
    send: u32,
    largest: u32,
    receive: u32,
    receive_update: u32,
}

/// `struct tcp_repair_opt`.
#[repr(C)]
#[derive(Copy, Clone)]
struct RawOption {
    code: u32,
    value: u32,
}

/// Types of option values that have no padding and are valid for any bytes.
///
/// # Safety
/// Both must be true of the type.
unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for i32 {}
// SAFETY: bytes.
unsafe impl Plain for [u8; 8] {}
// SAFETY: integers.
unsafe impl Plain for [u64; COUNTED_WORDS] {}
// SAFETY: five integers of four bytes in the C layout.
unsafe impl Plain for RawWindow {}

fn get<T: Plain>(socket: &OwnedFd, level: i32, name: i32) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value`, which has that size; both
    // outlive the call.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all bytes were zeroed before the kernel wrote some of them, and a `Plain` type is
    // valid for any bytes.
    Ok(unsafe { value.assume_init() })
}

fn set<T: Copy>(socket: &OwnedFd, level: i32, name: i32, values: &[T]) -> io::Result<()> {
    let length = size_of_val(values) as libc::socklen_t;
    // SAFETY: the kernel reads at most `length` bytes of `values`, which is as long and outlives
    // the call.
    let outcome = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, values.as_ptr().cast(), length)
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set_tcp(socket: &OwnedFd, name: i32, value: i32) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, name, &[value])
}

fn count_of(socket: &OwnedFd, request: libc::c_ulong) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: these requests write one integer, to `count`, which outlives the call.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw mut count) };
    if outcome == 0 { Ok(count.max(0) as usize) } else { Err(io::Error::last_os_error()) }
}

/// Begins the repair. Needs CAP_NET_ADMIN in the user namespace of the socket's network.
pub(super) fn begin(socket: &OwnedFd) -> io::Result<()> {
    set_tcp(socket, libc::TCP_REPAIR, ON)
}

/// Ends the repair. A window probe makes the peer tell its window and what it has received.
pub(super) fn end(socket: &OwnedFd, probe: bool) -> io::Result<()> {
    set_tcp(socket, libc::TCP_REPAIR, if probe { OFF_WITH_PROBE } else { OFF_WITHOUT_PROBE })?;
    // The end of a repair clears this option; without it a listener cannot be opened beside the
    // connection.
    set(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &[1i32])
}

/// Makes the socket drop all packets from now on.
pub(super) fn drop_packets(socket: &OwnedFd) -> io::Result<()> {
    // BPF_RET | BPF_K with 0: lets nothing of any packet through.
    let mut nothing = [libc::sock_filter { code: 6, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: nothing.as_mut_ptr() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &[program])
}

/// Makes the socket take packets again.
pub(super) fn take_packets(socket: &OwnedFd) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &[0i32])
}

pub(super) fn info(socket: &OwnedFd) -> io::Result<Info> {
    let [state, _, _, _, _, options, scales, _]: [u8; 8] =
        get(socket, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    Ok(Info { state, options, scales })
}

pub(super) fn counts(socket: &OwnedFd) -> io::Result<Counts> {
    let words: [u64; COUNTED_WORDS] = get(socket, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    Ok(Counts { received: words[RECEIVED_WORD], sent: words[SENT_WORD] })
}

/// Marks all bytes of the send queue, which must be chosen, as sent; sends nothing.
pub(super) fn mark_as_sent(socket: &OwnedFd) -> io::Result<()> {
    // Setting this again makes the kernel send the waiting bytes; under repair it only marks them.
    set_tcp(socket, libc::TCP_NODELAY, ON)
}

/// Both addresses. An IPv4 address is returned as such, also on an IPv6 socket.
pub(super) fn addresses(socket: &OwnedFd) -> io::Result<(SocketAddr, SocketAddr)> {
    let local = SocketAddr::try_from(rustix::net::getsockname(socket)?)?;
    let peer = rustix::net::getpeername(socket)?.ok_or(io::ErrorKind::NotConnected)?;
    Ok((canonical(local), canonical(SocketAddr::try_from(peer)?)))
}

fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip if ip == address.ip() => address,
        ip => SocketAddr::new(ip, address.port()),
    }
}

/// Bytes in the send queue: all, and the unsent ones.
pub(super) fn send_queue_bytes(socket: &OwnedFd) -> io::Result<(usize, usize)> {
    /// From `linux/sockios.h`.
    const SIOCOUTQNSD: libc::c_ulong = 0x894B;
    Ok((count_of(socket, libc::TIOCOUTQ as libc::c_ulong)?, count_of(socket, SIOCOUTQNSD)?))
}

/// Bytes in the receive queue.
pub(super) fn receive_queue_bytes(socket: &OwnedFd) -> io::Result<usize> {
    count_of(socket, libc::FIONREAD as libc::c_ulong)
}

/// Chooses the queue that sends and receives apply to from now on.
pub(super) fn choose(socket: &OwnedFd, queue: Queue) -> io::Result<()> {
    set_tcp(socket, libc::TCP_REPAIR_QUEUE, queue as i32)
}

/// The sequence number after the chosen queue.
pub(super) fn sequence(socket: &OwnedFd) -> io::Result<u32> {
    Ok(get::<i32>(socket, libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ)? as u32)
}

/// Sets the sequence number after the chosen queue; only before the socket is connected.
pub(super) fn set_sequence(socket: &OwnedFd, sequence: u32) -> io::Result<()> {
    set_tcp(socket, libc::TCP_QUEUE_SEQ, sequence as i32)
}

/// Reads up to this many bytes from the front of the chosen queue and leaves them there.
pub(super) fn peek(socket: &OwnedFd, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; bytes_max];
    let count = match rustix::io::retry_on_intr(|| {
        rustix::net::recv(socket, &mut bytes[..], RecvFlags::PEEK | RecvFlags::DONTWAIT)
    }) {
        Ok((count, _)) => count,
        Err(rustix::io::Errno::AGAIN) => 0,
        Err(error) => return Err(error.into()),
    };
    bytes.truncate(count);
    Ok(bytes)
}

/// Appends to the chosen queue; returns the number of bytes that had room.
pub(super) fn fill(socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::net::send(socket, &bytes[filled..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
        {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}

/// Largest segment agreed on; under repair.
pub(super) fn mss(socket: &OwnedFd) -> io::Result<u16> {
    let mss: i32 = get(socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG)?;
    u16::try_from(mss).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Bounds the segments of a socket that is not connected yet.
pub(super) fn set_mss(socket: &OwnedFd, mss: u16) -> io::Result<()> {
    /// The kernel's `TCP_MIN_MSS` and `MAX_TCP_WINDOW`.
    const SETTABLE: std::ops::RangeInclusive<i32> = 88..=32_767;
    set_tcp(socket, libc::TCP_MAXSEG, i32::from(mss).clamp(*SETTABLE.start(), *SETTABLE.end()))
}

pub(super) fn timestamp(socket: &OwnedFd) -> io::Result<u32> {
    Ok(get::<i32>(socket, libc::IPPROTO_TCP, libc::TCP_TIMESTAMP)? as u32)
}

pub(super) fn set_timestamp(socket: &OwnedFd, timestamp: u32) -> io::Result<()> {
    set_tcp(socket, libc::TCP_TIMESTAMP, timestamp as i32)
}

pub(super) fn window(socket: &OwnedFd) -> io::Result<Window> {
    let raw: RawWindow = get(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR_WINDOW)?;
    let RawWindow { send_update, send, largest, receive, receive_update } = raw;
    Ok(Window { send_update, send, largest, receive, receive_update })
}

pub(super) fn set_window(socket: &OwnedFd, window: Window) -> io::Result<()> {
    let Window { send_update, send, largest, receive, receive_update } = window;
    let raw = RawWindow { send_update, send, largest, receive, receive_update };
    set(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR_WINDOW, &[raw])
}

/// Promises the peer no more room than before, except for the least that the kernel allows: some 2
/// KiB, and from Linux 6.10 on twice the bytes that arrive.
pub(super) fn promise_no_more(socket: &OwnedFd) -> io::Result<()> {
    set_tcp(socket, libc::TCP_WINDOW_CLAMP, 1)
}

/// Sets the options that both sides agreed on; once connected, and before anything is sent.
pub(super) fn set_agreed(
    socket: &OwnedFd,
    mss: u16,
    scales: Option<(u8, u8)>,
    sack: bool,
    timestamps: bool,
) -> io::Result<()> {
    // A socket that connects has chosen a scale for its window; without scaling that must be none.
    let (send, receive) = scales.unwrap_or((0, 0));
    let scales = u32::from(send) | u32::from(receive) << 16;
    let mut options = vec![
        RawOption { code: OPTION_MSS, value: u32::from(mss) },
        RawOption { code: OPTION_WINDOW_SCALES, value: scales },
    ];
    if sack {
        options.push(RawOption { code: OPTION_SACK_PERMITTED, value: 0 });
    }
    if timestamps {
        options.push(RawOption { code: OPTION_TIMESTAMPS, value: 0 });
    }
    set(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR_OPTIONS, &options)
}

//! A mover for one host that needs no privilege: a depot, a Unix datagram socket served by a
//! thread, keeps the descriptor of a connection, and the process that restores the connection
//! fetches it there by its addresses (`SCM_RIGHTS`). The kernel's queues stay in the socket.
//!
//! ```text
//!  freeze:  PUT local peer  + the connection, a socket for the answer -->  depot
//!           depot  --> TAKEN or FULL
//!  restore: GET local peer  + a socket for the answer                 -->  depot
//!           depot  --> HERE + the connection, or ABSENT
//! ```
//!
//! It is for tests and trials: the host never stops answering the peer's packets, and the depot
//! closes a connection in time that nobody fetches, which its peer notices.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::frozen::{Frozen, NotFrozen, TcpState, Window};
use super::limits::{ANSWER_WITHIN, DEPOSITS_MAX, KEPT_FOR};
use super::repair;
use crate::driver::clock::timespec;

const PUT: u8 = 1;
const GET: u8 = 2;
const TAKEN: u8 = 3;
const FULL: u8 = 4;
const HERE: u8 = 5;
const ABSENT: u8 = 6;

/// Bound on a message: two addresses as text, after the kind, are shorter.
const MESSAGE_BYTES_MAX: usize = 256;

/// Access to a depot of connections, by all loops of a process.
#[derive(Clone, Debug)]
pub struct Twin(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// Socket connected to the depot.
    socket: Mutex<OwnedFd>,
    /// The depot, if it is in this process.
    _depot: Option<Depot>,
}

impl Twin {
    /// Opens a depot at this path, on a thread of this process, for its own loops and those of
    /// processes of the same user that [`join`](Twin::join) it. It lasts as long as a clone of the
    /// returned value. A socket that an earlier depot left at the path is replaced; fails if the
    /// path holds anything else, or a live depot.
    pub fn host(path: &Path) -> io::Result<Twin> {
        let depot = Depot::open(path)?;
        Ok(Twin::of(path, connect(path)?, Some(depot)))
    }

    /// Uses the depot that another process has opened at this path; fails if none has.
    pub fn join(path: &Path) -> io::Result<Twin> {
        Ok(Twin::of(path, connect(path)?, None))
    }

    /// Uses the depot at this path, and opens one if none is there: the first caller hosts it for
    /// all.
    pub fn open(path: &Path) -> io::Result<Twin> {
        let is_none = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
        };
        match Twin::join(path) {
            Err(error) if is_none(&error) => {}
            joined => return joined,
        }
        match Twin::host(path) {
            // Another process has been quicker.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Twin::join(path),
            hosted => hosted,
        }
    }

    fn of(path: &Path, socket: OwnedFd, depot: Option<Depot>) -> Twin {
        Twin(Arc::new(Inner { path: path.to_owned(), socket: Mutex::new(socket), _depot: depot }))
    }

    pub(super) fn freeze(&self, socket: &OwnedFd) -> Result<Frozen, NotFrozen> {
        let state = state_of(socket)
            .map_err(|error| NotFrozen::Io(error.kind()))?
            .ok_or(NotFrozen::NotEstablished)?;
        match self
            .ask(PUT, &state, Some(socket.as_fd()))
            .map_err(|error| NotFrozen::Io(error.kind()))?
        {
            (TAKEN, _) => Ok(Frozen::without_queues(state)),
            (FULL, _) => Err(NotFrozen::Io(io::ErrorKind::QuotaExceeded)),
            _ => Err(NotFrozen::Io(io::ErrorKind::InvalidData)),
        }
    }

    pub(super) fn restore(&self, frozen: &Frozen) -> Result<OwnedFd, io::ErrorKind> {
        if !frozen.unacknowledged.is_empty() {
            // Another mover froze it: these bytes would be sent twice.
            return Err(io::ErrorKind::InvalidInput);
        }
        match self.ask(GET, &frozen.state, None).map_err(|error| error.kind())? {
            (HERE, Some(socket)) => Ok(socket),
            (ABSENT, _) => Err(io::ErrorKind::NotFound),
            _ => Err(io::ErrorKind::InvalidData),
        }
    }

    /// Sends one request to the depot and waits for the answer: one byte, and perhaps a descriptor.
    fn ask(
        &self,
        kind: u8,
        state: &TcpState,
        connection: Option<BorrowedFd<'_>>,
    ) -> io::Result<(u8, Option<OwnedFd>)> {
        let (here, there) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let mut message = vec![kind];
        message.extend_from_slice(format!("{} {}", state.local, state.peer).as_bytes());
        let descriptors: Vec<BorrowedFd<'_>> =
            [Some(there.as_fd()), connection].into_iter().flatten().collect();
        {
            let mut socket = self.0.socket.lock().unwrap_or_else(PoisonError::into_inner);
            match send(socket.as_fd(), &message, &descriptors) {
                // The process that had the depot has ended, and another may have opened one there
                // since.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    *socket = connect(&self.0.path).map_err(|_| error)?;
                    send(socket.as_fd(), &message, &descriptors)?;
                }
                sent => sent?,
            }
        }
        // Then only the depot has the other end, so that its death ends the wait.
        drop(there);
        if !readable(&[here.as_fd()], Instant::now() + ANSWER_WITHIN)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (answer, mut descriptors) = receive(here.as_fd())?;
        let kind = answer.first().copied().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((kind, descriptors.pop()))
    }
}

/// The state that any process can read from a socket; `None` if it is not established.
fn state_of(socket: &OwnedFd) -> io::Result<Option<TcpState>> {
    let info = repair::info(socket)?;
    if !info.is_established() {
        return Ok(None);
    }
    let (local, peer) = repair::addresses(socket)?;
    Ok(Some(TcpState {
        local,
        peer,
        send_sequence: 0,
        receive_sequence: 0,
        mss: repair::mss(socket)?,
        timestamp: info.has_timestamps().then_some(0),
        sack: info.has_sack(),
        window_scales: info.window_scales(),
        window: Window::default(),
    }))
}

/// The thread that keeps descriptors.
#[derive(Debug)]
struct Depot {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
}

impl Depot {
    fn open(path: &Path) -> io::Result<Depot> {
        let address = SocketAddrUnix::new(path)?;
        let socket = unix_socket()?;
        if let Err(error) = rustix::net::bind(&socket, &address) {
            // A socket without a process is the remains of a killed one.
            let left = error == Errno::ADDRINUSE
                && connect(path)
                    .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
            if !left {
                return Err(error.into());
            }
            std::fs::remove_file(path)?;
            rustix::net::bind(&socket, &address)?;
        }
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut depot = Depot { stop: stop.clone(), thread: None, path: path.to_owned() };
        let thread = std::thread::Builder::new().name("depot".into());
        depot.thread = Some(thread.spawn(move || serve(&socket, &stop))?);
        Ok(depot)
    }
}

impl Drop for Depot {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Connections in the depot, each with the time at which its stay ends.
type Deposits = BTreeMap<Vec<u8>, (OwnedFd, Instant)>;

fn serve(socket: &OwnedFd, stop: &OwnedFd) {
    let mut deposits = Deposits::new();
    loop {
        let now = Instant::now();
        deposits.retain(|_, (_, until)| *until > now);
        let wake_at = deposits.values().map(|(_, until)| *until).min().unwrap_or(now + KEPT_FOR);
        match readable(&[stop.as_fd(), socket.as_fd()], wake_at) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(_) => return,
        }
        if rustix::io::read(stop, &mut [0; 8]).is_ok() {
            return;
        }
        // A request that cannot be received (for lack of descriptors, for example) is lost, and its
        // sender waits in vain for a while.
        if let Ok((message, descriptors)) = receive(socket.as_fd()) {
            answer(&mut deposits, &message, descriptors);
        }
    }
}

fn answer(deposits: &mut Deposits, message: &[u8], descriptors: Vec<OwnedFd>) {
    let mut descriptors = descriptors.into_iter();
    let (Some((kind, key)), Some(reply)) = (message.split_first(), descriptors.next()) else {
        return;
    };
    // The requester may be gone: then a fetched connection is closed with the answer.
    let _ = match (*kind, descriptors.next()) {
        (PUT, Some(connection)) if deposits.len() < DEPOSITS_MAX => {
            deposits.insert(key.to_vec(), (connection, Instant::now() + KEPT_FOR));
            send(reply.as_fd(), &[TAKEN], &[])
        }
        (PUT, Some(_)) => send(reply.as_fd(), &[FULL], &[]),
        (GET, None) => match deposits.remove(key) {
            Some((connection, _)) => send(reply.as_fd(), &[HERE], &[connection.as_fd()]),
            None => send(reply.as_fd(), &[ABSENT], &[]),
        },
        _ => Ok(()),
    };
}

fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?)
}

fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = unix_socket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Sends one datagram; fails with `WouldBlock` if the receiver has too many already.
fn send(socket: BorrowedFd<'_>, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [io::IoSlice::new(message)];
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    retry_on_intr(|| rustix::net::sendmsg(socket, &parts, &mut control, flags))?;
    Ok(())
}

/// Receives one datagram, which must be waiting.
fn receive(socket: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut message = vec![0; MESSAGE_BYTES_MAX];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut [io::IoSliceMut::new(&mut message)], &mut control, flags)
    })?;
    let descriptors = control
        .drain()
        .filter_map(|part| {
            if let RecvAncillaryMessage::ScmRights(rights) = part { Some(rights) } else { None }
        })
        .flatten()
        .collect();
    message.truncate(received.bytes);
    Ok((message, descriptors))
}

/// Waits until one of them is readable or has ended; false if none is at that time.
fn readable(sockets: &[BorrowedFd<'_>], until: Instant) -> io::Result<bool> {
    let mut watched: Vec<PollFd<'_>> =
        sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up, so that the time is over when no event came.
        let timeout = timespec((left + Duration::from_millis(1)).as_nanos() as u64);
        match poll(&mut watched, Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

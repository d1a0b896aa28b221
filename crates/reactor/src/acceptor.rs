//! One thread accepts for all loops and hands each connection to the one with the least load: with
//! few heavy connections the kernel's own spreading (`SO_REUSEPORT`) is unfair.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketFlags, SocketType, acceptfrom_with, ipproto, sockopt,
};

use crate::driver::{clock, socket};
use crate::handshakes::{HandshakeLimits, HandshakeThreads, Handshakes, Security};
use crate::placement::{CoreSlot, Placement};
use crate::service::Accepted;
use crate::unix_listener::{self, UnixAccess, UnixListener};

/// Pending connections that the kernel holds for us; it cuts this to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// Connections accepted from one listener before the others get their turn.
const ACCEPTS_PER_ROUND: usize = 64;
/// First and longest pause when the process is out of files or memory.
const BACK_OFF_MIN: Duration = Duration::from_millis(10);
const BACK_OFF_MAX: Duration = Duration::from_secs(1);
/// Interval between log lines about failed accepts: a client that opens and closes connections at
/// the limit of open files must not fill the log.
const TOLD_EVERY: Duration = Duration::from_secs(1);
/// Wait for room when every mailbox is full.
const FULL_WAIT: Duration = Duration::from_millis(1);

/// Opens a listening socket with a long backlog. Fails like bind and listen (address in use, no
/// permission).
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let listener = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    rustix::net::bind(&listener, &address)?;
    prepare(&listener)?;
    Ok(listener.into())
}

/// Gives a bound socket its options, and has it listen with a long backlog.
pub(crate) fn prepare(socket: &impl AsFd) -> io::Result<()> {
    // Accepted connections inherit this option. RFC 6093, section 6: an urgent byte is like all
    // others. Otherwise the kernel would not report the number of bytes after it, and a connection
    // would move without them.
    sockopt::set_socket_oobinline(socket, true)?;
    Ok(rustix::net::listen(socket, BACKLOG)?)
}

/// Opens a listening Unix socket at an absolute path. It replaces the file of a process that has
/// died. `stands_for` is [`Accepted::local`] of its clients.
///
/// # Errors
/// The path is too long, another process listens there, something else is there, or the operating
/// system refuses. The text says what to do.
pub fn listen_unix(
    path: &Path,
    access: UnixAccess,
    stands_for: SocketAddr,
) -> io::Result<UnixListener> {
    unix_listener::listen(path, access, BACKLOG, stands_for)
}

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// An address and a port.
    Tcp(TcpListener),
    /// A path of this host.
    Unix(UnixListener),
}

impl Listener {
    /// The client and the address it connected to; `None` if the connection is gone already.
    fn origin(
        &self,
        socket: &OwnedFd,
        peer: Option<SocketAddrAny>,
        listener: u16,
    ) -> Option<Accepted> {
        let (peer, local) = match self {
            Listener::Tcp(_) => {
                socket::prepare_accepted(socket).ok()?;
                let peer = SocketAddr::try_from(peer?).ok()?;
                let local = rustix::net::getsockname(socket).ok()?;
                (peer.into(), SocketAddr::try_from(local).ok()?)
            }
            Listener::Unix(own) => (unix_listener::client(socket).ok()?, own.stands_for()),
        };
        Some(Accepted { listener, peer, local })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Listener::Tcp(listener)
    }
}

/// Makes the kernel buffer about this many bytes, while nobody reads, of each connection that comes
/// in on this listener from now on, instead of as many as it finds useful.
///
/// # Errors
/// The operating system refuses.
pub fn limit_receive(listener: &TcpListener, bytes: usize) -> io::Result<()> {
    socket::limit_receive(listener, bytes)
}

/// The accepting thread. Dropping it stops it.
pub struct Acceptor {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    handshakes: HandshakeThreads,
}

impl Acceptor {
    /// Starts accepting on `listeners`; [`Accepted::listener`] is the position in this list. Fails
    /// if the thread or its eventfd cannot be created.
    pub fn start<M: Send + 'static>(
        listeners: Vec<TcpListener>,
        cores: Vec<CoreSlot<M>>,
    ) -> io::Result<Acceptor> {
        Acceptor::start_with(listeners.into_iter().map(Listener::Tcp).collect(), cores, None)
    }

    /// Same as [`start`](Acceptor::start), with listeners of all kinds. With `security`, every
    /// connection passes the threads for handshakes, which [`Security`] rules.
    pub fn start_with<M: Send + 'static>(
        listeners: Vec<Listener>,
        cores: Vec<CoreSlot<M>>,
        security: Option<(Arc<dyn Security>, HandshakeLimits)>,
    ) -> io::Result<Acceptor> {
        for listener in &listeners {
            rustix::io::ioctl_fionbio(listener, true)?;
        }
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let placement = Arc::new(Placement::new(cores));
        let mut accepting = Accepting::new(listeners, placement.clone(), stop.clone());
        let mut handshakes = HandshakeThreads::default();
        if let Some((security, limits)) = security {
            let (begun, threads) = Handshakes::start(&security, limits, &placement)?;
            accepting.handshakes = Some(begun);
            handshakes = threads;
        }
        let span = tracing::Span::current();
        let run = move || span.in_scope(|| accepting.run());
        let thread = std::thread::Builder::new().name("accept".into()).spawn(run)?;
        Ok(Acceptor { stop, thread: Some(thread), handshakes })
    }

    /// True if the thread has ended without being stopped: it has panicked.
    pub fn has_died(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished) || self.handshakes.has_died()
    }

    /// Stops accepting and closes the listening sockets; returns when that is done, and false if
    /// the thread had died before.
    pub fn stop(mut self) -> bool {
        self.end()
    }

    fn end(&mut self) -> bool {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        let good = self.thread.take().is_none_or(|thread| thread.join().is_ok());
        self.handshakes.end() && good
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.end();
    }
}

struct Accepting<M> {
    listeners: Vec<Listener>,
    placement: Arc<Placement<M>>,
    handshakes: Option<Handshakes>,
    stop: Arc<OwnedFd>,
    back_off: Duration,
    told: Told,
}

/// Time of the last log line about failed accepts.
#[derive(Default)]
struct Told {
    last: Option<Instant>,
    /// Failures since then without a line.
    suppressed: u64,
}

impl Told {
    /// Returns, if a line may be written now, the number of those left out before it.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < TOLD_EVERY) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl<M> Accepting<M> {
    fn new(listeners: Vec<Listener>, placement: Arc<Placement<M>>, stop: Arc<OwnedFd>) -> Self {
        let (back_off, told) = (BACK_OFF_MIN, Told::default());
        Self { listeners, placement, handshakes: None, stop, back_off, told }
    }

    fn run(&mut self) {
        loop {
            let mut fds = vec![PollFd::new(&*self.stop, PollFlags::IN)];
            fds.extend(self.listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    if !self.pause(error) {
                        return;
                    }
                    continue;
                }
            }
            if !fds[0].revents().is_empty() {
                return;
            }
            let ready: Vec<bool> = fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect();
            for (position, _) in ready.iter().enumerate().filter(|(_, ready)| **ready) {
                if !self.accept_pending(position) {
                    return;
                }
            }
        }
    }

    /// Accepts pending connections, up to a round's share; the next poll reports the rest. False if
    /// told to stop.
    fn accept_pending(&mut self, position: usize) -> bool {
        for _ in 0..ACCEPTS_PER_ROUND {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match acceptfrom_with(&self.listeners[position], flags) {
                Ok((socket, peer)) => {
                    self.back_off = BACK_OFF_MIN;
                    if !self.place(position, socket, peer) {
                        return false;
                    }
                }
                Err(Errno::AGAIN) => return true,
                // The peer gave up while it was pending, or the network had an error for it alone:
                // that one is gone.
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::NONET) => {}
                Err(Errno::NETDOWN | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::HOSTUNREACH) => {}
                // A refused connection (EPERM, EOPNOTSUPP) may still be pending, and would be
                // refused again at once.
                Err(error) => return self.pause(error),
            }
        }
        true
    }

    /// Pauses, most likely because the process is out of files or memory: pending connections stay
    /// in the kernel's queue until some connections have ended.
    fn pause(&mut self, error: Errno) -> bool {
        if self.back_off == BACK_OFF_MIN
            && let Some(suppressed) = self.told.admit(Instant::now())
        {
            tracing::warn!(%error, suppressed, "cannot accept connections for now");
        }
        let pause = self.back_off;
        self.back_off = (pause * 2).min(BACK_OFF_MAX);
        !self.stopped_within(pause)
    }

    fn stopped_within(&self, pause: Duration) -> bool {
        let mut fds = [PollFd::new(&*self.stop, PollFlags::IN)];
        let pause_ns = pause.as_nanos() as u64;
        match poll(&mut fds, Some(&clock::timespec(pause_ns))) {
            Ok(ready) => ready > 0,
            Err(Errno::INTR) => false,
            Err(_) => {
                // The pause may be for poll itself.
                clock::sleep_ns(pause_ns);
                rustix::io::read(&*self.stop, &mut [0; 8]).is_ok()
            }
        }
    }

    /// Hands a connection over. False if told to stop while every mailbox was full.
    fn place(&mut self, position: usize, socket: OwnedFd, peer: Option<SocketAddrAny>) -> bool {
        let Some(origin) = self.listeners[position].origin(&socket, peer, position as u16) else {
            return true;
        };
        if let Some(handshakes) = &mut self.handshakes {
            handshakes.begin(socket, origin);
            return true;
        }
        let mut parcel = (socket, None);
        loop {
            match self.placement.offer(parcel, origin) {
                Ok(()) => return true,
                Err(_) if self.placement.is_closed() => return true,
                Err(back) => parcel = back,
            }
            if self.stopped_within(FULL_WAIT) {
                return false;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::net::TcpStream;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::mailbox::mailbox;

    #[test]
    fn accepts_that_fail_again_and_again_are_told_once_a_second() {
        let (mut told, start) = (Told::default(), Instant::now());
        let lines: Vec<u64> =
            (0..1_000).filter_map(|step| told.admit(start + step * BACK_OFF_MIN)).collect();
        assert_eq!(lines, [vec![0], vec![99; 9]].concat());
    }

    #[test]
    fn a_flood_on_one_listener_leaves_the_others_their_turn() {
        const FLOOD: usize = 100;
        let (mailer, _inbox) = mailbox::<()>(2 * FLOOD).unwrap();
        let load = Arc::new(AtomicUsize::new(0));
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
        let cores = vec![CoreSlot { mailer, load: load.clone() }];
        let mut accepting =
            Accepting::new(vec![listener.into()], Arc::new(Placement::new(cores)), stop);
        let _clients: Vec<_> = (0..FLOOD).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut accepted = 0;
        while accepted < FLOOD {
            assert!(accepting.accept_pending(0));
            let before = std::mem::replace(&mut accepted, load.load(Ordering::Relaxed));
            assert!(accepted - before <= 64, "{} in one round", accepted - before);
        }
    }

    #[test]
    fn stopping_tells_whether_the_thread_had_died() {
        let (mailer, _inbox) = mailbox::<()>(1).unwrap();
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let slot = CoreSlot { mailer, load: Arc::default() };
        let acceptor = Acceptor::start(vec![listener], vec![slot]).unwrap();
        assert!(!acceptor.has_died());
        assert!(acceptor.stop());
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
        let thread = Some(std::thread::spawn(|| panic!("as the test wants it")));
        let acceptor = Acceptor { stop, thread, handshakes: HandshakeThreads::default() };
        while !acceptor.has_died() {
            std::thread::yield_now();
        }
        assert!(!acceptor.stop());
    }
}

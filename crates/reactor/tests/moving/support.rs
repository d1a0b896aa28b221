//! A network namespace for a test, a loop that follows orders by mail and reports its events, and a
//! listener that hides from its clients that a connection is away.

use std::fmt;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use shunt_reactor::moving::{Frozen, Mover, NotFrozen};
use shunt_reactor::{
    Accepted, Acceptor, CloseReason, ConnId, CoreSlot, Io, IoChoice, LoopOptions, Mailer, Service,
    listen, mailbox, run,
};

/// Longest wait for an event: it only ends a test whose event never comes.
const PATIENCE: Duration = Duration::from_secs(180);

/// Time that a connection which the loop has closed waits for its peer: longer than a client may be
/// paused.
const LINGER_NS: u64 = 600_000_000_000;

/// Runs the test on a thread in a separate network namespace with a loopback device; prints a line
/// if that is not available.
pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let name = std::thread::current().name().unwrap_or("test").to_owned();
    let run = move || {
        // SAFETY: only this thread, and those it starts, leave the network of the others; memory
        // and files stay shared.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            println!(
                "skipped: no network namespace can be made here (needs root): {}",
                std::io::Error::last_os_error()
            );
            return;
        }
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        if !up.is_ok_and(|status| status.success()) {
            println!(
                "skipped: the loopback device cannot be brought up here (needs `ip` of iproute2)"
            );
            return;
        }
        test();
    };
    let outcome = std::thread::Builder::new().name(name).spawn(run).unwrap().join();
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// A setting of the namespace's TCP.
pub(crate) fn set_tcp(name: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value).unwrap();
}

/// Orders to a loop. Without a connection's name they concern its latest one.
pub(crate) enum Do {
    Freeze,
    Restore(Box<Frozen>),
    RestoreAndClose(Box<Frozen>),
    Write(Vec<u8>),
    Pause,
    Resume,
    Stop,
}

/// Events that a loop reports.
#[derive(PartialEq)]
pub(crate) enum Told {
    Accepted,
    Frozen(Result<Frozen, NotFrozen>),
    Restored,
    Closed(CloseReason),
    Received(Vec<u8>),
}

impl fmt::Debug for Told {
    /// Omits the bytes, which may be many.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Told::Accepted => f.write_str("Accepted"),
            Told::Frozen(Ok(frozen)) => write!(f, "Frozen({:?})", frozen.state),
            Told::Frozen(Err(reason)) => write!(f, "Frozen({reason:?})"),
            Told::Restored => f.write_str("Restored"),
            Told::Closed(reason) => write!(f, "Closed({reason:?})"),
            Told::Received(bytes) => write!(f, "Received({} bytes)", bytes.len()),
        }
    }
}

/// Unit of reads, so that a rest is often kept in the loop.
pub(crate) const UNIT: usize = 7;

struct Mailed {
    conn: Option<ConnId>,
    hops: u32,
    /// Echo instead of reporting.
    echo: bool,
    refused: Vec<NotFrozen>,
    told: Sender<Told>,
}

impl Mailed {
    fn tell(&self, told: Told) {
        let _ = self.told.send(told);
    }

    fn hop(&mut self, io: &mut Io) {
        if self.hops > 0 {
            io.freeze(self.conn.unwrap());
        }
    }
}

impl Service for Mailed {
    type Mail = Do;

    fn accepted(&mut self, _io: &mut Io, conn: ConnId, _origin: &Accepted) {
        self.conn = Some(conn);
        self.tell(Told::Accepted);
    }

    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        if !self.echo {
            self.tell(Told::Received(data.to_vec()));
            return data.len();
        }
        let consumed = data.len() / UNIT * UNIT;
        io.output(conn).extend_from_slice(&data[..consumed]);
        self.hop(io);
        consumed
    }

    fn closed(&mut self, _io: &mut Io, _conn: ConnId, reason: CloseReason) {
        self.tell(Told::Closed(reason));
    }

    fn frozen(&mut self, io: &mut Io, _conn: ConnId, outcome: Result<Frozen, NotFrozen>) {
        match outcome {
            Ok(frozen) if self.hops > 0 => self.conn = Some(io.restore(frozen)),
            Err(reason) if self.hops > 0 => self.refused.push(reason),
            outcome => self.tell(Told::Frozen(outcome)),
        }
    }

    fn restored(&mut self, _io: &mut Io, _conn: ConnId) {
        if self.hops > 0 {
            self.hops -= 1;
            if self.hops > 0 {
                return;
            }
            println!("freezes refused: {:?}", self.refused);
        }
        self.tell(Told::Restored);
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}

    fn mail(&mut self, io: &mut Io, mail: Do) {
        match (mail, self.conn) {
            (Do::Freeze, Some(conn)) => io.freeze(conn),
            (Do::Restore(frozen), _) => self.conn = Some(io.restore(*frozen)),
            (Do::RestoreAndClose(frozen), _) => {
                let conn = io.restore(*frozen);
                io.close(conn);
            }
            (Do::Write(bytes), Some(conn)) => io.output(conn).extend_from_slice(&bytes),
            (Do::Pause, Some(conn)) => io.pause_reading(conn),
            (Do::Resume, Some(conn)) => io.resume_reading(conn),
            (Do::Stop, _) => io.stop(),
            (_, None) => panic!("there is no connection"),
        }
    }

    fn turn_ended(&mut self, _io: &mut Io) {}
}

/// A loop on a separate thread; stopped and joined when dropped.
pub(crate) struct Node {
    mailer: Mailer<Do>,
    told: Receiver<Told>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    pub(crate) fn start(mover: Mover) -> Node {
        Node::start_with(IoChoice::Epoll, mover, 0)
    }

    /// Starts a loop that echoes.
    pub(crate) fn start_echo(mover: Mover) -> Node {
        Node::start_service(IoChoice::Epoll, mover, 0, true)
    }

    /// Starts a loop. With `hops` it echoes, freezes and restores the connection that often
    /// meanwhile, and then reports.
    pub(crate) fn start_with(choice: IoChoice, mover: Mover, hops: u32) -> Node {
        Node::start_service(choice, mover, hops, hops > 0)
    }

    fn start_service(choice: IoChoice, mover: Mover, hops: u32, echo: bool) -> Node {
        let (mailer, inbox) = mailbox(64).unwrap();
        let (sender, told) = channel();
        let options = LoopOptions { mover, linger_ns: LINGER_NS, ..LoopOptions::default() };
        let mut service = Mailed { conn: None, hops, echo, refused: Vec::new(), told: sender };
        let thread =
            Some(std::thread::spawn(move || run(choice, options, &mut service, inbox).unwrap()));
        Node { mailer, told, thread }
    }

    pub(crate) fn post(&self, mail: Do) {
        assert!(self.mailer.post(mail).is_ok(), "the loop is gone");
    }

    pub(crate) fn next(&self) -> Told {
        self.told.recv_timeout(PATIENCE).expect("the loop says nothing")
    }

    /// Freezes the connection, which must succeed.
    pub(crate) fn freeze(&self) -> Frozen {
        match self.try_freeze() {
            Ok(frozen) => frozen,
            Err(reason) => panic!("not frozen: {reason}"),
        }
    }

    pub(crate) fn try_freeze(&self) -> Result<Frozen, NotFrozen> {
        self.post(Do::Freeze);
        match self.next() {
            Told::Frozen(outcome) => outcome,
            other => panic!("told {other:?}"),
        }
    }

    pub(crate) fn restore(&self, frozen: Frozen) {
        self.post(Do::Restore(Box::new(frozen)));
        assert_eq!(self.next(), Told::Restored);
    }

    /// Reads the next bytes, this many of them.
    pub(crate) fn read(&self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < count {
            match self.next() {
                Told::Received(more) => bytes.extend(more),
                other => panic!("told {other:?} after {} bytes", bytes.len()),
            }
        }
        bytes
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.mailer.post(Do::Stop);
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            if !std::thread::panicking() {
                outcome.unwrap();
            }
        }
    }
}

/// Gives CAP_NET_ADMIN up, on this thread and those it starts from now on.
pub(crate) fn give_up_network_administration() {
    let mut sets = capabilities(None).unwrap();
    for set in [&mut sets.effective, &mut sets.permitted, &mut sets.inheritable] {
        set.remove(CapabilitySet::NET_ADMIN);
    }
    set_capabilities(None, sets).unwrap();
}

/// A connection from a client to a loop.
pub(crate) struct Accept {
    pub(crate) client: TcpStream,
    pub(crate) acceptor: Acceptor,
}

/// A connection that will move. From now on the listener takes no packets, so that those of a
/// connection that is away are not answered with a reset: they find the listener, and vanish.
pub(crate) fn accept(node: &Node, address: &str) -> Accept {
    accept_from(node, address, None)
}

/// Same, with a client whose receive buffer has this size.
pub(crate) fn accept_from(node: &Node, address: &str, receive_bytes: Option<usize>) -> Accept {
    let (accepted, listener) = accept_only(node, address, receive_bytes);
    drop_all(&listener);
    accepted
}

/// A connection that will stay where it is.
pub(crate) fn accept_to_stay(node: &Node, address: &str) -> Accept {
    accept_only(node, address, None).0
}

fn accept_only(node: &Node, address: &str, receive_bytes: Option<usize>) -> (Accept, TcpListener) {
    let listener = listen(address.parse().unwrap()).unwrap();
    let (address, listening) = (listener.local_addr().unwrap(), listener.try_clone().unwrap());
    let slot = CoreSlot { mailer: node.mailer.clone(), load: std::sync::Arc::default() };
    let acceptor = Acceptor::start(vec![listener], vec![slot]).unwrap();
    let client = connect(address, receive_bytes);
    assert_eq!(node.next(), Told::Accepted);
    (Accept { client, acceptor }, listening)
}

fn connect(address: SocketAddr, receive_bytes: Option<usize>) -> TcpStream {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket(family, SocketType::STREAM, None).unwrap();
    if let Some(bytes) = receive_bytes {
        sockopt::set_socket_recv_buffer_size(&socket, bytes).unwrap();
    }
    rustix::net::connect(&socket, &address).unwrap();
    let client = TcpStream::from(socket);
    client.set_nodelay(true).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    client
}

fn drop_all(listener: &TcpListener) {
    let mut nothing = [libc::sock_filter { code: 6, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: nothing.as_mut_ptr() };
    // SAFETY: the kernel copies the program, whose pointer and length are those of `nothing`,
    // during the call.
    let outcome = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
}

/// Bytes that identify their position in a stream.
pub(crate) fn pattern(from: usize, count: usize) -> Vec<u8> {
    (from..from + count)
        .map(|position| ((position as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
        .collect()
}

/// Waits until the condition holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(std::time::Instant::now() < end, "never: {what}");
        std::thread::park_timeout(Duration::from_micros(50));
    }
}

//! Runs a loop with a handler closure on its own thread, with an acceptor in front of it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shunt_reactor::{
    Accepted, Acceptor, CloseReason, ConnId, CoreSlot, Io, IoChoice, LoopOptions, Mailer, Service,
    listen, mailbox, probe_uring, run,
};

/// The events of a service; the return value counts only for `Received`.
pub(crate) enum Event<'a> {
    Started,
    Accepted(ConnId, Accepted),
    Connected(ConnId),
    Received(ConnId, &'a [u8]),
    Closed(ConnId, CloseReason),
    Drained(ConnId),
    Unacknowledged(ConnId, usize),
    Timer(u64),
    Mail(u64),
    TurnEnded,
}

/// Longest wait for an event: it only ends a test whose event never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
pub(crate) const PATIENCE_NS: u64 = PATIENCE.as_nanos() as u64;

/// Options under which a connection that the service has closed waits for its peer longer than a
/// client of these tests may be paused.
pub(crate) fn patient() -> LoopOptions {
    LoopOptions { linger_ns: 4 * PATIENCE_NS, ..LoopOptions::default() }
}

/// Mail that ends the loop.
pub(crate) const STOP: u64 = u64::MAX;

/// One type for all handlers, so that the loop is compiled once and not for each test.
type Handler = Box<dyn FnMut(&mut Io, Event<'_>) -> usize + Send>;

struct Script(Handler);

impl Service for Script {
    type Mail = u64;

    fn started(&mut self, io: &mut Io) {
        (self.0)(io, Event::Started);
    }
    fn accepted(&mut self, io: &mut Io, conn: ConnId, origin: &Accepted) {
        (self.0)(io, Event::Accepted(conn, *origin));
    }
    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        (self.0)(io, Event::Connected(conn));
    }
    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        (self.0)(io, Event::Received(conn, data))
    }
    fn closed(&mut self, io: &mut Io, conn: ConnId, reason: CloseReason) {
        (self.0)(io, Event::Closed(conn, reason));
    }
    fn drained(&mut self, io: &mut Io, conn: ConnId) {
        (self.0)(io, Event::Drained(conn));
    }
    fn unacknowledged(&mut self, io: &mut Io, conn: ConnId, bytes: usize) {
        (self.0)(io, Event::Unacknowledged(conn, bytes));
    }
    fn timer(&mut self, io: &mut Io, key: u64) {
        (self.0)(io, Event::Timer(key));
    }
    fn mail(&mut self, io: &mut Io, mail: u64) {
        if mail == STOP {
            return io.stop();
        }
        (self.0)(io, Event::Mail(mail));
    }
    fn turn_ended(&mut self, io: &mut Io) {
        (self.0)(io, Event::TurnEnded);
    }
}

/// A loop on its own thread; stopped and joined when dropped.
pub(crate) struct Loop {
    pub(crate) mailer: Mailer<u64>,
    pub(crate) load: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Loop {
    pub(crate) fn start(
        choice: IoChoice,
        handler: impl FnMut(&mut Io, Event<'_>) -> usize + Send + 'static,
    ) -> Loop {
        Loop::start_with(choice, patient(), handler)
    }

    pub(crate) fn start_with(
        choice: IoChoice,
        options: LoopOptions,
        handler: impl FnMut(&mut Io, Event<'_>) -> usize + Send + 'static,
    ) -> Loop {
        let (mailer, inbox) = mailbox(4096).unwrap();
        let mut script = Script(Box::new(handler));
        let load = Arc::new(AtomicUsize::new(0));
        let options = LoopOptions { load: Some(load.clone()), ..options };
        let thread = std::thread::spawn(move || run(choice, options, &mut script, inbox).unwrap());
        Loop { mailer, load, thread: Some(thread) }
    }

    pub(crate) fn slot(&self) -> CoreSlot<u64> {
        CoreSlot { mailer: self.mailer.clone(), load: self.load.clone() }
    }

    pub(crate) fn post(&self, mail: u64) {
        self.mailer.post(mail).unwrap();
    }

    /// Stops the loop and waits for it; panics if the loop did.
    pub(crate) fn join(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.mailer.post(STOP);
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            if !std::thread::panicking() {
                outcome.unwrap();
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.end();
    }
}

/// A loop with an acceptor in front.
pub(crate) struct Server {
    pub(crate) core: Loop,
    pub(crate) address: SocketAddr,
    _acceptor: Acceptor,
}

impl Server {
    pub(crate) fn start(
        choice: IoChoice,
        handler: impl FnMut(&mut Io, Event<'_>) -> usize + Send + 'static,
    ) -> Server {
        Server::start_with(choice, patient(), handler)
    }

    pub(crate) fn start_with(
        choice: IoChoice,
        options: LoopOptions,
        handler: impl FnMut(&mut Io, Event<'_>) -> usize + Send + 'static,
    ) -> Server {
        let core = Loop::start_with(choice, options, handler);
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = Acceptor::start(vec![listener], vec![core.slot()]).unwrap();
        Server { core, address, _acceptor: acceptor }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.address)
    }
}

/// A blocking client; a test that waits for what never comes fails instead of hanging.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    guard(&stream);
    stream
}

pub(crate) fn guard(stream: &TcpStream) {
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
}

/// Waits until the condition holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The next message of a loop's handler.
pub(crate) fn next<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(PATIENCE).expect("the loop says nothing")
}

pub(crate) fn read_exactly(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

pub(crate) fn round_trip(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    assert_eq!(read_exactly(stream, bytes.len()), bytes);
}

/// Bytes that identify their position.
pub(crate) fn pattern(count: usize, seed: u32) -> Vec<u8> {
    let mut state = u64::from(seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_ne_bytes());
    }
    bytes.truncate(count);
    bytes
}

/// Makes a close of this stream reset the connection.
pub(crate) fn reset_on_close(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
}

/// Echoes everything.
pub(crate) fn echo(io: &mut Io, event: Event<'_>) -> usize {
    match event {
        Event::Received(conn, data) => {
            io.output(conn).extend_from_slice(data);
            data.len()
        }
        _ => 0,
    }
}

/// A handler that sends the test the values it derives from events.
pub(crate) fn reporting<T: Send + 'static>(
    mut handler: impl FnMut(&mut Io, Event<'_>, &dyn Fn(T)) -> usize + Send + 'static,
) -> (impl FnMut(&mut Io, Event<'_>) -> usize + Send + 'static, Receiver<T>) {
    let (sender, receiver) = channel();
    let handler = move |io: &mut Io, event: Event<'_>| {
        handler(io, event, &|message| {
            let _ = sender.send(message);
        })
    };
    (handler, receiver)
}

/// True if tests of this driver can run here.
pub(crate) fn available(choice: IoChoice) -> bool {
    match probe_uring() {
        Err(reason) if choice == IoChoice::Uring => {
            eprintln!("not run: {reason}");
            false
        }
        _ => true,
    }
}

/// Makes each function a test for each driver.
macro_rules! for_each_driver {
    ($($name:ident),* $(,)?) => {
        mod epoll {
            $(#[test] fn $name() { super::$name(shunt_reactor::IoChoice::Epoll) })*
        }
        mod uring {
            $(#[test] fn $name() {
                if crate::support::available(shunt_reactor::IoChoice::Uring) {
                    super::$name(shunt_reactor::IoChoice::Uring)
                }
            })*
        }
    };
}
pub(crate) use for_each_driver;

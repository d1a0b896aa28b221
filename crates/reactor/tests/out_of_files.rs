//! Out of file descriptors the acceptor waits and goes on; waiting clients are served later. The
//! test is alone in its process, because the limit is the process's.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shunt_reactor::{
    Accepted, Acceptor, CloseReason, ConnId, CoreSlot, Io, IoChoice, LoopOptions, Service, listen,
    mailbox, run,
};

/// Far beyond what anything takes here.
const PATIENCE: Duration = Duration::from_secs(180);

struct Echo;

impl Service for Echo {
    type Mail = ();

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {}
    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        io.output(conn).extend_from_slice(data);
        data.len()
    }
    fn closed(&mut self, _io: &mut Io, _conn: ConnId, _reason: CloseReason) {}
    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, io: &mut Io, _mail: ()) {
        io.stop();
    }
    fn turn_ended(&mut self, _io: &mut Io) {}
}

/// Connects. The kernel takes a file for `accept` before it checks for waiting connections, so the
/// acceptor's last check of a round may hold the only free one for a moment.
fn connect(to: SocketAddr) -> TcpStream {
    let until = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect(to) {
            Err(error)
                if error.raw_os_error() == Some(Errno::MFILE.raw_os_error())
                    && Instant::now() < until => {}
            other => return other.unwrap(),
        }
    }
}

#[test]
fn the_acceptor_survives() {
    let (mailer, inbox) = mailbox(64).unwrap();
    let core =
        std::thread::spawn(move || run(IoChoice::Epoll, LoopOptions::default(), &mut Echo, inbox));
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let slot = CoreSlot { mailer: mailer.clone(), load: Arc::new(AtomicUsize::new(0)) };
    let acceptor = Acceptor::start(vec![listener], vec![slot]).unwrap();
    let talk = |client: &mut TcpStream| {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(b"hello").unwrap();
        let mut answer = [0; 5];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"hello");
    };
    // Keep all open: a file that is closed late must not make room unexpectedly.
    let mut clients = vec![TcpStream::connect(address).unwrap()];
    talk(&mut clients[0]);

    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(40), maximum: limit.maximum }).unwrap();
    let mut fillers: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(fillers.len() < 40);
    for _ in 0..3 {
        fillers.pop();
        let mut waiting = connect(address);
        assert!(File::open("/dev/null").is_err(), "there is a file left for the acceptor");
        fillers.pop();
        talk(&mut waiting);
        clients.push(waiting);
    }
    clients.iter_mut().for_each(talk);

    setrlimit(Resource::Nofile, limit).unwrap();
    drop(fillers);
    acceptor.stop();
    mailer.post(()).unwrap();
    core.join().unwrap().unwrap();
}

//! Connections that are given up: each is told of once, as what it was.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use super::*;

/// Expects headers from one port, and remembers what it is told.
#[derive(Default)]
struct Listener {
    told: std::sync::Mutex<Vec<(&'static str, SessionFault)>>,
}

const BALANCER_PORT: u16 = 1;

impl Listener {
    fn tell(&self, what: &'static str, fault: SessionFault) {
        self.told.lock().unwrap().push((what, fault));
    }

    fn take_told(&self) -> Vec<(&'static str, SessionFault)> {
        std::mem::take(&mut self.told.lock().unwrap())
    }
}

impl Security for Listener {
    fn expects_header(&self, origin: &Accepted) -> bool {
        origin.peer.direct().is_some_and(|address| address.port() == BALANCER_PORT)
    }

    fn refuse_header(&self, _: &Accepted, fault: SessionFault, _: &[u8]) -> Vec<u8> {
        self.tell("header", fault);
        Vec::new()
    }

    fn admit(&self, _: &Accepted, _: &[u8]) -> Admission {
        Admission::Plain
    }

    fn handshake_ended(&self, _: &Accepted, outcome: Result<&SessionInfo, SessionFault>) {
        self.tell("handshake", outcome.unwrap_err());
    }
}

fn from_port(port: u16) -> Accepted {
    let address = std::net::SocketAddr::from(([10, 0, 0, 1], port));
    Accepted { listener: 0, peer: address.into(), local: address }
}

fn queue(bound: usize) -> Arc<Queue> {
    let (wake, stop) = (Wake::new().unwrap(), AtomicBool::new(false));
    Arc::new(Queue { accepted: Mutex::new(VecDeque::new()), bound, wake, stop })
}

fn socket() -> OwnedFd {
    UnixStream::pair().unwrap().0.into()
}

fn worker(listener: &std::sync::Arc<Listener>) -> Worker<()> {
    let security = std::sync::Arc::<Listener>::clone(listener);
    Worker::new(security, std::sync::Arc::new(Placement::new(Vec::new())), queue(100)).unwrap()
}

#[test]
fn a_queue_without_room_gives_up_headers_and_handshakes() {
    let listener = std::sync::Arc::new(Listener::default());
    let security = std::sync::Arc::<Listener>::clone(&listener);
    let mut handshakes = Handshakes { security, queues: vec![queue(1)], next: 0 };
    for (port, told) in [
        (BALANCER_PORT, vec![]),
        (BALANCER_PORT, vec![("header", TOO_MANY)]),
        (2, vec![("header", TOO_MANY)]),
        (2, vec![("handshake", TOO_MANY)]),
    ] {
        handshakes.begin(socket(), from_port(port));
        assert_eq!(listener.take_told(), told);
    }
}

#[test]
fn a_connection_that_cannot_be_watched_is_told_of() {
    let listener = std::sync::Arc::new(Listener::default());
    let mut worker = worker(&listener);
    for (port, told) in [(BALANCER_PORT, "header"), (2, "handshake")] {
        // epoll takes no regular files.
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let origin = from_port(port);
        let stage = first_stage(&*listener, &origin);
        let interest = EventFlags::IN;
        worker.insert(Pending { socket: file.into(), origin, stage, interest }, None);
        assert_eq!(listener.take_told(), [(told, UNWATCHABLE)]);
    }
    assert_eq!(worker.slots.len() - worker.free.len(), 0);
}

#[test]
fn a_connection_whose_watch_fails_is_told_of() {
    let listener = std::sync::Arc::new(Listener::default());
    let mut worker = worker(&listener);
    let (origin, interest) = (from_port(2), EventFlags::IN);
    worker.insert(Pending { socket: socket(), origin, stage: Stage::Silent, interest }, None);
    let pending = worker.slots[0].pending.as_mut().unwrap();
    epoll::delete(&worker.epoll, &pending.socket).unwrap();
    // Another interest than the one that epoll knows.
    pending.interest = EventFlags::OUT;
    worker.watch(0, 0);
    assert_eq!(listener.take_told(), [("handshake", UNWATCHABLE)]);
    assert_eq!(worker.slots.len() - worker.free.len(), 0);
}

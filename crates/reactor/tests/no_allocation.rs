//! In steady state a turn allocates nothing: counted over real sockets, with both drivers, with
//! small messages, messages in pieces, and a link whose sent buffers are retained.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic, and wait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};

use shunt_reactor::{
    Accepted, CloseReason, ConnId, Io, IoChoice, LoopOptions, Service, mailbox, probe_uring, run,
};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

fn count() {
    // A thread that is ending allocates nothing that matters here.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: everything is passed on to the system's allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FRAME: usize = 70;
/// Round trips counted together. Buffers grow to the size that the load needs, at first often, then
/// less and less; steady state is reached when a whole window passes without an allocation.
const WINDOW: u64 = 20_000;
const WINDOWS_MAX: usize = 30;

/// A small proxy: frames from clients go to one link, frames from the link go to the client that
/// they name.
struct Relay {
    link: ConnId,
    link_address: std::net::SocketAddr,
    clients: Vec<ConnId>,
    /// Retained buffers of frames without an answer, oldest first: answers come in order.
    in_flight: std::collections::VecDeque<u32>,
    answered: u64,
    allocations: u64,
    retained_most: usize,
    window: Sender<(u64, usize)>,
}

impl Relay {
    fn end_window(&mut self) {
        // The receiver is gone when it has seen enough.
        let _ = self.window.send((ALLOCATIONS.get() - self.allocations, self.retained_most));
        self.allocations = ALLOCATIONS.get();
    }
}

impl Service for Relay {
    type Mail = ();

    fn started(&mut self, io: &mut Io) {
        self.link = io.connect(self.link_address, 180_000_000_000);
        io.keep_sent(self.link);
        io.set_timer(io.now_ns(), 0);
    }

    fn accepted(&mut self, _io: &mut Io, conn: ConnId, _origin: &Accepted) {
        self.clients.push(conn);
    }

    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        for frame in data.chunks_exact(FRAME) {
            if conn == self.link {
                io.release(self.link, self.in_flight.pop_front().unwrap());
                io.output(self.clients[usize::from(frame[0])]).extend_from_slice(frame);
                self.answered += 1;
                if self.answered.is_multiple_of(WINDOW) {
                    self.end_window();
                }
            } else {
                io.output(self.link).extend_from_slice(frame);
                self.in_flight.push_back(io.retain(self.link));
                self.retained_most = self.retained_most.max(io.retained_bytes(self.link));
            }
        }
        data.len() / FRAME * FRAME
    }

    fn closed(&mut self, io: &mut Io, _conn: ConnId, reason: CloseReason) {
        assert_eq!(reason, CloseReason::Peer);
        io.stop();
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn timer(&mut self, io: &mut Io, key: u64) {
        io.set_timer(io.now_ns() + 100_000, key + 1);
    }

    fn mail(&mut self, _io: &mut Io, _mail: ()) {}

    fn turn_ended(&mut self, _io: &mut Io) {}
}

/// Sends frames with the client's number, `depth` at a time, in odd pieces, and checks the answers.
fn client(mut stream: TcpStream, number: u8, depth: usize) {
    let frames = vec![number; FRAME * depth];
    let mut answers = vec![0; FRAME * depth];
    // Ends when the relay closes the connection.
    loop {
        let (first, rest) = frames.split_at(frames.len() * 2 / 3 - usize::from(number));
        if stream.write_all(first).is_err() || stream.write_all(rest).is_err() {
            return;
        }
        if stream.read_exact(&mut answers).is_err() {
            return;
        }
        assert!(answers == frames);
    }
}

fn relay(choice: IoChoice) {
    let node = TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mailer, inbox) = mailbox(64).unwrap();
    let (window, windows) = channel();
    let mut service = Relay {
        link: ConnId { index: u32::MAX, generation: 0 },
        link_address: node.local_addr().unwrap(),
        clients: Vec::with_capacity(64),
        in_flight: std::collections::VecDeque::with_capacity(1 << 16),
        answered: 0,
        allocations: 0,
        retained_most: 0,
        window,
    };
    std::thread::scope(|scope| {
        scope.spawn(move || run(choice, LoopOptions::default(), &mut service, inbox).unwrap());
        let (mut link, _) = node.accept().unwrap();
        let stop = link.try_clone().unwrap();
        scope.spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok(count @ 1..) = link.read(&mut buffer) {
                if link.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
        });
        for number in 0..8 {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            stream.set_nodelay(true).unwrap();
            let (accepted, peer) = listener.accept().unwrap();
            let origin =
                Accepted { listener: 0, peer: peer.into(), local: listener.local_addr().unwrap() };
            accepted.set_nonblocking(true).unwrap();
            mailer.adopt(accepted, origin).unwrap();
            scope.spawn(move || client(stream, number, 1 + 4 * usize::from(number)));
        }
        let mut counts = Vec::new();
        while counts.len() < WINDOWS_MAX && !counts.contains(&0) {
            let (allocations, retained) = windows.recv().unwrap();
            assert!(retained > 0, "nothing was retained");
            counts.push(allocations);
        }
        stop.shutdown(std::net::Shutdown::Both).unwrap();
        assert_eq!(
            counts.last(),
            Some(&0),
            "allocations in windows of {WINDOW} round trips: {counts:?}"
        );
        println!("allocations in windows of {WINDOW} round trips: {counts:?}");
    });
}

#[test]
fn epoll_allocates_nothing() {
    relay(IoChoice::Epoll);
}

#[test]
fn uring_allocates_nothing() {
    match probe_uring() {
        Ok(()) => relay(IoChoice::Uring),
        Err(reason) => eprintln!("not run: {reason}"),
    }
}

//! Retained buffers over real, partial sends.

use std::io::Read;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::Receiver;

use shunt_reactor::{CloseReason, ConnId, IoChoice, SentLog};

use crate::support::*;

for_each_driver!(
    kept_across_partial_sends,
    released_ones_go_back,
    the_log_of_a_lost_connection,
    nothing_is_sent_after_the_log_was_taken,
);

const BLOCK: usize = 3 << 20;

#[derive(Debug)]
enum Told {
    Written,
    Checked,
    Retained(usize),
    Log(SentLog, Vec<Place>),
}

/// Place of a block: sequence number and position.
type Place = (u32, usize);

/// On mail 0 writes one block and retains it twice; on mail 1 checks all blocks; on mail 2 releases
/// all once; on mail 3 reports the retained bytes. When the connection is lost, hands out the log.
fn keeper(choice: IoChoice, address: SocketAddr) -> (Loop, Receiver<Told>) {
    let mut link: Option<ConnId> = None;
    let mut places: Vec<Place> = Vec::new();
    let (handler, told) = reporting(move |io, event, tell| {
        match event {
            Event::Started => {
                let conn = io.connect(address, PATIENCE_NS);
                io.keep_sent(conn);
                link = Some(conn);
            }
            Event::Mail(0) => {
                let conn = link.unwrap();
                let start = io.output(conn).len();
                io.output(conn).extend(pattern(BLOCK, places.len() as u32));
                let number = io.retain(conn);
                assert_eq!(io.retain(conn), number);
                assert!(!places.contains(&(number, start)));
                places.push((number, start));
                tell(Told::Written);
            }
            Event::Mail(1) => {
                for (seed, (number, start)) in places.iter().enumerate() {
                    check_block(&io.sent(link.unwrap(), *number)[*start..], seed);
                }
                tell(Told::Checked);
            }
            Event::Mail(2) => {
                places.iter().for_each(|(number, _)| io.release(link.unwrap(), *number))
            }
            Event::Mail(_) => tell(Told::Retained(io.retained_bytes(link.unwrap()))),
            Event::Closed(conn, _) => tell(Told::Log(io.take_sent_log(conn), places.clone())),
            _ => {}
        }
        0
    });
    (Loop::start(choice, handler), told)
}

fn check_block(bytes: &[u8], seed: usize) {
    assert!(bytes[..BLOCK] == pattern(BLOCK, seed as u32), "block {seed}");
}

fn start(choice: IoChoice) -> (Loop, Receiver<Told>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (core, told) = keeper(choice, listener.local_addr().unwrap());
    let (peer, _) = listener.accept().unwrap();
    guard(&peer);
    (core, told, peer)
}

fn write_block(core: &Loop, told: &Receiver<Told>) {
    core.post(0);
    assert!(matches!(next(told), Told::Written));
}

fn check(core: &Loop, told: &Receiver<Told>) {
    core.post(1);
    assert!(matches!(next(told), Told::Checked));
}

fn retained(core: &Loop, told: &Receiver<Told>) -> usize {
    core.post(3);
    match next(told) {
        Told::Retained(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// The bytes can be looked up while filling, while sending and after, and arrive unharmed.
fn kept_across_partial_sends(choice: IoChoice) {
    let (core, told, mut peer) = start(choice);
    for _ in 0..3 {
        write_block(&core, &told);
        check(&core, &told);
    }
    for seed in 0..3 {
        assert!(read_exactly(&mut peer, BLOCK) == pattern(BLOCK, seed));
        check(&core, &told);
    }
}

fn released_ones_go_back(choice: IoChoice) {
    let (core, told, mut peer) = start(choice);
    write_block(&core, &told);
    read_exactly(&mut peer, BLOCK);
    while retained(&core, &told) < BLOCK {}
    core.post(2);
    assert!(retained(&core, &told) >= BLOCK, "retained twice");
    core.post(2);
    assert_eq!(retained(&core, &told), 0);
}

fn the_log_of_a_lost_connection(choice: IoChoice) {
    let (core, told, mut peer) = start(choice);
    for _ in 0..5 {
        write_block(&core, &told);
    }
    // The peer takes the first block, the second perhaps in part, the others not at all.
    peer.read_exact(&mut vec![0; BLOCK]).unwrap();
    reset_on_close(&peer);
    drop(peer);
    let Told::Log(log, places) = next(&told) else { panic!("no log") };
    for (seed, (number, start)) in places.iter().enumerate() {
        check_block(&log.get(*number).unwrap()[*start..], seed);
    }
    assert!(log.get(u32::MAX).is_none());
    core.join();
}

/// The peer ends its stream while it takes a block. The rest will be sent again elsewhere.
fn nothing_is_sent_after_the_log_was_taken(choice: IoChoice) {
    const BYTES: usize = 32 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut number = u32::MAX;
    let (handler, told) = reporting(move |io, event, tell| {
        match event {
            Event::Started => {
                let conn = io.connect(address, PATIENCE_NS);
                io.keep_sent(conn);
                io.output(conn).resize(BYTES, 7);
                number = io.retain(conn);
            }
            Event::Closed(conn, reason) => tell((reason, number, io.take_sent_log(conn))),
            _ => {}
        }
        0
    });
    let core = Loop::start(choice, handler);
    let (mut peer, _) = listener.accept().unwrap();
    guard(&peer);
    peer.peek(&mut [0]).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    let (reason, number, log) = next(&told);
    assert_eq!(reason, CloseReason::Peer);
    assert!(log.get(number).unwrap() == vec![7; BYTES]);
    let mut received = Vec::new();
    let _ = peer.read_to_end(&mut received);
    assert!(received.len() < BYTES, "the rest was sent all the same");
    core.join();
}

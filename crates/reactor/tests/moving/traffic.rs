//! A connection that is frozen and restored on its host a thousand times while its peer sends and
//! receives.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use shunt_reactor::IoChoice;
use shunt_reactor::moving::Mover;

use crate::support::{Node, Told, UNIT, accept, in_namespace, pattern, set_tcp, until};

const HOPS: u32 = 1_000;
/// Bytes in flight in both directions together: fewer than may be queued.
const ON_THE_WAY: usize = 24 << 10;

/// A client that sends a pattern, a little more at a time than fits into one segment, and checks
/// that it comes back.
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    back: Arc<AtomicUsize>,
    writer: JoinHandle<usize>,
    reader: JoinHandle<usize>,
}

impl Traffic {
    pub(crate) fn start(client: TcpStream) -> Traffic {
        let (mut from, mut to) = (client.try_clone().unwrap(), client);
        let (stop, back) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let writer = std::thread::spawn({
            let (stop, back) = (stop.clone(), back.clone());
            move || {
                let mut sent = 0;
                while !stop.load(Ordering::Relaxed) {
                    let count = 700 * (1 + sent % 5);
                    to.write_all(&pattern(sent, count)).unwrap();
                    sent += count;
                    until("the echo", || sent - back.load(Ordering::Relaxed) < ON_THE_WAY);
                }
                to.shutdown(std::net::Shutdown::Write).unwrap();
                sent
            }
        });
        let reader = std::thread::spawn({
            let back = back.clone();
            move || {
                let (mut received, mut buffer) = (0, vec![0; 64 << 10]);
                loop {
                    let count = from.read(&mut buffer).unwrap();
                    if count == 0 {
                        return received;
                    }
                    assert!(
                        buffer[..count] == pattern(received, count),
                        "wrong bytes behind the first {received}"
                    );
                    received += count;
                    back.store(received, Ordering::Relaxed);
                }
            }
        });
        Traffic { stop, back, writer, reader }
    }

    /// Waits until this many more bytes have come back.
    pub(crate) fn flow(&self, count: usize) {
        let before = self.back.load(Ordering::Relaxed);
        until("traffic", || self.back.load(Ordering::Relaxed) >= before + count);
    }

    /// Ends the stream. Everything that was sent must have come back, in whole units.
    pub(crate) fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.writer.join().unwrap();
        assert!(sent > 0);
        assert_eq!(self.reader.join().unwrap(), sent / UNIT * UNIT);
    }
}

fn exchange(address: &str) {
    exchange_over(HOPS, address);
}

fn exchange_over(hops: u32, address: &str) {
    let node = Node::start_with(IoChoice::Epoll, Mover::Kernel, hops);
    let accepted = accept(&node, address);
    let traffic = Traffic::start(accepted.client);
    assert_eq!(node.next(), Told::Restored);
    traffic.finish();
}

#[test]
fn a_connection_moves_a_thousand_times_and_the_bytes_are_right_both_ways() {
    in_namespace(|| exchange("127.0.0.1:0"));
}

#[test]
fn a_connection_of_ipv6_moves_a_thousand_times() {
    in_namespace(|| exchange("[::1]:0"));
}

#[test]
fn a_connection_without_timestamps_moves_a_thousand_times() {
    in_namespace(|| {
        set_tcp("tcp_timestamps", "0");
        exchange("127.0.0.1:0");
    });
}

#[test]
fn a_connection_without_selective_acknowledgements_moves_a_thousand_times() {
    in_namespace(|| {
        set_tcp("tcp_sack", "0");
        exchange("127.0.0.1:0");
    });
}

#[test]
fn a_connection_without_scaled_windows_moves_a_thousand_times() {
    in_namespace(|| {
        set_tcp("tcp_window_scaling", "0");
        exchange("127.0.0.1:0");
    });
}

#[test]
fn a_connection_with_none_of_these_moves_two_hundred_times() {
    in_namespace(|| {
        for name in ["tcp_timestamps", "tcp_sack", "tcp_window_scaling"] {
            set_tcp(name, "0");
        }
        // Packets in flight during a move are lost, and their sender notices by a timer alone: 0.2
        // s each time, on a fast machine.
        exchange_over(200, "[::1]:0");
    });
}

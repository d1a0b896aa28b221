//! Hostile clients on real sockets, with either driver: they lose their own connections, and a
//! regular client among them is served as usual. Simulation tests the details of their behaviour;
//! this test is about the kernel.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use shunt_wire::cql::envelope::{Header, opcode};

use crate::support::{Proxy, READ, Stub, eventually};

/// Most memory that hostile clients may cost, in KiB.
const GROWTH_KIB_MAX: u64 = 64 * 1024;

/// A connection that sent these bytes.
fn offender(proxy: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(proxy).expect("connect");
    stream.set_read_timeout(Some(Duration::from_secs(180))).expect("timeout");
    // The proxy may close it before everything is written.
    let _ = stream.write_all(bytes);
    stream
}

/// True if the proxy has ended the connection, after any last message.
fn is_ended(mut stream: TcpStream) -> bool {
    // An error is an end too: a reset.
    stream.read_to_end(&mut Vec::new()).is_ok_and(|bytes| bytes < 1024)
        || stream.take_error().is_ok()
}

/// Meaningless bytes, the same in every run.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn header(opcode: u8, length: u32) -> Vec<u8> {
    Header { length, ..Header::request(4, 1, opcode) }.to_bytes().to_vec()
}

fn survives_with(driver: &str) {
    let stub = Stub::start();
    let proxy = Proxy::start(&["--contact-points", &stub.address.to_string(), "--io", driver]);
    proxy.wait_until_ready();
    let mut healthy = proxy.client();
    healthy.run(READ);
    let before = proxy.resident_kib();

    let mut held = Vec::new();
    for seed in 0..50 {
        assert!(
            is_ended(offender(proxy.clients, &noise(seed, 4096))),
            "noise is answered and closed"
        );
        // The header claims 2 GB and is refused.
        assert!(
            is_ended(offender(proxy.clients, &header(opcode::QUERY, 0x7fff_ffff))),
            "too large"
        );
        // The beginning of a STARTUP, followed by silence, an end or a reset.
        held.push(offender(proxy.clients, &header(opcode::STARTUP, 22)[..5]));
        offender(proxy.clients, &header(opcode::STARTUP, 22))
            .shutdown(Shutdown::Both)
            .expect("shutdown");
        drop(offender(proxy.clients, &header(opcode::STARTUP, 22)));
        healthy.run(READ);
    }
    // A client that sends requests and reads nothing: the kernel's buffers and the proxy's limit
    // stop it before it costs memory.
    let mut deaf = proxy.client();
    deaf.send_until_full(READ);
    for _ in 0..200 {
        healthy.run(READ);
    }
    let grown = proxy.resident_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
    drop((held, deaf));
    let clients = |proxy: &Proxy| -> u64 {
        let status: serde_json::Value =
            serde_json::from_str(&proxy.page("/status").1).expect("JSON");
        status["clients"].as_u64().expect("a number")
    };
    eventually(|| clients(&proxy) == 1);
    healthy.run(READ);
}

#[test]
fn epoll_survives_hostile_clients() {
    survives_with("epoll");
}

/// Without io_uring in the kernel, this tests epoll once more.
#[test]
fn io_uring_survives_hostile_clients() {
    survives_with("uring");
}

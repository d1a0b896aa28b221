//! Bytes arrive whole and in order, however they are cut up.

use std::io::{Read, Write};
use std::time::Duration;

use shunt_reactor::{Io, IoChoice};

use crate::support::*;

for_each_driver!(
    echoes,
    frames_in_pieces,
    pipelined_frames,
    five_megabytes_both_ways,
    a_window_loses_nothing,
    thousand_connections
);

fn echoes(choice: IoChoice) {
    let server = Server::start(choice, echo);
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for round in 0..100 {
        for client in &mut clients {
            round_trip(client, &pattern(1 + round * 7, round as u32));
        }
    }
}

/// Echoes each whole frame (four bytes of length, then as many bytes).
fn echo_frames(io: &mut Io, event: Event<'_>) -> usize {
    let Event::Received(conn, data) = event else { return 0 };
    let mut consumed = 0;
    while let Some(header) = data[consumed..].first_chunk::<4>() {
        let end = consumed + 4 + u32::from_be_bytes(*header) as usize;
        let Some(frame) = data.get(consumed..end) else { break };
        io.output(conn).extend_from_slice(frame);
        consumed = end;
    }
    consumed
}

fn frame(length: usize, seed: u32) -> Vec<u8> {
    let mut frame = (length as u32).to_be_bytes().to_vec();
    frame.extend(pattern(length, seed));
    frame
}

fn frames_in_pieces(choice: IoChoice) {
    let server = Server::start(choice, echo_frames);
    let mut client = server.connect();
    for (seed, piece) in [1usize, 2, 3, 5, 61].into_iter().enumerate() {
        let frame = frame(200, seed as u32);
        for bytes in frame.chunks(piece) {
            client.write_all(bytes).unwrap();
            // Make the pieces arrive as pieces most of the time; no check depends on it.
            std::thread::yield_now();
        }
        assert_eq!(read_exactly(&mut client, frame.len()), frame);
    }
}

/// Frames of all sizes around the limits of the receive path, written as one stream.
fn pipelined_frames(choice: IoChoice) {
    let server = Server::start(choice, echo_frames);
    let mut client = server.connect();
    let mut stream = Vec::new();
    for seed in 0..60 {
        for length in [0, 1, 70, 1000, 9000, 16_300, 16_400, 40_000] {
            stream.extend(frame(length + seed as usize * 13, seed));
        }
    }
    let mut writing = client.try_clone().unwrap();
    let written = stream.clone();
    let writer = std::thread::spawn(move || writing.write_all(&written).unwrap());
    assert!(read_exactly(&mut client, stream.len()) == stream);
    writer.join().unwrap();
}

/// The reader takes its time, so that the server's writes are cut short again and again.
fn five_megabytes_both_ways(choice: IoChoice) {
    let server = Server::start(choice, echo_frames);
    let mut client = server.connect();
    for seed in 0..3 {
        let frame = frame(5 << 20, seed);
        client.write_all(&frame).unwrap();
        let mut received = Vec::with_capacity(frame.len());
        let mut piece = vec![0; 300_000];
        while received.len() < frame.len() {
            std::thread::sleep(Duration::from_millis(2));
            let count = client.read(&mut piece).unwrap();
            assert!(count > 0);
            received.extend_from_slice(&piece[..count]);
        }
        assert!(received == frame);
    }
}

fn a_window_loses_nothing(choice: IoChoice) {
    let server = Server::start(choice, |io, event| {
        if let Event::Started = event {
            io.set_window_ns(200_000);
        }
        echo_frames(io, event)
    });
    let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for seed in 0..50 {
        let frame = frame(70, seed);
        for client in &mut clients {
            client.write_all(&frame).unwrap();
        }
        for client in &mut clients {
            assert_eq!(read_exactly(client, frame.len()), frame);
        }
    }
}

fn thousand_connections(choice: IoChoice) {
    shunt_reactor::raise_fd_limit(16_384);
    let server = Server::start(choice, echo);
    let mut clients: Vec<_> = (0..1000).map(|_| server.connect()).collect();
    for round in 0..3 {
        for (number, client) in clients.iter_mut().enumerate() {
            client.write_all(&pattern(70, (number * 3 + round) as u32)).unwrap();
        }
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(read_exactly(client, 70), pattern(70, (number * 3 + round) as u32));
        }
    }
}

//! The mover without privilege: descriptors that move between loops and between processes through a
//! depot.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use shunt_reactor::CloseReason;
use shunt_reactor::moving::{Frozen, Mover, NotFrozen, TcpState, Twin, Window};

use crate::support::{Accept, Do, Node, Told, accept_to_stay, pattern};
use crate::traffic::Traffic;

const HERE: &str = "127.0.0.1:0";
const MOVES: usize = 100;
/// Variable that tells the test in the other process where the depot is.
const DEPOT: &str = "SHUNT_TEST_DEPOT";

/// A path that is removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        Place(std::env::temp_dir().join(format!("shunt-depot-{}-{name}", std::process::id())))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn host(path: &Path) -> Mover {
    Mover::Twin(Twin::host(path).unwrap())
}

#[test]
fn a_connection_moves_a_hundred_times_between_two_loops_and_the_bytes_are_right() {
    let place = Place::new("loops");
    let mover = host(&place.0);
    let nodes = [Node::start_echo(mover.clone()), Node::start_echo(mover)];
    let Accept { client, acceptor: _acceptor } = accept_to_stay(&nodes[0], HERE);
    let traffic = Traffic::start(client);
    for step in 0..MOVES {
        traffic.flow(1_000);
        let frozen = nodes[step % 2].freeze();
        nodes[(step + 1) % 2].restore(frozen);
    }
    traffic.flow(1_000);
    traffic.finish();
}

#[test]
fn a_connection_moves_a_hundred_times_between_two_processes_and_the_bytes_are_right() {
    let place = Place::new("processes");
    let node = Node::start_echo(host(&place.0));
    let Accept { client, acceptor: _acceptor } = accept_to_stay(&node, HERE);
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "twin::the_other_process", "--ignored", "--nocapture"])
        .env(DEPOT, &place.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = other.stdin.take().unwrap();
    let mut from = BufReader::new(other.stdout.take().unwrap()).lines();
    let mut told = |prefix: &str| -> String {
        loop {
            let line = from.next().expect("the other process has ended").unwrap();
            if let Some(rest) = line.strip_prefix(prefix) {
                return rest.to_owned();
            }
        }
    };
    let traffic = Traffic::start(client);
    for _ in 0..MOVES / 2 {
        traffic.flow(1_000);
        writeln!(to, "{}", to_line(&node.freeze())).unwrap();
        told("restored");
        traffic.flow(1_000);
        writeln!(to, "freeze").unwrap();
        node.restore(from_line(&told("frozen ")));
    }
    traffic.flow(1_000);
    traffic.finish();
    drop(to);
    assert!(other.wait().unwrap().success());
}

#[test]
#[ignore = "started by the test of two processes"]
fn the_other_process() {
    let depot = std::env::var(DEPOT).expect("it is not started by hand");
    let node = Node::start_echo(Mover::Twin(Twin::join(Path::new(&depot)).unwrap()));
    println!();
    for line in std::io::stdin().lines().map(Result::unwrap) {
        if line == "freeze" {
            println!("frozen {}", to_line(&node.freeze()));
        } else {
            node.restore(from_line(&line));
            println!("restored");
        }
    }
}

/// The parts of a frozen connection that its socket does not carry.
fn to_line(frozen: &Frozen) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(frozen.unacknowledged, []);
    format!(
        "{} {} <{}> <{}>",
        frozen.state.local,
        frozen.state.peer,
        hex(&frozen.unsent),
        hex(&frozen.unread)
    )
}

fn from_line(line: &str) -> Frozen {
    let [local, peer, unsent, unread] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let bytes = |hex: &str| -> Vec<u8> {
        let digits = hex.trim_matches(['<', '>']).as_bytes();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    };
    let state = TcpState {
        local: local.parse().unwrap(),
        peer: peer.parse().unwrap(),
        send_sequence: 0,
        receive_sequence: 0,
        mss: 536,
        timestamp: None,
        sack: false,
        window_scales: None,
        window: Window::default(),
    };
    Frozen { state, unacknowledged: Vec::new(), unsent: bytes(unsent), unread: bytes(unread) }
}

#[test]
fn a_connection_is_fetched_once() {
    let place = Place::new("once");
    let mover = host(&place.0);
    let [one, two] = [Node::start(mover.clone()), Node::start(mover)];
    let Accept { mut client, acceptor: _acceptor } = accept_to_stay(&one, HERE);
    let frozen = one.freeze();
    client.write_all(&pattern(0, 100)).unwrap();
    two.restore(frozen.clone());
    assert_eq!(two.read(100), pattern(0, 100));
    one.post(Do::Restore(Box::new(frozen)));
    assert_eq!(one.next(), Told::Closed(CloseReason::ConnectFailed(ErrorKind::NotFound)));
    client.write_all(b"still there").unwrap();
    assert_eq!(two.read(11), b"still there");
}

#[test]
fn a_connection_that_its_peer_has_ended_is_not_frozen() {
    let place = Place::new("ended");
    let node = Node::start(host(&place.0));
    let Accept { mut client, acceptor: _acceptor } = accept_to_stay(&node, HERE);
    node.post(Do::Pause);
    node.post(Do::Write(b"paused".to_vec()));
    std::io::Read::read_exact(&mut client, &mut [0; 6]).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(node.try_freeze(), Err(NotFrozen::NotEstablished));
    node.post(Do::Resume);
    assert_eq!(node.next(), Told::Closed(CloseReason::Peer));
}

#[test]
fn without_its_depot_a_connection_stays_where_it_is() {
    let place = Place::new("gone");
    let depot = Twin::host(&place.0).unwrap();
    assert_eq!(
        Twin::host(&place.0).unwrap_err().kind(),
        ErrorKind::AddrInUse,
        "a depot that is alive"
    );
    let node = Node::start(Mover::Twin(Twin::join(&place.0).unwrap()));
    let Accept { mut client, acceptor: _acceptor } = accept_to_stay(&node, HERE);
    drop(depot);
    assert!(!place.0.exists());
    assert_eq!(node.try_freeze(), Err(NotFrozen::Io(ErrorKind::ConnectionRefused)));
    client.write_all(b"still there").unwrap();
    assert_eq!(node.read(11), b"still there");
}

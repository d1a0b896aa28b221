//! Connections that have ended, or whose peer does not read, before they are frozen, while they are
//! away, and after they were restored; and freezes that are refused.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rustix::net::sockopt;
use shunt_reactor::moving::{Frozen, Mover, NotFrozen};
use shunt_reactor::{CloseReason, IoChoice, probe_uring};

use crate::support::{
    Accept, Do, Node, Told, accept, accept_from, accept_to_stay, give_up_network_administration,
    in_namespace, pattern, set_tcp,
};

const HERE: &str = "127.0.0.1:0";

fn pair() -> (Node, Accept) {
    let node = Node::start(Mover::Kernel);
    let accepted = accept(&node, HERE);
    (node, accepted)
}

fn read(client: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    client.read_exact(&mut bytes).unwrap();
    bytes
}

/// Checks that the connection takes bytes both ways.
fn goes_on(node: &Node, client: &mut TcpStream) {
    client.write_all(b"are you there").unwrap();
    assert_eq!(node.read(13), b"are you there");
    node.post(Do::Write(b"I am".to_vec()));
    assert_eq!(read(client, 4), b"I am");
}

fn reset(client: TcpStream) {
    sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
}

#[test]
fn agreed_tcp_options_are_kept() {
    for off in [&[][..], &["tcp_timestamps"], &["tcp_sack"], &["tcp_window_scaling"]] {
        in_namespace(move || {
            off.iter().for_each(|name| set_tcp(name, "0"));
            let (node, mut accepted) = pair();
            let first = node.freeze();
            let has = |name| !off.contains(&name);
            let state = first.state;
            assert_eq!(state.timestamp.is_some(), has("tcp_timestamps"));
            assert_eq!(state.sack, has("tcp_sack"));
            assert_eq!(state.window_scales.is_some(), has("tcp_window_scaling"));
            assert_eq!(state.peer, accepted.client.local_addr().unwrap());
            assert_eq!(state.local, accepted.client.peer_addr().unwrap());
            node.restore(first);
            let mut second = node.freeze();
            assert!(
                second
                    .state
                    .timestamp
                    .is_some_and(|after| after.wrapping_sub(state.timestamp.unwrap()) < 1 << 31)
                    == has("tcp_timestamps")
            );
            second.state.timestamp = state.timestamp;
            second.state.window = state.window;
            assert_eq!(second.state, state);
            node.restore(second);
            goes_on(&node, &mut accepted.client);
        });
    }
}

#[test]
fn a_connection_that_is_nowhere_is_silent_and_its_queues_move() {
    in_namespace(|| {
        let (node, Accept { mut client, acceptor: _acceptor }) = pair();
        let frozen = node.freeze();
        client.write_all(b"nobody hears this yet").unwrap();
        client.set_nonblocking(true).unwrap();
        assert_eq!(
            client.read(&mut [0; 9]).unwrap_err().kind(),
            ErrorKind::WouldBlock,
            "neither bytes nor an end"
        );
        client.set_nonblocking(false).unwrap();
        let frozen = Frozen { unsent: b"written elsewhere".to_vec(), unread: Vec::new(), ..frozen };
        node.restore(frozen);
        assert_eq!(read(&mut client, 17), b"written elsewhere");
        assert_eq!(node.read(21), b"nobody hears this yet");
        goes_on(&node, &mut client);
    });
}

#[test]
fn unread_bytes_of_a_paused_connection_appear_after_the_restore() {
    in_namespace(|| {
        let (node, Accept { mut client, acceptor: _acceptor }) = pair();
        pause(&node, &mut client);
        client.write_all(&pattern(0, 5_000)).unwrap();
        let frozen = node.freeze();
        assert_eq!(frozen.unread, pattern(0, 5_000));
        node.restore(frozen);
        assert_eq!(node.read(5_000), pattern(0, 5_000));
        goes_on(&node, &mut client);
    });
}

/// Returns once reading is paused.
fn pause(node: &Node, client: &mut TcpStream) {
    node.post(Do::Pause);
    node.post(Do::Write(b"paused".to_vec()));
    assert_eq!(read(client, 6), b"paused");
}

#[test]
fn an_end_of_stream_before_the_freeze_is_a_refusal_and_the_connection_goes_on() {
    in_namespace(|| {
        let (node, Accept { mut client, acceptor: _acceptor }) = pair();
        pause(&node, &mut client);
        client.write_all(b"last words").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(node.try_freeze(), Err(NotFrozen::NotEstablished));
        node.post(Do::Write(b"answer".to_vec()));
        assert_eq!(read(&mut client, 6), b"answer");
        node.post(Do::Resume);
        assert_eq!(node.read(10), b"last words");
        assert_eq!(node.next(), Told::Closed(CloseReason::Peer));
    });
}

#[test]
fn an_end_of_stream_while_the_connection_is_nowhere_comes_after_the_bytes() {
    in_namespace(|| {
        let (node, Accept { mut client, acceptor: _acceptor }) = pair();
        let frozen = node.freeze();
        client.write_all(b"last words").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        node.restore(frozen);
        assert_eq!(node.read(10), b"last words");
        assert_eq!(node.next(), Told::Closed(CloseReason::Peer));
    });
}

#[test]
fn an_end_of_stream_after_the_restore_is_an_end() {
    in_namespace(|| {
        let (node, Accept { client, acceptor: _acceptor }) = pair();
        node.restore(node.freeze());
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(node.next(), Told::Closed(CloseReason::Peer));
    });
}

#[test]
fn after_a_reset_nothing_is_frozen() {
    in_namespace(|| {
        let (node, Accept { mut client, acceptor: _acceptor }) = pair();
        pause(&node, &mut client);
        reset(client);
        node.post(Do::Freeze);
        match node.next() {
            Told::Frozen(Err(NotFrozen::NotEstablished)) => {
                assert_eq!(node.next(), Told::Closed(CloseReason::Reset));
            }
            other => assert_eq!(other, Told::Closed(CloseReason::Reset)),
        }
    });
}

#[test]
fn a_reset_while_the_connection_is_nowhere_is_found_out_by_the_restore() {
    in_namespace(|| {
        let (node, Accept { client, acceptor: _acceptor }) = pair();
        let frozen = node.freeze();
        reset(client);
        node.post(Do::Restore(Box::new(frozen)));
        match node.next() {
            Told::Restored => assert_eq!(node.next(), Told::Closed(CloseReason::Reset)),
            other => assert_eq!(
                other,
                Told::Closed(CloseReason::ConnectFailed(ErrorKind::ConnectionReset))
            ),
        }
    });
}

#[test]
fn a_reset_after_the_restore_is_a_reset() {
    in_namespace(|| {
        let (node, Accept { client, acceptor: _acceptor }) = pair();
        node.restore(node.freeze());
        reset(client);
        assert_eq!(node.next(), Told::Closed(CloseReason::Reset));
    });
}

/// A connection whose peer does not read, frozen after the peer's window closed.
fn stuck(node: &Node, bytes: &[u8]) -> (Accept, Frozen) {
    let accepted = accept_from(node, HERE, Some(4096));
    node.post(Do::Write(bytes.to_vec()));
    loop {
        let frozen = node.freeze();
        // Bytes are waiting, and all bytes in flight have arrived.
        if frozen.unacknowledged.is_empty()
            && !frozen.unsent.is_empty()
            && frozen.unsent.len() < bytes.len()
        {
            return (accepted, frozen);
        }
        node.restore(frozen);
    }
}

#[test]
fn a_window_that_is_closed_before_and_after_the_move_opens_for_all_bytes() {
    in_namespace(|| {
        let node = Node::start(Mover::Kernel);
        let (Accept { mut client, acceptor: _acceptor }, frozen) =
            stuck(&node, &pattern(0, 50_000));
        node.restore(frozen);
        assert!(read(&mut client, 50_000) == pattern(0, 50_000));
        goes_on(&node, &mut client);
    });
}

#[test]
fn a_window_that_opens_while_the_connection_is_nowhere_is_found_open() {
    in_namespace(|| {
        let node = Node::start(Mover::Kernel);
        let (Accept { mut client, acceptor: _acceptor }, frozen) =
            stuck(&node, &pattern(0, 50_000));
        let arrived = 50_000 - frozen.unsent.len();
        assert!(read(&mut client, arrived) == pattern(0, arrived));
        node.restore(frozen);
        assert!(read(&mut client, 50_000 - arrived) == pattern(arrived, 50_000 - arrived));
        goes_on(&node, &mut client);
    });
}

#[test]
fn queues_beyond_the_limit_are_a_refusal_and_the_connection_goes_on() {
    in_namespace(|| {
        let (node, Accept { mut client, acceptor: _acceptor }) = pair();
        pause(&node, &mut client);
        client.write_all(&pattern(0, 70_000)).unwrap();
        assert!(matches!(node.try_freeze(), Err(NotFrozen::TooLong(_))));
        node.post(Do::Resume);
        assert!(node.read(70_000) == pattern(0, 70_000));
        goes_on(&node, &mut client);
    });
    in_namespace(|| {
        let node = Node::start(Mover::Kernel);
        let Accept { mut client, acceptor: _acceptor } = accept_from(&node, HERE, Some(4096));
        node.post(Do::Write(pattern(0, 100_000)));
        assert!(matches!(node.try_freeze(), Err(NotFrozen::TooLong(_))));
        assert!(read(&mut client, 100_000) == pattern(0, 100_000));
        goes_on(&node, &mut client);
    });
}

#[test]
fn a_connection_that_is_restored_to_be_closed_sends_its_rest_and_ends() {
    in_namespace(|| {
        let (node, Accept { mut client, acceptor: _acceptor }) = pair();
        let frozen = Frozen { unsent: b"the rest".to_vec(), ..node.freeze() };
        node.post(Do::RestoreAndClose(Box::new(frozen)));
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"the rest");
    });
}

#[test]
fn a_connection_is_not_restored_beside_itself() {
    in_namespace(|| {
        let (node, Accept { mut client, acceptor: _acceptor }) = pair();
        let frozen = node.freeze();
        node.restore(frozen.clone());
        let other = Node::start(Mover::Kernel);
        other.post(Do::Restore(Box::new(frozen)));
        assert_eq!(other.next(), Told::Closed(CloseReason::ConnectFailed(ErrorKind::AddrInUse)));
        goes_on(&node, &mut client);
    });
}

#[test]
fn without_the_capability_the_reason_is_told_and_the_connection_goes_on() {
    in_namespace(|| {
        let (root, Accept { client: _client, acceptor: _acceptor }) = pair();
        let frozen = root.freeze();
        give_up_network_administration();
        let node = Node::start(Mover::Kernel);
        let Accept { mut client, acceptor: _acceptor } = accept_to_stay(&node, HERE);
        assert_eq!(node.try_freeze(), Err(NotFrozen::Io(ErrorKind::PermissionDenied)));
        goes_on(&node, &mut client);
        let other = Node::start(Mover::Kernel);
        other.post(Do::Restore(Box::new(frozen)));
        assert_eq!(
            other.next(),
            Told::Closed(CloseReason::ConnectFailed(ErrorKind::PermissionDenied))
        );
    });
}

#[test]
fn a_loop_without_a_mover_refuses() {
    let node = Node::start(Mover::None);
    let Accept { mut client, acceptor: _acceptor } = accept_to_stay(&node, HERE);
    assert_eq!(node.try_freeze(), Err(NotFrozen::Unsupported));
    goes_on(&node, &mut client);
}

#[test]
fn io_uring_takes_connections_in_and_lets_none_go() {
    if let Err(reason) = probe_uring() {
        println!("skipped: {reason}");
        return;
    }
    in_namespace(|| {
        let (node, Accept { mut client, acceptor: _acceptor }) = pair();
        let uring = Node::start_with(IoChoice::Uring, Mover::Kernel, 0);
        let frozen = node.freeze();
        client.write_all(b"for whom it may concern").unwrap();
        uring.restore(frozen);
        assert_eq!(uring.read(23), b"for whom it may concern");
        goes_on(&uring, &mut client);
        assert_eq!(uring.try_freeze(), Err(NotFrozen::Unsupported));
        goes_on(&uring, &mut client);
    });
}

//! Connections that are elsewhere: the path of their packets, and the packets that are dropped.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use shunt_steering::{Count, Error, Flow, Mac, Role, Steering, clean, load};

use super::network::{Network, VIP, VIP6, mac_of, run, until};

/// Longer than any of these tests takes.
const LEASE: Duration = Duration::from_secs(600);

fn backend() -> Mac {
    mac_of(31).parse().expect("address")
}

/// A connected client, and the dispatcher's end of the connection.
fn connected(network: &Network, vip: &str) -> (TcpStream, TcpStream, Flow) {
    let vip: SocketAddr = vip.parse().expect("address");
    let listener = network.on("d", || TcpListener::bind(vip)).expect("listens");
    let client = network.on("c", || TcpStream::connect(vip)).expect("connects");
    let (accepted, peer) = listener.accept().expect("accepts");
    client.set_nonblocking(true).expect("option");
    accepted.set_nonblocking(true).expect("option");
    (client, accepted, Flow { local: vip, peer })
}

fn is_silent(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn packets_of_a_steered_connection_go_to_the_backend_which_lets_none_in_before_it_has_a_socket() {
    let Some(network) = Network::new("steer") else { return };
    let Some(mut of_dispatcher) = network.load("d", Role::Dispatcher) else { return };
    let Some(mut of_backend) = network.load("b", Role::Backend) else { return };
    for vip in [VIP, VIP6] {
        let (mut client, mut accepted, flow) = connected(&network, vip);
        let before = [of_dispatcher.count(Count::Steered), of_backend.count(Count::NotReady)];
        of_dispatcher.steer(&flow, backend(), LEASE).expect("room");
        of_backend.expect(&flow, LEASE).expect("room");
        client.write_all(b"for the backend").expect("sent");
        until("the backend's host gets it", || of_backend.count(Count::NotReady) > before[1] + 1);
        assert!(of_dispatcher.count(Count::Steered) > before[0]);
        let seen = of_dispatcher.seen(&flow).expect("it is steered");
        assert!(seen.packets > 0 && !seen.has_ended, "{seen:?}");
        assert!(
            is_silent(&mut accepted) && is_silent(&mut client),
            "nobody has answered, nor reset it"
        );
        assert_eq!((of_dispatcher.steered(), of_backend.owned()), (vec![flow], vec![flow]));
        // No byte was lost: the client sends it again.
        of_dispatcher.unsteer(&flow);
        of_backend.disown(&flow);
        let mut got = [0; 15];
        until("the dispatcher gets it", || accepted.read(&mut got).is_ok());
        assert_eq!(&got, b"for the backend");
        assert_eq!(of_dispatcher.seen(&flow), None);
    }
}

#[test]
fn a_reset_of_who_does_not_have_the_connection_does_not_leave() {
    let Some(network) = Network::new("reset") else { return };
    let Some(mut of_dispatcher) = network.load("d", Role::Dispatcher) else { return };
    let Some(mut of_backend) = network.load("b", Role::Backend) else { return };
    let (mut client, accepted, flow) = connected(&network, VIP);
    of_dispatcher.steer(&flow, backend(), LEASE).expect("room");
    // Closing with unsent and unread bytes makes the kernel reset the connection.
    rustix::net::sockopt::set_socket_linger(&accepted, Some(Duration::ZERO)).expect("option");
    drop(accepted);
    until("the reset is kept back", || of_dispatcher.count(Count::ResetsKeptBack) == 1);
    // The backend claims the connection without a socket: its reset does not leave either, because
    // the connection may be elsewhere.
    of_backend.own(&flow, LEASE).expect("room");
    client.write_all(b"x").expect("sent");
    until("the reset is kept back", || of_backend.count(Count::ResetsKeptBack) > 0);
    assert!(is_silent(&mut client));
    // The client's FIN is answered.
    of_backend.let_end(&flow, LEASE).expect("room");
    until(
        "the client is reset",
        || matches!(client.read(&mut [0]), Err(error) if error.kind() == ErrorKind::ConnectionReset),
    );
    assert!(of_backend.count(Count::Passed) > 0);
}

#[test]
fn the_kernel_of_a_process_that_is_gone_ends_no_connection_and_is_mute_without_an_entry() {
    let Some(network) = Network::new("fence") else { return };
    let Some(mut of_backend) = network.load("b", Role::Backend) else { return };
    // An outgoing connection from the virtual address serves as a restored one.
    let flow = Flow {
        local: VIP.parse().expect("address"),
        peer: "10.98.0.11:4000".parse().expect("address"),
    };
    of_backend.let_end(&flow, LEASE).expect("room");
    let listener = network.on("c", || TcpListener::bind(flow.peer)).expect("listens");
    network
        .on("c", || run(&format!("ip neigh replace 10.98.0.100 lladdr {} dev eth0", mac_of(31))))
        .expect("an address");
    let mut of_process = network.on("b", || {
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            None,
        )
        .expect("a socket");
        rustix::net::bind(&socket, &flow.local).expect("bound");
        rustix::net::connect(&socket, &flow.peer).expect("connects");
        TcpStream::from(socket)
    });
    let mut client = listener.accept().expect("accepted").0;
    client.set_nonblocking(true).expect("option");
    of_backend.own(&flow, LEASE).expect("room");
    of_process.write_all(b"while it lives").expect("sent");
    let mut got = [0; 14];
    until("the client has it", || client.read(&mut got).is_ok());
    assert_eq!(&got, b"while it lives");
    of_backend.disown(&flow);
    of_process.write_all(b"and when not").expect("sent");
    until("it is mute", || of_backend.count(Count::Muted) > 0);
    of_backend.own(&flow, LEASE).expect("room");
    let mut got = [0; 12];
    until("the client has what was queued", || client.read(&mut got).is_ok());
    // The same happens when a process is killed.
    drop(of_process);
    until("its end is kept back", || of_backend.count(Count::ResetsKeptBack) > 0);
    assert!(is_silent(&mut client));
}

#[test]
fn packets_of_a_held_connection_are_noted_and_dropped() {
    let Some(network) = Network::new("held") else { return };
    let Some(mut of_dispatcher) = network.load("d", Role::Dispatcher) else { return };
    let (mut client, mut accepted, flow) = connected(&network, VIP);
    of_dispatcher.steer(&flow, backend(), LEASE).expect("room");
    assert_eq!(of_dispatcher.seen(&flow), Some(Default::default()));
    of_dispatcher.hold(&flow, LEASE).expect("room");
    client.write_all(b"he").expect("sent");
    until("it is seen", || of_dispatcher.seen(&flow).is_some_and(|seen| seen.packets > 0));
    let first = of_dispatcher.seen(&flow).expect("it is steered");
    client.write_all(b"ld").expect("sent");
    let end = first.sequence_end.expect("a packet").wrapping_add(2);
    until("both are seen", || {
        of_dispatcher.seen(&flow).is_some_and(|seen| seen.sequence_end == Some(end))
    });
    assert!(is_silent(&mut accepted) && of_dispatcher.count(Count::Held) > 1);
    let seen = of_dispatcher.seen(&flow).expect("it is steered");
    assert_eq!(
        (first.acknowledged.map(|(_, more)| more), seen.acknowledged),
        (Some(0), first.acknowledged)
    );
    assert!(!seen.has_ended);
    of_dispatcher.unsteer(&flow);
    let mut got = [0; 4];
    until("the dispatcher gets it", || accepted.read(&mut got).is_ok());
    assert_eq!((&got, of_dispatcher.seen(&flow)), (b"held", None));
    // The client's later acknowledgements are added up.
    of_dispatcher.steer(&flow, backend(), LEASE).expect("room");
    of_dispatcher.hold(&flow, LEASE).expect("room");
    client.write_all(b"x").expect("sent");
    until("it is seen", || {
        of_dispatcher.seen(&flow).is_some_and(|seen| seen.acknowledged.is_some())
    });
    accepted.write_all(b"answered").expect("sent");
    let more =
        || of_dispatcher.seen(&flow).and_then(|seen| seen.acknowledged).map(|(_, more)| more);
    until("all is acknowledged", || more() == Some(8));
    drop(client);
    until("its end is seen", || of_dispatcher.seen(&flow).is_some_and(|seen| seen.has_ended));
}

/// A TCP packet without options or payload. The programs ignore its checksum.
fn packet(flow: &Flow, sequence: u32, acknowledged: u32, flags: u8) -> Vec<u8> {
    let ports = [flow.peer.port(), flow.local.port()].map(u16::to_be_bytes);
    let numbers = [sequence, acknowledged].map(u32::to_be_bytes);
    let rest = [5 << 4, flags, 1, 0, 0, 0, 0, 0];
    [ports.as_flattened(), numbers.as_flattened(), &rest].concat()
}

#[test]
fn a_packet_in_a_clients_name_from_far_outside_its_windows_says_nothing() {
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const ACK: u8 = 16;
    let Some(network) = Network::new("forged") else { return };
    let Some(mut of_dispatcher) = network.load("d", Role::Dispatcher) else { return };
    let (mut client, _accepted, flow) = connected(&network, VIP);
    of_dispatcher.steer(&flow, backend(), LEASE).expect("room");
    of_dispatcher.hold(&flow, LEASE).expect("room");
    client.write_all(b"one").expect("sent");
    until("it is seen", || {
        of_dispatcher.seen(&flow).is_some_and(|seen| seen.sequence_end.is_some())
    });
    let before = of_dispatcher.seen(&flow).expect("it is steered");
    let (end, acknowledged) =
        (before.sequence_end.expect("a packet"), before.acknowledged.expect("a packet").0);
    let raw = network.on("c", || {
        use rustix::net::{AddressFamily, SocketType, ipproto, socket};
        socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::TCP)).expect("a socket")
    });
    let send = |packet: Vec<u8>| {
        let flags = rustix::net::SendFlags::empty();
        rustix::net::sendto(&raw, &packet, flags, &flow.local).expect("sent");
    };
    let far = 64 << 20;
    for (sequence, acknowledged, flags) in [
        (end, acknowledged.wrapping_add(far), ACK),
        (end, acknowledged.wrapping_sub(far), FIN | ACK),
        (end.wrapping_add(far), acknowledged, FIN | ACK),
        (end.wrapping_sub(far), acknowledged, ACK),
        (end.wrapping_add(1000), acknowledged, RST),
        (end.wrapping_sub(1), acknowledged, RST | ACK),
        (end, acknowledged, SYN),
        (end, acknowledged, FIN),
    ] {
        send(packet(&flow, sequence, acknowledged, flags));
    }
    // Packets of one sender keep their order: once this one is seen, the earlier ones have been
    // handled.
    send(packet(&flow, end, acknowledged.wrapping_add(5), ACK));
    let more =
        || of_dispatcher.seen(&flow).and_then(|seen| seen.acknowledged).map(|(_, more)| more);
    until("the last one is seen", || more().is_some_and(|more| more > 0));
    let seen = of_dispatcher.seen(&flow).expect("it is steered");
    assert_eq!((seen.acknowledged, seen.sequence_end), (Some((acknowledged, 5)), Some(end)));
    assert!(!seen.has_ended);
    send(packet(&flow, end, 0, RST));
    until("its end is seen", || of_dispatcher.seen(&flow).is_some_and(|seen| seen.has_ended));
}

#[test]
fn an_entry_ends_with_its_lease() {
    let Some(network) = Network::new("lease") else { return };
    let Some(mut of_dispatcher) = network.load("d", Role::Dispatcher) else { return };
    let (mut client, mut accepted, flow) = connected(&network, VIP);
    of_dispatcher.steer(&flow, backend(), Duration::from_millis(1)).expect("room");
    thread::sleep(Duration::from_millis(2));
    client.write_all(b"late").expect("sent");
    until("the dispatcher gets it", || matches!(accepted.read(&mut [0; 4]), Ok(4)));
    assert!(of_dispatcher.count(Count::Expired) > 0 && of_dispatcher.count(Count::Steered) == 0);
    assert_eq!((of_dispatcher.sweep(), of_dispatcher.steered()), (1, vec![]));
}

#[test]
fn programs_and_pins_are_made_once_and_cleaned_without_a_trace() {
    let Some(network) = Network::new("clean") else { return };
    let Some(steering) = network.load("d", Role::Dispatcher) else { return };
    let pins = network.pins("d");
    let again = network.on("d", || load("eth0", Role::Dispatcher, &[], &pins));
    assert!(matches!(again, Err(Error::Loaded(_))), "{again:?}");
    // The other role cannot be loaded either, and the existing pins stay.
    let other = network.on("d", || load("eth0", Role::Backend, &[], &pins));
    assert!(
        matches!(other, Err(Error::Loaded(_))) && pins.join("dispatcher_in").exists(),
        "{other:?}"
    );
    drop(steering);
    let mut kept = Steering::open(&pins).expect("it outlives who has loaded it");
    let flow = Flow {
        local: VIP.parse().expect("address"),
        peer: "10.98.0.11:1".parse().expect("address"),
    };
    kept.steer(&flow, backend(), LEASE).expect("room");
    assert_eq!((clean(&pins).expect("cleaned"), pins.exists()), (true, false));
    assert!(!clean(&pins).expect("nothing to do"));
    assert!(matches!(Steering::open(&pins), Err(Error::NotLoaded(_))));
    for (interface, at) in
        [("eth7", network.pins("x")), ("eth0", Path::new("/proc/shunt").to_owned())]
    {
        let refused = network.on("d", || load(interface, Role::Dispatcher, &[], &at));
        assert!(matches!(refused, Err(Error::NoInterface(_) | Error::NoPins(_))), "{refused:?}");
    }
    assert!(network.load("d", Role::Dispatcher).is_some(), "and it can be loaded again");
    // The state after a load that was killed.
    std::fs::remove_file(pins.join("dispatcher_out")).expect("removed");
    assert!(network.load("d", Role::Dispatcher).is_some(), "and what is left is in nobody's way");
}

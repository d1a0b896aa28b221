//! The acceptor: the choice of a loop for each connection, and the behaviour without room.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;

use shunt_reactor::{Acceptor, IoChoice, LoopOptions, listen};

use crate::support::*;

for_each_driver!(
    balanced_over_two_loops,
    origins_are_told,
    beyond_the_maximum,
    outgoing_ones_take_no_clients_place,
    nothing_is_accepted_after_stop,
);

fn balanced_over_two_loops(choice: IoChoice) {
    let cores = [Loop::start(choice, echo), Loop::start(choice, echo)];
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let _acceptor =
        Acceptor::start(vec![listener], cores.iter().map(Loop::slot).collect()).unwrap();
    let loads = || cores.each_ref().map(|core| core.load.load(Relaxed));

    let mut clients: Vec<TcpStream> = (0..100).map(|_| connect(address)).collect();
    clients.iter_mut().for_each(|client| round_trip(client, b"x"));
    assert_eq!(loads(), [50, 50]);

    // The ended connections were on one side (they were given out in turn); new ones go there.
    let mut position = 0;
    clients.retain(|_| {
        position += 1;
        position % 2 == 0 || position > 60
    });
    until("70 connections", || loads().iter().sum::<usize>() == 70);
    assert_eq!(loads().iter().min(), Some(&20));
    clients.extend((0..30).map(|_| connect(address)));
    clients.iter_mut().for_each(|client| round_trip(client, b"y"));
    assert_eq!(loads(), [50, 50]);
}

fn origins_are_told(choice: IoChoice) {
    let (handler, told) = reporting(|_, event, tell| {
        if let Event::Accepted(_, origin) = event {
            tell(origin);
        }
        0
    });
    let core = Loop::start(choice, handler);
    let listeners: Vec<_> =
        ["127.0.0.1:0", "127.0.0.2:0"].map(|at| listen(at.parse().unwrap()).unwrap()).into();
    let addresses: Vec<_> =
        listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
    let _acceptor = Acceptor::start(listeners, vec![core.slot()]).unwrap();
    for (position, address) in addresses.into_iter().enumerate().rev() {
        let client = connect(address);
        let origin = next(&told);
        assert_eq!(usize::from(origin.listener), position);
        assert_eq!((origin.peer, origin.local), (client.local_addr().unwrap().into(), address));
    }
}

fn beyond_the_maximum(choice: IoChoice) {
    let options = LoopOptions { connections_max: 2, ..patient() };
    let server = Server::start_with(choice, options, echo);
    let mut first = [server.connect(), server.connect()];
    first.iter_mut().for_each(|client| round_trip(client, b"x"));
    let mut third = server.connect();
    assert!(matches!(third.read(&mut [0]), Ok(0) | Err(_)));
    first.iter_mut().for_each(|client| round_trip(client, b"y"));
    assert_eq!(server.core.load.load(Relaxed), 2);
}

fn outgoing_ones_take_no_clients_place(choice: IoChoice) {
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = elsewhere.local_addr().unwrap();
    let (handler, told) = reporting(move |io, event, tell| match event {
        Event::Started => {
            io.connect(address, PATIENCE_NS);
            0
        }
        Event::Connected(_) => {
            tell(());
            0
        }
        other => echo(io, other),
    });
    let options = LoopOptions { connections_max: 1, ..patient() };
    let server = Server::start_with(choice, options, handler);
    next(&told);
    // The place is free again when its connection is gone.
    for _ in 0..2 {
        let mut client = server.connect();
        round_trip(&mut client, b"x");
        assert!(matches!(server.connect().read(&mut [0]), Ok(0) | Err(_)));
        round_trip(&mut client, b"y");
        drop(client);
        until("a free place", || server.core.load.load(Relaxed) == 0);
    }
}

fn nothing_is_accepted_after_stop(choice: IoChoice) {
    let core = Loop::start(choice, echo);
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = Acceptor::start(vec![listener], vec![core.slot()]).unwrap();
    let mut client = connect(address);
    round_trip(&mut client, b"x");
    acceptor.stop();
    assert!(TcpStream::connect(address).is_err());
    round_trip(&mut client, b"still served");
}

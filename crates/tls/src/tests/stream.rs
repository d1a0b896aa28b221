//! HTTP listeners: clients with TLS, in clear text, and without the certificate that they need.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use shunt_reactor::{Session, SessionFault, SessionInfo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::net::{TcpListener, TcpStream};

use super::authority::{Authority, client, server};
use crate::{
    CLEAR_TEXT, ClientAuth, HANDSHAKE_RECORD, Server, Sessions, Stream, Turns, accept_http,
};

/// Type of a TLS record with an alert.
const ALERT_RECORD: u8 = 0x15;
/// Time for a handshake that no test uses up.
const TIME_MAX: Duration = Duration::from_secs(600);

/// A server, with the results of its handshakes.
struct Listener {
    server: Server,
    turns: Turns,
    outcomes: Mutex<Vec<Result<Vec<String>, SessionFault>>>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listener")
    }
}

impl Sessions for Listener {
    fn session(&self) -> Box<dyn Session> {
        self.server.session()
    }

    fn turns(&self) -> &Turns {
        &self.turns
    }

    fn handshake_ended(&self, _: SocketAddr, outcome: Result<&SessionInfo, SessionFault>) {
        let outcome = outcome.map(|info| info.peer_names.iter().map(ToString::to_string).collect());
        self.outcomes.lock().expect("no panic").push(outcome);
    }
}

/// Serves one connection, which gets back twice what it sends until its end.
async fn serve(listener: Arc<Listener>) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = socket.local_addr().expect("it listens");
    let serving = tokio::spawn(async move {
        let (stream, peer) = socket.accept().await.expect("a client");
        let Some(mut stream) = accept_http(stream, peer, &*listener, TIME_MAX).await else {
            return;
        };
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.expect("an end in order");
        stream.write_all(&all).await.expect("room");
        stream.write_all(&all).await.expect("room");
        stream.shutdown().await.expect("room");
    });
    (address, serving)
}

fn listener(authority: &Authority, auth: ClientAuth) -> Arc<Listener> {
    let server = server(authority, auth);
    Arc::new(Listener { server, turns: Turns::default(), outcomes: Mutex::default() })
}

#[tokio::test]
async fn a_stream_carries_what_is_longer_than_a_record_both_ways() {
    let authority = Authority::new("a CA");
    let listener = listener(&authority, ClientAuth::Required);
    let (address, serving) = serve(Arc::clone(&listener)).await;
    let connecting = client(&authority, Some(&authority.client()));
    let socket = TcpStream::connect(address).await.expect("it listens");
    let mut stream =
        Stream::connect(socket, connecting.session("localhost")).await.expect("a handshake");
    let sent: Vec<u8> = (0..1_000_000u32).map(|number| (number % 251) as u8).collect();
    stream.write_all(&sent).await.expect("room");
    stream.shutdown().await.expect("room");
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.expect("an end in order");
    assert!(received == [sent.clone(), sent].concat(), "{} bytes came back", received.len());
    serving.await.expect("no panic");
    let outcomes = listener.outcomes.lock().expect("no panic");
    assert!(matches!(&outcomes[..], [Ok(names)] if names[0].contains("orders")), "{outcomes:?}");
}

#[tokio::test]
async fn a_client_in_clear_text_is_told_so() {
    let authority = Authority::new("a CA");
    let listener = listener(&authority, ClientAuth::None);
    let (address, serving) = serve(Arc::clone(&listener)).await;
    let mut socket = TcpStream::connect(address).await.expect("it listens");
    socket.write_all(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("room");
    let mut text = String::new();
    socket.read_to_string(&mut text).await.expect("an answer and an end");
    assert!(text.starts_with("HTTP/1.1 400 ") && text.contains("requires TLS"), "{text}");
    drop(socket);
    serving.await.expect("no panic");
    assert_eq!(*listener.outcomes.lock().expect("no panic"), [Err(CLEAR_TEXT)]);
}

#[tokio::test]
async fn a_client_without_the_certificate_that_it_needs_gets_nothing() {
    let authority = Authority::new("a CA");
    let foreign = Authority::new("another CA");
    for pair in [None, Some(foreign.client())] {
        let listener = listener(&authority, ClientAuth::Required);
        let (address, serving) = serve(Arc::clone(&listener)).await;
        let connecting = client(&authority, pair.as_ref());
        let socket = TcpStream::connect(address).await.expect("it listens");
        // With TLS 1.3 the client learns of it only with the first answer.
        if let Ok(mut stream) = Stream::connect(socket, connecting.session("localhost")).await {
            let _ = stream.write_all(b"GET /status HTTP/1.1\r\n\r\n").await;
            let mut text = Vec::new();
            assert!(stream.read_to_end(&mut text).await.is_err() && text.is_empty(), "{text:?}");
        }
        serving.await.expect("no panic");
        let outcomes = listener.outcomes.lock().expect("no panic");
        assert!(matches!(&outcomes[..], [Err(fault)] if *fault != CLEAR_TEXT), "{outcomes:?}");
    }
}

/// A client that sends more than is read before it is refused reads its answer, and no reset.
#[tokio::test]
async fn a_client_that_is_refused_reads_the_answer_to_its_end() {
    let authority = Authority::new("a CA");
    let long = vec![b'x'; 100_000];
    // A record of TLS with an unknown version.
    let broken = [&[HANDSHAKE_RECORD, 9, 9, 0, 1, 0], &long[..]].concat();
    for (sent, answer) in [(long.clone(), &b"HTTP/1.1 400 "[..]), (broken, &[ALERT_RECORD][..])] {
        let listener = listener(&authority, ClientAuth::None);
        let (address, serving) = serve(Arc::clone(&listener)).await;
        let mut socket = TcpStream::connect(address).await.expect("it listens");
        socket.write_all(&sent).await.expect("room");
        let mut received = Vec::new();
        socket.read_to_end(&mut received).await.expect("an end in order");
        assert!(received.starts_with(answer), "{received:?}");
        drop(socket);
        serving.await.expect("no panic");
        assert_eq!(listener.outcomes.lock().expect("no panic").len(), 1);
    }
}

#[tokio::test]
async fn a_probe_of_the_port_is_no_handshake() {
    let authority = Authority::new("a CA");
    let listener = listener(&authority, ClientAuth::None);
    let (address, serving) = serve(Arc::clone(&listener)).await;
    drop(TcpStream::connect(address).await.expect("it listens"));
    serving.await.expect("no panic");
    assert_eq!(*listener.outcomes.lock().expect("no panic"), []);
}

#[tokio::test]
async fn a_handshake_that_the_listener_gives_up_is_told_once() {
    let authority = Authority::new("a CA");
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    let words = |listener: &Listener| -> Vec<&str> {
        let outcomes = listener.outcomes.lock().expect("no panic");
        outcomes.iter().map(|outcome| outcome.as_ref().expect_err("no client").0).collect()
    };
    let dropped = listener(&authority, ClientAuth::None);
    let (_client, server) = duplex(1 << 10);
    let mut accepting = Box::pin(accept_http(server, peer, &*dropped, TIME_MAX));
    poll_fn(|context| Poll::Ready(accepting.as_mut().poll(context).is_pending())).await;
    drop(accepting);
    assert_eq!(words(&dropped), ["the listener closed the connection during the handshake"]);

    let slow = listener(&authority, ClientAuth::None);
    let (_client, server) = duplex(1 << 10);
    assert!(accept_http(server, peer, &*slow, Duration::ZERO).await.is_none());
    assert_eq!(words(&slow), ["the handshake took too long"]);
}

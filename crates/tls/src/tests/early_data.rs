//! Early data is refused, and the handshake goes on.

use std::io::Write;
use std::sync::Arc;

use rustls::server::{ProducesTickets, ServerSessionMemoryCache};
use rustls::version::TLS13;
use rustls::{Connection, ServerConnection};

use super::authority::{Authority, server};
use super::link::{End, Peer, Plain, client_config, shake};
use crate::ClientAuth;

#[derive(Debug)]
struct NoTickets;

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

#[test]
fn early_data_is_refused() {
    let ca = Authority::new("CA");
    let server = server(&ca, ClientAuth::None);
    let mut config = client_config(&ca, None, &[&TLS13]);
    config.enable_early_data = true;
    let config = Arc::new(config);
    // A server that keeps sessions itself, as one must to promise to take early data.
    let mut promising = (*server.current().config).clone();
    promising.max_early_data_size = 1_000;
    promising.ticketer = Arc::new(NoTickets);
    promising.session_storage = ServerSessionMemoryCache::new(8);
    let connection = ServerConnection::new(Arc::new(promising)).expect("a connection");
    shake(&mut Plain::shared(&config), &mut Plain::new(connection));

    let (mut plain, mut end) = (Plain::shared(&config), End::new(server.session()));
    let Connection::Client(client) = &mut plain.connection else { panic!("a client") };
    client.early_data().expect("a promise").write_all(b"early").expect("room");
    shake(&mut plain, &mut end);
    assert_eq!(end.fault(), "none");
    assert!(!end.session.is_handshaking());
    assert!(end.plain.is_empty());
    let Connection::Client(client) = &plain.connection else { panic!("a client") };
    assert!(!client.is_early_data_accepted());
    end.take(&plain.send(b"question"));
    assert_eq!(end.plain, b"question");
}

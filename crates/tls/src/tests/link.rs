//! Two ends of a connection, and the bytes between them.

use std::io::{Cursor, Read, Write};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConnection,
    SupportedProtocolVersion,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use shunt_reactor::{Session, SessionFault};

use super::authority::{Authority, Pair};
use crate::{PROVIDER, Server};

/// An end of a connection.
pub(super) trait Peer {
    /// Takes bytes that came from the other end.
    fn take(&mut self, bytes: &[u8]);

    /// Gives up the bytes that go to the other end.
    fn output(&mut self) -> Vec<u8>;
}

/// An end that is a session of this crate.
pub(super) struct End {
    pub(super) session: Box<dyn Session>,
    /// Bytes of a record that is not complete.
    pub(super) received: Vec<u8>,
    pub(super) plain: Vec<u8>,
    pub(super) ended: bool,
    pub(super) fault: Option<SessionFault>,
}

impl End {
    pub(super) fn new(session: Box<dyn Session>) -> End {
        let (received, plain) = (Vec::new(), Vec::new());
        End { session, received, plain, ended: false, fault: None }
    }

    pub(super) fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.session.seal(plain, &mut out).expect("records");
        out
    }

    pub(super) fn end(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.session.end(&mut out);
        out
    }

    /// Text of the fault.
    pub(super) fn fault(&self) -> &'static str {
        self.fault.map_or("none", |fault| fault.0)
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.session.info().peer_names.iter().map(|name| &*name.text).collect()
    }
}

impl Peer for End {
    fn take(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
        match self.session.open(&mut self.received, &mut self.plain) {
            Ok(opened) => {
                self.received.drain(..opened.consumed);
                self.ended |= opened.ended;
                assert!(self.received.len() < 5 + 16_384 + 2_048, "more than a record is left");
            }
            Err(fault) => self.fault = Some(fault),
        }
    }

    fn output(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.session.take_pending(&mut out);
        assert!(!self.session.has_pending());
        out
    }
}

/// An end that is a buffered connection of rustls.
pub(super) struct Plain {
    pub(super) connection: Connection,
    pub(super) plain: Vec<u8>,
    pub(super) error: Option<rustls::Error>,
}

impl Plain {
    pub(super) fn client(config: ClientConfig) -> Plain {
        Plain::shared(&Arc::new(config))
    }

    pub(super) fn shared(config: &Arc<ClientConfig>) -> Plain {
        let name = "localhost".try_into().expect("a name");
        Plain::new(ClientConnection::new(config.clone(), name).expect("a connection"))
    }

    /// A server with the configuration of ours.
    pub(super) fn server(server: &Server) -> Plain {
        let config = server.current().config.clone();
        Plain::new(ServerConnection::new(config).expect("a connection"))
    }

    pub(super) fn new(connection: impl Into<Connection>) -> Plain {
        Plain { connection: connection.into(), plain: Vec::new(), error: None }
    }

    pub(super) fn send(&mut self, plain: &[u8]) -> Vec<u8> {
        self.connection.set_buffer_limit(None);
        self.connection.writer().write_all(plain).expect("records");
        self.output()
    }
}

impl Peer for Plain {
    fn take(&mut self, bytes: &[u8]) {
        let mut bytes = Cursor::new(bytes);
        while (bytes.position() as usize) < bytes.get_ref().len() {
            if self.connection.read_tls(&mut bytes).expect("room") == 0 {
                return;
            }
            if let Err(error) = self.connection.process_new_packets() {
                self.error = Some(error);
                return;
            }
            let mut buffer = [0; 16_384];
            while let Ok(length @ 1..) = self.connection.reader().read(&mut buffer) {
                self.plain.extend_from_slice(&buffer[..length]);
            }
        }
    }

    fn output(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut out).expect("room");
        }
        out
    }
}

/// Carries bytes both ways until neither end has any.
pub(super) fn shake(client: &mut dyn Peer, server: &mut dyn Peer) {
    shake_in_pieces(client, server, &mut |bytes| vec![bytes.len()], &mut |bytes| vec![bytes.len()]);
}

/// Lengths of the pieces in which bytes arrive.
pub(super) type Pieces<'a> = &'a mut dyn FnMut(&[u8]) -> Vec<usize>;

/// Like [`shake`], with the bytes to each end in pieces.
pub(super) fn shake_in_pieces(
    client: &mut dyn Peer,
    server: &mut dyn Peer,
    to_server: Pieces<'_>,
    to_client: Pieces<'_>,
) {
    loop {
        let asked = client.output();
        deliver(&asked, to_server(&asked), server);
        let answered = server.output();
        deliver(&answered, to_client(&answered), client);
        if asked.is_empty() && answered.is_empty() {
            return;
        }
    }
}

/// Has `peer` take bytes in pieces.
pub(super) fn deliver(mut bytes: &[u8], pieces: Vec<usize>, peer: &mut dyn Peer) {
    for piece in pieces {
        let (now, later) = bytes.split_at(piece.min(bytes.len()));
        if !now.is_empty() {
            peer.take(now);
        }
        bytes = later;
    }
    assert!(bytes.is_empty());
}

/// Two sessions after their handshake.
pub(super) fn pair(client: Box<dyn Session>, server: Box<dyn Session>) -> (End, End) {
    let (mut client, mut server) = (End::new(client), End::new(server));
    shake(&mut client, &mut server);
    (client, server)
}

/// Configuration of a plain client that knows `ca`.
pub(super) fn client_config(
    ca: &Authority,
    pair: Option<&Pair>,
    versions: &[&'static SupportedProtocolVersion],
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&ca.pem)).expect("a CA");
    let builder = ClientConfig::builder_with_provider(PROVIDER.clone());
    let builder = builder.with_protocol_versions(versions).expect("versions");
    let builder = builder.with_root_certificates(roots);
    match pair {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
            let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
            let chain = chain.collect::<Result<_, _>>().expect("certificates");
            builder.with_client_auth_cert(chain, key).expect("a certificate")
        }
    }
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
}

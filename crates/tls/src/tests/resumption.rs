//! Tickets: who resumes where, with which names, and for how long.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, HandshakeKind, ServerConfig,
    ServerConnection, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, UnixTime};

use super::authority::{Authority, Files, Pair, client_names, expired};
use super::link::{End, Peer, Plain, client_config, shake};
use crate::{ClientAuth, PROVIDER, Reloaded, Server, ServerOptions};

/// Lines of a file of keys.
fn line(byte: u8) -> String {
    format!("{}\n", data_encoding::BASE64.encode(&[byte; 48]))
}

/// Files of servers that share a certificate.
struct Fleet {
    ca: Authority,
    own: Pair,
    files: Files,
}

impl Fleet {
    fn new() -> Fleet {
        let ca = Authority::new("CA");
        let own = ca.client();
        Fleet { ca, own, files: Files::new() }
    }

    /// Options of a server with these keys of tickets, which requires a certificate.
    fn options(&self, keys: &str) -> ServerOptions {
        let mut options = self.files.server_options(&self.ca.server());
        options.client_ca = Some(self.files.write("client-ca.pem", &self.ca.pem));
        options.client_auth = ClientAuth::Required;
        options.ticket_keys = Some(self.files.write("tickets", keys));
        options
    }

    fn server(&self, keys: &str) -> Server {
        Server::open(self.options(keys)).expect("a server")
    }

    /// Clients of each version, which remember their tickets.
    fn clients(&self) -> [Arc<ClientConfig>; 2] {
        [&TLS12, &TLS13]
            .map(|version| Arc::new(client_config(&self.ca, Some(&self.own), &[version])))
    }
}

/// A handshake. True if it resumed. The client takes a ticket.
fn resumes(client: &Arc<ClientConfig>, server: &Server) -> bool {
    let (mut plain, mut end) = (Plain::shared(client), End::new(server.session()));
    shake(&mut plain, &mut end);
    assert_eq!(end.fault(), "none");
    assert_eq!(end.names(), ["spiffe://example/orders", "orders.example", "orders"]);
    let resumed = plain.connection.handshake_kind() == Some(HandshakeKind::Resumed);
    assert_eq!(end.session.info().resumed, resumed);
    end.take(&plain.send(b"question"));
    assert_eq!(end.plain, b"question");
    resumed
}

#[test]
fn a_client_resumes_at_another_member_with_its_names() {
    let fleet = Fleet::new();
    let (one, other) = (fleet.server(&line(1)), fleet.server(&line(1)));
    for client in fleet.clients() {
        assert!(!resumes(&client, &one));
        assert!(resumes(&client, &other));
        assert!(resumes(&client, &one));
    }
}

#[test]
fn a_client_resumes_without_a_file_of_keys() {
    let fleet = Fleet::new();
    let options = ServerOptions { ticket_keys: None, ..fleet.options(&line(1)) };
    let one = Server::open(options.clone()).expect("a server");
    let other = Server::open(options).expect("a server");
    for client in fleet.clients() {
        assert!(!resumes(&client, &one));
        assert!(resumes(&client, &one));
        assert!(!resumes(&client, &other));
    }
}

#[test]
fn tickets_go_on_when_the_files_are_others() {
    let fleet = Fleet::new();
    let own = ServerOptions { ticket_keys: None, ..fleet.options(&line(1)) };
    let pair = fleet.ca.server();
    let moved = ServerOptions {
        certificate: fleet.files.write("moved.pem", &pair.certificate),
        key: fleet.files.write("moved.key", &pair.key),
        ..own.clone()
    };
    for client in fleet.clients() {
        let former = Server::open(own.clone()).expect("a server");
        assert!(!resumes(&client, &former));
        let server = Server::open_after(moved.clone(), &former).expect("a server");
        assert!(resumes(&client, &server));
        // An operator who withdraws a file of keys wants them out of use.
        let with_file = fleet.server(&line(1));
        assert!(!resumes(&client, &with_file));
        let without = Server::open_after(own.clone(), &with_file).expect("a server");
        assert!(!resumes(&client, &without));
        let other_ca = fleet.files.write("other-ca.pem", &Authority::new("another CA").pem);
        let bound = ServerOptions {
            client_ca: Some(other_ca),
            client_auth: ClientAuth::Optional,
            ..own.clone()
        };
        let former = Server::open(own.clone()).expect("a server");
        assert!(!resumes(&client, &former));
        let server = Server::open_after(bound, &former).expect("a server");
        let (mut plain, mut end) = (Plain::shared(&client), End::new(server.session()));
        shake(&mut plain, &mut end);
        assert!(!end.session.info().resumed, "a ticket says that another CA knows the client");
    }
}

#[test]
fn keys_reach_members_one_after_another() {
    let fleet = Fleet::new();
    let rotation = [line(1), line(1) + &line(2), line(1) + &line(2) + &line(3)];
    let [first, second, third] = rotation.map(|keys| fleet.server(&keys));
    // Each pair of neighbours opens the tickets of the other.
    for (one, other) in [(&first, &second), (&second, &first), (&second, &third), (&third, &second)]
    {
        for client in fleet.clients() {
            assert!(!resumes(&client, one));
            assert!(resumes(&client, other));
        }
    }
    let fourth = fleet.server(&[line(1), line(2), line(3), line(4)].concat());
    for client in fleet.clients() {
        assert!(!resumes(&client, &first));
        assert!(!resumes(&client, &fourth), "the first of four keys is not used any more");
    }
}

#[test]
fn other_keys_open_no_tickets() {
    let fleet = Fleet::new();
    let (one, other) = (fleet.server(&line(1)), fleet.server(&line(2)));
    for client in fleet.clients() {
        assert!(!resumes(&client, &one));
        assert!(!resumes(&client, &other));
    }
}

#[test]
fn another_ca_of_clients_ends_tickets() {
    let fleet = Fleet::new();
    for with_file in [true, false] {
        let mut options = fleet.options(&line(1));
        if !with_file {
            options.ticket_keys = None;
        }
        let server = Server::open(options).expect("a server");
        for client in fleet.clients() {
            fleet.files.write("client-ca.pem", &fleet.ca.pem);
            server.reload(fleet.files.settled()).expect("a reload");
            assert!(!resumes(&client, &server));
            assert!(resumes(&client, &server));
            let both = format!("{}{}", fleet.ca.pem, Authority::new("another CA").pem);
            fleet.files.write("client-ca.pem", both);
            assert_eq!(server.reload(fleet.files.settled()), Ok(Reloaded::Changed));
            assert!(!resumes(&client, &server));
        }
    }
}

#[test]
fn another_certificate_of_the_server_does_not_end_tickets() {
    let fleet = Fleet::new();
    for with_file in [true, false] {
        let mut options = fleet.options(&line(1));
        if !with_file {
            options.ticket_keys = None;
        }
        let server = Server::open(options).expect("a server");
        for client in fleet.clients() {
            assert!(!resumes(&client, &server));
            fleet.files.server_options(&fleet.ca.server());
            assert_eq!(server.reload(fleet.files.settled()), Ok(Reloaded::Changed));
            assert!(resumes(&client, &server));
        }
    }
}

#[test]
fn a_ticket_without_a_certificate_is_none_where_one_is_required() {
    let fleet = Fleet::new();
    let optional = ServerOptions { client_auth: ClientAuth::Optional, ..fleet.options(&line(1)) };
    let optional = Server::open(optional).expect("a server");
    let required = fleet.server(&line(1));
    for version in [&TLS12, &TLS13] {
        let client = Arc::new(client_config(&fleet.ca, None, &[version]));
        let handshake = |server: &Server| {
            let (mut plain, mut end) = (Plain::shared(&client), End::new(server.session()));
            shake(&mut plain, &mut end);
            end.fault()
        };
        assert_eq!(handshake(&optional), "none");
        assert_eq!(handshake(&required), "the peer gave no certificate");
    }
}

/// Accepts every certificate.
#[derive(Debug)]
struct Lenient;

impl ClientCertVerifier for Lenient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &PROVIDER.signature_verification_algorithms;
        verify_tls12_signature(message, leaf, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &PROVIDER.signature_verification_algorithms;
        verify_tls13_signature(message, leaf, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        PROVIDER.signature_verification_algorithms.supported_schemes()
    }
}

#[test]
fn a_client_does_not_resume_when_its_certificate_has_expired() {
    let fleet = Fleet::new();
    let server = fleet.server(&line(1));
    // A server that took the certificate while it was good, with the same keys of tickets.
    let current = server.current();
    let mut former = ServerConfig::builder_with_provider(PROVIDER.clone())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(Arc::new(Lenient))
        .with_cert_resolver(current.config.cert_resolver.clone());
    former.ticketer = current.config.ticketer.clone();
    let former = Arc::new(former);
    let own = fleet.ca.issue(|params| {
        client_names(params);
        expired(params);
    });
    for version in [&TLS12, &TLS13] {
        let client = Arc::new(client_config(&fleet.ca, Some(&own), &[version]));
        let connection = ServerConnection::new(former.clone()).expect("a connection");
        let (mut plain, mut peer) = (Plain::shared(&client), Plain::new(connection));
        shake(&mut plain, &mut peer);
        assert!(!plain.connection.is_handshaking());
        let (mut plain, mut end) = (Plain::shared(&client), End::new(server.session()));
        shake(&mut plain, &mut end);
        assert_eq!(end.fault(), "the peer's certificate has expired");
        assert!(end.session.info().resumed && end.names().is_empty());
        assert!(end.session.is_handshaking(), "nobody may take the session for ready");
        assert!(plain.connection.is_handshaking(), "no ticket brings the client back here");
        let again = end.session.open(&mut [], &mut Vec::new()).expect_err("a fault");
        assert_eq!(again.0, "the peer's certificate has expired");
    }
}

//! Handshakes that succeed, and those that fail, with the words for it.

use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, Error};

use super::authority::{
    Authority, Files, Pair, client, client_names, expired, not_yet_valid, server,
};
use super::link::{End, Peer, Plain, client_config, pair, shake};
use crate::{Client, ClientAuth, Server, Verify};

/// Handshake of a plain client of each version with a server that asks for certificates.
fn with_plain_clients(
    auth: ClientAuth,
    pair: impl Fn(&Authority) -> Option<Pair>,
    check: impl Fn(End, Plain),
) {
    let ca = Authority::new("CA");
    let server = server(&ca, auth);
    for version in [&TLS12, &TLS13] {
        let mut plain = Plain::client(client_config(&ca, pair(&ca).as_ref(), &[version]));
        let mut end = End::new(server.session());
        shake(&mut plain, &mut end);
        check(end, plain);
    }
}

fn alert(plain: &Plain) -> Option<AlertDescription> {
    match plain.error {
        Some(Error::AlertReceived(alert)) => Some(alert),
        _ => None,
    }
}

#[test]
fn both_sides_know_each_other() {
    let ca = Authority::new("CA");
    let client = client(&ca, Some(&ca.client()));
    let server = server(&ca, ClientAuth::Required);
    let (mut client, mut server) = pair(client.session("localhost"), server.session());
    assert!(!client.session.is_handshaking() && !server.session.is_handshaking());
    let info = server.session.info();
    assert_eq!(info.version, "TLSv1.3");
    assert!(info.cipher.starts_with("TLS13_"), "{}", info.cipher);
    assert!(!info.resumed);
    assert_eq!(info.server_name.as_deref(), Some("localhost"));
    assert_eq!(server.names(), ["spiffe://example/orders", "orders.example", "orders"]);
    assert_eq!(client.names(), ["localhost", "a server"]);
    server.take(&client.seal(b"question"));
    client.take(&server.seal(b"answer"));
    assert_eq!(server.plain, b"question");
    assert_eq!(client.plain, b"answer");
}

#[test]
fn plain_clients_of_both_versions_are_served() {
    with_plain_clients(
        ClientAuth::Required,
        |ca| Some(ca.client()),
        |mut end, mut plain| {
            assert_eq!(end.fault(), "none");
            assert_eq!(end.session.info().server_name.as_deref(), Some("localhost"));
            assert_eq!(end.names(), ["spiffe://example/orders", "orders.example", "orders"]);
            end.take(&plain.send(b"question"));
            plain.take(&end.seal(b"answer"));
            assert_eq!(end.plain, b"question");
            assert_eq!(plain.plain, b"answer");
        },
    );
}

#[test]
fn a_client_that_offers_protocols_is_served_without() {
    let ca = Authority::new("CA");
    let server = server(&ca, ClientAuth::None);
    let mut config = client_config(&ca, None, &[&TLS13]);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (mut plain, mut end) = (Plain::client(config), End::new(server.session()));
    shake(&mut plain, &mut end);
    assert!(!plain.connection.is_handshaking() && !end.session.is_handshaking());
    assert_eq!(plain.connection.alpn_protocol(), None);
}

#[test]
fn a_client_without_a_certificate_is_refused_where_one_is_required() {
    with_plain_clients(
        ClientAuth::Required,
        |_| None,
        |end, plain| {
            assert_eq!(end.fault(), "the peer gave no certificate");
            assert_eq!(alert(&plain), Some(AlertDescription::CertificateRequired));
        },
    );
}

#[test]
fn a_client_without_a_certificate_is_served_where_none_is_required() {
    for auth in [ClientAuth::None, ClientAuth::Optional] {
        with_plain_clients(
            auth,
            |_| None,
            |end, plain| {
                assert!(!end.session.is_handshaking() && !plain.connection.is_handshaking());
                assert!(end.names().is_empty());
            },
        );
    }
}

#[test]
fn a_client_of_another_ca_is_refused_even_where_none_is_required() {
    for auth in [ClientAuth::Optional, ClientAuth::Required] {
        let other = Authority::new("another CA");
        with_plain_clients(
            auth,
            |_| Some(other.client()),
            |end, plain| {
                assert_eq!(end.fault(), "the CA of the peer's certificate is unknown");
                assert_eq!(alert(&plain), Some(AlertDescription::UnknownCA));
            },
        );
    }
}

#[test]
fn clients_certificates_have_their_time() {
    let cases: [(fn(&mut rcgen::CertificateParams), _); 2] = [
        (expired, "the peer's certificate has expired"),
        (not_yet_valid, "the peer's certificate is not valid yet"),
    ];
    for (time, phrase) in cases {
        let of_time = |ca: &Authority| {
            Some(ca.issue(|params| {
                client_names(params);
                time(params);
            }))
        };
        with_plain_clients(ClientAuth::Required, of_time, |end, plain| {
            assert_eq!(end.fault(), phrase);
            assert!(alert(&plain).is_some());
        });
    }
}

#[test]
fn a_certificate_for_servers_is_none_of_a_client() {
    with_plain_clients(
        ClientAuth::Required,
        |ca| Some(ca.server()),
        |end, _| {
            let phrase = "the peer's certificate is for another purpose (extended key usage)";
            assert_eq!(end.fault(), phrase);
        },
    );
}

/// Handshake of a client with a node at `host`, as `verify` says. The result is what went wrong at
/// the client, and at the node.
fn with_node(known: &Authority, node: &Server, verify: Verify, host: &str) -> [&'static str; 2] {
    let files = Files::new();
    let mut options = files.client_options(known, None);
    options.verify = verify;
    let client = Client::open(options).expect("a client");
    let (client, node) = pair(client.session(host), node.session());
    if client.fault.is_none() {
        assert!(!client.session.is_handshaking());
        assert_eq!(client.names().is_empty(), verify == Verify::None);
    }
    [client.fault(), node.fault()]
}

#[test]
fn nodes_are_verified_as_asked() {
    let (ca, other) = (Authority::new("CA"), Authority::new("another CA"));
    let node = server(&ca, ClientAuth::None);
    let good = ["none", "none"];
    let unknown = [
        "the CA of the peer's certificate is unknown",
        "the peer does not know the CA of our certificate",
    ];
    for host in ["localhost", "127.0.0.1"] {
        assert_eq!(with_node(&ca, &node, Verify::Full, host), good);
        assert_eq!(with_node(&other, &node, Verify::Full, host), unknown);
        assert_eq!(with_node(&other, &node, Verify::Ca, host), unknown);
        assert_eq!(with_node(&other, &node, Verify::None, host), good);
    }
    for host in ["node.example", "127.0.0.2", "::1"] {
        let [client, _] = with_node(&ca, &node, Verify::Full, host);
        assert_eq!(client, "the peer's certificate is for another name");
        assert_eq!(with_node(&ca, &node, Verify::Ca, host), good);
        assert_eq!(with_node(&ca, &node, Verify::None, host), good);
    }
}

#[test]
fn a_name_of_the_options_replaces_the_nodes() {
    let ca = Authority::new("CA");
    let files = Files::new();
    let mut options = files.client_options(&ca, None);
    options.name = Some("localhost".to_owned());
    let client = Client::open(options).expect("a client");
    let node = server(&ca, ClientAuth::None);
    let (client, node) = pair(client.session("192.0.2.1"), node.session());
    assert_eq!(client.fault(), "none");
    assert_eq!(node.session.info().server_name.as_deref(), Some("localhost"));
}

#[test]
fn a_node_whose_name_no_certificate_can_have_is_refused() {
    let ca = Authority::new("CA");
    let mut session = client(&ca, None).session("a name with spaces");
    assert!(!session.has_pending());
    let fault = session.open(&mut [], &mut Vec::new()).expect_err("a fault");
    assert_eq!(fault.0, "no certificate can have the node's name");
}

#[test]
fn clients_hear_why_nodes_refuse_them() {
    let (ca, other) = (Authority::new("CA"), Authority::new("another CA"));
    let node = server(&ca, ClientAuth::Required);
    let refused = |own: Option<&Pair>| {
        let session = client(&ca, own).session("localhost");
        let (client, node) = pair(session, node.session());
        [client.fault(), node.fault()]
    };
    assert_eq!(
        refused(None),
        ["the peer requires a certificate from us", "the peer gave no certificate"]
    );
    assert_eq!(
        refused(Some(&other.client())),
        [
            "the peer does not know the CA of our certificate",
            "the CA of the peer's certificate is unknown"
        ]
    );
}

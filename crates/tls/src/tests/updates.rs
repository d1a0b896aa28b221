//! Updates of keys, from either side.

use std::sync::Arc;

use rustls::version::TLS13;
use rustls::{CipherSuite, SupportedCipherSuite, Tls13CipherSuite};

use super::authority::{Authority, client, server};
use super::link::{End, Peer, Plain, client_config, shake};
use crate::ClientAuth;
use crate::resumption::ClientConnection;
use crate::session::TlsSession;

#[test]
fn updates_of_the_peer_are_answered() {
    let ca = Authority::new("CA");
    let server = server(&ca, ClientAuth::None);
    let mut ends = [
        (Plain::client(client_config(&ca, None, &[&TLS13])), End::new(server.session())),
        (Plain::server(&server), End::new(client(&ca, None).session("localhost"))),
    ];
    let [(plain, end), (plain_server, end_client)] = &mut ends;
    shake(plain, end);
    shake(end_client, plain_server);
    for (plain, end) in &mut ends {
        for round in 0..3 {
            plain.connection.refresh_traffic_keys().expect("an update");
            end.take(&plain.send(b"forth"));
            assert_eq!((end.fault(), &*end.plain), ("none", &b"forth"[..]), "round {round}");
            end.plain.clear();
            let back = end.seal(b"back");
            // The answer to the update goes first.
            assert!(back.len() > 2 * (5 + 16), "{} bytes", back.len());
            plain.take(&back);
            assert_eq!((&plain.error, &*plain.plain), (&None, &b"back"[..]), "round {round}");
            plain.plain.clear();
        }
    }
}

/// A client that may seal few records with one key.
fn frugal(records: u64) -> End {
    let mut provider = (**crate::PROVIDER).clone();
    let mut suites = provider.cipher_suites.iter().filter_map(|suite| match suite {
        SupportedCipherSuite::Tls13(suite)
            if suite.common.suite == CipherSuite::TLS13_AES_128_GCM_SHA256 =>
        {
            Some(*suite)
        }
        _ => None,
    });
    let suite: &Tls13CipherSuite = suites.next().expect("a suite");
    let limited = Tls13CipherSuite {
        common: rustls::crypto::CipherSuiteCommon {
            suite: suite.common.suite,
            hash_provider: suite.common.hash_provider,
            confidentiality_limit: records,
        },
        hkdf_provider: suite.hkdf_provider,
        aead_alg: suite.aead_alg,
        quic: None,
    };
    provider.cipher_suites = vec![SupportedCipherSuite::Tls13(Box::leak(Box::new(limited)))];
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13])
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(crate::verification::NamelessVerifier(None)))
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let connection = ClientConnection::new(&config, &Arc::default(), name).expect("a connection");
    End::new(Box::new(TlsSession::new(connection, false)))
}

#[test]
fn keys_are_renewed_before_they_have_sealed_too_much() {
    let ca = Authority::new("CA");
    let server = server(&ca, ClientAuth::None);
    let mut near = frugal(8);
    let mut far = End::new(server.session());
    shake(&mut near, &mut far);
    for round in 0_u32..100 {
        let text = round.to_be_bytes();
        let sealed = near.seal(&text);
        far.take(&sealed);
        assert_eq!((far.fault(), &*far.plain), ("none", &text[..]));
        far.plain.clear();
        near.take(&far.seal(&text));
        assert_eq!((near.fault(), &*near.plain), ("none", &text[..]));
        near.plain.clear();
    }
    // A piece that is longer than the limit is carried as well.
    let text = vec![7; 20 * 16_384];
    far.take(&near.seal(&text));
    assert!(far.fault() == "none" && far.plain == text);
}

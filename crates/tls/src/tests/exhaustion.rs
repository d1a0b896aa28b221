//! Connections whose keys have sealed as many records as is safe.

use std::sync::Arc;

use rustls::version::{TLS12, TLS13};
use rustls::{
    CipherSuite, CipherSuiteCommon, ClientConfig, SupportedCipherSuite, SupportedProtocolVersion,
    Tls12CipherSuite, Tls13CipherSuite,
};

use super::authority::{Authority, server};
use super::link::{End, Peer, pair};
use crate::resumption::ClientConnection;
use crate::session::TlsSession;
use crate::verification::NamelessVerifier;
use crate::{ClientAuth, PROVIDER};

/// Records that the keys of these tests allow.
const RECORDS: u64 = 20;

/// The suites with AES-128-GCM, with keys for a few records.
fn limited(suite: SupportedCipherSuite) -> Option<SupportedCipherSuite> {
    match suite {
        SupportedCipherSuite::Tls12(suite)
            if suite.common.suite == CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 =>
        {
            let common = CipherSuiteCommon { confidentiality_limit: RECORDS, ..suite.common };
            let suite = Tls12CipherSuite { common, ..*suite };
            Some(SupportedCipherSuite::Tls12(Box::leak(Box::new(suite))))
        }
        SupportedCipherSuite::Tls13(suite)
            if suite.common.suite == CipherSuite::TLS13_AES_128_GCM_SHA256 =>
        {
            let common = CipherSuiteCommon { confidentiality_limit: RECORDS, ..suite.common };
            let suite = Tls13CipherSuite { common, ..*suite };
            Some(SupportedCipherSuite::Tls13(Box::leak(Box::new(suite))))
        }
        _ => None,
    }
}

/// Both ends of a connection, the first with such keys.
fn ends(version: &'static SupportedProtocolVersion) -> (End, End) {
    let mut provider = (**PROVIDER).clone();
    provider.cipher_suites = provider.cipher_suites.into_iter().filter_map(limited).collect();
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .expect("a version")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(NamelessVerifier(None)))
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let connection = ClientConnection::new(&config, &Arc::default(), name).expect("a connection");
    let server = server(&Authority::new("CA"), ClientAuth::None);
    pair(Box::new(TlsSession::new(connection, false)), server.session())
}

#[test]
fn the_keys_of_tls_1_2_end_with_a_fault_that_says_so() {
    let (mut near, _) = ends(&TLS12);
    let mut out = Vec::new();
    let fault = (0..2 * RECORDS).find_map(|_| near.session.seal(b"data", &mut out).err());
    let phrase = "a TLS 1.2 connection has sent all the records that its keys allow";
    assert_eq!(fault.expect("a fault").0, phrase);
    assert_eq!(near.session.seal(b"data", &mut out).expect_err("a fault").0, phrase);
}

#[test]
fn the_keys_of_tls_1_3_are_renewed() {
    let (mut near, mut far) = ends(&TLS13);
    for _ in 0..10 * RECORDS {
        let records = near.seal(b"data");
        far.take(&records);
    }
    assert_eq!(far.fault(), "none");
    assert_eq!(far.plain.len() as u64, 10 * RECORDS * 4);
}

//! A server whose certificate is renewed, as its clients see it when the former one expires.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, date_time_ymd};
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::pem::PemObject;
use rustls::server::ProducesTickets;
use rustls::time_provider::TimeProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

use super::authority::{Authority, Files, Pair};
use super::link::{End, Plain, shake};
use crate::{Client, PROVIDER, Verify};

/// Midnight before the first of January 2040, in seconds of the Unix epoch.
const EXPIRY_S: i64 = 2_208_988_800;

/// A clock that the test sets.
#[derive(Debug)]
struct Clock(AtomicI64);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let now_s = self.0.load(Ordering::Relaxed).unsigned_abs();
        Some(UnixTime::since_unix_epoch(Duration::from_secs(now_s)))
    }
}

/// A client that verifies like this, and its clock, an hour before the expiry.
fn client(ca: &Authority, verify: Verify) -> (Client, Arc<Clock>) {
    let files = Files::new();
    let mut options = files.client_options(ca, None);
    options.verify = verify;
    let clock = Arc::new(Clock(AtomicI64::new(EXPIRY_S - 3_600)));
    let client = Client::open(options).expect("a client");
    (client.with_time(Arc::<Clock>::clone(&clock)), clock)
}

/// A certificate that ends at the end of 2039.
fn expiring(ca: &Authority) -> Pair {
    ca.issue(|params| {
        *params = CertificateParams::new(["localhost".to_owned()]).expect("parameters");
        params.not_after = date_time_ymd(2040, 1, 1);
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    })
}

/// A node with this certificate, of a cluster whose nodes open each other's tickets.
fn node(
    version: &'static SupportedProtocolVersion,
    pair: &Pair,
    tickets: &Arc<dyn ProducesTickets>,
) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
    let leaf = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("a certificate");
    let mut config = ServerConfig::builder_with_provider(PROVIDER.clone())
        .with_protocol_versions(&[version])
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![leaf], key)
        .expect("a certificate");
    config.ticketer = Arc::clone(tickets);
    config.into()
}

/// The result of a handshake: its fault, and whether it resumed.
fn connect(client: &Client, node: &Arc<ServerConfig>) -> (&'static str, bool) {
    let connection = ServerConnection::new(Arc::clone(node)).expect("a connection");
    let (mut end, mut node) = (End::new(client.session("localhost")), Plain::new(connection));
    shake(&mut end, &mut node);
    (end.fault(), end.session.info().resumed)
}

#[test]
fn a_renewed_node_is_reached_when_its_former_certificate_expires() {
    let ca = Authority::new("CA");
    for version in [&TLS12, &TLS13] {
        for verify in [Verify::Full, Verify::Ca] {
            let tickets = Ticketer::new().expect("random numbers");
            let former = node(version, &expiring(&ca), &tickets);
            let renewed = node(version, &ca.server(), &tickets);
            let (client, clock) = client(&ca, verify);
            assert_eq!(connect(&client, &former), ("none", false));
            assert_eq!(connect(&client, &former), ("none", true));
            // The node's certificate is renewed long before, and tickets go on.
            clock.0.store(EXPIRY_S, Ordering::Relaxed);
            assert_eq!(connect(&client, &renewed), ("none", true));
            clock.0.store(EXPIRY_S + 1, Ordering::Relaxed);
            assert_eq!(connect(&client, &renewed), ("none", false), "{version:?}");
            assert_eq!(connect(&client, &renewed), ("none", true));
            assert_eq!(connect(&client, &renewed), ("none", true));
        }
    }
}

#[test]
fn a_node_that_is_not_renewed_is_refused() {
    let ca = Authority::new("CA");
    for version in [&TLS12, &TLS13] {
        let tickets = Ticketer::new().expect("random numbers");
        let former = node(version, &expiring(&ca), &tickets);
        let (client, clock) = client(&ca, Verify::Full);
        assert_eq!(connect(&client, &former), ("none", false));
        clock.0.store(EXPIRY_S + 1, Ordering::Relaxed);
        assert_eq!(connect(&client, &former), ("the peer's certificate has expired", false));
    }
}

#[test]
fn a_client_that_verifies_nothing_resumes_beyond_the_expiry() {
    let ca = Authority::new("CA");
    for version in [&TLS12, &TLS13] {
        let tickets = Ticketer::new().expect("random numbers");
        let former = node(version, &expiring(&ca), &tickets);
        let (client, clock) = client(&ca, Verify::None);
        assert_eq!(connect(&client, &former), ("none", false));
        clock.0.store(EXPIRY_S + 1, Ordering::Relaxed);
        assert_eq!(connect(&client, &former), ("none", true));
    }
}

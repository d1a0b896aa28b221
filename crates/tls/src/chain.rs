//! Bounds on the certificates that a peer shows. Without them, the search for a path through many
//! certificates of one name costs seconds.

use std::error;
use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// Most intermediate certificates of a chain.
const INTERMEDIATES_MAX: usize = 5;

/// Most bytes of a chain. Sessions hold a little more than this of a message.
const CHAIN_BYTES_MAX: usize = 24 << 10;

/// Reason for which a chain is refused unread.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct ChainFault(pub(crate) &'static str);

impl fmt::Display for ChainFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl error::Error for ChainFault {}

/// Refuses a chain beyond the bounds.
pub(crate) fn check(
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
) -> Result<(), Error> {
    let bytes = intermediates.iter().fold(leaf.len(), |bytes, der| bytes + der.len());
    let fault = if intermediates.len() > INTERMEDIATES_MAX {
        "the peer's chain has more than 5 intermediate certificates"
    } else if bytes > CHAIN_BYTES_MAX {
        "the peer's chain of certificates is larger than 24 KiB"
    } else {
        return Ok(());
    };
    let fault = Arc::new(ChainFault(fault));
    Err(Error::InvalidCertificate(CertificateError::Other(OtherError(fault))))
}

/// A verifier that sees only chains within the bounds.
#[derive(Debug)]
pub(crate) struct Bounded<V: ?Sized>(pub(crate) Arc<V>);

impl<V: ClientCertVerifier + ?Sized> ClientCertVerifier for Bounded<V> {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        check(leaf, intermediates)?;
        self.0.verify_client_cert(leaf, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, leaf, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, leaf, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

impl<V: ServerCertVerifier + ?Sized> ServerCertVerifier for Bounded<V> {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        check(leaf, intermediates)?;
        self.0.verify_server_cert(leaf, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, leaf, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, leaf, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

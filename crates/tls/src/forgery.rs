//! A client that breaks the protocol after its handshake, for tests and fuzzing.

use std::mem;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::client::UnbufferedClientConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::version::TLS13;
use rustls::{CipherSuite, ClientConfig, ConnectionTrafficSecrets};
use rustls_pki_types::ServerName;
use shunt_reactor::Session;

use crate::verification::NamelessVerifier;
use crate::{PROVIDER, Server};

/// Types of records (RFC 8446, B.1).
pub const HANDSHAKE: u8 = 22;
/// The type of records with data.
pub const DATA: u8 = 23;

/// Room for any message of a client's handshake.
const MESSAGE_BYTES_MAX: usize = 4_096;

/// A client that seals any content as a record of any type. TLS 1.3 and AES-128-GCM.
pub struct Forger {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl Forger {
    /// Completes a handshake with a server that requires no certificate. The session is the
    /// server's side.
    pub fn connect(server: &Server) -> Option<(Forger, Box<dyn Session>)> {
        let name = ServerName::try_from("localhost").ok()?;
        let mut connection = UnbufferedClientConnection::new(configuration()?, name).ok()?;
        let mut session = server.session();
        let (mut received, mut out, mut plain) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let UnbufferedStatus { discard, state } = connection.process_tls_records(&mut received);
            match state.ok()? {
                ConnectionState::EncodeTlsData(mut data) => {
                    let start = out.len();
                    out.resize(start + MESSAGE_BYTES_MAX, 0);
                    let written = data.encode(&mut out[start..]).ok()?;
                    out.truncate(start + written);
                }
                ConnectionState::TransmitTlsData(data) => {
                    data.done();
                    session.open(&mut mem::take(&mut out), &mut plain).ok()?;
                }
                ConnectionState::WriteTraffic(_) => break,
                _ => {}
            }
            received.drain(..discard);
            session.take_pending(&mut received);
        }
        let (secrets, _) = connection.dangerous_into_kernel_connection().ok()?;
        let (sequence, ConnectionTrafficSecrets::Aes128Gcm { key, iv }) = secrets.tx else {
            return None;
        };
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key.as_ref()).ok()?);
        let forger = Forger { key, iv: iv.as_ref().try_into().ok()?, sequence };
        Some((forger, session))
    }

    /// A record of type `kind` with at most 16 KiB, and a little more, of content (RFC 8446, 5.2).
    pub fn seal(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        self.seal_padded(kind, content, 0)
    }

    /// The same with so many zeros behind the content (RFC 8446, 5.4).
    pub fn seal_padded(&mut self, kind: u8, content: &[u8], padding: usize) -> Vec<u8> {
        let mut inner = content.to_vec();
        inner.push(kind);
        inner.resize(inner.len() + padding, 0);
        let [.., high, low] = (inner.len() + AES_128_GCM.tag_len()).to_be_bytes();
        let header = [DATA, 3, 3, high, low];
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        self.sequence += 1;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut inner);
        debug_assert!(sealed.is_ok());
        [&header[..], &inner].concat()
    }
}

fn configuration() -> Option<Arc<ClientConfig>> {
    let mut provider = (**PROVIDER).clone();
    provider.cipher_suites.retain(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13])
        .ok()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(NamelessVerifier(None)))
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    Some(Arc::new(config))
}

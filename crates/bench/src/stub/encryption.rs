//! TLS of the stub's listeners: a connection without it is closed.

use std::{io, sync::Arc};

use shunt_reactor::{Accepted, Admission, HandshakeLimits, Security, SessionFault, SessionInfo};
use shunt_tls::{ClientAuth, HANDSHAKE_RECORD, Server, ServerNames, ServerOptions};

use super::StubArgs;

/// TLS with everyone who connects.
struct Encryption(Server);

impl Security for Encryption {
    fn admit(&self, _origin: &Accepted, head: &[u8]) -> Admission {
        if head.first() == Some(&HANDSHAKE_RECORD) {
            Admission::Session(self.0.session())
        } else {
            Admission::Refused(Vec::new())
        }
    }

    /// The other side reports a failed handshake.
    fn handshake_ended(&self, _: &Accepted, _: Result<&SessionInfo, SessionFault>) {}
}

/// Returns what the acceptor needs for TLS, if the arguments have a certificate.
///
/// # Errors
/// A file cannot be used.
pub(super) fn open(args: &StubArgs) -> io::Result<Option<(Arc<dyn Security>, HandshakeLimits)>> {
    let (Some(certificate), Some(key)) = (&args.tls_certificate, &args.tls_key) else {
        return Ok(None);
    };
    let server = Server::open(ServerOptions {
        names: ServerNames::CLIENT_FLAGS,
        certificate: certificate.clone(),
        key: key.clone(),
        client_ca: None,
        client_auth: ClientAuth::None,
        ticket_keys: None,
    });
    let server =
        server.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    Ok(Some((Arc::new(Encryption(server)), HandshakeLimits::default())))
}

//! TLS of the connections to servers. A command is unsent until the handshake of its connection has
//! ended, so one that fails with the handshake was never carried out.

use std::fmt;
use std::net::SocketAddr;

use shunt_reactor::{CloseReason, ConnId, Io};

use super::Sidecar;
use super::links::Link;
use crate::limits;

/// First byte of a TLS record that says why a peer ends the connection.
const ALERT: u8 = 0x15;

impl Sidecar {
    /// Connects to a server, with TLS if it is on.
    pub(super) fn connect(&self, io: &mut Io, server: SocketAddr) -> ConnId {
        match &self.options.server_tls {
            Some(tls) => io.connect_with(server, limits::CONNECT_NS, tls.session(server)),
            None => io.connect(server, limits::CONNECT_NS),
        }
    }

    /// A connection to a server is open, and its handshake is over.
    pub(super) fn link_opened(&mut self, io: &Io, index: usize) {
        let link = &mut self.links[index];
        link.is_open = true;
        if let (Some(tls), Some(conn)) = (&self.options.server_tls, link.conn) {
            tls.handshake_ended(io.session_info(conn));
        }
    }

    /// Handles a failure of TLS: refuses commands to the server for a while, because each try costs
    /// both sides a handshake. False if the connection has ended for another reason.
    pub(super) fn tls_failed(&mut self, io: &mut Io, index: usize, reason: CloseReason) -> bool {
        let Some(tls) = &self.options.server_tls else { return false };
        let Link { is_open, has_answered, .. } = self.links[index];
        let what = match reason {
            CloseReason::Session(fault) => format!("has failed TLS: {fault}"),
            CloseReason::HandshakeEnded => {
                "has ended the handshake of TLS: does this port have TLS?".to_owned()
            }
            // A server that refuses a certificate of TLS 1.3 does so after this side's handshake,
            // and its reset may overtake the reason.
            CloseReason::Peer | CloseReason::Reset if is_open && !has_answered => {
                "has closed the connection before its first answer: does it require a certificate \
                (--server-tls-certificate)?"
                    .to_owned()
            }
            _ => return false,
        };
        if is_open {
            // Refused afterwards: the lost commands were sent.
            self.lose(io, index, &what);
            self.refuse(io, index, &what);
        } else {
            tls.handshake_ended(None);
            self.refuse(io, index, &what);
            self.lose(io, index, &what);
        }
        true
    }

    /// The fault of a server that does not answer a connect. A server in clear text may take the
    /// start of a handshake for the start of a command, and wait for its end.
    pub(super) fn silent_connect(&self) -> &'static str {
        match self.options.server_tls {
            Some(_) => {
                "answers neither a connect nor the handshake of TLS: is it running, and does this \
                port have TLS?"
            }
            None => "does not answer a connect: is it running, and is the network open?",
        }
    }

    /// The fault of an answer that is not RESP.
    pub(super) fn unreadable(&self, answer: &[u8], error: &dyn fmt::Display) -> String {
        match answer.first() {
            Some(&ALERT) if self.options.server_tls.is_none() => {
                "requires TLS, which is off here: set --server-tls on".to_owned()
            }
            _ => format!("has answered what is not RESP: {error}"),
        }
    }
}

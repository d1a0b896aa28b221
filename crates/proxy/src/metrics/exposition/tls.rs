//! The metrics of TLS.

use std::fmt;

use shunt_admin::{Encoder, Label as _, plain};

use super::Sources;
use crate::metrics::{HeaderResult, Servers};

impl Sources {
    pub(super) fn tls(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let connections = self.total(|core| core.tls_clients.get()) as f64;
        let help = "Clients connected with TLS.";
        encoder.gauge("shunt_tls_connections", help, None, &[plain(connections)])?;
        let headers = self.tls.headers.values::<HeaderResult>();
        let help = "Headers of the PROXY protocol, from the addresses of proxy_protocol_from.";
        encoder.counter("shunt_proxy_headers", help, None, &headers)?;
        self.tls.write_outgoing(encoder, Servers::ALL)?;
        self.tls.write(encoder)
    }
}

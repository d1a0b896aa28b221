//! The metrics of TLS.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use shunt_admin::{Encoder, Label, Unit, Value, plain};

use super::Sources;
use crate::metrics::{HandshakeResult, HeaderResult, ReloadResult, SharedFamily};

impl Sources {
    pub(super) fn tls(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let connections = self.total(|core| core.tls_clients.get()) as f64;
        let help = "Clients connected with TLS.";
        encoder.gauge("shunt_tls_connections", help, None, &[plain(connections)])?;
        let handshakes = values::<HandshakeResult, _>(&self.tls.handshakes);
        encoder.counter("shunt_tls_handshakes", "TLS handshakes of clients.", None, &handshakes)?;
        let headers = values::<HeaderResult, _>(&self.tls.headers);
        let help = "Headers of the PROXY protocol, from the addresses of proxy_protocol_from.";
        encoder.counter("shunt_proxy_headers", help, None, &headers)?;
        let reloads = values::<ReloadResult, _>(&self.tls.reloads);
        let help = "Checks of the files of certificates and keys.";
        encoder.counter("shunt_tls_reloads", help, None, &reloads)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let expiry = |file: shunt_tls::CertificateFile| {
            let path = file.path.display().to_string();
            let labels = vec![("use", file.usage.to_owned()), ("path", path)];
            (labels, file.expires_s as f64 - now)
        };
        let expiries: Vec<Value> = self.tls.certificates().into_iter().map(expiry).collect();
        encoder.gauge(
            "shunt_certificate_expires",
            "Time until the first certificate of the file expires.",
            Some(&Unit::Seconds),
            &expiries,
        )
    }
}

fn values<L: Label, const N: usize>(family: &SharedFamily<N>) -> Vec<Value> {
    let value = |label: &L| (vec![(L::NAME, label.text().to_owned())], family.get(*label) as f64);
    L::ALL.iter().map(value).collect()
}

//! Counters of TLS and of balancers' headers. Several threads write them, at most once for each
//! handshake.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use shunt_admin::{Encoder, Label, Unit, Value, labels};
use shunt_tls::CertificateFile;

labels! {
    /// A listener with TLS.
    pub enum Listener = "use" {
        /// The listener of the data path.
        Clients = "clients",
        /// The admin pages.
        Admin = "admin",
        /// Locks over HTTP.
        LocksHttp = "locks_http",
    }
}

labels! {
    /// Servers of connections with TLS, as [`CertificateFile::usage`] names them.
    pub enum Servers = "use" {
        /// The nodes.
        Nodes = "nodes",
        /// The other proxies of the fleet.
        Fleet = "fleet",
        /// The agents.
        Agents = "agents",
        /// The Redis or Valkey servers of a sidecar.
        Redis = "redis",
    }
}

labels! {
    /// The result of a handshake.
    pub enum HandshakeResult = "result" {
        /// A new session.
        Ok = "ok",
        /// A session was resumed.
        Resumed = "resumed",
        /// The handshake failed, or took too long.
        Failed = "failed",
        /// The client had no TLS, which the listener requires.
        ClearText = "clear_text",
    }
}

labels! {
    /// The result of reading the header of a balancer's connection.
    pub enum HeaderResult = "result" {
        /// The header names a client.
        Ok = "ok",
        /// The balancer speaks for itself, or does not know the client.
        Own = "own",
        /// The connection has no valid header, or it took too long.
        Refused = "refused",
    }
}

labels! {
    /// The result of a check of the files of certificates and keys.
    pub enum ReloadResult = "result" {
        /// New handshakes use new content.
        Changed = "changed",
        /// The content was the same.
        Unchanged = "unchanged",
        /// The files cannot be used, and the former content stays.
        Failed = "failed",
    }
}

/// Counters by a label that any thread may increment.
#[derive(Debug)]
pub struct SharedFamily<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for SharedFamily<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<const N: usize> SharedFamily<N> {
    /// Adds one.
    pub fn count<L: Label>(&self, label: L) {
        self.0[label.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// The present value.
    pub fn get<L: Label>(&self, label: L) -> u64 {
        self.0[label.index()].load(Ordering::Relaxed)
    }

    /// All values, for an encoder.
    pub fn values<L: Label>(&self) -> Vec<Value> {
        let value = |label: &L| (vec![(L::NAME, label.text().to_owned())], self.get(*label) as f64);
        L::ALL.iter().map(value).collect()
    }
}

/// Counters of handshakes and of reloads, and the certificates in use.
#[derive(Debug, Default)]
pub struct TlsMetrics {
    /// Handshakes of each listener.
    handshakes: [SharedFamily<{ HandshakeResult::COUNT }>; Listener::COUNT],
    /// Handshakes with servers, by kind.
    outgoing: [SharedFamily<{ HandshakeResult::COUNT }>; Servers::COUNT],
    /// Headers of balancers, which a listener of CQL alone reads.
    pub headers: SharedFamily<{ HeaderResult::COUNT }>,
    /// Checks of the files.
    pub reloads: SharedFamily<{ ReloadResult::COUNT }>,
    certificates: Mutex<Vec<CertificateFile>>,
}

impl TlsMetrics {
    /// Handshakes of a listener.
    pub fn handshakes_of(&self, listener: Listener) -> &SharedFamily<{ HandshakeResult::COUNT }> {
        &self.handshakes[listener.index()]
    }

    /// Handshakes with servers of a kind.
    pub fn handshakes_with(&self, servers: Servers) -> &SharedFamily<{ HandshakeResult::COUNT }> {
        &self.outgoing[servers.index()]
    }

    /// Writes the handshakes with servers of these kinds, for programs that connect to them.
    ///
    /// # Errors
    /// The encoder fails.
    pub fn write_outgoing(&self, encoder: &mut Encoder<'_>, kinds: &[Servers]) -> fmt::Result {
        // Only a client comes in clear text.
        let results = [HandshakeResult::Ok, HandshakeResult::Resumed, HandshakeResult::Failed];
        let value = |(servers, result): (Servers, HandshakeResult)| {
            let labels = vec![
                (Servers::NAME, servers.text().to_owned()),
                (HandshakeResult::NAME, result.text().to_owned()),
            ];
            (labels, self.handshakes_with(servers).get(result) as f64)
        };
        let pairs = kinds.iter().flat_map(|servers| results.map(|result| (*servers, result)));
        let values: Vec<Value> = pairs.map(value).collect();
        let help =
            "TLS handshakes with nodes, other proxies of the fleet, agents and Redis servers.";
        encoder.counter("shunt_outgoing_tls_handshakes", help, None, &values)
    }

    /// Notes the certificates in use now with these peers, as [`CertificateFile::usage`] names
    /// them.
    pub fn set_certificates(&self, usage: &'static str, files: Vec<CertificateFile>) {
        let mut all = self.certificates.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|file| file.usage != usage);
        all.extend(files);
    }

    /// The certificates in use.
    pub fn certificates(&self) -> Vec<CertificateFile> {
        self.certificates.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Time at which each file expires for its peers, in seconds of the Unix epoch. Two options may
    /// name one file; the certificates that they use may differ, and the first to expire counts.
    fn expiries(&self) -> BTreeMap<(&'static str, String), i64> {
        let mut expiries = BTreeMap::new();
        for file in self.certificates() {
            let expires_s = expiries.entry((file.usage, file.path.display().to_string()));
            let expires_s = expires_s.or_insert(file.expires_s);
            *expires_s = file.expires_s.min(*expires_s);
        }
        expiries
    }

    /// Writes all metrics.
    ///
    /// # Errors
    /// The encoder fails.
    pub fn write(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let clients = self.handshakes_of(Listener::Clients).values::<HandshakeResult>();
        encoder.counter("shunt_tls_handshakes", "TLS handshakes of clients.", None, &clients)?;
        let mut http = Vec::new();
        for listener in [Listener::Admin, Listener::LocksHttp] {
            for (mut labels, value) in self.handshakes_of(listener).values::<HandshakeResult>() {
                labels.insert(0, (Listener::NAME, listener.text().to_owned()));
                http.push((labels, value));
            }
        }
        let help = "TLS handshakes of the admin pages and of locks over HTTP.";
        encoder.counter("shunt_http_tls_handshakes", help, None, &http)?;
        let reloads = self.reloads.values::<ReloadResult>();
        let help = "Checks of the files of certificates, keys and tokens.";
        encoder.counter("shunt_tls_reloads", help, None, &reloads)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let expiry = |((usage, path), expires_s): ((&str, String), i64)| {
            let labels = vec![("use", usage.to_owned()), ("path", path)];
            (labels, expires_s as f64 - now)
        };
        let expiries: Vec<Value> = self.expiries().into_iter().map(expiry).collect();
        encoder.gauge(
            "shunt_certificate_expires",
            "Time until the first certificate of the file expires.",
            Some(&Unit::Seconds),
            &expiries,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_two_options_name_has_one_sample() {
        let metrics = TlsMetrics::default();
        let file = |option, path: &str, expires_s| CertificateFile {
            usage: "clients",
            option,
            path: path.into(),
            expires_s,
            subject: String::new(),
            sha256: String::new(),
        };
        let files = [("tls_certificate", "all.pem", 5), ("tls_client_ca", "all.pem", 3)];
        let mut files =
            files.map(|(option, path, expires_s)| file(option, path, expires_s)).to_vec();
        files.push(file("tls_client_ca", "ca.pem", 7));
        metrics.set_certificates("clients", files);
        let expiries: Vec<_> = metrics.expiries().into_values().collect();
        assert_eq!(expiries, [3, 7]);
    }
}

//! Counters of TLS and of balancers' headers. Several threads write them, at most once for each
//! handshake.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use shunt_admin::{Encoder, Json, Label, Unit, Value, labels};
use shunt_tls::CertificateFile;
use shunt_wire::printable::printable_to;

/// Bytes that a page shows of a name of a certificate.
const TEXT_BYTES_MAX: usize = 512;

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
    certificates: Mutex<Vec<InService>>,
}

/// A file of certificates, and since when its content is in use, in seconds of the Unix epoch.
#[derive(Debug)]
struct InService {
    file: CertificateFile,
    since_s: u64,
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
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut all = self.certificates.lock().unwrap_or_else(PoisonError::into_inner);
        let (former, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *all).into_iter().partition(|one| one.file.usage == usage);
        *all = others;
        all.extend(files.into_iter().map(|file| {
            let is_same = |one: &&InService| one.file == file;
            let since_s = former.iter().find(is_same).map_or(now_s, |one| one.since_s);
            InService { file, since_s }
        }));
    }

    /// The certificates in use.
    pub fn certificates(&self) -> Vec<CertificateFile> {
        let all = self.certificates.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|one| one.file.clone()).collect()
    }

    /// The certificates in use, for a page. `users` names the connections that use those with some
    /// peers, as [`CertificateFile::usage`] names them.
    pub fn certificates_shown(&self, users: impl Fn(&str) -> String) -> Json {
        let all = self.certificates.lock().unwrap_or_else(PoisonError::into_inner);
        let row = |InService { file, since_s }: &InService| {
            let shown = |text: &str| printable_to(text, TEXT_BYTES_MAX);
            let names: Vec<Json> =
                file.alternative_names.iter().map(|it| shown(it).into()).collect();
            let entries: [(&str, Json); 10] = [
                ("use", file.usage.into()),
                ("option", file.option.into()),
                ("path", file.path.display().to_string().into()),
                ("subject", shown(&file.subject).into()),
                ("san", names.into()),
                ("serial", file.serial.as_str().into()),
                ("not_after_unix_ms", file.expires_s.saturating_mul(1_000).into()),
                ("loaded_unix_ms", since_s.saturating_mul(1_000).into()),
                ("in_use_by", users(file.usage).into()),
                ("sha256", file.sha256.as_str().into()),
            ];
            entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
        };
        Json::Array(all.iter().map(row).map(Json::Object).collect())
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
            ..CertificateFile::default()
        };
        let files = [("tls_certificate", "all.pem", 5), ("tls_client_ca", "all.pem", 3)];
        let mut files =
            files.map(|(option, path, expires_s)| file(option, path, expires_s)).to_vec();
        files.push(file("tls_client_ca", "ca.pem", 7));
        metrics.set_certificates("clients", files);
        let expiries: Vec<_> = metrics.expiries().into_values().collect();
        assert_eq!(expiries, [3, 7]);
    }

    #[test]
    fn a_file_is_loaded_since_its_content_is_in_use() {
        let metrics = TlsMetrics::default();
        let file = |sha256: &str| CertificateFile {
            usage: "clients",
            option: "tls_certificate",
            path: "tls.crt".into(),
            expires_s: 7,
            subject: "CN=a\u{1b}".to_owned(),
            alternative_names: vec!["DNS:a.example".to_owned()],
            serial: "0A".to_owned(),
            sha256: sha256.to_owned(),
        };
        metrics.set_certificates("clients", vec![file("1")]);
        metrics.certificates.lock().expect("lock")[0].since_s = 3;
        metrics.set_certificates("clients", vec![file("1"), file("2")]);
        metrics.set_certificates("nodes", Vec::new());
        let shown = metrics.certificates_shown(|usage| format!("4 connections of {usage}"));
        let field = |row: usize, name: &str| shown[row][name].clone();
        assert_eq!(field(0, "loaded_unix_ms"), 3_000);
        assert!(field(1, "loaded_unix_ms").as_u64().is_some_and(|at_ms| at_ms > 3_000));
        assert_eq!(
            (field(0, "not_after_unix_ms"), field(0, "san")[0].clone()),
            (7_000.into(), "DNS:a.example".into())
        );
        assert_eq!(field(0, "in_use_by"), "4 connections of clients");
        assert_eq!(field(0, "subject"), "CN=a\\u{1b}");
    }
}

//! Counters of TLS and of balancers' headers. Several threads write them, at most once for each
//! handshake.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use shunt_admin::{Label, labels};
use shunt_tls::CertificateFile;

labels! {
    /// The result of a client's handshake.
    pub enum HandshakeResult = "result" {
        /// The client has a new session.
        Ok = "ok",
        /// The client has resumed a session.
        Resumed = "resumed",
        /// The handshake failed, or took too long.
        Failed = "failed",
        /// The client had no TLS, and `tls` is `required`.
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
}

/// Counters of handshakes and of reloads, and the certificates in use.
#[derive(Debug, Default)]
pub struct TlsMetrics {
    /// Handshakes.
    pub handshakes: SharedFamily<{ HandshakeResult::COUNT }>,
    /// Headers of balancers.
    pub headers: SharedFamily<{ HeaderResult::COUNT }>,
    /// Checks of the files.
    pub reloads: SharedFamily<{ ReloadResult::COUNT }>,
    certificates: Mutex<Vec<CertificateFile>>,
}

impl TlsMetrics {
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
}

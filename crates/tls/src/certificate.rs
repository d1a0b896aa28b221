//! Facts of certificates for checks, pages and metrics.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls_pki_types::CertificateDer;
use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME;
use x509_parser::prelude::{FromDer, X509Certificate, X509Extension};

use crate::error::TlsError;
use crate::{files, names};

/// A file of certificates in use.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CertificateFile {
    /// Peers that the file serves: `clients`, `nodes`, `fleet`, or `servers` for a command.
    pub usage: &'static str,
    /// Option that names the file.
    pub option: &'static str,
    /// Path of the file.
    pub path: PathBuf,
    /// Time at which the first certificate of the chain ends, in seconds of the Unix epoch. For a
    /// file of CAs, the first of those that were valid when the file was read.
    pub expires_s: i64,
    /// Subject of the first certificate of the file.
    pub subject: String,
    /// Alternative names of that certificate, each with its kind, such as `DNS:shunt.example`.
    pub alternative_names: Vec<String>,
    /// Serial number of that certificate, hexadecimal.
    pub serial: String,
    /// First 16 hexadecimal digits of the SHA-256 of the file.
    pub sha256: String,
}

/// SHA-256 of the names by which a server may choose the role of a certificate: its subject, its
/// alternative names, and its issuer. A certificate that is renewed under the same names keeps its
/// digest.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SubjectDigest(pub [u8; 32]);

impl SubjectDigest {
    /// The digest of a certificate; `None` if that cannot be read.
    pub(crate) fn of(der: &CertificateDer<'_>) -> Option<SubjectDigest> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let mut names = vec![certificate.subject().as_raw(), certificate.issuer().as_raw()];
        let alternative =
            |extension: &&X509Extension<'_>| extension.oid == OID_X509_EXT_SUBJECT_ALT_NAME;
        names.extend(certificate.extensions().iter().filter(alternative).map(|names| names.value));
        // Lengths keep the end of one name apart from the start of the next.
        let content = names.iter().flat_map(|name| [&name.len().to_be_bytes()[..], name].concat());
        Some(SubjectDigest(files::sha256(&content.collect::<Vec<u8>>())))
    }
}

/// Validity of one certificate, and its names.
struct Facts {
    not_before_s: i64,
    not_after_s: i64,
    subject: String,
    alternative_names: Vec<String>,
    serial: String,
}

impl Facts {
    fn is_valid(&self, now_s: i64) -> bool {
        (self.not_before_s..=self.not_after_s).contains(&now_s)
    }
}

fn facts(der: &CertificateDer<'_>) -> Option<Facts> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let validity = certificate.validity();
    Some(Facts {
        not_before_s: validity.not_before.timestamp(),
        not_after_s: validity.not_after.timestamp(),
        subject: certificate.subject().to_string(),
        alternative_names: names::alternative(&certificate),
        serial: serial(certificate.raw_serial()),
    })
}

/// A serial number as `openssl x509 -serial` prints it.
fn serial(raw: &[u8]) -> String {
    let start = raw.iter().position(|byte| *byte != 0).unwrap_or(raw.len().saturating_sub(1));
    files::hex(raw.get(start..).unwrap_or_default()).to_ascii_uppercase()
}

/// Seconds since the Unix epoch.
pub(crate) fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Last second of a certificate; `None` if it cannot be read.
pub(crate) fn expiry_s(der: &CertificateDer<'_>) -> Option<i64> {
    facts(der).map(|facts| facts.not_after_s)
}

/// True if a certificate has expired at a time.
pub(crate) fn has_expired(der: &CertificateDer<'_>, now_s: i64) -> bool {
    expiry_s(der).is_some_and(|expiry_s| expiry_s < now_s)
}

/// A file of certificates, and the peers that it serves.
#[derive(Copy, Clone)]
pub(crate) struct Origin<'a> {
    pub(crate) usage: &'static str,
    pub(crate) file: &'a files::File,
}

impl Origin<'_> {
    fn error(&self, message: impl Into<String>) -> TlsError {
        self.file.error(message)
    }

    fn facts(&self, chain: &[CertificateDer<'_>]) -> Result<Vec<Facts>, TlsError> {
        let each = chain.iter().enumerate().map(|(index, der)| {
            facts(der)
                .ok_or_else(|| self.error(format!("certificate {} cannot be read", index + 1)))
        });
        each.collect()
    }

    fn describe(&self, first: &Facts, expires_s: i64) -> CertificateFile {
        CertificateFile {
            usage: self.usage,
            option: self.file.option,
            path: self.file.path.clone(),
            expires_s,
            subject: first.subject.clone(),
            alternative_names: first.alternative_names.clone(),
            serial: first.serial.clone(),
            sha256: files::hex(&self.file.digest[..8]),
        }
    }

    /// Checks a chain that is to be presented to peers: each certificate must be valid now.
    pub(crate) fn check_chain(
        &self,
        chain: &[CertificateDer<'_>],
        now_s: i64,
    ) -> Result<CertificateFile, TlsError> {
        let facts = self.facts(chain)?;
        for Facts { not_before_s, not_after_s, subject, .. } in &facts {
            if *not_after_s < now_s {
                let ago = duration(now_s - not_after_s);
                return Err(self
                    .error(format!("the certificate of `{subject}` expired {ago} ago: renew it"))
                    .known_as(format!("the certificate of `{subject}` expired")));
            }
            if *not_before_s > now_s {
                let ahead = duration(not_before_s - now_s);
                return Err(self
                    .error(format!(
                        "the certificate of `{subject}` is not valid for another {ahead}: check \
                         the clock of this host"
                    ))
                    .known_as(format!("the certificate of `{subject}` is not valid yet")));
            }
        }
        let expires_s = facts.iter().map(|facts| facts.not_after_s).min().unwrap_or_default();
        Ok(self.describe(&facts[0], expires_s))
    }

    /// Checks CAs by which peers are verified: one of them must be valid now.
    pub(crate) fn check_roots(
        &self,
        roots: &[CertificateDer<'_>],
        now_s: i64,
    ) -> Result<CertificateFile, TlsError> {
        let facts = self.facts(roots)?;
        let valid = facts.iter().filter(|facts| facts.is_valid(now_s));
        if let Some(expires_s) = valid.map(|facts| facts.not_after_s).min() {
            return Ok(self.describe(&facts[0], expires_s));
        }
        let subject = &facts[0].subject;
        let why = if facts.iter().any(|facts| facts.not_before_s > now_s) {
            "is not valid yet, and the file has no other valid one: check the clock of this host"
        } else {
            "has expired, and the file has no other valid one: renew it"
        };
        Err(self.error(format!("the CA `{subject}` {why}")))
    }
}

/// A length of time in words.
fn duration(seconds: i64) -> String {
    let (count, unit) = match seconds {
        0..120 => (seconds, "seconds"),
        120..7_200 => (seconds / 60, "minutes"),
        7_200..172_800 => (seconds / 3_600, "hours"),
        _ => (seconds / 86_400, "days"),
    };
    format!("{count} {unit}")
}

//! Files of certificates and keys: reading, with limits, and their PEM.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use aws_lc_rs::digest;
use rustls::pki_types::pem::{self, PemObject, SectionKind};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::PROVIDER;
use crate::certificate::{self, CertificateFile, Origin};
use crate::error::TlsError;
use crate::issuers;
use crate::small_file::SmallFile;

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Content of a file, with the option that names it.
pub(crate) struct File {
    pub(crate) option: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) digest: [u8; 32],
    content: SmallFile,
}

impl File {
    /// Reads a file.
    pub(crate) fn read(option: &'static str, path: &Path) -> Result<File, TlsError> {
        let content = SmallFile::read(path, FILE_BYTES_MAX)
            .map_err(|why| TlsError::file(option, path, why))?;
        let digest = sha256(&content.bytes);
        Ok(File { option, path: path.to_owned(), digest, content })
    }

    /// The bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.content.bytes
    }

    /// False if the file's writer may not be done. See [`SmallFile::is_settled`].
    pub(crate) fn is_settled(&self, now: SystemTime) -> bool {
        self.content.is_settled(now)
    }

    /// A fault of this file.
    pub(crate) fn error(&self, message: impl Into<String>) -> TlsError {
        TlsError::file(self.option, &self.path, message)
    }

    /// A warning about a secret that anyone but its owner and its group has access to.
    pub(crate) fn readers_warning(&self) -> Option<String> {
        self.content.readers_warning().map(|warning| self.warning(&warning))
    }

    /// A warning about this file.
    pub(crate) fn warning(&self, message: &str) -> String {
        format!("{} {}: {message}", self.option, self.path.display())
    }

    /// The certificates of the file, at least one.
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        self.refuse_containers()?;
        let mut certificates = Vec::new();
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(self.bytes()) {
            let (kind, der) = section.map_err(|error| self.pem_error(&error))?;
            if kind == SectionKind::Certificate {
                certificates.push(CertificateDer::from(der));
            }
        }
        if certificates.is_empty() {
            return Err(self.error("the file has no certificate (`BEGIN CERTIFICATE`)"));
        }
        Ok(certificates)
    }

    /// The private key of the file.
    fn private_key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        self.refuse_containers()?;
        let path = self.path.display();
        let encrypted = ["BEGIN ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED"];
        if encrypted.iter().any(|mark| self.contains(mark)) {
            return Err(self.error(format!(
                "the key is encrypted with a password; decrypt it: openssl pkey -in {path} -out \
                 KEY.pem"
            )));
        }
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(self.bytes()) {
            let (kind, der) = section.map_err(|error| self.pem_error(&error))?;
            if let Some(key) = PrivateKeyDer::from_pem(kind, der) {
                return Ok(key);
            }
        }
        Err(self.error("the file has no private key (`BEGIN PRIVATE KEY`)"))
    }

    fn contains(&self, text: &str) -> bool {
        self.bytes().windows(text.len()).any(|window| window == text.as_bytes())
    }

    fn pem_error(&self, error: &pem::Error) -> TlsError {
        self.error(format!("the file is not valid PEM: {error}"))
    }

    /// Refuses what is not PEM, with the command that converts it.
    fn refuse_containers(&self) -> Result<(), TlsError> {
        let path = self.path.display();
        let message = match self.bytes() {
            [] => "the file is empty".to_owned(),
            [0xFE, 0xED, 0xFE, 0xED, ..] | [0xCE, 0xCE, 0xCE, 0xCE, ..] => format!(
                "the file is a Java key store, not PEM; convert it: keytool -importkeystore \
                 -srckeystore {path} -destkeystore STORE.p12 -deststoretype PKCS12; then, for \
                 certificates, openssl pkcs12 -in STORE.p12 -nokeys -out CERTIFICATES.pem; for \
                 the key, openssl pkcs12 -in STORE.p12 -nocerts -nodes -out KEY.pem; for the CAs \
                 of a trust store, keytool -list -rfc -keystore {path} > CA.pem"
            ),
            bytes if is_pkcs12(bytes) => format!(
                "the file is PKCS#12, not PEM; convert it: for certificates, openssl pkcs12 -in \
                 {path} -nokeys -out CERTIFICATES.pem; for the key, openssl pkcs12 -in {path} \
                 -nocerts -nodes -out KEY.pem"
            ),
            [0x30, 0x80..=0xFF, ..] => format!(
                "the file is DER, not PEM; convert it: for a certificate, openssl x509 -inform der \
                 -in {path} -out CERTIFICATE.pem; for a key, openssl pkey -inform der -in {path} \
                 -out KEY.pem"
            ),
            _ => return Ok(()),
        };
        Err(self.error(message))
    }
}

/// True for a SEQUENCE that begins with the INTEGER 3, the version of PKCS#12 (RFC 7292, 4).
fn is_pkcs12(bytes: &[u8]) -> bool {
    let [0x30, length, rest @ ..] = bytes else {
        return false;
    };
    let skipped = if *length > 0x80 { usize::from(length & 0x7F) } else { 0 };
    rest.get(skipped..).is_some_and(|content| content.starts_with(&[2, 1, 3]))
}

/// A certificate with its key, checked, the facts for pages, and warnings about its chain.
pub(crate) fn certified_key(
    certificate: &File,
    key: &File,
    usage: &'static str,
) -> Result<(CertifiedKey, CertificateFile, Vec<String>), TlsError> {
    let chain = certificate.certificates()?;
    let facts = Origin { usage, file: certificate }.check_chain(&chain, certificate::now_s())?;
    let private = key.private_key()?;
    let certified =
        CertifiedKey::from_der(chain, private, &PROVIDER).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => key.error(format!(
                "the key does not belong to the certificate in {}",
                certificate.path.display()
            )),
            Error::InvalidCertificate(_) => certificate.error("the certificate cannot be read"),
            _ => key.error("the key cannot be used: RSA, ECDSA (P-256, P-384, P-521) or Ed25519"),
        })?;
    let warnings = issuers::check_links(certificate, &certified.cert)?;
    Ok((certified, facts, warnings))
}

/// CAs of a file, checked, and the facts for pages.
pub(crate) fn roots(
    file: &File,
    usage: &'static str,
) -> Result<(RootCertStore, CertificateFile), TlsError> {
    let certificates = file.certificates()?;
    let facts = Origin { usage, file }.check_roots(&certificates, certificate::now_s())?;
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates.into_iter().enumerate() {
        roots.add(certificate).map_err(|error| {
            file.error(format!("certificate {} is no CA that can be used: {error}", index + 1))
        })?;
    }
    Ok((roots, facts))
}

/// SHA-256 of some bytes.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut result = [0; 32];
    result.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    result
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

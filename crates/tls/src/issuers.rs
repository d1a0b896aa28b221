//! The certificates that Shunt shows to peers: which of a file signed which, and the names of a
//! server.
//!
//! Peers differ in what they make of certificates that do not belong together. A file whose chain
//! no peer can follow is refused. One that most peers can use gets a warning.

use std::net::IpAddr;

use rustls::client::verify_server_name;
use rustls::server::ParsedCertificate;
use rustls_pki_types::{CertificateDer, ServerName};
use x509_parser::asn1_rs::Any;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::PROVIDER;
use crate::error::TlsError;
use crate::files::File;

/// Most certificates of a chain. Each may have to be compared with each.
const CERTIFICATES_MAX: usize = 32;

/// A certificate of a file.
struct Entry<'a> {
    /// Position in the file, from one.
    number: usize,
    der: &'a [u8],
    certificate: X509Certificate<'a>,
}

/// A signature, as its algorithm needs it.
struct Signature<'a> {
    algorithm: &'a [u8],
    message: &'a [u8],
    value: &'a [u8],
}

/// Content of the first DER element, and the elements behind it.
fn element(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (rest, element) = Any::from_der(der).ok()?;
    Some((element.data, rest))
}

/// Content of a BIT STRING of whole bytes, without the count of unused bits.
fn bits(der: &[u8]) -> Option<&[u8]> {
    match element(der)?.0 {
        [0, bytes @ ..] => Some(bytes),
        _ => None,
    }
}

impl<'a> Entry<'a> {
    fn subject(&self) -> &[u8] {
        self.certificate.subject().as_raw()
    }

    fn issuer(&self) -> &[u8] {
        self.certificate.issuer().as_raw()
    }

    /// Position and subject, for messages.
    fn describe(&self) -> String {
        format!("certificate {} (`{}`)", self.number, self.certificate.subject())
    }

    /// The signature: RFC 5280, section 4.1 (tbsCertificate, signatureAlgorithm, signatureValue).
    fn signature(&self) -> Option<Signature<'a>> {
        let (content, _) = element(self.der)?;
        let (_, behind) = element(content)?;
        let message = content.get(..content.len() - behind.len())?;
        let (algorithm, value) = element(behind)?;
        Some(Signature { algorithm, message, value: bits(value)? })
    }

    /// Algorithm and bits of the public key.
    fn key(&self) -> Option<(&[u8], &[u8])> {
        let (content, _) = element(self.certificate.public_key().raw)?;
        let (algorithm, key) = element(content)?;
        Some((algorithm, bits(key)?))
    }

    /// True if the key of this certificate verifies the signature of another one; `None` if it is
    /// of an algorithm that rustls lacks.
    fn verifies(&self, other: &Entry<'_>) -> Option<bool> {
        let (signature, (key_algorithm, key)) = (other.signature()?, self.key()?);
        let mut algorithms = PROVIDER.signature_verification_algorithms.all.iter();
        let algorithm = algorithms.find(|algorithm| {
            algorithm.signature_alg_id().as_ref() == signature.algorithm
                && algorithm.public_key_alg_id().as_ref() == key_algorithm
        })?;
        Some(algorithm.verify_signature(key, signature.message, signature.value).is_ok())
    }

    /// True if this certificate signed another one, or itself. Names decide where rustls cannot
    /// verify the signature, such as SHA-1 of an old authority.
    fn has_signed(&self, other: &Entry<'_>) -> bool {
        self.verifies(other).unwrap_or_else(|| self.subject() == other.issuer())
    }
}

/// The certificates of a file, each once.
struct Chain<'a> {
    entries: Vec<Entry<'a>>,
    /// Indexes of the first certificate and of all that lead from it to its authorities.
    path: Vec<usize>,
}

impl<'a> Chain<'a> {
    fn read(file: &File, chain: &'a [CertificateDer<'_>]) -> Result<Self, TlsError> {
        if chain.len() > CERTIFICATES_MAX {
            return Err(file.error(format!(
                "the file has {} certificates, more than {CERTIFICATES_MAX}: leave only the one \
                 of the key and those between it and its CA",
                chain.len()
            )));
        }
        let mut entries: Vec<Entry<'a>> = Vec::new();
        for (index, der) in chain.iter().enumerate() {
            let (number, der) = (index + 1, der.as_ref());
            let (_, certificate) = X509Certificate::from_der(der)
                .map_err(|_| file.error(format!("certificate {number} cannot be read")))?;
            if entries.iter().all(|entry| entry.der != der) {
                entries.push(Entry { number, der, certificate });
            }
        }
        let mut path = vec![0];
        let mut next = 0;
        while let Some(entry) = path.get(next).map(|index| &entries[*index]) {
            let others = 0..entries.len();
            let issuers = others.filter(|at| !path.contains(at) && entries[*at].has_signed(entry));
            let issuers: Vec<usize> = issuers.collect();
            path.extend(issuers);
            next += 1;
        }
        Ok(Self { entries, path })
    }

    fn members(&self) -> impl Iterator<Item = &Entry<'a>> {
        self.path.iter().map(|index| &self.entries[*index])
    }

    /// Certificates that are no part of the path.
    fn strays(&self) -> impl Iterator<Item = &Entry<'a>> {
        let strays = self.entries.iter().enumerate().filter(|(at, _)| !self.path.contains(at));
        strays.map(|(_, entry)| entry)
    }

    /// The last certificate whose issuer the file lacks; `None` if the path reaches an authority
    /// that signed itself.
    fn end(&self) -> Option<&Entry<'a>> {
        if self.members().any(|member| member.has_signed(member)) {
            return None;
        }
        let mut ends = self.members().collect::<Vec<_>>().into_iter().rev();
        ends.find(|end| !self.members().any(|member| member.has_signed(end)))
    }

    /// True if a certificate that is no part of the path belongs to the same authorities, such as
    /// another intermediate one of the same root. Peers do without it.
    fn is_relative(&self, stray: &Entry<'_>, end: &Entry<'_>) -> bool {
        let mut members = self.members();
        stray.subject() != end.issuer()
            && members.any(|member| {
                stray.subject() == member.subject()
                    || stray.issuer() == member.subject()
                    || stray.issuer() == member.issuer()
            })
    }

    /// The first certificate in front of all those that it signed.
    fn early(&self) -> Option<&Entry<'a>> {
        self.path.iter().skip(1).map(|at| (*at, &self.entries[*at])).find_map(|(at, entry)| {
            let mut former = self.path.iter().filter(|former| **former < at);
            let follows = former.any(|former| entry.has_signed(&self.entries[*former]));
            (!follows).then_some(entry)
        })
    }
}

/// Checks that certificates which are shown to peers form a chain. Returns warnings.
pub(crate) fn check_links(
    file: &File,
    chain: &[CertificateDer<'_>],
) -> Result<Vec<String>, TlsError> {
    let chain = Chain::read(file, chain)?;
    if let Some(end) = chain.end()
        && let Some(stray) = chain.strays().find(|stray| !chain.is_relative(stray, end))
    {
        return Err(file.error(broken(stray, end)));
    }
    let first = chain.entries[0].describe();
    let strays = chain
        .strays()
        .map(|stray| format!("{} is no part of the chain of {first}: remove it", stray.describe()));
    let order = chain.early().map(|entry| {
        format!(
            "{} comes before those that it signed, which some peers refuse: put each certificate \
             before the one that signed it",
            entry.describe()
        )
    });
    Ok(strays.chain(order).map(|warning| file.warning(&warning)).collect())
}

/// Says that a certificate has no place behind the last one of a path.
fn broken(stray: &Entry<'_>, end: &Entry<'_>) -> String {
    let (strange, last, issuer) = (stray.describe(), end.describe(), end.certificate.issuer());
    if stray.subject() == end.issuer() {
        return format!(
            "{strange} has the name of the issuer of {last}, but another key: replace it with the \
             certificate of `{issuer}` that signed {last}"
        );
    }
    format!(
        "{strange} did not sign {last}: put the certificate of `{issuer}`, which did, behind that \
         one, and remove what is not of its chain"
    )
}

/// Names and addresses in the subjectAltName of a certificate; `None` if it has no such extension.
pub(crate) fn hosts(der: &CertificateDer<'_>) -> Option<Vec<String>> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let mut extensions = certificate.extensions().iter();
    let names = extensions.find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectAlternativeName(names) => Some(names),
        _ => None,
    })?;
    let hosts = names.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(host) => Some((*host).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
        _ => None,
    });
    Some(hosts.collect())
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// Checks that the certificate of a server has names that clients look at.
pub(crate) fn check_server(file: &File, der: &CertificateDer<'_>) -> Result<(), TlsError> {
    if hosts(der).is_some() {
        return Ok(());
    }
    let certificate = X509Certificate::from_der(der).ok();
    let subject = certificate.map(|(_, certificate)| certificate.subject().to_string());
    Err(file.error(format!(
        "the certificate of `{}` has no subjectAltName, and clients look at no other name: have \
         it issued with all names and addresses of this host, such as \
         subjectAltName=DNS:shunt.example,IP:10.0.9.1",
        subject.unwrap_or_default()
    )))
}

/// True if clients accept the certificate of a server at this name or address.
pub(crate) fn is_for(der: &CertificateDer<'_>, host: &str) -> bool {
    let (certificate, host) = (ParsedCertificate::try_from(der), ServerName::try_from(host));
    certificate.is_ok_and(|certificate| {
        host.is_ok_and(|host| verify_server_name(&certificate, &host).is_ok())
    })
}

//! Names: of peers, from their certificates, and the one that a client asks for.

use std::cell::Cell;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::CertificateDer;
use shunt_reactor::{NameKind, PeerName};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Most names of one certificate that are kept, and the longest.
const NAMES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 1_024;

/// Names of a certificate: URIs, DNS names, e-mail addresses, then the common name.
pub(crate) fn of_certificate(der: &CertificateDer<'_>) -> Vec<PeerName> {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return Vec::new();
    };
    let (mut uris, mut hosts, mut mail) = (Vec::new(), Vec::new(), Vec::new());
    for extension in certificate.extensions() {
        let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else {
            continue;
        };
        for name in &names.general_names {
            match name {
                GeneralName::URI(uri) => uris.push(*uri),
                GeneralName::DNSName(host) => hosts.push(*host),
                GeneralName::RFC822Name(address) => mail.push(*address),
                _ => {}
            }
        }
    }
    let subject = certificate.subject();
    let common = subject.iter_common_name().filter_map(|name| name.as_str().ok());
    let of_kind = |kind| move |text| (kind, text);
    let names = uris.into_iter().map(of_kind(NameKind::Uri));
    let names = names.chain(hosts.into_iter().map(of_kind(NameKind::Dns)));
    let names = names.chain(mail.into_iter().map(of_kind(NameKind::Email)));
    let names = names.chain(common.map(of_kind(NameKind::CommonName)));
    let names = names.filter(|(_, text)| text.len() <= NAME_BYTES_MAX).take(NAMES_MAX);
    names.map(|(kind, text)| PeerName::new(kind, text)).collect()
}

/// Alternative names of a certificate, each with its kind as `openssl` writes it. Kinds that Shunt
/// does not read are left out.
pub(crate) fn alternative(certificate: &X509Certificate<'_>) -> Vec<String> {
    let names = certificate.extensions().iter().filter_map(|extension| {
        match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(names) => Some(&names.general_names),
            _ => None,
        }
    });
    let shown = |name: &GeneralName<'_>| match name {
        GeneralName::URI(uri) => Some(format!("URI:{uri}")),
        GeneralName::DNSName(host) => Some(format!("DNS:{host}")),
        GeneralName::RFC822Name(address) => Some(format!("email:{address}")),
        GeneralName::IPAddress(bytes) => match *bytes {
            [a, b, c, d] => Some(format!("IP:{}", Ipv4Addr::new(*a, *b, *c, *d))),
            bytes => {
                <[u8; 16]>::try_from(bytes).ok().map(|ip| format!("IP:{}", Ipv6Addr::from(ip)))
            }
        },
        _ => None,
    };
    let names = names.flatten().filter_map(shown);
    names.filter(|name| name.len() <= NAME_BYTES_MAX).take(NAMES_MAX).collect()
}

thread_local! {
    /// rustls shows the name to the resolver alone, during a call of the session's.
    static SERVER_NAME: Cell<Option<Box<str>>> = const { Cell::new(None) };
}

/// The name of the last ClientHello on this thread, once.
pub(crate) fn take_server_name() -> Option<Box<str>> {
    SERVER_NAME.take()
}

/// Serves one certificate, whatever name the client asks for, and notes that name.
#[derive(Debug)]
pub(crate) struct NamedResolver(pub(crate) Arc<CertifiedKey>);

impl ResolvesServerCert for NamedResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        SERVER_NAME.set(hello.server_name().map(Box::from));
        Some(self.0.clone())
    }
}

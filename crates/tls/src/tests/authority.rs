//! Certificates made for a test, and the files that they lie in.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SanType, date_time_ymd,
};
use tempfile::TempDir;

use crate::{Client, ClientAuth, ClientOptions, Server, ServerNames, ServerOptions, Verify};

/// A certificate and its key, in PEM.
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// A certificate authority.
pub(super) struct Authority {
    pub(super) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new(name: &str) -> Authority {
        Authority::with(name, |_| {})
    }

    pub(super) fn with(name: &str, edit: impl FnOnce(&mut CertificateParams)) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        edit(&mut params);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    /// An authority whose certificate comes from this one.
    pub(super) fn intermediate(&self, name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let pem = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    /// Another certificate of an authority, with the same name and key, which comes from this one.
    pub(super) fn cross_sign(&self, name: &str, other: &Authority) -> String {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.signed_by(other.issuer.key(), &self.issuer).expect("a certificate").pem()
    }

    pub(super) fn issue(&self, edit: impl FnOnce(&mut CertificateParams)) -> Pair {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        edit(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    /// A certificate of a server at `localhost` and 127.0.0.1.
    pub(super) fn server(&self) -> Pair {
        self.issue(|params| {
            let names = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]);
            *params = names.expect("parameters");
            params.distinguished_name.push(DnType::CommonName, "a server");
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        })
    }

    /// A certificate of a client with a name of each kind.
    pub(super) fn client(&self) -> Pair {
        self.issue(client_names)
    }
}

/// Names of a client's certificate, the URI last.
pub(super) fn client_names(params: &mut CertificateParams) {
    let name = |text: &str| text.try_into().expect("a name");
    params.subject_alt_names.push(SanType::DnsName(name("orders.example")));
    params.subject_alt_names.push(SanType::URI(name("spiffe://example/orders")));
    params.distinguished_name.push(DnType::CommonName, "orders");
    params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
}

pub(super) fn expired(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
}

pub(super) fn not_yet_valid(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2100, 1, 1);
    params.not_after = date_time_ymd(2101, 1, 1);
}

/// Files of a test.
pub(super) struct Files {
    directory: TempDir,
}

impl Files {
    pub(super) fn new() -> Files {
        Files { directory: TempDir::new().expect("a directory") }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("a file");
        path
    }

    /// A time at which all files are settled.
    pub(super) fn settled(&self) -> SystemTime {
        let modified = |name| fs::metadata(name).and_then(|file| file.modified());
        let files = fs::read_dir(self.path(""))
            .expect("a directory")
            .map(|file| file.expect("a file").path());
        files
            .map(|path| modified(path).expect("a time") + Duration::from_secs(1))
            .max()
            .expect("files")
    }

    /// Options of a server without clients' certificates.
    pub(super) fn server_options(&self, pair: &Pair) -> ServerOptions {
        ServerOptions {
            names: ServerNames::CLIENTS,
            certificate: self.write("server.pem", &pair.certificate),
            key: self.write("server.key", &pair.key),
            client_ca: None,
            client_auth: ClientAuth::None,
            ticket_keys: None,
        }
    }

    /// Options of a client with a certificate of its own, or without.
    pub(super) fn client_options(&self, ca: &Authority, pair: Option<&Pair>) -> ClientOptions {
        ClientOptions {
            names: Default::default(),
            ca: Some(self.write("ca.pem", &ca.pem)),
            certificate: pair.map(|pair| self.write("client.pem", &pair.certificate)),
            key: pair.map(|pair| self.write("client.key", &pair.key)),
            verify: Verify::Full,
            name: None,
        }
    }
}

/// A server that asks for certificates of `ca` as `auth` says.
pub(super) fn server(ca: &Authority, auth: ClientAuth) -> Server {
    let files = Files::new();
    let mut options = files.server_options(&ca.server());
    options.client_auth = auth;
    options.client_ca = Some(files.write("client-ca.pem", &ca.pem));
    Server::open(options).expect("a server")
}

/// A client that knows `ca`.
pub(super) fn client(ca: &Authority, pair: Option<&Pair>) -> Client {
    let files = Files::new();
    Client::open(files.client_options(ca, pair)).expect("a client")
}

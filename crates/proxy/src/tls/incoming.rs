//! The options of the listeners' TLS and of the admin pages' tokens, and warnings about them.

use std::sync::Arc;
use std::time::Duration;

use shunt_reactor::HandshakeLimits;
use shunt_tls::{ClientAuth, ServerNames, ServerOptions, TlsError};
use shunt_tls_upkeep::{
    ListenerHosts, ListenerOptions, Listeners, PagesExposure, TlsMetrics, TokenFile, server_options,
};
use shunt_wire::cql::envelope::{Header, append, opcode};
use shunt_wire::cql::message::{encode, error_code};

use crate::config::{Config, HttpAddress, Listen, ListenAddress, Tls};

/// The option with the tokens of the admin pages.
const ADMIN_TOKEN_FILE: &str = "admin_token_file";
/// Answer to a CQL client without TLS.
pub(super) const NO_TLS: &str =
    "this proxy requires TLS (tls = required): switch TLS on in the driver";

/// Options of TLS with clients. `None` if the configuration has no TLS, or lacks a file, which
/// [`Config::problems`] reports.
pub fn client_options(config: &Config) -> Option<ServerOptions> {
    if config.tls == Tls::Off {
        return None;
    }
    Some(ServerOptions {
        names: ServerNames::CLIENTS,
        certificate: config.tls_certificate.clone()?,
        key: config.tls_key.clone()?,
        client_ca: config.tls_client_ca.clone(),
        client_auth: config.tls_client_auth,
        ticket_keys: config.tls_ticket_keys.clone(),
    })
}

/// True if the admin pages have an address, as pages or as tables.
fn has_pages(config: &Config) -> bool {
    config.admin.is_some() || config.admin_cql.is_some()
}

fn admin_options(config: &Config) -> Option<ServerOptions> {
    let Config { admin_tls_certificate, admin_tls_key, admin_tls_client_ca, .. } = config;
    let files = [admin_tls_certificate, admin_tls_key, admin_tls_client_ca];
    has_pages(config).then(|| server_options(ServerNames::ADMIN, files)).flatten()
}

fn locks_http_options(config: &Config) -> Option<ServerOptions> {
    let files = [
        &config.locks_http_tls_certificate,
        &config.locks_http_tls_key,
        &config.locks_http_tls_client_ca,
    ];
    config.locks_http.as_ref().and_then(|_| server_options(ServerNames::LOCKS_HTTP, files))
}

/// Bounds on handshakes of clients.
pub fn handshake_limits(config: &Config) -> HandshakeLimits {
    HandshakeLimits {
        threads: config.tls_threads,
        time_max: Duration::from_millis(config.handshake_timeout_ms),
        ..HandshakeLimits::default()
    }
}

/// The options of all listeners' files.
fn listener_options(config: &Config) -> ListenerOptions {
    let tokens = config.admin_token_file.clone().filter(|_| has_pages(config));
    ListenerOptions {
        clients: client_options(config),
        client_refusal: (config.tls == Tls::Required).then_some(clear_text_refusal),
        admin: admin_options(config),
        locks_http: locks_http_options(config),
        tokens: tokens.map(|path| TokenFile { option: ADMIN_TOKEN_FILE, path }),
    }
}

/// Reads the files of the listeners.
///
/// # Errors
/// A file cannot be used; the text names it, its option and the remedy.
pub fn open_listeners(config: &Config, metrics: &Arc<TlsMetrics>) -> Result<Listeners, TlsError> {
    Listeners::open(listener_options(config), metrics)
}

/// Checks the files. Returns warnings.
///
/// # Errors
/// A file cannot be used.
pub fn check(config: &Config) -> Result<Vec<String>, TlsError> {
    let mut warnings = Vec::new();
    let idle = config.idle_tls();
    if !idle.is_empty() {
        warnings.push(format!("tls is off, so these have no effect: {}", idle.join(", ")));
    }
    warnings.extend(listener_options(config).check(&listener_hosts(config))?);
    warnings.extend(escape_from_certificates(config).map(str::to_owned));
    warnings.extend(config.identity.open_files());
    warnings.extend(open_admin(config));
    warnings.extend(open_admin_cql(config));
    warnings.extend(open_locks(config));
    Ok(warnings)
}

/// Names and addresses by which clients reach each listener, as far as options name them. The admin
/// tables have the certificate of the admin pages.
fn listener_hosts(config: &Config) -> ListenerHosts {
    let tables = match config.admin_cql {
        Some(ListenAddress::Tcp(Listen(listen))) => HttpAddress::from(listen).hosts(),
        _ => Vec::new(),
    };
    let hosts = |address: Option<&HttpAddress>| address.map(HttpAddress::hosts);
    let admin = config.admin.as_ref().and_then(|admin| admin.http.as_ref());
    ListenerHosts {
        clients: known_hosts(config),
        admin: hosts(admin).into_iter().flatten().chain(tables).collect(),
        locks_http: hosts(config.locks_http.as_ref()).unwrap_or_default(),
    }
}

/// Names and addresses by which clients reach this proxy, as far as options name them. None if it
/// has clients on any address of its host, or through balancers, and no address that drivers see.
fn known_hosts(config: &Config) -> Vec<String> {
    let listen = || config.listen.tcp.iter().map(|address| address.ip().to_canonical());
    let is_open = listen().any(|address| address.is_unspecified());
    if config.advertise.is_none() && (is_open || !config.proxy_protocol_from.is_empty()) {
        return Vec::new();
    }
    let advertised = config.advertise.map(|address| address.ip().to_canonical());
    let addresses = advertised.into_iter().chain(listen());
    let known: Vec<_> = addresses.filter(|address| !address.is_unspecified()).collect();
    let local = known.iter().any(|address| address.is_loopback()).then(|| "localhost".to_owned());
    let mut hosts: Vec<String> = known.iter().map(ToString::to_string).chain(local).collect();
    hosts.dedup();
    hosts
}

/// A warning about clients in clear text, which need no certificate although those with TLS do.
pub(super) fn escape_from_certificates(config: &Config) -> Option<&'static str> {
    let escapes = config.tls == Tls::Optional && config.tls_client_auth == ClientAuth::Required;
    escapes.then_some(
        "tls_client_auth: with tls = optional a client in clear text needs no certificate: set \
        tls = required as soon as all clients have TLS",
    )
}

/// A warning about admin pages that other machines can read.
fn open_admin(config: &Config) -> Option<String> {
    let exposure = PagesExposure {
        names: ServerNames::ADMIN,
        token_file: ADMIN_TOKEN_FILE,
        has_tls: config.admin_tls_certificate.is_some(),
        has_client_ca: config.admin_tls_client_ca.is_some(),
        has_tokens: config.admin_token_file.is_some(),
    };
    exposure.warning("admin", config.admin.as_ref()?.tcp()?)
}

/// A warning about logins for the admin tables that others can read.
fn open_admin_cql(config: &Config) -> Option<String> {
    let Some(ListenAddress::Tcp(Listen(listen))) = config.admin_cql else { return None };
    let is_open = !listen.ip().to_canonical().is_loopback();
    (is_open && config.admin_tls_certificate.is_none()).then(|| {
        format!(
            "admin_cql: other machines can reach {listen}, and passwords travel there in clear \
            text: give admin_tls_certificate with admin_tls_key"
        )
    })
}

/// A warning about logins for locks over HTTP that others can read.
fn open_locks(config: &Config) -> Option<String> {
    let listen = config.locks_http.as_ref()?.listen;
    let is_open = !listen.ip().to_canonical().is_loopback();
    (is_open && config.locks_http_tls_certificate.is_none()).then(|| {
        format!(
            "locks_http: other machines can reach {listen}, and logins travel there in clear text: \
            give locks_http_tls_certificate with locks_http_tls_key"
        )
    })
}

/// The ERROR frame for a client without TLS that has sent these leading bytes.
fn clear_text_refusal(head: &[u8]) -> Vec<u8> {
    refusal(head, NO_TLS)
}

/// The ERROR frame for a client that has sent these leading bytes. It has the version and stream id
/// of the client's request as far as they are known.
pub(crate) fn refusal(head: &[u8], why: &str) -> Vec<u8> {
    let version = head.first().copied().filter(|version| (3..=5).contains(version)).unwrap_or(4);
    let stream = match head {
        // Protocol v3 to v5, section 2: version, flags, stream.
        [3..=5, _, high, low, ..] => i16::from_be_bytes([*high, *low]).max(0),
        _ => 0,
    };
    let mut bytes = Vec::new();
    let header = Header::response(version, stream, opcode::ERROR);
    append(&mut bytes, header, |body| encode::error(body, error_code::PROTOCOL_ERROR, why));
    bytes
}

//! Log limits, warnings, and the files while they change.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rcgen::{CertificateParams, KeyPair};
use shunt_reactor::{Accepted, Security, SessionInfo};
use shunt_tls::{
    CertificateFile, Client, ClientAuth, ClientOptions, OptionNames, ServerNames, ServerOptions,
    Sessions, Verify,
};
use tempfile::TempDir;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::lines::Lines;
use crate::warnings::DAY_S;
use crate::{
    CHECK_INTERVAL, Listener, ListenerOptions, Listeners, ReloadResult, Reloader, ServerTls,
    TlsMetrics, TokenFile, expires_soon,
};

#[test]
fn each_reason_has_a_line_a_second_and_none_is_forgotten() {
    let (lines, start) = (Lines::default(), Instant::now());
    let (mut written, mut told) = (0, 0);
    for step in 0..1_000 {
        if let Some(suppressed) = lines.admit("one", start + step * Lines::INTERVAL / 100) {
            written += 1;
            told += 1 + suppressed;
        }
    }
    assert_eq!((written, lines.admit("another", start)), (10, Some(0)));
    assert_eq!(lines.overdue(start + 9 * Lines::INTERVAL), []);
    assert_eq!(lines.overdue(start + 20 * Lines::INTERVAL), [("one", 1_000 - told)]);
    assert_eq!(lines.overdue(start + 30 * Lines::INTERVAL), []);
}

/// A new certificate with its key, in PEM.
fn pair() -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
}

/// The files of a proxy.
struct Placed {
    directory: TempDir,
}

impl Placed {
    fn new() -> Self {
        let placed = Self { directory: tempfile::tempdir().expect("a directory") };
        placed.renew();
        placed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file whose writer is done for long.
    fn write(&self, name: &str, text: &str) {
        let mut file = File::create(self.path(name)).expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        file.set_modified(SystemTime::now() - CHECK_INTERVAL).expect("a time");
    }

    fn renew(&self) {
        let (certificate, key) = pair();
        self.write("tls.crt", &certificate);
        self.write("tls.key", &key);
    }

    fn options(&self) -> ServerOptions {
        ServerOptions {
            names: ServerNames::CLIENTS,
            certificate: self.path("tls.crt"),
            key: self.path("tls.key"),
            client_ca: None,
            client_auth: ClientAuth::None,
            ticket_keys: None,
        }
    }

    fn open(&self) -> (Arc<ServerTls>, Arc<TlsMetrics>) {
        let metrics = Arc::<TlsMetrics>::default();
        let tls = ServerTls::open(Listener::Clients, self.options(), None, Arc::clone(&metrics));
        (tls.expect("usable files"), metrics)
    }
}

/// A handshake in memory. Returns the session of the server.
fn handshake(client: &Client, tls: &ServerTls) -> SessionInfo {
    let (mut near, mut far) = (client.session("localhost"), Sessions::session(tls));
    let (mut to_far, mut to_near, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    while near.has_pending() || far.has_pending() {
        near.take_pending(&mut to_far);
        let opened = far.open(&mut to_far, &mut plain).expect("a handshake");
        to_far.drain(..opened.consumed);
        far.take_pending(&mut to_near);
        let opened = near.open(&mut to_near, &mut plain).expect("a handshake");
        to_near.drain(..opened.consumed);
    }
    assert!(!near.is_handshaking() && !far.is_handshaking());
    far.info().clone()
}

/// True if a handshake resumes an earlier session.
fn resumes(client: &Client, tls: &ServerTls) -> bool {
    handshake(client, tls).resumed
}

/// Collects the lines of the log, each as its fields.
#[derive(Clone, Default)]
struct LogLines(Arc<Mutex<Vec<String>>>);

impl Subscriber for LogLines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        struct Line(String);
        impl Visit for Line {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{field}={value:?} ");
            }
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().expect("no panic").push(line.0);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn the_log_has_the_name_that_a_client_asked_for() {
    let (tls, metrics) = Placed::new().open();
    let options = ClientOptions { verify: Verify::None, ..ClientOptions::default() };
    let session = handshake(&Client::open(options).expect("a client"), &tls);
    assert_eq!(session.server_name.as_deref(), Some("localhost"));
    let forged = SessionInfo { server_name: Some("a\nb".into()), ..session.clone() };
    let peer = ([192, 0, 2, 7], 1).into();
    let origin =
        Accepted { listener: 0, peer: shunt_reactor::ClientAddress::Tcp(peer), local: peer };
    let lines = LogLines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        Security::handshake_ended(&*tls, &origin, Ok(&session));
        Security::handshake_ended(&*tls, &origin, Ok(&forged));
    });
    let lines = lines.0.lock().expect("no panic");
    assert_eq!(lines.len(), 2);
    assert!(lines[0].contains("address=192.0.2.7:1") && lines[0].contains("name=\"localhost\""));
    assert!(lines[1].contains(r#"name="a\\nb""#), "{}", lines[1]);
    assert_eq!(metrics.handshakes_of(Listener::Clients).get(crate::HandshakeResult::Ok), 2);
}

#[test]
fn clients_resume_when_a_new_configuration_names_other_files() {
    let placed = Placed::new();
    let (tls, _) = placed.open();
    let options = ClientOptions { verify: Verify::None, ..ClientOptions::default() };
    let client = Client::open(options).expect("a client");
    assert!(!resumes(&client, &tls));
    let (certificate, key) = pair();
    placed.write("moved.crt", &certificate);
    placed.write("moved.key", &key);
    let moved = ServerOptions {
        certificate: placed.path("moved.crt"),
        key: placed.path("moved.key"),
        ..placed.options()
    };
    tls.apply(tls.prepare(Some(moved)).expect("usable files"));
    assert!(resumes(&client, &tls));
}

/// Counts of changed, unchanged and failed checks.
fn checks(metrics: &TlsMetrics) -> [u64; 3] {
    [ReloadResult::Changed, ReloadResult::Unchanged, ReloadResult::Failed]
        .map(|result| metrics.reloads.get(result))
}

fn digests(metrics: &TlsMetrics) -> Vec<String> {
    metrics.certificates().into_iter().map(|file| file.sha256).collect()
}

#[test]
fn the_files_of_every_listener_are_read_once_for_each_interval() {
    let placed = Placed::new();
    placed.write("tokens", "a-token-of-the-admin-pages\n");
    let admin = ServerOptions { names: ServerNames::ADMIN, ..placed.options() };
    let tokens = TokenFile { option: "admin_token_file", path: placed.path("tokens") };
    let options = ListenerOptions {
        clients: Some(placed.options()),
        admin: Some(admin),
        tokens: Some(tokens),
        ..ListenerOptions::default()
    };
    let metrics = Arc::<TlsMetrics>::default();
    let listeners = Listeners::open(options, &metrics).expect("usable files");
    let (first, start) = (digests(&metrics), Instant::now());
    placed.renew();
    placed.write("tokens", "another-token-of-the-admin-pages\n");
    for (intervals, expected) in [(0, [0, 0, 0]), (1, [3, 0, 0]), (1, [3, 0, 0]), (2, [3, 3, 0])] {
        listeners.tick(start + intervals * CHECK_INTERVAL);
        assert_eq!(checks(&metrics), expected, "after {intervals} intervals");
    }
    assert!(digests(&metrics).iter().all(|digest| !first.contains(digest)));
}

#[test]
fn files_that_cannot_be_used_are_reported_once_and_change_nothing() {
    let placed = Placed::new();
    let (tls, metrics) = placed.open();
    let (first, start) = (digests(&metrics), Instant::now());
    placed.write("tls.key", &pair().1);
    for minute in 1..=3 {
        tls.tick(start + minute * CHECK_INTERVAL);
        let error = tls.last_error().expect("an error");
        assert!(error.contains("does not belong to the certificate"), "{error}");
    }
    assert_eq!((checks(&metrics), digests(&metrics)), ([0, 0, 3], first));
    placed.renew();
    tls.tick(start + 4 * CHECK_INTERVAL);
    assert_eq!((checks(&metrics), tls.last_error()), ([1, 0, 3], None));
}

#[test]
fn certificates_that_expire_soon_are_warned_of() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
    let file = |days: i64| CertificateFile {
        usage: "clients",
        option: "tls_certificate",
        path: Path::new("tls.crt").to_owned(),
        expires_s: now + days * DAY_S + DAY_S / 2,
        subject: "CN=shunt".to_owned(),
        ..CertificateFile::default()
    };
    let soon = expires_soon(&file(3)).expect("a warning");
    assert!(soon.contains("CN=shunt expires in 3 days"), "{soon}");
    assert_eq!(expires_soon(&file(15)), None);
}

#[test]
fn connections_to_servers_use_new_certificates_and_keep_the_old_ones_if_those_are_no_good() {
    let placed = Placed::new();
    let options = ClientOptions {
        names: OptionNames::AGENT_FLAGS,
        ca: Some(placed.path("tls.crt")),
        certificate: Some(placed.path("tls.crt")),
        key: Some(placed.path("tls.key")),
        verify: Verify::Full,
        name: None,
    };
    let tls = Reloader::<Client>::open(options, Arc::default()).expect("usable files");
    let metrics = tls.metrics();
    let named = metrics.certificates().into_iter().map(|file| (file.usage, file.option));
    let named: Vec<_> = named.collect();
    assert_eq!(named, [("agents", "--agent-tls-ca"), ("agents", "--agent-tls-certificate")]);
    let first = digests(&metrics);
    tls.tick(Instant::now());
    assert_eq!(checks(&metrics), [0, 0, 0], "the files are not due");
    placed.renew();
    tls.tick(Instant::now() + CHECK_INTERVAL);
    assert_eq!(checks(&metrics), [1, 0, 0]);
    let second = digests(&metrics);
    assert_ne!(second, first);
    placed.write("tls.key", "no key");
    let fault = tls.reload().expect_err("no key").to_string();
    assert!(fault.contains("--agent-tls-key"), "{fault}");
    assert_eq!((checks(&metrics), digests(&metrics)), ([1, 0, 1], second));
}

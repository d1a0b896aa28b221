//! Refusals, warnings, and the files while they change.

use std::fs::{File, Permissions, set_permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rcgen::{CertificateParams, KeyPair};
use shunt_reactor::{NameKind, PeerName};
use shunt_tls::ClientAuth;
use shunt_tls_upkeep::{CHECK_INTERVAL, Listeners, ReloadResult, TlsMetrics};
use shunt_wire::cql::envelope::{Header, opcode};
use tempfile::TempDir;

use super::incoming::{NO_TLS, escape_from_certificates};
use super::*;
use crate::config::{
    Candidates, Config, HttpAddress, Identities, Identity, IdentityLogin, NodeCertificate,
    RolePassword, Secret, Switch, Tls,
};

#[test]
fn a_refusal_has_the_version_and_the_stream_of_the_request() {
    let header = |head: &[u8]| Header::decode(&refusal(head, NO_TLS)).expect("a header");
    for version in 3..=5 {
        let answer = header(&[version, 0, 1, 2, opcode::STARTUP]);
        assert_eq!((answer.version, answer.stream, answer.opcode), (version, 0x102, opcode::ERROR));
        assert_eq!(
            refusal(&[version], NO_TLS).len() as u32,
            9 + answer.length,
            "one byte is enough"
        );
    }
    for foreign in [&b"GET / HTTP/1.1"[..], b"\x42\0\0\0", b"\x01\0\0"] {
        assert_eq!((header(foreign).version, header(foreign).stream), (4, 0));
    }
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
        self.write_at(name, text, SystemTime::now() - CHECK_INTERVAL);
    }

    /// Writes a file as if at another time.
    fn write_at(&self, name: &str, text: &str, modified: SystemTime) {
        let mut file = File::create(self.path(name)).expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        file.set_permissions(Permissions::from_mode(0o600)).expect("a mode");
        file.set_modified(modified).expect("a time");
    }

    fn renew(&self) {
        let (certificate, key) = pair();
        self.write("tls.crt", &certificate);
        self.write("tls.key", &key);
    }

    fn config(&self) -> Config {
        Config {
            tls: Tls::Required,
            tls_certificate: Some(self.path("tls.crt")),
            tls_key: Some(self.path("tls.key")),
            ..Config::default()
        }
    }

    fn open(&self) -> (Listeners, Arc<TlsMetrics>) {
        let metrics = Arc::<TlsMetrics>::default();
        (open_listeners(&self.config(), &metrics).expect("usable files"), metrics)
    }
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
fn files_are_read_again_after_a_minute_and_at_a_reload() {
    let placed = Placed::new();
    let (tls, metrics) = placed.open();
    let (first, start) = (digests(&metrics), Instant::now());
    placed.renew();
    tls.tick(start);
    assert_eq!((checks(&metrics), digests(&metrics)), ([0; 3], first.clone()));
    tls.tick(start + CHECK_INTERVAL);
    assert_eq!(checks(&metrics), [1, 0, 0]);
    assert_ne!(digests(&metrics), first);
    tls.tick(start + CHECK_INTERVAL + CHECK_INTERVAL / 2);
    assert_eq!(checks(&metrics), [1, 0, 0], "the next check is not due");
    assert!(tls.reload().is_empty());
    assert_eq!(checks(&metrics), [1, 1, 0]);
}

#[test]
fn other_files_of_a_new_configuration_are_used_when_all_of_it_is_applied() {
    let placed = Placed::new();
    let (tls, metrics) = placed.open();
    let (certificate, key) = pair();
    placed.write("new.crt", &certificate);
    placed.write("new.key", &key);
    let moved = Config {
        tls_certificate: Some(placed.path("new.crt")),
        tls_key: Some(placed.path("new.key")),
        ..placed.config()
    };
    let missing = Config { tls_key: Some(placed.path("nowhere.key")), ..moved.clone() };
    let error = tls.prepare(client_options(&missing)).err().expect("a missing file").to_string();
    assert!(error.contains("nowhere.key"), "{error}");
    let prepared = tls.prepare(client_options(&moved)).expect("usable files");
    let path = |metrics: &TlsMetrics| metrics.certificates()[0].path.clone();
    assert_eq!(path(&metrics), placed.path("tls.crt"), "not applied yet");
    tls.apply(prepared);
    assert_eq!((path(&metrics), checks(&metrics)), (placed.path("new.crt"), [1, 0, 1]));
    tls.apply(tls.prepare(client_options(&moved)).expect("known files"));
    assert_eq!(checks(&metrics), [1, 0, 1], "nothing has changed");
}

#[test]
fn files_for_nodes_change_without_a_word_of_those_for_clients() {
    let placed = Placed::new();
    let (_clients, metrics) = placed.open();
    let nodes = |ca: &str| Config {
        node_tls: Switch::On,
        node_tls_ca: Some(placed.path(ca)),
        ..placed.config()
    };
    placed.write("ca.crt", &pair().0);
    let outgoing = Outgoing::open(&nodes("ca.crt"), &metrics).expect("usable files");
    let usages = || metrics.certificates().iter().map(|file| file.usage).collect::<Vec<_>>();
    assert_eq!(usages(), ["clients", "nodes"]);
    let (first, start) = (digests(&metrics), Instant::now());
    placed.write("ca.crt", &pair().0);
    outgoing.tick(start);
    assert_eq!(digests(&metrics), first);
    outgoing.tick(start + CHECK_INTERVAL);
    let second = digests(&metrics);
    assert_eq!((checks(&metrics), second[0] == first[0]), ([1, 0, 0], true));
    assert_ne!(second[1], first[1]);

    placed.write("broken.crt", "no certificate");
    let refused = outgoing.prepare(&nodes("broken.crt")).err().expect("it cannot be used");
    assert!(refused.to_string().starts_with("node_tls_ca "), "{refused}");
    assert_eq!(digests(&metrics), second);
    placed.write("other.crt", &pair().0);
    outgoing.apply(outgoing.prepare(&nodes("other.crt")).expect("usable files"));
    assert_eq!((checks(&metrics), usages()), ([2, 0, 1], vec!["clients", "nodes"]));
    assert_ne!(digests(&metrics)[1], second[1]);
}

#[test]
fn links_are_renewed_for_other_content_alone() {
    let placed = Placed::new();
    let with = |ca: &str, node_tls_name: Option<&str>| Config {
        node_tls: Switch::On,
        node_tls_ca: Some(placed.path(ca)),
        node_tls_name: node_tls_name.map(str::to_owned),
        ..Config::default()
    };
    let ca = pair().0;
    placed.write("ca.crt", &ca);
    placed.write("copy.crt", &ca);
    let outgoing = Outgoing::open(&with("ca.crt", None), &Arc::default()).expect("usable files");
    let apply = |config: Config| {
        outgoing.apply(outgoing.prepare(&config).expect("usable files"));
        outgoing.links.current()
    };
    outgoing.reload();
    assert_eq!(apply(with("copy.crt", None)), 0, "the content is the same");
    assert_eq!(apply(with("copy.crt", Some("node.example"))), 1);
    assert_eq!(apply(with("copy.crt", Some("node.example"))), 1);
    placed.write("copy.crt", &pair().0);
    assert_eq!(outgoing.links.current(), 1, "the files are not read yet");
    outgoing.reload();
    assert_eq!(outgoing.links.current(), 2);
    placed.write("copy.crt", "no certificate");
    assert_eq!(outgoing.reload().len(), 1);
    assert_eq!(outgoing.links.current(), 2);
}

#[test]
fn options_for_servers_that_have_no_effect_are_told() {
    let config = Config {
        node_tls_ca: Some("nowhere".into()),
        fleet_tls_ca: Some("nowhere".into()),
        fleet_tls_name: Some("shunt.example".to_owned()),
        ..Config::default()
    };
    let warnings = check_outgoing(&config).expect("nothing is read");
    assert_eq!(
        warnings,
        [
            "node_tls is off, so these have no effect: node_tls_ca",
            "fleet_tls is off, so these have no effect: fleet_tls_ca, fleet_tls_name"
        ]
    );
    let error = check_outgoing(&Config { node_tls: Switch::On, ..config }).expect_err("no file");
    assert!(error.to_string().starts_with("node_tls_ca nowhere: "), "{error}");
}

#[test]
fn clients_that_escape_from_certificates_are_warned_of() {
    let of = |tls, tls_client_auth| {
        let config = Config { tls, tls_client_auth, ..Config::default() };
        escape_from_certificates(&config).is_some()
    };
    assert!(of(Tls::Optional, ClientAuth::Required));
    assert!(!of(Tls::Required, ClientAuth::Required) && !of(Tls::Optional, ClientAuth::Optional));
}

#[test]
fn a_check_warns_of_options_without_effect() {
    let placed = Placed::new();
    assert_eq!(check(&placed.config()), Ok(Vec::new()));
    let off = check(&Config { tls: Tls::Off, ..placed.config() }).expect("no file is read");
    assert!(off.len() == 1 && off[0].contains("tls_certificate, tls_key"), "{off:?}");
}

#[test]
fn a_certificate_for_other_hosts_is_warned_of() {
    let placed = Placed::new();
    let warnings = |listen: &str, advertise: Option<&str>| {
        let address = |text: &str| text.parse::<std::net::SocketAddr>().expect("an address");
        let mut config = Config { advertise: advertise.map(address), ..placed.config() };
        config.listen.tcp = vec![address(listen)];
        check(&config).expect("usable files")
    };
    assert_eq!(warnings("127.0.0.1:9042", None), Vec::<String>::new(), "it is for localhost");
    assert_eq!(warnings("0.0.0.0:9042", None), Vec::<String>::new(), "clients use any address");
    let warned = |hosts: &str| {
        format!(
            "tls_certificate {}: the certificate is for localhost, and clients reach {hosts}: \
             unless they connect by another of its names, add that to subjectAltName",
            placed.path("tls.crt").display()
        )
    };
    assert_eq!(warnings("10.0.9.1:9042", None), [warned("10.0.9.1")]);
    assert_eq!(warnings("0.0.0.0:9042", Some("10.9.9.9:9042")), [warned("10.9.9.9")]);
    assert_eq!(warnings("[::1]:9042", Some("10.9.9.9:9042")), Vec::<String>::new());
}

/// A listener that its clients reach by a name of the certificate.
fn by_name(listen: &str) -> HttpAddress {
    HttpAddress { listen: listen.parse().expect("an address"), names: vec!["localhost".to_owned()] }
}

#[test]
fn certificates_of_listeners_for_other_hosts_are_warned_of() {
    let placed = Placed::new();
    let warnings = |listen: &str| {
        let address = HttpAddress::from(listen.parse::<std::net::SocketAddr>().expect("one"));
        placed.write("token", "a-token-of-20-letters");
        let config = Config {
            admin: Some(address.clone().into()),
            admin_tls_certificate: Some(placed.path("tls.crt")),
            admin_tls_key: Some(placed.path("tls.key")),
            admin_token_file: Some(placed.path("token")),
            locks_http: Some(address),
            locks_http_tls_certificate: Some(placed.path("tls.crt")),
            locks_http_tls_key: Some(placed.path("tls.key")),
            ..Config::default()
        };
        check(&config).expect("usable files")
    };
    let [admin, locks] = &warnings("10.0.0.1:9190")[..] else { panic!("two certificates") };
    assert!(admin.starts_with("admin_tls_certificate") && admin.contains("clients reach 10.0.0.1"));
    assert!(locks.starts_with("locks_http_tls_certificate"), "{locks}");
    assert!(warnings("0.0.0.0:9190").is_empty(), "clients may reach it by any name");
    assert!(warnings("127.0.0.1:9190").is_empty(), "the certificate is for localhost");
}

#[test]
fn admin_pages_that_others_can_read_are_warned_of() {
    let placed = Placed::new();
    placed.write("token", "a-token-of-20-letters");
    let admin = |listen: &str, tls: bool, token: bool, ca: bool| {
        let file = |is_given: bool, name: &str| is_given.then(|| placed.path(name));
        let config = Config {
            admin: Some(by_name(listen).into()),
            admin_tls_certificate: file(tls, "tls.crt"),
            admin_tls_key: file(tls, "tls.key"),
            admin_tls_client_ca: file(ca, "tls.crt"),
            admin_token_file: file(token, "token"),
            ..Config::default()
        };
        assert_eq!(config.problems().iter().filter(|one| one.key.starts_with("admin")).count(), 0);
        check(&config).expect("usable files").join(" ")
    };
    assert_eq!(admin("127.0.0.1:9180", false, false, false), "");
    assert!(admin("10.0.0.1:9180", false, false, false).contains("reads metrics and status"));
    assert!(admin("10.0.0.1:9180", true, false, false).contains("give admin_token_file or"));
    assert!(admin("10.0.0.1:9180", false, true, false).contains("travels in clear text"));
    assert_eq!(admin("10.0.0.1:9180", true, true, false), "");
    assert_eq!(admin("10.0.0.1:9180", true, false, true), "");
}

#[test]
fn locks_over_http_that_others_can_read_are_warned_of() {
    let placed = Placed::new();
    let warnings = |listen: &str, tls: bool| {
        let file = |name: &str| tls.then(|| placed.path(name));
        let config = Config {
            locks_http: Some(by_name(listen)),
            locks_http_tls_certificate: file("tls.crt"),
            locks_http_tls_key: file("tls.key"),
            ..Config::default()
        };
        check(&config).expect("usable files").join(" ")
    };
    assert!(warnings("10.0.0.1:9190", false).contains("logins travel there in clear text"));
    assert_eq!(warnings("10.0.0.1:9190", true), "");
    assert_eq!(warnings("127.0.0.1:9190", false), "");
}

#[test]
fn a_check_warns_of_secrets_that_everyone_can_read() {
    let placed = Placed::new();
    placed.write("token", "a-token-of-the-admin-pages");
    placed.write("keys", &format!("{}\n", "A".repeat(64)));
    placed.write("ca.crt", &pair().0);
    let config = Config {
        admin: Some(std::net::SocketAddr::from(([127, 0, 0, 1], 9180)).into()),
        admin_token_file: Some(placed.path("token")),
        tls_ticket_keys: Some(placed.path("keys")),
        node_tls: Switch::On,
        node_tls_ca: Some(placed.path("ca.crt")),
        node_tls_certificate: Some(placed.path("tls.crt")),
        node_tls_key: Some(placed.path("tls.key")),
        fleet_tls: Switch::On,
        fleet_tls_ca: Some(placed.path("ca.crt")),
        ..placed.config()
    };
    let warnings = || [check(&config), check_outgoing(&config)].map(|found| found.expect("usable"));
    assert_eq!(warnings(), [Vec::<String>::new(), Vec::new()]);
    for name in ["token", "keys", "tls.key", "tls.crt", "ca.crt"] {
        set_permissions(placed.path(name), Permissions::from_mode(0o644)).expect("a mode");
    }
    let warned = |option: &str, name: &str| {
        let path = placed.path(name);
        format!("{option} {}: other users have access (mode 644); run chmod 600", path.display())
    };
    let [incoming, outgoing] = warnings();
    assert_eq!(
        incoming,
        [
            warned("tls_key", "tls.key"),
            warned("tls_ticket_keys", "keys"),
            warned("admin_token_file", "token")
        ]
    );
    assert_eq!(outgoing, [warned("node_tls_key", "tls.key")]);
}

/// The identity of the file, which shows `shop.crt` to nodes.
fn identity_config(placed: &Placed) -> Config {
    let (certificate, key) = (placed.path("shop.crt"), placed.path("shop.key"));
    let shown = NodeCertificate { certificate, key, sessions: None };
    let name = PeerName::new(NameKind::CommonName, "shop");
    let identity = Identity { name, login: IdentityLogin::Certificate(shown) };
    Config {
        node_tls: Switch::On,
        node_tls_ca: Some(placed.path("tls.crt")),
        identity: Identities(vec![Arc::new(identity)]),
        ..placed.config()
    }
}

impl Placed {
    fn renew_shop(&self, name: &str) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        self.write("shop.key", &key.serialize_pem());
        self.write("shop.crt", &params.self_signed(&key).expect("a certificate").pem());
    }
}

#[test]
fn certificates_of_identities_change_with_their_files() {
    let placed = Placed::new();
    placed.renew_shop("a");
    let mut config = identity_config(&placed);
    assert_eq!(config.read_identities(), []);
    let (metrics, start) = (Arc::<TlsMetrics>::default(), Instant::now());
    let mut files = IdentityFiles::new(&config, Arc::clone(&metrics));
    let shown = |metrics: &TlsMetrics| -> Vec<_> {
        let files = metrics.certificates();
        files.into_iter().map(|file| (file.usage, file.path)).collect()
    };
    assert_eq!(shown(&metrics), [("identities", placed.path("shop.crt"))]);
    let mut turn = 0;
    let mut look = |config: &Config| {
        turn += 1;
        files.tick(config, start + CHECK_INTERVAL * 2 * turn, SystemTime::now())
    };
    assert!(look(&config).is_none(), "nothing has changed");
    placed.renew_shop("a");
    let renewed = Config { identity: look(&config).expect("a new one"), ..config.clone() };
    let rights =
        |one: &Config, other: &Config| one.identity.0[0].has_rights_of(&other.identity.0[0]);
    assert!(rights(&renewed, &config));
    assert!(look(&renewed).is_none());
    placed.renew_shop("b");
    let other = Config { identity: look(&renewed).expect("a new one"), ..config };
    assert!(!rights(&other, &renewed));
    // Neither half of a pair, nor a key that is gone, takes the login away.
    placed.write("shop.key", &KeyPair::generate().expect("a key").serialize_pem());
    assert!(look(&other).is_none());
    std::fs::remove_file(placed.path("shop.key")).expect("removed");
    assert!(look(&other).is_none());
    assert_eq!(checks(&metrics), [2, 2, 2]);
}

/// A reload reads the configuration anew, and may come between the two writes of a pair.
#[test]
fn a_reload_waits_for_the_files_of_an_identity_too() {
    let placed = Placed::new();
    placed.renew_shop("a");
    let mut before = identity_config(&placed);
    assert_eq!(before.read_identities(), []);
    placed.renew_shop("b");
    File::options()
        .append(true)
        .open(placed.path("shop.crt"))
        .and_then(|file| file.set_modified(SystemTime::now()))
        .expect("a file that somebody is perhaps still writing");
    let mut after = identity_config(&placed);
    after.identity.adopt_logins(&before.identity);
    assert_eq!(after.read_identities(), []);
    assert!(after.identity == before.identity);
    placed.renew_shop("b");
    assert_eq!(after.read_identities(), []);
    assert!(!after.identity.0[0].has_rights_of(&before.identity.0[0]));
}

const SECOND: Duration = Duration::from_secs(1);

/// A configuration whose identity has this role, and its password in a file.
fn password_config(placed: &Placed, username: &str) -> Config {
    let role = RolePassword {
        username: username.to_owned(),
        file: placed.path("password"),
        password: Secret::new(""),
    };
    let name = PeerName::new(NameKind::CommonName, "shop");
    let identity = Identity { name, login: IdentityLogin::Password(role) };
    Config { identity: Identities(vec![Arc::new(identity)]), ..placed.config() }
}

fn password(identities: &Identities) -> &str {
    match &identities.0[0].login {
        IdentityLogin::Password(role) => role.password.reveal(),
        IdentityLogin::Certificate(other) => panic!("{other:?}"),
    }
}

/// A program may write the file in place, and half a password looks whole.
#[test]
fn a_new_password_counts_once_its_file_is_a_second_old() {
    let placed = Placed::new();
    let mut config = password_config(&placed, "shop");
    placed.write("password", "old");
    assert_eq!(config.read_identities(), []);
    let mut files = IdentityFiles::new(&config, Arc::default());
    files.advance();
    let (start, clock) = (Instant::now(), SystemTime::now());
    let write =
        |text: &str, second: u32| placed.write_at("password", text, clock + second * SECOND);
    let mut look = |config: &Config, second: u32| {
        files.tick(config, start + second * SECOND, clock + second * SECOND)
    };
    for (second, text) in (0..).zip(["new-sec", "", "new-secret"]) {
        write(text, second);
        assert_eq!(look(&config, second), None, "somebody is perhaps still writing it");
    }
    config.identity = look(&config, 3).expect("the next look comes soon");
    assert_eq!(password(&config.identity), "new-secret");

    // The same content in a file that is written again and again is whole.
    for second in 100..103 {
        write("steady", second);
        let read = look(&config, second);
        assert_eq!(read.is_some(), second == 101);
        config.identity = read.unwrap_or(config.identity);
    }
    assert_eq!(password(&config.identity), "steady");

    // What it had before does not count when it comes back.
    for (second, text) in (200..).zip(["one", "two", "one", "two"]) {
        write(text, second);
        assert_eq!(look(&config, second), None);
    }
    assert!(look(&config, 204).is_some_and(|read| password(&read) == "two"));
}

/// A reload reads the file at any time.
#[test]
fn a_reload_keeps_a_password_until_the_new_ones_file_is_settled() {
    let placed = Placed::new();
    let mut before = password_config(&placed, "shop");
    placed.write("password", "old");
    assert_eq!(before.read_identities(), []);
    let clock = SystemTime::now();
    placed.write_at("password", "half", clock);
    let reloaded = |username: &str| {
        let mut after = password_config(&placed, username);
        assert_eq!(after.read_identities(), [], "the first password counts at any age");
        after.identity.adopt_logins(&before.identity);
        after
    };
    let (after, other) = (reloaded("shop"), reloaded("other"));
    let read = |config: &Config, clock| {
        config.identity.read_again(config, clock, &mut Candidates::default())
    };
    let reading = read(&after, clock);
    assert_eq!((password(&reading.identities), reading.unsettled.len()), ("old", 1));
    assert_eq!(password(&read(&after, clock + SECOND).identities), "half");
    assert_eq!(password(&read(&other, clock).identities), "half", "it is not the other role's");

    placed.write_at("password", "\n", clock);
    let reading = read(&after, clock);
    assert_eq!((reading.faults.len(), reading.unsettled.len()), (0, 1));
    let reading = read(&after, clock + SECOND);
    assert_eq!((password(&reading.identities), reading.unsettled.len()), ("old", 0));
    assert!(reading.faults[0].contains("the first line is empty"), "{:?}", reading.faults);
}

#[test]
fn rules_for_nodes_hold_for_certificates_of_identities_too() {
    let placed = Placed::new();
    placed.renew_shop("a");
    let mut config = identity_config(&placed);
    assert_eq!(config.read_identities(), []);
    let before = config.identity.clone();
    config.node_tls_ca = Some(placed.path("other.crt"));
    let problems = config.read_identities();
    assert!(problems[0].message.contains("node_tls_ca ") && config.identity == before);
    placed.write("other.crt", &pair().0);
    assert_eq!(config.read_identities(), []);
    assert!(config.identity != before, "new sessions verify by the other CA");
    assert!(config.identity.0[0].has_rights_of(&before.0[0]));
}

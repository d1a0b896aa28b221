//! Identities: how the proxy logs in to nodes for clients that a certificate identifies
//! (`[[identity]]` of the file).
//!
//! An identity has the name that a client's certificate must carry, and a
//! [login](super::identity_login) for the nodes. [`crate::client::certificate`] finds the identity
//! of a client.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::SystemTime;

use shunt_reactor::PeerName;
use shunt_tls::{CertificateFile, ClientAuth, ClientOptions, OptionNames, Renewed, SubjectDigest};

use super::certificate_name::name_from;
use super::identity_login::{
    CERTIFICATE_KEYS, IdentityLogin, NodeCertificate, NodeSessions, PASSWORD_KEYS,
};
use super::kinds::{Readable, Written};
use super::option::{AsText, MaybeNumber};
use super::options::Config;
use super::role_password::Candidates;
use super::validate::{Findings, Problem};
use super::values::{Switch, Tls};
use crate::limits;

/// Lines of an example.
pub(super) const EXAMPLE: [&str; 3] = [
    r#"match = "spiffe://example/shop""#,
    r#"username = "shop""#,
    r#"password_file = "/etc/shunt/shop-password""#,
];

/// One identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name that a client's certificate must carry.
    pub name: PeerName,
    /// The login for the nodes.
    pub login: IdentityLogin,
}

impl Identity {
    /// True if clients of `other` have the rights of this identity's clients.
    pub fn has_rights_of(&self, other: &Identity) -> bool {
        self.name == other.name && self.login.has_rights_of(&other.login)
    }

    fn from_written(written: &Written) -> Result<Self, String> {
        let Written::Table(entries) = written else {
            return Err(format!("expected a table, found {written}"));
        };
        let is_known =
            |key: &str| key == "match" || [PASSWORD_KEYS, CERTIFICATE_KEYS].concat().contains(&key);
        if let Some((unknown, _)) = entries.iter().find(|(key, _)| !is_known(key)) {
            return Err(format!(
                "unknown key `{unknown}`: an identity has match and either {} or {}; put options of \
                the proxy before the first [[identity]]",
                PASSWORD_KEYS.join(" and "),
                CERTIFICATE_KEYS.join(" and ")
            ));
        }
        let text = |key: &str| match entries.iter().find(|(known, _)| known == key) {
            Some((_, Written::Text(text))) if text.len() <= limits::IDENTITY_NAME_BYTES_MAX => {
                Ok(text.clone())
            }
            Some((_, Written::Text(_))) => {
                Err(format!("`{key}` is longer than {} bytes", limits::IDENTITY_NAME_BYTES_MAX))
            }
            Some((_, other)) => Err(format!("`{key}`: expected text in quotes, found {other}")),
            None => Err(format!("`{key}` is missing")),
        };
        let name = name_from("match", &text("match")?)?;
        let keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
        Ok(Self { name, login: IdentityLogin::from_table(&keys, text)? })
    }
}

/// Mode bits that give access to all users of the host.
const OTHERS: u32 = 0o007;

/// The identities, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identities(pub Vec<Arc<Identity>>);

/// Names and roles. Passwords and their files stay unsaid.
impl AsText for Identities {
    fn as_text(&self) -> Option<String> {
        let each = self.0.iter();
        let texts = each.map(|identity| format!("{} as {}", identity.name, identity.login));
        let texts: Vec<String> = texts.collect();
        (!texts.is_empty()).then(|| texts.join(","))
    }
}

impl Identities {
    /// The first identity whose name is among those of a certificate.
    pub fn of(&self, names: &[PeerName]) -> Option<&Arc<Identity>> {
        self.0.iter().find(|identity| names.contains(&identity.name))
    }

    /// The certificates that identities show to nodes.
    fn certificates(&self) -> impl Iterator<Item = &NodeCertificate> {
        self.0.iter().filter_map(|identity| identity.login.certificate())
    }

    /// True if an identity shows a certificate to nodes.
    pub fn has_certificates(&self) -> bool {
        self.certificates().next().is_some()
    }

    /// Files of the certificates for nodes, each once.
    pub fn certificate_files(&self) -> Vec<CertificateFile> {
        let mut files: Vec<CertificateFile> = Vec::new();
        let sessions = self.certificates().filter_map(|certificate| certificate.sessions.as_ref());
        for file in sessions.flat_map(|sessions| sessions.files()) {
            // `node_tls` reports the CA itself.
            let is_own = file.option == OptionNames::IDENTITIES.certificate;
            if is_own && files.iter().all(|known| known.path != file.path) {
                files.push(file);
            }
        }
        files
    }

    /// Warnings about the files of the certificates for nodes.
    pub fn certificate_warnings(&self) -> Vec<String> {
        let sessions = self.certificates().filter_map(|certificate| certificate.sessions.as_ref());
        sessions.flat_map(|sessions| sessions.warnings()).collect()
    }

    /// Maker of this identity's TLS sessions, and the id of their content; `None` once the identity
    /// has another certificate.
    pub(crate) fn sessions_of(
        &self,
        name: &str,
        subject: SubjectDigest,
    ) -> Option<(Arc<dyn NodeSessions>, u64)> {
        let identity = self.0.iter().find(|identity| identity.name.to_string() == name)?;
        let sessions = identity.login.certificate()?.sessions.as_ref()?;
        let number = sessions.content().first_chunk().copied().map_or(0, u64::from_be_bytes);
        (sessions.subject() == Some(subject)).then(|| (Arc::clone(sessions), number))
    }

    /// A warning for each password file that anyone but its owner and group has access to.
    pub fn open_files(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(|identity| {
            let IdentityLogin::Password(role) = &identity.login else { return None };
            let mode = fs::metadata(&role.file).ok()?.mode() & 0o777;
            let file = role.file.display();
            (mode & OTHERS != 0).then(|| {
                format!(
                    "password_file {file}: other users have access (mode {mode:o}); run chmod 600"
                )
            })
        })
    }

    /// Adopts the passwords of former identities with the same role, and the sessions of those with
    /// the same files. The next reading keeps them until the files are settled: somebody is perhaps
    /// still writing these.
    pub fn adopt_logins(&mut self, former: &Identities) {
        for identity in &mut self.0 {
            let known = former.0.iter().find(|former| former.name == identity.name);
            let Some(known) = known else { continue };
            match (&mut Arc::make_mut(identity).login, &known.login) {
                (IdentityLogin::Password(own), IdentityLogin::Password(known))
                    if own.username == known.username =>
                {
                    own.password.clone_from(&known.password);
                }
                (IdentityLogin::Certificate(own), IdentityLogin::Certificate(known))
                    if (&own.certificate, &own.key) == (&known.certificate, &known.key) =>
                {
                    own.sessions.clone_from(&known.sessions);
                }
                _ => {}
            }
        }
    }

    /// Reads the files of the identities again. An identity keeps its login if a file cannot be
    /// used, or is not settled. `clock` is the time by which the age of files counts.
    pub(crate) fn read_again(
        &self,
        config: &Config,
        clock: SystemTime,
        candidates: &mut Candidates,
    ) -> Reading {
        let (mut faults, mut unsettled) = (Vec::new(), Vec::new());
        candidates.begin_reading();
        let rules = (config.node_tls == Switch::On).then(|| ClientOptions {
            ca: config.node_tls_ca.clone(),
            verify: config.node_tls_verify,
            name: config.node_tls_name.clone(),
            ..ClientOptions::default()
        });
        let read = self.0.iter().enumerate().map(|(index, identity)| {
            match identity.login.renewed(rules.as_ref(), clock, candidates) {
                Ok(Renewed::Changed(login)) => {
                    return Arc::new(Identity { name: identity.name.clone(), login });
                }
                Ok(Renewed::Unchanged) => {}
                Ok(Renewed::Unsettled(file)) => {
                    unsettled.push(numbered(index, &file.to_string()));
                }
                Err(why) => faults.push(numbered(index, &why.to_string())),
            }
            Arc::clone(identity)
        });
        let identities = Self(read.collect());
        Reading { identities, faults, unsettled }
    }
}

/// The result of [`Identities::read_again`].
pub(crate) struct Reading {
    /// The identities, with the logins that the files have now.
    pub(crate) identities: Identities,
    /// A message for each file that cannot be used.
    pub(crate) faults: Vec<String>,
    /// A message for each file that somebody is perhaps still writing. With any of them, the files
    /// must be read again soon.
    pub(crate) unsettled: Vec<String>,
}

fn numbered(index: usize, why: &str) -> String {
    format!("[[identity]] number {}: {why}", index + 1)
}

impl Readable for Identities {
    const IS_LIST: bool = true;

    fn read(written: &Written, faults: &mut Vec<String>) -> Option<Self> {
        let Written::List(items) = written else {
            faults.push("expected tables, each below a line [[identity]]".to_owned());
            return None;
        };
        let mut all = Vec::new();
        for (index, item) in items.iter().enumerate() {
            match Identity::from_written(item) {
                Ok(identity) => all.push(Arc::new(identity)),
                Err(why) => faults.push(numbered(index, &why)),
            }
        }
        Some(Self(all))
    }
}

impl MaybeNumber for Identities {}

/// First part of the names of Cassandra's authenticators that accept a certificate as the login.
const MUTUAL_TLS: &str = "MutualTls";

/// True if nodes of this authenticator accept the certificate of a connection as its login.
pub(crate) fn takes_certificates(authenticator: &str) -> bool {
    authenticator.rsplit('.').next().unwrap_or_default().starts_with(MUTUAL_TLS)
}

impl Config {
    /// True if nodes of this authenticator would accept the proxy's own certificate as the login of
    /// a client that has no certificate of its own. A node that asks for no login has perhaps
    /// accepted the certificate. The proxy assumes this once an identity has a certificate.
    pub(crate) fn lends_certificate(&self, authenticator: Option<&str>) -> bool {
        let takes =
            authenticator.map_or_else(|| self.identity.has_certificates(), takes_certificates);
        takes && self.node_tls_certificate.is_some()
    }

    /// Reads the files of the identities. A login that was never read counts whatever the age of
    /// its files.
    pub fn read_identities(&mut self) -> Vec<Problem> {
        let reading = self.identity.read_again(self, SystemTime::now(), &mut Candidates::default());
        let Reading { identities, faults, .. } = reading;
        self.identity = identities;
        let problem = |message| Problem { key: "identity", message };
        faults.into_iter().map(problem).collect()
    }

    /// Checks that identities have clients with certificates, and differ.
    pub(super) fn check_identities(&self, found: &mut Findings) {
        let identities = &self.identity.0;
        if identities.is_empty() {
            return;
        }
        let most = limits::IDENTITIES_MAX;
        if identities.len() > most {
            found.add("identity", format!("{} are too many: {most} are allowed", identities.len()));
        }
        if self.tls_client_ca.is_none() {
            found.add(
                "identity",
                "an identity needs clients' certificates: set tls_client_ca, and set \
                tls_client_auth = required or optional",
            );
        } else if self.tls != Tls::Off && self.tls_client_auth == ClientAuth::None {
            found.add(
                "identity",
                "clients are not asked for a certificate: set tls_client_auth = required or optional",
            );
        }
        for (index, identity) in identities.iter().enumerate() {
            if identities[..index].iter().any(|former| former.name == identity.name) {
                let why = format!(
                    "an earlier identity already has `{}`; remove one of the two",
                    identity.name
                );
                found.add("identity", numbered(index, &why));
            }
        }
        self.check_certificates(found);
    }

    /// Checks that the proxy can show the identities' certificates.
    fn check_certificates(&self, found: &mut Findings) {
        let mut identities = self.identity.0.iter();
        let Some(index) = identities.position(|identity| identity.login.certificate().is_some())
        else {
            return;
        };
        if self.node_tls == Switch::Off {
            let why = "the proxy can show its certificate only over TLS: set node_tls = on, or set \
                username and password_file";
            found.add("identity", numbered(index, why));
        }
        if self.fleet.is_some() {
            let why = "a proxy of a fleet logs in to other proxies with its client's password, and \
                this identity has none: set username and password_file, or remove fleet";
            found.add("identity", numbered(index, why));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use shunt_reactor::NameKind;

    use super::super::role_password::RolePassword;
    use super::*;
    use crate::tls::IdentityFiles;

    fn table(entries: &[(&str, &str)]) -> Written {
        let text = |text: &str| Written::Text(text.to_owned());
        Written::Table(
            entries.iter().map(|(key, value)| ((*key).to_owned(), text(value))).collect(),
        )
    }

    fn read(tables: Vec<Written>) -> (Option<Identities>, Vec<String>) {
        let mut faults = Vec::new();
        (Identities::read(&Written::List(tables), &mut faults), faults)
    }

    fn identity(name: &str, username: &str) -> Written {
        table(&[("match", name), ("username", username), ("password_file", "/nowhere")])
    }

    fn role(identity: &Identity) -> &RolePassword {
        match &identity.login {
            IdentityLogin::Password(role) => role,
            IdentityLogin::Certificate(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_form_of_a_name_says_its_kind() {
        for (text, kind, name) in [
            ("spiffe://example/shop", NameKind::Uri, "spiffe://example/shop"),
            ("urn:uuid:7", NameKind::Uri, "urn:uuid:7"),
            ("sip:ann@example", NameKind::Uri, "sip:ann@example"),
            ("ann@example", NameKind::Email, "ann@example"),
            ("shop.example", NameKind::Dns, "shop.example"),
            ("CN=shop", NameKind::CommonName, "shop"),
            ("CN=spiffe://example/shop", NameKind::CommonName, "spiffe://example/shop"),
        ] {
            assert_eq!(name_from("match", text), Ok(PeerName::new(kind, name)), "{text}");
        }
        for wrong in ["", "CN=", "*.example", "spiffe://example/*"] {
            assert!(name_from("match", wrong).is_err(), "{wrong}");
        }
    }

    /// A certificate's owner chooses its common name more freely than its alternative names.
    #[test]
    fn a_name_of_another_kind_does_not_match() {
        let (found, faults) = read(vec![
            identity("spiffe://example/shop", "shop"),
            identity("CN=billing", "billing"),
        ]);
        assert_eq!(faults, Vec::<String>::new());
        let identities = found.expect("identities");
        let role = |kind, text| {
            let found = identities.of(&[PeerName::new(kind, text)])?;
            Some(self::role(found).username.clone())
        };
        assert_eq!(role(NameKind::Uri, "spiffe://example/shop").as_deref(), Some("shop"));
        assert_eq!(role(NameKind::CommonName, "billing").as_deref(), Some("billing"));
        for (kind, text) in [
            (NameKind::CommonName, "spiffe://example/shop"),
            (NameKind::Dns, "spiffe://example/shop"),
            (NameKind::Dns, "CN=billing"),
            (NameKind::Uri, "billing"),
            (NameKind::Uri, "spiffe://example/shop/"),
            (NameKind::Uri, "spiffe://example/Shop"),
            (NameKind::Uri, "spiffe://example/shop\0"),
        ] {
            assert_eq!(role(kind, text), None, "{text}");
        }
    }

    #[test]
    fn the_first_that_matches_wins() {
        let (found, _) = read(vec![identity("CN=shop", "first"), identity("b.example", "second")]);
        let names = [
            PeerName::new(NameKind::Dns, "b.example"),
            PeerName::new(NameKind::CommonName, "shop"),
        ];
        let found = found.expect("identities");
        assert_eq!(role(found.of(&names).expect("one")).username, "first");
    }

    #[test]
    fn faults_say_which_identity_and_why() {
        let long = "x".repeat(limits::IDENTITY_NAME_BYTES_MAX + 1);
        for (wrong, words) in [
            (table(&[("match", "CN=a")]), "`username` is missing"),
            (table(&[("username", "a"), ("password_file", "f")]), "`match` is missing"),
            (table(&[("match", "CN=a"), ("cores", "2")]), "unknown key `cores`"),
            (table(&[("match", "CN=a"), ("username", "a")]), "`password_file` is missing"),
            (identity(&long, "a"), "`match` is longer than"),
            (identity("CN=a", ""), "`username` must not be empty"),
            (Written::Number(7), "expected a table, found `7`"),
            (table(&[("match", "CN=a"), ("certificate", "f")]), "`key` is missing"),
            (table(&[("match", "CN=a"), ("key", "f")]), "`certificate` is missing"),
            (
                table(&[("match", "CN=a"), ("certificate", "f"), ("key", "f"), ("username", "a")]),
                "with a password or with a certificate, not both",
            ),
        ] {
            let (_, faults) = read(vec![identity("CN=good", "good"), wrong]);
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert!(faults[0].starts_with("[[identity]] number 2: "), "{faults:?}");
            assert!(faults[0].contains(words), "{faults:?}");
        }
    }

    #[test]
    fn identities_need_certificates_of_clients_and_differ() {
        let identities = |names: &[&str]| {
            read(names.iter().map(|name| identity(name, "role")).collect()).0.expect("identities")
        };
        let config = |names: &[&str]| Config {
            contact_points: vec!["10.0.0.1".to_owned()],
            tls: Tls::Required,
            tls_certificate: Some("tls.crt".into()),
            tls_key: Some("tls.key".into()),
            tls_client_ca: Some("ca.crt".into()),
            tls_client_auth: ClientAuth::Required,
            identity: identities(names),
            ..Config::default()
        };
        let keys = |config: &Config| -> Vec<&str> {
            config.problems().iter().map(|problem| problem.key).collect()
        };
        assert_eq!(keys(&config(&["CN=a", "CN=b"])), Vec::<&str>::new());
        assert_eq!(keys(&config(&["CN=a", "CN=a"])), ["identity"]);
        let bare =
            Config { tls_client_ca: None, tls_client_auth: ClientAuth::None, ..config(&["CN=a"]) };
        assert_eq!(keys(&bare), ["identity"]);
        assert_eq!(keys(&Config { tls: Tls::Off, ..bare }), ["identity"]);
        let unasked = Config { tls_client_auth: ClientAuth::None, ..config(&["CN=a"]) };
        assert_eq!(keys(&unasked), ["tls_client_ca", "identity"]);
        let off = Config { tls: Tls::Off, ..config(&["CN=a"]) };
        assert_eq!(off.problems(), [], "an operator switches TLS off by one word");
        assert!(off.idle_tls().contains(&"identity"));
        let many: Vec<String> = (0..=limits::IDENTITIES_MAX).map(|n| format!("CN={n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(keys(&config(&many)), ["identity"]);
    }

    #[test]
    fn a_certificate_for_nodes_needs_tls_to_them_and_no_fleet() {
        let entries = [("match", "CN=a"), ("certificate", "a.crt"), ("key", "a.key")];
        let config = Config {
            contact_points: vec!["10.0.0.1".to_owned()],
            tls: Tls::Required,
            tls_certificate: Some("tls.crt".into()),
            tls_key: Some("tls.key".into()),
            tls_client_ca: Some("ca.crt".into()),
            tls_client_auth: ClientAuth::Required,
            node_tls: Switch::On,
            identity: read(vec![identity("CN=b", "b"), table(&entries)]).0.expect("identities"),
            ..Config::default()
        };
        assert_eq!(config.problems(), []);
        let off = Config { node_tls: Switch::Off, ..config.clone() };
        let fleet = Config { fleet: Some("main".into()), fleet_tls: Switch::On, ..config };
        for (config, words) in [(off, "node_tls = on"), (fleet, "remove fleet")] {
            let problems = config.problems();
            assert_eq!(problems.len(), 1, "{problems:?}");
            let message = &problems[0].message;
            assert!(message.starts_with("[[identity]] number 2: ") && message.contains(words));
        }
    }

    /// Writes a file as if somebody had done so a while ago.
    fn write_settled(path: &Path, content: impl AsRef<[u8]>) {
        fs::write(path, content).expect("written");
        let file = fs::File::options().append(true).open(path).expect("a file");
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).expect("a time");
    }

    #[test]
    fn passwords_come_from_their_files_and_never_show() {
        let path = std::env::temp_dir().join(format!("shunt-identity-{}", std::process::id()));
        let entries =
            [("match", "CN=a"), ("username", "a"), ("password_file", &path.display().to_string())];
        let mut config = Config {
            identity: read(vec![table(&entries)]).0.expect("identities"),
            ..Config::default()
        };
        fs::write(&path, "secret\nanything\n").expect("written");
        assert_eq!(config.read_identities(), []);
        assert_eq!(&*role(&config.identity.0[0]).token(), b"\0a\0secret");
        assert!(!format!("{config:?}").contains("secret"));
        let former = config.identity.clone();
        write_settled(&path, "\n");
        let problems = config.read_identities();
        assert!(problems[0].message.contains("the first line is empty"), "{problems:?}");
        write_settled(&path, vec![b'x'; limits::PASSWORD_FILE_BYTES_MAX as usize + 1]);
        assert!(config.read_identities()[0].message.contains("larger than"));
        fs::remove_file(&path).expect("removed");
        assert!(config.read_identities()[0].message.contains("cannot read the file"));
        assert_eq!(config.identity, former, "a file that cannot be used changes nothing");
    }

    #[test]
    fn a_file_that_cannot_be_used_holds_up_no_other_identity() {
        let name = |number: u8| format!("shunt-identities-{}-{number}", std::process::id());
        let paths = [0, 1].map(|number| std::env::temp_dir().join(name(number)));
        let tables = paths.each_ref().map(|path| {
            let file = path.display().to_string();
            table(&[("match", &file), ("username", "a"), ("password_file", &file)])
        });
        let mut config =
            Config { identity: read(tables.into()).0.expect("identities"), ..Config::default() };
        paths.iter().for_each(|path| fs::write(path, "old").expect("written"));
        assert_eq!(config.read_identities(), []);
        fs::remove_file(&paths[0]).expect("removed");
        write_settled(&paths[1], "new");
        let mut files = IdentityFiles::new(&config, Arc::default());
        files.advance();
        let read = files.tick(&config, Instant::now(), SystemTime::now()).expect("a new password");
        let passwords: Vec<&str> = read.0.iter().map(|one| role(one).password.reveal()).collect();
        assert_eq!(passwords, ["old", "new"]);
        fs::remove_file(&paths[1]).expect("removed");
    }

    #[test]
    fn the_proxys_own_certificate_is_lent_by_no_other_authenticator() {
        let with = Config { node_tls_certificate: Some("a.crt".into()), ..Config::default() };
        let package = "org.apache.cassandra.auth";
        for name in ["MutualTlsAuthenticator", "MutualTlsWithPasswordFallbackAuthenticator"] {
            let class = format!("{package}.{name}");
            assert!(with.lends_certificate(Some(&class)), "{name}");
            assert!(!Config::default().lends_certificate(Some(&class)), "{name}");
        }
        assert!(!with.lends_certificate(Some(&format!("{package}.PasswordAuthenticator"))));
        assert!(!with.lends_certificate(Some("")) && !with.lends_certificate(None));
        // Nodes that ask for nothing have perhaps accepted it, once an identity has a certificate.
        let entries = [("match", "CN=a"), ("certificate", "a.crt"), ("key", "a.key")];
        let identities = read(vec![table(&entries)]).0.expect("identities");
        assert!(Config { identity: identities.clone(), ..with }.lends_certificate(None));
        assert!(!Config { identity: identities, ..Config::default() }.lends_certificate(None));
    }
}

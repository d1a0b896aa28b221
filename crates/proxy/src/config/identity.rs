//! Identities: how the proxy logs in with nodes for clients that a certificate identifies
//! (`[[identity]]` of the file).
//!
//! An identity has the name that a client's certificate must carry, and a role with the file of
//! its password. [`crate::client::certificate`] finds the identity of a client.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shunt_reactor::{NameKind, PeerName};
use shunt_tls::ClientAuth;

use super::kinds::{Readable, Written};
use super::option::{AsText, MaybeNumber};
use super::validate::Findings;
use super::{Config, Problem, Secret, Tls};
use crate::limits;

/// Keys of an identity.
const KEYS: [&str; 3] = ["match", "username", "password_file"];

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
    /// The role that nodes see.
    pub username: String,
    /// File with the role's password in its first line.
    pub password_file: PathBuf,
    /// The password, as the file had it when it was last read.
    pub password: Secret,
}

impl Identity {
    /// The token of its login, for SASL PLAIN.
    pub fn token(&self) -> Arc<[u8]> {
        format!("\0{}\0{}", self.username, self.password.reveal()).into_bytes().into()
    }

    /// True if this token is its login's.
    pub fn has_token(&self, token: &[u8]) -> bool {
        let mut parts = token.splitn(3, |byte| *byte == 0);
        let own = ["", &*self.username, self.password.reveal()];
        own.iter().all(|part| parts.next() == Some(part.as_bytes()))
    }

    /// True if clients of `other` have the rights of this identity's clients.
    pub fn has_rights_of(&self, other: &Identity) -> bool {
        self.name == other.name && self.username == other.username
    }

    fn from_written(written: &Written) -> Result<Self, String> {
        let Written::Table(entries) = written else {
            return Err(format!("expected a table, found {written}"));
        };
        if let Some((unknown, _)) = entries.iter().find(|(key, _)| !KEYS.contains(&key.as_str())) {
            let keys = KEYS.join(", ");
            return Err(format!(
                "unknown key `{unknown}`: an identity has {keys}; options of the proxy stand \
                before the first [[identity]]"
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
        let name = name_from(&text("match")?)?;
        let username = text("username")?;
        if username.is_empty() || username.contains('\0') {
            return Err("`username` must not be empty, nor hold a zero byte".to_owned());
        }
        let password_file = text("password_file")?.into();
        Ok(Self { name, username, password_file, password: Secret::new("") })
    }

    fn read_password(&self) -> Result<Secret, String> {
        let file = &self.password_file;
        let failed = |why: &str| format!("password_file {}: {why}", file.display());
        let password = first_line(file).map_err(|why| failed(&why))?;
        match password.as_str() {
            "" => Err(failed("the first line is empty: it must be the password")),
            text if text.contains('\0') => Err(failed("the password holds a zero byte")),
            text => Ok(Secret::new(text)),
        }
    }
}

/// The name that `match` stands for. Its form decides on the kind, so that one text stands for one
/// kind of name: a common name never passes for a URI.
fn name_from(text: &str) -> Result<PeerName, String> {
    let (kind, name) = match text.strip_prefix("CN=") {
        Some(name) => (NameKind::CommonName, name),
        None if text.contains(':') => (NameKind::Uri, text),
        None if text.contains('@') => (NameKind::Email, text),
        None => (NameKind::Dns, text),
    };
    if name.is_empty() {
        return Err("`match` is empty: give a URI, a DNS name, an e-mail address or CN=NAME".into());
    }
    if name.contains('*') {
        return Err(format!("`match` = `{text}`: names are compared exactly; `*` is not allowed"));
    }
    Ok(PeerName::new(kind, name))
}

/// The first line of a small text file.
fn first_line(path: &Path) -> Result<String, String> {
    let unreadable = |error| format!("cannot read the file: {error}");
    // Opening a pipe would wait for its writer.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err("this is not a regular file".to_owned());
    }
    let mut text = String::new();
    let file = fs::File::open(path).map_err(unreadable)?;
    let most = limits::PASSWORD_FILE_BYTES_MAX;
    file.take(most + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > most {
        return Err(format!("the file is larger than {most} bytes: is it another file?"));
    }
    Ok(text.lines().next().unwrap_or_default().to_owned())
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
        let texts = each.map(|identity| format!("{} as {}", identity.name, identity.username));
        let texts: Vec<String> = texts.collect();
        (!texts.is_empty()).then(|| texts.join(","))
    }
}

impl Identities {
    /// The first identity whose name is among those of a certificate.
    pub fn of(&self, names: &[PeerName]) -> Option<&Arc<Identity>> {
        self.0.iter().find(|identity| names.contains(&identity.name))
    }

    /// A warning for each password file that anyone but its owner and group has access to.
    pub fn open_files(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(|identity| {
            let mode = fs::metadata(&identity.password_file).ok()?.mode() & 0o777;
            let file = identity.password_file.display();
            (mode & OTHERS != 0).then(|| {
                format!(
                    "password_file {file}: other users have access (mode {mode:o}); run chmod 600"
                )
            })
        })
    }

    /// The same identities, with the passwords that the files have now, and a message for each
    /// file that cannot be used. Such an identity keeps its password.
    pub fn read_again(&self) -> (Self, Vec<String>) {
        let mut faults = Vec::new();
        let read =
            self.0.iter().enumerate().map(|(index, identity)| match identity.read_password() {
                Ok(password) => Arc::new(Identity { password, ..(**identity).clone() }),
                Err(why) => {
                    faults.push(numbered(index, &why));
                    Arc::clone(identity)
                }
            });
        (Self(read.collect()), faults)
    }
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

/// First part of the names of Cassandra's authenticators that take a certificate for a login.
const MUTUAL_TLS: &str = "MutualTls";

impl Config {
    /// True if nodes of this authenticator would take the proxy's own certificate for the login of
    /// a client: its links show that certificate, whatever password the client has.
    pub(crate) fn lends_certificate(&self, authenticator: &str) -> bool {
        let name = authenticator.rsplit('.').next().unwrap_or_default();
        self.node_tls_certificate.is_some() && name.starts_with(MUTUAL_TLS)
    }

    /// Reads the files of the identities.
    pub fn read_identities(&mut self) -> Vec<Problem> {
        let (identities, faults) = self.identity.read_again();
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
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

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
            assert_eq!(name_from(text), Ok(PeerName::new(kind, name)), "{text}");
        }
        for wrong in ["", "CN=", "*.example", "spiffe://example/*"] {
            assert!(name_from(wrong).is_err(), "{wrong}");
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
            Some(found.username.clone())
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
        assert_eq!(found.expect("identities").of(&names).expect("one").username, "first");
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
        assert_eq!(&*config.identity.0[0].token(), b"\0a\0secret");
        assert!(!format!("{config:?}").contains("secret"));
        let former = config.identity.clone();
        fs::write(&path, "\n").expect("written");
        let problems = config.read_identities();
        assert!(problems[0].message.contains("the first line is empty"), "{problems:?}");
        fs::write(&path, vec![b'x'; limits::PASSWORD_FILE_BYTES_MAX as usize + 1])
            .expect("written");
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
        fs::write(&paths[1], "new").expect("written");
        let mut files = IdentityFiles::default();
        files.advance();
        let read = files.tick(&config, Instant::now()).expect("a new password");
        let passwords: Vec<&str> = read.0.iter().map(|one| one.password.reveal()).collect();
        assert_eq!(passwords, ["old", "new"]);
        fs::remove_file(&paths[1]).expect("removed");
    }

    #[test]
    fn the_proxys_own_certificate_is_lent_by_no_other_authenticator() {
        let with = Config { node_tls_certificate: Some("a.crt".into()), ..Config::default() };
        let package = "org.apache.cassandra.auth";
        for name in ["MutualTlsAuthenticator", "MutualTlsWithPasswordFallbackAuthenticator"] {
            assert!(with.lends_certificate(&format!("{package}.{name}")), "{name}");
            assert!(!Config::default().lends_certificate(&format!("{package}.{name}")), "{name}");
        }
        assert!(!with.lends_certificate(&format!("{package}.PasswordAuthenticator")));
        assert!(!with.lends_certificate(""));
    }
}

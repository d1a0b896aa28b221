//! A client's identity in logs and `/status`: its address, role, keyspace and driver.
//!
//! All but the address comes from the client itself, so the proxy cuts it to a length and escapes
//! unprintable characters, once, when it learns them. It never keeps a password here: of a SASL
//! token it keeps only the role of a well-formed PLAIN message (RFC 4616), and nothing of any other
//! token.

use std::collections::BTreeSet;
use std::sync::Arc;

use shunt_reactor::ClientAddress;
use shunt_wire::printable::printable_to;

use crate::limits;

/// The role of a token that is not a PLAIN message.
pub(crate) const UNKNOWN: &str = "unknown";
/// The word for a value that the client has not given (yet).
const NONE: &str = "none";

/// A driver and its application as STARTUP names them (`DRIVER_NAME`, `DRIVER_VERSION`,
/// `APPLICATION_NAME`); each may be empty.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Driver {
    /// Name of the driver.
    pub name: Box<str>,
    /// Version of the driver.
    pub version: Box<str>,
    /// Name of the application.
    pub application: Box<str>,
}

/// The drivers of a core's clients, one copy each: thousands of clients use the same few.
#[derive(Default)]
pub(crate) struct Drivers(BTreeSet<Arc<Driver>>);

impl Drivers {
    /// The driver with these names; none if all are empty. When the table is full and all its
    /// drivers are in use, the client gets a copy for itself.
    pub(crate) fn named(
        &mut self,
        name: &str,
        version: &str,
        application: &str,
    ) -> Option<Arc<Driver>> {
        if name.is_empty() && version.is_empty() && application.is_empty() {
            return None;
        }
        let [name, version, application] =
            [name, version, application].map(|text| printable(text).into());
        let driver = Driver { name, version, application };
        if let Some(known) = self.0.get(&driver) {
            return Some(Arc::clone(known));
        }
        if self.0.len() >= limits::DRIVERS_MAX {
            self.0.retain(|known| Arc::strong_count(known) > 1);
        }
        let driver = Arc::new(driver);
        if self.0.len() < limits::DRIVERS_MAX {
            self.0.insert(Arc::clone(&driver));
        }
        Some(driver)
    }
}

/// The role and keyspace that the clients of a pool have in common, as they are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolNames {
    /// Role; `None`: the ring asks for no login.
    pub(crate) role: Option<Arc<str>>,
    /// The full role, which logs never show: the owner of locks.
    pub(crate) whole_role: Option<Arc<str>>,
    pub(crate) keyspace: Option<Arc<str>>,
    /// Identity by certificate.
    pub(crate) identity: Option<Arc<str>>,
}

impl PoolNames {
    /// Takes the names from a login (a SASL token) and of a keyspace.
    pub(crate) fn new(login: Option<&[u8]>, keyspace: Option<&str>) -> Self {
        let whole_role: Option<Arc<str>> =
            login.map(|token| role_of(token).unwrap_or(UNKNOWN.into()));
        let role = whole_role.as_deref().map(|role| printable(role).into());
        let keyspace = keyspace.map(|keyspace| printable(keyspace).into());
        Self { role, whole_role, keyspace, identity: None }
    }

    /// Adds the identity that the clients have by their certificates.
    pub(crate) fn with_identity(self, identity: Option<&str>) -> Self {
        Self { identity: identity.map(|identity| printable(identity).into()), ..self }
    }
}

/// A client as a log line shows it.
pub(crate) struct Who {
    pub(crate) address: ClientAddress,
    pub(crate) role: Option<Arc<str>>,
    pub(crate) keyspace: Option<Arc<str>>,
    /// Identity by certificate.
    pub(crate) identity: Option<Arc<str>>,
    pub(crate) driver: Option<Arc<Driver>>,
}

impl Who {
    pub(crate) fn new(
        address: ClientAddress,
        names: Option<&PoolNames>,
        driver: Option<Arc<Driver>>,
    ) -> Self {
        Self {
            address,
            role: names.and_then(|names| names.role.clone()),
            keyspace: names.and_then(|names| names.keyspace.clone()),
            identity: names.and_then(|names| names.identity.clone()),
            driver,
        }
    }

    pub(crate) fn role(&self) -> &str {
        self.role.as_deref().unwrap_or(NONE)
    }

    pub(crate) fn keyspace(&self) -> &str {
        self.keyspace.as_deref().unwrap_or(NONE)
    }

    /// Name and version of the driver.
    pub(crate) fn driver(&self) -> String {
        let Some(driver) = &self.driver else { return UNKNOWN.to_owned() };
        format!("{} {}", driver.name, driver.version).trim().to_owned()
    }
}

/// The role in a SASL token: the second of exactly three parts, if a password follows. A token of
/// another form may hold a password anywhere, so none of it is shown.
pub(super) fn role_of(token: &[u8]) -> Option<Arc<str>> {
    let mut parts = token.split(|byte| *byte == 0);
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(_), Some(role), Some(password), None) if !role.is_empty() && !password.is_empty() => {
            Some(String::from_utf8_lossy(role).into())
        }
        _ => None,
    }
}

/// A client's text with unprintable characters escaped, cut to [`limits::NAME_SHOWN_BYTES_MAX`].
fn printable(text: &str) -> String {
    printable_to(text, limits::NAME_SHOWN_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_message_shows_its_role() {
        for (token, role) in [
            (&b"\0ann\0secret"[..], "ann"),
            (b"other\0ann\0secret", "ann"),
            (b"\0a b'\"\0x", "a b'\""),
            (b"\0\xff\0x", "\u{fffd}"),
            (b"", UNKNOWN),
            (b"secret", UNKNOWN),
            (b"ann\0secret", UNKNOWN),
            (b"ann\0secret\0", UNKNOWN),
            (b"\0\0secret", UNKNOWN),
            (b"\0ann\0sec\0ret", UNKNOWN),
        ] {
            let names = PoolNames::new(Some(token), None);
            assert_eq!(names.role.as_deref(), Some(role), "{token:?}");
        }
    }

    /// Two roles may look the same in a log.
    #[test]
    fn locks_belong_to_the_whole_role() {
        let names = |role: &str| PoolNames::new(Some(format!("\0{role}\0secret").as_bytes()), None);
        let long = "r".repeat(100);
        for (one, other) in
            [(format!("{long}1"), format!("{long}2")), ("a\n".to_owned(), "a\\n".to_owned())]
        {
            let (one, other) = (names(&one), names(&other));
            assert!(
                one.role == other.role && one.whole_role != other.whole_role,
                "{one:?} {other:?}"
            );
        }
    }

    #[test]
    fn unprintable_characters_are_escaped_and_length_is_bounded() {
        assert_eq!(printable("a\n\x1b[1mb\u{202e}\u{7f}"), r"a\n\u{1b}[1mb\u{202e}\u{7f}");
        assert_eq!(printable(&"x".repeat(64)), "x".repeat(64));
        for long in ["x", "é", "\0"].map(|part| part.repeat(100_000)) {
            let shown = printable(&long);
            assert!(
                shown.ends_with('…')
                    && shown.len() <= limits::NAME_SHOWN_BYTES_MAX + '…'.len_utf8(),
                "{shown}"
            );
        }
    }

    #[test]
    fn drivers_are_kept_once_and_few() {
        let mut drivers = Drivers::default();
        assert_eq!(drivers.named("", "", ""), None);
        let (one, same) = (drivers.named("a", "1", ""), drivers.named("a", "1", ""));
        assert!(Arc::ptr_eq(one.as_ref().unwrap(), same.as_ref().unwrap()));
        for number in 0..10 * limits::DRIVERS_MAX {
            drivers.named("b", "", &number.to_string());
            assert!(drivers.0.len() <= limits::DRIVERS_MAX);
        }
        assert!(
            Arc::ptr_eq(one.as_ref().unwrap(), drivers.named("a", "1", "").as_ref().unwrap()),
            "in use, so still known"
        );
        let used: Vec<_> = (0..2 * limits::DRIVERS_MAX)
            .map(|number| drivers.named("c", &number.to_string(), ""))
            .collect();
        assert!(drivers.0.len() <= limits::DRIVERS_MAX && used.iter().all(Option::is_some));
    }
}

//! Unix sockets in options: their paths, permissions and owners.

use std::path::{Path, PathBuf};

use shunt_reactor::UNIX_PATH_BYTES_MAX;

use super::address::{ADMIN_CQL_PORT, Listen, Listeners, address};
use super::kinds::{Kind, List};

/// Word in front of a path in `listen`.
const PREFIX: &str = "unix:";

/// One entry of `listen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An address and a port.
    Tcp(Listen),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Kind for ListenAddress {
    const EXPECTED: &'static str =
        "an address such as \"127.0.0.1:9042\" or \"unix:/run/shunt/cql.sock\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text.strip_prefix(PREFIX) {
            Some(path) => unix_path(path).map(Self::Unix),
            None => Listen::from_text(text).map(Self::Tcp),
        }
    }
}

fn unix_path(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    if !path.is_absolute() || path.file_name().is_none() || text.contains('\0') {
        return Err("needs an absolute path after `unix:`, such as /run/shunt/cql.sock".to_owned());
    }
    if text.len() > UNIX_PATH_BYTES_MAX {
        return Err(format!(
            "has a path of {} bytes; the path of a Unix socket can have at most \
            {UNIX_PATH_BYTES_MAX}",
            text.len()
        ));
    }
    Ok(path.to_owned())
}

impl From<List<ListenAddress>> for Listeners {
    fn from(list: List<ListenAddress>) -> Self {
        let mut listeners = Self::default();
        for address in list.0 {
            match address {
                ListenAddress::Tcp(Listen(address)) => listeners.tcp.push(address),
                ListenAddress::Unix(path) => listeners.unix.push(path),
            }
        }
        listeners
    }
}

/// The address of the admin tables, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminCql(pub Option<ListenAddress>);

impl Kind for AdminCql {
    const EXPECTED: &'static str =
        "an address such as \"127.0.0.1:9181\" or \"unix:/run/shunt/admin-cql.sock\", or \"off\"";

    fn from_text(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        if text.starts_with("unix:") {
            return ListenAddress::from_text(text).map(|found| Self(Some(found)));
        }
        let found = Listen(address(text, ADMIN_CQL_PORT)?);
        Ok(Self(Some(ListenAddress::Tcp(found))))
    }
}

impl From<AdminCql> for Option<ListenAddress> {
    fn from(admin: AdminCql) -> Self {
        admin.0
    }
}

/// Permissions of a file, as an octal number in quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub u32);

impl Kind for Mode {
    const EXPECTED: &'static str = "permissions in quotes, such as \"0660\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let is_octal =
            (3..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        match u32::from_str_radix(text, 8) {
            Ok(mode) if is_octal && mode <= 0o777 => Ok(Self(mode)),
            _ => Err("must be an octal number from 000 to 0777, such as 0660".to_owned()),
        }
    }
}

/// The owner of a file: `USER`, `USER:GROUP` or `:GROUP`, by name or number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The user, if the owner names one.
    pub user: Option<String>,
    /// The group, if the owner names one.
    pub group: Option<String>,
}

impl Kind for Owner {
    const EXPECTED: &'static str = "an owner such as \"shunt:apps\" or \":apps\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let (user, group) = text.split_once(':').map_or((text, None), |(u, g)| (u, Some(g)));
        let is_name = |name: &str| !name.is_empty() && !name.contains([':', '/', ' ']);
        let user = Some(user).filter(|user| !user.is_empty()).map(str::to_owned);
        if user.as_deref().is_some_and(|user| !is_name(user))
            || group.is_some_and(|group| !is_name(group))
            || user.is_none() && group.is_none()
        {
            return Err("must be USER, USER:GROUP or :GROUP".to_owned());
        }
        Ok(Self { user, group: group.map(str::to_owned) })
    }
}

impl Owner {
    /// The numbers of user and group, with the names looked up in these texts of `/etc/passwd` and
    /// `/etc/group`.
    ///
    /// # Errors
    /// A name that is not there.
    pub fn numbers(&self, passwd: &str, group: &str) -> Result<(Option<u32>, Option<u32>), String> {
        let number = |name: &Option<String>, text: &str, missing: &str| {
            let Some(name) = name else { return Ok(None) };
            let found = name.parse().ok().or_else(|| number_of(text, name));
            found.map(Some).ok_or_else(|| format!("{missing} {name}; give the number instead"))
        };
        let user = number(&self.user, passwd, "/etc/passwd has no user")?;
        Ok((user, number(&self.group, group, "/etc/group has no group")?))
    }
}

/// The number in the third column of the line that begins with this name.
fn number_of(file: &str, name: &str) -> Option<u32> {
    file.lines().find_map(|line| {
        let mut columns = line.split(':');
        (columns.next() == Some(name)).then(|| columns.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<K: Kind>(text: &str) -> Result<K, String> {
        K::from_text(text)
    }

    #[test]
    fn addresses_and_paths_are_told_apart() {
        let listeners = Listeners::from(List(vec![
            text::<ListenAddress>("unix:/run/shunt/cql.sock").expect("a path"),
            text("127.0.0.1").expect("an address"),
        ]));
        assert_eq!(listeners.tcp, ["127.0.0.1:9042".parse().expect("an address")]);
        assert_eq!(listeners.unix, [PathBuf::from("/run/shunt/cql.sock")]);
        for wrong in ["unix:", "unix:cql.sock", "unix:/", "unix:@cql", "/run/cql.sock"] {
            assert!(text::<ListenAddress>(wrong).is_err(), "{wrong}");
        }
        let path =
            |bytes: usize| text::<ListenAddress>(&format!("unix:/{}", "x".repeat(bytes - 1)));
        assert!(path(107).is_ok());
        assert!(path(108).expect_err("too long").contains("108 bytes"));
    }

    #[test]
    fn permissions_are_octal() {
        assert_eq!(text("0660"), Ok(Mode(0o660)));
        assert_eq!(text("666"), Ok(Mode(0o666)));
        for wrong in ["", "66", "0888", "01777", "00660", "rw", "0o660", "+660"] {
            assert!(text::<Mode>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn owners_are_names_or_numbers() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nshunt:x:990:985::/:/sbin/nologin\n";
        let group = "root:x:0:\napps:x:1200:ann,bob\n";
        let numbers =
            |owner: &str| text::<Owner>(owner).and_then(|owner| owner.numbers(passwd, group));
        assert_eq!(numbers("shunt"), Ok((Some(990), None)));
        assert_eq!(numbers("shunt:apps"), Ok((Some(990), Some(1200))));
        assert_eq!(numbers(":apps"), Ok((None, Some(1200))));
        assert_eq!(numbers("7:8"), Ok((Some(7), Some(8))));
        assert!(numbers("ann").expect_err("unknown").contains("no user ann"));
        assert!(numbers(":shunt").expect_err("unknown").contains("no group shunt"));
        for wrong in ["", ":", "a:", "a:b:c", "a b"] {
            assert!(text::<Owner>(wrong).is_err(), "{wrong}");
        }
    }
}

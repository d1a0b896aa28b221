//! First commands of a connection to a server: a login, a version of RESP and a database, as
//! needed.

use std::fmt;

use shunt_wire::resp::{Version, put_command};

/// Login and database for connections to servers.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Login {
    /// User name; without it the password is the default user's.
    pub user: Option<String>,
    /// Password, if the servers require one.
    pub password: Option<Vec<u8>>,
    /// Number of the database.
    pub database: u32,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, password, database } = self;
        let has_password = password.is_some();
        f.debug_struct("Login")
            .field("user", user)
            .field("has_password", &has_password)
            .field("database", database)
            .finish()
    }
}

/// A command at the start of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    Auth,
    Hello,
    Select,
}

impl Step {
    /// Describes a server's refusal of this step, and the remedy.
    pub(crate) fn refused(self, error: &[u8]) -> String {
        let error = String::from_utf8_lossy(error);
        match self {
            Step::Auth => format!("refuses the login ({error}): see --user and --password-file"),
            Step::Hello => format!("does not speak RESP3 ({error}): let clients use RESP2"),
            Step::Select => format!("refuses the database ({error}): see --database"),
        }
    }
}

impl Login {
    /// Writes the first commands; calls `each` for each answer that they will have, in order.
    pub(crate) fn put(&self, version: Version, out: &mut Vec<u8>, mut each: impl FnMut(Step)) {
        if let Some(password) = &self.password {
            let user = self.user.as_ref().map(String::as_bytes);
            let words: Vec<&[u8]> =
                [&b"AUTH"[..]].into_iter().chain(user).chain([&password[..]]).collect();
            put_command(out, words.into_iter());
            each(Step::Auth);
        }
        if version == Version::Three {
            put_command(out, [&b"HELLO"[..], b"3"].into_iter());
            each(Step::Hello);
        }
        if self.database != 0 {
            put_command(out, [&b"SELECT"[..], self.database.to_string().as_bytes()].into_iter());
            each(Step::Select);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_begins_with_what_is_needed_and_no_more() {
        let begun = |login: &Login, version| {
            let (mut out, mut steps) = (Vec::new(), Vec::new());
            login.put(version, &mut out, |step| steps.push(step));
            (String::from_utf8(out).unwrap().replace("\r\n", " "), steps)
        };
        assert_eq!(begun(&Login::default(), Version::Two), (String::new(), vec![]));
        let login =
            Login { user: Some("app".to_owned()), password: Some(b"secret".to_vec()), database: 3 };
        let (text, steps) = begun(&login, Version::Three);
        assert_eq!(text, "*3 $4 AUTH $3 app $6 secret *2 $5 HELLO $1 3 *2 $6 SELECT $1 3 ");
        assert_eq!(steps, [Step::Auth, Step::Hello, Step::Select]);
        let login = Login { user: None, ..login };
        assert_eq!(begun(&login, Version::Two).0, "*2 $4 AUTH $6 secret *2 $6 SELECT $1 3 ");
        assert!(!format!("{login:?}").contains("secret"));
    }
}

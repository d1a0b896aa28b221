//! A role with its password, and the file of the password.
//!
//! A program that writes the file in place leaves half a password on disk for a moment, and half a
//! password looks whole. A new password therefore counts once its file is a second old. Some
//! programs touch the file all the time: a password that the file has had for a second counts too.

use std::collections::HashMap;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use shunt_tls::{Renewed, SmallFile, TlsError};

use super::values::Secret;
use crate::limits;

/// Time after which a new password counts although its file changes again and again.
const STEADY_AGE: Duration = Duration::from_secs(1);

/// A role with its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolePassword {
    /// The role that nodes see.
    pub username: String,
    /// File with the role's password in its first line.
    pub file: PathBuf,
    /// The password, as the file had it when it was last read; empty until then.
    pub password: Secret,
}

impl RolePassword {
    /// The token of the login, for SASL PLAIN.
    pub fn token(&self) -> Arc<[u8]> {
        format!("\0{}\0{}", self.username, self.password.reveal()).into_bytes().into()
    }

    /// True if this token is the login's.
    pub fn has_token(&self, token: &[u8]) -> bool {
        let mut parts = token.splitn(3, |byte| *byte == 0);
        let own = ["", &*self.username, self.password.reveal()];
        own.iter().all(|part| parts.next() == Some(part.as_bytes()))
    }

    /// The role with the password that the file has now. `clock` is the time by which the age of
    /// the file counts. The first password counts at any age.
    ///
    /// # Errors
    /// The file cannot be used.
    pub(super) fn renewed(
        &self,
        clock: SystemTime,
        candidates: &mut Candidates,
    ) -> Result<Renewed<Self>, TlsError> {
        let failed = |why: &str| TlsError::file("password_file", &self.file, why);
        let file = SmallFile::read(&self.file, limits::PASSWORD_FILE_BYTES_MAX)
            .map_err(|why| failed(&why))?;
        let password = password_in(&file.bytes);
        if password.as_ref() == Ok(&self.password) {
            return Ok(Renewed::Unchanged);
        }
        let is_first = self.password.reveal().is_empty();
        if !is_first
            && !file.is_settled(clock)
            && !candidates.is_steady(&self.file, password.as_ref().ok(), clock)
        {
            return Ok(Renewed::Unsettled(failed("the file changes again and again")));
        }
        let password = password.map_err(failed)?;
        Ok(Renewed::Changed(Self { password, ..self.clone() }))
    }
}

/// The password in a file: its first line.
fn password_in(bytes: &[u8]) -> Result<Secret, &'static str> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err("cannot read the file: it is not UTF-8 text");
    };
    match text.lines().next().unwrap_or_default() {
        "" => Err("the first line is empty: it must be the password"),
        line if line.contains('\0') => Err("the password contains a zero byte"),
        line => Ok(Secret::new(line)),
    }
}

/// New passwords in files that somebody is perhaps still writing.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// Passwords that the last reading found, by file.
    former: HashMap<PathBuf, Candidate>,
    /// Passwords that the current reading finds, by file.
    found: HashMap<PathBuf, Candidate>,
}

#[derive(Debug)]
struct Candidate {
    /// `None`: the file has no password that can be used.
    password: Option<Secret>,
    /// Time since when the file has it.
    since: SystemTime,
}

impl Candidates {
    /// Begins another reading of all files. It compares them with those of the last one.
    pub(super) fn begin_reading(&mut self) {
        self.former = mem::take(&mut self.found);
    }

    /// Notes the password of a file. Returns true if the file has had it for a second.
    fn is_steady(&mut self, file: &Path, password: Option<&Secret>, clock: SystemTime) -> bool {
        let former = self.former.get(file).filter(|former| former.password.as_ref() == password);
        // A clock that was set back begins anew.
        let since = former.map_or(clock, |former| former.since.min(clock));
        self.found.insert(file.to_owned(), Candidate { password: password.cloned(), since });
        clock.duration_since(since).is_ok_and(|age| age >= STEADY_AGE)
    }
}

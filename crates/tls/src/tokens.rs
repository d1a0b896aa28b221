//! Bearer tokens of an HTTP listener (RFC 6750): a file with a token on each line, all of which are
//! accepted, so that a new token can reach the clients before the old one goes.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use aws_lc_rs::constant_time::verify_slices_are_equal;

use crate::Reloaded;
use crate::candidate::Candidate;
use crate::error::TlsError;
use crate::files::{self, File};

/// Most tokens of a file.
const TOKENS_MAX: usize = 16;
/// Shortest token, in bytes: a shorter one can be guessed.
const TOKEN_BYTES_MIN: usize = 16;
/// Longest token, in bytes: the head of a request has room for 16 KiB.
const TOKEN_BYTES_MAX: usize = 4096;

/// Digests of the tokens, and of the file that they come from.
struct Current {
    tokens: Vec<[u8; 32]>,
    digest: [u8; 32],
    warning: Option<String>,
}

/// The tokens that a listener accepts.
pub struct Tokens {
    option: &'static str,
    path: PathBuf,
    current: RwLock<Arc<Current>>,
    /// New content that may not be whole; held by a reload.
    reload: Mutex<Candidate>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Tokens {
    /// Reads the file that `option` names.
    ///
    /// # Errors
    /// The file cannot be read, or has no token that can be used.
    pub fn open(option: &'static str, path: PathBuf) -> Result<Tokens, TlsError> {
        let file = File::read(option, &path)?;
        let current = RwLock::new(Arc::new(Current::parse(&file)?));
        Ok(Tokens { option, path, current, reload: Mutex::default() })
    }

    /// Reads the file again. `now` is the time by which its age counts.
    ///
    /// # Errors
    /// The same as those of [`Tokens::open`]. The tokens stay as they were.
    pub fn reload(&self, now: SystemTime) -> Result<Reloaded, TlsError> {
        let mut candidate = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        let file = File::read(self.option, &self.path)?;
        if file.digest == self.current().digest {
            return Ok(Reloaded::Unchanged);
        }
        if let Some(file) = candidate.unsettled(std::iter::once(&file), now) {
            return Ok(Reloaded::Unsettled(file));
        }
        let current = Arc::new(Current::parse(&file)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = current;
        Ok(Reloaded::Changed)
    }

    /// The option that names the file.
    pub fn option(&self) -> &'static str {
        self.option
    }

    /// Warnings about the file.
    pub fn warnings(&self) -> Vec<String> {
        self.current().warning.iter().cloned().collect()
    }

    /// True for one of the tokens. The time that it takes depends on the length of `token` and on
    /// the number of tokens alone.
    pub fn has(&self, token: &[u8]) -> bool {
        let digest = files::sha256(token);
        let is = |known: &[u8; 32]| verify_slices_are_equal(known, &digest).is_ok();
        self.current().tokens.iter().fold(false, |found, known| found | is(known))
    }

    fn current(&self) -> Arc<Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Current {
    fn parse(file: &File) -> Result<Current, TlsError> {
        let lines = file.bytes().split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let mut tokens = Vec::new();
        for (index, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
            let refused = |why: &str| file.error(format!("line {}: {why}", index + 1));
            if line.len() < TOKEN_BYTES_MIN {
                let why = format!(
                    "a token needs {TOKEN_BYTES_MIN} characters: openssl rand -base64 32 makes one"
                );
                return Err(refused(&why));
            }
            if line.len() > TOKEN_BYTES_MAX {
                return Err(refused(&format!("a token has {TOKEN_BYTES_MAX} characters at most")));
            }
            if !line.iter().all(u8::is_ascii_graphic) {
                return Err(refused("a token has no spaces, and characters of ASCII alone"));
            }
            tokens.push(files::sha256(line));
        }
        if tokens.is_empty() {
            let why = "the file has no token: openssl rand -base64 32 makes one";
            return Err(file.error(why));
        }
        if tokens.len() > TOKENS_MAX {
            return Err(file.error(format!("{TOKENS_MAX} tokens are allowed, one on each line")));
        }
        Ok(Current { tokens, digest: file.digest, warning: file.readers_warning() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FIRST: &str = "first-token-0123";
    const SECOND: &str = "second-token-456";

    #[test]
    fn tokens_change_with_their_file_and_a_broken_file_changes_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("tokens");
        let write = |text: &str| std::fs::write(&path, text).expect("written");
        write(FIRST);
        let tokens = Tokens::open("admin_token_file", path.clone()).expect("a token");
        let has = || {
            [FIRST, SECOND, "", "first-token-012", "first-token-01234"]
                .map(|token| tokens.has(token.as_bytes()))
        };
        assert_eq!(has(), [true, false, false, false, false]);
        let written = || std::fs::metadata(&path).and_then(|file| file.modified()).expect("a time");
        let settled = || written() + Duration::from_secs(1);
        assert_eq!(tokens.reload(written()), Ok(Reloaded::Unchanged));
        write(&format!("{FIRST}\n\n  {SECOND}\r\n"));
        assert!(matches!(tokens.reload(written()), Ok(Reloaded::Unsettled(_))));
        assert_eq!(has(), [true, false, false, false, false]);
        assert_eq!(tokens.reload(settled()), Ok(Reloaded::Changed));
        assert_eq!(has(), [true, true, false, false, false]);
        for (broken, why) in [
            ("", "the file has no token"),
            ("\n \n", "the file has no token"),
            ("short", "line 1: a token needs 16 characters"),
            ("first-token-0123\nwith a space in it", "line 2: a token has no spaces"),
            (&"long".repeat(1025), "4096 characters at most"),
            (&format!("{FIRST}\n").repeat(17), "16 tokens are allowed"),
        ] {
            write(broken);
            let error = tokens.reload(settled()).expect_err(broken).to_string();
            assert!(error.starts_with("admin_token_file ") && error.contains(why), "{error}");
            assert_eq!(has(), [true, true, false, false, false]);
        }
        write(SECOND);
        assert_eq!(tokens.reload(settled()), Ok(Reloaded::Changed));
        assert_eq!(has(), [false, true, false, false, false]);
    }
}

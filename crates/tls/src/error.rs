//! Errors of options and of the files that they name.

use std::fmt;
use std::path::{Path, PathBuf};

/// An option, or the file that it names, cannot be used. Its text names both and the remedy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsError {
    option: &'static str,
    path: Option<PathBuf>,
    message: String,
    /// The message without what changes with time.
    key: String,
}

impl TlsError {
    /// A fault of an option that names no file.
    pub(crate) fn option(option: &'static str, message: impl Into<String>) -> TlsError {
        Self::new(option, None, message.into())
    }

    /// A fault of the file that an option names.
    pub fn file(option: &'static str, path: &Path, message: impl Into<String>) -> TlsError {
        Self::new(option, Some(path.to_owned()), message.into())
    }

    fn new(option: &'static str, path: Option<PathBuf>, message: String) -> TlsError {
        TlsError { option, path, key: message.clone(), message }
    }

    /// The same error. `key` is its message without what changes with time.
    pub(crate) fn known_as(self, key: impl Into<String>) -> TlsError {
        TlsError { key: key.into(), ..self }
    }

    /// True if `other` says the same, perhaps at another time.
    pub fn is_same_fault(&self, other: &TlsError) -> bool {
        (self.option, &self.path, &self.key) == (other.option, &other.path, &other.key)
    }

    /// The option.
    pub fn option_name(&self) -> &'static str {
        self.option
    }

    /// The text without the option.
    pub fn message(&self) -> String {
        match &self.path {
            Some(path) => format!("{}: {}", path.display(), self.message),
            None => self.message.clone(),
        }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{} {}: {}", self.option, path.display(), self.message),
            None => write!(f, "{}: {}", self.option, self.message),
        }
    }
}

impl std::error::Error for TlsError {}

//! The tokens of an HTTP listener, read again while it serves.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use shunt_tls::{TlsError, Tokens};

use crate::metrics::TlsMetrics;
use crate::watch::{FileWatch, InUse};

/// The tokens of a listener, and the checks of their file.
pub struct WatchedTokens {
    tokens: Arc<Tokens>,
    watch: FileWatch,
}

impl WatchedTokens {
    /// Reads the file that `option` names.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn open(
        option: &'static str,
        path: PathBuf,
        metrics: Arc<TlsMetrics>,
    ) -> Result<Self, TlsError> {
        let tokens = Arc::new(Tokens::open(option, path)?);
        Ok(Self { tokens, watch: FileWatch::with_content(option, "tokens", metrics) })
    }

    /// The tokens, for the listener.
    pub fn tokens(&self) -> Arc<Tokens> {
        Arc::clone(&self.tokens)
    }

    /// Reads the file again because an operator asks for it.
    pub fn reload(&self) {
        self.watch.forget_error();
        self.look_at_file();
    }

    /// Reads the file again if that is due. Called about once a second.
    pub fn look(&self, now: Instant) {
        if self.watch.is_due(now) {
            self.look_at_file();
        }
    }

    fn look_at_file(&self) {
        let result = self.tokens.reload(SystemTime::now());
        self.watch.note(result, || InUse::from(&*self.tokens));
    }
}

//! Content of files, TLS settings or tokens, that is read again while connections use it.
//!
//! ```text
//! connections --- current ---> Reloader <--- apply, reload, tick --- main thread
//!                                |
//!                                v FileWatch: due checks, results in the log and in TlsMetrics
//! ```
//! A reload changes the content in place. New options bring new content, which replaces the former
//! as a whole. Content that cannot be used changes nothing.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Instant, SystemTime};

use shunt_tls::{Client, ClientOptions, Reloaded, Server, ServerOptions, TlsError, Tokens};

use crate::metrics::{ReloadResult, TlsMetrics};
use crate::watch::{FileWatch, InUse};

/// Content that comes from files.
pub trait FileBacked: Sized {
    /// The options that name the files.
    type Options: Clone + PartialEq;
    /// The content in the plural, for the log.
    const CONTENT: &'static str = "certificates";

    /// The peers that meet the content, as [`shunt_tls::CertificateFile::usage`] names them.
    fn usage(options: &Self::Options) -> &'static str;

    /// Reads the files. `former` is the content that the new one replaces.
    ///
    /// # Errors
    /// A file cannot be used; the text names it, its option and the remedy.
    fn open_files(options: Self::Options, former: Option<&Self>) -> Result<Self, TlsError>;

    /// Reads the files again.
    ///
    /// # Errors
    /// A file cannot be used. The former content stays.
    fn reload_files(&self, now: SystemTime) -> Result<Reloaded, TlsError>;

    /// The files of certificates in use, and warnings about any of the files.
    fn in_use(&self) -> InUse;
}

impl FileBacked for Server {
    type Options = ServerOptions;

    fn usage(options: &ServerOptions) -> &'static str {
        options.names.clients
    }

    fn open_files(options: ServerOptions, former: Option<&Self>) -> Result<Self, TlsError> {
        match former {
            Some(former) => Self::open_after(options, former),
            None => Self::open(options),
        }
    }

    fn reload_files(&self, now: SystemTime) -> Result<Reloaded, TlsError> {
        self.reload(now)
    }

    fn in_use(&self) -> InUse {
        InUse { files: self.files(), warnings: self.warnings() }
    }
}

impl FileBacked for Client {
    type Options = ClientOptions;

    fn usage(options: &ClientOptions) -> &'static str {
        options.names.servers
    }

    fn open_files(options: ClientOptions, _: Option<&Self>) -> Result<Self, TlsError> {
        Self::open(options)
    }

    fn reload_files(&self, now: SystemTime) -> Result<Reloaded, TlsError> {
        self.reload(now)
    }

    fn in_use(&self) -> InUse {
        InUse { files: self.files(), warnings: self.warnings() }
    }
}

/// The file with the tokens of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFile {
    /// The option that names the file.
    pub option: &'static str,
    /// The file's path.
    pub path: PathBuf,
}

impl FileBacked for Tokens {
    type Options = TokenFile;
    const CONTENT: &'static str = "tokens";

    fn usage(file: &TokenFile) -> &'static str {
        file.option
    }

    fn open_files(file: TokenFile, _: Option<&Self>) -> Result<Self, TlsError> {
        Self::open(file.option, file.path)
    }

    fn reload_files(&self, now: SystemTime) -> Result<Reloaded, TlsError> {
        self.reload(now)
    }

    fn in_use(&self) -> InUse {
        InUse { files: Vec::new(), warnings: self.warnings() }
    }
}

/// Content, and the options that it was read for.
struct Opened<T: FileBacked> {
    options: T::Options,
    content: Arc<T>,
}

/// Content of files, and the checks that read it again.
pub struct Reloader<T: FileBacked> {
    opened: RwLock<Opened<T>>,
    metrics: Arc<TlsMetrics>,
    watch: FileWatch,
}

impl<T: FileBacked> fmt::Debug for Reloader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader").field("content", &T::CONTENT).finish_non_exhaustive()
    }
}

/// The result of [`Reloader::prepare`]: content to apply, if it is other content.
pub struct Prepared<T: FileBacked>(Option<Opened<T>>);

impl<T: FileBacked> Reloader<T> {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be used; the text names it, its option and the remedy.
    pub fn open(options: T::Options, metrics: Arc<TlsMetrics>) -> Result<Self, TlsError> {
        let content = Arc::new(T::open_files(options.clone(), None)?);
        let usage = T::usage(&options);
        metrics.set_certificates(usage, content.in_use().files);
        let watch = FileWatch::new(usage, T::CONTENT, Arc::clone(&metrics));
        Ok(Self { opened: RwLock::new(Opened { options, content }), metrics, watch })
    }

    fn opened(&self) -> RwLockReadGuard<'_, Opened<T>> {
        self.opened.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The metrics that have these certificates.
    pub fn metrics(&self) -> Arc<TlsMetrics> {
        Arc::clone(&self.metrics)
    }

    /// The present content.
    pub fn current(&self) -> Arc<T> {
        Arc::clone(&self.opened().content)
    }

    /// Reads the files of new options, if they are other options. `None`: nothing is on that needs
    /// files, and the former content stays.
    ///
    /// # Errors
    /// A file cannot be used. The former content stays in use.
    pub fn prepare(&self, options: Option<T::Options>) -> Result<Prepared<T>, TlsError> {
        let Some(options) = options.filter(|options| self.opened().options != *options) else {
            return Ok(Prepared(None));
        };
        match T::open_files(options.clone(), Some(&self.current())) {
            Ok(content) => Ok(Prepared(Some(Opened { options, content: content.into() }))),
            Err(error) => {
                self.metrics.reloads.count(ReloadResult::Failed);
                Err(error)
            }
        }
    }

    /// Uses the content of new options from now on. Connections that exist stay.
    pub fn apply(&self, prepared: Prepared<T>) {
        let Some(opened) = prepared.0 else { return };
        let in_use = opened.content.in_use();
        *self.opened.write().unwrap_or_else(PoisonError::into_inner) = opened;
        self.watch.record_change(in_use);
        self.watch.advance();
    }

    /// Reads the files again because an operator asks for it. Returns whether the content has
    /// changed.
    ///
    /// # Errors
    /// A file cannot be used, as the log says. The former content stays in use.
    pub fn reload(&self) -> Result<bool, TlsError> {
        self.watch.forget_error();
        self.check_files()
    }

    /// Reads the files again if that is due. Called about once a second. Returns whether the
    /// content has changed.
    pub fn tick(&self, now: Instant) -> bool {
        self.watch.is_due(now) && self.check_files().unwrap_or(false)
    }

    fn check_files(&self) -> Result<bool, TlsError> {
        let content = self.current();
        let result = content.reload_files(SystemTime::now());
        let outcome = result.clone().map(|reloaded| reloaded == Reloaded::Changed);
        self.watch.record(result, || content.in_use());
        outcome
    }

    #[cfg(test)]
    pub(crate) fn last_error(&self) -> Option<String> {
        self.watch.last_error()
    }
}

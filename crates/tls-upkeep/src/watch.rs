//! The checks of the files of certificates and keys: when one is due, and what follows from its
//! result.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use shunt_tls::{CertificateFile, Reloaded, TlsError};
use tracing::{error, info, warn};

use crate::metrics::{ReloadResult, TlsMetrics};
use crate::shown;

/// Interval between two checks.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Time after which a warning says that a file changes again and again.
const UNSETTLED_WARNING_AFTER: Duration = Duration::from_secs(10);

/// The content of files that is in use.
#[derive(Default)]
pub struct InUse {
    /// The files of certificates.
    pub files: Vec<CertificateFile>,
    /// Warnings about any of the files.
    pub warnings: Vec<String>,
}

/// The checks of the files for one kind of peers.
pub(crate) struct FileWatch {
    /// The peers, as [`CertificateFile::usage`] names them.
    usage: &'static str,
    /// The content of the files, in the plural.
    content: &'static str,
    metrics: Arc<TlsMetrics>,
    state: Mutex<State>,
}

struct State {
    next: Instant,
    /// Last error: a line for each check would fill the log.
    last_error: Option<TlsError>,
    unsettled: Unsettled,
}

/// New content that is not used because one of the files may not be whole.
#[derive(Default)]
struct Unsettled {
    since: Option<Instant>,
    has_warning: bool,
}

impl Unsettled {
    /// Returns whether a warning is due: once, when the content has been unsettled for long.
    fn record(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let is_due = now.saturating_duration_since(since) >= UNSETTLED_WARNING_AFTER;
        is_due && !std::mem::replace(&mut self.has_warning, is_due)
    }
}

impl FileWatch {
    /// Watches files with this content for these peers; the first check is due after an interval.
    pub(crate) fn new(
        usage: &'static str,
        content: &'static str,
        metrics: Arc<TlsMetrics>,
    ) -> Self {
        let state = State {
            next: Instant::now() + CHECK_INTERVAL,
            last_error: None,
            unsettled: Unsettled::default(),
        };
        Self { usage, content, metrics, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn last_error(&self) -> Option<String> {
        self.state().last_error.as_ref().map(ToString::to_string)
    }

    /// True once for each interval.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let mut state = self.state();
        let is_due = now >= state.next;
        if is_due {
            state.next = now + CHECK_INTERVAL;
        }
        is_due
    }

    /// Makes the next check due now, since the files may not have been whole.
    pub(crate) fn advance(&self) {
        let mut state = self.state();
        state.next = state.next.min(Instant::now());
    }

    /// Has the next error logged even if it is the former one.
    pub(crate) fn forget_error(&self) {
        self.state().last_error = None;
    }

    /// Counts and logs the result of a check.
    pub(crate) fn record(
        &self,
        result: Result<Reloaded, TlsError>,
        in_use: impl FnOnce() -> InUse,
    ) {
        if !matches!(result, Ok(Reloaded::Unsettled(_))) {
            self.state().unsettled = Unsettled::default();
        }
        match result {
            Ok(Reloaded::Unsettled(file)) => self.record_unsettled(&file, Instant::now()),
            Ok(Reloaded::Unchanged) => {
                self.forget_error();
                self.metrics.reloads.count(ReloadResult::Unchanged);
            }
            Ok(Reloaded::Changed) => {
                self.forget_error();
                self.record_change(in_use());
            }
            Err(error) => {
                self.metrics.reloads.count(ReloadResult::Failed);
                if self.is_news(&error) {
                    let content = self.content;
                    error!(%error, "the {content} stay as they are, because the new ones cannot be used");
                }
            }
        }
    }

    /// Makes the next check due now, since a writer may not be done. Warns once if that goes on.
    fn record_unsettled(&self, file: &TlsError, now: Instant) {
        self.advance();
        if self.state().unsettled.record(now) {
            let content = self.content;
            self.metrics.reloads.count(ReloadResult::Failed);
            warn!(%file, "the {content} are not replaced: their files keep changing");
        }
    }

    /// Counts and logs new content, which is in use from now on.
    pub(crate) fn record_change(&self, in_use: InUse) {
        let InUse { files, warnings } = in_use;
        if files.is_empty() {
            let content = self.content;
            info!(usage = self.usage, "the new {content} are in use");
        }
        files.iter().for_each(log_in_use);
        warnings.iter().for_each(|warning| warn!("{warning}"));
        self.metrics.set_certificates(self.usage, files);
        self.metrics.reloads.count(ReloadResult::Changed);
    }

    /// True for an error that is not the former one. It is the former one from now on.
    fn is_news(&self, error: &TlsError) -> bool {
        let former = self.state().last_error.replace(error.clone());
        !former.is_some_and(|former| former.is_same_fault(error))
    }
}

fn log_in_use(file: &CertificateFile) {
    let (path, subject) = (file.path.display(), shown(&file.subject));
    info!(option = file.option, %path, subject, sha256 = file.sha256, "a certificate is in use");
}

#[cfg(test)]
mod tests {
    use shunt_admin::Label as _;
    use shunt_tls::Tokens;

    use super::*;

    /// The fault of a file of tokens with this text.
    fn fault(text: &str) -> TlsError {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("tokens");
        std::fs::write(&path, text).expect("written");
        Tokens::open("admin_token_file", path).expect_err("no token")
    }

    #[test]
    fn files_whose_writer_may_not_be_done_are_checked_again_at_the_next_tick() {
        let metrics = Arc::<TlsMetrics>::default();
        let watch = FileWatch::new("clients", "certificates", Arc::clone(&metrics));
        assert!(!watch.is_due(Instant::now()));
        watch.record(Ok(Reloaded::Unsettled(fault("short"))), || panic!("they are not in use"));
        let now = Instant::now();
        assert!(watch.is_due(now) && !watch.is_due(now));
        assert!(ReloadResult::ALL.iter().all(|result| metrics.reloads.get(*result) == 0));
        assert!(watch.is_due(now + CHECK_INTERVAL));
    }

    #[test]
    fn files_that_never_settle_have_one_warning() {
        let metrics = Arc::<TlsMetrics>::default();
        let watch = FileWatch::new("clients", "certificates", Arc::clone(&metrics));
        let (file, now) = (fault("short"), Instant::now());
        let warnings = |seconds: &[u64]| {
            seconds
                .iter()
                .for_each(|s| watch.record_unsettled(&file, now + Duration::from_secs(*s)));
            metrics.reloads.get(ReloadResult::Failed)
        };
        assert_eq!(warnings(&[0, 1, 9]), 0);
        assert_eq!(warnings(&[10, 11, 60]), 1);
        watch.record(Ok(Reloaded::Unchanged), InUse::default);
        assert_eq!(warnings(&[61, 62]), 1);
        assert_eq!(warnings(&[71, 72]), 2);
    }

    #[test]
    fn an_error_is_logged_when_it_is_another_one() {
        let (first, second) = (fault("short"), fault("a-token-of-the-admin-pages\nshort"));
        let watch = FileWatch::new("clients", "certificates", Arc::default());
        let is_news = [&first, &first, &second, &first].map(|error| watch.is_news(error));
        assert_eq!(is_news, [true, false, true, true]);
        watch.forget_error();
        assert!(watch.is_news(&first));
    }
}

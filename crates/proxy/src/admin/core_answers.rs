//! Answers of all cores to one question of an admin page. The page names a core that does not
//! answer in time instead of waiting for it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout_at;

use crate::control::{CoreMail, Mailbox};

/// Deadline for the answers of all cores together.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// Age up to which an answer is shown again, so that each core answers once a second however often
/// the page is requested.
const AGE_MAX: Duration = Duration::from_secs(1);

/// The cores, and their last answer to one question.
pub(super) struct CachedAnswer {
    mailboxes: Arc<[Mailbox]>,
    last: Mutex<Option<(Instant, Value)>>,
}

impl fmt::Debug for CachedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CachedAnswer")
    }
}

impl CachedAnswer {
    pub(super) fn new(mailboxes: Arc<[Mailbox]>) -> Self {
        Self { mailboxes, last: Mutex::new(None) }
    }

    /// The last answer, or a new one from `ask` if that is too old.
    pub(super) async fn recent<'a, F>(&'a self, ask: impl FnOnce(&'a [Mailbox]) -> F) -> Value
    where
        F: Future<Output = Value>,
    {
        let mut last = self.last.lock().await;
        if let Some((at, value)) = &*last
            && at.elapsed() < AGE_MAX
        {
            return value.clone();
        }
        let value = ask(&self.mailboxes).await;
        *last = Some((Instant::now(), value.clone()));
        value
    }
}

/// Asks all cores; `take` gets each answer with the core's number. Returns the cores that did not
/// answer.
pub(crate) async fn ask_all<A>(
    mailboxes: &[Mailbox],
    patience: Duration,
    question: impl Fn(mpsc::Sender<A>) -> CoreMail,
    mut take: impl FnMut(A) -> usize,
) -> Vec<usize> {
    let (sender, mut answers) = mpsc::channel(mailboxes.len().max(1));
    let mut missing: Vec<usize> = (0..mailboxes.len()).collect();
    for mailbox in mailboxes {
        // A core with a full mailbox counts as one that did not answer.
        let _ = mailbox(question(sender.clone()));
    }
    drop(sender);
    let until = tokio::time::Instant::now() + patience;
    while let Ok(Some(answer)) = timeout_at(until, answers.recv()).await {
        let core = take(answer);
        missing.retain(|missing| *missing != core);
    }
    missing
}

//! Questions to all cores for `/status`. The page names a core that does not answer in time instead
//! of waiting for it.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout_at;

use crate::control::{CoreMail, Mailbox};

/// Deadline for the answers of all cores together.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// Age up to which an answer is shown again, so that each core answers once a second however often
/// the page is requested.
pub(super) const AGE_MAX: Duration = Duration::from_secs(1);

/// Asks all cores; `take` gets each answer with the core's number. Returns the cores that did not
/// answer.
pub(super) async fn all<A>(
    mailboxes: &[Mailbox],
    patience: Duration,
    question: impl Fn(mpsc::Sender<A>) -> CoreMail,
    mut take: impl FnMut(A) -> usize,
) -> Vec<usize> {
    let (sender, mut answers) = mpsc::channel(mailboxes.len().max(1));
    let mut missing: Vec<usize> = (0..mailboxes.len()).collect();
    for mailbox in mailboxes {
        // A core with a full mailbox is missing in the end.
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

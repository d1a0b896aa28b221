//! Questions to all cores for `/status`. A core that does not answer in time is named instead of
//! waited for.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout_at;

use crate::control::{CoreMail, Mailbox};

/// How long the cores have, all together.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// An answer younger than this is shown again, so that however often a page is asked for each core
/// answers once a second.
pub(super) const AGE_MAX: Duration = Duration::from_secs(1);

/// Asks all cores; `take` gets each answer, and says which core's it is. Returns the cores that did
/// not answer.
pub(super) async fn all<A>(
    mailboxes: &[Mailbox],
    patience: Duration,
    question: impl Fn(mpsc::Sender<A>) -> CoreMail,
    mut take: impl FnMut(A) -> usize,
) -> Vec<usize> {
    let (sender, mut answers) = mpsc::channel(mailboxes.len().max(1));
    let mut missing: Vec<usize> = (0..mailboxes.len()).collect();
    for mailbox in mailboxes {
        // One whose mailbox is full is missing in the end.
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

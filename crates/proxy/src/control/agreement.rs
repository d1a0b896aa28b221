//! Who waits for schema agreement, and since when. One check of the schema versions answers all who asked before it.
//!
//! Only the node that made a change is sure to know it: to any other, all versions may look alike because none of them
//! is new yet. So the change is looked for from the node that made it, on the control connection if that goes there
//! and on one of its own otherwise.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::error::ControlError;
use super::{handshake, ring};
use crate::config::Config;

/// How long agreement is waited for, as drivers do by default.
const LIMIT: Duration = Duration::from_secs(10);
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(100);

/// The waiting cores.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    waiting: Vec<Waiting>,
    next_check: Option<Instant>,
}

#[derive(Debug)]
struct Waiting {
    core: usize,
    ticket: u64,
    deadline: Instant,
}

/// An answer that is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) core: usize,
    pub(super) ticket: u64,
    pub(super) agreed: bool,
}

impl Agreement {
    /// Somebody wants to know; the next check is due at once.
    pub(super) fn ask(&mut self, core: usize, ticket: u64, now: Instant) {
        self.waiting.push(Waiting { core, ticket, deadline: now + LIMIT });
        self.next_check = Some(now);
    }

    /// When the next check is due, if anybody waits.
    pub(super) fn due(&self) -> Option<Instant> {
        self.next_check
    }

    /// To be called before the versions are read; the number goes to [`Self::finish_check`].
    pub(super) fn start_check(&mut self) -> usize {
        self.waiting.len()
    }

    /// The outcome of a check that the first `asked` of those who wait were there for.
    pub(super) fn finish_check(&mut self, asked: usize, agreed: bool, now: Instant) -> Vec<Answer> {
        let mut answers = Vec::new();
        let mut index = 0;
        self.waiting.retain(|waiting| {
            let done = index < asked && (agreed || waiting.deadline <= now);
            index += 1;
            if done {
                answers.push(Answer { core: waiting.core, ticket: waiting.ticket, agreed });
            }
            !done
        });
        self.next_check = (!self.waiting.is_empty()).then_some(now + PAUSE);
        answers
    }

    /// The control connection is lost: everybody who waits gets a no.
    pub(super) fn abandon(&mut self) -> Vec<Answer> {
        self.next_check = None;
        let no = |waiting: Waiting| Answer { core: waiting.core, ticket: waiting.ticket, agreed: false };
        self.waiting.drain(..).map(no).collect()
    }
}

/// Whether all nodes but those that are down have the same version.
pub(super) fn agree(versions: &[(u128, u128)], down: &HashSet<u128>) -> bool {
    let mut versions = versions.iter().filter(|(host_id, _)| !down.contains(host_id)).map(|(_, version)| version);
    let first = versions.next();
    versions.all(|version| Some(version) == first)
}

/// Waits, on a connection of its own, until the node at `address` sees agreement; `false` if it did not in time.
pub(super) async fn seen_by(address: SocketAddr, config: &Config, down: &HashSet<u128>) -> bool {
    let limit = Duration::from_millis(config.connect_timeout_ms);
    let poll = async {
        let mut session = handshake::connect(address, config.credentials.as_ref(), limit).await?;
        while !agree(&ring::schema_versions(&mut session.connection, limit).await?, down) {
            sleep(PAUSE).await;
        }
        Ok::<_, ControlError>(())
    };
    match timeout(LIMIT, poll).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            debug!(%address, %error, "the node that changed the schema cannot be asked about agreement");
            false
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agreement_answers_those_who_asked_before_the_check() {
        let now = Instant::now();
        let mut agreement = Agreement::default();
        assert_eq!(agreement.due(), None);
        agreement.ask(0, 7, now);
        assert_eq!(agreement.due(), Some(now));
        let asked = agreement.start_check();
        agreement.ask(1, 8, now);
        assert_eq!(agreement.finish_check(asked, true, now), [Answer { core: 0, ticket: 7, agreed: true }]);
        assert_eq!(agreement.due(), Some(now + PAUSE));
    }

    #[test]
    fn after_the_deadline_the_answer_is_no() {
        let now = Instant::now();
        let mut agreement = Agreement::default();
        agreement.ask(2, 9, now);
        let asked = agreement.start_check();
        assert_eq!(agreement.finish_check(asked, false, now), []);
        let late = now + LIMIT;
        assert_eq!(agreement.finish_check(asked, false, late), [Answer { core: 2, ticket: 9, agreed: false }]);
        assert_eq!(agreement.due(), None);
    }
}

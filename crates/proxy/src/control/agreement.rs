//! The parties that wait for schema agreement. One check of the schema versions answers all that
//! asked before it.
//!
//! Only the node that made a change is sure to know it: to any other node, all versions may look
//! alike because none has changed yet. So the check starts from the node that made the change, on
//! the control connection if that leads there and on a separate one otherwise. Events wait too: a
//! driver that hears of a new table reads it at once, and its query may reach a node that does not
//! know the table yet.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::access::Access;
use super::error::ControlError;
use super::state::TableName;
use super::{handshake, ring};

/// Longest wait for agreement; the default of drivers.
const LIMIT: Duration = Duration::from_secs(10);
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(100);

/// Waiting parties, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    waiting: Vec<(Waiter, Instant)>,
    next_check: Option<Instant>,
}

/// A party that waits for agreement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    /// A core, for the answer to a client.
    Core {
        /// Index of the core.
        core: usize,
        /// The core's number for the request.
        ticket: u64,
        /// The new table, if the change made one.
        table: Option<Box<TableName>>,
    },
    /// The body of an event to forward.
    Event(Arc<[u8]>),
}

/// An answer that is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) waiter: Waiter,
    pub(super) agreed: bool,
}

impl Agreement {
    /// Adds a waiter; the next check is due at once, unless one is scheduled.
    pub(super) fn ask(&mut self, waiter: Waiter, now: Instant) {
        self.waiting.push((waiter, now + LIMIT));
        self.next_check.get_or_insert(now);
    }

    /// Time of the next check, if anybody waits.
    pub(super) fn due(&self) -> Option<Instant> {
        self.next_check
    }

    /// Begins a check, before the versions are read; the number goes to [`Self::finish_check`].
    pub(super) fn start_check(&mut self) -> usize {
        self.waiting.len()
    }

    /// Takes the outcome of a check for the first `asked` waiters.
    pub(super) fn finish_check(&mut self, asked: usize, agreed: bool, now: Instant) -> Vec<Answer> {
        let mut answers = Vec::new();
        let mut index = 0;
        self.waiting.retain(|(waiter, deadline)| {
            let done = index < asked && (agreed || *deadline <= now);
            index += 1;
            if done {
                answers.push(Answer { waiter: waiter.clone(), agreed });
            }
            !done
        });
        self.next_check = (!self.waiting.is_empty()).then_some(now + PAUSE);
        answers
    }

    /// Answers no to all waiters, because the control connection is lost.
    pub(super) fn abandon(&mut self) -> Vec<Answer> {
        self.next_check = None;
        self.waiting.drain(..).map(|(waiter, _)| Answer { waiter, agreed: false }).collect()
    }
}

/// True if all nodes but those that are down have the same version.
pub(super) fn agree(versions: &[(u128, u128)], down: &HashSet<u128>) -> bool {
    let mut versions =
        versions.iter().filter(|(host_id, _)| !down.contains(host_id)).map(|(_, version)| version);
    let first = versions.next();
    versions.all(|version| Some(version) == first)
}

/// Waits, on a separate connection, until the node at `address` sees agreement; `false` if it did
/// not in time.
pub(super) async fn seen_by(address: SocketAddr, access: &Access, down: &HashSet<u128>) -> bool {
    let poll = async {
        let mut session = handshake::connect(address, access).await?;
        while !agree(&ring::schema_versions(&mut session.connection, access.limit).await?, down) {
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

    fn core(core: usize, ticket: u64) -> Waiter {
        Waiter::Core { core, ticket, table: None }
    }

    #[test]
    fn agreement_answers_those_who_asked_before_the_check() {
        let now = Instant::now();
        let mut agreement = Agreement::default();
        assert_eq!(agreement.due(), None);
        agreement.ask(core(0, 7), now);
        assert_eq!(agreement.due(), Some(now));
        let asked = agreement.start_check();
        agreement.ask(core(1, 8), now);
        assert_eq!(
            agreement.finish_check(asked, true, now),
            [Answer { waiter: core(0, 7), agreed: true }]
        );
        assert_eq!(agreement.due(), Some(now + PAUSE));
    }

    #[test]
    fn after_the_deadline_the_answer_is_no() {
        let now = Instant::now();
        let mut agreement = Agreement::default();
        agreement.ask(core(2, 9), now);
        let asked = agreement.start_check();
        assert_eq!(agreement.finish_check(asked, false, now), []);
        let late = now + LIMIT;
        assert_eq!(
            agreement.finish_check(asked, false, late),
            [Answer { waiter: core(2, 9), agreed: false }]
        );
        assert_eq!(agreement.due(), None);
    }

    #[test]
    fn everybody_who_waits_hears_of_the_end() {
        let now = Instant::now();
        let mut agreement = Agreement::default();
        let event = Waiter::Event(Arc::from(&b"event"[..]));
        agreement.ask(event.clone(), now);
        agreement.ask(core(0, 1), now);
        let no = |waiter| Answer { waiter, agreed: false };
        assert_eq!(agreement.abandon(), [no(event), no(core(0, 1))]);
        assert_eq!(agreement.due(), None);
    }
}

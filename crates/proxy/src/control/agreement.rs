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
use super::event_queue::{EVENTS_BYTES_MAX, EVENTS_MAX};
use super::state::TableName;
use super::{handshake, ring};
use crate::limits;

/// Longest wait for agreement; the default of drivers.
const LIMIT: Duration = Duration::from_secs(10);
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(100);

/// Waiting parties, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    waiting: Vec<Waiting>,
    /// Events among them.
    events: usize,
    /// Bytes of these events.
    event_bytes: usize,
    /// Number of the next party.
    next_number: u64,
    next_check: Option<Instant>,
}

/// A party with its number and the time when its wait ends.
#[derive(Debug)]
struct Waiting {
    waiter: Waiter,
    number: u64,
    deadline: Instant,
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
    /// Adds a waiter; the next check is due at once, unless one is scheduled. An event takes the
    /// place of an equal one, and has its deadline.
    ///
    /// # Errors
    /// There is no room for this waiter.
    pub(super) fn ask(&mut self, waiter: Waiter, now: Instant) -> Result<(), Waiter> {
        let mut deadline = now + LIMIT;
        let equal = match &waiter {
            Waiter::Event(_) => self.waiting.iter().position(|other| other.waiter == waiter),
            Waiter::Core { .. } => None,
        };
        if let Some(place) = equal {
            deadline = self.waiting.remove(place).deadline;
        } else if !self.has_room_for(&waiter) {
            return Err(waiter);
        }
        self.waiting.push(Waiting { waiter, number: self.next_number, deadline });
        self.next_number += 1;
        self.next_check.get_or_insert(now);
        Ok(())
    }

    /// Counts a waiter in, if there is room for it.
    fn has_room_for(&mut self, waiter: &Waiter) -> bool {
        match waiter {
            Waiter::Event(body) => {
                let bytes = self.event_bytes + body.len();
                let has_room = self.events < EVENTS_MAX && bytes <= EVENTS_BYTES_MAX;
                if has_room {
                    (self.events, self.event_bytes) = (self.events + 1, bytes);
                }
                has_room
            }
            Waiter::Core { .. } => self.waiting.len() - self.events < limits::REPAIRS_MAX,
        }
    }

    /// Counts the events that wait, and their bytes.
    fn count_events(&mut self) {
        let bodies = self.waiting.iter().filter_map(|waiting| match &waiting.waiter {
            Waiter::Event(body) => Some(body.len()),
            Waiter::Core { .. } => None,
        });
        (self.events, self.event_bytes) =
            bodies.fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes));
    }

    /// Time of the next check, if anybody waits.
    pub(super) fn due(&self) -> Option<Instant> {
        self.next_check
    }

    /// Begins a check, before the versions are read; the number goes to [`Self::finish_check`].
    pub(super) fn start_check(&mut self) -> u64 {
        self.next_number
    }

    /// Takes the outcome of a check for the waiters that came before the number `asked`.
    pub(super) fn finish_check(&mut self, asked: u64, agreed: bool, now: Instant) -> Vec<Answer> {
        let is_done =
            |waiting: &mut Waiting| waiting.number < asked && (agreed || waiting.deadline <= now);
        let done = self.waiting.extract_if(.., is_done);
        let answers = done.map(|waiting| Answer { waiter: waiting.waiter, agreed }).collect();
        self.count_events();
        self.next_check = (!self.waiting.is_empty()).then_some(now + PAUSE);
        answers
    }

    /// Answers no to all waiters, because the control connection is lost.
    pub(super) fn abandon(&mut self) -> Vec<Answer> {
        self.next_check = None;
        (self.events, self.event_bytes) = (0, 0);
        let waiters = self.waiting.drain(..).map(|waiting| waiting.waiter);
        waiters.map(|waiter| Answer { waiter, agreed: false }).collect()
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
        agreement.ask(core(0, 7), now).expect("room");
        assert_eq!(agreement.due(), Some(now));
        let asked = agreement.start_check();
        agreement.ask(core(1, 8), now).expect("room");
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
        agreement.ask(core(2, 9), now).expect("room");
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
        agreement.ask(event.clone(), now).expect("room");
        agreement.ask(core(0, 1), now).expect("room");
        let no = |waiter| Answer { waiter, agreed: false };
        assert_eq!(agreement.abandon(), [no(event), no(core(0, 1))]);
        assert_eq!(agreement.due(), None);
    }

    fn event(number: u64) -> Waiter {
        Waiter::Event(Arc::from(number.to_be_bytes().as_slice()))
    }

    #[test]
    fn an_event_that_comes_again_waits_once_for_a_later_check_until_the_first_deadline() {
        let now = Instant::now();
        let mut agreement = Agreement::default();
        agreement.ask(event(1), now).expect("room");
        let asked = agreement.start_check();
        for _ in 0..3 {
            agreement.ask(event(1), now + PAUSE).expect("room");
        }
        assert_eq!(agreement.finish_check(asked, true, now), []);
        let asked = agreement.start_check();
        let answer = Answer { waiter: event(1), agreed: false };
        assert_eq!(agreement.finish_check(asked, false, now + LIMIT), [answer]);
    }

    #[test]
    fn events_and_cores_have_bounds_of_their_own() {
        let now = Instant::now();
        let mut agreement = Agreement::default();
        let took = |agreement: &mut Agreement, waiters: &mut dyn Iterator<Item = Waiter>| {
            waiters.filter(|waiter| agreement.ask(waiter.clone(), now).is_ok()).count()
        };
        let most = limits::REPAIRS_MAX as u64;
        assert_eq!(took(&mut agreement, &mut (0..2 * most).map(event)), EVENTS_MAX);
        let mut cores = (0..2 * most).map(|ticket| core(0, ticket));
        assert_eq!(took(&mut agreement, &mut cores), limits::REPAIRS_MAX);
        assert_eq!(agreement.ask(event(most), now), Err(event(most)));
        let large = |number: u8| Waiter::Event(vec![number; EVENTS_BYTES_MAX / 4].into());
        let mut agreement = Agreement::default();
        assert_eq!(took(&mut agreement, &mut (0..9).map(large)), 4);
    }
}

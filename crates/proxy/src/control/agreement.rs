//! The parties that wait for schema agreement. One check of the schema versions answers all that
//! asked before it.
//!
//! Only the node that made a change is sure to know it: to any other node, all versions may look
//! alike because none has changed yet. So the check starts from the node that made the change, on
//! the control connection if that leads there and on a separate one otherwise. Events wait too: a
//! driver that hears of a new table reads it at once, and its query may reach a node that does not
//! know the table yet.
//!
//! Other clients may change the schema all the time, so that the nodes never have one version. A
//! change has reached all nodes once each has had it for a moment ([`Spread`]).

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::access::Access;
use super::error::ControlError;
use super::event_queue::{EVENTS_BYTES_MAX, EVENTS_MAX};
use super::ring::SchemaVersions;
use super::state::TableName;
use super::{handshake, ring};
use crate::limits;

/// Longest wait for agreement; the default of drivers.
const LIMIT: Duration = Duration::from_secs(10);
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(100);
/// Versions that are kept for one change.
const VERSIONS_MAX: usize = 1024;
/// Waiting parties with versions of their own. Others wait until all nodes have one version.
const SPREADS_MAX: usize = 64;

/// Waiting parties, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    waiting: Vec<Waiting>,
    /// Events among them.
    events: usize,
    /// Bytes of these events.
    event_bytes: usize,
    /// Parties with versions of their own.
    spreads: usize,
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
    /// Host id of the node that made the change, if it is known. No other node's answer counts.
    maker: Option<u128>,
    /// The nodes that have the change; `None`: all nodes must have one version.
    spread: Option<Spread>,
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

/// The nodes that have a change, and the versions of the schema that contain it.
///
/// A version stands for a whole schema. A node that has a change keeps it, whatever else changes
/// after it, so each version that such a node has from then on contains the change, and each node
/// with such a version has it too. A schema without the change is one of these only if somebody has
/// taken the change back.
///
/// Only the node that made the change tells where it is. An address or a control connection may
/// lead to another node, to which its own old version would look like one with the change.
#[derive(Debug)]
pub(super) struct Spread {
    maker: u128,
    nodes: HashSet<u128>,
    versions: HashSet<u128>,
}

impl Spread {
    /// A change that the node with this host id has made.
    pub(super) fn of(maker: u128) -> Self {
        Self { maker, nodes: HashSet::from([maker]), versions: HashSet::new() }
    }

    /// Takes in the versions that a node tells. True if the node is the one that made the change,
    /// and all nodes but those that are down have the change. A node whose version is not known
    /// does not have it, unless it had it before.
    pub(super) fn see(&mut self, told: &SchemaVersions, view: RingView<'_>) -> bool {
        if told.asked != self.maker {
            return false;
        }
        // The nodes that this call adds give no versions: two passes are enough.
        for (host_id, version) in &told.nodes {
            if self.nodes.contains(host_id) && self.versions.len() < VERSIONS_MAX {
                self.versions.extend(*version);
            }
        }
        for (host_id, version) in &told.nodes {
            if version.is_some_and(|version| self.versions.contains(&version)) {
                self.nodes.insert(*host_id);
            }
        }
        view.all_up(told, |host_id| self.nodes.contains(&host_id))
    }
}

/// The nodes as the proxy knows them. The node that is asked may lack some of them, as a node does
/// that hears late of one that joins.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingView<'a> {
    /// Host ids of all nodes.
    pub(super) members: &'a HashSet<u128>,
    /// Host ids of the nodes that are believed down.
    pub(super) down: &'a HashSet<u128>,
}

impl RingView<'_> {
    /// True if all nodes that are up, told or members, are `fit`.
    fn all_up(self, told: &SchemaVersions, fit: impl Fn(u128) -> bool) -> bool {
        let mut up = told.nodes.keys().chain(self.members).filter(|id| !self.down.contains(id));
        up.all(|host_id| fit(*host_id))
    }
}

/// An answer that is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) waiter: Waiter,
    pub(super) agreed: bool,
}

impl Agreement {
    /// Adds a waiter; the next check is due at once, unless one is scheduled. An event takes the
    /// place of an equal one, and has its deadline. Returns the answers that are due at once,
    /// because there is no more room: to the oldest events, or to this core. `spread` is given if
    /// it is known which node has made the change.
    pub(super) fn ask(
        &mut self,
        waiter: Waiter,
        spread: Option<Spread>,
        now: Instant,
    ) -> Vec<Answer> {
        let (mut deadline, mut answers) = (now + LIMIT, Vec::new());
        match &waiter {
            Waiter::Event(body) => {
                let equal = self.waiting.iter().position(|other| other.waiter == waiter);
                if let Some(equal) = equal {
                    deadline = self.waiting.remove(equal).deadline;
                    self.count_events();
                }
                while !self.has_room_for(body.len()) {
                    let is_event = |other: &Waiting| matches!(other.waiter, Waiter::Event(_));
                    let Some(oldest) = self.waiting.iter().position(is_event) else { break };
                    let waiter = self.waiting.remove(oldest).waiter;
                    answers.push(Answer { waiter, agreed: false });
                    self.count_events();
                }
                (self.events, self.event_bytes) = (self.events + 1, self.event_bytes + body.len());
            }
            Waiter::Core { .. } if self.waiting.len() - self.events >= limits::REPAIRS_MAX => {
                return vec![Answer { waiter, agreed: false }];
            }
            Waiter::Core { .. } => {}
        }
        let maker = spread.as_ref().map(|spread| spread.maker);
        let spread = spread.filter(|_| self.spreads < SPREADS_MAX);
        self.spreads += usize::from(spread.is_some());
        self.waiting.push(Waiting { waiter, number: self.next_number, deadline, maker, spread });
        self.next_number += 1;
        self.next_check.get_or_insert(now);
        answers
    }

    fn has_room_for(&self, event_bytes: usize) -> bool {
        self.events < EVENTS_MAX && self.event_bytes + event_bytes <= EVENTS_BYTES_MAX
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

    /// Takes the versions that a check has read, for the waiters that came before the number
    /// `asked`.
    pub(super) fn finish_check(
        &mut self,
        asked: u64,
        told: &SchemaVersions,
        view: RingView<'_>,
        now: Instant,
    ) -> Vec<Answer> {
        let (mut answers, all_agree) = (Vec::new(), agree(told, view));
        for mut waiting in std::mem::take(&mut self.waiting) {
            let is_asked = waiting.number < asked;
            let agreed = is_asked
                && match &mut waiting.spread {
                    Some(spread) => spread.see(told, view),
                    None => all_agree && waiting.maker.is_none_or(|maker| maker == told.asked),
                };
            match agreed || is_asked && waiting.deadline <= now {
                true => answers.push(Answer { waiter: waiting.waiter, agreed }),
                false => self.waiting.push(waiting),
            }
        }
        self.count_events();
        self.spreads = self.waiting.iter().filter(|waiting| waiting.spread.is_some()).count();
        self.next_check = (!self.waiting.is_empty()).then_some(now + PAUSE);
        answers
    }

    /// Answers no to all waiters, because the control connection is lost.
    pub(super) fn abandon(&mut self) -> Vec<Answer> {
        self.next_check = None;
        (self.events, self.event_bytes, self.spreads) = (0, 0, 0);
        let waiters = self.waiting.drain(..).map(|waiting| waiting.waiter);
        waiters.map(|waiter| Answer { waiter, agreed: false }).collect()
    }
}

/// True if all nodes but those that are down have the version of the node that was asked.
fn agree(told: &SchemaVersions, view: RingView<'_>) -> bool {
    let version_of = |host_id: u128| told.nodes.get(&host_id).copied().flatten();
    let own = version_of(told.asked);
    own.is_some() && view.all_up(told, |host_id| version_of(host_id) == own)
}

/// Waits, on a separate connection, until the node `maker` at `address` sees that all nodes have
/// the change that it made; `false` if it did not in time. A busy node may need longer than a step
/// may take, and is asked again.
pub(super) async fn seen_by(
    maker: u128,
    address: SocketAddr,
    access: &Access,
    view: RingView<'_>,
) -> bool {
    let mut spread = Spread::of(maker);
    let poll = async {
        loop {
            match poll_versions(address, access, &mut spread, view).await {
                Err(ControlError::TimedOut(_)) => sleep(PAUSE).await,
                outcome => return outcome,
            }
        }
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

/// Asks a node for schema versions until all nodes have the change.
async fn poll_versions(
    address: SocketAddr,
    access: &Access,
    spread: &mut Spread,
    view: RingView<'_>,
) -> Result<(), ControlError> {
    let mut session = handshake::connect(address, access).await?;
    loop {
        let told = ring::schema_versions(&mut session.connection, access.limit).await?;
        if spread.see(&told, view) {
            return Ok(());
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    /// Host ids and versions that agree, and others that do not.
    const ONE: &[(u128, u128)] = &[(1, 7), (2, 7)];
    const TWO: &[(u128, u128)] = &[(1, 7), (2, 8)];

    /// Versions that node 1 tells: its own version first, then those of its peers' rows.
    fn told(rows: &[(u128, u128)]) -> SchemaVersions {
        let peers = rows[1..].iter().map(|(host_id, version)| (*host_id, Some(*version)));
        SchemaVersions::new(rows[0].0, Some(rows[0].1), peers)
    }

    /// No node but those that are told.
    fn up() -> RingView<'static> {
        static NONE: LazyLock<HashSet<u128>> = LazyLock::new(HashSet::new);
        RingView { members: &NONE, down: &NONE }
    }

    /// The same, with these nodes down.
    fn without(down: &HashSet<u128>) -> RingView<'_> {
        RingView { down, ..up() }
    }

    fn core(core: usize, ticket: u64) -> Waiter {
        Waiter::Core { core, ticket, table: None }
    }

    #[test]
    fn agreement_answers_those_who_asked_before_the_check() {
        let now = Instant::now();
        let mut agreement = Agreement::default();
        assert_eq!(agreement.due(), None);
        assert_eq!(agreement.ask(core(0, 7), None, now), []);
        assert_eq!(agreement.due(), Some(now));
        let asked = agreement.start_check();
        assert_eq!(agreement.ask(core(1, 8), None, now), []);
        assert_eq!(
            agreement.finish_check(asked, &told(ONE), up(), now),
            [Answer { waiter: core(0, 7), agreed: true }]
        );
        assert_eq!(agreement.due(), Some(now + PAUSE));
    }

    #[test]
    fn after_the_deadline_the_answer_is_no() {
        let now = Instant::now();
        let mut agreement = Agreement::default();
        assert_eq!(agreement.ask(core(2, 9), None, now), []);
        let asked = agreement.start_check();
        assert_eq!(agreement.finish_check(asked, &told(TWO), up(), now), []);
        let late = now + LIMIT;
        assert_eq!(
            agreement.finish_check(asked, &told(TWO), up(), late),
            [Answer { waiter: core(2, 9), agreed: false }]
        );
        assert_eq!(agreement.due(), None);
    }

    #[test]
    fn everybody_who_waits_hears_of_the_end() {
        let now = Instant::now();
        let mut agreement = Agreement::default();
        let event = Waiter::Event(Arc::from(&b"event"[..]));
        assert_eq!(agreement.ask(event.clone(), None, now), []);
        assert_eq!(agreement.ask(core(0, 1), None, now), []);
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
        assert_eq!(agreement.ask(event(1), None, now), []);
        let asked = agreement.start_check();
        for _ in 0..3 {
            assert_eq!(agreement.ask(event(1), None, now + PAUSE), []);
        }
        assert_eq!(agreement.finish_check(asked, &told(ONE), up(), now), []);
        let asked = agreement.start_check();
        let answer = Answer { waiter: event(1), agreed: false };
        assert_eq!(agreement.finish_check(asked, &told(TWO), up(), now + LIMIT), [answer]);
    }

    #[test]
    fn the_oldest_event_makes_room_for_a_new_one() {
        let now = Instant::now();
        let most = EVENTS_MAX as u64;
        let mut agreement = Agreement::default();
        let early: Vec<Answer> =
            (0..most + 3).flat_map(|number| agreement.ask(event(number), None, now)).collect();
        let no = |number| Answer { waiter: event(number), agreed: false };
        assert_eq!(early, [no(0), no(1), no(2)]);
        assert_eq!(agreement.ask(event(5), None, now), []);
        assert_eq!((agreement.waiting.len(), agreement.abandon().len()), (EVENTS_MAX, EVENTS_MAX));
        let large = |number: u8| Waiter::Event(vec![number; EVENTS_BYTES_MAX / 4].into());
        let early: Vec<Answer> =
            (0..9).flat_map(|number| agreement.ask(large(number), None, now)).collect();
        assert_eq!((early.len(), agreement.waiting.len()), (5, 4));
    }

    #[test]
    fn a_core_for_which_there_is_no_room_is_answered_at_once() {
        let now = Instant::now();
        let mut agreement = Agreement::default();
        assert_eq!(agreement.ask(event(0), None, now), []);
        let most = limits::REPAIRS_MAX as u64;
        assert!((0..most).all(|ticket| agreement.ask(core(0, ticket), None, now).is_empty()));
        let no = Answer { waiter: core(0, most), agreed: false };
        assert_eq!(agreement.ask(core(0, most), None, now), [no]);
        assert_eq!(agreement.waiting.len(), limits::REPAIRS_MAX + 1);
    }

    #[test]
    fn a_change_has_spread_once_each_node_had_it_for_a_moment() {
        let mut spread = Spread::of(1);
        let mut see = |of: [u128; 4]| {
            let versions: Vec<(u128, u128)> = (1..).zip(of).collect();
            spread.see(&told(&versions), without(&HashSet::from([4])))
        };
        assert!(!see([10, 9, 9, 9]), "the first node has made the change");
        assert!(!see([11, 10, 9, 9]), "the second node has it, and another change came");
        assert!(!see([12, 11, 8, 9]), "the third is at a version that nobody had since");
        assert!(!see([13, 21, 8, 9]), "the second has a change of its own");
        assert!(see([14, 22, 21, 9]), "the third follows the second; the fourth is down");
        // The maker's own versions are not the only ones, whatever the order of the nodes.
        let mut spread = Spread::of(1);
        assert!(!spread.see(&told(&[(1, 10), (3, 9), (2, 10)]), up()));
        assert!(spread.see(&told(&[(1, 11), (3, 21), (2, 21)]), up()));
    }

    #[test]
    fn parties_with_versions_of_their_own_have_a_limit() {
        let now = Instant::now();
        let mut agreement = Agreement::default();
        for ticket in 0..=SPREADS_MAX as u64 {
            assert_eq!(agreement.ask(core(0, ticket), Some(Spread::of(1)), now), []);
        }
        let asked = agreement.start_check();
        assert_eq!(agreement.finish_check(asked, &told(TWO), up(), now), []);
        let followed = told(&[(1, 9), (2, 7)]);
        assert_eq!(agreement.finish_check(asked, &followed, up(), now).len(), SPREADS_MAX);
        assert_eq!((agreement.waiting.len(), agreement.spreads), (1, 0));
        assert_eq!(agreement.finish_check(asked, &told(ONE), up(), now).len(), 1);
    }

    #[test]
    fn one_version_is_agreement() {
        for (versions, is_agreed) in [(ONE, true), (TWO, false)] {
            let told = told(versions);
            assert_eq!(agree(&told, up()), is_agreed);
            assert_eq!(Spread::of(1).see(&told, up()), is_agreed);
            assert!(Spread::of(1).see(&told, without(&HashSet::from([2]))), "a node is down");
        }
    }

    #[test]
    fn a_second_row_of_a_node_does_not_bring_the_change_to_others() {
        for rows in [[(1, 1), (1, 0), (2, 0), (3, 0)], [(1, 1), (2, 1), (2, 0), (3, 0)]] {
            let mut spread = Spread::of(1);
            for _ in 0..3 {
                assert!(!spread.see(&told(&rows), up()), "{rows:?}");
            }
            assert!(!agree(&told(&rows), up()), "{rows:?}");
        }
        let of_maker = [(1, 1), (1, 0), (2, 1)];
        assert!(Spread::of(1).see(&told(&of_maker), up()) && agree(&told(&of_maker), up()));
        let of_peer = [(1, 1), (2, 1), (2, 0)];
        assert!(!Spread::of(1).see(&told(&of_peer), up()), "either row may be the remnant");
        assert!(Spread::of(1).see(&told(&of_peer), without(&HashSet::from([2]))));
    }

    #[test]
    fn a_node_that_the_one_asked_does_not_know_has_to_have_the_change_too() {
        let (members, down) = (HashSet::from([1, 2, 3]), HashSet::from([3]));
        let view = RingView { members: &members, ..up() };
        assert!(!Spread::of(1).see(&told(ONE), view) && !agree(&told(ONE), view));
        let without = RingView { down: &down, ..view };
        assert!(Spread::of(1).see(&told(ONE), without) && agree(&told(ONE), without));
        let whole = told(&[(1, 7), (2, 7), (3, 7), (4, 7)]);
        assert!(Spread::of(1).see(&whole, view) && agree(&whole, view), "a new node has it");
    }

    #[test]
    fn a_node_without_a_version_does_not_have_the_change() {
        let peers = [(2, Some(1)), (3, None)];
        let of_peer = SchemaVersions::new(1, Some(1), peers);
        assert!(!Spread::of(1).see(&of_peer, up()) && !agree(&of_peer, up()));
        let of_maker = SchemaVersions::new(1, None, [(2, Some(1)), (3, Some(1))]);
        assert!(!Spread::of(1).see(&of_maker, up()) && !agree(&of_maker, up()));
        let of_none = SchemaVersions::new(1, None, [(2, None)]);
        assert!(!Spread::of(1).see(&of_none, up()) && !agree(&of_none, up()));
    }

    #[test]
    fn another_node_than_the_maker_does_not_tell_where_the_change_is() {
        let now = Instant::now();
        let mut agreement = Agreement::default();
        let most = SPREADS_MAX as u64;
        for ticket in 0..=most {
            assert_eq!(agreement.ask(core(0, ticket), Some(Spread::of(2)), now), []);
        }
        let asked = agreement.start_check();
        assert_eq!(agreement.finish_check(asked, &told(ONE), up(), now), []);
        let of_maker = SchemaVersions::new(2, Some(7), [(1, Some(7))]);
        let answers = agreement.finish_check(asked, &of_maker, up(), now);
        assert!(answers.len() as u64 == most + 1 && answers.iter().all(|answer| answer.agreed));
    }

    #[test]
    fn a_core_waits_for_no_other_change_than_its_own() {
        let now = Instant::now();
        let mut agreement = Agreement::default();
        let spread = Some(Spread::of(1));
        assert_eq!(agreement.ask(core(0, 1), spread, now), []);
        assert_eq!(agreement.ask(event(2), None, now), []);
        let asked = agreement.start_check();
        assert_eq!(agreement.finish_check(asked, &told(TWO), up(), now), []);
        let followed = told(&[(1, 9), (2, 7)]);
        let answer = Answer { waiter: core(0, 1), agreed: true };
        assert_eq!(agreement.finish_check(asked, &followed, up(), now), [answer]);
        let answer = Answer { waiter: event(2), agreed: true };
        assert_eq!(agreement.finish_check(asked, &told(ONE), up(), now), [answer]);
    }
}

//! Identity of tables: which table a name stands for, from answers that a core keeps, and waiters
//! for answers. `W` identifies a waiter.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Names that are kept. Beyond that, names without waiters are dropped.
const NAMES_MAX: usize = 1_024;

/// Versions of the schema that are kept.
const VERSIONS_MAX: usize = 8;

/// Questions about one name under way at a time, without those to silent nodes.
const ASKED_MAX: usize = 2;

/// Questions about one name under way at a time, in all.
const UNANSWERED_MAX: usize = 16;

/// Questions that are repeated, in a row, before waiters are told that no node has answered.
const REPEATS_MAX: usize = 2;

/// The id of a table in `system_schema.tables`. A table that is dropped and created again gets
/// another id.
pub type TableId = [u8; 16];

/// Stands for a table of the fleet's own, which is written by its name: nobody recreates it while a
/// transaction is under way.
pub const FLEETS_OWN: TableId = [0; 16];

/// Question about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IdentityKind {
    /// The table's id.
    Id,
    /// The table's columns, as one hash.
    Columns,
    /// The version of the schema at the node that answers. The name is empty.
    Schema,
}

/// Question, keyspace and name.
pub type Key = (IdentityKind, Box<str>, Box<str>);

/// A node's answer about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The id, the hash of the columns, or the version.
    Table(TableId),
    /// No table has this name.
    Nothing,
    /// No node has answered, or not recently.
    Unknown,
}

/// An answer, and when it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityAnswer {
    /// The answer.
    pub identity: Identity,
    /// Time at which the question was sent.
    pub asked_ns: u64,
}

/// One name.
pub struct Name<W> {
    /// Text of the question, once it was asked.
    pub question: Option<Arc<str>>,
    /// The last answer.
    pub last: Option<IdentityAnswer>,
    /// Questions under way, each with its number and the time when it was sent. A second question
    /// goes out if the first is too old for a waiter.
    pub asked: Vec<(u64, u64)>,
    /// Waiters, each with the earliest time at which its answer may have been asked for.
    pub waiting: Vec<(u64, W)>,
    /// Questions repeated since waiters were last told anything.
    pub repeats: usize,
}

impl<W> Default for Name<W> {
    fn default() -> Self {
        Self { question: None, last: None, asked: Vec::new(), waiting: Vec::new(), repeats: 0 }
    }
}

impl<W> Name<W> {
    /// True if a waiter needs a newer question than those under way, and one more may be sent.
    /// Nodes asked before `silent_ns` count as silent.
    pub fn is_to_be_asked(&self, silent_ns: u64) -> bool {
        let heard_soon = self.asked.iter().filter(|(_, asked_ns)| *asked_ns >= silent_ns).count();
        heard_soon < ASKED_MAX
            && self.asked.len() < UNANSWERED_MAX
            && self.waiting.iter().any(|(since_ns, _)| self.is_asked_for_later(*since_ns))
    }

    /// True if waiters wait for silent nodes alone, and another node may be asked.
    pub fn is_unheard(&self, silent_ns: u64) -> bool {
        !self.waiting.is_empty()
            && self.repeats < REPEATS_MAX
            && (1..UNANSWERED_MAX).contains(&self.asked.len())
            && self.is_asked_for_later(silent_ns)
    }

    /// Takes in that a question of this time failed. True if its waiters are to wait for another
    /// node.
    pub fn is_repeated(&mut self, asked_ns: u64) -> bool {
        let is_repeated = self.repeats < REPEATS_MAX
            && self.waiting.iter().any(|(since_ns, _)| *since_ns <= asked_ns);
        self.repeats += usize::from(is_repeated);
        is_repeated
    }

    /// True if no question under way was sent at this time or later.
    pub fn is_asked_for_later(&self, since_ns: u64) -> bool {
        self.asked.iter().all(|(_, asked_ns)| *asked_ns < since_ns)
    }
}

/// The names of a core.
pub struct Names<W> {
    /// Names with their answers and waiters.
    pub known: HashMap<Key, Name<W>>,
    /// Questions under way, by number.
    pub asked: HashMap<u64, Key>,
    /// Number of the last question.
    pub number: u64,
}

impl<W> Default for Names<W> {
    fn default() -> Self {
        Self { known: HashMap::new(), asked: HashMap::new(), number: 0 }
    }
}

impl<W> Names<W> {
    /// Returns a name, and adds it if it is not known yet.
    pub fn entry(&mut self, key: &Key) -> &mut Name<W> {
        if self.known.len() >= NAMES_MAX && !self.known.contains_key(key) {
            self.known.retain(|_, name| !name.asked.is_empty() || !name.waiting.is_empty());
        }
        self.known.entry(key.clone()).or_default()
    }

    /// Drops all answers: those who ask from now on get newer ones.
    pub fn forget_answers(&mut self) {
        self.known.values_mut().for_each(|name| name.last = None);
    }
}

/// Versions of the schema that nodes have named lately, the latest last. Nodes of two releases may
/// name two for hours, and neither is news then. A version that was left never comes back: nodes
/// hash the times of all changes into it, or draw a new one.
#[derive(Debug, Default)]
pub struct SchemaVersions {
    named: VecDeque<TableId>,
    /// Time of the last change that this core knows of by other means.
    changed_ns: u64,
    /// Number of the last question; each goes to another node.
    turn: usize,
}

impl SchemaVersions {
    /// True once a node has named one.
    pub fn is_known(&self) -> bool {
        !self.named.is_empty()
    }

    /// Takes in the version that a node named; true if the schema has changed. The first tells of
    /// no change.
    pub fn is_changed_by(&mut self, version: TableId) -> bool {
        if self.named.contains(&version) {
            return false;
        }
        if self.named.len() == VERSIONS_MAX {
            self.named.pop_front();
        }
        self.named.push_back(version);
        self.named.len() > 1
    }

    /// Notes a change: versions that nodes were asked for before do not count.
    pub fn note_change(&mut self, now_ns: u64) {
        self.changed_ns = now_ns;
    }

    /// Earliest time at which a version may have been asked for that is at most `age_ns` old.
    pub fn since_ns(&self, now_ns: u64, age_ns: u64) -> u64 {
        now_ns.saturating_sub(age_ns).max(self.changed_ns)
    }

    /// Number of the next question.
    pub fn next_turn(&mut self) -> usize {
        self.turn = self.turn.wrapping_add(1);
        self.turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_from_before_a_schema_change_are_not_used() {
        let mut names = Names::<u64>::default();
        let key = (IdentityKind::Id, Box::from("ks"), Box::from("t"));
        names.entry(&key).last =
            Some(IdentityAnswer { identity: Identity::Table([1; 16]), asked_ns: 1 });
        names.forget_answers();
        assert_eq!(names.entry(&key).last, None);
    }

    #[test]
    fn a_version_is_news_once_and_the_first_tells_of_no_change() {
        let mut versions = SchemaVersions::default();
        assert!(!versions.is_known());
        assert!(!versions.is_changed_by([1; 16]) && versions.is_known());
        assert!(!versions.is_changed_by([1; 16]));
        assert!(versions.is_changed_by([2; 16]));
        let both = [[1; 16], [2; 16]];
        assert!(both.iter().cycle().take(9).all(|version| !versions.is_changed_by(*version)));
        assert!((3..100).all(|number| versions.is_changed_by([number; 16])));
        assert_eq!(versions.named.len(), VERSIONS_MAX);
    }

    #[test]
    fn a_version_from_before_a_known_change_is_too_old() {
        let mut versions = SchemaVersions::default();
        assert_eq!((versions.since_ns(5, 10), versions.since_ns(100, 10)), (0, 90));
        versions.note_change(95);
        assert_eq!((versions.since_ns(100, 10), versions.since_ns(200, 10)), (95, 190));
    }

    #[test]
    fn names_that_nobody_waits_for_make_room_for_others() {
        let mut names = Names::default();
        let key =
            |number: usize| (IdentityKind::Id, Box::from("ks"), Box::from(format!("t{number}")));
        names.entry(&key(0)).waiting.push((1, "waiter"));
        names.entry(&key(1)).asked.push((1, 1));
        for number in 2..3 * NAMES_MAX {
            names.entry(&key(number));
        }
        assert!(names.known.len() <= NAMES_MAX);
        assert!(names.entry(&key(0)).waiting.len() == 1 && names.entry(&key(1)).asked.len() == 1);
    }

    #[test]
    fn a_question_during_an_older_one_asks_once_more() {
        let wait = |since_ns: u64| (since_ns, since_ns);
        let mut name = Name::default();
        name.waiting.push(wait(5));
        assert!(name.is_to_be_asked(0));
        name.asked.push((1, 5));
        assert!(!name.is_to_be_asked(0));
        name.waiting.push(wait(6));
        assert!(name.is_to_be_asked(0));
        name.asked.push((2, 7));
        assert!(!name.is_to_be_asked(0));
        name.waiting.push(wait(8));
        assert!(!name.is_to_be_asked(0), "it waits for one of the two");
        name.asked.remove(0);
        assert!(name.is_to_be_asked(0));
    }

    #[test]
    fn silent_nodes_keep_no_other_from_being_asked() {
        let mut name = Name::default();
        name.asked.extend([(1, 5), (2, 7)]);
        name.waiting.push((8, "waiter"));
        assert!(!name.is_to_be_asked(5) && name.is_to_be_asked(6));
        name.asked.extend((3..=UNANSWERED_MAX as u64).map(|number| (number, 7)));
        assert!(!name.is_to_be_asked(100), "too many nodes are silent");
    }

    #[test]
    fn a_question_without_an_answer_is_repeated_a_few_times() {
        let mut name = Name::default();
        name.waiting.push((5, "waiter"));
        assert!(!name.is_unheard(100), "no node was asked");
        name.asked.push((1, 5));
        assert!(!name.is_unheard(5) && name.is_unheard(6));
        assert!(!name.is_repeated(4), "nobody waits for so old a question");
        assert!((0..REPEATS_MAX).all(|_| name.is_repeated(5)));
        assert!(!name.is_repeated(5) && !name.is_unheard(6));
    }
}

//! Identity of tables: which table a name stands for, from answers that a core keeps, and waiters
//! for answers. `W` identifies a waiter.

use std::collections::HashMap;
use std::sync::Arc;

/// Names that are kept. Beyond that, names without waiters are dropped.
const NAMES_MAX: usize = 1_024;

/// Questions about one name under way at a time.
const ASKED_MAX: usize = 2;

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
}

/// Question, keyspace and name.
pub type Key = (IdentityKind, Box<str>, Box<str>);

/// A node's answer about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The id, or the hash of the columns.
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
}

impl<W> Default for Name<W> {
    fn default() -> Self {
        Self { question: None, last: None, asked: Vec::new(), waiting: Vec::new() }
    }
}

impl<W> Name<W> {
    /// True if a waiter needs a newer question than those under way, and one more may be sent.
    pub fn is_to_be_asked(&self) -> bool {
        self.asked.len() < ASKED_MAX
            && self.waiting.iter().any(|(since_ns, _)| self.is_asked_for_later(*since_ns))
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
        assert!(name.is_to_be_asked());
        name.asked.push((1, 5));
        assert!(!name.is_to_be_asked());
        name.waiting.push(wait(6));
        assert!(name.is_to_be_asked());
        name.asked.push((2, 7));
        assert!(!name.is_to_be_asked());
        name.waiting.push(wait(8));
        assert!(!name.is_to_be_asked(), "it waits for one of the two");
        name.asked.remove(0);
        assert!(name.is_to_be_asked());
    }
}

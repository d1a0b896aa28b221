//! What a core knows of names: which table each stands for, and who waits for that.

use std::collections::HashMap;
use std::sync::Arc;

/// Names that are kept; beyond that those go of which nobody waits to hear.
const NAMES_MAX: usize = 1_024;

/// Questions about one name that are under way at a time.
const ASKED_MAX: usize = 2;

/// The id of a table, as `system_schema.tables` has it. A table that is dropped and made again has
/// another.
pub type TableId = [u8; 16];

/// In its place for a table of the fleet's own, which nobody makes anew under a transaction's
/// hands: it is written to by its name.
pub const FLEETS_OWN: TableId = [0; 16];

/// What is to be known of a table of some name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// Its id.
    Id,
    /// Its columns, all of them in one number.
    Columns,
}

/// A name, with its keyspace, and what of it.
pub type Key = (What, Box<str>, Box<str>);

/// What a node has said of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Table(TableId),
    /// There is no table of this name.
    Nothing,
    /// No node has said anything, or not lately.
    Unknown,
}

/// The same, and when it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    pub found: Found,
    pub asked_ns: u64,
}

/// One name.
pub struct Name<W> {
    /// The text by which a node is asked, once it was.
    pub question: Option<Arc<str>>,
    /// What was said last.
    pub last: Option<Named>,
    /// What is being asked: its number, and since when. A second question goes out while the answer
    /// to the first comes too early for whoever waits.
    pub asked: Vec<(u64, u64)>,
    /// Who waits, and when what they are told may have been asked for at the earliest.
    pub waiting: Vec<(u64, W)>,
}

impl<W> Default for Name<W> {
    fn default() -> Self {
        Self { question: None, last: None, asked: Vec::new(), waiting: Vec::new() }
    }
}

impl<W> Name<W> {
    /// True if somebody waits for what no question under way will tell, and one more may be asked.
    pub fn is_to_be_asked(&self) -> bool {
        self.asked.len() < ASKED_MAX
            && self.waiting.iter().any(|(since_ns, _)| self.is_asked_for_later(*since_ns))
    }

    /// True of one who wants to know what was asked for no earlier than this, which no question
    /// under way will tell.
    pub fn is_asked_for_later(&self, since_ns: u64) -> bool {
        self.asked.iter().all(|(_, asked_ns)| *asked_ns < since_ns)
    }
}

/// All names, each with its keyspace.
pub struct Names<W> {
    pub known: HashMap<Key, Name<W>>,
    pub asked: HashMap<u64, Key>,
    pub number: u64,
}

impl<W> Default for Names<W> {
    fn default() -> Self {
        Self { known: HashMap::new(), asked: HashMap::new(), number: 0 }
    }
}

impl<W> Names<W> {
    /// A name; it is noted if it is not known yet.
    pub fn of(&mut self, key: &Key) -> &mut Name<W> {
        if self.known.len() >= NAMES_MAX && !self.known.contains_key(key) {
            self.known.retain(|_, name| !name.asked.is_empty() || !name.waiting.is_empty());
        }
        self.known.entry(key.clone()).or_default()
    }

    /// Nobody who asks from now on is told what nodes have said so far.
    pub fn forget_answers(&mut self) {
        self.known.values_mut().for_each(|name| name.last = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_before_a_change_of_the_schema_is_told_to_nobody() {
        let mut names = Names::<u64>::default();
        let key = (What::Id, Box::from("ks"), Box::from("t"));
        names.of(&key).last = Some(Named { found: Found::Table([1; 16]), asked_ns: 1 });
        names.forget_answers();
        assert_eq!(names.of(&key).last, None);
    }

    #[test]
    fn names_that_nobody_waits_for_make_room_for_others() {
        let mut names = Names::default();
        let key = |number: usize| (What::Id, Box::from("ks"), Box::from(format!("t{number}")));
        names.of(&key(0)).waiting.push((1, "waiter"));
        names.of(&key(1)).asked.push((1, 1));
        for number in 2..3 * NAMES_MAX {
            names.of(&key(number));
        }
        assert!(names.known.len() <= NAMES_MAX);
        assert!(names.of(&key(0)).waiting.len() == 1 && names.of(&key(1)).asked.len() == 1);
    }

    #[test]
    fn whoever_comes_while_an_older_question_is_under_way_asks_another_one_and_no_more_are_asked_then()
     {
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

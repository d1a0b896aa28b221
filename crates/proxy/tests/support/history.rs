//! Records clients' operations on shared registers, and checks whether one register per key could
//! have given the answers.
//!
//! The search is that of Wing and Gong with Lowe's memory of tried states: it takes one of the
//! operations that no other had to precede as the next, until all answered ones are in an order in
//! which every read finds the last write.

use std::collections::{BTreeMap, HashSet};

/// The request to a register.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Asked {
    /// Write this value, which no other operation writes.
    Write(u64),
    /// Read it; the value in the answer, once there is one.
    Read(Option<u64>),
}

/// One operation on one register.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub register: u32,
    pub asked: Asked,
    pub called_ns: u64,
    /// Time of the answer; `None`: there was none, or an error that does not say whether the write
    /// was done. The operation may happen at any time then.
    pub returned_ns: Option<u64>,
}

/// The operations of one client, or of all.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub events: Vec<Event>,
    /// Indices of operations that were certainly not done.
    refused: HashSet<usize>,
}

impl History {
    pub fn call(&mut self, register: u32, asked: Asked, now_ns: u64) -> usize {
        self.events.push(Event { register, asked, called_ns: now_ns, returned_ns: None });
        self.events.len() - 1
    }

    pub fn returned(&mut self, entry: usize, found: Option<u64>, now_ns: u64) {
        let event = &mut self.events[entry];
        event.returned_ns = Some(now_ns);
        if let Asked::Read(value) = &mut event.asked {
            *value = found;
        }
    }

    /// Notes that the proxy said that the operation was not begun.
    pub fn refused(&mut self, entry: usize) {
        self.refused.insert(entry);
    }

    /// The operations that may have been done, by register.
    fn by_register(&self) -> BTreeMap<u32, Vec<Event>> {
        let mut registers: BTreeMap<u32, Vec<Event>> = BTreeMap::new();
        for (entry, event) in self.events.iter().enumerate() {
            let open_read = matches!(event.asked, Asked::Read(_)) && event.returned_ns.is_none();
            if !open_read && !self.refused.contains(&entry) {
                registers.entry(event.register).or_default().push(*event);
            }
        }
        registers
    }

    /// Merges several histories.
    pub fn merged<'a>(histories: impl Iterator<Item = &'a History>) -> History {
        let mut all = History::default();
        for history in histories {
            let before = all.events.len();
            all.events.extend(&history.events);
            all.refused.extend(history.refused.iter().map(|entry| entry + before));
        }
        all
    }

    /// A register whose answers no order of its operations explains.
    pub fn violation(&self) -> Option<Vec<Event>> {
        self.by_register().into_values().find(|events| !is_register(events))
    }
}

/// True if some order of the operations explains all answers.
fn is_register(events: &[Event]) -> bool {
    let read: HashSet<u64> = events
        .iter()
        .filter_map(|event| match event.asked {
            Asked::Read(value) => value,
            Asked::Write(_) => None,
        })
        .collect();
    // A write of unknown outcome that nobody read may as well not have been done.
    let counts = |event: &&Event| match event.asked {
        Asked::Write(value) => event.returned_ns.is_some() || read.contains(&value),
        Asked::Read(_) => true,
    };
    let mut events: Vec<Event> = events.iter().filter(counts).copied().collect();
    events.sort_by_key(|event| event.called_ns);
    let mut search = Search { done: vec![false; events.len()], events, tried: HashSet::new() };
    search.explains(0, None)
}

struct Search {
    /// The operations in the order of their calls.
    events: Vec<Event>,
    done: Vec<bool>,
    /// Sets of operations done, with the value they left: the first that is not done, those done
    /// after it, and the value.
    tried: HashSet<(usize, Vec<bool>, Option<u64>)>,
}

impl Search {
    /// True if the remaining operations explain their answers, beginning with a register of this
    /// value; all before `first` are done.
    fn explains(&mut self, mut first: usize, value: Option<u64>) -> bool {
        while self.done.get(first) == Some(&true) {
            first += 1;
        }
        let left = self.done[first..].iter().rposition(|done| *done).map_or(0, |last| last + 1);
        if self.events[first..]
            .iter()
            .zip(&self.done[first..])
            .all(|(event, done)| *done || event.returned_ns.is_none())
        {
            return true;
        }
        if !self.tried.insert((first, self.done[first..first + left].to_vec(), value)) {
            return false;
        }
        let mut returned_ns = u64::MAX;
        for next in first..self.events.len() {
            let event = self.events[next];
            // An operation returned before this one and all later ones were called.
            if event.called_ns > returned_ns {
                break;
            }
            if self.done[next] {
                continue;
            }
            returned_ns = returned_ns.min(event.returned_ns.unwrap_or(u64::MAX));
            let after = match event.asked {
                Asked::Write(written) => Some(written),
                Asked::Read(found) if found == value => value,
                Asked::Read(_) => continue,
            };
            self.done[next] = true;
            if self.explains(first, after) {
                return true;
            }
            self.done[next] = false;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, Event, is_register};

    fn event(asked: Asked, called_ns: u64, returned_ns: impl Into<Option<u64>>) -> Event {
        Event { register: 0, asked, called_ns, returned_ns: returned_ns.into() }
    }

    #[test]
    fn a_lost_or_a_revived_value_is_found() {
        use Asked::{Read, Write};
        let (first, second) = (event(Write(1), 0, 10), event(Write(2), 20, 30));
        assert!(is_register(&[first, second, event(Read(Some(2)), 40, 50)]));
        assert!(
            !is_register(&[first, second, event(Read(Some(1)), 40, 50)]),
            "the acknowledged value is lost"
        );
        assert!(!is_register(&[first, second, event(Read(None), 40, 50)]));
        assert!(!is_register(&[
            first,
            event(Read(None), 5, 6),
            event(Read(Some(1)), 7, 8),
            event(Read(None), 9, 10)
        ]));
        let open = event(Write(1), 0, None);
        assert!(
            is_register(&[open, second, event(Read(Some(1)), 40, 50)]),
            "it may come about late"
        );
        assert!(is_register(&[open, second, event(Read(Some(2)), 40, 50)]), "or never");
        let (one, two) = (event(Read(Some(1)), 40, 50), event(Read(Some(2)), 60, 70));
        assert!(
            !is_register(&[open, second, event(Read(Some(2)), 31, 32), one, two]),
            "but only once"
        );
        assert!(is_register(&[event(Write(1), 0, 100), event(Write(2), 0, 100), one, two]));
        assert!(!is_register(&[
            event(Write(1), 0, 45),
            event(Write(2), 0, 35),
            two,
            event(Read(Some(1)), 80, 90)
        ]));
    }
}

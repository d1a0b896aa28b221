//! Prepared statements, which all connections share: a driver prepares on one of its connections
//! and executes on another.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use md5::{Digest as _, Md5};

use crate::limits::{PREPARED_BYTES_MAX, PREPARED_MAX};
use crate::plan::Plan;

/// Id of a statement.
pub(crate) type Id = [u8; 16];

/// A statement, and the length of its text.
#[derive(Debug)]
struct Entry {
    id: Id,
    plan: Arc<Plan>,
    bytes: usize,
}

/// The statements, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Store(Mutex<VecDeque<Entry>>);

impl Store {
    /// Keeps a statement, and returns its id. The oldest ones make room for it.
    pub(crate) fn keep(&self, text: &str, keyspace: Option<&str>, plan: &Arc<Plan>) -> Id {
        let id = id_of(text, keyspace);
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| entry.id != id);
        let mut bytes = text.len() + entries.iter().map(|entry| entry.bytes).sum::<usize>();
        while entries.len() >= PREPARED_MAX || bytes > PREPARED_BYTES_MAX {
            let Some(oldest) = entries.pop_front() else { break };
            bytes -= oldest.bytes;
        }
        entries.push_back(Entry { id, plan: Arc::clone(plan), bytes: text.len() });
        id
    }

    /// The statement with an id.
    pub(crate) fn get(&self, id: &[u8]) -> Option<Arc<Plan>> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().find(|entry| entry.id == id).map(|entry| Arc::clone(&entry.plan))
    }
}

/// The id of a text. A driver that prepares it again expects the same one.
fn id_of(text: &str, keyspace: Option<&str>) -> Id {
    let mut digest = Md5::new();
    digest.update(keyspace.unwrap_or_default());
    digest.update([0]);
    digest.update(text);
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_statements_make_room() {
        let store = Store::default();
        let read = |text: &str| Arc::new(crate::plan::read(text, None).expect("a statement"));
        let text = |number: usize| format!("SELECT * FROM shunt_admin.nodes LIMIT {}", number + 1);
        let ids: Vec<Id> = (0..=PREPARED_MAX)
            .map(|number| store.keep(&text(number), None, &read(&text(number))))
            .collect();
        assert!(store.get(&ids[0]).is_none() && store.get(&ids[1]).is_some());
        let again = store.keep(&text(7), None, &read(&text(7)));
        assert_eq!(again, ids[7]);
        let long = format!("USE system --{}\n", "x".repeat(PREPARED_BYTES_MAX - 100));
        let last = store.keep(&long, None, &read(&long));
        assert!(store.get(&last).is_some() && store.get(&ids[8]).is_none());
    }
}

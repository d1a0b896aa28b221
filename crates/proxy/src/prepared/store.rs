//! The statements of the whole process: a core finds here what any other has learnt.
//!
//! The store is bounded in number and in bytes. The choice of what leaves ensures that no client
//! can push out what others use:
//! - Each statement is on the account of the role that prepared it first. The role with the most
//!   statements gives one up, so that one that prepares without end pushes out its own, and each of
//!   n roles keeps its statements up to an nth of all.
//! - A role loses its oldest statement that was not executed while its turn came twice (second
//!   chance), or never and its turn came once: otherwise the newest would make room for those that
//!   are in constant use, and its client would have to prepare it for ever.
//! - A text above `PREPARED_TEXT_BYTES_MAX` is not kept at all, see [`PreparedStatement::text`].
//!
//! A core marks the statements that it executes with a relaxed store, and only if the mark is not
//! set. It takes the lock when it learns a statement, or meets one for the first time.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::id_hash::IdHashes;
use super::{ForeignId, PreparedStatement, id_of};
use crate::client::account::Account;
use crate::limits;

/// Number of times that a statement is spared when its turn to leave comes; one for all copies of
/// the statement.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark(Arc<AtomicU8>);

/// Mark of a statement that was executed.
const EXECUTED: u8 = 2;
/// Mark of a statement that was prepared.
const PREPARED: u8 = 1;

impl Mark {
    /// Marks it as executed. Reads first, so that no core writes the mark of a statement that all
    /// cores execute.
    #[inline]
    pub(super) fn executed(&self) {
        if self.0.load(Ordering::Relaxed) != EXECUTED {
            self.0.store(EXECUTED, Ordering::Relaxed);
        }
    }

    fn prepared(&self) {
        self.0.fetch_max(PREPARED, Ordering::Relaxed);
    }

    /// Lowers the mark when its turn has come; returns whether the statement is spared. A mark that
    /// a core sets at the same moment may be lost.
    fn is_spared(&self) -> bool {
        let times = self.0.load(Ordering::Relaxed);
        self.0.store(times.saturating_sub(1), Ordering::Relaxed);
        times > 0
    }
}

/// Statements of the whole process.
#[derive(Default)]
pub struct PreparedStore {
    inner: RwLock<Inner>,
}

#[derive(Default)]
struct Inner {
    by_id: HashMap<u128, (Arc<PreparedStatement>, Account), IdHashes>,
    shares: HashMap<Account, Share>,
    bytes: usize,
    evicted: u64,
}

/// The statements of one account.
#[derive(Default)]
struct Share {
    /// Ids in the order of their turns to leave.
    ids: VecDeque<u128>,
    bytes: usize,
}

impl fmt::Debug for PreparedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedStore").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl PreparedStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of statements known.
    pub fn len(&self) -> usize {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).by_id.len()
    }

    /// True if no statement is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Approximate memory of all statements, bytes.
    pub fn bytes(&self) -> usize {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).bytes
    }

    /// Statements evicted since the start.
    pub fn evicted(&self) -> u64 {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).evicted
    }

    pub(super) fn find(&self, id: &[u8]) -> Option<Arc<PreparedStatement>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.by_id.get(&id_of(id)?).map(|(statement, _)| Arc::clone(statement))
    }

    /// Inserts a statement, or replaces the one with its id, which stays on its account.
    ///
    /// # Errors
    /// `keeps_other`, and the one with its id has another text or other tables.
    pub(super) fn insert(
        &self,
        account: Account,
        statement: &Arc<PreparedStatement>,
        keeps_other: bool,
    ) -> Result<(), ForeignId> {
        let Some(id) = id_of(&statement.id) else { return Ok(()) };
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let known = inner.by_id.get(&id);
        if keeps_other && known.is_some_and(|(known, _)| !known.is_same_as(statement)) {
            return Err(ForeignId);
        }
        inner.insert(account, id, statement);
        Ok(())
    }
}

impl Inner {
    fn insert(&mut self, account: Account, id: u128, statement: &Arc<PreparedStatement>) {
        let bytes = statement.bytes();
        statement.mark.prepared();
        match self.by_id.get_mut(&id) {
            Some((known, account)) => {
                let before = std::mem::replace(known, Arc::clone(statement)).bytes();
                self.bytes = self.bytes + bytes - before;
                let share = self.shares.entry(*account).or_default();
                share.bytes = share.bytes + bytes - before;
            }
            None => {
                self.by_id.insert(id, (Arc::clone(statement), account));
                self.bytes += bytes;
                let share = self.shares.entry(account).or_default();
                share.bytes += bytes;
                share.ids.push_back(id);
            }
        }
        while self.by_id.len() > limits::PREPARED_STATEMENTS_MAX
            || self.bytes > limits::PREPARED_BYTES_MAX
        {
            if !self.push_one_out() {
                return;
            }
        }
    }

    /// Evicts one statement of the role with the most of what exceeds its bound, if possible not
    /// its only one.
    fn push_one_out(&mut self) -> bool {
        let too_many = self.by_id.len() > limits::PREPARED_STATEMENTS_MAX;
        let most = self.shares.iter_mut().max_by_key(|(_, share)| {
            let several = share.ids.len() > 1;
            (several, if too_many { share.ids.len() } else { share.bytes })
        });
        let Some((&account, share)) = most else { return false };
        // After this many rounds no mark is left, except those that cores set meanwhile.
        for _ in 0..share.ids.len() * usize::from(EXECUTED) {
            let Some(id) = share.ids.front().copied() else { break };
            if !self.by_id.get(&id).is_some_and(|(statement, _)| statement.mark.is_spared()) {
                break;
            }
            share.ids.rotate_left(1);
        }
        let Some(id) = share.ids.pop_front() else { return false };
        if let Some((statement, _)) = self.by_id.remove(&id) {
            let bytes = statement.bytes();
            share.bytes -= bytes;
            self.bytes -= bytes;
        }
        if share.ids.is_empty() {
            self.shares.remove(&account);
        }
        self.evicted += 1;
        true
    }
}

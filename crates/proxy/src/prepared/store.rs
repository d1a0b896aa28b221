//! The statements of the whole process: what any core learnt, for all others to find.
//!
//! It is bounded in number and in bytes. What must leave is chosen so that nobody can push out what
//! others use:
//! - Each statement is on the account of the login that prepared it first. The login that has most
//!   gives one up, so that one which prepares without end pushes out its own, and each of n logins
//!   keeps what it has up to an nth of all.
//! - A login loses its oldest statement that was not executed while its turn came twice (second
//!   chance), or never and its turn came once: else the newest would leave for those that are used
//!   all the time, and whoever prepared it would be asked to prepare it for ever.
//! - A text above `PREPARED_TEXT_BYTES_MAX` is not kept at all, see [`PreparedStatement::text`].
//!
//! A core marks what it executes with a relaxed store, and only where the mark is not set. It takes
//! the lock when it learns a statement, or meets one for the first time.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, RandomState};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::{IdHasher, PreparedStatement, id_of};
use crate::limits;

/// How often a statement is spared when its turn to leave comes; one for all copies of the
/// statement.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark(Arc<AtomicU8>);

/// Mark of a statement that was executed.
const EXECUTED: u8 = 2;
/// Mark of a statement that was prepared.
const PREPARED: u8 = 1;

impl Mark {
    /// It was executed. Read first: what all cores execute is not written by any of them.
    #[inline]
    pub(super) fn executed(&self) {
        if self.0.load(Ordering::Relaxed) != EXECUTED {
            self.0.store(EXECUTED, Ordering::Relaxed);
        }
    }

    fn prepared(&self) {
        self.0.fetch_max(PREPARED, Ordering::Relaxed);
    }

    /// Its turn has come; whether it is spared. What a core marks at the same moment may be lost.
    fn is_spared(&self) -> bool {
        let times = self.0.load(Ordering::Relaxed);
        self.0.store(times.saturating_sub(1), Ordering::Relaxed);
        times > 0
    }
}

/// Whose account a statement is on: a login, as a number that says nothing of its password.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct Account(u64);

/// All statements of the process.
#[derive(Default)]
pub struct PreparedStore {
    inner: RwLock<Inner>,
    hasher: RandomState,
}

#[derive(Default)]
struct Inner {
    by_id: HashMap<u128, (Arc<PreparedStatement>, Account), BuildHasherDefault<IdHasher>>,
    shares: HashMap<Account, Share>,
    bytes: usize,
    evicted: u64,
}

/// The statements of one account.
#[derive(Default)]
struct Share {
    /// In the order in which their turn to leave comes.
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

    /// About what they take in memory.
    pub fn bytes(&self) -> usize {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).bytes
    }

    /// Statements that had to leave since the start.
    pub fn evicted(&self) -> u64 {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).evicted
    }

    /// The account of a login; those who need none share one.
    pub(crate) fn account(&self, login: Option<&[u8]>) -> Account {
        login.map_or_else(Account::default, |login| Account(self.hasher.hash_one(login)))
    }

    pub(super) fn find(&self, id: &[u8]) -> Option<Arc<PreparedStatement>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.by_id.get(&id_of(id)?).map(|(statement, _)| Arc::clone(statement))
    }

    /// Puts a statement in, or in the place of the one with its id, which stays on the account it
    /// is on.
    pub(super) fn insert(&self, account: Account, statement: &Arc<PreparedStatement>) {
        let Some(id) = id_of(&statement.id) else { return };
        self.inner.write().unwrap_or_else(PoisonError::into_inner).insert(account, id, statement);
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

    /// Lets one statement of the login go that has most of what there is too much of, if possible
    /// not its only one.
    fn push_one_out(&mut self) -> bool {
        let too_many = self.by_id.len() > limits::PREPARED_STATEMENTS_MAX;
        let most = self.shares.iter_mut().max_by_key(|(_, share)| {
            let several = share.ids.len() > 1;
            (several, if too_many { share.ids.len() } else { share.bytes })
        });
        let Some((&account, share)) = most else { return false };
        // After so many rounds nothing is marked, but for what cores mark meanwhile.
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

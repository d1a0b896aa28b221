//! Links that open under the logins of clients, and the pools that wait to open more.
//!
//! Each of them costs its node a password hash, so a core has few at a time, and few of each role.
//! Logins that nothing supports yet count by themselves: anybody may claim a role's name, and the
//! role's own links must not wait for that. A pool that waits goes on when a link is open, or was
//! given up; its clients have deadlines of their own.

use std::collections::{HashMap, VecDeque};

use crate::client::account::Account;
use crate::ids::PoolId;
use crate::limits;

/// The counter that an opening link counts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Opening {
    pub(crate) account: Account,
    /// Neither a verdict nor a link supports the login yet.
    pub(crate) is_doubtful: bool,
}

/// Numbers of opening links, and pools that wait.
#[derive(Default)]
pub(crate) struct Openings {
    counts: HashMap<Opening, usize>,
    all: usize,
    doubtful: usize,
    waiting: VecDeque<(PoolId, Opening)>,
}

impl Openings {
    /// True if another such link may open.
    pub(crate) fn has_room(&self, opening: Opening) -> bool {
        let of_account = self.counts.get(&opening).copied().unwrap_or_default();
        let most = if opening.is_doubtful { limits::LOGINS_MAX / 2 } else { limits::LOGINS_MAX };
        self.all < limits::LOGINS_MAX
            && of_account < most / 2
            && (!opening.is_doubtful || self.doubtful < most)
    }

    pub(crate) fn begin(&mut self, opening: Opening) {
        *self.counts.entry(opening).or_default() += 1;
        self.all += 1;
        self.doubtful += usize::from(opening.is_doubtful);
    }

    pub(crate) fn end(&mut self, opening: Opening) {
        let Some(count) = self.counts.get_mut(&opening) else { return };
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&opening);
        }
        self.all -= 1;
        self.doubtful -= usize::from(opening.is_doubtful);
    }

    /// Has a pool wait for room.
    pub(crate) fn wait(&mut self, pool: PoolId, opening: Opening) {
        if !self.waiting.iter().any(|(waiting, _)| *waiting == pool) {
            self.waiting.push_back((pool, opening));
        }
    }

    /// Number of pools that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The first pool in line for which there is room.
    pub(crate) fn next(&mut self) -> Option<PoolId> {
        let first = self.waiting.iter().position(|(_, opening)| self.has_room(*opening))?;
        self.waiting.remove(first).map(|(pool, _)| pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(token: &[u8], is_doubtful: bool) -> Opening {
        Opening { account: Account::of(Some(token)), is_doubtful }
    }

    fn fill(openings: &mut Openings, opening: Opening) -> usize {
        let mut begun = 0;
        while openings.has_room(opening) {
            openings.begin(opening);
            begun += 1;
        }
        begun
    }

    #[test]
    fn claims_of_a_name_leave_room_to_its_role_and_to_others() {
        let mut openings = Openings::default();
        let [guess, ann, bob] =
            [(&b"ann"[..], true), (b"ann", false), (b"bob", true)].map(|(of, is)| opening(of, is));
        assert_eq!(fill(&mut openings, guess), limits::LOGINS_MAX / 4);
        assert_eq!(fill(&mut openings, ann), limits::LOGINS_MAX / 2);
        assert_eq!(fill(&mut openings, bob), limits::LOGINS_MAX / 4);
        assert!(!openings.has_room(opening(b"eve", false)));
        openings.end(guess);
        assert!(openings.has_room(opening(b"eve", true)) && openings.has_room(guess));
    }

    #[test]
    fn the_first_pool_with_room_goes_on() {
        let mut openings = Openings::default();
        let (ann, bob) = (opening(b"ann", true), opening(b"bob", true));
        fill(&mut openings, ann);
        for (pool, opening) in [(1, ann), (2, bob), (3, ann), (1, ann)] {
            openings.wait(PoolId(pool), opening);
        }
        assert_eq!(
            (openings.waiting(), openings.next(), openings.next()),
            (3, Some(PoolId(2)), None)
        );
        openings.end(ann);
        assert_eq!(openings.next(), Some(PoolId(1)));
    }
}

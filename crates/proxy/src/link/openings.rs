//! Links that open under the logins of clients, and the pools that wait to open more.
//!
//! Each of them costs its node a password hash, so a core has few at a time, and few of each role.
//! Logins that nothing supports yet count by themselves: anybody may claim a role's name, and the
//! role's own links must not wait for that. A pool that waits goes on when a link is open, or was
//! given up; its clients have deadlines of their own.
//!
//! With TLS to nodes each link costs this core a handshake, too. Those under logins that nothing
//! supports have a bound between two ticks, so that guesses take little of the core's time.

use std::collections::{BTreeMap, HashMap};

use shunt_reactor::{ClientHost, HostShares};

use crate::client::account::Account;
use crate::ids::PoolId;
use crate::limits;

/// The counter that an opening link counts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Opening {
    pub(crate) account: Account,
    /// The host whose client began the login, if it is doubtful.
    pub(crate) host: Option<ClientHost>,
    /// Neither a verdict nor a link supports the login yet.
    pub(crate) is_doubtful: bool,
}

impl Opening {
    /// The shares that it counts to, with the part of its kind's links that each may have.
    fn shares(self) -> impl Iterator<Item = (Share, usize)> {
        let account = (Share::Account(self.account, self.is_doubtful), 2);
        let host = self.host.map(|host| (Share::Host(host), 4));
        std::iter::once(account).chain(host)
    }
}

/// A share of the opening links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Share {
    Account(Account, bool),
    Host(ClientHost),
}

/// Numbers of opening links, and pools that wait.
#[derive(Default)]
pub(crate) struct Openings {
    /// Links of each account, doubtful or not, and of each host.
    counts: HashMap<Share, usize>,
    all: usize,
    doubtful: usize,
    /// Doubtful links that were begun since the last tick; `None`: links have no TLS.
    guesses: Option<Guesses>,
    line: Line,
}

/// Doubtful links of each host.
#[derive(Default)]
struct Guesses(HostShares<Option<ClientHost>>);

impl Guesses {
    fn has_room(&self) -> bool {
        self.0.taken() < limits::TLS_GUESSES_TICK_MAX
    }

    fn has_room_for(&self, host: Option<ClientHost>) -> bool {
        self.has_room() && self.0.of(host) < limits::TLS_GUESSES_TICK_MAX / 4
    }
}

impl Openings {
    /// No links yet. They have TLS, or not.
    pub(crate) fn new(has_tls: bool) -> Openings {
        Openings { guesses: has_tls.then(Guesses::default), ..Openings::default() }
    }

    /// Forgets all links and the line.
    pub(crate) fn clear(&mut self) {
        *self = Openings::new(self.guesses.is_some());
    }

    /// Gives doubtful links with TLS their bound anew. Returns whether pools wait that may go on.
    pub(crate) fn tick(&mut self) -> bool {
        let Some(guesses) = &mut self.guesses else { return false };
        let had_some = std::mem::take(guesses).0.taken() > 0;
        had_some && self.waiting() > 0
    }

    /// Most links of a kind at a time; those of one account are half of them, and doubtful ones of
    /// one host a quarter.
    fn most(is_doubtful: bool) -> usize {
        if is_doubtful { limits::LOGINS_MAX / 2 } else { limits::LOGINS_MAX }
    }

    /// True if another link of this kind may open, of some account.
    fn has_room_for_kind(&self, is_doubtful: bool) -> bool {
        let of_kind = if is_doubtful { self.doubtful } else { self.all };
        let has_time = !is_doubtful || self.guesses.as_ref().is_none_or(Guesses::has_room);
        self.all < limits::LOGINS_MAX && of_kind < Self::most(is_doubtful) && has_time
    }

    /// True if another such link may open.
    pub(crate) fn has_room(&self, opening: Opening) -> bool {
        let most = Self::most(opening.is_doubtful);
        let count = |share| self.counts.get(&share).copied().unwrap_or_default();
        let guesses = self.guesses.as_ref().filter(|_| opening.is_doubtful);
        self.has_room_for_kind(opening.is_doubtful)
            && guesses.is_none_or(|guesses| guesses.has_room_for(opening.host))
            && opening.shares().all(|(share, part)| count(share) < most / part)
    }

    pub(crate) fn begin(&mut self, opening: Opening) {
        for (share, _) in opening.shares() {
            *self.counts.entry(share).or_default() += 1;
        }
        self.all += 1;
        self.doubtful += usize::from(opening.is_doubtful);
        if let Some(guesses) = self.guesses.as_mut().filter(|_| opening.is_doubtful) {
            guesses.0.add(opening.host);
        }
    }

    pub(crate) fn end(&mut self, opening: Opening) {
        for (share, _) in opening.shares() {
            let Some(count) = self.counts.get_mut(&share) else { return };
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&share);
            }
        }
        self.all -= 1;
        self.doubtful -= usize::from(opening.is_doubtful);
    }

    /// Has a pool wait for room. A pool that waits already keeps its place.
    pub(crate) fn wait(&mut self, pool: PoolId, opening: Opening) {
        self.line.join(pool, opening);
    }

    /// Takes a pool out of the line.
    pub(crate) fn leave(&mut self, pool: PoolId) {
        self.line.leave(pool);
    }

    /// Number of pools that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.line.places.len()
    }

    /// The first pool in line for which there is room.
    pub(crate) fn next(&mut self) -> Option<PoolId> {
        let kinds = [false, true].into_iter().filter(|kind| self.has_room_for_kind(*kind));
        let (_, pool) = kinds.filter_map(|kind| self.first(kind).0).min()?;
        self.line.leave(pool);
        Some(pool)
    }

    /// The first pool in line of a kind with room, with its number, and the accounts looked at.
    /// While the kind has room, one account at most is at its bound, half of the kind's, and three
    /// hosts at each of theirs, each with the pools of its share.
    fn first(&self, is_doubtful: bool) -> (Option<(u64, PoolId)>, usize) {
        let firsts = &self.line.firsts[usize::from(is_doubtful)];
        let full = firsts.values().take_while(|(_, opening)| !self.has_room(*opening)).count();
        let first = firsts.iter().nth(full).map(|(number, (pool, _))| (*number, *pool));
        (first, full + usize::from(first.is_some()))
    }
}

/// Pools in line, numbered in the order in which they came. Each step of its methods is one in a
/// map: a client can have hundreds of pools wait, and they move with each login that ends.
#[derive(Default)]
struct Line {
    /// The number of the last pool that came.
    last: u64,
    places: HashMap<PoolId, (Opening, u64)>,
    /// The pools of each counter.
    pools: HashMap<Opening, BTreeMap<u64, PoolId>>,
    /// The first pool of each counter, for logins that something supports, and for doubtful ones.
    firsts: [BTreeMap<u64, (PoolId, Opening)>; 2],
}

impl Line {
    fn join(&mut self, pool: PoolId, opening: Opening) {
        match self.places.get(&pool) {
            Some((known, _)) if *known == opening => return,
            // Its login is no longer doubtful, or has become so.
            Some(_) => self.leave(pool),
            None => {}
        }
        self.last += 1;
        self.places.insert(pool, (opening, self.last));
        let pools = self.pools.entry(opening).or_default();
        pools.insert(self.last, pool);
        if pools.len() == 1 {
            self.firsts[usize::from(opening.is_doubtful)].insert(self.last, (pool, opening));
        }
    }

    fn leave(&mut self, pool: PoolId) {
        let Some((opening, number)) = self.places.remove(&pool) else { return };
        let Some(pools) = self.pools.get_mut(&opening) else { return };
        pools.remove(&number);
        let firsts = &mut self.firsts[usize::from(opening.is_doubtful)];
        let was_first = firsts.remove(&number).is_some();
        match pools.first_key_value() {
            Some((next, pool)) if was_first => {
                firsts.insert(*next, (*pool, opening));
            }
            Some(_) => {}
            None => {
                self.pools.remove(&opening);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(token: &[u8], is_doubtful: bool) -> Opening {
        Opening { account: Account::of(Some(token)), host: None, is_doubtful }
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
    fn guesses_of_one_host_leave_room_to_other_hosts() {
        let mut openings = Openings::default();
        let of = |last: u8, guess: usize| Opening {
            host: Some(ClientHost::Network(std::net::IpAddr::from([192, 0, 2, last]))),
            ..opening(format!("role{guess}").as_bytes(), true)
        };
        let mut begun = 0;
        while openings.has_room(of(1, begun)) {
            openings.begin(of(1, begun));
            begun += 1;
        }
        assert_eq!(begun, limits::LOGINS_MAX / 8);
        for (pool, last) in [(1, 1), (2, 2)] {
            openings.wait(PoolId(pool), of(last, begun));
        }
        assert_eq!((openings.next(), openings.next()), (Some(PoolId(2)), None));
        openings.end(of(1, 0));
        assert_eq!(openings.next(), Some(PoolId(1)));
    }

    #[test]
    fn handshakes_for_guesses_take_little_time_and_leave_room_to_other_hosts() {
        let mut openings = Openings::new(true);
        let of = |last: u8, guess: usize| Opening {
            host: Some(ClientHost::Network(std::net::IpAddr::from([192, 0, 2, last]))),
            ..opening(format!("role{last}-{guess}").as_bytes(), true)
        };
        // Nodes refuse each login at once.
        let guess = |openings: &mut Openings, last| {
            let begins = |guess: &usize| {
                let opening = of(last, *guess);
                let has_room = openings.has_room(opening);
                if has_room {
                    openings.begin(opening);
                    openings.end(opening);
                }
                has_room
            };
            (0..1_000).take_while(begins).count()
        };
        let most = limits::TLS_GUESSES_TICK_MAX;
        for _ in 0..3 {
            let counts = [1, 1, 2, 3, 4, 5].map(|last| guess(&mut openings, last));
            let share = most / 4;
            assert_eq!(counts, [share, 0, share, share, share, 0]);
            assert!(openings.has_room(opening(b"ann", false)), "a login that is known");
            openings.wait(PoolId(7), of(1, 0));
            assert_eq!(openings.next(), None);
            assert!(openings.tick());
            assert_eq!(openings.next(), Some(PoolId(7)));
        }
        assert!(!openings.tick(), "nobody waits");
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

    /// Hundreds of pools in line whose accounts are at their bound cost a step, not one each.
    #[test]
    fn the_line_is_not_walked() {
        let mut openings = Openings::default();
        let (guess, ann) = (opening(b"ann", true), opening(b"ann", false));
        fill(&mut openings, guess);
        fill(&mut openings, ann);
        let number = limits::POOLS_MAX as u32;
        for pool in 0..number {
            openings.wait(PoolId(pool), if pool % 2 == 0 { guess } else { ann });
        }
        openings.wait(PoolId(number), opening(b"bob", true));
        for kind in [false, true] {
            let (first, steps) = openings.first(kind);
            assert_eq!((first.is_some(), steps), (kind, 1 + usize::from(kind)));
        }
        assert_eq!(openings.next(), Some(PoolId(number)));
        assert_eq!(openings.next(), None);
        assert_eq!(openings.waiting(), number as usize);
    }

    #[test]
    fn a_pool_that_leaves_the_line_gives_its_place_to_the_next() {
        let mut openings = Openings::default();
        let [guess, ann] = [(&b"ann"[..], true), (b"ann", false)].map(|(of, is)| opening(of, is));
        for (pool, opening) in [(1, guess), (2, guess), (3, ann), (1, ann)] {
            openings.wait(PoolId(pool), opening);
        }
        openings.leave(PoolId(3));
        openings.leave(PoolId(3));
        let order: Vec<_> = std::iter::from_fn(|| openings.next()).collect();
        assert_eq!(order, [PoolId(2), PoolId(1)], "the first now waits for something else");
        assert!(
            openings.line.pools.is_empty() && openings.line.firsts.iter().all(|it| it.is_empty())
        );
    }
}

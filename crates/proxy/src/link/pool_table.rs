//! The pools of a core: by number for queries, and by key for clients that join one.
//!
//! Each role has a share of them ([`Account`]), and so have logins that no node has accepted yet.
//! The proxy's own statements have their pool in any case.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use shunt_reactor::{ClientHost, HostShares};
use slab::Slab;

use crate::client::account::{Account, LoginId};
use crate::ids::PoolId;
use crate::limits;
use crate::link::{Pool, PoolKey};

/// A reason for which there is no place for another pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The core has too many pools.
    Pools,
    /// Too many are of this role.
    OfRole,
    /// Too many have a login that no node has accepted, in all or of this role.
    Logins,
}

/// Key that the pools of a login have in common.
type LoginKey = (LoginId, Option<Arc<str>>, bool);

/// Numbers of pools, without those of the proxy itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    pools: usize,
    /// Pools among them whose login no node has accepted.
    unverified: usize,
}

/// Pools of a core. Whatever a login asks of them is a look-up, also with hundreds of pools.
#[derive(Default)]
pub(crate) struct Pools {
    pools: Slab<Pool>,
    by_key: HashMap<PoolKey, PoolId>,
    /// The pools of each login, by the time at which a node last accepted it.
    by_login: HashMap<LoginKey, BTreeSet<(u64, PoolId)>>,
    count: Count,
    counts: HashMap<Account, Count>,
    /// Pools whose login no node has accepted, by the host whose client tried it first.
    of_hosts: HostShares,
}

impl Pools {
    #[inline]
    pub(crate) fn get(&self, id: PoolId) -> Option<&Pool> {
        self.pools.get(id.0 as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: PoolId) -> Option<&mut Pool> {
        self.pools.get_mut(id.0 as usize)
    }

    /// Number of slots, used or not.
    pub(crate) fn capacity(&self) -> usize {
        self.pools.capacity()
    }

    pub(crate) fn find(&self, key: &PoolKey) -> Option<PoolId> {
        self.by_key.get(key).copied()
    }

    /// The pool of `key`, made if there is none and room for it. `verified_ns`: when its login was
    /// accepted, if the caller knows; 0 otherwise. A new pool takes the time from other pools of
    /// the login as well: guesses at a role's password take no room from a login that is in use.
    pub(crate) fn find_or_create(
        &mut self,
        key: &PoolKey,
        per_node: usize,
        verified_ns: u64,
        now_ns: u64,
    ) -> Result<PoolId, Shortage> {
        if let Some(id) = self.find(key) {
            let before = self.get(id).map_or(0, Pool::verified_ns);
            self.set_verified(id, before.max(verified_ns));
            return Ok(id);
        }
        let verified_ns = verified_ns.max(self.verified_ns_of(key));
        let pool = Pool::new(key.clone(), per_node, verified_ns, now_ns);
        self.has_room(&pool)?;
        let id = PoolId(self.pools.insert(pool) as u32);
        self.by_key.insert(key.clone(), id);
        self.enter(id);
        Ok(id)
    }

    /// Sets the time at which a node accepted a pool's login; 0: the last node asked refused it.
    pub(crate) fn set_verified(&mut self, id: PoolId, verified_ns: u64) {
        if self.get(id).is_none_or(|pool| pool.verified_ns == verified_ns) {
            return;
        }
        self.withdraw(id);
        if let Some(pool) = self.get_mut(id) {
            pool.verified_ns = verified_ns;
        }
        self.enter(id);
    }

    /// Notes that a client of this host tries a pool's login. The first host counts.
    pub(crate) fn set_tried_by(&mut self, id: PoolId, host: ClientHost) {
        if self.get(id).is_none_or(|pool| pool.tried_by.is_some() || !pool.is_unverified()) {
            return;
        }
        self.withdraw(id);
        if let Some(pool) = self.get_mut(id) {
            pool.tried_by = Some(host);
        }
        self.enter(id);
    }

    /// True if a client of this host may try another login that no node has accepted, of some role.
    pub(crate) fn has_room_of(&self, host: ClientHost) -> bool {
        self.count.unverified < limits::POOLS_UNVERIFIED_MAX
            && self.of_hosts.of(host) < limits::POOLS_UNVERIFIED_OF_HOST_MAX
    }

    /// True if another login of this role may be tried that no node has accepted.
    pub(crate) fn has_room_of_role(&self, account: Account) -> bool {
        let of_role = self.counts.get(&account).map_or(0, |count| count.unverified);
        of_role < limits::POOLS_UNVERIFIED_OF_ROLE_MAX
    }

    /// True if a login needs no room among those that no node has accepted: it has a pool, or a
    /// node has accepted it.
    pub(crate) fn knows(&self, key: &PoolKey) -> bool {
        self.find(key).is_some() || self.verified_ns_of(key) != 0
    }

    pub(crate) fn remove(&mut self, id: PoolId) -> Option<Pool> {
        self.withdraw(id);
        let pool = self.pools.try_remove(id.0 as usize)?;
        self.by_key.remove(&pool.key);
        Some(pool)
    }

    /// Puts a pool among those of its login, and counts it.
    fn enter(&mut self, id: PoolId) {
        let Some(pool) = self.pools.get(id.0 as usize) else { return };
        self.by_login.entry(login_key(&pool.key)).or_default().insert((pool.verified_ns, id));
        if pool.key.is_own {
            return;
        }
        for count in [&mut self.count, self.counts.entry(pool.account).or_default()] {
            count.pools += 1;
            count.unverified += usize::from(pool.is_unverified());
        }
        if let Some(host) = pool.tried_by.filter(|_| pool.is_unverified()) {
            self.of_hosts.add(host);
        }
    }

    /// Undoes [`enter`](Pools::enter).
    fn withdraw(&mut self, id: PoolId) {
        let Some(pool) = self.pools.get(id.0 as usize) else { return };
        if let Entry::Occupied(mut of_login) = self.by_login.entry(login_key(&pool.key)) {
            of_login.get_mut().remove(&(pool.verified_ns, id));
            if of_login.get().is_empty() {
                of_login.remove();
            }
        }
        if pool.key.is_own {
            return;
        }
        if let Some(host) = pool.tried_by.filter(|_| pool.is_unverified()) {
            self.of_hosts.remove(host);
        }
        let Entry::Occupied(mut of_account) = self.counts.entry(pool.account) else { return };
        for count in [&mut self.count, of_account.get_mut()] {
            count.pools -= 1;
            count.unverified -= usize::from(pool.is_unverified());
        }
        if of_account.get().pools == 0 {
            of_account.remove();
        }
    }

    /// Time at which a node last accepted the login of `key`, as far as the pools know.
    fn verified_ns_of(&self, key: &PoolKey) -> u64 {
        let latest = self.by_login.get(&login_key(key)).and_then(BTreeSet::last);
        latest.map_or(0, |(verified_ns, _)| *verified_ns)
    }

    /// Looks for room for another pool. Those of the proxy itself do not count.
    fn has_room(&self, another: &Pool) -> Result<(), Shortage> {
        if another.key.is_own {
            return Ok(());
        }
        let is_unverified = another.is_unverified();
        let count = self.counts.get(&another.account).copied().unwrap_or_default();
        // Anybody may claim the name: unverified logins take nothing from the share of a role that
        // is in use.
        let of_role = count.pools - if is_unverified { 0 } else { count.unverified };
        if another.key.login.is_some() && of_role >= limits::POOLS_OF_ROLE_MAX {
            return Err(Shortage::OfRole);
        }
        if self.count.pools >= limits::POOLS_MAX {
            return Err(Shortage::Pools);
        }
        // The configuration vouches for the login of an identity; nobody else can name it.
        if another.key.identity.is_some() {
            return Ok(());
        }
        let is_short = self.count.unverified >= limits::POOLS_UNVERIFIED_MAX
            || count.unverified >= limits::POOLS_UNVERIFIED_OF_ROLE_MAX;
        if is_unverified && is_short { Err(Shortage::Logins) } else { Ok(()) }
    }

    /// Pools without clients.
    fn idle(&self) -> impl Iterator<Item = (PoolId, &Pool)> {
        let pools = self.pools.iter().map(|(index, pool)| (PoolId(index as u32), pool));
        pools.filter(|(_, pool)| pool.clients == 0 && pool.waiting.is_empty())
    }

    /// The pool of an account that has been idle longest.
    pub(crate) fn idlest_of(&self, account: Account) -> Option<PoolId> {
        let idle = self.idle().filter(|(_, pool)| pool.account == account && !pool.key.is_own);
        idle.min_by_key(|(_, pool)| pool.idle_since_ns).map(|(id, _)| id)
    }

    /// The pool that has been idle longest, of the account with the most pools among those with an
    /// idle one.
    pub(crate) fn idlest_of_most(&self) -> Option<PoolId> {
        let idle = self.idle().filter(|(_, pool)| !pool.key.is_own);
        let most = idle.max_by_key(|(_, pool)| {
            (self.counts.get(&pool.account).map(|count| count.pools), Reverse(pool.idle_since_ns))
        });
        most.map(|(id, _)| id)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Pool> {
        self.pools.iter_mut().map(|(_, pool)| pool)
    }

    /// Iterates over the pools.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter().map(|(_, pool)| pool)
    }

    /// Ids of all pools.
    pub(crate) fn ids(&self) -> Vec<PoolId> {
        self.pools.iter().map(|(index, _)| PoolId(index as u32)).collect()
    }
}

fn login_key(key: &PoolKey) -> LoginKey {
    (key.login_id(), key.identity.clone(), key.is_own)
}

#[cfg(test)]
mod tests {
    use shunt_wire::cql::compression::Algorithm;

    use super::*;
    use crate::link::pool::tests::key;

    #[test]
    fn clients_that_differ_in_anything_get_different_pools() {
        let mut pools = Pools::default();
        let mut find = |key: PoolKey| pools.find_or_create(&key, 1, 0, 0).unwrap();
        let alice = find(key(Some(b"\0alice\0secret"), None));
        let others = [
            find(key(None, None)),
            find(key(Some(b"\0bob\0secret"), None)),
            find(key(Some(b"\0alice\0wrong"), None)),
            find(key(Some(b"\0alice\0secret"), Some("ks"))),
            find(PoolKey { version: 5, ..key(Some(b"\0alice\0secret"), None) }),
            find(PoolKey {
                compression: Some(Algorithm::Lz4),
                ..key(Some(b"\0alice\0secret"), None)
            }),
            find(PoolKey { no_compact: true, ..key(Some(b"\0alice\0secret"), None) }),
            find(PoolKey {
                identity: Some("CN=alice".into()),
                ..key(Some(b"\0alice\0secret"), None)
            }),
            find(PoolKey { is_own: true, ..key(Some(b"\0alice\0secret"), None) }),
        ];
        assert!(others.iter().all(|other| *other != alice));
        assert_eq!(find(key(Some(b"\0alice\0secret"), None)), alice);
    }

    #[test]
    fn the_number_of_pools_is_bounded_and_places_are_reused() {
        let mut pools = Pools::default();
        for i in 0..limits::POOLS_MAX {
            assert!(pools.find_or_create(&key(None, Some(&i.to_string())), 1, 0, 0).is_ok());
        }
        let one_more = key(None, Some("one more"));
        assert_eq!(pools.find_or_create(&one_more, 1, 0, 0), Err(Shortage::Pools));
        let gone = pools.find(&key(None, Some("7"))).unwrap();
        assert!(pools.remove(gone).is_some());
        assert_eq!(pools.find_or_create(&one_more, 1, 0, 0), Ok(gone));
    }

    /// A login of a role with its first part, the password and a keyspace.
    fn login(role: &str, first: usize, password: &str, keyspace: Option<&str>) -> PoolKey {
        key(Some(format!("{first}\0{role}\0{password}").as_bytes()), keyspace)
    }

    /// Number of pools that are made from these keys, verified at this time.
    fn fill(pools: &mut Pools, verified_ns: u64, keys: impl Fn(usize) -> PoolKey) -> usize {
        let made = |number: &usize| {
            pools.find_or_create(&keys(*number), 1, verified_ns, *number as u64).is_ok()
        };
        (0..limits::POOLS_MAX).filter(made).count()
    }

    #[test]
    fn logins_that_nobody_has_accepted_leave_room_for_others() {
        let mut pools = Pools::default();
        let guesses =
            |role: &'static str| move |guess: usize| login(role, 0, &guess.to_string(), None);
        assert_eq!(fill(&mut pools, 0, guesses("ann")), limits::POOLS_UNVERIFIED_OF_ROLE_MAX);
        assert!(pools.find_or_create(&login("bob", 0, "secret", None), 1, 0, 0).is_ok());
        // The role itself goes on with what it has.
        let keyspaces = |number: usize| login("ann", 0, "secret", Some(&number.to_string()));
        assert_eq!(fill(&mut pools, 7, keyspaces), limits::POOLS_OF_ROLE_MAX);
        assert_eq!(
            fill(&mut pools, 0, |number| login(&number.to_string(), 0, "x", None)) + 1,
            limits::POOLS_UNVERIFIED_MAX - limits::POOLS_UNVERIFIED_OF_ROLE_MAX
        );
        assert_eq!(
            pools.find_or_create(&login("eve", 0, "secret", None), 1, 0, 0),
            Err(Shortage::Logins)
        );
        assert!(pools.find_or_create(&login("bob", 0, "secret", Some("ks")), 1, 7, 0).is_ok());
        assert!(pools.find_or_create(&key(None, None), 1, 0, 0).is_ok());
    }

    #[test]
    fn logins_that_nobody_has_accepted_count_to_the_host_that_tried_them() {
        let mut pools = Pools::default();
        let [guesser, other] =
            [1, 2].map(|last| ClientHost::Network(std::net::IpAddr::from([192, 0, 2, last])));
        let mut ids = Vec::new();
        while pools.has_room_of(guesser) {
            let key = login(&ids.len().to_string(), 0, "wrong", None);
            let id = pools.find_or_create(&key, 1, 0, 0).unwrap();
            assert!(pools.knows(&key));
            for host in [guesser, other] {
                pools.set_tried_by(id, host);
            }
            ids.push(id);
        }
        assert_eq!(ids.len(), limits::POOLS_UNVERIFIED_OF_HOST_MAX);
        assert!(pools.has_room_of(other) && !pools.knows(&login("new", 0, "wrong", None)));
        pools.set_verified(ids[0], 7);
        assert!(pools.has_room_of(guesser) && pools.knows(&login("0", 0, "wrong", Some("ks"))));
        pools.set_verified(ids[0], 0);
        assert!(!pools.has_room_of(guesser));
        ids.into_iter().for_each(|id| drop(pools.remove(id)));
        assert_eq!(pools.of_hosts.hosts(), 0);
    }

    #[test]
    fn one_role_has_half_of_the_pools_whatever_its_logins_look_like() {
        let mut pools = Pools::default();
        let of_ann = |number: usize| login("ann", number, "secret", None);
        assert_eq!(fill(&mut pools, 7, of_ann), limits::POOLS_OF_ROLE_MAX);
        assert_eq!(pools.find_or_create(&of_ann(9_999), 1, 7, 0), Err(Shortage::OfRole));
        // The proxy's own statements have room even so.
        let others = |number: usize| login(&number.to_string(), 0, "secret", None);
        assert_eq!(fill(&mut pools, 7, others), limits::POOLS_MAX - limits::POOLS_OF_ROLE_MAX);
        assert_eq!(pools.find_or_create(&others(9_999), 1, 7, 0), Err(Shortage::Pools));
        let own = PoolKey { is_own: true, ..login("ann", 0, "secret", None) };
        assert!(pools.find_or_create(&own, 1, 0, 0).is_ok());
    }

    #[test]
    fn the_role_with_most_pools_makes_room() {
        let mut pools = Pools::default();
        let find = |pools: &mut Pools, role: &str, number: usize, now_ns: u64| {
            pools.find_or_create(&login(role, number, "secret", None), 1, 7, now_ns).unwrap()
        };
        let first = find(&mut pools, "bob", 0, 1);
        let of_ann = [3, 2, 4].map(|now_ns| find(&mut pools, "ann", now_ns as usize, now_ns));
        let account = |token: &[u8]| Account::of(Some(token));
        assert_eq!(pools.idlest_of_most(), Some(of_ann[1]));
        assert_eq!(pools.idlest_of(account(b"\0bob\0other")), Some(first));
        for id in of_ann {
            pools.get_mut(id).unwrap().clients = 1;
        }
        assert_eq!(
            (pools.idlest_of_most(), pools.idlest_of(account(b"\0ann\0x"))),
            (Some(first), None)
        );
    }

    #[test]
    fn guesses_at_its_role_take_no_room_from_a_login_that_is_in_use() {
        let mut pools = Pools::default();
        pools.find_or_create(&login("ann", 0, "secret", Some("ks")), 1, 7, 0).unwrap();
        let guesses = fill(&mut pools, 0, |guess| login("ann", 0, &guess.to_string(), None));
        assert_eq!(guesses, limits::POOLS_UNVERIFIED_OF_ROLE_MAX);
        let id = pools.find_or_create(&login("ann", 0, "secret", None), 1, 0, 0).unwrap();
        assert_eq!(pools.get(id).unwrap().verified_ns, 7);
    }

    /// The counters are those of the pools, whatever happens to them.
    #[test]
    fn pools_are_counted_as_they_come_change_and_go() {
        let mut pools = Pools::default();
        let own = |number: usize| PoolKey { is_own: true, ..login("own", number, "x", None) };
        let ids: Vec<PoolId> = (0..40)
            .map(|number| {
                let role = ["ann", "bob", "eve"][number % 3];
                let key =
                    if number % 7 == 0 { own(number) } else { login(role, number, "x", None) };
                pools.find_or_create(&key, 1, (number % 2) as u64, 0).unwrap()
            })
            .collect();
        for (step, id) in ids.iter().enumerate().chain(ids.iter().enumerate().skip(10)) {
            match step % 4 {
                0 => pools.set_verified(*id, 9),
                1 => pools.set_verified(*id, 0),
                2 => drop(pools.remove(*id)),
                _ => {}
            }
            let mut expected: HashMap<Account, Count> = HashMap::new();
            for pool in pools.iter().filter(|pool| !pool.key.is_own) {
                let count = expected.entry(pool.account).or_default();
                count.pools += 1;
                count.unverified += usize::from(pool.is_unverified());
            }
            assert_eq!(pools.counts, expected);
            let all = |of: fn(&Count) -> usize| expected.values().map(of).sum::<usize>();
            let count = Count { pools: all(|it| it.pools), unverified: all(|it| it.unverified) };
            assert_eq!(pools.count, count);
            assert_eq!(
                pools.by_login.values().map(BTreeSet::len).sum::<usize>(),
                pools.pools.len()
            );
        }
        ids.into_iter().for_each(|id| drop(pools.remove(id)));
        assert!(pools.counts.is_empty() && pools.by_login.is_empty() && pools.by_key.is_empty());
    }

    #[test]
    fn guesses_at_its_role_take_no_room_from_an_identity() {
        let mut pools = Pools::default();
        for guess in 0..limits::POOLS_MAX {
            let (own, other) = (format!("\0shop\0{guess}"), format!("\0role {guess}\0x"));
            for token in [own, other] {
                let _ = pools.find_or_create(&key(Some(token.as_bytes()), None), 1, 0, 0);
            }
        }
        let shop =
            PoolKey { identity: Some("CN=shop".into()), ..key(Some(b"\0shop\0secret"), None) };
        assert!(pools.find_or_create(&shop, 1, 0, 0).is_ok());
    }
}

//! Pools: the links that the same clients may share.
//!
//! Two clients share links only if nothing on the node's side could tell them apart: same login,
//! same identity by certificate, same protocol version, same keyspace, same compression, same
//! NO_COMPACT. That is the pool's key. The login in the key is the exact SASL token that the role's
//! first link was opened with, so that a client with another password, or another role, never meets
//! a link that is not its own.
//!
//! Each role has a share of the pools ([`Account`]), and so have logins that no node has accepted
//! yet. The proxy's own statements have their pool in any case.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use shunt_topology::{Backoff, NodeId};
use shunt_wire::cql::compression::Algorithm;

use crate::client::account::{Account, LoginId};
use crate::client::identity::PoolNames;
use crate::ids::{ClientRef, LinkKey, PoolId};
use crate::limits;
use crate::link::verdict::Verdict;
use crate::metrics::PoolState;

/// The properties in which all clients of a pool are alike: clients that differ must not share
/// links.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    /// SASL token of a successful login, as nodes read it; `None`: the ring asks for no login.
    pub(crate) login: Option<Arc<[u8]>>,
    /// Name of the identity that its clients have by their certificates; `None`: they have none.
    pub(crate) identity: Option<Arc<str>>,
    pub(crate) version: u8,
    /// Keyspace of USE.
    pub(crate) keyspace: Option<Arc<str>>,
    /// v3/v4 only; v5 compresses per segment, hop by hop.
    pub(crate) compression: Option<Algorithm>,
    pub(crate) no_compact: bool,
    /// True for the proxy's own statements: no client may fill the links that renew a lease.
    pub(crate) is_own: bool,
}

impl PoolKey {
    /// The account that the pool counts to.
    pub(crate) fn account(&self) -> Account {
        match &self.identity {
            Some(name) => Account::of_identity(name),
            None => Account::of(self.login.as_deref()),
        }
    }
}

/// The links of one pool and the clients that wait for them.
pub(crate) struct Pool {
    pub(crate) key: PoolKey,
    /// Number and account of its login.
    pub(crate) login_id: LoginId,
    pub(crate) account: Account,
    /// Names from the key, as logs and `/status` show them.
    pub(crate) names: PoolNames,
    /// Links per node.
    per_node: usize,
    /// Keys of links in the core's table, open or opening: `per_node` places for each node id.
    links: Vec<Option<LinkKey>>,
    /// Number of links that take queries.
    pub(crate) ready: usize,
    /// Clients that belong to it or are switching to it.
    pub(crate) clients: usize,
    /// Clients held until a link is ready.
    pub(crate) waiting: Vec<ClientRef>,
    /// Time of its login's last success, nanoseconds; 0: never.
    pub(crate) verified_ns: u64,
    /// True while a link opens to verify a login.
    pub(crate) verifying: bool,
    /// Time of the last request to a node to verify it, nanoseconds.
    pub(crate) asked_ns: u64,
    /// Time at which its last client left, nanoseconds.
    pub(crate) idle_since_ns: u64,
    /// True if a client was let in: a node or the ring accepted the options of the pool's links.
    pub(crate) admitted: bool,
    /// Nodes that refused its login or keyspace the last time they were asked.
    refusals: Vec<Refused>,
    /// The latest refusal by a node that was a verdict; `None` once a link has opened since.
    pub(crate) last_verdict: Option<Verdict>,
    /// True if every node refuses the pool: its clients are told so and closed.
    pub(crate) dismissed: bool,
}

/// A refusal by a node, and the time of the next attempt. It concerns the pool and the node: the
/// node may accept other pools.
struct Refused {
    node: NodeId,
    /// Consecutive refusals of the login or keyspace itself; 0: the node was just unable to judge.
    verdicts: u32,
    until_ns: u64,
    backoff: Backoff,
}

impl Pool {
    fn new(key: PoolKey, per_node: usize, verified_ns: u64, now_ns: u64) -> Self {
        let login_id = LoginId::of(key.login.as_deref());
        Self {
            login_id,
            account: key.account(),
            names: PoolNames::new(key.login.as_deref(), key.keyspace.as_deref())
                .with_identity(key.identity.as_deref()),
            key,
            per_node: per_node.max(1),
            links: Vec::new(),
            ready: 0,
            clients: 0,
            waiting: Vec::new(),
            verified_ns,
            verifying: false,
            asked_ns: 0,
            idle_since_ns: now_ns,
            admitted: false,
            refusals: Vec::new(),
            last_verdict: None,
            dismissed: false,
        }
    }

    /// The links to a node, open or opening.
    #[inline]
    pub(crate) fn links_to(&self, node: NodeId) -> impl Iterator<Item = LinkKey> + '_ {
        let first = usize::from(node.0) * self.per_node;
        self.links
            .get(first..first + self.per_node)
            .unwrap_or_default()
            .iter()
            .filter_map(|link| *link)
    }

    /// Number of links to a node that are missing.
    pub(crate) fn missing(&self, node: NodeId) -> usize {
        self.per_node - self.links_to(node).count()
    }

    pub(crate) fn add_link(&mut self, node: NodeId, link: LinkKey) {
        let first = usize::from(node.0) * self.per_node;
        if self.links.len() < first + self.per_node {
            self.links.resize(first + self.per_node, None);
        }
        if let Some(place) =
            self.links[first..first + self.per_node].iter_mut().find(|place| place.is_none())
        {
            *place = Some(link);
        }
    }

    pub(crate) fn remove_link(&mut self, node: NodeId, link: LinkKey) {
        let first = usize::from(node.0) * self.per_node;
        let places = self.links.get_mut(first..first + self.per_node).unwrap_or_default();
        for place in places.iter_mut().filter(|place| **place == Some(link)) {
            *place = None;
        }
    }

    /// Keys of its links, open or opening.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkKey> + '_ {
        self.links.iter().filter_map(|link| *link)
    }

    /// Notes a node's refusal of the login or the keyspace, or its inability to judge (no
    /// `verdict`): the node is asked again, less and less often. Refusals of several links at once
    /// count as one.
    pub(crate) fn refused_by(
        &mut self,
        node: NodeId,
        verdict: Option<Verdict>,
        now_ns: u64,
        random: u64,
    ) {
        let known = self.refusals.iter().position(|refused| refused.node == node);
        let index = known.unwrap_or_else(|| {
            let first = Duration::from_millis(limits::RECONNECT_FIRST_MS);
            let max = Duration::from_millis(limits::RECONNECT_MAX_MS);
            self.refusals.push(Refused {
                node,
                verdicts: 0,
                until_ns: 0,
                backoff: Backoff::new(first, max),
            });
            self.refusals.len() - 1
        });
        let refused = &mut self.refusals[index];
        let again = now_ns >= refused.until_ns;
        refused.verdicts = match (&verdict, again) {
            (Some(_), true) => refused.verdicts + 1,
            (Some(_), false) => refused.verdicts.max(1),
            (None, _) => 0,
        };
        self.last_verdict = verdict.or(self.last_verdict.take());
        if !again {
            return;
        }
        refused.until_ns = now_ns + refused.backoff.next(random).as_nanos() as u64;
    }

    /// Notes that a node accepted both.
    pub(crate) fn accepted_by(&mut self, node: NodeId) {
        self.refusals.retain(|refused| refused.node != node);
        self.last_verdict = None;
        self.dismissed = false;
    }

    /// Consecutive refusals by a node; 0 if there are none, or if it could not judge.
    pub(crate) fn verdicts_of(&self, node: NodeId) -> u32 {
        self.refusals
            .iter()
            .find(|refused| refused.node == node)
            .map_or(0, |refused| refused.verdicts)
    }

    /// True if a node may be asked for another link now. With a doubtful login, no node may while
    /// one that refused is spared: a wrong password would go round.
    pub(crate) fn may_ask(&self, node: NodeId, now_ns: u64) -> bool {
        let is_recent_verdict =
            |refused: &Refused| refused.verdicts > 0 && now_ns < refused.until_ns;
        !(self.is_spared(node, now_ns)
            || self.is_doubtful() && self.refusals.iter().any(is_recent_verdict))
    }

    /// True if a node has refused so recently that others should be asked.
    pub(crate) fn is_spared(&self, node: NodeId, now_ns: u64) -> bool {
        self.refusals.iter().any(|refused| refused.node == node && now_ns < refused.until_ns)
    }

    /// Ends all pauses after refusals, because a new client wants an answer now.
    pub(crate) fn ask_again(&mut self) {
        self.refusals.iter_mut().for_each(|refused| refused.until_ns = 0);
    }

    /// State of the pool for metrics.
    pub(crate) fn state(&self) -> PoolState {
        if self.ready > 0 {
            PoolState::Open
        } else if self.clients == 0 {
            PoolState::Idle
        } else if self.links().next().is_some() {
            PoolState::Opening
        } else {
            PoolState::Unreachable
        }
    }

    /// True if it has a login that no node has accepted, or that the last node asked refused.
    pub(crate) fn is_unverified(&self) -> bool {
        self.key.login.is_some() && self.verified_ns == 0
    }

    /// True if nothing supports its login: neither a node's verdict, ever, nor an open link with
    /// it. One node that refuses (because it cannot read its own tables, for example) must not keep
    /// the pool from the others.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.is_unverified() && self.ready == 0 && !self.admitted
    }

    /// True if the login was verified recently enough to be believed.
    pub(crate) fn login_is_fresh(&self, now_ns: u64, cache_ns: u64) -> bool {
        self.verified_ns != 0 && now_ns.saturating_sub(self.verified_ns) < cache_ns
    }
}

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

/// Pools of a core.
#[derive(Default)]
pub(crate) struct Pools {
    pools: Vec<Option<Pool>>,
    by_key: HashMap<PoolKey, PoolId>,
}

impl Pools {
    #[inline]
    pub(crate) fn get(&self, id: PoolId) -> Option<&Pool> {
        self.pools.get(id.0 as usize).and_then(Option::as_ref)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: PoolId) -> Option<&mut Pool> {
        self.pools.get_mut(id.0 as usize).and_then(Option::as_mut)
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
            if let Some(pool) = self.get_mut(id) {
                pool.verified_ns = pool.verified_ns.max(verified_ns);
            }
            return Ok(id);
        }
        let verified_ns = verified_ns.max(self.verified_ns_of(key));
        let pool = Pool::new(key.clone(), per_node, verified_ns, now_ns);
        self.has_room(&pool)?;
        let free = self.pools.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.pools.push(None);
            self.pools.len() - 1
        });
        self.pools[index] = Some(pool);
        let id = PoolId(index as u32);
        self.by_key.insert(key.clone(), id);
        Ok(id)
    }

    /// Time at which a node last accepted the login of `key`, as far as the pools know.
    fn verified_ns_of(&self, key: &PoolKey) -> u64 {
        let of_login = |pool: &&Pool| {
            (&pool.key.login, &pool.key.identity, pool.key.is_own)
                == (&key.login, &key.identity, key.is_own)
        };
        self.iter().filter(of_login).map(|pool| pool.verified_ns).max().unwrap_or_default()
    }

    /// Looks for room for another pool. Those of the proxy itself do not count.
    fn has_room(&self, another: &Pool) -> Result<(), Shortage> {
        if another.key.is_own {
            return Ok(());
        }
        let is_unverified = another.is_unverified();
        let (mut all, mut of_role, mut unverified, mut unverified_of_role) = (0, 0, 0, 0);
        for pool in self.iter().filter(|pool| !pool.key.is_own) {
            let is_of_role = pool.account == another.account;
            all += 1;
            unverified += usize::from(pool.is_unverified());
            unverified_of_role += usize::from(is_of_role && pool.is_unverified());
            // Anybody may claim the name: unverified logins take nothing from the share of a role
            // that is in use.
            of_role += usize::from(is_of_role && (is_unverified || !pool.is_unverified()));
        }
        if another.key.login.is_some() && of_role >= limits::POOLS_OF_ROLE_MAX {
            return Err(Shortage::OfRole);
        }
        if all >= limits::POOLS_MAX {
            return Err(Shortage::Pools);
        }
        // The configuration vouches for the login of an identity; nobody else can name it.
        if another.key.identity.is_some() {
            return Ok(());
        }
        let is_short = unverified >= limits::POOLS_UNVERIFIED_MAX
            || unverified_of_role >= limits::POOLS_UNVERIFIED_OF_ROLE_MAX;
        if is_unverified && is_short { Err(Shortage::Logins) } else { Ok(()) }
    }

    /// Pools without clients.
    fn idle(&self) -> impl Iterator<Item = (PoolId, &Pool)> {
        let pools = self.pools.iter().enumerate();
        let pools = pools.filter_map(|(index, pool)| Some((PoolId(index as u32), pool.as_ref()?)));
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
        let mut counts: HashMap<Account, usize> = HashMap::new();
        for pool in self.iter().filter(|pool| !pool.key.is_own) {
            *counts.entry(pool.account).or_default() += 1;
        }
        let idle = self.idle().filter(|(_, pool)| !pool.key.is_own);
        let most = idle.max_by_key(|(_, pool)| {
            (counts.get(&pool.account).copied(), Reverse(pool.idle_since_ns))
        });
        most.map(|(id, _)| id)
    }

    pub(crate) fn remove(&mut self, id: PoolId) -> Option<Pool> {
        let pool = self.pools.get_mut(id.0 as usize)?.take()?;
        self.by_key.remove(&pool.key);
        Some(pool)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Pool> {
        self.pools.iter_mut().flatten()
    }

    /// Iterates over the pools.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter().flatten()
    }

    /// Ids of all pools.
    pub(crate) fn ids(&self) -> Vec<PoolId> {
        let used = self.pools.iter().enumerate().filter(|(_, pool)| pool.is_some());
        used.map(|(index, _)| PoolId(index as u32)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(login: Option<&[u8]>, keyspace: Option<&str>) -> PoolKey {
        PoolKey {
            login: login.map(Arc::from),
            identity: None,
            version: 4,
            keyspace: keyspace.map(Arc::from),
            compression: None,
            no_compact: false,
            is_own: false,
        }
    }

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

    #[test]
    fn a_node_that_refuses_is_asked_ever_more_rarely() {
        let second = limits::SECOND_NS;
        let mut pool = Pool::new(key(None, Some("ks")), 1, 0, 0);
        let (one, other) = (NodeId(1), NodeId(2));
        let mut asked = 0;
        for now in (0..60 * second).step_by(limits::TICK_NS as usize) {
            if pool.may_ask(one, now) {
                asked += 1;
                pool.refused_by(one, Some(Verdict::of_options()), now, u64::MAX);
                assert!(!pool.may_ask(one, now) && pool.may_ask(other, now));
            }
        }
        assert!((5..20).contains(&asked), "{asked}");
        pool.accepted_by(one);
        assert!(pool.may_ask(one, 60 * second));
    }

    #[test]
    fn refusals_of_links_opened_together_count_once() {
        let mut pool = Pool::new(key(None, Some("ks")), 3, 0, 0);
        let (node, mut now, no) = (NodeId(1), 0, || Some(Verdict::of_options()));
        for expected in 1..=3 {
            for _ in 0..3 {
                pool.refused_by(node, no(), now, 0);
                assert_eq!(pool.verdicts_of(node), expected);
            }
            now += 20 * limits::SECOND_NS;
        }
        pool.refused_by(node, None, now, 0);
        assert_eq!(pool.verdicts_of(node), 0, "it cannot say now");
    }
}

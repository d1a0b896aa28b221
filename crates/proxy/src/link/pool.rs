//! Pools: the links that the same clients may share.
//!
//! Two clients share links only if nothing on the node's side could tell them apart: same login,
//! same identity by certificate, same protocol version, same keyspace, same compression, same
//! NO_COMPACT. That is the pool's key. The login in the key is the exact SASL token that the role's
//! first link was opened with, so that a client with another password, or another role, never meets
//! a link that is not its own. For links that show the certificate of an identity, a digest of its
//! names stands for the token: links of two certificates, or of one with other names than before,
//! are never in one pool.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shunt_reactor::ClientHost;
use shunt_tls::SubjectDigest;
use shunt_topology::{Backoff, NodeId};
use shunt_wire::cql::compression::Algorithm;

use crate::client::account::{Account, LoginId, LoginToken};
use crate::client::identity::PoolNames;
use crate::ids::{ClientRef, LinkKey};
use crate::limits;
use crate::link::Role;
use crate::link::certificate_ends::CertificateEnds;
use crate::link::verdict::Verdict;
use crate::metrics::PoolState;

/// The properties in which all clients of a pool are alike: clients that differ must not share
/// links.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    /// SASL token of a successful login, as nodes read it, or a certificate; `None`: the ring asks
    /// for no login.
    pub(crate) login: Option<LoginToken>,
    /// Name of the identity that its clients have by their certificates; `None`: they have none.
    pub(crate) identity: Option<Arc<str>>,
    /// Names in the identity's own certificate, which its links show to nodes; `None`: they log in
    /// by a password.
    pub(crate) certificate: Option<SubjectDigest>,
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
            None => self.login_id().account(),
        }
    }

    /// The number of the login.
    pub(crate) fn login_id(&self) -> LoginId {
        self.login.as_ref().map(LoginToken::id).unwrap_or_default()
    }

    /// The SASL token of the login.
    pub(crate) fn token(&self) -> Option<Arc<[u8]>> {
        self.login.as_ref().map(|login| Arc::clone(login.bytes()))
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
    /// Links that open for another purpose than to serve: to check its login, or to take a place.
    beside: Vec<LinkKey>,
    /// Number of links that belong to it, with those that retire.
    links_in_all: usize,
    /// Number of links that take queries.
    pub(crate) ready: usize,
    /// Clients that belong to it or are switching to it.
    pub(crate) clients: usize,
    /// Clients held until a link is ready.
    pub(crate) waiting: Vec<ClientRef>,
    /// Time of its login's last success, nanoseconds; 0: never. [`super::Pools`] sets it.
    pub(super) verified_ns: u64,
    /// The host whose client was the first to try its login. [`super::Pools`] sets it.
    pub(super) tried_by: Option<ClientHost>,
    /// True while a link opens to verify a login.
    pub(crate) verifying: bool,
    /// Time of the last request to a node to verify it, nanoseconds.
    pub(crate) asked_ns: u64,
    /// Time at which its last client left, nanoseconds.
    pub(crate) idle_since_ns: u64,
    /// Number of what new links prove and verify, if they show a certificate of an identity.
    pub(crate) certificate_content: u64,
    /// Connections in a row that showed that certificate, and that nodes have ended.
    pub(crate) certificate_ends: CertificateEnds,
    /// True if a client was let in: a node or the ring accepted the options of the pool's links.
    pub(crate) admitted: bool,
    /// Nodes that refused its login or keyspace the last time they were asked.
    refusals: BTreeMap<NodeId, Refused>,
    /// The latest refusal by a node that was a verdict; `None` once a link has opened since.
    pub(crate) last_verdict: Option<Verdict>,
    /// True if every node refuses the pool: its clients are told so and closed.
    pub(crate) dismissed: bool,
}

/// A refusal by a node, and the time of the next attempt. It concerns the pool and the node: the
/// node may accept other pools.
struct Refused {
    /// Consecutive refusals of the login or keyspace itself; 0: the node was just unable to judge.
    verdicts: u32,
    until_ns: u64,
    backoff: Backoff,
}

impl Pool {
    pub(super) fn new(key: PoolKey, per_node: usize, verified_ns: u64, now_ns: u64) -> Self {
        let token = key.token();
        Self {
            login_id: key.login_id(),
            account: key.account(),
            names: PoolNames::new(token.as_deref(), key.keyspace.as_deref())
                .with_identity(key.identity.as_deref()),
            key,
            per_node: per_node.max(1),
            links: Vec::new(),
            beside: Vec::new(),
            links_in_all: 0,
            ready: 0,
            clients: 0,
            waiting: Vec::new(),
            verified_ns,
            tried_by: None,
            verifying: false,
            asked_ns: 0,
            idle_since_ns: now_ns,
            certificate_content: 0,
            certificate_ends: CertificateEnds::default(),
            admitted: false,
            refusals: BTreeMap::new(),
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

    /// Adds a link that opens.
    pub(crate) fn attach(&mut self, node: NodeId, link: LinkKey, role: Role) {
        self.links_in_all += 1;
        match role {
            Role::Serves => self.add_link(node, link),
            Role::Verifies | Role::Replaces(_) | Role::Renews(_) => self.beside.push(link),
        }
    }

    /// Forgets a link that has gone.
    pub(crate) fn detach(&mut self, node: NodeId, link: LinkKey) {
        self.links_in_all = self.links_in_all.saturating_sub(1);
        self.beside.retain(|beside| *beside != link);
        self.remove_link(node, link);
    }

    /// Gives a link the place that it was opened for.
    pub(crate) fn take_place(&mut self, node: NodeId, link: LinkKey) {
        self.beside.retain(|beside| *beside != link);
        self.add_link(node, link);
    }

    /// Number of links that belong to it, with those that retire.
    pub(crate) fn links_in_all(&self) -> usize {
        self.links_in_all
    }

    /// True if no link belongs to it.
    pub(crate) fn has_no_links(&self) -> bool {
        self.links_in_all == 0
    }

    fn add_link(&mut self, node: NodeId, link: LinkKey) {
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

    /// Keys of its links, open or opening, that serve or are to serve.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkKey> + '_ {
        self.links.iter().filter_map(|link| *link)
    }

    /// Keys of all its links that may be opening.
    pub(crate) fn opening_links(&self) -> impl Iterator<Item = LinkKey> + '_ {
        self.links().chain(self.beside.iter().copied())
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
        let refused = self.refusals.entry(node).or_insert_with(|| {
            let first = Duration::from_millis(limits::RECONNECT_FIRST_MS);
            let max = Duration::from_millis(limits::RECONNECT_MAX_MS);
            Refused { verdicts: 0, until_ns: 0, backoff: Backoff::new(first, max) }
        });
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
        self.refusals.remove(&node);
        self.last_verdict = None;
        self.dismissed = false;
        self.certificate_ends = CertificateEnds::default();
    }

    /// Consecutive refusals by a node; 0 if there are none, or if it could not judge.
    pub(crate) fn verdicts_of(&self, node: NodeId) -> u32 {
        self.refusals.get(&node).map_or(0, |refused| refused.verdicts)
    }

    /// True if a node may be asked for another link now. With a doubtful login, no node may while
    /// one that refused is spared: a wrong password would go round.
    pub(crate) fn may_ask(&self, node: NodeId, now_ns: u64) -> bool {
        !(self.is_spared(node, now_ns) || self.is_doubtful() && self.has_recent_verdict(now_ns))
    }

    /// True if a node that refused its login or keyspace is still spared.
    pub(crate) fn has_recent_verdict(&self, now_ns: u64) -> bool {
        let mut refusals = self.refusals.values();
        refusals.any(|refused| refused.verdicts > 0 && now_ns < refused.until_ns)
    }

    /// True if a node has refused so recently that others should be asked.
    pub(crate) fn is_spared(&self, node: NodeId, now_ns: u64) -> bool {
        self.refusals.get(&node).is_some_and(|refused| now_ns < refused.until_ns)
    }

    /// Ends all pauses after refusals, because a new client wants an answer now.
    pub(crate) fn ask_again(&mut self) {
        self.refusals.values_mut().for_each(|refused| refused.until_ns = 0);
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

    /// Time of its login's last success, nanoseconds; 0: never.
    pub(crate) fn verified_ns(&self) -> u64 {
        self.verified_ns
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The key of a pool for clients with this login in this keyspace.
    pub(in crate::link) fn key(login: Option<&[u8]>, keyspace: Option<&str>) -> PoolKey {
        PoolKey {
            login: login.map(|token| LoginToken::new(token.into())),
            identity: None,
            certificate: None,
            version: 4,
            keyspace: keyspace.map(Arc::from),
            compression: None,
            no_compact: false,
            is_own: false,
        }
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

//! The choice of a link for a request: among the replicas of its partition key, or among all nodes
//! of the local datacentre, the node with the fewest queries in flight.

use shunt_topology::NodeId;

use crate::ids::{ClientRef, LinkKey, PoolId};
use crate::link::Pool;
use crate::link::links::Links;
use crate::plan::Plan;
use crate::router::Router;

/// The route of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This link.
    Link(LinkKey),
    /// All suitable links are full, or the client has its part of them; the request waits for this
    /// one.
    Full(LinkKey),
    /// No link of the pool is open.
    Nothing,
}

/// The fate of a request when all suitable links are full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// The request waits until there is room.
    Waits,
    /// The request fails, or goes another way.
    Fails,
}

/// The link for a request of `asker`, among the open links of its pool. `avoid`: a node to use only
/// as the last resort. Drained nodes get the request only if no other node can take it.
#[inline]
pub(crate) fn choose(
    router: &mut Router,
    links: &Links,
    pool: PoolId,
    asker: ClientRef,
    plan: &Plan,
    avoid: Option<NodeId>,
    when_full: WhenFull,
) -> Choice {
    let choice = choose_in(router, links, pool, asker, plan, avoid, Scope::Undrained);
    if links.has_drained && !takes(links, choice, avoid, when_full) {
        return choose_among_all(router, links, pool, asker, plan, avoid);
    }
    choice
}

/// The link for a request that has waited in vain for an undrained node.
#[cold]
pub(crate) fn choose_after_wait(
    router: &mut Router,
    links: &Links,
    pool: PoolId,
    asker: ClientRef,
    plan: &Plan,
) -> Choice {
    match links.has_drained {
        true => choose_among_all(router, links, pool, asker, plan, None),
        false => Choice::Nothing,
    }
}

/// The link for a request that no undrained node can take.
#[cold]
#[inline(never)]
fn choose_among_all(
    router: &mut Router,
    links: &Links,
    pool: PoolId,
    asker: ClientRef,
    plan: &Plan,
    avoid: Option<NodeId>,
) -> Choice {
    choose_in(router, links, pool, asker, plan, avoid, Scope::All)
}

/// The nodes that a choice considers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Nodes that no operator has drained.
    Undrained,
    All,
}

/// True if the chosen node can take the request, now or after a wait. Only clients' requests can
/// wait for a full link, and none waits for a node that does not answer probes.
fn takes(links: &Links, choice: Choice, avoid: Option<NodeId>, when_full: WhenFull) -> bool {
    match choice {
        Choice::Link(link) => is_responsive(links, link, avoid),
        Choice::Full(link) => when_full == WhenFull::Waits && is_responsive(links, link, avoid),
        Choice::Nothing => false,
    }
}

#[inline]
fn choose_in(
    router: &mut Router,
    links: &Links,
    pool: PoolId,
    asker: ClientRef,
    plan: &Plan,
    avoid: Option<NodeId>,
    scope: Scope,
) -> Choice {
    let Some(cluster) = router.cluster.as_ref() else { return Choice::Nothing };
    let Some(pool) = router.pools.get(pool) else { return Choice::Nothing };
    if pool.ready == 0 {
        return Choice::Nothing;
    }
    if let Some(node) = plan.node {
        return least_loaded(links, pool, asker, [node].iter(), avoid, scope);
    }
    if let Some((keyspace, token)) = plan.placement
        && plan.generation == router.generation
    {
        let replicas = cluster.routing.replicas(keyspace, token);
        let local = &replicas.nodes[..replicas.local.min(replicas.nodes.len())];
        // Conditions on one partition do not compete in Paxos if they go through one coordinator,
        // whatever share it has: each core and proxy judges nodes by itself.
        let mut in_scope =
            local.iter().filter(|node| scope == Scope::All || !links.is_drained(**node));
        if plan.conditional
            && let Choice::Link(link) =
                least_loaded(links, pool, asker, in_scope.next().into_iter(), avoid, scope)
            && is_responsive(links, link, avoid)
        {
            return Choice::Link(link);
        }
        match least_loaded(links, pool, asker, local.iter(), avoid, scope) {
            Choice::Nothing => {}
            found => return found,
        }
    }
    let nodes = cluster.routing.local_nodes();
    let start = if nodes.is_empty() { 0 } else { router.cursor % nodes.len() };
    let choice = least_loaded(
        links,
        pool,
        asker,
        nodes[start..].iter().chain(&nodes[..start]),
        avoid,
        scope,
    );
    router.cursor = router.cursor.wrapping_add(1);
    choice
}

/// The link to one of these nodes; `Nothing` if none of them has one, answers probes and is not
/// drained.
pub(crate) fn choose_among(
    router: &Router,
    links: &Links,
    pool: PoolId,
    asker: ClientRef,
    nodes: &[NodeId],
) -> Choice {
    let Some(pool) = router.pools.get(pool) else { return Choice::Nothing };
    match least_loaded(links, pool, asker, nodes.iter(), None, Scope::Undrained) {
        Choice::Link(link) if !is_responsive(links, link, None) => Choice::Nothing,
        found => found,
    }
}

/// True if the link's node answers probes and is not the one to avoid.
fn is_responsive(links: &Links, link: LinkKey, avoid: Option<NodeId>) -> bool {
    let Some(node) = links.get(link).map(|link| link.node) else { return false };
    links.node(node).is_some_and(|state| !state.silent) && avoid != Some(node)
}

/// The rank of nodes that do not answer probes, and of the one to avoid. Of the others, nodes whose
/// share ([`crate::link::outliers`]) does not reach the number of this turn have rank 1, and the
/// rest have rank 0.
const LAST: u8 = 2;

/// Chooses the link to the node with the fewest queries in flight, its recent errors counted among
/// them; the first of equals, among the nodes of the lowest rank that can take the request now.
#[inline]
fn least_loaded<'a>(
    links: &Links,
    pool: &Pool,
    asker: ClientRef,
    nodes: impl Iterator<Item = &'a NodeId>,
    avoid: Option<NodeId>,
    scope: Scope,
) -> Choice {
    let turn = links.next_turn();
    let mut best = None;
    let (mut full, mut full_rank) = (Choice::Nothing, u8::MAX);
    for node in nodes {
        let Some(state) = links.node(*node) else { continue };
        if state.drained && scope == Scope::Undrained {
            continue;
        }
        let is_last = state.silent || avoid == Some(*node);
        let rank = if is_last { LAST } else { u8::from(state.share < turn) };
        for key in pool.links_to(*node) {
            let Some(link) = links.get(key).filter(|link| link.is_ready()) else { continue };
            if !link.takes(asker) {
                if rank == 0 || rank < full_rank {
                    (full, full_rank) = (Choice::Full(key), rank);
                }
                continue;
            }
            let load = (rank, state.in_flight + state.penalty, link.streams.len());
            if best.is_none_or(|(least, _)| load < least) {
                best = Some((load, key));
            }
        }
    }
    best.map_or(full, |(_, key)| Choice::Link(key))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shunt_reactor::ConnId;
    use shunt_topology::schema::Factor;
    use shunt_topology::{Keyspace, Node, Replication, RoutingTable, Token};

    use super::*;
    use crate::control::ClusterState;
    use crate::link::outliers::SHARE_FULL;
    use crate::link::{Link, NodeState, PoolKey, Step};
    use crate::metrics::NodeMetrics;
    use crate::prepared::PreparedStore;

    const CLIENT: ClientRef = ClientRef { slot: 0, id: 1 };
    /// The replicas of the key of [`Scene::keyed`], in their order on the ring.
    const REPLICAS: [u16; 3] = [2, 0, 1];

    struct Scene {
        router: Router,
        links: Links,
        pool: PoolId,
    }

    impl Scene {
        /// Three nodes, each of which has an open link and all data.
        fn new() -> Scene {
            let mut router = Router::new(Arc::new(PreparedStore::new()), 0, false);
            router.set_cluster(Arc::new(cluster()));
            let key = PoolKey {
                login: None,
                identity: None,
                certificate: None,
                version: 4,
                keyspace: None,
                compression: None,
                no_compact: false,
                is_own: false,
            };
            let pool = router.pools.find_or_create(&key, 1, 0, 0).expect("a pool");
            let mut links = Links::new(false);
            for number in 0..3 {
                links.nodes_mut().push(NodeState::new(Arc::<NodeMetrics>::default()));
                let (node, conn) = (NodeId(number), ConnId { index: number.into(), generation: 1 });
                let mut link = Link::new(conn, node, 9042, pool, &key, 100);
                link.step = Step::Ready;
                let (role, link) = (link.role, links.insert(link));
                let pool = router.pools.get_mut(pool).expect("the pool");
                pool.attach(node, link, role);
                pool.ready += 1;
            }
            Scene { router, links, pool }
        }

        fn node(&mut self, number: u16) -> &mut NodeState {
            self.links.node_mut(NodeId(number)).expect("a node")
        }

        fn set_share(&mut self, number: u16, share: u8) {
            self.node(number).share = share;
            self.links.has_reduced = self.links.nodes_mut().iter().any(|it| it.share < SHARE_FULL);
        }

        fn fill(&mut self, number: u16) {
            let (_, link) = self.links.iter_mut().nth(number.into()).expect("a link");
            (link.crowded, link.full) = (true, true);
        }

        /// The plan of a request on a key.
        fn keyed(&self) -> Plan {
            let cluster = self.router.cluster.as_ref().expect("a ring");
            let keyspace = cluster.routing.keyspace("ks").expect("the keyspace");
            let placement = Some((keyspace, Token(50)));
            Plan { placement, generation: self.router.generation, ..Plan::anywhere() }
        }

        /// The node of a request: its number, or that of a full link to wait for.
        fn chosen(&mut self, plan: &Plan, avoid: Option<u16>) -> Result<u16, u16> {
            let Scene { router, links, pool } = self;
            let avoid = avoid.map(NodeId);
            let choice = choose(router, links, *pool, CLIENT, plan, avoid, WhenFull::Waits);
            let node = |key| links.get(key).map(|link| link.node.0).expect("a link");
            match choice {
                Choice::Link(key) => Ok(node(key)),
                Choice::Full(key) => Err(node(key)),
                Choice::Nothing => panic!("no node"),
            }
        }

        /// Requests that each node gets, of as many.
        fn counts(&mut self, plan: &Plan, requests: usize) -> [usize; 3] {
            let mut counts = [0; 3];
            for _ in 0..requests {
                counts[usize::from(self.chosen(plan, None).expect("a link"))] += 1;
            }
            counts
        }
    }

    fn cluster() -> ClusterState {
        let node = |number: u16| Node {
            id: NodeId(number),
            host_id: u128::from(number) + 1,
            address: ([10, 0, 0, number as u8 + 1], 9042).into(),
            datacentre: "dc1".to_owned(),
            rack: "r".to_owned(),
            tokens: vec![i64::from(number) * 100 - 100],
            up: true,
            release_version: "5.0.9".to_owned(),
        };
        let factor = Factor { all: 3, transient: 0 };
        let keyspace = Keyspace { name: "ks".to_owned(), replication: Replication::Simple(factor) };
        let nodes = (0..3).map(node).collect();
        ClusterState::of_test(RoutingTable::build(nodes, vec![keyspace], vec![], Some("dc1")))
    }

    #[test]
    fn a_node_without_a_share_gets_only_what_no_other_node_can_take() {
        let mut scene = Scene::new();
        let [first, second, third] = REPLICAS;
        let keyed = scene.keyed();
        assert_eq!(scene.chosen(&keyed, None), Ok(first));
        scene.set_share(first, 0);
        for plan in [keyed, Plan::anywhere()] {
            assert_eq!(scene.counts(&plan, 600)[usize::from(first)], 0);
        }
        scene.node(second).in_flight = 1_000;
        assert_eq!(scene.chosen(&keyed, None), Ok(third), "whatever the load");
        scene.node(third).silent = true;
        assert_eq!(scene.chosen(&keyed, None), Ok(second));
        assert_eq!(scene.chosen(&keyed, Some(second)), Ok(first), "rather than one to avoid");
        scene.fill(second);
        assert_eq!(scene.chosen(&keyed, None), Ok(first), "rather than wait or a silent node");
        scene.fill(first);
        assert_eq!(scene.chosen(&keyed, None), Ok(third));
        scene.fill(third);
        assert_eq!(scene.chosen(&keyed, None), Err(second), "it waits for a node with its share");
    }

    #[test]
    fn requests_that_belong_to_a_node_go_there_whatever_its_share() {
        let mut scene = Scene::new();
        let [first, second, _] = REPLICAS;
        scene.set_share(first, 0);
        let conditional = Plan { conditional: true, ..scene.keyed() };
        assert_eq!(scene.counts(&conditional, 600)[usize::from(first)], 600);
        let bound = Plan { node: Some(NodeId(first)), ..Plan::anywhere() };
        assert_eq!(scene.counts(&bound, 600)[usize::from(first)], 600);
        scene.node(first).silent = true;
        assert_eq!(scene.chosen(&conditional, None), Ok(second));
    }

    #[test]
    fn a_share_is_that_part_of_the_requests() {
        let mut scene = Scene::new();
        let [first, ..] = REPLICAS;
        let keyed = scene.keyed();
        scene.set_share(first, 128);
        assert!(scene.counts(&keyed, 512)[usize::from(first)].abs_diff(257) < 4);
        (0..3).for_each(|node| scene.set_share(node, 0));
        assert_eq!(scene.chosen(&keyed, None), Ok(first), "all without a share is as none");
        (0..3).for_each(|node| scene.set_share(node, SHARE_FULL));
        assert_eq!(scene.counts(&keyed, 10)[usize::from(first)], 10);
    }
}

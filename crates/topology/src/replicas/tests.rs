//! Placements compared with a walk from each range, and their cost in steps.

use proptest::prelude::*;

use super::*;
use crate::node::Node;
use crate::schema::Factor;
use crate::walk::Walk;

fn node(id: u16, datacentre: usize, rack: usize, tokens: Vec<i64>) -> Node {
    Node {
        id: NodeId(id),
        host_id: u128::from(id),
        address: ([127, 0, 0, 1], 9042).into(),
        datacentre: format!("dc{datacentre}"),
        rack: format!("r{rack}"),
        tokens,
        up: true,
        release_version: "5.0.9".to_owned(),
    }
}

/// Nodes of up to three datacentres and four racks. Some tokens are claimed twice, and some nodes
/// own none.
fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let place = (0..3_usize, 0..4_usize, prop::collection::vec(-60i64..60, 0..8));
    prop::collection::vec(place, 0..16).prop_map(|places| {
        let nodes = places.into_iter().enumerate();
        nodes.map(|(id, (dc, rack, tokens))| node(id as u16 * 3, dc, rack, tokens)).collect()
    })
}

fn factor() -> impl Strategy<Value = Factor> {
    (0u16..8, 0u16..8).prop_map(|(all, transient)| Factor {
        all,
        transient: transient.saturating_sub(4).min(all),
    })
}

fn replication() -> impl Strategy<Value = Replication> {
    // A datacentre that no node is in, and some without a factor.
    let factors = prop::collection::btree_map(0..4_usize, factor(), 0..4);
    prop_oneof![
        factor().prop_map(Replication::Simple),
        factors.prop_map(|factors| {
            let named = factors.into_iter().map(|(dc, factor)| (format!("dc{dc}"), factor));
            Replication::NetworkTopology(named.collect())
        }),
        Just(Replication::Everywhere),
        Just(Replication::Local),
    ]
}

/// Replicas of a range as a walk finds them.
fn walked(
    replication: &Replication,
    ring: &Ring,
    places: &Places,
    range: usize,
) -> (Vec<NodeId>, usize) {
    let mut walk = Walk::new(replication, places);
    let found = walk.replicas(ring.walk(range)).unwrap_or_default();
    let (mut ordered, remote): (Vec<NodeId>, Vec<NodeId>) =
        found.iter().partition(|&&node| places.is_local(node));
    let local = ordered.len();
    ordered.extend(remote);
    (ordered, local)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_placement_is_that_of_a_walk_from_each_range(
        nodes in nodes(),
        replication in replication(),
        local in prop::option::of(0..4_usize),
    ) {
        let ring = Ring::new(&nodes);
        let local = local.map(|local| format!("dc{local}"));
        let places = Places::new(&nodes, local.as_deref());
        let placement = Placement::new(&replication, &ring, &places, &mut Budget::default())
            .expect("the budget is large");
        for token in -61..61 {
            let found = placement.replicas(&ring, Token(token));
            let expected = if ring.len() == 0 {
                (Vec::new(), 0)
            } else {
                walked(&replication, &ring, &places, ring.range_of(Token(token)))
            };
            prop_assert_eq!((found.nodes, found.local), (&expected.0[..], expected.1));
        }
    }

    #[test]
    fn a_placement_beyond_the_budget_is_given_up(
        nodes in nodes(),
        replication in replication(),
        steps in 0usize..400,
        bytes in 0usize..2_000,
    ) {
        let (ring, places) = (Ring::new(&nodes), Places::new(&nodes, None));
        let mut spent = Budget::default();
        Placement::new(&replication, &ring, &places, &mut spent).expect("the budget is large");
        let all = Budget::default();
        let (steps_needed, bytes_needed) = (all.steps - spent.steps, all.bytes - spent.bytes);
        let mut budget = Budget { steps, bytes };
        let placed = Placement::new(&replication, &ring, &places, &mut budget);
        let has_room = steps >= steps_needed && bytes >= bytes_needed;
        prop_assert_eq!(placed.is_some(), has_room);
        prop_assert_eq!(budget.bytes, if has_room { bytes - bytes_needed } else { bytes });
    }
}

/// Steps and bytes of a placement.
fn cost(nodes: &[Node], replication: &Replication) -> (usize, usize) {
    let (ring, places) = (Ring::new(nodes), Places::new(nodes, None));
    let (all, mut budget) = (Budget::default(), Budget::default());
    Placement::new(replication, &ring, &places, &mut budget).expect("the budget is large");
    (all.steps - budget.steps, all.bytes - budget.bytes)
}

fn simple(all: u16) -> Replication {
    Replication::Simple(Factor { all, transient: 0 })
}

fn in_dc0(all: u16) -> Replication {
    Replication::NetworkTopology(vec![("dc0".to_owned(), Factor { all, transient: 0 })])
}

/// The layout on which walks from each range take the most steps.
#[test]
fn a_node_with_nearly_all_tokens_costs_steps_in_proportion_to_them() {
    for tokens in [100, 100_000] {
        let nodes = [node(0, 0, 0, (0..tokens).collect()), node(1, 0, 1, vec![-1])];
        for replication in [simple(2), in_dc0(2), Replication::Everywhere] {
            let (steps, bytes) = cost(&nodes, &replication);
            assert!(steps <= 3 * tokens as usize + 40, "{steps} steps for {tokens} tokens");
            assert!(bytes <= 4 * tokens as usize + 100, "{bytes} bytes for {tokens} tokens");
        }
    }
}

/// A walk meets all nodes of one rack before the next rack.
#[test]
fn a_rack_far_away_costs_steps_in_proportion_to_the_tokens() {
    for count in [100, 50_000_u16] {
        let mut nodes: Vec<Node> =
            (0..count).map(|id| node(id, 0, 0, vec![i64::from(id)])).collect();
        nodes.push(node(count, 0, 1, vec![i64::from(count)]));
        let (steps, _) = cost(&nodes, &in_dc0(2));
        assert!(steps <= 8 * usize::from(count), "{steps} steps for {count} nodes");
    }
}

/// The steps are bounded by the replicas in all, however these are spread.
#[test]
fn a_usual_ring_costs_a_step_for_each_replica() {
    for (count, tokens) in [(6, 16), (400, 256)] {
        let of = |id: u16| {
            let spread = (0..tokens).map(|number| {
                crate::token::token(&[&id.to_be_bytes()[..], &i32::to_be_bytes(number)].concat()).0
            });
            node(id, 0, usize::from(id % 3), spread.collect())
        };
        let nodes: Vec<Node> = (0..count).map(of).collect();
        let all = usize::from(count) * tokens as usize;
        for replication in [simple(3), in_dc0(3), in_dc0(5)] {
            let (steps, _) = cost(&nodes, &replication);
            assert!(steps <= 9 * all, "{steps} steps for {all} tokens");
        }
    }
}

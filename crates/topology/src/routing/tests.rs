//! Snapshots within a budget.

use super::*;
use crate::schema::Factor;

fn placed(budget: &mut Budget, keyspaces: &[(&str, u16)]) -> Vec<bool> {
    let node = |id: u16| Node {
        id: NodeId(id),
        host_id: u128::from(id),
        address: ([127, 0, 0, 1], 9042).into(),
        datacentre: "a".to_owned(),
        rack: "r".to_owned(),
        tokens: (0..100).map(|number| number * 10 + i64::from(id)).collect(),
        up: true,
        release_version: "5.0.9".to_owned(),
    };
    let nodes: Vec<Node> = (0..10).map(node).collect();
    let (ring, places) = (Ring::new(&nodes), Places::new(&nodes, None));
    let keyspaces = keyspaces.iter().map(|(name, all)| Keyspace {
        name: (*name).to_owned(),
        replication: Replication::Simple(Factor { all: *all, transient: 0 }),
    });
    let (entries, _) = place_keyspaces(keyspaces.collect(), &ring, &places, budget);
    entries.iter().map(|entry| entry.placement.is_some()).collect()
}

#[test]
fn settings_with_many_replicas_take_nothing_from_the_others() {
    let keyspaces = [("a", 10), ("b", 3), ("c", 10), ("d", 2), ("e", 3)];
    let (plenty, mut budget) = (Budget::default(), Budget::default());
    assert_eq!(placed(&mut budget, &keyspaces), [true; 5]);
    let needed = Budget { steps: plenty.steps - budget.steps, bytes: plenty.bytes - budget.bytes };
    let short = [
        Budget { steps: needed.steps - 1, ..plenty },
        Budget { bytes: needed.bytes - 1, steps: plenty.steps },
    ];
    for mut budget in short {
        assert_eq!(placed(&mut budget, &keyspaces), [false, true, false, true, true]);
    }
    assert_eq!(placed(&mut Budget { steps: 0, bytes: 0 }, &keyspaces), [false; 5]);
}

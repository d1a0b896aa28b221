//! Snapshots within a budget.

use super::*;
use crate::schema::{Cells, Factor};

/// Says of each keyspace, given with its replicas and tables, whether it has a placement.
fn placed(budget: &mut Budget, keyspaces: &[(&str, u16, usize)]) -> Vec<bool> {
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
    let tables = keyspaces.iter().flat_map(|(keyspace, _, tables)| {
        (0..*tables).map(|number| Table {
            keyspace: (*keyspace).to_owned(),
            name: format!("t{number}"),
            partition_key: Vec::new(),
            cells: Cells::default(),
        })
    });
    let tables: Vec<Table> = tables.collect();
    let keyspaces = keyspaces.iter().map(|(name, all, _)| Keyspace {
        name: (*name).to_owned(),
        replication: Replication::Simple(Factor { all: *all, transient: 0 }),
    });
    let (entries, _) = place_keyspaces(keyspaces.collect(), &tables, &ring, &places, budget);
    entries.iter().map(|entry| entry.placement.is_some()).collect()
}

#[test]
fn settings_with_many_replicas_take_nothing_from_the_others() {
    let keyspaces = [("a", 10, 1), ("b", 3, 1), ("c", 10, 0), ("d", 2, 1), ("e", 3, 0)];
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

#[test]
fn settings_that_many_tables_have_keep_their_placement() {
    // Other settings with fewer replicas, of keyspaces with few tables or none, come last.
    let keyspaces = [("a", 1, 1), ("b", 2, 0), ("c", 10, 40), ("d", 3, 1), ("e", 4, 1)];
    let (plenty, mut budget) = (Budget::default(), Budget::default());
    assert_eq!(placed(&mut budget, &keyspaces), [true; 5]);
    let mut bytes = plenty.bytes - budget.bytes;
    let mut lost = Vec::new();
    while !lost.contains(&2) {
        bytes = bytes.saturating_sub(1_000);
        let placed = placed(&mut Budget { bytes, steps: plenty.steps }, &keyspaces);
        let news = (0..placed.len()).filter(|&one| !placed[one] && !lost.contains(&one));
        let news: Vec<usize> = news.collect();
        lost.extend(news);
    }
    assert_eq!(lost, [1, 4, 3, 0, 2]);
}

#[test]
fn settings_of_datacentres_that_do_not_exist_cost_nothing() {
    let node = |id: u16, datacentre: &str| Node {
        id: NodeId(id),
        host_id: u128::from(id),
        address: ([127, 0, 0, 1], 9042).into(),
        datacentre: datacentre.to_owned(),
        rack: "r".to_owned(),
        tokens: vec![i64::from(id)],
        up: true,
        release_version: "5.0.9".to_owned(),
    };
    let places = Places::new(&[node(1, "a"), node(2, "a"), node(3, "b")], None);
    let factor = |all| Factor { all, transient: 0 };
    let factors = |list: &[(&str, u16)]| {
        let list = list.iter().map(|(name, all)| ((*name).to_owned(), factor(*all)));
        Replication::NetworkTopology(list.collect())
    };
    for (setting, cost) in [
        (Replication::Simple(factor(2)), 3),
        (Replication::Simple(factor(1000)), 4),
        (factors(&[("a", 3), ("b", 1)]), 4),
        (factors(&[("aa", 1000), ("b", 1), ("c", 1000)]), 2),
        (Replication::Everywhere, 1),
    ] {
        assert_eq!(cost_of(&setting, &places), cost, "{setting:?}");
    }
}

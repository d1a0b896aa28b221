//! Snapshots: look-ups by name and number, strategies without token routing, odd rings.

use shunt_topology::schema::{Cells, Factor};
use shunt_topology::{
    Column, Keyspace, Node, NodeId, Replicas, Replication, RoutingTable, Table, Token,
};
use shunt_wire::cql::statement::{Identifier, classify};

use crate::cluster::{self, node};

const THREE: Factor = Factor { all: 3, transient: 0 };

fn three_nodes() -> Vec<Node> {
    vec![node(7, "a", "r1", &[0]), node(2, "b", "r1", &[100]), node(4, "a", "r2", &[-100])]
}

fn keyspace(name: &str, replication: Replication) -> Keyspace {
    Keyspace { name: name.to_owned(), replication }
}

fn table(keyspace: &str, name: &str) -> Table {
    Table {
        keyspace: keyspace.to_owned(),
        name: name.to_owned(),
        partition_key: vec![Column::new("k", "int")],
        cells: Cells::default(),
    }
}

fn ids(replicas: Replicas<'_>) -> Vec<u16> {
    replicas.nodes.iter().map(|node| node.0).collect()
}

#[test]
fn a_range_ends_at_its_token_and_the_last_wraps_around() {
    let one = Factor { all: 1, transient: 0 };
    let ring = cluster::table(three_nodes(), Replication::Simple(one), None);
    let ks = ring.keyspace("ks").expect("the keyspace");
    let list = [
        (i64::MIN, 4),
        (-101, 4),
        (-100, 4),
        (-99, 7),
        (0, 7),
        (1, 2),
        (100, 2),
        (101, 4),
        (i64::MAX, 4),
    ];
    for (token, owner) in list {
        assert_eq!(ids(ring.replicas(ks, Token(token))), [owner], "{token}");
    }
}

#[test]
fn nodes_by_number() {
    let ring = cluster::table(three_nodes(), Replication::Local, Some("a"));
    assert_eq!(ring.nodes().iter().map(|node| node.id.0).collect::<Vec<_>>(), [2, 4, 7]);
    assert_eq!(ring.node(NodeId(4)).map(|node| &*node.rack), Some("r2"));
    for absent in [0, 3, 5, 8, u16::MAX] {
        assert_eq!(ring.node(NodeId(absent)), None, "{absent}");
    }
    assert_eq!(ring.local_nodes(), [NodeId(4), NodeId(7)]);
    assert_eq!(ring.local_datacentre(), Some("a"));
}

#[test]
fn without_a_local_datacentre_all_nodes_are_equal() {
    let ring = cluster::table(three_nodes(), Replication::Simple(THREE), None);
    assert_eq!((ring.local_nodes().len(), ring.local_datacentre()), (3, None));
    let replicas = ring.replicas(ring.keyspace("ks").expect("the keyspace"), Token(0));
    assert_eq!((ids(replicas), replicas.local), (vec![7, 2, 4], 3));
}

/// The proxy never extends the named datacentre to others.
#[test]
fn a_local_datacentre_without_nodes_has_none_to_use() {
    for local in ["elsewhere", "A"] {
        let ring = cluster::table(three_nodes(), Replication::Simple(THREE), Some(local));
        assert_eq!((ring.local_nodes().len(), ring.local_datacentre()), (0, Some(local)));
        let replicas = ring.replicas(ring.keyspace("ks").expect("the keyspace"), Token(0));
        assert_eq!((ids(replicas).len(), replicas.local), (3, 0));
    }
}

#[test]
fn strategies_without_a_ring() {
    let everywhere = cluster::table(three_nodes(), Replication::Everywhere, Some("b"));
    let ks = everywhere.keyspace("ks").expect("the keyspace");
    assert_eq!(ids(everywhere.replicas(ks, Token(5))), [2, 4, 7]);
    assert_eq!(everywhere.replicas(ks, Token(5)).local, 1);
    for replication in
        [Replication::Local, Replication::Unknown, Replication::NetworkTopology(Vec::new())]
    {
        let ring = cluster::table(three_nodes(), replication, None);
        assert_eq!(ring.replicas(ks, Token(5)), Replicas::NONE);
    }
}

#[test]
fn rings_with_nothing_to_route_by() {
    let no_tokens: Vec<Node> =
        three_nodes().into_iter().map(|node| Node { tokens: Vec::new(), ..node }).collect();
    for nodes in [Vec::new(), no_tokens] {
        for replication in [Replication::Simple(THREE), Replication::Everywhere] {
            let count = nodes.len();
            let ring = cluster::table(nodes.clone(), replication, Some("a"));
            let ks = ring.keyspace("ks").expect("the keyspace");
            assert_eq!(ring.replicas(ks, Token(0)), Replicas::NONE);
            assert_eq!(ring.local_nodes().len(), if count == 0 { 0 } else { 2 });
        }
    }
}

#[test]
fn a_joining_node_takes_queries_but_holds_nothing() {
    let mut nodes = three_nodes();
    nodes.push(node(9, "a", "r3", &[]));
    let setting = vec![("a".to_owned(), THREE)];
    let ring = cluster::table(nodes, Replication::NetworkTopology(setting), Some("a"));
    let replicas = ring.replicas(ring.keyspace("ks").expect("the keyspace"), Token(0));
    assert_eq!(ids(replicas), [7, 4]);
    assert_eq!(ring.local_nodes(), [NodeId(4), NodeId(7), NodeId(9)]);
}

#[test]
fn names_are_found_as_stored_and_as_written() {
    let keyspaces = ["b", "A", "a", "zz"].map(|name| keyspace(name, Replication::Simple(THREE)));
    let tables = vec![
        table("a", "t"),
        table("A", "T"),
        table("b", "t"),
        table("a", "s"),
        table("b", "x\"y"),
    ];
    let ring = RoutingTable::build(three_nodes(), keyspaces.to_vec(), tables, None);
    let list = [
        ("a.t", Some(("a", "t"))),
        ("A.T", Some(("a", "t"))),
        ("\"A\".\"T\"", Some(("A", "T"))),
        ("\"A\".t", None),
        ("b.\"x\"\"y\"", Some(("b", "x\"y"))),
        ("b.s", None),
        ("c.t", None),
    ];
    for (written, stored) in list {
        let text = format!("SELECT * FROM {written}");
        let (keyspace, name) = classify(&text).selected_table().expect(written);
        let found = ring.resolve_table(&keyspace.expect(written), &name);
        assert_eq!(found.map(|table| (&*table.keyspace, &*table.name)), stored, "{written}");
        if let Some((keyspace, name)) = stored {
            assert_eq!(ring.table(keyspace, name), found);
        }
    }
    for (name, exists) in [("a", true), ("A", true), ("zz", true), ("B", false), ("", false)] {
        let found = ring.keyspace(name);
        assert_eq!(found.is_some(), exists, "{name}");
        assert_eq!(ring.resolve_keyspace(&Identifier::exact(name)), found);
    }
    assert_eq!(
        ring.keyspaces().map(|keyspace| &*keyspace.name).collect::<Vec<_>>(),
        ["A", "a", "b", "zz"]
    );
}

#[test]
fn keyspaces_keep_their_own_placement() {
    let one = Factor { all: 1, transient: 0 };
    let keyspaces = vec![
        keyspace("k1", Replication::Simple(one)),
        keyspace("k2", Replication::NetworkTopology(vec![("b".to_owned(), one)])),
        keyspace("k3", Replication::Simple(one)),
    ];
    let ring = RoutingTable::build(three_nodes(), keyspaces, Vec::new(), None);
    for (name, owner) in [("k1", 7), ("k2", 2), ("k3", 7)] {
        let ks = ring.keyspace(name).expect(name);
        assert_eq!(ids(ring.replicas(ks, Token(0))), [owner], "{name}");
    }
}

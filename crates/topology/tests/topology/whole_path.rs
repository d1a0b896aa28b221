//! The path of one query from its text to its candidate nodes, without a single allocation.

use allocation_counter::measure;
use shunt_topology::schema::{Cells, Factor};
use shunt_topology::token::token;
use shunt_topology::{Column, Keyspace, Replication, RoutingTable, Table};
use shunt_wire::cql::statement::{Identifier, classify, routing_key};

use crate::cluster::node;

fn ring() -> RoutingTable {
    let nodes = (0..12u16).map(|id| {
        let tokens: Vec<i64> = (0..16).map(|i| token(&[id as u8, i]).0).collect();
        node(id, if id % 2 == 0 { "a" } else { "b" }, &format!("r{}", id % 3), &tokens)
    });
    let three = Factor { all: 3, transient: 0 };
    let replication =
        Replication::NetworkTopology(vec![("a".to_owned(), three), ("b".to_owned(), three)]);
    let keyspaces = vec![Keyspace { name: "shop".to_owned(), replication }];
    let partition_key = vec![Column::new("customer", "text"), Column::new("day", "date")];
    let name = "orders".to_owned();
    let tables =
        vec![Table { keyspace: "shop".to_owned(), name, partition_key, cells: Cells::default() }];
    RoutingTable::build(nodes.collect(), keyspaces, tables, Some("b"))
}

/// True if the text leads to six replicas, three of them local, through `key`.
fn routed(ring: &RoutingTable, text: &str, session_keyspace: &str, key: &mut Vec<u8>) -> bool {
    let statement = classify(text);
    let keyspace = statement.keyspace.unwrap_or(Identifier::exact(session_keyspace));
    let Some(table) = statement.table.and_then(|table| ring.resolve_table(&keyspace, &table))
    else {
        return false;
    };
    let Some(index) = ring.resolve_keyspace(&keyspace) else { return false };
    let value =
        |bind: shunt_wire::cql::statement::Bind<'_>| (bind.index == 0).then_some(&b"Ada"[..]);
    if !routing_key(&statement, &table.partition_key, value, key) {
        return false;
    }
    let replicas = ring.replicas(index, token(key));
    let local = &replicas.nodes[..replicas.local];
    replicas.nodes.len() == 6
        && local.len() == 3
        && local.iter().all(|id| ring.node(*id).is_some_and(|node| node.datacentre == "b"))
}

#[test]
fn no_step_allocates() {
    let ring = ring();
    let texts = [
        "SELECT * FROM Shop.Orders WHERE customer = ? AND day = '2026-11-21' AND n IN (1, 2) LIMIT 5",
        "insert into orders (DAY, n, \"customer\") values ('2026-11-21', {'a': [1, 2]}, ?)",
        "UPDATE orders SET n = n + 1 WHERE customer = :c AND day = '2026-11-21' IF EXISTS",
        "BEGIN BATCH DELETE FROM orders WHERE day = '2026-11-21' AND customer = ?; APPLY BATCH",
    ];
    let mut key = Vec::with_capacity(64);
    for text in texts {
        let mut found = false;
        let counted = measure(|| found = routed(&ring, text, "shop", &mut key));
        assert!(found, "{text}");
        assert_eq!(key, b"\0\x03Ada\0\0\x04\x80\0\x51\x2a\0", "{text}");
        assert_eq!(counted.count_total, 0, "{text}");
    }
    assert!(
        !routed(&ring, "SELECT * FROM orders WHERE customer = ?", "shop", &mut key),
        "half a key"
    );
    assert!(
        !routed(&ring, "SELECT * FROM orders WHERE customer = ? AND day = ?", "other", &mut key),
        "other table"
    );
}

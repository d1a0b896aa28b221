//! Replication settings and partitioners as spelt in the system tables.

use shunt_topology::Replication::{self, *};
use shunt_topology::schema::Factor;
use shunt_topology::token::{is_supported, parse_tokens};

#[test]
fn replication_settings() {
    let factor = |all, transient| Factor { all, transient };
    let simple = ("class", "org.apache.cassandra.locator.SimpleStrategy");
    let network = ("class", "NetworkTopologyStrategy");
    let list: &[(&[(&str, &str)], Replication)] = &[
        (&[simple, ("replication_factor", "3")], Simple(factor(3, 0))),
        (&[("replication_factor", "3/1"), simple], Simple(factor(3, 1))),
        (&[simple], Unknown),
        (&[simple, ("replication_factor", "many")], Unknown),
        (&[simple, ("replication_factor", "1/2")], Unknown),
        (
            &[network, ("dc2", "2"), ("dc1", "3/1")],
            NetworkTopology(vec![
                ("dc1".to_owned(), factor(3, 1)),
                ("dc2".to_owned(), factor(2, 0)),
            ]),
        ),
        (&[network], NetworkTopology(Vec::new())),
        (&[network, ("dc1", "x")], Unknown),
        (&[("class", "org.apache.cassandra.locator.LocalStrategy")], Local),
        (&[("class", "EverywhereStrategy")], Everywhere),
        (&[("class", "com.example.MyStrategy"), ("replication_factor", "3")], Unknown),
        (&[("replication_factor", "3")], Unknown),
        (&[], Unknown),
    ];
    for (options, expected) in list {
        assert_eq!(Replication::parse(options.iter().copied()), *expected, "{options:?}");
    }
}

#[test]
fn partitioners() {
    let murmur = "org.apache.cassandra.dht.Murmur3Partitioner";
    assert!(is_supported(murmur) && is_supported("Murmur3Partitioner"));
    assert!(!is_supported("org.apache.cassandra.dht.RandomPartitioner") && !is_supported(""));
    assert_eq!(parse_tokens(murmur, ["-5", " 9223372036854775807", "x"]), [-5, i64::MAX]);
    assert!(parse_tokens("org.apache.cassandra.dht.RandomPartitioner", ["5"]).is_empty());
}

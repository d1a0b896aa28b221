//! Comparison with values computed by Cassandra 5.0.9; `../cassandra/*.java` created the files.

use shunt_topology::token::{Token, token};
use shunt_topology::{Node, Replication};

use crate::cluster;

#[test]
fn tokens() {
    let lines = include_str!("../cassandra/tokens.txt").lines();
    for (length, line) in lines.enumerate() {
        let key: Vec<u8> = (0..length).map(|i| (length * 31 + i * 97) as u8).collect();
        let expected = Token(line.parse().expect("a number"));
        assert_eq!(token(&key), expected, "key of {length} bytes");
    }
}

#[test]
fn placement() {
    let file = include_str!("../cassandra/placement.txt");
    let mut checked = 0;
    for cluster in file.split("cluster\n").skip(1) {
        let mut settings = cluster.split("replication ");
        let nodes: Vec<Node> = settings.next().expect("nodes").lines().map(node).collect();
        for setting in settings {
            checked += check(&nodes, setting);
        }
    }
    assert!(checked > 1000, "{checked} ranges");
}

fn node(line: &str) -> Node {
    let [_, id, datacentre, rack, tokens] = line.split(' ').collect::<Vec<_>>()[..] else {
        panic!("not a node: {line}");
    };
    let tokens: Vec<i64> = tokens.split(',').map(|token| token.parse().expect("a token")).collect();
    cluster::node(id.parse().expect("a number"), datacentre, rack, &tokens)
}

/// Compares every range, without a local datacentre and from `dc0`; returns the number of ranges.
fn check(nodes: &[Node], setting: &str) -> usize {
    let mut lines = setting.lines();
    let mut words = lines.next().expect("a setting").split(' ');
    let class = ("class", words.next().expect("a class"));
    let options = words.map(|option| option.split_once('=').expect("an option"));
    let replication = Replication::parse(options.chain([class]));
    let anywhere = cluster::table(nodes.to_vec(), replication.clone(), None);
    let from_dc0 = cluster::table(nodes.to_vec(), replication, Some("dc0"));
    let ks = anywhere.keyspace("ks").expect("the keyspace");
    let is_local = |node: &u16| nodes[usize::from(*node)].datacentre == "dc0";

    let mut ranges = 0;
    for line in lines {
        let (end, replicas) = line.split_once(' ').expect("a range");
        let end = Token(end.parse().expect("a token"));
        let replicas =
            replicas.split(',').filter(|replica| !replica.is_empty() && !replica.ends_with('*'));
        let expected: Vec<u16> =
            replicas.map(|replica| replica.parse().expect("a number")).collect();

        let found: Vec<u16> = anywhere.replicas(ks, end).nodes.iter().map(|node| node.0).collect();
        assert_eq!(found, expected, "{setting} {line}");

        let (mut ordered, remote): (Vec<u16>, Vec<u16>) =
            expected.iter().partition(|node| is_local(node));
        let local = ordered.len();
        ordered.extend(remote);
        let found = from_dc0.replicas(ks, end);
        assert_eq!(
            found.nodes.iter().map(|node| node.0).collect::<Vec<_>>(),
            ordered,
            "{setting} {line}"
        );
        assert_eq!(found.local, local, "{setting} {line}");
        ranges += 1;
    }
    ranges
}

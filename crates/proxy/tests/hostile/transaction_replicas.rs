//! Modes and rules have one partition each, with the same replicas. No other node's end keeps a
//! proxy from reading them. A table of an earlier version, with a partition for each keyspace, is
//! not taken for one without modes.

use shunt_bench::stub::ring::{Placement, Ring};
use shunt_reactor::sim::SECOND;
use shunt_topology::token::token;
use shunt_transactions::catalogue::switching::{MODES_TRUSTED_NS, SETTLES_NS};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{INVALID, OVERLOADED, UNAVAILABLE};

use super::support::scene::Beginning;
use super::transaction_ring::{Bank, TransactionTestbed, put};

const WRITE: &str = "INSERT INTO bank.t (id, v) VALUES (1, 1)";
const READ: &str = "SELECT v FROM bank.t WHERE id = 1";

/// The reason why nodes do not read modes and rules.
#[derive(Default)]
pub enum Obstacle {
    #[default]
    None,
    /// An earlier version has made the tables.
    EarlierLayout,
    /// Nodes of the ring that are down, as a bit set.
    NodesDown(Ring, u64),
}

impl Obstacle {
    /// Code and text of the nodes' error to this question.
    pub fn error(&self, text: &str) -> Option<(i32, &'static str)> {
        let lacks = (UNAVAILABLE, "Cannot achieve consistency level QUORUM");
        match self {
            Obstacle::None => None,
            Obstacle::EarlierLayout => text.contains(" WHERE enabled = true").then_some((
                INVALID,
                "Undefined column name enabled in table shunt_meta.transactional",
            )),
            Obstacle::NodesDown(ring, down) => lacks_quorum(ring, *down, text).then_some(lacks),
        }
    }
}

/// True if too few replicas are up of a range that this question reads: of any range of the ring,
/// unless the question names the partition.
fn lacks_quorum(ring: &Ring, down: u64, text: &str) -> bool {
    let placement = Placement::of(ring);
    let is_down = |token: i64| {
        let up = placement.replicas(token) & !down;
        up.count_ones() <= u32::from(ring.replication) / 2
    };
    match text.contains(" WHERE enabled = true") {
        true => is_down(token(&[1]).0),
        false => ring.nodes.iter().flat_map(|node| &node.tokens).copied().any(is_down),
    }
}

/// Five nodes, of which each range of `shunt_meta` has three.
fn testbed() -> (TransactionTestbed, Ring) {
    let bank = Bank::with(&[("bank", "t")]);
    bank.lock().unwrap().mode = Some("mixed_reads");
    let ring = TransactionTestbed::new(bank, |options| {
        (options.nodes, options.aggregate) = (5, vec![false; 5]);
        options.config.query_timeout_ms = 5_000;
    });
    let nodes: Vec<_> =
        ring.ring.testbed.scene.ring.nodes.iter().map(|node| node.address).collect();
    (ring, Ring { replication: 3, ..Ring::even(&nodes, 4) })
}

impl TransactionTestbed {
    /// Ends these nodes for good, and lets the proxy know.
    fn end_nodes(&mut self, ring: &Ring, down: u64) {
        let scene = &mut self.ring.testbed.scene;
        for place in (0..5).filter(|place| down & (1 << place) != 0) {
            let node = scene.nodes[place];
            scene.world.kill(node);
            scene.said_up[place] = false;
        }
        scene.post_cluster();
        self.bank.lock().unwrap().obstacle = Obstacle::NodesDown(ring.clone(), down);
        self.run_for(SECOND);
    }
}

/// Every pair of nodes shares a range, so no question about all ranges has an answer.
#[test]
fn two_nodes_of_other_ranges_stop_no_keyspace() {
    let (_, ring) = testbed();
    let replicas = Placement::of(&ring).replicas(token(&[1]).0);
    let pairs = (0..5u32).flat_map(|one| (0..one).map(move |other| 1u64 << one | 1 << other));
    for down in pairs.filter(|down| (replicas & down).count_ones() < 2) {
        let (mut testbed, ring) = testbed();
        let client = testbed.client(None);
        testbed.end_nodes(&ring, down);
        for _ in 0..(MODES_TRUSTED_NS + 2 * SETTLES_NS) / SECOND {
            for text in [WRITE, READ, &put("bank.t", 2, 2)] {
                let answer = testbed.ask(client, text);
                assert_eq!(answer.opcode(), opcode::RESULT, "{down:#b}: {text}: {answer:?}");
            }
            testbed.run_for(SECOND);
        }
        assert_eq!(testbed.metrics().modes_unknown.get(), 0, "{down:#b}");
    }
}

/// The control of the test before: here the nodes have replicas of the partition.
#[test]
fn two_replicas_of_the_modes_stop_keyspaces_in_use() {
    let (mut testbed, ring) = testbed();
    let client = testbed.client(None);
    let replicas = Placement::of(&ring).replicas(token(&[1]).0);
    testbed.end_nodes(&ring, replicas & (replicas - 1));
    testbed.run_for(MODES_TRUSTED_NS + SETTLES_NS + SECOND);
    for text in [WRITE, READ] {
        let answer = testbed.ask(client, text);
        let (code, why) = answer.error();
        assert!(code == OVERLOADED && why.contains("modes and rules lately"), "{code:#x} {why}");
    }
}

/// A table with modes has another layout than this proxy reads. That is no table without modes,
/// whether one node says so or all.
#[test]
fn a_table_of_an_earlier_version_is_refused_in_words() {
    for count in [1, 3] {
        let bank = Bank::with(&[("bank", "t")]);
        {
            let mut bank = bank.lock().unwrap();
            (bank.mode, bank.obstacle) = (Some("full"), Obstacle::EarlierLayout);
        }
        let mut ring = TransactionTestbed::new(bank, |options| {
            (options.beginning, options.nodes) = (Beginning::InDoubt, count);
            options.config.query_timeout_ms = 5_000;
        });
        let client = ring.client(None);
        for text in [WRITE, READ, "UPDATE others.u SET v = 1 WHERE id = 1"] {
            let answer = ring.ask(client, text);
            let (code, why) = answer.error();
            let is_told = code == OVERLOADED
                && why.contains("has a layout that this version does not know")
                && why.contains("shunt doctor");
            assert!(is_told, "{count}: {text}: {code:#x} {why}");
        }
        assert_eq!(ring.bank.lock().unwrap().written.len(), 0);
        ring.bank.lock().unwrap().obstacle = Obstacle::None;
        ring.run_for(3 * SECOND);
        // One node is no quorum of the keyspace's replicas.
        if count == 3 {
            assert_eq!(ring.ask(client, WRITE).opcode(), opcode::RESULT);
        } else {
            let (code, why) = ring.ask(client, WRITE).error();
            assert!(code == INVALID && why.contains("a quorum is 2"), "{code:#x} {why}");
        }
    }
}

//! The loads of a run, each on a separate connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use shunt_node::cluster::ClusterInfo;
use shunt_testing::blocking::Client;
use shunt_testing::{Answer, Handshake};
use shunt_topology::token::token;

use crate::model::{Random, Seen};
use crate::process::{Kind, is_given_up};
use crate::rows::{Batches, Singles, Truncates};
use crate::shared::{Conditional, Counters, Schema};

/// The work of one connection, and the check of its results.
pub(crate) trait Load: Send {
    /// Sends statements and reads the answers; false if an answer never came.
    fn step(&mut self, client: &mut Client, seen: &mut Seen) -> bool;
    /// Checks all data after a start.
    fn verify(&mut self, client: &mut Client, place: Place, seen: &mut Seen);
}

/// Returns the answers to statements sent together. `None` stands for an answer that never came, or
/// that only says that the machine stood still: the check after the kill finds the outcome.
pub(crate) fn asked(client: &mut Client, texts: &[String]) -> Vec<Option<Answer>> {
    let begun = Instant::now();
    let answers = client.pipeline(texts).into_iter();
    answers.map(|answer| answer.filter(|answer| !is_given_up(answer, begun))).collect()
}

/// Maps partitions to nodes.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a>(&'a ClusterInfo);

impl Place<'_> {
    pub(crate) fn nodes(self) -> usize {
        self.0.nodes.len()
    }

    /// Returns the node of a partition with an int key.
    pub(crate) fn owner(self, key: i32) -> usize {
        self.0.owner(token(&key.to_be_bytes()))
    }
}

const TABLES: [&str; 6] = [
    "single (w int, id int, v int, pad text, PRIMARY KEY ((w, id)))",
    "grouped (p int, c int, v int, PRIMARY KEY (p, c))",
    "emptied (id int PRIMARY KEY)",
    "counted (id int PRIMARY KEY, a counter, b counter)",
    "taken (slot int PRIMARY KEY, winner int)",
    "raised (id int PRIMARY KEY, v int)",
];

/// The loads of a run, which continue across all kills.
pub(crate) struct Loads {
    loads: Vec<Box<dyn Load>>,
    cluster: ClusterInfo,
    pub(crate) seen: Seen,
}

impl Loads {
    pub(crate) fn new(kind: Kind, seed: u64) -> Self {
        let random = |part: u64| Random::new(seed ^ part << 48);
        let (sums, races) = (Arc::default(), Arc::default());
        let loads: Vec<Box<dyn Load>> = vec![
            Box::new(Singles::new(0, random(1))),
            Box::new(Singles::new(1, random(2))),
            Box::new(Batches::new(random(3))),
            Box::new(Truncates::new(random(4))),
            Box::new(Counters::new(random(5), &sums)),
            Box::new(Counters::new(random(6), &sums)),
            Box::new(Conditional::new(7, random(7), &races)),
            Box::new(Conditional::new(8, random(8), &races)),
            Box::new(Schema::new(random(9))),
        ];
        let addresses = vec![SocketAddr::from(([127, 0, 0, 1], 0)); kind.nodes()];
        Self { loads, cluster: ClusterInfo::new("Shunt", &addresses), seen: Seen::default() }
    }

    /// Creates keyspace and tables.
    pub(crate) fn prepare(&self, client: &mut Client) {
        let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
        client.run(&format!(
            "CREATE KEYSPACE k WITH replication = {replication} AND durability = 'batch'"
        ));
        for table in TABLES {
            client.run(&format!("CREATE TABLE k.{table}"));
        }
        for id in 0..3 {
            client.run(&format!("INSERT INTO k.raised (id, v) VALUES ({id}, 0)"));
        }
    }

    /// Runs all loads until the node is gone. `meanwhile` runs beside them and ends the node.
    pub(crate) fn run(&mut self, address: SocketAddr, meanwhile: impl FnOnce()) {
        let mut seen = vec![Seen::default(); self.loads.len()];
        std::thread::scope(|scope| {
            for (load, seen) in self.loads.iter_mut().zip(&mut seen) {
                scope.spawn(move || {
                    let Ok(mut client) = Client::try_open(address, Handshake::new(4)) else {
                        return;
                    };
                    while load.step(&mut client, seen) {}
                });
            }
            meanwhile();
        });
        seen.into_iter().for_each(|one| self.seen.add(one));
    }

    /// Checks that every acknowledged write is there, and that no write is there in part.
    pub(crate) fn verify(&mut self, client: &mut Client) {
        for load in &mut self.loads {
            load.verify(client, Place(&self.cluster), &mut self.seen);
        }
    }
}

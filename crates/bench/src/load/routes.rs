//! Routes of a token-aware load: the connections that a key may use, and the keys that wait for
//! their connections.

use std::collections::VecDeque;

use shunt_topology::{KeyspaceIndex, NodeId, RoutingTable, token};

use crate::{
    load::{keys::write_key, template::FILL},
    random::Random,
};

/// Targets of the keys, by number.
#[derive(Debug)]
pub(super) struct Routes {
    table: RoutingTable,
    keyspace: KeyspaceIndex,
    /// The target of each node, by the node's number.
    target_of: Vec<Option<u16>>,
    /// Buffer for the bytes of a key.
    key: Vec<u8>,
    /// New keys by target that were numbered while the load looked for a key of another target.
    reserved: Vec<VecDeque<u64>>,
}

impl Routes {
    /// Creates routes from `table`; `of_targets` has the node of each target.
    pub(super) fn new(
        table: RoutingTable,
        keyspace: &str,
        of_targets: &[NodeId],
        key_bytes: usize,
    ) -> Result<Self, String> {
        let keyspace =
            table.keyspace(keyspace).ok_or("the keyspace is not in its own routing table")?;
        let nodes = table.nodes().iter().map(|node| usize::from(node.id.0) + 1).max().unwrap_or(0);
        let mut target_of = vec![None; nodes];
        for (target, node) in (0u16..).zip(of_targets) {
            target_of[usize::from(node.0)] = Some(target);
        }
        let reserved = vec![VecDeque::new(); of_targets.len()];
        Ok(Self { table, keyspace, target_of, key: vec![FILL; key_bytes], reserved })
    }

    /// Returns the targets that hold this key.
    fn targets(&mut self, key: u64) -> impl Iterator<Item = usize> + Clone {
        write_key(key, &mut self.key);
        let replicas = self.table.replicas(self.keyspace, token::token(&self.key));
        let target_of = &self.target_of;
        replicas
            .nodes
            .iter()
            .filter_map(|node| Some(usize::from((*target_of.get(usize::from(node.0))?)?)))
    }

    /// True if this target holds the key.
    pub(super) fn holds(&mut self, target: usize, key: u64) -> bool {
        self.targets(key).any(|holder| holder == target)
    }

    /// Chooses a target for the key: a `free` one if possible, else any of its holders. `None` if
    /// no target holds it.
    pub(super) fn choose(
        &mut self,
        key: u64,
        random: &mut Random,
        free: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let targets = self.targets(key);
        let first = random.below(targets.clone().count() as u64) as usize;
        let mut in_turn = targets.clone().cycle().skip(first).take(targets.count()).peekable();
        let any = in_turn.peek().copied();
        in_turn.find(|&target| free(target)).or(any)
    }

    /// Takes a reserved new key of this target.
    pub(super) fn take_reserved(&mut self, target: usize) -> Option<u64> {
        self.reserved[target].pop_front()
    }

    /// Reserves a new key for a target that holds it; `false` if no target does.
    pub(super) fn reserve(&mut self, key: u64) -> bool {
        let holder = self.targets(key).next();
        holder.is_some_and(|target| {
            self.reserved[target].push_back(key);
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use shunt_topology::{Keyspace, Node, NodeId, Replication, RoutingTable};

    use super::Routes;
    use crate::random::Random;

    /// Three nodes with a third of the ring each; the targets are in another order than the nodes.
    fn routes(replication_factor: &str) -> Routes {
        let node = |number: u16| Node {
            id: NodeId(number),
            host_id: u128::from(number),
            address: ([127, 0, 0, 1], 9042 + number).into(),
            datacentre: "dc".into(),
            rack: "rack".into(),
            tokens: vec![(i64::from(number) - 1) * (i64::MAX / 3 * 2)],
            up: true,
            release_version: "5.0".into(),
        };
        let options = [("class", "SimpleStrategy"), ("replication_factor", replication_factor)];
        let keyspaces =
            vec![Keyspace { name: "bench".into(), replication: Replication::parse(options) }];
        let table = RoutingTable::build((0..3).map(node).collect(), keyspaces, Vec::new(), None);
        Routes::new(table, "bench", &[NodeId(2), NodeId(0), NodeId(1)], 16).expect("a keyspace")
    }

    #[test]
    fn a_key_is_held_by_as_many_targets_as_there_are_replicas() {
        for (factor, holders) in [("1", 1), ("2", 2), ("3", 3)] {
            let mut routes = routes(factor);
            let mut held = [0; 3];
            for key in 0..300 {
                let of_key: Vec<usize> =
                    (0..3).filter(|&target| routes.holds(target, key)).collect();
                assert_eq!(of_key.len(), holders);
                of_key.iter().for_each(|&target| held[target] += 1);
            }
            assert!(held.iter().all(|&keys| keys > 60), "{held:?}");
        }
    }

    #[test]
    fn a_free_holder_is_preferred_and_others_are_not_taken() {
        let mut routes = routes("2");
        let mut random = Random::new(1);
        for key in 0..100 {
            let holders: Vec<usize> = (0..3).filter(|&target| routes.holds(target, key)).collect();
            for &free in &holders {
                assert_eq!(routes.choose(key, &mut random, |target| target == free), Some(free));
            }
            let other = (0..3).find(|target| !holders.contains(target));
            let chosen =
                routes.choose(key, &mut random, |target| Some(target) == other).expect("a holder");
            assert!(holders.contains(&chosen));
        }
    }

    #[test]
    fn new_keys_wait_for_their_target() {
        let mut routes = routes("1");
        assert!((0..30).all(|key| routes.reserve(key)));
        for target in 0..3 {
            let mut last = None;
            while let Some(key) = routes.take_reserved(target) {
                assert!(routes.holds(target, key) && last < Some(key));
                last = Some(key);
            }
            assert!(last.is_some());
        }
    }
}

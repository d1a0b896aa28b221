//! Probes of nodes: whether a node answers at its address.

use std::sync::Arc;

use shunt_topology::Node;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::debug;

use super::access::Access;
use super::handshake;

/// Most probes with a connection at a time. The ring may have many nodes that never answer.
const PROBES_MAX: usize = 512;

/// Probes of nodes under way.
pub(super) struct Probes {
    pub(super) tasks: JoinSet<(u128, bool)>,
    room: Arc<Semaphore>,
}

impl Default for Probes {
    fn default() -> Self {
        Self { tasks: JoinSet::new(), room: Arc::new(Semaphore::new(PROBES_MAX)) }
    }
}

impl Probes {
    /// Starts a probe of a node; `tasks` yields the result.
    pub(super) fn start(&mut self, node: &Node, access: &Access) {
        let (host_id, address, access) = (node.host_id, node.address, access.clone());
        let room = Arc::clone(&self.room);
        self.tasks.spawn(async move {
            let _place = room.acquire().await;
            let outcome = handshake::probe(address, &access).await;
            if let Err(error) = &outcome {
                debug!(%address, %error, "a node does not answer");
            }
            (host_id, outcome.is_ok())
        });
    }
}

//! The control connection leaves a drained node: another one is opened before it is given up.
//!
//! This must never:
//! - cost the present connection before another one is open and leads to a node that is not
//!   drained, whatever the address says;
//! - leave for a session that has been open for long without a reader: the node may have ended it.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use shunt_topology::Node;
use tokio::time::Instant;

use super::handshake::Substitute;
use super::plane::ControlPlane;
use super::ring;
use super::round::try_round;

impl ControlPlane {
    /// Begins to look for a control connection to a node that is not drained, if the present one
    /// goes to a drained node. The present one stays until there is another.
    pub(super) fn move_away(&mut self) {
        let is_drained = self.is_on_drained_node();
        let drained = self.drained.clone();
        self.next = self.next.take().filter(|next| is_drained && !drained.contains(next.host_id));
        let Some(ring) = self.ring.as_ref().filter(|_| is_drained) else { return };
        if self.next.is_some() || !self.moves.is_empty() {
            return;
        }
        let is_usable =
            |node: &&Node| !drained.contains(node.host_id) && !self.down.contains(node.host_id);
        let usable: HashSet<SocketAddr> =
            ring.nodes.iter().filter(is_usable).map(|node| node.address).collect();
        let config = self.settings();
        let mut candidates = self.candidates(&config);
        candidates.nodes.retain(|address| usable.contains(address));
        candidates.names.clear();
        let metrics = Arc::clone(&self.metrics);
        self.moves.spawn(async move {
            loop {
                let round =
                    try_round(Arc::clone(&config), candidates.clone(), Arc::clone(&metrics));
                let (mut session, _) = round.await.ok()?;
                let limit = candidates.access.limit;
                // A port that is forwarded, or a proxy, may lead to the drained node again.
                if let Ok(host_id) = ring::host_id(&mut session.connection, limit).await
                    && !drained.contains(host_id)
                {
                    return Some(Substitute { session, host_id, since: Instant::now() });
                }
                candidates.nodes.retain(|address| *address != session.connection.address);
            }
        });
    }

    /// Keeps a session that was found for the time when nobody waits for the present one.
    pub(super) fn keep_next(&mut self, found: Substitute) {
        self.next = Some(found);
        // It is of no use if its node has been drained meanwhile, or the present node is back.
        self.move_away();
    }

    /// Time from which on the session that was found is too old.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.next.as_ref().map(|next| next.since + self.next_age_max)
    }

    /// Looks for a session that takes the place of one that is too old.
    pub(super) fn renew_next(&mut self) {
        self.next = None;
        self.move_away();
    }

    /// True if the control connection may leave a drained node now.
    pub(super) fn may_leave(&self) -> bool {
        self.is_on_drained_node() && self.next_due().is_some_and(|due| Instant::now() < due)
    }

    /// True if the node of the present control connection is drained.
    fn is_on_drained_node(&self) -> bool {
        let control = self.ring.as_ref().map(|ring| ring.control_host_id);
        control.is_some_and(|host_id| self.drained.contains(host_id))
    }
}

//! The links of a core, and its state of the nodes they lead to.

use std::cell::Cell;
use std::time::Duration;

use shunt_reactor::Io;
use shunt_topology::{Health, NodeId};
use shunt_wire::cql::compression;
use shunt_wire::cql::envelope::flag;
use slab::Slab;

use crate::ids::{LinkKey, LinkRef};
use crate::limits;
use crate::link::allowance::Allowance;
use crate::link::lateness::Lateness;
use crate::link::outliers::Outliers;
use crate::link::{Link, LinkWriter, NodeState, Openings, Step};
use crate::metrics::GivenUp;

/// Distance of the numbers of two choices: odd, so that all numbers come, and near 256 times the
/// golden ratio, so that small ones come at even distances.
const TURN_STEP: u8 = 159;

/// The owner of all links and nodes of a core.
pub(crate) struct Links {
    slots: Slab<Link>,
    /// State of nodes, by node id.
    nodes: Vec<NodeState>,
    /// True if an operator has drained a node of the ring.
    pub(crate) has_drained: bool,
    pub(crate) outliers: Outliers,
    /// True if a node has less than its full share.
    pub(crate) has_reduced: bool,
    /// Number of the last choice while a node has less than its full share.
    turn: Cell<u8>,
    /// Reads that may be hedged.
    pub(crate) lateness: Lateness,
    pub(crate) health: Health,
    /// Links with something to complete before this turn's flush.
    pub(crate) dirty: Vec<LinkKey>,
    /// Links that were full or crowded and have room for clients in line.
    pub(crate) reopening: Vec<LinkRef>,
    /// Links that are opening, by role.
    pub(crate) openings: Openings,
    /// Links that may open in this turn.
    pub(crate) allowance: Allowance,
    /// Expiry of the timer for frames that gather, nanoseconds; `u64::MAX`: none is set.
    pub(crate) gather_timer_ns: u64,
}

/// A link and its node, borrowed at once.
pub(crate) struct LinkAndNode<'a> {
    pub(crate) link: &'a mut Link,
    /// The node; `None` if it is not known.
    pub(crate) node: Option<&'a mut NodeState>,
    /// See [`Links::dirty`].
    pub(crate) dirty: &'a mut Vec<LinkKey>,
}

impl Links {
    /// No links yet. They have TLS, or not.
    pub(crate) fn new(has_tls: bool) -> Self {
        let base = Duration::from_millis(limits::RECONNECT_FIRST_MS);
        let max = Duration::from_millis(limits::RECONNECT_MAX_MS);
        Self {
            slots: Slab::new(),
            nodes: Vec::new(),
            has_drained: false,
            outliers: Outliers::default(),
            has_reduced: false,
            turn: Cell::new(0),
            lateness: Lateness::default(),
            health: Health::new(base, max),
            dirty: Vec::new(),
            reopening: Vec::new(),
            openings: Openings::new(has_tls),
            allowance: Allowance::new(has_tls),
            gather_timer_ns: u64::MAX,
        }
    }
}

impl Links {
    /// Inserts a link that opens.
    pub(crate) fn insert(&mut self, link: Link) -> LinkKey {
        if let Some(node) = self.node_mut(link.node) {
            node.opening += 1;
        }
        LinkKey(self.slots.insert(link) as u32)
    }

    pub(crate) fn try_remove(&mut self, key: LinkKey) -> Option<Link> {
        self.end_opening(key);
        self.slots.try_remove(key.0 as usize)
    }

    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.openings.clear();
        self.nodes.iter_mut().for_each(|node| node.opening = 0);
    }

    /// Notes that the link is open: another may open.
    pub(crate) fn opened(&mut self, key: LinkKey) {
        self.end_opening(key);
        if let Some(link) = self.get_mut(key) {
            link.step = Step::Ready;
        }
    }

    /// Takes a link out of the counters of those that open, if it is one.
    fn end_opening(&mut self, key: LinkKey) {
        let Some(link) = self.slots.get_mut(key.0 as usize) else { return };
        let (node, is_opening) = (link.node, link.step != Step::Ready);
        if let Some(opening) = link.opening.take() {
            self.openings.end(opening);
        }
        if let Some(node) = self.node_mut(node).filter(|_| is_opening) {
            node.opening = node.opening.saturating_sub(1);
        }
    }

    #[inline]
    pub(crate) fn get(&self, key: LinkKey) -> Option<&Link> {
        self.slots.get(key.0 as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: LinkKey) -> Option<&mut Link> {
        self.slots.get_mut(key.0 as usize)
    }

    /// The link of a reference, if it is still there.
    #[inline]
    pub(crate) fn find(&self, link: LinkRef) -> Option<&Link> {
        self.get(link.key).filter(|found| found.conn == link.conn)
    }

    /// The link of a reference, if it is still there.
    #[inline]
    pub(crate) fn find_mut(&mut self, link: LinkRef) -> Option<&mut Link> {
        self.get_mut(link.key).filter(|found| found.conn == link.conn)
    }

    /// A link with its node.
    #[inline]
    pub(crate) fn get_with_node(&mut self, key: LinkKey) -> Option<LinkAndNode<'_>> {
        let link = self.slots.get_mut(key.0 as usize)?;
        let node = self.nodes.get_mut(usize::from(link.node.0));
        Some(LinkAndNode { link, node, dirty: &mut self.dirty })
    }

    /// The link of a reference with its node, if it is still there.
    #[inline]
    pub(crate) fn find_with_node(&mut self, link: LinkRef) -> Option<LinkAndNode<'_>> {
        self.get_with_node(link.key).filter(|found| found.link.conn == link.conn)
    }

    /// Number of slots, used or not.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Links with their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LinkKey, &Link)> {
        self.slots.iter().map(|(key, link)| (LinkKey(key as u32), link))
    }

    /// Links with their keys.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (LinkKey, &mut Link)> {
        self.slots.iter_mut().map(|(key, link)| (LinkKey(key as u32), link))
    }

    /// Keys of all links.
    pub(crate) fn keys(&self) -> Vec<LinkKey> {
        self.iter().map(|(key, _)| key).collect()
    }

    #[inline]
    pub(crate) fn node(&self, node: NodeId) -> Option<&NodeState> {
        self.nodes.get(usize::from(node.0))
    }

    #[inline]
    pub(crate) fn node_mut(&mut self, node: NodeId) -> Option<&mut NodeState> {
        self.nodes.get_mut(usize::from(node.0))
    }

    /// The number of a choice, 1 to 255, spread evenly over choices; 0 while all nodes have their
    /// full share. A node is one of the first in the choices whose number its share reaches.
    #[inline]
    pub(crate) fn next_turn(&self) -> u8 {
        if !self.has_reduced {
            return 0;
        }
        self.turn.set(self.turn.get().wrapping_add(TURN_STEP));
        self.turn.get().max(1)
    }

    /// Notes which nodes an operator has drained: the numbers, sorted.
    pub(crate) fn set_drained(&mut self, drained: &[NodeId]) {
        self.has_drained = !drained.is_empty();
        for (index, state) in self.nodes.iter_mut().enumerate() {
            state.drained = drained.binary_search(&NodeId(index as u16)).is_ok();
        }
    }

    /// True if an operator has drained the node.
    #[inline]
    pub(crate) fn is_drained(&self, node: NodeId) -> bool {
        self.node(node).is_some_and(|state| state.drained)
    }

    /// Every node that ever was in the ring.
    pub(crate) fn nodes_mut(&mut self) -> &mut Vec<NodeState> {
        &mut self.nodes
    }

    /// Recounts, per node, the stream ids held by queries that timed out.
    pub(crate) fn count_orphans(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.orphaned = 0);
        for (_, link) in &self.slots {
            if let Some(node) = self.nodes.get_mut(usize::from(link.node.0)) {
                node.orphaned += link.orphans as u64;
            }
        }
        self.nodes.iter().for_each(|node| node.metrics.streams_orphaned.set(node.orphaned));
    }

    /// The version of the bodies on a link, which on aggregated links differs from that of its
    /// envelopes.
    pub(crate) fn version_of(&self, key: LinkKey) -> u8 {
        self.get(key).map_or(4, |link| link.body_version)
    }

    /// A body without the link's compression, if it has any; `None` if it cannot be decompressed.
    pub(crate) fn plain_body<'a>(
        &self,
        key: LinkKey,
        flags: u8,
        body: &'a [u8],
        bytes_max: u32,
        plain: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        if flags & flag::COMPRESSION == 0 {
            return Some(body);
        }
        compression::decompress(self.get(key)?.compression?, body, bytes_max, plain).ok()?;
        Some(plain)
    }

    /// True if a compressed body on this link claims more bytes than these.
    pub(crate) fn claims_more(&self, key: LinkKey, body: &[u8], bytes: u32) -> bool {
        let algorithm = self.get(key).and_then(|link| link.compression);
        algorithm.is_some_and(|it| compression::claimed_bytes(it, body) > bytes as usize)
    }

    pub(crate) fn count_given_up(&self, node: NodeId, reason: GivenUp) {
        if let Some(state) = self.node(node) {
            state.metrics.links_given_up.of(reason).add(1);
        }
    }

    /// Tells a node that keeps state per client that a client has gone.
    pub(crate) fn client_gone(&mut self, io: &mut Io, key: LinkKey, client_id: u32) {
        let Some(link) = self.slots.get_mut(key.0 as usize) else { return };
        if let LinkWriter::Aggregate(writer) = &mut link.writer
            && link.step == Step::Ready
        {
            writer.push_client_gone(io.output(link.conn), client_id);
            if link.becomes_dirty(io.now_ns()) {
                self.dirty.push(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_part_of_all_choices_spread_evenly() {
        let mut links = Links::new(false);
        assert_eq!(links.next_turn(), 0, "all nodes have their full share");
        links.has_reduced = true;
        let turns: Vec<u8> = (0..256).map(|_| links.next_turn()).collect();
        assert!(turns.iter().all(|turn| *turn > 0), "a share of 0 is none");
        for share in [26u8, 128, 230] {
            let most = |turns: &[u8]| turns.iter().filter(|turn| **turn <= share).count();
            assert!(most(&turns).abs_diff(usize::from(share)) <= 1, "{share}");
            let least = turns.windows(32).map(most).min().unwrap_or_default();
            assert!(least * 8 + 16 >= usize::from(share), "{share}: {least} of 32 in a row");
        }
    }
}

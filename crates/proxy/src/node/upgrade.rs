//! From ordinary links to those that carry aggregated frames.
//!
//! A node may take frames on a port of their own and say in SUPPORTED which. Links are opened to the ordinary port all the
//! same and serve at once; beside each a second one is opened to the other port, and takes the first one's place once
//! it is ready. So a port that is closed, filtered or of another program holds up no query. Nodes are asked again now
//! and then, because the other port may open later than the ordinary one.
//!
//! A node that takes frames on its ordinary port gets them from the start. Where a link breaks before one of them was
//! answered, because something on the way passes the offer on and not the frames, the next link is an ordinary one,
//! and frames are tried again ever more rarely.

use std::time::Duration;

use shunt_reactor::{ConnId, Io};
use shunt_topology::Backoff;
use shunt_wire::aggregate::{Offer, SUPPORTED_KEY};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::Supported;

use crate::config::Aggregate;
use crate::core::Core;
use crate::disaggregate::Answer;
use crate::limits;
use crate::node::{Link, Role, Step};

/// What a core remembers about where a node takes aggregated frames.
pub(crate) struct Upgrade {
    /// The port, as the node said last; `None`: it takes none.
    pub(crate) port: Option<u16>,
    backoff: Backoff,
    not_before_ns: u64,
}

impl Default for Upgrade {
    fn default() -> Self {
        let first = Duration::from_nanos(limits::UPGRADE_RETRY_FIRST_NS);
        let backoff = Backoff::new(first, Duration::from_nanos(limits::UPGRADE_RETRY_MAX_NS));
        Self { port: None, backoff, not_before_ns: 0 }
    }
}

impl Upgrade {
    /// Frames could not be used, or their link broke; returns after how many nanoseconds it is tried again. Failures
    /// before that do not lengthen it.
    fn failed(&mut self, now_ns: u64, random: u64) -> u64 {
        if now_ns >= self.not_before_ns {
            self.not_before_ns = now_ns + self.backoff.next(random).as_nanos() as u64;
        }
        self.not_before_ns - now_ns
    }
}

impl Core {
    /// What SUPPORTED says about aggregated frames on this very connection, if they are wanted; notes where the node
    /// takes them otherwise.
    ///
    /// # Errors
    /// The message is malformed.
    pub(crate) fn read_offer(&mut self, io: &Io, key: u32, supported: &[u8]) -> Result<Option<Offer>, String> {
        let supported = Supported::decode(supported).map_err(|error| format!("SUPPORTED is malformed: {error}"))?;
        let offer = supported.options.get(SUPPORTED_KEY).and_then(|values| Offer::parse(values.iter()));
        let offer = offer.filter(|_| self.config.aggregate == Aggregate::Auto);
        let Some(link) = self.links.get_mut(key as usize) else { return Ok(None) };
        link.offer_asked_ns = io.now_ns();
        let here = offer.filter(|offer| offer.port.is_none_or(|port| port == link.port));
        let Some(node) = self.nodes.get_mut(usize::from(link.node.0)) else { return Ok(None) };
        node.upgrade.port = offer.map(|offer| offer.port.unwrap_or(link.port));
        let tried = matches!(link.role, Role::Replaces(..)) || io.now_ns() >= node.upgrade.not_before_ns;
        Ok(here.filter(|_| tried))
    }

    /// Whether it is time to ask the node of an ordinary link again.
    pub(crate) fn may_have_new_offer(&self, key: u32, now_ns: u64) -> bool {
        let Some(link) = self.links.get(key as usize) else { return false };
        let ordinary = link.is_ready() && link.aggregate.is_none() && !link.is_being_replaced;
        ordinary
            && self.config.aggregate == Aggregate::Auto
            && now_ns.saturating_sub(link.offer_asked_ns) > limits::OFFER_CHECK_NS
    }

    /// The answer to a probe. One that cannot be read says nothing: the link itself works.
    #[cold]
    pub(crate) fn heard_offer(&mut self, io: &mut Io, key: u32, answer: &Answer<'_>) {
        let Some(link) = self.links.get_mut(key as usize) else { return };
        link.offer_asked_ns = io.now_ns();
        if answer.opcode != opcode::SUPPORTED || link.aggregate.is_some() || self.config.aggregate != Aggregate::Auto {
            return;
        }
        let (max, mut plain) = (limits::HANDSHAKE_BYTES_MAX, Vec::new());
        let Some(body) = self.plain_body(key, answer.flags, answer.body, max, &mut plain) else { return };
        if self.read_offer(io, key, body).is_ok() {
            self.upgrade_link(io, key);
        }
    }

    /// Opens a link for aggregated frames, if the node takes them, to take the place of this one.
    pub(crate) fn upgrade_link(&mut self, io: &mut Io, key: u32) {
        let Some(link) = self.links.get(key as usize) else { return };
        let Some(node) = self.nodes.get(usize::from(link.node.0)) else { return };
        let wanted =
            node.upgrade.port.is_some() && link.is_ready() && link.aggregate.is_none() && !link.is_being_replaced;
        if !wanted || self.draining || io.now_ns() < node.upgrade.not_before_ns {
            return;
        }
        let (conn, pool, node) = (link.conn, link.pool, link.node);
        if self.open_link(io, pool, node, Role::Replaces(key, conn))
            && let Some(link) = self.links.get_mut(key as usize)
        {
            link.is_being_replaced = true;
        }
    }

    /// A link that is ready takes the place it was opened for. `false`: there is none any more, and it is gone.
    pub(crate) fn take_place(&mut self, io: &mut Io, key: u32) -> bool {
        let Some(link) = self.links.get_mut(key as usize) else { return false };
        let Role::Replaces(old, conn) = link.role else { return true };
        link.role = Role::Serves;
        let (pool, node) = (link.pool, link.node);
        if self.replaced(old, conn).is_some() {
            self.retire_link(io, old);
        }
        match self.pools.get_mut(pool) {
            Some(pool) if pool.missing(node) > 0 => {
                pool.add_link(node, key);
                true
            }
            _ => {
                self.drop_link(io, key);
                false
            }
        }
    }

    /// A link that was to take another's place will not; the other one goes on serving.
    pub(crate) fn upgrade_failed(&mut self, io: &mut Io, key: u32, why: &str) {
        let Some(link) = self.links.get(key as usize) else { return };
        let (node, port) = (link.node, link.port);
        let (now, random) = (io.now_ns(), self.random());
        let retry_ns = self.nodes.get_mut(usize::from(node.0)).map_or(0, |node| node.upgrade.failed(now, random));
        tracing::warn!(
            core = self.index,
            node = %self.node_named(node),
            port,
            why,
            retry_in_ms = retry_ns / 1_000_000,
            "a node offers aggregated frames that cannot be used; ordinary links are used instead"
        );
        self.drop_link(io, key);
    }

    /// A link of aggregated frames broke. One that lasted was no mistake, nor was one to the ordinary port that carried
    /// frames both ways, as when its node restarts: the next attempt comes at once.
    pub(crate) fn upgraded_link_broke(&mut self, now_ns: u64, key: u32) {
        let random = self.random();
        let Some(link) = self.links.get(key as usize) else { return };
        let Some(node) = self.nodes.get_mut(usize::from(link.node.0)) else { return };
        if link.step != Step::Ready || link.retiring || link.aggregate.is_none() {
            return;
        }
        let ordinary = self.cluster.as_ref().and_then(|cluster| cluster.routing.node(link.node));
        let elsewhere = ordinary.is_some_and(|node| node.address.port() != link.port);
        let lasted = now_ns.saturating_sub(link.ready_ns) > limits::UPGRADE_RETRY_MAX_NS;
        if lasted || !elsewhere && link.heard_frames {
            node.upgrade.backoff.reset();
        } else if elsewhere || link.streams.len() > 0 {
            node.upgrade.failed(now_ns, random);
        }
    }

    /// The link that another was opened to replace, if it is still there.
    pub(crate) fn replaced(&mut self, key: u32, conn: ConnId) -> Option<&mut Link> {
        self.links.get_mut(key as usize).filter(|link| link.conn == conn)
    }
}

//! A core's state of agents, of answers that wait there, and of connections that are away.

use std::net::SocketAddr;

use shunt_handover::message::{Decoder, Encoder, Message, SEGMENTS, SEGMENTS_LZ4, Ticket};
use shunt_handover::outage::Reasons;
use shunt_handover::session::OwnerHandshake;
use shunt_reactor::{ConnId, Io};
use shunt_wire::cql::envelope::HEADER_BYTES;

use crate::ids::{ClientRef, LinkRef};
use crate::limits;
use crate::link::Pending;

/// The agent on a node's host.
pub(crate) struct Agent {
    pub(super) address: SocketAddr,
    pub(super) control: Control,
    pub(super) back_off_ns: u64,
    /// Times of the last bytes from it and of the last probe.
    pub(super) heard_ns: u64,
    pub(super) pinged_ns: u64,
    /// Reasons for which it cannot be reached.
    pub(super) reasons: Reasons,
    /// End of the time in which links bypass it, because one through it failed to open.
    pub(super) no_links_before_ns: u64,
}

/// State of a control connection.
pub(super) enum Control {
    Down {
        until_ns: u64,
    },
    Opening {
        conn: ConnId,
        handshake: Box<OwnerHandshake>,
        until_ns: u64,
        /// True if the agent has sent something.
        is_answered: bool,
    },
    Open {
        conn: ConnId,
        encoder: Box<Encoder>,
        decoder: Box<Decoder>,
    },
}

impl Agent {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            control: Control::Down { until_ns: 0 },
            back_off_ns: limits::AGENT_BACK_OFF_FIRST_NS,
            heard_ns: 0,
            pinged_ns: 0,
            reasons: Reasons::default(),
            no_links_before_ns: 0,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.control, Control::Open { .. })
    }

    /// Sends a message to the agent, if its connection is open.
    pub(super) fn send(&mut self, io: &mut Io, ticket: Ticket, message: &Message<'_>) {
        let Control::Open { conn, encoder, .. } = &mut self.control else { return };
        if let Err(error) = encoder.message(ticket, message, io.output(*conn)) {
            tracing::error!(%error, "a message to an agent could not be written");
            debug_assert!(false, "connections that are frozen were checked: {error}");
        }
    }
}

/// A client whose connection is away, or on its way.
pub(super) struct Away {
    /// The client; gone if it no longer exists.
    pub(super) client: ClientRef,
    pub(super) place: Place,
    /// Time of the decision that it leaves.
    pub(super) leaves_ns: u64,
}

/// Place of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Leaves the loop at the end of this turn.
    Leaving,
    /// With an agent, or lost.
    Elsewhere,
    /// On its way into the loop.
    Arriving,
}

/// An answer to send to its client on the client's own connection.
pub(super) struct Offer {
    pub(super) at: LinkRef,
    /// Stream id on the link.
    pub(super) stream: i16,
    pub(super) pending: Pending,
    /// Time of the decision that the client's connection leaves.
    pub(super) leaves_ns: u64,
    /// Header of the client's answer.
    pub(super) header: [u8; HEADER_BYTES],
    /// v5: segments, and whether they are LZ4; `None` before v5.
    pub(super) segments_lz4: Option<bool>,
}

impl Offer {
    /// The head as the agent needs it.
    pub(super) fn head(&self) -> Vec<u8> {
        let mut head = self.header.to_vec();
        head.extend(self.segments_lz4.map(|lz4| if lz4 { SEGMENTS_LZ4 } else { SEGMENTS }));
        head
    }
}

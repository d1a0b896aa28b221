//! What a core has of agents, of answers that wait there, and of connections that are away.

use std::net::SocketAddr;

use shunt_handover::message::{Decoder, Encoder, Message, SEGMENTS, SEGMENTS_LZ4, Ticket};
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
    /// When something came from it last, and when it was asked whether it is there.
    pub(super) heard_ns: u64,
    pub(super) pinged_ns: u64,
    /// It was said in the log that it cannot be reached.
    pub(super) is_told: bool,
    /// Before then links go past it: one did not come about.
    pub(super) no_links_before_ns: u64,
}

/// How far a control connection is.
pub(super) enum Control {
    Down { until_ns: u64 },
    Opening { conn: ConnId, handshake: Box<OwnerHandshake>, until_ns: u64 },
    Open { conn: ConnId, encoder: Box<Encoder>, decoder: Box<Decoder> },
}

impl Agent {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            control: Control::Down { until_ns: 0 },
            back_off_ns: limits::AGENT_BACK_OFF_FIRST_NS,
            heard_ns: 0,
            pinged_ns: 0,
            is_told: false,
            no_links_before_ns: 0,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.control, Control::Open { .. })
    }

    /// Says something to it, if it can be reached.
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
    /// Gone, if there is none any more.
    pub(super) client: ClientRef,
    pub(super) place: Place,
    /// When it was decided that it goes.
    pub(super) leaves_ns: u64,
}

/// Where its connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is taken out of the loop at the end of this turn.
    Leaving,
    /// With an agent, or nowhere.
    Elsewhere,
    /// It is put into the loop.
    Arriving,
}

/// An answer that is to go to its client on the client's own connection.
pub(super) struct Offer {
    pub(super) at: LinkRef,
    /// The stream id of the link.
    pub(super) stream: i16,
    pub(super) pending: Pending,
    /// When it was decided that the client's connection goes.
    pub(super) leaves_ns: u64,
    /// What the client's answer begins with.
    pub(super) header: [u8; HEADER_BYTES],
    /// v5: it goes in segments, which may be LZ4.
    pub(super) segments_lz4: Option<bool>,
}

impl Offer {
    /// How the agent is told of it.
    pub(super) fn head(&self) -> Vec<u8> {
        let mut head = self.header.to_vec();
        head.extend(self.segments_lz4.map(|lz4| if lz4 { SEGMENTS_LZ4 } else { SEGMENTS }));
        head
    }
}

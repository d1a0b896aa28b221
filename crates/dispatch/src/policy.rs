//! Decides whether a large answer goes over the client's own connection or is relayed.

use shunt_handover::message::Framing;
use shunt_wire::http1::Version;

use crate::limits;
use crate::metrics::Why;

/// Policy for handing connections over.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Handover {
    /// Relay every answer.
    #[default]
    Off,
    /// Hand over every offered answer unless something prevents it.
    Auto,
}

/// Properties of an offered answer and its client that decide its path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) framing: Framing,
    pub(crate) version: Version,
    /// The connection stays open after the answer.
    pub(crate) goes_on: bool,
    /// The agent has the whole request.
    pub(crate) is_read: bool,
    /// The client's connection has TLS, whose keys stay in this process.
    pub(crate) has_tls: bool,
    /// Bytes written to the client that the kernel has not taken.
    pub(crate) backlog: usize,
    /// Bytes written to the agent that the kernel has not taken.
    pub(crate) link_backlog: usize,
}

/// Decision on an offered answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// Fetch the answer from the agent and relay it.
    Relay(Why),
    /// Give the agent the client's connection.
    HandOver,
}

/// Decides on an offer. An agent sends the head as it offered it, which suits the client only if
/// the connection is HTTP/1.1 and stays open: otherwise the head needs changes.
pub(crate) fn decide(handover: Handover, offer: &Offer) -> Verdict {
    let against = [
        (handover == Handover::Off, Why::Off),
        (offer.has_tls, Why::Encrypted),
        (offer.framing == Framing::UntilClose, Why::UntilClose),
        (offer.version == Version::Http10 || !offer.goes_on, Why::ConnectionEnds),
        (!offer.is_read, Why::RequestNotRead),
        (offer.backlog > 0, Why::Backlog),
        (offer.link_backlog > limits::LINK_BACKLOG_BYTES_FREE, Why::LinkBusy),
    ];
    let why = against.into_iter().find(|(speaks_against, _)| *speaks_against);
    why.map_or(Verdict::HandOver, |(_, why)| Verdict::Relay(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Offer = Offer {
        framing: Framing::Chunked,
        version: Version::Http11,
        goes_on: true,
        is_read: true,
        has_tls: false,
        backlog: 0,
        link_backlog: 0,
    };

    #[test]
    fn answers_that_need_another_head_or_are_incomplete_are_relayed() {
        assert_eq!(decide(Handover::Auto, &GOOD), Verdict::HandOver);
        assert_eq!(decide(Handover::Off, &GOOD), Verdict::Relay(Why::Off));
        for (bad, why) in [
            (Offer { framing: Framing::UntilClose, ..GOOD }, Why::UntilClose),
            (Offer { version: Version::Http10, ..GOOD }, Why::ConnectionEnds),
            (Offer { goes_on: false, ..GOOD }, Why::ConnectionEnds),
            (Offer { is_read: false, ..GOOD }, Why::RequestNotRead),
            (Offer { has_tls: true, ..GOOD }, Why::Encrypted),
            (Offer { backlog: 1, ..GOOD }, Why::Backlog),
            (Offer { link_backlog: 1 << 20, ..GOOD }, Why::LinkBusy),
        ] {
            assert_eq!(decide(Handover::Auto, &bad), Verdict::Relay(why), "{bad:?}");
        }
    }
}

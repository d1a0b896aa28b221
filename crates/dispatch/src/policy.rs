//! Whether a large answer goes over the client's own connection or through here.

use shunt_handover::message::Framing;
use shunt_wire::http1::Version;

use crate::limits;
use crate::metrics::Why;

/// When connections are handed over.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Handover {
    /// Never: every answer is relayed.
    #[default]
    Off,
    /// Whenever an agent offers an answer, and nothing speaks against it.
    Auto,
}

/// What is known of an answer and of its client when it is decided on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) framing: Framing,
    pub(crate) version: Version,
    /// The connection goes on after the answer.
    pub(crate) goes_on: bool,
    /// All of the request has gone to the agent.
    pub(crate) is_read: bool,
    /// Bytes that were written to the client, and that the kernel has not taken.
    pub(crate) backlog: usize,
    /// Bytes that were written to the agent, and that the kernel has not taken.
    pub(crate) link_backlog: usize,
}

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// It is fetched from the agent and passes through here.
    Relay(Why),
    /// The agent gets the client's connection.
    HandOver,
}

/// Decides on an offer. An agent sends the head as it has offered it, which is as the client is to
/// have it only if the connection goes on and is one of HTTP/1.1: of others the head says more.
pub(crate) fn decide(handover: Handover, offer: &Offer) -> Verdict {
    let against = [
        (handover == Handover::Off, Why::Off),
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
        backlog: 0,
        link_backlog: 0,
    };

    #[test]
    fn what_would_need_another_head_or_has_more_to_come_is_relayed() {
        assert_eq!(decide(Handover::Auto, &GOOD), Verdict::HandOver);
        assert_eq!(decide(Handover::Off, &GOOD), Verdict::Relay(Why::Off));
        for (bad, why) in [
            (Offer { framing: Framing::UntilClose, ..GOOD }, Why::UntilClose),
            (Offer { version: Version::Http10, ..GOOD }, Why::ConnectionEnds),
            (Offer { goes_on: false, ..GOOD }, Why::ConnectionEnds),
            (Offer { is_read: false, ..GOOD }, Why::RequestNotRead),
            (Offer { backlog: 1, ..GOOD }, Why::Backlog),
            (Offer { link_backlog: 1 << 20, ..GOOD }, Why::LinkBusy),
        ] {
            assert_eq!(decide(Handover::Auto, &bad), Verdict::Relay(why), "{bad:?}");
        }
    }
}

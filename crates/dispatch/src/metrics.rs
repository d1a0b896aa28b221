//! What a dispatcher has done since its start, and what it has now. Each event loop writes its own;
//! the admin thread reads them.

use shunt_admin::{Counter, Family, Gauge, Histogram, labels};
use shunt_handover::owner::{Gone, NotSalvaged, Outcome, Relayed};

labels! {
    /// Which way an answer went to its client.
    pub enum Way = "way" {
        /// Through here.
        Relayed = "relayed",
        /// From the agent, on the client's own connection.
        HandedOver = "handed_over",
    }
}

labels! {
    /// Why an answer was relayed that an agent had offered to send itself.
    pub enum Why = "reason" {
        /// `--handover off`, or this host cannot.
        Off = "off",
        /// The client speaks HTTP/1.0, or its connection ends with this answer.
        ConnectionEnds = "connection_ends",
        /// The answer ends where its connection does.
        UntilClose = "until_close",
        /// The request has not gone to the agent as a whole.
        RequestNotRead = "request_not_read",
        /// The client has not taken what was written before.
        Backlog = "backlog",
        /// Much waits to be sent to the agent: a connection would stand still behind it.
        LinkBusy = "link_busy",
        /// As many connections are with agents, or on their way, as may be.
        Full = "full",
        /// Its packets cannot be sent on: the agent is not in this network, or the table is full.
        NotSteered = "not_steered",
        /// The kernel did not let go of the connection.
        NotFrozen = "not_frozen",
        /// There is too much in the connection's queues.
        NotSendable = "not_sendable",
        /// The agent did not take it.
        Refused = "refused",
        /// The agent was lost before it had it.
        AgentLost = "agent_lost",
    }
}

labels! {
    /// How a connection came back, or did not.
    pub enum Ended = "outcome" {
        /// It is here again, its answer is out.
        Returned = "returned",
        /// Its client closed it with the whole answer.
        Closed = "closed",
        /// It is here again, with nothing of the answer; another backend was asked.
        Unused = "unused",
        /// It ended within the answer, or is here again with a part of it.
        BrokenOff = "broken_off",
        /// Its agent was lost, and it is here again with what its client has of the answer.
        Salvaged = "salvaged",
        /// Its agent was lost, and did not come back.
        AgentLost = "agent_lost",
        /// This host did not let it in again.
        NotRestored = "not_restored",
    }
}

labels! {
    /// Why a connection whose agent was lost did not go on here though its answer could have.
    pub enum NotSalvagedFor = "reason" {
        /// Its client has sent something that the agent's host has acknowledged, or has ended its
        /// stream.
        ClientSentMore = "client_sent_more",
        /// Its client had not got all of the head, or is nowhere in this answer.
        NoPlace = "no_place",
        /// The client did not say how far it is.
        NotFound = "not_found",
    }
}

/// Counts and times of one event loop.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Counts up by one per turn of the loop; liveness is judged by it.
    pub turns: Counter,
    /// Clients that have connected.
    pub clients_accepted: Counter,
    /// Clients that are connected, those with agents too.
    pub clients: Gauge,
    /// Requests sent to a backend, each once.
    pub requests: Counter,
    /// Requests sent to a second backend because the first had failed.
    pub repeated: Counter,
    /// Requests to another backend for the rest of an answer that broke off.
    pub resumed: Counter,
    /// Answers that went out whole.
    pub answers: Family<Way, { Way::COUNT }>,
    /// Bytes of answers: of bodies if they were relayed, heads too if not.
    pub answer_bytes: Family<Way, { Way::COUNT }>,
    /// Errors answered here.
    pub errors: Counter,
    /// Clients cut off within an answer, because the rest of it could not be had or was not taken.
    pub cut: Counter,
    /// Answers that agents have offered to send themselves.
    pub offers: Counter,
    /// Hand-overs that were begun.
    pub handovers: Counter,
    /// Offers that were relayed, those after a hand-over was begun too.
    pub relayed: Family<Why, { Why::COUNT }>,
    /// How hand-overs have ended that were not relayed after all.
    pub ended: Family<Ended, { Ended::COUNT }>,
    /// Connections whose agents were lost that could have gone on here, and did not.
    pub not_salvaged: Family<NotSalvagedFor, { NotSalvagedFor::COUNT }>,
    /// 1 if connections are handed over.
    pub hands_over: Gauge,
    /// Connections that are with agents, or on their way.
    pub away: Gauge,
    /// Of these, those on their way.
    pub moving: Gauge,
    /// From the decision until the kernel has let go of the connection.
    pub freeze: Histogram,
    /// From the decision until the agent has the connection: so long does a client's connection
    /// stand still.
    pub taking: Histogram,
    /// From the decision until the connection is back.
    pub absence: Histogram,
    /// From a connection's arrival on its way back until it is here: the last part of that.
    pub restore: Histogram,
    /// Of each agent, in the order of the options.
    pub backends: Vec<BackendMetrics>,
}

/// Of one agent, as one event loop sees it.
#[derive(Debug, Default)]
pub struct BackendMetrics {
    /// 1 if there is a control connection.
    pub up: Gauge,
    /// Requests that it carries out for this loop.
    pub in_flight: Gauge,
    /// Requests that it was sent.
    pub requests: Counter,
    /// Control connections that were lost.
    pub lost: Counter,
}

impl Metrics {
    pub(crate) fn new(backends: usize) -> Self {
        Self {
            backends: (0..backends).map(|_| BackendMetrics::default()).collect(),
            ..Self::default()
        }
    }

    /// Counts how a hand-over has ended.
    pub(crate) fn count(&self, outcome: &Outcome) {
        let ended = match outcome {
            Outcome::Relay(why) => return self.relayed.of(Why::of(*why)).add(1),
            Outcome::Elsewhere => return self.relayed.of(Why::AgentLost).add(1),
            Outcome::Back { is_complete: true, .. } => Ended::Returned,
            Outcome::Back { answer_sent: 0, .. } => Ended::Unused,
            Outcome::Back { .. } => Ended::BrokenOff,
            Outcome::Gone(Gone::Ended { is_complete: true, .. }) => Ended::Closed,
            Outcome::Gone(Gone::Ended { .. } | Gone::Client) => Ended::BrokenOff,
            Outcome::Salvaged { .. } => Ended::Salvaged,
            Outcome::Gone(Gone::AgentLost) => Ended::AgentLost,
            Outcome::Gone(Gone::NotSalvaged(why)) => {
                self.not_salvaged.of(NotSalvagedFor::of(*why)).add(1);
                Ended::AgentLost
            }
            Outcome::Gone(Gone::NotRestored) => Ended::NotRestored,
        };
        self.ended.of(ended).add(1);
        if let Outcome::Salvaged { answer_sent } = outcome {
            self.answer_bytes.of(Way::HandedOver).add(*answer_sent);
        }
        let (Outcome::Back { answer_sent, is_complete }
        | Outcome::Gone(Gone::Ended { answer_sent, is_complete, .. })) = outcome
        else {
            return;
        };
        self.answers.of(Way::HandedOver).add(u64::from(*is_complete));
        self.answer_bytes.of(Way::HandedOver).add(*answer_sent);
    }
}

impl NotSalvagedFor {
    fn of(why: NotSalvaged) -> Self {
        match why {
            NotSalvaged::ClientSentMore => Self::ClientSentMore,
            NotSalvaged::NoPlace => Self::NoPlace,
            NotSalvaged::NotFound => Self::NotFound,
        }
    }
}

impl Why {
    fn of(why: Relayed) -> Self {
        match why {
            Relayed::Full => Self::Full,
            Relayed::NotSteered => Self::NotSteered,
            Relayed::NotFrozen => Self::NotFrozen,
            Relayed::NotSendable => Self::NotSendable,
            Relayed::Refused(_) => Self::Refused,
        }
    }
}

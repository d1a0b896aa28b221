//! Metrics of a dispatcher: counts since its start, and current levels. Each event loop writes its
//! own; the admin thread reads them.

use shunt_admin::{Counter, Family, Gauge, Histogram, Hosts, labels};
use shunt_handover::owner::{Gone, NotSalvaged, Outcome, Relayed};

use crate::state::Exchange;

labels! {
    /// Path of an answer to its client.
    pub enum Way = "way" {
        /// Through the dispatcher.
        Relayed = "relayed",
        /// From the agent, on the client's own connection.
        HandedOver = "handed_over",
    }
}

labels! {
    /// Why an answer was relayed though an agent had offered to send it.
    pub enum Why = "reason" {
        /// `--handover off`, or this host lacks support.
        Off = "off",
        /// The client's connection has TLS, whose keys stay here.
        Encrypted = "encrypted",
        /// The client uses HTTP/1.0, or its connection ends with this answer.
        ConnectionEnds = "connection_ends",
        /// The end of the connection marks the end of the answer.
        UntilClose = "until_close",
        /// The agent does not yet have the whole request.
        RequestNotRead = "request_not_read",
        /// The client has not taken earlier output.
        Backlog = "backlog",
        /// Much output to the agent is pending: a connection would stall behind it.
        LinkBusy = "link_busy",
        /// The limit on connections with agents or on their way is reached.
        Full = "full",
        /// The packets cannot be redirected: the agent is not in this network, or the table is
        /// full.
        NotSteered = "not_steered",
        /// The kernel did not let the connection go.
        NotFrozen = "not_frozen",
        /// The connection's queues hold too much.
        NotSendable = "not_sendable",
        /// The agent refused the connection.
        Refused = "refused",
        /// The agent was lost before it had the connection.
        AgentLost = "agent_lost",
    }
}

labels! {
    /// End of a hand-over.
    pub enum Ended = "outcome" {
        /// The connection is back, and its answer is out.
        Returned = "returned",
        /// The client closed the connection after the whole answer.
        Closed = "closed",
        /// The connection is back without any of the answer; another backend was asked.
        Unused = "unused",
        /// The connection ended within the answer, or is back with a part of it.
        BrokenOff = "broken_off",
        /// The agent was lost; the connection is back with the client's place in the answer.
        Salvaged = "salvaged",
        /// The agent was lost and did not come back.
        AgentLost = "agent_lost",
        /// The kernel did not restore the connection.
        NotRestored = "not_restored",
    }
}

labels! {
    /// Why a connection whose agent was lost did not go on here though its answer could have.
    pub enum NotSalvagedFor = "reason" {
        /// The client has sent bytes that the agent's host acknowledged, or has ended its stream.
        ClientSentMore = "client_sent_more",
        /// The client lacked a part of the head, or its place is not within this answer.
        NoPlace = "no_place",
        /// The client did not reveal how far it is.
        NotFound = "not_found",
    }
}

/// Counts and times of one event loop.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Turns of the loop; liveness is judged by this counter.
    pub turns: Counter,
    /// Clients that have connected.
    pub clients_accepted: Counter,
    /// Connected clients, including those with agents.
    pub clients: Gauge,
    /// Requests sent to a backend, each once.
    pub requests: Counter,
    /// Requests sent to a second backend because the first had failed.
    pub repeated: Counter,
    /// Requests to another backend for the rest of an answer that broke off.
    pub resumed: Counter,
    /// Answers that went out whole.
    pub answers: Family<Way, { Way::COUNT }>,
    /// Bytes of answers: of bodies if relayed, including heads if handed over.
    pub answer_bytes: Family<Way, { Way::COUNT }>,
    /// Errors answered by the dispatcher.
    pub errors: Counter,
    /// Clients cut off within an answer, because the rest was unavailable or was not taken.
    pub cut: Counter,
    /// Answers that agents offered to send.
    pub offers: Counter,
    /// Hand-overs started.
    pub handovers: Counter,
    /// Offers relayed, including those after a hand-over had started.
    pub relayed: Family<Why, { Why::COUNT }>,
    /// Hand-overs that ended without relaying, by outcome.
    pub ended: Family<Ended, { Ended::COUNT }>,
    /// Connections with lost agents that could have gone on here, and did not.
    pub not_salvaged: Family<NotSalvagedFor, { NotSalvagedFor::COUNT }>,
    /// 1 if connections are handed over.
    pub hands_over: Gauge,
    /// Connections that are with agents, or on their way.
    pub away: Gauge,
    /// Connections on their way.
    pub moving: Gauge,
    /// Time from the decision until the kernel has let the connection go.
    pub freeze: Histogram,
    /// Time from the decision until the agent has the connection: the client's connection stalls
    /// for this long.
    pub taking: Histogram,
    /// Time from the decision until the connection is back.
    pub absence: Histogram,
    /// Time from a connection's return until it is restored: the last part of `absence`.
    pub restore: Histogram,
    /// Hosts of the clients.
    pub hosts: Hosts,
    /// Metrics of each agent, in the order of the options.
    pub backends: Vec<BackendMetrics>,
}

/// Metrics of one agent, as one event loop sees it.
#[derive(Debug, Default)]
pub struct BackendMetrics {
    /// 1 if the control connection is open.
    pub up: Gauge,
    /// Requests that the agent carries out for this loop.
    pub in_flight: Gauge,
    /// Requests sent to the agent.
    pub requests: Counter,
    /// Control connections that were lost.
    pub lost: Counter,
    /// Time from a request to the head of its answer, or to the agent's offer to send it.
    pub times: Histogram,
}

impl Metrics {
    pub(crate) fn new(backends: usize) -> Self {
        Self {
            backends: (0..backends).map(|_| BackendMetrics::default()).collect(),
            ..Self::default()
        }
    }

    /// Notes the time that a backend took to begin its answer.
    pub(crate) fn note_answer(&self, exchange: &mut Exchange, now_ns: u64) {
        if let Some(sent_ns) = exchange.sent_ns.take() {
            self.backends[exchange.backend].times.record(now_ns.saturating_sub(sent_ns));
        }
    }

    /// Counts the outcome of a hand-over.
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

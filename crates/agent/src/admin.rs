//! The agent's part of metrics, health and `/status`.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::json;
use shunt_admin::{Counter, Encoder, Gauge, Histogram, Json, Loops, Map, Part, State, Unit};

use crate::metrics::{Left, Metrics, Taken, Way, Why};

type Time = fn(&Metrics) -> &Histogram;

/// Histograms of the phases of a client connection's stay.
const TIMES: [(&str, &str, Time); 5] = [
    ("restore", "Time from an offer until its connection is restored.", |metrics| &metrics.restore),
    ("arrival", "Time to restore a connection that arrives.", |metrics| &metrics.arrival),
    (
        "first_byte",
        "Time from a request to the first byte of its answer on the client's connection.",
        |m| &m.first_byte,
    ),
    ("freeze", "Time to freeze a connection that goes back.", |metrics| &metrics.freeze),
    ("return", "Time from the last byte of an answer until its connection is back.", |metrics| {
        &metrics.giving_back
    }),
];

/// Metrics and status of an agent's event loops.
#[derive(Debug)]
pub struct AgentAdmin {
    loops: Loops<Metrics>,
    upstream: SocketAddr,
    /// Virtual addresses whose connections may be taken.
    vips: Vec<SocketAddr>,
    draining: AtomicBool,
}

impl AgentAdmin {
    /// Creates the admin part for event loops with these metrics, in front of this server.
    pub fn new(loops: Vec<Arc<Metrics>>, upstream: SocketAddr, vips: Vec<SocketAddr>) -> Arc<Self> {
        Arc::new(Self {
            loops: Loops::new(loops),
            upstream,
            vips,
            draining: AtomicBool::new(false),
        })
    }

    /// Marks the agent as draining: dispatchers may connect only to take back their connections.
    pub fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

impl Part for AgentAdmin {
    fn metrics(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        type Number = fn(&Metrics) -> &Counter;
        let counters: [(&str, &str, Number); 3] = [
            ("shunt_agent_requests", "Requests of dispatchers.", |m| &m.requests),
            ("shunt_agent_failed", "Failed requests.", |m| &m.failed),
            ("shunt_agent_offers", "Answers offered to dispatchers.", |m| &m.offers),
        ];
        for (name, help, number) in counters {
            encoder.counter(
                name,
                help,
                None,
                &self.loops.plain(|metrics| number(metrics).get()),
            )?;
        }
        let answers = self.loops.by::<Way, _>(|metrics| &metrics.answers);
        encoder.counter("shunt_agent_answers", "Complete answers, by way.", None, &answers)?;
        let bytes = self.loops.by::<Way, _>(|metrics| &metrics.answer_bytes);
        encoder.counter(
            "shunt_agent_answer",
            "Bytes of answers, by way.",
            Some(&Unit::Bytes),
            &bytes,
        )?;
        let relayed = self.loops.by::<Why, _>(|metrics| &metrics.relayed);
        encoder.counter(
            "shunt_agent_relayed",
            "Large answers relayed, by reason.",
            None,
            &relayed,
        )?;
        let taken = self.loops.by::<Taken, _>(|metrics| &metrics.taken);
        encoder.counter(
            "shunt_agent_connections",
            "Connections received from dispatchers.",
            None,
            &taken,
        )?;
        let left = self.loops.by::<Left, _>(|metrics| &metrics.left);
        encoder.counter(
            "shunt_agent_connections_left",
            "Connections that left, by outcome.",
            None,
            &left,
        )?;
        type Level = fn(&Metrics) -> &Gauge;
        let gauges: [(&str, &str, Level); 6] = [
            ("shunt_agent_sessions", "Control connections of dispatchers.", |m| &m.sessions),
            ("shunt_agent_in_flight", "Requests in progress, waiting ones included.", |m| {
                &m.exchanges
            }),
            ("shunt_agent_waiting", "Requests that wait for a connection to the server.", |m| {
                &m.waiting
            }),
            ("shunt_agent_upstream_connections", "Connections to the server.", |m| &m.upstreams),
            ("shunt_agent_taken", "Connections of clients here, or on their way here.", |m| {
                &m.flows
            }),
            ("shunt_agent_offered", "Answers offered that have no decision yet.", |m| &m.offered),
        ];
        for (name, help, number) in gauges {
            encoder.gauge(name, help, None, &self.loops.plain(|metrics| number(metrics).get()))?;
        }
        let kept = self.loops.plain(|metrics| metrics.kept_bytes.get());
        encoder.gauge(
            "shunt_agent_kept",
            "Bytes of large CQL answers in memory.",
            Some(&Unit::Bytes),
            &kept,
        )?;
        for (name, help, histogram) in TIMES {
            let times = [(Vec::new(), self.loops.histogram(histogram))];
            encoder.durations(&format!("shunt_agent_{name}"), help, &times)?;
        }
        Ok(())
    }

    fn stuck(&self, now: Instant) -> Map<String, Json> {
        self.loops.stuck("agent_loops", |metrics| metrics.turns.get(), now)
    }

    fn not_ready(&self) -> Option<String> {
        self.draining.load(Ordering::Relaxed).then(|| "draining".to_owned())
    }

    fn status(&self) -> State<'_> {
        let vips: Vec<String> = self.vips.iter().map(ToString::to_string).collect();
        let answers = |way: Way| self.loops.sum(|metrics| metrics.answers.of(way).get());
        let times =
            TIMES.iter().map(|(name, _, time)| ((*name).to_owned(), self.loops.microseconds(time)));
        let state = json!({ "agent": {
            "loops": self.loops.count(),
            "upstream": self.upstream.to_string(),
            "vips": vips,
            "sessions": self.loops.sum(|metrics| metrics.sessions.get()),
            "in_flight": self.loops.sum(|metrics| metrics.exchanges.get()),
            "waiting": self.loops.sum(|metrics| metrics.waiting.get()),
            "upstream_connections": self.loops.sum(|metrics| metrics.upstreams.get()),
            "taken": self.loops.sum(|metrics| metrics.flows.get()),
            "requests": self.loops.sum(|metrics| metrics.requests.get()),
            "answers_relayed": answers(Way::Relayed),
            "answers_direct": answers(Way::Direct),
            "bytes_direct": self.loops.sum(|metrics| metrics.answer_bytes.of(Way::Direct).get()),
            "offers": self.loops.sum(|metrics| metrics.offers.get()),
            "offered": self.loops.sum(|metrics| metrics.offered.get()),
            "kept_bytes": self.loops.sum(|metrics| metrics.kept_bytes.get()),
            "relayed": self.loops.named(|metrics| &metrics.relayed),
            "connections": self.loops.named(|metrics| &metrics.taken),
            "connections_left": self.loops.named(|metrics| &metrics.left),
            "microseconds": times.collect::<Map<_, _>>(),
            "failed": self.loops.sum(|metrics| metrics.failed.get()),
        } });
        Box::pin(std::future::ready(state))
    }
}

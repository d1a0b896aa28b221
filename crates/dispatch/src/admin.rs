//! The dispatcher's part of metrics, health and `/status`.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::json;
use shunt_admin::{
    Counter, Encoder, Gauge, Histogram, Hosts, Json, Loops, Map, Part, Reading, Snapshot, State,
    Unit, Value,
};

use crate::metrics::{BackendMetrics, Ended, Metrics, NotSalvagedFor, Way, Why};

type Time = fn(&Metrics) -> &Histogram;

/// Histograms of hand-overs, measured from the decision unless the help says otherwise.
const TIMES: [(&str, &str, Time); 4] = [
    ("freeze", "Time to freeze a connection.", |metrics| &metrics.freeze),
    ("taking", "Time until an agent has the connection, which is still meanwhile.", |metrics| {
        &metrics.taking
    }),
    ("absence", "Time until the connection is back, with its answer sent.", |metrics| {
        &metrics.absence
    }),
    ("restore", "Time to restore a connection that comes back.", |metrics| &metrics.restore),
];

/// Metrics and status of a dispatcher's event loops.
#[derive(Debug)]
pub struct DispatchAdmin {
    loops: Loops<Metrics>,
    backends: Vec<SocketAddr>,
    /// Whether connections are handed over, or why not.
    handover: String,
    draining: AtomicBool,
}

impl DispatchAdmin {
    /// Creates the admin part for event loops with these metrics. `handover`: whether connections
    /// are handed over, or why not.
    pub fn new(loops: Vec<Arc<Metrics>>, backends: Vec<SocketAddr>, handover: String) -> Arc<Self> {
        Arc::new(Self {
            loops: Loops::new(loops),
            backends,
            handover,
            draining: AtomicBool::new(false),
        })
    }

    /// Marks the dispatcher as draining: it should get no new clients.
    pub fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    fn of_backend(&self, index: usize, number: impl Fn(&BackendMetrics) -> u64) -> u64 {
        self.loops.sum(|metrics| metrics.backends.get(index).map_or(0, &number))
    }

    fn by_backend(&self, number: impl Fn(&BackendMetrics) -> u64) -> Vec<Value> {
        let value = |(index, address): (usize, &SocketAddr)| {
            (vec![("backend", address.to_string())], self.of_backend(index, &number) as f64)
        };
        self.backends.iter().enumerate().map(value).collect()
    }

    fn times_of(&self, index: usize) -> Snapshot {
        let mut times = Snapshot::default();
        let backends = self.loops.each().filter_map(|metrics| metrics.backends.get(index));
        backends.for_each(|backend| backend.times.add_to(&mut times));
        times
    }

    fn answers(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let answers = self.loops.by::<Way, _>(|metrics| &metrics.answers);
        encoder.counter("shunt_dispatch_answers", "Complete answers, by way.", None, &answers)?;
        let bytes = self.loops.by::<Way, _>(|metrics| &metrics.answer_bytes);
        encoder.counter(
            "shunt_dispatch_answer",
            "Bytes of answers, by way.",
            Some(&Unit::Bytes),
            &bytes,
        )?;
        let relayed = self.loops.by::<Why, _>(|metrics| &metrics.relayed);
        encoder.counter(
            "shunt_dispatch_relayed",
            "Offered answers that were relayed, by reason.",
            None,
            &relayed,
        )?;
        let ended = self.loops.by::<Ended, _>(|metrics| &metrics.ended);
        encoder.counter(
            "shunt_dispatch_handovers_ended",
            "Hand-overs, by outcome.",
            None,
            &ended,
        )?;
        let not_salvaged = self.loops.by::<NotSalvagedFor, _>(|metrics| &metrics.not_salvaged);
        let help = "Connections whose agents were lost that could have gone on, and did not.";
        encoder.counter("shunt_dispatch_not_salvaged", help, None, &not_salvaged)
    }

    fn links(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let up = self.by_backend(|backend| backend.up.get());
        encoder.gauge(
            "shunt_dispatch_backend_links",
            "Control connections to an agent.",
            None,
            &up,
        )?;
        let in_flight = self.by_backend(|backend| backend.in_flight.get());
        encoder.gauge(
            "shunt_dispatch_backend_in_flight",
            "Requests at an agent.",
            None,
            &in_flight,
        )?;
        let requests = self.by_backend(|backend| backend.requests.get());
        encoder.counter(
            "shunt_dispatch_backend_requests",
            "Requests sent to an agent.",
            None,
            &requests,
        )?;
        let lost = self.by_backend(|backend| backend.lost.get());
        encoder.counter(
            "shunt_dispatch_backend_links_lost",
            "Control connections lost.",
            None,
            &lost,
        )?;
        let times =
            self.backends.iter().enumerate().map(|(index, address)| {
                (vec![("backend", address.to_string())], self.times_of(index))
            });
        encoder.durations(
            "shunt_dispatch_backend_duration",
            "From a request to the head of its answer.",
            &times.collect::<Vec<_>>(),
        )
    }

    fn backends_up(&self) -> usize {
        (0..self.backends.len())
            .filter(|index| self.of_backend(*index, |backend| backend.up.get()) > 0)
            .count()
    }
}

impl Part for DispatchAdmin {
    fn metrics(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        type Number = fn(&Metrics) -> &Counter;
        let counters: [(&str, &str, Number); 8] = [
            ("shunt_dispatch_clients_accepted", "Clients accepted.", |m| &m.clients_accepted),
            ("shunt_dispatch_requests", "Requests sent to a backend, each counted once.", |m| {
                &m.requests
            }),
            ("shunt_dispatch_repeated", "Requests sent to a second backend.", |m| &m.repeated),
            (
                "shunt_dispatch_resumed",
                "Requests to another backend for the rest of an answer.",
                |m| &m.resumed,
            ),
            ("shunt_dispatch_errors", "Errors answered by the dispatcher.", |m| &m.errors),
            ("shunt_dispatch_cut_off", "Clients closed within an answer.", |m| &m.cut),
            ("shunt_dispatch_offers", "Answers that agents offered for hand-over.", |m| &m.offers),
            ("shunt_dispatch_handovers", "Hand-overs started.", |m| &m.handovers),
        ];
        for (name, help, number) in counters {
            encoder.counter(
                name,
                help,
                None,
                &self.loops.plain(|metrics| number(metrics).get()),
            )?;
        }
        self.answers(encoder)?;
        type Level = fn(&Metrics) -> &Gauge;
        let gauges: [(&str, &str, Level); 4] = [
            ("shunt_dispatch_loops_handing_over", "Event loops that hand connections over.", |m| {
                &m.hands_over
            }),
            ("shunt_dispatch_clients", "Clients connected, those at agents included.", |m| {
                &m.clients
            }),
            ("shunt_dispatch_away", "Connections at agents, or on their way.", |m| &m.away),
            ("shunt_dispatch_moving", "Connections on their way to or from an agent.", |m| {
                &m.moving
            }),
        ];
        for (name, help, number) in gauges {
            encoder.gauge(name, help, None, &self.loops.plain(|metrics| number(metrics).get()))?;
        }
        self.links(encoder)?;
        for (name, help, histogram) in TIMES {
            let times = [(Vec::new(), self.loops.histogram(histogram))];
            encoder.durations(&format!("shunt_dispatch_{name}"), help, &times)?;
        }
        Ok(())
    }

    fn reading(&self) -> Option<Reading> {
        let mut latency = Snapshot::default();
        for backend in self.loops.each().flat_map(|metrics| &metrics.backends) {
            backend.times.add_to(&mut latency);
        }
        let answered = self.loops.sum(|metrics| metrics.answers.total());
        let failed = self.loops.sum(|metrics| metrics.errors.get() + metrics.cut.get());
        Some(Reading { answered, failed, latency })
    }

    fn stuck(&self, now: Instant) -> Map<String, Json> {
        self.loops.stuck("dispatcher_loops", |metrics| metrics.turns.get(), now)
    }

    fn not_ready(&self) -> Option<String> {
        match self.draining.load(Ordering::Relaxed) {
            true => Some("draining".to_owned()),
            false => (self.backends_up() == 0).then(|| "no backend can be reached".to_owned()),
        }
    }

    fn status(&self) -> State<'_> {
        let backend = |(index, address): (usize, &SocketAddr)| {
            let links = self.of_backend(index, |backend| backend.up.get());
            json!({
                "address": address.to_string(),
                "primary": index == 0,
                "state": if links > 0 { "up" } else { "down" },
                "links": links,
                "in_flight": self.of_backend(index, |backend| backend.in_flight.get()),
                "requests": self.of_backend(index, |backend| backend.requests.get()),
                "links_lost": self.of_backend(index, |backend| backend.lost.get()),
                "microseconds": self.times_of(index).microseconds(),
            })
        };
        let backends: Vec<Json> = self.backends.iter().enumerate().map(backend).collect();
        let answers = |way: Way| self.loops.sum(|metrics| metrics.answers.of(way).get());
        let times =
            TIMES.iter().map(|(name, _, time)| ((*name).to_owned(), self.loops.microseconds(time)));
        let state = json!({ "dispatcher": {
            "loops": self.loops.count(),
            "handover": self.handover,
            "loops_handing_over": self.loops.sum(|metrics| metrics.hands_over.get()),
            "clients": self.loops.sum(|metrics| metrics.clients.get()),
            "away": self.loops.sum(|metrics| metrics.away.get()),
            "moving": self.loops.sum(|metrics| metrics.moving.get()),
            "requests": self.loops.sum(|metrics| metrics.requests.get()),
            "answers_relayed": answers(Way::Relayed),
            "answers_handed_over": answers(Way::HandedOver),
            "bytes_handed_over": self.loops.sum(|metrics| metrics.answer_bytes.of(Way::HandedOver).get()),
            "offers": self.loops.sum(|metrics| metrics.offers.get()),
            "relayed": self.loops.named(|metrics| &metrics.relayed),
            "handovers": self.loops.sum(|metrics| metrics.handovers.get()),
            "handovers_ended": self.loops.named(|metrics| &metrics.ended),
            "resumed": self.loops.sum(|metrics| metrics.resumed.get()),
            "microseconds": times.collect::<Map<_, _>>(),
            "errors": self.loops.sum(|metrics| metrics.errors.get()),
            "backends": backends,
            "client_hosts": Hosts::show(self.loops.each().map(|metrics| &metrics.hosts)),
        } });
        Box::pin(std::future::ready(state))
    }
}

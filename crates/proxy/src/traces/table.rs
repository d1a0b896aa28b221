//! A core's traces in flight, and its spans until the exporter fetches them. Both have a fixed
//! size, which is allocated when tracing is switched on.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;

use shunt_otlp::Loss;
use shunt_reactor::ClientAddress;
use shunt_wire::cql::envelope::flag;
use shunt_wire::cql::message::split_request_prefix;
use shunt_wire::trace_context::{TRACEPARENT, TraceParent};
use tokio::sync::mpsc;

use super::key::TraceKey;
use super::metrics::{TraceMetrics, TraceState};
use crate::digests::table::DigestName;
use crate::limits;
use crate::metrics::{Outcome, QueryKind};

/// The trace of a request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trace {
    pub(super) key: TraceKey,
    pub(super) parent: TraceParent,
    /// The last node that the request was sent to.
    pub(super) node: Option<SocketAddr>,
}

/// A request that has ended, as its spans show it.
#[derive(Clone, Debug)]
pub struct QuerySpan {
    /// The trace, and the client's span.
    pub parent: TraceParent,
    /// Time of the end, on the clock of the core.
    pub ended_ns: u64,
    /// Nanoseconds from the request's decoding until it went to its last node.
    pub wait_ns: u64,
    /// Nanoseconds from then until the answer; 0 if no node got the request.
    pub node_ns: u64,
    /// The last node that got the request; `None`: no node got it, or the connection to it was
    /// lost.
    pub node: Option<SocketAddr>,
    /// Outcome of the request.
    pub outcome: Outcome,
    /// Code of the ERROR that the client got.
    pub error: Option<i32>,
    /// Kind of the request.
    pub kind: QueryKind,
    /// Consistency level.
    pub consistency: u16,
    /// Number of earlier nodes that lost the request.
    pub retries: u8,
    /// The statement without its values, if it has a digest.
    pub digest: Option<Arc<DigestName>>,
    /// The table with its keyspace, if the statement has a digest.
    pub table: Option<Arc<str>>,
    /// Keyspace of the session.
    pub keyspace: Option<Arc<str>>,
    /// Role; `None`: the ring asks for no login.
    pub role: Option<Arc<str>>,
    /// The client; `None`: it has left.
    pub client: Option<ClientAddress>,
}

/// Spans of one core.
#[derive(Debug)]
pub struct CoreSpans {
    /// Number of the core.
    pub core: usize,
    /// Time of the answer, on the clock of the core.
    pub now_ns: u64,
    /// The oldest spans.
    pub spans: Vec<QuerySpan>,
    /// True if there are more.
    pub has_more: bool,
}

/// The owner of a core's traces.
#[derive(Default)]
pub(crate) struct Traces {
    is_on: bool,
    /// Traces in flight, each at the place of its key; a newer one takes the place of an older one.
    in_flight: Vec<Option<Trace>>,
    last: u32,
    ended: VecDeque<QuerySpan>,
    quota: Quota,
}

impl Traces {
    /// Switches tracing on or off. Switching it off forgets traces in flight and spans.
    pub(crate) fn switch(&mut self, is_on: bool) {
        if is_on == self.is_on {
            return;
        }
        *self = Traces { is_on, last: self.last, ..Traces::default() };
        if is_on {
            self.in_flight = vec![None; limits::TRACES_IN_FLIGHT_MAX];
            self.ended = VecDeque::with_capacity(limits::SPANS_KEPT_MAX);
        }
    }

    /// Takes up the trace of a request, if its client records one.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        (flags, body): (u8, &[u8]),
        (now_ns, client): (u64, ClientAddress),
        metrics: &TraceMetrics,
    ) -> TraceKey {
        match flags & flag::CUSTOM_PAYLOAD {
            0 => TraceKey::NONE,
            _ => self.take_up((flags, body), (now_ns, client), metrics),
        }
    }

    #[cold]
    fn take_up(
        &mut self,
        (flags, body): (u8, &[u8]),
        (now_ns, client): (u64, ClientAddress),
        metrics: &TraceMetrics,
    ) -> TraceKey {
        if !self.is_on {
            return TraceKey::NONE;
        }
        let (state, parent) = read(flags, body);
        let Some(state) = state else { return TraceKey::NONE };
        metrics.requests.of(state).add(1);
        let Some(parent) = parent.filter(|parent| parent.is_sampled) else {
            return TraceKey::NONE;
        };
        if !self.quota.take(now_ns, client) {
            metrics.dropped.of(Loss::RateLimit).add(1);
            return TraceKey::NONE;
        }
        self.last = self.last.checked_add(1).unwrap_or(1);
        let key = TraceKey::new(self.last);
        let Some(place) = self.in_flight.get_mut(place_of(key)) else { return TraceKey::NONE };
        if place.replace(Trace { key, parent, node: None }).is_some() {
            metrics.dropped.of(Loss::TooManyInFlight).add(1);
        }
        key
    }

    /// Notes the node that has a request.
    pub(crate) fn note_node(&mut self, key: TraceKey, node: impl FnOnce() -> Option<SocketAddr>) {
        if key != TraceKey::NONE
            && let Some(Some(trace)) = self.in_flight.get_mut(place_of(key))
            && trace.key == key
        {
            trace.node = node();
        }
    }

    /// Ends the trace of a request; `None` if it is no longer known.
    pub(super) fn take(&mut self, key: TraceKey) -> Option<Trace> {
        self.in_flight.get_mut(place_of(key))?.take_if(|trace| trace.key == key)
    }

    /// Forgets the trace of a request that gets no answer, because its client has left.
    pub(crate) fn abandon(&mut self, key: TraceKey, metrics: &TraceMetrics) {
        if key != TraceKey::NONE && self.take(key).is_some() {
            metrics.dropped.of(Loss::ClientGone).add(1);
        }
    }

    /// Keeps a span until the exporter fetches it.
    pub(super) fn keep(&mut self, span: QuerySpan, metrics: &TraceMetrics) {
        if self.ended.len() < limits::SPANS_KEPT_MAX {
            self.ended.push_back(span);
        } else {
            metrics.dropped.of(Loss::CoreFull).add(1);
        }
    }

    /// Hands the oldest spans to the exporter.
    pub(crate) fn report(&mut self, core: usize, now_ns: u64, answer: &mpsc::Sender<CoreSpans>) {
        // The spans stay here if the exporter does not wait for them.
        let Ok(room) = answer.try_reserve() else { return };
        let count = self.ended.len().min(limits::SPANS_FETCHED_MAX);
        let spans = self.ended.drain(..count).collect();
        room.send(CoreSpans { core, now_ns, spans, has_more: !self.ended.is_empty() });
    }
}

/// The place of a trace in flight.
fn place_of(key: TraceKey) -> usize {
    key.number() as usize % limits::TRACES_IN_FLIGHT_MAX
}

/// Reads the trace of a request: `None` without one; no parent if it is malformed.
fn read(flags: u8, body: &[u8]) -> (Option<TraceState>, Option<TraceParent>) {
    let Ok((Some(payload), _)) = split_request_prefix(flags, body) else { return (None, None) };
    let mut entries = payload.iter().take(limits::TRACE_PAYLOAD_ENTRIES_MAX);
    let Some((_, value)) = entries.find(|(key, _)| *key == TRACEPARENT) else {
        return (None, None);
    };
    match value.and_then(TraceParent::parse) {
        None => (Some(TraceState::Invalid), None),
        Some(parent) if parent.is_sampled => (Some(TraceState::Sampled), Some(parent)),
        Some(parent) => (Some(TraceState::Unsampled), Some(parent)),
    }
}

/// Traces that clients started in the current second. A host counts in one of a fixed number of
/// counters, which several hosts may share.
struct Quota {
    second: u64,
    taken: u32,
    of_hosts: [u16; limits::TRACE_HOST_PLACES],
    hashes: RandomState,
}

impl Default for Quota {
    fn default() -> Self {
        let of_hosts = [0; limits::TRACE_HOST_PLACES];
        Self { second: 0, taken: 0, of_hosts, hashes: RandomState::new() }
    }
}

impl Quota {
    fn take(&mut self, now_ns: u64, client: ClientAddress) -> bool {
        let second = now_ns / limits::SECOND_NS;
        if second != self.second {
            (self.second, self.taken) = (second, 0);
            self.of_hosts.fill(0);
        }
        let place = self.hashes.hash_one(client.counted_host()) as usize % self.of_hosts.len();
        let of_host = &mut self.of_hosts[place];
        if self.taken >= limits::TRACES_PER_SECOND || *of_host >= limits::TRACES_OF_HOST_PER_SECOND
        {
            return false;
        }
        *of_host += 1;
        self.taken += 1;
        true
    }
}

#[cfg(test)]
mod tests;

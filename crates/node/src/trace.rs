//! The trace of one request: its beginning, its activities with their times, and its duration.
//!
//! It is recorded during execution, and goes into `system_traces` after the answer
//! ([`crate::system::traces`]).

use std::net::IpAddr;
use std::time::Instant;

use crate::schema::Uuid;

/// Client's id of the trace, and time and source of the request.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// A version 1 UUID.
    pub(crate) session: Uuid,
    /// Microseconds since 1970.
    pub(crate) started_us: i64,
    /// `None` if unknown.
    pub(crate) client: Option<IpAddr>,
}

/// An activity.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Microseconds after the request came.
    pub(crate) elapsed_us: u64,
    pub(crate) activity: String,
}

/// The trace of one request.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub(crate) origin: Origin,
    /// Kind of the request, in Cassandra's words.
    pub(crate) request: &'static str,
    /// Text, values and consistency of the request.
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) events: Vec<Event>,
    begun: Instant,
    /// Number of events beyond the limit.
    omitted: usize,
}

/// Most events of one trace; further ones are only counted.
const EVENTS_MAX: usize = 200;
/// Most parameters of one trace.
const PARAMETERS_MAX: usize = 200;
/// Most bytes of one text.
const TEXT_BYTES_MAX: usize = 8 << 10;

impl Trace {
    /// Begins the trace of a request that has just arrived.
    pub(crate) fn begin(request: &'static str, origin: Origin) -> Trace {
        let begun = Instant::now();
        Trace { origin, request, parameters: Vec::new(), events: Vec::new(), begun, omitted: 0 }
    }

    /// Microseconds since the request arrived.
    pub(crate) fn elapsed_us(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Notes an activity.
    pub(crate) fn note(&mut self, activity: String) {
        if self.events.len() < EVENTS_MAX {
            self.events
                .push(Event { elapsed_us: self.elapsed_us(), activity: shortened(activity) });
        } else {
            self.omitted += 1;
        }
    }

    /// Notes a parameter of the request.
    pub(crate) fn parameter(&mut self, name: impl Into<String>, value: String) {
        if self.parameters.len() < PARAMETERS_MAX {
            self.parameters.push((name.into(), shortened(value)));
        }
    }

    /// Total length of the texts in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let events = self.events.iter().map(|event| event.activity.len());
        let parameters = self.parameters.iter().map(|(name, value)| name.len() + value.len());
        events.chain(parameters).sum()
    }

    /// Ends recording; returns the total duration in microseconds.
    pub(crate) fn end(&mut self) -> u64 {
        let elapsed_us = self.elapsed_us();
        if self.omitted > 0 {
            let activity = format!("{} more events are not kept", self.omitted);
            self.events.push(Event { elapsed_us, activity });
        }
        elapsed_us
    }
}

/// Truncates a text to the limit.
pub(crate) fn shortened(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let mut end = TEXT_BYTES_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Trace {
        Trace::begin("Execute CQL3 query", Origin { session: [1; 16], started_us: 0, client: None })
    }

    #[test]
    fn events_are_bounded_and_what_is_left_out_is_counted() {
        let mut trace = trace();
        (0..EVENTS_MAX + 7).for_each(|number| trace.note(number.to_string()));
        trace.end();
        assert_eq!(trace.events.len(), EVENTS_MAX + 1);
        assert_eq!(trace.events[EVENTS_MAX].activity, "7 more events are not kept");
        assert!(trace.events.is_sorted_by_key(|event| event.elapsed_us));
    }

    #[test]
    fn texts_are_bounded_between_characters() {
        let mut trace = trace();
        trace.parameter("query", "ü".repeat(TEXT_BYTES_MAX));
        trace.note("x".repeat(TEXT_BYTES_MAX));
        assert_eq!(trace.parameters[0].1.len(), TEXT_BYTES_MAX + 3);
        assert!(trace.parameters[0].1.ends_with("ü..."));
        assert_eq!(trace.events[0].activity.len(), TEXT_BYTES_MAX);
    }
}

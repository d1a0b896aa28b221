//! The exporter's counters.

use std::fmt;

use shunt_admin::{Counter, Encoder, Family, Label as _, labels, plain};

labels! {
    /// The reason why a span did not reach the collector.
    pub enum Loss = "reason" {
        /// Clients started more traces in one second than a core takes up.
        RateLimit = "rate_limit",
        /// The client left before its answer came.
        ClientGone = "client_gone",
        /// A core had no room for one more request with a trace in flight.
        TooManyInFlight = "too_many_in_flight",
        /// A core had no room for one more span: the exporter did not fetch them in time.
        CoreFull = "core_full",
        /// The queue of the exporter was full: the collector is unreachable or too slow.
        QueueFull = "queue_full",
        /// The collector took no request with this span in time.
        Expired = "expired",
        /// The collector refused the span.
        Refused = "refused",
        /// Tracing was switched off before the span was sent.
        SwitchedOff = "switched_off",
    }
}

labels! {
    /// The reason why a request to the collector failed.
    pub enum Failure = "reason" {
        /// The connection failed, or closed before the end of the answer.
        Unreachable = "unreachable",
        /// No answer in time.
        TimedOut = "timed_out",
        /// The collector asked for a pause.
        Throttled = "throttled",
        /// The collector refused the request.
        Refused = "refused",
        /// A file that an option names cannot be used.
        BadFile = "bad_file",
    }
}

/// Counters of an exporter; the thread of the exporter writes them.
#[derive(Debug, Default)]
pub struct ExportMetrics {
    /// Spans that the collector has taken.
    pub exported: Counter,
    /// Spans that were dropped.
    pub dropped: Family<Loss, { Loss::COUNT }>,
    /// Requests to the collector that failed.
    pub failures: Family<Failure, { Failure::COUNT }>,
}

impl ExportMetrics {
    /// Writes the metrics. `dropped_before`: spans that were dropped before they reached the
    /// exporter.
    ///
    /// # Errors
    /// The errors of the encoder.
    pub fn write(
        &self,
        encoder: &mut Encoder<'_>,
        dropped_before: impl Fn(Loss) -> u64,
    ) -> fmt::Result {
        let exported = [plain(self.exported.get() as f64)];
        encoder.counter(
            "shunt_spans_exported",
            "Spans that the collector took.",
            None,
            &exported,
        )?;
        let dropped: Vec<_> = Loss::ALL
            .iter()
            .map(|loss| {
                let count = self.dropped.of(*loss).get() + dropped_before(*loss);
                (vec![(Loss::NAME, loss.text().to_owned())], count as f64)
            })
            .collect();
        encoder.counter("shunt_spans_dropped", "Spans dropped, by reason.", None, &dropped)?;
        let failures: Vec<_> = Failure::ALL
            .iter()
            .map(|failure| {
                let count = self.failures.of(*failure).get() as f64;
                (vec![(Failure::NAME, failure.text().to_owned())], count)
            })
            .collect();
        let help = "Failed export requests to the collector, by reason.";
        encoder.counter("shunt_span_export_failures", help, None, &failures)
    }
}

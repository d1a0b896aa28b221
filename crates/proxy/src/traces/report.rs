//! The state of tracing that the admin pages show.

use std::fmt;
use std::sync::Arc;

use shunt_admin::{Counter, Encoder, Label as _};
use shunt_otlp::ExportMetrics;

use super::exemplars::Exemplars;
use super::metrics::{TraceMetrics, TraceState};
use crate::metrics::CoreMetrics;

/// Counters and exemplars of the exporter, for the admin pages.
#[derive(Debug, Default)]
pub struct TraceReport {
    /// Counters of the exporter.
    pub exports: Arc<ExportMetrics>,
    /// Traces of single queries.
    pub exemplars: Exemplars,
}

impl TraceReport {
    /// Writes the metrics of traces.
    ///
    /// # Errors
    /// The errors of the encoder.
    pub(crate) fn write(
        &self,
        encoder: &mut Encoder<'_>,
        cores: &[Arc<CoreMetrics>],
    ) -> fmt::Result {
        let total = |counter: &dyn Fn(&TraceMetrics) -> &Counter| -> u64 {
            cores.iter().map(|core| counter(&core.traces).get()).sum()
        };
        let requests: Vec<_> = TraceState::ALL
            .iter()
            .map(|state| {
                let count = total(&|traces| traces.requests.of(*state)) as f64;
                (vec![(TraceState::NAME, state.text().to_owned())], count)
            })
            .collect();
        let help = "Requests with a traceparent in their payload while otlp_endpoint is set.";
        encoder.counter("shunt_traced_requests", help, None, &requests)?;
        self.exports.write(encoder, |loss| total(&|traces| traces.dropped.of(loss)))
    }
}

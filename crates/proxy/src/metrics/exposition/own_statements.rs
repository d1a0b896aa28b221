//! Metrics of the proxy's own statements, for Prometheus.

use std::fmt;

use shunt_admin::{Encoder, plain};

use super::Sources;

impl Sources {
    pub(super) fn own_statements(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let sent = [plain(self.total(|core| core.own_statements.sent.get()) as f64)];
        let help = "Statements of the proxy itself.";
        encoder.counter("shunt_own_statements", help, None, &sent)?;
        let outcomes = self.family(|core| &core.own_statements.outcomes);
        let help =
            "Statements of the proxy itself, by outcome; retried and reprepared count in addition.";
        encoder.counter("shunt_own_statement_outcomes", help, None, &outcomes)?;
        let in_flight = self.per_core(|core| core.own_statements.in_flight.get() as f64);
        let help = "Statements of the proxy itself in flight.";
        encoder.gauge("shunt_own_statements_in_flight", help, None, &in_flight)
    }
}

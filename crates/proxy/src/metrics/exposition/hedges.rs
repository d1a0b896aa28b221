//! Metrics of hedged reads, for Prometheus.

use std::fmt;

use shunt_admin::{Encoder, Unit};

use super::Sources;

impl Sources {
    pub(super) fn hedges(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let events = self.family(|core| &core.hedges);
        let help = "Late reads, by the outcome of a second read at another node.";
        encoder.counter("shunt_hedges", help, None, &events)?;
        let after = self.per_core(|core| core.hedge_after_ns.get() as f64 / 1e9);
        let help = "Time after which a read is late and goes to another node too; 0: off.";
        encoder.gauge("shunt_hedge_after", help, Some(&Unit::Seconds), &after)
    }
}

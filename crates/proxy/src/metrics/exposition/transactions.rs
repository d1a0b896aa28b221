//! Transactions, as Prometheus reads them, and the clock that their writes go by.

use std::fmt;

use shunt_admin::{Encoder, Unit, plain};

use super::Sources;

impl Sources {
    pub(super) fn transactions(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let open = self.per_core(|core| core.transactions.open.get() as f64);
        encoder.gauge("shunt_transactions_open", "Transactions in progress.", None, &open)?;
        let records = self.per_core(|core| core.transactions.records.get() as f64);
        let help = "Transactions with a record, whose writes are not complete.";
        encoder.gauge("shunt_transactions_records", help, None, &records)?;
        let unmade = self.per_core(|core| core.transactions.unmade.get() as f64);
        let help = "Writes of committed transactions that have failed for seconds.";
        encoder.gauge("shunt_transactions_unmade", help, None, &unmade)?;
        let opening = self.per_core(|core| core.transactions.opening.get() as f64);
        let help = "Shards whose transactions wait for the recovery of a former owner's writes.";
        encoder.gauge("shunt_transactions_opening", help, None, &opening)?;
        let rows = self.per_core(|core| core.transactions.rows.get() as f64);
        let help = "Rows in memory of tables with the mode conditional.";
        encoder.gauge("shunt_transactions_rows", help, None, &rows)?;
        let unknown = self.per_core(|core| core.transactions.modes_unknown.get() as f64);
        let help =
            "1 while the core holds or refuses statements because it cannot read modes and rules.";
        encoder.gauge("shunt_transactions_modes_unknown", help, None, &unknown)?;
        let behind_us = self.cores.iter().map(|core| core.clock_behind_us.get()).max().unwrap_or(0);
        let help = "Time that the wall clock is behind the nodes' median; 0 if it is not.";
        let behind = [plain(behind_us as f64 / 1e6)];
        encoder.gauge("shunt_clock_behind", help, Some(&Unit::Seconds), &behind)?;
        let unmeasured = self.per_core(|core| core.clock_unmeasured.get() as f64);
        let help = "1 while no node has told the core its time.";
        encoder.gauge("shunt_clock_unmeasured", help, None, &unmeasured)?;
        let events = self.family(|core| &core.transactions.events);
        encoder.counter("shunt_transaction_events", "Transactions, by outcome.", None, &events)?;
        let observed = self.family(|core| &core.transactions.observed);
        let help = "Statements on tables with the mode observe, by whether the proxy agrees with the node.";
        encoder.counter("shunt_transaction_observations", help, None, &observed)
    }
}

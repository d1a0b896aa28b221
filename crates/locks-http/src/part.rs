//! Metrics and status of the listener.

use std::fmt;

use serde_json::json;
use shunt_admin::{Encoder, Label as _, Part, State, plain};

use crate::reply::Status;
use crate::server::LocksHttp;

impl Part for LocksHttp {
    fn metrics(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let count = |status: &Status| {
            (
                vec![(Status::NAME, status.text().to_owned())],
                self.metrics.answers.of(*status).get() as f64,
            )
        };
        let answers: Vec<_> = Status::ALL.iter().map(count).collect();
        encoder.counter(
            "shunt_lock_http_requests",
            "Requests for locks over HTTP answered.",
            None,
            &answers,
        )?;
        let refused = [plain(self.metrics.connections_refused.get() as f64)];
        encoder.counter(
            "shunt_lock_http_connections_refused",
            "Connections refused because their address had its share.",
            None,
            &refused,
        )?;
        let failed = [plain(self.metrics.accepts_failed.get() as f64)];
        encoder.counter(
            "shunt_lock_http_accepts_failed",
            "Failed accepts; usually the limit of open files.",
            None,
            &failed,
        )?;
        let (connections, requests) = self.taken();
        encoder.gauge(
            "shunt_lock_http_connections",
            "Connections for locks over HTTP.",
            None,
            &[plain(connections)],
        )?;
        encoder.gauge(
            "shunt_lock_http_in_flight",
            "Requests in progress, waiting ones included.",
            None,
            &[plain(requests)],
        )
    }

    fn status(&self) -> State<'_> {
        let (connections, requests) = self.taken();
        let state = json!({ "connections": connections as u64, "in_flight": requests as u64 });
        Box::pin(async move { json!({ "locks_http": state }) })
    }
}

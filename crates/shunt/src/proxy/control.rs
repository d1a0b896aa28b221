//! The control thread: ring watch and admin interface on a small runtime.

use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use shunt_admin::Pages;
use shunt_otlp::Exporter;
use shunt_proxy::control::{ClusterView, ControlOptions, ControlPlane, Unfit};
use shunt_proxy::traces::export::TraceExport;
use tokio::task::{JoinError, JoinSet};

use super::admin_cql;
use super::part::Notice;
use crate::admin;
use crate::exit::Failure;
use crate::supervise::{Teller, threads};

/// Time for the collector to take the last spans.
const LAST_SPANS_LIMIT: Duration = Duration::from_secs(2);

/// The inputs of the thread.
pub(super) struct ControlThread {
    pub(super) plane: ControlOptions,
    pub(super) admin: Option<(admin::Sockets, Arc<Pages>)>,
    pub(super) admin_cql: Option<(admin_cql::Bound, Arc<Pages>)>,
    pub(super) traces: (TraceExport, Exporter),
    pub(super) view: ClusterView,
    pub(super) require_ring_ms: u64,
    pub(super) teller: Teller<Notice>,
}

/// Starts the thread, and reports its end whatever the cause.
pub(super) fn start(parts: ControlThread) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
            Failure::internal("the control plane's runtime could not be created", error)
        })?;
    let teller = parts.teller.clone();
    let work = move || {
        runtime.block_on(live(parts));
        // A name lookup that is still running must not delay the end.
        runtime.shutdown_background();
        Ok(())
    };
    threads::spawn("control", work, move |failure| teller.tell(Notice::ControlEnded { failure }))
        .map_err(|error| Failure::internal("the control thread could not be started", error))
}

/// Runs until the control plane ends, which is after the last core. The other work runs as separate
/// tasks; a panic of such a task counts as a panic of the thread.
async fn live(parts: ControlThread) {
    let ControlThread { plane, admin, admin_cql, traces, view, require_ring_ms, teller } = parts;
    let (trace_export, exporter) = traces;
    let (mut beside, mut exporters) = (JoinSet::new(), JoinSet::new());
    exporters.spawn(exporter.run());
    beside.spawn(trace_export.run());
    if let Some((listener, pages)) = admin {
        beside.spawn(admin::serve(listener, pages));
    }
    if let Some((bound, pages)) = admin_cql {
        beside.spawn(admin_cql::serve(bound, pages));
    }
    if require_ring_ms > 0 {
        beside.spawn(require_ring(view, require_ring_ms, teller.clone()));
    }
    let mut plane = pin!(ControlPlane::new(plane).run());
    let ended = loop {
        tokio::select! {
            ended = &mut plane => break ended,
            Some(done) = beside.join_next(), if !beside.is_empty() => pass_on(done),
            Some(done) = exporters.join_next(), if !exporters.is_empty() => pass_on(done),
        }
    };
    // Without its sources the exporter ends as soon as its queue is empty.
    beside.shutdown().await;
    let _ = tokio::time::timeout(LAST_SPANS_LIMIT, exporters.join_next()).await;
    if let Err(Unfit(why)) = ended {
        teller.tell(Notice::Unfit(why));
    }
}

/// Passes a panic of a task on.
fn pass_on(done: Result<(), JoinError>) {
    if let Err(died) = done {
        resume_unwind(died.into_panic());
    }
}

async fn require_ring(mut view: ClusterView, limit_ms: u64, teller: Teller<Notice>) {
    let limit = Duration::from_millis(limit_ms);
    if tokio::time::timeout(limit, view.known()).await.is_err() {
        teller.tell(Notice::RingTimeout);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::net::SocketAddr;

    use shunt_proxy::config::Config;
    use shunt_proxy::control::ControlRequest;
    use tokio::sync::{mpsc, watch};

    use super::*;
    use crate::supervise::Events;

    /// Starts the thread with a mailbox that panics, and its pages if requested.
    fn started(
        pages: Option<Arc<Pages>>,
    ) -> (mpsc::Sender<ControlRequest>, std::sync::mpsc::Receiver<Notice>) {
        let (teller, told) = Events::new().teller();
        let (requests, receiver) = mpsc::channel(1);
        // No server listens there, so the control plane keeps looking for the ring.
        let config = Config { contact_points: vec!["127.0.0.1:1".to_owned()], ..Config::default() };
        let (_, config) = watch::channel(Arc::new(config));
        let traces = TraceExport::new(Vec::new(), config.clone(), Arc::default(), String::new(), 1);
        let (view_sender, view) = ClusterView::new();
        let plane = ControlOptions {
            config,
            mailboxes: vec![Box::new(|_| panic!("as the test wants it"))],
            requests: receiver,
            view: view_sender,
            metrics: Arc::default(),
            tls: None,
            seed: 1,
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let admin = pages.map(|pages| (admin::bind(address.into()).unwrap().0, pages));
        let admin_cql = None;
        let require_ring_ms = 0;
        let thread =
            ControlThread { plane, admin, admin_cql, traces, view, require_ring_ms, teller };
        start(thread).unwrap();
        (requests, told)
    }

    #[test]
    fn a_control_thread_that_panics_is_told() {
        let (requests, told) = started(None);
        requests
            .blocking_send(ControlRequest::AwaitSchemaAgreement {
                node: shunt_topology::NodeId(0),
                core: 0,
                ticket: 1,
                table: None,
            })
            .unwrap();
        let notice = told.recv().unwrap();
        assert!(matches!(notice, Notice::ControlEnded { failure: Some(_) }), "{notice:?}");
    }

    #[test]
    fn the_control_thread_ends_without_failure_with_the_last_core() {
        let pages = Pages::new("1", Vec::new());
        let (requests, told) = started(Some(pages));
        drop(requests);
        let notice = told.recv().unwrap();
        assert!(matches!(notice, Notice::ControlEnded { failure: None }), "{notice:?}");
    }
}

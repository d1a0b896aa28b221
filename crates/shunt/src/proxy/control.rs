//! The control thread: ring watch and admin interface on a small runtime.

use std::net::TcpListener;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use shunt_admin::Pages;
use shunt_proxy::control::{ClusterView, ControlOptions, ControlPlane, Unfit};
use tokio::task::JoinSet;

use super::admin_cql;
use super::part::Notice;
use crate::admin;
use crate::exit::Failure;
use crate::supervise::{Teller, threads};

/// The inputs of the thread.
pub(super) struct ControlThread {
    pub(super) plane: ControlOptions,
    pub(super) admin: Option<(TcpListener, Arc<Pages>)>,
    pub(super) admin_cql: Option<(admin_cql::Bound, Arc<Pages>)>,
    pub(super) view: ClusterView,
    pub(super) require_ring_ms: u64,
    pub(super) teller: Teller<Notice>,
}

/// Starts the thread and reports its end, of whatever cause.
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
    let ControlThread { plane, admin, admin_cql, view, require_ring_ms, teller } = parts;
    let mut beside = JoinSet::new();
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
            Some(done) = beside.join_next(), if !beside.is_empty() => match done {
                Ok(()) => {}
                Err(died) => resume_unwind(died.into_panic()),
            },
        }
    };
    if let Err(Unfit(why)) = ended {
        teller.tell(Notice::Unfit(why));
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
        let (view_sender, view) = ClusterView::new();
        let plane = ControlOptions {
            config: watch::channel(Arc::new(config)).1,
            mailboxes: vec![Box::new(|_| panic!("as the test wants it"))],
            requests: receiver,
            view: view_sender,
            metrics: Arc::default(),
            tls: None,
            seed: 1,
        };
        let admin = pages
            .map(|pages| (admin::listen("--admin", ([127, 0, 0, 1], 0).into()).unwrap(), pages));
        let admin_cql = None;
        start(ControlThread { plane, admin, admin_cql, view, require_ring_ms: 0, teller }).unwrap();
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

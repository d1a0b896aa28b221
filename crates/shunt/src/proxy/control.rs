//! The control thread: ring watch and admin interface on one small runtime.

use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use shunt_admin::Pages;
use shunt_proxy::control::{ClusterView, ControlOptions, ControlPlane, Unfit};

use super::part::Notice;
use crate::admin;
use crate::exit::Failure;
use crate::supervise::Teller;

/// The parts that the thread is made from.
pub(super) struct ControlThread {
    pub(super) plane: ControlOptions,
    pub(super) admin: Option<(TcpListener, Arc<Pages>)>,
    pub(super) view: ClusterView,
    pub(super) require_ring_ms: u64,
    pub(super) teller: Teller<Notice>,
}

/// Starts the thread; however it ends, it is told.
pub(super) fn start(parts: ControlThread) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal("the control plane's runtime could not be made", error))?;
    let teller = parts.teller.clone();
    let thread = move || {
        let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(live(parts))));
        let failure = outcome.err().map(|_| "it panicked; the log says where".to_owned());
        teller.tell(Notice::ControlEnded { failure });
    };
    std::thread::Builder::new()
        .name("control".to_owned())
        .spawn(thread)
        .map(|_| ())
        .map_err(|error| Failure::internal("the control thread could not be started", error))
}

/// Lives until the control plane ends, which it does after the last core.
async fn live(parts: ControlThread) {
    if let Some((listener, pages)) = parts.admin {
        tokio::spawn(admin::serve(listener, pages));
    }
    if parts.require_ring_ms > 0 {
        tokio::spawn(require_ring(parts.view, parts.require_ring_ms, parts.teller.clone()));
    }
    if let Err(Unfit(why)) = ControlPlane::new(parts.plane).run().await {
        parts.teller.tell(Notice::Unfit(why));
    }
}

async fn require_ring(mut view: ClusterView, limit_ms: u64, teller: Teller<Notice>) {
    let limit = Duration::from_millis(limit_ms);
    if tokio::time::timeout(limit, view.known()).await.is_err() {
        teller.tell(Notice::RingTimeout);
    }
}

//! The control thread: ring watch, admin interface and signals on one small runtime.

use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use shunt_admin::Pages;
use shunt_proxy::control::{ClusterView, ControlOptions, ControlPlane, Unfit};

use super::supervise::Notice;
use crate::admin;
use crate::exit::Failure;
use crate::signals::{Asked, Signals};

/// The parts that the thread is made from.
pub(super) struct ControlThread {
    pub(super) plane: ControlOptions,
    pub(super) admin: Option<(TcpListener, Arc<Pages>)>,
    pub(super) view: ClusterView,
    pub(super) require_ring_ms: u64,
    pub(super) notice: Sender<Notice>,
}

/// Starts the thread. Signals are caught from the moment this returns.
pub(super) fn start(parts: ControlThread) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal("the control plane's runtime could not be made", error))?;
    let signals = {
        let _inside = runtime.enter();
        Signals::catch().map_err(|error| Failure::internal("signals cannot be caught", error))?
    };
    let notice = parts.notice.clone();
    let thread = move || {
        let _ = catch_unwind(AssertUnwindSafe(|| runtime.block_on(live(parts, signals))));
        let _ = notice.send(Notice::ControlEnded);
    };
    std::thread::Builder::new()
        .name("control".to_owned())
        .spawn(thread)
        .map(|_| ())
        .map_err(|error| Failure::internal("the control thread could not be started", error))
}

/// Lives until the control plane ends, which it does after the last core.
async fn live(parts: ControlThread, signals: Signals) {
    tokio::spawn(forward(signals, parts.notice.clone()));
    if let Some((listener, pages)) = parts.admin {
        tokio::spawn(admin::serve(listener, pages));
    }
    if parts.require_ring_ms > 0 {
        tokio::spawn(require_ring(parts.view, parts.require_ring_ms, parts.notice.clone()));
    }
    if let Err(Unfit(why)) = ControlPlane::new(parts.plane).run().await {
        let _ = parts.notice.send(Notice::Unfit(why));
    }
}

async fn require_ring(mut view: ClusterView, limit_ms: u64, notice: Sender<Notice>) {
    let limit = Duration::from_millis(limit_ms);
    if tokio::time::timeout(limit, view.known()).await.is_err() {
        let _ = notice.send(Notice::RingTimeout);
    }
}

async fn forward(mut signals: Signals, notice: Sender<Notice>) {
    loop {
        let told = match signals.next().await {
            Asked::Reload => notice.send(Notice::Reload),
            Asked::Stop(signal) => notice.send(Notice::Stop(signal)),
        };
        if told.is_err() {
            return;
        }
    }
}

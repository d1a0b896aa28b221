//! The control thread: ring watch, admin interface and signals on one small runtime.

use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use shunt_proxy::admin::Admin;
use shunt_proxy::control::{ClusterView, ControlOptions, ControlPlane};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::error;

use super::StartError;
use super::supervise::Notice;

/// What the thread is made from.
pub(super) struct ControlThread {
    pub(super) plane: ControlOptions,
    pub(super) admin: Option<(TcpListener, Arc<Admin>)>,
    pub(super) view: ClusterView,
    pub(super) require_ring_ms: u64,
    pub(super) notice: Sender<Notice>,
}

/// Starts the thread. Signals are caught from the moment this returns.
pub(super) fn start(parts: ControlThread) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| StartError::internal("the control plane's runtime could not be made", error))?;
    let signals = {
        let _inside = runtime.enter();
        Signals::catch().map_err(|error| StartError::internal("signals cannot be caught", error))?
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
        .map_err(|error| StartError::internal("the control thread could not be started", error))
}

/// Lives until the control plane ends, which it does after the last core.
async fn live(parts: ControlThread, signals: Signals) {
    tokio::spawn(signals.forward(parts.notice.clone()));
    if let Some((listener, pages)) = parts.admin {
        tokio::spawn(serve_admin(listener, pages));
    }
    if parts.require_ring_ms > 0 {
        tokio::spawn(require_ring(parts.view, parts.require_ring_ms, parts.notice));
    }
    ControlPlane::new(parts.plane).run().await;
}

async fn serve_admin(listener: TcpListener, pages: Arc<Admin>) {
    let served = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => pages.serve(listener).await,
        Err(error) => Err(error),
    };
    if let Err(error) = served {
        error!(%error, "the admin interface has ended");
    }
}

async fn require_ring(mut view: ClusterView, limit_ms: u64, notice: Sender<Notice>) {
    let limit = Duration::from_millis(limit_ms);
    if tokio::time::timeout(limit, view.known()).await.is_err() {
        let _ = notice.send(Notice::RingTimeout);
    }
}

/// The signals that are caught.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Needs to be called inside the runtime.
    fn catch() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn forward(mut self, notice: Sender<Notice>) {
        loop {
            let told = tokio::select! {
                // A reload asked for before the end is still done, and told in the log.
                biased;
                _ = self.hangup.recv() => notice.send(Notice::Reload),
                _ = self.terminate.recv() => notice.send(Notice::Stop("SIGTERM")),
                _ = self.interrupt.recv() => notice.send(Notice::Stop("SIGINT")),
            };
            if told.is_err() {
                return;
            }
        }
    }
}

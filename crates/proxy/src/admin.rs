//! The admin interface: metrics, health, readiness and status over HTTP, on the control plane's runtime.
//!
//! It only reads: counters of the cores, the last known ring, the configuration.

mod status;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::config::Config;
use crate::metrics::Sources;

/// A core whose loop has not turned for this long is stuck. Idle loops turn about once a second.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// What the pages are made from.
#[derive(Debug)]
pub struct Admin {
    sources: Sources,
    config: watch::Receiver<Arc<Config>>,
    listening: Vec<SocketAddr>,
    started: Instant,
    draining: AtomicBool,
    /// Per core: its turns when they last changed, and when that was seen.
    heartbeats: Mutex<Vec<(u64, Instant)>>,
}

impl Admin {
    /// `listening`: addresses clients connect to, as bound.
    pub fn new(sources: Sources, config: watch::Receiver<Arc<Config>>, listening: Vec<SocketAddr>) -> Arc<Self> {
        let started = Instant::now();
        let heartbeats = Mutex::new(vec![(0, started); sources.cores.len()]);
        Arc::new(Self { sources, config, listening, started, draining: AtomicBool::new(false), heartbeats })
    }

    /// From now on `/readyz` says no, so that load balancers send new clients elsewhere.
    pub fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Serves until the task is dropped. Needs a tokio runtime with I/O.
    ///
    /// # Errors
    /// When the listening socket fails for good.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) -> std::io::Result<()> {
        axum::serve(listener, self.router()).await
    }

    fn router(self: Arc<Self>) -> Router {
        Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(health))
            .route("/readyz", get(ready))
            .route("/status", get(status_page))
            .fallback(not_found)
            .method_not_allowed_fallback(not_allowed)
            .with_state(self)
    }

    /// Cores whose loop does not turn any more.
    fn stuck_cores(&self, now: Instant) -> Vec<usize> {
        let mut heartbeats = self.heartbeats.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stuck = Vec::new();
        for (core, (turns, since)) in self.sources.cores.iter().zip(heartbeats.iter_mut()) {
            let present = core.turns.get();
            if present != *turns {
                (*turns, *since) = (present, now);
            } else if now.duration_since(*since) > STUCK_AFTER {
                stuck.push(core.core);
            }
        }
        stuck
    }

    /// Why no client should be sent here now.
    fn not_ready(&self) -> Option<&'static str> {
        if self.draining.load(Ordering::Relaxed) {
            return Some("draining");
        }
        match self.sources.cluster.get() {
            None => Some("the ring is not known yet"),
            Some(cluster) if !cluster.routing.nodes().iter().any(|node| node.up) => Some("no node is up"),
            Some(_) => None,
        }
    }
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    match admin.sources.render() {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => failure(StatusCode::INTERNAL_SERVER_ERROR, &format!("metrics could not be written: {error}")),
    }
}

async fn health(State(admin): State<Arc<Admin>>) -> Response {
    match admin.stuck_cores(Instant::now()) {
        stuck if stuck.is_empty() => Json(json!({ "status": "ok" })).into_response(),
        stuck => {
            let body = Json(json!({ "status": "stuck", "cores": stuck }));
            (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
        }
    }
}

async fn ready(State(admin): State<Arc<Admin>>) -> Response {
    match admin.not_ready() {
        None => Json(json!({ "status": "ready" })).into_response(),
        Some(reason) => {
            let body = Json(json!({ "status": "not ready", "reason": reason }));
            (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
        }
    }
}

async fn status_page(State(admin): State<Arc<Admin>>) -> Response {
    Json(status::status(&admin)).into_response()
}

async fn not_found(request: Request) -> Response {
    let error = format!("no page {}; there are /metrics, /healthz, /readyz and /status", request.uri().path());
    failure(StatusCode::NOT_FOUND, &error)
}

async fn not_allowed(request: Request) -> Response {
    failure(StatusCode::METHOD_NOT_ALLOWED, &format!("{} is not allowed here, only GET and HEAD", request.method()))
}

fn failure(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error }))).into_response()
}

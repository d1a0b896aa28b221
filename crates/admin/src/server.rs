//! Metrics, health, readiness and status over HTTP. All pages only read.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde_json::json;
use tokio::net::TcpListener;

use crate::pages::Pages;

impl Pages {
    /// Serves until the task is dropped. Needs a tokio runtime with I/O.
    ///
    /// # Errors
    /// When the listening socket fails for good.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) -> std::io::Result<()> {
        let router = Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(health))
            .route("/readyz", get(ready))
            .route("/status", get(status))
            .fallback(not_found)
            .method_not_allowed_fallback(not_allowed)
            .with_state(self);
        axum::serve(listener, router).await
    }
}

async fn metrics(State(pages): State<Arc<Pages>>) -> Response {
    match pages.render() {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => failure(StatusCode::INTERNAL_SERVER_ERROR, &format!("metrics could not be written: {error}")),
    }
}

async fn health(State(pages): State<Arc<Pages>>) -> Response {
    let mut stuck = pages.stuck();
    if stuck.is_empty() {
        return Json(json!({ "status": "ok" })).into_response();
    }
    stuck.insert("status".to_owned(), "stuck".into());
    (StatusCode::SERVICE_UNAVAILABLE, Json(stuck)).into_response()
}

async fn ready(State(pages): State<Arc<Pages>>) -> Response {
    match pages.not_ready() {
        None => Json(json!({ "status": "ready" })).into_response(),
        Some(reason) => {
            let body = Json(json!({ "status": "not ready", "reason": reason }));
            (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
        }
    }
}

async fn status(State(pages): State<Arc<Pages>>) -> Response {
    Json(pages.status()).into_response()
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

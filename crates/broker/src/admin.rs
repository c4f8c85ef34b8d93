//! The admin port: `/metrics` for Prometheus and `/health` for whoever watches the process. Plain HTTP, bound to
//! loopback unless configured otherwise; it changes nothing.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::broker::Broker;
use crate::shutdown::{StopSignal, stopped};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until `stop` turns true.
pub(crate) async fn run(socket: TcpListener, broker: Arc<Broker>, mut stop: StopSignal) {
    let routes =
        Router::new().route("/metrics", get(metrics)).route("/health", get(health)).with_state(broker);
    let stopping = async move {
        let () = stopped(&mut stop).await;
    };
    if let Err(error) = axum::serve(socket, routes).with_graceful_shutdown(stopping).await {
        tracing::error!(%error, "the admin port failed");
    }
}

async fn metrics(State(broker): State<Arc<Broker>>) -> Response {
    // Collectors read files' sizes and take locks: not on a worker that serves connections.
    let text = tokio::task::spawn_blocking(move || broker.metrics.exposition()).await;
    match text {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn health(State(broker): State<Arc<Broker>>) -> Response {
    // It takes locks that are held while the disk is waited for.
    match tokio::task::spawn_blocking(move || broker.trouble()).await {
        Ok(None) => (StatusCode::OK, "ok\n").into_response(),
        Ok(Some(trouble)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{trouble}\n")).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

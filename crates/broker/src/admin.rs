//! The admin port: `/metrics` for Prometheus and `/health` for whoever watches the process. Plain HTTP, bound to
//! loopback unless configured otherwise, of which it warns; it changes nothing.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::broker::Broker;
use crate::health::Health;
use crate::metrics::Format;
use crate::shutdown::{StopSignal, stopped};

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

/// Says once what others on the network are let see, if they are.
pub(crate) fn warn_if_exposed(address: SocketAddr) {
    if !address.ip().to_canonical().is_loopback() {
        tracing::warn!(
            %address,
            "the admin port has no access control and is open to the network: /metrics shows the names of topics and \
             groups, offsets, sizes and load, /health the paths of what is damaged or full"
        );
    }
}

async fn metrics(State(broker): State<Arc<Broker>>, headers: HeaderMap) -> Response {
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let format = Format::accepted(&accepts.collect::<Vec<_>>().join(","));
    // Collectors read files' sizes and take locks: not on a worker that serves connections.
    let text = tokio::task::spawn_blocking(move || broker.metrics.exposition(format)).await;
    match text {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn health(State(broker): State<Arc<Broker>>) -> Response {
    // It takes locks that are held while the disk is waited for.
    match tokio::task::spawn_blocking(move || broker.health()).await {
        Ok(health) => health_answer(&health).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// A line for each trouble, or `ok`, and one for each note.
fn health_answer(health: &Health) -> (StatusCode, String) {
    let is_well = health.troubles.is_empty();
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let ok = is_well.then_some("ok");
    let lines = ok.into_iter().chain(health.troubles.iter().chain(&health.notes).map(String::as_str));
    (status, lines.flat_map(|line| [line, "\n"]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_ok_or_a_line_for_each_trouble_and_notes_are_no_trouble() {
        let lines = |text: &[&str]| text.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
        for (troubles, notes, status, body) in [
            (&[][..], &[][..], StatusCode::OK, "ok\n"),
            (&[], &["cordoned"], StatusCode::OK, "ok\ncordoned\n"),
            (&["failed", "full"], &["cordoned"], StatusCode::SERVICE_UNAVAILABLE, "failed\nfull\ncordoned\n"),
        ] {
            let health = Health { troubles: lines(troubles), notes: lines(notes) };
            assert_eq!(health_answer(&health), (status, body.to_owned()));
        }
    }
}

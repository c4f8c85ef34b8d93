//! The admin port: `/metrics` for Prometheus and `/health` for whoever watches the process. Plain HTTP, bound to
//! loopback unless configured otherwise, of which it warns; it changes nothing. It has [few connections](door) at once,
//! none of them for long, and answers only requests that name [a host which it knows](hosts). It has threads of its own: whoever watches the server is
//! answered also while those of the network have more to do than they can.

mod door;
mod hosts;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

pub(crate) use self::door::VISITS_MAX;
use self::door::{Door, Here};
use crate::broker::Broker;
use crate::health::Health;
use crate::metrics::Format;
use crate::shutdown::{StopSignal, stopped};

/// Answers that are made at once: one may wait for locks that are held while the disk is waited for, and another is to be made
/// meanwhile.
const LOOKERS_MAX: usize = 4;
/// How long an answer may still take when the server stops.
const STOP_TIME_MAX: Duration = Duration::from_secs(1);

/// The runtime of the admin port: one thread that serves it, and others that look at the server. Whoever has it shuts it down.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(LOOKERS_MAX)
        .thread_name("riverrun-admin")
        .enable_all()
        .build()
}

/// Serves until `stop` turns true.
pub(crate) async fn run(socket: TcpListener, broker: Arc<Broker>, stop: StopSignal) {
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/health", get(health))
        .layer(from_fn_with_state(Arc::clone(&broker), check_host))
        .with_state(broker);
    let (mut stopping, mut cut_off) = (stop.clone(), stop);
    let stopping = async move {
        let () = stopped(&mut stopping).await;
    };
    let service = routes.into_make_service_with_connect_info::<Here>();
    let serving = axum::serve(Door::new(socket), service).with_graceful_shutdown(stopping);
    let cut_off = async move {
        stopped(&mut cut_off).await;
        tokio::time::sleep(STOP_TIME_MAX).await;
    };
    tokio::select! {
        served = serving.into_future() => {
            if let Err(error) = served {
                tracing::error!(%error, "the admin port failed");
            }
        }
        () = cut_off => {}
    }
}

/// Refuses what was meant for another host: see [`hosts`].
async fn check_host(
    State(broker): State<Arc<Broker>>,
    ConnectInfo(Here(here)): ConnectInfo<Here>,
    request: Request,
    next: Next,
) -> Response {
    let names = &broker.config.server.admin_hosts;
    if hosts::is_known(request.uri(), request.headers(), here, names) {
        return next.run(request).await;
    }
    let text =
        "this host is not known here; set admin.hosts to the names by which the admin port is reached\n";
    (StatusCode::MISDIRECTED_REQUEST, text).into_response()
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

//! The admin port: `/metrics` for Prometheus and `/health`, as text or JSON, for people and programs that watch the server.
//!
//! It speaks plain HTTP, is bound to loopback unless configured otherwise (then it logs a warning), and changes nothing. It
//! has [few connections](door) at once, none of them for long, and answers only requests that name [a host which it
//! knows](hosts). It has threads of its own, and so answers also while the network's threads have more to do than they can.

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
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::door::{Door, Here};
use crate::broker::Broker;
use crate::health::Health;
use crate::metrics::Format;
use crate::stop_signal::{StopSignal, stopped};

/// The media type of an answer for programs.
const JSON: &str = "application/json";
/// Answers of a kind that are made at once. Each kind has its own: requests for one hold up none for the other.
const LOOKERS_MAX: usize = 2;
/// After so long no client waits for a look any more: the answer says that it takes too long.
const HEALTH_TIME_MAX: Duration = Duration::from_secs(2);
/// The same for metrics, of which there may be very many: less than the time after which a connection ends.
const METRICS_TIME_MAX: Duration = Duration::from_secs(8);
/// Time that an answer may still take when the server stops.
const STOP_TIME_MAX: Duration = Duration::from_secs(1);

/// The runtime of the admin port: one thread that serves it, and others that look at the server. The caller shuts it down.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(2 * LOOKERS_MAX)
        .thread_name("riverrun-admin")
        .enable_all()
        .build()
}

/// The server that requests ask about, and the places for looks at it.
struct Asked {
    broker: Arc<Broker>,
    health: Lookers,
    metrics: Lookers,
}

/// Looks of a kind, which use threads of their own.
///
/// Invariants: at most [`LOOKERS_MAX`] are under way, with those whose client has given up.
struct Lookers {
    places: Arc<Semaphore>,
    time_max: Duration,
}

impl Lookers {
    fn new(time_max: Duration) -> Self {
        Self { places: Arc::new(Semaphore::new(LOOKERS_MAX)), time_max }
    }

    /// Looks, or answers the reason why not: the look has failed, or takes too long.
    async fn look<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, (StatusCode, String)> {
        let places = Arc::clone(&self.places);
        let looking = async move {
            let place = places.acquire_owned().await.map_err(|error| error.to_string())?;
            let look = move || {
                let _place = place;
                work()
            };
            tokio::task::spawn_blocking(look).await.map_err(|error| error.to_string())
        };
        let Ok(seen) = timeout(self.time_max, looking).await else {
            let waited = self.time_max.as_secs();
            let text = format!("the state of the server could not be read within {waited} seconds\n");
            return Err((StatusCode::SERVICE_UNAVAILABLE, text));
        };
        seen.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error))
    }
}

/// Serves until `stop` turns true.
pub(crate) async fn run(socket: TcpListener, broker: Arc<Broker>, stop: StopSignal) {
    let (health_lookers, metrics_lookers) = (Lookers::new(HEALTH_TIME_MAX), Lookers::new(METRICS_TIME_MAX));
    let asked = Arc::new(Asked { broker, health: health_lookers, metrics: metrics_lookers });
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/health", get(health))
        .layer(from_fn_with_state(Arc::clone(&asked), check))
        .with_state(asked);
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

/// Refuses a request for another host, see [`hosts`], and gives one up when its connection has lost its place.
async fn check(
    State(asked): State<Arc<Asked>>,
    ConnectInfo(here): ConnectInfo<Here>,
    request: Request,
    next: Next,
) -> Response {
    let names = &asked.broker.config.server.admin_hosts;
    if hosts::is_known(request.uri(), request.headers(), here.address, names) {
        return tokio::select! {
            response = next.run(request) => response,
            () = here.left() => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        };
    }
    let text =
        "this host is not known here; set admin.hosts to the names by which the admin port is reached\n";
    (StatusCode::MISDIRECTED_REQUEST, text).into_response()
}

/// Warns of what the network can see, if the port is open to it.
pub(crate) fn warn_if_exposed(address: SocketAddr) {
    if !address.ip().to_canonical().is_loopback() {
        tracing::warn!(
            %address,
            "the admin port has no access control and is open to the network: /metrics shows the names of topics and \
             groups, offsets, sizes and load, /health the paths of damaged files and full volumes"
        );
    }
}

async fn metrics(State(asked): State<Arc<Asked>>, headers: HeaderMap) -> Response {
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let format = Format::accepted(&accepts.collect::<Vec<_>>().join(","));
    let broker = Arc::clone(&asked.broker);
    // Collectors read files' sizes and take locks: not on the thread that serves connections.
    match asked.metrics.look(move || broker.metrics.exposition(format)).await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        Err(unseen) => unseen.into_response(),
    }
}

async fn health(State(asked): State<Arc<Asked>>, headers: HeaderMap) -> Response {
    let broker = Arc::clone(&asked.broker);
    match asked.health.look(move || broker.health()).await {
        Ok(health) if wants_json(&headers) => health_json(&health).into_response(),
        Ok(health) => health_text(&health).into_response(),
        Err(unseen) => unseen.into_response(),
    }
}

/// Whether the answer is for a program.
fn wants_json(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let mut types = accepts.flat_map(|accept| accept.split(',')).filter_map(|range| range.split(';').next());
    types.any(|range| range.trim().eq_ignore_ascii_case(JSON))
}

fn status_of(health: &Health) -> StatusCode {
    if health.is_well() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// `ok` or a line for each critical finding, then a line for each other finding.
fn health_text(health: &Health) -> (StatusCode, String) {
    let ok = health.is_well().then_some("ok");
    let lines = ok.into_iter().chain(health.texts());
    (status_of(health), lines.flat_map(|line| [line, "\n"]).collect())
}

/// The same as an object.
fn health_json(health: &Health) -> Result<impl IntoResponse, (StatusCode, String)> {
    let json = serde_json::to_string(health);
    let json = json.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok((status_of(health), [(header::CONTENT_TYPE, JSON)], json))
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use parking_lot::Mutex;

    use super::*;
    use crate::health::{Code, Finding, Object};

    #[test]
    fn health_is_ok_despite_notes_and_lists_each_trouble() {
        type Make = fn(Code, Object, String) -> Finding;
        let findings = |make: Make, texts: &[&str]| -> Vec<Finding> {
            texts.iter().map(|text| make(Code::LogDirFailed, Object::Process, (*text).to_owned())).collect()
        };
        for (troubles, notes, status, body) in [
            (&[][..], &[][..], StatusCode::OK, "ok\n"),
            (&[], &["cordoned"], StatusCode::OK, "ok\ncordoned\n"),
            (&["failed", "full"], &["cordoned"], StatusCode::SERVICE_UNAVAILABLE, "failed\nfull\ncordoned\n"),
        ] {
            let mut found = findings(Finding::known, notes);
            found.extend(findings(Finding::critical, troubles));
            assert_eq!(health_text(&Health::of(found)), (status, body.to_owned()));
        }
    }

    #[test]
    fn json_is_for_requests_that_accept_it() {
        for (accept, wants) in [
            ("", false),
            ("*/*", false),
            ("text/html, */*;q=0.8", false),
            ("application/json", true),
            ("text/plain;q=0.5, Application/JSON; q=0.9", true),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().expect("a value"))]);
            assert_eq!(wants_json(&headers), wants, "{accept}");
        }
        assert!(!wants_json(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn hanging_look_is_reported_and_holds_up_no_other_kind() {
        let (health, metrics) = (Lookers::new(Duration::from_secs(1)), Lookers::new(METRICS_TIME_MAX));
        let (end, ended) = std::sync::mpsc::sync_channel::<()>(0);
        let ended = Arc::new(Mutex::new(ended));
        let looks = (0..2 * LOOKERS_MAX).map(|_| {
            let ended = Arc::clone(&ended);
            health.look(move || assert!(ended.lock().recv().is_err()))
        });
        for looked in join_all(looks).await {
            let text = "the state of the server could not be read within 1 seconds\n";
            assert_eq!(looked, Err((StatusCode::SERVICE_UNAVAILABLE, text.to_owned())));
        }
        assert_eq!(metrics.look(|| 7).await, Ok(7));
        drop(end);
        assert_eq!(health.look(|| 7).await, Ok(7), "those that hung have ended");
    }
}

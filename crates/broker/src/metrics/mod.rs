//! The server's counts, and their exposition for Prometheus.
//!
//! Owns the registry and the metrics that are counted as things happen. Values that are read at a scrape (logs, groups)
//! come from the collectors of [`crate::scrape`]. Each name is registered once, with its description.

mod format;
mod process;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use riverrun_protocol::ApiKey;

pub(crate) use self::format::Format;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ApiLabel {
    api: &'static str,
}

/// Bytes and connections of the Kafka listeners.
#[derive(Debug, Default)]
pub(crate) struct TrafficMetrics {
    received_bytes: Counter,
    sent_bytes: Counter,
    connections_open: Gauge<i64, AtomicI64>,
    connections_accepted: Counter,
    connections_refused: Counter,
    connections_displaced: Counter,
}

impl TrafficMetrics {
    pub(crate) fn received(&self, bytes: usize) {
        self.received_bytes.inc_by(bytes as u64);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.sent_bytes.inc_by(bytes as u64);
    }

    /// Bytes that were sent by now.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.get()
    }

    pub(crate) fn opened(&self) {
        self.connections_accepted.inc();
        self.connections_open.inc();
    }

    pub(crate) fn closed(&self) {
        self.connections_open.dec();
    }

    pub(crate) fn refused(&self) {
        self.connections_refused.inc();
    }

    pub(crate) fn displaced(&self, connections: usize) {
        self.connections_displaced.inc_by(connections as u64);
    }
}

/// Requests by API key.
///
/// Invariants: one entry for each key in `ApiKey::ALL`, in its order, looked up once and not by label on the way
/// of a request.
struct RequestMetrics {
    durations: Vec<(ApiKey, Histogram)>,
}

/// All metrics of one server.
pub(crate) struct Metrics {
    registry: Registry,
    requests: RequestMetrics,
    pub(crate) traffic: TrafficMetrics,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("riverrun");
        let traffic = TrafficMetrics::default();
        register_traffic(&mut registry, &traffic);
        // 20 µs to about 10 s: from a produce in memory to a parked fetch.
        let durations = Family::<ApiLabel, Histogram, _>::new_with_constructor(|| {
            Histogram::new(exponential_buckets(0.000_02, 2.5, 15))
        });
        registry.register_with_unit(
            "request_duration",
            "Time from a request's last byte to its response, waiting included, by API key",
            Unit::Seconds,
            durations.clone(),
        );
        let by_key = |&key: &ApiKey| (key, durations.get_or_create(&ApiLabel { api: key.name() }).clone());
        let requests = RequestMetrics { durations: ApiKey::ALL.iter().map(by_key).collect() };
        Self { registry, requests, traffic }
    }

    /// Adds what is read from the live server at each scrape.
    pub(crate) fn register(&mut self, collector: Box<dyn Collector>) {
        self.registry.register_collector(collector);
    }

    /// Counts a finished request.
    pub(crate) fn answered(&self, key: ApiKey, took: Duration) {
        if let Some((_, histogram)) = self.requests.durations.iter().find(|(known, _)| *known == key) {
            histogram.observe(took.as_secs_f64());
        }
    }

    /// The text that Prometheus scrapes.
    pub(crate) fn exposition(&self, format: Format) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode_registry(&mut text, &self.registry)?;
        process::encode(&mut text)?;
        prometheus_client::encoding::text::encode_eof(&mut text)?;
        Ok(match format {
            Format::OpenMetrics => text,
            Format::Classic => format::classic(&text),
        })
    }
}

fn register_traffic(registry: &mut Registry, traffic: &TrafficMetrics) {
    registry.register_with_unit(
        "received",
        "Bytes of requests read from clients",
        Unit::Bytes,
        traffic.received_bytes.clone(),
    );
    registry.register_with_unit(
        "sent",
        "Bytes of responses written to clients",
        Unit::Bytes,
        traffic.sent_bytes.clone(),
    );
    registry.register("connections_open", "Client connections open now", traffic.connections_open.clone());
    registry.register(
        "connections_accepted",
        "Client connections accepted since the start",
        traffic.connections_accepted.clone(),
    );
    registry.register(
        "connections_refused",
        "Client connections closed at once because of max.connections or max.connections.per.ip, or for want of \
         descriptors",
        traffic.connections_refused.clone(),
    );
    registry.register(
        "connections_displaced",
        "Client connections closed to make room for others for want of descriptors",
        traffic.connections_displaced.clone(),
    );
}

/// The metrics that every server shares with its parts.
pub(crate) type SharedMetrics = Arc<Metrics>;

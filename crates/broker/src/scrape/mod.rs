//! Metrics that are read from the live server at each scrape.
//!
//! Owns the collectors, one for each part of the server. Nothing here counts.

mod journals;
mod network;
mod partitions;
mod parts;
mod storage;

use std::fmt;
use std::sync::Weak;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::broker::Broker;
use crate::metrics::Metrics;

/// Lets `metrics` read this server, as long as it is there.
pub(crate) fn register(metrics: &mut Metrics, broker: &Weak<Broker>) {
    metrics.register(Box::new(partitions::PartitionCollector::new(broker.clone())));
    metrics.register(Box::new(network::NetworkCollector::new(broker.clone())));
    metrics.register(Box::new(journals::JournalCollector::new(broker.clone())));
    metrics.register(Box::new(storage::StorageCollector::new(broker.clone())));
    metrics.register(Box::new(parts::PartsCollector::new(broker.clone())));
}

/// Begins a metric of a collector. Its description is a sentence with a full stop, as the registry makes of its own.
fn describe<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
    unit: Option<&'a Unit>,
    of: MetricType,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name, &format!("{help}."), unit, of)
}

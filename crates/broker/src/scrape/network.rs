//! Metrics of what waits on the network's side, read from the live server at each scrape: memory that requests and
//! responses hold, large requests that wait for some, requests that are checked or worked on aside, and connections that
//! wait for their turn.

use std::fmt;
use std::sync::Weak;
use std::sync::atomic::Ordering;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;

use super::journals::put_counter;
use super::partitions::put;
use crate::broker::Broker;

/// Reads the server that it belongs to; shows nothing once that is gone.
pub(super) struct NetworkCollector {
    broker: Weak<Broker>,
}

impl NetworkCollector {
    pub(super) fn new(broker: Weak<Broker>) -> Self {
        Self { broker }
    }
}

impl fmt::Debug for NetworkCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetworkCollector").finish_non_exhaustive()
    }
}

impl Collector for NetworkCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(broker) = self.broker.upgrade() else { return Ok(()) };
        let gauge = |value: usize| [(Vec::new(), i64::try_from(value).unwrap_or(i64::MAX))];
        let (requests, responses) = (&broker.budgets.requests, &broker.budgets.responses);
        let bytes = Some(&Unit::Bytes);
        put(&mut encoder, "request_memory", "Bytes held by requests", bytes, &gauge(requests.held_bytes()))?;
        let unsent = gauge(responses.used_bytes());
        put(&mut encoder, "response_memory", "Bytes held by unsent responses", bytes, &unsent)?;
        let help = "Files that unsent responses hold open";
        put(&mut encoder, "response_files", help, None, &gauge(broker.budgets.files.count()))?;
        let help = "Requests with large answers that wait for memory for these (queued.max.response.bytes)";
        put(&mut encoder, "requests_waiting_for_response_memory", help, None, &gauge(responses.waiting()))?;
        let help =
            "Connections closed because they took no responses while others waited for the memory of these";
        let evicted = [(Vec::new(), responses.evicted())];
        put_counter(&mut encoder, "connections_closed_for_response_memory", help, None, &evicted)?;
        let help = "Large requests that have come in part and wait for memory (queued.max.request.bytes)";
        put(&mut encoder, "requests_waiting_for_memory", help, None, &gauge(requests.in_line()))?;
        let help = "Fetches that wait for records (fetch.max.wait.ms of consumers)";
        let parked = broker.parked_fetches.load(Ordering::Relaxed);
        put(&mut encoder, "fetches_waiting_for_records", help, None, &gauge(parked))?;
        let (inflating, waiting) = broker.inflating.counts();
        let help = "Produce requests whose compressed records are checked aside, one for each core at most";
        put(&mut encoder, "requests_inflating", help, None, &gauge(inflating))?;
        let help = "Produce requests whose compressed records wait to be checked aside";
        put(&mut encoder, "requests_waiting_to_inflate", help, None, &gauge(waiting))?;
        let help = "Connections that have something to do and wait for their turn on the network's threads";
        put(&mut encoder, "connections_waiting_for_turn", help, None, &gauge(broker.turns.waiting()))?;
        let help = "Requests that wait for their turn to change the metadata, as one that makes topics does";
        put(
            &mut encoder,
            "requests_waiting_to_change_metadata",
            help,
            None,
            &gauge(broker.catalog.waiting_changes()),
        )?;
        encode_aside(&mut encoder, &broker)
    }
}

/// Requests with much to do: those that are worked on and those that wait, and their memory.
fn encode_aside(encoder: &mut DescriptorEncoder<'_>, broker: &Broker) -> fmt::Result {
    let Some(places) = broker.aside.get() else { return Ok(()) };
    let gauge = |value: usize| [(Vec::new(), i64::try_from(value).unwrap_or(i64::MAX))];
    let (working, waiting) = places.turn_counts();
    let help = "Requests with much to do that are worked on aside, a few for each core at most";
    put(encoder, "requests_aside", help, None, &gauge(working))?;
    let help = "Requests with much to do that wait for their turn to be worked on aside";
    put(encoder, "requests_waiting_for_turn_aside", help, None, &gauge(waiting))?;
    let help = "Bytes held by what requests with much to do are decoded to and answered with (half of queued.max.request.bytes at most)";
    put(encoder, "aside_memory", help, Some(&Unit::Bytes), &gauge(places.held_bytes()))
}

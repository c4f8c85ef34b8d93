//! Counts of the traffic on a client's connections.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of all connections of one client since it was created.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    connections: AtomicU64,
    requests: AtomicU64,
    sent_bytes: AtomicU64,
    answers: AtomicU64,
    received_bytes: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrafficCounts {
    pub(crate) connections: u64,
    pub(crate) requests: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) answers: u64,
    pub(crate) received_bytes: u64,
}

impl Traffic {
    /// Counts a new connection.
    pub(crate) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts requests that the operating system has accepted.
    pub(crate) fn sent(&self, requests: u64, bytes: usize) {
        self.requests.fetch_add(requests, Ordering::Relaxed);
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts an answer.
    pub(crate) fn received(&self, bytes: usize) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> TrafficCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TrafficCounts {
            connections: of(&self.connections),
            requests: of(&self.requests),
            sent_bytes: of(&self.sent_bytes),
            answers: of(&self.answers),
            received_bytes: of(&self.received_bytes),
        }
    }
}

//! What goes over a client's connections, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of all connections of one client since it was made.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    connections: AtomicU64,
    requests: AtomicU64,
    sent_bytes: AtomicU64,
    answers: AtomicU64,
    received_bytes: AtomicU64,
}

/// The counts at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrafficCounts {
    pub(crate) connections: u64,
    pub(crate) requests: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) answers: u64,
    pub(crate) received_bytes: u64,
}

impl Traffic {
    /// Another connection is up.
    pub(crate) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// The system has taken so many requests.
    pub(crate) fn sent(&self, requests: u64, bytes: usize) {
        self.requests.fetch_add(requests, Ordering::Relaxed);
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// An answer has come.
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

//! How far the scrub has come, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// The work of the scrub since the start.
#[derive(Debug, Default)]
pub(crate) struct ScrubProgress {
    bytes: AtomicU64,
    passes: AtomicU64,
}

impl ScrubProgress {
    /// Bytes that were read.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Passes over a log dir that came to their end.
    pub(crate) fn passes(&self) -> u64 {
        self.passes.load(Ordering::Relaxed)
    }

    /// So much was read.
    pub(crate) fn note_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A pass came to its end.
    pub(crate) fn note_pass(&self) {
        self.passes.fetch_add(1, Ordering::Relaxed);
    }
}

//! Reading whole batches, for callers that forward them unchanged.
//!
//! Guarantees for batches what a [`Tailer`] guarantees for records: each comes whole, in order and once, and batches
//! older than the opening are checked. The copied bytes no longer depend on the file's pages.

use riverrun_records::BatchHeader;
use riverrun_types::Offset;

use crate::error::QueueError;
use crate::tailer::Tailer;

/// Reads a queue batch by batch. A clone keeps its own place.
#[derive(Debug)]
pub struct BatchReader {
    tailer: Tailer,
}

impl Clone for BatchReader {
    fn clone(&self) -> Self {
        Self { tailer: self.tailer.fork() }
    }
}

impl BatchReader {
    pub(crate) fn new(tailer: Tailer) -> Self {
        Self { tailer }
    }

    /// With `true`, reads only synced batches from now on; with `false`, all published ones.
    pub fn set_synced_only(&mut self, synced_only: bool) {
        self.tailer.set_synced_only(synced_only);
    }

    /// Base offset of the next batch.
    pub fn offset(&self) -> Offset {
        self.tailer.batch_offset()
    }

    /// Bytes from the next batch to the end of what this reader may read.
    pub fn bytes_left(&self) -> u64 {
        self.tailer.bytes_left()
    }

    /// Skips the next batch and returns its header; `None` if there is no next batch yet.
    pub fn pass(&mut self) -> Result<Option<BatchHeader>, QueueError> {
        self.tailer.pass_batch()
    }

    /// Appends the next batches to `into`: as many as there are now and fit into `bytes_max` bytes together. With
    /// `whole_first`, the first one is appended even if it is larger. Returns the number of bytes appended. A damaged
    /// batch is an error only when it is the first; batches before it are returned by this call.
    pub fn copy(
        &mut self,
        into: &mut Vec<u8>,
        bytes_max: usize,
        whole_first: bool,
    ) -> Result<usize, QueueError> {
        let begin = into.len();
        loop {
            let copied = into.len() - begin;
            let room = if copied == 0 && whole_first { usize::MAX } else { bytes_max.saturating_sub(copied) };
            match self.tailer.copy_batch(into, room) {
                Ok(true) => {}
                Err(error) if copied == 0 => return Err(error),
                Ok(false) | Err(_) => return Ok(copied),
            }
        }
    }
}

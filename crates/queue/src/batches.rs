//! Reading whole batches, for whoever passes them on as they are.
//!
//! Guarantees what a [`Tailer`] guarantees, of batches instead of records: each is whole, in order and once, and those
//! that are older than the opening are checked. What is copied out cannot be lost with a page of the file any more.

use riverrun_records::BatchHeader;
use riverrun_types::Offset;

use crate::error::QueueError;
use crate::tailer::Tailer;

/// Reads a queue batch by batch. Cloning it keeps the place.
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

    /// From now on, reads only what a sync has covered, or again everything that is published.
    pub fn set_synced_only(&mut self, synced_only: bool) {
        self.tailer.set_synced_only(synced_only);
    }

    /// Base offset of the next batch.
    pub fn offset(&self) -> Offset {
        self.tailer.batch_offset()
    }

    /// Bytes from the next batch to the end of what it reads.
    pub fn bytes_left(&self) -> u64 {
        self.tailer.bytes_left()
    }

    /// Passes over the next batch, and returns its header; none if there is no next batch by now.
    pub fn pass(&mut self) -> Result<Option<BatchHeader>, QueueError> {
        self.tailer.pass_batch()
    }

    /// Appends the next batches to `into`, as many as there are by now and have `bytes_max` bytes together; the first of
    /// them also if it is larger, where `whole_first` is set. Returns how many bytes these are. Damage is an error when
    /// it comes first: what lies before it is returned by the call that meets it.
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

//! The batches that are remembered of one producer.

use riverrun_types::{Offset, TimestampMs};

use super::{BATCHES_PER_PRODUCER, BatchPlace, RememberedBatch};

/// What stands where no batch is.
const NONE: RememberedBatch = RememberedBatch {
    first_sequence: 0,
    last_sequence: 0,
    place: BatchPlace { base_offset: Offset(0), last_offset: Offset(0), timestamp: TimestampMs(0) },
};

/// The last batches of a producer, oldest first, in place: memory of their own would cost as much as two of them.
///
/// Invariants: the first `count` are batches, the others [`NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastBatches {
    batches: [RememberedBatch; BATCHES_PER_PRODUCER],
    count: u8,
}

impl Default for LastBatches {
    fn default() -> Self {
        Self { batches: [NONE; BATCHES_PER_PRODUCER], count: 0 }
    }
}

impl LastBatches {
    pub(super) fn all(&self) -> &[RememberedBatch] {
        &self.batches[..usize::from(self.count)]
    }

    pub(super) fn last(&self) -> Option<&RememberedBatch> {
        self.all().last()
    }

    /// Remembers one more; the oldest goes if there are [`BATCHES_PER_PRODUCER`].
    pub(super) fn push(&mut self, batch: RememberedBatch) {
        if usize::from(self.count) == BATCHES_PER_PRODUCER {
            self.batches.rotate_left(1);
            self.batches[BATCHES_PER_PRODUCER - 1] = batch;
        } else {
            self.batches[usize::from(self.count)] = batch;
            self.count += 1;
        }
    }

    /// Forgets those that end at or above `end`; whether there were none.
    pub(super) fn truncate_end(&mut self, end: Offset) -> bool {
        let mut kept = Self::default();
        for batch in self.all().iter().filter(|batch| batch.place.last_offset < end) {
            kept.push(*batch);
        }
        let is_exact = kept.count == self.count;
        *self = kept;
        is_exact
    }
}

//! The remembered batches of one producer, and their form in memory between two uses.

use std::num::NonZeroU8;

use riverrun_types::{Offset, TimestampMs};

use super::{BATCHES_PER_PRODUCER, BatchPlace, RememberedBatch};

/// Fills the places without a batch.
const NONE: RememberedBatch = RememberedBatch {
    first_sequence: 0,
    last_sequence: 0,
    place: BatchPlace { base_offset: Offset(0), last_offset: Offset(0), timestamp: TimestampMs(0) },
};

/// The last batches of a producer, oldest first.
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
}

/// The last batches of a producer in memory: each partition remembers every producer of the last day, twice, so a
/// server with many partitions has very many of these.
///
/// Invariants: batches that can be [`Close`] are, so that two values are equal if their batches are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PackedBatches {
    Close(Close),
    /// Clients do not send such batches.
    Any(Box<LastBatches>),
}

impl PackedBatches {
    pub(super) fn of(batches: &LastBatches) -> Self {
        match Close::of(batches) {
            Some(close) if close.unpack() == *batches => Self::Close(close),
            _ => Self::Any(Box::new(*batches)),
        }
    }

    pub(super) fn unpack(&self) -> LastBatches {
        match self {
            Self::Close(close) => close.unpack(),
            Self::Any(batches) => **batches,
        }
    }
}

/// Batches of which each has as many sequences as offsets and goes on with the sequence after the one before, as the
/// last of them and the distances back from one to the next: a third of the memory of all their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Close {
    /// Last offset of the newest batch.
    last_offset: Offset,
    timestamp: TimestampMs,
    last_sequence: i32,
    /// By age: from the first offset of a batch to its last.
    spans: [u16; BATCHES_PER_PRODUCER],
    /// By age: from the last offset of the batch before to the first of a batch.
    gaps: [u32; BATCHES_PER_PRODUCER - 1],
    /// By age: from the timestamp of the batch before to that of a batch.
    lags: [i32; BATCHES_PER_PRODUCER - 1],
    count: NonZeroU8,
}

impl Close {
    /// None if a distance is too large. The caller compares the unpacked batches, which tells whether sequences follow
    /// each other.
    fn of(batches: &LastBatches) -> Option<Self> {
        let newest = batches.last()?;
        let mut close = Self {
            last_offset: newest.place.last_offset,
            timestamp: newest.place.timestamp,
            last_sequence: newest.last_sequence,
            spans: [0; BATCHES_PER_PRODUCER],
            gaps: [0; BATCHES_PER_PRODUCER - 1],
            lags: [0; BATCHES_PER_PRODUCER - 1],
            count: NonZeroU8::new(batches.count)?,
        };
        for (span, batch) in close.spans.iter_mut().zip(batches.all().iter().rev()) {
            let distance = batch.place.last_offset.0.checked_sub(batch.place.base_offset.0)?;
            *span = u16::try_from(distance).ok()?;
        }
        let distances = close.gaps.iter_mut().zip(&mut close.lags);
        for ((gap, lag), pair) in distances.zip(batches.all().windows(2).rev()) {
            let (before, after) = (pair[0].place, pair[1].place);
            *gap = u32::try_from(after.base_offset.0.checked_sub(before.last_offset.0)?).ok()?;
            *lag = i32::try_from(after.timestamp.0.checked_sub(before.timestamp.0)?).ok()?;
        }
        Some(close)
    }

    fn unpack(&self) -> LastBatches {
        let mut batches = LastBatches { count: self.count.get(), ..LastBatches::default() };
        let (mut last_offset, mut last_sequence) = (self.last_offset, self.last_sequence);
        let mut timestamp = self.timestamp;
        let count = usize::from(batches.count);
        for (age, batch) in batches.batches[..count].iter_mut().rev().enumerate() {
            let span = self.spans[age];
            let first_sequence = sequence_before(last_sequence, i32::from(span));
            let base_offset = last_offset.plus(-i64::from(span));
            *batch = RememberedBatch {
                first_sequence,
                last_sequence,
                place: BatchPlace { base_offset, last_offset, timestamp },
            };
            if let (Some(gap), Some(lag)) = (self.gaps.get(age), self.lags.get(age)) {
                last_sequence = sequence_before(first_sequence, 1);
                last_offset = base_offset.plus(-i64::from(*gap));
                timestamp = TimestampMs(timestamp.0.wrapping_sub(i64::from(*lag)));
            }
        }
        batches
    }
}

/// The sequence `distance` before: 2^31-1 comes before 0.
fn sequence_before(sequence: i32, distance: i32) -> i32 {
    sequence.wrapping_sub(distance) & i32::MAX
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A batch after `before`, with `gap` offsets of other producers between them, and `lag` ms later.
    fn batch(before: &RememberedBatch, records: i32, gap: i64, lag: i64) -> RememberedBatch {
        let base_offset = before.place.last_offset.plus(gap);
        RememberedBatch {
            first_sequence: before.last_sequence.wrapping_add(1) & i32::MAX,
            last_sequence: before.last_sequence.wrapping_add(records) & i32::MAX,
            place: BatchPlace {
                base_offset,
                last_offset: base_offset.plus(i64::from(records) - 1),
                timestamp: TimestampMs(before.place.timestamp.0.saturating_add(lag)),
            },
        }
    }

    fn of(batches: &[RememberedBatch]) -> LastBatches {
        let mut last = LastBatches::default();
        for batch in batches {
            last.push(*batch);
        }
        last
    }

    /// Three batches of ten records.
    fn three() -> [RememberedBatch; 3] {
        let first =
            batch(&RememberedBatch { last_sequence: i32::MAX - 14, ..NONE }, 10, 100, 1_700_000_000_000);
        let second = batch(&first, 10, 7, -3);
        [first, second, batch(&second, 10, 1, 5)]
    }

    #[test]
    fn batches_of_a_usual_client_take_no_memory_of_their_own() {
        let mut batches = three().to_vec();
        for records in [1, 65_536, 3, 500, 1] {
            batches.push(batch(batches.last().unwrap(), records, i64::from(u32::MAX), i64::from(i32::MIN)));
            let last = of(&batches);
            let packed = PackedBatches::of(&last);
            assert!(matches!(packed, PackedBatches::Close(_)), "{last:?}");
            assert_eq!(packed.unpack(), last);
        }
    }

    #[test]
    fn batches_without_a_short_form_are_kept_unpacked() {
        let [first, second, third] = three();
        let far = |gap, lag| [first, second, batch(&second, 10, gap, lag)];
        let changed = |change: &dyn Fn(&mut RememberedBatch)| {
            let mut other = second;
            change(&mut other);
            [first, other, third]
        };
        for batches in [
            far(1_i64 << 32, 0),
            far(0, 1_i64 << 31),
            far(-1, 0),
            [first, second, batch(&second, 65_537, 1, 1)],
            changed(&|batch| batch.first_sequence -= 1),
            changed(&|batch| batch.last_sequence += 1),
            changed(&|batch| (batch.first_sequence, batch.last_sequence) = (-1, -1)),
            changed(&|batch| batch.place.last_offset = Offset(batch.place.last_offset.0 + 1)),
        ] {
            let last = of(&batches);
            let packed = PackedBatches::of(&last);
            assert!(matches!(packed, PackedBatches::Any(_)), "{last:?}");
            assert_eq!(packed.unpack(), last);
        }
    }

    fn any_number() -> impl Strategy<Value = i64> {
        prop_oneof![-2..20_i64, any::<i64>(), Just(i64::MIN), Just(i64::MAX)]
    }

    fn any_batch() -> impl Strategy<Value = RememberedBatch> {
        let sequences = (any::<i32>(), prop_oneof![0..20_i32, any::<i32>()]);
        (sequences, any_number(), any_number(), any_number()).prop_map(|((first, span), base, last, time)| {
            RememberedBatch {
                first_sequence: first,
                last_sequence: first.wrapping_add(span),
                place: BatchPlace {
                    base_offset: Offset(base),
                    last_offset: Offset(last),
                    timestamp: TimestampMs(time),
                },
            }
        })
    }

    proptest! {
        #[test]
        fn nothing_is_lost_whatever_the_batches_are(batches in prop::collection::vec(any_batch(), 0..8)) {
            let last = of(&batches);
            prop_assert_eq!(PackedBatches::of(&last).unpack(), last);
        }

        #[test]
        fn nothing_is_lost_of_what_follows_in_order(
            start in any::<i32>(),
            steps in prop::collection::vec((1..70_000_i32, 1..5_000_000_000_i64, any::<i32>()), 1..8),
        ) {
            let mut batches = vec![RememberedBatch { last_sequence: start & i32::MAX, ..NONE }];
            for (records, gap, lag) in steps {
                batches.push(batch(batches.last().unwrap(), records, gap, i64::from(lag)));
            }
            let last = of(&batches[1..]);
            prop_assert_eq!(PackedBatches::of(&last).unpack(), last);
        }
    }
}

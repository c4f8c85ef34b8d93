//! One batch, from its first record to its outcome.

use std::sync::Arc;

use bytes::Bytes;
use riverrun_protocol::ErrorCode;
use riverrun_records::{
    BatchBuilder, BatchError, BatchOptions, Compression, Header, InvalidCause, ProducerStamp,
    UnverifiedBatch, increment_sequence, patch_producer,
};
use riverrun_types::limits::BATCH_RECORDS_MAX;
use riverrun_types::{NodeId, TimestampMs};
use tokio::time::Instant;

use super::delivery::{BatchPlace, Outcome};
use super::listener::{Audience, Enlist, RecordPlace};
use super::record::RecordRef;
use crate::error::ClientError;

/// Approximate memory of a batch besides that of its records, callbacks and tags: its place in a queue, its builder,
/// its outcome.
pub(super) const BATCH_BYTES: usize = 640;
/// Distance between the ids of two batches: as many parts as a batch may be split into lie between.
pub(super) const ID_STEP: u64 = 1 << 20;

/// A partition of the producer: the topic by its place in the accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct QueueKey {
    pub(super) topic: usize,
    pub(super) partition: i32,
}

/// Settings that all batches of a producer share.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchShape {
    pub(super) compression: Compression,
    pub(super) level: Option<i32>,
    /// Bytes at which a batch is full.
    pub(super) full_bytes: usize,
}

impl BatchShape {
    fn builder(&self, buffer: Vec<u8>) -> Box<BatchBuilder> {
        let options =
            BatchOptions { compression: self.compression, level: self.level, ..BatchOptions::default() };
        Box::new(BatchBuilder::with_buffer(options, buffer))
    }
}

#[derive(Debug)]
enum Body {
    Open(Box<BatchBuilder>),
    /// `memory_bytes` is the memory of `bytes`, which may be more than their length.
    Sealed {
        bytes: Bytes,
        memory_bytes: usize,
        stamp: ProducerStamp,
    },
}

/// A batch of records for one partition.
///
/// Invariants: `stamp` is set from the first attempt until the producer id changes; once sealed, records are neither
/// added nor compressed again. A batch that is dropped without an outcome passes an error to its records. No other
/// batch has an id from `id` to `id + id_span`.
pub(super) struct Batch {
    /// Rises with the time of creation, over all partitions.
    pub(super) id: u64,
    id_span: u64,
    pub(super) key: QueueKey,
    pub(super) created: Instant,
    /// Bytes of the producer's buffer that it has taken.
    pub(super) reserved_bytes: usize,
    outcome: Arc<Outcome>,
    audience: Audience,
    pub(super) stamp: Option<ProducerStamp>,
    pub(super) attempts: u32,
    /// The server that it was last sent to.
    pub(super) sent_to: Option<NodeId>,
    pub(super) last_error: Option<ClientError>,
    shape: BatchShape,
    record_count: i32,
    /// True if further records go elsewhere although there is room.
    complete: bool,
    body: Body,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("id", &self.id)
            .field("key", &self.key)
            .field("stamp", &self.stamp)
            .field("attempts", &self.attempts)
            .field("record_count", &self.record_count)
            .finish_non_exhaustive()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.tell(Err(ClientError::Closed));
    }
}

/// A batch and its outcome, which its records do not have yet.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) batch: Batch,
    pub(super) result: Result<BatchPlace, ClientError>,
}

/// The memory of a completed batch.
#[derive(Default)]
pub(super) struct Spare {
    pub(super) buffer: Vec<u8>,
    /// An empty audience, with capacity.
    audience: Audience,
}

impl From<Vec<u8>> for Spare {
    fn from(buffer: Vec<u8>) -> Self {
        Self { buffer, audience: Audience::default() }
    }
}

impl std::fmt::Debug for Spare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spare").field("capacity", &self.buffer.capacity()).finish_non_exhaustive()
    }
}

impl Batch {
    /// An empty batch whose records are written into `memory`.
    pub(super) fn new(
        id: u64,
        key: QueueKey,
        outcome: Arc<Outcome>,
        shape: BatchShape,
        memory: impl Into<Spare>,
    ) -> Self {
        let Spare { buffer, audience } = memory.into();
        Self {
            id,
            id_span: ID_STEP,
            key,
            created: Instant::now(),
            reserved_bytes: 0,
            outcome,
            audience,
            stamp: None,
            attempts: 0,
            sent_to: None,
            last_error: None,
            shape,
            record_count: 0,
            complete: false,
            body: Body::Open(shape.builder(buffer)),
        }
    }

    /// Closes the batch to further records: these go to another partition.
    pub(super) fn complete(&mut self) {
        self.complete = true;
    }

    /// True if a record of at most `record_bytes` still fits.
    pub(super) fn has_room(&self, record_bytes: usize) -> bool {
        match &self.body {
            // The following sequence numbers are given away.
            Body::Open(_) if self.attempts > 0 || self.complete || self.has_all_records() => false,
            Body::Open(builder) => builder.size_bytes() + record_bytes <= self.shape.full_bytes,
            Body::Sealed { .. } => false,
        }
    }

    /// True if waiting for more records is useless.
    pub(super) fn is_full(&self) -> bool {
        match &self.body {
            Body::Open(_) if self.complete || self.has_all_records() => true,
            Body::Open(builder) => builder.size_bytes() >= self.shape.full_bytes,
            Body::Sealed { .. } => true,
        }
    }

    /// True if it has as many records as a batch may have, however small they are.
    fn has_all_records(&self) -> bool {
        self.record_count >= BATCH_RECORDS_MAX
    }

    /// Most bytes that it takes in a request.
    pub(super) fn size_bytes(&self) -> usize {
        match &self.body {
            Body::Open(builder) => builder.size_bytes(),
            Body::Sealed { bytes, .. } => bytes.len(),
        }
    }

    /// Bytes of its memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let records = match &self.body {
            Body::Open(builder) => builder.capacity_bytes(),
            Body::Sealed { memory_bytes, .. } => *memory_bytes,
        };
        BATCH_BYTES + records + self.audience.memory_bytes()
    }

    /// Name of its topic.
    pub(super) fn topic(&self) -> &Arc<str> {
        self.outcome.topic()
    }

    pub(super) fn record_count(&self) -> i32 {
        self.record_count
    }

    /// True if the server may have it under its stamp: it was sent, and the last answer was not that its sequence
    /// number does not fit.
    pub(super) fn may_be_there(&self) -> bool {
        let code = self.last_error.as_ref().and_then(ClientError::code);
        let refused = matches!(
            code,
            Some(
                ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
                    | ErrorCode::UNKNOWN_PRODUCER_ID
                    | ErrorCode::INVALID_PRODUCER_EPOCH
            )
        );
        self.stamp.is_some() && self.attempts > 0 && !refused
    }

    /// Encodes a record into the batch, which must be open.
    pub(super) fn append<W: Enlist>(
        &mut self,
        record: &RecordRef<'_>,
        timestamp: TimestampMs,
        reserved_bytes: usize,
        waiter: &mut W,
    ) -> Result<W::Handle, ClientError> {
        let Body::Open(builder) = &mut self.body else { return Err(ClientError::Closed) };
        let index = builder.append(timestamp, record.key, record.value, record.headers)?;
        self.record_count += 1;
        self.reserved_bytes += reserved_bytes;
        Ok(waiter.enlist(RecordPlace { index, timestamp }, &mut self.audience, &self.outcome))
    }

    /// Passes the outcome to the records, and returns the batch's memory if it has no other user.
    pub(super) fn finish(mut self, result: Result<BatchPlace, ClientError>) -> Option<Spare> {
        self.tell(result);
        let audience = std::mem::take(&mut self.audience);
        match &mut self.body {
            Body::Sealed { bytes, .. } if bytes.is_unique() => {
                Some(Spare { buffer: std::mem::take(bytes).into(), audience })
            }
            Body::Sealed { .. } | Body::Open(_) => None,
        }
    }

    fn tell(&mut self, result: Result<BatchPlace, ClientError>) {
        self.audience.tell(&self.outcome, &result);
        self.outcome.set(result);
    }

    /// The encoded batch with its stamp. Compresses at the first call; after a change of the stamp only the header is
    /// written again.
    pub(super) fn seal(&mut self) -> Result<Bytes, BatchError> {
        self.seal_and_spare().map(|(bytes, _)| bytes)
    }

    /// The same, and the memory that the records were written into, if they have left it.
    pub(super) fn seal_and_spare(&mut self) -> Result<(Bytes, Option<Spare>), BatchError> {
        let stamp = self.stamp.unwrap_or(ProducerStamp::NONE);
        if let Body::Sealed { bytes, memory_bytes, stamp: old } = &mut self.body {
            if *old != stamp {
                let mut patched = bytes.to_vec();
                patch_producer(&mut patched, stamp);
                (*memory_bytes, *bytes, *old) = (patched.capacity(), patched.into(), stamp);
            }
            return Ok((bytes.clone(), None));
        }
        let empty = Body::Sealed { bytes: Bytes::new(), memory_bytes: 0, stamp };
        let Body::Open(mut builder) = std::mem::replace(&mut self.body, empty) else {
            return Err(BatchError::CompressFailed(self.shape.compression));
        };
        builder.set_producer(stamp);
        let (built, buffer) = builder.build_and_buffer()?;
        let memory_bytes = built.capacity();
        let built = Bytes::from(built);
        self.body = Body::Sealed { bytes: built.clone(), memory_bytes, stamp };
        Ok((built, buffer.map(Spare::from)))
    }

    /// Splits a batch that is too large for the server into two, with half of the records each. They inherit its
    /// sequence numbers, its age and its attempts. Fails, and then changes nothing, with fewer than two records.
    pub(super) fn split(mut self) -> Result<[Self; 2], Box<(Self, BatchError)>> {
        let at = self.record_count / 2;
        let builders = match self.seal().and_then(|bytes| self.rebuild(&bytes, at)) {
            Ok(builders) => builders,
            Err(error) => return Err(Box::new((self, error))),
        };
        let (first, second) = self.outcome.split(at);
        let mut audience = std::mem::take(&mut self.audience);
        let later = audience.split_off(at);
        let [first_builder, second_builder] = builders;
        let half_span = self.id_span / 2;
        let part = |first_record: i32, outcome, audience, builder: BatchBuilder| Self {
            id: self.id + if first_record > 0 { half_span } else { 0 },
            id_span: half_span,
            reserved_bytes: 0,
            outcome,
            audience,
            stamp: self.stamp.map(|stamp| ProducerStamp {
                base_sequence: increment_sequence(stamp.base_sequence, first_record),
                ..stamp
            }),
            key: self.key,
            created: self.created,
            attempts: self.attempts,
            sent_to: self.sent_to,
            last_error: self.last_error.clone(),
            shape: self.shape,
            record_count: builder.record_count(),
            complete: self.complete,
            body: Body::Open(Box::new(builder)),
        };
        let mut parts = [part(0, first, audience, first_builder), part(at, second, later, second_builder)];
        parts[0].reserved_bytes = self.reserved_bytes / 2;
        parts[1].reserved_bytes = self.reserved_bytes - parts[0].reserved_bytes;
        Ok(parts)
    }

    /// The records before `at`, and those from `at` on, in builders of their own.
    fn rebuild(&self, bytes: &[u8], at: i32) -> Result<[BatchBuilder; 2], BatchError> {
        let mut parts = [*self.shape.builder(Vec::new()), *self.shape.builder(Vec::new())];
        let batch = UnverifiedBatch::only(bytes)?.verify()?;
        let mut headers: Vec<Header<'_>> = Vec::new();
        let records = batch.records()?;
        for (record, index) in records.into_iter().zip(0..) {
            let record = record?;
            headers.clear();
            headers.extend(record.headers());
            let part = &mut parts[usize::from(index >= at)];
            part.append(record.timestamp, record.key, record.value, &headers)?;
        }
        if parts.iter().any(BatchBuilder::is_empty) {
            return Err(InvalidCause::Empty.into());
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use riverrun_types::{Offset, ProducerEpoch, ProducerId};

    use super::*;
    use crate::producer::listener::{Callback, CompletedRecords, DeliveryListener, Tagging};

    const SHAPE: BatchShape = BatchShape { compression: Compression::Lz4, level: None, full_bytes: 1000 };

    #[test]
    fn a_new_stamp_is_written_into_a_sealed_batch() {
        let key = QueueKey { topic: 0, partition: 0 };
        let mut batch = Batch::new(1, key, Outcome::new("t".into(), 0), SHAPE, Vec::new());
        batch.append(&RecordRef::new("t", b"v"), TimestampMs(1), 10, &mut None).unwrap();
        for (id, base_sequence) in [(5, 50), (6, 0)] {
            let stamp = ProducerStamp { id: ProducerId(id), epoch: ProducerEpoch(0), base_sequence };
            batch.stamp = Some(stamp);
            let bytes = batch.seal().unwrap();
            let verified = UnverifiedBatch::only(&bytes).unwrap().verify().unwrap();
            assert_eq!(verified.producer_id(), stamp.id);
            assert_eq!(verified.base_sequence(), stamp.base_sequence);
        }
        assert!(!batch.has_room(1));
    }

    /// Values, and the offsets that their callbacks got.
    type Told = Arc<Mutex<Vec<(String, Option<i64>)>>>;

    fn batch_of(values: &[&str], told: &Told) -> Batch {
        let key = QueueKey { topic: 0, partition: 0 };
        let mut batch = Batch::new(ID_STEP, key, Outcome::new("t".into(), 0), SHAPE, Vec::new());
        for value in values {
            let (name, told) = ((*value).to_owned(), Arc::clone(told));
            let callback = Callback::new(move |result| {
                told.lock().unwrap().push((name, result.ok().map(|metadata| metadata.offset.0)));
            });
            let record = RecordRef::new("t", value.as_bytes());
            batch.append(&record, TimestampMs(1), 10, &mut Some(callback)).unwrap();
        }
        batch
    }

    #[test]
    fn the_parts_of_a_batch_take_its_place_record_by_record() {
        let told = Told::default();
        let mut batch = batch_of(&["a", "b", "c", "d", "e"], &told);
        batch.stamp = Some(ProducerStamp { id: ProducerId(5), epoch: ProducerEpoch(0), base_sequence: 7 });
        batch.attempts = 1;
        let [mut first, mut second] = batch.split().unwrap();
        assert!(!second.has_room(1), "its sequence numbers are given away");
        let sequence = |part: &Batch| part.stamp.unwrap().base_sequence;
        assert_eq!((sequence(&first), first.record_count()), (7, 2));
        assert_eq!((sequence(&second), second.record_count()), (9, 3));
        assert_eq!(first.reserved_bytes + second.reserved_bytes, 50);
        assert!(first.id < second.id && second.id < 2 * ID_STEP);
        assert!(UnverifiedBatch::only(&first.seal().unwrap()).unwrap().verify().is_ok());
        assert!(UnverifiedBatch::only(&second.seal().unwrap()).unwrap().verify().is_ok());
        first.finish(Ok(BatchPlace { base_offset: Some(Offset(70)), append_time: None }));
        drop(second);
        let told = std::mem::take(&mut *told.lock().unwrap());
        let expected = [("a", Some(70)), ("b", Some(71)), ("c", None), ("d", None), ("e", None)];
        assert_eq!(told, expected.map(|(name, offset)| (name.to_owned(), offset)));
    }

    #[test]
    fn one_record_cannot_be_split() {
        let told = Told::default();
        let Err(failed) = batch_of(&["a"], &told).split() else { panic!("split") };
        let (batch, _) = *failed;
        assert_eq!(batch.record_count(), 1);
        assert!(told.lock().unwrap().is_empty(), "it has no outcome yet");
    }

    #[test]
    fn panicking_callback_does_not_stop_the_others() {
        let told = Told::default();
        let mut batch = batch_of(&[], &told);
        let (after, record) = (Arc::clone(&told), RecordRef::new("t", b"v"));
        let panics = Callback::new(|_| panic!("on purpose"));
        let tells = Callback::new(move |_| after.lock().unwrap().push(("after".to_owned(), None)));
        for callback in [panics, tells] {
            batch.append(&record, TimestampMs(1), 1, &mut Some(callback)).unwrap();
        }
        batch.finish(Err(ClientError::Closed));
        assert_eq!(told.lock().unwrap().len(), 1);
    }

    /// Tags and offsets of one call.
    type Call = Vec<(u32, Option<i64>)>;

    /// Records the arguments of each call.
    #[derive(Default)]
    struct Calls(Mutex<Vec<Call>>);

    impl DeliveryListener for Calls {
        type Tag = u32;

        fn completed(&self, records: &CompletedRecords<'_, u32>) {
            let each: Vec<_> =
                records.each().map(|(tag, place)| (*tag, place.ok().map(|place| place.offset.0))).collect();
            assert!(records.tags().eq(each.iter().map(|(tag, _)| tag)));
            assert_eq!(records.result().is_ok(), each.iter().all(|(_, offset)| offset.is_some()));
            self.0.lock().unwrap().push(each);
        }
    }

    fn tagged_batch(tags: &[(u32, &Arc<Calls>)]) -> Batch {
        let key = QueueKey { topic: 0, partition: 0 };
        let mut batch = Batch::new(ID_STEP, key, Outcome::new("t".into(), 0), SHAPE, Vec::new());
        for (tag, listener) in tags {
            let mut tagging = Tagging { listener: *listener, tag: Some(*tag) };
            batch.append(&RecordRef::new("t", b"v"), TimestampMs(1), 10, &mut tagging).unwrap();
            assert!(tagging.tag.is_none(), "the batch has it");
        }
        batch
    }

    #[test]
    fn listener_gets_its_records_of_a_batch_in_one_ordered_call() {
        let (one, other) = (Arc::<Calls>::default(), Arc::<Calls>::default());
        let batch = tagged_batch(&[(7, &one), (8, &other), (9, &one)]);
        batch.finish(Ok(BatchPlace { base_offset: Some(Offset(40)), append_time: None }));
        assert_eq!(*one.0.lock().unwrap(), [vec![(7, Some(40)), (9, Some(42))]]);
        assert_eq!(*other.0.lock().unwrap(), [vec![(8, Some(41))]]);
    }

    #[test]
    fn reused_memory_keeps_no_listener_of_the_former_batch() {
        let (one, other) = (Arc::<Calls>::default(), Arc::<Calls>::default());
        let mut batch = tagged_batch(&[(1, &one), (2, &other)]);
        drop(batch.seal().unwrap());
        let memory = batch.finish(Err(ClientError::Closed)).unwrap();
        assert_eq!(Arc::strong_count(&one), 1, "a listener is not kept");
        let key = QueueKey { topic: 0, partition: 0 };
        let mut batch = Batch::new(ID_STEP, key, Outcome::new("t".into(), 0), SHAPE, memory);
        for tag in [3, 4] {
            let mut tagging = Tagging { listener: &other, tag: Some(tag) };
            batch.append(&RecordRef::new("t", b"v"), TimestampMs(1), 10, &mut tagging).unwrap();
        }
        batch.finish(Ok(BatchPlace { base_offset: Some(Offset(5)), append_time: None }));
        assert_eq!(*one.0.lock().unwrap(), [vec![(1, None)]]);
        assert_eq!(*other.0.lock().unwrap(), [vec![(2, None)], vec![(3, Some(5)), (4, Some(6))]]);
    }

    #[test]
    fn a_listener_is_told_of_the_parts_of_a_batch_that_was_split() {
        let (one, late) = (Arc::<Calls>::default(), Arc::<Calls>::default());
        let [mut first, mut second] =
            tagged_batch(&[(1, &one), (2, &one), (3, &one), (4, &late)]).split().unwrap();
        drop((first.seal().unwrap(), second.seal().unwrap()));
        first.finish(Ok(BatchPlace { base_offset: Some(Offset(70)), append_time: None }));
        drop(second);
        assert_eq!(*one.0.lock().unwrap(), [vec![(1, Some(70)), (2, Some(71))], vec![(3, None)]]);
        assert_eq!(*late.0.lock().unwrap(), [vec![(4, None)]]);
    }

    #[test]
    fn batch_with_the_most_records_is_full() {
        let shape = BatchShape { compression: Compression::None, full_bytes: 1 << 30, ..SHAPE };
        let key = QueueKey { topic: 0, partition: 0 };
        let mut batch = Batch::new(1, key, Outcome::new("t".into(), 0), shape, Vec::new());
        let record = RecordRef::new("t", b"");
        for _ in 1..BATCH_RECORDS_MAX {
            batch.append(&record, TimestampMs(1), 1, &mut None).unwrap();
        }
        assert!(batch.has_room(1) && !batch.is_full());
        batch.append(&record, TimestampMs(1), 1, &mut None).unwrap();
        assert!(!batch.has_room(1) && batch.is_full());
    }

    #[test]
    fn the_memory_of_a_batch_that_is_compressed_can_be_used_at_once() {
        let key = QueueKey { topic: 0, partition: 0 };
        let buffer = Vec::with_capacity(1000);
        let at = buffer.as_ptr();
        let mut batch = Batch::new(1, key, Outcome::new("t".into(), 0), SHAPE, buffer);
        batch.append(&RecordRef::new("t", &[b'v'; 500]), TimestampMs(1), 10, &mut None).unwrap();
        let (bytes, spare) = batch.seal_and_spare().unwrap();
        assert!(UnverifiedBatch::only(&bytes).unwrap().verify().is_ok());
        let spare = spare.unwrap().buffer;
        assert_eq!((spare.as_ptr(), spare.capacity()), (at, 1000));
        assert!(batch.seal_and_spare().unwrap().1.is_none(), "only once");
    }

    #[test]
    fn the_memory_of_a_batch_that_is_done_can_be_used_again() {
        let shape = BatchShape { compression: Compression::None, ..SHAPE };
        let key = QueueKey { topic: 0, partition: 0 };
        let buffer = Vec::with_capacity(1000);
        let at = buffer.as_ptr();
        let mut batch = Batch::new(1, key, Outcome::new("t".into(), 0), shape, buffer);
        batch.append(&RecordRef::new("t", b"v"), TimestampMs(1), 10, &mut None).unwrap();
        drop(batch.seal().unwrap());
        let Spare { buffer, .. } = batch.finish(Err(ClientError::Closed)).unwrap();
        assert_eq!((buffer.as_ptr(), buffer.capacity()), (at, 1000));
    }
}

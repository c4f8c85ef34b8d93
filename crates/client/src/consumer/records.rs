//! From the bytes of a fetch to records.
//!
//! Guarantees that keys and values are slices of the fetched bytes, or of those that they inflate to, and that
//! records of aborted transactions and control batches are hidden.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use riverrun_protocol::ApiKey;
use riverrun_protocol::fetch_response::AbortedTransaction;
use riverrun_records::{Batch, BatchError, BatchHeader, Record, UnverifiedBatch};
use riverrun_types::{LeaderEpoch, Offset, ProducerId, TimestampMs};

use super::assignment::Incarnation;
use crate::error::ClientError;
use crate::topic_partition::TopicPartition;

/// Type of the control record that ends an aborted transaction.
const CONTROL_ABORT: i16 = 0;
/// Bytes of the shortest record: its length, attributes, both deltas, no key, no value, and no headers.
const RECORD_BYTES_MIN: usize = 7;

/// A record that was read. Its bytes share memory with those of its partition in the same fetch, and keep all of it
/// alive: up to `max.partition.fetch.bytes`, or twice that if that is most of one answer. To keep a few of many
/// records for long, keep them [detached](Self::detached).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerRecord {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// Its position in the partition.
    pub offset: Offset,
    /// Its timestamp.
    pub timestamp: TimestampMs,
    /// The key.
    pub key: Option<Bytes>,
    /// The value; `None` is a tombstone in a compacted topic.
    pub value: Option<Bytes>,
    /// Headers, in order; names may repeat.
    pub headers: Vec<(String, Option<Bytes>)>,
}

impl ConsumerRecord {
    /// The record with memory of its own.
    #[must_use]
    pub fn detached(self) -> Self {
        let own = |part: Option<Bytes>| part.map(|bytes| Bytes::copy_from_slice(&bytes));
        let headers = self.headers.into_iter().map(|(name, value)| (name, own(value))).collect();
        Self { key: own(self.key), value: own(self.value), headers, ..self }
    }
}

/// Whole batches of one partition, from one fetch.
///
/// Invariants: `bytes` begin with a batch or are empty; `transactions` are sorted by their first offset, those that
/// began before the read position are in `aborted`.
#[derive(Debug)]
pub(super) struct Chunk {
    check_crcs: bool,
    /// Bytes of memory that it keeps alive, however much of it is left.
    pub(super) pinned_bytes: usize,
    /// Leader epoch of its last batch.
    pub(super) last_epoch: LeaderEpoch,
    pub(super) partition: TopicPartition,
    /// The position change of the partition that this was fetched for.
    pub(super) incarnation: Incarnation,
    /// The offset after the last batch.
    pub(super) end: Offset,
    bytes: Bytes,
    transactions: Vec<(Offset, ProducerId)>,
    aborted: HashSet<i64>,
}

impl Chunk {
    /// The whole batches of `bytes`, which a server may cut anywhere, and which were requested from `from` on; `None`
    /// without a byte. `pinned_bytes` is the memory that they keep alive. If a batch cannot be delimited, it and the
    /// rest are left out; that is an error only for the first one, so that the batches before it are read.
    pub(super) fn new(
        partition: TopicPartition,
        incarnation: Incarnation,
        from: Offset,
        mut bytes: Bytes,
        pinned_bytes: usize,
        aborted: &[AbortedTransaction],
    ) -> Result<Option<Self>, ClientError> {
        let (mut whole_bytes, mut end) = (0, None);
        let mut last_epoch = LeaderEpoch::UNKNOWN;
        while whole_bytes < bytes.len() {
            match first_batch(&bytes[whole_bytes..]) {
                Ok((header, batch_bytes)) => {
                    end = Some(end_after(&header, end.unwrap_or(Offset::ZERO))?);
                    last_epoch = header.leader_epoch();
                    whole_bytes += batch_bytes;
                }
                Err(_) if end.is_some() => break,
                Err(source) => {
                    return Err(ClientError::Unreadable { partition, offset: from, next: None, source });
                }
            }
        }
        bytes.truncate(whole_bytes);
        let mut transactions: Vec<_> =
            aborted.iter().map(|one| (Offset(one.first_offset), ProducerId(one.producer_id))).collect();
        transactions.sort_unstable_by_key(|(first, _)| std::cmp::Reverse(*first));
        Ok(end.map(|end| Self {
            check_crcs: true,
            pinned_bytes,
            last_epoch,
            partition,
            incarnation,
            end,
            bytes,
            transactions,
            aborted: HashSet::new(),
        }))
    }

    /// Bytes left to read.
    pub(super) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Sets whether its checksums are verified.
    pub(super) fn checked(self, check_crcs: bool) -> Self {
        Self { check_crcs, ..self }
    }

    /// Puts the records of the next batch, from `position` on, into the sink, and moves the position behind it.
    /// Returns the batch's leader epoch; `None` after the last batch. After an error the position is behind the
    /// records that the sink keeps.
    pub(super) fn next_batch(
        &mut self,
        position: &mut Offset,
        sink: &mut impl Sink,
    ) -> Result<Option<LeaderEpoch>, BatchError> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let (unverified, _) = UnverifiedBatch::split_first(&self.bytes)?;
        let taken = self.bytes.slice_ref(unverified.bytes());
        let unverified = UnverifiedBatch::only(&taken)?;
        let batch = if self.check_crcs { unverified.verify()? } else { unverified.trust()? };
        let next = batch.next_offset();
        self.abort_up_to(batch.last_offset());
        if batch.is_control() {
            self.end_transaction(&batch)?;
        } else if !(batch.is_transactional() && self.aborted.contains(&batch.producer_id().0))
            && next > *position
        {
            read_batch(&self.partition, &taken, &batch, position, sink)?;
        }
        let _ = self.bytes.split_to(taken.len());
        *position = next.max(*position);
        Ok(Some(batch.leader_epoch()))
    }

    /// The error for a next batch that [`next_batch`](Self::next_batch) could not read from `position` on.
    pub(super) fn unreadable(&self, position: Offset, source: BatchError) -> ClientError {
        let header = first_batch(&self.bytes).ok().map(|(header, _)| header);
        ClientError::Unreadable {
            partition: self.partition.clone(),
            offset: header.as_ref().map_or(position, |header| position.max(header.base_offset())),
            next: header.map(|header| header.next_offset()),
            source,
        }
    }

    fn abort_up_to(&mut self, last: Offset) {
        while let Some((_, producer)) = self.transactions.pop_if(|(first, _)| *first <= last) {
            self.aborted.insert(producer.0);
        }
    }

    fn end_transaction(&mut self, batch: &Batch<'_>) -> Result<(), BatchError> {
        for record in &batch.records()? {
            // A control record's key is its version and its type.
            if let Some([_, _, high, low, ..]) = record?.key
                && i16::from_be_bytes([*high, *low]) == CONTROL_ABORT
            {
                self.aborted.remove(&batch.producer_id().0);
            }
        }
        Ok(())
    }
}

/// The header of the first batch, and its length.
fn first_batch(bytes: &[u8]) -> Result<(BatchHeader, usize), BatchError> {
    let (batch, _) = UnverifiedBatch::split_first(bytes)?;
    Ok((BatchHeader::parse(batch.bytes())?, batch.bytes().len()))
}

/// The offset after a batch that begins at `from` or later.
fn end_after(header: &BatchHeader, from: Offset) -> Result<Offset, ClientError> {
    let (base, last) = (header.base_offset(), header.last_offset());
    if base < from || last < base || last == header.next_offset() {
        let what = format!("a batch of the offsets {base} to {last}, where the next one is {from}");
        return Err(ClientError::Impossible { api: ApiKey::Fetch, what });
    }
    Ok(header.next_offset())
}

fn read_batch(
    partition: &TopicPartition,
    bytes: &Bytes,
    batch: &Batch<'_>,
    position: &mut Offset,
    sink: &mut impl Sink,
) -> Result<(), BatchError> {
    let records = batch.records()?;
    let shared = records.inflated().unwrap_or(bytes);
    // Bounded by the bytes: only the header, which may be wrong, gives the number of records.
    let most = records.bytes().len() / RECORD_BYTES_MIN;
    sink.reserve(usize::try_from(batch.record_count()).unwrap_or_default().min(most));
    let (before, from) = (sink.len(), *position);
    for record in &records {
        match record {
            Ok(record) if record.offset < from => {}
            Ok(record) => {
                sink.put(partition, shared, &record);
                *position = record.offset.next();
            }
            Err(error) => {
                if sink.take_back(before) {
                    *position = from;
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

/// A destination of records.
pub(super) trait Sink {
    /// Number of records in it.
    fn len(&self) -> usize;

    /// Announces how many records follow.
    fn reserve(&mut self, records: usize);

    /// Takes a record, whose bytes lie in `shared`.
    fn put(&mut self, partition: &TopicPartition, shared: &Bytes, record: &Record<'_>);

    /// Removes all but the first `len` records, and returns whether it could.
    fn take_back(&mut self, len: usize) -> bool;
}

impl Sink for Vec<ConsumerRecord> {
    fn len(&self) -> usize {
        self.len()
    }

    fn reserve(&mut self, records: usize) {
        self.reserve(records);
    }

    fn put(&mut self, partition: &TopicPartition, shared: &Bytes, record: &Record<'_>) {
        let slice = |part: Option<&[u8]>| part.map(|part| shared.slice_ref(part));
        self.push(ConsumerRecord {
            topic: Arc::clone(&partition.topic),
            partition: partition.partition,
            offset: record.offset,
            timestamp: record.timestamp,
            key: slice(record.key),
            value: slice(record.value),
            headers: record
                .headers()
                .map(|header| (String::from_utf8_lossy(header.key).into_owned(), slice(header.value)))
                .collect(),
        });
    }

    fn take_back(&mut self, len: usize) -> bool {
        self.truncate(len);
        true
    }
}

/// Passes each record to a function, borrowed.
pub(super) struct Visitor<F> {
    pub(super) each: F,
    pub(super) seen: usize,
}

impl<F: FnMut(&TopicPartition, &Record<'_>)> Sink for Visitor<F> {
    fn len(&self) -> usize {
        self.seen
    }

    fn reserve(&mut self, _: usize) {}

    fn put(&mut self, partition: &TopicPartition, _: &Bytes, record: &Record<'_>) {
        (self.each)(partition, record);
        self.seen += 1;
    }

    fn take_back(&mut self, len: usize) -> bool {
        self.seen == len
    }
}

#[cfg(test)]
mod tests {
    use riverrun_records::{
        BatchBuilder, BatchOptions, Compression, ProducerStamp, layout, patch_max_timestamp,
    };
    use riverrun_types::ProducerEpoch;

    use super::*;

    const FIRST: Incarnation = Incarnation { slot: 0, number: 1 };

    fn batch(base: i64, values: &[&str], change: impl FnOnce(&mut BatchOptions)) -> Vec<u8> {
        let mut options = BatchOptions { base_offset: Offset(base), ..BatchOptions::default() };
        change(&mut options);
        let mut builder = BatchBuilder::new(options);
        for value in values {
            // A control record's key; ordinary records may have the same one.
            builder.append(TimestampMs(1), Some(&[0, 0, 0, 0]), Some(value.as_bytes()), &[]).unwrap();
        }
        builder.build().unwrap()
    }

    fn of_producer(options: &mut BatchOptions) {
        options.producer = ProducerStamp { id: ProducerId(9), epoch: ProducerEpoch(0), base_sequence: 0 };
        options.transactional = true;
    }

    fn chunk(bytes: Vec<u8>, aborted: &[AbortedTransaction]) -> Chunk {
        let (partition, size_bytes) = (TopicPartition::new("t", 0), bytes.len());
        Chunk::new(partition, FIRST, Offset::ZERO, bytes.into(), size_bytes, aborted)
            .unwrap()
            .expect("batches")
    }

    fn read_all(chunk: &mut Chunk, mut position: Offset) -> (Vec<String>, Offset) {
        let mut records = Vec::new();
        while chunk.next_batch(&mut position, &mut records).unwrap().is_some() {}
        let text =
            |record: &ConsumerRecord| String::from_utf8_lossy(record.value.as_ref().unwrap()).into_owned();
        (records.iter().map(text).collect(), position)
    }

    #[test]
    fn records_before_the_position_are_left_out() {
        for compression in Compression::ALL {
            let bytes = batch(10, &["a", "b", "c"], |options| options.compression = compression);
            let (values, position) = read_all(&mut chunk(bytes, &[]), Offset(11));
            assert_eq!(
                (values, position),
                (vec!["b".to_owned(), "c".to_owned()], Offset(13)),
                "{compression}"
            );
        }
    }

    #[test]
    fn a_batch_cut_at_the_end_is_fetched_again_and_not_an_error() {
        let mut bytes = batch(0, &["a"], |_| {});
        let second = batch(1, &["b"], |_| {});
        bytes.extend_from_slice(&second[..second.len() - 1]);
        let mut chunk = chunk(bytes, &[]);
        assert_eq!(chunk.end, Offset(1));
        assert_eq!(read_all(&mut chunk, Offset(0)), (vec!["a".to_owned()], Offset(1)));
        let cut = second[..second.len() - 1].to_vec();
        let alone = Chunk::new(TopicPartition::new("t", 0), FIRST, Offset(1), cut.into(), 0, &[]);
        assert!(alone.is_err(), "nothing can be read, so it must not go on for ever");
    }

    #[test]
    fn a_damaged_batch_is_an_error_and_leaves_nothing() {
        let mut bytes = batch(0, &["a"], |_| {});
        // The value's only byte; the count of headers follows it.
        let value = bytes.len() - 2;
        bytes[value] ^= 1;
        let (mut records, mut position) = (Vec::<ConsumerRecord>::new(), Offset(0));
        assert!(chunk(bytes.clone(), &[]).next_batch(&mut position, &mut records).is_err());
        assert_eq!((records, position), (vec![], Offset(0)));
        let mut unchecked = Chunk { check_crcs: false, ..chunk(bytes, &[]) };
        let mut records = Vec::<ConsumerRecord>::new();
        assert!(unchecked.next_batch(&mut position, &mut records).is_ok(), "the checksum is not verified");
    }

    #[test]
    fn false_record_count_is_an_error_without_an_allocation() {
        for compression in Compression::ALL {
            let mut bytes = batch(0, &["a"], |options| options.compression = compression);
            for (at, value) in [(layout::LAST_OFFSET_DELTA, i32::MAX - 1), (layout::RECORD_COUNT, i32::MAX)] {
                bytes[at..][..4].copy_from_slice(&value.to_be_bytes());
            }
            // Also the checksum of that batch.
            patch_max_timestamp(&mut bytes, TimestampMs(1));
            let (mut records, mut position) = (Vec::<ConsumerRecord>::new(), Offset(0));
            let read = chunk(bytes, &[]).next_batch(&mut position, &mut records);
            assert!(read.is_err(), "{compression}: {read:?}");
            assert_eq!((records.len(), position), (0, Offset(0)), "{compression}");
            assert!(records.capacity() < 10, "{compression}: {}", records.capacity());
        }
    }

    #[test]
    fn the_shortest_record_is_as_short_as_can_be() {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.append(TimestampMs(0), None, None, &[]).unwrap();
        assert_eq!(builder.build().unwrap().len(), layout::HEADER_BYTES + RECORD_BYTES_MIN);
    }

    #[test]
    fn unreadable_batch_is_named_with_partition_and_offsets() {
        let mut bytes = batch(5, &["a", "b", "c"], |_| {});
        let value = bytes.len() - 2;
        bytes[value] ^= 1;
        for (position, at) in [(0, 5), (6, 6)] {
            let (mut position, mut damaged) = (Offset(position), chunk(bytes.clone(), &[]));
            let error = damaged.next_batch(&mut position, &mut Vec::<ConsumerRecord>::new()).unwrap_err();
            let told = damaged.unreadable(position, error);
            assert!(matches!(told, ClientError::Unreadable { next: Some(Offset(8)), .. }), "{told:?}");
            let text = told.to_string();
            assert!(text.starts_with(&format!("t-0 cannot be read at offset {at}: corrupt batch")), "{text}");
        }
    }

    #[test]
    fn batches_before_an_unreadable_length_are_read() {
        let mut bytes = batch(0, &["a"], |_| {});
        let first_bytes = bytes.len();
        bytes.extend(batch(1, &["b"], |_| {}));
        bytes[first_bytes + layout::LENGTH..][..4].copy_from_slice(&(-1_i32).to_be_bytes());
        assert_eq!(read_all(&mut chunk(bytes.clone(), &[]), Offset(0)), (vec!["a".to_owned()], Offset(1)));
        let rest = Bytes::from(bytes).split_off(first_bytes);
        let alone = Chunk::new(TopicPartition::new("t", 0), FIRST, Offset(1), rest, 0, &[]);
        assert!(
            matches!(alone, Err(ClientError::Unreadable { offset: Offset(1), next: None, .. })),
            "{alone:?}"
        );
    }

    /// A batch's base offset is protected by no checksum.
    #[test]
    fn offsets_that_cannot_be_are_an_error() {
        let partition = TopicPartition::new("t", 0);
        let of = |bytes: Vec<u8>| Chunk::new(partition.clone(), FIRST, Offset::ZERO, bytes.into(), 0, &[]);
        for base in [-1, i64::MIN, i64::MAX, i64::MAX - 1] {
            let mut bytes = batch(0, &["a", "b"], |_| {});
            bytes[layout::BASE_OFFSET..layout::LENGTH].copy_from_slice(&base.to_be_bytes());
            assert!(matches!(of(bytes), Err(ClientError::Impossible { .. })), "{base}");
        }
        let back = [batch(5, &["a"], |_| {}), batch(5, &["b"], |_| {})].concat();
        assert!(
            matches!(of(back), Err(ClientError::Impossible { .. })),
            "the second is not behind the first"
        );
        let last = batch(i64::MAX - 1, &["a"], |_| {});
        assert_eq!(of(last).unwrap().expect("a batch").end, Offset(i64::MAX));
    }

    #[test]
    fn a_detached_record_keeps_nothing_else_alive() {
        let bytes = Bytes::from(batch(0, &["a", "b"], |_| {}));
        let partition = TopicPartition::new("t", 0);
        let chunk = Chunk::new(partition, FIRST, Offset::ZERO, bytes.clone(), 0, &[]);
        let mut chunk = chunk.unwrap().expect("a batch");
        let mut records = Vec::<ConsumerRecord>::new();
        chunk.next_batch(&mut Offset::ZERO.clone(), &mut records).unwrap();
        drop(chunk);
        let detached: Vec<_> = records.iter().cloned().map(ConsumerRecord::detached).collect();
        assert_eq!(detached, records);
        drop(records);
        assert!(bytes.is_unique());
    }

    #[test]
    fn records_before_the_damage_are_not_repeated() {
        let mut bytes = batch(0, &["a", "b"], |_| {});
        // The second record's length exceeds the batch.
        let second = bytes.len() - (bytes.len() - layout::HEADER_BYTES) / 2;
        bytes[second] = 0x7e;
        let mut damaged = Chunk { check_crcs: false, ..chunk(bytes, &[]) };
        let mut shown = Vec::new();
        let mut visitor =
            Visitor { each: |_: &TopicPartition, one: &Record<'_>| shown.push(one.offset.0), seen: 0 };
        let mut position = Offset(0);
        assert!(damaged.next_batch(&mut position, &mut visitor).is_err());
        assert_eq!((shown, position), (vec![0], Offset(1)));
    }

    #[test]
    fn aborted_transactions_are_not_seen_and_their_end_is() {
        let mut bytes = batch(0, &["aborted"], of_producer);
        bytes.extend(batch(1, &["plain"], |_| {}));
        bytes.extend(batch(2, &["marker"], |options| {
            of_producer(options);
            options.control = true;
        }));
        bytes.extend(batch(3, &["committed"], of_producer));
        let aborted = [AbortedTransaction { producer_id: 9, first_offset: 0 }];
        let expected = vec!["plain".to_owned(), "committed".to_owned()];
        assert_eq!(read_all(&mut chunk(bytes, &aborted), Offset(0)), (expected, Offset(4)));
    }
}

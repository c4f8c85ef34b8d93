//! From the bytes of a fetch to records.
//!
//! Guarantees that keys and values are slices of what was fetched, or of what it inflated to, and that records of
//! aborted transactions and control batches are not seen.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use riverrun_protocol::fetch_response::AbortedTransaction;
use riverrun_records::{Batch, BatchError, CorruptCause, Record, UnverifiedBatch};
use riverrun_types::{Offset, ProducerId, TimestampMs};

use crate::topic_partition::TopicPartition;

/// Type of the control record that ends an aborted transaction.
const CONTROL_ABORT: i16 = 0;

/// A record that was read. Its bytes share memory with all that was fetched with it.
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
    /// The value; none marks a deletion where a topic is compacted.
    pub value: Option<Bytes>,
    /// Headers, in order; names may repeat.
    pub headers: Vec<(String, Option<Bytes>)>,
}

/// Whole batches of one partition, from one fetch.
///
/// Invariants: `bytes` begin with a batch or are empty; `transactions` are sorted by their first offset, those
/// that began before what was read so far are in `aborted`.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) partition: TopicPartition,
    /// Which position of the partition this was fetched for.
    pub(super) incarnation: u64,
    /// The offset after the last batch.
    pub(super) end: Offset,
    bytes: Bytes,
    transactions: Vec<(Offset, ProducerId)>,
    aborted: HashSet<i64>,
}

impl Chunk {
    /// The whole batches of `bytes`, which a server may cut anywhere; none if there is no byte.
    pub(super) fn new(
        partition: TopicPartition,
        incarnation: u64,
        mut bytes: Bytes,
        aborted: &[AbortedTransaction],
    ) -> Result<Option<Self>, BatchError> {
        let (mut whole_bytes, mut end) = (0, None);
        while whole_bytes < bytes.len() {
            match UnverifiedBatch::split_first(&bytes[whole_bytes..]) {
                Ok((batch, _)) => {
                    end = Some(riverrun_records::BatchHeader::parse(batch.bytes())?.last_offset().next());
                    whole_bytes += batch.bytes().len();
                }
                Err(BatchError::Corrupt(CorruptCause::Cut)) if end.is_some() => break,
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(whole_bytes);
        let mut transactions: Vec<_> =
            aborted.iter().map(|one| (Offset(one.first_offset), ProducerId(one.producer_id))).collect();
        transactions.sort_unstable_by_key(|(first, _)| std::cmp::Reverse(*first));
        Ok(end.map(|end| Self { partition, incarnation, end, bytes, transactions, aborted: HashSet::new() }))
    }

    /// Appends the records of the next batch, from `position` on, and answers the position after it; none after
    /// the last batch. After an error nothing of the batch was appended.
    pub(super) fn next_batch(
        &mut self,
        position: Offset,
        records: &mut Vec<ConsumerRecord>,
    ) -> Result<Option<Offset>, BatchError> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let (unverified, _) = UnverifiedBatch::split_first(&self.bytes)?;
        let taken = self.bytes.slice_ref(unverified.bytes());
        let batch = UnverifiedBatch::only(&taken)?.verify()?;
        let next = batch.last_offset().next();
        self.abort_up_to(batch.last_offset());
        if batch.is_control() {
            self.end_transaction(&batch)?;
        } else if !(batch.is_transactional() && self.aborted.contains(&batch.producer_id().0))
            && next > position
        {
            let before = records.len();
            if let Err(error) = read_batch(&self.partition, &taken, &batch, position, records) {
                records.truncate(before);
                return Err(error);
            }
        }
        let _ = self.bytes.split_to(taken.len());
        Ok(Some(next.max(position)))
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

fn read_batch(
    partition: &TopicPartition,
    bytes: &Bytes,
    batch: &Batch<'_>,
    position: Offset,
    out: &mut Vec<ConsumerRecord>,
) -> Result<(), BatchError> {
    let records = batch.records()?;
    let shared = records.inflated().unwrap_or(bytes);
    out.reserve(batch.record_count().max(0) as usize);
    for record in &records {
        let record = record?;
        if record.offset >= position {
            out.push(owned(partition, shared, &record));
        }
    }
    Ok(())
}

fn owned(partition: &TopicPartition, shared: &Bytes, record: &Record<'_>) -> ConsumerRecord {
    let slice = |part: Option<&[u8]>| part.map(|part| shared.slice_ref(part));
    ConsumerRecord {
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
    }
}

#[cfg(test)]
mod tests {
    use riverrun_records::{BatchBuilder, BatchOptions, Compression, ProducerStamp};
    use riverrun_types::ProducerEpoch;

    use super::*;

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
        Chunk::new(TopicPartition::new("t", 0), 1, bytes.into(), aborted).unwrap().expect("batches")
    }

    fn read_all(chunk: &mut Chunk, mut position: Offset) -> (Vec<String>, Offset) {
        let mut records = Vec::new();
        while let Some(next) = chunk.next_batch(position, &mut records).unwrap() {
            position = next;
        }
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
        let alone =
            Chunk::new(TopicPartition::new("t", 0), 1, second[..second.len() - 1].to_vec().into(), &[]);
        assert!(alone.is_err(), "nothing can be read, so it must not go on for ever");
    }

    #[test]
    fn a_damaged_batch_is_an_error_and_leaves_nothing() {
        let mut bytes = batch(0, &["a"], |_| {});
        *bytes.last_mut().unwrap() ^= 1;
        let mut records = Vec::new();
        assert!(chunk(bytes, &[]).next_batch(Offset(0), &mut records).is_err());
        assert_eq!(records, []);
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

//! Offsets of a mounted queue by time and by epoch.
//!
//! A queue has no index by time. A search keeps the largest timestamp of each full segment, so that only the first search
//! passes over the whole queue. Searches wait for the disk where no network thread is held up by it.

use riverrun_protocol::ErrorCode;
use riverrun_queue::{QueueError, StartAt};
use riverrun_types::{LeaderEpoch, Offset, TimestampMs};

use super::{MountedQueue, Refused};

/// A record that was found.
pub(crate) type Found = Option<(TimestampMs, Offset, LeaderEpoch)>;

/// Facts that were found about a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentFacts {
    /// Its largest timestamp.
    max_timestamp: TimestampMs,
    /// Base offset of the first batch that has it.
    batch: Offset,
}

impl MountedQueue {
    /// The first record that is not older than `timestamp`.
    pub(crate) fn offset_for_timestamp(&self, timestamp: TimestampMs) -> Result<Found, Refused> {
        self.look_up(|| {
            for (base, end) in self.segments()? {
                let facts = self.facts(base, end)?;
                if facts.is_none_or(|facts| facts.max_timestamp < timestamp) {
                    continue;
                }
                let Some(batch) = self.first_batch(base, end, |_, max| max >= timestamp)? else { continue };
                let found = self.first_record(batch, |found| found >= timestamp)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            Ok(None)
        })
    }

    /// The first record with the largest timestamp.
    pub(crate) fn max_timestamp(&self) -> Result<Found, Refused> {
        self.look_up(|| {
            let mut newest: Option<SegmentFacts> = None;
            for (base, end) in self.segments()? {
                let facts = self.facts(base, end)?;
                let best = newest.map_or(TimestampMs::NONE, |newest| newest.max_timestamp);
                newest = facts.filter(|facts| newest.is_none() || facts.max_timestamp > best).or(newest);
            }
            match newest {
                None => Ok(None),
                Some(newest) => self.first_record(newest.batch, |found| found >= newest.max_timestamp),
            }
        })
    }

    /// The epoch of the record at `offset`, or the one that it will have at least.
    pub(crate) fn epoch_of(&self, offset: Offset) -> Result<LeaderEpoch, Refused> {
        self.look_up(|| {
            let header = self.batches(StartAt::Offset(offset))?.pass()?;
            Ok(header.map_or_else(|| self.epoch(), |header| header.leader_epoch()))
        })
    }

    /// The largest epoch up to `epoch`, and the offset after its records (KIP-279); unknown for one that has not been.
    pub(crate) fn epoch_end_offset(&self, epoch: LeaderEpoch) -> Result<(LeaderEpoch, Offset), Refused> {
        if epoch >= self.epoch() {
            let end = self.high_watermark()?;
            let known = if epoch == self.epoch() { (epoch, end) } else { (LeaderEpoch::UNKNOWN, Offset(-1)) };
            return Ok(known);
        }
        self.look_up(|| {
            let bases = self.view.segments()?;
            // Epochs rise with the offsets. A segment without a batch is the last one.
            let mut failed = None;
            let begun = bases.partition_point(|base| match self.first_epoch(*base) {
                Ok(first) => first.is_some_and(|first| first <= epoch),
                Err(error) => {
                    failed.get_or_insert(error);
                    false
                }
            });
            if let Some(error) = failed {
                return Err(error);
            }
            let Some(base) = begun.checked_sub(1).map(|index| bases[index]) else {
                return Ok((epoch, bases[0]));
            };
            let (mut last, mut reader) = (epoch, self.batches(StartAt::Offset(base))?);
            while let Some(header) = reader.pass()? {
                if header.leader_epoch() > epoch {
                    return Ok((last, header.base_offset()));
                }
                last = header.leader_epoch();
            }
            Ok((last, reader.offset()))
        })
    }

    /// The epoch of a segment's first batch, if it has one.
    fn first_epoch(&self, base: Offset) -> Result<Option<LeaderEpoch>, QueueError> {
        Ok(self.batches(StartAt::Offset(base))?.pass()?.map(|header| header.leader_epoch()))
    }

    /// Runs a search where it may wait for the disk. What retention removes meanwhile is no trouble: it is asked again.
    fn look_up<T>(&self, search: impl Fn() -> Result<T, QueueError>) -> Result<T, Refused> {
        self.check_in_place()?;
        let searched = tokio::task::block_in_place(|| match search() {
            Err(QueueError::OffsetOutOfRange { .. }) => search(),
            searched => searched,
        });
        searched.map_err(|error| self.refuse(&error)).map_err(|refused| match refused.code {
            // Nobody asked for an offset.
            ErrorCode::OFFSET_OUT_OF_RANGE => Refused { code: ErrorCode::LEADER_NOT_AVAILABLE, ..refused },
            _ => refused,
        })
    }

    /// Base offsets of the segments that clients see, each with that of the next; none for the last.
    fn segments(&self) -> Result<Vec<(Offset, Option<Offset>)>, QueueError> {
        let mut bases = self.view.segments()?;
        // A segment that is full and not yet synced has no more facts than it shows.
        let seen = if self.synced_only { self.end()? } else { Offset(i64::MAX) };
        bases.retain(|base| *base <= seen);
        let ends = bases.iter().skip(1).copied().map(Some).chain([None]);
        Ok(bases.iter().copied().zip(ends).collect())
    }

    /// The facts of the segment from `base` to `end`; none if it is empty.
    fn facts(&self, base: Offset, end: Option<Offset>) -> Result<Option<SegmentFacts>, QueueError> {
        let mut known = self.facts.lock();
        if let Some(facts) = known.get(&base) {
            return Ok(Some(*facts));
        }
        let mut facts: Option<SegmentFacts> = None;
        self.first_batch(base, end, |batch, max_timestamp| {
            if facts.is_none_or(|facts| facts.max_timestamp < max_timestamp) {
                facts = Some(SegmentFacts { max_timestamp, batch });
            }
            false
        })?;
        if let (Some(facts), Some(_)) = (facts, end) {
            known.insert(base, facts);
        }
        Ok(facts)
    }

    /// The first batch of a segment for whose base offset and largest timestamp `is_it` is true.
    fn first_batch(
        &self,
        base: Offset,
        end: Option<Offset>,
        mut is_it: impl FnMut(Offset, TimestampMs) -> bool,
    ) -> Result<Option<Offset>, QueueError> {
        let mut reader = self.batches(StartAt::Offset(base))?;
        while end.is_none_or(|end| reader.offset() < end) {
            let Some(header) = reader.pass()? else { break };
            if is_it(header.base_offset(), header.max_timestamp()) {
                return Ok(Some(header.base_offset()));
            }
        }
        Ok(None)
    }

    /// The first record from the batch at `batch` on whose timestamp is the one that is looked for.
    fn first_record(&self, batch: Offset, is_it: impl Fn(TimestampMs) -> bool) -> Result<Found, QueueError> {
        let mut reader = self.batches(StartAt::Offset(batch))?;
        let Some(header) = reader.pass()? else { return Ok(None) };
        let mut tailer = self.view.tailer(StartAt::Offset(batch))?;
        tailer.set_synced_only(self.synced_only);
        while tailer.offset() < header.next_offset() {
            let Some(record) = tailer.next()? else { break };
            if is_it(record.timestamp) {
                return Ok(Some((record.timestamp, record.offset, header.leader_epoch())));
            }
        }
        Ok(None)
    }
}

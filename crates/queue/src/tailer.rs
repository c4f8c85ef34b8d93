//! Reading: any number of tailers, in any process, each with its own place.
//!
//! Guarantees that a tailer reads every record once and in order, from where it began, and nothing beyond the
//! published position (or the synced one, if it asks for that). Records are borrowed from the mapping: reading copies
//! and allocates nothing, except for compressed batches.
//!
//! Batches that existed when the queue was opened are checked by their CRC. Batches published since are in memory
//! that only appenders of this machine have written, and are trusted except for their lengths.

#![expect(unsafe_code, reason = "lends bytes of the mapping that are published")]

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use riverrun_records::{
    Batch, BatchHeader, BatchRecords, CorruptCause, PlainBatch, Record, RecordIter, UnverifiedBatch, layout,
};
use riverrun_types::{LeaderEpoch, Offset, TimestampMs};

use crate::error::{Damage, QueueError};
use crate::mapping::POPULATE_BYTES;
use crate::named::{Kept, Place};
use crate::queue::Core;
use crate::segment::{ReadSegment, Segment, Segments};
use crate::wait::{WaitStrategy, Watch};

/// The record at which a tailer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// At the first record in the queue.
    Start,
    /// At the next record that is appended.
    End,
    /// At this offset, which exists or is the next.
    Offset(Offset),
    /// At the first record with this timestamp or a later one; at the end if there is none.
    Time(TimestampMs),
}

/// Reads a queue.
///
/// Invariants: `position` is where the next batch begins or its segment ends, in `segment`, and `batch_offset` the
/// offset of that batch. `limit` is a position that was once readable. `records` are those of the batch before
/// `position`, in `segment` or in `inflated`; neither changes while `records` has any left.
#[derive(Debug)]
pub struct Tailer {
    core: Arc<Core>,
    segment: ReadSegment,
    position: u64,
    batch_offset: Offset,
    limit: u64,
    synced_only: bool,
    /// Records of the first batch that are skipped: those below this offset, and those before this time.
    from: Offset,
    from_time: TimestampMs,
    /// Keeps inflated bytes alive.
    inflated: Option<BatchRecords<'static>>,
    place: Option<Place>,
    records: Option<RecordIter<'static>>,
    leaving: Option<Leaving>,
}

/// A segment that was read to its end and has no other user in this process. Unmapping takes longer than reading
/// thousands of records, so it is done a little at a time, while there is nothing to read.
///
/// It does not keep its file from retention. If the file is removed, its memory is freed with the mapping: at the end
/// of the next segment for a tailer that is always behind, and on drop for one that is not called.
#[derive(Debug)]
struct Leaving {
    segment: Segment,
    /// Leading bytes that are unmapped.
    done: usize,
}

impl Leaving {
    /// Unmaps a portion. Returns the rest.
    fn go_on(self) -> Option<Self> {
        let map = &self.segment.map;
        let end = (self.done + POPULATE_BYTES).min(map.len());
        map.forget_pages(self.done, end - self.done);
        (end < map.len()).then_some(Self { done: end, ..self })
    }
}

impl Tailer {
    pub(crate) fn open(core: Arc<Core>, at: StartAt) -> Result<Self, QueueError> {
        let mut tailer = Self::at_end(core)?;
        tailer.seek(at)?;
        Ok(tailer)
    }

    /// Begins at the stored place of the tailer of this name, or at `otherwise` if it is new. Skips records that
    /// retention has removed since. Refuses a place if the record before it is not the one that was read.
    pub(crate) fn open_named(core: Arc<Core>, name: &str, otherwise: StartAt) -> Result<Self, QueueError> {
        let (mut place, kept) = Place::open(core.segments.dir(), name)?;
        let mut tailer = match kept {
            None => Self::open(core, otherwise)?,
            Some(kept) => Self::open_kept(&core, &place, &kept)?,
        };
        place.missed = kept.map_or(0, |kept| (tailer.from.0 - kept.offset.0).max(0));
        tailer.place = Some(place);
        Ok(tailer)
    }

    fn open_kept(core: &Arc<Core>, place: &Place, kept: &Kept) -> Result<Self, QueueError> {
        loop {
            let start = core.start_offset()?;
            match Self::open_kept_from(Arc::clone(core), place, kept, start) {
                // Retention has removed more segments meanwhile.
                Err(QueueError::OffsetOutOfRange { .. }) if core.start_offset()? > start => {}
                opened => return opened,
            }
        }
    }

    /// The same while the queue begins with `start`.
    fn open_kept_from(
        core: Arc<Core>,
        place: &Place,
        kept: &Kept,
        start: Offset,
    ) -> Result<Self, QueueError> {
        let end = core.head()?.next_offset;
        let lost = || QueueError::PlaceLost { path: place.path().to_owned(), offset: kept.offset, end };
        if kept.queue_id != core.control.queue_id() || kept.offset > end {
            return Err(lost());
        }
        let tailer = Self::open(core, StartAt::Offset(kept.offset.max(start)))?;
        if kept.offset > start && kept.epoch != tailer.core.control.epoch() {
            // A recovery has run since. A batch of a later epoch stands where others were lost.
            let mut before = Self::open(Arc::clone(&tailer.core), StartAt::Offset(kept.offset.plus(-1)))?;
            let limit = before.core.published();
            if before.peek(limit)?.is_none_or(|header| header.leader_epoch() > kept.epoch) {
                return Err(lost());
            }
        }
        Ok(tailer)
    }

    /// Stores the place of a named tailer: it begins there when it is opened next. The place survives the process,
    /// but not a power cut. Without a name, this does nothing.
    pub fn keep_place(&mut self) -> Result<(), QueueError> {
        let control = &self.core.control;
        let kept = Kept { offset: self.from, queue_id: control.queue_id(), epoch: control.epoch() };
        self.place.as_mut().map_or(Ok(()), |place| place.keep(&kept))
    }

    /// How many records that a named tailer had not read were removed before it was opened.
    pub fn missed(&self) -> u64 {
        self.place.as_ref().map_or(0, |place| place.missed.unsigned_abs())
    }

    fn at_end(core: Arc<Core>) -> Result<Self, QueueError> {
        let (head, segment) = core.at_head(Segments::get_to_read)?;
        Ok(Self {
            core,
            segment,
            position: head.position,
            batch_offset: head.next_offset,
            limit: head.position,
            synced_only: false,
            from: head.next_offset,
            from_time: TimestampMs(i64::MIN),
            inflated: None,
            place: None,
            records: None,
            leaving: None,
        })
    }

    /// With `true`, shows only synced records from now on; with `false`, all published ones.
    pub fn set_synced_only(&mut self, synced_only: bool) {
        self.synced_only = synced_only;
        self.limit = 0;
    }

    /// The offset of the record that [`next`](Self::next) returns next.
    pub fn offset(&self) -> Offset {
        self.from
    }

    /// Moves to another place.
    pub fn seek(&mut self, at: StartAt) -> Result<(), QueueError> {
        match at {
            StartAt::End => {
                let mut end = Self::at_end(Arc::clone(&self.core))?;
                end.set_synced_only(self.synced_only);
                end.place = self.place.take();
                *self = end;
                Ok(())
            }
            StartAt::Start => self.seek_to_segment(|bases| bases.len().min(1)),
            StartAt::Offset(offset) => self.seek_to_offset(offset),
            StartAt::Time(timestamp) => self.seek_to_time(timestamp),
        }
    }

    /// Moves to the beginning of the last of the first `count(bases)` segments.
    fn seek_to_segment(&mut self, count: impl Fn(&[Offset]) -> usize) -> Result<(), QueueError> {
        let (segment, base) = loop {
            let (bases, first) = self.core.published_segments()?;
            let index = count(&bases).saturating_sub(1);
            let base = bases[index];
            if let Some(segment) = self.core.segments.get_to_read(base, first + index as u64)? {
                break (segment, base);
            }
            // Retention has just removed it: the queue now begins later.
        };
        self.segment = segment;
        self.position = self.segment.start();
        self.batch_offset = base;
        self.from = base;
        self.from_time = TimestampMs(i64::MIN);
        self.records = None;
        Ok(())
    }

    fn seek_to_offset(&mut self, offset: Offset) -> Result<(), QueueError> {
        let (start, end) = (self.core.start_offset()?, self.core.head()?.next_offset);
        if offset < start || offset > end {
            return Err(QueueError::OffsetOutOfRange { offset, start, end });
        }
        self.seek_to_segment(|bases| bases.partition_point(|base| *base <= offset))?;
        if self.batch_offset > offset {
            // Retention has just removed it.
            return Err(QueueError::OffsetOutOfRange { offset, start: self.batch_offset, end });
        }
        let limit = self.core.published();
        while let Some(header) = self.peek(limit)? {
            if header.next_offset() > offset {
                break;
            }
            self.pass(&header);
        }
        self.from = offset;
        Ok(())
    }

    fn seek_to_time(&mut self, timestamp: TimestampMs) -> Result<(), QueueError> {
        self.seek_to_segment(|bases| bases.len().min(1))?;
        let limit = self.core.published();
        while let Some(header) = self.peek(limit)? {
            if header.max_timestamp() >= timestamp {
                self.from_time = timestamp;
                break;
            }
            self.pass(&header);
            self.from = self.batch_offset;
        }
        Ok(())
    }

    /// The next record; `None` if there is none yet.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "records are borrowed from the tailer; no Iterator can lend"
    )]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, QueueError> {
        self.advance()
    }

    /// The next record, borrowed from the mapping as long as the batch stays open: at the longest until the next
    /// call.
    #[inline]
    fn advance(&mut self) -> Result<Option<Record<'static>>, QueueError> {
        loop {
            while let Some(record) = self.records.as_mut().and_then(Iterator::next) {
                let record = record.map_err(|error| self.damaged(error))?;
                if self.wants(&record) {
                    return Ok(Some(record));
                }
            }
            if let Some(record) = self.next_plain()? {
                if self.wants(&record) {
                    return Ok(Some(record));
                }
                continue;
            }
            if !self.open_batch()? {
                self.leave();
                return Ok(None);
            }
        }
    }

    /// False if this record is to be skipped; the next one is read then.
    #[inline]
    fn wants(&mut self, record: &Record<'_>) -> bool {
        let wanted = record.offset >= self.from && record.timestamp >= self.from_time;
        if wanted {
            self.from = record.offset.next();
            self.from_time = TimestampMs(i64::MIN);
        }
        wanted
    }

    /// The record of the next batch, if that batch is readable, has no other record and need not be checked. Does
    /// what [`open_batch`](Self::open_batch) and its iterator do for all batches, in a fraction of the time.
    #[inline]
    fn next_plain(&mut self) -> Result<Option<Record<'static>>, QueueError> {
        self.records = None;
        if self.position >= self.limit {
            self.limit = self.readable();
        }
        if self.position >= self.limit || self.position < self.core.trusted_from {
            return Ok(None);
        }
        let within = self.within();
        let end = (self.limit - self.segment.start()).min(self.segment.map.len() as u64) as usize;
        // SAFETY: below `limit`, which is published: no process writes there any more.
        let bytes: &[u8] = unsafe { self.segment.map.slice(within, end - within) };
        // SAFETY: as in `open_batch`.
        let bytes: &'static [u8] = unsafe { std::mem::transmute::<&[u8], &'static [u8]>(bytes) };
        let Some(batch) = PlainBatch::read(bytes) else { return Ok(None) };
        if batch.record.offset != self.batch_offset {
            return Ok(None);
        }
        self.segment.map.touch(within, batch.size_bytes);
        self.segment.check_whole(within)?;
        self.position += batch.size_bytes as u64;
        self.batch_offset = batch.record.offset.next();
        self.inflated = None;
        Ok(Some(batch.record))
    }

    /// The next record, waiting for it with `strategy`; `None` if none came within `timeout`.
    pub fn wait(
        &mut self,
        strategy: &mut impl WaitStrategy,
        timeout: Option<Duration>,
    ) -> Result<Option<Record<'_>>, QueueError> {
        loop {
            // The readable bytes may be no more than the beginning of another segment.
            if let Some(record) = self.advance()? {
                return Ok(Some(record));
            }
            if !self.wait_readable(strategy, timeout) {
                return Ok(None);
            }
        }
    }

    /// Waits until there may be something to read beyond the open batch.
    fn wait_readable(&mut self, strategy: &mut impl WaitStrategy, timeout: Option<Duration>) -> bool {
        let mut deadline = None;
        let mut round = 0_u32;
        loop {
            let readable = self.readable();
            // Unmapping comes before idling, and ends at the time-out.
            let leaves = readable <= self.position && self.leaving.is_some();
            if leaves {
                self.leave();
            }
            // A truncated control file never changes again: the call that follows reports it.
            if readable > self.position || self.core.control.check_whole().is_err() {
                break;
            }
            // The clock is read only now and then: it takes longer than reading the position.
            let mut left = Duration::MAX;
            if let Some(timeout) = timeout.filter(|_| leaves || round.is_multiple_of(64) || strategy.sleeps())
            {
                // `None` for a time beyond the clock's range.
                let deadline: Option<Instant> =
                    *deadline.get_or_insert_with(|| Instant::now().checked_add(timeout));
                left = deadline
                    .map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
                if left.is_zero() {
                    return false;
                }
            }
            if !leaves {
                strategy.idle(&Watch::new(&self.core.control, self.synced_only, readable, left));
                round = round.wrapping_add(1);
            }
        }
        strategy.reset();
        true
    }

    /// Unmaps a portion of the segment that was read before.
    #[inline]
    fn leave(&mut self) {
        if let Some(leaving) = self.leaving.take() {
            self.leaving = leaving.go_on();
        }
    }

    #[inline]
    fn readable(&self) -> u64 {
        if self.synced_only { self.core.synced() } else { self.core.published() }
    }

    /// Header of the batch at `position`; `None` if none is readable.
    #[inline]
    fn next_header(&mut self) -> Result<Option<BatchHeader>, QueueError> {
        loop {
            if let Some(header) = self.peek(self.limit)? {
                return Ok(Some(header));
            }
            let readable = self.readable();
            if readable <= self.position {
                self.core.control.check_whole()?;
                return Ok(None);
            }
            self.limit = readable;
        }
    }

    /// Opens the next batch; false if none is readable.
    #[inline]
    fn open_batch(&mut self) -> Result<bool, QueueError> {
        self.records = None;
        let Some(header) = self.next_header()? else { return Ok(false) };
        self.segment.map.touch(self.within(), header.size_bytes());
        let within = self.within();
        // SAFETY: `peek` has seen that the batch lies below the published position, where no process writes any more.
        let bytes: &[u8] = unsafe { self.segment.map.slice(within, header.size_bytes()) };
        // SAFETY: the bytes stay mapped as long as `segment` does, which is replaced only in `peek` and in seeking,
        // after `records` has ended; references that leave this type borrow it.
        let bytes: &'static [u8] = unsafe { std::mem::transmute::<&[u8], &'static [u8]>(bytes) };
        let batch = self.check(bytes);
        self.segment.check_whole(within)?;
        let batch = batch.map_err(|error| self.segment.damaged(within, error))?;
        let records = batch.records().map_err(|error| self.segment.damaged(within, error))?;
        let iter = records.iter();
        // SAFETY: the iterator borrows the mapping or the buffer that `records` owns on the heap, which
        // `inflated` keeps until the next batch is opened; it never points into `records` itself.
        self.records = Some(unsafe { std::mem::transmute::<RecordIter<'_>, RecordIter<'static>>(iter) });
        self.inflated = records.inflated().is_some().then_some(records);
        self.pass(&header);
        Ok(true)
    }

    /// The offset of the batch that [`copy_batch`](Self::copy_batch) copies next.
    pub(crate) fn batch_offset(&self) -> Offset {
        self.batch_offset
    }

    /// Bytes from that batch to the end of the readable part.
    pub(crate) fn bytes_left(&self) -> u64 {
        self.readable().saturating_sub(self.position)
    }

    /// Another tailer at the batch that this one reads next.
    pub(crate) fn fork(&self) -> Self {
        Self {
            core: Arc::clone(&self.core),
            segment: self.segment.clone(),
            position: self.position,
            batch_offset: self.batch_offset,
            limit: self.limit,
            synced_only: self.synced_only,
            from: self.batch_offset,
            from_time: TimestampMs(i64::MIN),
            inflated: None,
            place: None,
            records: None,
            leaving: None,
        }
    }

    /// Skips the next batch, and the rest of the open one. `None` if there is no next one.
    pub(crate) fn pass_batch(&mut self) -> Result<Option<BatchHeader>, QueueError> {
        self.records = None;
        let header = self.next_header()?;
        // A reader of batches can spare the microseconds, and may not be called again for long.
        self.leaving = None;
        if let Some(header) = &header {
            self.pass(header);
            self.from = self.batch_offset;
        }
        Ok(header)
    }

    /// As [`pass_batch`](Self::pass_batch), but refuses a batch with another leader epoch, which no checksum covers.
    pub(crate) fn pass_batch_of(
        &mut self,
        epochs: &RangeInclusive<LeaderEpoch>,
    ) -> Result<Option<BatchHeader>, QueueError> {
        if self.next_header()?.is_some_and(|header| !epochs.contains(&header.leader_epoch())) {
            return Err(self.segment.damaged(self.within(), Damage::Field("leader epoch")));
        }
        self.pass_batch()
    }

    /// Appends the next batch to `into` and advances past it, and past the rest of the open one. False, and nothing
    /// changes, if it is larger than `room_bytes` or there is none.
    pub(crate) fn copy_batch(&mut self, into: &mut Vec<u8>, room_bytes: usize) -> Result<bool, QueueError> {
        self.records = None;
        let header = self.next_header()?;
        // As in `pass_batch`.
        self.leaving = None;
        let Some(header) = header.filter(|header| header.size_bytes() <= room_bytes) else {
            return Ok(false);
        };
        let (within, begin) = (self.within(), into.len());
        // SAFETY: `next_header` has seen that the batch lies below the published position, where no process writes
        // any more.
        into.extend_from_slice(unsafe { self.segment.map.slice(within, header.size_bytes()) });
        // Checks the copy, which cannot lose a page any more.
        let checked =
            self.check(&into[begin..]).map(|_| ()).map_err(|what| self.segment.damaged(within, what));
        if let Err(error) = self.segment.check_whole(within).and(checked) {
            into.truncate(begin);
            return Err(error);
        }
        self.pass(&header);
        self.from = self.batch_offset;
        Ok(true)
    }

    #[inline]
    fn check<'a>(&self, bytes: &'a [u8]) -> Result<Batch<'a>, Damage> {
        let (batch, _) = UnverifiedBatch::split_first(bytes)?;
        let old = self.position < self.core.trusted_from;
        Ok(if old { batch.verify()? } else { batch.trust()? })
    }

    /// Header of the batch at `position`, which moves to the next segment if this one has ended. `None` at `limit`.
    #[inline]
    fn peek(&mut self, limit: u64) -> Result<Option<BatchHeader>, QueueError> {
        loop {
            if self.position >= limit {
                return Ok(None);
            }
            let within = self.within();
            let end = (limit - self.segment.start()).min(self.segment.map.len() as u64) as usize;
            let sealed = limit - self.segment.start() >= self.segment.map.len() as u64;
            // SAFETY: below `limit`, which is published: no process writes there any more. The rest of a segment that
            // was rolled over is not written either.
            let bytes = unsafe { self.segment.map.slice(within, end - within) };
            if sealed
                && bytes.first_chunk::<{ layout::LENGTH_END }>().is_none_or(|prefix| prefix[8..] == [0; 4])
            {
                self.next_segment()?;
                continue;
            }
            let header = self.header(bytes);
            self.segment.check_whole(within)?;
            return header.map(Some).map_err(|what| self.segment.damaged(within, what));
        }
    }

    #[inline]
    fn header(&self, bytes: &[u8]) -> Result<BatchHeader, Damage> {
        let header = BatchHeader::parse(bytes)?;
        if header.size_bytes() > bytes.len() {
            return Err(Damage::Reach { size_bytes: header.size_bytes() });
        }
        if header.base_offset() != self.batch_offset {
            return Err(Damage::Offset { found: header.base_offset(), expected: self.batch_offset });
        }
        if header.last_offset_delta() < 0 {
            return Err(Damage::Batch(CorruptCause::Length(header.last_offset_delta()).into()));
        }
        Ok(header)
    }

    #[cold]
    fn next_segment(&mut self) -> Result<(), QueueError> {
        // A segment that has ended has a batch: otherwise the next segment would have the same base offset.
        if self.batch_offset == self.segment.base {
            return Err(self.damaged(Damage::Missing));
        }
        let number = self.segment.number + 1;
        let Some(segment) = self.core.segments.get_to_read(self.batch_offset, number)? else {
            let (start, end) = (self.core.start_offset()?, self.core.head()?.next_offset);
            if self.batch_offset >= start {
                // Retention has not reached this segment, and yet it ends too early.
                return Err(self.damaged(Damage::Missing));
            }
            return Err(QueueError::OffsetOutOfRange { offset: self.batch_offset, start, end });
        };
        self.position = segment.start();
        let passed = std::mem::replace(&mut self.segment, segment);
        self.leaving = passed.into_last().map(|segment| Leaving { segment, done: 0 });
        Ok(())
    }

    #[inline]
    fn pass(&mut self, header: &BatchHeader) {
        self.position += header.size_bytes() as u64;
        self.batch_offset = header.next_offset();
    }

    fn within(&self) -> usize {
        (self.position - self.segment.start()) as usize
    }

    fn damaged(&self, what: impl Into<Damage>) -> QueueError {
        self.segment.damaged(self.within(), what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::appender::Appender;
    use crate::options::{AppendOptions, CreateOptions};
    use crate::queue::Queue;

    const SEGMENT: usize = 2 << 20;

    /// Records in the first segment of a queue that has a second one, and tailers at the beginning. The tailers were
    /// opened before the appender mapped the segment, so they have a mapping of their own.
    fn passed_segment<const TAILERS: usize>(dir: &tempfile::TempDir) -> (i64, Appender, [Tailer; TAILERS]) {
        let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: SEGMENT as u64 }).expect("made");
        let tailers = std::array::from_fn(|_| queue.tailer(StartAt::Start).expect("there"));
        let options = AppendOptions { ahead_bytes: 0, ..AppendOptions::default() };
        let mut appender = queue.appender(options).expect("there");
        while appender.core.published() <= SEGMENT as u64 {
            appender.append(&[7; 1000]).expect("room");
        }
        (queue.end_offset().expect("whole").0, appender, tailers)
    }

    /// Unmapped bytes of the segment that this tailer leaves.
    fn done(tailer: &Tailer) -> Option<usize> {
        tailer.leaving.as_ref().map(|leaving| leaving.done)
    }

    /// Appends while the tailer waits.
    struct Answer<'a>(&'a mut Appender);

    impl WaitStrategy for Answer<'_> {
        fn idle(&mut self, _watch: &Watch<'_>) {
            self.0.append(b"at last").expect("room");
        }
    }

    #[test]
    fn last_tailer_unmaps_a_read_segment_in_portions() {
        let dir = tempfile::tempdir().expect("a directory");
        let (count, mut appender, [mut first, mut last]) = passed_segment(&dir);
        let read = |tailer: &mut Tailer| {
            let mut records = 0;
            while tailer.next().expect("whole").is_some() {
                records += 1;
            }
            records
        };
        assert_eq!((read(&mut first), done(&first)), (count, None), "another one has it still");
        assert_eq!((read(&mut last), done(&last)), (count, Some(POPULATE_BYTES)));
        assert_eq!((read(&mut last), done(&last)), (0, Some(2 * POPULATE_BYTES)));
        let waited = last.wait(&mut crate::BusySpin, Some(Duration::ZERO)).expect("whole");
        assert!(waited.is_none());
        assert_eq!(done(&last), Some(4 * POPULATE_BYTES), "a look and no time to wait");
        let waited = last.wait(&mut Answer(&mut appender), None).expect("whole");
        assert!(waited.is_some() && done(&last).is_none(), "there is time while it waits");
    }

    #[test]
    fn batch_reader_unmaps_a_segment_when_it_leaves_it() {
        let dir = tempfile::tempdir().expect("a directory");
        for copies in [false, true] {
            let dir = tempfile::tempdir_in(dir.path()).expect("a directory");
            let (count, _appender, [mut tailer]) = passed_segment(&dir);
            for _ in 0..count {
                assert!(tailer.segment.number == 0 || done(&tailer).is_none());
                if copies {
                    assert!(tailer.copy_batch(&mut Vec::new(), usize::MAX).expect("whole"));
                } else {
                    assert!(tailer.pass_batch().expect("whole").is_some());
                }
            }
            assert!(tailer.segment.number == 1 && done(&tailer).is_none());
        }
    }
}

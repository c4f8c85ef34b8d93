//! Appending: the writer lock around room, bytes and publication.
//!
//! Guarantees that a reader sees a batch whole or not at all, that nothing is allocated but when a segment is
//! full, and that whatever an append began and did not publish is zeros again before anybody else appends.
//!
//! The way of an append: lock (one compare-and-swap) -> room in the segment -> dirty end -> bytes and CRC ->
//! head and published position -> unlock (one store) -> those asleep are woken.

#![expect(unsafe_code, reason = "the holder of the writer lock writes into shared memory")]

use std::sync::Arc;

use riverrun_records::{Batch, Header, layout, patch_base_offset, patch_leader_epoch};
use riverrun_types::limits::BATCH_RECORDS_MAX;
use riverrun_types::{LeaderEpoch, Offset, TimestampMs};

use crate::batch::{BatchFields, Cursor, Shape, seal};
use crate::control::{Control, Head};
use crate::error::{At as _, QueueError};
use crate::keeper::Keeper;
use crate::lock::{Owner, Taken};
use crate::options::{AppendOptions, Durability};
use crate::queue::Core;
use crate::reservation::Reservation;
use crate::segment::{Segment, Segments};
use crate::sync::sync_to;
use crate::sys;
use crate::template::Template;

/// A record to append, for those that are more than a value.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewRecord<'a> {
    /// The key, if it has one.
    pub key: Option<&'a [u8]>,
    /// The value; none marks a deletion where the log is compacted.
    pub value: Option<&'a [u8]>,
    /// The headers, in order.
    pub headers: &'a [Header<'a>],
    /// When it happened; the time of the append if none is given, as exact as the kernel's tick.
    pub timestamp: Option<TimestampMs>,
}

/// Appends records to a queue.
///
/// Invariants: `segment` is the one that `head` lies in. While `held`, this appender has the writer lock, and
/// what it stores lies between the published position and the dirty end. An appender that is dropped while it
/// holds the lock (its reservation was leaked) leaves it as a dying process does: the next one takes over and
/// mends.
#[derive(Debug)]
pub struct Appender {
    pub(crate) core: Arc<Core>,
    owner: Owner,
    options: AppendOptions,
    segment: Arc<Segment>,
    head: Head,
    epoch: LeaderEpoch,
    held: bool,
    template: Template,
    keeper: Arc<Keeper>,
    /// Position from which on the keeper wants to be called.
    call_at: u64,
    /// Position from which on this appender makes memory present by itself, and up to which it has.
    near_at: u64,
    near_end: u64,
}

/// How far ahead of the append lines are fetched: memory takes longer than an append.
const FETCH_AHEAD_BYTES: usize = 1024;

/// Made present at once by an append, where the background has no core for it.
const NEAR_BYTES: u64 = 64 << 10;

/// Room for a batch, in the segment that it goes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Place in the appender's segment.
    pub(crate) within: usize,
    pub(crate) size_bytes: usize,
}

impl Appender {
    pub(crate) fn attach(
        core: Arc<Core>,
        keeper: Arc<Keeper>,
        options: AppendOptions,
    ) -> Result<Self, QueueError> {
        let owner = Owner::attach(&core.control)?;
        let (head, segment) = core.at_head(Segments::get)?;
        let epoch = core.control.epoch();
        let template = Template::new(epoch);
        let appender = Self {
            core,
            owner,
            options,
            segment,
            head,
            epoch,
            held: false,
            template,
            keeper,
            call_at: 0,
            near_at: u64::MAX,
            near_end: 0,
        };
        appender.keeper.serve(&options);
        Ok(appender)
    }

    /// Appends a record that is only a value. Returns its offset when every tailer of this machine can see
    /// it; it then survives what the appender's [`Durability`] says. An error of a sync leaves the record
    /// appended.
    #[inline]
    pub fn append(&mut self, value: &[u8]) -> Result<Offset, QueueError> {
        // Nothing with a length that no segment has, whose sums would overflow, gets as far as the lock.
        if value.len() >= self.segment.map.len() {
            return Err(self.too_large(value.len()));
        }
        // What does not depend on the offset is done before the queue is held.
        self.template.fit(value.len(), sys::wall_coarse_ms());
        let sum = self.template.sum(value);
        let room = self.begin(self.template.size_bytes())?;
        let offset = self.head.next_offset;
        // SAFETY: as in `bytes_mut`; the template is not in the mapping.
        let out = unsafe { self.segment.map.slice_mut(room.within, room.size_bytes) };
        self.template.put(out, value, sum, offset);
        self.commit(room, 1)
    }

    /// Appends one record. As durable as [`append`](Self::append) makes it.
    pub fn append_record(&mut self, record: &NewRecord<'_>) -> Result<Offset, QueueError> {
        self.append_batch(std::slice::from_ref(record))
    }

    /// Appends records as one batch: tailers see all of them or none, and so does recovery. Returns the
    /// offset of the first. As durable as [`append`](Self::append) makes it.
    pub fn append_batch(&mut self, records: &[NewRecord<'_>]) -> Result<Offset, QueueError> {
        let count = i32::try_from(records.len()).ok().filter(|count| (1..=BATCH_RECORDS_MAX).contains(count));
        let Some(record_count) = count else {
            return Err(QueueError::Options(format!("a batch has 1 to {BATCH_RECORDS_MAX} records")));
        };
        let now = sys::wall_coarse_ms();
        let timestamp = |record: &NewRecord<'_>| record.timestamp.map_or(now, |timestamp| timestamp.0);
        let base = timestamp(&records[0]);
        let shape = |index: usize| Shape {
            key: records[index].key,
            value_bytes: records[index].value.map(<[u8]>::len),
            headers: records[index].headers,
            timestamp_delta: timestamp(&records[index]).wrapping_sub(base),
            offset_delta: index as i32,
        };
        let records_bytes = (0..records.len()).map(|index| shape(index).record_bytes()).sum::<usize>();
        let size_bytes = layout::HEADER_BYTES + records_bytes;
        let room = self.begin(size_bytes)?;
        let mut fields = self.fields(size_bytes, record_count, base);
        fields.max_timestamp = records.iter().map(timestamp).max().unwrap_or(base);
        let bytes = self.bytes_mut(room);
        if let Some(header) = bytes.first_chunk_mut() {
            fields.put(header);
        }
        let mut out = Cursor::new(&mut bytes[layout::HEADER_BYTES..]);
        for (index, record) in records.iter().enumerate() {
            let shape = shape(index);
            shape.put_before_value(&mut out);
            out.put(record.value.unwrap_or_default());
            shape.put_after_value(&mut out);
        }
        seal(bytes);
        self.commit(room, record_count)
    }

    /// Appends a batch as another has made it, whatever its codec; only base offset and leader epoch become the
    /// queue's. Returns the offset of its first record. As durable as [`append`](Self::append) makes it. Refuses
    /// what no tailer is to see as records: control batches, transactions, and offsets without a record.
    pub fn append_whole(&mut self, batch: &Batch<'_>) -> Result<Offset, QueueError> {
        check_whole(batch)?;
        let room = self.begin(batch.bytes().len())?;
        let (offset, epoch) = (self.head.next_offset, self.epoch);
        let bytes = self.bytes_mut(room);
        bytes.copy_from_slice(batch.bytes());
        patch_base_offset(bytes, offset);
        patch_leader_epoch(bytes, epoch);
        self.commit(room, batch.record_count())
    }

    /// Makes room for a value of `len` bytes that is written in place, and holds the queue until the
    /// reservation is published or dropped. The bytes are zeros.
    pub fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, QueueError> {
        self.reserve_record(len, &NewRecord::default())
    }

    /// As [`reserve`](Self::reserve), with key, headers and timestamp of `record`; its value plays no part.
    pub fn reserve_record<'a>(
        &'a mut self,
        len: usize,
        record: &NewRecord<'_>,
    ) -> Result<Reservation<'a>, QueueError> {
        Reservation::open(self, len, record)
    }

    pub(crate) fn fields(&self, size_bytes: usize, record_count: i32, timestamp: i64) -> BatchFields {
        BatchFields {
            base_offset: self.head.next_offset,
            epoch: self.epoch,
            size_bytes,
            record_count,
            base_timestamp: timestamp,
            max_timestamp: timestamp,
        }
    }

    /// The bytes of the room. Only between [`begin`](Self::begin) and [`commit`](Self::commit).
    #[inline]
    pub(crate) fn bytes_mut(&mut self, room: Room) -> &mut [u8] {
        debug_assert!(self.held);
        // SAFETY: the writer lock is held since `begin`, which placed the room beyond the published position,
        // and the appender is borrowed as long as the slice lives.
        unsafe { self.segment.map.slice_mut(room.within, room.size_bytes) }
    }

    /// A part of the room's bytes, for reading.
    pub(crate) fn bytes(&self, room: Room, part: std::ops::Range<usize>) -> &[u8] {
        debug_assert!(self.held);
        // SAFETY: as in `bytes_mut`, and the slices of that borrow the appender for themselves.
        let bytes = unsafe { self.segment.map.slice(room.within, room.size_bytes) };
        &bytes[part]
    }

    /// Takes the writer lock and makes room for a batch.
    #[inline]
    pub(crate) fn begin(&mut self, size_bytes: usize) -> Result<Room, QueueError> {
        self.lock()?;
        match self.make_room(size_bytes) {
            Ok(room) => Ok(room),
            Err(error) => {
                self.unlock();
                Err(error)
            }
        }
    }

    #[inline]
    fn make_room(&mut self, size_bytes: usize) -> Result<Room, QueueError> {
        let segment_bytes = self.segment.map.len();
        let mut within = self.place();
        // What a length would take is left zero: a zero length ends a segment.
        if size_bytes > segment_bytes - layout::LENGTH_END - within {
            self.roll(size_bytes)?;
            within = self.place();
        }
        let begin = self.segment.start() + within as u64;
        self.core.control.set_dirty_end(begin + size_bytes as u64);
        Ok(Room { within, size_bytes })
    }

    /// Bytes of the largest batch that a segment of the queue holds.
    pub fn batch_bytes_max(&self) -> usize {
        self.segment.map.len() - layout::LENGTH_END
    }

    #[cold]
    fn too_large(&self, size_bytes: usize) -> QueueError {
        QueueError::TooLarge { size_bytes, limit_bytes: self.batch_bytes_max() }
    }

    /// Where in `segment` the next batch begins.
    fn place(&self) -> usize {
        (self.head.position - self.segment.start()) as usize
    }

    #[cold]
    fn roll(&mut self, size_bytes: usize) -> Result<(), QueueError> {
        if size_bytes > self.batch_bytes_max() {
            return Err(self.too_large(size_bytes));
        }
        let number = self.head.position / self.core.segments.segment_bytes() + 1;
        let position = number * self.core.segments.segment_bytes();
        self.core.check_in_place()?;
        // Marks the roll as begun: if this process dies, the next holder of the lock finds the new segment's
        // file.
        self.core.control.set_dirty_end(position);
        let base = self.head.next_offset;
        let made = self.keeper.in_its_place(|| self.core.segments.get_or_make(base, number));
        self.segment = match made {
            Ok(segment) => segment,
            Err(error) => {
                // The file may bear its name already. Nothing was published into it, and smaller records may
                // still go where the head is: it would be a segment that begins in the middle of another.
                let _ = std::fs::remove_file(self.core.segments.path(base));
                self.core.control.set_dirty_end(self.head.position);
                return Err(error);
            }
        };
        self.head = Head { position, next_offset: base, segment_base: base };
        self.core.control.publish(&self.head);
        // The background has another segment to make ready, and one to sync.
        self.call_at = 0;
        Ok(())
    }

    /// Publishes the batch in `room`, all of which is written, and lets go of the lock. Returns the batch's
    /// offset.
    #[inline]
    pub(crate) fn commit(&mut self, room: Room, record_count: i32) -> Result<Offset, QueueError> {
        if let Err(error) = self.segment.check_whole(room.within) {
            self.abort(room);
            return Err(error);
        }
        let offset = self.head.next_offset;
        self.head = Head {
            position: self.segment.start() + (room.within + room.size_bytes) as u64,
            next_offset: offset.plus(i64::from(record_count)),
            segment_base: self.segment.base,
        };
        let owed = self.core.control.take_sleepers(false);
        self.core.control.publish(&self.head);
        self.unlock();
        self.core.control.wake_tailers(false, owed);
        self.fetch_ahead(room);
        if self.head.position >= self.call_at {
            self.call_keeper();
        }
        if self.head.position >= self.near_at {
            self.make_near_present();
        }
        if self.options.durability == Durability::Sync {
            self.sync()?;
        }
        Ok(offset)
    }

    /// Has the processor fetch lines that appends of the size of this one will store into.
    #[inline]
    fn fetch_ahead(&self, room: Room) {
        self.segment.map.fetch_for_write(room.within + room.size_bytes + FETCH_AHEAD_BYTES, room.size_bytes);
    }

    #[cold]
    fn call_keeper(&mut self) {
        self.call_at = self.keeper.call(self.head.position);
        let makes_near = self.options.ahead_bytes > 0 && self.keeper.leaves_memory_to_appends();
        if makes_near != (self.near_at < u64::MAX) {
            self.near_at = if makes_near { 0 } else { u64::MAX };
        }
    }

    /// Makes the memory present that the next appends store into.
    #[cold]
    fn make_near_present(&mut self) {
        let (start, position) = (self.segment.start(), self.head.position);
        let segment_end = start + self.segment.map.len() as u64;
        let begin = self.near_end.max(position).max(start + self.segment.present);
        let end = (position + 2 * NEAR_BYTES).min(segment_end);
        if begin < end {
            let map = &self.segment.map;
            self.keeper.in_its_place(|| map.populate((begin - start) as usize, (end - begin) as usize));
        }
        self.near_end = end;
        self.near_at = if end == segment_end { end } else { end - NEAR_BYTES };
    }

    /// Returns when everything that was published before the call is synced: it survives a cut of power then.
    /// After an error it may or may not, and nothing more is appended to the queue until the machine has
    /// started anew.
    pub fn sync(&mut self) -> Result<(), QueueError> {
        sync_to(&self.core, &self.owner, self.core.control.published())
    }

    /// Takes back what was stored in a room, and lets go of the lock.
    pub(crate) fn abort(&mut self, room: Room) {
        self.bytes_mut(room).fill(0);
        self.core.control.set_dirty_end(self.head.position);
        self.unlock();
    }

    #[inline]
    fn lock(&mut self) -> Result<(), QueueError> {
        if self.held {
            // A reservation was leaked: its lock is still this appender's.
            self.mend()?;
            return Ok(());
        }
        let taken =
            self.owner.lock(&self.core.control, self.core.control.writer_lock(), self.options.patience)?;
        self.held = true;
        if let Err(error) = self.look(taken) {
            self.unlock();
            return Err(error);
        }
        Ok(())
    }

    /// Brings the appender up to where the queue is.
    #[inline]
    fn look(&mut self, taken: Taken) -> Result<(), QueueError> {
        if taken == Taken::FromDead {
            self.mend()?;
        } else if self.core.control.published() != self.head.position {
            self.follow()?;
        }
        self.core.control.check_whole()?;
        if self.core.control.is_poisoned() {
            return Err(QueueError::Poisoned { path: self.core.segments.dir().to_owned() });
        }
        Ok(())
    }

    #[cold]
    fn follow(&mut self) -> Result<(), QueueError> {
        let head = self.core.head()?;
        // What this appender has published, others may have read.
        if head.position < self.head.position || head.next_offset < self.head.next_offset {
            return Err(self.core.control.went_back());
        }
        if self.segment.base != head.segment_base {
            let number = head.position / self.core.segments.segment_bytes();
            self.segment = self.core.segments.expect(head.segment_base, number)?;
        }
        // Only now: an error above leaves the two as they were, together.
        self.head = head;
        Ok(())
    }

    /// Undoes what a dead holder of the lock has left beyond the published position.
    #[cold]
    fn mend(&mut self) -> Result<(), QueueError> {
        mend(&self.core.control, &self.core.segments)?;
        self.follow()
    }

    fn unlock(&mut self) {
        self.held = false;
        self.owner.unlock(self.core.control.writer_lock());
    }
}

/// Refuses a batch of which tailers would not read one record for each offset.
fn check_whole(batch: &Batch<'_>) -> Result<(), QueueError> {
    let refused = |why: &str| Err(QueueError::Options(why.to_owned()));
    if batch.is_control() || batch.is_transactional() {
        return refused("a queue takes neither control batches nor transactions");
    }
    let count = batch.record_count();
    if !(1..=BATCH_RECORDS_MAX).contains(&count) || batch.last_offset_delta() != count - 1 {
        return refused("a batch has records, and as many offsets");
    }
    Ok(())
}

/// Undoes what an append has begun and not published: zeros what was stored between the queue's head and the
/// dirty end, durably, so that neither a reader of the file nor a recovery takes it for batches; a roll whose
/// file is there is finished. For the holder of the writer lock, or who is alone.
pub(crate) fn mend(control: &Control, segments: &Segments) -> Result<(), QueueError> {
    let (head, dirty_end) = (control.head()?, control.dirty_end());
    if dirty_end <= head.position {
        return Ok(());
    }
    let segment_bytes = segments.segment_bytes();
    let number = head.position / segment_bytes;
    if dirty_end == (number + 1) * segment_bytes {
        let base = head.next_offset;
        if segments.get(base, number + 1)?.is_some() {
            control.publish(&Head { position: dirty_end, next_offset: base, segment_base: base });
        } else {
            control.set_dirty_end(head.position);
        }
        return Ok(());
    }
    if dirty_end / segment_bytes != number {
        return Err(control.damaged(crate::layout::DIRTY_END_AT, "dirty end"));
    }
    let segment = segments.expect(head.segment_base, number)?;
    let within = (head.position % segment_bytes) as usize;
    // SAFETY: the caller holds the writer lock or is alone, and the range lies beyond what is published.
    unsafe { segment.map.slice_mut(within, (dirty_end - head.position) as usize) }.fill(0);
    segment.map.sync(within, (dirty_end - head.position) as usize).at("sync", &segment.path)?;
    control.set_dirty_end(head.position);
    Ok(())
}

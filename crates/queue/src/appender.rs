//! Appending: the writer lock around room, bytes and publication.
//!
//! Guarantees that a reader sees a batch whole or not at all, that an append allocates only when a segment is full,
//! and that the bytes of an append that was begun and not published are zeros again before the next append.
//!
//! Steps of an append: lock (one compare-and-swap) -> room in the segment -> dirty end -> bytes and CRC -> head and
//! published position -> unlock (one store) -> wake the sleeping tailers.

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
    /// The value; `None` is a tombstone in a compacted log.
    pub value: Option<&'a [u8]>,
    /// The headers, in order.
    pub headers: &'a [Header<'a>],
    /// When it happened. Without one, the record gets the time of the append, as exact as the kernel's tick (1 to 10
    /// ms).
    pub timestamp: Option<TimestampMs>,
}

/// Appends records to a queue.
///
/// Invariants: `segment` is the one that `head` lies in. While `held` is set, this appender has the writer lock, and
/// its stores lie between the published position and the dirty end. An appender that is dropped while it has the lock
/// (its reservation was leaked) leaves the lock as a dying process does: the next holder takes over and mends.
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
    /// Position from which on an append calls the keeper.
    call_at: u64,
    /// Position from which on this appender makes memory present itself, and up to which it has done so.
    near_at: u64,
    near_end: u64,
}

/// How far ahead of the append cache lines are prefetched: memory takes longer than an append.
const FETCH_AHEAD_BYTES: usize = 1024;

/// Bytes that one append makes present, where the keeper has no core to run on.
const NEAR_BYTES: u64 = 64 << 10;

/// Room for a batch, in the segment that it goes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Byte offset in the appender's segment.
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

    /// Appends a record that is only a value. Returns its offset once every tailer of this machine can see it; from
    /// then on the record survives the failures that the appender's [`Durability`] names. If a sync fails, the record
    /// stays appended.
    #[inline]
    pub fn append(&mut self, value: &[u8]) -> Result<Offset, QueueError> {
        // Refuses a length that no segment has before the lock is taken: sums with it would overflow.
        if value.len() >= self.segment.map.len() {
            return Err(self.too_large(value.len()));
        }
        // Does the part that does not depend on the offset before the writer lock is taken.
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

    /// Appends a batch as another producer made it, in whatever codec; only base offset and leader epoch are
    /// rewritten. Returns the offset of its first record. As durable as [`append`](Self::append) makes it. Refuses
    /// batches that tailers could not return as records: control batches, transactions, and batches with gaps in
    /// their offsets.
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

    /// Makes room for a value of `len` bytes, zeros at first, that the caller writes in place. Keeps the writer lock
    /// until the reservation is published or dropped.
    pub fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, QueueError> {
        self.reserve_record(len, &NewRecord::default())
    }

    /// As [`reserve`](Self::reserve), with the key, headers and timestamp of `record`; its value is ignored.
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
        // The four bytes that a length would take stay zero: a zero length ends a segment.
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

    /// Byte offset in `segment` at which the next batch begins.
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
                // The file may have its name already. Nothing was published into it, and smaller records may still go
                // to the old segment, after which this file would begin inside the range of another.
                let _ = std::fs::remove_file(self.core.segments.path(base));
                self.core.control.set_dirty_end(self.head.position);
                return Err(error);
            }
        };
        self.head = Head { position, next_offset: base, segment_base: base };
        self.core.control.publish(&self.head);
        // The keeper has another segment to prepare, and the syncer one to sync.
        self.call_at = 0;
        Ok(())
    }

    /// Publishes the batch in `room`, which must be written completely, and releases the lock. Returns the batch's
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

    /// Prefetches the cache lines that appends of this size will store into next.
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

    /// Makes the memory present that the next appends will store into.
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

    /// Returns when everything that was published before the call is synced and survives a power cut. After an error
    /// it may or may not survive one, and the queue refuses appends until the machine has booted again.
    pub fn sync(&mut self) -> Result<(), QueueError> {
        sync_to(&self.core, &self.owner, self.core.control.published())
    }

    /// Zeros what was stored in a room, and releases the lock.
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

    /// Brings the appender's view up to the queue's head.
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
        // Readers may have read what this appender has published, so the head never goes back.
        if head.position < self.head.position || head.next_offset < self.head.next_offset {
            return Err(self.core.control.went_back());
        }
        if self.segment.base != head.segment_base {
            let number = head.position / self.core.segments.segment_bytes();
            self.segment = self.core.segments.expect(head.segment_base, number)?;
        }
        // Assigned last, so that an error above leaves head and segment consistent.
        self.head = head;
        Ok(())
    }

    /// Undoes what a dead lock holder has left beyond the published position.
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

/// Refuses a batch from which a tailer would not read exactly one record per offset.
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

/// Undoes an append that was begun and not published. The bytes between the queue's head and the dirty end become
/// zeros, durably, so that neither a reader of the file nor a recovery takes them for batches; a roll whose file
/// exists is completed. Requires the writer lock or sole access.
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
    // SAFETY: the caller holds the writer lock or has sole access, and the range lies beyond the published position.
    unsafe { segment.map.slice_mut(within, (dirty_end - head.position) as usize) }.fill(0);
    segment.map.sync(within, (dirty_end - head.position) as usize).at("sync", &segment.path)?;
    control.set_dirty_end(head.position);
    Ok(())
}

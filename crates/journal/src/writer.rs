//! The writer, which runs on the journal's thread: gathers queued entries, writes them as one frame, syncs, and tells
//! the owners.
//!
//! Owns the place where the next frame goes, and the synced position. Guarantees that owners are told in the order of
//! submission and only after the disk has confirmed; and that after a failed write or sync, neither of which is ever
//! tried again, owners are told only of the failure. While one group is written, the next one queues. The prefiller's
//! worker belongs to the writer, and ends with it.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use bytes::Bytes;
use riverrun_env::{AlignedBuffer, Step, Work, Worker, prefetch_at};
use riverrun_types::ErrorKind;

use crate::buffers::{Buffers, SMALL_BYTES};
use crate::files::{Claims, Files, NoRoom};
use crate::frames::{
    ENTRY_BYTES, EntryToEncode, FRAME_HEADER_BYTES, FrameHeader, encode_frame, entry_position, frame_bytes,
};
use crate::policy::{Gathered, GroupPolicy, SyncReason};
use crate::prefiller::Prefiller;
use crate::shared::{Queued, Shared, Shortage};
use crate::{JournalError, StoredEntry, SyncMethod, Wants};

/// Owners get [`EntryOwner::announce`](crate::EntryOwner::announce) this many entries before their `stored`.
const ANNOUNCED_AHEAD: usize = 8;

/// Pause between two checks for space, or for a file to use again.
const SHORTAGE_WAIT: Duration = Duration::from_millis(100);

/// In the reserve of its volume, the writer waits this long for files to be settled before new entries are refused.
const SETTLING_WAIT_US: u64 = 2_000_000;

/// Entries that will share a frame.
#[derive(Default)]
struct Group {
    entries: Vec<Queued>,
    payload_bytes: usize,
    crcs: Vec<u32>,
    since: Duration,
    reason: Option<SyncReason>,
}

impl Group {
    fn frame_bytes(&self) -> usize {
        frame_bytes(self.entries.len(), self.payload_bytes)
    }
}

/// Lets the owners whose entries come soon prefetch what they need.
fn announce(coming: &[Queued]) {
    if let Some(queued) = coming.get(2 * ANNOUNCED_AHEAD) {
        prefetch_at(Arc::as_ptr(&queued.submission.owner).cast::<u8>(), 0, 1);
    }
    if let Some(queued) = coming.get(ANNOUNCED_AHEAD) {
        queued.submission.owner.announce();
    }
}

/// Poisons the journal if its thread panics, which only an owner can cause: the queued entries would never be stored.
struct Alarm {
    shared: Arc<Shared>,
    dir: PathBuf,
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.dead_thread.get_or_init(|| "journal");
            let error = io::Error::other("the journal's thread has panicked");
            self.shared.fail(std::iter::empty(), &JournalError::write(&self.dir, error));
        }
    }
}

/// Reports a panic of the prefiller's worker, whose work no other thread does.
struct AheadAlarm(Arc<Shared>);

impl Drop for AheadAlarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.dead_thread.get_or_init(|| "journal-ahead");
        }
    }
}

/// The prefiller's worker; it ends with the journal's.
struct Helper {
    prefiller: Arc<Prefiller>,
    shared: Arc<Shared>,
    worker: Option<Box<dyn Worker>>,
}

impl Helper {
    /// Starts the worker, unless it runs. Without it the journal's worker fills files in steps.
    fn start(&mut self) {
        if self.worker.is_some() {
            return;
        }
        let work = Ahead { prefiller: self.prefiller.clone(), _alarm: AheadAlarm(self.shared.clone()) };
        match self.shared.env.workers.start("journal-ahead", Box::new(work)) {
            Ok(worker) => {
                self.prefiller.wakes(worker.wake());
                self.worker = Some(worker);
            }
            Err(error) => tracing::warn!(%error, "nothing is made ahead for the journal"),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.prefiller.end();
        if self.worker.take().is_some_and(|worker| !worker.join()) {
            tracing::error!("the journal's prefiller has panicked");
        }
    }
}

/// The work of the prefiller's worker.
struct Ahead {
    prefiller: Arc<Prefiller>,
    _alarm: AheadAlarm,
}

impl Work for Ahead {
    fn step(&mut self) -> Step {
        self.prefiller.step()
    }
}

/// The work of the journal's worker.
pub(crate) struct JournalWork(Stage);

enum Stage {
    /// The writer is sent once the worker is sure to run.
    Waits(Receiver<Writer>),
    /// Dropped in this order.
    Works { helper: Helper, _alarm: Alarm, writer: Box<Writer> },
}

impl JournalWork {
    /// Waits for the writer at its first step.
    pub(crate) fn waits_for(writer: Receiver<Writer>) -> Self {
        Self(Stage::Waits(writer))
    }
}

impl Work for JournalWork {
    fn step(&mut self) -> Step {
        match &mut self.0 {
            Stage::Waits(handed) => {
                let Ok(writer) = handed.recv() else { return Step::Done };
                let shared = writer.shared.clone();
                let helper = Helper { prefiller: writer.prefiller(), shared: shared.clone(), worker: None };
                let alarm = Alarm { shared, dir: writer.files.dir.clone() };
                self.0 = Stage::Works { helper, _alarm: alarm, writer: Box::new(writer) };
                Step::Again
            }
            Stage::Works { helper, writer, .. } => {
                let step = writer.step();
                if std::mem::take(&mut writer.is_ahead_wanted) {
                    helper.start();
                }
                step
            }
        }
    }
}

/// The state of the journal's worker.
///
/// Invariants: `synced <= files.end`; `unsynced_since` is set exactly while something that was written to the current
/// file is not synced; what an older file holds is synced.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    files: Files,
    group: Group,
    synced: u64,
    /// The settled position that a synced header or frame states.
    settled_on_disk: u64,
    /// The settled position that the last written frame states.
    settled_written: u64,
    unsynced_since: Option<Duration>,
    /// A small buffer for the next group.
    buffer: Option<AlignedBuffer>,
    buffers: Buffers,
    /// Something was ordered from the prefiller.
    is_ahead_wanted: bool,
    /// The group waits for a resource that the system lacks.
    is_short: bool,
    /// The volume had no room for more at the last check.
    cannot_grow: bool,
}

impl Writer {
    /// A writer that goes on behind `synced`, which is where the frames of all files end.
    pub(crate) fn new(shared: Arc<Shared>, files: Files, synced: u64, settled_on_disk: u64) -> Self {
        Self {
            shared,
            files,
            group: Group::default(),
            synced,
            settled_on_disk,
            settled_written: settled_on_disk,
            unsynced_since: None,
            buffer: None,
            buffers: Buffers::default(),
            is_ahead_wanted: false,
            is_short: false,
            cannot_grow: false,
        }
    }

    /// The prefiller that works for this writer.
    pub(crate) fn prefiller(&self) -> Arc<Prefiller> {
        self.files.prefiller.clone()
    }

    /// One step: stores a group or, without one, does the work that is due.
    pub(crate) fn step(&mut self) -> Step {
        let result = match self.shared.vanished.get().cloned() {
            Some(error) => Err(error),
            None if self.gather() => self.store(),
            None => self.idle(),
        };
        match result {
            Ok(step) => step,
            Err(error) => {
                self.fail(&error);
                Step::Done
            }
        }
    }

    fn now(&self) -> Duration {
        self.shared.env.clock.monotonic()
    }

    /// Takes from the queue until the group is complete; returns `false` if there is nothing to store.
    fn gather(&mut self) -> bool {
        let options = &self.files.options;
        let policy = GroupPolicy { bytes: options.group_bytes.max(1), wait: options.group_wait };
        while self.group.reason.is_none() {
            let is_queue_empty = self.take(policy.bytes);
            if self.group.entries.is_empty() {
                return false;
            }
            let waited = self.now().saturating_sub(self.group.since);
            let gathered = Gathered { bytes: self.group.payload_bytes, waited, is_queue_empty };
            self.group.reason = policy.decide(gathered);
        }
        true
    }

    /// Takes queued entries as long as they fit into a frame and the group has less than `bytes_wanted`. Returns
    /// whether the queue was empty already.
    fn take(&mut self, bytes_wanted: usize) -> bool {
        let bytes_max = Files::frame_bytes_max(&self.files.options);
        let group = &mut self.group;
        let taken_before = group.entries.len();
        {
            let mut queue = self.shared.queue.lock();
            while group.payload_bytes < bytes_wanted
                && let Some(next) = queue.entries.front()
            {
                let payload_bytes = group.payload_bytes + next.submission.payload.len();
                if frame_bytes(group.entries.len() + 1, payload_bytes) as u64 > bytes_max {
                    group.reason = Some(SyncReason::GroupBytes);
                    break;
                }
                group.payload_bytes = payload_bytes;
                group.entries.extend(queue.entries.pop_front());
            }
        }
        if taken_before == 0 {
            group.since = self.shared.env.clock.monotonic();
        }
        // The longest part of the work is done here, where other threads may queue meanwhile.
        let new = &group.entries[taken_before..];
        group.crcs.extend(new.iter().map(|queued| crc32c::crc32c(&queued.submission.payload)));
        taken_before == group.entries.len()
    }

    /// Writes the group, syncs if any entry in it wants that, and tells the owners.
    fn store(&mut self) -> Result<Step, JournalError> {
        let bytes = self.group.frame_bytes().next_multiple_of(self.files.options.alignment);
        if let Some(step) = self.make_ready(bytes as u64)? {
            return Ok(step);
        }
        let started = self.now();
        for queued in &self.group.entries {
            self.shared.counters.queued(started.saturating_sub(queued.at));
        }
        let frame = self.encode(bytes);
        let wants_sync = self.group.entries.iter().any(|queued| queued.submission.wants == Wants::Sync);
        // Under steady load the thread is never idle.
        let wants_sync = wants_sync || self.sync_in(started) == Some(Duration::ZERO);
        self.write(&frame, wants_sync, started)?;
        self.end_waiting();
        self.tell(frame, wants_sync);
        let settled = self.shared.settled.load(Ordering::Acquire);
        self.is_ahead_wanted |= self.files.look_ahead(settled);
        let wants_files = self.cannot_grow && self.files.ends_soon(settled);
        if self.shared.wants_files.load(Ordering::Relaxed) != wants_files {
            self.shared.wants_files.store(wants_files, Ordering::Relaxed);
        }
        Ok(Step::Again)
    }

    /// Ends a wait, once a group is stored. An owner that hears of its entry and goes on at once is not refused for it.
    fn end_waiting(&mut self) {
        if self.shared.full_since_us.load(Ordering::Relaxed) > 0 {
            self.shared.full_since_us.store(0, Ordering::Relaxed);
        }
        if std::mem::take(&mut self.is_short) {
            self.shared.queue.lock().shortage = None;
            tracing::info!("the journal goes on");
        }
    }

    /// Makes sure that a frame of `frame_bytes` can be written at `files.end`, and that the first-use function has
    /// been called; otherwise returns the step to take meanwhile.
    fn make_ready(&mut self, frame_bytes: u64) -> Result<Option<Step>, JournalError> {
        if let Some(step) = self.make_room(frame_bytes)? {
            return Ok(Some(step));
        }
        match self.shared.report_first_use(self.files.id) {
            Err(error) if error.kind() == ErrorKind::Retry => Ok(Some(self.wait_for_system(&error))),
            result => result.map(|()| None),
        }
    }

    /// Makes sure that a frame of `frame_bytes` can be written at `files.end`; otherwise returns the step to take
    /// meanwhile.
    fn make_room(&mut self, frame_bytes: u64) -> Result<Option<Step>, JournalError> {
        let result = if !self.files.has_place_for(frame_bytes, false) {
            self.cannot_grow = false;
            self.go_on_elsewhere(frame_bytes)
        } else if self.files.is_filled_for(frame_bytes) {
            Ok(())
        } else {
            self.make_room_here(frame_bytes)
        };
        match result {
            Ok(()) => Ok(None),
            Err(NoRoom::Failed(error)) => Err(error),
            Err(NoRoom::Shortage(_)) if self.halve() => Ok(Some(Step::Again)),
            Err(reason) => Ok(Some(self.wait_for_room(&reason))),
        }
    }

    /// Fills the current file further, or goes on in another file if it may not grow.
    fn make_room_here(&mut self, frame_bytes: u64) -> Result<(), NoRoom> {
        let mut shortage = None;
        if self.files.may_grow_for(frame_bytes) {
            match self.files.allocate_for(frame_bytes) {
                Err(NoRoom::Shortage(error)) => shortage = Some(error),
                result => {
                    self.cannot_grow = !self.files.may_grow();
                    return result;
                }
            }
        }
        self.cannot_grow = true;
        match (self.go_on_elsewhere(frame_bytes), shortage) {
            (Err(NoRoom::Full), Some(error)) => Err(NoRoom::Shortage(error)),
            (result, _) => result,
        }
    }

    fn go_on_elsewhere(&mut self, frame_bytes: u64) -> Result<(), NoRoom> {
        self.sync().map_err(NoRoom::Failed)?;
        self.begin(frame_bytes)
    }

    /// Leaves half of the group's entries for the next one, because a smaller frame may fit where this one finds no
    /// space. Returns `false` if the group has one entry only.
    fn halve(&mut self) -> bool {
        let group = &mut self.group;
        let kept = group.entries.len() / 2;
        if kept == 0 {
            return false;
        }
        let mut queue = self.shared.queue.lock();
        for queued in group.entries.drain(kept..).rev() {
            group.payload_bytes -= queued.submission.payload.len();
            queue.entries.push_front(queued);
        }
        group.crcs.truncate(kept);
        true
    }

    fn wait_for_room(&mut self, reason: &NoRoom) -> Step {
        self.shared.wants_files.store(true, Ordering::Relaxed);
        if let NoRoom::Shortage(error) = reason {
            return self.wait_for_system(error);
        }
        let now_us = u64::try_from(self.now().as_micros()).unwrap_or(u64::MAX).max(1);
        let since_us = match self.shared.full_since_us.load(Ordering::Relaxed) {
            0 => now_us,
            since_us => since_us,
        };
        self.shared.full_since_us.store(since_us, Ordering::Relaxed);
        // With more space the writer would not have to wait; and it waits in vain if the log dirs have no space to
        // settle into either.
        if now_us.saturating_sub(since_us) >= SETTLING_WAIT_US && self.files.is_in_reserve() {
            return self
                .wait_for_system(&JournalError::io(&self.files.dir, io::ErrorKind::StorageFull.into()));
        }
        self.wait_a_little()
    }

    /// Refuses new entries until the waiting ones are stored.
    fn wait_for_system(&mut self, error: &JournalError) -> Step {
        if !std::mem::replace(&mut self.is_short, true) {
            tracing::warn!(%error, "the journal waits for a resource that the system lacks");
            let mut queue = self.shared.queue.lock();
            let queued = queue.entries.iter().map(|queued| queued.submission.payload.len());
            let waiting_bytes = (self.group.payload_bytes + queued.sum::<usize>()) as u64;
            queue.shortage = Some(Shortage { error: error.clone(), waiting_bytes });
        }
        self.wait_a_little()
    }

    /// Checks again soon, unless the journal ends: the waiting entries are not stored then.
    fn wait_a_little(&mut self) -> Step {
        let (is_abandoned, is_closing) = self.shared.ending();
        if is_closing {
            self.shared.refuse_queued(self.group.entries.drain(..), &JournalError::Closed);
        }
        if is_abandoned || is_closing { Step::Done } else { Step::Sleep(Some(SHORTAGE_WAIT)) }
    }

    /// Goes on in the next file. Files that are settled, but not by a synced header, become usable by a note.
    fn begin(&mut self, frame_bytes: u64) -> Result<(), NoRoom> {
        let settled = self.shared.settled.load(Ordering::Acquire);
        let oldest = self.files.older.front().map(|file| file.frames_end);
        let frees_oldest = oldest.is_some_and(|end| self.settled_on_disk < end && end <= settled);
        if frees_oldest && self.files.has_place_for(self.files.options.alignment as u64, true) {
            self.write_note().map_err(NoRoom::Failed)?;
        }
        let settled = self.shared.settled.load(Ordering::Acquire);
        let claims = Claims { synced: self.synced, settled, settled_on_disk: self.settled_on_disk };
        self.files.begin(claims, frame_bytes)?;
        self.say_settled(settled);
        self.publish_oldest();
        self.cannot_grow |= !self.files.may_grow();
        Ok(())
    }

    /// Writes a note: a frame without entries, which states what is synced and settled. The last block of a file is
    /// kept for it.
    fn write_note(&mut self) -> Result<(), JournalError> {
        let bytes = self.files.options.alignment;
        match self.files.allocate_for_note() {
            Ok(()) => {}
            Err(NoRoom::Failed(error)) => return Err(error),
            // Without it the next start finds more than it needs.
            Err(_) => return Ok(()),
        }
        let header = self.frame_header();
        let mut frame = AlignedBuffer::with_capacity(bytes, bytes);
        encode_frame(&mut frame, &header, std::iter::empty(), bytes);
        let started = self.now();
        self.write(&frame, true, started)?;
        self.shared.delivered.store(self.files.end, Ordering::Release);
        // The note itself holds no entry that could be missed.
        if header.settled == header.position {
            self.shared.settled.fetch_max(self.files.end, Ordering::AcqRel);
            self.say_settled(self.files.end);
        }
        Ok(())
    }

    fn frame_header(&mut self) -> FrameHeader {
        self.settled_written = self.shared.settled.load(Ordering::Acquire);
        FrameHeader {
            id: self.files.id,
            position: self.files.end,
            synced: self.synced,
            settled: self.settled_written,
        }
    }

    /// Encodes the group as a frame for the place at `files.end`.
    fn encode(&mut self, bytes: usize) -> AlignedBuffer {
        let header = self.frame_header();
        let alignment = self.files.options.alignment;
        let kept = self.buffer.take().filter(|buffer| buffer.capacity() >= bytes);
        let mut frame = kept.unwrap_or_else(|| self.buffers.take(bytes, alignment));
        frame.clear();
        let entries = self.group.entries.iter().zip(&self.group.crcs).map(|(queued, crc)| EntryToEncode {
            header: &queued.submission.header,
            payload: &queued.submission.payload,
            payload_crc: *crc,
        });
        encode_frame(&mut frame, &header, entries, alignment);
        frame
    }

    /// Writes a frame at `files.end`, where there is room for it, and syncs all unsynced bytes if `wants_sync`.
    fn write(&mut self, frame: &[u8], wants_sync: bool, started: Duration) -> Result<(), JournalError> {
        let current = self.files.current.as_ref().expect("there is room");
        let offset = self.files.end - current.header.start;
        let is_one_call = wants_sync
            && self.unsynced_since.is_none()
            && self.files.options.sync_method == SyncMethod::DirectDsync;
        let failed = |error| JournalError::write(&current.path, error);
        let written = if is_one_call {
            self.shared.counters.wrote(self.now().saturating_sub(started));
            let started = self.now();
            current.file.write_durable_at(frame, offset).map_err(failed)?;
            self.shared.counters.synced(self.now().saturating_sub(started));
            true
        } else {
            current.file.write_all_at(frame, offset).map_err(failed)?;
            self.shared.counters.wrote(self.now().saturating_sub(started));
            false
        };
        self.files.end += frame.len() as u64;
        if written {
            self.raise_synced()?;
        } else {
            self.unsynced_since.get_or_insert(started);
            if wants_sync {
                self.sync()?;
            }
        }
        Ok(())
    }

    /// Syncs the bytes that were written without a sync.
    fn sync(&mut self) -> Result<(), JournalError> {
        if self.unsynced_since.is_none() {
            return Ok(());
        }
        let current = self.files.current.as_ref().expect("something was written to it");
        let started = self.now();
        current.file.sync_data().map_err(|error| JournalError::write(&current.path, error))?;
        self.shared.counters.synced(self.now().saturating_sub(started));
        self.raise_synced()
    }

    /// Raises the synced position, unless the prefiller has met an error in this file meanwhile.
    fn raise_synced(&mut self) -> Result<(), JournalError> {
        if let Some(error) = self.files.failure() {
            return Err(error);
        }
        self.synced = self.files.end;
        self.unsynced_since = None;
        self.say_settled(self.settled_on_disk.max(self.settled_written));
        self.shared.synced.store(self.synced, Ordering::Release);
        Ok(())
    }

    /// Remembers that the disk states everything below `settled` to be settled.
    fn say_settled(&mut self, settled: u64) {
        self.settled_on_disk = settled;
        self.shared.settled_on_disk.store(settled, Ordering::Release);
    }

    /// Tells the group's owners, and updates the counters.
    fn tell(&mut self, frame: AlignedBuffer, is_synced: bool) {
        let group = &self.group;
        let position = self.files.end - frame.len() as u64;
        let (count, used) = (group.entries.len(), group.frame_bytes());
        self.shared.counters.count_frame(count, frame.len(), frame.len() - used);
        let reason = self.group.reason.take().unwrap_or(SyncReason::QueueEmpty);
        self.shared.counters.count_group(reason);
        let payloads = self.share(frame, FRAME_HEADER_BYTES + count * ENTRY_BYTES..used);
        let now = self.shared.env.clock.wall();
        let group = &mut self.group;
        let mut at = 0;
        let mut index = 0;
        let mut entries = group.entries.drain(..);
        while let Some(queued) = entries.next() {
            announce(entries.as_slice());
            let end = at + queued.submission.payload.len();
            queued.submission.owner.stored(StoredEntry {
                header: &queued.submission.header,
                payload: payloads.slice(at..end),
                position: entry_position(position, index),
                is_synced,
                now,
            });
            at = end;
            index += 1;
        }
        drop(entries);
        group.crcs.clear();
        group.payload_bytes = 0;
        self.shared.delivered.store(self.files.end, Ordering::Release);
        self.shared.delivered_count.fetch_add(count as u64, Ordering::Release);
    }

    /// The payloads of a frame, for as long as they have readers. Where padding or spare room would pin more than the
    /// payloads themselves, they move to memory of their own, and the buffer is used again.
    fn share(&mut self, frame: AlignedBuffer, payloads: Range<usize>) -> Bytes {
        if 2 * payloads.len() >= frame.capacity() + self.files.options.alignment {
            return self.buffers.lend(frame).slice(payloads);
        }
        let copy = Bytes::copy_from_slice(&frame[payloads]);
        if frame.capacity() <= SMALL_BYTES {
            self.buffer = Some(frame);
        } else {
            self.buffers.put(frame);
        }
        copy
    }

    /// The queue is empty: ends or syncs, if that is due.
    fn idle(&mut self) -> Result<Step, JournalError> {
        let (is_abandoned, is_closing) = self.shared.ending();
        if is_abandoned {
            return Ok(Step::Done);
        }
        // Entries that came between the check of the queue and the closing are stored first.
        if is_closing && self.shared.has_queued() {
            return Ok(Step::Again);
        }
        if is_closing {
            self.finish()?;
            return Ok(Step::Done);
        }
        let sync_in = self.sync_in(self.now());
        if sync_in == Some(Duration::ZERO) {
            self.sync()?;
            return Ok(Step::Again);
        }
        Ok(Step::Sleep(sync_in))
    }

    /// Time that is left until unsynced bytes have to be synced, if there are any.
    fn sync_in(&self, now: Duration) -> Option<Duration> {
        self.unsynced_since.map(|since| (since + self.files.options.sync_interval).saturating_sub(now))
    }

    /// Syncs all unsynced bytes, and writes a note, so that the next start has no tail to doubt and reads nothing
    /// settled.
    pub(crate) fn finish(&mut self) -> Result<(), JournalError> {
        self.sync()?;
        let settled = self.shared.settled.load(Ordering::Acquire);
        let has_files = self.files.current.is_some() || !self.files.older.is_empty();
        let wrote =
            self.files.current.as_ref().is_some_and(|file| self.files.end > file.header.frames_start());
        if !has_files || !(wrote || settled > self.settled_on_disk) {
            return Ok(());
        }
        if self.files.has_place_for(self.files.options.alignment as u64, true) {
            return self.write_note();
        }
        match self.begin(0) {
            Err(NoRoom::Failed(error)) => Err(error),
            // Without a note the next start finds more than it needs.
            _ => Ok(()),
        }
    }

    /// Publishes where the oldest file begins in which something is not settled.
    fn publish_oldest(&self) {
        let older = self.files.older.iter().find(|file| file.frames_end > self.settled_on_disk);
        let current = self.files.current.as_ref().map(|file| file.header.start);
        if let Some(oldest) = older.map(|file| file.header.start).or(current) {
            self.shared.oldest.store(oldest, Ordering::Release);
        }
    }

    pub(crate) fn fail(&mut self, error: &JournalError) {
        tracing::error!(%error, "the journal has failed");
        self.shared.fail(self.group.entries.drain(..), error);
    }
}

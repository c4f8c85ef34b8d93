//! The mapped control file: writer lock, published position and synced position.
//!
//! Owns every access to the file's fields and the order in which they are stored. Guarantees that a head is read
//! whole, and that a value was stored by the protocol or is refused. Knows no segments.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

use riverrun_records::layout;
use riverrun_types::{LeaderEpoch, Offset};

use crate::error::{At as _, Damage, QueueError};
use crate::layout as at;
use crate::mapping::{Access, Mapping};
use crate::opening;
use crate::protocol::{self, Look, Memory};
use crate::segment::is_named;
use crate::sys::{self, Life, LockFile};

/// Name of the control file, which marks a directory as a queue.
pub const CONTROL_NAME: &str = "queue.control";
const NEW_CONTROL_NAME: &str = "queue.control.new";

/// The end of the queue: the facts that one store of the published position makes true together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Start of the next batch, unless it begins a new segment.
    pub(crate) position: u64,
    /// The offset that the next record gets.
    pub(crate) next_offset: Offset,
    /// Base offset of the segment that `position` lies in.
    pub(crate) segment_base: Offset,
}

impl Head {
    /// True if such a head can exist in a queue with segments of this size.
    pub(crate) fn is_possible(&self, segment_bytes: u64) -> bool {
        // No queue gets as far as a quarter of the 64-bit range.
        let in_range = self.position < 1 << 62 && self.next_offset.0 < 1 << 62;
        let within = self.position % segment_bytes;
        in_range
            && within <= segment_bytes - layout::LENGTH_END as u64
            && self.segment_base >= Offset::ZERO
            && self.next_offset >= self.segment_base
    }
}

/// A head up to which the disk has everything; recovery begins there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) head: Head,
    pub(crate) epoch: LeaderEpoch,
    pub(crate) sequence: u64,
}

/// The control file of one queue.
///
/// Invariants: the mapping has [`at::CONTROL_BYTES`]; the identity was checked when it was opened. Methods that store
/// are called only if it was opened for [`Access::Write`].
#[derive(Debug)]
pub(crate) struct Control {
    path: PathBuf,
    file: LockFile,
    map: Mapping,
    access: Access,
    segment_bytes: u64,
    queue_id: u128,
    /// The queue's file that was found missing or replaced; empty while none was.
    lost: OnceLock<PathBuf>,
}

impl Control {
    /// Makes the file for an empty queue, durably. The file is complete before it gets its name, and replaces any
    /// file of that name.
    pub(crate) fn create(dir: &Path, segment_bytes: u64, created_ms: i64) -> Result<(), QueueError> {
        let mut bytes = [0; at::CONTROL_BYTES];
        let mut put = |place: usize, field: &[u8]| bytes[place..place + field.len()].copy_from_slice(field);
        put(at::MAGIC_AT, &at::MAGIC.to_le_bytes());
        put(at::VERSION_AT, &at::VERSION.to_le_bytes());
        put(at::SEGMENT_BYTES_AT, &segment_bytes.to_le_bytes());
        put(at::CREATED_AT, &created_ms.to_le_bytes());
        put(at::QUEUE_ID_AT, &sys::random_id().at("draw a number for", dir)?.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..at::IDENTITY_CRC_AT]);
        bytes[at::IDENTITY_CRC_AT..at::IDENTITY_CRC_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        let (new, path) = (dir.join(NEW_CONTROL_NAME), dir.join(CONTROL_NAME));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let mut file = opening::open_file(&mut options, &new).at("create", &new)?;
        file.write_all(&bytes).at("write", &new)?;
        let control = Self::map(new.clone(), file, Access::Write)?;
        control.reset(&Mark {
            head: Head { position: 0, next_offset: Offset::ZERO, segment_base: Offset::ZERO },
            epoch: LeaderEpoch(0),
            sequence: 0,
        });
        control.set_life(Life::of(&control.file).at("look at", &new)?);
        control.file.sync_all().at("sync", &new)?;
        std::fs::rename(&new, &path).at("rename", &new)?;
        sync_dir(dir)
    }

    /// Opens and maps the file, and checks its identity; `None` if there is no such file.
    pub(crate) fn open(dir: &Path, access: Access) -> Result<Option<Self>, QueueError> {
        let path = dir.join(CONTROL_NAME);
        let file = match access.open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened.at("open", &path)?,
        };
        Self::map(path, file, access).map(Some)
    }

    fn map(path: PathBuf, file: File, access: Access) -> Result<Self, QueueError> {
        // The version first: a later version's file may have another size.
        let (segment_bytes, queue_id) = read_identity(&path, &file)?;
        let found_bytes = file.metadata().at("look at", &path)?.len();
        if found_bytes != at::CONTROL_BYTES as u64 {
            let damage = Damage::Size { found_bytes, expected_bytes: at::CONTROL_BYTES as u64 };
            return Err(QueueError::damaged(&path, found_bytes.min(at::CONTROL_BYTES as u64), damage));
        }
        let map = Mapping::new(&file, at::CONTROL_BYTES, access).at("map", &path)?;
        Ok(Self { path, file: file.into(), map, access, segment_bytes, queue_id, lost: OnceLock::new() })
    }

    #[inline]
    fn u64(&self, place: usize) -> &AtomicU64 {
        self.map.atomic_u64(place)
    }

    #[inline]
    fn u32(&self, place: usize) -> &AtomicU32 {
        self.map.atomic_u32(place)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Distinguishes this queue from one that is made later in the same place.
    pub(crate) fn queue_id(&self) -> u128 {
        self.queue_id
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.access == Access::Read
    }

    pub(crate) fn damaged(&self, place: usize, what: &'static str) -> QueueError {
        QueueError::damaged(&self.path, place as u64, Damage::Field(what))
    }

    /// Refuses a mapping that has lost a part of its file.
    #[inline]
    pub(crate) fn check_whole(&self) -> Result<(), QueueError> {
        if self.map.is_torn() { Err(self.lost()) } else { Ok(()) }
    }

    /// The error for a queue that lost a file.
    #[cold]
    fn lost(&self) -> QueueError {
        match self.lost.get() {
            Some(path) => QueueError::damaged(path, 0, Damage::Vanished),
            None => QueueError::damaged(&self.path, 0, Damage::Unreadable),
        }
    }

    /// Makes [`check_whole`](Self::check_whole) fail from now on, because `path` is not the file that was opened.
    pub(crate) fn lose(&self, path: &Path) {
        self.lost.get_or_init(|| path.to_owned());
        self.map.tear();
    }

    /// The error for a published position below one that this process has seen.
    #[cold]
    pub(crate) fn went_back(&self) -> QueueError {
        QueueError::damaged(&self.path, at::PUBLISHED_AT as u64, Damage::WentBack)
    }

    /// Refuses a control file that has lost its name or its original identity.
    pub(crate) fn check_in_place(&self) -> Result<(), QueueError> {
        if !is_named(&self.file, &self.path)? {
            return Err(QueueError::damaged(&self.path, 0, Damage::Vanished));
        }
        let (segment_bytes, queue_id) = read_identity(&self.path, &self.file)?;
        if (segment_bytes, queue_id) != (self.segment_bytes, self.queue_id) {
            return Err(QueueError::damaged(&self.path, 0, Damage::Vanished));
        }
        Ok(())
    }

    pub(crate) fn epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.u32(at::EPOCH_AT).load(Relaxed) as i32)
    }

    pub(crate) fn life(&self) -> Life {
        // SYNC: life. A reader of this life also reads what the recovery before it stored.
        let (low, high) = (self.u64(at::BOOT_AT).load(Acquire), self.u64(at::BOOT_AT + 8).load(Acquire));
        Life {
            boot: u128::from(low) | u128::from(high) << 64,
            mount: self.u64(at::MOUNT_AT).load(Relaxed),
            device: self.u64(at::DEVICE_AT).load(Relaxed),
            inode: self.u64(at::INODE_AT).load(Relaxed),
        }
    }

    /// Declares the fields valid in `life`. Last step of opening; requires sole access.
    pub(crate) fn set_life(&self, life: Life) {
        self.u64(at::MOUNT_AT).store(life.mount, Relaxed);
        self.u64(at::DEVICE_AT).store(life.device, Relaxed);
        self.u64(at::INODE_AT).store(life.inode, Relaxed);
        // SYNC: life.
        self.u64(at::BOOT_AT).store(life.boot as u64, Release);
        self.u64(at::BOOT_AT + 8).store((life.boot >> 64) as u64, Release);
    }

    /// Clears locks and sleeper flags of processes that are gone. Requires sole access.
    pub(crate) fn forget_the_dead(&self) {
        for place in [
            at::WRITER_LOCK_AT,
            at::SYNC_LOCK_AT,
            at::TAILERS_ASLEEP_AT,
            at::APPENDERS_ASLEEP_AT,
            at::SYNCERS_ASLEEP_AT,
            at::SYNCED_TAILERS_ASLEEP_AT,
            at::MARK_LOCK_AT,
            at::MARKERS_ASLEEP_AT,
        ] {
            self.u32(place).store(0, Relaxed);
        }
    }

    /// Sets all positions to `mark`, which is synced. Requires sole access after recovery, except for views.
    pub(crate) fn reset(&self, mark: &Mark) {
        self.forget_the_dead();
        self.u32(at::EPOCH_AT).store(mark.epoch.0 as u32, Relaxed);
        self.u64(at::DIRTY_END_AT).store(mark.head.position, Relaxed);
        protocol::reset(self, &mark.head);
        self.store_mark(mark);
        self.u64(at::SYNCED_AT).store(mark.head.position, Release);
    }

    /// The writer lock, held for an append, and the flag of the appenders that sleep until it is free.
    #[inline]
    pub(crate) fn writer_lock(&self) -> (&AtomicU32, &AtomicU32) {
        (self.u32(at::WRITER_LOCK_AT), self.u32(at::APPENDERS_ASLEEP_AT))
    }

    /// The sync lock, held for a sync, and the flag of the threads that sleep until it is free.
    pub(crate) fn sync_lock(&self) -> (&AtomicU32, &AtomicU32) {
        (self.u32(at::SYNC_LOCK_AT), self.u32(at::SYNCERS_ASLEEP_AT))
    }

    /// The mark lock, held while a synced mark is stored, and the flag of the threads that sleep until it is free.
    pub(crate) fn mark_lock(&self) -> (&AtomicU32, &AtomicU32) {
        (self.u32(at::MARK_LOCK_AT), self.u32(at::MARKERS_ASLEEP_AT))
    }

    /// The flag of tailers that sleep until something is published, or synced.
    #[inline]
    pub(crate) fn tailers_asleep(&self, synced: bool) -> &AtomicU32 {
        self.u32(if synced { at::SYNCED_TAILERS_ASLEEP_AT } else { at::TAILERS_ASLEEP_AT })
    }

    /// Takes the flag of the tailers that sleep until something is published, or synced, just before the position
    /// moves. Returns whether the flag was set: then the caller owes them [`wake_tailers`](Self::wake_tailers). Taken
    /// after the store, the flag could belong to a tailer that has read the new position and is about to sleep: the
    /// wake-up would come too early for it, and the next append would find no flag.
    #[inline]
    pub(crate) fn take_sleepers(&self, synced: bool) -> bool {
        let asleep = self.tailers_asleep(synced);
        let owed = asleep.load(Relaxed) != 0;
        if owed {
            asleep.store(0, Relaxed);
        }
        owed
    }

    /// Wakes the tailers that sleep until something is published, or synced, after the position has moved. The flag
    /// of a tailer that fell asleep since stays set: it may wait for the next position.
    #[inline]
    pub(crate) fn wake_tailers(&self, synced: bool, owed: bool) {
        if owed || self.tailers_asleep(synced).load(Relaxed) != 0 {
            sys::futex_wake(self.low_half(synced), i32::MAX);
        }
    }

    /// The published position, where readers end.
    #[inline]
    pub(crate) fn published(&self) -> u64 {
        protocol::published(self)
    }

    /// The synced position. SYNC: synced, with [`raise_synced`](Self::raise_synced).
    #[inline]
    pub(crate) fn synced(&self) -> u64 {
        self.u64(at::SYNCED_AT).load(Acquire)
    }

    /// The lower half of the published or the synced position: the futex word of sleeping tailers.
    #[inline]
    pub(crate) fn low_half(&self, synced: bool) -> &AtomicU32 {
        let place = if synced { at::SYNCED_AT } else { at::PUBLISHED_AT };
        self.u32(if cfg!(target_endian = "little") { place } else { place + 4 })
    }

    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.u32(at::POISONED_AT).load(Relaxed) != 0
    }

    pub(crate) fn poison(&self) {
        self.u32(at::POISONED_AT).store(1, Relaxed);
    }

    /// Clears the poison after a boot: memory no longer holds anything that the disk lacks.
    pub(crate) fn forget_poison(&self) {
        self.u32(at::POISONED_AT).store(0, Relaxed);
    }

    /// End of the range that an appender may have stored into.
    pub(crate) fn dirty_end(&self) -> u64 {
        self.u64(at::DIRTY_END_AT).load(Relaxed)
    }

    /// Declares that bytes up to `end` are about to be stored. Requires the writer lock.
    #[inline]
    pub(crate) fn set_dirty_end(&self, end: u64) {
        self.u64(at::DIRTY_END_AT).store(end, Relaxed);
        // A dying writer has executed its stores in program order, so only the compiler must be kept from reordering.
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// The queue's head. Fields that contradict each other or are out of range are damage.
    pub(crate) fn head(&self) -> Result<Head, QueueError> {
        // Appends can overtake a reader repeatedly, but hardly a million times.
        for _ in 0..1_000_000 {
            match protocol::look(self) {
                Look::Overtaken => {}
                Look::Whole(head) if head.is_possible(self.segment_bytes) => return Ok(head),
                Look::Whole(_) | Look::Nothing => break,
            }
        }
        Err(self.damaged(at::HEADS_AT, "head"))
    }

    /// Publishes everything up to `head`. Requires the writer lock.
    #[inline]
    pub(crate) fn publish(&self, head: &Head) {
        protocol::publish(self, head);
    }

    fn load_mark(&self, slot: usize) -> Option<Mark> {
        let place = at::MARKS_AT + slot * at::MARK_STRIDE;
        let words: [u64; 5] = std::array::from_fn(|index| self.u64(place + index * 8).load(Relaxed));
        let stored = self.u32(place + at::MARK_COVERED_BYTES).load(Relaxed);
        (mark_checksum(&words) == stored).then(|| Mark {
            head: Head {
                position: words[0],
                next_offset: Offset(words[1] as i64),
                segment_base: Offset(words[2] as i64),
            },
            epoch: LeaderEpoch(words[3] as u32 as i32),
            sequence: words[4],
        })
    }

    /// The newest synced mark with a valid checksum.
    pub(crate) fn mark(&self) -> Option<Mark> {
        let possible = |mark: &Mark| mark.head.is_possible(self.segment_bytes) && mark.sequence < u64::MAX;
        (0..2).filter_map(|slot| self.load_mark(slot)).filter(possible).max_by_key(|mark| mark.sequence)
    }

    /// Stores the place where a recovery may begin: the disk has everything up to `mark`. Requires the mark lock or
    /// sole access.
    pub(crate) fn store_mark(&self, mark: &Mark) {
        let place = at::MARKS_AT + (mark.sequence % 2) as usize * at::MARK_STRIDE;
        let head = &mark.head;
        let words = [
            head.position,
            head.next_offset.0 as u64,
            head.segment_base.0 as u64,
            u64::from(mark.epoch.0 as u32),
            mark.sequence,
        ];
        for (index, word) in words.iter().enumerate() {
            self.u64(place + index * 8).store(*word, Relaxed);
        }
        self.u32(place + at::MARK_COVERED_BYTES).store(mark_checksum(&words), Relaxed);
    }

    /// Publishes to tailers that the disk has everything up to `position`. Several threads may call it at once.
    pub(crate) fn raise_synced(&self, position: u64) {
        // SYNC: synced.
        self.u64(at::SYNCED_AT).fetch_max(position, AcqRel);
    }

    /// Writes the page of the synced marks to disk and no other: appenders store into the other pages.
    pub(crate) fn sync_marks(&self) -> Result<(), QueueError> {
        self.map.sync(at::MARKS_AT, at::CONTROL_BYTES - at::MARKS_AT).at("sync", &self.path)
    }

    /// Writes the whole control file to disk.
    pub(crate) fn sync_all(&self) -> Result<(), QueueError> {
        self.map.sync(0, at::CONTROL_BYTES).at("sync", &self.path)
    }
}

impl Memory for Control {
    type Long = AtomicU64;

    #[inline]
    fn long(&self, place: usize) -> &AtomicU64 {
        self.u64(place)
    }

    #[inline]
    fn fence(order: Ordering) {
        fence(order);
    }
}

/// Segment size in bytes, and the queue's id, from a control file of a known version.
fn read_identity(path: &Path, file: &File) -> Result<(u64, u128), QueueError> {
    let mut identity = [0; at::IDENTITY_BYTES];
    match file.read_exact_at(&mut identity, 0) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            let found_bytes = file.metadata().at("look at", path)?.len();
            let damage = Damage::Size { found_bytes, expected_bytes: at::CONTROL_BYTES as u64 };
            return Err(QueueError::damaged(path, found_bytes, damage));
        }
        read => read.at("read", path)?,
    }
    let u32_at = |place: usize| identity[place..].first_chunk().map_or(0, |field| u32::from_le_bytes(*field));
    let u64_at = |place: usize| u64::from(u32_at(place)) | u64::from(u32_at(place + 4)) << 32;
    if u64_at(at::MAGIC_AT) != at::MAGIC {
        return Err(QueueError::damaged(path, 0, Damage::Magic));
    }
    let found = u32_at(at::VERSION_AT);
    if found > at::VERSION {
        return Err(QueueError::Version { path: path.to_owned(), found, known: at::VERSION });
    }
    if crc32c::crc32c(&identity[..at::IDENTITY_CRC_AT]) != u32_at(at::IDENTITY_CRC_AT) {
        return Err(QueueError::damaged(path, at::IDENTITY_CRC_AT as u64, Damage::Checksum));
    }
    let queue_id = u128::from(u64_at(at::QUEUE_ID_AT)) | u128::from(u64_at(at::QUEUE_ID_AT + 8)) << 64;
    Ok((u64_at(at::SEGMENT_BYTES_AT), queue_id))
}

fn mark_checksum(words: &[u64; 5]) -> u32 {
    // Seeded with the magic, so that a sector of zeros is no valid mark.
    words.iter().fold(crc32c::crc32c(&at::MAGIC.to_le_bytes()), |sum, word| {
        crc32c::crc32c_append(sum, &word.to_le_bytes())
    })
}

/// Makes the names in `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), QueueError> {
    opening::open_dir(dir).and_then(|dir| dir.sync_all()).at("sync", dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tailer_asleep_at_new_position_is_woken_by_the_next() {
        let dir = tempfile::tempdir().expect("a directory");
        Control::create(dir.path(), 4096, 0).expect("a control file");
        let control = Control::open(dir.path(), Access::Write).expect("whole").expect("there");
        for synced in [false, true] {
            let asleep = control.tailers_asleep(synced);
            asleep.store(1, Relaxed);
            let owed = control.take_sleepers(synced);
            assert!(owed, "one sleeps over the old position");
            // The new position is stored between the two calls. Another tailer has read up to it, and falls asleep.
            asleep.store(1, Relaxed);
            control.wake_tailers(synced, owed);
            assert!(control.take_sleepers(synced), "the wake-up came before its sleep, and it sleeps now");
        }
    }
}

//! A queue that is open in this process, and the state that its appenders and tailers share.
//!
//! Owns making and opening. Guarantees that of all processes that open a queue exactly one, the first, decides what a
//! dead process or a power cut has left of it. A process that opens a queue only for reading decides nothing and
//! changes nothing.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use riverrun_records::layout;
use riverrun_types::{LeaderEpoch, Offset};

use crate::appender::Appender;
use crate::batches::BatchReader;
use crate::bell::Bell;
use crate::control::{Control, Head};
use crate::error::{At as _, Damage, QueueError};
use crate::keeper::{Keeper, lacks_cores};
use crate::layout::LIVE_BYTE;
use crate::lock::Owner;
use crate::mapping::Access;
use crate::named::Place;
use crate::opening;
use crate::options::{AppendOptions, CreateOptions, Retention};
use crate::recovery::{self, Recovery};
use crate::retention;
use crate::segment::{Segments, list, make_file, segment_name};
use crate::sync::{Stuck, sync_to};
use crate::sys::{self, Life, LockKind};
use crate::tailer::{StartAt, Tailer};

/// Files that a server's data directory, its log dirs and its journal dirs contain from its first start on.
const SERVER_FILES: [&str; 3] = ["meta/lock", "directory.id", "lock"];

/// The state that every appender and tailer of a queue in this process shares.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) control: Control,
    pub(crate) segments: Segments,
    /// End of the queue when it was opened: batches below it may be old, and are checked when they are read.
    pub(crate) trusted_from: u64,
    pub(crate) stuck: Stuck,
    /// The furthest published position that this process has read. The queue never goes back before it while any
    /// process has it open.
    seen: Seen,
    /// For a view: the state found at opening, if a recovery was due.
    snapshot: Option<Snapshot>,
}

/// A position that never goes back, as far as the threads of this process have read it.
#[derive(Debug, Default)]
struct Seen(AtomicU64);

impl Seen {
    /// The furthest value that a thread has [looked](Self::look) at. A position that is read after this call is no
    /// lower. SYNC: seen.
    fn furthest(&self) -> u64 {
        self.0.load(Acquire)
    }

    /// Reads the position. Returns whether it is lower than before this call: another thread may read a further one
    /// meanwhile.
    fn look(&self, read: impl FnOnce() -> u64) -> bool {
        let before = self.furthest();
        let position = read();
        // SYNC: seen. A thread that loads this reads the position after this thread did.
        self.0.fetch_max(position, Release);
        position < before
    }
}

/// How often the synced marks are read while one is being stored, which takes well under a microsecond.
const MARK_LOOKS: u32 = 100;

/// The extent of a queue that no process has recovered yet.
///
/// Invariants: counts until the control file [`counts`] or a process has published something, in this boot and in
/// this file. In these, `head` is not beyond `published`.
#[derive(Debug)]
struct Snapshot {
    life: Life,
    /// The published position in the control file.
    published: u64,
    /// The head that every recovery would keep, and how far the disk certainly has it.
    head: Head,
    synced: u64,
    over: AtomicBool,
}

/// State of a queue at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The first offset in the queue.
    pub start_offset: Offset,
    /// The offset that the next record gets.
    pub end_offset: Offset,
    /// Number of segments.
    pub segments: usize,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Bytes that a power cut may take.
    pub unsynced_bytes: u64,
    /// True if a sync has failed, so that appends are refused.
    pub poisoned: bool,
}

/// An open queue. Cheap to clone; appenders and tailers keep it open.
#[derive(Clone, Debug)]
pub struct Queue {
    core: Arc<Core>,
    /// Lives as long as any appender does.
    keeper: Arc<Mutex<Weak<Keeper>>>,
    recovery: Recovery,
}

impl Queue {
    /// Makes an empty queue in `dir`, and the directory if it does not exist; a server's directory is refused.
    /// Returns when the queue's files are durable.
    pub fn create(dir: &Path, options: CreateOptions) -> Result<Self, QueueError> {
        options.check()?;
        std::fs::create_dir_all(dir).at("create", dir)?;
        let _only_one = lock_dir(dir)?;
        if !is_free(dir)? {
            return Err(QueueError::Exists { path: dir.to_owned() });
        }
        make(dir, options)?;
        Self::open_locked(dir)
    }

    /// Opens the queue in `dir`. If no other process has it open, repairs what a dead process or a power cut has
    /// left; [`recovery`](Self::recovery) returns what that was.
    pub fn open(dir: &Path) -> Result<Self, QueueError> {
        let _only_one = lock_dir(dir)?;
        Self::open_locked(dir)
    }

    /// Opens the queue in `dir`, or makes one with `options` if there is none.
    pub fn open_or_create(dir: &Path, options: CreateOptions) -> Result<Self, QueueError> {
        options.check()?;
        std::fs::create_dir_all(dir).at("create", dir)?;
        let _only_one = lock_dir(dir)?;
        if is_free(dir)? {
            make(dir, options)?;
        }
        Self::open_locked(dir)
    }

    fn open_locked(dir: &Path) -> Result<Self, QueueError> {
        let (control, segments) = open_files(dir, Access::Write)?;
        let path = control.path();
        let alone = sys::try_lock_byte(control.file(), LIVE_BYTE, LockKind::Exclusive).at("lock", path)?;
        let recovery = if alone {
            recovery::recover(&control, &segments)?
        } else {
            recovery::check_kept(&control, &segments)?;
            Recovery::default()
        };
        // From exclusive to shared, or shared with the others.
        sys::try_lock_byte(control.file(), LIVE_BYTE, LockKind::Shared).at("lock", path)?;
        let trusted_from = control.head()?.position;
        let core = Arc::new(Core::new(control, segments, trusted_from, None));
        Ok(Self { core, keeper: Arc::default(), recovery })
    }

    /// The repairs that opening this queue made.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// A new appender. Any number of threads and processes may have one, up to 1,024 together; appends take turns by
    /// the writer lock.
    pub fn appender(&self, options: AppendOptions) -> Result<Appender, QueueError> {
        options.check()?;
        Appender::attach(Arc::clone(&self.core), self.keeper()?, options)
    }

    fn keeper(&self) -> Result<Arc<Keeper>, QueueError> {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keeper) = keeper.upgrade() {
            return Ok(keeper);
        }
        let started = Arc::new(Keeper::start(&self.core, lacks_cores(&self.core))?);
        *keeper = Arc::downgrade(&started);
        Ok(started)
    }

    /// Returns when everything that any appender published before the call is synced and survives a power cut. After
    /// an error it may or may not survive one, and the queue refuses appends until the machine has booted again.
    pub fn sync(&self) -> Result<(), QueueError> {
        let owner = Owner::attach(&self.core.control)?;
        sync_to(&self.core, &owner, self.core.control.published())
    }

    /// Removes old segments at once. Returns how many were removed.
    pub fn apply_retention(&self, retention: &Retention) -> Result<usize, QueueError> {
        let segments = &self.core.segments;
        retention::apply(&self.core, retention, |base| segments.remove(base, retention.ignore_readers))
    }

    /// A new tailer, independent of all others.
    pub fn tailer(&self, at: StartAt) -> Result<Tailer, QueueError> {
        Tailer::open(Arc::clone(&self.core), at)
    }

    /// The tailer of this name, at the place that it last kept ([`Tailer::keep_place`]), or at `otherwise` if it is
    /// new. It can be open once at a time.
    ///
    /// A closed named tailer keeps no segment: an appender's [`Retention`] or
    /// [`apply_retention`](Self::apply_retention) may remove records that it has not read. It then continues at the
    /// first remaining record, and [`Tailer::missed`] returns how many it has not read.
    pub fn named_tailer(&self, name: &str, otherwise: StartAt) -> Result<Tailer, QueueError> {
        Tailer::open_named(Arc::clone(&self.core), name, otherwise)
    }

    /// Forgets the place stored under this name, so that a tailer of this name begins anew.
    pub fn remove_tailer(&self, name: &str) -> Result<(), QueueError> {
        Place::remove(self.core.segments.dir(), name)
    }

    /// The state of the queue.
    pub fn status(&self) -> Result<Status, QueueError> {
        self.core.status()
    }

    /// Reads every record that was published before the call. Checks the checksum of every batch that is older than
    /// this opening of the queue, and that leader epochs, which no checksum covers, rise up to the queue's. Returns
    /// the number of records; the first damage is the error.
    pub fn verify(&self) -> Result<u64, QueueError> {
        verify(&self.core)
    }

    /// The first offset that is in the queue.
    pub fn start_offset(&self) -> Result<Offset, QueueError> {
        self.core.start_offset()
    }

    /// The offset that the next record gets.
    pub fn end_offset(&self) -> Result<Offset, QueueError> {
        Ok(self.core.head()?.next_offset)
    }

    /// Bytes of a segment.
    pub fn segment_bytes(&self) -> u64 {
        self.core.segments.segment_bytes()
    }
}

/// A queue that is open for reading only: the view writes nothing, and no process waits for it. The queue may lie on
/// a read-only file system, be appended to meanwhile, or be one whose processes died: then the view shows what a
/// recovery would keep. The view may reach it by another mount than its appenders, as from a container of the same
/// machine.
///
/// Retention does not see its tailers, and appenders do not wake them: a waiting one sleeps a millisecond at most.
#[derive(Clone, Debug)]
pub struct QueueView {
    core: Arc<Core>,
    recovery: Recovery,
}

impl QueueView {
    /// Opens the queue in `dir` for reading only.
    pub fn open(dir: &Path) -> Result<Self, QueueError> {
        let (control, segments) = open_files(dir, Access::Read)?;
        let life = Life::of(control.file()).at("look at", control.path())?;
        let (mut recovery, mut snapshot) = (Recovery::default(), None);
        let published = control.published();
        let trusted_from = if counts(&control, &life) {
            recovery::check_kept(&control, &segments)?;
            control.head()?.position
        } else {
            // In the same boot and file, a mount may open the queue whose recovery cuts off the bytes beyond.
            let until = if control.life().is_of_one_file(&life) { published } else { u64::MAX };
            let (head, found) = recovery::foresee(&control, &segments, until)?;
            recovery = found;
            let synced = control.mark().map_or(0, |mark| mark.head.position);
            let over = AtomicBool::new(false);
            snapshot = Some(Snapshot { life, published, head, synced, over });
            head.position
        };
        let core = Arc::new(Core::new(control, segments, trusted_from, snapshot));
        Ok(Self { core, recovery })
    }

    /// True if the queue was last used before a boot or through another mount, and no process has it open. The view
    /// then ends where a recovery would, and nothing is appended until a process opens the queue.
    pub fn is_unrecovered(&self) -> bool {
        self.core.is_unrecovered()
    }

    /// The repairs that opening the queue for writing by the same mount would make, if no process has done so since.
    /// Opening may keep unpublished records, which the view does not show.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// A new tailer, independent of all others.
    pub fn tailer(&self, at: StartAt) -> Result<Tailer, QueueError> {
        Tailer::open(Arc::clone(&self.core), at)
    }

    /// Reads whole batches, from the one that contains `at` on.
    pub fn batches(&self, at: StartAt) -> Result<BatchReader, QueueError> {
        Ok(BatchReader::new(self.tailer(at)?))
    }

    /// A bell that rings when something is published, or with `synced_only` when something is synced.
    pub fn bell(&self, synced_only: bool) -> Bell {
        Bell::new(Arc::clone(&self.core), synced_only)
    }

    /// Distinguishes this queue from every other, also from one that is made later in the same place.
    pub fn id(&self) -> u128 {
        self.core.control.queue_id()
    }

    /// How often the queue was recovered. No batch has a later epoch.
    pub fn epoch(&self) -> LeaderEpoch {
        self.core.control.epoch()
    }

    /// The first offset that is in the queue.
    pub fn start_offset(&self) -> Result<Offset, QueueError> {
        self.core.start_offset()
    }

    /// The offset that the next record gets. Makes no system call on a file.
    pub fn end_offset(&self) -> Result<Offset, QueueError> {
        let head = self.core.head();
        self.core.control.check_whole()?;
        Ok(head?.next_offset)
    }

    /// The offset after the last record that a sync has covered. Makes no system call on a file. While the process
    /// that stores the mark is stopped, the result is an earlier offset.
    pub fn synced_end_offset(&self) -> Result<Offset, QueueError> {
        let control = &self.core.control;
        let synced = self.core.synced();
        let mut mark = control.mark();
        // A mark that is being stored has no valid checksum for an instant; the one before it counts.
        for _ in 0..MARK_LOOKS {
            if mark.is_some_and(|mark| mark.head.position >= synced) {
                break;
            }
            std::hint::spin_loop();
            mark = control.mark();
        }
        control.check_whole()?;
        let mark = mark.ok_or_else(|| control.damaged(crate::layout::MARKS_AT, "synced mark"))?;
        Ok(mark.head.next_offset)
    }

    /// Base offsets of the segments, rising.
    pub fn segments(&self) -> Result<Vec<Offset>, QueueError> {
        Ok(self.core.published_segments()?.0)
    }

    /// True if the queue still lies where it was opened: false if it was removed or replaced.
    pub fn is_in_place(&self) -> bool {
        let control = &self.core.control;
        let here = control.file().metadata().map(|file| (file.dev(), file.ino()));
        let there = std::fs::metadata(control.path()).map(|file| (file.dev(), file.ino()));
        matches!((here, there), (Ok(here), Ok(there)) if here == there)
    }

    /// The state of the queue.
    pub fn status(&self) -> Result<Status, QueueError> {
        self.core.status()
    }

    /// As [`Queue::verify`].
    pub fn verify(&self) -> Result<u64, QueueError> {
        verify(&self.core)
    }
}

/// True if the control file's fields are valid in `life`: it was used in that life, or a process has it open, through
/// any mount of the same machine. The kernel keeps locks and pages by file, and not by mount.
fn counts(control: &Control, life: &Life) -> bool {
    // The lock first: it becomes shared when the recovery is over. Where a network file system shows another
    // machine's lock, the boot differs; for a copy that replaces the queue, the file differs.
    control.life() == *life
        || (sys::is_lock_shared(control.file(), LIVE_BYTE) && control.life().is_of_one_file(life))
}

fn verify(core: &Arc<Core>) -> Result<u64, QueueError> {
    let end = core.head()?.next_offset;
    let mut tailer = Tailer::open(Arc::clone(core), StartAt::Start)?;
    let mut batches = tailer.fork();
    let (mut epoch, mut records) = (LeaderEpoch(0), 0);
    while batches.batch_offset() < end
        && let Some(header) = batches.pass_batch_of(&(epoch..=core.control.epoch()))?
    {
        epoch = header.leader_epoch();
        // Both advance together, so that the records left to read are no older than the batches checked.
        while tailer.offset() < batches.batch_offset() && tailer.next()?.is_some() {
            records += 1;
        }
    }
    Ok(records)
}

impl Core {
    fn new(control: Control, segments: Segments, trusted_from: u64, snapshot: Option<Snapshot>) -> Self {
        let seen = Seen::default();
        Self { control, segments, trusted_from, stuck: Stuck::default(), seen, snapshot }
    }

    pub(crate) fn head(&self) -> Result<Head, QueueError> {
        let Some(snapshot) = self.snapshot() else {
            let seen = self.seen.furthest();
            let head = self.control.head()?;
            return if head.position < seen { Err(self.control.went_back()) } else { Ok(head) };
        };
        Ok(snapshot.head)
    }

    /// Checks that the active segment and the control file are those that were opened. If one is not, every later
    /// call of this process that reads the queue's state is an error: its stores would be lost, or lie where another
    /// process has published. Costs some system calls, and appends nothing.
    pub(crate) fn check_in_place(&self) -> Result<(), QueueError> {
        let looked = self.look_in_place();
        if let Err(QueueError::Damaged { path, .. }) = &looked {
            self.control.lose(path);
        }
        looked
    }

    fn look_in_place(&self) -> Result<(), QueueError> {
        self.control.check_in_place()?;
        if self.seen.look(|| self.control.published()) {
            return Err(self.control.went_back());
        }
        let (mut head, mut segment) = self.at_head(Segments::get)?;
        // Only a segment that was rolled over meanwhile may have been removed by retention.
        while !segment.is_in_place()? {
            let before = head;
            (head, segment) = self.at_head(Segments::get)?;
            if head.segment_base == before.segment_base {
                return Err(segment.damaged(0, Damage::Vanished));
            }
        }
        Ok(())
    }

    /// The published position, where readers end.
    #[inline]
    pub(crate) fn published(&self) -> u64 {
        if self.snapshot.is_none() {
            return self.control.published();
        }
        self.snapshot().map_or_else(|| self.control.published(), |snapshot| snapshot.head.position)
    }

    /// The synced position, where readers of synced records end.
    #[inline]
    pub(crate) fn synced(&self) -> u64 {
        if self.snapshot.is_none() {
            return self.control.synced();
        }
        self.snapshot().map_or_else(|| self.control.synced(), |snapshot| snapshot.synced)
    }

    /// True if no process has recovered the queue yet, so that the control file's fields do not count.
    pub(crate) fn is_unrecovered(&self) -> bool {
        self.snapshot().is_some()
    }

    /// The snapshot, as long as it counts.
    fn snapshot(&self) -> Option<&Snapshot> {
        let snapshot = self.snapshot.as_ref()?;
        if !snapshot.over.load(Relaxed) {
            // A process that opened it through another mount may have closed it again since the last check.
            let is_used = || {
                self.control.published() != snapshot.published
                    && self.control.life().is_of_one_file(&snapshot.life)
            };
            if counts(&self.control, &snapshot.life) || is_used() {
                snapshot.over.store(true, Relaxed);
            }
        }
        (!snapshot.over.load(Relaxed)).then_some(snapshot)
    }

    /// The head, and the segment that it lies in, got by `get`.
    pub(crate) fn at_head<S>(
        &self,
        get: impl Fn(&Segments, Offset, u64) -> Result<Option<S>, QueueError>,
    ) -> Result<(Head, S), QueueError> {
        let mut head = self.head()?;
        loop {
            let number = head.position / self.segments.segment_bytes();
            if let Some(segment) = get(&self.segments, head.segment_base, number)? {
                return Ok((head, segment));
            }
            // Only a segment that was rolled over meanwhile may have been removed by retention.
            let before = std::mem::replace(&mut head, self.head()?);
            if before.segment_base == head.segment_base {
                return Err(self.segments.missing(head.segment_base));
            }
        }
    }

    fn status(&self) -> Result<Status, QueueError> {
        let (bases, _) = self.published_segments()?;
        let (head, synced) = (self.head()?, self.synced());
        Ok(Status {
            start_offset: bases[0],
            end_offset: head.next_offset,
            segments: bases.len(),
            segment_bytes: self.segments.segment_bytes(),
            unsynced_bytes: head.position.saturating_sub(synced),
            poisoned: self.control.is_poisoned(),
        })
    }

    /// Base offsets of the queue's segments, rising, and the number of the first. Files that are not segments yet are
    /// left out.
    pub(crate) fn published_segments(&self) -> Result<(Vec<Offset>, u64), QueueError> {
        // The head first: segments that are rolled to later are left out.
        let head = self.head()?;
        let mut bases = self.segments.list()?;
        bases.retain(|base| *base <= head.segment_base);
        let number = head.position / self.segments.segment_bytes();
        let first = (number + 1).checked_sub(bases.len() as u64);
        match (bases.last(), first) {
            (Some(last), Some(first)) if *last == head.segment_base => Ok((bases, first)),
            _ => Err(self.segments.missing(head.segment_base)),
        }
    }

    pub(crate) fn start_offset(&self) -> Result<Offset, QueueError> {
        let (bases, _) = self.published_segments()?;
        bases.first().copied().ok_or_else(|| self.segments.missing(Offset::ZERO))
    }
}

/// Opens the control file, and the segments with the size that it names.
fn open_files(dir: &Path, access: Access) -> Result<(Control, Segments), QueueError> {
    let Some(control) = Control::open(dir, access)? else {
        return Err(QueueError::NoQueue { path: dir.to_owned() });
    };
    let segment_bytes = control.segment_bytes();
    if (CreateOptions { segment_bytes }).check().is_err() {
        return Err(control.damaged(crate::layout::SEGMENT_BYTES_AT, "size of segments"));
    }
    Ok((control, Segments::new(dir, segment_bytes, access)))
}

/// Keeps other processes from opening or making a queue in `dir`. The kernel releases the lock when the file is
/// closed.
fn lock_dir(dir: &Path) -> Result<File, QueueError> {
    let locked = match opening::open_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(QueueError::NoQueue { path: dir.to_owned() });
        }
        opened => opened.at("open", dir)?,
    };
    locked.lock().at("lock", dir)?;
    Ok(locked)
}

/// Makes the files of an empty queue in a free directory. The control file comes last: without it there is no queue.
fn make(dir: &Path, options: CreateOptions) -> Result<(), QueueError> {
    let path = dir.join(segment_name(Offset::ZERO));
    let file = make_file(&path, options.segment_bytes)?;
    file.sync_all().at("sync", &path)?;
    Control::create(dir, options.segment_bytes, sys::wall_coarse_ms())
}

/// True if `dir` holds no queue, but at most the rest of an unfinished making: a first segment without a batch. A
/// server's directory is not free.
fn is_free(dir: &Path) -> Result<bool, QueueError> {
    if Control::open(dir, Access::Read)?.is_some() {
        return Ok(false);
    }
    if let Some(found) = SERVER_FILES.into_iter().find(|name| dir.join(name).exists()) {
        return Err(QueueError::Taken { path: dir.to_owned(), found });
    }
    match list(dir)?.as_slice() {
        [] => Ok(true),
        [Offset::ZERO] => {
            let path = dir.join(segment_name(Offset::ZERO));
            let mut prefix = Vec::new();
            let file = opening::open_to_read(&path).at("open", &path)?;
            file.take(layout::LENGTH_END as u64).read_to_end(&mut prefix).at("read", &path)?;
            Ok(prefix.iter().all(|byte| *byte == 0))
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::Seen;

    #[test]
    fn position_that_others_read_meanwhile_has_not_gone_back() {
        let seen = Seen::default();
        let overtaken = seen.look(|| {
            assert!(!seen.look(|| 200));
            100
        });
        assert!(!overtaken, "it was read before the further one");
        assert_eq!(seen.furthest(), 200);
        assert!(seen.look(|| 100));
    }
}

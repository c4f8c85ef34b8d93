//! A queue that is open in this process, and what its appenders and tailers share.
//!
//! Owns making and opening. Guarantees that of all processes that open a queue exactly one, the first,
//! decides what a dead process or a cut of power has left of it.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use riverrun_records::layout;
use riverrun_types::Offset;

use crate::appender::Appender;
use crate::control::{Control, Head};
use crate::error::{At as _, QueueError};
use crate::keeper::Keeper;
use crate::layout::LIVE_BYTE;
use crate::lock::Owner;
use crate::options::{AppendOptions, CreateOptions, Retention};
use crate::recovery::{self, Recovery};
use crate::retention;
use crate::segment::{Segments, list, make_file, segment_name};
use crate::sync::sync_to;
use crate::sys::{self, LockKind};
use crate::tailer::{StartAt, Tailer};

/// What every appender and tailer of a queue in this process shares.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) control: Control,
    pub(crate) segments: Segments,
    /// Where the queue ended when it was opened: what lies below may be old, and is checked when it is read.
    pub(crate) trusted_from: u64,
}

/// How a queue stands at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The first offset that is there.
    pub start_offset: Offset,
    /// The offset that the next record gets.
    pub end_offset: Offset,
    /// How many segments there are.
    pub segments: usize,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Bytes that a cut of power may take.
    pub unsynced_bytes: u64,
    /// Whether a sync has failed, so that nothing is appended any more.
    pub poisoned: bool,
}

/// An open queue. Cheap to clone; appenders and tailers keep it open.
#[derive(Clone, Debug)]
pub struct Queue {
    core: Arc<Core>,
    /// Lives as long as an appender does.
    keeper: Arc<Mutex<Weak<Keeper>>>,
    recovery: Recovery,
}

impl Queue {
    /// Makes an empty queue in `dir`, which is made if it is not there. Returns when the queue's files are
    /// durable.
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

    /// Opens the queue in `dir`. If nobody else has it open, what a dead process or a cut of power left is
    /// dealt with; [`recovery`](Self::recovery) says what that was.
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
        let Some(control) = Control::open(dir)? else {
            return Err(QueueError::NoQueue { path: dir.to_owned() });
        };
        if (CreateOptions { segment_bytes: control.segment_bytes() }).check().is_err() {
            return Err(control.damaged(crate::layout::SEGMENT_BYTES_AT, "size of segments"));
        }
        let segments = Segments::new(dir, control.segment_bytes());
        let path = control.path();
        let alone = sys::try_lock_byte(control.file(), LIVE_BYTE, LockKind::Exclusive).at("lock", path)?;
        let recovery = if alone { recovery::recover(&control, &segments)? } else { Recovery::default() };
        // From exclusive to shared, or shared with the others.
        sys::try_lock_byte(control.file(), LIVE_BYTE, LockKind::Shared).at("lock", path)?;
        let trusted_from = control.head()?.position;
        let core = Arc::new(Core { control, segments, trusted_from });
        Ok(Self { core, keeper: Arc::default(), recovery })
    }

    /// What opening found to do.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// A new appender. Any number of threads and processes may have one; each append holds the queue for
    /// itself.
    pub fn appender(&self, options: AppendOptions) -> Result<Appender, QueueError> {
        options.check()?;
        Appender::attach(Arc::clone(&self.core), self.keeper()?, options)
    }

    fn keeper(&self) -> Result<Arc<Keeper>, QueueError> {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keeper) = keeper.upgrade() {
            return Ok(keeper);
        }
        let started = Arc::new(Keeper::start(&self.core)?);
        *keeper = Arc::downgrade(&started);
        Ok(started)
    }

    /// Returns when everything that was published before the call is synced, by whatever appender: it
    /// survives a cut of power then. After an error it may or may not, and nothing more is appended until the
    /// machine has started anew.
    pub fn sync(&self) -> Result<(), QueueError> {
        let owner = Owner::attach(&self.core.control)?;
        sync_to(&self.core, &owner, self.core.control.published())
    }

    /// Removes old segments at once. Returns how many.
    pub fn apply_retention(&self, retention: &Retention) -> Result<usize, QueueError> {
        retention::apply(&self.core, retention)
    }

    /// A new tailer, independent of all others.
    pub fn tailer(&self, at: StartAt) -> Result<Tailer, QueueError> {
        Tailer::open(Arc::clone(&self.core), at)
    }

    /// The tailer of this name, where its place was last kept ([`Tailer::keep_place`]), or at `otherwise` if
    /// it is new. It can be open once at a time.
    pub fn named_tailer(&self, name: &str, otherwise: StartAt) -> Result<Tailer, QueueError> {
        Tailer::open_named(Arc::clone(&self.core), name, otherwise)
    }

    /// How the queue stands.
    pub fn status(&self) -> Result<Status, QueueError> {
        let (bases, _) = self.core.published_segments()?;
        let (head, synced) = (self.core.head()?, self.core.control.synced());
        Ok(Status {
            start_offset: bases[0],
            end_offset: head.next_offset,
            segments: bases.len(),
            segment_bytes: self.segment_bytes(),
            unsynced_bytes: head.position.saturating_sub(synced),
            poisoned: self.core.control.is_poisoned(),
        })
    }

    /// Reads every record that was published before the call, and checks every batch's checksum that is older
    /// than this opening of the queue. Returns how many records there are; the first damage is the error.
    pub fn verify(&self) -> Result<u64, QueueError> {
        let end = self.end_offset()?;
        let mut tailer = self.tailer(StartAt::Start)?;
        let mut records = 0;
        while tailer.offset() < end && tailer.next()?.is_some() {
            records += 1;
        }
        Ok(records)
    }

    /// The first offset that is in the queue.
    pub fn start_offset(&self) -> Result<Offset, QueueError> {
        self.core.start_offset()
    }

    /// The offset that the next record gets.
    pub fn end_offset(&self) -> Result<Offset, QueueError> {
        Ok(self.core.control.head()?.next_offset)
    }

    /// Bytes of a segment.
    pub fn segment_bytes(&self) -> u64 {
        self.core.segments.segment_bytes()
    }
}

impl Core {
    pub(crate) fn head(&self) -> Result<Head, QueueError> {
        self.control.head()
    }

    /// Base offsets of the queue's segments, rising, and the number of the first. Files of segments that are
    /// being made are not among them.
    pub(crate) fn published_segments(&self) -> Result<(Vec<Offset>, u64), QueueError> {
        // The head first: what is rolled to later is not counted.
        let head = self.head()?;
        let mut bases = self.segments.list()?;
        bases.retain(|base| *base <= head.segment_base);
        let number = head.position / self.segments.segment_bytes();
        let first = (number + 1).checked_sub(bases.len() as u64);
        match (bases.last(), first) {
            (Some(last), Some(first)) if *last == head.segment_base => Ok((bases, first)),
            _ => Err(self.missing(head.segment_base)),
        }
    }

    pub(crate) fn start_offset(&self) -> Result<Offset, QueueError> {
        let (bases, _) = self.published_segments()?;
        bases.first().copied().ok_or_else(|| self.missing(Offset::ZERO))
    }

    fn missing(&self, base: Offset) -> QueueError {
        QueueError::damaged(&self.segments.path(base), 0, crate::Damage::Missing)
    }
}

/// Keeps others from opening or making a queue in `dir` meanwhile. The kernel lets go when the file is
/// closed.
fn lock_dir(dir: &Path) -> Result<File, QueueError> {
    let locked = match File::open(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(QueueError::NoQueue { path: dir.to_owned() });
        }
        opened => opened.at("open", dir)?,
    };
    locked.lock().at("lock", dir)?;
    Ok(locked)
}

/// Makes the files of an empty queue in a directory that is free. The control file comes last: without it
/// there is no queue.
fn make(dir: &Path, options: CreateOptions) -> Result<(), QueueError> {
    let path = dir.join(segment_name(Offset::ZERO));
    let file = make_file(&path, options.segment_bytes)?;
    file.sync_all().at("sync", &path)?;
    Control::create(dir, options.segment_bytes, sys::wall_coarse_ms())
}

/// Whether there is no queue in `dir`, but at most what a making has left that did not come to its end: a
/// first segment without a batch.
fn is_free(dir: &Path) -> Result<bool, QueueError> {
    if Control::open(dir)?.is_some() {
        return Ok(false);
    }
    match list(dir)?.as_slice() {
        [] => Ok(true),
        [Offset::ZERO] => {
            let path = dir.join(segment_name(Offset::ZERO));
            let mut prefix = Vec::new();
            let file = File::open(&path).at("open", &path)?;
            file.take(layout::LENGTH_END as u64).read_to_end(&mut prefix).at("read", &path)?;
            Ok(prefix.iter().all(|byte| *byte == 0))
        }
        _ => Ok(false),
    }
}

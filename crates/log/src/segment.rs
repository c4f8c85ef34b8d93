//! One segment: a `.log` file of batches and the `.index` beside it.
//!
//! Owns the files' names, opening them when needed, and finding boundaries through the index. Guarantees that a
//! lookup never waits for a writer's file write: the entries that are not in the file yet are searched in memory
//! under a short lock, and the file is read outside of it. An index that is missing or damaged is rebuilt from the
//! log; one of a newer version is refused.

mod loading;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use riverrun_env::{File, FileSystem, OpenMode};
use riverrun_records::{BatchHeader, layout};
use riverrun_types::{Offset, PartitionId, TimestampMs};

use crate::error::LogError;
use crate::fields::DecodeError;
use crate::index::{ENTRY_BYTES, EntryCodec, IndexEntry, IndexHeader, entry_position};
use crate::scan::ScanStop;

/// Ending of a segment's batch file.
pub(crate) const LOG_SUFFIX: &str = ".log";
/// Ending of a segment's index file.
pub(crate) const INDEX_SUFFIX: &str = ".index";
/// Entries that wait in memory before they are written together: as many as fit a page.
const TAIL_ENTRIES_MAX: usize = 4096 / ENTRY_BYTES;
/// Entries that a lookup reads at once, after halving the index down to so many.
const LOOKUP_ENTRIES: u32 = 64;

/// Where a partition lives and who it is: what all its segments share.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) dir: PathBuf,
    pub(crate) partition: PartitionId,
}

impl Home {
    pub(crate) fn log_path(&self, base_offset: Offset) -> PathBuf {
        self.dir.join(format!("{:020}{LOG_SUFFIX}", base_offset.0))
    }

    pub(crate) fn index_path(&self, base_offset: Offset) -> PathBuf {
        self.dir.join(format!("{:020}{INDEX_SUFFIX}", base_offset.0))
    }

    pub(crate) fn index_header(&self, base_offset: Offset) -> IndexHeader {
        IndexHeader { partition: self.partition, base_offset }
    }
}

/// The base offset in a segment file's name: 20 digits and the suffix.
pub(crate) fn parse_name(name: &str, suffix: &str) -> Option<Offset> {
    let digits = name.strip_suffix(suffix)?;
    if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(Offset)
}

/// How far a segment reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Bytes of its batches.
    pub(crate) size_bytes: u64,
    /// The offset after its last batch; for a sealed segment the next one's base offset.
    pub(crate) next_offset: Offset,
}

#[derive(Debug, Default)]
struct Files {
    log: Option<Arc<dyn File>>,
    index: Option<Arc<dyn File>>,
    are_held: bool,
}

/// The index as far as it is known.
///
/// Invariants: once `is_loaded`, the file has a right header and at least `stored` whole entries; `tail` goes on
/// where they end; `last` is the last of both.
#[derive(Debug)]
struct Index {
    is_loaded: bool,
    stored: u32,
    tail: Vec<IndexEntry>,
    last: IndexEntry,
}

/// One segment of an open partition.
///
/// Invariants: `sealed` is set once, when nothing more will be appended.
#[derive(Debug)]
pub(crate) struct Segment {
    home: Arc<Home>,
    pub(crate) base_offset: Offset,
    sealed: OnceLock<Extent>,
    files: Mutex<Files>,
    index: Mutex<Index>,
    codec: EntryCodec,
    was_used: AtomicBool,
}

impl Segment {
    fn new(home: Arc<Home>, base_offset: Offset, is_loaded: bool) -> Self {
        let codec = home.index_header(base_offset).codec();
        let index = Index { is_loaded, stored: 0, tail: Vec::new(), last: IndexEntry::START };
        Self {
            home,
            base_offset,
            sealed: OnceLock::new(),
            files: Mutex::default(),
            index: Mutex::new(index),
            codec,
            was_used: AtomicBool::new(true),
        }
    }

    /// A segment that is there and complete.
    pub(crate) fn sealed(home: Arc<Home>, base_offset: Offset, extent: Extent) -> Self {
        let segment = Self::new(home, base_offset, false);
        segment.seal(extent);
        segment
    }

    /// A segment that is there and will be appended to.
    pub(crate) fn open(home: Arc<Home>, base_offset: Offset) -> Self {
        Self::new(home, base_offset, false)
    }

    /// Makes the files of a new segment; whatever has their names is emptied. Nothing is durable when it returns.
    pub(crate) fn create(home: Arc<Home>, base_offset: Offset) -> Result<Self, LogError> {
        let segment = Self::new(home, base_offset, true);
        let make = |path: &Path, bytes: &[u8]| -> Result<Arc<dyn File>, LogError> {
            let file = segment.home.fs.open(path, OpenMode::CreateOrOpen);
            let file = file.map_err(|error| LogError::io(path, error))?;
            let written = file.set_len(0).and_then(|()| file.write_all_at(bytes, 0));
            written.map_err(|error| LogError::write(path, error))?;
            Ok(file)
        };
        let header = segment.home.index_header(base_offset).encode();
        make(&segment.index_path(), &header)?;
        let log = make(&segment.log_path(), &[])?;
        // The index is opened again when there is a page of entries to write: most active segments never need it.
        segment.files.lock().log = Some(log);
        Ok(segment)
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.home.log_path(self.base_offset)
    }

    pub(crate) fn index_path(&self) -> PathBuf {
        self.home.index_path(self.base_offset)
    }

    /// Marks the segment complete.
    pub(crate) fn seal(&self, extent: Extent) {
        self.sealed.set(extent).expect("a segment is sealed once");
    }

    pub(crate) fn extent(&self) -> Option<Extent> {
        self.sealed.get().copied()
    }

    /// The `.log` file, opened if need be.
    pub(crate) fn log_file(&self) -> Result<Arc<dyn File>, LogError> {
        self.mark_used();
        if let Some(file) = &self.files.lock().log {
            return Ok(file.clone());
        }
        let path = self.log_path();
        let mode = if self.extent().is_some() { OpenMode::Read } else { OpenMode::ReadWrite };
        let file = self.home.fs.open(&path, mode).map_err(|error| LogError::io(&path, error))?;
        Ok(self.files.lock().log.get_or_insert(file).clone())
    }

    fn mark_used(&self) {
        if !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
    }

    /// Closes the files if nobody has used them since the last call; of a segment that is appended to, the index.
    pub(crate) fn close_if_unused(&self) {
        if self.was_used.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut files = self.files.lock();
        if !files.are_held {
            files.index = None;
            if self.extent().is_some() {
                files.log = None;
            }
        }
    }

    /// Opens both files and keeps them open for as long as the segment lives: another segment is about to take
    /// their names.
    pub(crate) fn hold_open(&self) -> Result<(), LogError> {
        self.files.lock().are_held = true;
        self.ensure_loaded()?;
        self.log_file()?;
        self.index_file().map(|_| ())
    }

    fn index_file(&self) -> Result<Arc<dyn File>, LogError> {
        if let Some(file) = &self.files.lock().index {
            return Ok(file.clone());
        }
        let path = self.index_path();
        let file =
            self.home.fs.open(&path, OpenMode::ReadWrite).map_err(|error| LogError::io(&path, error))?;
        Ok(self.files.lock().index.get_or_insert(file).clone())
    }

    /// Number of entries, in the file and in memory.
    pub(crate) fn entry_count(&self) -> u32 {
        let index = self.index.lock();
        index.stored + u32::try_from(index.tail.len()).unwrap_or(u32::MAX)
    }

    /// Adds an entry after all others. It stays in memory until the tail is stored.
    pub(crate) fn push_entry(&self, entry: IndexEntry) {
        let mut index = self.index.lock();
        index.tail.push(entry);
        index.last = entry;
    }

    /// Writes the entries that are in memory only, if there is a page of them.
    pub(crate) fn store_full_tail(&self) -> Result<(), LogError> {
        if self.index.lock().tail.len() < TAIL_ENTRIES_MAX { Ok(()) } else { self.store_tail() }
    }

    /// Writes the entries that are in memory only. Only the writer of the partition calls this, so nobody else
    /// changes the tail while it is written, and lookups go on meanwhile.
    pub(crate) fn store_tail(&self) -> Result<(), LogError> {
        let (first, bytes, count) = {
            let index = self.index.lock();
            let first = index.stored;
            let numbered = (first..).zip(&index.tail);
            let bytes: Vec<u8> =
                numbered.flat_map(|(number, entry)| self.codec.encode(number, *entry)).collect();
            (first, bytes, index.tail.len())
        };
        if count == 0 {
            return Ok(());
        }
        let written = self.index_file()?.write_all_at(&bytes, entry_position(first));
        written.map_err(|error| LogError::write(&self.index_path(), error))?;
        let mut index = self.index.lock();
        index.tail.drain(..count);
        if index.tail.is_empty() {
            index.tail.shrink_to(TAIL_ENTRIES_MAX);
        }
        index.stored = first + u32::try_from(count).expect("a tail is a page at most");
        Ok(())
    }

    /// The last entry, after making sure that the index is loaded.
    pub(crate) fn last_entry(&self) -> Result<IndexEntry, LogError> {
        self.ensure_loaded()?;
        Ok(self.index.lock().last)
    }

    /// The last boundary for which `holds` is true. `holds` is true at the start, and once false it stays false.
    pub(crate) fn last_entry_where(
        &self,
        holds: impl Fn(&IndexEntry) -> bool,
    ) -> Result<IndexEntry, LogError> {
        self.ensure_loaded()?;
        match self.look_up(&holds) {
            Ok(entry) => Ok(entry),
            Err(LookupError::Log(error)) => Err(error),
            Err(LookupError::Damage(error)) => {
                self.rebuild_after(&error)?;
                self.look_up(&holds).map_err(|error| self.lookup_failed(error))
            }
        }
    }

    fn lookup_failed(&self, error: LookupError) -> LogError {
        match error {
            LookupError::Log(error) => error,
            LookupError::Damage(source) => LogError::Format { path: self.index_path(), source },
        }
    }

    fn look_up(&self, holds: &impl Fn(&IndexEntry) -> bool) -> Result<IndexEntry, LookupError> {
        let stored = {
            let index = self.index.lock();
            if let Some(before) = index.tail.partition_point(holds).checked_sub(1) {
                return Ok(index.tail[before]);
            }
            index.stored
        };
        self.look_up_stored(stored, holds)
    }

    /// Halves the index in the file until few entries are left, and reads those at once.
    fn look_up_stored(
        &self,
        stored: u32,
        holds: &impl Fn(&IndexEntry) -> bool,
    ) -> Result<IndexEntry, LookupError> {
        if stored == 0 {
            return Ok(IndexEntry::START);
        }
        let file = self.index_file()?;
        // `holds` is true for all entries below `low` and false for all from `high` on.
        let (mut low, mut high) = (0, stored);
        while high - low > LOOKUP_ENTRIES {
            let middle = low + (high - low) / 2;
            let entry = self.read_entries(&*file, middle, 1)?[0];
            if holds(&entry) { low = middle + 1 } else { high = middle }
        }
        let from = low.saturating_sub(1);
        let entries = self.read_entries(&*file, from, high - from)?;
        let before = entries.partition_point(holds).checked_sub(1);
        Ok(before.map_or(IndexEntry::START, |index| entries[index]))
    }

    fn read_entries(&self, file: &dyn File, first: u32, count: u32) -> Result<Vec<IndexEntry>, LookupError> {
        let mut bytes = vec![0; count as usize * ENTRY_BYTES];
        match file.read_exact_at(&mut bytes, entry_position(first)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(LookupError::Damage(DecodeError::Truncated("a segment's index")));
            }
            read => read.map_err(|error| LogError::io(&self.index_path(), error))?,
        }
        let numbered = (first..).zip(bytes.chunks_exact(ENTRY_BYTES));
        numbered.map(|(number, bytes)| Ok(self.codec.decode(number, bytes)?)).collect()
    }

    /// The error for a scan that stopped where it must not.
    pub(crate) fn scan_failed(&self, stop: ScanStop) -> LogError {
        match stop {
            ScanStop::Io(error) => LogError::io(&self.log_path(), error),
            ScanStop::Damage { position, what } => LogError::corrupt(&self.log_path(), position, what),
        }
    }

    /// The header of the batch at the boundary `position`, which must lie below `end`.
    pub(crate) fn header_at(&self, log: &dyn File, position: u64, end: u64) -> Result<BatchHeader, LogError> {
        let mut bytes = [0; layout::HEADER_BYTES];
        match log.read_exact_at(&mut bytes, position) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(LogError::corrupt(&self.log_path(), position, "the file ends inside a batch"));
            }
            read => read.map_err(|error| LogError::io(&self.log_path(), error))?,
        }
        let corrupt = |what: String| LogError::corrupt(&self.log_path(), position, what);
        let header = BatchHeader::parse(&bytes).map_err(|error| corrupt(error.to_string()))?;
        if header.size_bytes() as u64 > end.saturating_sub(position) {
            return Err(corrupt(format!("a batch of {} bytes reaches past the end", header.size_bytes())));
        }
        let span = header.last_offset().0.saturating_sub(self.base_offset.0);
        if header.base_offset() < self.base_offset || span > i64::from(u32::MAX) {
            return Err(corrupt(format!("offset {} does not fit the segment", header.base_offset())));
        }
        Ok(header)
    }

    /// Largest timestamp of a sealed segment.
    pub(crate) fn max_timestamp(&self) -> Result<TimestampMs, LogError> {
        Ok(self.last_entry()?.max_timestamp)
    }

    /// Largest timestamp of the first batch of a segment of `size_bytes`; none if it is empty.
    pub(crate) fn first_timestamp(&self, size_bytes: u64) -> Result<Option<TimestampMs>, LogError> {
        if size_bytes == 0 {
            return Ok(None);
        }
        let log = self.log_file()?;
        Ok(Some(self.header_at(&*log, 0, size_bytes)?.max_timestamp()))
    }
}

/// Why a lookup found nothing.
enum LookupError {
    Log(LogError),
    /// The index is unusable, and will be rebuilt.
    Damage(DecodeError),
}

impl From<LogError> for LookupError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl From<DecodeError> for LookupError {
    fn from(error: DecodeError) -> Self {
        Self::Damage(error)
    }
}

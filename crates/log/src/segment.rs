//! One segment: a `.log` file of batches and the `.index` beside it.
//!
//! Owns the files' names, opening them when needed, and finding boundaries through the index. Guarantees that a
//! lookup never waits for a writer's file write: the entries that are not in the file yet are searched in memory
//! under a short lock, and the file is read outside of it. An index that is missing or damaged is rebuilt from the
//! log; one of a newer version is refused.

mod dense;
mod files;
mod loading;
mod proof;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use riverrun_env::{File, FileSystem, OpenMode, is_at_descriptor_limit};
use riverrun_records::{BatchHeader, layout};
use riverrun_types::{Offset, PartitionId, TimestampMs};

pub(crate) use dense::Dense;
use dense::Densing;
pub(crate) use files::FilePool;
use files::FileSlot;
pub(crate) use proof::Effort;
use proof::Proved;

use crate::bad_sector::{self, bad_sector, read_exact};
use crate::error::LogError;
use crate::fields::DecodeError;
use crate::file_names::{INDEX_SUFFIX, LOG_SUFFIX};
use crate::index::{ENTRY_BYTES, EntryCodec, IndexEntry, IndexHeader, entry_position};
use crate::index_content::IndexContent;
use crate::presence::check_file;
use crate::scan::ScanStop;
use crate::state_file::state_file;

/// Entries that wait in memory before they are written together: as many as fit a page.
const TAIL_ENTRIES_MAX: usize = 4096 / ENTRY_BYTES;
/// Entries that a lookup reads at once, after halving the index down to so many.
const LOOKUP_ENTRIES: u32 = 64;

/// The partition of its segments, and its place: shared by all of them.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) fs: Arc<dyn FileSystem>,
    /// The store's pool of open files.
    pub(crate) pool: Arc<FilePool>,
    pub(crate) dir: PathBuf,
    pub(crate) partition: PartitionId,
    /// Set for good once nothing more may be written there.
    pub(crate) has_failed: Arc<AtomicBool>,
}

impl Home {
    pub(crate) fn log_path(&self, base_offset: Offset) -> PathBuf {
        self.dir.join(format!("{:020}{LOG_SUFFIX}", base_offset.0))
    }

    pub(crate) fn index_path(&self, base_offset: Offset) -> PathBuf {
        self.dir.join(format!("{:020}{INDEX_SUFFIX}", base_offset.0))
    }

    pub(crate) fn state_path(&self, offset: Offset) -> PathBuf {
        self.dir.join(state_file(offset))
    }

    /// Opens a file. If the process has all descriptors that it may have, unused files are closed for it.
    pub(crate) fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        match self.fs.open(path, mode) {
            Err(error) if is_at_descriptor_limit(&error) && self.pool.make_room() => self.fs.open(path, mode),
            opened => opened,
        }
    }

    /// As [`riverrun_env::read_whole`]; unused files are closed for it, too.
    pub(crate) fn read_whole(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        match riverrun_env::read_whole(&*self.fs, path, bytes_max) {
            Err(error) if is_at_descriptor_limit(&error) && self.pool.make_room() => {
                riverrun_env::read_whole(&*self.fs, path, bytes_max)
            }
            read => read,
        }
    }

    pub(crate) fn index_header(&self, base_offset: Offset) -> IndexHeader {
        IndexHeader { partition: self.partition, base_offset }
    }
}

/// How far a segment reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Bytes of its batches.
    pub(crate) size_bytes: u64,
    /// The offset after its last batch; for a sealed segment the next one's base offset.
    pub(crate) next_offset: Offset,
}

/// The index as far as it is known.
///
/// Invariants: once `is_loaded`, the file has a right header and at least `stored` whole entries; `tail` begins at
/// their end; `last` is the last of both. Entries that the file has are written over only if `stored` is 0, or under
/// the lock, and `rewrites` rises before.
#[derive(Debug)]
struct Index {
    is_loaded: bool,
    stored: u32,
    tail: Vec<IndexEntry>,
    last: IndexEntry,
    /// Counts replacements of the file's entries: all that a lookup has read is of one index only if this stayed the
    /// same.
    rewrites: u64,
}

impl Index {
    /// Keeps these entries in memory: from here on the file may be written over.
    fn keep(&mut self, entries: Vec<IndexEntry>) {
        self.rewrites += 1;
        self.is_loaded = true;
        self.stored = 0;
        self.last = entries.last().copied().unwrap_or(IndexEntry::START);
        self.tail = entries;
    }

    /// Has so many entries in the file, and none in memory.
    fn rely_on_file(&mut self, stored: u32, last: IndexEntry) {
        *self = Self { is_loaded: true, stored, tail: Vec::new(), last, rewrites: self.rewrites };
    }
}

/// One segment of an open partition.
///
/// Invariants: `sealed` is set once, when nothing more will be appended. Files are open as long as the pool lets them.
#[derive(Debug)]
pub(crate) struct Segment {
    home: Arc<Home>,
    pub(crate) base_offset: Offset,
    sealed: OnceLock<Extent>,
    log_slot: Arc<FileSlot>,
    index_slot: Arc<FileSlot>,
    index: Mutex<Index>,
    proved: Mutex<Proved>,
    densing: Mutex<Densing>,
    /// If the segment is appended to: compaction may have left gaps below, and none above.
    gapless_from: OnceLock<Offset>,
    /// Bytes of the `.log` file, from its start, whose writing was waited for, or that are from before the start.
    written_back: AtomicU64,
    codec: EntryCodec,
}

impl Segment {
    fn new(home: Arc<Home>, base_offset: Offset, is_loaded: bool) -> Self {
        let codec = home.index_header(base_offset).codec();
        let index = Index { is_loaded, stored: 0, tail: Vec::new(), last: IndexEntry::START, rewrites: 0 };
        Self {
            home,
            base_offset,
            sealed: OnceLock::new(),
            log_slot: Arc::default(),
            index_slot: Arc::default(),
            index: Mutex::new(index),
            proved: Mutex::new(Proved::nothing()),
            densing: Mutex::default(),
            gapless_from: OnceLock::new(),
            written_back: AtomicU64::new(0),
            codec,
        }
    }

    /// A segment that exists and is complete.
    pub(crate) fn sealed(home: Arc<Home>, base_offset: Offset, extent: Extent) -> Self {
        let segment = Self::new(home, base_offset, false);
        segment.note_written_back(extent.size_bytes);
        segment.seal(extent);
        segment
    }

    /// A segment that exists and will be appended to.
    pub(crate) fn open(home: Arc<Home>, base_offset: Offset) -> Self {
        Self::new(home, base_offset, false)
    }

    /// Makes the files of a new segment; whatever has their names is emptied. Nothing is durable when it returns.
    pub(crate) fn create(home: Arc<Home>, base_offset: Offset) -> Result<Self, LogError> {
        let segment = Self::new(home, base_offset, true);
        segment.note_written_from(0);
        let make = |path: &Path, bytes: &[u8]| -> Result<Arc<dyn File>, LogError> {
            let file = segment.home.open(path, OpenMode::CreateOrOpen);
            let file = file.map_err(|error| LogError::io(path, error))?;
            let write = || {
                // Usually there is nothing to cut, and some file systems write a file that was cut at once when it is closed.
                if file.len()? > 0 {
                    file.set_len(0)?;
                }
                file.write_all_at(bytes, 0)
            };
            write().map_err(|error| LogError::write(path, error))?;
            Ok(file)
        };
        let header = segment.home.index_header(base_offset).encode();
        make(&segment.index_path(), &header)?;
        let log = make(&segment.log_path(), &[])?;
        // The index is opened again when there is a page of entries to write: most active segments never need it.
        segment.log_slot.put(log, &segment.home.pool);
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

    /// Notes that compaction may have left gaps below `offset`, before appends came back.
    pub(crate) fn allow_gaps_below(&self, offset: Offset) {
        self.gapless_from.get_or_init(|| offset);
    }

    /// Whether compaction may have left a gap at `offset`.
    fn may_have_gap_at(&self, offset: Offset) -> bool {
        self.extent().is_some() || self.gapless_from.get().is_some_and(|from| offset < *from)
    }

    pub(crate) fn extent(&self) -> Option<Extent> {
        self.sealed.get().copied()
    }

    /// The `.log` file, opened if need be.
    pub(crate) fn log_file(&self) -> Result<Arc<dyn File>, LogError> {
        let mode = if self.extent().is_some() { OpenMode::Read } else { OpenMode::ReadWrite };
        let path = self.log_path();
        self.log_slot.get_or_open(&self.home.pool, || self.open_file(&path, mode))
    }

    /// The `.log` file for a rare use: it is closed after that.
    pub(crate) fn log_file_once(&self) -> Result<Arc<dyn File>, LogError> {
        let path = self.log_path();
        self.log_slot.get_or_open_once(|| self.open_file(&path, OpenMode::Read))
    }

    /// All entries of the index, from its file, or from memory if the file is being written over, or could not be
    /// written.
    pub(crate) fn index_content(&self) -> Result<IndexContent, LogError> {
        self.ensure_loaded()?;
        self.undisturbed(|| match self.entries_in_memory() {
            Some(entries) => Ok(IndexContent { entries, flaw: None }),
            None => self.read_index_content(),
        })
    }

    /// The entries of a complete segment whose file has none.
    fn entries_in_memory(&self) -> Option<Vec<IndexEntry>> {
        let index = self.index.lock();
        let is_memory_all = self.extent().is_some() && index.stored == 0 && !index.tail.is_empty();
        is_memory_all.then(|| index.tail.clone())
    }

    fn read_index_content(&self) -> Result<IndexContent, LogError> {
        let file = self.whole_index_file_once()?;
        let log_len = self.log_file_once()?.len().map_err(|error| LogError::io(&self.log_path(), error))?;
        let content = IndexContent::read_file(&*file, self.home.index_header(self.base_offset), log_len);
        content.map_err(|error| LogError::io(&self.index_path(), error))
    }

    /// Makes the index anew, because entries of it were found to be damaged.
    pub(crate) fn rebuild_index(&self) -> Result<(), LogError> {
        self.rebuild_after(&crate::index::BAD_ENTRY)
    }

    /// The `.log` file for appends, opened if need be. A disk that refuses to open it would refuse the write as well.
    pub(crate) fn log_file_to_append(&self) -> Result<Arc<dyn File>, LogError> {
        let open = || self.home.open(&self.log_path(), OpenMode::ReadWrite);
        let file = self.log_slot.get_or_open(&self.home.pool, open);
        file.map_err(|error| LogError::write(&self.log_path(), error))
    }

    /// Bytes of the `.log` file whose writing was not waited for. The disk may have taken some.
    pub(crate) fn unwritten(&self, size_bytes: u64) -> Range<u64> {
        let from = self.written_back.load(Ordering::Relaxed);
        from.min(size_bytes)..size_bytes
    }

    /// The disk has taken the bytes below `end`. They need not be synced.
    pub(crate) fn note_written_back(&self, end: u64) {
        self.written_back.fetch_max(end, Ordering::Relaxed);
    }

    /// Syncs the `.log` file.
    pub(crate) fn sync_log(&self) -> Result<(), LogError> {
        let synced = self.log_file_once()?.sync_data();
        synced.map_err(|error| LogError::sync(&self.log_path(), error))
    }

    /// Syncs both files.
    pub(crate) fn sync(&self) -> Result<(), LogError> {
        self.sync_log()?;
        let synced = self.whole_index_file_once()?.sync_data();
        synced.map_err(|error| LogError::sync(&self.index_path(), error))
    }

    fn open_file(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>, LogError> {
        self.home.open(path, mode).map_err(|error| LogError::io(path, bad_sector::at(0, error)))
    }

    /// Fails unless the `.log` file is under its name, with `size_bytes` at least.
    pub(crate) fn check_in_place(&self, size_bytes: u64) -> Result<(), LogError> {
        check_file(&*self.home.fs, &self.log_path(), self.log_slot.peek().as_deref(), size_bytes)
    }

    /// Closes the files that were not used since the last call, and forgets a making of the index that has stopped.
    pub(crate) fn close_unused_files(&self) {
        self.log_slot.close_if_unused();
        self.index_slot.close_if_unused();
        self.forget_unused_scan();
    }

    /// Opens both files and keeps them open for as long as the segment lives, or until [`Self::let_close`]: another
    /// segment is about to take their names.
    pub(crate) fn hold_open(&self) -> Result<(), LogError> {
        self.ensure_loaded()?;
        self.index_slot.hold();
        self.log_slot.hold();
        self.log_file()?;
        self.index_file().map(|_| ())
    }

    /// No other segment takes the files' names: they can be closed and opened again.
    pub(crate) fn let_close(&self) {
        self.index_slot.release(&self.home.pool);
        self.log_slot.release(&self.home.pool);
    }

    /// The index for lookups, of which more will come. Made anew if it was removed.
    fn index_file(&self) -> Result<Arc<dyn File>, LogError> {
        self.unless_missing(|| {
            let path = self.index_path();
            self.index_slot.get_or_open(&self.home.pool, || self.open_file(&path, OpenMode::ReadWrite))
        })
    }

    /// As [`Self::index_file`], for a rare use.
    fn whole_index_file_once(&self) -> Result<Arc<dyn File>, LogError> {
        self.unless_missing(|| self.index_file_once(OpenMode::ReadWrite))
    }

    /// Opens the index, once more if it was missing and could be made anew.
    fn unless_missing(
        &self,
        open: impl Fn() -> Result<Arc<dyn File>, LogError>,
    ) -> Result<Arc<dyn File>, LogError> {
        match open() {
            // Without the `.log` an index says nothing: the segment was deleted, or taken away.
            Err(LogError::Io { source, .. })
                if source.kind() == io::ErrorKind::NotFound
                    && check_file(&*self.home.fs, &self.log_path(), None, 0).is_ok() =>
            {
                self.rebuild_after(&INDEX_IS_MISSING)?;
                open()
            }
            opened => opened,
        }
    }

    /// Opens the index if it exists, because it will be used more than once.
    pub(crate) fn open_index(&self) {
        let path = self.index_path();
        let open = || self.home.open(&path, OpenMode::ReadWrite);
        let _is_missing = self.index_slot.get_or_open(&self.home.pool, open).is_err();
    }

    /// The index for a rare use, mostly to write it: it is closed after that. As for the `.log` file, a disk that
    /// refuses to open it would refuse the write as well.
    fn index_file_once(&self, mode: OpenMode) -> Result<Arc<dyn File>, LogError> {
        let path = self.index_path();
        let file = self.index_slot.get_or_open_once(|| self.home.open(&path, mode));
        file.map_err(|error| LogError::write(&path, error))
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

    /// Writes the entries that are in memory only. Only the writer of the partition calls this, so the tail does not
    /// change while it is written, and lookups go on meanwhile.
    pub(crate) fn store_tail(&self) -> Result<(), LogError> {
        let (first, bytes, count, rewrites) = {
            let index = self.index.lock();
            let first = index.stored;
            let numbered = (first..).zip(&index.tail);
            let bytes: Vec<u8> =
                numbered.flat_map(|(number, entry)| self.codec.encode(number, *entry)).collect();
            (first, bytes, index.tail.len(), index.rewrites)
        };
        if count == 0 {
            return Ok(());
        }
        let file = self.whole_index_file_once()?;
        let written = file.write_all_at(&bytes, entry_position(first));
        written.map_err(|error| LogError::write(&self.index_path(), error))?;
        let mut index = self.index.lock();
        if index.rewrites != rewrites {
            // A lookup, or the line above, has made the index anew with these entries in it, which may lie among the
            // others now.
            drop(index);
            return self.rebuild_index();
        }
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
            LookupError::Damage(DecodeError::Unreadable(position)) => {
                LogError::Unreadable { path: self.index_path(), position }
            }
            LookupError::Damage(source) => LogError::Format { path: self.index_path(), source },
        }
    }

    /// An unreadable index can be made anew, like a damaged one.
    fn index_read_failed(&self, error: io::Error) -> LookupError {
        match bad_sector(&error) {
            Some(position) => LookupError::Damage(DecodeError::Unreadable(position)),
            None => LookupError::Log(LogError::io(&self.index_path(), error)),
        }
    }

    /// The result of `look` in an index that is not made anew meanwhile: otherwise the parts that it has read may be of
    /// two indexes.
    fn undisturbed<T>(&self, look: impl Fn() -> T) -> T {
        loop {
            let rewrites = self.index.lock().rewrites;
            let found = look();
            if self.index.lock().rewrites == rewrites {
                return found;
            }
        }
    }

    fn look_up(&self, holds: &impl Fn(&IndexEntry) -> bool) -> Result<IndexEntry, LookupError> {
        self.undisturbed(|| self.look_up_once(holds))
    }

    fn look_up_once(&self, holds: &impl Fn(&IndexEntry) -> bool) -> Result<IndexEntry, LookupError> {
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
        match read_exact(file, &mut bytes, entry_position(first)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(LookupError::Damage(DecodeError::Truncated("a segment's index")));
            }
            read => read.map_err(|error| self.index_read_failed(error))?,
        }
        let numbered = (first..).zip(bytes.chunks_exact(ENTRY_BYTES));
        numbered.map(|(number, bytes)| Ok(self.codec.decode(number, bytes)?)).collect()
    }

    /// The error for a scan that stopped before the end.
    pub(crate) fn scan_failed(&self, stop: ScanStop) -> LogError {
        match stop {
            ScanStop::Io(error) => LogError::io(&self.log_path(), error),
            ScanStop::Damage { position, what, .. } => LogError::corrupt(&self.log_path(), position, what),
        }
    }

    /// The header of the batch at the boundary `position`, which must lie below `end`.
    pub(crate) fn header_at(&self, log: &dyn File, position: u64, end: u64) -> Result<BatchHeader, LogError> {
        let mut bytes = [0; layout::HEADER_BYTES];
        match read_exact(log, &mut bytes, position) {
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
        let is_backward = header.last_offset() < header.base_offset();
        if header.base_offset() < self.base_offset || span > i64::from(u32::MAX) || is_backward {
            return Err(corrupt(format!("offset {} does not fit the segment", header.base_offset())));
        }
        Ok(header)
    }

    /// Largest timestamp of a sealed segment.
    pub(crate) fn max_timestamp(&self) -> Result<TimestampMs, LogError> {
        Ok(self.last_entry()?.max_timestamp)
    }

    /// The time at which its `.log` file was last written. A segment of a compaction is as old as its sources.
    pub(crate) fn last_write(&self) -> Result<TimestampMs, LogError> {
        let path = self.log_path();
        let stat = match self.log_slot.peek() {
            Some(file) => file.stat(),
            None => self.home.fs.stat(&path),
        };
        Ok(stat.map_err(|error| LogError::io(&path, error))?.modified)
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

const INDEX_IS_MISSING: DecodeError = DecodeError::Truncated("a segment's index, which is missing");

/// The reason why a lookup found nothing.
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

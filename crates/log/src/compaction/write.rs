//! Writes the cleaned segment that replaces a group: the log under its `.cleaned` name, and its index.
//!
//! Batches are gathered and written in large pieces, each only if there is room for it. The disk takes them meanwhile,
//! so that the sync at the end is short: a sync cannot be ended, and a stop would wait for it. Nothing is durable
//! before [`CleanedWriter::finish`] returns; [`super::swap`] owns the file names and the steps after that.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use riverrun_env::{File, FileSystem, OpenMode};
use riverrun_records::{BatchHeader, layout};
use riverrun_types::{Offset, PartitionId, TimestampMs};

use super::swap;
use crate::error::LogError;
use crate::index::{
    ENTRY_BYTES, EntryCodec, HEADER_BYTES, INTERVAL_BYTES_MAX, IndexCursor, IndexEntry, IndexHeader, stamp_of,
};

/// Bytes that are gathered before they are written.
const PIECE_BYTES: usize = 256 * 1024;
/// Bytes of which the disk has begun the writing, and that were not waited for.
const BEGUN_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Refuses with [`LogError::DirFull`] if there is no room for so many bytes more.
pub(crate) type RoomCheck<'a> = &'a dyn Fn(u64) -> Result<(), LogError>;

/// Bytes that the index of a log of `log_bytes` bytes has at most: an entry for each interval, or for each batch where these
/// are larger, and one for the end.
pub(crate) fn index_bytes_max(log_bytes: u64, index_interval_bytes: u32) -> u64 {
    let interval_bytes = index_interval_bytes.min(INTERVAL_BYTES_MAX);
    let entries = log_bytes / u64::from(interval_bytes).max(layout::HEADER_BYTES as u64) + 1;
    HEADER_BYTES as u64 + entries * ENTRY_BYTES as u64
}

/// The place of a cleaned segment, and its index's header.
#[derive(Clone, Debug)]
pub(crate) struct CleanedPlace {
    pub(crate) dir: PathBuf,
    pub(crate) partition: PartitionId,
    pub(crate) base_offset: Offset,
    pub(crate) index_interval_bytes: u32,
}

/// A cleaned segment in the making.
///
/// Invariants: `pending` comes after `written` bytes of the log, of which the disk has taken `written_back`; `index` is the
/// whole index so far and has `entries` entries.
pub(crate) struct CleanedWriter<'a> {
    room: RoomCheck<'a>,
    log: Target,
    index_file: Target,
    written: u64,
    written_back: u64,
    pending: Vec<u8>,
    index: Vec<u8>,
    entries: u32,
    codec: EntryCodec,
    cursor: IndexCursor,
    /// The newest of the source segments' last writes.
    last_write: TimestampMs,
}

struct Target {
    path: PathBuf,
    file: Arc<dyn File>,
}

impl Target {
    /// Opens `path` empty: the rest of an interrupted run is worth nothing.
    fn create(fs: &dyn FileSystem, path: PathBuf) -> Result<Self, LogError> {
        let open = || {
            let file = fs.open(&path, OpenMode::CreateOrOpen)?;
            file.set_len(0)?;
            Ok(file)
        };
        let file = open().map_err(|error| LogError::write(&path, error))?;
        Ok(Self { path, file })
    }

    fn write(&self, bytes: &[u8], position: u64) -> Result<(), LogError> {
        self.file.write_all_at(bytes, position).map_err(|error| LogError::write(&self.path, error))
    }

    fn sync(&self) -> Result<(), LogError> {
        self.file.sync_all().map_err(|error| LogError::sync(&self.path, error))
    }
}

impl<'a> CleanedWriter<'a> {
    pub(crate) fn create(
        fs: &dyn FileSystem,
        place: &CleanedPlace,
        room: RoomCheck<'a>,
    ) -> Result<Self, LogError> {
        let header = IndexHeader { partition: place.partition, base_offset: place.base_offset };
        Ok(Self {
            room,
            log: Target::create(fs, swap::cleaned_log(&place.dir, place.base_offset))?,
            index_file: Target::create(fs, swap::cleaned_index(&place.dir, place.base_offset))?,
            written: 0,
            written_back: 0,
            pending: Vec::with_capacity(PIECE_BYTES),
            index: header.encode().to_vec(),
            entries: 0,
            codec: header.codec(),
            cursor: IndexCursor::at(place.base_offset, IndexEntry::START, place.index_interval_bytes),
            last_write: TimestampMs::NONE,
        })
    }

    /// Bytes of the batches so far.
    pub(crate) fn len(&self) -> u64 {
        self.cursor.position
    }

    /// The next batches come from a segment that was last written at `last_write`.
    pub(crate) fn begin_source(&mut self, last_write: TimestampMs) {
        self.last_write = self.last_write.max(last_write);
    }

    /// Adds a whole batch, whose header is `header`.
    pub(crate) fn append(&mut self, header: &BatchHeader, batch: &[u8]) -> Result<(), LogError> {
        if let Some(entry) = self.cursor.entry_due(header.base_offset()) {
            self.put_entry(entry);
        }
        self.cursor.pass(header, &stamp_of(batch));
        self.pending.extend_from_slice(batch);
        if self.pending.len() >= PIECE_BYTES { self.write_pending() } else { Ok(()) }
    }

    /// Ends the segment at `end_offset`. Both files are synced when it returns, their names are not.
    pub(crate) fn finish(mut self, end_offset: Offset) -> Result<(), LogError> {
        if let Some(entry) = self.cursor.end_entry(end_offset) {
            self.put_entry(entry);
        }
        self.write_pending()?;
        (self.room)(self.index.len() as u64)?;
        self.index_file.write(&self.index, 0)?;
        // If this fails, records without timestamps become old later than they should.
        let _ = self.log.file.set_modified(self.last_write);
        self.log.sync()?;
        self.index_file.sync()
    }

    fn put_entry(&mut self, entry: IndexEntry) {
        self.index.reserve(ENTRY_BYTES);
        self.index.extend_from_slice(&self.codec.encode(self.entries, entry));
        self.entries += 1;
    }

    fn write_pending(&mut self) -> Result<(), LogError> {
        (self.room)(self.pending.len() as u64)?;
        self.log.write(&self.pending, self.written)?;
        let piece = self.written..self.written + self.pending.len() as u64;
        self.written = piece.end;
        self.pending.clear();
        self.write_back(piece).map_err(|error| LogError::sync(&self.log.path, error))
    }

    /// Has the disk begin with a piece, and waits for earlier pieces if the disk has many.
    fn write_back(&mut self, piece: Range<u64>) -> io::Result<()> {
        self.log.file.begin_write_back(piece.start, piece.end - piece.start)?;
        if piece.end - self.written_back > BEGUN_BYTES_MAX {
            self.log.file.finish_write_back(self.written_back, piece.start - self.written_back)?;
            self.written_back = piece.start;
        }
        Ok(())
    }
}

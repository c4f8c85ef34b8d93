//! Loads a segment's index into memory: checked against its `.log`, trusted as far as recovery allows, or rebuilt.
//!
//! An entry is believed because of its checksum, a complete index because its last entry is the end of the `.log`.
//! Missing or damaged entries are made anew from the batches, which have to agree with the remaining entries; a
//! contradiction is corruption of the `.log`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use riverrun_env::{File, OpenMode};
use riverrun_types::Offset;

use super::dense::{IndexScan, REBUILD_INTERVAL_BYTES};
use super::{Extent, INDEX_IS_MISSING, LOOKUP_ENTRIES, LookupError, Segment};
use crate::bad_sector::{self, read_exact};
use crate::error::LogError;
use crate::fields::DecodeError;
use crate::index::{self, ENTRY_BYTES, HEADER_BYTES, IndexCursor, IndexEntry, IndexHeader, entry_position};
use crate::index_content::IndexContent;
use crate::scan::{BatchScan, ScanStop};

/// Bytes of each read that only shows whether they can be read.
const READ_THROUGH_BYTES: usize = 256 * 1024;

impl Segment {
    pub(super) fn ensure_loaded(&self) -> Result<(), LogError> {
        if self.index.lock().is_loaded {
            return Ok(());
        }
        match self.load() {
            Ok(()) => Ok(()),
            Err(LookupError::Log(error)) => Err(error),
            Err(LookupError::Damage(error)) => self.rebuild_after(&error),
        }
    }

    /// Reads header and last entry of the file. A sealed segment's last entry must be the end of its `.log`.
    fn load(&self) -> Result<(), LookupError> {
        let (stored, last) = self.read_ends()?;
        if let Some(extent) = self.extent() {
            self.check_end(last, extent)?;
        }
        let mut index = self.index.lock();
        if !index.is_loaded {
            index.rely_on_file(stored, last);
        }
        Ok(())
    }

    /// Compares the last entry of a complete index with the files.
    fn check_end(&self, last: IndexEntry, extent: Extent) -> Result<(), LookupError> {
        let end = self.base_offset.plus(i64::from(last.relative_offset));
        if u64::from(last.position) > extent.size_bytes {
            let what = format!("{} bytes where the index says {}", extent.size_bytes, last.position);
            return Err(LogError::corrupt(&self.log_path(), extent.size_bytes, what).into());
        }
        if u64::from(last.position) < extent.size_bytes {
            return Err(DecodeError::Truncated("a segment's index").into());
        }
        // An empty segment, which compaction leaves if no record stayed, has no entry to compare.
        if extent.size_bytes > 0 && end != extent.next_offset {
            let what = format!("ends at offset {end}, and the next segment begins at {}", extent.next_offset);
            return Err(LogError::corrupt(&self.log_path(), extent.size_bytes, what).into());
        }
        Ok(())
    }

    /// Loads the index if it says that the `.log` ends as `extent` does; returns the last entry then.
    pub(crate) fn load_if_ends_at(&self, extent: Extent) -> Result<Option<IndexEntry>, LogError> {
        let (stored, last) = match self.read_ends() {
            Ok(found) => found,
            Err(LookupError::Damage(_)) => return Ok(None),
            Err(LookupError::Log(error)) => return Err(error),
        };
        let end = self.base_offset.plus(i64::from(last.relative_offset));
        if u64::from(last.position) != extent.size_bytes || end != extent.next_offset {
            return Ok(None);
        }
        self.index.lock().rely_on_file(stored, last);
        Ok(Some(last))
    }

    /// Number of entries in the file, and the last of them, after checking the header.
    fn read_ends(&self) -> Result<(u32, IndexEntry), LookupError> {
        let path = self.index_path();
        let file = match self.index_file_once(OpenMode::ReadWrite) {
            Err(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(LookupError::Damage(INDEX_IS_MISSING));
            }
            file => file?,
        };
        let len = file.len().map_err(|error| LogError::io(&path, error))?;
        let mut header = [0; HEADER_BYTES];
        if len < HEADER_BYTES as u64 {
            return Err(LookupError::Damage(DecodeError::Truncated("a segment's index")));
        }
        read_exact(&*file, &mut header, 0).map_err(|error| self.index_read_failed(error))?;
        match self.home.index_header(self.base_offset).check(&header) {
            Err(source @ DecodeError::NewerVersion { .. }) => {
                return Err(LookupError::Log(LogError::Format { path, source }));
            }
            Err(source @ DecodeError::OtherSegment { partition, base_offset }) => {
                self.check_not_of(IndexHeader { partition, base_offset }, &*file)?;
                return Err(LookupError::Damage(source));
            }
            checked => checked?,
        }
        let entries = (len - HEADER_BYTES as u64) / ENTRY_BYTES as u64;
        let stored = u32::try_from(entries).unwrap_or(u32::MAX);
        let last = match stored.checked_sub(1) {
            Some(number) => self.read_entries(&*file, number, 1)?[0],
            None => IndexEntry::START,
        };
        Ok((stored, last))
    }

    /// Fails if the index of another segment fits the `.log` beside it: both lie in the wrong place then, and an index
    /// that is made anew would vouch for them here. If it does not fit, the `.log` may be in its place.
    fn check_not_of(&self, other: IndexHeader, index: &dyn File) -> Result<(), LogError> {
        let (log, path) = (self.log_file()?, self.log_path());
        let log_bytes = log.len().map_err(|error| LogError::io(&path, error))?;
        let mut entry = [0; ENTRY_BYTES];
        // An index without an entry, as of a short segment whose server was killed, proves nothing, nor does one that
        // cannot be read.
        let Ok(()) = read_exact(index, &mut entry, entry_position(0)) else { return Ok(()) };
        let Ok(first) = other.codec().decode(0, &entry) else { return Ok(()) };
        if u64::from(first.position) <= log_bytes && self.has_boundary(&*log, other.base_offset, &first)? {
            let IndexHeader { partition, base_offset } = other;
            let what = format!(
                "the index beside it is that of partition {partition} from offset {base_offset} on, and fits it: both lie in \
                 the wrong place"
            );
            return Err(LogError::corrupt(&path, 0, what));
        }
        Ok(())
    }

    /// Whether the `.log`, as that of a segment from `base_offset` on, has the boundary that this entry describes.
    fn has_boundary(
        &self,
        log: &dyn File,
        base_offset: Offset,
        entry: &IndexEntry,
    ) -> Result<bool, LogError> {
        let mut cursor = IndexCursor::at(base_offset, IndexEntry::START, REBUILD_INTERVAL_BYTES);
        let mut scan = BatchScan::new(log, base_offset, base_offset, 0, u64::from(entry.position));
        loop {
            match scan.next_batch() {
                Ok(Some(batch)) => cursor.pass(&batch.header, &batch.stamp),
                Ok(None) => break,
                Err(ScanStop::Damage { .. }) => return Ok(false),
                Err(ScanStop::Io(error)) => return Err(LogError::io(&self.log_path(), error)),
            }
        }
        Ok(cursor.position == u64::from(entry.position) && cursor.running_checksum == entry.running_checksum)
    }

    /// Loads the index for recovery: keeps the entries that `is_trusted` accepts, as far as they are intact and rise,
    /// and forgets the others. Returns the last remaining one.
    pub(crate) fn load_trusted(
        &self,
        is_trusted: impl Fn(&IndexEntry) -> bool,
    ) -> Result<IndexEntry, LogError> {
        let mut stored = 0;
        let mut last = IndexEntry::START;
        match self.trusted_prefix(&is_trusted) {
            Ok(found) => (stored, last) = found,
            Err(LookupError::Log(error)) => return Err(error),
            Err(LookupError::Damage(error)) => {
                if matches!(error, DecodeError::Unreadable(_)) {
                    self.read_through()?;
                }
                self.start_index_anew(&error)?;
            }
        }
        self.index.lock().rely_on_file(stored, last);
        Ok(last)
    }

    /// Fails if the `.log` cannot be read, as when the device is away for a moment: then its index may be as good as
    /// before.
    fn read_through(&self) -> Result<(), LogError> {
        let (log, path) = (self.log_file()?, self.log_path());
        let mut window = vec![0; READ_THROUGH_BYTES];
        let mut position = 0;
        loop {
            let read = log.read_at(&mut window, position);
            match read.map_err(|error| LogError::io(&path, bad_sector::at(position, error)))? {
                0 => return Ok(()),
                bytes => position += bytes as u64,
            }
        }
    }

    fn trusted_prefix(
        &self,
        is_trusted: &impl Fn(&IndexEntry) -> bool,
    ) -> Result<(u32, IndexEntry), LookupError> {
        let stored = match self.read_ends() {
            // Only the last entry is damaged, or torn: those before it are looked at one by one below.
            Err(LookupError::Damage(error)) if error == index::BAD_ENTRY => u32::MAX,
            found => found?.0,
        };
        let file = self.index_file_once(OpenMode::ReadWrite)?;
        let mut kept = (0, IndexEntry::START);
        let mut number = 0;
        while number < stored {
            let count = LOOKUP_ENTRIES.min(stored - number);
            let Ok(entries) = self.read_entries(&*file, number, count).or_else(|error| match error {
                // A block with a damaged or missing entry is read entry by entry.
                LookupError::Damage(_) => self.read_entries(&*file, number, 1),
                LookupError::Log(_) => Err(error),
            }) else {
                break;
            };
            for entry in entries {
                let rises =
                    entry.position > kept.1.position && entry.relative_offset >= kept.1.relative_offset;
                if !rises || !is_trusted(&entry) {
                    return Ok(kept);
                }
                number += 1;
                kept = (number, entry);
            }
        }
        Ok(kept)
    }

    /// Cuts the index file down to its known entries. Not synced, because there may be one for each partition of a
    /// server: until a checkpoint has synced it, or it is sealed below the recovery point, entries that come back with
    /// a power cut lie above that point, and are not believed.
    pub(crate) fn cut_index_file(&self) -> Result<(), LogError> {
        let len = entry_position(self.index.lock().stored);
        let file = self.index_file_once(OpenMode::ReadWrite)?;
        let cut = || if file.len()? > len { file.set_len(len) } else { Ok(()) };
        cut().map_err(|error| LogError::sync(&self.index_path(), error))
    }

    /// Replaces an unusable index by an empty one.
    fn start_index_anew(&self, error: &DecodeError) -> Result<Arc<dyn File>, LogError> {
        let path = self.index_path();
        tracing::warn!(path = %path.display(), %error, "the index is rebuilt from the log");
        let file = self.index_file_once(OpenMode::CreateOrOpen)?;
        let header = self.home.index_header(self.base_offset).encode();
        let emptied = file.set_len(0).and_then(|()| file.write_all_at(&header, 0));
        emptied.map_err(|error| LogError::io(&path, error))?;
        Ok(file)
    }

    /// Rebuilds the index from the log, up to the last known boundary. Lookups and the writer wait, which only damage
    /// can bring about. In a dir that has failed it is rebuilt in memory.
    pub(super) fn rebuild_after(&self, error: &DecodeError) -> Result<(), LogError> {
        let mut index = self.index.lock();
        let log = self.log_file()?;
        let log_len = log.len().map_err(|error| LogError::io(&self.log_path(), error))?;
        let end = match self.extent() {
            Some(extent) if extent.size_bytes != log_len => {
                let what = format!("{log_len} bytes where {} were", extent.size_bytes);
                return Err(LogError::corrupt(&self.log_path(), log_len, what));
            }
            Some(extent) => extent.size_bytes,
            None => u64::from(index.last.position),
        };
        // The old entries stay as long as they may refute the log, or the log cannot be read.
        let mut scan = IndexScan::new(self.base_offset, self.entries_left(log_len));
        scan.read_on(self, &*log, end, u64::MAX)?;
        let (entries, expected) = scan.finish(self);
        if let Some(extent) = self.extent()
            && expected > extent.next_offset
        {
            let what = format!("ends at offset {expected}, above the next segment's {}", extent.next_offset);
            return Err(LogError::corrupt(&self.log_path(), end, what));
        }
        if self.home.has_failed.load(Ordering::Acquire) {
            index.keep(entries);
            return Ok(());
        }
        index.rewrites += 1;
        let file = self.start_index_anew(error)?;
        let written = file.write_all_at(&self.encode_entries(&entries), entry_position(0));
        written.map_err(|error| LogError::io(&self.index_path(), error))?;
        let last = entries.last().copied().unwrap_or(IndexEntry::START);
        let stored = u32::try_from(entries.len()).expect("one entry for each 4 KiB of a segment");
        index.rely_on_file(stored, last);
        Ok(())
    }

    /// The intact entries of a damaged index. Unreadable ones prove nothing.
    fn entries_left(&self, log_bytes: u64) -> Vec<IndexEntry> {
        let Ok(file) = self.index_file_once(OpenMode::ReadWrite) else { return Vec::new() };
        let header = self.home.index_header(self.base_offset);
        IndexContent::read_file(&*file, header, log_bytes).map(|content| content.entries).unwrap_or_default()
    }
}

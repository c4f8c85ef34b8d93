//! Makes the index of a segment dense, if it is from a time when entries could lie far apart.
//!
//! A lookup walks from one entry to the next, and proves all batches on its way. Today's entries are as close as
//! [`INTERVAL_BYTES_MAX`] has it; between those of older indexes a whole segment may lie. Such an index is found when a
//! lookup would walk far, and is replaced by one made from the batches, a piece at a time, so that no lookup waits for
//! all of it. Only the index of a complete segment is replaced, and never one that the batches contradict: it stays as
//! it is. Before its file is written over, lookups use the new one in memory: no lookup sees a part of both.

use riverrun_env::{File, OpenMode};
use riverrun_types::Offset;

use super::Segment;
use crate::error::LogError;
use crate::index::{INTERVAL_BYTES_MAX, IndexCursor, IndexEntry, entry_position, not_written};
use crate::scan::BatchScan;

/// `index.interval.bytes` of an index that is made anew: Kafka's default.
pub(super) const REBUILD_INTERVAL_BYTES: u32 = 4096;
/// Bytes of batches that are read at once to make an index dense: they take some milliseconds.
const DENSE_AT_ONCE_BYTES: u64 = 4 * 1024 * 1024;

/// Whether lookups in a segment walk no further than in any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dense {
    Yes,
    /// More of it has to be read first.
    NotYet,
    /// They walk as far as they have to.
    Never,
}

/// How far a sparse index was made anew.
#[derive(Debug, Default)]
pub(super) enum Densing {
    #[default]
    NotBegun,
    UnderWay {
        scan: Box<IndexScan>,
        was_used: bool,
    },
    /// No more is read: the index is dense, or the segment contradicts it, or cannot be read, which other readers will
    /// find.
    Done,
}

/// Entries of an index that is made from the batches.
///
/// Invariants: `entries` are those due up to the cursor; the first `passed` of `known` lie before it.
#[derive(Debug)]
pub(super) struct IndexScan {
    cursor: IndexCursor,
    entries: Vec<IndexEntry>,
    known: Vec<IndexEntry>,
    passed: usize,
    proven: u64,
    expected: Offset,
}

impl IndexScan {
    /// For a segment whose intact entries are `known`.
    pub(super) fn new(base_offset: Offset, known: Vec<IndexEntry>) -> Self {
        Self {
            cursor: IndexCursor::at(base_offset, IndexEntry::START, REBUILD_INTERVAL_BYTES),
            entries: Vec::new(),
            known,
            passed: 0,
            proven: 0,
            expected: base_offset,
        }
    }

    /// Reads on, at most so many bytes and the batch that reaches beyond, up to `end`. Returns whether that is reached.
    /// Fails if known entries have other checksums: an index made anew would vouch for the batches that they refute.
    pub(super) fn read_on(
        &mut self,
        segment: &Segment,
        log: &dyn File,
        end: u64,
        bytes_max: u64,
    ) -> Result<bool, LogError> {
        let begun = self.cursor.position;
        let mut scan = BatchScan::new(log, segment.base_offset, self.expected, begun, end);
        while self.cursor.position - begun < bytes_max {
            let Some(batch) = scan.next_batch().map_err(|stop| segment.scan_failed(stop))? else {
                return Ok(true);
            };
            self.entries.extend(self.cursor.entry_due(batch.header.base_offset()));
            self.cursor.pass(&batch.header, &batch.stamp);
            self.expected = scan.expected();
            self.compare(segment)?;
        }
        Ok(self.cursor.position >= end)
    }

    fn compare(&mut self, segment: &Segment) -> Result<(), LogError> {
        while let Some(entry) = self.known.get(self.passed) {
            if u64::from(entry.position) > self.cursor.position {
                break;
            }
            self.passed += 1;
            if u64::from(entry.position) != self.cursor.position {
                continue;
            }
            if entry.running_checksum != self.cursor.running_checksum {
                let what = not_written(self.cursor.position);
                return Err(LogError::corrupt(&segment.log_path(), self.proven, what));
            }
            self.proven = self.cursor.position;
        }
        Ok(())
    }

    /// The entries, the last one for the end itself, and the offset after the batches.
    pub(super) fn finish(mut self, segment: &Segment) -> (Vec<IndexEntry>, Offset) {
        // Compaction may have removed the last batches: a sealed segment still ends where the next one begins.
        let end = segment.extent().map_or(self.expected, |extent| extent.next_offset.max(self.expected));
        self.entries.extend(self.cursor.end_entry(end));
        (self.entries, self.expected)
    }
}

impl Segment {
    /// Whether the next entry behind this one lies further away than in an index of today. Looks at a few headers.
    pub(crate) fn is_sparse_behind(&self, entry: IndexEntry, size_bytes: u64) -> Result<bool, LogError> {
        let start = u64::from(entry.position);
        let after = self.first_entry_from(start + 1)?;
        let end = after.map_or(size_bytes, |after| u64::from(after.position)).min(size_bytes);
        let due = start + u64::from(INTERVAL_BYTES_MAX);
        if end <= due {
            return Ok(false);
        }
        let log = self.log_file()?;
        let mut position = start;
        while position < due {
            // Walks over the batches report the fault here.
            let Ok(header) = self.header_at(&*log, position, size_bytes) else { return Ok(false) };
            position += header.size_bytes() as u64;
        }
        // From the last batch that begins before an entry is due on, the next one has it.
        Ok(position < end)
    }

    /// Reads on to make the index dense. `Yes`: all was read, and [`Self::replace_index`] is to follow. `Never` also if
    /// the index was made anew already: entries that were looked up since are as near as they can be.
    pub(crate) fn read_for_index(&self) -> Dense {
        let Some(extent) = self.extent() else { return Dense::Never };
        let mut densing = self.densing.lock();
        match self.read_on(&mut densing, extent.size_bytes) {
            Ok(true) => Dense::Yes,
            Ok(false) => Dense::NotYet,
            Err(error) => {
                if let Some(error) = error {
                    let path = self.log_path();
                    tracing::debug!(path = %path.display(), %error, "the index stays sparse");
                }
                *densing = Densing::Done;
                Dense::Never
            }
        }
    }

    fn read_on(&self, densing: &mut Densing, end: u64) -> Result<bool, Option<LogError>> {
        if let Densing::NotBegun = densing {
            let known = self.index_content()?.entries;
            let scan = Box::new(IndexScan::new(self.base_offset, known));
            *densing = Densing::UnderWay { scan, was_used: true };
        }
        let Densing::UnderWay { scan, was_used } = densing else { return Err(None) };
        *was_used = true;
        Ok(scan.read_on(self, &*self.log_file()?, end, DENSE_AT_ONCE_BYTES)?)
    }

    /// Forgets the entries that were made so far if none was added since the last call. Does not wait.
    pub(super) fn forget_unused_scan(&self) {
        let Some(mut densing) = self.densing.try_lock() else { return };
        if let Densing::UnderWay { was_used, .. } = &mut *densing
            && !std::mem::take(was_used)
        {
            *densing = Densing::NotBegun;
        }
    }

    /// The segment is no longer part of the log: its index is not made anew.
    pub(crate) fn leave_index(&self) {
        *self.densing.lock() = Densing::Done;
    }

    /// Writes the index that was made from the batches over the old one, and syncs it; the caller keeps other segments
    /// from taking the files' names meanwhile. Lookups go on in memory until it is durable, and for good if the disk
    /// does not take it.
    pub(crate) fn replace_index(&self) -> Result<(), LogError> {
        let densing = std::mem::replace(&mut *self.densing.lock(), Densing::Done);
        let Densing::UnderWay { scan, .. } = densing else { return Ok(()) };
        let (entries, _) = scan.finish(self);
        let bytes = self.encode_entries(&entries);
        let stored = u32::try_from(entries.len()).expect("one entry for each 4 KiB of a segment");
        let rewrites = {
            let mut index = self.index.lock();
            index.keep(entries);
            index.rewrites
        };
        self.write_index(&bytes)?;
        let mut index = self.index.lock();
        // The scrub may have had the index rebuilt meanwhile.
        if index.rewrites == rewrites {
            let last = index.last;
            index.rely_on_file(stored, last);
        }
        Ok(())
    }

    /// Writes these entries, and nothing behind them. Durable when it returns.
    fn write_index(&self, bytes: &[u8]) -> Result<(), LogError> {
        // It may have been removed.
        let (file, path) = (self.index_file_once(OpenMode::CreateOrOpen)?, self.index_path());
        let end = entry_position(0) + bytes.len() as u64;
        let write = || {
            file.write_all_at(&self.home.index_header(self.base_offset).encode(), 0)?;
            file.write_all_at(bytes, entry_position(0))?;
            if file.len()? > end { file.set_len(end) } else { Ok(()) }
        };
        write().map_err(|error| LogError::write(&path, error))?;
        file.sync_data().map_err(|error| LogError::sync(&path, error))
    }

    /// The entries as they are written from the first on.
    pub(super) fn encode_entries(&self, entries: &[IndexEntry]) -> Vec<u8> {
        (0_u32..).zip(entries).flat_map(|(number, entry)| self.codec.encode(number, *entry)).collect()
    }
}

#[cfg(test)]
mod tests;

//! Proving that a range of a `.log` holds the written batches, before it is handed to a reader.
//!
//! Not every reader checks a batch's CRC, and no reader can check the bytes outside of it (base offset, length, leader
//! epoch, magic). So both are proved here: the one by the CRCs, the other by the running checksums of the index. Each
//! proof is made once for each range since the segment was opened, because the proved bytes are in the page cache then.
//! Bytes that this process has written need no proof: they were checked when they came. Once a segment is complete, a
//! range that has left the page cache is proved anew, even if this process wrote it ([`Segment::forget_if_evicted`]).
//! After a failed sync none of that holds: written bytes may be lost, and the next read may bring older ones. The
//! segments of a log dir that has failed forget their proofs at each read ([`Segment::forget_proofs`]).
//!
//! The two are remembered apart, as they cover different ranges: CRCs just the batches that are handed out, so that
//! damage elsewhere is not looked for, running checksums whole intervals of the index.

use std::io;

use riverrun_env::File;
use riverrun_records::{BatchHeader, layout};
use riverrun_types::Offset;

use super::{LookupError, Segment};
use crate::bad_sector::{bad_sector, read_exact};
use crate::error::LogError;
use crate::index::{IndexCursor, IndexEntry, STAMP_BYTES};
use crate::scan::{BatchScan, ScanStop};

#[cfg(test)]
mod tests;
#[cfg(test)]
use tests::{believes_contents, is_evicted};

/// Ranges of one segment that are remembered. With more the shortest is forgotten, which costs least to prove again.
const RANGES_MAX: usize = 16;
/// Bytes of a read if batches are small.
const WINDOW_BYTES: usize = 64 * 1024;
/// Batches up to this size are small: with larger ones, reading the headers alone costs less than reading all.
const SMALL_BATCH_BYTES: u64 = 2048;
/// One byte in so many of a range is probed for being in memory.
const PROBE_BYTES: usize = 256 * 1024;
/// The fault of a `.log` that is shorter than before.
const CUT: &str = "the file ends inside a batch";

/// Whether batches are served without a check of their CRCs: a bug that a test plants, to see that it is found.
#[cfg(not(test))]
const fn believes_contents() -> bool {
    false
}

/// Whether a byte would have to come from the disk.
#[cfg(not(test))]
fn is_evicted(log: &dyn File, position: u64) -> bool {
    log.is_evicted(position)
}

/// Ranges of positions.
///
/// Invariants: in order, neither overlapping nor touching, at most [`RANGES_MAX`].
#[derive(Debug, Default)]
struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// End of the range that includes `start`; `start` if none does.
    fn held_upto(&self, start: u64) -> u64 {
        self.0.iter().find(|(from, upto)| (*from..*upto).contains(&start)).map_or(start, |(_, upto)| *upto)
    }

    fn holds(&self, start: u64, end: u64) -> bool {
        start >= end || end <= self.held_upto(start)
    }

    fn insert(&mut self, mut start: u64, mut end: u64) {
        self.0.retain(|(from, upto)| {
            let is_apart = *upto < start || end < *from;
            if !is_apart {
                (start, end) = (start.min(*from), end.max(*upto));
            }
            is_apart
        });
        if self.0.len() == RANGES_MAX {
            let shortest = self.0.iter().enumerate().rev().min_by_key(|(_, (from, upto))| upto - from);
            let index = shortest.map_or(0, |(index, _)| index);
            self.0.remove(index);
        }
        let place = self.0.partition_point(|(from, _)| *from < start);
        self.0.insert(place, (start, end));
    }
}

/// The proved parts of a segment.
///
/// Invariants: all ends are boundaries between batches; batches that begin at `written_from` or behind need no proof.
#[derive(Debug)]
pub(super) struct Proved {
    written_from: u64,
    /// Ranges whose running checksums were right.
    headers: Ranges,
    /// Ranges whose batches' own CRCs were right.
    contents: Ranges,
}

impl Proved {
    /// For a segment that this process writes from that position on.
    pub(super) fn written_from(position: u64) -> Self {
        Self { written_from: position, headers: Ranges::default(), contents: Ranges::default() }
    }

    /// For a segment that this process has not written.
    pub(super) fn nothing() -> Self {
        Self::written_from(u64::MAX)
    }

    fn knows_nothing(&self) -> bool {
        self.written_from == u64::MAX && self.headers.0.is_empty() && self.contents.0.is_empty()
    }
}

/// The cost of a proof.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effort {
    /// Bytes that had to be looked at.
    pub(crate) bytes: u64,
    /// Whether it had to wait for the disk.
    pub(crate) met_disk: bool,
}

impl Segment {
    /// From here on this process writes; nothing was proved before.
    pub(crate) fn note_written_from(&self, position: u64) {
        *self.proved.lock() = Proved::written_from(position);
    }

    /// All later reads are proved, also of bytes that this process has written.
    pub(crate) fn forget_proofs(&self) {
        *self.proved.lock() = Proved::nothing();
    }

    /// Has everything proved anew if some of the range would have to come from the disk, which may have other bytes
    /// now. More than the range may come with it, as the system reads ahead. Only for a complete segment: while a file
    /// is being written, some file systems say of all of it that it needs waiting for.
    pub(crate) fn forget_if_evicted(&self, start: u64, end: u64) -> Result<(), LogError> {
        let end = end.min(self.extent().map_or(0, |extent| extent.size_bytes));
        if start >= end || self.proved.lock().knows_nothing() {
            return Ok(());
        }
        let log = self.log_file()?;
        let mut probed = (start..end).step_by(PROBE_BYTES).chain([end - 1]);
        if probed.any(|position| is_evicted(&*log, position)) {
            self.forget_proofs();
        }
        Ok(())
    }

    /// Whether the range needs no proof any more.
    pub(crate) fn is_proved(&self, start: u64, end: u64) -> bool {
        let proved = self.proved.lock();
        let end = end.min(proved.written_from);
        proved.headers.holds(start, end) && proved.contents.holds(start, end)
    }

    /// Proves the batches of a range, whose ends are boundaries. Fails if they are not the written ones.
    pub(crate) fn prove(&self, start: u64, end: u64) -> Result<Effort, LogError> {
        if self.is_proved(start, end) {
            return Ok(Effort::default());
        }
        let effort = self.prove_contents(start, end)?;
        self.prove_headers(start, end)?;
        Ok(effort)
    }

    /// Proves the bytes that the batches' own CRCs leave out.
    pub(crate) fn prove_headers(&self, start: u64, end: u64) -> Result<(), LogError> {
        let end = {
            let proved = self.proved.lock();
            let end = end.min(proved.written_from);
            if proved.headers.holds(start, end) {
                return Ok(());
            }
            end
        };
        let (from, upto) = self.compare_headers(start, end)?;
        self.proved.lock().headers.insert(from, upto);
        Ok(())
    }

    /// As [`Self::prove_headers`], also for ranges that were proved or written before: the disk may have other bytes by
    /// now. Returns the range that was looked at.
    pub(crate) fn compare_headers(&self, start: u64, end: u64) -> Result<(u64, u64), LogError> {
        let from = self.last_entry_where(|entry| u64::from(entry.position) <= start)?;
        let after = self.first_entry_from(end)?;
        let upto = after.map_or(end, |entry| u64::from(entry.position));
        self.compare(from, after, upto)?;
        Ok((u64::from(from.position), upto))
    }

    /// Proves the bytes that the batches' CRCs cover, as far as they are not proved.
    fn prove_contents(&self, start: u64, end: u64) -> Result<Effort, LogError> {
        let (start, end) = {
            let proved = self.proved.lock();
            (proved.contents.held_upto(start), end.min(proved.written_from))
        };
        if start >= end {
            return Ok(Effort::default());
        }
        let log = self.log_file()?;
        // The search for the range has touched its ends.
        let met_disk = ![start, start.midpoint(end), end - 1].iter().all(|position| log.is_cached(*position));
        if met_disk {
            log.advise_will_need(start, end - start);
        }
        self.check_contents(&*log, self.base_offset, start, end)?;
        Ok(Effort { bytes: end - start, met_disk })
    }

    /// Compares the CRC of each batch of a range, in which no offset below `expected` may come.
    fn check_contents(&self, log: &dyn File, expected: Offset, start: u64, end: u64) -> Result<(), LogError> {
        if believes_contents() {
            return Ok(());
        }
        let mut scan = BatchScan::new(log, self.base_offset, expected, start, end);
        loop {
            match scan.next_batch() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(ScanStop::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(LogError::corrupt(&self.log_path(), scan.position(), CUT));
                }
                Err(stop) => return Err(self.scan_failed(stop)),
            }
        }
        let mut proved = self.proved.lock();
        if start < end.min(proved.written_from) {
            proved.contents.insert(start, end);
        }
        Ok(())
    }

    /// Checks the batches from an entry up to a boundary, which a lookup has passed over: by the index's checksums, and
    /// from `contents_from` on by their own CRCs, because the lookup believed the bytes that these cover.
    pub(crate) fn check_batches(
        &self,
        log: &dyn File,
        from: IndexEntry,
        contents_from: u64,
        upto: u64,
    ) -> Result<(), LogError> {
        let expected = self.base_offset.plus(i64::from(from.relative_offset));
        self.check_contents(log, expected, contents_from, upto)?;
        self.prove_headers(u64::from(from.position), upto)
    }

    /// Checks the batch at the boundary `position` in both ways.
    pub(crate) fn check_batch(&self, position: u64, size_bytes: u64) -> Result<(), LogError> {
        let log = self.log_file()?;
        let end = position + self.header_at(&*log, position, size_bytes)?.size_bytes() as u64;
        self.check_contents(&*log, self.base_offset, position, end)?;
        self.prove_headers(position, end)
    }

    fn compare(&self, from: IndexEntry, after: Option<IndexEntry>, upto: u64) -> Result<(), LogError> {
        let log = self.log_file()?;
        let mut headers = Headers { log: &*log, end: upto, window: Vec::new(), window_start: 0, last: 0 };
        let mut cursor = IndexCursor::at(self.base_offset, from, u32::MAX);
        let mut expected = self.base_offset.plus(i64::from(from.relative_offset));
        while cursor.position < upto {
            let position = cursor.position;
            let corrupt = |what: String| LogError::corrupt(&self.log_path(), position, what);
            let bytes = match headers.at(position) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(corrupt(CUT.to_owned()));
                }
                read => read.map_err(|error| LogError::io(&self.log_path(), error))?,
            };
            let stamp = *bytes.first_chunk::<STAMP_BYTES>().expect("a header is longer");
            let header = BatchHeader::parse(bytes).map_err(|error| corrupt(error.to_string()))?;
            if header.size_bytes() as u64 > upto - position {
                return Err(corrupt(format!("a batch of {} bytes reaches too far", header.size_bytes())));
            }
            // Only compaction leaves gaps.
            let is_next = header.base_offset() == expected
                || (header.base_offset() > expected && self.may_have_gap_at(expected));
            if !is_next {
                return Err(corrupt(format!("offset {} where {expected} must come", header.base_offset())));
            }
            expected = header.next_offset();
            cursor.pass(&header, &stamp);
        }
        match after {
            Some(after) if after.running_checksum != cursor.running_checksum => {
                let what = format!(
                    "the batches from here to byte {upto} are not those that were written (running checksum)"
                );
                Err(LogError::corrupt(&self.log_path(), u64::from(from.position), what))
            }
            _ => Ok(()),
        }
    }

    /// No offset from here on lies in the stretch of the index that has the byte at `position`: nothing of it can be
    /// proved without that byte.
    pub(crate) fn end_of_stretch(&self, position: u64) -> Offset {
        match self.first_entry_from(position + 1) {
            Ok(Some(entry)) => self.base_offset.plus(i64::from(entry.relative_offset)),
            _ => self.extent().map_or(Offset(i64::MAX), |extent| extent.next_offset),
        }
    }

    /// The first entry at or behind `position`, if there is one.
    pub(crate) fn first_entry_from(&self, position: u64) -> Result<Option<IndexEntry>, LogError> {
        match self.find_entry_from(position) {
            Ok(entry) => Ok(entry),
            Err(LookupError::Log(error)) => Err(error),
            Err(LookupError::Damage(error)) => {
                self.rebuild_after(&error)?;
                self.find_entry_from(position).map_err(|error| self.lookup_failed(error))
            }
        }
    }

    fn find_entry_from(&self, position: u64) -> Result<Option<IndexEntry>, LookupError> {
        self.undisturbed(|| self.find_entry_once(position))
    }

    fn find_entry_once(&self, position: u64) -> Result<Option<IndexEntry>, LookupError> {
        let reaches = |entry: &&IndexEntry| u64::from(entry.position) >= position;
        let (stored, in_memory) = {
            let index = self.index.lock();
            (index.stored, index.tail.iter().find(reaches).copied())
        };
        if stored == 0 {
            return Ok(in_memory);
        }
        let file = self.index_file()?;
        let (mut low, mut high) = (0, stored);
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.read_entries(&*file, middle, 1)?[0];
            if reaches(&&entry) { high = middle } else { low = middle + 1 }
        }
        if low == stored { Ok(in_memory) } else { Ok(Some(self.read_entries(&*file, low, 1)?[0])) }
    }
}

/// Reads the headers of one batch after the other.
struct Headers<'a> {
    log: &'a dyn File,
    end: u64,
    window: Vec<u8>,
    window_start: u64,
    /// Position of the last header.
    last: u64,
}

impl Headers<'_> {
    /// The header at `position`. If the batch before it was small, more is read at once.
    fn at(&mut self, position: u64) -> io::Result<&[u8; layout::HEADER_BYTES]> {
        let held = self.window_start + self.window.len() as u64;
        if position < self.window_start || position + layout::HEADER_BYTES as u64 > held {
            let is_near = position - self.last <= SMALL_BATCH_BYTES && !self.window.is_empty();
            let left = usize::try_from(self.end - position).unwrap_or(usize::MAX);
            let wanted = if is_near { WINDOW_BYTES.min(left) } else { 0 };
            self.window.resize(wanted.max(layout::HEADER_BYTES), 0);
            self.window_start = position;
            if let Err(error) = read_exact(self.log, &mut self.window, position) {
                // Bytes before a bad sector were read.
                let read = bad_sector(&error).map_or(0, |bad| bad - position);
                self.window.truncate(usize::try_from(read).expect("inside the window"));
                if self.window.len() < layout::HEADER_BYTES {
                    return Err(error);
                }
            }
        }
        self.last = position;
        let at = usize::try_from(position - self.window_start).expect("inside the window");
        Ok(self.window[at..].first_chunk().expect("read just now"))
    }
}

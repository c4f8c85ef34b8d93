//! Reading batches out of a `.log` file one after the other, each fully checked: for recovery, for rebuilding an index,
//! for `riverrun log verify` and `dump`.
//!
//! Guarantees bounded memory: a batch that fits the window is handed out as a slice, a larger one is only passed over
//! for its checksum unless the caller asks for its bytes. Damage is an answer, not a panic, and names the position
//! where the intact part ends. A bad sector fails the batch that it lies in and none before; a repair may take it for
//! damage ([`BatchScan::over_bad_sectors`]). From the first damage on all batches come from one search ([`Search`]), so
//! that the time of a scan depends on the bytes' number, whatever lengths they claim.

mod combine;
mod search;
#[cfg(test)]
pub(crate) mod tests;

use std::io;

use riverrun_records::{BatchError, BatchHeader, CorruptCause, layout};
use riverrun_types::{LeaderEpoch, Offset};
use thiserror::Error;

use crate::bad_sector::{bad_sector, read_exact, read_over};
use crate::index::{OFFSET_SPAN_MAX, STAMP_BYTES, Stamp};
use riverrun_env::File;
use search::Next;

pub(crate) use search::Search;

/// Bytes that are read at once.
const WINDOW_BYTES: usize = 256 * 1024;

/// The reason for a scan's stop.
#[derive(Debug)]
pub(crate) enum ScanStop {
    /// The system failed to read.
    Io(io::Error),
    /// There is no intact batch at this position.
    Damage {
        position: u64,
        what: String,
        /// The byte there that the disk does not give back, if no other fault is known.
        unreadable_at: Option<u64>,
    },
}

impl From<io::Error> for ScanStop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// One intact batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScannedBatch {
    pub(crate) position: u64,
    pub(crate) header: BatchHeader,
    pub(crate) stamp: Stamp,
}

impl ScannedBatch {
    /// Whether it may come at `expected`, the next offset, if the log is synced up to `synced`. Gaps come from
    /// compaction, which stays below; and a batch begins at `synced`.
    pub(crate) fn may_come_at(&self, expected: Offset, synced: Offset) -> bool {
        let base = self.header.base_offset();
        base == expected || base == synced || self.header.next_offset() <= synced
    }
}

/// Bounds of a scan that the header of every batch keeps.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Base offset of the segment.
    base_offset: Offset,
    /// Largest end of the last batch.
    end: u64,
}

impl Bounds {
    /// The header that `bytes` begin with, if a batch may have it at `position`, where no offset below `expected` may come.
    fn header(&self, bytes: &[u8], position: u64, expected: Offset) -> Result<BatchHeader, HeaderFlaw> {
        let header = BatchHeader::parse(bytes)?;
        let size = header.size_bytes() as u64;
        if size > self.end - position {
            return Err(HeaderFlaw::PastEnd(size));
        }
        let (base, last) = (header.base_offset(), header.last_offset());
        if base < expected {
            return Err(HeaderFlaw::TooLow { base, expected });
        }
        if last < base || last.0 - self.base_offset.0 >= OFFSET_SPAN_MAX {
            return Err(HeaderFlaw::OutOfSegment { base, last });
        }
        if header.leader_epoch().0 < 0 {
            return Err(HeaderFlaw::Epoch(header.leader_epoch()));
        }
        Ok(header)
    }
}

/// The reason why no batch has such a header at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
enum HeaderFlaw {
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error("a batch of {0} bytes reaches past the end")]
    PastEnd(u64),
    #[error("offset {base} where {expected} or more must come")]
    TooLow { base: Offset, expected: Offset },
    #[error("offsets {base} to {last} do not fit the segment")]
    OutOfSegment { base: Offset, last: Offset },
    #[error("leader epoch {}", .0.0)]
    Epoch(LeaderEpoch),
}

/// Walks the batches of a file from a boundary to an end.
///
/// Invariants: `position` is a boundary; `window` holds the file's bytes from `window_start` on; there is a `search` once
/// damage was met.
pub(crate) struct BatchScan<'f> {
    file: &'f dyn File,
    position: u64,
    bounds: Bounds,
    expected: Offset,
    window: Vec<u8>,
    window_start: u64,
    search: Option<Search>,
    searched_bytes: u64,
    passes_bad_sectors: bool,
}

impl<'f> BatchScan<'f> {
    /// A scan of the segment that begins at `base_offset`, from the boundary `position`, where no offset below
    /// `expected` may come, up to `end`.
    pub(crate) fn new(
        file: &'f dyn File,
        base_offset: Offset,
        expected: Offset,
        position: u64,
        end: u64,
    ) -> Self {
        Self {
            file,
            position,
            bounds: Bounds { base_offset, end },
            expected,
            window: Vec::new(),
            window_start: position,
            search: None,
            searched_bytes: 0,
            passes_bad_sectors: false,
        }
    }

    /// Takes bytes that the disk does not give back for damage, instead of failing.
    pub(crate) fn over_bad_sectors(self) -> Self {
        Self { passes_bad_sectors: true, ..self }
    }

    /// Goes on with the search of an earlier scan of the same file, which had come to this one's begin.
    pub(crate) fn resume(&mut self, search: Option<Search>) {
        self.search = search.filter(|search| search.end() == self.bounds.end);
    }

    /// The search, if damage was met.
    pub(crate) fn into_search(self) -> Option<Search> {
        self.search
    }

    /// The offset that the segment begins at.
    pub(crate) fn base_offset(&self) -> Offset {
        self.bounds.base_offset
    }

    /// Position of the next batch, or of the damage.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The offset below which no batch may begin now.
    pub(crate) fn expected(&self) -> Offset {
        self.expected
    }

    /// Expects no offset below `offset` from here on: the batches before are not believed.
    pub(crate) fn expect(&mut self, offset: Offset) {
        if offset != self.expected {
            self.expected = offset;
            self.search = None;
        }
    }

    /// Whether the damage at the position is a batch whose offset is too low. Then the batches before it may be
    /// damaged: no CRC covers their offsets.
    pub(crate) fn is_too_low(&mut self) -> io::Result<bool> {
        match self.header() {
            Ok(header) => Ok(matches!(header, Err(HeaderFlaw::TooLow { .. }))),
            Err(ScanStop::Io(error)) => Err(error),
            Err(ScanStop::Damage { .. }) => Ok(false),
        }
    }

    /// The next batch, with its CRC checked; none at the end.
    pub(crate) fn next_batch(&mut self) -> Result<Option<ScannedBatch>, ScanStop> {
        let Some(header) = self.next_header()? else { return Ok(None) };
        let stamp = self.stamp()?;
        self.check_content(&header)?;
        let batch = ScannedBatch { position: self.position, header, stamp };
        self.position += header.size_bytes() as u64;
        self.expected = header.next_offset();
        Ok(Some(batch))
    }

    /// All bytes of the next batch, whose CRC the caller has to check; none at the end.
    pub(crate) fn next_bytes(&mut self) -> Result<Option<Vec<u8>>, ScanStop> {
        let Some(header) = self.next_header()? else { return Ok(None) };
        let size = header.size_bytes();
        let bytes = if size <= WINDOW_BYTES {
            self.at(self.position, size)?.to_vec()
        } else {
            let mut bytes = vec![0; size];
            read_exact(self.file, &mut bytes, self.position)?;
            bytes
        };
        self.position += size as u64;
        self.expected = header.next_offset();
        Ok(Some(bytes))
    }

    /// All bytes of a batch that this scan has just handed out.
    pub(crate) fn bytes_of(&self, batch: &ScannedBatch) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; batch.header.size_bytes()];
        read_exact(self.file, &mut bytes, batch.position)?;
        Ok(bytes)
    }

    /// Steps over damage to the next position where an intact batch begins, if there is one.
    pub(crate) fn skip_damage(&mut self) -> Result<bool, ScanStop> {
        if self.position >= self.bounds.end {
            return Ok(false);
        }
        self.begin_search();
        self.position += 1;
        match self.next_intact()? {
            Next::Batch { position, base_offset } => {
                self.position = position;
                self.expected = base_offset;
                Ok(true)
            }
            Next::Nothing | Next::Undecided => {
                self.position = self.bounds.end;
                Ok(false)
            }
        }
    }

    /// Once damage was met: searches on until the next batch is known, or this scan has searched `bytes_max` bytes.
    /// Returns whether it is known; then neither [`Self::next_batch`] nor [`Self::skip_damage`] has to search.
    pub(crate) fn search_within(&mut self, bytes_max: u64) -> io::Result<bool> {
        let Some(search) = &mut self.search else { return Ok(true) };
        let (file, passes_bad_sectors) = (self.file, self.passes_bad_sectors);
        let read = |window: &mut [u8], from: u64| {
            if passes_bad_sectors {
                read_over(file, window, from).map(|_| ())
            } else {
                read_exact(file, window, from)
            }
        };
        while search.next(self.position, self.expected) == Next::Undecided {
            if self.searched_bytes >= bytes_max {
                return Ok(false);
            }
            if search.skip_hole(|from| file.next_data(from), self.position)? {
                continue;
            }
            self.searched_bytes += search.read_on(read, self.position, self.expected)?;
        }
        Ok(true)
    }

    /// There is damage at the position: begins the search for batches behind it.
    fn begin_search(&mut self) {
        let (bounds, from) = (self.bounds, self.position + 1);
        self.search.get_or_insert_with(|| Search::new(bounds, from));
    }

    /// The first intact batch from the position on, wherever it begins; undecided only before the first damage.
    fn next_intact(&mut self) -> io::Result<Next> {
        self.search_within(u64::MAX)?;
        let search = self.search.as_mut();
        Ok(search.map_or(Next::Undecided, |search| search.next(self.position, self.expected)))
    }

    fn damage(&mut self, what: impl Into<String>) -> ScanStop {
        self.begin_search();
        ScanStop::Damage { position: self.position, what: what.into(), unreadable_at: None }
    }

    /// The stop of the scan after a failed read of the next batch.
    fn read_failed(&mut self, error: io::Error) -> ScanStop {
        let Some(bad) = bad_sector(&error).filter(|_| self.passes_bad_sectors) else { return error.into() };
        self.begin_search();
        let (position, what) = (self.position, error.to_string());
        ScanStop::Damage { position, what, unreadable_at: Some(bad) }
    }

    /// The header of the next batch, which lies before the end and has offsets that may come here; none at the end.
    fn next_header(&mut self) -> Result<Option<BatchHeader>, ScanStop> {
        if self.position >= self.bounds.end {
            return Ok(None);
        }
        self.header()?.map(Some).map_err(|flaw| self.damage(flaw.to_string()))
    }

    /// The header at the position, which lies before the end.
    fn header(&mut self) -> Result<Result<BatchHeader, HeaderFlaw>, ScanStop> {
        let (bounds, position, expected) = (self.bounds, self.position, self.expected);
        let left = usize::try_from(bounds.end - position).unwrap_or(usize::MAX);
        let bytes = self.at(position, left.min(layout::HEADER_BYTES))?;
        Ok(bounds.header(bytes, position, expected))
    }

    /// Compares the CRC of the next batch, whose header this is.
    fn check_content(&mut self, header: &BatchHeader) -> Result<(), ScanStop> {
        if self.search.is_none() {
            let computed = self.checksum(header.size_bytes() as u64)?;
            if computed == header.crc() {
                return Ok(());
            }
            let cause = CorruptCause::Checksum { stored: header.crc(), computed };
            return Err(self.damage(BatchError::from(cause).to_string()));
        }
        if matches!(self.next_intact()?, Next::Batch { position, .. } if position == self.position) {
            return Ok(());
        }
        Err(self.damage(format!("corrupt batch: its checksum is not the header's {:08x}", header.crc())))
    }

    fn stamp(&mut self) -> Result<Stamp, ScanStop> {
        let bytes = self.at(self.position, STAMP_BYTES)?;
        Ok(*bytes.first_chunk().expect("as many bytes as asked for"))
    }

    /// CRC-32C of the bytes that the batch's own CRC covers, window by window.
    fn checksum(&mut self, size: u64) -> Result<u32, ScanStop> {
        let end = self.position + size;
        let mut at = self.position + layout::ATTRIBUTES as u64;
        let mut checksum = 0;
        while at < end {
            // Bytes in the window are not read again.
            let held = self.window_start + self.window.len() as u64;
            let piece = if (self.window_start..held).contains(&at) { held - at } else { WINDOW_BYTES as u64 };
            let len = usize::try_from(piece.min(end - at)).expect("a window at most");
            checksum = crc32c::crc32c_append(checksum, self.at(at, len)?);
            at += len as u64;
        }
        Ok(checksum)
    }

    /// `len` bytes of the file from `at` on, at most a window, through the window.
    fn at(&mut self, at: u64, len: usize) -> Result<&[u8], ScanStop> {
        let held = self.window_start..self.window_start + self.window.len() as u64;
        if at < held.start || at + len as u64 > held.end {
            let wanted = usize::try_from(self.bounds.end - at).unwrap_or(usize::MAX).min(WINDOW_BYTES);
            self.window.resize(wanted, 0);
            self.window_start = at;
            if let Err(error) = read_exact(self.file, &mut self.window, at) {
                // Bytes before a bad sector were read.
                let read = bad_sector(&error).map_or(0, |bad| bad - at);
                self.window.truncate(usize::try_from(read).expect("inside the window"));
                if self.window.len() < len {
                    return Err(self.read_failed(error));
                }
            }
        }
        let start = usize::try_from(at - self.window_start).expect("inside the window");
        Ok(&self.window[start..start + len])
    }
}

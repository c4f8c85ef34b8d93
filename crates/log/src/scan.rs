//! Reading batches out of a `.log` file one after the other, each fully checked: for recovery, for rebuilding an
//! index, for `riverrun log verify` and `dump`.
//!
//! Guarantees bounded memory: a batch that fits the window is handed out as a slice, a larger one is only passed
//! over for its checksum unless the caller asks for its bytes. Damage is an answer, not a panic, and names the
//! position where the intact part ends.

use std::io;

use riverrun_records::{BatchError, BatchHeader, CorruptCause, layout};
use riverrun_types::Offset;

use crate::index::{OFFSET_SPAN_MAX, STAMP_BYTES, Stamp};
use riverrun_env::File;

/// Bytes that are read at once.
const WINDOW_BYTES: usize = 256 * 1024;

/// What stopped a scan.
#[derive(Debug)]
pub(crate) enum ScanStop {
    /// The system failed to read.
    Io(io::Error),
    /// There is no intact batch at this position.
    Damage { position: u64, what: String },
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

/// Walks the batches of a file from a boundary to an end.
///
/// Invariants: `position` is a boundary; `window` holds the file's bytes from `window_start` on.
pub(crate) struct BatchScan<'f> {
    file: &'f dyn File,
    position: u64,
    end: u64,
    base_offset: Offset,
    expected: Offset,
    window: Vec<u8>,
    window_start: u64,
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
        Self { file, position, end, base_offset, expected, window: Vec::new(), window_start: position }
    }

    /// Where the next batch begins, or the damage.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The offset below which no batch may begin now.
    pub(crate) fn expected(&self) -> Offset {
        self.expected
    }

    /// The next batch, with its CRC checked; none at the end.
    pub(crate) fn next_batch(&mut self) -> Result<Option<ScannedBatch>, ScanStop> {
        let Some(header) = self.next_header()? else { return Ok(None) };
        let size = header.size_bytes() as u64;
        let stamp = self.stamp()?;
        let computed = self.checksum(size)?;
        if computed != header.crc() {
            let cause = CorruptCause::Checksum { stored: header.crc(), computed };
            return Err(self.damage(BatchError::from(cause).to_string()));
        }
        let batch = ScannedBatch { position: self.position, header, stamp };
        self.position += size;
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
            self.file.read_exact_at(&mut bytes, self.position)?;
            bytes
        };
        self.position += size as u64;
        self.expected = header.next_offset();
        Ok(Some(bytes))
    }

    /// All bytes of a batch that this scan has just handed out.
    pub(crate) fn bytes_of(&self, batch: &ScannedBatch) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; batch.header.size_bytes()];
        self.file.read_exact_at(&mut bytes, batch.position)?;
        Ok(bytes)
    }

    /// Steps over damage to the next position where an intact batch begins, if there is one.
    pub(crate) fn skip_damage(&mut self) -> Result<bool, ScanStop> {
        while self.position < self.end {
            self.position += 1;
            match self.next_batch() {
                Ok(Some(batch)) => {
                    self.position = batch.position;
                    self.expected = batch.header.base_offset();
                    return Ok(true);
                }
                Ok(None) | Err(ScanStop::Damage { .. }) => {}
                Err(stop) => return Err(stop),
            }
        }
        Ok(false)
    }

    fn damage(&self, what: impl Into<String>) -> ScanStop {
        ScanStop::Damage { position: self.position, what: what.into() }
    }

    /// The header of the next batch, which lies before the end and has offsets that may come here; none at the end.
    fn next_header(&mut self) -> Result<Option<BatchHeader>, ScanStop> {
        if self.position >= self.end {
            return Ok(None);
        }
        let header = self.read_header()?;
        let size = header.size_bytes() as u64;
        if size > self.end - self.position {
            return Err(self.damage(format!("a batch of {size} bytes reaches past the end")));
        }
        self.check_offsets(&header)?;
        Ok(Some(header))
    }

    fn read_header(&mut self) -> Result<BatchHeader, ScanStop> {
        let left = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
        let bytes = self.at(self.position, left.min(layout::HEADER_BYTES))?;
        BatchHeader::parse(bytes).map_err(|error| self.damage(error.to_string()))
    }

    fn check_offsets(&self, header: &BatchHeader) -> Result<(), ScanStop> {
        let (base, last) = (header.base_offset(), header.last_offset());
        if base < self.expected {
            return Err(self.damage(format!("offset {base} where {} or more must come", self.expected)));
        }
        if last < base || last.0 - self.base_offset.0 >= OFFSET_SPAN_MAX {
            return Err(self.damage(format!("offsets {base} to {last} do not fit the segment")));
        }
        if header.leader_epoch().0 < 0 {
            return Err(self.damage(format!("leader epoch {}", header.leader_epoch().0)));
        }
        Ok(())
    }

    fn stamp(&mut self) -> Result<Stamp, ScanStop> {
        let bytes = self.at(self.position, STAMP_BYTES)?;
        Ok(*bytes.first_chunk().expect("as many bytes as asked for"))
    }

    /// CRC-32C of what the batch's own CRC covers, window by window.
    fn checksum(&mut self, size: u64) -> Result<u32, ScanStop> {
        let end = self.position + size;
        let mut at = self.position + layout::ATTRIBUTES as u64;
        let mut checksum = 0;
        while at < end {
            // What the window holds is not read again.
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
            let wanted = usize::try_from(self.end - at).unwrap_or(usize::MAX).min(WINDOW_BYTES);
            self.window.resize(wanted, 0);
            self.window_start = at;
            self.file.read_exact_at(&mut self.window, at)?;
        }
        let start = usize::try_from(at - self.window_start).expect("inside the window");
        Ok(&self.window[start..start + len])
    }
}

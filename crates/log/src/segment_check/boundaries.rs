//! The begin of the next batch behind damage in a segment.
//!
//! A search for the next intact batch finds bytes that look like one, and a client may have sent just those as a value,
//! with any offset: they show once the batch around them is damaged. So the damaged batch's length is tried first,
//! which counts if an entry of the index or an intact batch lies behind it; then the index, which a client does not
//! write. A search is the last resort, if both are silent.
//!
//! Bytes that the disk does not give back are damage here.
//!
//! A search is good enough for a count of possible records. Batches that only a search has found are never served or
//! kept.

use std::io;

use riverrun_env::File;
use riverrun_records::{BatchHeader, layout};
use riverrun_types::Offset;

use crate::bad_sector::read_over;
use crate::index::{IndexEntry, STAMP_BYTES, Stamp};
use crate::index_content::IndexContent;
use crate::scan::{BatchScan, ScanStop};

/// The known begins of a segment's batches.
#[derive(Clone, Copy)]
pub(crate) struct Boundaries<'f, 'i> {
    file: &'f dyn File,
    base: Offset,
    size_bytes: u64,
    /// In the order of their positions.
    entries: &'i [IndexEntry],
}

/// The bytes behind damage.
pub(crate) enum Behind<'f> {
    /// The damaged batch, with this stamp, has an end, and an entry of the index or an intact batch is there.
    Batch(BatchScan<'f>, Stamp),
    /// By the index, a batch begins there; others may lie before it.
    Entry(BatchScan<'f>),
    /// Not known, or by its length the damaged batch is the last one.
    Unknown,
}

impl<'f, 'i> Boundaries<'f, 'i> {
    /// For the segment that begins at `base` and has `size_bytes` in `file`.
    pub(crate) fn new(file: &'f dyn File, base: Offset, size_bytes: u64, index: &'i IndexContent) -> Self {
        Self { file, base, size_bytes, entries: &index.entries }
    }

    /// A scan from a boundary on.
    pub(crate) fn scan(&self, position: u64, expected: Offset) -> BatchScan<'f> {
        BatchScan::new(self.file, self.base, expected, position, self.size_bytes).over_bad_sectors()
    }

    /// The bytes behind the damaged batch that begins at `position`, which has to be a known boundary. No offset below
    /// `expected` may come.
    pub(crate) fn behind(&self, position: u64, expected: Offset) -> io::Result<Behind<'f>> {
        let next = self.entries.partition_point(|entry| u64::from(entry.position) <= position);
        let is_inside =
            |entry: &&IndexEntry| (position + 1..=self.size_bytes).contains(&u64::from(entry.position));
        let entry = self.entries.get(next).filter(is_inside);
        // No batch reaches over a boundary.
        let end_max = entry.map_or(self.size_bytes, |entry| u64::from(entry.position));
        let at_entry =
            entry.map(|entry| self.scan(end_max, self.base.plus(i64::from(entry.relative_offset))));
        if let Some((end, stamp)) = self.claimed_end(position)?.filter(|(end, _)| *end <= end_max) {
            if end == end_max
                && let Some(next) = at_entry
            {
                return Ok(Behind::Batch(next, stamp));
            }
            match self.scan(end, expected).next_batch() {
                Ok(Some(batch)) => {
                    return Ok(Behind::Batch(self.scan(end, batch.header.base_offset()), stamp));
                }
                Err(ScanStop::Io(error)) => return Err(error),
                Ok(None) | Err(ScanStop::Damage { .. }) => {}
            }
        }
        Ok(at_entry.map_or(Behind::Unknown, Behind::Entry))
    }

    /// Goes on behind the damage that has stopped `scan`, if the next begin is known; returns any other stop.
    pub(crate) fn pass(&self, scan: &BatchScan<'_>, stop: ScanStop) -> Result<BatchScan<'f>, ScanStop> {
        let ScanStop::Damage { position, .. } = stop else { return Err(stop) };
        match self.behind(position, scan.expected())? {
            Behind::Batch(next, _) | Behind::Entry(next) => Ok(next),
            Behind::Unknown => Err(stop),
        }
    }

    /// The end of the batch at `position`, by its header, and its stamp.
    fn claimed_end(&self, position: u64) -> io::Result<Option<(u64, Stamp)>> {
        let mut bytes = [0; layout::HEADER_BYTES];
        if position + bytes.len() as u64 > self.size_bytes {
            return Ok(None);
        }
        if !read_over(self.file, &mut bytes, position)?.is_empty() {
            return Ok(None);
        }
        let stamp = *bytes.first_chunk::<STAMP_BYTES>().expect("a header is longer");
        Ok(BatchHeader::parse(&bytes).ok().map(|header| (position + header.size_bytes() as u64, stamp)))
    }

    /// Records of the intact batches from the boundary at `position` on, behind which no offset below `expected` comes.
    /// If a search has to find them, values of a client may be among them, but they never hide batches behind the next
    /// known boundary. Nor does a batch whose offset was raised hide those behind it.
    pub(crate) fn count_records(&self, position: u64, mut expected: Offset) -> io::Result<u64> {
        let (mut scan, mut records) = (self.scan(position, expected), 0);
        loop {
            match scan.next_batch() {
                Ok(None) => return Ok(records),
                Ok(Some(batch)) => records += u64::from(batch.header.record_count().unsigned_abs()),
                Err(ScanStop::Io(error)) => return Err(error),
                Err(ScanStop::Damage { .. }) if scan.expected() > expected && scan.is_too_low()? => {
                    scan.expect(expected);
                }
                Err(ScanStop::Damage { position, .. }) => match self.behind(position, scan.expected())? {
                    Behind::Batch(next, _) => scan = next,
                    Behind::Entry(next) => {
                        records += self.search(position, expected, next.position())?;
                        expected = next.expected();
                        scan = next;
                    }
                    Behind::Unknown => return Ok(records + self.search(position, expected, self.size_bytes)?),
                },
            }
        }
    }

    /// Records of bytes that look like intact batches, between the damage at `position` and `end`, with no offset below
    /// `expected`.
    fn search(&self, position: u64, expected: Offset, end: u64) -> io::Result<u64> {
        let scan = BatchScan::new(self.file, self.base, expected, position, end);
        let (mut scan, mut records) = (scan.over_bad_sectors(), 0);
        loop {
            match scan.next_batch() {
                Ok(None) => return Ok(records),
                Ok(Some(batch)) => records += u64::from(batch.header.record_count().unsigned_abs()),
                Err(ScanStop::Io(error)) => return Err(error),
                // They only count, for the question whether they may be cut.
                Err(ScanStop::Damage { .. }) => match scan.skip_damage() {
                    Ok(true) => {}
                    Ok(false) | Err(ScanStop::Damage { .. }) => return Ok(records),
                    Err(ScanStop::Io(error)) => return Err(error),
                },
            }
        }
    }
}

//! Where the batches of a segment go on behind damage.
//!
//! Whoever looks for the next intact batch finds what looks like one, and a client may have sent just that as a value: it
//! shows once the batch around it is damaged, with any offset that the client chose. So the damaged batch is asked for its
//! length first, which counts if an entry of the index or an intact batch lies behind it; then the index, of which a
//! client writes nothing. Only where both are silent is a search the last resort.
//!
//! What the disk does not give back is damage here.
//!
//! A search is enough to count what there may be. Nothing is served or kept that only a search has found.

use std::io;

use riverrun_env::File;
use riverrun_records::{BatchHeader, layout};
use riverrun_types::Offset;

use crate::bad_sector::read_over;
use crate::index::{IndexEntry, STAMP_BYTES, Stamp};
use crate::index_content::IndexContent;
use crate::scan::{BatchScan, ScanStop};

/// What is known of where a segment's batches begin.
#[derive(Clone, Copy)]
pub(crate) struct Boundaries<'f, 'i> {
    file: &'f dyn File,
    base: Offset,
    size_bytes: u64,
    /// In the order of their positions.
    entries: &'i [IndexEntry],
}

/// What follows damage.
pub(crate) enum Behind<'f> {
    /// The damaged batch, whose stamp this is, says where it ends, and there is an entry of the index or an intact batch.
    Batch(BatchScan<'f>, Stamp),
    /// The index says that a batch begins there; others may lie before it.
    Entry(BatchScan<'f>),
    /// Nobody knows, or the damaged batch says that it is the last one.
    Unknown,
}

impl<'f, 'i> Boundaries<'f, 'i> {
    /// Of the segment that begins at `base` and has `size_bytes` in `file`.
    pub(crate) fn new(file: &'f dyn File, base: Offset, size_bytes: u64, index: &'i IndexContent) -> Self {
        Self { file, base, size_bytes, entries: &index.entries }
    }

    /// A scan from a boundary on.
    pub(crate) fn scan(&self, position: u64, expected: Offset) -> BatchScan<'f> {
        BatchScan::new(self.file, self.base, expected, position, self.size_bytes).over_bad_sectors()
    }

    /// What follows a batch that is damaged, which begins at `position`: that has to be known as a boundary. No offset below
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

    /// Goes on behind what has stopped `scan`, if that is damage and it is known where; hands it back otherwise.
    pub(crate) fn pass(&self, scan: &BatchScan<'_>, stop: ScanStop) -> Result<BatchScan<'f>, ScanStop> {
        let ScanStop::Damage { position, .. } = stop else { return Err(stop) };
        match self.behind(position, scan.expected())? {
            Behind::Batch(next, _) | Behind::Entry(next) => Ok(next),
            Behind::Unknown => Err(stop),
        }
    }

    /// Where the batch at `position` ends, as its header says, and its stamp.
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

    /// Records of the intact batches from the boundary at `position` on, behind which no offset below `expected` comes. Where a
    /// search has to find them, what a client has sent as a value may be among them, but never hides what lies behind the
    /// next boundary that is known. Nor does a batch whose offset was raised hide those behind it.
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

    /// Records of what looks like intact batches between the damage at `position` and `end`, with no offset below `expected`.
    fn search(&self, position: u64, expected: Offset, end: u64) -> io::Result<u64> {
        let scan = BatchScan::new(self.file, self.base, expected, position, end);
        let (mut scan, mut records) = (scan.over_bad_sectors(), 0);
        loop {
            match scan.next_batch() {
                Ok(None) => return Ok(records),
                Ok(Some(batch)) => records += u64::from(batch.header.record_count().unsigned_abs()),
                Err(ScanStop::Io(error)) => return Err(error),
                // It counts, for who is asked whether it may go, and nothing else.
                Err(ScanStop::Damage { .. }) => match scan.skip_damage() {
                    Ok(true) => {}
                    Ok(false) | Err(ScanStop::Damage { .. }) => return Ok(records),
                    Err(ScanStop::Io(error)) => return Err(error),
                },
            }
        }
    }
}

//! Proving that a range of a `.log` holds the batches that were written, before it is handed to a reader.
//!
//! A reader checks each batch's CRC itself. What that leaves out (base offset, length, leader epoch, magic) is
//! proved here by the running checksums of the index, once for each range since the segment was opened. Costs a look
//! at the headers; what this process has written needs none.

use std::io;

use riverrun_env::File;
use riverrun_records::{BatchHeader, layout};

use super::{LookupError, Segment};
use crate::error::LogError;
use crate::index::{IndexCursor, IndexEntry, STAMP_BYTES};
use crate::scan::BatchScan;

/// Ranges of one segment that are remembered. More make a range be proved again.
const RANGES_MAX: usize = 16;
/// Bytes that are read at once where batches are small.
const WINDOW_BYTES: usize = 64 * 1024;
/// Batches up to this size are small: with larger ones, reading the headers alone costs less than reading all.
const SMALL_BATCH_BYTES: u64 = 2048;

/// The ranges that were proved.
///
/// Invariants: in order, neither overlapping nor touching, at most [`RANGES_MAX`].
#[derive(Debug, Default)]
pub(super) struct Proved {
    is_all: bool,
    ranges: Vec<(u64, u64)>,
}

impl Proved {
    /// Of a segment that this process writes from its beginning.
    pub(super) fn all() -> Self {
        Self { is_all: true, ranges: Vec::new() }
    }

    fn holds(&self, start: u64, end: u64) -> bool {
        self.is_all || self.ranges.iter().any(|(from, upto)| *from <= start && end <= *upto)
    }

    fn insert(&mut self, mut start: u64, mut end: u64) {
        self.ranges.retain(|(from, upto)| {
            let is_apart = *upto < start || end < *from;
            if !is_apart {
                (start, end) = (start.min(*from), end.max(*upto));
            }
            is_apart
        });
        if self.ranges.len() == RANGES_MAX {
            self.ranges.remove(0);
        }
        let place = self.ranges.partition_point(|(from, _)| *from < start);
        self.ranges.insert(place, (start, end));
    }
}

impl Segment {
    /// Whether the range needs no proof any more.
    pub(crate) fn is_proved(&self, start: u64, end: u64) -> bool {
        self.proved.lock().holds(start, end)
    }

    /// Proves the batches of a range, whose ends are boundaries. Fails if they are not those that were written.
    pub(crate) fn prove(&self, start: u64, end: u64) -> Result<(), LogError> {
        if start >= end || self.is_proved(start, end) {
            return Ok(());
        }
        let from = self.last_entry_where(|entry| u64::from(entry.position) <= start)?;
        let after = self.first_entry_from(end)?;
        let upto = after.map_or(end, |entry| u64::from(entry.position));
        self.compare(from, after, upto)?;
        self.proved.lock().insert(u64::from(from.position), upto);
        Ok(())
    }

    /// Checks the batches from an entry up to a boundary, which a lookup has passed over: by their own CRCs, because
    /// it believed what these cover, and by the index's checksums.
    pub(crate) fn check_batches(&self, log: &dyn File, from: IndexEntry, upto: u64) -> Result<(), LogError> {
        let (start, base) = (u64::from(from.position), self.base_offset);
        let mut scan = BatchScan::new(log, base, base.plus(i64::from(from.relative_offset)), start, upto);
        while scan.next_batch().map_err(|stop| self.scan_failed(stop))?.is_some() {}
        self.prove(start, upto)
    }

    /// Checks the batch at the boundary `position` in both ways.
    pub(crate) fn check_batch(&self, position: u64, size_bytes: u64) -> Result<(), LogError> {
        let log = self.log_file()?;
        let end = position + self.header_at(&*log, position, size_bytes)?.size_bytes() as u64;
        let mut scan = BatchScan::new(&*log, self.base_offset, self.base_offset, position, end);
        scan.next_batch().map_err(|stop| self.scan_failed(stop))?;
        self.prove(position, end)
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
                    return Err(corrupt("the file ends inside a batch".to_owned()));
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

    /// The first entry at or behind `position`, if there is one.
    fn first_entry_from(&self, position: u64) -> Result<Option<IndexEntry>, LogError> {
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
    /// Where the header asked for last is.
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
            self.log.read_exact_at(&mut self.window, position)?;
        }
        self.last = position;
        let at = usize::try_from(position - self.window_start).expect("inside the window");
        Ok(self.window[at..].first_chunk().expect("read just now"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_meet_become_one_and_the_oldest_is_forgotten() {
        let mut proved = Proved::default();
        for (start, end) in [(10, 20), (30, 40), (50, 60)] {
            proved.insert(start, end);
        }
        assert!(proved.holds(12, 20) && !proved.holds(15, 35) && !proved.holds(20, 30));
        proved.insert(20, 31);
        assert_eq!(proved.ranges, [(10, 40), (50, 60)]);
        for number in 10..100 {
            proved.insert(number * 10, number * 10 + 1);
        }
        assert_eq!(proved.ranges.len(), RANGES_MAX);
        assert!(proved.holds(990, 991) && !proved.holds(10, 40));
        assert!(Proved::all().holds(0, u64::MAX));
    }
}

//! The check of one segment, batch by batch, which can be paused and resumed: for `riverrun log verify`, for planning a
//! repair and for the scrub.
//!
//! Goes over every batch's CRC and over the running checksums of the index, which find a flipped bit outside of a
//! batch's own CRC and a batch that was replaced by another valid one. Behind damage it goes on at the next known begin
//! of a batch, and searches for an intact one if none is known.
//!
//! The bytes outside of a batch's CRC, its base offset above all, are proved by the next entry of the index only. So
//! flaws between two entries are reported once the second one is reached:
//! - If its checksum is right, with the headers of damaged batches as they are, only those flaws are reported.
//! - If it is wrong, the damage begins at the first entry, and it is unknown which batches between the two are right.
//! - If no entry follows, only offsets without gaps vouch for the batches before.
//!
//! An index that is damaged itself is a flaw and proves nothing. Of an index that is too long for its `.log`, no more
//! is read. Bytes that the disk does not give back are passed over as damage is.

pub(crate) mod boundaries;

use std::io;
use std::ops::ControlFlow;

use riverrun_env::File;
use riverrun_records::{BatchError, UnverifiedBatch};
use riverrun_types::Offset;

use self::boundaries::{Behind, Boundaries};
use crate::index::{IndexCursor, IndexEntry, not_written};
use crate::index_content::IndexContent;
use crate::scan::{BatchScan, ScanStop, ScannedBatch, Search};

/// Which of a segment's two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Log,
    Index,
}

/// A fault of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) half: Half,
    /// Position in the file.
    pub(crate) position: u64,
    pub(crate) what: String,
    /// The first offset that may be hit by it.
    pub(crate) from: Offset,
    /// No offset from here on is hit, if it is known to end.
    pub(crate) until: Option<Offset>,
    /// No fault is known: the records are more than a bound allows to check.
    pub(crate) is_unchecked: bool,
    /// No fault is known but that the disk does not give back this byte of the `.log`.
    pub(crate) unreadable_at: Option<u64>,
}

impl Flaw {
    fn new(half: Half, at: Boundary, what: impl Into<String>, until: Option<Offset>) -> Self {
        let Boundary { position, offset: from } = at;
        Self { half, position, what: what.into(), from, until, is_unchecked: false, unreadable_at: None }
    }
}

/// The reason why a check cannot go on at a batch.
struct Obstacle {
    what: String,
    /// As in [`Flaw`].
    unreadable_at: Option<u64>,
}

/// The facts about a segment before it is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) base: Offset,
    /// Bytes of batches that the file must have.
    pub(crate) size_bytes: u64,
    /// Base offset of the next segment; none for the last one.
    pub(crate) next_base: Option<Offset>,
    /// From here on no offset may be missing: compaction, which leaves gaps, stays below.
    pub(crate) gapless_from: Option<Offset>,
    /// Whether records are walked, too: the slow part.
    pub(crate) walks_records: bool,
}

/// Counts of intact batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) batches: u64,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// A boundary between batches, and the offset after those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Boundary {
    position: u64,
    offset: Offset,
}

/// A check that is under way.
///
/// Invariants: `cursor` stands at a boundary; its state of the batches before is right as long as `is_summed`; entries
/// below `next_entry` lie at or before it; there is a `search` once damage was met; `proven <= joined`; all of
/// `pending` lies behind `proven`.
#[derive(Debug)]
pub(crate) struct SegmentCheck {
    facts: Facts,
    index: IndexContent,
    next_entry: usize,
    cursor: IndexCursor,
    expected: Offset,
    is_summed: bool,
    /// Up to here an entry of the index has proved the batches.
    proven: Boundary,
    /// From `proven` up to here each batch begins at the offset where the one before it ends.
    joined: Boundary,
    /// The flaws behind `proven`, as far as they are known before the next entry is reached.
    pending: Vec<Flaw>,
    search: Option<Search>,
    /// From here on the begins of batches are only guessed.
    is_guessing: bool,
    pub(crate) counts: Counts,
    pub(crate) flaws: Vec<Flaw>,
}

/// The reason why a check has stopped.
enum Stop {
    /// On the way, to go on later.
    Paused,
    /// At damage behind which nothing intact follows.
    NothingFollows,
    /// At the end.
    Ended,
}

impl SegmentCheck {
    pub(crate) fn new(facts: Facts, index: IndexContent) -> Self {
        let start = Boundary { position: 0, offset: facts.base };
        let mut check = Self {
            facts,
            next_entry: 0,
            cursor: IndexCursor::at(facts.base, IndexEntry::START, u32::MAX),
            expected: facts.base,
            is_summed: true,
            proven: start,
            joined: start,
            pending: Vec::new(),
            search: None,
            is_guessing: false,
            counts: Counts::default(),
            flaws: Vec::new(),
            index,
        };
        if let Some((position, what)) = check.index.flaw.clone() {
            let from = check.index.whole_up_to(position, facts.base);
            check.find(Half::Index, Boundary { position, offset: from }, what, None);
        }
        check
    }

    /// Position of the check in the `.log`.
    pub(crate) fn position(&self) -> u64 {
        self.cursor.position
    }

    /// The offset after the last intact batch so far.
    pub(crate) fn end(&self) -> Offset {
        self.expected
    }

    /// Goes on over about `bytes_max` bytes; `true` at the end. Behind damage it may search as many more for intact
    /// batches, and reports the damage once the next entry of the index is reached. Fails if the system cannot read.
    pub(crate) fn run(&mut self, file: &dyn File, bytes_max: u64) -> io::Result<bool> {
        let len = file.len()?;
        let size_bytes = self.facts.size_bytes.min(len);
        let scan = BatchScan::new(file, self.facts.base, self.expected, self.cursor.position, size_bytes);
        let mut scan = scan.over_bad_sectors();
        scan.resume(self.search.take());
        let stop = self.walk(&mut scan, file, bytes_max);
        self.search = scan.into_search();
        if matches!(stop, Ok(Stop::Paused)) {
            return Ok(false);
        }
        // No entry follows that would prove more.
        self.flaws.append(&mut self.pending);
        match stop? {
            Stop::Paused | Stop::NothingFollows => {}
            Stop::Ended if len < self.facts.size_bytes => {
                let what = format!("the file ends here, where {} bytes were", self.facts.size_bytes);
                self.find(Half::Log, self.at(len), what, self.facts.next_base);
            }
            Stop::Ended => self.check_end(),
        }
        Ok(true)
    }

    fn walk<'f>(&mut self, scan: &mut BatchScan<'f>, file: &'f dyn File, bytes_max: u64) -> io::Result<Stop> {
        let stop = self.cursor.position.saturating_add(bytes_max);
        loop {
            self.expected = scan.expected();
            self.pass_entries();
            scan.expect(self.expected);
            if self.cursor.position >= stop || !scan.search_within(bytes_max)? {
                return Ok(Stop::Paused);
            }
            match scan.next_batch() {
                Ok(None) => return Ok(Stop::Ended),
                Ok(Some(batch)) => {
                    self.check_gap(&batch);
                    self.take(scan, &batch)?;
                }
                Err(ScanStop::Io(error)) => return Err(error),
                Err(ScanStop::Damage { what, unreadable_at, .. }) => {
                    let obstacle = Obstacle { what, unreadable_at };
                    if self.pass_damage(scan, file, &obstacle)? {
                        continue;
                    }
                    if !scan.search_within(bytes_max)? {
                        return Ok(Stop::Paused);
                    }
                    if !self.skip(scan, &obstacle)? {
                        return Ok(Stop::NothingFollows);
                    }
                }
            }
        }
    }

    /// `position`, with the offset after the last intact batch so far.
    fn at(&self, position: u64) -> Boundary {
        Boundary { position, offset: self.expected }
    }

    fn find(&mut self, half: Half, at: Boundary, what: impl Into<String>, until: Option<Offset>) {
        self.flaws.push(Flaw::new(half, at, what, until));
    }

    /// Notes a flaw until the next entry shows whether the batches before it are right.
    fn suspect(&mut self, at: Boundary, what: impl Into<String>, until: Option<Offset>) {
        self.pending.push(Flaw::new(Half::Log, at, what, until));
    }

    /// Goes on behind the damage at which `scan` stands, if the next batch's begin is known; `false` if it is not.
    fn pass_damage<'f>(
        &mut self,
        scan: &mut BatchScan<'f>,
        file: &'f dyn File,
        obstacle: &Obstacle,
    ) -> io::Result<bool> {
        if self.is_guessing {
            return Ok(false);
        }
        let size_bytes = self.facts.size_bytes.min(file.len()?);
        let boundaries = Boundaries::new(file, self.facts.base, size_bytes, &self.index);
        match boundaries.behind(scan.position(), scan.expected())? {
            Behind::Batch(next, stamp) => {
                self.suspect_here(scan, obstacle, Some(next.expected()))?;
                self.cursor.pass_damaged(next.position(), &stamp);
                *scan = next;
            }
            Behind::Entry(next) => {
                self.suspect_here(scan, obstacle, Some(next.expected()))?;
                self.blame_unless_unreadable(next.position(), next.expected());
                self.is_summed = false;
                self.cursor.position = next.position();
                *scan = next;
            }
            Behind::Unknown => self.is_guessing = true,
        }
        Ok(!self.is_guessing)
    }

    /// Steps over damage to the next bytes that look like an intact batch; `false` if there are none. A client may have
    /// sent them as a value: they are counted, and do not show where the damage ends.
    fn skip(&mut self, scan: &mut BatchScan<'_>, obstacle: &Obstacle) -> io::Result<bool> {
        self.suspect_here(scan, obstacle, self.facts.next_base)?;
        self.flaws.append(&mut self.pending);
        let is_found = match scan.skip_damage() {
            Ok(is_found) => is_found,
            Err(ScanStop::Io(error)) => return Err(error),
            Err(ScanStop::Damage { .. }) => false,
        };
        self.is_summed = false;
        self.cursor.position = scan.position();
        Ok(is_found)
    }

    /// Suspects the batch at which `scan` stands. If its offset is too low, that of an earlier one may be too high
    /// instead: then all from the first gap of offsets on are suspected.
    fn suspect_here(
        &mut self,
        scan: &mut BatchScan<'_>,
        obstacle: &Obstacle,
        until: Option<Offset>,
    ) -> io::Result<()> {
        let Obstacle { what, unreadable_at } = obstacle;
        let here = self.at(scan.position());
        let flaw = if scan.is_too_low()? && self.joined != here {
            Flaw::new(Half::Log, self.joined, format!("{what}, at byte {}", here.position), until)
        } else {
            Flaw::new(Half::Log, here, what, until)
        };
        self.pending.push(Flaw { unreadable_at: *unreadable_at, ..flaw });
        Ok(())
    }

    /// Reports the batches between `proven` and the entry at `position`, with `offset`, if one of their headers is in
    /// no batch: any of them may be wrong. If the disk does not give it back, no other fault is known.
    fn blame_unless_unreadable(&mut self, position: u64, offset: Offset) {
        if self.pending.iter().any(|flaw| flaw.unreadable_at.is_none()) {
            return self.blame(position, offset);
        }
        if let Some(first) = self.pending.drain(..).next() {
            let flaw = Flaw::new(Half::Log, self.proven, first.what, Some(offset));
            self.flaws.push(Flaw { unreadable_at: first.unreadable_at, ..flaw });
        }
    }

    /// Reports the batches between `proven` and the entry at `position`, with `offset`: they are not the written ones,
    /// and any of them may be wrong.
    fn blame(&mut self, position: u64, offset: Offset) {
        let what = match self.pending.drain(..).next() {
            Some(first) if first.position == self.proven.position => first.what,
            Some(first) => format!("{}; byte {}: {}", not_written(position), first.position, first.what),
            None => not_written(position),
        };
        self.find(Half::Log, self.proven, what, Some(offset));
    }

    /// Compares with the entries up to the cursor.
    fn pass_entries(&mut self) {
        while let Some(entry) = self.index.entries.get(self.next_entry).copied()
            && u64::from(entry.position) <= self.cursor.position
        {
            self.next_entry += 1;
            if self.is_summed {
                self.compare(&entry);
            } else if u64::from(entry.position) == self.cursor.position {
                self.adopt(&entry);
            }
        }
    }

    fn compare(&mut self, entry: &IndexEntry) {
        let offset = self.facts.base.plus(i64::from(entry.relative_offset));
        let position = u64::from(entry.position);
        let from_proven = Boundary { position, offset: self.proven.offset };
        if position != self.cursor.position {
            let what = "an entry that points into a batch";
            self.find(Half::Index, from_proven, what, Some(offset));
        } else if entry.running_checksum != self.cursor.running_checksum {
            self.blame(position, offset);
            self.adopt(entry);
        } else if offset < self.expected || entry.max_timestamp < self.cursor.max_timestamp {
            let what = "an entry that contradicts the batches before it";
            self.find(Half::Index, from_proven, what, Some(offset));
        } else {
            self.flaws.append(&mut self.pending);
            self.prove();
        }
    }

    /// Believes an entry, because the batches before it are damaged.
    fn adopt(&mut self, entry: &IndexEntry) {
        self.cursor.running_checksum = entry.running_checksum;
        self.cursor.max_timestamp = entry.max_timestamp;
        self.is_summed = true;
        self.expected = self.facts.base.plus(i64::from(entry.relative_offset));
        self.prove();
    }

    /// All before the cursor is proven, or was reported.
    fn prove(&mut self) {
        self.proven = self.at(self.cursor.position);
        self.joined = self.proven;
    }

    fn check_end(&mut self) {
        let (end, position) = (self.expected, self.cursor.position);
        let last = self.index.entries.last().copied();
        let indexed = last.map_or(0, |entry| u64::from(entry.position));
        if indexed > position {
            let what = format!("ends here, where the index goes on to {indexed}");
            return self.find(Half::Log, self.at(position), what, self.facts.next_base);
        }
        let Some(next_base) = self.facts.next_base else { return };
        let is_whole = self.index.flaw.is_none();
        if is_whole && indexed < position {
            let what = "the index of a complete segment lacks its end";
            self.find(Half::Index, self.at(indexed), what, Some(next_base));
        }
        if end > next_base {
            let what = format!("ends at offset {end}, above the next segment's {next_base}");
            return self.find(Half::Log, self.joined, what, Some(end));
        }
        // Compaction may have removed the last batches. Then the index has their end; an empty segment has no entry for
        // it.
        let indexed_end = match last {
            Some(entry) if is_whole => self.facts.base.plus(i64::from(entry.relative_offset)),
            _ if position == 0 || !is_whole => next_base,
            _ => end,
        };
        if indexed_end != next_base {
            let what = format!("ends at offset {indexed_end}, and the next segment begins at {next_base}");
            self.find(Half::Log, self.at(position), what, Some(next_base.max(indexed_end)));
        }
    }

    fn check_gap(&mut self, batch: &ScannedBatch) {
        let expected = self.expected;
        let may_come = self.facts.gapless_from.is_none_or(|from| batch.may_come_at(expected, from));
        // Behind damage there is a gap, which was reported.
        if self.is_summed && !may_come {
            let found = batch.header.base_offset();
            let what = format!("offset {found} where {expected} must come");
            self.suspect(self.at(batch.position), what, Some(found));
        }
    }

    /// Counts a batch, and walks its records on request.
    fn take(&mut self, scan: &BatchScan<'_>, batch: &ScannedBatch) -> io::Result<()> {
        self.cursor.pass(&batch.header, &batch.stamp);
        let (base, next) = (batch.header.base_offset(), batch.header.next_offset());
        if self.joined == (Boundary { position: batch.position, offset: base }) {
            self.joined = Boundary { position: self.cursor.position, offset: next };
        }
        let mut records = u64::from(batch.header.record_count().unsigned_abs());
        if self.facts.walks_records {
            match count_records(&scan.bytes_of(batch)?) {
                Ok(count) => records = count,
                Err(error) => {
                    let is_unchecked = !error.is_damage();
                    let at = Boundary { position: batch.position, offset: base };
                    let flaw = Flaw::new(Half::Log, at, error.to_string(), Some(next));
                    self.pending.push(Flaw { is_unchecked, ..flaw });
                    if !is_unchecked {
                        return Ok(());
                    }
                }
            }
        }
        self.counts.batches += 1;
        self.counts.records += records;
        self.counts.bytes += batch.header.size_bytes() as u64;
        Ok(())
    }
}

fn count_records(bytes: &[u8]) -> Result<u64, BatchError> {
    let batch = UnverifiedBatch::only(bytes)?.verify()?;
    let mut count = 0;
    batch.visit_stamps(|_| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

#[cfg(test)]
mod tests;

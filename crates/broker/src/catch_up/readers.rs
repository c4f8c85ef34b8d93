//! The readers that read far behind the end of a log, and the cached pages that are dropped after them.
//!
//! Pure: reads and sent ranges in, ranges to drop out. A reader that found its records on the disk has brought them into
//! the page cache, where no other reader needs them: so it also takes them out, in large steps and some way behind
//! itself, because a page that still waits in a socket cannot be dropped. Of readers close behind each other the last
//! one does. Records that were in memory before they were read stay there: the reader that caused that may come back.
//! Refuses to follow more than [`READERS_MAX`] readers.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use riverrun_types::{Offset, PartitionId};

/// Bytes that are dropped together, and that are left untouched behind a reader.
const STEP_BYTES: u64 = 8 * 1024 * 1024;
/// A reader that follows another within this uses the pages that the other one brought in.
const FOLLOWING_BYTES: u64 = 64 * 1024 * 1024;
/// Readers that are followed at once: some 200 bytes each. Beyond, the one unused for longest is forgotten.
const READERS_MAX: usize = 1024;

/// Names a reader: a partition, and the connection that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReaderId {
    pub(crate) partition: PartitionId,
    pub(crate) connection: u64,
}

/// Records of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stretch<F> {
    pub(crate) file: F,
    pub(crate) position: u64,
    pub(crate) len: u64,
    pub(crate) offsets: Range<Offset>,
}

impl<F: PartialEq> Stretch<F> {
    /// Absorbs `next` if it goes on where this ends and there is room; gives it back otherwise.
    fn absorb(&mut self, next: Self) -> Option<Self> {
        let goes_on = self.file == next.file && self.position + self.len == next.position;
        if !goes_on || self.len >= STEP_BYTES {
            return Some(next);
        }
        self.len += next.len;
        self.offsets.end = next.offsets.end;
        None
    }

    /// Whether this lies before a reader that goes on at `offset`, and near.
    fn is_ahead_of(&self, offset: Offset) -> bool {
        if offset >= self.offsets.end {
            return false;
        }
        let between = self.offsets.start.0.saturating_sub(offset.0).max(0);
        let own = (self.offsets.end.0 - self.offsets.start.0).max(1);
        i128::from(between) * i128::from(self.len) <= i128::from(FOLLOWING_BYTES) * i128::from(own)
    }
}

/// Invariants: `sent` is in the order of reading, none of it dropped yet; it is empty unless `is_cold`.
#[derive(Debug)]
struct Reader<F> {
    connection: u64,
    /// The offsets that it read last.
    last: Range<Offset>,
    /// Whether its present run, or one that it follows, has met records on the disk.
    is_cold: bool,
    sent: VecDeque<Stretch<F>>,
    sent_bytes: u64,
    used_at: u64,
}

impl<F: PartialEq> Reader<F> {
    fn new(connection: u64, from: Offset) -> Self {
        Self {
            connection,
            last: from..from,
            is_cold: false,
            sent: VecDeque::new(),
            sent_bytes: 0,
            used_at: 0,
        }
    }

    /// Whether a read from there continues the run. Where compaction left gaps, readers come back a little, to the
    /// offset after the last record.
    fn goes_on_at(&self, offset: Offset) -> bool {
        self.last.is_empty() || (self.last.start < offset && offset <= self.last.end)
    }

    fn remember(&mut self, stretch: Stretch<F>) {
        self.sent_bytes += stretch.len;
        let rest = match self.sent.back_mut() {
            Some(last) => last.absorb(stretch),
            None => Some(stretch),
        };
        self.sent.extend(rest);
    }

    /// The oldest stretch, if a step's worth was sent after it.
    fn take_old(&mut self) -> Option<Stretch<F>> {
        let oldest = self.sent.front()?.len;
        if self.sent_bytes - oldest < STEP_BYTES {
            return None;
        }
        self.sent_bytes -= oldest;
        self.sent.pop_front()
    }
}

/// All readers that are followed.
///
/// Invariants: no partition's list is empty; `count` is their lengths' sum and at most [`READERS_MAX`].
#[derive(Debug)]
pub(crate) struct Readers<F> {
    by_partition: HashMap<PartitionId, Vec<Reader<F>>>,
    count: usize,
    uses: u64,
}

impl<F> Default for Readers<F> {
    fn default() -> Self {
        Self { by_partition: HashMap::new(), count: 0, uses: 0 }
    }
}

impl<F: PartialEq> Readers<F> {
    /// A reader far behind reads `offsets`. Unless it goes on where its last read ended, it begins a new run.
    pub(crate) fn read(&mut self, id: ReaderId, offsets: &Range<Offset>) {
        self.uses += 1;
        let used_at = self.uses;
        if self.reader(id).is_none() {
            self.admit(id, offsets.start);
        }
        let Some(reader) = self.reader(id) else { return };
        if !reader.goes_on_at(offsets.start) {
            *reader = Reader::new(id.connection, offsets.start);
        }
        reader.last = offsets.clone();
        reader.used_at = used_at;
    }

    /// The records that the reader is about to be sent lie on the disk.
    pub(crate) fn met_cold(&mut self, id: ReaderId) {
        if let Some(reader) = self.reader(id) {
            reader.is_cold = true;
        }
    }

    /// The reader was sent this stretch. Returns the stretches that can be dropped now.
    pub(crate) fn sent(&mut self, id: ReaderId, stretch: Stretch<F>) -> Vec<Stretch<F>> {
        let mut old = Vec::new();
        if let Some(reader) = self.reader(id).filter(|reader| reader.is_cold) {
            reader.remember(stretch);
            old.extend(std::iter::from_fn(|| reader.take_old()));
        }
        old.retain(|stretch| !self.hand_on(id, stretch));
        old
    }

    /// Leaves a stretch to readers that follow closely, for them to drop. False if none follows.
    fn hand_on(&mut self, id: ReaderId, stretch: &Stretch<F>) -> bool {
        let mut is_wanted = false;
        for other in self.by_partition.get_mut(&id.partition).into_iter().flatten() {
            if other.connection != id.connection && stretch.is_ahead_of(other.last.end) {
                other.is_cold = true;
                is_wanted = true;
            }
        }
        is_wanted
    }

    /// A connection is gone.
    pub(crate) fn forget(&mut self, connection: u64) {
        self.retain(|reader| reader.connection != connection);
    }

    fn reader(&mut self, id: ReaderId) -> Option<&mut Reader<F>> {
        let readers = self.by_partition.get_mut(&id.partition)?;
        readers.iter_mut().find(|reader| reader.connection == id.connection)
    }

    fn admit(&mut self, id: ReaderId, from: Offset) {
        if self.count == READERS_MAX {
            let oldest = self.by_partition.values().flatten().map(|reader| reader.used_at).min();
            self.retain(|reader| Some(reader.used_at) != oldest);
        }
        self.by_partition.entry(id.partition).or_default().push(Reader::new(id.connection, from));
        self.count += 1;
    }

    fn retain(&mut self, keep: impl Fn(&Reader<F>) -> bool) {
        self.by_partition.retain(|_, readers| {
            readers.retain(&keep);
            !readers.is_empty()
        });
        self.count = self.by_partition.values().map(Vec::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use riverrun_types::TopicId;

    use super::*;

    const MIB: i64 = 1024 * 1024;

    fn reader(connection: u64) -> ReaderId {
        ReaderId { partition: PartitionId { topic: TopicId([7; 16]), index: 0 }, connection }
    }

    fn mib(from: i64, to: i64) -> Range<Offset> {
        Offset(from * MIB)..Offset(to * MIB)
    }

    /// One byte for each offset, in files of 100 MiB.
    fn stretch(offsets: Range<Offset>) -> Stretch<i64> {
        let file = offsets.start.0 / (100 * MIB);
        let position = u64::try_from(offsets.start.0 - file * 100 * MIB).unwrap();
        let len = u64::try_from(offsets.end.0 - offsets.start.0).unwrap();
        Stretch { file, position, len, offsets }
    }

    /// Reads and is sent so many MiB, one by one; returns the ranges that were dropped, in MiB.
    fn run(readers: &mut Readers<i64>, id: ReaderId, range: Range<i64>, is_cold: bool) -> Vec<Range<i64>> {
        let mut dropped = Vec::new();
        for at in range {
            readers.read(id, &mib(at, at + 1));
            if is_cold {
                readers.met_cold(id);
            }
            let old = readers.sent(id, stretch(mib(at, at + 1)));
            dropped.extend(old.iter().map(|old| old.offsets.start.0 / MIB..old.offsets.end.0 / MIB));
        }
        dropped
    }

    #[test]
    fn pages_from_the_disk_are_dropped_in_large_steps_behind() {
        let mut readers = Readers::default();
        assert!(run(&mut readers, reader(1), 0..15, true).is_empty());
        assert_eq!(run(&mut readers, reader(1), 15..40, true), [0..8, 8..16, 16..24, 24..32]);
    }

    #[test]
    fn a_file_is_dropped_to_its_end() {
        let mut readers = Readers::default();
        assert_eq!(run(&mut readers, reader(1), 90..120, true), [90..98, 98..100, 100..108]);
    }

    #[test]
    fn pages_that_were_in_memory_stay_there() {
        let mut readers = Readers::default();
        assert!(run(&mut readers, reader(1), 0..100, false).is_empty());
    }

    #[test]
    fn the_systems_own_read_ahead_does_not_hide_a_cold_run() {
        let mut readers = Readers::default();
        run(&mut readers, reader(1), 0..1, true);
        assert_eq!(run(&mut readers, reader(1), 1..16, false), [Range { start: 0, end: 8 }]);
    }

    #[test]
    fn a_jump_begins_a_run_that_has_met_nothing_cold() {
        let mut readers = Readers::default();
        run(&mut readers, reader(1), 0..10, true);
        assert!(run(&mut readers, reader(1), 50..90, false).is_empty());
    }

    #[test]
    fn last_of_two_close_readers_drops_the_pages() {
        let mut readers = Readers::default();
        readers.read(reader(2), &mib(0, 1));
        assert!(run(&mut readers, reader(1), 0..40, true).is_empty(), "the other comes by");
        assert_eq!(run(&mut readers, reader(2), 1..20, false).first(), Some(&(1..9)));
    }

    #[test]
    fn a_reader_far_behind_another_does_not_hold_it_back() {
        let mut readers = Readers::default();
        readers.read(reader(2), &mib(0, 1));
        assert_eq!(run(&mut readers, reader(1), 70..90, true), [Range { start: 70, end: 78 }]);
    }

    #[test]
    fn a_reader_that_is_gone_holds_nobody_back() {
        let mut readers = Readers::default();
        readers.read(reader(2), &mib(0, 1));
        readers.forget(2);
        assert_eq!(run(&mut readers, reader(1), 0..16, true), [Range { start: 0, end: 8 }]);
        readers.forget(1);
        assert!(readers.by_partition.is_empty());
    }

    #[test]
    fn reader_unused_for_longest_makes_room_for_another() {
        let mut readers = Readers::<i64>::default();
        for connection in 0..=READERS_MAX as u64 {
            readers.read(reader(connection), &mib(0, 1));
        }
        assert_eq!(readers.count, READERS_MAX);
        assert!(readers.reader(reader(0)).is_none());
        assert!(readers.reader(reader(1)).is_some());
    }
}

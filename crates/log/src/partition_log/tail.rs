//! The end of a log that lies in memory: entries that the journal has stored and no segment holds yet.
//!
//! Pure: entries in, entries out. The tail begins at the end of the segments, and settled entries leave it at its
//! front. Its bytes are slices of the journal's groups, of which there is one copy in the server, or of memory that a
//! start has copied them into.

use std::collections::VecDeque;

use bytes::Bytes;
use riverrun_records::{BatchHeader, Batches};
use riverrun_types::{LeaderEpoch, Offset, Position, TimestampMs};

use super::journaled::RUN_BYTES;

/// Groups of entries that have left and are remembered, at most.
const LEFT_MAX: usize = 64;
/// Entries that one read takes at most, so that it holds the partition's lock for a fraction of a millisecond even if
/// each is one small batch. A reader comes again for the rest.
const READ_ENTRIES_MAX: usize = 4096;
/// Memory for so many entries is kept while there are none: with ten thousand partitions hardly more come to one of
/// them between two settlings, and for many more it would cost tens of megabytes.
const ENTRIES_KEPT: usize = 4;

/// The batches of one append, as they are in the log.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// Whole batches, with their offsets and epoch.
    pub(crate) bytes: Bytes,
    pub(crate) base_offset: Offset,
    pub(crate) next_offset: Offset,
    pub(crate) epoch: LeaderEpoch,
    /// Number of the log's cuts before.
    pub(crate) cuts: u32,
    /// Largest timestamp of its records.
    pub(crate) max_timestamp: TimestampMs,
    /// Wall clock of the append.
    pub(crate) now: TimestampMs,
}

impl Piece {
    /// The headers of its batches, each with the position in `bytes` where the batch begins.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (usize, BatchHeader)> + '_ {
        let batches =
            Batches::new(&self.bytes).map_while(Result::ok).map(riverrun_records::UnverifiedBatch::bytes);
        batches.scan(0, |position, bytes| {
            let start = *position;
            *position += bytes.len();
            Some((start, BatchHeader::parse(bytes).ok()?))
        })
    }
}

/// A piece, and its position in the journal.
#[derive(Clone, Debug)]
pub(crate) struct TailEntry {
    pub(crate) piece: Piece,
    pub(crate) position: Position,
}

/// Everything between the end of the segments and the log end.
///
/// Ends of entries that have left are remembered until the journal has synced them, and a caller says so.
///
/// Invariants: each entry begins at the end of the one before it; positions rise; `bytes` is the sum of all entries',
/// and `uncounted_bytes` the sum for those at the front that the write cache does not count. `aside_bytes` is the part
/// of these, the last of them, that takes up the room for entries aside.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    entries: VecDeque<TailEntry>,
    /// For each group of entries that left together: the last one's position in the journal, and its end; positions
    /// rise.
    left: VecDeque<(Position, Offset)>,
    bytes: u64,
    uncounted_bytes: u64,
    aside_bytes: u64,
    /// Entries that end at or below it have memory of their own.
    unshared_end: Offset,
}

/// The result of a read of the tail.
#[derive(Debug, Default)]
pub(crate) struct TailSlice {
    pub(crate) chunks: Vec<Bytes>,
    pub(crate) len: usize,
    pub(crate) next_offset: Option<Offset>,
}

impl Tail {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the tail is as large as a run.
    pub(crate) fn is_large(&self) -> bool {
        self.bytes >= RUN_BYTES as u64
    }

    /// Bytes that the write cache does not count, and that take up the room for entries aside.
    pub(crate) fn aside_bytes(&self) -> u64 {
        self.aside_bytes
    }

    /// Bytes that the write cache counts.
    pub(crate) fn counted_bytes(&self) -> u64 {
        self.bytes - self.uncounted_bytes
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &TailEntry> {
        self.entries.iter()
    }

    /// The entries that begin at `from` or behind it.
    pub(crate) fn entries_from(&self, from: Offset) -> impl Iterator<Item = &TailEntry> {
        let first = self.entries.partition_point(|entry| entry.piece.base_offset < from);
        self.entries.range(first..)
    }

    pub(crate) fn push(&mut self, entry: TailEntry) {
        debug_assert!(
            self.entries.back().is_none_or(|last| last.position <= entry.position),
            "positions rise"
        );
        self.bytes += entry.piece.bytes.len() as u64;
        // By itself it would make room for as many again, which with ten thousand partitions is megabytes of unused
        // memory.
        let count = self.entries.len();
        if count == self.entries.capacity() {
            self.entries.reserve_exact((count / 4).max(ENTRIES_KEPT));
        }
        self.entries.push_back(entry);
    }

    /// End of the last entry, if there is one.
    pub(crate) fn end(&self) -> Option<Offset> {
        self.entries.back().map(|entry| entry.piece.next_offset)
    }

    /// The pieces at the front, up to about `bytes_max`, but at least one if there is one.
    pub(crate) fn front(&self, bytes_max: usize) -> Vec<Piece> {
        let mut left = bytes_max;
        let fits = |entry: &&TailEntry| {
            let is_within = left > 0;
            left = left.saturating_sub(entry.piece.bytes.len());
            is_within
        };
        self.entries.iter().take_while(fits).map(|entry| entry.piece.clone()).collect()
    }

    /// The write cache need not count the entries that end at or below `end` any more; returns their bytes. They get
    /// memory of their own: they may stay for long, and others share their group's. They take up room for entries
    /// aside, of which `room_bytes` are left; without it they take none, and neither do entries that left the count
    /// before.
    pub(crate) fn uncount_below(&mut self, end: Offset, room_bytes: Option<u64>) -> u64 {
        let count = self.entries.partition_point(|entry| entry.piece.next_offset <= end);
        let before = self.uncounted_bytes;
        let mut passed_bytes = 0;
        for entry in self.entries.range_mut(..count) {
            passed_bytes += entry.piece.bytes.len() as u64;
            if passed_bytes <= before {
                continue;
            }
            if room_bytes.is_some_and(|room_bytes| passed_bytes - before > room_bytes) {
                break;
            }
            entry.piece.bytes = Bytes::copy_from_slice(&entry.piece.bytes);
            self.uncounted_bytes = passed_bytes;
        }
        let bytes = self.uncounted_bytes - before;
        self.aside_bytes = if room_bytes.is_some() { self.aside_bytes + bytes } else { 0 };
        bytes
    }

    /// Gives the entries that end at or below `end` memory of their own: they may stay for long, and others share their
    /// group's. After about `bytes_max` it stops; returns whether something is left.
    pub(crate) fn unshare_below(&mut self, end: Offset, bytes_max: usize) -> bool {
        let from = self.entries.partition_point(|entry| entry.piece.next_offset <= self.unshared_end);
        let mut left = bytes_max;
        for entry in self.entries.range_mut(from..).take_while(|entry| entry.piece.next_offset <= end) {
            if left == 0 {
                return true;
            }
            left = left.saturating_sub(entry.piece.bytes.len());
            entry.piece.bytes = Bytes::copy_from_slice(&entry.piece.bytes);
            self.unshared_end = entry.piece.next_offset;
        }
        false
    }

    /// Forgets the entries that end at or below `end`; returns how many of their bytes the write cache counts.
    pub(crate) fn forget_below(&mut self, end: Offset) -> u64 {
        let count = self.entries.partition_point(|entry| entry.piece.next_offset <= end);
        if let Some(last) = count.checked_sub(1).and_then(|last| self.entries.get(last)) {
            // If there are many, the last group is remembered together with the present one.
            self.left.truncate(LEFT_MAX - 1);
            self.left.push_back((last.position, last.piece.next_offset));
        }
        let gone: u64 = self.entries.drain(..count).map(|entry| entry.piece.bytes.len() as u64).sum();
        self.bytes -= gone;
        let uncounted = gone.min(self.uncounted_bytes);
        self.uncounted_bytes -= uncounted;
        self.aside_bytes = self.aside_bytes.min(self.uncounted_bytes);
        if self.entries.is_empty() {
            // An idle partition keeps no memory from its busiest moment, and a busy one need not grow anew.
            self.entries.shrink_to(ENTRIES_KEPT);
        }
        gone - uncounted
    }

    /// Whole batches from the one that holds `from` on: none that ends above `upto`, at most `bytes_max`, but the first
    /// one whatever its size if `min_one`; from at most [`READ_ENTRIES_MAX`] entries.
    pub(crate) fn read(&self, from: Offset, bytes_max: u64, upto: Offset, min_one: bool) -> TailSlice {
        let mut slice = TailSlice::default();
        let first = self.entries.partition_point(|entry| entry.piece.next_offset <= from);
        for entry in self.entries.range(first..).take(READ_ENTRIES_MAX) {
            let piece = &entry.piece;
            let is_whole = piece.base_offset >= from && piece.next_offset <= upto;
            let fits = (slice.len + piece.bytes.len()) as u64 <= bytes_max;
            if is_whole && fits {
                slice.push(piece.bytes.clone(), piece.next_offset);
            } else {
                slice.push_batches(piece, from, bytes_max, upto, min_one);
                if slice.next_offset != Some(piece.next_offset) {
                    break;
                }
            }
        }
        slice
    }

    /// End of the entries that lie below a position of the journal, which has synced them; forgets those of them that
    /// have left.
    pub(crate) fn end_below(&mut self, position: Position) -> Option<Offset> {
        let left = self.left.partition_point(|(last, _)| *last < position);
        let left_end = self.left.drain(..left).next_back().map(|(_, end)| end);
        if self.left.is_empty() {
            self.left = VecDeque::new();
        }
        let count = self.entries.partition_point(|entry| entry.position < position);
        let last = count.checked_sub(1).and_then(|last| self.entries.get(last));
        last.map(|entry| entry.piece.next_offset).or(left_end)
    }

    /// The first entry that may hold a record of `timestamp` or later, and those after it.
    pub(crate) fn since(&self, timestamp: TimestampMs) -> impl Iterator<Item = &Piece> {
        self.entries.iter().map(|entry| &entry.piece).filter(move |piece| piece.max_timestamp >= timestamp)
    }

    /// Largest timestamp of all records.
    pub(crate) fn max_timestamp(&self) -> TimestampMs {
        self.entries.iter().map(|entry| entry.piece.max_timestamp).max().unwrap_or(TimestampMs::NONE)
    }
}

impl TailSlice {
    fn push(&mut self, bytes: Bytes, next_offset: Offset) {
        self.len += bytes.len();
        self.chunks.push(bytes);
        self.next_offset = Some(next_offset);
    }

    /// Adds the batches of a piece that the limits allow, as one chunk.
    fn push_batches(&mut self, piece: &Piece, from: Offset, bytes_max: u64, upto: Offset, min_one: bool) {
        let (mut start, mut end, mut next_offset) = (0, 0, None);
        for (position, header) in piece.headers() {
            if header.last_offset() < from {
                continue;
            }
            if next_offset.is_none() {
                start = position;
            }
            let size = position + header.size_bytes() - start;
            let is_first = self.len == 0 && position == start;
            let fits = (self.len + size) as u64 <= bytes_max || (min_one && is_first);
            if !fits || header.next_offset() > upto {
                break;
            }
            end = position + header.size_bytes();
            next_offset = Some(header.next_offset());
        }
        if let Some(next_offset) = next_offset {
            self.push(piece.bytes.slice(start..end), next_offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use riverrun_records::{BatchBuilder, BatchOptions, patch_base_offset};

    use super::*;

    /// A batch of so many records at `base`.
    fn batch(base: i64, records: i64) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        for number in 0..records {
            builder.append(TimestampMs(base + number), None, Some(b"value"), &[]).unwrap();
        }
        let mut bytes = builder.build().unwrap();
        patch_base_offset(&mut bytes, Offset(base));
        bytes
    }

    fn entry(base: i64, batches: &[i64]) -> TailEntry {
        let mut bytes = Vec::new();
        let mut next = base;
        for records in batches {
            bytes.extend(batch(next, *records));
            next += records;
        }
        let piece = Piece {
            bytes: bytes.into(),
            base_offset: Offset(base),
            next_offset: Offset(next),
            epoch: LeaderEpoch(1),
            cuts: 0,
            max_timestamp: TimestampMs(next - 1),
            now: TimestampMs(0),
        };
        TailEntry { piece, position: Position(base.unsigned_abs()) }
    }

    /// Offsets 10..12, 12..13 and 13..18, the last two in one entry of batches 13..15 and 15..18.
    fn tail() -> Tail {
        let mut tail = Tail::default();
        tail.push(entry(10, &[2]));
        tail.push(entry(12, &[1]));
        tail.push(entry(13, &[2, 3]));
        tail
    }

    fn next_of(slice: &TailSlice) -> Option<i64> {
        slice.next_offset.map(|offset| offset.0)
    }

    #[test]
    fn a_read_takes_whole_batches_up_to_its_limits() {
        let tail = tail();
        let all = u64::MAX;
        let size = |base, records| batch(base, records).len();
        for (from, upto, expected) in [
            (10, 18, Some(18)),
            (11, 18, Some(18)),
            (10, 13, Some(13)),
            (10, 15, Some(15)),
            (14, 17, Some(15)),
            (16, 17, None),
        ] {
            let slice = tail.read(Offset(from), all, Offset(upto), true);
            assert_eq!(next_of(&slice), expected, "{from} up to {upto}");
            assert_eq!(slice.len, slice.chunks.iter().map(Bytes::len).sum::<usize>());
        }
        let second = tail.read(Offset(15), all, Offset(18), true);
        assert_eq!(second.chunks[0][..], batch(15, 3)[..], "the batch before the offset is left out");
        let two = (size(10, 2) + size(12, 1)) as u64;
        assert_eq!(next_of(&tail.read(Offset(10), two, Offset(18), true)), Some(13));
        assert_eq!(next_of(&tail.read(Offset(10), two - 1, Offset(18), true)), Some(12));
        assert_eq!(next_of(&tail.read(Offset(10), 1, Offset(18), true)), Some(12), "one whatever its size");
        assert_eq!(next_of(&tail.read(Offset(10), 1, Offset(18), false)), None);
        assert_eq!(
            next_of(&tail.read(Offset(13), 1, Offset(18), true)),
            Some(15),
            "one batch, not one entry"
        );
    }

    #[test]
    fn a_read_of_many_small_entries_takes_a_bounded_number_of_them() {
        let mut tail = Tail::default();
        let many = i64::try_from(READ_ENTRIES_MAX).unwrap();
        for base in 0..=many {
            tail.push(entry(base, &[1]));
        }
        let read = |from| next_of(&tail.read(Offset(from), u64::MAX, Offset(many + 1), true));
        assert_eq!((read(0), read(many)), (Some(many), Some(many + 1)));
    }

    #[test]
    fn settled_entries_leave_at_the_front_with_their_bytes() {
        let mut tail = tail();
        let whole = tail.bytes();
        assert_eq!(tail.end(), Some(Offset(18)));
        assert_eq!(tail.front(1).len(), 1);
        assert_eq!(tail.front(usize::MAX).len(), 3);
        let gone = tail.forget_below(Offset(13));
        assert_eq!(tail.bytes(), whole - gone);
        assert_eq!(tail.entries().next().unwrap().piece.base_offset, Offset(13));
        assert_eq!(tail.forget_below(Offset(18)), whole - gone);
        assert!(tail.is_empty() && tail.bytes() == 0);
    }

    #[test]
    fn an_empty_tail_keeps_memory_for_few_entries() {
        let mut tail = Tail::default();
        for round in 0..2 {
            for number in 0..1000 {
                tail.push(entry(round * 1000 + number, &[1]));
            }
            tail.forget_below(Offset((round + 1) * 1000));
            assert_eq!(tail.entries.capacity(), ENTRIES_KEPT);
        }
    }

    #[test]
    fn a_tail_makes_room_for_few_more_entries_than_come() {
        let mut tail = Tail::default();
        for number in 0..200 {
            tail.push(entry(number, &[1]));
            let count = tail.entries.len();
            assert!(tail.entries.capacity() <= count + (count / 4).max(ENTRIES_KEPT), "{count}");
        }
    }

    #[test]
    fn end_of_entry_that_left_unsynced_is_known_after_the_sync() {
        let mut tail = tail();
        let positions: Vec<Position> = tail.entries().map(|entry| entry.position).collect();
        let after = |index: usize| Position(positions[index].0 + 1);
        tail.forget_below(Offset(13));
        assert_eq!(tail.end_below(after(0)), None);
        assert_eq!(tail.end_below(after(1)), Some(Offset(13)));
        assert_eq!(tail.end_below(after(1)), None, "it was said");
        tail.forget_below(Offset(18));
        assert_eq!(tail.end_below(after(1)), None);
        assert_eq!(tail.end_below(after(2)), Some(Offset(18)));
    }

    /// Room for everything.
    const ROOM: Option<u64> = Some(u64::MAX);

    #[test]
    fn bytes_that_are_not_counted_any_more_are_not_taken_off_twice() {
        let mut tail = tail();
        let (whole, first) = (tail.bytes(), batch(10, 2).len() as u64);
        assert_eq!(tail.uncount_below(Offset(12), ROOM), first);
        assert_eq!(tail.uncount_below(Offset(12), ROOM), 0);
        assert_eq!(tail.counted_bytes(), whole - first);
        let second = batch(12, 1).len() as u64;
        assert_eq!(tail.uncount_below(Offset(13), ROOM), second);
        assert_eq!(tail.forget_below(Offset(12)), 0);
        assert_eq!(tail.forget_below(Offset(18)), whole - first - second);
        assert_eq!(tail.counted_bytes(), 0);
    }

    #[test]
    fn a_tail_gets_memory_of_its_own_a_part_at_a_time() {
        let mut tail = tail();
        let places = |tail: &Tail| tail.entries().map(|entry| entry.piece.bytes.as_ptr()).collect::<Vec<_>>();
        let shared: Vec<_> = tail.entries().map(|entry| entry.piece.bytes.clone()).collect();
        let own = |tail: &Tail| {
            let both = places(tail).into_iter().zip(&shared);
            both.filter(|(place, shared)| *place != shared.as_ptr()).count()
        };
        assert!(tail.unshare_below(Offset(13), 1));
        assert_eq!(own(&tail), 1);
        assert!(!tail.unshare_below(Offset(13), usize::MAX));
        assert_eq!(own(&tail), 2, "later entries are left");
        assert!(!tail.unshare_below(Offset(18), usize::MAX));
        assert_eq!(own(&tail), 3);
    }

    #[test]
    fn as_many_entries_leave_the_count_as_there_is_room_for() {
        let mut tail = tail();
        let (whole, first, second) = (tail.bytes(), batch(10, 2).len() as u64, batch(12, 1).len() as u64);
        assert_eq!(tail.uncount_below(Offset(18), Some(first - 1)), 0);
        assert_eq!(tail.uncount_below(Offset(18), Some(first + second - 1)), first);
        assert_eq!((tail.counted_bytes(), tail.aside_bytes()), (whole - first, first));
        assert_eq!(tail.uncount_below(Offset(18), Some(second - 1)), 0);
        assert_eq!(tail.uncount_below(Offset(18), Some(second)), second);
        assert_eq!((tail.counted_bytes(), tail.aside_bytes()), (whole - first - second, first + second));
        assert_eq!(tail.forget_below(Offset(18)), whole - first - second);
    }

    #[test]
    fn entry_that_took_no_room_for_entries_aside_gives_none_back() {
        let (first, second) = (batch(10, 2).len() as u64, batch(12, 1).len() as u64);
        let mut tail = tail();
        assert_eq!((tail.uncount_below(Offset(12), ROOM), tail.aside_bytes()), (first, first));
        assert_eq!((tail.uncount_below(Offset(12), None), tail.aside_bytes()), (0, 0), "its dir has failed");
        assert_eq!((tail.uncount_below(Offset(13), ROOM), tail.aside_bytes()), (second, second));
        tail.forget_below(Offset(12));
        assert_eq!(tail.aside_bytes(), second);
        tail.forget_below(Offset(13));
        assert_eq!(tail.aside_bytes(), 0);
    }
}

//! Reading: from an offset to a range of whole batches, in one segment's file or in the tail.
//!
//! A read that begins in a segment ends with it, at the latest, unless it is the last one: then it goes on in the tail.
//! A read takes a snapshot of the log and works on it without any lock that a writer holds for long. The next position
//! of a sequential reader is remembered, so that its read costs neither an index search nor a look at batch headers;
//! the end of a range comes from the index, whose entries are boundaries.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use riverrun_env::File;
use riverrun_types::Offset;

use super::PartitionLog;
use super::open::{OpenLog, View};
use super::tail::TailSlice;
use crate::bad_sector::read_exact;
use crate::error::{LogError, ReadError};
use crate::index::IndexEntry;
use crate::segment::{Dense, Effort, Segment};

/// A range up to this size is copied: a response with many small partitions is then one gathered write instead of
/// one `sendfile` for each.
const COPIED_BYTES_MAX: u64 = 4096;
/// Smaller pieces of the tail are copied, too, but together: each would keep all of its group in memory, which is some
/// hundred times as much as the reader is charged for, for as long as a slow client takes.
const TAIL_COPIED_BELOW: usize = 8 * 1024;
/// Bytes of batches that are proved for one read at most, so that it does not take long.
const PROVED_AT_ONCE_MAX: u64 = 1024 * 1024;
/// Readers of one partition whose next positions are remembered.
const RECENT_READS: usize = 4;
/// Attempts of a read if retention removes its segment meanwhile.
const ATTEMPTS: usize = 3;

/// Bytes of whole batches, in a file or in memory.
#[derive(Clone, Debug)]
pub enum Chunk {
    /// A range of a file that stays readable as long as the handle is held.
    File {
        /// The file.
        file: Arc<dyn File>,
        /// First byte.
        position: u64,
        /// Number of bytes.
        len: usize,
    },
    /// Bytes in memory.
    Memory(Bytes),
}

impl Chunk {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::File { len, .. } => *len,
            Self::Memory(bytes) => bytes.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, read from the file if they are there.
    pub fn to_bytes(&self) -> io::Result<Bytes> {
        match self {
            Self::File { file, position, len } => {
                let mut bytes = vec![0; *len];
                read_exact(&**file, &mut bytes, *position)?;
                Ok(bytes.into())
            }
            Self::Memory(bytes) => Ok(bytes.clone()),
        }
    }
}

/// The result of a read: whole batches, of which the first may begin below the requested offset.
#[derive(Clone, Debug)]
pub struct ReadSlice {
    /// The bytes in order.
    pub chunks: Vec<Chunk>,
    /// Bytes of all chunks.
    pub len: usize,
    /// All batches after these begin here or beyond: the offset to go on reading at. The requested offset, if nothing
    /// was read.
    pub next_offset: Offset,
    /// First offset that can be read.
    pub log_start: Offset,
    /// The offset after the last record.
    pub log_end: Offset,
    /// Bytes of it that had to be proved before they are handed out: those that this log has neither written nor proved
    /// since it was opened.
    pub proved_bytes: u64,
    /// Whether some of these had to be brought from the disk.
    pub met_disk: bool,
}

impl ReadSlice {
    /// Adds the batches that a tail had, small pieces in memory of their own. To be called without any lock: it takes
    /// its time.
    fn take_tail(&mut self, found: &TailSlice) {
        self.len += found.len;
        self.next_offset = found.next_offset.unwrap_or(self.next_offset);
        let is_small = |piece: &Bytes| piece.len() < TAIL_COPIED_BELOW;
        for run in found.chunks.chunk_by(|one, next| is_small(one) && is_small(next)) {
            let whole = if is_small(&run[0]) { run.concat().into() } else { run[0].clone() };
            self.chunks.push(Chunk::Memory(whole));
        }
    }
}

/// The position of a sequential reader's next read.
#[derive(Clone, Copy, Debug)]
struct RecentRead {
    generation: u64,
    base_offset: Offset,
    next_offset: Offset,
    position: u64,
}

/// The last few [`RecentRead`]s, in a ring.
#[derive(Debug, Default)]
pub(crate) struct RecentReads {
    reads: [Option<RecentRead>; RECENT_READS],
    next: usize,
}

impl RecentReads {
    fn find(&self, generation: u64, base_offset: Offset, offset: Offset) -> Option<u64> {
        let matches = |read: &&RecentRead| {
            read.generation == generation && read.base_offset == base_offset && read.next_offset == offset
        };
        self.reads.iter().flatten().find(matches).map(|read| read.position)
    }

    fn put(&mut self, read: RecentRead) {
        self.reads[self.next] = Some(read);
        self.next = (self.next + 1) % RECENT_READS;
    }
}

/// A boundary between batches: its position, and the offset below which no batch begins after it.
#[derive(Clone, Copy, Debug)]
struct Boundary {
    position: u64,
    offset: Offset,
}

/// The time that a read may take if the entries of an index lie so far apart that a lookup walks over much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// No time: the read fails with [`ReadError::FarFromIndex`].
    None,
    /// Some milliseconds, in which entries are added to the index; the read fails in the same way until they are near
    /// enough.
    Slice,
    /// As long as it takes.
    Endless,
}

/// The bounds of a read.
#[derive(Clone, Copy, Debug)]
struct Limits {
    from: Offset,
    bytes_max: u64,
    upto: Offset,
    min_one: bool,
    patience: Patience,
}

impl Limits {
    /// At most as many bytes as may be proved at once, unless all of these, up to the segment's end, were proved
    /// already.
    fn while_unproved(self, segment: &Segment, start: u64, size_bytes: u64) -> Self {
        let is_proved = segment.is_proved(start, start.saturating_add(self.bytes_max).min(size_bytes));
        Self {
            bytes_max: if is_proved { self.bytes_max } else { self.bytes_max.min(PROVED_AT_ONCE_MAX) },
            ..self
        }
    }
}

impl PartitionLog {
    /// Reads whole batches from the one that holds `from` on: at most `max_bytes`, nothing at or above `upto` (the high
    /// watermark), and from one segment only; the tail counts with the last one. If the first batch alone is larger
    /// than `max_bytes` it is returned whole with `min_one`, and nothing without.
    pub fn read(
        &self,
        from: Offset,
        max_bytes: usize,
        upto: Offset,
        min_one: bool,
    ) -> Result<ReadSlice, ReadError> {
        self.read_with(Patience::Endless, from, max_bytes, upto, min_one)
    }

    /// As [`Self::read`], with a bound on the time of a lookup.
    pub fn read_with(
        &self,
        patience: Patience,
        from: Offset,
        max_bytes: usize,
        upto: Offset,
        min_one: bool,
    ) -> Result<ReadSlice, ReadError> {
        let log = self.open()?;
        let limits = Limits { from, bytes_max: max_bytes as u64, upto, min_one, patience };
        for _ in 1..ATTEMPTS {
            match log.read_once(limits) {
                // Retention or compaction removed the file before it was opened: look again.
                Err(ReadError::Storage(LogError::Io { source, .. }))
                    if source.kind() == io::ErrorKind::NotFound => {}
                result => return result.map_err(|error| self.judge_read(&log, error)),
            }
        }
        log.read_once(limits).map_err(|error| self.judge_read(&log, error))
    }

    /// Moves the batches of a read of this log from its files to memory, for a caller that cannot keep the files open.
    pub fn copy_to_memory(&self, slice: &mut ReadSlice) -> Result<(), ReadError> {
        for chunk in slice.chunks.iter_mut().filter(|chunk| matches!(chunk, Chunk::File { .. })) {
            let bytes = chunk.to_bytes().map_err(|error| ReadError::from(LogError::io(&self.path(), error)));
            *chunk = Chunk::Memory(bytes.inspect_err(|error| self.act_on_read_error(error))?);
        }
        Ok(())
    }
}

impl OpenLog {
    fn read_once(&self, limits: Limits) -> Result<ReadSlice, ReadError> {
        let Limits { from, bytes_max, upto, min_one, .. } = limits;
        let (view, tail, mut slice) = {
            let shown = self.shown.lock();
            let View { log_start, end: log_end, settled_end, .. } = shown.view;
            if from < log_start || from > log_end {
                return Err(ReadError::OutOfRange { offset: from, log_start, log_end });
            }
            let slice = ReadSlice {
                chunks: Vec::new(),
                len: 0,
                next_offset: from,
                log_start,
                log_end,
                proved_bytes: 0,
                met_disk: false,
            };
            if from >= upto.min(log_end) {
                return Ok(slice);
            }
            let is_settled = from < settled_end;
            let view = is_settled.then(|| shown.view.clone());
            let tail = (!is_settled).then(|| shown.tail.read(from, bytes_max, upto, min_one));
            (view, tail, slice)
        };
        if let Some(found) = tail {
            slice.take_tail(&found);
        }
        if let Some(view) = view {
            slice = self.read_segments(&view, limits, slice)?;
            self.check_not_cut()?;
            self.go_on_in_tail(&mut slice, limits);
        }
        Ok(slice)
    }

    /// Fails if the log was cut while its segments were read: files that were opened after that may be other ones.
    /// Files that were open before are never written over.
    fn check_not_cut(&self) -> Result<(), LogError> {
        let is_abandoned = self.shown.lock().is_abandoned;
        if is_abandoned && self.was_cut() { Err(LogError::BeingCut(self.home.partition)) } else { Ok(()) }
    }

    /// Adds batches behind the end of the segments, as far as the limits allow, so that a reader that catches up need
    /// not ask once more for them.
    fn go_on_in_tail(&self, slice: &mut ReadSlice, limits: Limits) {
        let bytes_left = limits.bytes_max.saturating_sub(slice.len as u64);
        if slice.len == 0 || bytes_left == 0 || slice.next_offset >= limits.upto {
            return;
        }
        let found = {
            let shown = self.shown.lock();
            // Otherwise more of the segments may come first by now.
            let follows = slice.next_offset >= shown.view.settled_end;
            follows.then(|| shown.tail.read(slice.next_offset, bytes_left, limits.upto, false))
        };
        if let Some(found) = found {
            slice.take_tail(&found);
        }
    }

    fn read_segments(
        &self,
        view: &View,
        limits: Limits,
        mut slice: ReadSlice,
    ) -> Result<ReadSlice, ReadError> {
        let Some((index, start)) = self.find_start(view, limits)? else { return Ok(slice) };
        let segment = &view.segments[index];
        let size_bytes = view.extent(index).size_bytes;
        segment.forget_if_evicted(start, start.saturating_add(limits.bytes_max))?;
        let limits = limits.while_unproved(segment, start, size_bytes);
        let (end, Effort { bytes, met_disk }) = find_proved(view, index, start, limits)?;
        if end.position > start {
            self.forget_if_read(segment, &(start..end.position));
            (slice.proved_bytes, slice.met_disk) = (bytes, met_disk);
            slice.next_offset = end.offset;
            slice.len = usize::try_from(end.position - start).unwrap_or(usize::MAX);
            slice.chunks.push(chunk(segment, start, slice.len)?);
            self.remember(view, index, end);
        } else if limits.min_one {
            // No reader would ever get past a batch whose length is too large.
            segment.check_batch(start, size_bytes)?;
        }
        Ok(slice)
    }

    fn remember(&self, view: &View, index: usize, end: Boundary) {
        self.recent_reads.lock().get_or_insert_default().put(RecentRead {
            generation: view.generation,
            base_offset: view.segments[index].base_offset,
            next_offset: end.offset,
            position: end.position,
        });
    }

    /// The segment and the position of the first batch that ends at or above `from`; none if nothing is there.
    fn find_start(&self, view: &View, limits: Limits) -> Result<Option<(usize, u64)>, ReadError> {
        let from = limits.from;
        let first = view.segment_of(from).unwrap_or(0);
        for index in first..view.segments.len() {
            let segment = &view.segments[index];
            let size = view.extent(index).size_bytes;
            // A failed sync may have lost written bytes, and memory may forget them at any time.
            if self.dir.has_failed() {
                segment.forget_proofs();
            }
            let known = {
                let reads = self.recent_reads.lock();
                reads.as_ref().and_then(|reads| reads.find(view.generation, segment.base_offset, from))
            };
            let position = match known {
                Some(position) => position,
                None => self.find_position(segment, limits, size, view.log_start)?,
            };
            if position < size {
                return Ok(Some((index, position)));
            }
        }
        Ok(None)
    }

    /// Position of the first batch of the segment that ends at or above the requested offset, or the segment's end.
    /// Batches before it that end below `log_start` may have damaged contents.
    fn find_position(
        &self,
        segment: &Arc<Segment>,
        limits: Limits,
        size_bytes: u64,
        log_start: Offset,
    ) -> Result<u64, ReadError> {
        let offset = limits.from;
        let relative = offset.0 - segment.base_offset.0;
        let entry = segment.last_entry_where(|entry| i64::from(entry.relative_offset) <= relative)?;
        self.check_patience(segment, entry, size_bytes, limits.patience)?;
        let mut position = u64::from(entry.position);
        let mut log_start_at = position;
        // Before the look at it brings it back into memory.
        segment.forget_if_evicted(position, position + 1)?;
        let log = segment.log_file()?;
        while position < size_bytes {
            let header = segment.header_at(&*log, position, size_bytes)?;
            if header.base_offset() <= log_start {
                log_start_at = position;
            }
            if header.last_offset() >= offset {
                break;
            }
            position += header.size_bytes() as u64;
        }
        segment.check_batches(&*log, entry, log_start_at, position)?;
        Ok(position)
    }

    /// Fails if a lookup from this entry on takes longer than the reader waits.
    fn check_patience(
        &self,
        segment: &Arc<Segment>,
        entry: IndexEntry,
        size_bytes: u64,
        patience: Patience,
    ) -> Result<(), ReadError> {
        let is_far = match patience {
            Patience::Endless => false,
            Patience::None => segment.is_sparse_behind(entry, size_bytes)?,
            Patience::Slice => self.dense_at(segment, entry, size_bytes)? == Dense::NotYet,
        };
        if is_far { Err(ReadError::FarFromIndex) } else { Ok(()) }
    }
}

fn boundary(segment: &Segment, entry: IndexEntry) -> Boundary {
    let offset = segment.base_offset.plus(i64::from(entry.relative_offset));
    Boundary { position: u64::from(entry.position), offset }
}

/// The last boundary that the limits allow, and the cost of proving the batches up to there. If the disk does not give
/// back some of them, the batches before those are enough.
fn find_proved(
    view: &View,
    index: usize,
    start: u64,
    limits: Limits,
) -> Result<(Boundary, Effort), LogError> {
    let segment = &view.segments[index];
    let find = |limits| {
        let end = find_end(view, index, start, limits)?;
        Ok((end, segment.prove(start, end.position)?))
    };
    match find(limits) {
        Err(LogError::Unreadable { path, position }) if position > start => {
            let before = Limits { bytes_max: position - start, min_one: false, ..limits };
            let found = find(before).ok().filter(|(end, _)| end.position > start);
            found.ok_or(LogError::Unreadable { path, position })
        }
        found => found,
    }
}

/// The last boundary that the limits allow.
fn find_end(view: &View, index: usize, start: u64, limits: Limits) -> Result<Boundary, LogError> {
    let segment = &view.segments[index];
    let extent = view.extent(index);
    let end = Boundary { position: extent.size_bytes, offset: extent.next_offset };
    if end.offset <= limits.upto && end.position - start <= limits.bytes_max {
        return Ok(end);
    }
    let position_max = start.saturating_add(limits.bytes_max).min(end.position);
    let entry = segment.last_entry_where(|entry| {
        let boundary = boundary(segment, *entry);
        boundary.position <= position_max && boundary.offset <= limits.upto
    })?;
    let known = boundary(segment, entry);
    // Entries are an index interval apart: with large reads the boundary of the last one is close enough.
    if known.position > start && end.offset <= limits.upto {
        return Ok(known);
    }
    let from = if known.position > start { known } else { Boundary { position: start, offset: limits.from } };
    walk_to_end(segment, from, start, end.position, limits)
}

/// Goes on from a boundary, batch by batch, while the limits allow.
fn walk_to_end(
    segment: &Segment,
    from: Boundary,
    start: u64,
    size_bytes: u64,
    limits: Limits,
) -> Result<Boundary, LogError> {
    let log = segment.log_file()?;
    let mut end = from;
    while end.position < size_bytes {
        let header = match segment.header_at(&*log, end.position, size_bytes) {
            Err(LogError::Unreadable { .. }) if end.position > start => break,
            header => header?,
        };
        let next =
            Boundary { position: end.position + header.size_bytes() as u64, offset: header.next_offset() };
        let fits = next.position - start <= limits.bytes_max || (limits.min_one && end.position == start);
        if !fits || next.offset > limits.upto {
            break;
        }
        end = next;
    }
    Ok(end)
}

fn chunk(segment: &Segment, position: u64, len: usize) -> Result<Chunk, LogError> {
    let chunk = Chunk::File { file: segment.log_file()?, position, len };
    if len as u64 > COPIED_BYTES_MAX {
        return Ok(chunk);
    }
    Ok(Chunk::Memory(chunk.to_bytes().map_err(|error| LogError::io(&segment.log_path(), error))?))
}

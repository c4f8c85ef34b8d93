//! Recovery: the first process that opens a queue decides alone which records it holds.
//!
//! In the life in which the queue was last used (same boot, same mount), memory has kept every store: recovery trusts
//! the published position, and removes only what a dead appender left beyond it. In another life, bytes above the
//! last synced mark may have reached the disk in any order: recovery reads them batch by batch and keeps them as far
//! as checksums and offsets fit. The rest is moved away (`cut_dir.rs`), and becomes zeros. Bytes below the mark are
//! not touched: damage there is found when it is read.
//!
//! Guarantees that every byte it keeps is on disk before it is called synced. Reads files by `read`, not through
//! mappings, so that a disk that cannot read is an error here.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use riverrun_records::{UnverifiedBatch, layout};
use riverrun_types::{LeaderEpoch, Offset};

use crate::appender::mend;
use crate::control::{Control, Head, Mark, sync_dir};
use crate::cut_dir::CutDir;
use crate::error::{At as _, QueueError};
use crate::mapping::Access;
use crate::segment::{Segments, open_file};
use crate::sys::{self, Life};

/// The repairs that opening a queue made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// True if the queue was last used before a boot or a mount, so that only the disk could tell its content.
    pub from_disk: bool,
    /// Records above the last synced mark that were read and found whole.
    pub records_kept: i64,
    /// The file, and the position in it, from which on nothing was whole, if there were any bytes.
    pub cut_at: Option<(PathBuf, u64)>,
    /// The directory to which the cut bytes were moved.
    pub cut_to: Option<PathBuf>,
}

/// Brings the queue into a usable state. Requires sole access.
pub(crate) fn recover(control: &Control, segments: &Segments) -> Result<Recovery, QueueError> {
    segments.remove_unused()?;
    let life = Life::of(control.file()).at("look at", control.path())?;
    if control.life() == life {
        control.forget_the_dead();
        check_kept(control, segments)?;
        check_head(control, segments)?;
        mend(control, segments)?;
        return Ok(Recovery::default());
    }
    // In the same boot, pages that a failed sync has lost may still be read from memory through another mount.
    if control.life().boot != life.boot {
        control.forget_poison();
    }
    let recovery = recover_from_disk(control, segments)?;
    control.set_life(life);
    control.sync_all()?;
    Ok(recovery)
}

/// The result that [`recover`] would have in another life, and the head up to the position `until`. Writes nothing.
pub(crate) fn foresee(
    control: &Control,
    segments: &Segments,
    until: u64,
) -> Result<(Head, Recovery), QueueError> {
    let mark = newest_mark(control)?;
    let bases = segments.list()?;
    let mut scan = Scan::begin(segments, &mark, &bases)?;
    scan.run(segments, until, |_, _| Ok(()))?;
    let head = scan.head;
    scan.run(segments, u64::MAX, |_, _| Ok(()))?;
    let records_kept = scan.head.next_offset.0 - scan.begin_offset.0;
    let cut_at = scan.first_cut(segments, &bases)?;
    let recovery = Recovery { from_disk: true, records_kept, cut_at, cut_to: None };
    Ok((head, recovery))
}

/// Refuses a head that lies before one that the queue is known to have had: it would be taken for the end, and the
/// records after it would be lost silently. For a control file that counts, also while other processes use it.
pub(crate) fn check_kept(control: &Control, segments: &Segments) -> Result<(), QueueError> {
    // The head last, since it moves on meanwhile.
    let (mark, bases) = (control.mark(), segments.list()?);
    let head = control.head()?;
    let was_synced = mark.is_some_and(|mark| mark.head.position > head.position);
    if was_synced || bases.last().is_some_and(|base| *base > head.next_offset) {
        return Err(control.damaged(crate::layout::HEADS_AT, "head"));
    }
    Ok(())
}

/// Refuses a head whose segment is missing, or that other bytes follow. Requires sole access.
fn check_head(control: &Control, segments: &Segments) -> Result<(), QueueError> {
    let head = control.head()?;
    segments.expect(head.segment_base, head.position / segments.segment_bytes())?;
    // If no append was in progress, zeros follow.
    if control.dirty_end() <= head.position
        && let Some(file) = segments.open(head.segment_base, Access::Read)?
    {
        let mut next = [0; layout::LENGTH_END];
        let within = head.position % segments.segment_bytes();
        file.read_exact_at(&mut next, within).at("read", &segments.path(head.segment_base))?;
        if next != [0; layout::LENGTH_END] {
            return Err(control.damaged(crate::layout::HEADS_AT, "head"));
        }
    }
    Ok(())
}

fn newest_mark(control: &Control) -> Result<Mark, QueueError> {
    control.mark().ok_or_else(|| control.damaged(crate::layout::MARKS_AT, "synced mark"))
}

fn recover_from_disk(control: &Control, segments: &Segments) -> Result<Recovery, QueueError> {
    let mark = newest_mark(control)?;
    let bases = segments.list()?;
    // The bytes may have been read from memory, as after a copy of the files.
    let sync = |file: &File, path: &std::path::Path| file.sync_data().at("sync", path);
    let mut scan = Scan::begin(segments, &mark, &bases)?;
    scan.run(segments, u64::MAX, sync)?;
    let epoch = LeaderEpoch(mark.epoch.0.wrapping_add(1).max(0));
    let cut_at = scan.first_cut(segments, &bases)?;
    let cut_to = match cut_at {
        Some(_) => Some(scan.cut(segments, &bases, epoch)?),
        None => None,
    };
    scan.clear_rest(segments)?;
    sync_dir(segments.dir())?;
    control.reset(&Mark { head: scan.head, epoch, sequence: mark.sequence + 1 });
    let records_kept = scan.head.next_offset.0 - scan.begin_offset.0;
    Ok(Recovery { from_disk: true, records_kept, cut_at, cut_to })
}

/// Reading on from the last synced mark.
///
/// Invariants: everything up to `head` is whole.
struct Scan {
    begin_offset: Offset,
    head: Head,
}

impl Scan {
    /// Reads as far as everything is whole, and no further than `until`. Calls `passed` with each segment after
    /// reading it.
    fn run(
        &mut self,
        segments: &Segments,
        until: u64,
        passed: impl Fn(&File, &std::path::Path) -> Result<(), QueueError>,
    ) -> Result<(), QueueError> {
        while self.segment(segments, until, &passed)? {}
        Ok(())
    }

    /// Begins at the mark, or at the first segment if retention has removed the mark's.
    fn begin(segments: &Segments, mark: &Mark, bases: &[Offset]) -> Result<Self, QueueError> {
        let mut head = mark.head;
        if !bases.contains(&head.segment_base) {
            let later = bases.first().filter(|first| **first > head.segment_base);
            let first = *later.ok_or_else(|| segments.missing(head.segment_base))?;
            let number = head.position / segments.segment_bytes() + 1;
            head =
                Head { position: number * segments.segment_bytes(), next_offset: first, segment_base: first };
        }
        Ok(Self { begin_offset: head.next_offset, head })
    }

    /// Reads the segment of the head to its end, and moves to the next if there is one. False at the end of all.
    fn segment(
        &mut self,
        segments: &Segments,
        until: u64,
        passed: &impl Fn(&File, &std::path::Path) -> Result<(), QueueError>,
    ) -> Result<bool, QueueError> {
        let path = segments.path(self.head.segment_base);
        let Some(file) = segments.open(self.head.segment_base, Access::Read)? else { return Ok(false) };
        let mut buffer = Vec::new();
        loop {
            let within = self.head.position % segments.segment_bytes();
            match read_batch(&file, within, segments.segment_bytes(), &mut buffer).at("read", &path)? {
                Some(batch)
                    if batch.0 == self.head.next_offset
                        && self.head.position + buffer.len() as u64 <= until =>
                {
                    self.head.position += buffer.len() as u64;
                    self.head.next_offset = batch.1;
                }
                _ => break,
            }
        }
        passed(&file, &path)?;
        let next = self.head.next_offset;
        // A power cut may have kept a segment's name and lost its size: then nothing of it was synced.
        let size = std::fs::metadata(segments.path(next)).map_or(0, |metadata| metadata.len());
        let position = (self.head.position / segments.segment_bytes() + 1) * segments.segment_bytes();
        if next == self.head.segment_base || size != segments.segment_bytes() || position > until {
            return Ok(false);
        }
        // Bytes that follow in this segment are void: the segment that begins with the next offset was rolled to.
        self.head = Head { position, next_offset: next, segment_base: next };
        Ok(true)
    }

    /// Position of the head in its segment.
    fn within(&self, segments: &Segments) -> u64 {
        self.head.position % segments.segment_bytes()
    }

    /// The first file, and the position in it, that has bytes above the head.
    fn first_cut(&self, segments: &Segments, bases: &[Offset]) -> Result<Option<(PathBuf, u64)>, QueueError> {
        let path = segments.path(self.head.segment_base);
        let within = self.within(segments);
        if let Some(file) = segments.open(self.head.segment_base, Access::Read)?
            && end_of_bytes(&file, within, segments.segment_bytes()).at("read", &path)? > within
        {
            return Ok(Some((path, within)));
        }
        let later = bases.iter().find(|base| **base > self.head.segment_base);
        Ok(later.map(|base| (segments.path(*base), 0)))
    }

    /// Copies or moves everything above the head to the cut directory, durably. Returns the directory. The head's
    /// segment still has its part.
    fn cut(&self, segments: &Segments, bases: &[Offset], epoch: LeaderEpoch) -> Result<PathBuf, QueueError> {
        let cut_dir = CutDir::open(segments.dir(), epoch)?;
        let path = segments.path(self.head.segment_base);
        if let Some(file) = segments.open(self.head.segment_base, Access::Read)? {
            let within = self.within(segments);
            let end = end_of_bytes(&file, within, segments.segment_bytes()).at("read", &path)?;
            cut_dir.copy(&file, &path, within..end)?;
        }
        for base in bases.iter().filter(|base| **base > self.head.segment_base) {
            cut_dir.move_file(&segments.path(*base))?;
        }
        cut_dir.sync()
    }

    /// Zeros everything above the head in its segment, durably.
    fn clear_rest(&self, segments: &Segments) -> Result<(), QueueError> {
        let path = segments.path(self.head.segment_base);
        let Some(file) = open_file(&path, segments.segment_bytes(), Access::Write)? else { return Ok(()) };
        clear(&file, self.within(segments), segments.segment_bytes()).at("clear", &path)?;
        file.sync_all().at("sync", &path)
    }
}

/// The first offset, and the offset after the last, of the whole batch at `within`, which is left in `buffer`; `None`
/// if there is no whole batch.
fn read_batch(
    file: &File,
    within: u64,
    segment_bytes: u64,
    buffer: &mut Vec<u8>,
) -> std::io::Result<Option<(Offset, Offset)>> {
    buffer.resize(layout::LENGTH_END, 0);
    if within + layout::HEADER_BYTES as u64 > segment_bytes {
        return Ok(None);
    }
    file.read_exact_at(buffer, within)?;
    let length = buffer.last_chunk().map_or(0, |field| i32::from_be_bytes(*field));
    let Ok(length) = usize::try_from(length) else { return Ok(None) };
    let size = length + layout::LENGTH_END;
    if length < layout::LENGTH_MIN || size as u64 > segment_bytes - within {
        return Ok(None);
    }
    buffer.resize(size, 0);
    file.read_exact_at(buffer, within)?;
    let Ok((unverified, _)) = UnverifiedBatch::split_first(buffer) else { return Ok(None) };
    Ok(unverified.verify().ok().map(|batch| (batch.base_offset(), batch.next_offset())))
}

/// Position after the last byte from `from` on that is not zero; `from` if there is none.
fn end_of_bytes(file: &File, from: u64, segment_bytes: u64) -> std::io::Result<u64> {
    let mut chunk = vec![0; 64 * 1024];
    let (mut at, mut end) = (from, from);
    while at < segment_bytes {
        let len = chunk.len().min((segment_bytes - at) as usize);
        file.read_exact_at(&mut chunk[..len], at)?;
        if let Some(last) = chunk[..len].iter().rposition(|byte| *byte != 0) {
            end = at + last as u64 + 1;
        }
        at += len as u64;
    }
    Ok(end)
}

/// Zeros everything from `from` on, and allocates its blocks: a power cut may have left holes.
fn clear(file: &File, from: u64, segment_bytes: u64) -> std::io::Result<()> {
    let end = end_of_bytes(file, from, segment_bytes)?;
    let zeros = vec![0; 64 * 1024];
    let mut at = from;
    while at < end {
        let len = zeros.len().min((end - at) as usize);
        file.write_all_at(&zeros[..len], at)?;
        at += len as u64;
    }
    sys::allocate(file, 0..segment_bytes)
}

//! What is done when the first process opens a queue: it alone decides what there is.
//!
//! In the life in which the queue was last used (same boot, same mount), memory has kept every store: the
//! published position is believed, and only what a dead appender left beyond it is taken away. In another
//! life, what lies above the last synced mark may have reached the disk in any order: it is read batch by
//! batch, kept as far as checksums and offsets fit, and the rest becomes zeros. What lies below the mark is
//! not touched: damage there is found when it is read.
//!
//! Reads files by `read`, not through mappings, so that a disk that cannot read is an error here.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use riverrun_records::{UnverifiedBatch, layout};
use riverrun_types::{LeaderEpoch, Offset};

use crate::appender::mend;
use crate::control::{Control, Head, Mark, sync_dir};
use crate::error::{At as _, QueueError};
use crate::segment::{Segments, open_file};
use crate::sys::{self, Life};

/// What the opening of a queue found to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Whether the queue was last used before a boot or a mount, so that only the disk could tell what it
    /// holds.
    pub from_disk: bool,
    /// Records above the last synced mark that were read and found whole.
    pub records_kept: i64,
    /// The file and the place in it from which on nothing was whole, if anything was there.
    pub cut_at: Option<(PathBuf, u64)>,
}

/// Brings the queue into a state from which it can be used. For the one who is alone.
pub(crate) fn recover(control: &Control, segments: &Segments) -> Result<Recovery, QueueError> {
    segments.remove_unused()?;
    let life = Life::of(control.file()).at("look at", control.path())?;
    if control.life() == life {
        control.forget_the_dead();
        check_head(control, segments)?;
        mend(control, segments)?;
        return Ok(Recovery::default());
    }
    // Through another mount of the same boot, what a failed sync has lost may still be read from memory.
    if control.life().boot != life.boot {
        control.forget_poison();
    }
    let recovery = recover_from_disk(control, segments)?;
    control.set_life(life);
    control.sync()?;
    Ok(recovery)
}

/// Refuses a head that cannot be.
fn check_head(control: &Control, segments: &Segments) -> Result<(), QueueError> {
    let head = control.head()?;
    let within = head.position % segments.segment_bytes();
    let fits = within <= segments.segment_bytes() - layout::LENGTH_END as u64;
    if !fits || head.next_offset < head.segment_base || head.segment_base < Offset::ZERO {
        return Err(control.damaged(crate::layout::HEADS_AT, "head"));
    }
    segments.expect(head.segment_base, head.position / segments.segment_bytes()).map(|_| ())
}

fn recover_from_disk(control: &Control, segments: &Segments) -> Result<Recovery, QueueError> {
    let mark = control.mark().ok_or_else(|| control.damaged(crate::layout::MARKS_AT, "synced mark"))?;
    let bases = segments.list()?;
    let mut recovery = Recovery { from_disk: true, ..Recovery::default() };
    let mut scan = Scan::begin(segments, &mark, &bases)?;
    let begin_offset = scan.head.next_offset;
    while scan.segment(segments)? {}
    recovery.records_kept = scan.head.next_offset.0 - begin_offset.0;
    recovery.cut_at = scan.cut(segments, &bases)?;
    let epoch = LeaderEpoch(mark.epoch.0.wrapping_add(1).max(0));
    control.reset(&Mark { head: scan.head, epoch, sequence: mark.sequence + 1 });
    Ok(recovery)
}

/// Reading on from the last synced mark.
///
/// Invariants: everything up to `head` is whole.
struct Scan {
    head: Head,
}

impl Scan {
    /// Begins at the mark, or at the first segment if retention has removed the mark's.
    fn begin(segments: &Segments, mark: &Mark, bases: &[Offset]) -> Result<Self, QueueError> {
        let mut head = mark.head;
        if bases.contains(&head.segment_base) {
            return Ok(Self { head });
        }
        match bases.first() {
            Some(first) if *first > head.segment_base => {
                let number = head.position / segments.segment_bytes() + 1;
                head = Head {
                    position: number * segments.segment_bytes(),
                    next_offset: *first,
                    segment_base: *first,
                };
                Ok(Self { head })
            }
            _ => Err(QueueError::damaged(&segments.path(head.segment_base), 0, crate::Damage::Missing)),
        }
    }

    /// Reads the segment of the head to its end, and goes to the next if that is there. False at the end of
    /// all.
    fn segment(&mut self, segments: &Segments) -> Result<bool, QueueError> {
        let path = segments.path(self.head.segment_base);
        let Some(file) = open_file(&path, segments.segment_bytes())? else { return Ok(false) };
        let mut buffer = Vec::new();
        loop {
            let within = self.head.position % segments.segment_bytes();
            match read_batch(&file, within, segments.segment_bytes(), &mut buffer).at("read", &path)? {
                Some(batch) if batch.0 == self.head.next_offset => {
                    self.head.position += buffer.len() as u64;
                    self.head.next_offset = batch.1;
                }
                _ => break,
            }
        }
        let next = self.head.next_offset;
        // A cut of power may have kept a segment's name and lost its size: then nothing of it was synced.
        let size = std::fs::metadata(segments.path(next)).map_or(0, |metadata| metadata.len());
        if next == self.head.segment_base || size != segments.segment_bytes() {
            return Ok(false);
        }
        // Whatever follows here is over: the segment that begins with the next offset was rolled to.
        let number = self.head.position / segments.segment_bytes() + 1;
        self.head =
            Head { position: number * segments.segment_bytes(), next_offset: next, segment_base: next };
        Ok(true)
    }

    /// Removes everything above the head, durably. Returns where something was.
    fn cut(&self, segments: &Segments, bases: &[Offset]) -> Result<Option<(PathBuf, u64)>, QueueError> {
        let mut found = None;
        for base in bases.iter().filter(|base| **base > self.head.segment_base) {
            let path = segments.path(*base);
            std::fs::remove_file(&path).at("remove", &path)?;
            found.get_or_insert((path, 0));
        }
        let path = segments.path(self.head.segment_base);
        let Some(file) = open_file(&path, segments.segment_bytes())? else { return Ok(found) };
        let within = self.head.position % segments.segment_bytes();
        if zero_rest(&file, within, segments.segment_bytes()).at("clear", &path)? {
            found = Some((path.clone(), within));
        }
        file.sync_all().at("sync", &path)?;
        sync_dir(segments.dir())?;
        Ok(found)
    }
}

/// The first offset and the offset after the last of the whole batch at `within`, which is left in `buffer`;
/// none if there is no whole batch.
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

/// Makes everything from `from` on zeros. Returns whether it was not.
fn zero_rest(file: &File, from: u64, segment_bytes: u64) -> std::io::Result<bool> {
    let mut chunk = vec![0; 64 * 1024];
    let zeros = vec![0; chunk.len()];
    let mut dirty = false;
    let mut at = from;
    while at < segment_bytes {
        let len = chunk.len().min((segment_bytes - at) as usize);
        file.read_exact_at(&mut chunk[..len], at)?;
        if chunk[..len] != zeros[..len] {
            dirty = true;
            file.write_all_at(&zeros[..len], at)?;
        }
        at += len as u64;
    }
    // A cut of power may have left holes where blocks were.
    sys::allocate(file, segment_bytes)?;
    Ok(dirty)
}

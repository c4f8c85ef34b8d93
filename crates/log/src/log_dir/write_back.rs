//! Has the disk write bytes of the page cache in pieces, before a sync.
//!
//! A sync cannot be ended: its thread stays in it until the disk has all that the file system has gathered, and so does
//! the process, whether it stops or is killed. On a slow disk that may take minutes. So many unsynced bytes are written
//! before it, piece by piece, and journals sync in between. Between two pieces the writer checks the time for a stop:
//! if none is left nothing is synced any more, and the rest is left to the system. The end of a process takes nothing
//! of its page cache, and the next start trusts no more than the last checkpoint says.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use riverrun_env::{File, OpenMode};
use riverrun_types::Offset;

use super::{DirWork, LogDir, list_partitions};
use crate::error::LogError;
use crate::file_names::LOG_SUFFIX;
use crate::listing::Listing;
use crate::segment::Segment;

/// Fewer bytes are left to the sync: these are a second's worth for the slowest of disks.
const AT_ONCE_BYTES: u64 = 8 * 1024 * 1024;
/// Bytes that the disk begins with at once.
const PIECE_BYTES: u64 = 1024 * 1024;
/// Bytes that a disk has at the same time if a caller waits for the checkpoint, so that it is never idle. Else it has
/// one piece, because each sync of a journal comes behind it. With 25 MB/s of records and a checkpoint every 5 s on a
/// virtual disk, acks were held up for 300 to 1,000 ms by each sync of everything, for 300 ms behind 8 MiB, and for 20
/// to 80 ms behind one.
const BEGUN_IN_HASTE_BYTES_MAX: u64 = 8 * PIECE_BYTES;
/// Files that are open for pieces.
const BEGUN_MAX: usize = 64;
/// Time between two looks at whether the disk has taken a piece.
const POLL: Duration = Duration::from_millis(1);
/// Rounds in which bytes that were appended meanwhile are written, too. A producer that is faster than the disk would
/// make it endless.
const ROUNDS_MAX: usize = 3;

/// Bytes of a segment's `.log` file that the disk may not have taken yet.
pub(crate) struct Unwritten {
    pub(crate) segment: Arc<Segment>,
    pub(crate) bytes: Range<u64>,
}

impl Unwritten {
    fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    /// The disk has these bytes.
    pub(super) fn note_written(&self) {
        self.segment.note_written_back(self.bytes.end);
    }
}

impl LogDir {
    /// Has the disk write the bytes in `unwritten`, and those of an earlier process, if they are many and not written
    /// yet. Nothing is durable when it returns. Returns the bytes that are left to the sync. Fails if the time to stop
    /// is over; then no sync may follow.
    pub(crate) fn write_back(
        &self,
        find_unwritten: impl Fn() -> Vec<Unwritten>,
    ) -> Result<Vec<Unwritten>, LogError> {
        if !self.has_synced_found() && self.may_have_much_unwritten() {
            self.write_back_found()?;
        }
        let mut rounds = 0;
        loop {
            let unwritten = find_unwritten();
            let bytes: u64 = unwritten.iter().map(Unwritten::len).sum();
            if bytes < AT_ONCE_BYTES || rounds == ROUNDS_MAX || !self.may_have_much_unwritten() {
                return self.check_time().map(|()| unwritten);
            }
            self.write_back_all(unwritten)?;
            rounds += 1;
        }
    }

    fn may_have_much_unwritten(&self) -> bool {
        self.env.fs.unwritten_bytes().is_none_or(|bytes| bytes >= AT_ONCE_BYTES)
    }

    fn write_back_all(&self, unwritten: Vec<Unwritten>) -> Result<(), LogError> {
        let mut begun = Begun::new(self);
        for Unwritten { segment, bytes } in unwritten {
            // A file that cannot be opened was removed or moved away, or is left to the sync.
            let Ok(file) = segment.log_file_once() else { continue };
            let path = segment.log_path();
            begun.write(&file, &path, bytes, Some(&segment))?;
        }
        begun.finish()
    }

    /// Has the disk write the bytes of an earlier process in the segments that the checkpoint does not cover.
    fn write_back_found(&self) -> Result<(), LogError> {
        let mut begun = Begun::new(self);
        // Files that cannot be listed or opened are left to the sync.
        for id in list_partitions(&self.env, &self.path).unwrap_or_default() {
            self.check_time()?;
            let covered = self.checkpointed(id).map_or(Offset::ZERO, |known| known.recovery_point);
            let dir = self.partition_path(id);
            let Ok(Listing { logs, .. }) = Listing::read(&self.env, &dir) else { continue };
            let ends = logs.iter().skip(1).map(|(next, _)| *next).chain([Offset(i64::MAX)]);
            let uncovered = logs.iter().zip(ends).filter(|(_, end)| *end > covered);
            for ((base, bytes), _) in uncovered {
                let path = dir.join(format!("{:020}{LOG_SUFFIX}", base.0));
                let Ok(file) = self.env.fs.open(&path, OpenMode::Read) else { continue };
                begun.write(&file, &path, 0..*bytes, None)?;
            }
        }
        begun.finish()
    }

    /// Logs how many bytes are left to the system's page cache, if any are.
    pub(crate) fn tell_unwritten(&self, unwritten: impl Iterator<Item = Unwritten>) {
        let bytes: u64 = unwritten.map(|part| part.len()).sum();
        if bytes > 0 {
            tracing::info!(
                path = %self.path.display(), bytes_max = bytes,
                "there was no time to sync this log dir: unsynced bytes are left to the system's page cache, which \
                 outlives the process; the next start recovers from the last checkpoint"
            );
        }
    }
}

/// A part of a file that the disk was told to begin with.
struct Piece {
    file: Arc<dyn File>,
    path: PathBuf,
    bytes: Range<u64>,
    segment: Option<Arc<Segment>>,
}

impl Piece {
    fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }
}

/// The pieces that a disk has, the oldest first.
///
/// Invariants: `bytes` are those of the pieces.
struct Begun<'a> {
    dir: &'a LogDir,
    pieces: VecDeque<Piece>,
    bytes: u64,
}

impl<'a> Begun<'a> {
    fn new(dir: &'a LogDir) -> Self {
        Self { dir, pieces: VecDeque::new(), bytes: 0 }
    }

    /// Has the disk begin with a part of a file, and waits for earlier pieces if it has too many.
    fn write(
        &mut self,
        file: &Arc<dyn File>,
        path: &Path,
        bytes: Range<u64>,
        segment: Option<&Arc<Segment>>,
    ) -> Result<(), LogError> {
        let mut from = bytes.start;
        while from < bytes.end {
            let bytes = from..bytes.end.min(from + PIECE_BYTES);
            from = bytes.end;
            let (file, path) = (file.clone(), path.to_path_buf());
            self.begin(Piece { file, path, bytes, segment: segment.cloned() })?;
        }
        Ok(())
    }

    fn begin(&mut self, piece: Piece) -> Result<(), LogError> {
        let bytes_max = if self.dir.hurry.is_any() { BEGUN_IN_HASTE_BYTES_MAX } else { PIECE_BYTES };
        while self.bytes + piece.len() > bytes_max || self.pieces.len() >= BEGUN_MAX {
            self.finish_oldest()?;
        }
        self.dir.check_time()?;
        let _working = self.dir.working(DirWork::Checkpoint);
        let _until_it_has_failed = self.dir.writing_back();
        let begun = piece.file.begin_write_back(piece.bytes.start, piece.len());
        begun.map_err(|error| self.dir.fail(&piece.path, &error))?;
        self.bytes += piece.len();
        self.pieces.push_back(piece);
        Ok(())
    }

    fn finish_oldest(&mut self) -> Result<(), LogError> {
        let Some(piece) = self.pieces.pop_front() else { return Ok(()) };
        self.dir.check_time()?;
        let _working = self.dir.working(DirWork::Checkpoint);
        // The system may have begun with many bytes by itself: the wait for a piece behind those cannot be ended
        // either.
        while !piece.file.is_at_rest(piece.bytes.start, piece.len()) {
            self.dir.check_time()?;
            self.dir.env.clock.sleep(POLL);
        }
        let until_it_has_failed = self.dir.writing_back();
        let finished = piece.file.finish_write_back(piece.bytes.start, piece.len());
        finished.map_err(|error| self.dir.fail(&piece.path, &error))?;
        drop(until_it_has_failed);
        self.bytes -= piece.len();
        if let Some(segment) = &piece.segment {
            segment.note_written_back(piece.bytes.end);
        }
        Ok(())
    }

    /// Waits for all pieces.
    fn finish(mut self) -> Result<(), LogError> {
        while !self.pieces.is_empty() {
            self.finish_oldest()?;
        }
        Ok(())
    }
}

//! Reading the frames of one file, in large pieces and past the page cache where the system allows it.
//!
//! A bad sector is damage like any other: it is read as zeros, which match no checksum. But bytes in a bad sector may
//! have been synced, wherever they lie: see [`FrameReader::is_unread`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use riverrun_env::{AlignedBuffer, File, is_device_error};

use crate::frames::{
    ALIGNMENTS, Claim, FRAME_HEADER_BYTES, FileHead, FileHeader, Frame, NoFrame, claim_of, decode_file_head,
    table_end,
};
use crate::{JournalError, JournalId};

/// Bytes that are read at once.
const WINDOW_BYTES: usize = 1024 * 1024;
/// Reads begin and end at multiples of this many bytes, or at the end of the file.
const BLOCK_BYTES: usize = 4096;
/// The way out with which every message about damage ends. A running server meets damage as well, and writes to the
/// files.
const WAY_OUT: &str = "with the server stopped, restore the file from a copy, or move all files of this journal away, those \
                       that begin with held- too, to give up what was not settled";
/// The way out that precedes it where the disk does not give something back.
const WAY_OUT_OF_UNREAD: &str = "bring its disk back, or stop the server, copy the file with zeros for what cannot be read, \
                                 and put the copy in its place, which gives up no more than that if a start takes it; else";

/// Places of a file that may be bad sectors. Beyond that number its disk is dead, and each read may take seconds.
const UNREAD_MAX: usize = 64;
/// The description of a place that the disk does not give back.
pub(crate) const UNREAD: &str = "the disk fails to read the bytes there";

/// Pieces of a file, whatever they contain.
struct Window {
    path: PathBuf,
    file: Arc<dyn File>,
    /// Size of the file, in bytes.
    len: u64,
    bytes: Bytes,
    at: u64,
    /// Bytes that the disk did not give back. They are not read again, so that later readers see the same.
    unread: Vec<Range<u64>>,
    /// The registry that gets the file once `unread` has an entry.
    noted_in: UnreadFiles,
}

/// Files that the disk does not give back in full, by path, and the places in each: once such a file is full, no
/// frame is written to it again. A reader gives up a file with more than [`UNREAD_MAX`] places, and the next reader
/// mostly finds the same ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadFiles(Arc<Mutex<BTreeMap<PathBuf, BTreeSet<u64>>>>);

impl UnreadFiles {
    /// Remembers the place; returns whether it is new.
    fn note_place(&self, path: &Path, position: u64) -> bool {
        self.0.lock().entry(path.to_path_buf()).or_default().insert(position)
    }

    pub(crate) fn has(&self, path: &Path) -> bool {
        self.0.lock().contains_key(path)
    }

    /// Forgets a file that is gone.
    pub(crate) fn forget(&self, path: &Path) {
        self.0.lock().remove(path);
    }
}

impl Window {
    fn new(path: &Path, file: Arc<dyn File>, len: u64, noted_in: &UnreadFiles) -> Self {
        let (path, bytes, at, noted_in) = (path.to_path_buf(), Bytes::new(), 0, noted_in.clone());
        Self { path, file, len, bytes, at, unread: Vec::new(), noted_in }
    }

    fn is_unread(&self, bytes: Range<u64>) -> bool {
        self.unread.iter().any(|unread| unread.start < bytes.end && bytes.start < unread.end)
    }

    /// `len` bytes from `offset` on, or fewer if the file ends before.
    fn read(&mut self, offset: u64, len: usize) -> io::Result<Bytes> {
        let end = self.at + self.bytes.len() as u64;
        if offset < self.at || offset + len as u64 > end {
            self.load(offset, len)?;
        }
        let skip = usize::try_from(offset - self.at).map_err(io::Error::other)?;
        let from = skip.min(self.bytes.len());
        Ok(self.bytes.slice(from..(skip + len).min(self.bytes.len()).max(from)))
    }

    fn load(&mut self, offset: u64, len: usize) -> io::Result<()> {
        let at = offset - offset % BLOCK_BYTES as u64;
        let left = usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX);
        let wanted = usize::try_from(offset - at).map_err(io::Error::other)? + len;
        let wanted = wanted.max(WINDOW_BYTES).min(left);
        let mut buffer = AlignedBuffer::zeroed(wanted.next_multiple_of(BLOCK_BYTES), BLOCK_BYTES);
        let (mut filled, mut is_by_block) = (0, false);
        while filled < wanted {
            let block_end = (filled + 1).next_multiple_of(BLOCK_BYTES);
            let end = if is_by_block { block_end } else { buffer.len() };
            match self.read_some(&mut buffer[filled..end], at + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                // Past the page cache a read fails as a whole, wherever in it the bad sector is.
                Err(error) if is_device_error(&error) && !is_by_block => is_by_block = true,
                Err(error) if is_device_error(&error) && self.unread.len() < UNREAD_MAX => {
                    let position = at + filled as u64;
                    if self.noted_in.note_place(&self.path, position) {
                        tracing::warn!(path = %self.path.display(), position, %error, "a place cannot be read");
                    }
                    buffer[filled..block_end].fill(0);
                    self.unread.push(at + filled as u64..at + block_end as u64);
                    filled = block_end;
                }
                Err(error) => return Err(error),
            }
        }
        buffer.truncate(filled.min(left));
        (self.bytes, self.at) = (Bytes::from_owner(buffer), at);
        Ok(())
    }

    /// Reads from `offset` on, with zeros where the disk failed to give something back before.
    fn read_some(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let size = buffer.len();
        let len = |upto: u64| usize::try_from(upto - offset).unwrap_or(usize::MAX).min(size);
        if let Some(unread) = self.unread.iter().find(|unread| unread.contains(&offset)) {
            let len = len(unread.end);
            buffer[..len].fill(0);
            return Ok(len);
        }
        let next = self.unread.iter().map(|unread| unread.start).filter(|start| *start > offset).min();
        let readable = next.map_or(size, len);
        self.file.read_at(&mut buffer[..readable], offset)
    }
}

/// Reads the frames of one file.
pub(crate) struct FrameReader {
    pub(crate) path: PathBuf,
    pub(crate) header: FileHeader,
    /// End of the file's readable bytes.
    len: u64,
    window: Window,
}

impl FrameReader {
    /// Reads the file's header; refuses a file without one.
    pub(crate) fn open(path: PathBuf, file: Arc<dyn File>) -> Result<Self, JournalError> {
        Self::open_noted(path, file, &UnreadFiles::default())
    }

    /// As [`Self::open`]; and registers the file in `unread` as soon as the disk does not give something back.
    pub(crate) fn open_noted(
        path: PathBuf,
        file: Arc<dyn File>,
        unread: &UnreadFiles,
    ) -> Result<Self, JournalError> {
        let io = |error| JournalError::io(&path, error);
        let len = file.len().map_err(io)?;
        let mut window = Window::new(&path, file, len, unread);
        let head = window.read(0, BLOCK_BYTES).map_err(io)?;
        match decode_file_head(&head) {
            FileHead::Used(header) => Ok(Self { path, header, len: len.min(header.bytes), window }),
            FileHead::Foreign(what) => Err(JournalError::format(&path, what)),
            FileHead::Damaged(what) => {
                let is_unread = window.is_unread(0..BLOCK_BYTES as u64);
                let what = if is_unread { UNREAD } else { what.as_str() };
                Err(JournalError::corrupt(&path, 0, with_way_out(what)))
            }
        }
    }

    /// Whether some of the `len` bytes from `position` on were read as zeros in place of bytes that the disk did not
    /// give back: whether those were synced once is unknown.
    pub(crate) fn is_unread(&self, position: u64, len: usize) -> bool {
        let offset = self.offset(position);
        self.window.is_unread(offset..offset + len as u64)
    }

    fn offset(&self, position: u64) -> u64 {
        position - self.header.start
    }

    /// Number of bytes that the file has from `position` on.
    pub(crate) fn bytes_from(&self, position: u64) -> usize {
        usize::try_from(self.len.saturating_sub(self.offset(position))).unwrap_or(usize::MAX)
    }

    fn read(&mut self, position: u64, len: usize) -> Result<Bytes, JournalError> {
        let offset = self.offset(position);
        self.window.read(offset, len).map_err(|error| JournalError::io(&self.path, error))
    }

    /// The frame at `position`, if there is one; an entry that this program cannot read is an error.
    pub(crate) fn frame_at(&mut self, position: u64) -> Result<Result<Frame, &'static str>, JournalError> {
        let bytes_max = self.bytes_from(position);
        let first = self.read(position, FRAME_HEADER_BYTES.min(bytes_max))?;
        let is_here = |claim: Claim| claim.position == position;
        let mut read = first.len();
        let frame = match table_end(&first, bytes_max) {
            // In a file that is used again, this may be a client's old payload. It may look like the beginning of a
            // frame with the largest table, in every block. So a table is only read where the journal's id stands,
            // which clients do not know.
            Ok(_) if !claim_of(&first, self.header.id).is_some_and(is_here) => {
                Err(NoFrame::Damaged("the frame there belongs elsewhere"))
            }
            Ok(end) => {
                read = end;
                let table = self.read(position, end)?;
                Frame::decode(&table, self.header.id, position, bytes_max)
            }
            Err(error) => Err(error),
        };
        match frame {
            Ok(frame) => Ok(Ok(frame)),
            Err(NoFrame::Damaged(_)) if self.is_unread(position, read) => Ok(Err(UNREAD)),
            Err(NoFrame::Damaged(what)) => Ok(Err(what)),
            Err(NoFrame::Foreign(what)) => Err(JournalError::format(&self.path, what)),
        }
    }

    /// Start of the next intact frame behind `position` and below `end`. No frame is intact at `position` itself.
    pub(crate) fn next_frame(&mut self, position: u64, end: u64) -> Result<Option<u64>, JournalError> {
        let mut next = position + u64::from(self.header.alignment);
        while next < end && self.bytes_from(next) > 0 {
            if self.frame_at(next)?.is_ok() {
                return Ok(Some(next));
            }
            next += u64::from(self.header.alignment);
        }
        Ok(None)
    }

    /// All bytes of a frame that [`Self::frame_at`] has found.
    pub(crate) fn bytes_of(&mut self, frame: &Frame) -> Result<Bytes, JournalError> {
        self.read(frame.header.position, frame.bytes)
    }

    /// Whether the file ends where no writer has ended it: inside the frame at `position`, or so close behind the
    /// frames before that the block of zeros is missing that was synced there.
    pub(crate) fn is_cut_at(&mut self, position: u64) -> Result<bool, JournalError> {
        let bytes = self.bytes_from(position);
        let block = u64::from(self.header.alignment);
        if position + block <= self.header.end() && (bytes as u64) < block {
            return Ok(true);
        }
        let first = self.read(position, FRAME_HEADER_BYTES.min(bytes))?;
        let claim = claim_of(&first, self.header.id).filter(|claim| claim.position == position);
        // A frame that does not fit into the file was never begun: such a size is that of a torn header.
        let fits =
            |claim: &Claim| (claim.end - position).is_multiple_of(block) && claim.end <= self.header.end();
        Ok(claim.filter(fits).is_some_and(|claim| claim.end - position > bytes as u64))
    }

    /// Whether the bytes at `position`, where no frame is intact, claim to be a frame of that place: a group that was
    /// torn, or has been damaged since.
    pub(crate) fn is_torn_at(&mut self, position: u64) -> Result<bool, JournalError> {
        let first = self.read(position, FRAME_HEADER_BYTES.min(self.bytes_from(position)))?;
        Ok(claim_of(&first, self.header.id).is_some_and(|claim| claim.position == position))
    }

    /// An error about the bytes at `position`.
    pub(crate) fn corrupt(&self, position: u64, what: &str) -> JournalError {
        JournalError::corrupt(&self.path, self.offset(position), with_way_out(what))
    }
}

fn with_way_out(what: &str) -> String {
    if what == UNREAD {
        format!("{what}; {WAY_OUT_OF_UNREAD} {WAY_OUT}")
    } else {
        format!("{what}; {WAY_OUT}")
    }
}

/// Facts from the frames in a file, read without regard to its header and to their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    /// End of the last possible frame with entries.
    pub(crate) entries_end: u64,
    /// End of the last possible frame of any kind.
    pub(crate) frames_end: u64,
    /// The highest settled position that an intact frame states; `None` if no frame is intact.
    pub(crate) settled: Option<u64>,
    /// Byte ranges of the file that the disk did not give back, behind the block with the file's header.
    pub(crate) unread: Vec<Range<u64>>,
}

impl Survey {
    /// Looks at every place in a file where a frame of journal `id` may begin, also a damaged or cut one.
    pub(crate) fn of(path: &Path, file: Arc<dyn File>, id: JournalId) -> io::Result<Self> {
        let len = file.len()?;
        let mut window = Window::new(path, file, len, &UnreadFiles::default());
        let mut survey = Self::default();
        for offset in (0..len).step_by(*ALIGNMENTS.start() as usize) {
            let first = window.read(offset, FRAME_HEADER_BYTES)?;
            let Some(claim) = claim_of(&first, id) else { continue };
            survey.frames_end = survey.frames_end.max(claim.end);
            if claim.has_entries {
                survey.entries_end = survey.entries_end.max(claim.end);
            }
            let left = usize::try_from(len - offset).unwrap_or(usize::MAX);
            let Ok(end) = table_end(&first, left) else { continue };
            let table = window.read(offset, end)?;
            if let Ok(frame) = Frame::decode(&table, id, claim.position, left) {
                survey.settled = survey.settled.max(Some(frame.settled()));
            }
        }
        survey.unread = window.unread;
        // With the smallest alignment, frames lie in the block with the header: those behind it tell of them.
        survey.unread.retain(|unread| unread.end > BLOCK_BYTES as u64 || survey.frames_end == 0);
        Ok(survey)
    }
}

#[cfg(test)]
mod tests {
    use riverrun_env::OpenMode;
    use riverrun_env::sim::SimEnv;

    use super::*;
    use crate::frames::FRAME_MAGIC;

    #[test]
    fn client_payload_like_a_frame_has_no_table_read() {
        const FILE_BYTES: usize = 8 * WINDOW_BYTES;
        let (path, alignment) = (Path::new("/file"), *ALIGNMENTS.start());
        let header = FileHeader {
            id: JournalId([7; 16]),
            alignment,
            start: 0,
            bytes: FILE_BYTES as u64,
            previous_end: 0,
            synced: 0,
            settled: 0,
        };
        let (last, alignment) = (FRAME_HEADER_BYTES - size_of::<u32>(), alignment as usize);
        let mut bytes = vec![0; FILE_BYTES];
        for start in (0..FILE_BYTES).step_by(alignment) {
            let entries = u32::try_from((FILE_BYTES - start) / crate::frames::ENTRY_BYTES - 1).unwrap();
            bytes[start..][..FRAME_MAGIC.len()].copy_from_slice(&FRAME_MAGIC);
            bytes[start + last..][..size_of::<u32>()].copy_from_slice(&entries.to_be_bytes());
        }
        let head = header.encode();
        bytes[..head.len()].copy_from_slice(&head);
        let sim = SimEnv::new(1);
        let env = sim.env();
        let file = env.fs.open(path, OpenMode::CreateNew).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        let mut reader = FrameReader::open(path.to_owned(), file).unwrap();
        for position in (alignment..FILE_BYTES).step_by(alignment) {
            assert!(reader.frame_at(position as u64).unwrap().is_err(), "at {position}");
            assert!(
                reader.window.bytes.len() <= WINDOW_BYTES,
                "read for {position}: {}",
                reader.window.bytes.len()
            );
        }
    }
}

//! The content of a whole index file, read to check it or to repair a log: all intact entries, and its first fault.

use std::io;
use std::path::Path;

use riverrun_env::{Env, File, OpenMode, is_odd_file};
use riverrun_records::layout;
use riverrun_types::Offset;

use crate::bad_sector::read_over;
use crate::error::LogError;
use crate::fields::DecodeError;
use crate::file_names::LOG_SUFFIX;
use crate::index::{ENTRY_BYTES, EntryCodec, HEADER_BYTES, IndexEntry, IndexHeader, entry_position};

/// Entries of an index that are read at once.
const READ_ENTRIES: usize = 4096;

/// The entries of an index, as far as they are intact.
#[derive(Debug, Default)]
pub(crate) struct IndexContent {
    pub(crate) entries: Vec<IndexEntry>,
    /// The file's first fault, and its position.
    pub(crate) flaw: Option<(u64, String)>,
}

impl IndexContent {
    /// Reads the file at `path`, which must have this header; the size of the `.log` beside it bounds its length. Fails
    /// only if the system cannot read.
    pub(crate) fn read(env: &Env, path: &Path, header: IndexHeader) -> Result<Self, LogError> {
        match env.fs.open(path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Self::broken(0, "the index is missing"))
            }
            Err(error) if is_odd_file(&error) => Ok(Self::broken(0, error.to_string())),
            Err(error) => Err(LogError::io(path, error)),
            Ok(file) => {
                let log_path = path.with_extension(&LOG_SUFFIX[1..]);
                let log = env.fs.open(&log_path, OpenMode::Read).and_then(|log| log.len());
                let log_bytes = log.map_err(|error| LogError::io(&log_path, error))?;
                Self::read_file(&*file, header, log_bytes).map_err(|error| LogError::io(path, error))
            }
        }
    }

    /// As [`Self::read`], for a file that is open and belongs to a `.log` of `log_bytes`.
    pub(crate) fn read_file(file: &dyn File, header: IndexHeader, log_bytes: u64) -> io::Result<Self> {
        let len = file.len()?;
        let mut head = [0; HEADER_BYTES];
        if len < HEADER_BYTES as u64 {
            return Ok(Self::broken(0, "the index has no header"));
        }
        if let Some(unread) = read_over(file, &mut head, 0)?.first() {
            return Ok(Self::broken(unread.start, DecodeError::Unreadable(unread.start).to_string()));
        }
        if let Err(error) = header.check(&head) {
            return Ok(Self::broken(0, error.to_string()));
        }
        let end = entry_position(entries_max(log_bytes));
        let mut content = Self::default();
        // One more than there can be: it tells where a `.log` that was cut went on to.
        content.read_entries(file, header.codec(), len.min(end + ENTRY_BYTES as u64))?;
        let is_log_cut = content.entries.last().is_some_and(|entry| u64::from(entry.position) > log_bytes);
        if len > end && !is_log_cut {
            let what = format!("more entries than there can be batches in a log of {log_bytes} bytes");
            content.flaw.get_or_insert((end, what));
        }
        Ok(content)
    }

    /// Takes in the entries up to `end`, a few at a time.
    fn read_entries(&mut self, file: &dyn File, codec: EntryCodec, end: u64) -> io::Result<()> {
        let mut buffer = vec![0; READ_ENTRIES * ENTRY_BYTES];
        let mut numbers = 0_u32..;
        let mut position = entry_position(0);
        while position < end {
            let len = usize::try_from(end - position).unwrap_or(usize::MAX).min(buffer.len());
            if let Some(unread) = read_over(file, &mut buffer[..len], position)?.first() {
                let what = DecodeError::Unreadable(unread.start).to_string();
                self.flaw.get_or_insert((unread.start, what));
            }
            for (chunk, number) in buffer[..len].chunks(ENTRY_BYTES).zip(&mut numbers) {
                match codec.decode(number, chunk) {
                    Ok(entry) => self.entries.push(entry),
                    Err(error) => {
                        self.flaw.get_or_insert_with(|| (entry_position(number), error.to_string()));
                    }
                }
            }
            position += len as u64;
        }
        Ok(())
    }

    fn broken(position: u64, what: impl Into<String>) -> Self {
        Self { entries: Vec::new(), flaw: Some((position, what.into())) }
    }

    /// The offset that the entries before `position` reach.
    pub(crate) fn whole_up_to(&self, position: u64, base: Offset) -> Offset {
        let is_before = |(number, _): &(u32, &IndexEntry)| entry_position(*number) < position;
        let last = (0..).zip(&self.entries).take_while(is_before).last();
        last.map_or(base, |(_, entry)| base.plus(i64::from(entry.relative_offset)))
    }
}

/// Entries that the index of a `.log` of so many bytes can have: each lies behind another batch, none of which is
/// smaller than its header, at a position of 32 bits.
fn entries_max(log_bytes: u64) -> u32 {
    let batches = log_bytes.min(u64::from(u32::MAX)) / layout::HEADER_BYTES as u64;
    u32::try_from(batches).expect("a part of 32 bits")
}

#[cfg(test)]
mod tests;

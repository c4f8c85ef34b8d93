//! Reading a journal again while it is in use, for a user who cannot read back what they made of its entries.
//!
//! Guarantees that nothing is left out: a file that should be there and is not ends the reading with an error.
//! Settled files may vanish or change at any time; they are not needed and are passed over.

use std::io;

use riverrun_types::Position;

use super::Journal;
use crate::JournalError;
use crate::files::{FileName, open_to_recover};
use crate::reader::FrameReader;
use crate::recovery::{Excluded, check_present};
use crate::replay::{Replay, ReplayFile};

impl Journal {
    /// The entries delivered at `from` or later, in the order of positions. The journal may not be settled beyond
    /// `from`.
    pub fn reread(&self, from: Position) -> Result<Replay, JournalError> {
        let from = from.max(self.settled()).0;
        // Read before the files are looked up: a delivered entry is in a file that has its name.
        let end = self.delivered().0;
        let files = if from < end { self.files_between(from, end)? } else { Vec::new() };
        let excluded = Excluded { settled: from, ..Excluded::default() };
        let (env, dir) = (self.shared.env.clone(), self.dir.clone());
        Ok(Replay::new(env, dir, self.id, Vec::new(), files, excluded))
    }

    /// The files that hold the frames from `from` to `end`.
    fn files_between(&self, from: u64, end: u64) -> Result<Vec<ReplayFile>, JournalError> {
        let (mut readers, trouble) = self.readers()?;
        readers.retain(|reader| reader.header.start < end);
        let ends: Vec<_> = readers.iter().skip(1).map(|next| next.header.previous_end).chain([end]).collect();
        let mut files: Vec<ReplayFile> = Vec::with_capacity(ends.len());
        for (reader, end) in readers.into_iter().zip(ends) {
            let is_before_there =
                files.last().is_some_and(|before| before.reader.header.next_start() == reader.header.start);
            check_present(&reader, from, is_before_there)
                .map_err(|error| trouble.clone().unwrap_or(error))?;
            files.push(ReplayFile::new(reader, end));
        }
        if files.last().is_none_or(|last| end > last.reader.header.end()) {
            let what = format!("the file with the entries before position {end} is missing");
            return Err(trouble.unwrap_or_else(|| JournalError::corrupt(&self.dir, 0, what)));
        }
        files.retain(|file| file.end > from);
        Ok(files)
    }

    /// Every file that can be read, in the order of positions, and the error of the first that cannot.
    fn readers(&self) -> Result<(Vec<FrameReader>, Option<JournalError>), JournalError> {
        let env = &self.shared.env;
        let listed = env.fs.read_dir(&self.dir).map_err(|error| JournalError::io(&self.dir, error))?;
        let names = listed.iter().filter_map(|entry| FileName::parse(entry.name.to_str()?));
        let (mut readers, mut trouble) = (Vec::new(), None);
        for path in names.filter(|name| name.is_named).map(|name| name.path(&self.dir)) {
            let opened =
                open_to_recover(env, &path).map_err(|error| (error.kind(), JournalError::io(&path, error)));
            let read = opened.and_then(|file| {
                let reader = FrameReader::open_noted(path, file, &self.shared.unread);
                reader.map_err(|error| (io::ErrorKind::InvalidData, error))
            });
            match read {
                Ok(reader) => readers.push(reader),
                Err((io::ErrorKind::NotFound, _)) => {}
                Err((_, error)) => _ = trouble.get_or_insert(error),
            }
        }
        readers.sort_by_key(|reader| reader.header.start);
        Ok((readers, trouble))
    }
}

//! Reads the recorder's file while it is being written.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use super::event::Event;

/// A place in a recorder's file.
///
/// Invariants: `line` has the beginning of a line that is not complete yet.
pub(super) struct Follow {
    file: PathBuf,
    reader: Option<BufReader<File>>,
    line: String,
}

impl Follow {
    /// Begins at the beginning of the file, which need not exist yet.
    pub(super) fn new(file: &Path) -> Self {
        Self { file: file.to_owned(), reader: None, line: String::new() }
    }

    /// Passes the events since the last call to `each`.
    pub(super) fn read_on(
        &mut self,
        mut each: impl FnMut(Event) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            // The recorder makes the file before it writes anything.
            none if self.file.exists() => none.insert(BufReader::new(File::open(&self.file)?)),
            _ => return Ok(()),
        };
        while reader.read_line(&mut self.line)? > 0 {
            if !self.line.ends_with('\n') {
                break;
            }
            each(self.line.parse()?)?;
            self.line.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn incomplete_line_is_read_once_it_is_complete() {
        let file = std::env::temp_dir().join(format!("riverrun-follow-{}", std::process::id()));
        let mut follow = Follow::new(&file);
        let mut crashes = || {
            let mut found = Vec::new();
            let mut add = |event| {
                found.push(event);
                Ok(())
            };
            follow.read_on(&mut add).unwrap();
            found
        };
        assert_eq!(crashes(), []);
        let mut written = File::create(&file).unwrap();
        written.write_all(b"crash 1\ncra").unwrap();
        assert_eq!(crashes(), [Event::Crash(1)]);
        written.write_all(b"sh 2\n").unwrap();
        assert_eq!(crashes(), [Event::Crash(2)]);
        std::fs::remove_file(&file).unwrap();
    }
}

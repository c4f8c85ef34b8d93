//! Making journal files that hold nothing yet and have no name.
//!
//! Owns how a file is opened for writing. Guarantees that a new file is empty, and named so that a restart removes
//! it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::{Env, File, OpenMode};

use crate::SyncMethod;
use crate::files::{FileName, NoRoom};
use crate::prefill::PrefilledRange;

/// Everything that is needed to make a file, on any thread.
#[derive(Clone, Debug)]
pub(crate) struct FileMaker {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) sync_method: SyncMethod,
    pub(crate) number: u64,
    /// Size that the file will have.
    pub(crate) bytes: u64,
}

/// A new file, which has no name yet.
#[derive(Debug)]
pub(crate) struct MadeFile {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    pub(crate) room: Arc<PrefilledRange>,
    maker: FileMaker,
}

impl FileMaker {
    pub(crate) fn path(&self) -> PathBuf {
        FileName { number: self.number, is_named: false }.path(&self.dir)
    }

    /// Makes an empty file without room. Nothing is durable when it returns.
    pub(crate) fn make(&self) -> Result<MadeFile, NoRoom> {
        let path = self.path();
        let made = self.env.fs.open(&path, OpenMode::CreateOrOpen).and_then(|file| file.set_len(0));
        made.map_err(|error| NoRoom::of(&path, error))?;
        self.open(0)
    }

    /// Opens the file, of which `filled` bytes are zeros or stale frames.
    pub(crate) fn open(&self, filled: u64) -> Result<MadeFile, NoRoom> {
        let path = self.path();
        let open = || self.open_for_writing(&path).map_err(|error| NoRoom::of(&path, error));
        let (file, to_fill) = (open()?, open()?);
        let room = Arc::new(PrefilledRange::new(to_fill, self.bytes, filled));
        Ok(MadeFile { number: self.number, path, file, room, maker: self.clone() })
    }

    fn open_for_writing(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        if self.sync_method == SyncMethod::DirectDsync {
            match self.env.fs.open_direct(path) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    tracing::warn!(%error, "the journal goes through the page cache instead");
                }
                result => return result,
            }
        }
        self.env.fs.open(path, OpenMode::ReadWrite)
    }
}

impl MadeFile {
    /// A maker of the same file with `bytes`; `None` if that is no smaller.
    pub(crate) fn smaller(&self, bytes: u64) -> Option<FileMaker> {
        (self.maker.bytes > bytes).then(|| FileMaker { bytes, ..self.maker.clone() })
    }

    /// Removes the file, which gives its place on the disk back. If that fails, the next start removes it.
    pub(crate) fn remove(&self) {
        if let Err(error) = self.maker.env.fs.remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "a journal file without a name is left behind");
        }
    }
}

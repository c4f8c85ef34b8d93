//! The file systems of a log dir's partitions: the dir's own, and those to which links or mounts in it lead.
//!
//! A partition whose directory was brought to another disk and linked is served like any other. So a sync has to
//! include that disk, too: otherwise a checkpoint would say of the partition more than any disk has.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use riverrun_env::{FileSystem, Volume};

use crate::error::LogError;

/// The file systems, open for as long as the dir is in use.
#[derive(Debug)]
pub(super) struct Volumes {
    own: Arc<dyn Volume>,
    others: Mutex<Vec<Arc<dyn Volume>>>,
}

impl Volumes {
    /// Opens the file system of the log dir at `path`.
    pub(super) fn open(fs: &dyn FileSystem, path: &Path) -> io::Result<Self> {
        Ok(Self { own: fs.open_volume(path)?, others: Mutex::default() })
    }

    /// Has every later sync include the file system of directory `path`. A new one is synced at once, so that the dir's
    /// statements about a partition hold for files there, too.
    pub(super) fn include(&self, fs: &dyn FileSystem, path: &Path) -> Result<(), LogError> {
        let io = |error| LogError::io(path, error);
        if self.own.holds(path).map_err(io)? {
            return Ok(());
        }
        let mut others = self.others.lock();
        for other in &*others {
            if other.holds(path).map_err(io)? {
                return Ok(());
            }
        }
        let other = fs.open_volume(path).map_err(io)?;
        other.sync().map_err(|error| LogError::sync(path, error))?;
        tracing::info!(path = %path.display(), "a link or a mount leads out of the log dir's file system: syncs go there, too");
        others.push(other);
        Ok(())
    }

    /// Makes durable all that was written to any of them before the call.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.all().iter().try_for_each(|volume| volume.sync())
    }

    /// Whether a sync of each of them tells of lost bytes.
    pub(super) fn tell_of_lost_writes(&self) -> bool {
        self.all().iter().all(|volume| volume.tells_of_lost_writes())
    }

    fn all(&self) -> Vec<Arc<dyn Volume>> {
        let others = self.others.lock();
        std::iter::once(&self.own).chain(&*others).cloned().collect()
    }
}

//! The file systems that the partitions of a log dir lie on: the dir's own, and those to which links or mounts in it lead.
//!
//! A partition whose directory was brought to another disk and linked is served like any other. So a sync has to stand for
//! that disk, too: a checkpoint would say of the partition what no disk has.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use riverrun_env::{FileSystem, Volume};

use crate::error::LogError;

/// Open for as long as the dir is in use.
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

    /// Has every later sync stand for the directory `path`, also if it lies on another file system. If that is a new one,
    /// what was there already is synced, so that who opens a partition there may believe what is said of the dir's own.
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

    /// Makes everything durable that was written to any of them before the call.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.all().iter().try_for_each(|volume| volume.sync())
    }

    /// Whether a sync of each of them tells what was lost.
    pub(super) fn tell_of_lost_writes(&self) -> bool {
        self.all().iter().all(|volume| volume.tells_of_lost_writes())
    }

    fn all(&self) -> Vec<Arc<dyn Volume>> {
        let others = self.others.lock();
        std::iter::once(&self.own).chain(&*others).cloned().collect()
    }
}

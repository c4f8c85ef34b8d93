//! Whether the device of a log dir still takes writes.
//!
//! ```text
//! device-check
//!   magic "RRdevice"   8
//!   version            u16
//!   zero               u16
//! ```
//! Big-endian, and never read: the bytes are written over themselves and synced. A healthy disk does that, however full
//! it is; a device that is gone does not. The file is for this alone: the system tells a failed write once for each
//! open file, so on a shared file one user would take the error meant for another.

use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use riverrun_env::{File, FileSystem, OpenMode, atomic_replace};

use super::LogDir;
use crate::error::LogError;

/// Name of the file in a log dir.
pub(super) const DEVICE_CHECK_FILE: &str = "device-check";
const CONTENT: &[u8; 12] = b"RRdevice\x00\x01\x00\x00";
/// Least time between two looks at the device: each costs a sync.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Whether a look at the device is due.
#[derive(Debug, Default)]
pub(super) struct Looks {
    is_asked_for: bool,
    /// The time at which an error last asked for it.
    asked_at: Option<Duration>,
}

/// Opens the file of a log dir, and makes it if it is missing.
pub(super) fn open(fs: &dyn FileSystem, dir: &Path) -> Result<Arc<dyn File>, LogError> {
    let path = dir.join(DEVICE_CHECK_FILE);
    let io = |error| LogError::io(&path, error);
    if !fs.exists(&path).map_err(io)? {
        atomic_replace(fs, &path, CONTENT).map_err(|error| io(error.into()))?;
    }
    fs.open(&path, OpenMode::ReadWrite).map_err(io)
}

impl LogDir {
    /// Whether the device still takes writes; the dir fails if it does not. Costs a sync.
    pub(crate) fn look_at_device(&self) -> Result<(), LogError> {
        self.check_usable()?;
        let Some(file) = self.device.as_ref().filter(|_| self.check_open().is_ok()) else { return Ok(()) };
        let path = self.path.join(DEVICE_CHECK_FILE);
        let written = file.write_all_at(CONTENT, 0).and_then(|()| file.sync_data());
        written.or_else(|error| match LogError::write(&path, error) {
            LogError::Write { source, .. } => Err(self.fail(&path, &source)),
            // The bytes were there before, and are never needed: a shortage says nothing of the device.
            _ => Ok(()),
        })
    }

    /// Has the settler look at the device soon. Waits for nothing: the caller may be in a hurry, or hold a lock.
    pub(super) fn ask_for_look(&self) {
        let now = self.env.clock.monotonic();
        let mut looks = self.looks.lock();
        if looks.asked_at.is_some_and(|before| now < before.saturating_add(LOOK_PAUSE)) {
            return;
        }
        *looks = Looks { is_asked_for: true, asked_at: Some(now) };
        drop(looks);
        self.alarm.raise();
    }

    /// As [`Self::look_at_device`], if an error has asked for it.
    pub(crate) fn look_if_asked(&self) -> Result<(), LogError> {
        let is_asked_for = mem::take(&mut self.looks.lock().is_asked_for);
        if is_asked_for && !self.has_failed() { self.look_at_device() } else { Ok(()) }
    }
}

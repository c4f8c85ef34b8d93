//! How the writer of the metadata is, for those who do not wait for it: its disk may not answer, and whoever asks how the
//! server is must be answered then, too.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use riverrun_env::Clock;

use super::Writer;
use crate::metadata::copies::Behind;

/// The state of the writer as its last turn has left it.
///
/// Invariants: what it tells of a turn with the writer is there before the next turn begins. Its lock is held for no work.
#[derive(Debug, Default)]
pub(super) struct Standing(Mutex<Known>);

#[derive(Clone, Debug, Default)]
struct Known {
    poison: Option<String>,
    copy_trouble: Option<String>,
    /// Since when the disk has been asked, by monotonic time, while it is.
    asked_since: Option<Duration>,
}

impl Standing {
    /// Takes the turn with the writer. Waits for whoever has it.
    pub(super) fn turn<'a>(&'a self, writer: &'a Mutex<Writer>) -> Turn<'a> {
        Turn { writer: writer.lock(), standing: self }
    }

    /// Why nothing changes any more, as the last turn has left it.
    pub(super) fn failure(&self) -> Option<String> {
        self.0.lock().poison.clone()
    }

    /// The error that keeps the copy of the snapshot older than the snapshot, as the last turn has left it.
    pub(super) fn copy_trouble(&self) -> Option<String> {
        self.0.lock().copy_trouble.clone()
    }

    /// Since when whoever has the turn waits for the disk, by monotonic time.
    pub(super) fn asked_since(&self) -> Option<Duration> {
        self.0.lock().asked_since
    }
}

/// The writer, for one at a time.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    writer: MutexGuard<'a, Writer>,
    standing: &'a Standing,
}

impl Turn<'_> {
    /// The rest of the turn waits for the disk.
    pub(super) fn asks_disk(&self, clock: &dyn Clock) {
        self.standing.0.lock().asked_since = Some(clock.monotonic());
    }
}

impl Deref for Turn<'_> {
    type Target = Writer;

    fn deref(&self) -> &Writer {
        &self.writer
    }
}

impl DerefMut for Turn<'_> {
    fn deref_mut(&mut self) -> &mut Writer {
        &mut self.writer
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Writer { poison, behind, .. } = &*self.writer;
        let copy_trouble = behind.as_ref().map(Behind::trouble);
        *self.standing.0.lock() = Known { poison: poison.clone(), copy_trouble, asked_since: None };
    }
}

//! The state of the metadata's writer, for callers that must not wait for it: its disk may not answer, and `/health` has to
//! answer even then.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use riverrun_env::Clock;

use super::Writer;
use crate::metadata::copies::Behind;

/// The state of the writer, as the last holder of its lock has left it.
///
/// Invariants: the state is taken over before the writer's lock is free again. Its own lock is held for no work.
#[derive(Debug, Default)]
pub(super) struct Standing(Mutex<Known>);

#[derive(Clone, Debug, Default)]
struct Known {
    poison: Option<String>,
    copy_trouble: Option<String>,
    /// Since when the holder of the writer's lock waits for the disk, by monotonic time, if it does.
    asked_since: Option<Duration>,
}

impl Standing {
    /// Locks the writer. Waits for its holder.
    pub(super) fn lock<'a>(&'a self, writer: &'a Mutex<Writer>) -> WriterGuard<'a> {
        WriterGuard { writer: writer.lock(), standing: self }
    }

    /// Why nothing changes any more, as the last holder has left it.
    pub(super) fn failure(&self) -> Option<String> {
        self.0.lock().poison.clone()
    }

    /// The error that keeps the copy of the snapshot older than the snapshot, as the last holder has left it.
    pub(super) fn copy_trouble(&self) -> Option<String> {
        self.0.lock().copy_trouble.clone()
    }

    /// Since when the holder of the writer's lock waits for the disk, by monotonic time, if it does.
    pub(super) fn asked_since(&self) -> Option<Duration> {
        self.0.lock().asked_since
    }
}

/// The locked writer. Its state goes to the [`Standing`] when it is unlocked.
#[derive(Debug)]
pub(super) struct WriterGuard<'a> {
    writer: MutexGuard<'a, Writer>,
    standing: &'a Standing,
}

impl WriterGuard<'_> {
    /// Notes that the holder waits for the disk from here on.
    pub(super) fn asks_disk(&self, clock: &dyn Clock) {
        self.standing.0.lock().asked_since = Some(clock.monotonic());
    }
}

impl Deref for WriterGuard<'_> {
    type Target = Writer;

    fn deref(&self) -> &Writer {
        &self.writer
    }
}

impl DerefMut for WriterGuard<'_> {
    fn deref_mut(&mut self) -> &mut Writer {
        &mut self.writer
    }
}

impl Drop for WriterGuard<'_> {
    fn drop(&mut self) {
        let Writer { poison, behind, .. } = &*self.writer;
        let copy_trouble = behind.as_ref().map(Behind::trouble);
        *self.standing.0.lock() = Known { poison: poison.clone(), copy_trouble, asked_since: None };
    }
}

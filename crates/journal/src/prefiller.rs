//! What is done ahead of the journal's thread: the file that it writes to is filled to its end, and the one that comes
//! next, the *spare*, is made and filled, so that a group under steady load waits for its own sync only.
//!
//! Owns the spare until the writer takes it. The work is a [`Prefiller::step`] of the journal's second worker, which a test calls when it
//! likes. At most one file is made ahead, and only where the writer could otherwise not
//! but make one.
//!
//! Where the volume is in its reserve, nothing is filled that need not be; a spare stays as large as it is. A spare for
//! which there is no space at all is made once more as a small one, which the writer needs to use a file again in which
//! everything is settled while it is the only one.
//!
//! Nothing that was acked depends on a spare, so if the system is short of something, or a write or a sync of it fails,
//! it is given up and removed, and the writer makes the file itself when it needs it. That does not poison the journal:
//! the writer's own attempt does, if the disk is no better then. If the file that is written to cannot be filled for
//! anything but a shortage, frames are in it, and the writer fails with the next group.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use riverrun_env::{Step, Wake};

use crate::file_maker::{FileMaker, MadeFile};
use crate::files::NoRoom;
use crate::prefill::{FIRST_STEP_BYTES, PrefilledRange};
use crate::volume::Volume;

/// What the writer wants, and what there is.
///
/// Invariants: at most one of `order` and `spare` is set.
#[derive(Debug, Default)]
struct State {
    /// The file that is written to, until it is full.
    current: Option<(Arc<PrefilledRange>, PathBuf)>,
    /// A file to be made.
    order: Option<FileMaker>,
    spare: Option<MadeFile>,
    has_ended: bool,
}

/// Shared by the writer and the thread that works ahead. The lock is never held while the disk is waited for, apart
/// from making an empty file or removing one.
#[derive(Debug)]
pub(crate) struct Prefiller {
    volume: Volume,
    state: Mutex<State>,
    /// Wakes the worker that works ahead, once there is one.
    wake: OnceLock<Wake>,
}

impl Prefiller {
    pub(crate) fn new(volume: Volume) -> Self {
        Self { volume, state: Mutex::default(), wake: OnceLock::new() }
    }

    /// Wants the file that is written to be filled to its end.
    pub(crate) fn fill(&self, room: Arc<PrefilledRange>, path: PathBuf) {
        self.state.lock().current = Some((room, path));
        self.wake();
    }

    /// Wants a spare, unless there is one that is as large.
    pub(crate) fn order(&self, maker: FileMaker) {
        let mut state = self.state.lock();
        if let Some(small) = state.spare.take_if(|spare| spare.room.bytes() < maker.bytes) {
            small.remove();
        }
        if state.spare.is_none() {
            state.order = Some(maker);
            drop(state);
            self.wake();
        }
    }

    /// Whether a spare of `bytes` is there or will be.
    pub(crate) fn has_spare(&self, bytes: u64) -> bool {
        let state = self.state.lock();
        state.order.as_ref().is_some_and(|order| order.bytes >= bytes)
            || state.spare.as_ref().is_some_and(|spare| spare.room.bytes() >= bytes)
    }

    /// Takes the spare, if it has `bytes` and is filled to its end or `is_part_welcome`. What was ordered is no longer
    /// wanted if it is welcome in any state and not there.
    pub(crate) fn take(&self, is_part_welcome: bool, bytes: u64) -> Option<MadeFile> {
        let mut state = self.state.lock();
        if is_part_welcome {
            state.order = None;
        }
        state.spare.take_if(|spare| spare.room.bytes() >= bytes && (is_part_welcome || spare.room.is_full()))
    }

    /// Nothing is wanted any more.
    pub(crate) fn end(&self) {
        self.state.lock().has_ended = true;
        self.wake();
    }

    /// Has this woken whenever something is wanted.
    pub(crate) fn wakes(&self, wake: Wake) {
        // The first one lives as long as the writer.
        let _ = self.wake.set(wake);
    }

    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake.wake();
        }
    }

    /// Does a part of what is wanted: makes a file, or fills a part of one.
    pub(crate) fn step(&self) -> Step {
        let (room, path) = {
            let mut state = self.state.lock();
            if state.has_ended {
                return Step::Done;
            }
            match state.next() {
                Some(next) => next,
                None => return state.make(),
            }
        };
        if room.filled() >= FIRST_STEP_BYTES && self.volume.is_in_reserve() {
            self.state.lock().leave(&room);
            return Step::Again;
        }
        let result = room.fill_step(&path);
        let mut state = self.state.lock();
        if let Err(reason) = result {
            state.give_up(&room, &reason);
        }
        // A full file is not held open here.
        state.current.take_if(|(current, _)| current.is_full());
        Step::Again
    }
}

impl State {
    /// What is to be filled: the file that is written to comes first.
    fn next(&self) -> Option<(Arc<PrefilledRange>, PathBuf)> {
        let current = self.current.iter().map(|(room, path)| (room, path));
        let spare = self.spare.iter().map(|spare| (&spare.room, &spare.path));
        let mut wanted = current.chain(spare);
        wanted.find(|(room, _)| !room.is_full()).map(|(room, path)| (room.clone(), path.clone()))
    }

    /// Makes what was ordered.
    fn make(&mut self) -> Step {
        let Some(order) = self.order.take() else { return Step::Sleep(None) };
        match order.make() {
            Ok(made) => self.spare = Some(made),
            Err(reason) => tracing::warn!(?reason, "no journal file could be made ahead"),
        }
        Step::Again
    }

    /// Leaves this file as it is: the writer may fill the one that it writes to, and a spare is used as far as it goes.
    fn leave(&mut self, room: &Arc<PrefilledRange>) {
        self.current.take_if(|(current, _)| Arc::ptr_eq(current, room));
        if self.spare.as_ref().is_some_and(|spare| Arc::ptr_eq(&spare.room, room)) {
            room.leave();
        }
    }

    /// Fills this file no further. If it is the one that is written to, the writer fills it as it can, and learns of a
    /// failure.
    fn give_up(&mut self, room: &Arc<PrefilledRange>, reason: &NoRoom) {
        self.current.take_if(|(current, _)| Arc::ptr_eq(current, room));
        if let Some(spare) = self.spare.take_if(|spare| Arc::ptr_eq(&spare.room, room)) {
            tracing::warn!(path = %spare.path.display(), %reason, "a journal file could not be filled ahead");
            spare.remove();
            if matches!(reason, NoRoom::Shortage(_)) && room.filled() > 0 {
                self.order = spare.smaller(FIRST_STEP_BYTES);
            }
        }
    }
}

//! Work ahead of the journal's thread. The prefiller fills the current file to its end, and makes and fills the next
//! file, the *spare*, so that under steady load a group waits only for its own sync.
//!
//! Owns the spare until the writer takes it. The work is a [`Prefiller::step`] of the journal's second worker, which
//! a test calls when it likes. At most one file is made ahead, and only where the writer would otherwise have to make
//! one.
//!
//! While the volume is in its reserve, only needed bytes are filled, and a spare keeps its size. A spare that finds
//! no space at all is made once more as a small one: the writer needs that to use its only file again, in which
//! everything is settled.
//!
//! No acked byte depends on a spare. If the system lacks something, or a write or a sync of the spare fails, the
//! prefiller gives it up and removes it, and the writer makes the file itself when it needs it. That does not poison
//! the journal: the writer's own attempt does, if the disk is no better then. The current file holds frames: if
//! filling it fails for anything but a shortage, the writer fails with the next group.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use riverrun_env::{Step, Wake};

use crate::file_maker::{FileMaker, MadeFile};
use crate::files::NoRoom;
use crate::prefill::{FIRST_STEP_BYTES, PrefilledRange};
use crate::volume::Volume;

/// The writer's orders, and the spare.
///
/// Invariants: at most one of `order` and `spare` is set.
#[derive(Debug, Default)]
struct State {
    /// The current file, until it is full.
    current: Option<(Arc<PrefilledRange>, PathBuf)>,
    /// The file to be made.
    order: Option<FileMaker>,
    spare: Option<MadeFile>,
    has_ended: bool,
}

/// Shared by the writer and the prefiller's worker. The lock is never held while the disk is waited for, apart from
/// making an empty file or removing one.
#[derive(Debug)]
pub(crate) struct Prefiller {
    volume: Volume,
    state: Mutex<State>,
    /// Wakes the prefiller's worker, once it runs.
    wake: OnceLock<Wake>,
}

impl Prefiller {
    pub(crate) fn new(volume: Volume) -> Self {
        Self { volume, state: Mutex::default(), wake: OnceLock::new() }
    }

    /// Orders the current file to be filled to its end.
    pub(crate) fn fill(&self, room: Arc<PrefilledRange>, path: PathBuf) {
        self.state.lock().current = Some((room, path));
        self.wake();
    }

    /// Orders a spare, unless there is one that is as large.
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

    /// Whether a spare of `bytes` exists or is ordered.
    pub(crate) fn has_spare(&self, bytes: u64) -> bool {
        let state = self.state.lock();
        state.order.as_ref().is_some_and(|order| order.bytes >= bytes)
            || state.spare.as_ref().is_some_and(|spare| spare.room.bytes() >= bytes)
    }

    /// Takes the spare, if it has `bytes` and is filled to its end or `is_part_welcome`. If a spare is welcome in any
    /// state and there is none, the order is withdrawn.
    pub(crate) fn take(&self, is_part_welcome: bool, bytes: u64) -> Option<MadeFile> {
        let mut state = self.state.lock();
        if is_part_welcome {
            state.order = None;
        }
        state.spare.take_if(|spare| spare.room.bytes() >= bytes && (is_part_welcome || spare.room.is_full()))
    }

    /// Withdraws all orders.
    pub(crate) fn end(&self) {
        self.state.lock().has_ended = true;
        self.wake();
    }

    /// Sets the wake that is called at each order.
    pub(crate) fn wakes(&self, wake: Wake) {
        // The first one lives as long as the writer.
        let _ = self.wake.set(wake);
    }

    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake.wake();
        }
    }

    /// Does a part of the ordered work: makes a file, or fills a part of one.
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
    /// The file to fill: the current one comes first.
    fn next(&self) -> Option<(Arc<PrefilledRange>, PathBuf)> {
        let current = self.current.iter().map(|(room, path)| (room, path));
        let spare = self.spare.iter().map(|spare| (&spare.room, &spare.path));
        let mut wanted = current.chain(spare);
        wanted.find(|(room, _)| !room.is_full()).map(|(room, path)| (room.clone(), path.clone()))
    }

    /// Makes the ordered file.
    fn make(&mut self) -> Step {
        let Some(order) = self.order.take() else { return Step::Sleep(None) };
        match order.make() {
            Ok(made) => self.spare = Some(made),
            Err(reason) => tracing::warn!(?reason, "no journal file could be made ahead"),
        }
        Step::Again
    }

    /// Leaves this file as it is: the writer fills the current one where it can, and a spare is used as far as it is
    /// filled.
    fn leave(&mut self, room: &Arc<PrefilledRange>) {
        self.current.take_if(|(current, _)| Arc::ptr_eq(current, room));
        if self.spare.as_ref().is_some_and(|spare| Arc::ptr_eq(&spare.room, room)) {
            room.leave();
        }
    }

    /// Fills this file no further. If it is the current one, the writer fills it as it can, and learns of a failure.
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

//! Steps that take long: on a part that is lent, while the shard's other parts go on.
//!
//! Owns the choice of how a step is done. One that costs little is done under the shard's lock, on the spot. For any other
//! the part leaves its shard ([`super::LentPart`]), is worked on without a lock, and its records are appended a piece at a
//! time, before it is taken back. Requests for the part wait meanwhile in its [line](super::line). Guarantees that a part
//! is back, or its shard is loaded again, before anybody is answered; a client that goes away interrupts nothing.

use std::sync::Arc;

use riverrun_coordinator::{Now, STEP_COST_MAX};
use riverrun_log::AppendError;
use riverrun_protocol::ErrorCode;
use tokio::sync::oneshot;

use super::line::{Asker, Full};
use super::machine::{LentPart, ShardRecord, StateMachine, Step};
use super::slot::{Loaded, Slot, SlotState};
use super::{ShardHost, batches};
use crate::aside::{waiting, without_the_thread};

/// The part of its shard that a step works on, its sender, and its cost.
pub(crate) struct Work<'a, C> {
    pub(crate) asker: Asker,
    pub(crate) key: &'a str,
    /// Its cost, as [`STEP_COST_MAX`] counts.
    pub(crate) cost: C,
}

/// A part that is out, and which load of its shard has lent it.
struct Out<L> {
    lent: L,
    load: u64,
}

impl<M: StateMachine> ShardHost<M> {
    /// One step on a part, at once or at length. `notice` is told when it is durable.
    pub(crate) async fn step_of(
        &self,
        index: usize,
        work: Work<'_, impl Fn(&M) -> usize>,
        notice: Option<oneshot::Sender<()>>,
        run: impl FnOnce(&mut M, Now) -> Step<M::Response>,
    ) -> Result<(), ErrorCode> {
        let slot = self.slot(index)?;
        let mut pass = None;
        let out = loop {
            {
                let mut state = slot.state();
                let loaded = state.loaded_mut().ok_or(ErrorCode::NOT_COORDINATOR)?;
                let is_out = loaded.machine.is_lent(work.key);
                // Requests of one connection are worked on in their order, so that none passes one that is in line.
                let is_its_turn = pass.is_some() || !slot.lines.is_awaited(work.key);
                if !is_out && is_its_turn && (work.cost)(&loaded.machine) <= STEP_COST_MAX {
                    return self.step_on(slot, &mut state, notice, run);
                }
                if pass.is_some() {
                    if let Some(lent) = loaded.machine.lend(work.key) {
                        break Out { lent, load: loaded.load };
                    }
                    // The step that had it has ended without bringing it back.
                    self.discard_because(slot, &mut state, &"a part of it was lost while it was worked on");
                    return Err(ErrorCode::NOT_COORDINATOR);
                }
            }
            // Boxed, because each request would carry the room for it, and few need it.
            let turn = Box::pin(waiting(slot.lines.pass(work.key, work.asker))).await;
            // Its client asks again a little later.
            pass = Some(turn.map_err(|Full| ErrorCode::COORDINATOR_NOT_AVAILABLE)?);
        };
        without_the_thread(|| self.step_at_length(slot, out, notice, run))
    }

    /// A step on a part that is lent, up to its return.
    fn step_at_length(
        &self,
        slot: &Arc<Slot<M>>,
        out: Out<M::Lent>,
        notice: Option<oneshot::Sender<()>>,
        run: impl FnOnce(&mut M, Now) -> Step<M::Response>,
    ) -> Result<(), ErrorCode> {
        let Out { mut lent, load } = out;
        let mut step = run(lent.machine(), self.options.now());
        lent.machine().on_step(&self.world);
        let mut replies = std::mem::take(&mut step.replies);
        loop {
            self.append_in_pieces(slot, load, &step.records)?;
            let mut state = slot.state();
            let loaded = loaded_by(&mut state, load)?;
            match lent.give_back(&mut loaded.machine) {
                Ok(()) => {
                    self.end_step(slot, loaded, replies, notice);
                    return Ok(());
                }
                Err(missed) => lent = missed,
            }
            drop(state);
            step = lent.catch_up();
            replies.append(&mut step.replies);
        }
    }

    /// Appends the records of a step, with the shard's lock for one append at a time.
    fn append_in_pieces(
        &self,
        slot: &Arc<Slot<M>>,
        load: u64,
        records: &[ShardRecord],
    ) -> Result<(), ErrorCode> {
        let encoded = batches::encode_step(&self.options, records);
        let appends = encoded.map_err(|error| self.fail_append(slot, load, &error.into()))?;
        for bytes in appends {
            let mut state = slot.state();
            let loaded = loaded_by(&mut state, load)?;
            let appended = self.append(slot, loaded, vec![bytes]);
            drop(state);
            appended.map_err(|error| self.fail_append(slot, load, &error))?;
        }
        Ok(())
    }

    /// Discards a shard that is ahead of its log, unless this load of it is gone already.
    fn fail_append(&self, slot: &Slot<M>, load: u64, error: &AppendError) -> ErrorCode {
        let mut state = slot.state();
        if loaded_by(&mut state, load).is_err() {
            return ErrorCode::NOT_COORDINATOR;
        }
        self.discard(slot, &mut state, error)
    }
}

/// The shard, if it is still what this load has made.
fn loaded_by<M>(state: &mut SlotState<M>, load: u64) -> Result<&mut Loaded<M>, ErrorCode> {
    state.loaded_mut().filter(|loaded| loaded.load == load).ok_or(ErrorCode::NOT_COORDINATOR)
}

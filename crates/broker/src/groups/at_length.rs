//! Steps that take long: on a group that is lent, while the shard's other groups go on.
//!
//! Owns the choice of how a step is done. One that costs little is done under the shard's lock, on the spot. For any other
//! the group leaves its shard ([`riverrun_coordinator::Lent`]), is worked on without a lock, and its records are appended a
//! piece at a time, before it is taken back. Whoever asks for the group meanwhile waits in its [line](super::line).
//! Guarantees that a group is back, or its shard is loaded again, before anybody is answered; a client that goes away interrupts nothing.

use std::sync::Arc;

use riverrun_coordinator::{Lent, Now, STEP_COST_MAX, Shard, Step};
use riverrun_protocol::ErrorCode;
use tokio::sync::oneshot;

use super::held::Release;
use super::line::{Asker, Full};
use super::{Groups, Slot, batches, clock};
use crate::aside::{waiting, without_the_thread};
use crate::broker::Broker;
use crate::changes;

/// The group of a step, and the cost of the step.
pub(super) struct Work<'a, C> {
    pub(super) asker: Asker,
    pub(super) group_id: &'a str,
    /// What it costs, as [`STEP_COST_MAX`] counts.
    pub(super) cost: C,
}

impl Groups {
    /// One step of a group, at once or at length. `notice` is told when it is durable.
    pub(super) async fn step_of(
        &self,
        broker: &Broker,
        index: usize,
        work: Work<'_, impl Fn(&Shard) -> usize>,
        notice: Option<oneshot::Sender<()>>,
        run: impl FnOnce(&mut Shard, Now) -> Step,
    ) -> Result<(), ErrorCode> {
        let slot = &self.slots()?[index];
        let mut pass = None;
        let (lent, load) = loop {
            {
                let mut state = slot.state(&*broker.env.clock);
                let loaded = state.loaded_mut().ok_or(ErrorCode::NOT_COORDINATOR)?;
                let is_out = loaded.shard.is_lent(work.group_id);
                if !is_out && (work.cost)(&loaded.shard) <= STEP_COST_MAX {
                    return self.step_on(broker, index, &mut state, notice, run);
                }
                if pass.is_some() {
                    if let Some(lent) = loaded.shard.lend(work.group_id) {
                        break (lent, loaded.load);
                    }
                    // Whoever had it has ended without bringing it back.
                    slot.fail(&mut state, &*broker.env.clock, &"a group was lost while it was worked on");
                    return Err(ErrorCode::NOT_COORDINATOR);
                }
            }
            // Its client asks again a little later.
            let turn = waiting(slot.lines.pass(work.group_id, work.asker)).await;
            pass = Some(turn.map_err(|Full| ErrorCode::COORDINATOR_NOT_AVAILABLE)?);
        };
        without_the_thread(|| self.step_at_length(broker, index, load, lent, notice, run))
    }

    /// A step on a group that is lent, up to its return.
    fn step_at_length(
        &self,
        broker: &Broker,
        index: usize,
        load: u64,
        mut lent: Lent,
        notice: Option<oneshot::Sender<()>>,
        run: impl FnOnce(&mut Shard, Now) -> Step,
    ) -> Result<(), ErrorCode> {
        let slot = &self.slots()?[index];
        let mut step = run(lent.shard(), clock::now(&*broker.env.clock));
        self.tell_of_shortage(&*broker.env.clock);
        let mut replies = std::mem::take(&mut step.replies);
        loop {
            self.append_in_pieces(broker, slot, load, &step)?;
            let mut state = slot.state(&*broker.env.clock);
            let loaded = state.loaded_mut().filter(|loaded| loaded.load == load);
            let loaded = loaded.ok_or(ErrorCode::NOT_COORDINATOR)?;
            let deleted = loaded.shard.take_deleted(&lent);
            if deleted.is_empty() {
                loaded.shard.take_back(lent);
                changes::tell_emptied(&loaded.shard.take_emptied());
                changes::tell_protocols(&loaded.shard.take_protocol_changes());
                if let Some(deadline) = loaded.shard.next_deadline() {
                    self.timer.set(deadline);
                }
                let replies = self.addressed(replies);
                slot.release(loaded, Release { replies, notices: notice.into_iter().collect() });
                return Ok(());
            }
            drop(state);
            let deleted: Vec<_> = deleted.iter().map(|(name, id)| (name.as_str(), *id)).collect();
            let group_id = Arc::clone(lent.group_id());
            step = lent.shard().on_topics_deleted_in(&group_id, &deleted);
            replies.append(&mut step.replies);
        }
    }

    /// Appends the records of a step, with the shard's lock for one append at a time.
    fn append_in_pieces(
        &self,
        broker: &Broker,
        slot: &Slot,
        load: u64,
        step: &Step,
    ) -> Result<(), ErrorCode> {
        if step.records.is_empty() {
            return Ok(());
        }
        let encoded = batches::encode_step(broker, &step.records);
        let appends = encoded.map_err(|error| self.fail_append(broker, slot, load, &error.into()))?;
        for bytes in appends {
            let mut state = slot.state(&*broker.env.clock);
            let loaded = state.loaded_mut().filter(|loaded| loaded.load == load);
            let loaded = loaded.ok_or(ErrorCode::NOT_COORDINATOR)?;
            let appended = batches::append_encoded(broker, &loaded.partition, &bytes, &mut loaded.last);
            drop(state);
            appended.map_err(|error| self.fail_append(broker, slot, load, &error))?;
        }
        slot.note_appended();
        Ok(())
    }
}

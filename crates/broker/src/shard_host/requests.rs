//! The ways in which a request uses a shard: it hands something in and waits for a reply, which may come with a later step;
//! it changes something and is answered when that is durable; or it looks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use riverrun_coordinator::{Now, ReplyToken};
use riverrun_protocol::ErrorCode;
use tokio::sync::oneshot;

use super::ShardHost;
use super::at_length::Work;
use super::held::{Release, Unanswered, Waiting};
use super::machine::{StateMachine, Step};
use super::slot::Slot;
use crate::aside::{give_way, waiting};

impl<M: StateMachine> ShardHost<M> {
    /// Whether requests may add records to a shard that is loaded.
    pub(crate) fn has_room(&self, index: usize) -> Result<bool, ErrorCode> {
        Ok(self.slot(index)?.has_room())
    }

    /// Refuses what may add records, where there is no room for them.
    pub(crate) fn check_room(&self, index: usize) -> Result<(), ErrorCode> {
        if self.has_room(index)? { Ok(()) } else { Err(ErrorCode::COORDINATOR_NOT_AVAILABLE) }
    }

    /// Runs a request on a loaded shard. What waits for the reply holds nothing of the request.
    pub(crate) async fn begin(
        &self,
        index: usize,
        work: Work<'_, impl Fn(&M) -> usize>,
        handle: impl FnOnce(&mut M, Now, ReplyToken) -> Step<M::Response>,
    ) -> Result<Begun<M>, ErrorCode> {
        let slot = Arc::clone(self.slot(index)?);
        let token = ReplyToken(self.next_token.fetch_add(1, Ordering::Relaxed));
        let (sender, reply) = oneshot::channel();
        self.unanswered.lock().insert(token, Waiting { shard: index, reply: sender });
        // A client that goes away leaves no entry behind.
        let forget = Forget { unanswered: Arc::clone(&self.unanswered), token };
        self.step_of(index, work, None, |machine, now| handle(machine, now, token)).await?;
        Ok(Begun { slot, reply, forget })
    }

    /// Changes a loaded shard. The answer is what `handle` returns, once its records are durable: no reply is awaited.
    pub(crate) async fn change<T>(
        &self,
        index: usize,
        work: Work<'_, impl Fn(&M) -> usize>,
        handle: impl FnOnce(&mut M, Now) -> (T, Step<M::Response>),
    ) -> Result<T, ErrorCode> {
        self.check_room(index)?;
        let mut answer = None;
        let (notice, durable) = oneshot::channel();
        let step = self.step_of(index, work, Some(notice), |machine, now| {
            let (value, step) = handle(machine, now);
            answer = Some(value);
            step
        });
        step.await?;
        self.released(index, durable).await?;
        answer.ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)
    }

    /// Looks at a loaded shard. The answer comes when all that was seen is durable: what a client is told does not go back.
    pub(crate) async fn read<T>(
        &self,
        index: usize,
        work: Work<'_, impl Fn(&M) -> usize>,
        look: impl FnOnce(&M) -> T,
    ) -> Result<T, ErrorCode> {
        self.slot(index)?.check_not_stuck()?;
        let mut seen = None;
        let (notice, durable) = oneshot::channel();
        let step = self.step_of(index, work, Some(notice), |machine, _| {
            seen = Some(look(machine));
            Step::default()
        });
        step.await?;
        self.released(index, durable).await?;
        seen.ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)
    }

    /// Looks at every shard, loading those that are not loaded: one outcome for each, in their order. It looks in slices,
    /// each of which tells behind which part the next one goes on. Nothing to see while the topic does not exist.
    pub(crate) async fn read_all<T>(
        self: &Arc<Self>,
        look: impl Fn(&M, Option<&str>) -> (Vec<T>, Option<Arc<str>>),
    ) -> Vec<Result<Vec<T>, ErrorCode>> {
        let look = &look;
        let look_in = |slot: &'_ Arc<Slot<M>>| {
            let slot = Arc::clone(slot);
            async move {
                waiting(self.load_in_turn(slot.index)).await?;
                let (mut seen, mut behind) = look_at(&slot, |machine| look(machine, None)).await?;
                while behind.is_some() {
                    give_way().await;
                    let more = look_at(&slot, |machine| look(machine, behind.as_deref())).await?;
                    seen.extend(more.0);
                    behind = more.1;
                }
                Ok(seen)
            }
        };
        // All at once: the time of one in trouble is enough for all that are.
        join_all(self.all_slots().iter().map(look_in)).await
    }

    /// Waits for the notice of a step of this shard; but not while the log takes nothing.
    pub(crate) async fn released(
        &self,
        index: usize,
        durable: oneshot::Receiver<()>,
    ) -> Result<(), ErrorCode> {
        self.slot(index)?.released(durable).await
    }
}

async fn look_at<M: StateMachine, T>(slot: &Slot<M>, look: impl FnOnce(&M) -> T) -> Result<T, ErrorCode> {
    let (notice, durable) = oneshot::channel();
    let seen = {
        let state = slot.state();
        let loaded = state.loaded().ok_or(ErrorCode::NOT_COORDINATOR)?;
        slot.check_not_stuck()?;
        slot.release(loaded, Release { notices: vec![notice], ..Release::default() });
        look(&loaded.machine)
    };
    slot.released(durable).await?;
    Ok(seen)
}

/// A request that its shard has taken, and whose reply may come with a later step.
#[derive(Debug)]
pub(crate) struct Begun<M: StateMachine> {
    slot: Arc<Slot<M>>,
    reply: oneshot::Receiver<M::Response>,
    forget: Forget<M::Response>,
}

impl<M: StateMachine> Begun<M> {
    /// Waits for the reply.
    pub(crate) async fn reply(self) -> Result<M::Response, ErrorCode> {
        let Self { slot, reply, forget: _forget } = self;
        slot.released(reply).await
    }
}

/// Takes a request out of the waiting ones when its connection gives it up.
#[derive(Debug)]
struct Forget<R> {
    unanswered: Unanswered<R>,
    token: ReplyToken,
}

impl<R> Drop for Forget<R> {
    fn drop(&mut self) {
        self.unanswered.lock().remove(&self.token);
    }
}

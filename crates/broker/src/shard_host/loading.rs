//! Loading of shards: at the first request, for the timer, and again after a failure.
//!
//! Guarantees that a shard is loaded by one at a time, that a load comes to its end whatever becomes of the request that began
//! it, and that no request meets a shard whose timer is not set.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use riverrun_protocol::ErrorCode;

use super::machine::{StateMachine, Step};
use super::replay::{self, LoadError};
use super::slot::SlotState;
use super::{ShardHost, shard_of};
use crate::aside::waiting;

impl<M: StateMachine> ShardHost<M> {
    /// The loaded shard that a part belongs to.
    pub(crate) async fn loaded(self: &Arc<Self>, key: &str) -> Result<usize, ErrorCode> {
        let index = shard_of(key, self.open_slots()?.len());
        if !self.slot(index)?.is_loaded()? {
            // Boxed, because each request would carry the room for it, and few need it.
            Box::pin(waiting(self.load(index))).await?;
        }
        Ok(index)
    }

    /// Loads a shard, if it is not there, for a request that asks for all shards: they wait for the disk together, and are
    /// read a few at a time. A request for one of them does not wait for its turn.
    pub(crate) async fn load_in_turn(self: &Arc<Self>, index: usize) -> Result<(), ErrorCode> {
        let slot = self.slot(index)?;
        {
            let _loading = slot.loading.lock().await;
            if slot.is_loaded()? {
                return Ok(());
            }
            slot.await_last_outcome().await?;
        }
        let _turn = self.turns.acquire().await;
        self.load(index).await
    }

    async fn load(self: &Arc<Self>, index: usize) -> Result<(), ErrorCode> {
        if self.slot(index)?.is_loaded()? {
            return Ok(());
        }
        // A client that leaves does not end the load: the next request would begin another one beside what is left of it.
        let host = Arc::clone(self);
        let load = tokio::spawn(async move { host.load_alone(index).await });
        load.await.unwrap_or_else(|ended| Err(LoadError::Ended(ended).code()))
    }

    async fn load_alone(self: &Arc<Self>, index: usize) -> Result<(), ErrorCode> {
        let slot = self.slot(index)?;
        let _loading = slot.loading.lock().await;
        if slot.is_loaded()? {
            return Ok(());
        }
        slot.await_last_outcome().await?;
        let host = Arc::clone(self);
        let loaded = tokio::task::spawn_blocking(move || replay::load(&host.options, &host.world, index))
            .await
            .unwrap_or_else(|ended| Err(LoadError::Ended(ended)));
        // Under one lock, so that no request meets a shard whose timer is not set.
        let mut state = slot.state.lock();
        match loaded {
            Ok((mut loaded, records)) => {
                loaded.load = slot.loads.fetch_add(1, Ordering::Relaxed);
                *state = SlotState::Loaded(Box::new(loaded));
                // They were found aside, so that nobody waits for it.
                self.step_on(slot, &mut state, None, |_, _| Step::of_records(records))
            }
            Err(error) => {
                slot.fail(&mut state, &error);
                Err(error.code())
            }
        }
    }

    /// Loads every shard, so that time passes in it whether or not anybody asks for it. What cannot be loaded has been
    /// logged, and is tried again when somebody asks for it.
    pub(super) async fn load_all(self: &Arc<Self>) {
        for index in 0..self.shard_count() {
            let _ = self.load(index).await;
        }
    }

    /// Loads the shards again that have failed and rested.
    pub(super) async fn load_rested(self: &Arc<Self>) {
        let slots = self.known_slots().iter();
        let due = slots.filter(|slot| slot.state().has_rested(&*self.options.clock));
        join_all(due.map(|slot| self.load_in_turn(slot.index))).await;
    }
}

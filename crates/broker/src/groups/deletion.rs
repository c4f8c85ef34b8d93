//! The offsets of deleted topics are dropped from groups, a slice of a shard at a time.

use futures_util::future::join_all;
use riverrun_coordinator::{Deletion, Shard};
use riverrun_protocol::ErrorCode;
use riverrun_types::TopicId;
use tokio::sync::oneshot;

use super::Groups;
use super::machine::step_of;
use crate::aside::{give_way, waiting};
use crate::shard_host::{Asker, Step, Work};

impl Groups {
    /// Drops the offsets of deleted topics, durably. Answers the error of the last shard that had one; a shard with an error
    /// drops them when it is loaded again, and a topic that got the same name meanwhile does not inherit them.
    pub(crate) async fn topics_deleted(&self, deleted: &[(&str, TopicId)]) -> Result<(), ErrorCode> {
        let drop_in = |index| async move {
            waiting(self.host.load_in_turn(index)).await?;
            self.drop_offsets_in(index, deleted).await
        };
        // All at once: one sync is enough for many shards, and shards in trouble do not add up their waits.
        let outcomes = join_all((0..self.host.shard_count()).map(drop_in)).await;
        outcomes.into_iter().rfind(Result::is_err).unwrap_or(Ok(()))
    }

    /// Drops the offsets of topics that were deleted in one shard, a slice at a time.
    async fn drop_offsets_in(&self, index: usize, deleted: &[(&str, TopicId)]) -> Result<(), ErrorCode> {
        let mut behind = None;
        loop {
            let (notice, durable) = oneshot::channel();
            let mut deletion = Deletion::default();
            self.host.step(index, Some(notice), |shard, _| {
                deletion = shard.on_topics_deleted(deleted, behind.as_deref());
                step_of(std::mem::take(&mut deletion.step))
            })?;
            for group_id in &deletion.at_length {
                let cost = |shard: &Shard| shard.cost_of_all_offsets(group_id);
                let work = Work { asker: Asker::SERVER, key: group_id, cost };
                let step = self.host.step_of(index, work, None, |shard, _| {
                    step_of(shard.on_topics_deleted_in(group_id, deleted))
                });
                step.await?;
            }
            behind = deletion.goes_on_behind;
            if behind.is_none() && deletion.at_length.is_empty() {
                return self.host.released(index, durable).await;
            }
            if behind.is_none() {
                let (notice, durable) = oneshot::channel();
                self.host.step(index, Some(notice), |_, _| Step::default())?;
                return self.host.released(index, durable).await;
            }
            give_way().await;
        }
    }
}

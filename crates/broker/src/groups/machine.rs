//! The group coordinator as a state machine of a [host](crate::shard_host): a shard is a machine, and a group a part of it.

use std::sync::Arc;

use riverrun_coordinator::{
    GroupResponse, Lent, Moment, Now, OffsetsRecord, ReplayError, Shard, Step as GroupStep,
};
use riverrun_types::TopicId;

use super::world::World;
use crate::changes;
use crate::shard_host::{LentPart, Reply, ShardRecord, StateMachine, Step};

/// The records and replies of a request to groups.
pub(super) fn step_of(step: GroupStep) -> Step<GroupResponse> {
    let replies = step.replies.into_iter().map(|reply| Reply { token: reply.token, body: reply.body });
    Step { records: records_of(step.records), replies: replies.collect() }
}

fn records_of(records: Vec<OffsetsRecord>) -> Vec<ShardRecord> {
    records.into_iter().map(|OffsetsRecord { key, value }| ShardRecord { key, value }).collect()
}

impl StateMachine for Shard {
    type World = World;
    type Response = GroupResponse;
    type ReplayError = ReplayError;
    type Lent = LentGroup;

    fn new(world: &World) -> Self {
        Self::new(world.config.clone(), Arc::clone(&world.memory))
    }

    fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), ReplayError> {
        self.replay(key, value)
    }

    fn is_want_of_room(error: &ReplayError) -> bool {
        matches!(error, ReplayError::NoRoom)
    }

    fn on_loaded(&mut self, world: &World, now: Now) -> Vec<ShardRecord> {
        let mut records = self.on_loaded(now).records;
        records.extend(drop_offsets(self, world));
        records_of(records)
    }

    fn next_deadline(&self) -> Option<Moment> {
        self.next_deadline()
    }

    fn expire(&mut self, world: &World, index: usize, now: Now) -> Step<GroupResponse> {
        let before = self.group_count();
        let step = self.expire(now, &world.topics(None));
        changes::tell_expired(index, before.saturating_sub(self.group_count()));
        step_of(step)
    }

    fn note_clocks(&mut self, now: Now) -> bool {
        self.note_clocks(now)
    }

    fn on_step(&mut self, world: &World) {
        world.shortage.look(&world.memory, &*world.ports.env.clock);
        changes::tell_emptied(&self.take_emptied());
    }

    fn on_appended(&mut self) {
        changes::tell_protocols(&self.take_protocol_changes());
    }

    fn is_lent(&self, key: &str) -> bool {
        self.is_lent(key)
    }

    fn lend(&mut self, key: &str) -> Option<LentGroup> {
        self.lend(key).map(|lent| LentGroup { lent, deleted: Vec::new() })
    }

    fn cost_of_all(&self, key: &str) -> usize {
        self.cost_of_all(key)
    }

    fn due_at_length(&mut self, now: Now) -> Option<Arc<str>> {
        self.due_at_length(now)
    }

    fn expire_part(&mut self, world: &World, key: &Arc<str>, now: Now) -> Step<GroupResponse> {
        step_of(self.expire_lent(now, key, &world.topics(None)))
    }
}

/// A group that is out of its shard.
#[derive(Debug)]
pub(crate) struct LentGroup {
    lent: Lent,
    /// Topics that were deleted meanwhile, whose offsets the group has yet to drop.
    deleted: Vec<(String, TopicId)>,
}

impl LentPart<Shard> for LentGroup {
    fn machine(&mut self) -> &mut Shard {
        self.lent.shard()
    }

    fn give_back(self, to: &mut Shard) -> Result<(), Self> {
        let deleted = to.take_deleted(&self.lent);
        if !deleted.is_empty() {
            return Err(Self { deleted, ..self });
        }
        to.take_back(self.lent);
        Ok(())
    }

    fn catch_up(&mut self) -> Step<GroupResponse> {
        let deleted = std::mem::take(&mut self.deleted);
        let deleted: Vec<_> = deleted.iter().map(|(name, id)| (name.as_str(), *id)).collect();
        let group_id = Arc::clone(self.lent.group_id());
        step_of(self.lent.shard().on_topics_deleted_in(&group_id, &deleted))
    }
}

/// Drops the offsets of topics that are not there: a topic's deletion may have come while the shard was not there, or a
/// crash between it and that of its offsets. What may be a topic that the metadata has lost keeps them.
fn drop_offsets(shard: &mut Shard, world: &World) -> Vec<OffsetsRecord> {
    let ports = &world.ports;
    if ports.metadata.may_lack_topics() || !ports.logs.unknown_partitions().is_empty() {
        return Vec::new();
    }
    let image = ports.metadata.cluster();
    let is_there = |name: &str, id: TopicId| match image.topic(name) {
        Some(topic) => id.is_zero() || id == topic.id,
        None => ports.mounts.knows(name),
    };
    shard.drop_offsets_unless(is_there).records
}

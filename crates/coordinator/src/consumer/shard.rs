//! The requests of KIP-848 and the records of its groups, as the shard sees them.

use std::sync::Arc;

use riverrun_protocol::consumer_group_describe_response::DescribedGroup;
use riverrun_protocol::offsets_topic::Key;
use riverrun_protocol::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, ErrorCode};

use crate::TopicMetadata;
use crate::error::ReplayError;
use crate::group::{Group, GroupEntry};
use crate::migration::TAKEN_OVER;
use crate::shard::Shard;
use crate::step::{GroupResponse, RequestContext, Step};

use super::changes::ConsumerRecord;
use super::heartbeat::Given;
use super::request::{JOIN_EPOCH, Refusal, validate};

impl Shard {
    /// Handles a `ConsumerGroupHeartbeat`. It is answered at once.
    pub fn consumer_group_heartbeat(
        &mut self,
        context: &RequestContext<'_>,
        request: &ConsumerGroupHeartbeatRequest<'_>,
        topics: &dyn TopicMetadata,
    ) -> Step {
        let mut step = Step::default();
        let served = self.serve_heartbeat(context, request, topics, &mut step);
        let response = served.unwrap_or_else(Refusal::into_response);
        self.finish(&request.group_id);
        step.push_reply(context.token, GroupResponse::ConsumerGroupHeartbeat(response));
        step
    }

    /// Handles the heartbeat of a member where nothing may be recorded: its session goes on, and for everything else
    /// the member is told to try again.
    pub fn consumer_group_sign_of_life(
        &mut self,
        context: &RequestContext<'_>,
        request: &ConsumerGroupHeartbeatRequest<'_>,
    ) -> Step {
        // If the session ends later than the shard's timer, the timer fires once in vain.
        if let Some(GroupEntry { group: Group::Consumer(group), .. }) =
            self.groups.get_mut(&*request.group_id)
        {
            group.keep_alive(context.now.moment, request, &self.config.of_group(&request.group_id));
        }
        let response = ConsumerGroupHeartbeatResponse {
            // A client that is told that the coordinator is not there looks for it at once, again and again.
            error_code: ErrorCode::COORDINATOR_LOAD_IN_PROGRESS.0,
            ..ConsumerGroupHeartbeatResponse::default()
        };
        Step::reply(context.token, GroupResponse::ConsumerGroupHeartbeat(response))
    }

    /// Serves a heartbeat. A refusal may leave records, too: an empty classic group that was taken over for a member
    /// which then could not join is gone, except for its offsets.
    fn serve_heartbeat(
        &mut self,
        context: &RequestContext<'_>,
        request: &ConsumerGroupHeartbeatRequest<'_>,
        topics: &dyn TopicMetadata,
        step: &mut Step,
    ) -> Result<ConsumerGroupHeartbeatResponse<'static>, Refusal> {
        validate(request, context.api_version, &self.config)?;
        let group_id = &*request.group_id;
        let is_joining = request.member_epoch == JOIN_EPOCH;
        if is_joining && self.is_live_classic_group(group_id) {
            return self.upgrade(context, request, topics, step);
        }
        let before = self.protocol_of(group_id);
        if is_joining {
            let opened = self.open_consumer(group_id);
            step.records = opened.map_err(|error| Refusal::of_group(error, group_id))?;
        }
        if let Some(refusal) = self.refuse_former_member(request) {
            return Err(refusal);
        }
        let Some(entry) = self.groups.get_mut(group_id) else { return Err(Refusal::no_such_group(group_id)) };
        let room = entry.room(&self.share);
        let Group::Consumer(group) = &mut entry.group else { return Err(Refusal::no_such_group(group_id)) };
        let given = Given { now: context.now, topics, config: &self.config.of_group(group_id), room };
        let served = group.heartbeat(context, request, given);
        if group.is_blank() {
            entry.group = Group::Simple;
        }
        let (response, mut changes) = served?;
        step.records.append(&mut changes);
        self.note_protocol(group_id, before, TAKEN_OVER);
        if request.member_epoch < JOIN_EPOCH {
            self.maybe_downgrade(context.now, group_id, topics, step);
        }
        Ok(response)
    }

    /// Refuses the heartbeat of a former member of a group that is a classic one now. Kafka answers that there is no
    /// such group, which ends a consumer; but this one has only been silent for too long.
    fn refuse_former_member(&self, request: &ConsumerGroupHeartbeatRequest<'_>) -> Option<Refusal> {
        let entry = self.groups.get(&*request.group_id)?;
        let Group::Classic(group) = &entry.group else { return None };
        if group.is_empty() || !group.is_of_consumers() {
            return None;
        }
        let instance_id = request.instance_id.as_deref();
        match group.validate_member(&request.member_id, instance_id) {
            Err(ErrorCode::FENCED_INSTANCE_ID) => Some(Refusal::fenced(instance_id.unwrap_or_default())),
            _ => Some(Refusal::no_member(&request.member_id)),
        }
    }

    /// Describes one KIP-848 group. Groups of another kind do not exist for this request.
    pub fn consumer_group_describe(
        &self,
        group_id: &str,
        topics: &dyn TopicMetadata,
    ) -> DescribedGroup<'static> {
        if let Some(Group::Consumer(group)) = self.groups.get(group_id).map(|entry| &entry.group) {
            return group.describe(group_id, topics, &self.config);
        }
        if group_id.is_empty() {
            return DescribedGroup { error_code: ErrorCode::INVALID_GROUP_ID.0, ..DescribedGroup::default() };
        }
        let message = format!("there is no consumer group {group_id:?}");
        DescribedGroup {
            error_code: ErrorCode::GROUP_ID_NOT_FOUND.0,
            error_message: Some(message.into()),
            group_id: group_id.to_owned().into(),
            ..DescribedGroup::default()
        }
    }

    /// Applies a record of a KIP-848 group. A tombstone for a group that does not exist, or is of another kind by
    /// now, has no effect.
    pub(crate) fn replay_consumer(&mut self, key: &Key<'_>, value: Option<&[u8]>) -> Result<(), ReplayError> {
        let Some(record) = ConsumerRecord::decode(key, value)? else { return Ok(()) };
        let group_id: Arc<str> = record.group_id.as_str().into();
        let is_consumer =
            matches!(self.groups.get(&group_id).map(|entry| &entry.group), Some(Group::Consumer(_)));
        if !is_consumer && record.is_tombstone() {
            return Ok(());
        }
        let entry = self.entry(&group_id)?;
        if record.deletes_group() {
            entry.group = Group::Simple;
            self.finish_replayed(&group_id);
            return Ok(());
        }
        if !is_consumer {
            entry.group = Group::Consumer(Box::default());
        }
        if let Group::Consumer(group) = &mut entry.group {
            group.replay(record);
        }
        self.charge(&group_id);
        Ok(())
    }
}

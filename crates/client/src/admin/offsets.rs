//! Offsets: beginnings and ends of partitions, deletion of records, and the committed offsets of groups.

use std::collections::{BTreeMap, HashMap};

use futures_util::future::BoxFuture;
use riverrun_protocol::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use riverrun_protocol::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use riverrun_protocol::{ApiKey, DeleteRecordsRequest, ErrorCode, OffsetDeleteRequest};
use riverrun_types::{ErrorKind, NodeId, Offset};

use super::{Admin, Results, all_failed, complete};
use crate::cluster::Lane;
use crate::connection::{CallLimits, ResponseFrame};
use crate::coordinator::{CommittedOffset, GroupCoordinator, MemberIdentity, Stability};
use crate::error::ClientError;
use crate::leaders::Patience;
use crate::list_offsets::{FoundOffset, Isolation, OffsetSpec, list_offsets_within};
use crate::topic_partition::{TopicPartition, by_topic};

impl Admin {
    /// Finds one offset of each partition; `None` if no record has such a timestamp. A partition without a leader
    /// gets that as its error at once.
    pub fn list_offsets(
        &self,
        wanted: Vec<(TopicPartition, OffsetSpec)>,
        isolation: Isolation,
    ) -> BoxFuture<'_, Results<TopicPartition, Option<FoundOffset>>> {
        Box::pin(async move {
            let patience = Patience { errors: self.cluster.options().retry_timeout, leaders: false };
            list_offsets_within(&self.cluster, wanted, isolation, patience).await
        })
    }

    /// Deletes the records before an offset, -1 for all, and returns the new log start offset of each partition.
    pub fn delete_records<'a>(
        &'a self,
        before: &'a BTreeMap<TopicPartition, Offset>,
    ) -> BoxFuture<'a, Results<TopicPartition, Offset>> {
        Box::pin(async move {
            let mut results = Vec::with_capacity(before.len());
            let mut leaders = HashMap::<NodeId, BTreeMap<TopicPartition, Offset>>::new();
            let partitions: Vec<&TopicPartition> = before.keys().collect();
            for ((partition, offset), leader) in
                before.iter().zip(self.cluster.find_leaders(&partitions).await)
            {
                match leader {
                    Ok(leader) => drop(leaders.entry(leader).or_default().insert(partition.clone(), *offset)),
                    Err(error) => results.push((partition.clone(), Err(error))),
                }
            }
            for (leader, before) in leaders {
                match self.delete_records_at(leader, &before).await {
                    Ok(deleted) => results.extend(deleted),
                    Err(error) => {
                        results.extend(before.into_keys().map(|partition| (partition, Err(error.clone()))));
                    }
                }
            }
            results.sort_by(|(one, _), (other, _)| one.cmp(other));
            results
        })
    }

    async fn delete_records_at(
        &self,
        leader: NodeId,
        before: &BTreeMap<TopicPartition, Offset>,
    ) -> Result<Results<TopicPartition, Offset>, ClientError> {
        let topics = by_topic(before).into_iter().map(|(name, partitions)| DeleteRecordsTopic {
            name: name.into(),
            partitions: partitions
                .into_iter()
                .map(|(partition_index, offset)| DeleteRecordsPartition { partition_index, offset: offset.0 })
                .collect(),
        });
        let request = DeleteRecordsRequest { topics: topics.collect(), timeout_ms: self.server_timeout_ms() };
        let frame = self.cluster.call_patiently(leader, Lane::Data, &request, self.server_timeout()).await?;
        let answer = frame.decode::<DeleteRecordsRequest<'_>>()?;
        let mut results = Vec::new();
        for topic in &answer.topics {
            for partition in &topic.partitions {
                let name = TopicPartition::new(&*topic.name, partition.partition_index);
                let result = ClientError::check(partition.error_code, None);
                if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Retry) {
                    self.cluster.forget_topic(&topic.name);
                }
                results.push((name, result.map(|()| Offset(partition.low_watermark))));
            }
        }
        Ok(complete(ApiKey::DeleteRecords, before.keys().cloned(), results))
    }

    /// The committed offsets of a group.
    pub fn group_offsets<'a>(
        &'a self,
        group: &'a str,
    ) -> BoxFuture<'a, Result<BTreeMap<TopicPartition, CommittedOffset>, ClientError>> {
        Box::pin(async move {
            let coordinator = self.coordinator(group);
            let mut retry = self.retry();
            let found = loop {
                match coordinator.committed(None, Stability::Any).await {
                    Ok(found) => break found,
                    Err(error) => retry.pause_after(error).await?,
                }
            };
            found.into_iter().map(|(partition, result)| Ok((partition, result?))).collect()
        })
    }

    /// Sets committed offsets of a group. The group must have no members.
    pub fn alter_group_offsets<'a>(
        &'a self,
        group: &'a str,
        offsets: &'a BTreeMap<TopicPartition, Offset>,
    ) -> BoxFuture<'a, Results<TopicPartition, ()>> {
        Box::pin(async move {
            if offsets.is_empty() {
                return Vec::new();
            }
            let committed = |offset| CommittedOffset { offset, leader_epoch: None, metadata: String::new() };
            let offsets = offsets.iter().map(|(name, offset)| (name.clone(), committed(*offset))).collect();
            let coordinator = self.coordinator(group);
            let mut retry = self.retry();
            loop {
                let results = coordinator.commit(&MemberIdentity::none(), &offsets).await;
                let Some(error) = passing(&results) else { return results };
                if retry.pause_after(error).await.is_err() {
                    return results;
                }
            }
        })
    }

    /// Deletes committed offsets of a group, in as many requests as that needs. No member of the group may be
    /// subscribed to these topics. After a failed request no further one is sent: the remaining partitions get its
    /// error.
    pub fn delete_group_offsets<'a>(
        &'a self,
        group: &'a str,
        partitions: &'a [TopicPartition],
    ) -> BoxFuture<'a, Results<TopicPartition, ()>> {
        Box::pin(async move {
            let coordinator = self.coordinator(group);
            let mut results = Vec::with_capacity(partitions.len());
            let mut chunks = coordinator.chunks(partitions, |partition| partition.topic.len()).into_iter();
            while let Some(some) = chunks.next() {
                match self.ask_delete_offsets(&coordinator, &some).await {
                    Ok(deleted) => results.extend(deleted),
                    Err(error) => {
                        let left = some.into_iter().chain(chunks.by_ref().flatten());
                        results.extend(all_failed(left.cloned(), &error));
                    }
                }
            }
            results
        })
    }

    async fn ask_delete_offsets(
        &self,
        coordinator: &GroupCoordinator,
        partitions: &[&TopicPartition],
    ) -> Result<Results<TopicPartition, ()>, ClientError> {
        let mut retry = self.retry();
        let topics = by_topic(partitions.iter().map(|partition| (*partition, ())));
        let topics = topics.into_iter().map(|(name, partitions)| OffsetDeleteRequestTopic {
            name: name.into(),
            partitions: partitions
                .into_iter()
                .map(|(partition_index, ())| OffsetDeleteRequestPartition { partition_index })
                .collect(),
        });
        let request = OffsetDeleteRequest { group_id: coordinator.group().into(), topics: topics.collect() };
        loop {
            let answer = coordinator.call(Lane::Data, &request, CallLimits::default()).await;
            match answer.and_then(|frame| read_deleted(&frame)) {
                Ok(results) => {
                    let asked = partitions.iter().copied().cloned();
                    return Ok(complete(ApiKey::OffsetDelete, asked, results));
                }
                Err(error) => {
                    coordinator.note(&error);
                    retry.pause_after(error).await?;
                }
            }
        }
    }
}

/// The first error that a retry may get past.
fn passing(results: &Results<TopicPartition, ()>) -> Option<ClientError> {
    // A topic that does not exist is an answer here, although its error code is retriable.
    let passes = |error: &&ClientError| {
        error.kind() == ErrorKind::Retry && error.code() != Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    };
    results.iter().filter_map(|(_, result)| result.as_ref().err()).find(passes).cloned()
}

fn read_deleted(frame: &ResponseFrame) -> Result<Results<TopicPartition, ()>, ClientError> {
    let answer = frame.decode::<OffsetDeleteRequest<'_>>()?;
    ClientError::check(answer.error_code, None)?;
    let mut results = Vec::new();
    for topic in &answer.topics {
        results.extend(topic.partitions.iter().map(|partition| {
            let name = TopicPartition::new(&*topic.name, partition.partition_index);
            (name, ClientError::check(partition.error_code, None))
        }));
    }
    if results.is_empty() {
        let missing = "any partition".to_owned();
        return Err(ClientError::Incomplete { api: ApiKey::OffsetDelete, missing });
    }
    Ok(results)
}

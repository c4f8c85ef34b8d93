//! Asks a new leader whether the log still has the records before a position (KIP-320).

use std::sync::Arc;

use riverrun_protocol::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use riverrun_protocol::offset_for_leader_epoch_response::EpochEndOffset;
use riverrun_protocol::{ApiKey, OffsetForLeaderEpochRequest};
use riverrun_types::{NodeId, Offset};

use super::fetch::Wanted;
use crate::cluster::{Cluster, Lane};
use crate::error::ClientError;
use crate::topic_partition::by_topic;

/// For each position, the end of its last record's epoch in the leader's log; `None` if the leader does not know that
/// epoch.
pub(super) type Validated = Vec<(Wanted, Result<Option<Offset>, ClientError>)>;

/// Asks one leader.
pub(super) async fn validate(cluster: Arc<Cluster>, leader: NodeId, wanted: Vec<Wanted>) -> Validated {
    let request = request(&wanted);
    let answered = cluster.call(leader, Lane::Data, &request).await;
    drop(request);
    let all_failed = |wanted: Vec<Wanted>, error: &ClientError| {
        wanted.into_iter().map(|wanted| (wanted, Err(error.clone()))).collect()
    };
    let frame = match answered {
        Ok(frame) => frame,
        Err(error) => return all_failed(wanted, &error),
    };
    let answer = match frame.decode::<OffsetForLeaderEpochRequest<'_>>() {
        Ok(answer) => answer,
        Err(error) => return all_failed(wanted, &error),
    };
    let find = |wanted: &Wanted| {
        let topic = answer.topics.iter().find(|topic| topic.topic == *wanted.partition.topic)?;
        topic.partitions.iter().find(|end| end.partition == wanted.partition.partition)
    };
    wanted
        .into_iter()
        .map(|wanted| {
            let missing = || ClientError::Incomplete {
                api: ApiKey::OffsetForLeaderEpoch,
                missing: wanted.partition.to_string(),
            };
            let end = find(&wanted).ok_or_else(missing).and_then(|end| read(&wanted, end));
            (wanted, end)
        })
        .collect()
}

fn request(wanted: &[Wanted]) -> OffsetForLeaderEpochRequest<'_> {
    let topics = by_topic(wanted.iter().map(|wanted| (&wanted.partition, wanted)));
    OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics: topics
            .into_iter()
            .map(|(topic, partitions)| OffsetForLeaderTopic {
                topic: topic.into(),
                partitions: partitions
                    .into_iter()
                    .map(|(partition, wanted)| OffsetForLeaderPartition {
                        partition,
                        current_leader_epoch: wanted.leader_epoch.0,
                        leader_epoch: wanted.last_epoch.map_or(-1, |epoch| epoch.0),
                    })
                    .collect(),
            })
            .collect(),
    }
}

fn read(wanted: &Wanted, end: &EpochEndOffset) -> Result<Option<Offset>, ClientError> {
    ClientError::check(end.error_code, Some(&wanted.partition.to_string()))?;
    Ok((end.end_offset >= 0 && end.leader_epoch >= 0).then_some(Offset(end.end_offset)))
}

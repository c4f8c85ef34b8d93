//! The idempotent producers that a partition remembers.

use futures_util::future::BoxFuture;
use riverrun_protocol::describe_producers_request::TopicRequest;
use riverrun_protocol::{ApiKey, DescribeProducersRequest};
use riverrun_types::{ErrorKind, NodeId, Offset, ProducerId, TimestampMs};

use super::{Admin, Results};
use crate::cluster::Lane;
use crate::error::ClientError;
use crate::topic_partition::TopicPartition;

/// A producer that a partition remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveProducer {
    /// Its id.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: i32,
    /// Sequence number of its last record.
    pub last_sequence: i32,
    /// Time of its last record.
    pub last_timestamp: TimestampMs,
    /// Start offset of its open transaction; `None` without one.
    pub transaction_start: Option<Offset>,
}

impl Admin {
    /// The producers that the leaders of these partitions remember.
    pub fn describe_producers<'a>(
        &'a self,
        partitions: &'a [TopicPartition],
    ) -> BoxFuture<'a, Results<TopicPartition, Vec<ActiveProducer>>> {
        Box::pin(async move {
            let mut results = Vec::with_capacity(partitions.len());
            let leaders = self.cluster.find_leaders(&partitions.iter().collect::<Vec<_>>()).await;
            for (partition, leader) in partitions.iter().zip(leaders) {
                let found = match leader {
                    Ok(leader) => self.producers_of(partition, leader).await,
                    Err(error) => Err(error),
                };
                results.push((partition.clone(), found));
            }
            results
        })
    }

    async fn producers_of(
        &self,
        partition: &TopicPartition,
        mut leader: NodeId,
    ) -> Result<Vec<ActiveProducer>, ClientError> {
        let mut retry = self.retry();
        loop {
            let error = match self.ask_producers(partition, leader).await {
                Err(error) if error.kind() == ErrorKind::Retry => error,
                result => return result,
            };
            retry.pause_after(error).await?;
            // The leader may have moved.
            if let Some(Ok(next)) = self.cluster.leaders(&[partition], true).await.pop() {
                leader = next;
            }
        }
    }

    async fn ask_producers(
        &self,
        partition: &TopicPartition,
        leader: NodeId,
    ) -> Result<Vec<ActiveProducer>, ClientError> {
        let wanted =
            TopicRequest { name: (&*partition.topic).into(), partition_indexes: vec![partition.partition] };
        let request = DescribeProducersRequest { topics: vec![wanted] };
        let frame = self.cluster.call(leader, Lane::Data, &request).await?;
        let answer = frame.decode::<DescribeProducersRequest<'_>>()?;
        let found = answer.topics.iter().flat_map(|topic| &topic.partitions).next().ok_or_else(|| {
            ClientError::Incomplete { api: ApiKey::DescribeProducers, missing: partition.to_string() }
        })?;
        ClientError::check(found.error_code, found.error_message.as_deref())?;
        let producers = found.active_producers.iter().map(|producer| ActiveProducer {
            id: ProducerId(producer.producer_id),
            epoch: producer.producer_epoch,
            last_sequence: producer.last_sequence,
            last_timestamp: TimestampMs(producer.last_timestamp),
            transaction_start: (producer.current_txn_start_offset >= 0)
                .then_some(Offset(producer.current_txn_start_offset)),
        });
        Ok(producers.collect())
    }
}

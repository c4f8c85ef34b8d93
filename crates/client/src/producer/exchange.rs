//! One produce request: batches in, the outcome of each batch out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use riverrun_protocol::produce_request::{PartitionProduceData, TopicProduceData};
use riverrun_protocol::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use riverrun_protocol::{ApiKey, ProduceRequest, Records};
use riverrun_types::{NodeId, Offset, TimestampMs, TopicId};
use tokio::time::Instant;

use super::batch::{Batch, Spare};
use super::delivery::BatchPlace;
use super::metrics::ProducerMetrics;
use super::options::ProducerOptions;
use crate::cluster::{Cluster, Lane};
use crate::connection::{PendingAnswer, PendingWrite, ResponseFrame, wire_ms};
use crate::error::ClientError;

/// A batch with the name and id of its topic.
#[derive(Debug)]
struct Addressed {
    batch: Batch,
    topic: Arc<str>,
    topic_id: TopicId,
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct Begun {
    node: NodeId,
    batches: Vec<Addressed>,
    /// Batches that could not be built.
    failed: Vec<(Batch, ClientError)>,
    /// Memory of the compressed batches, for other batches.
    pub(super) spares: Vec<Spare>,
    at: Instant,
    sent: Result<Sent, ClientError>,
}

/// The event that ends a request.
#[derive(Debug)]
enum Sent {
    /// Nothing: it has no batch.
    Nothing,
    Answered(PendingAnswer),
    /// The operating system accepting it.
    Unanswered(PendingWrite),
}

/// The outcomes of a request's batches.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) node: NodeId,
    /// How long the answer took, if there was one.
    pub(super) latency: Option<Duration>,
    pub(super) results: Vec<(Batch, Result<BatchPlace, ClientError>)>,
}

/// Compresses the batches and sends the request without waiting: the sender task serves other servers meanwhile.
pub(super) fn begin(
    cluster: &Cluster,
    options: &ProducerOptions,
    node: NodeId,
    batches: Vec<Batch>,
) -> Begun {
    let (count, begun) = (batches.len(), Instant::now());
    let (mut sent, mut records) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let (mut failed, mut spares) = (Vec::new(), Vec::new());
    for mut batch in batches {
        match batch.seal_and_spare() {
            Ok((bytes, spare)) => {
                spares.extend(spare);
                let topic = Arc::clone(batch.topic());
                let topic_id = cluster.known_topic(&topic).map_or(TopicId::ZERO, |known| known.topic.id);
                sent.push(Addressed { batch, topic, topic_id });
                records.push(bytes);
            }
            Err(error) => failed.push((batch, error.into())),
        }
    }
    let handed =
        if sent.is_empty() { Ok(Sent::Nothing) } else { hand_over(cluster, options, node, &sent, records) };
    Begun { node, batches: sent, failed, spares, at: begun, sent: handed }
}

fn hand_over(
    cluster: &Cluster,
    options: &ProducerOptions,
    node: NodeId,
    batches: &[Addressed],
    records: Vec<Bytes>,
) -> Result<Sent, ClientError> {
    let (request, records) = request(options, batches, records);
    // The connection was there a moment ago.
    let connection = cluster.live_connection(node, Lane::Data).ok_or_else(|| ClientError::Disconnected {
        address: format!("node {}", node.0),
        reason: "it was closed before the request".to_owned(),
    })?;
    if request.acks == 0 {
        connection.begin_unanswered(&request, records).map(Sent::Unanswered)
    } else {
        connection.begin(&request, records).map(Sent::Answered)
    }
}

/// The request, and the records in the order in which it names their batches.
fn request<'a>(
    options: &ProducerOptions,
    batches: &'a [Addressed],
    records: Vec<Bytes>,
) -> (ProduceRequest<'a>, Vec<Bytes>) {
    let mut topics = BTreeMap::<&str, (TopicId, Vec<(i32, Bytes)>)>::new();
    for (addressed, bytes) in batches.iter().zip(records) {
        let (_, partitions) =
            topics.entry(&addressed.topic).or_insert_with(|| (addressed.topic_id, Vec::new()));
        partitions.push((addressed.batch.key.partition, bytes));
    }
    let (mut topic_data, mut ordered) = (Vec::with_capacity(topics.len()), Vec::new());
    for (name, (topic_id, partitions)) in topics {
        let mut partition_data = Vec::with_capacity(partitions.len());
        for (index, bytes) in partitions {
            let records = Some(Records::External { len: bytes.len() });
            partition_data.push(PartitionProduceData { index, records });
            ordered.push(bytes);
        }
        topic_data.push(TopicProduceData { name: name.into(), topic_id, partition_data });
    }
    let timeout_ms = server_timeout_ms(options.cluster.request_timeout);
    let request =
        ProduceRequest { transactional_id: None, acks: options.wire_acks(), timeout_ms, topic_data };
    (request, ordered)
}

/// How long the server may wait for the in-sync replicas: a tenth less than the client waits for its answer. The
/// server then has the time to report a timeout, which costs one attempt of one batch. If the client gave up first,
/// it would break the connection and send again every request in flight on it, over and over for as long as the
/// server is slow.
fn server_timeout_ms(request_timeout: Duration) -> i32 {
    wire_ms(request_timeout.saturating_sub(request_timeout / 10)).max(1)
}

impl Begun {
    /// Counts its batches as sent; nothing if it could not be sent.
    pub(super) fn count(&self, metrics: &mut ProducerMetrics) {
        if self.sent.is_err() {
            return;
        }
        for Addressed { batch, .. } in &self.batches {
            metrics.records_sent += u64::try_from(batch.record_count()).unwrap_or_default();
            metrics.sent_batch_bytes.add(batch.size_bytes() as u64);
            if batch.attempts <= 1 {
                metrics.queued_us.add(in_us(self.at.saturating_duration_since(batch.created)));
            }
        }
    }

    /// Waits for the answer, or until it is written if no answer is expected.
    pub(super) async fn finish(self) -> Answered {
        let frame = match self.sent {
            Ok(Sent::Answered(answer)) => answer.wait().await.map(Some),
            Ok(Sent::Unanswered(written)) => written.wait().await.map(|()| None),
            Ok(Sent::Nothing) => Ok(None),
            Err(error) => Err(error),
        };
        let answered = matches!(frame, Ok(Some(_)));
        let mut results = match frame {
            Ok(Some(frame)) => read(&frame, self.batches),
            Ok(None) => {
                let unknown = BatchPlace { base_offset: None, append_time: None };
                self.batches.into_iter().map(|addressed| (addressed.batch, Ok(unknown))).collect()
            }
            Err(error) => all_failed(self.batches, &error),
        };
        let latency = answered.then(|| self.at.elapsed());
        results.extend(self.failed.into_iter().map(|(batch, error)| (batch, Err(error))));
        Answered { node: self.node, latency, results }
    }
}

/// A time in microseconds, as the metrics have it.
pub(super) fn in_us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn all_failed(batches: Vec<Addressed>, error: &ClientError) -> Vec<(Batch, Result<BatchPlace, ClientError>)> {
    batches.into_iter().map(|addressed| (addressed.batch, Err(error.clone()))).collect()
}

fn read(frame: &ResponseFrame, batches: Vec<Addressed>) -> Vec<(Batch, Result<BatchPlace, ClientError>)> {
    let answer = match frame.decode::<ProduceRequest<'_>>() {
        Ok(answer) => answer,
        Err(error) => return all_failed(batches, &error),
    };
    batches
        .into_iter()
        .map(|addressed| {
            let result = find(&answer.responses, &addressed)
                .and_then(|answer| place(answer, addressed.batch.record_count()));
            (addressed.batch, result)
        })
        .collect()
}

/// The answer for one batch. From version 13 on topics are named by id.
fn find<'a, 'r>(
    topics: &'a [TopicProduceResponse<'r>],
    addressed: &Addressed,
) -> Result<&'a PartitionProduceResponse<'r>, ClientError> {
    let partition = addressed.batch.key.partition;
    topics
        .iter()
        .filter(|topic| {
            if topic.name.is_empty() {
                topic.topic_id == addressed.topic_id
            } else {
                topic.name == *addressed.topic
            }
        })
        .flat_map(|topic| &topic.partition_responses)
        .find(|answer| answer.index == partition)
        .ok_or_else(|| ClientError::Incomplete {
            api: ApiKey::Produce,
            missing: format!("{}-{partition}", addressed.topic),
        })
}

fn place(answer: &PartitionProduceResponse<'_>, records: i32) -> Result<BatchPlace, ClientError> {
    ClientError::check(answer.error_code, answer.error_message.as_deref())?;
    if answer.base_offset.checked_add(i64::from(records)).is_none() {
        let what = format!("{records} records from offset {} on", answer.base_offset);
        return Err(ClientError::Impossible { api: ApiKey::Produce, what });
    }
    Ok(BatchPlace {
        base_offset: (answer.base_offset >= 0).then_some(Offset(answer.base_offset)),
        append_time: (answer.log_append_time_ms >= 0).then_some(TimestampMs(answer.log_append_time_ms)),
    })
}

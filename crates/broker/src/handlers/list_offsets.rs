//! `ListOffsets` (key 2), versions 1 to 11: offsets by time, and the ends of partitions.
//!
//! Timestamps with a meaning of their own: -1 the latest, -2 the earliest, -3 the record with the largest timestamp
//! (KIP-734), -4 the earliest on this disk (KIP-405), -5 the latest in remote storage and -6 the earliest that waits
//! to go there, of which there is none here. Each is known from its own version on. Nothing at or above the high watermark
//! is shown.
//!
//! A search by time may have to wait for the disk: it is done aside, a few at a time for each log dir, as catch-up
//! reads are, and gives its turn to others after some milliseconds, at the end of a batch. Inflating keeps no thread of the
//! network busy, because these requests are always worked on aside. Where there are several log dirs, one that hangs is not
//! searched: its partitions are answered with an error after which clients ask again.

use std::collections::HashSet;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use riverrun_log::TimeSearch;
use riverrun_protocol::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use riverrun_protocol::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use riverrun_protocol::{ErrorCode, ListOffsetsRequest, ListOffsetsResponse};
use riverrun_types::{LeaderEpoch, PartitionId, TimestampMs};

use crate::aside::{give_way, waiting};
use crate::broker::{Broker, TopicKey};
use crate::catch_up::Whose;
use crate::context::{Operation, RequestContext, Resource};
use crate::metadata::ClusterImage;
use crate::replicas::{ByTime, Found, Replica};

/// First version with the leader epoch of the record that was found.
const LEADER_EPOCH_SINCE: i16 = 4;

/// Time after which a search gives its turn to others.
const TURN_MAX: Duration = Duration::from_millis(3);

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

/// Whether a request of this version may ask for the timestamp.
fn is_known(timestamp: i64, version: i16) -> bool {
    match timestamp {
        0.. | LATEST | EARLIEST => true,
        MAX_TIMESTAMP => version >= 7,
        EARLIEST_LOCAL => version >= 8,
        LATEST_TIERED => version >= 9,
        EARLIEST_PENDING_UPLOAD => version >= 11,
        _ => false,
    }
}

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ListOffsetsRequest<'_>,
    version: i16,
) -> ListOffsetsResponse<'static> {
    let image = broker.catalog.cluster();
    let listing = Listing { broker, context, image: &image, repeated: repeated(&request.topics), version };
    let mut questions = Vec::new();
    for topic in &request.topics {
        questions.extend(topic.partitions.iter().map(|asked| Question { topic, asked }));
    }
    let mut answers = listing.answer_all(&questions).await.into_iter();
    let topic = |topic: &ListOffsetsTopic<'_>| ListOffsetsTopicResponse {
        name: topic.name.to_string().into(),
        partitions: answers.by_ref().take(topic.partitions.len()).collect(),
    };
    let mut response =
        ListOffsetsResponse { topics: request.topics.iter().map(topic).collect(), ..Default::default() };
    if version < LEADER_EPOCH_SINCE {
        forget_epochs(&mut response);
    }
    response
}

/// The codec refuses a field that the version lacks, instead of dropping it silently.
fn forget_epochs(response: &mut ListOffsetsResponse<'_>) {
    for partition in response.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        partition.leader_epoch = LeaderEpoch::UNKNOWN.0;
    }
}

/// Partitions that the request names more than once: they are refused, because it is not known which timestamp is meant.
fn repeated(topics: &[ListOffsetsTopic<'_>]) -> HashSet<(String, i32)> {
    let mut seen = HashSet::new();
    let mut repeated = HashSet::new();
    for topic in topics {
        for partition in &topic.partitions {
            if !seen.insert((&*topic.name, partition.partition_index)) {
                repeated.insert((topic.name.to_string(), partition.partition_index));
            }
        }
    }
    repeated
}

/// A timestamp that is asked of one partition.
#[derive(Clone, Copy)]
struct Question<'a> {
    topic: &'a ListOffsetsTopic<'a>,
    asked: &'a ListOffsetsPartition,
}

/// A request in the making of its answer.
struct Listing<'a> {
    broker: &'a Broker,
    context: &'a RequestContext,
    image: &'a ClusterImage,
    repeated: HashSet<(String, i32)>,
    version: i16,
}

impl Listing<'_> {
    /// One answer to each question, in their order.
    async fn answer_all(&self, questions: &[Question<'_>]) -> Vec<ListOffsetsPartitionResponse> {
        let mut answers = Vec::with_capacity(questions.len());
        while let Some(question) = questions.get(answers.len()) {
            match self.searched_dir(*question) {
                None => {
                    answers.push(self.answer(*question));
                    give_way().await;
                }
                Some(log_dir) => {
                    // Without a turn aside: the search has turns of its log dir.
                    waiting(self.search(log_dir, questions, &mut answers)).await;
                }
            }
        }
        answers
    }

    /// Answers the next question, and those after it that search the same log dir.
    async fn search(
        &self,
        log_dir: usize,
        questions: &[Question<'_>],
        answers: &mut Vec<ListOffsetsPartitionResponse>,
    ) {
        let whose = Whose::of(&self.context.connection);
        let mut under_way = None;
        while let Some(question) = questions.get(answers.len())
            && self.searched_dir(*question) == Some(log_dir)
        {
            if self.holds_up_others(log_dir) {
                under_way = None;
                let refused = Err(ErrorCode::KAFKA_STORAGE_ERROR);
                answers.push(response(question.asked.partition_index, refused));
                continue;
            }
            // A turn that does not come in time may mean that the dir hangs.
            let search_on = || self.search_on(log_dir, questions, answers, &mut under_way);
            self.broker.catch_up.wait_aside(log_dir, whose, search_on).await;
        }
    }

    /// Goes on with [`Self::search`] for one turn: `under_way` is the search that the next turn continues. Blocks for the disk.
    fn search_on(
        &self,
        log_dir: usize,
        questions: &[Question<'_>],
        answers: &mut Vec<ListOffsetsPartitionResponse>,
        under_way: &mut Option<TimeSearch>,
    ) {
        let clock = &self.broker.env.clock;
        let begun = clock.monotonic();
        let mut is_over = || clock.monotonic().saturating_sub(begun) >= TURN_MAX;
        while let Some(question) = questions.get(answers.len())
            && self.searched_dir(*question) == Some(log_dir)
        {
            let wanted = by_time(question.asked.timestamp);
            let outcome = self
                .resolve(*question)
                .and_then(|(replica, _)| replica.search(wanted, under_way, &mut is_over));
            match outcome {
                Ok(Poll::Pending) => return,
                Ok(Poll::Ready(found)) => answers.push(response(question.asked.partition_index, Ok(found))),
                Err(code) => answers.push(response(question.asked.partition_index, Err(code))),
            }
            *under_way = None;
            if is_over() {
                return;
            }
        }
    }

    /// Whether a log dir's disk answers nothing while there are others, whose requests it must not hold up.
    fn holds_up_others(&self, log_dir: usize) -> bool {
        self.broker.logs.dir_count() > 1 && self.broker.logs.dir_stands_still(log_dir)
    }

    /// The log dir whose segments a question has to search; none if it needs no search.
    fn searched_dir(&self, question: Question<'_>) -> Option<usize> {
        let Question { topic, asked } = question;
        if !matches!(asked.timestamp, 0.. | MAX_TIMESTAMP) {
            return None;
        }
        let topic = self.image.topic(&topic.name)?.id;
        self.broker.replicas.log_dir(PartitionId { topic, index: asked.partition_index })
    }

    fn answer(&self, question: Question<'_>) -> ListOffsetsPartitionResponse {
        let timestamp = question.asked.timestamp;
        let found = self.resolve(question).and_then(|(replica, leading)| find(&replica, leading, timestamp));
        response(question.asked.partition_index, found)
    }

    /// The partition that a question asks for, and the epoch of its leader.
    fn resolve(&self, Question { topic, asked }: Question<'_>) -> Result<(Replica, LeaderEpoch), ErrorCode> {
        if self.repeated.contains(&(topic.name.to_string(), asked.partition_index)) {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        if !self.context.authorize(Operation::Describe, Resource::Topic(&topic.name)) {
            return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
        }
        if !is_known(asked.timestamp, self.version) {
            return Err(ErrorCode::UNSUPPORTED_VERSION);
        }
        let found = TopicKey::Name(&topic.name).find(self.image)?;
        self.broker.check_epoch(found, asked.partition_index, LeaderEpoch(asked.current_leader_epoch))?;
        let leading = self.broker.leader_epoch(found, asked.partition_index);
        Ok((self.broker.replicas.find(found, asked.partition_index)?, leading))
    }
}

/// The search for a timestamp that names no end of the log.
fn by_time(timestamp: i64) -> ByTime {
    if timestamp == MAX_TIMESTAMP { ByTime::Newest } else { ByTime::From(TimestampMs(timestamp)) }
}

/// Finds the offset for a timestamp, where no log dir has to be searched.
fn find(replica: &Replica, leading: LeaderEpoch, timestamp: i64) -> Result<Found, ErrorCode> {
    match timestamp {
        LATEST => replica.latest(leading),
        EARLIEST | EARLIEST_LOCAL => replica.earliest(leading),
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => Ok(None),
        _ => match replica.search(by_time(timestamp), &mut None, &mut || false)? {
            Poll::Ready(found) => Ok(found),
            Poll::Pending => Err(ErrorCode::UNKNOWN_SERVER_ERROR),
        },
    }
}

fn response(index: i32, found: Result<Found, ErrorCode>) -> ListOffsetsPartitionResponse {
    let mut response = ListOffsetsPartitionResponse { partition_index: index, ..Default::default() };
    match found {
        Ok(Some((timestamp, offset, epoch))) => {
            (response.timestamp, response.offset, response.leader_epoch) = (timestamp.0, offset.0, epoch.0);
        }
        Ok(None) => {}
        Err(code) => response.error_code = code.0,
    }
    response
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::sync_channel;

    use riverrun_env::sim::SimEnv;

    use super::*;
    use crate::config::BrokerConfig;
    use crate::context::ConnectionInfo;
    use crate::start::open_broker;
    use crate::testing::{record, topic_with_a_record};

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A server with a record in a segment.
    fn start(sim: &SimEnv) -> Arc<Broker> {
        let config = BrokerConfig::from_pairs([("data.dir", "/data")]).expect("valid");
        let broker = open_broker(sim.env(), config).expect("starts");
        topic_with_a_record(&broker, 1, TimestampMs(5));
        broker
    }

    async fn list(broker: &Arc<Broker>, timestamp: i64) -> ListOffsetsPartitionResponse {
        let asked = ListOffsetsPartition { timestamp, current_leader_epoch: -1, ..Default::default() };
        let topics = vec![ListOffsetsTopic { name: "t".into(), partitions: vec![asked] }];
        let request = ListOffsetsRequest { topics, ..Default::default() };
        handle(broker, &context(), request, 7).await.topics.remove(0).partitions.remove(0)
    }

    fn context() -> RequestContext {
        let connection =
            ConnectionInfo::new(1, SocketAddr::from(([127, 0, 0, 1], 1)), Arc::from("PLAINTEXT"));
        RequestContext { connection: Arc::new(connection), client_id: Arc::from("test") }
    }

    #[test]
    fn time_search_gives_its_turn_back_after_a_batch_and_resumes() {
        let sim = SimEnv::new(1);
        let broker = start(&sim);
        let image = broker.catalog.cluster();
        let partition = broker.partition(image.topic("t").expect("made"), 0).expect("there");
        for timestamp in 6..10 {
            let batch = record(TimestampMs(timestamp), b"value");
            partition.append(batch, broker.append_options()).expect("taken");
            partition.write_staged().expect("written");
        }
        let asked = ListOffsetsPartition { timestamp: 9, current_leader_epoch: -1, ..Default::default() };
        let topic = ListOffsetsTopic { name: "t".into(), partitions: vec![asked] };
        let questions = [Question { topic: &topic, asked: &topic.partitions[0] }];
        let context = context();
        let repeated = HashSet::new();
        let listing = Listing { broker: &broker, context: &context, image: &image, repeated, version: 7 };
        let (mut answers, mut under_way, mut turns) = (Vec::new(), None, 0);
        while answers.is_empty() {
            let clock = Arc::clone(&sim.clock);
            sim.fs.during_next_read(move || clock.advance(TURN_MAX));
            listing.search_on(0, &questions, &mut answers, &mut under_way);
            turns += 1;
        }
        assert_eq!((answers[0].error_code, answers[0].offset, answers[0].timestamp), (0, 4, 9));
        assert!(turns >= 4, "{turns} turns for 5 batches, each of which takes as long as a turn may");
        assert!(under_way.is_none());
    }

    #[test]
    fn time_search_waiting_for_disk_holds_up_no_connection() {
        let sim = SimEnv::new(1);
        let broker = start(&sim);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .expect("a runtime");
        for timestamp in [0, MAX_TIMESTAMP] {
            let (tell, told) = sync_channel(1);
            let has_waited = Arc::new(AtomicBool::new(false));
            let (broker, notes) = (Arc::clone(&broker), Arc::clone(&has_waited));
            sim.fs.during_next_read(move || {
                told.recv_timeout(PATIENCE).expect("the other connection waits");
                notes.store(true, Ordering::Release);
            });
            let found = runtime.block_on(async move {
                let listing = tokio::spawn(async move { list(&broker, timestamp).await });
                let other = tokio::spawn(async move { tell.send(()).expect("it is waited for") });
                other.await.expect("ends");
                listing.await.expect("answered")
            });
            assert_eq!((found.error_code, found.offset, found.timestamp), (0, 0, 5), "{timestamp}");
            assert!(has_waited.load(Ordering::Acquire), "nothing was read");
        }
    }
}

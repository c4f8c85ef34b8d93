//! Leader epochs are a partition's own: 0 when it came to be, one more with each start since; every request with a
//! leader epoch in it or in its answer goes by that.

use riverrun_broker::Server;
use riverrun_protocol::create_partitions_request::CreatePartitionsTopic;
use riverrun_protocol::delete_topics_request::DeleteTopicState;
use riverrun_protocol::describe_topic_partitions_request::TopicRequest;
use riverrun_protocol::fetch_request::FetchPartition;
use riverrun_protocol::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use riverrun_protocol::metadata_request::MetadataRequestTopic;
use riverrun_protocol::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use riverrun_protocol::{
    CreatePartitionsRequest, DeleteTopicsRequest, DescribeTopicPartitionsRequest, ErrorCode,
    ListOffsetsRequest, MetadataRequest, OffsetForLeaderEpochRequest,
};
use riverrun_records::Batches;
use tempfile::TempDir;

use crate::support::{
    Client, FETCH_BY_NAME, batch, create_topic, fetch, fetch_request, only, produce, records, server_with,
};

const LATEST: i64 = -1;

/// A server that is started again and again.
struct Machine {
    data: TempDir,
    server: Option<Server>,
    client: Client,
}

impl Machine {
    fn new() -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let server = start(&data);
        let client = Client::new(&server);
        Self { data, server: Some(server), client }
    }

    fn restart(&mut self) {
        self.server.take().expect("it runs").stop().expect("a clean stop");
        let server = self.server.insert(start(&self.data));
        self.client = Client::new(server);
    }

    /// Epochs of a topic's partitions, alike in both requests that describe it.
    fn epochs(&mut self, name: &'static str) -> Vec<i32> {
        let topic = MetadataRequestTopic { name: Some(name.into()), ..Default::default() };
        let request = MetadataRequest { topics: Some(vec![topic]), ..Default::default() };
        let topic = self.client.call(&request, 12).topics.remove(0);
        let told: Vec<i32> = topic.partitions.iter().map(|partition| partition.leader_epoch).collect();
        let request = DescribeTopicPartitionsRequest {
            topics: vec![TopicRequest { name: name.into() }],
            response_partition_limit: 100,
            cursor: None,
        };
        let topic = self.client.call(&request, 0).topics.remove(0);
        let also: Vec<i32> = topic.partitions.iter().map(|partition| partition.leader_epoch).collect();
        assert_eq!(told, also);
        told
    }

    fn grow(&mut self, name: &'static str, count: i32) {
        let topics = vec![CreatePartitionsTopic { name: name.into(), count, assignments: None }];
        let request = CreatePartitionsRequest { topics, timeout_ms: 10_000, validate_only: false };
        assert_eq!(self.client.call(&request, 3).results[0].error_code, 0);
    }

    fn delete(&mut self, name: &'static str) {
        let topics = vec![DeleteTopicState { name: Some(name.into()), ..Default::default() }];
        let request = DeleteTopicsRequest { topics, timeout_ms: 10_000, ..Default::default() };
        assert_eq!(self.client.call(&request, 6).responses[0].error_code, 0);
    }

    /// The error of a fetch with each of these leader epochs, and the epoch in its answer.
    fn fetched<const N: usize>(
        &mut self,
        name: &str,
        index: i32,
        believed: [i32; N],
    ) -> [(ErrorCode, i32); N] {
        believed.map(|current_leader_epoch| {
            let mut request = fetch_request(name, index, 0);
            let asked = &mut request.topics[0].partitions[0];
            *asked = FetchPartition { current_leader_epoch, ..asked.clone() };
            let data = only(self.client.call(&request, FETCH_BY_NAME));
            (ErrorCode(data.error_code), data.current_leader.leader_epoch)
        })
    }

    /// The largest epoch up to each of these, and where it ended.
    fn ends<const N: usize>(&mut self, name: &'static str, asked: [i32; N]) -> [(i32, i64); N] {
        asked.map(|leader_epoch| {
            let asked = OffsetForLeaderPartition { leader_epoch, ..Default::default() };
            let topic = OffsetForLeaderTopic { topic: name.into(), partitions: vec![asked] };
            let request = OffsetForLeaderEpochRequest { replica_id: -1, topics: vec![topic] };
            let answer = self.client.call(&request, 4).topics.remove(0).partitions.remove(0);
            (answer.leader_epoch, answer.end_offset)
        })
    }

    /// The epoch of the end of a partition.
    fn latest(&mut self, name: &'static str, partition_index: i32, believed: i32) -> (ErrorCode, i32) {
        let asked =
            ListOffsetsPartition { partition_index, timestamp: LATEST, current_leader_epoch: believed };
        let topic = ListOffsetsTopic { name: name.into(), partitions: vec![asked] };
        let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() };
        let answer = self.client.call(&request, 7).topics.remove(0).partitions.remove(0);
        (ErrorCode(answer.error_code), answer.leader_epoch)
    }

    /// Epochs of the batches of a partition.
    fn batches(&mut self, name: &str, index: i32) -> Vec<i32> {
        let data = fetch(&mut self.client, name, index, 0);
        let epoch = |batch: riverrun_records::UnverifiedBatch<'_>| {
            batch.verify().expect("sound").header().leader_epoch().0
        };
        Batches::new(records(&data)).map(|batch| epoch(batch.expect("whole"))).collect()
    }
}

fn start(data: &TempDir) -> Server {
    server_with(&[("data.dir", data.path().to_str().expect("text"))])
}

#[test]
fn each_partition_counts_the_starts_since_it_came_to_be() {
    const FENCED: ErrorCode = ErrorCode::FENCED_LEADER_EPOCH;
    const UNKNOWN: ErrorCode = ErrorCode::UNKNOWN_LEADER_EPOCH;
    let mut machine = Machine::new();
    create_topic(&mut machine.client, "old", 1, &[]);
    assert_eq!(machine.epochs("old"), [0]);
    produce(&mut machine.client, "old", 0, &batch(&["a", "b"]));
    machine.restart();
    machine.grow("old", 2);
    create_topic(&mut machine.client, "new", 1, &[]);
    for name in ["old", "new"] {
        produce(&mut machine.client, name, 0, &batch(&["c"]));
    }
    machine.restart();
    assert_eq!((machine.epochs("old"), machine.epochs("new")), (vec![2, 1], vec![1]));
    let answers = [(FENCED, 2), (ErrorCode::NONE, -1), (UNKNOWN, -1)];
    assert_eq!(machine.fetched("old", 0, [1, 2, 3]), answers);
    assert_eq!(machine.fetched("old", 1, [0, 1, 2]), [(FENCED, 1), answers[1], answers[2]]);
    assert_eq!(machine.fetched("new", 0, [0, 1, 2]), [(FENCED, 1), answers[1], answers[2]]);
    let nowhere = (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, -1);
    assert_eq!(machine.fetched("new", 1, [-1, 0, 1, 2]), [nowhere; 4]);
    assert_eq!(machine.ends("old", [0, 1, 2, 3]), [(0, 2), (1, 3), (2, 3), (-1, -1)]);
    assert_eq!(machine.ends("new", [0, 1, 2]), [(0, 1), (1, 1), (-1, -1)]);
    assert_eq!(machine.latest("old", 0, 2), (ErrorCode::NONE, 2));
    assert_eq!(machine.latest("old", 1, 1), (ErrorCode::NONE, 1));
    assert_eq!(machine.latest("old", 1, 2).0, UNKNOWN);
    produce(&mut machine.client, "old", 0, &batch(&["d"]));
    assert_eq!(machine.batches("old", 0), [0, 1, 2]);
    assert_eq!(machine.batches("new", 0), [0]);
}

#[test]
fn a_topic_that_is_made_anew_begins_anew() {
    let mut machine = Machine::new();
    create_topic(&mut machine.client, "t", 1, &[]);
    machine.restart();
    assert_eq!(machine.epochs("t"), [1]);
    machine.delete("t");
    create_topic(&mut machine.client, "t", 1, &[]);
    assert_eq!(machine.epochs("t"), [0]);
    produce(&mut machine.client, "t", 0, &batch(&["a"]));
    machine.restart();
    assert_eq!((machine.epochs("t"), machine.batches("t", 0)), (vec![1], vec![0]));
}

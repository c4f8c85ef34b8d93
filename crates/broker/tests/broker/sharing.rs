//! Requests that have much to do: others of the same thread go on meanwhile, and nothing is allowed without a bound.

use std::sync::atomic::{AtomicBool, Ordering};

use riverrun_broker::Server;
use riverrun_protocol::describe_configs_request::DescribeConfigsResource;
use riverrun_protocol::elect_leaders_request::TopicPartitions;
use riverrun_protocol::fetch_request::FetchPartition;
use riverrun_protocol::metadata_request::MetadataRequestTopic;
use riverrun_protocol::produce_request::{PartitionProduceData, TopicProduceData};
use riverrun_protocol::{
    ApiVersionsRequest, DescribeClusterRequest, DescribeConfigsRequest, ElectLeadersRequest, ErrorCode,
    FetchRequest, MetadataRequest, ProduceRequest, Records, Request,
};

use crate::support::{
    Client, FETCH_BY_NAME, assert_serves, batch, create_topic, fetch_request, produce_request, read_all,
    request_bytes, server, server_with,
};

const TOPIC: i8 = 2;
/// Elements that take a server some time.
const MANY: usize = 60_000;

/// Answers that another client gets on the one thread of the network while the request is worked on.
fn answers_beside<'q, R: Request<'q>>(server: &Server, request: &R, version: i16) -> usize {
    let (mut heavy, mut other) = (Client::new(server), Client::new(server));
    let bytes = request_bytes(request, version);
    let is_answered = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            heavy.write(&bytes);
            heavy.read_frame().expect("answered");
            is_answered.store(true, Ordering::SeqCst);
        });
        let mut answers = 0;
        while !is_answered.load(Ordering::SeqCst) {
            other.call(&ApiVersionsRequest::default(), 0);
            answers += 1;
        }
        answers
    })
}

fn metadata_of_many() -> MetadataRequest<'static> {
    let topic = |index| MetadataRequestTopic { name: Some(format!("{index}").into()), ..Default::default() };
    MetadataRequest { topics: Some((0..MANY).map(topic).collect()), ..Default::default() }
}

fn configs_of_many() -> DescribeConfigsRequest<'static> {
    let resource = |index| DescribeConfigsResource {
        resource_type: TOPIC,
        resource_name: format!("{index}").into(),
        ..Default::default()
    };
    DescribeConfigsRequest { resources: (0..MANY).map(resource).collect(), ..Default::default() }
}

fn produce_to_many() -> ProduceRequest<'static> {
    let partition = |index| PartitionProduceData { index, records: None };
    let topic = TopicProduceData {
        name: "t".into(),
        partition_data: (0..).take(MANY).map(partition).collect(),
        ..Default::default()
    };
    ProduceRequest { acks: 1, timeout_ms: 1_000, topic_data: vec![topic], ..Default::default() }
}

fn fetch_of_many() -> FetchRequest<'static> {
    let mut request = fetch_request("t", 0, 0);
    let asked = request.topics[0].partitions[0].clone();
    let partition = |partition| FetchPartition { partition, ..asked.clone() };
    request.topics[0].partitions = (0..).take(MANY).map(partition).collect();
    request
}

#[test]
fn topics_made_by_name_are_bounded_for_a_source() {
    let server = server();
    let mut client = Client::new(&server);
    let topic =
        |index| MetadataRequestTopic { name: Some(format!("made-{index}").into()), ..Default::default() };
    let topics = Some((0..1_200).map(topic).collect());
    let request = MetadataRequest { topics, allow_auto_topic_creation: true, ..Default::default() };
    let answer = client.call(&request, 12);
    let count = |code: ErrorCode| answer.topics.iter().filter(|topic| topic.error_code == code.0).count();
    assert_eq!((count(ErrorCode::NONE), count(ErrorCode::LEADER_NOT_AVAILABLE)), (1_000, 200));
    let all = MetadataRequest { topics: None, allow_auto_topic_creation: true, ..Default::default() };
    assert_eq!(client.call(&all, 12).topics.len(), 1_000);
}

#[test]
fn a_large_request_holds_up_no_other_of_its_network_thread() {
    let server = server_with(&[("num.network.threads", "1")]);
    let beside = [
        answers_beside(&server, &metadata_of_many(), 8),
        answers_beside(&server, &configs_of_many(), 1),
        answers_beside(&server, &produce_to_many(), 12),
        answers_beside(&server, &fetch_of_many(), FETCH_BY_NAME),
    ];
    // Held up, it gets one at the beginning and one at the end.
    assert!(beside.iter().all(|answers| *answers >= 10), "{beside:?}");
}

#[test]
fn a_request_behind_a_large_one_is_answered_after_it() {
    let server = server();
    let mut client = Client::new(&server);
    client.send(&metadata_of_many(), 8);
    client.send(&DescribeClusterRequest::default(), 0);
    assert_eq!(client.receive::<MetadataRequest<'_>>(8).1.topics.len(), MANY);
    client.receive::<DescribeClusterRequest>(0);
}

#[test]
fn records_keep_their_order_around_a_request_of_many_partitions() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 600, &[]);
    let values = ["a", "b", "c"].map(|value| batch(&[value]));
    let mut many = produce_request("t", 0, &values[1], 1);
    let all = |index| PartitionProduceData { index, records: Some(Records::Bytes(&values[1])) };
    many.topic_data[0].partition_data = (0..600).map(all).collect();
    client.send(&produce_request("t", 0, &values[0], 1), 12);
    client.send(&many, 12);
    client.send(&produce_request("t", 0, &values[2], 1), 12);
    for answers in [1, 600, 1] {
        let (_, response) = client.receive::<ProduceRequest<'_>>(12);
        let answered = &response.responses[0].partition_responses;
        assert!(answered.len() == answers && answered.iter().all(|answer| answer.error_code == 0));
    }
    assert_eq!(read_all(&mut client, "t", 0, 0), ["a", "b", "c"]);
    assert_eq!(read_all(&mut client, "t", 599, 0), ["b"]);
}

#[test]
fn a_session_of_many_partitions_waits_for_new_records() {
    let server = server();
    let (mut client, mut producer) = (Client::new(&server), Client::new(&server));
    create_topic(&mut client, "t", 1_000, &[]);
    let mut request = fetch_request("t", 0, 0);
    let asked = request.topics[0].partitions[0].clone();
    let partition = |partition| FetchPartition { partition, ..asked.clone() };
    request.topics[0].partitions = (0..1_000).map(partition).collect();
    (request.session_epoch, request.max_wait_ms, request.min_bytes) = (0, 0, 0);
    let full = client.call(&request, FETCH_BY_NAME);
    assert_eq!(full.responses[0].partitions.len(), 1_000);
    assert_ne!(full.session_id, 0, "it has a session");
    request.topics.clear();
    (request.session_id, request.session_epoch) = (full.session_id, 1);
    // Partitions that were not opened yet are in later answers, once they are.
    while !client.call(&request, FETCH_BY_NAME).responses.is_empty() {
        request.session_epoch += 1;
        assert!(request.session_epoch < 1_000, "something is always new");
    }
    request.session_epoch += 1;
    (request.max_wait_ms, request.min_bytes) = (20_000, 1);
    client.send(&request, FETCH_BY_NAME);
    producer.call(&produce_request("t", 777, &batch(&["new"]), 1), 12);
    let (_, news) = client.receive::<FetchRequest<'_>>(FETCH_BY_NAME);
    let indexes: Vec<_> = news.responses[0].partitions.iter().map(|data| data.partition_index).collect();
    assert_eq!(indexes, [777]);
}

#[test]
fn one_describe_configs_request_answers_many_topics() {
    let server = server();
    let results = Client::new(&server).call(&configs_of_many(), 1).results;
    assert_eq!(results.len(), MANY);
    assert!(results.iter().all(|result| result.error_code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0));
}

#[test]
fn a_request_beyond_its_bound_closes_its_connection() {
    let server = server();
    let mut client = Client::new(&server);
    let topic = TopicPartitions { topic: "t".into(), partitions: vec![0; 250_000] };
    let request = ElectLeadersRequest { topic_partitions: Some(vec![topic]), ..Default::default() };
    client.write(&request_bytes(&request, 1));
    client.expect_closed("250,001 elements");
    assert_serves(&server);
}

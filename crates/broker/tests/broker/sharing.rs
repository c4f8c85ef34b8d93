//! Requests that have much to do: others of the same thread go on meanwhile, and nothing is allowed without a bound.

use std::sync::atomic::{AtomicBool, Ordering};

use riverrun_broker::Server;
use riverrun_protocol::describe_configs_request::DescribeConfigsResource;
use riverrun_protocol::elect_leaders_request::TopicPartitions;
use riverrun_protocol::metadata_request::MetadataRequestTopic;
use riverrun_protocol::{
    ApiVersionsRequest, DescribeClusterRequest, DescribeConfigsRequest, ElectLeadersRequest, ErrorCode,
    MetadataRequest, Request,
};

use crate::support::{Client, assert_serves, request_bytes, server, server_with};

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

#[test]
fn others_on_its_thread_go_on_while_a_request_has_much_to_do() {
    let server = server_with(&[("num.network.threads", "1")]);
    let beside =
        [answers_beside(&server, &metadata_of_many(), 8), answers_beside(&server, &configs_of_many(), 1)];
    // Held up, it gets one at the beginning and one at the end.
    assert!(beside.iter().all(|answers| *answers >= 10), "{beside:?}");
}

#[test]
fn what_came_after_a_request_with_much_to_do_is_answered_after_it() {
    let server = server();
    let mut client = Client::new(&server);
    client.send(&metadata_of_many(), 8);
    client.send(&DescribeClusterRequest::default(), 0);
    assert_eq!(client.receive::<MetadataRequest<'_>>(8).1.topics.len(), MANY);
    client.receive::<DescribeClusterRequest>(0);
}

#[test]
fn all_topics_of_a_server_are_described_by_one_request_whatever_their_number() {
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

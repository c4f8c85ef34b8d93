//! Requests that name one thing many times: the answer does not repeat it as often.

use riverrun_protocol::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use riverrun_protocol::describe_configs_request::DescribeConfigsResource;
use riverrun_protocol::offset_fetch_request::OffsetFetchRequestGroup;
use riverrun_protocol::{
    ConsumerGroupDescribeRequest, DeleteRecordsRequest, DescribeConfigsRequest, DescribeGroupsRequest,
    ErrorCode, OffsetFetchRequest,
};

use crate::support::{Client, batch, create_topic, find_coordinator, produce, server};

/// How often each thing is named.
const TIMES: usize = 1_000;
const BROKER: i8 = 4;

#[test]
fn a_resource_is_described_once() {
    let server = server();
    let mut client = Client::new(&server);
    let named = |name: String| DescribeConfigsResource {
        resource_type: BROKER,
        resource_name: name.into(),
        ..Default::default()
    };
    let mut resources = vec![named("1".to_owned()); TIMES];
    resources.push(named("01".to_owned()));
    let results = client.call(&DescribeConfigsRequest { resources, ..Default::default() }, 4).results;
    let codes: Vec<_> = results.iter().map(|result| ErrorCode(result.error_code)).collect();
    assert_eq!(codes, [ErrorCode::NONE, ErrorCode::INVALID_REQUEST], "one number has one spelling");
    assert!(!results[0].configs.is_empty());
}

#[test]
fn delete_records_goes_once_by_the_last_offset_named() {
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    for _ in 0..10 {
        produce(&mut client, "t", 0, &batch(&["value"]));
    }
    let up_to = |offset| DeleteRecordsPartition { partition_index: 0, offset };
    let mut partitions = vec![up_to(7); TIMES];
    partitions.push(up_to(3));
    let topics = vec![DeleteRecordsTopic { name: "t".into(), partitions }];
    let request = DeleteRecordsRequest { topics, timeout_ms: 30_000 };
    let deleted = client.call(&request, 2).topics.remove(0).partitions;
    let told: Vec<_> = deleted.iter().map(|of| (ErrorCode(of.error_code), of.low_watermark)).collect();
    assert_eq!(told, [(ErrorCode::NONE, 3)]);
}

#[test]
fn a_group_is_described_once_and_its_offsets_fetched_once() {
    let server = server();
    let mut client = Client::new(&server);
    find_coordinator(&mut client, "g");
    let groups = vec!["g".into(); TIMES];
    let request = DescribeGroupsRequest { groups, ..Default::default() };
    assert_eq!(client.call(&request, 5).groups.len(), 1);
    let group_ids = vec!["g".into(); TIMES];
    let request = ConsumerGroupDescribeRequest { group_ids, ..Default::default() };
    assert_eq!(client.call(&request, 0).groups.len(), 1);
    let group = |id: &'static str| OffsetFetchRequestGroup { group_id: id.into(), ..Default::default() };
    let groups = vec![group("g"), group("g"), group("other")];
    let answers = client.call(&OffsetFetchRequest { groups, ..Default::default() }, 8).groups;
    let codes: Vec<_> = answers.iter().map(|answer| ErrorCode(answer.error_code)).collect();
    assert_eq!(codes, [ErrorCode::INVALID_REQUEST, ErrorCode::NONE]);
}

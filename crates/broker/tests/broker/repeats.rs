//! Requests that name one thing many times: the answer is not a thousand times what the server has to say.

use riverrun_protocol::describe_configs_request::DescribeConfigsResource;
use riverrun_protocol::offset_fetch_request::OffsetFetchRequestGroup;
use riverrun_protocol::{
    ConsumerGroupDescribeRequest, DescribeConfigsRequest, DescribeGroupsRequest, ErrorCode,
    OffsetFetchRequest,
};

use crate::support::{Client, find_coordinator, server};

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

//! Requests about topics, records and producers: in each version one call that works, and one about a topic or
//! producer that is not there.

use riverrun_protocol::alter_configs_request as alter;
use riverrun_protocol::create_partitions_request::CreatePartitionsTopic;
use riverrun_protocol::create_topics_request::CreatableTopic;
use riverrun_protocol::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use riverrun_protocol::delete_topics_request::DeleteTopicState;
use riverrun_protocol::describe_configs_request::DescribeConfigsResource;
use riverrun_protocol::describe_log_dirs_request::DescribableLogDirTopic;
use riverrun_protocol::describe_producers_request::TopicRequest as ProducersOf;
use riverrun_protocol::describe_topic_partitions_request::TopicRequest;
use riverrun_protocol::elect_leaders_request::TopicPartitions;
use riverrun_protocol::fetch_request::{FetchPartition, FetchTopic};
use riverrun_protocol::incremental_alter_configs_request as incremental;
use riverrun_protocol::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use riverrun_protocol::metadata_request::MetadataRequestTopic;
use riverrun_protocol::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use riverrun_protocol::produce_request::{PartitionProduceData, TopicProduceData};
use riverrun_protocol::{
    AlterConfigsRequest, CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest,
    DeleteTopicsRequest, DescribeConfigsRequest, DescribeLogDirsRequest, DescribeProducersRequest,
    DescribeTopicPartitionsRequest, ElectLeadersRequest, ErrorCode, FetchRequest,
    IncrementalAlterConfigsRequest, InitProducerIdRequest, ListOffsetsRequest, MetadataRequest,
    OffsetForLeaderEpochRequest, ProduceRequest, Records,
};
use riverrun_types::TopicId;

use super::{NO_ID, NOWHERE, RECORDS, TOPIC, World, assert_code, assert_ok};
use crate::support::{batch, batch_with, create_topic, records, values};

const TOPIC_RESOURCE: i8 = 2;
const BROKER_RESOURCE: i8 = 4;

/// A partition that no topic here has.
const BEYOND: i32 = 99;

pub(super) fn produce(world: &mut World, version: i16) {
    let by_id = version >= 13;
    let unknown = if by_id { ErrorCode::UNKNOWN_TOPIC_ID } else { ErrorCode::UNKNOWN_TOPIC_OR_PARTITION };
    // A gap in the sequence is refused with a message, which only newer versions have room for.
    let stamped = riverrun_records::BatchOptions {
        producer: riverrun_records::ProducerStamp {
            id: riverrun_types::ProducerId(900 + i64::from(version)),
            epoch: riverrun_types::ProducerEpoch(0),
            base_sequence: 0,
        },
        ..Default::default()
    };
    let mut gap = stamped;
    gap.producer.base_sequence = 5;
    let mut corrupt = batch(&["x"]);
    *corrupt.last_mut().expect("bytes") ^= 1;
    let invalid = batch_with(riverrun_records::BatchOptions { control: true, ..Default::default() }, &["x"]);
    let id = world.topic_id;
    let cases = [
        (TOPIC, id, 1, batch(&["x"]), ErrorCode::NONE),
        (TOPIC, id, 1, batch_with(stamped, &["x"]), ErrorCode::NONE),
        (TOPIC, id, 1, batch_with(gap, &["x"]), ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER),
        (TOPIC, id, 1, corrupt, ErrorCode::CORRUPT_MESSAGE),
        (TOPIC, id, 1, invalid, ErrorCode::INVALID_RECORD),
        (TOPIC, id, BEYOND, batch(&["x"]), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        (NOWHERE, NO_ID, 0, batch(&["x"]), unknown),
    ];
    for (name, id, index, bytes, code) in &cases {
        let data = PartitionProduceData { index: *index, records: Some(Records::Bytes(bytes)) };
        let mut topic = TopicProduceData { partition_data: vec![data], ..Default::default() };
        if by_id {
            topic.topic_id = *id;
        } else {
            topic.name = (*name).into();
        }
        let request =
            ProduceRequest { acks: -1, timeout_ms: 1000, topic_data: vec![topic], ..Default::default() };
        let response = world.client.call(&request, version);
        assert_code(response.responses[0].partition_responses[0].error_code, *code);
    }
}

pub(super) fn fetch(world: &mut World, version: i16) {
    let by_id = version >= 13;
    let unknown = if by_id { ErrorCode::UNKNOWN_TOPIC_ID } else { ErrorCode::UNKNOWN_TOPIC_OR_PARTITION };
    let id = world.topic_id;
    let at = |partition, fetch_offset| FetchPartition {
        partition,
        fetch_offset,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    let mut cases = vec![
        (TOPIC, id, at(0, 0), ErrorCode::NONE),
        (TOPIC, id, at(0, RECORDS), ErrorCode::NONE),
        (TOPIC, id, at(0, -5), ErrorCode::OFFSET_OUT_OF_RANGE),
        (TOPIC, id, at(0, RECORDS + 1), ErrorCode::OFFSET_OUT_OF_RANGE),
        (TOPIC, id, at(BEYOND, 0), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        (NOWHERE, NO_ID, at(0, 0), unknown),
    ];
    if version >= 9 {
        let believed = |current_leader_epoch| FetchPartition { current_leader_epoch, ..at(0, 0) };
        cases.push((TOPIC, id, believed(0), ErrorCode::FENCED_LEADER_EPOCH));
        cases.push((TOPIC, id, believed(1_000), ErrorCode::UNKNOWN_LEADER_EPOCH));
    }
    if version >= 12 {
        cases.push((TOPIC, id, FetchPartition { last_fetched_epoch: 0, ..at(0, RECORDS) }, ErrorCode::NONE));
    }
    for (name, id, partition, code) in cases {
        let (offset, diverges) = (partition.fetch_offset, partition.last_fetched_epoch == 0);
        let mut topic = FetchTopic { partitions: vec![partition], ..Default::default() };
        if by_id {
            topic.topic_id = id;
        } else {
            topic.topic = name.into();
        }
        for isolation_level in [0, 1] {
            let request = FetchRequest { isolation_level, topics: vec![topic.clone()], ..Default::default() };
            let response = world.client.call(&request, version);
            assert_ok(response.error_code);
            let data = &response.responses[0].partitions[0];
            assert_code(data.error_code, code);
            let wanted: &[&str] = if code == ErrorCode::NONE && offset == 0 { &["a", "b", "c"] } else { &[] };
            assert_eq!(values(records(data)), wanted);
            // Nothing was ever written in epoch 0: a consumer with records of it has to go back to the start.
            assert_eq!(data.diverging_epoch.end_offset, if diverges { 0 } else { -1 });
        }
    }
    session(world, version);
}

/// From version 7 on a session begins where the client asks for one.
fn session(world: &mut World, version: i16) {
    if version < 7 {
        return;
    }
    let partition = FetchPartition { partition_max_bytes: 1 << 20, ..Default::default() };
    let mut topic = FetchTopic { partitions: vec![partition], ..Default::default() };
    if version >= 13 {
        topic.topic_id = world.topic_id;
    } else {
        topic.topic = TOPIC.into();
    }
    let request = FetchRequest { session_epoch: 0, topics: vec![topic], ..Default::default() };
    let session_id = world.client.call(&request, version).session_id;
    assert_ne!(session_id, 0);
    let next = FetchRequest { session_id, session_epoch: 1, ..Default::default() };
    assert_ok(world.client.call(&next, version).error_code);
    let stranger =
        FetchRequest { session_id: session_id.wrapping_add(1), session_epoch: 1, ..Default::default() };
    let refused = world.client.call(&stranger, version);
    assert_code(refused.error_code, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    let end = FetchRequest { session_id, session_epoch: -1, ..Default::default() };
    assert_ok(world.client.call(&end, version).error_code);
}

pub(super) fn list_offsets(world: &mut World, version: i16) {
    let mut cases = vec![
        (TOPIC, 0, -1, ErrorCode::NONE, RECORDS),
        (TOPIC, 0, -2, ErrorCode::NONE, 0),
        (TOPIC, 0, 0, ErrorCode::NONE, 0),
        (TOPIC, 0, i64::MAX, ErrorCode::NONE, -1),
        (TOPIC, BEYOND, -1, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, -1),
        (NOWHERE, 0, -1, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, -1),
    ];
    for (timestamp, since, offset) in [(-3, 7, 0), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1), (-7, i16::MAX, -1)]
    {
        cases.push(if version >= since {
            (TOPIC, 0, timestamp, ErrorCode::NONE, offset)
        } else {
            (TOPIC, 0, timestamp, ErrorCode::UNSUPPORTED_VERSION, -1)
        });
    }
    for (name, partition_index, timestamp, code, offset) in cases {
        let partition = ListOffsetsPartition { partition_index, timestamp, ..Default::default() };
        let topic = ListOffsetsTopic { name: name.into(), partitions: vec![partition] };
        let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() };
        let response = world.client.call(&request, version);
        let found = &response.topics[0].partitions[0];
        assert_code(found.error_code, code);
        assert_eq!(found.offset, offset, "{name} {timestamp}");
    }
}

pub(super) fn metadata(world: &mut World, version: i16) {
    let named = |name: &'static str| MetadataRequestTopic { name: Some(name.into()), ..Default::default() };
    let topics = vec![named(TOPIC), named(NOWHERE), named("not/a/name")];
    let mut request = MetadataRequest { topics: Some(topics), ..Default::default() };
    if version >= 8 {
        request.include_topic_authorized_operations = true;
        request.include_cluster_authorized_operations = version <= 10;
    }
    let response = world.client.call(&request, version);
    assert_eq!(response.brokers.len(), 1);
    let codes: Vec<_> = response.topics.iter().map(|topic| ErrorCode(topic.error_code)).collect();
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    assert_eq!(codes, [ErrorCode::NONE, unknown, ErrorCode::INVALID_TOPIC_EXCEPTION]);
    assert_eq!(response.topics[0].partitions.len(), 2);
    // All topics: none named in version 0, null from 1 on.
    let all = if version == 0 { Some(Vec::new()) } else { None };
    let response = world.client.call(&MetadataRequest { topics: all, ..Default::default() }, version);
    assert!(response.topics.iter().any(|topic| topic.name.as_deref() == Some(TOPIC)));
    if version >= 12 {
        let by_id = |topic_id| MetadataRequestTopic { topic_id, name: None };
        let topics = Some(vec![by_id(world.topic_id), by_id(NO_ID)]);
        let response = world.client.call(&MetadataRequest { topics, ..Default::default() }, version);
        let codes: Vec<_> = response.topics.iter().map(|topic| ErrorCode(topic.error_code)).collect();
        assert_eq!(codes, [ErrorCode::NONE, ErrorCode::UNKNOWN_TOPIC_ID]);
    }
}

pub(super) fn create_topics(world: &mut World, version: i16) {
    let name = format!("made-by-{version}");
    let topic = |name: &str| CreatableTopic {
        name: name.to_owned().into(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    for (validate_only, codes) in [
        (true, [ErrorCode::NONE, ErrorCode::TOPIC_ALREADY_EXISTS, ErrorCode::INVALID_TOPIC_EXCEPTION]),
        (false, [ErrorCode::NONE, ErrorCode::TOPIC_ALREADY_EXISTS, ErrorCode::INVALID_TOPIC_EXCEPTION]),
    ] {
        let topics = vec![topic(&name), topic(TOPIC), topic("a/b")];
        let response =
            world.client.call(&CreateTopicsRequest { topics, validate_only, ..Default::default() }, version);
        let found: Vec<_> = response.topics.iter().map(|topic| ErrorCode(topic.error_code)).collect();
        assert_eq!(found, codes);
    }
}

pub(super) fn delete_topics(world: &mut World, version: i16) {
    let name = format!("doomed-by-{version}");
    create_topic(&mut world.client, &name, 1, &[]);
    let mut request = DeleteTopicsRequest { timeout_ms: 1000, ..Default::default() };
    if version >= 6 {
        let state =
            |name: &str| DeleteTopicState { name: Some(name.to_owned().into()), topic_id: TopicId::ZERO };
        let by_id = DeleteTopicState { name: None, topic_id: NO_ID };
        request.topics = vec![state(&name), state(NOWHERE), by_id];
    } else {
        request.topic_names = vec![name.clone().into(), NOWHERE.into()];
    }
    let response = world.client.call(&request, version);
    let mut codes: Vec<_> = response
        .responses
        .iter()
        .map(|topic| (topic.name.as_deref().map(str::to_owned), ErrorCode(topic.error_code)))
        .collect();
    codes.retain(|(name, _)| name.is_some());
    codes.sort();
    let wanted =
        [(Some(name), ErrorCode::NONE), (Some(NOWHERE.to_owned()), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)];
    assert_eq!(codes, wanted);
    if version >= 6 {
        let unnamed = response.responses.iter().find(|topic| topic.name.is_none()).expect("by id");
        assert_code(unnamed.error_code, ErrorCode::UNKNOWN_TOPIC_ID);
    }
}

pub(super) fn create_partitions(world: &mut World, version: i16) {
    let name = format!("growing-{version}");
    create_topic(&mut world.client, &name, 1, &[]);
    let grow =
        |name: &str, count| CreatePartitionsTopic { name: name.to_owned().into(), count, assignments: None };
    let topics = vec![grow(&name, 3), grow(NOWHERE, 3), grow(TOPIC, 1)];
    let response = world
        .client
        .call(&CreatePartitionsRequest { topics, timeout_ms: 1000, validate_only: false }, version);
    let codes: Vec<_> = response.results.iter().map(|topic| ErrorCode(topic.error_code)).collect();
    assert_eq!(
        codes,
        [ErrorCode::NONE, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, ErrorCode::INVALID_PARTITIONS]
    );
}

pub(super) fn delete_records(world: &mut World, version: i16) {
    for (name, partition_index, offset, code) in [
        (TOPIC, 0, 0, ErrorCode::NONE),
        (TOPIC, 0, 100, ErrorCode::OFFSET_OUT_OF_RANGE),
        (TOPIC, BEYOND, 0, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        (NOWHERE, 0, 0, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
    ] {
        let partitions = vec![DeleteRecordsPartition { partition_index, offset }];
        let topics = vec![DeleteRecordsTopic { name: name.into(), partitions }];
        let response = world.client.call(&DeleteRecordsRequest { topics, timeout_ms: 1000 }, version);
        assert_code(response.topics[0].partitions[0].error_code, code);
    }
}

pub(super) fn offset_for_leader_epoch(world: &mut World, version: i16) {
    for (name, partition, leader_epoch, code, end) in [
        (TOPIC, 0, 1, ErrorCode::NONE, RECORDS),
        (TOPIC, 0, 0, ErrorCode::NONE, 0),
        (TOPIC, BEYOND, 1, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, -1),
        (NOWHERE, 0, 1, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, -1),
    ] {
        let partitions = vec![OffsetForLeaderPartition { partition, leader_epoch, ..Default::default() }];
        let topics = vec![OffsetForLeaderTopic { topic: name.into(), partitions }];
        let mut request = OffsetForLeaderEpochRequest { topics, ..Default::default() };
        if version >= 3 {
            request.replica_id = -1;
        }
        let response = world.client.call(&request, version);
        let found = &response.topics[0].partitions[0];
        assert_code(found.error_code, code);
        assert_eq!(found.end_offset, end, "{name} {leader_epoch}");
    }
}

pub(super) fn describe_configs(world: &mut World, version: i16) {
    for (resource_type, name, code) in [
        (TOPIC_RESOURCE, TOPIC, ErrorCode::NONE),
        (BROKER_RESOURCE, "1", ErrorCode::NONE),
        (TOPIC_RESOURCE, NOWHERE, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER_RESOURCE, "77", ErrorCode::INVALID_REQUEST),
    ] {
        let resource =
            DescribeConfigsResource { resource_type, resource_name: name.into(), configuration_keys: None };
        let request = DescribeConfigsRequest {
            resources: vec![resource],
            include_synonyms: true,
            include_documentation: version >= 3,
        };
        let response = world.client.call(&request, version);
        assert_code(response.results[0].error_code, code);
        assert_eq!(response.results[0].configs.is_empty(), code != ErrorCode::NONE);
    }
}

pub(super) fn alter_configs(world: &mut World, version: i16) {
    for (name, key, code) in [
        (TOPIC, "retention.ms", ErrorCode::NONE),
        (TOPIC, "no.such.key", ErrorCode::INVALID_CONFIG),
        (NOWHERE, "retention.ms", ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
    ] {
        let config = alter::AlterableConfig { name: key.into(), value: Some("-1".into()) };
        let resource = alter::AlterConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: name.into(),
            configs: vec![config],
        };
        let request = AlterConfigsRequest { resources: vec![resource], validate_only: false };
        assert_code(world.client.call(&request, version).responses[0].error_code, code);
    }
}

pub(super) fn incremental_alter_configs(world: &mut World, version: i16) {
    for (name, key, code) in [
        (TOPIC, "retention.ms", ErrorCode::NONE),
        (TOPIC, "no.such.key", ErrorCode::INVALID_CONFIG),
        (NOWHERE, "retention.ms", ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
    ] {
        let config =
            incremental::AlterableConfig { name: key.into(), config_operation: 0, value: Some("-1".into()) };
        let resource = incremental::AlterConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: name.into(),
            configs: vec![config],
        };
        let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
        assert_code(world.client.call(&request, version).responses[0].error_code, code);
    }
}

pub(super) fn describe_log_dirs(world: &mut World, version: i16) {
    let topic = |topic: &'static str| DescribableLogDirTopic { topic: topic.into(), partitions: vec![0] };
    for topics in [None, Some(vec![topic(TOPIC), topic(NOWHERE)])] {
        let response = world.client.call(&DescribeLogDirsRequest { topics }, version);
        assert_ok(response.error_code);
        assert_eq!(response.results.len(), 1);
        let things = response.results[0].topics.iter().find(|topic| topic.name == TOPIC).expect("listed");
        assert!(things.partitions[0].partition_size > 0);
    }
}

pub(super) fn describe_producers(world: &mut World, version: i16) {
    for (name, index, code) in [
        (TOPIC, 1, ErrorCode::NONE),
        (TOPIC, BEYOND, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        (NOWHERE, 0, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
    ] {
        let topic = ProducersOf { name: name.into(), partition_indexes: vec![index] };
        let response = world.client.call(&DescribeProducersRequest { topics: vec![topic] }, version);
        let partition = &response.topics[0].partitions[0];
        assert_code(partition.error_code, code);
        assert_eq!(partition.active_producers.is_empty(), code != ErrorCode::NONE);
    }
}

pub(super) fn describe_topic_partitions(world: &mut World, version: i16) {
    let topics = [TOPIC, NOWHERE].map(|name| TopicRequest { name: name.into() });
    let request = DescribeTopicPartitionsRequest { topics: topics.to_vec(), ..Default::default() };
    let response = world.client.call(&request, version);
    let code = |name: &str| {
        let found = response.topics.iter().find(|topic| topic.name.as_deref() == Some(name));
        ErrorCode(found.expect("answered").error_code)
    };
    assert_eq!(code(TOPIC), ErrorCode::NONE);
    assert_eq!(code(NOWHERE), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
}

pub(super) fn elect_leaders(world: &mut World, version: i16) {
    assert_ok(
        world
            .client
            .call(&ElectLeadersRequest { topic_partitions: None, ..Default::default() }, version)
            .error_code,
    );
    for (name, code) in
        [(TOPIC, ErrorCode::ELECTION_NOT_NEEDED), (NOWHERE, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)]
    {
        let topic = TopicPartitions { topic: name.into(), partitions: vec![0] };
        let request = ElectLeadersRequest { topic_partitions: Some(vec![topic]), ..Default::default() };
        let response = world.client.call(&request, version);
        assert_ok(response.error_code);
        assert_code(response.replica_election_results[0].partition_result[0].error_code, code);
    }
}

pub(super) fn init_producer_id(world: &mut World, version: i16) {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: i32::MAX,
        ..Default::default()
    };
    let first = world.client.call(&request, version);
    assert_ok(first.error_code);
    let second = world.client.call(&request, version);
    assert!(second.producer_id > first.producer_id, "an id is given once");
    let transactional = InitProducerIdRequest { transactional_id: Some("t".into()), ..request };
    let refused = world.client.call(&transactional, version);
    assert_code(refused.error_code, ErrorCode::UNSUPPORTED_VERSION);
    assert_eq!(refused.producer_id, -1);
}

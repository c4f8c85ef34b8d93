//! Long lists: one legal request of several megabytes, in which every element is a little work.

use riverrun_protocol::create_partitions_request::CreatePartitionsTopic;
use riverrun_protocol::describe_configs_request::DescribeConfigsResource;
use riverrun_protocol::fetch_request::{FetchPartition, FetchTopic};
use riverrun_protocol::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use riverrun_protocol::produce_request::{PartitionProduceData, TopicProduceData};
use riverrun_protocol::{
    CreatePartitionsRequest, DescribeConfigsRequest, FetchRequest, ListOffsetsRequest, ProduceRequest,
};

use super::{Attack, MANY};
use crate::attack::attacker::{From, Shot, Tally, Target};
use crate::wire::{Conn, frame};

/// The honest client's topic, so that the named topic exists.
const TOPIC: &str = "honest-small";

/// Connections that send such requests.
const WORKERS: usize = 4;

/// Requests with nearly as many elements as allowed, of several kinds in turn.
pub(super) struct Lists;

impl Attack for Lists {
    fn name(&self) -> &'static str {
        "lists"
    }

    fn about(&self) -> &'static str {
        "4 connections send 249,000 elements in Produce, DescribeConfigs, Fetch, CreatePartitions, ListOffsets in turn"
    }

    fn short(&self) -> Option<From> {
        Some(From::Others)
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let frames = frames()?;
        target.storm(WORKERS, |worker, conn: &mut Option<Conn>| {
            let turn = usize::try_from(worker.shot)? + worker.index;
            let mut open = match conn.take() {
                Some(open) => open,
                None => worker.connect()?,
            };
            open.send(&frames[turn % frames.len()])?;
            open.skip_answer()?;
            *conn = Some(open);
            Ok(Shot::Answered)
        })
    }
}

fn frames() -> anyhow::Result<Vec<Vec<u8>>> {
    Ok(vec![produce()?, describe_configs()?, fetch()?, create_partitions()?, list_offsets()?])
}

/// One partition, repeated, without records.
fn produce() -> anyhow::Result<Vec<u8>> {
    let topic = TopicProduceData {
        name: TOPIC.into(),
        partition_data: vec![PartitionProduceData::default(); MANY],
        ..TopicProduceData::default()
    };
    let request =
        ProduceRequest { acks: -1, timeout_ms: 1000, topic_data: vec![topic], ..ProduceRequest::default() };
    frame(&request, 8)
}

/// Topics that do not exist, each answered with a text.
pub(super) fn describe_configs() -> anyhow::Result<Vec<u8>> {
    let resource = |index: usize| DescribeConfigsResource {
        resource_type: 2,
        resource_name: format!("n{index}").into(),
        ..DescribeConfigsResource::default()
    };
    let resources = (0..MANY).map(resource).collect();
    frame(&DescribeConfigsRequest { resources, ..DescribeConfigsRequest::default() }, 1)
}

/// Partitions, one of which exists.
fn fetch() -> anyhow::Result<Vec<u8>> {
    let partition = |partition| FetchPartition { partition, ..FetchPartition::default() };
    let partitions = (0..i32::try_from(MANY)?).map(partition).collect();
    let topic = FetchTopic { topic: TOPIC.into(), partitions, ..FetchTopic::default() };
    let request = FetchRequest { max_wait_ms: 100, topics: vec![topic], ..FetchRequest::default() };
    frame(&request, 11)
}

fn create_partitions() -> anyhow::Result<Vec<u8>> {
    let topic = |index: usize| CreatePartitionsTopic {
        name: format!("n{index}").into(),
        count: 2,
        ..CreatePartitionsTopic::default()
    };
    let topics = (0..MANY).map(topic).collect();
    frame(&CreatePartitionsRequest { topics, timeout_ms: 1000, validate_only: true }, 1)
}

/// The same partition, searched by time.
fn list_offsets() -> anyhow::Result<Vec<u8>> {
    let partitions = vec![ListOffsetsPartition { timestamp: 1, ..ListOffsetsPartition::default() }; MANY];
    let topic = ListOffsetsTopic { name: TOPIC.into(), partitions };
    frame(&ListOffsetsRequest { topics: vec![topic], ..ListOffsetsRequest::default() }, 5)
}

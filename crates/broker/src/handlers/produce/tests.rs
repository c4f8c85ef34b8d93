//! How much a request has to inflate or to compress, by its topic's configuration; and which records internal topics refuse.

use std::net::{Ipv4Addr, SocketAddr};

use riverrun_env::sim::SimEnv;
use riverrun_protocol::offsets_topic::{OffsetCommitKey, OffsetCommitValue, encode_key, encode_value};
use riverrun_protocol::produce_request::PartitionProduceData;
use riverrun_protocol::{ApiKey, Decoder, RequestHeader, encode_request};
use riverrun_records::{BatchBuilder, BatchOptions};
use riverrun_types::TimestampMs;

use super::*;
use crate::config::{BrokerConfig, TopicOverrides};
use crate::context::ConnectionInfo;
use crate::metadata::{NewTopic, Record};
use crate::start::open_broker;

const VERSION: i16 = 12;

/// A broker with a topic `t`, whose codec is this.
fn broker(codec: &str) -> Arc<Broker> {
    let config = BrokerConfig::from_pairs([("data.dir", "/data"), ("compression.type", codec)]);
    let broker = open_broker(SimEnv::new(1).env(), config.expect("valid")).expect("starts");
    let new = NewTopic { name: "t".to_owned(), partition_count: 1, configs: TopicOverrides::new() };
    broker.catalog.store().change(|draft| draft.create_topic(new)).expect("changed").expect("made");
    broker
}

fn context(client_id: &str) -> RequestContext {
    let connection =
        ConnectionInfo::new(1, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), Arc::from("PLAINTEXT"));
    RequestContext { connection: Arc::new(connection), client_id: Arc::from(client_id) }
}

fn batch(compression: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions { compression, ..Default::default() });
    builder.append(TimestampMs(1), None, Some(b"value"), &[]).expect("fits");
    builder.build().expect("builds")
}

/// Bytes to code and plain bytes of a request with one batch for each of these topics.
fn work(broker: &Arc<Broker>, batches: &[(&'static str, &[u8])]) -> (usize, usize) {
    let RecordsWork { coded_bytes, plain_bytes } =
        planned(broker, "", batches).map_or(RecordsWork::default(), |(plan, _)| plan.work());
    (coded_bytes, plain_bytes)
}

/// The plan of a request with these batches from this client, and its frame.
fn planned(
    broker: &Arc<Broker>,
    client_id: &str,
    batches: &[(&'static str, &[u8])],
) -> Result<(Plan, BytesMut), NotBegun> {
    let topic = |(name, batch): &(&'static str, &'_ [u8])| {
        let records = Some(Records::Bytes(Vec::leak(batch.to_vec())));
        let partition_data = vec![PartitionProduceData { index: 0, records }];
        TopicProduceData { name: (*name).into(), partition_data, ..Default::default() }
    };
    let request =
        ProduceRequest { acks: -1, topic_data: batches.iter().map(topic).collect(), ..Default::default() };
    let encoded = encode_request(&request, VERSION, 1, None).expect("encodes").bytes;
    let frame = &encoded[4..];
    let mut decoder = Decoder::new(frame);
    RequestHeader::decode(&mut decoder).expect("a header");
    let body_at = frame.len() - decoder.remaining();
    let call = Call { key: ApiKey::Produce, version: VERSION, correlation_id: 1, body_at };
    begin(broker, &context(client_id), call, frame, 10).map(|(plan, _)| (plan, frame.into()))
}

#[test]
fn internal_topics_refuse_records_whatever_the_client_id() {
    for (allowed, expected) in
        [("false", ErrorCode::INVALID_TOPIC_EXCEPTION), ("true", ErrorCode::INVALID_RECORD)]
    {
        let config =
            BrokerConfig::from_pairs([("data.dir", "/data"), ("offsets.topic.client.writes", allowed)]);
        let broker = open_broker(SimEnv::new(1).env(), config.expect("valid")).expect("starts");
        let (name, configs) = ("__consumer_offsets", TopicOverrides::new());
        let new = NewTopic { name: name.to_owned(), partition_count: 1, configs };
        broker.catalog.store().change(|draft| draft.create_topic(new)).expect("changed").expect("made");
        for client_id in ["", "__admin_client"] {
            let (code, _) = written(&broker, client_id, name, &batch(Compression::None));
            assert_eq!(code, expected, "{client_id:?}");
        }
    }
}

#[test]
fn a_topic_of_a_reserved_name_from_older_data_takes_no_records() {
    for allowed in ["false", "true"] {
        let config =
            BrokerConfig::from_pairs([("data.dir", "/data"), ("offsets.topic.client.writes", allowed)]);
        let broker = open_broker(SimEnv::new(1).env(), config.expect("valid")).expect("starts");
        for (id, name) in [(1, "__transaction_state"), (2, "__share_group_state")] {
            let created = Record::TopicCreated {
                id: TopicId([id; 16]),
                name: name.to_owned(),
                dirs: vec![0],
                configs: TopicOverrides::new(),
                starts: 0,
            };
            broker.catalog.store().change(|draft| draft.record(created)).expect("changed");
            let (code, _) = written(&broker, "", name, &batch(Compression::None));
            assert_eq!(code, ErrorCode::INVALID_TOPIC_EXCEPTION, "{name}");
        }
    }
}

/// The answer to a batch for partition 0 of a topic: the code, and the records that are blamed.
fn written(broker: &Arc<Broker>, client_id: &str, name: &'static str, batch: &[u8]) -> (ErrorCode, Vec<i32>) {
    let Ok((plan, frame)) = planned(broker, client_id, &[(name, batch)]) else {
        panic!("it does not decode")
    };
    let call = Call { key: ApiKey::Produce, version: VERSION, correlation_id: 1, body_at: 0 };
    let mut appending = Appending::new(Arc::clone(broker), call, plan, frame);
    while let Some(target) = appending.next_target() {
        appending.append(target);
    }
    let answer = &appending.staged.topics[0].partitions[0].response;
    let blamed = answer.record_errors.iter().map(|error| error.batch_index).collect();
    (ErrorCode(answer.error_code), blamed)
}

#[test]
fn offsets_topic_takes_only_valid_commits_of_clients() {
    let config = [("data.dir", "/data"), ("offsets.topic.client.writes", "true")];
    let config = BrokerConfig::from_pairs(config).expect("valid");
    let broker = open_broker(SimEnv::new(1).env(), config).expect("starts");
    let configs = TopicOverrides::new();
    let new = NewTopic { name: OFFSETS_TOPIC.to_owned(), partition_count: 2, configs };
    broker.catalog.store().change(|draft| draft.create_topic(new)).expect("changed").expect("made");
    let batch = |commits: &[(&str, i64, usize)]| {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        for (group, offset, metadata_bytes) in commits {
            let key = OffsetCommitKey { group: (*group).into(), topic: "t".into(), partition: 0 };
            let metadata = "m".repeat(*metadata_bytes);
            let value =
                OffsetCommitValue { offset: *offset, metadata: metadata.into(), ..Default::default() };
            let (key, value) = (encode_key(&key).expect("fits"), encode_value(&value, 3).expect("fits"));
            builder.append(TimestampMs(1), Some(&key), Some(&value), &[]).expect("fits");
        }
        builder.build().expect("builds")
    };
    // In Java the hash of "b" is even, and that of "a" is not.
    let long = "b".repeat(5_000);
    for (commits, blamed) in [
        (vec![("b", 1, 4_096), ("bb", 2, 0)], vec![]),
        (vec![("b", 1, 0), ("b", -5, 0)], vec![1]),
        (vec![("b", 1, 30_000)], vec![0]),
        (vec![(&*long, 1, 0)], vec![0]),
        (vec![("a", 1, 0), ("b", 1, 0), ("a", 1, 0)], vec![0, 2]),
    ] {
        let code = if blamed.is_empty() { ErrorCode::NONE } else { ErrorCode::INVALID_RECORD };
        assert_eq!(written(&broker, "", OFFSETS_TOPIC, &batch(&commits)), (code, blamed));
    }
}

#[test]
fn an_answer_keeps_no_memory_of_records_that_it_does_not_name() {
    let blamed = |index| BlamedRecord { index, reason: "no key".to_owned() };
    let mut answer =
        Answer::refused(0, ErrorCode::INVALID_RECORD, None).blaming((0..1_000).map(blamed).collect());
    assert_eq!(answer.blame_no_more_than(2), 2);
    assert_eq!(answer.blame_no_more_than(0), 0);
    assert_eq!(answer.response.record_errors.capacity(), 0);
}

#[test]
fn inflated_and_recompressed_bytes_count_as_coded_work() {
    let (plain, gzip) = (batch(Compression::None), batch(Compression::Gzip));
    for (codec, plain_counts) in
        [("producer", false), ("uncompressed", false), ("gzip", true), ("zstd", true)]
    {
        let broker = broker(codec);
        let (coded, checked) = if plain_counts { (plain.len(), 0) } else { (0, plain.len()) };
        assert_eq!(work(&broker, &[("t", &plain)]), (coded, checked), "{codec}");
        assert_eq!(work(&broker, &[("t", &gzip)]), (gzip.len(), 0), "{codec}");
        let both = [("t", &plain[..]), ("t", &gzip[..])];
        assert_eq!(work(&broker, &both), (coded + gzip.len(), checked), "{codec}");
    }
}

#[test]
fn batches_refused_unseen_count_as_no_work() {
    let gzip = batch(Compression::Gzip);
    let broker = broker("zstd");
    assert_eq!(work(&broker, &[("unknown", &gzip), ("t", b"no batch")]), (0, 0));
}

/// Whether a batch of this size, in a frame that has little else, keeps the memory into which it was read.
fn keeps_its_memory(batch_bytes: usize) -> bool {
    let frame = BytesMut::zeroed(100 + batch_bytes);
    let begin = frame.as_ptr() as usize;
    let mut batches = Batches { rest: frame, taken: 0 };
    let batch = batches.take(&(100..100 + batch_bytes));
    let batch = batches.detached(batch);
    assert_eq!(batch.len(), batch_bytes);
    batch.as_ptr() as usize == begin + 100
}

#[test]
fn small_batch_keeps_none_of_its_frames_memory() {
    assert!(!keeps_its_memory(80) && !keeps_its_memory(100_000));
    assert!(keeps_its_memory(1_000_000));
}

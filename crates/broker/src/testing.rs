//! What tests put into a server that runs.

use std::sync::Arc;

use bytes::BytesMut;
use riverrun_records::{BatchBuilder, BatchOptions};
use riverrun_types::TimestampMs;

use crate::broker::Broker;
use crate::metadata::{NewTopic, Topic};

/// A batch of one record, as it comes from a client.
pub(crate) fn record(timestamp: TimestampMs, value: &[u8]) -> BytesMut {
    let mut batch = BatchBuilder::new(BatchOptions::default());
    batch.append(timestamp, None, Some(value), &[]).expect("fits");
    BytesMut::from(&batch.build().expect("built")[..])
}

/// Makes a topic `t` of level 4 whose first partition has a record in a segment, which nobody has synced.
pub(crate) fn topic_with_a_record(
    broker: &Broker,
    partition_count: i32,
    timestamp: TimestampMs,
) -> Arc<Topic> {
    let configs = [("durability".to_owned(), "4".to_owned())].into();
    let new = NewTopic { name: "t".to_owned(), partition_count, configs };
    let topic = broker.metadata.change(|draft| draft.create_topic(new)).expect("changed").expect("made");
    let partition = broker.partition(&topic, 0).expect("there");
    partition.append(record(timestamp, b"value"), broker.append_options()).expect("taken");
    partition.write_staged().expect("written");
    topic
}

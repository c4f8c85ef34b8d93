//! Tools of unit tests: records and topics for a running server, and a count of its log lines.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::BytesMut;
use riverrun_records::{BatchBuilder, BatchOptions};
use riverrun_types::TimestampMs;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::broker::Broker;
use crate::metadata::{NewTopic, Topic};

/// Counts the warnings and errors that its thread logs.
struct Lines(Arc<AtomicUsize>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// How many warnings and errors this work leaves in the log, on this thread.
pub(crate) fn log_lines(work: impl FnOnce()) -> usize {
    let lines = Arc::default();
    tracing::subscriber::with_default(Lines(Arc::clone(&lines)), work);
    lines.load(Ordering::Relaxed)
}

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
    let topic =
        broker.catalog.store().change(|draft| draft.create_topic(new)).expect("changed").expect("made");
    let partition = broker.partition(&topic, 0).expect("there");
    partition.append(record(timestamp, b"value"), broker.append_options()).expect("taken");
    partition.write_staged().expect("written");
    topic
}

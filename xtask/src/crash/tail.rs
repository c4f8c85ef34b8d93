//! A reader that follows every partition while the server crashes, and commits as it goes.
//!
//! What it has got is written down before it is committed, so a later reader that finds less, or something else at
//! the same offset, is found out. It commits for a group without being a member of it: a group's rebalances after
//! each crash would take longer than the crash.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use riverrun_client::{Consumer, ConsumerOptions, ConsumerRecord, OffsetReset, StartAt, TopicPartition};
use tokio::task::JoinHandle;

use super::event::{Commit, Event};
use super::load::{Shared, cluster_options};
use super::payload::identify;

/// The group that the reader commits for.
const GROUP: &str = "tail";

/// Waiting for records, and so for the order to stop.
const POLL_WAIT: Duration = Duration::from_millis(100);

/// Between two tries after an error.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// It has this long to end what it does.
const STOP_LIMIT: Duration = Duration::from_mins(2);

/// The reader at work.
pub(super) struct Tail {
    stop: Arc<AtomicBool>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Tail {
    /// Begins at the beginning of each partition.
    pub(super) fn start(shared: &Shared, partitions: Vec<TopicPartition>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let reader = Reader {
            shared: shared.clone(),
            next: partitions.into_iter().map(|partition| (partition, 0)).collect(),
        };
        Self { task: tokio::spawn(reader.run(Arc::clone(&stop))), stop }
    }

    /// Lets it end its last commit.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = tokio::time::timeout(STOP_LIMIT, self.task).await.context("the reader does not end")?;
        ended.context("the reader panicked")?
    }
}

struct Reader {
    shared: Shared,
    /// Where each partition goes on.
    next: BTreeMap<TopicPartition, i64>,
}

impl Reader {
    async fn run(mut self, stop: Arc<AtomicBool>) -> anyhow::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let Ok(mut consumer) = self.connect().await else {
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            };
            while !stop.load(Ordering::Relaxed) {
                let Ok(records) = consumer.poll(POLL_WAIT).await else { break };
                if !records.is_empty() {
                    self.write_down(&records).await?;
                    self.commit(&mut consumer).await?;
                }
            }
        }
        Ok(())
    }

    async fn connect(&self) -> anyhow::Result<Consumer> {
        let options = ConsumerOptions {
            group: Some(GROUP.to_owned()),
            auto_commit_interval: None,
            // Where records were lost, what is read again would say nothing new.
            offset_reset: OffsetReset::Latest,
            fetch_wait_max: POLL_WAIT,
            ..ConsumerOptions::new(cluster_options(&self.shared.bootstrap))
        };
        let mut consumer = Consumer::new(options).await?;
        let start = |offset| StartAt::Offset(riverrun_types::Offset(offset));
        let places = self.next.iter().map(|(partition, offset)| (partition.clone(), start(*offset)));
        consumer.assign(places.collect()).await?;
        Ok(consumer)
    }

    async fn write_down(&mut self, records: &[ConsumerRecord]) -> anyhow::Result<()> {
        let mut events = Vec::with_capacity(records.len());
        for record in records {
            let partition = TopicPartition::new(Arc::clone(&record.topic), record.partition);
            let value = record.value.as_deref().unwrap_or_default();
            let identity = identify(self.shared.run, value)
                .map_err(|what| anyhow::anyhow!("{partition} at {}: a reader got {what}", record.offset))?;
            self.next.insert(partition.clone(), record.offset.0 + 1);
            let (offset, stream, sequence) = (record.offset.0, identity.stream, identity.sequence);
            events.push(Event::Seen { partition, offset, stream, sequence });
        }
        self.shared.recorder.record(&events).await
    }

    /// A commit that fails may have taken effect: the next one settles that.
    async fn commit(&self, consumer: &mut Consumer) -> anyhow::Result<()> {
        let commits = self.commits(consumer);
        let begun: Vec<_> = commits.iter().cloned().map(Event::Committing).collect();
        self.shared.recorder.record(&begun).await?;
        if consumer.commit().await.is_ok() {
            let ended: Vec<_> = commits.into_iter().map(Event::Committed).collect();
            self.shared.recorder.record(&ended).await?;
        }
        Ok(())
    }
    /// What a commit would commit now.
    fn commits(&self, consumer: &Consumer) -> Vec<Commit> {
        let position = |partition| consumer.position(partition).map(|offset| offset.0);
        let placed = self.next.keys().filter_map(|partition| Some((partition, position(partition)?)));
        let commit = |(partition, offset): (&TopicPartition, i64)| Commit {
            group: GROUP.to_owned(),
            partition: partition.clone(),
            offset,
        };
        placed.map(commit).collect()
    }
}

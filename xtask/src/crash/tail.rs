//! A reader that follows every partition while the server crashes, and commits as it goes.
//!
//! What it has got is written down before it is committed, so a later reader that finds less, or something else at
//! the same offset, is found out. It commits for a group without being a member of it: a group's rebalances after
//! each crash would take longer than the crash.
//!
//! After each crash it is held until what the server has of its commits was looked at: it goes on from what it has got
//! itself, so that its next commit would hide what a crash took.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use riverrun_client::{
    ClientError, CommittedOffset, Consumer, ConsumerOptions, ConsumerRecord, ErrorKind, OffsetReset, StartAt,
    TopicPartition,
};
use riverrun_types::Offset;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::event::{Commit, Event};
use super::load::{Shared, cluster_options};
use super::payload::identify;

/// The group that the reader commits for.
const GROUP: &str = "tail";

/// Waiting for records.
const POLL_WAIT: Duration = Duration::from_millis(100);

/// Between two tries after an error.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// The reader at work.
pub(super) struct Tail {
    /// Gone, it is to stop.
    leave: oneshot::Sender<Infallible>,
    task: JoinHandle<anyhow::Result<Reader>>,
}

/// The reader while it does nothing, and nothing that it has begun goes on.
pub(super) struct Held(Reader);

impl Tail {
    /// Begins at the beginning of each partition.
    pub(super) fn start(shared: &Shared, partitions: Vec<TopicPartition>) -> Self {
        let next = partitions.into_iter().map(|partition| (partition, 0)).collect();
        Held(Reader { shared: shared.clone(), next }).resume()
    }

    /// Stops it where it is. Of a commit that waits for its answer it is not known whether it took effect, and it is
    /// not tried again.
    pub(super) async fn hold(self) -> anyhow::Result<Held> {
        drop(self.leave);
        self.task.await.context("the reader panicked")?.map(Held)
    }
}

impl Held {
    /// Lets it go on behind what it got last.
    pub(super) fn resume(self) -> Tail {
        let (leave, gone) = oneshot::channel();
        Tail { task: tokio::spawn(self.0.run(gone)), leave }
    }
}

struct Reader {
    shared: Shared,
    /// Where each partition goes on.
    next: BTreeMap<TopicPartition, i64>,
}

impl Reader {
    async fn run(mut self, gone: oneshot::Receiver<Infallible>) -> anyhow::Result<Self> {
        tokio::select! {
            // An answer that has come is taken.
            biased;
            ended = self.read_on() => ended.map(|never| match never {})?,
            _ = gone => {}
        }
        Ok(self)
    }

    async fn read_on(&mut self) -> anyhow::Result<Infallible> {
        loop {
            let Some(mut consumer) = unless_final(self.connect().await)? else {
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            };
            while let Some(records) = unless_final(consumer.poll(POLL_WAIT).await)? {
                if !records.is_empty() {
                    self.write_down(&records).await?;
                    self.commit(&mut consumer).await?;
                }
            }
        }
    }

    async fn connect(&self) -> Result<Consumer, ClientError> {
        let options = ConsumerOptions {
            group: Some(GROUP.to_owned()),
            auto_commit_interval: None,
            // Where records were lost, what is read again would say nothing new.
            offset_reset: OffsetReset::Latest,
            fetch_wait_max: POLL_WAIT,
            ..ConsumerOptions::new(cluster_options(&self.shared.bootstrap))
        };
        let mut consumer = Consumer::new(options).await?;
        let start = |offset| StartAt::Offset(Offset(offset));
        let places = self.next.iter().map(|(partition, offset)| (partition.clone(), start(*offset)));
        consumer.assign(places.collect()).await?;
        Ok(consumer)
    }

    async fn write_down(&mut self, records: &[ConsumerRecord]) -> anyhow::Result<()> {
        let (mut events, mut next) = (Vec::with_capacity(records.len()), BTreeMap::new());
        for record in records {
            let partition = TopicPartition::new(Arc::clone(&record.topic), record.partition);
            let value = record.value.as_deref().unwrap_or_default();
            let identity = identify(self.shared.run, value)
                .map_err(|what| anyhow::anyhow!("{partition} at {}: a reader got {what}", record.offset))?;
            next.insert(partition.clone(), record.offset.0 + 1);
            let (offset, stream, sequence) = (record.offset.0, identity.stream, identity.sequence);
            events.push(Event::Seen { partition, offset, stream, sequence });
        }
        self.shared.recorder.record(&events).await?;
        self.next.extend(next);
        Ok(())
    }

    /// A commit that fails may have taken effect: the next one settles that.
    async fn commit(&self, consumer: &mut Consumer) -> anyhow::Result<()> {
        let commits = self.commits();
        let begun: Vec<_> = commits.iter().cloned().map(Event::Committing).collect();
        self.shared.recorder.record(&begun).await?;
        let committed =
            |offset| CommittedOffset { offset: Offset(offset), leader_epoch: None, metadata: String::new() };
        let offsets = commits.iter().map(|commit| (commit.partition.clone(), committed(commit.offset)));
        if unless_final(consumer.commit_offsets(&offsets.collect()).await)?.is_some() {
            let ended: Vec<_> = commits.into_iter().map(Event::Committed).collect();
            self.shared.recorder.record(&ended).await?;
        }
        Ok(())
    }

    /// What a commit would commit now.
    fn commits(&self) -> Vec<Commit> {
        let commit = |(partition, offset): (&TopicPartition, &i64)| Commit {
            group: GROUP.to_owned(),
            partition: partition.clone(),
            offset: *offset,
        };
        self.next.iter().map(commit).collect()
    }
}

/// None for an error that another try may mend. Any other is one that a server gives that serves something else than batches,
/// or refuses a reader for good: no crash is a reason for that.
fn unless_final<T>(result: Result<T, ClientError>) -> anyhow::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::Retry => Ok(None),
        Err(error) => Err(error).context("a reader was told what no other try mends"),
    }
}

#[cfg(test)]
mod tests {
    use riverrun_client::ErrorCode;

    use super::*;

    #[test]
    fn a_reader_goes_on_after_what_may_pass_and_tells_of_everything_else() {
        let told = |code| Err::<(), _>(ClientError::Server { code, message: None });
        assert_eq!(unless_final(Ok(7)).unwrap(), Some(7));
        assert_eq!(unless_final(told(ErrorCode::KAFKA_STORAGE_ERROR)).unwrap(), None);
        let fault = unless_final(told(ErrorCode::INVALID_RECORD)).unwrap_err();
        assert!(format!("{fault:#}").contains("no other try mends"), "{fault:#}");
    }
}

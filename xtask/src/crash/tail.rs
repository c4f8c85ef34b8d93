//! A reader that follows every partition while the server crashes, and commits as it goes.
//!
//! Its records are recorded before they are committed, so that a later reader that finds fewer records, or another one
//! at the same offset, reveals a fault. It commits for a group without being a member of it, because the group's
//! rebalances after each crash would take longer than the crash.
//!
//! After each crash it is held until the server's position of its group was looked at: it continues from its own place,
//! and its next commit would hide one that a crash took.

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

/// Longest wait of a poll.
const POLL_WAIT: Duration = Duration::from_millis(100);

/// Pause between two tries after an error.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// The running reader.
pub(super) struct Tail {
    /// Dropped to stop the reader.
    leave: oneshot::Sender<Infallible>,
    task: JoinHandle<anyhow::Result<Reader>>,
}

/// The stopped reader, without anything under way.
pub(super) struct Held(Reader);

impl Tail {
    /// Begins at the beginning of each partition.
    pub(super) fn start(shared: &Shared, partitions: Vec<TopicPartition>) -> Self {
        let next = partitions.into_iter().map(|partition| (partition, 0)).collect();
        Held(Reader { shared: shared.clone(), next }).resume()
    }

    /// Stops the reader where it is. It is unknown whether a commit that waits for its answer took effect; it is not
    /// repeated.
    pub(super) async fn hold(self) -> anyhow::Result<Held> {
        drop(self.leave);
        self.task.await.context("the reader panicked")?.map(Held)
    }
}

impl Held {
    /// Resumes the reader after its last record.
    pub(super) fn resume(self) -> Tail {
        let (leave, gone) = oneshot::channel();
        Tail { task: tokio::spawn(self.0.run(gone)), leave }
    }
}

struct Reader {
    shared: Shared,
    /// Next offset of each partition.
    next: BTreeMap<TopicPartition, i64>,
}

impl Reader {
    async fn run(mut self, gone: oneshot::Receiver<Infallible>) -> anyhow::Result<Self> {
        tokio::select! {
            // An answer that has arrived is taken.
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
            // After a loss of records, reading earlier ones again would reveal nothing new.
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

    /// Commits the reader's places. A failed commit may have taken effect: the next one decides that.
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

    /// The commits for the present places.
    fn commits(&self) -> Vec<Commit> {
        let commit = |(partition, offset): (&TopicPartition, &i64)| Commit {
            group: GROUP.to_owned(),
            partition: partition.clone(),
            offset: *offset,
        };
        self.next.iter().map(commit).collect()
    }
}

/// `None` for an error that another try may mend. Any other error means that the server serves corrupt batches or
/// refuses the reader for good, which no crash excuses.
fn unless_final<T>(result: Result<T, ClientError>) -> anyhow::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::Retry => Ok(None),
        Err(error) => Err(error).context("a reader got an error that no other try mends"),
    }
}

#[cfg(test)]
mod tests {
    use riverrun_client::ErrorCode;

    use super::*;

    #[test]
    fn reader_retries_passing_errors_and_reports_final_ones() {
        let told = |code| Err::<(), _>(ClientError::Server { code, message: None });
        assert_eq!(unless_final(Ok(7)).unwrap(), Some(7));
        assert_eq!(unless_final(told(ErrorCode::KAFKA_STORAGE_ERROR)).unwrap(), None);
        let fault = unless_final(told(ErrorCode::INVALID_RECORD)).unwrap_err();
        assert!(format!("{fault:#}").contains("no other try mends"), "{fault:#}");
    }
}

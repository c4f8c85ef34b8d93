//! Tools of the jobs over the partitions of a log dir: the partitions that have files, looks that are not due yet, turns.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use riverrun_log::{KnownPartition, LogError, PartitionLog};
use riverrun_types::{Offset, PartitionId};

use crate::broker::Broker;
use crate::config::TopicOverrides;
use crate::log_limit::UNKNOWN_TOPICS;
use crate::metadata::{IDENTITY_FILE, Topic};
use crate::partitions::Partition;

/// A partition that has files, and its topic.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) topic: Arc<Topic>,
    pub(crate) known: KnownPartition,
    /// The log dir that it lies in.
    pub(crate) dir: usize,
}

impl Kept {
    /// The live partition, opened if it is closed. An error has been logged, and the partition is offline then.
    pub(crate) fn open(&self, broker: &Broker) -> Option<Arc<Partition>> {
        broker.partition(&self.topic, self.known.id.index).ok()
    }

    /// Whether its log dir has failed.
    pub(crate) fn is_in_failed_dir(&self, broker: &Broker) -> bool {
        broker.logs.dir_failure(self.dir).is_some()
    }
}

/// Every partition of a log dir that has records, or files that are to be removed, from memory: nothing is opened. Files of
/// topics that the metadata does not know are logged and left alone: the metadata may have been lost.
pub(crate) fn kept_partitions(broker: &Broker, dir: usize) -> Vec<Kept> {
    let known: Vec<KnownPartition> = broker.logs.known(dir);
    // Read after the partitions, so that it has every topic of these.
    let image = broker.catalog.image();
    let mut unknown = 0_usize;
    let mut kept = Vec::with_capacity(known.len());
    for known in known {
        match image.cluster.topic_by_id(known.id.topic) {
            Some(topic) if known.size_bytes > 0 || known.awaits_removals => {
                kept.push(Kept { topic: Arc::clone(topic), known, dir });
            }
            Some(_) => {}
            // Its deletion is under way.
            None if image.node.doomed().contains_key(&known.id.topic) => {}
            None => unknown += 1,
        }
    }
    if unknown > 0 {
        UNKNOWN_TOPICS.warn(|suppressed| {
            let what =
                "partitions of topics that the metadata does not know are in a log dir, and stay there";
            tracing::warn!(partitions = unknown, suppressed, "{what}");
        });
    }
    kept
}

/// The state of a partition at a job's look.
#[derive(Debug)]
struct Seen {
    range: (Offset, Offset),
    size_bytes: u64,
    configs: Arc<TopicOverrides>,
    at: Duration,
}

/// Partitions of a log dir that a job has looked at, so that it does not keep idle ones open by looking again and again.
///
/// Invariants: an entry for each partition that was looked at when a checkpoint covered all of it (before that,
/// neither retention nor compaction can do all they will) and that still had records at the last look over all.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    seen: HashMap<PartitionId, Seen>,
}

impl Looks {
    /// Whether to look at a partition: something about it has changed since the last look, or that is `period` ago.
    pub(crate) fn is_due(&self, kept: &Kept, now: Duration, period: Duration) -> bool {
        let known = &kept.known;
        self.seen.get(&known.id).is_none_or(|seen| {
            seen.range != (known.log_start, known.log_end)
                || seen.size_bytes != known.size_bytes
                || !Arc::ptr_eq(&seen.configs, &kept.topic.configs)
                || now.saturating_sub(seen.at) >= period
        })
    }

    /// Notes that a look found nothing more to do, if a checkpoint covered the log up to its end: `covered` is the end of the
    /// checkpoint before the look, which sees no more than that.
    pub(crate) fn note(&mut self, kept: &Kept, log: &PartitionLog, covered: Offset, now: Duration) {
        if covered < log.known_range().1 {
            return;
        }
        let configs = Arc::clone(&kept.topic.configs);
        let seen = Seen { range: log.known_range(), size_bytes: log.size_bytes(), configs, at: now };
        self.seen.insert(kept.known.id, seen);
    }

    /// Forgets partitions that are gone.
    pub(crate) fn keep_only(&mut self, kept: &[Kept]) {
        if self.seen.len() > kept.len() {
            let ids: HashSet<PartitionId> = kept.iter().map(|kept| kept.known.id).collect();
            self.seen.retain(|id, _| ids.contains(id));
        }
    }
}

/// Gives each item its turn, one after the other, and another one after all the others if something is left of it, until
/// nothing is left; false if stopped before. `turn` says whether something is left.
pub(crate) fn in_turns<T>(
    items: Vec<T>,
    is_stopped: impl Fn() -> bool,
    mut turn: impl FnMut(&mut T) -> bool,
) -> bool {
    let mut queue = VecDeque::from(items);
    while let Some(mut item) = queue.pop_front() {
        if is_stopped() {
            return false;
        }
        if turn(&mut item) {
            queue.push_back(item);
        }
    }
    true
}

/// Makes a checkpoint of a log dir, after a check whether files have vanished from it.
pub(crate) fn checkpoint_dir(broker: &Broker, dir: usize) {
    broker.logs.look_for_vanished_in(dir, &[IDENTITY_FILE]);
    match broker.logs.checkpoint_dir(dir) {
        Ok(()) => {}
        // The server stops.
        Err(LogError::OutOfTime) => return,
        Err(error @ LogError::DirFailed { .. }) => {
            tracing::debug!(%error, "no checkpoint of a dir that has said so");
        }
        Err(error) => tracing::error!(%error, "a checkpoint failed; a restart has more to look at"),
    }
    broker.logs.look_at_device(dir);
}

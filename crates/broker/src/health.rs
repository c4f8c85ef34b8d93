//! What keeps the server from its work, for `/health`.
//!
//! Owns the memory of partitions that could not be opened: they are in no table of what is in use, and without it a
//! server with damaged data would call itself well.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_journal::Journal;
use riverrun_log::LogError;
use riverrun_protocol::ErrorCode;
use riverrun_types::PartitionId;

use crate::broker::Broker;
use crate::error;
use crate::log_limit::STORAGE_TROUBLE;
use crate::metadata::{OFFSETS_TOPIC, Topic};

/// Partitions that are remembered at most: whoever looks needs one of them, and roughly how many there are.
const FAILURES_MAX: usize = 1_000;

/// Partitions whose last opening failed.
///
/// Invariants: at most [`FAILURES_MAX`] are remembered.
#[derive(Debug, Default)]
pub(crate) struct OpenFailures {
    reasons: Mutex<BTreeMap<PartitionId, String>>,
}

impl OpenFailures {
    /// The partition cannot be opened.
    pub(crate) fn remember(&self, id: PartitionId, reason: String) {
        let mut reasons = self.reasons.lock();
        if reasons.len() < FAILURES_MAX || reasons.contains_key(&id) {
            reasons.insert(id, reason);
        }
    }

    /// The partition is well again, or gone.
    pub(crate) fn forget(&self, id: PartitionId) {
        self.reasons.lock().remove(&id);
    }

    fn describe(&self) -> Option<String> {
        let reasons = self.reasons.lock();
        let (id, reason) = reasons.first_key_value()?;
        Some(match reasons.len() - 1 {
            0 => format!("partition {id} cannot be opened: {reason}"),
            others => format!("partition {id} and {others} others cannot be opened: {reason}"),
        })
    }
}

impl Broker {
    /// Notes that a partition cannot be opened, and answers what clients are told.
    pub(crate) fn note_open_failure(&self, topic: &Topic, id: PartitionId, failed: &LogError) -> ErrorCode {
        let code = error::log_error(failed);
        if error::is_our_trouble(code) {
            self.open_failures.remember(id, failed.to_string());
            STORAGE_TROUBLE.warn(|suppressed| {
                let (topic, partition) = (&*topic.name, id.index);
                tracing::error!(topic, partition, error = %failed, suppressed, "a partition cannot be opened");
            });
        }
        code
    }

    /// Why nothing can be written any more, if that is so. Waits for nothing.
    fn storage_failure(&self) -> Option<String> {
        if let Some(reason) = self.metadata.known_failure() {
            return Some(metadata_failed(&reason));
        }
        let dirs = 0..self.logs.dir_count();
        let failures: Option<Vec<_>> = dirs.map(|dir| self.logs.dir_failure(dir)).collect();
        let failures: Vec<String> = failures?.iter().map(LogError::to_string).collect();
        Some(format!("no log dir is left: {}", failures.join("; ")))
    }

    /// What keeps the server from its work, if anything does. Waits for changes to metadata and groups that
    /// are under way.
    pub(crate) fn trouble(&self) -> Option<String> {
        let metadata = || self.metadata.failure().map(|reason| metadata_failed(&reason));
        let dirs = || (0..self.logs.dir_count()).find_map(|dir| self.logs.dir_failure(dir));
        let damaged = || self.logs.damaged().into_iter().next();
        let journals = || self.logs.journals().find_map(Journal::failure);
        let shortage = || (0..self.logs.dir_count()).find_map(|dir| self.logs.dir_shortage(dir));
        let open = || self.partitions.all().into_iter().find_map(|partition| partition.log.failure());
        metadata()
            .or_else(|| dirs().map(|error| error.to_string()))
            .or_else(|| open().map(|error| error.to_string()))
            .or_else(|| journals().map(|error| error.to_string()))
            .or_else(|| shortage().map(|error| error.to_string()))
            .or_else(|| damaged().map(|(id, error)| format!("partition {id} is offline: {error}")))
            .or_else(|| self.open_failures.describe())
            .or_else(|| self.groups.failed_shard(&*self.env.clock).map(groups_failed))
    }
}

/// How often a server looks whether it can write anything at all.
const STORAGE_CHECK: Duration = Duration::from_millis(200);

/// Ready with the reason when there is nothing left to write to: every log dir has failed, or the metadata has, and
/// only a restart on a disk that works helps. A server that stayed would keep its clients from noticing.
pub(crate) async fn nothing_to_write_to(broker: &Broker) -> String {
    loop {
        if let Some(reason) = broker.storage_failure() {
            return reason;
        }
        tokio::time::sleep(STORAGE_CHECK).await;
    }
}

fn metadata_failed(reason: &str) -> String {
    format!("metadata cannot change: {reason}")
}

fn groups_failed(shard: usize) -> String {
    format!("the groups of partition {shard} of {OFFSETS_TOPIC} cannot be loaded or changed")
}

#[cfg(test)]
mod tests {
    use riverrun_types::TopicId;

    use super::*;

    fn id(index: i32) -> PartitionId {
        PartitionId { topic: TopicId([1; 16]), index }
    }

    #[test]
    fn a_partition_that_does_not_open_is_told_of_until_it_does() {
        let failures = OpenFailures::default();
        assert_eq!(failures.describe(), None);
        failures.remember(id(0), "torn".to_owned());
        failures.remember(id(0), "damaged".to_owned());
        failures.remember(id(1), "damaged".to_owned());
        let told = failures.describe().expect("two failed");
        assert!(told.contains("and 1 others") && told.contains("damaged"), "{told}");
        failures.forget(id(0));
        assert!(failures.describe().is_some());
        failures.forget(id(1));
        assert_eq!(failures.describe(), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let failures = OpenFailures::default();
        for index in 0..2 * i32::try_from(FAILURES_MAX).expect("fits") {
            failures.remember(id(index), "damaged".to_owned());
        }
        assert_eq!(failures.reasons.lock().len(), FAILURES_MAX);
    }
}

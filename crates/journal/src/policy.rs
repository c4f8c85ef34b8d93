//! When a sync starts: the group commit policy, as a pure function.
//!
//! The journal's thread takes the queued entries, and asks. While one group is being synced the next one queues, so a
//! group is as large as the device is slow; no entry ever waits for company that may not come.

use std::time::Duration;

/// Why a group was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncReason {
    /// The queue is empty.
    QueueEmpty,
    /// The group has as many bytes as one write should have.
    GroupBytes,
    /// The first entry has waited long enough.
    GroupWait,
}

/// The limits of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupPolicy {
    /// A group is complete with this many bytes.
    pub(crate) bytes: usize,
    /// A group is complete this long after its first entry was taken.
    pub(crate) wait: Duration,
}

/// The facts on which the policy decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gathered {
    /// Bytes in the group.
    pub(crate) bytes: usize,
    /// Time since its first entry was taken.
    pub(crate) waited: Duration,
    /// Whether the queue holds nothing more.
    pub(crate) is_queue_empty: bool,
}

impl GroupPolicy {
    /// Whether to write the group now, and why; `None`: take more first. If several reasons hold, the result is the
    /// one that does not depend on the queue.
    pub(crate) fn decide(self, gathered: Gathered) -> Option<SyncReason> {
        if gathered.bytes >= self.bytes {
            Some(SyncReason::GroupBytes)
        } else if gathered.is_queue_empty {
            Some(SyncReason::QueueEmpty)
        } else if gathered.waited >= self.wait {
            Some(SyncReason::GroupWait)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SyncReason::{GroupBytes, GroupWait, QueueEmpty};
    use super::*;

    const POLICY: GroupPolicy = GroupPolicy { bytes: 1000, wait: Duration::from_micros(200) };

    /// Bytes, waited microseconds, empty queue -> decision: each side of each limit in every combination.
    const TABLE: &[(usize, u64, bool, Option<SyncReason>)] = &[
        (1, 0, true, Some(QueueEmpty)),
        (1, 0, false, None),
        (1, 199, true, Some(QueueEmpty)),
        (1, 199, false, None),
        (1, 200, true, Some(QueueEmpty)),
        (1, 200, false, Some(GroupWait)),
        (999, 0, true, Some(QueueEmpty)),
        (999, 0, false, None),
        (999, 200, false, Some(GroupWait)),
        (1000, 0, true, Some(GroupBytes)),
        (1000, 0, false, Some(GroupBytes)),
        (1000, 200, true, Some(GroupBytes)),
        (5000, 9000, false, Some(GroupBytes)),
    ];

    #[test]
    fn a_sync_starts_with_the_first_reason_for_it() {
        for (bytes, waited_us, is_queue_empty, expected) in TABLE.iter().copied() {
            let waited = Duration::from_micros(waited_us);
            let decided = POLICY.decide(Gathered { bytes, waited, is_queue_empty });
            assert_eq!(decided, expected, "{bytes} bytes, {waited_us} us, empty: {is_queue_empty}");
        }
    }

    #[test]
    fn a_group_that_may_not_wait_is_written_as_it_was_taken() {
        let policy = GroupPolicy { wait: Duration::ZERO, ..POLICY };
        let gathered = Gathered { bytes: 1, waited: Duration::ZERO, is_queue_empty: false };
        assert_eq!(policy.decide(gathered), Some(GroupWait));
    }
}

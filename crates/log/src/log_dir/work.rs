//! The operations that wait for a log dir's disk, and whether it answers.

use std::time::Duration;

use parking_lot::Mutex;
use riverrun_types::PartitionId;

use super::LogDir;
use crate::error::LogError;

/// A thread that serves other log dirs does not wait for a disk that has not answered for so long. Longer than a sync
/// takes that has a second's worth of writes before it.
const HANGS_AFTER: Duration = Duration::from_secs(2);
/// A checkpoint syncs all that has gathered in the page cache. That takes an ordinary disk many seconds, and the page
/// cache takes writes meanwhile: a checkpoint alone means a hanging disk only after so long.
const CHECKPOINT_HANGS_AFTER: Duration = Duration::from_secs(30);
/// A write to the page cache takes microseconds: one that has taken so long waits for the disk.
const SLOW_AFTER: Duration = Duration::from_millis(10);

/// An operation that waits for a log dir's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirWork {
    /// A share of this partition is brought into its segments.
    Settles(PartitionId),
    /// Appends to this partition, whose level has no journal, are written.
    Writes(PartitionId),
    /// Such a write waits for another user of the partition's files, which may be a checkpoint.
    AwaitsWriter(PartitionId),
    /// This partition's directory is looked at before it is opened.
    Opens(PartitionId),
    /// A checkpoint is made, which syncs the dir.
    Checkpoint,
    /// The free space is measured.
    Space,
}

impl DirWork {
    /// Whether it may take long on a disk that takes writes.
    fn may_take_long(self) -> bool {
        matches!(self, Self::Checkpoint | Self::AwaitsWriter(_))
    }
}

/// All operations that wait for the disk now.
///
/// Invariants: in the order of their begin, by ticket.
#[derive(Debug, Default)]
pub(super) struct Works(Mutex<WorkList>);

#[derive(Debug, Default)]
struct WorkList {
    next_ticket: u64,
    works: Vec<(u64, DirWork, Duration)>,
}

/// An operation that may wait for the disk as long as it lives.
#[derive(Debug)]
pub(crate) struct Working<'a> {
    works: &'a Works,
    ticket: u64,
}

impl Works {
    fn begin(&self, work: DirWork, now: Duration) -> Working<'_> {
        let mut list = self.0.lock();
        let ticket = list.next_ticket;
        list.next_ticket += 1;
        list.works.push((ticket, work, now));
        Working { works: self, ticket }
    }

    /// The oldest operation that `is_wanted`, and its begin.
    fn oldest(&self, is_wanted: impl Fn(DirWork) -> bool) -> Option<(DirWork, Duration)> {
        let list = self.0.lock();
        list.works.iter().find(|(_, work, _)| is_wanted(*work)).map(|(_, work, since)| (*work, *since))
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.works.0.lock().works.retain(|(ticket, ..)| *ticket != self.ticket);
    }
}

impl LogDir {
    /// To be held while the disk may be waited for.
    pub(crate) fn working(&self, work: DirWork) -> Working<'_> {
        self.works.begin(work, self.env.clock.monotonic())
    }

    /// The oldest operation that waits for the disk, and its begin by monotonic time.
    pub(crate) fn work(&self) -> Option<(DirWork, Duration)> {
        self.works.oldest(|_| true)
    }

    /// Whether the disk has not answered for long: no thread that serves other log dirs should wait for it. A large
    /// checkpoint may be all that it is doing.
    pub(crate) fn hangs(&self) -> bool {
        self.has_taken(HANGS_AFTER, |_| true)
    }

    /// Whether the disk answers nothing: an operation that is quick on a healthy disk has taken long, or any other one
    /// much longer.
    pub(crate) fn stands_still(&self) -> bool {
        self.has_taken(HANGS_AFTER, |work| !work.may_take_long())
            || self.has_taken(CHECKPOINT_HANGS_AFTER, |_| true)
    }

    /// Whether a write to the page cache waits for the disk.
    pub(crate) fn is_slow(&self) -> bool {
        self.has_taken(SLOW_AFTER, |work| matches!(work, DirWork::Writes(_) | DirWork::AwaitsWriter(_)))
    }

    fn has_taken(&self, time: Duration, is_wanted: impl Fn(DirWork) -> bool) -> bool {
        let oldest = self.works.oldest(is_wanted);
        oldest.is_some_and(|(_, since)| self.env.clock.monotonic().saturating_sub(since) >= time)
    }

    /// Fails if writes to the page cache wait for the disk for long.
    pub(crate) fn check_takes_writes(&self) -> Result<(), LogError> {
        self.refuse_if(self.has_taken(HANGS_AFTER, |work| matches!(work, DirWork::Writes(_))))
    }

    /// Fails if an opening of a partition's files is unlikely to end in time.
    pub(crate) fn check_opens(&self) -> Result<(), LogError> {
        let is_telling = |work| matches!(work, DirWork::Opens(_) | DirWork::Space | DirWork::Writes(_));
        self.refuse_if(
            self.has_taken(HANGS_AFTER, is_telling) || self.has_taken(CHECKPOINT_HANGS_AFTER, |_| true),
        )
    }

    /// Fails if it [is stuck](Self::is_stuck).
    pub(crate) fn check_not_stuck(&self) -> Result<(), LogError> {
        self.refuse_if(self.is_stuck())
    }

    fn refuse_if(&self, hangs: bool) -> Result<(), LogError> {
        if hangs { Err(LogError::DirHangs { path: self.path.clone() }) } else { Ok(()) }
    }

    /// Whether the operations that wait for the disk would fill the write cache until it answers: there is no other
    /// dir's settler that would put entries aside.
    pub(crate) fn is_stuck(&self) -> bool {
        self.shared.cache.is_contended() && self.stands_still() && !self.has_other_that_answers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_operation_under_way_is_reported() {
        let works = Works::default();
        let told = || works.oldest(|_| true).map(|(work, since)| (work, since.as_secs()));
        let first = works.begin(DirWork::Checkpoint, Duration::from_secs(1));
        let second = works.begin(DirWork::Space, Duration::from_secs(2));
        assert_eq!(told(), Some((DirWork::Checkpoint, 1)));
        drop(first);
        assert_eq!(told(), Some((DirWork::Space, 2)), "it ends before the one that was begun after it");
        drop(second);
        assert_eq!(told(), None);
    }
}

//! What is waited for of a log dir's disk, and whether it answers.

use std::time::Duration;

use parking_lot::Mutex;
use riverrun_types::PartitionId;

use super::LogDir;
use crate::error::LogError;

/// A disk that has not answered for so long is not waited for any more by anybody who serves other log dirs. Longer than a sync
/// takes that has a second's worth of writes before it.
const HANGS_AFTER: Duration = Duration::from_secs(2);
/// A checkpoint syncs all that has gathered in the page cache. That takes an ordinary disk many seconds, and the page cache
/// takes writes meanwhile: a checkpoint alone says that the disk hangs only after so long.
const CHECKPOINT_HANGS_AFTER: Duration = Duration::from_secs(30);
/// A write to the page cache takes microseconds: who has waited for so long waits for the disk.
const SLOW_AFTER: Duration = Duration::from_millis(10);

/// What is waited for of a log dir's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirWork {
    /// A share of this partition is brought into its segments.
    Settles(PartitionId),
    /// What was appended to this partition, whose level has no journal, is written.
    Writes(PartitionId),
    /// The same is to be written, and something else is done with the partition's files: a checkpoint may be at them.
    AwaitsWriter(PartitionId),
    /// This partition's directory is looked at before it is opened.
    Opens(PartitionId),
    /// A checkpoint is made, which syncs the dir.
    Checkpoint,
    /// The disk is asked how much space is left.
    Space,
}

impl DirWork {
    /// Whether it may take long although the disk takes what is written.
    fn may_take_long(self) -> bool {
        matches!(self, Self::Checkpoint | Self::AwaitsWriter(_))
    }
}

/// All that is waited for at a moment.
///
/// Invariants: in the order in which it was begun, by ticket.
#[derive(Debug, Default)]
pub(super) struct Works(Mutex<WorkList>);

#[derive(Debug, Default)]
struct WorkList {
    next_ticket: u64,
    works: Vec<(u64, DirWork, Duration)>,
}

/// The disk may be waited for as long as it lives.
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

    /// What has taken longest of that which `is_wanted`, and since when.
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

    /// What its disk is waited for longest, and since when by monotonic time.
    pub(crate) fn work(&self) -> Option<(DirWork, Duration)> {
        self.works.oldest(|_| true)
    }

    /// Whether its disk has not answered for long: nobody who serves other log dirs should wait for it. A checkpoint of much
    /// may be all that it is at.
    pub(crate) fn hangs(&self) -> bool {
        self.has_taken(HANGS_AFTER, |_| true)
    }

    /// Whether its disk has answered nothing for long: neither what it takes at once where it is well nor, for much longer,
    /// anything else.
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

    /// Fails if a partition's files are not opened in time, as far as anybody can tell.
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

    /// Whether what waits for its disk would fill the write cache for as long as that does not answer: nobody settles another
    /// log dir, who would put it aside.
    pub(crate) fn is_stuck(&self) -> bool {
        self.shared.cache.is_contended() && self.stands_still() && !self.has_other_that_answers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_begun_first_of_that_which_is_under_way_is_told() {
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

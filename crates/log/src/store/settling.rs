//! Settling: brings the journals' entries into the segments, and gives the journals their files back.
//!
//! A journal's file is used again when every log dir says that it does not need it: all that was delivered before is in
//! its segments and under a checkpoint, or was put aside. If the store is to be closed by a certain time, entries that
//! are not settled by then are left to the journals, which have synced them: the next start finds them there, as after
//! a kill.

mod levels;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use riverrun_journal::{Journal, Position};
use riverrun_types::{DurabilityLevel, TopicId};

use super::dir_logs::{Coverage, DirLogs};
use super::side_files::is_of_partition;
use super::{Closed, LogStore};
use crate::error::LogError;
use crate::pace::Haste;
use crate::producer_state::AppendOrigin;
use crate::rank::RankedGuard;

/// After a cycle that failed the next one waits at least so long: a full or broken disk stays so for a while.
const REST: Duration = Duration::from_millis(200);
/// The longest wait of a close for entries on their way into the journals.
const DRAIN_WAIT_MAX: Duration = Duration::from_secs(30);
const DRAIN_POLL: Duration = Duration::from_millis(1);
/// A dir that needs less than this share of a journal is not what keeps a journal half full: another dir is.
const PINNED_SHARE: u64 = 4;

/// The progress of the journals at one moment.
#[derive(Clone, Debug)]
pub struct JournalMark {
    marks: Vec<Mark>,
}

/// The progress of one journal.
#[derive(Clone, Copy, Debug)]
enum Mark {
    /// So many entries were on their way into it or stored.
    Count(u64),
    /// All of them lie below.
    Below(Position),
}

impl LogStore {
    /// Marks the progress of the journals, with everything that was appended before this call.
    pub fn mark_journals(&self) -> JournalMark {
        let journals = self.shared.journals.iter();
        JournalMark { marks: journals.map(|journal| Mark::Count(journal.submitted_count())).collect() }
    }

    /// Whether no later start will find entries in the journals from before `mark` was made, nor entries that they keep
    /// aside for a log dir or for unknown partitions.
    pub fn have_journals_passed(&self, mark: &mut JournalMark) -> bool {
        let keeps_aside = |journal: &Journal| journal.held().iter().any(|name| !is_of_partition(name));
        let mut passed = true;
        for (journal, mark) in self.shared.journals.iter().zip(&mut mark.marks) {
            if let Mark::Count(count) = *mark
                && journal.has_delivered(count)
            {
                *mark = Mark::Below(journal.delivered());
            }
            let is_passed = matches!(mark, Mark::Below(end) if journal.settled_on_disk() >= *end);
            passed &= is_passed && !keeps_aside(journal);
        }
        passed
    }

    /// Waits until settling log dir `dir_index` is worth while, but not longer than `timeout`. It is if
    /// - the write cache is half full and the dir has its part of that;
    /// - a journal is half full;
    /// - the level of a partition is to change, or to be tried again.
    ///
    /// Returns whether it is, or [`Self::wake_settling`] was called.
    pub fn wait_for_settling(&self, dir_index: usize, timeout: Duration) -> bool {
        let logs = &self.dirs[dir_index];
        if logs.is_troubled.load(Ordering::Relaxed) {
            self.env.clock.sleep(REST.min(timeout));
        }
        let is_level_due = || logs.dir.level_changes.lock().is_any_due(self.now());
        is_level_due()
            || logs.dir.alarm().wait(timeout)
            || self.shared.journals.iter().any(|journal| journal.is_out_of_room())
            || is_level_due()
            || self.is_other_in_the_way(logs)
    }

    /// Whether the entries of another dir, which hangs, keep a journal from being given back or fill the write cache.
    fn is_other_in_the_way(&self, logs: &DirLogs) -> bool {
        let is_pressed = self.shared.is_journal_half_full() || self.shared.cache.is_half_full();
        let mut others = self.dirs.iter().filter(|other| !std::ptr::eq(Arc::as_ptr(other), logs));
        is_pressed
            && others.any(|other| other.dir.is_open() && other.dir.hangs() && self.is_in_the_way(other))
    }

    fn is_in_the_way(&self, hanging: &DirLogs) -> bool {
        hanging.dir.fills_cache() || hanging.pins(&self.delivered())
    }

    /// Ends the waits of all settlers, or their next ones.
    pub fn wake_settling(&self) {
        self.shared.raise_alarms();
    }

    /// Measures the free space of each log dir. A settling cycle does so, too.
    pub fn measure_space(&self) {
        (0..self.dirs.len()).for_each(|dir_index| self.measure_space_of(dir_index));
    }

    /// Measures the free space of log dir `dir_index`.
    pub fn measure_space_of(&self, dir_index: usize) {
        let logs = &self.dirs[dir_index];
        if logs.dir.is_open() {
            logs.dir.measure_space();
        }
    }

    /// The refusal of clients' appends to a log dir whose space is short; none if it has room.
    pub fn dir_shortage(&self, dir_index: usize) -> Option<LogError> {
        let logs = &self.dirs[dir_index];
        logs.dir.space().check(AppendOrigin::Client, logs.path()).err()
    }

    /// One cycle of log dir `dir_index`: brings all its tails into the segments, in large runs and in the order of
    /// partitions, and changes levels that are to change. If a journal is half full for it, or a level changes, a
    /// checkpoint follows, and the journals use their files again. Entries of another dir that hangs are put aside, if
    /// they keep the journals from that or fill the write cache.
    pub fn settle_dir(&self, dir_index: usize) -> Result<(), LogError> {
        self.settle_in(std::slice::from_ref(&self.dirs[dir_index]))
    }

    /// As [`Self::settle_dir`], for all log dirs, one after the other. Every dir is tried; the first error is returned.
    pub fn settle(&self) -> Result<(), LogError> {
        self.settle_in(&self.dirs)
    }

    fn settle_in(&self, dirs: &[Arc<DirLogs>]) -> Result<(), LogError> {
        let _cycles = lock_cycles(dirs);
        let delivered = self.delivered();
        // Earlier failures were logged.
        let result =
            for_each(
                dirs,
                |logs| if logs.dir.check_usable().is_ok() { logs.settle(Haste::Spread) } else { Ok(()) },
            );
        let mut result = result.and(self.bring_back(dirs));
        for logs in dirs.iter().filter(|logs| logs.dir.is_open()) {
            logs.put_aside_if_stuck(&delivered);
        }
        self.free_of_hanging(dirs, &delivered);
        if self.shared.is_journal_half_full() {
            let is_wanted = |logs: &DirLogs| logs.dir.check_usable().is_ok() && logs.pins(&delivered);
            result = result.and(self.recycle(dirs, &delivered, Haste::Spread, is_wanted));
        }
        let result = result.and(self.change_levels(dirs, &delivered));
        end_cycle(dirs, result)
    }

    /// Puts aside the entries of other dirs that hang, if they fill the write cache or keep a journal from being given
    /// back. Waits for none of these dirs.
    fn free_of_hanging(&self, dirs: &[Arc<DirLogs>], delivered: &[Position]) {
        let is_other = |logs: &Arc<DirLogs>| !dirs.iter().any(|own| Arc::ptr_eq(own, logs));
        let hanging =
            self.dirs.iter().filter(|logs| logs.dir.is_open() && is_other(logs) && logs.dir.hangs());
        let is_pressed = self.shared.is_journal_half_full() || self.shared.cache.is_half_full();
        for logs in hanging.filter(|_| is_pressed) {
            logs.unshare_tails();
            if self.is_in_the_way(logs) {
                logs.put_aside_hanging(delivered);
            }
            logs.dir.let_go_of_kept();
        }
    }

    /// Number of partitions of each topic that have reached another level since the last call.
    pub fn take_level_changes(&self) -> BTreeMap<(TopicId, DurabilityLevel), usize> {
        self.shared.take_reached()
    }

    /// Settles everything in log dir `dir_index`, syncs it if something has changed there, and remembers how far its
    /// partitions are synced: records up to there need no recovery.
    pub fn checkpoint_dir(&self, dir_index: usize) -> Result<(), LogError> {
        self.checkpoint_in(std::slice::from_ref(&self.dirs[dir_index]), Haste::Spread, |_| true)
    }

    /// As [`Self::checkpoint_dir`], for all log dirs, one after the other. Every dir is tried; the first error is
    /// returned.
    pub fn checkpoint(&self) -> Result<(), LogError> {
        self.checkpoint_in(&self.dirs, Haste::Spread, |_| true)
    }

    pub(super) fn checkpoint_in(
        &self,
        dirs: &[Arc<DirLogs>],
        haste: Haste,
        is_wanted: impl Fn(&DirLogs) -> bool,
    ) -> Result<(), LogError> {
        let _cycles = lock_cycles(dirs);
        let delivered = self.delivered();
        let result = self.recycle(dirs, &delivered, haste, is_wanted);
        end_cycle(dirs, result)
    }

    /// A checkpoint of the dirs that have not failed. Does not wait for one that hangs.
    fn checkpoint_working(&self) -> Result<(), LogError> {
        let answering: Vec<_> = self.dirs.iter().filter(|logs| !logs.dir.hangs()).cloned().collect();
        self.checkpoint_in(&answering, Haste::AtOnce, |logs| !logs.dir.has_failed())
    }

    /// Makes the last checkpoint. Entries that a dir that has failed needs are put aside instead, also those of one
    /// that fails now.
    fn checkpoint_for_good(&self) -> Result<(), LogError> {
        let failed_count = || self.dirs.iter().filter(|logs| logs.dir.has_failed()).count();
        loop {
            let before = failed_count();
            let result = self.checkpoint_working();
            if result.is_ok() || failed_count() == before {
                return result;
            }
        }
    }

    /// Looks at the devices of all log dirs, one after the other.
    pub fn look_at_devices(&self) {
        (0..self.dirs.len()).for_each(|dir_index| self.look_at_device(dir_index));
    }

    /// Looks whether the device of log dir `dir_index` still takes writes, which no append tells while there is none:
    /// the dir fails if it does not. Costs a sync.
    pub fn look_at_device(&self, dir_index: usize) {
        let logs = &self.dirs[dir_index];
        if !logs.dir.has_failed() {
            // The dir has logged the reason.
            let _ = logs.dir.look_at_device();
        }
    }

    /// Fails if the store is to be closed and there is no time left to settle.
    pub(super) fn check_time(&self) -> Result<(), LogError> {
        self.shared.check_time(&*self.env.clock)
    }

    /// The present monotonic time.
    pub(super) fn now(&self) -> Duration {
        self.env.clock.monotonic()
    }

    /// Position below which the owners of all entries were told. Read before tails are settled: entries below are in
    /// them.
    fn delivered(&self) -> Vec<Position> {
        self.shared.journals.iter().map(|journal| journal.delivered()).collect()
    }

    /// Makes a checkpoint of each of `dirs` that `is_wanted`. The journals need no entries below `delivered` any more,
    /// as far as all dirs of the store say so.
    fn recycle(
        &self,
        dirs: &[Arc<DirLogs>],
        delivered: &[Position],
        haste: Haste,
        is_wanted: impl Fn(&DirLogs) -> bool,
    ) -> Result<(), LogError> {
        let mut complete = Vec::new();
        let result = for_each(dirs, |logs| {
            let asides = logs.dir.aside_count();
            if is_wanted(logs) && logs.cover(delivered, haste)? == Coverage::Complete {
                complete.push((logs, asides));
            }
            Ok(())
        });
        if self.shared.check_recovered().is_err() {
            return result;
        }
        let result = result.and(self.release_held(&complete)).and(self.release_deleted());
        // A dir for which no checkpoint was asked can wait, unless it has failed.
        let is_due = |logs: &&Arc<DirLogs>| logs.dir.is_open() && (is_wanted(logs) || logs.dir.has_failed());
        for logs in dirs.iter().filter(is_due) {
            logs.put_aside_if_uncovered(delivered);
        }
        for (index, journal) in self.shared.journals.iter().enumerate() {
            journal.settle_to(self.needed_from(index));
        }
        result
    }

    /// The position from which on some dir still needs the journal.
    fn needed_from(&self, journal: usize) -> Position {
        let open = self.dirs.iter().filter(|logs| logs.dir.is_open());
        open.map(|logs| logs.covered.lock()[journal]).min().unwrap_or_default()
    }

    /// Empties the journals, as far as there is time for it, and closes them: all their entries are synced then.
    pub(super) fn close_journals(&self) -> Result<Closed, LogError> {
        let drained = self.drain();
        // This is the last chance.
        self.dirs.iter().for_each(|logs| logs.forget_failed_rereads());
        let mut closed = Closed::InOrder;
        let mut result = match drained.and(self.checkpoint_for_good()) {
            Err(LogError::OutOfTime) => {
                closed = Closed::LeftToJournals { bytes: 0 };
                Ok(())
            }
            result => result,
        };
        if self.dirs.iter().any(|logs| logs.dir.hangs()) {
            closed = Closed::LeftToJournals { bytes: 0 };
        }
        for journal in &self.shared.journals {
            result = result.and(journal.close().map_err(LogError::Journal));
            match &mut closed {
                Closed::LeftToJournals { bytes } => *bytes += journal.used_bytes(),
                // Including entries that were stored only now.
                Closed::InOrder if result.is_ok() && journal.settled() < journal.delivered() => {
                    result = Err(LogError::NotSettled { path: journal.dir().to_path_buf() });
                }
                Closed::InOrder => {}
            }
        }
        result.map(|()| closed)
    }

    /// Waits until all submitted entries have come back, and the journals count them as delivered.
    fn drain(&self) -> Result<(), LogError> {
        let journals = || self.shared.journals.iter();
        let is_drained = || {
            let is_delivered =
                |journal: &Arc<Journal>| journal.failure().is_some() || journal.has_delivered_all();
            self.dirs.iter().all(|logs| logs.dir.hangs() || logs.is_drained()) && journals().all(is_delivered)
        };
        let mut relief = Relief::default();
        let mut waited = Duration::ZERO;
        let mut delivered = self.delivered();
        while !is_drained() && waited < DRAIN_WAIT_MAX && self.check_time().is_ok() {
            // The last checkpoint shows what cannot be settled.
            let _unsettled = self.relieve(&mut relief, |_| self.checkpoint_working());
            self.env.clock.sleep(DRAIN_POLL);
            waited += DRAIN_POLL;
            let before = std::mem::replace(&mut delivered, self.delivered());
            if before != delivered {
                waited = Duration::ZERO;
            }
        }
        let failure = journals().find_map(|journal| journal.failure());
        failure.map_or(Ok(()), |error| Err(LogError::JournalFailed(error)))
    }

    /// To be called again and again, each time after [`DRAIN_POLL`], in a wait for a journal that takes the place of
    /// settling: calls `recycle` with the delivered positions if the journal may be waiting for that.
    fn relieve(
        &self,
        relief: &mut Relief,
        recycle: impl FnOnce(&[Position]) -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        relief.since += DRAIN_POLL;
        let is_wanted = self.shared.is_journal_half_full() || self.shared.cache.is_half_full();
        let delivered = self.delivered();
        // There is nothing new to settle, except entries that could not be settled before.
        if !is_wanted || (relief.delivered == delivered && relief.since < REST) {
            return Ok(());
        }
        let result = recycle(&delivered);
        *relief = Relief { delivered, since: Duration::ZERO };
        result
    }
}

/// The delivered positions when the journals were given files back last, and the time since then.
#[derive(Debug, Default)]
struct Relief {
    delivered: Vec<Position>,
    since: Duration,
}

impl DirLogs {
    /// Settles and makes a checkpoint. If that covers everything, the dir needs nothing below `delivered` any more. If
    /// only some partitions could be settled the checkpoint covers these, so that only the others' entries are put
    /// aside. Before the recovery nothing is complete: the journals have entries that no checkpoint can cover yet.
    fn cover(&self, delivered: &[Position], haste: Haste) -> Result<Coverage, LogError> {
        let settled = self.settle(haste);
        if let Err(error) = &settled
            && error.is_full()
        {
            // There is no room for a checkpoint either, and a cycle that fails is soon tried again.
            return Err(error.clone());
        }
        let coverage = self.checkpoint(false, haste);
        settled?;
        if coverage? == Coverage::Partial
            || self.has_left_behind()
            || self.shared().check_recovered().is_err()
        {
            return Ok(Coverage::Partial);
        }
        let mut covered = self.covered.lock();
        // Another dir's settler may have put entries aside meanwhile, up to a later position.
        covered.iter_mut().zip(delivered).for_each(|(covered, end)| *covered = (*covered).max(*end));
        drop(covered);
        self.note_recovery_covered();
        Ok(Coverage::Complete)
    }

    /// Whether a journal that should be given back has many entries that only this dir may need.
    fn pins(&self, delivered: &[Position]) -> bool {
        let covered = self.covered.lock();
        let journals = self.shared().journals.iter().zip(covered.iter().zip(delivered));
        let mut wanting = journals.filter(|(journal, _)| journal.wants_settling());
        wanting.any(|(journal, (covered, end))| {
            let bytes_min = if journal.is_out_of_room() { 1 } else { journal.bytes_max() / PINNED_SHARE };
            end.0.saturating_sub(covered.0) >= bytes_min
        })
    }
}

/// Locks the cycles of these dirs, which come in the store's order.
fn lock_cycles(dirs: &[Arc<DirLogs>]) -> Vec<RankedGuard<'_, ()>> {
    dirs.iter().map(|logs| logs.cycle.lock_beside()).collect()
}

/// Calls `action` for each dir that could be opened. The first error is returned.
fn for_each<'a>(
    dirs: &'a [Arc<DirLogs>],
    mut action: impl FnMut(&'a DirLogs) -> Result<(), LogError>,
) -> Result<(), LogError> {
    let open = dirs.iter().filter(|logs| logs.dir.is_open());
    let act = |logs: &'a Arc<DirLogs>| {
        let result = action(logs);
        // Errors that other threads have met count, too.
        logs.dir.look_if_asked().and(result)
    };
    let results: Vec<_> = open.map(act).collect();
    results.into_iter().collect()
}

fn end_cycle(dirs: &[Arc<DirLogs>], result: Result<(), LogError>) -> Result<(), LogError> {
    for logs in dirs {
        if logs.dir.is_open() {
            logs.dir.measure_space();
        }
        // If the dir's entries cannot be put aside either, an attempt at once changes nothing.
        let is_troubled = result.is_err() || logs.aside_trouble().is_some();
        logs.is_troubled.store(is_troubled, Ordering::Relaxed);
    }
    result
}

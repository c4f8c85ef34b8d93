//! Removal of records from the log's front: retention, and deletion on request.
//!
//! The log start is durable before the first file is removed, so that a file that is missing at its front is known to
//! be missing, and so that deleted records never come back. Files are renamed first and removed after
//! `file.delete.delay.ms`, for programs that open them by name; readers that hold them open need no delay. If the file
//! system has no space for other names they are removed at once.
//!
//! Retention works in turns: each looks at a number of segments, removes at most so many, and the files of at most so
//! many, so that a partition with very many segments holds up neither the others nor its readers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use riverrun_env::is_shortage;
use riverrun_types::{Offset, TimestampMs};

use super::PartitionLog;
use super::open::{OpenLog, View};
use super::writer::ActiveSegment;
use crate::error::{LogError, ReadError};
use crate::file_names::DELETED_SUFFIX;
use crate::log_starts::Change;
use crate::partition_files;
use crate::retention::{RetentionDecision, RetentionInput, SegmentFacts, decide, front_len};
use crate::segment::Segment;

/// Segments with records that one turn of retention looks at: some milliseconds' work for a disk.
const TURN_SEGMENTS: usize = 100;
/// Files that are removed in one turn: two for each segment.
const TURN_FILES: usize = 2 * TURN_SEGMENTS;

/// The result of a turn of retention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Number of segments that were removed.
    pub segments: usize,
    /// Another turn has something to do now.
    pub is_more: bool,
}

/// The log's state when retention looked at it.
#[derive(Clone, Copy)]
struct Seen {
    segment_count: usize,
    end: Offset,
}

/// A file that is no longer part of the log.
#[derive(Debug)]
pub(crate) struct DoomedFile {
    path: PathBuf,
    /// By monotonic time: a wall clock that is set back would keep the file for as long.
    since: Duration,
}

impl PartitionLog {
    /// Deletes whole segments by time, by size, and below the log start, as the topic's options say; nothing at or
    /// above `high_watermark` or the last checkpoint. One call is a turn: if there is more, the caller goes through the
    /// other logs and then calls again. Does nothing to a log that is being compacted, which may take long.
    pub fn apply_retention(&self, now: TimestampMs, high_watermark: Offset) -> Result<Retained, LogError> {
        let log = self.open()?;
        let Some(mut reshaping) = log.reshaping.try_lock() else { return Ok(Retained::default()) };
        if log.appender.lock().is_retired {
            // The log was closed just now, because it was idle: the next time is early enough.
            return Ok(Retained::default());
        }
        self.finish_swap(&log, &mut reshaping)
            .and_then(|()| self.retain_in(&log, now, high_watermark))
            .map_err(|error| self.dir.judge(error))
            .inspect_err(|error| self.take_offline_if_damaged(error))
    }

    /// Whether [`Self::apply_retention`] keeps segments only because no checkpoint has covered them. A log dir that has
    /// failed makes no checkpoint.
    pub fn retention_awaits_checkpoint(
        &self,
        now: TimestampMs,
        high_watermark: Offset,
    ) -> Result<bool, LogError> {
        let log = self.open()?;
        let covered = log.recovery_point();
        if covered >= high_watermark || self.dir.has_failed() {
            return Ok(false);
        }
        let (view, config) = (log.view(), self.config());
        let facts = front_facts(&view)?;
        let goes_below =
            |high_watermark: Offset| decide(input(&view, &facts, high_watermark, now), &config).delete_count;
        Ok(goes_below(high_watermark) > goes_below(covered))
    }

    fn retain_in(
        &self,
        log: &OpenLog,
        now: TimestampMs,
        high_watermark: Offset,
    ) -> Result<Retained, LogError> {
        let config = self.config();
        // Records in the tail count for the log's size and age as well. If there is no room to settle them, retention
        // makes some.
        match self.settle_in_runs(log) {
            Err(error) if !error.is_full() => return Err(error),
            _ => {}
        }
        let monotonic = self.dir.env().clock.monotonic();
        let leaves_files = log.remove_doomed_before(monotonic, config.file_delete_delay_ms);
        self.name_end(log, now)?;
        let view = log.view();
        let facts = front_facts(&view)?;
        // Records that no checkpoint has covered stay: after a kill, recovery learns the producers' sequences from
        // them.
        let high_watermark = high_watermark.min(log.recovery_point());
        let input = input(&view, &facts, high_watermark, now);
        let seen = Seen { segment_count: view.segments.len(), end: view.end };
        // While a view is held, the removal of segments copies its list, and readers wait.
        drop(view);
        let mut decision = decide(input, &config);
        let retained =
            |segments| Retained { segments, is_more: leaves_files || decision.is_cut_short(input) };
        if decision.delete_count == 0 {
            return Ok(retained(0));
        }
        let is_more = retained(0).is_more;
        let mut deleted = self.take_out(log, seen, decision, now);
        if deleted.as_ref().is_err_and(LogError::is_full) {
            // There is no room for the segment after the last one: the removal of the others makes some.
            if let Some(fewer) = decision.all_but_last(input) {
                decision = fewer;
                deleted = self.take_out(log, seen, decision, now);
            } else if input.is_whole && decision.delete_count == input.segments.len() {
                deleted = self.take_only(log, decision);
            }
        }
        let deleted = deleted?;
        // Something was appended since, which keeps its segment until the next time.
        if deleted.is_empty() {
            return Ok(Retained { segments: 0, is_more: leaves_files });
        }
        for segment in &deleted {
            log.doom(segment, monotonic)?;
            log.drop_state(segment.base_offset);
        }
        let count = deleted.len();
        tracing::info!(
            partition = %self.id, segments = count, log_start = %decision.log_start,
            reason = ?decision.reason, "retention deleted segments"
        );
        // An open file keeps its space.
        drop(deleted);
        self.name_end(log, now)?;
        Ok(Retained { segments: count, is_more })
    }

    /// Ends the active segment if `segment.ms` has passed since its first record, so that retention and compaction get
    /// at a log without appends. Returns whether it did.
    pub fn roll_if_due(&self, now: TimestampMs) -> Result<bool, LogError> {
        let config = self.config();
        self.roll_if(|active| active.cursor.position > 0 && active.is_too_old(now, &config, now))
    }

    /// Ends the active segment if the log dir is in its reserve and a small share of that lies in it, so that
    /// compaction gets at it before it is full: for logs that use the reserve. Returns whether it did.
    pub fn roll_in_reserve(&self) -> Result<bool, LogError> {
        let bytes_max = self.dir.space().own_active_bytes_max();
        self.roll_if(|active| active.cursor.position > bytes_max)
    }

    fn roll_if(&self, is_due: impl FnOnce(&ActiveSegment) -> bool) -> Result<bool, LogError> {
        let log = self.open()?;
        let mut writer = log.writer.lock();
        let is_due = writer.active.as_ref().is_some_and(is_due);
        if is_due && !log.appender.lock().is_retired {
            self.dir.check_usable()?;
            writer.seal_active(&log).map_err(|error| self.dir.judge(error))?;
        }
        Ok(is_due)
    }

    /// Makes `before` the log start, if it is not beyond it already. Durable when it returns; the space comes back
    /// with the next retention.
    pub fn delete_records(&self, before: Offset) -> Result<Offset, ReadError> {
        self.reshape(|log, _| {
            let view = log.view();
            if before > view.end || before < Offset::ZERO {
                return Err(ReadError::OutOfRange {
                    offset: before,
                    log_start: view.log_start,
                    log_end: view.end,
                });
            }
            if before <= view.log_start {
                return Ok(view.log_start);
            }
            if before > view.settled_end {
                self.settle_in(log, &mut log.writer.lock())?;
            }
            self.persist(Change::Start(before))?;
            let mut writer = log.writer.lock();
            log.move_log_start(before);
            self.mark_dirty(&mut writer);
            Ok(before)
        })
    }

    /// Removes the decided segments from the view, after making the new log start durable. Appends go on during the
    /// wait for the disk: the caller keeps others from reshaping the log, and appends only add to its end.
    fn take_out(
        &self,
        log: &OpenLog,
        seen: Seen,
        decision: RetentionDecision,
        now: TimestampMs,
    ) -> Result<Vec<Arc<Segment>>, LogError> {
        let takes_last = decision.delete_count == seen.segment_count;
        if takes_last && !self.begin_successor(log, seen.end, now)? {
            return Ok(Vec::new());
        }
        let deleted = log.view().segments[..decision.delete_count].to_vec();
        self.persist(Change::Start(decision.log_start))?;
        let mut writer = log.writer.lock();
        log.update_view(|view| view.drop_front(decision.delete_count));
        log.move_log_start(decision.log_start);
        self.mark_dirty(&mut writer);
        Ok(deleted)
    }

    /// As [`Self::take_out`], for the only segment, if there is no room for another one beside it. Until there is, the
    /// log start is the log's end: a checkpoint has covered all below it.
    fn take_only(&self, log: &OpenLog, decision: RetentionDecision) -> Result<Vec<Arc<Segment>>, LogError> {
        let mut writer = log.writer.lock();
        let seen = log.view();
        // Something was appended since: it keeps its segment.
        if writer.end != decision.log_start || writer.recovery_point < writer.end {
            return Ok(Vec::new());
        }
        self.persist(Change::Start(decision.log_start))?;
        writer.active = None;
        log.update_view(|view| {
            view.set_segments(Vec::new());
            (view.sealed_bytes, view.last_bytes) = (0, 0);
        });
        log.move_log_start(decision.log_start);
        self.mark_dirty(&mut writer);
        Ok(seen.segments.to_vec())
    }

    /// Begins a segment for a log that has none left, if there is room now.
    fn name_end(&self, log: &OpenLog, now: TimestampMs) -> Result<(), LogError> {
        let view = log.view();
        if !view.segments.is_empty() || view.end == Offset::ZERO {
            return Ok(());
        }
        match self.begin_successor(log, view.end, now) {
            Err(error) if !error.is_full() => Err(error),
            _ => Ok(()),
        }
    }

    /// Begins the segment after all that were seen, durably: a log keeps its end offset in the name of its last
    /// segment, if need be an empty one. `false` if something was appended since, which keeps its segment until the
    /// next time.
    fn begin_successor(&self, log: &OpenLog, seen_end: Offset, now: TimestampMs) -> Result<bool, LogError> {
        let mut writer = log.writer.lock();
        if log.end() > seen_end || writer.end < seen_end {
            return Ok(false);
        }
        self.start_segment(log, &mut writer, &self.config(), now)?;
        drop(writer);
        partition_files::sync_dir(&log.home)?;
        Ok(true)
    }
}

impl OpenLog {
    fn move_log_start(&self, log_start: Offset) {
        self.update_view(|view| view.log_start = log_start);
        self.epochs().truncate_start(log_start);
    }

    /// Renames a segment's files out of the log, to be removed later, or removes them at once, if there is no space for
    /// other names. A power cut may bring back any of them, under either name: all lie below the log start and the
    /// recovery point, which are durable, and the next opening removes them.
    fn doom(&self, segment: &Segment, now: Duration) -> Result<(), LogError> {
        for path in [segment.log_path(), segment.index_path()] {
            let mut name = path.clone().into_os_string();
            name.push(DELETED_SUFFIX);
            let doomed = PathBuf::from(name);
            match self.home.fs.rename(&path, &doomed) {
                Ok(()) => self.doomed.lock().push(DoomedFile { path: doomed, since: now }),
                // Some file systems want room for a name that only changes (XFS), and none to remove one.
                Err(error) if is_shortage(&error) => partition_files::remove(&self.home, &path)?,
                Err(error) => return Err(LogError::write(&path, error)),
            }
        }
        Ok(())
    }

    /// Removes some of the files that have waited for long enough; returns whether there are more of these.
    fn remove_doomed_before(&self, now: Duration, delay_ms: u64) -> bool {
        let delay = Duration::from_millis(delay_ms);
        let mut doomed = self.doomed.lock();
        // They are in the order of their renaming.
        let due = doomed.partition_point(|file| now.saturating_sub(file.since) >= delay);
        let files: Vec<_> = doomed.drain(..due.min(TURN_FILES)).collect();
        drop(doomed);
        let leaves_some = due > files.len();
        self.remove_files(files);
        leaves_some
    }

    /// Removes all files that are no longer part of the log.
    pub(crate) fn remove_doomed(&self) {
        let files = std::mem::take(&mut *self.doomed.lock());
        self.remove_files(files);
    }

    fn remove_files(&self, files: Vec<DoomedFile>) {
        for file in files {
            // The file is removed when the partition is opened next.
            if let Err(error) = partition_files::remove(&self.home, &file.path) {
                tracing::warn!(partition = %self.home.partition, %error, "a deleted segment's file stays");
            }
        }
    }
}

/// Retention's input: the segments of `view` that have `facts`.
fn input<'a>(
    view: &View,
    facts: &'a [SegmentFacts],
    high_watermark: Offset,
    now: TimestampMs,
) -> RetentionInput<'a> {
    RetentionInput {
        segments: facts,
        is_whole: facts.len() == view.segments.len(),
        size_bytes: view.size_bytes(),
        log_start: view.log_start,
        high_watermark,
        now,
    }
}

/// The facts of the segments that one turn of retention looks at.
fn front_facts(view: &View) -> Result<Vec<SegmentFacts>, LogError> {
    let sizes = (0..view.segments.len()).map(|index| view.extent(index).size_bytes);
    facts_of(view, front_len(sizes, TURN_SEGMENTS), false)
}

/// The facts of each segment. The timestamp of the first record costs a read, so it is looked up only on request, and
/// the time of the last write only if no record has a timestamp.
pub(super) fn segment_facts(view: &View, with_first_timestamp: bool) -> Result<Vec<SegmentFacts>, LogError> {
    facts_of(view, view.segments.len(), with_first_timestamp)
}

/// The facts of the first `count` segments.
fn facts_of(view: &View, count: usize, with_first_timestamp: bool) -> Result<Vec<SegmentFacts>, LogError> {
    let mut facts = Vec::with_capacity(count);
    for (index, segment) in view.segments[..count].iter().enumerate() {
        let extent = view.extent(index);
        let first_timestamp =
            if with_first_timestamp { segment.first_timestamp(extent.size_bytes)? } else { None };
        let max_timestamp = match view.max_timestamp(index)? {
            // Records without timestamps are as old as their file, as in Kafka.
            TimestampMs::NONE => segment.last_write()?,
            known => known,
        };
        facts.push(SegmentFacts {
            base_offset: segment.base_offset,
            end_offset: extent.next_offset,
            size_bytes: extent.size_bytes,
            first_timestamp: first_timestamp.unwrap_or(TimestampMs::NONE),
            max_timestamp,
            is_active: segment.extent().is_none(),
        });
    }
    Ok(facts)
}

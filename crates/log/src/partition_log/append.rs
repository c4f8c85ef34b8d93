//! The append path: judge the sequence, assign offsets, roll if need be, one write, publish.
//!
//! The steps are apart because a sync level will put the journal between assigning and writing: what is assigned
//! then goes to the journal first and to the segment later.

use std::sync::Arc;

use riverrun_types::{LeaderEpoch, Offset, TimestampMs};

use super::PartitionLog;
use super::open::{ActiveSegment, Appender, OpenLog};
use super::prepare::{Prepared, prepare};
use crate::config::LogConfig;
use crate::error::{AppendError, LogError};
use crate::index::{ENTRY_BYTES, IndexCursor, IndexEntry, OFFSET_SPAN_MAX, stamp_of};
use crate::producer_state::{AppendOrigin, BatchPlace, SequenceVerdict, SequencedBatch};
use crate::segment::{Extent, Segment};

/// Who appends, and when.
#[derive(Clone, Copy, Debug)]
pub struct AppendOptions {
    /// A client's batch is checked record by record and must be alone; the coordinator's batches are our own.
    pub origin: AppendOrigin,
    /// Wall clock.
    pub now: TimestampMs,
}

/// Where an append came to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Offset of the last record.
    pub last_offset: Offset,
    /// The time that was stamped on the records, where the topic has `LogAppendTime`.
    pub log_append_time: Option<TimestampMs>,
    /// First offset that can be read.
    pub log_start_offset: Offset,
    /// Bytes written; 0 for a duplicate.
    pub bytes: usize,
    /// These batches were in the log already; nothing was written. The answer may be given once
    /// `last_offset` is as durable as the topic asks.
    pub duplicate: bool,
}

impl PartitionLog {
    /// Appends whole batches, which are patched in place, and assigns their offsets. Exactly one from a client; one
    /// or more from the coordinator. When it returns the bytes are in the page cache and visible to readers of the
    /// log; nothing is durable.
    pub fn append(&self, batches: &mut [u8], options: AppendOptions) -> Result<Appended, AppendError> {
        let config = self.config.read().clone();
        let mut prepared = prepare(batches, &config, options)?;
        loop {
            self.dir.check_usable()?;
            let log = self.open()?;
            let mut appender = log.appender.lock();
            // The store closed the log between the two lines above: open it again.
            if appender.is_retired {
                continue;
            }
            let outcome = self.append_locked(&log, &mut appender, &mut prepared, &config, options);
            return outcome.map_err(|error| match error {
                AppendError::Storage(error) => self.dir.judge(error).into(),
                refused => refused,
            });
        }
    }

    fn append_locked(
        &self,
        log: &OpenLog,
        appender: &mut Appender,
        prepared: &mut Prepared<'_>,
        config: &LogConfig,
        options: AppendOptions,
    ) -> Result<Appended, AppendError> {
        if let Some(place) = log.find_duplicate(prepared, options.origin)? {
            return Ok(duplicate_of(place, prepared, log.view().log_start));
        }
        // Epochs never fall within a log, whatever the caller counts.
        let epoch =
            log.view().latest_epoch.map_or(self.leader_epoch(), |latest| latest.max(self.leader_epoch()));
        let base_offset = appender.next_offset;
        prepared.assign(base_offset, epoch);
        self.roll_if_needed(log, appender, prepared, config, options.now)?;
        self.mark_dirty(appender);
        let active = appender.active.as_mut().expect("rolling leaves an active segment");
        active.write(prepared)?;
        appender.next_offset = base_offset.plus(prepared.offset_count());
        log.remember_producers(prepared, options.now);
        let log_start_offset = log.publish(appender, epoch, base_offset);
        self.store_index(appender);
        Ok(Appended {
            base_offset,
            last_offset: appender.next_offset.plus(-1),
            log_append_time: prepared.log_append_time,
            log_start_offset,
            bytes: prepared.bytes().len(),
            duplicate: false,
        })
    }

    /// Tells the store that the checkpoint no longer says all there is.
    pub(super) fn mark_dirty(&self, appender: &mut Appender) {
        if !appender.is_dirty {
            appender.is_dirty = true;
            self.dir.mark_dirty(self.id);
        }
    }

    /// Makes sure that there is an active segment with room for the batches.
    fn roll_if_needed(
        &self,
        log: &OpenLog,
        appender: &mut Appender,
        prepared: &Prepared<'_>,
        config: &LogConfig,
        now: TimestampMs,
    ) -> Result<(), LogError> {
        if let Some(active) = &appender.active {
            let incoming = Incoming {
                bytes: prepared.bytes().len() as u64,
                last_offset: appender.next_offset.plus(prepared.offset_count() - 1),
                max_timestamp: prepared.max_timestamp(),
            };
            if !active.must_roll(incoming, config, now) {
                return Ok(());
            }
            appender.seal_active()?;
        }
        self.start_segment(log, appender, config, now)
    }

    /// Makes the segment that the next batch goes to.
    pub(super) fn start_segment(
        &self,
        log: &OpenLog,
        appender: &mut Appender,
        config: &LogConfig,
        now: TimestampMs,
    ) -> Result<(), LogError> {
        let home = &log.home;
        if log.view().segments.is_empty() {
            home.fs.create_dir_all(&home.dir).map_err(|error| LogError::write(&home.dir, error))?;
        }
        let base_offset = appender.next_offset;
        let segment = Arc::new(Segment::create(home.clone(), base_offset)?);
        appender.active = Some(ActiveSegment {
            file: segment.hold_log_file()?,
            cursor: IndexCursor::at(base_offset, IndexEntry::START, config.index_interval_bytes),
            segment: segment.clone(),
            first_timestamp: None,
            opened_at: now,
            jitter_ms: self.dir.jitter_ms(config.segment_jitter_ms),
        });
        log.update_view(|view| {
            let mut segments = view.segments.to_vec();
            segments.push(segment);
            view.set_segments(segments);
            view.last_bytes = 0;
            view.last_max_timestamp = TimestampMs::NONE;
        });
        Ok(())
    }

    /// Writes index entries once a page of them has gathered. For want of space they stay in memory, and the next
    /// append tries again; what was appended is as good as it was.
    fn store_index(&self, appender: &Appender) {
        let Some(active) = &appender.active else { return };
        if let Err(error) = active.segment.store_full_tail() {
            let error = self.dir.judge(error);
            tracing::warn!(partition = %self.id, %error, "index entries stay in memory");
        }
    }
}

impl OpenLog {
    fn find_duplicate(
        &self,
        prepared: &Prepared<'_>,
        origin: AppendOrigin,
    ) -> Result<Option<BatchPlace>, AppendError> {
        if prepared.batches().all(|batch| !batch.header.has_producer_id()) {
            return Ok(None);
        }
        let verdict = match origin {
            AppendOrigin::Client => {
                let first = prepared.batches().next().map(|batch| batch.sequenced());
                self.producers().check(first.as_slice(), origin)?
            }
            AppendOrigin::Coordinator => {
                let batches: Vec<SequencedBatch> =
                    prepared.batches().map(|batch| batch.sequenced()).collect();
                self.producers().check(&batches, origin)?
            }
        };
        match verdict {
            SequenceVerdict::Append => Ok(None),
            SequenceVerdict::Duplicate(place) => Ok(Some(place)),
        }
    }

    fn remember_producers(&self, prepared: &Prepared<'_>, now: TimestampMs) {
        for batch in prepared.batches().filter(|batch| batch.header.has_producer_id()) {
            let place = BatchPlace {
                base_offset: batch.base_offset,
                last_offset: batch.next_offset().plus(-1),
                timestamp: batch.header.max_timestamp(),
            };
            self.producers().record(batch.sequenced(), place, now);
        }
    }

    /// Shows the new end to readers; returns the log start.
    fn publish(&self, appender: &Appender, epoch: LeaderEpoch, base_offset: Offset) -> Offset {
        let mut log_start = Offset::ZERO;
        let mut is_new_epoch = false;
        self.update_view(|view| {
            if let Some(active) = &appender.active {
                view.last_bytes = active.cursor.position;
                view.last_max_timestamp = active.cursor.max_timestamp;
            }
            view.end = appender.next_offset;
            is_new_epoch = view.latest_epoch != Some(epoch);
            view.latest_epoch = Some(epoch);
            log_start = view.log_start;
        });
        if is_new_epoch {
            self.epochs().assign(epoch, base_offset);
        }
        log_start
    }
}

impl Appender {
    /// Completes the active segment, so that the next append begins another. Its index is whole when it returns.
    pub(super) fn seal_active(&mut self) -> Result<(), LogError> {
        let Some(active) = &mut self.active else { return Ok(()) };
        if let Some(entry) = active.cursor.end_entry(self.next_offset) {
            active.segment.push_entry(entry);
        }
        active.segment.store_tail()?;
        let extent = Extent { size_bytes: active.cursor.position, next_offset: self.next_offset };
        active.segment.seal(extent);
        self.active = None;
        Ok(())
    }
}

/// What an append would add to the active segment.
#[derive(Clone, Copy, Debug)]
struct Incoming {
    bytes: u64,
    last_offset: Offset,
    max_timestamp: TimestampMs,
}

impl ActiveSegment {
    /// Kafka's conditions: no room by size, time, index or offsets.
    fn must_roll(&self, incoming: Incoming, config: &LogConfig, now: TimestampMs) -> bool {
        let size = self.cursor.position;
        if size == 0 {
            return false;
        }
        let index_bytes = u64::from(self.segment.entry_count() + 1) * ENTRY_BYTES as u64;
        size + incoming.bytes > u64::from(config.segment_bytes)
            || index_bytes > u64::from(config.segment_index_bytes)
            || incoming.last_offset.0 - self.segment.base_offset.0 >= OFFSET_SPAN_MAX
            || self.is_too_old(incoming.max_timestamp, config, now)
    }

    /// Whether a record of `timestamp` would make the segment span more than `segment.ms`. Where the first batch has
    /// no timestamp, the segment's own age counts.
    pub(super) fn is_too_old(&self, timestamp: TimestampMs, config: &LogConfig, now: TimestampMs) -> bool {
        let limit_ms = i64::try_from(config.segment_ms.saturating_sub(self.jitter_ms)).unwrap_or(i64::MAX);
        let span_ms = match self.first_timestamp {
            Some(first) if first.0 >= 0 => timestamp.0.saturating_sub(first.0),
            _ => now.0.saturating_sub(self.opened_at.0),
        };
        span_ms > limit_ms
    }

    /// Writes the batches after the last one, with one write, and takes them into the index. After an error the
    /// segment is as before: what may have reached the file lies beyond its end and is cut off. Unless the log dir
    /// fails with the error, the next append may write to the same place.
    fn write(&mut self, prepared: &Prepared<'_>) -> Result<(), LogError> {
        let size = self.cursor.position;
        if let Err(error) = self.file.write_all_at(prepared.bytes(), size) {
            // If this fails too, the next append writes over it, or recovery cuts it.
            let _ = self.file.set_len(size);
            return Err(LogError::write(&self.segment.log_path(), error));
        }
        for batch in prepared.batches() {
            if let Some(entry) = self.cursor.entry_due(batch.base_offset) {
                self.segment.push_entry(entry);
            }
            self.cursor.pass(&batch.header, &stamp_of(&prepared.bytes()[batch.start..]));
        }
        if self.first_timestamp.is_none() {
            self.first_timestamp = prepared.batches().next().map(|batch| batch.header.max_timestamp());
        }
        Ok(())
    }
}

fn duplicate_of(place: BatchPlace, prepared: &Prepared<'_>, log_start_offset: Offset) -> Appended {
    Appended {
        base_offset: place.base_offset,
        last_offset: place.last_offset,
        log_append_time: prepared.log_append_time.map(|_| place.timestamp),
        log_start_offset,
        bytes: 0,
        duplicate: true,
    }
}

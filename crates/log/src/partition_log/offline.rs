//! Takes a partition offline because bytes that were durable have changed.
//!
//! It is neither read nor appended to until a restart, by which an administrator may have restored or repaired the
//! files. Earlier appends go on: they are synced, settled and covered by checkpoints as if nothing had happened.
//!
//! A restart does not forget the damage: an empty file `<base offset>.damaged` lies beside the segment. As long as it
//! does, the segment is checked from its beginning to its end whenever the log is opened; once the check finds nothing,
//! the partition is back and the file is removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::OpenMode;
use riverrun_types::Offset;

use super::open::OpenLog;
use super::{PartitionLog, State};
use crate::checkpoint::PartitionCheckpoint;
use crate::error::{LogError, ReadError};
use crate::file_names::{DAMAGED_SUFFIX, LOG_SUFFIX, parse_name};
use crate::index::IndexHeader;
use crate::index_content::IndexContent;
use crate::partition_files::{self, PartitionFiles};
use crate::segment::Home;
use crate::segment_check::{Facts, Flaw, Half, SegmentCheck};

impl PartitionLog {
    /// Fails with the damage that was found, if any was.
    pub(super) fn check_undamaged(&self) -> Result<(), LogError> {
        self.damage.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The damage of its files, as far as it was found. Does not wait.
    pub(crate) fn damage(&self) -> Option<LogError> {
        let found_open = || match &*self.state.try_read()? {
            State::Offline(error) => Some(error.clone()),
            _ => None,
        };
        self.damage.get().cloned().or_else(found_open)
    }

    /// Takes the partition offline if the error says that its files are damaged, in a place of records that are not
    /// deleted. The first such error stays the answer, and the next start knows its segment, unless the whole dir has
    /// failed. An unreadable place is only remembered.
    pub(crate) fn take_offline_if_damaged(&self, error: &LogError) {
        if let Some(log) = self.current_log() {
            self.note_unreadable(&log, error);
        }
        if !error.is_lasting() || self.is_of_deleted(error) {
            return;
        }
        self.dir.note_trouble();
        if self.damage.set(error.clone()).is_err() {
            return;
        }
        if self.dir.has_failed() {
            // The journal has the records that the files lack, and nothing is written here any more.
            tracing::error!(
                partition = %self.id(), %error,
                "its log dir has failed, and not all of the partition can be read back: it goes offline; the next start \
                 brings back the journal's records"
            );
        } else if matches!(error, LogError::Vanished { .. }) {
            tracing::error!(
                partition = %self.id(), %error,
                "the partition goes offline: the next start looks for its files, and brings back the journal's records"
            );
        } else {
            tracing::error!(
                partition = %self.id(), %error,
                "damage was found: the partition goes offline; stop the server in order, look with `riverrun log \
                 verify`, and restore the file from a copy or cut it with `riverrun log repair`"
            );
            self.mark_damaged(error);
        }
    }

    /// Whether all that the damage may have hit lies below the log start, up to the next boundary of the index as
    /// [`SegmentCheck`] has it. Does not wait for an opening or a closing of the log.
    fn is_of_deleted(&self, error: &LogError) -> bool {
        let LogError::Corrupt { path, position, .. } = error else { return false };
        let log = match self.state.try_read().as_deref() {
            Some(State::Open(log)) => Arc::clone(log),
            _ => return false,
        };
        let view = log.view();
        let Some(index) = view.segments.iter().position(|segment| segment.log_path() == *path) else {
            return false;
        };
        let segment = &view.segments[index];
        let until = match segment.first_entry_from(position + 1) {
            Ok(Some(entry)) => segment.base_offset.plus(i64::from(entry.relative_offset)),
            Ok(None) => view.extent(index).next_offset,
            Err(_) => return false,
        };
        until <= log.log_start()
    }

    /// Judges an error of reading `log`, and takes the partition offline if it is damage.
    pub(super) fn judge_read(&self, log: &OpenLog, error: ReadError) -> ReadError {
        let error = match error {
            ReadError::Storage(error) => ReadError::Storage(self.unless_cut(log, error)),
            error => error,
        };
        self.act_on_read_error(&error);
        error
    }

    /// The error, unless `log` was cut meanwhile: then the place that was read is gone, and the next call finds the log
    /// that has replaced it.
    pub(crate) fn unless_cut(&self, log: &OpenLog, error: LogError) -> LogError {
        if log.was_cut() { LogError::BeingCut(self.id) } else { error }
    }

    /// As [`Self::take_offline_if_damaged`], for a read. An error of the device may be the first sign that it is dead.
    pub(super) fn act_on_read_error(&self, error: &ReadError) {
        match error {
            ReadError::Storage(error @ LogError::Io { .. }) if !error.is_lasting() => {
                _ = self.dir.judge(error.clone());
            }
            ReadError::Storage(error) => self.take_offline_if_damaged(error),
            ReadError::OutOfRange { .. } | ReadError::FarFromIndex => {}
        }
    }

    /// Marks the segment that the error is about. Durable when it returns, unless that fails: then the next start has
    /// to find the damage itself.
    fn mark_damaged(&self, error: &LogError) {
        let LogError::Corrupt { path, .. } = error else { return };
        let base = path.file_name().and_then(|name| parse_name(name.to_str()?, LOG_SUFFIX));
        let Some(base) = base.filter(|_| path.parent() == Some(&*self.path())) else { return };
        let (home, fs) = (self.home(), &self.dir.env().fs);
        let marker = marker_path(&home, base);
        let made = fs.open(&marker, OpenMode::CreateOrOpen).and_then(|_| fs.sync_dir(&home.dir));
        if let Err(error) = made {
            tracing::warn!(path = %marker.display(), %error, "the damage is not written down");
        }
    }

    /// Checks the segments with a damage marker again. Fails if one is still damaged; above the recovery point the
    /// recovery judges.
    pub(super) fn look_again(
        &self,
        home: &Home,
        files: &PartitionFiles,
        checkpoint: &PartitionCheckpoint,
    ) -> Result<(), LogError> {
        for base in &files.damaged {
            // The segment was removed by retention or by an administrator.
            if let Ok(index) = files.segments.binary_search_by_key(base, |(base, _)| *base) {
                let (_, size_bytes) = files.segments[index];
                let next_base = files.segments.get(index + 1).map(|(base, _)| *base);
                let facts =
                    Facts { base: *base, size_bytes, next_base, gapless_from: None, walks_records: false };
                let flaws = self.flaws_of(home, facts)?;
                let found = flaws.iter().find(|flaw| is_damage(flaw, checkpoint));
                if let Some(flaw) = found {
                    return Err(LogError::corrupt(&home.log_path(*base), flaw.position, with_way_out(flaw)));
                }
                tracing::info!(partition = %self.id(), segment = %base, "the damaged segment is intact again");
            }
            partition_files::remove(home, &marker_path(home, *base))?;
        }
        Ok(())
    }

    fn flaws_of(&self, home: &Home, facts: Facts) -> Result<Vec<Flaw>, LogError> {
        let path = home.log_path(facts.base);
        let io = |error| LogError::io(&path, error);
        let header = IndexHeader { partition: self.id(), base_offset: facts.base };
        let index = IndexContent::read(self.dir.env(), &home.index_path(facts.base), header)?;
        let file = home.fs.open(&path, OpenMode::Read).map_err(io)?;
        // The check is of the bytes on the disk.
        file.advise_dont_need(0, facts.size_bytes).map_err(io)?;
        let mut check = SegmentCheck::new(facts, index);
        check.run(&*file, u64::MAX).map_err(io)?;
        Ok(check.flaws)
    }
}

fn marker_path(home: &Home, base: Offset) -> PathBuf {
    home.dir.join(Path::new(&format!("{:020}{DAMAGED_SUFFIX}", base.0)))
}

fn is_damage(flaw: &Flaw, checkpoint: &PartitionCheckpoint) -> bool {
    let is_deleted = flaw.until.is_some_and(|until| until <= checkpoint.log_start);
    flaw.half == Half::Log && !is_deleted && flaw.from < checkpoint.durable_end()
}

fn with_way_out(flaw: &Flaw) -> String {
    format!(
        "{}; it was found before this start: restore the file from a copy, or cut it with `riverrun log repair`",
        flaw.what
    )
}

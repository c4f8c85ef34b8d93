//! A partition's part in a checkpoint: capture what will be true once the log dir is synced, and note that it is.

use riverrun_types::Offset;

use super::open::{Appender, OpenLog};
use super::{PartitionLog, State};
use crate::checkpoint::{PartitionCheckpoint, encode_snapshot, snapshot_file};
use crate::error::LogError;
use crate::partition_files;
use riverrun_env::OpenMode;

impl PartitionLog {
    /// What the checkpoint should say, if anything has changed since the last one. Index and producer snapshot are
    /// written, so that a sync of the log dir makes true what is returned. Nothing is durable before that sync.
    pub(crate) fn capture(&self) -> Result<Option<PartitionCheckpoint>, LogError> {
        let state = self.state.read();
        let State::Open(log) = &*state else { return Ok(None) };
        let mut appender = log.appender.lock();
        if !appender.is_dirty || appender.is_retired {
            return Ok(None);
        }
        appender.complete_index()?;
        let producers_at = log.write_snapshot(&mut appender)?;
        let view = log.view();
        appender.is_dirty = false;
        Ok(Some(PartitionCheckpoint {
            recovery_point: appender.next_offset,
            log_start: view.log_start,
            log_end: appender.next_offset,
            first_dirty: *log.first_dirty.lock(),
            producers_at,
            size_bytes: view.size_bytes(),
            epochs: log.epochs().clone(),
        }))
    }

    /// The checkpoint with `captured` in it is durable.
    pub(crate) fn confirm_capture(&self, captured: &PartitionCheckpoint) {
        let state = self.state.read();
        let State::Open(log) = &*state else { return };
        let mut appender = log.appender.lock();
        appender.recovery_point = appender.recovery_point.max(captured.recovery_point);
        log.remove_old_snapshots(&mut appender, captured.producers_at);
    }
}

impl Appender {
    /// Writes the index up to the log end, so that the next start finds it complete.
    fn complete_index(&mut self) -> Result<(), LogError> {
        let Some(active) = &mut self.active else { return Ok(()) };
        if let Some(entry) = active.cursor.end_entry(self.next_offset) {
            active.segment.push_entry(entry);
        }
        active.segment.store_tail()
    }
}

impl OpenLog {
    /// Writes the producers as of the log end; none if there are no producers.
    fn write_snapshot(&self, appender: &mut Appender) -> Result<Option<Offset>, LogError> {
        let offset = appender.next_offset;
        let bytes = {
            let producers = self.producers();
            if producers.is_empty() {
                return Ok(None);
            }
            encode_snapshot(self.home.partition, offset, &producers)
        };
        let path = self.home.dir.join(snapshot_file(offset));
        let write = || {
            let file = self.home.fs.open(&path, OpenMode::CreateOrOpen)?;
            file.set_len(0)?;
            file.write_all_at(&bytes, 0)
        };
        write().map_err(|error| LogError::write(&path, error))?;
        if appender.snapshots.last() != Some(&offset) {
            appender.snapshots.push(offset);
        }
        Ok(Some(offset))
    }

    /// Removes the snapshots that no checkpoint names any more. One that stays by accident costs only its space.
    fn remove_old_snapshots(&self, appender: &mut Appender, current: Option<Offset>) {
        let (current, old) =
            appender.snapshots.iter().partition(|offset| Some(**offset) >= current && current.is_some());
        appender.snapshots = current;
        let old: Vec<Offset> = old;
        for offset in old {
            if let Err(error) =
                partition_files::remove(&self.home, &self.home.dir.join(snapshot_file(offset)))
            {
                tracing::warn!(partition = %self.home.partition, %error, "an old producer snapshot stays");
            }
        }
    }
}

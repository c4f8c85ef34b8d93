//! The state files of an open log: one beside each sealed segment, and the one that its checkpoint names.
//!
//! A file is written, unsynced, at the present end of the segments. A checkpoint makes it durable together with the
//! records below it, so a start believes the files at or below the recovery point, and removes the others.
//!
//! A state that is larger than the records that were appended since the one before is left out, unless the checkpoint
//! needs it: the disk would write more for the states than for the records. The first start that misses it reads the
//! headers since the one before.

use riverrun_env::OpenMode;
use riverrun_types::Offset;

use super::open::{OpenLog, View};
use super::writer::SegmentWriter;
use crate::epochs::EpochCache;
use crate::error::LogError;
use crate::partition_files;
use crate::segment::Home;
use crate::state_file::encode_state;

/// A state that takes no more than this is never left out for its size: a file takes so much at least.
const SMALL_BYTES: usize = 4096;
/// State files that one checkpoint of the log removes: appends wait meanwhile.
const REMOVED_MAX: usize = 100;

/// The log's state files.
#[derive(Debug, Default)]
pub(crate) struct StateFiles {
    /// Offset of the newest.
    newest: Option<Offset>,
    /// Offset of the one that the next checkpoint names.
    named: Option<Offset>,
    /// Offset of the one that the last durable checkpoint names: the next start reads it.
    durable: Option<Offset>,
    /// Offsets of files at which perhaps no segment ends: the next checkpoint looks, and removes them.
    loose: Vec<Offset>,
    /// Bytes that were appended to the segments after the newest was written.
    bytes_since: u64,
}

impl StateFiles {
    /// The files that recovery has `found`, in order, for a log with the segments of `view`. The durable
    /// checkpoint names `durable`, and the next one `named`.
    pub(super) fn found(
        found: &[Offset],
        durable: Option<Offset>,
        named: Option<Offset>,
        view: &View,
    ) -> Self {
        let newest = found.last().copied();
        let is_loose = |offset: &&Offset| view.segment_at(**offset).is_none();
        let since = (0..view.segments.len()).rev();
        let since =
            since.take_while(|index| newest.is_none_or(|newest| view.segments[*index].base_offset >= newest));
        Self {
            newest,
            named,
            durable,
            loose: found.iter().filter(is_loose).copied().collect(),
            bytes_since: since.map(|index| view.extent(index).size_bytes).sum(),
        }
    }

    /// Offset of the newest.
    pub(super) fn newest(&self) -> Option<Offset> {
        self.newest
    }

    /// Offset of the one that the next checkpoint names.
    pub(super) fn named(&self) -> Option<Offset> {
        self.named
    }

    /// The next checkpoint names the file of this offset.
    pub(super) fn name(&mut self, state: Option<Offset>) {
        self.named = state;
    }

    /// So many bytes were appended.
    pub(super) fn count(&mut self, bytes: usize) {
        self.bytes_since += bytes as u64;
    }

    /// No segment ends at these offsets any more.
    pub(super) fn loosen(&mut self, offsets: impl IntoIterator<Item = Offset>) {
        self.loose.extend(offsets);
    }

    /// Whether the log can do without the file of this offset.
    fn is_needless(&self, offset: Offset) -> bool {
        ![self.durable, self.named, self.newest].contains(&Some(offset))
    }

    fn is_due(&self, bytes: usize) -> bool {
        is_due(bytes, self.bytes_since)
    }

    fn note_written(&mut self, offset: Offset) {
        self.newest = Some(offset);
        self.bytes_since = 0;
        self.loose.push(offset);
    }

    /// Returns the files that can be removed, once a checkpoint that names `named` is durable, and forgets them.
    fn take_needless(&mut self, named: Option<Offset>, view: &View) -> Vec<Offset> {
        self.durable = named;
        let mut needless = Vec::new();
        for offset in std::mem::take(&mut self.loose) {
            if !self.is_needless(offset) || needless.len() == REMOVED_MAX {
                self.loose.push(offset);
            } else if view.segment_at(offset).is_none() {
                needless.push(offset);
            }
        }
        needless
    }
}

/// Whether a state of so many bytes is worth writing, so many bytes after the one before.
pub(super) fn is_due(bytes: usize, bytes_since: u64) -> bool {
    bytes <= SMALL_BYTES || bytes as u64 <= bytes_since
}

/// Writes the state file of an offset, unsynced. After an error there is none.
pub(super) fn write_file(home: &Home, offset: Offset, bytes: &[u8]) -> Result<(), LogError> {
    let path = home.state_path(offset);
    let write = || {
        let file = home.open(&path, OpenMode::CreateOrOpen)?;
        if file.len()? > 0 {
            file.set_len(0)?;
        }
        file.write_all_at(bytes, 0)
    };
    write().map_err(|error| LogError::write(&path, error)).inspect_err(|_| {
        // If this fails, the next opening finds that it does not decode.
        let _ = partition_files::remove(home, &path);
    })
}

impl OpenLog {
    /// The epochs that began below `offset`.
    pub(super) fn epochs_below(&self, offset: Offset) -> EpochCache {
        let mut epochs = self.epochs().clone();
        epochs.truncate_end(offset);
        epochs
    }

    /// Writes the state beside the segment that ends here. If there is no room for it, the log goes on without.
    pub(super) fn write_sealed_state(&self, writer: &mut SegmentWriter) -> Result<(), LogError> {
        let states = &writer.states;
        let is_there = states.newest == Some(writer.end);
        if is_there || writer.active.is_none() || !states.is_due(writer.producers.encoded_bytes_min()) {
            return Ok(());
        }
        let bytes = self.encode_state_of(writer);
        if !writer.states.is_due(bytes.len()) {
            return Ok(());
        }
        match self.write_state_bytes(writer, &bytes) {
            Err(error) if error.is_full() => Ok(()),
            written => written,
        }
    }

    /// Writes the state as of the segments' end.
    pub(super) fn write_state(&self, writer: &mut SegmentWriter) -> Result<(), LogError> {
        let bytes = self.encode_state_of(writer);
        self.write_state_bytes(writer, &bytes)
    }

    fn encode_state_of(&self, writer: &SegmentWriter) -> Vec<u8> {
        let epochs = self.epochs_below(writer.end);
        encode_state(self.home.partition, writer.end, &epochs, &writer.producers)
    }

    fn write_state_bytes(&self, writer: &mut SegmentWriter, bytes: &[u8]) -> Result<(), LogError> {
        write_file(&self.home, writer.end, bytes)?;
        writer.states.note_written(writer.end);
        Ok(())
    }

    /// Removes needless state files, now that a checkpoint that names `named` is durable. A file that stays by accident
    /// costs only its space.
    pub(super) fn remove_needless_states(&self, writer: &mut SegmentWriter, named: Option<Offset>) {
        for offset in writer.states.take_needless(named, &self.view()) {
            self.remove_state(offset);
        }
    }

    /// The segment that began at `base` is gone for good, and with it the state of all records below.
    pub(super) fn drop_state(&self, base: Offset) {
        let mut writer = self.writer.lock();
        if !writer.states.is_needless(base) {
            writer.states.loosen([base]);
            return;
        }
        drop(writer);
        self.remove_state(base);
    }

    fn remove_state(&self, offset: Offset) {
        if let Err(error) = partition_files::remove(&self.home, &self.home.state_path(offset)) {
            tracing::warn!(partition = %self.home.partition, %error, "an old state file stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use riverrun_types::TimestampMs;

    use super::*;

    #[test]
    fn state_is_needed_until_a_checkpoint_names_another() {
        let mut states = StateFiles::default();
        let view = View {
            segments: Arc::default(),
            log_start: Offset::ZERO,
            settled_end: Offset::ZERO,
            end: Offset::ZERO,
            last_bytes: 0,
            last_max_timestamp: TimestampMs(0),
            sealed_bytes: 0,
            latest_epoch: None,
            generation: 0,
        };
        states.note_written(Offset(10));
        states.name(Some(Offset(10)));
        assert!(states.take_needless(Some(Offset(10)), &view).is_empty());
        // The next checkpoint is captured, and not durable yet.
        states.note_written(Offset(20));
        states.name(Some(Offset(20)));
        assert!(!states.is_needless(Offset(10)), "a start would read it");
        assert_eq!(states.take_needless(Some(Offset(20)), &view), [Offset(10)]);
        assert!(states.is_needless(Offset(10)));
    }
}

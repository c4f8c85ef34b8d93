//! Making what is published durable. Whoever syncs does it for all: everything that is published by then.
//!
//! Guarantees that the synced position moves only when files and names below it are on disk, and that after a
//! failed sync nothing is appended or called synced any more: the failed pages look clean to the next sync
//! and are not on disk.

use std::fs::File;
use std::path::Path;

use crate::control::Mark;
use crate::error::{At as _, QueueError};
use crate::lock::Owner;
use crate::queue::Core;

/// Returns when everything below `position` is synced, by this thread or by another that was at it.
pub(crate) fn sync_to(core: &Core, owner: &Owner, position: u64) -> Result<(), QueueError> {
    if core.control.synced() >= position {
        return Ok(());
    }
    // Waiting for the lock is waiting for the sync that is under way; the next holder's serves all who
    // waited.
    owner.lock(&core.control, core.control.sync_lock(), None)?;
    let synced = if core.control.synced() >= position { Ok(false) } else { sync_published(core) };
    owner.unlock(core.control.sync_lock());
    core.control.wake_tailers(true, synced?);
    Ok(())
}

/// Syncs everything that is published. Returns whether tailers are owed to be woken. For the holder of the
/// sync lock.
fn sync_published(core: &Core) -> Result<bool, QueueError> {
    let control = &core.control;
    if control.is_poisoned() {
        return Err(QueueError::Poisoned { path: core.segments.dir().to_owned() });
    }
    let old = control.mark().ok_or_else(|| control.damaged(crate::layout::MARKS_AT, "synced mark"))?;
    let head = core.head()?;
    sync_segments(core, old.head.segment_base, head.segment_base)?;
    let owed = control.take_sleepers(true);
    control.store_mark(&Mark { head, epoch: control.epoch(), sequence: old.sequence + 1 });
    Ok(owed)
}

/// Syncs one file or directory. A failure poisons the queue. What failed before, such as to find or to open
/// it, has lost nothing, and may be tried again.
fn sync_file(core: &Core, file: &File, path: &Path) -> Result<(), QueueError> {
    let synced = file.sync_data().at("sync", path);
    if synced.is_err() {
        core.control.poison();
    }
    synced
}

fn sync_segments(
    core: &Core,
    first: riverrun_types::Offset,
    last: riverrun_types::Offset,
) -> Result<(), QueueError> {
    let (bases, first_number) = core.published_segments()?;
    for (index, base) in bases.iter().enumerate() {
        // What retention removes meanwhile needs no sync.
        if *base >= first
            && *base <= last
            && let Some(segment) = core.segments.get(*base, first_number + index as u64)?
        {
            sync_file(core, &segment.file, &segment.path)?;
        }
    }
    if first == last {
        return Ok(());
    }
    let dir = core.segments.dir();
    sync_file(core, &File::open(dir).at("open", dir)?, dir)
}

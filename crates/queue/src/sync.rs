//! Making published records durable. One sync covers everything that any appender has published by then.
//!
//! Guarantees that the synced position moves only when files and names below it are on disk, and that after a failed
//! sync nothing is appended or called synced any more: the failed pages look clean to the next sync and are not on
//! disk.
//!
//! One thread syncs at a time, because one sync serves all waiting threads. But the holder of the sync lock may be
//! stopped, so a thread that has waited for [`PATIENCE`] syncs by itself. Two syncs at a time do the same work twice,
//! and no harm.

use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use riverrun_types::Offset;

use crate::control::{Head, Mark};
use crate::error::{At as _, QueueError};
use crate::lock::Owner;
use crate::mapping::Access;
use crate::opening::open_dir;
use crate::queue::Core;
use crate::sys;

/// How long a thread waits for the sync of another.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long a thread waits for another to store a mark, which takes less than a microsecond.
const MARK_PATIENCE: Duration = Duration::from_millis(10);

/// The owner for whose sync this process has waited in vain; 0 for none. It is not waited for again while it has the
/// lock.
#[derive(Debug, Default)]
pub(crate) struct Stuck(AtomicU32);

/// Returns when everything below `position` is synced, by this thread or by another.
pub(crate) fn sync_to(core: &Core, owner: &Owner, position: u64) -> Result<(), QueueError> {
    sync(core, owner, position, Core::head)
}

/// Returns when all segments before the active one are synced: they do not change any more.
pub(crate) fn sync_sealed(core: &Core, owner: &Owner) -> Result<(), QueueError> {
    let boundary = |core: &Core| {
        let head = core.head()?;
        let segment_bytes = core.segments.segment_bytes();
        let position = head.position / segment_bytes * segment_bytes;
        Ok(Head { position, next_offset: head.segment_base, segment_base: head.segment_base })
    };
    sync(core, owner, boundary(core)?.position, boundary)
}

/// Takes the sync lock and syncs up to `goal`, unless `position` was synced by then.
fn sync(
    core: &Core,
    owner: &Owner,
    position: u64,
    goal: impl Fn(&Core) -> Result<Head, QueueError>,
) -> Result<(), QueueError> {
    if core.control.synced() >= position {
        return core.control.check_whole();
    }
    // Waiting for the lock is waiting for the current sync; the next holder's sync serves all waiting threads.
    let locked = take_sync_lock(core, owner)?;
    let synced = if core.control.synced() >= position {
        Ok(false)
    } else {
        goal(core).and_then(|head| sync_up_to(core, owner, &head))
    };
    if locked {
        owner.unlock(core.control.sync_lock());
    }
    core.control.wake_tailers(true, synced?);
    // Positions read from a missing page are zeros, which every synced position has passed.
    core.control.check_whole()
}

/// Takes the sync lock; false if its holder has not released it in time.
fn take_sync_lock(core: &Core, owner: &Owner) -> Result<bool, QueueError> {
    let (word, asleep) = core.control.sync_lock();
    let holder = word.load(Relaxed);
    let patience =
        if holder != 0 && holder == core.stuck.0.load(Relaxed) { Duration::ZERO } else { PATIENCE };
    match owner.lock(&core.control, (word, asleep), Some(patience)) {
        Ok(_) => {
            core.stuck.0.store(0, Relaxed);
            Ok(true)
        }
        Err(QueueError::Busy) => {
            core.stuck.0.store(word.load(Relaxed), Relaxed);
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Syncs everything below `head`. Returns whether sleeping tailers have to be woken.
fn sync_up_to(core: &Core, owner: &Owner, head: &Head) -> Result<bool, QueueError> {
    let control = &core.control;
    if control.is_poisoned() {
        return Err(QueueError::Poisoned { path: core.segments.dir().to_owned() });
    }
    let from = control.mark().ok_or_else(|| control.damaged(crate::layout::MARKS_AT, "synced mark"))?.head;
    // Another thread may have synced further meanwhile.
    if from.position < head.position {
        if from.segment_base != head.segment_base {
            sync_passed(core, &from, head)?;
        }
        sync_active(core, &from, head)?;
    }
    let owed = control.take_sleepers(true);
    move_mark(core, owner, head)?;
    control.raise_synced(head.position);
    Ok(owed)
}

/// Stores the synced mark for a recovery: everything below `head` is on disk. Skipped if the holder of the mark lock
/// does not release it in time: a recovery then reads more.
fn move_mark(core: &Core, owner: &Owner, head: &Head) -> Result<(), QueueError> {
    let control = &core.control;
    match owner.lock(control, control.mark_lock(), Some(MARK_PATIENCE)) {
        Err(QueueError::Busy) => return Ok(()),
        locked => locked?,
    };
    if let Some(old) = control.mark()
        && old.head.position < head.position
    {
        control.store_mark(&Mark { head: *head, epoch: control.epoch(), sequence: old.sequence + 1 });
    }
    owner.unlock(control.mark_lock());
    Ok(())
}

/// Poisons the queue if a sync has failed. An earlier failure, to find or open a file, has lost nothing and may be
/// retried.
fn synced(core: &Core, path: &Path, outcome: std::io::Result<()>) -> Result<(), QueueError> {
    if outcome.is_err() {
        core.control.poison();
    }
    outcome.at("sync", path)
}

/// Syncs the unsynced part of the head's segment, and the size of its file. Pages beyond the head are left alone, so
/// that stores into them stay quick.
fn sync_active(core: &Core, from: &Head, head: &Head) -> Result<(), QueueError> {
    let number = head.position / core.segments.segment_bytes();
    let segment = core.segments.expect(head.segment_base, number)?;
    let begin = from.position.max(segment.start());
    let within = (begin - segment.start()) as usize;
    let bytes = (head.position - begin).max(1) as usize;
    synced(core, &segment.path, segment.map.sync(within, bytes))
}

/// Base offsets of the segments from that of `from` on that lie before that of `head`.
fn passed(core: &Core, from: &Head, head: &Head) -> Result<Vec<Offset>, QueueError> {
    let number = |head: &Head| head.position / core.segments.segment_bytes();
    if number(from) + 1 == number(head) {
        // The usual case, without listing the names of a long queue for each segment.
        return Ok(vec![from.segment_base]);
    }
    let mut bases = core.segments.list()?;
    bases.retain(|base| (from.segment_base..head.segment_base).contains(base));
    Ok(bases)
}

/// Syncs the segments from that of `from` on that lie before that of `head`, and then the names of all.
fn sync_passed(core: &Core, from: &Head, head: &Head) -> Result<(), QueueError> {
    for base in passed(core, from, head)? {
        // A segment that retention has removed needs no sync.
        if let Some(file) = core.segments.open(base, Access::Read)? {
            if !sys::is_in_memory(&file) {
                let begin =
                    if base == from.segment_base { from.position % core.segments.segment_bytes() } else { 0 };
                core.segments.forget_pages(base, begin);
            }
            synced(core, &core.segments.path(base), file.sync_data())?;
        }
    }
    let dir = core.segments.dir();
    let opened = open_dir(dir).at("open", dir)?;
    synced(core, dir, opened.sync_all())
}

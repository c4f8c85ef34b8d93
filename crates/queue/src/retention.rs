//! Removing old segments, whole, the oldest first.
//!
//! Guarantees that the segment which is appended to stays, and that a segment a tailer has open stays too
//! unless that is to be ignored. A tailer that is overtaken reads on to the end of its segment and is told
//! then. An appender that has nothing to append keeps no file's name: only, until its next append, the blocks of
//! the segment that it last appended to.

use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use riverrun_records::{BatchHeader, layout};
use riverrun_types::Offset;

use crate::error::{At as _, QueueError};
use crate::mapping::Access;
use crate::options::Retention;
use crate::queue::Core;
use crate::sys;

/// Removes what `retention` lets go, by `remove`, which says whether it could. Returns how many segments that were.
pub(crate) fn apply(
    core: &Core,
    retention: &Retention,
    mut remove: impl FnMut(Offset) -> Result<bool, QueueError>,
) -> Result<usize, QueueError> {
    if retention.age.is_none() && retention.bytes.is_none() {
        return Ok(0);
    }
    let (bases, _) = core.published_segments()?;
    let mut removed = 0;
    while let [first, later @ ..] = &bases[removed..]
        && !later.is_empty()
    {
        let left = (bases.len() - removed) as u64 * core.segments.segment_bytes();
        let over = retention.bytes.is_some_and(|bytes| left > bytes);
        if !over && !is_old(core, retention, *first, later)? {
            break;
        }
        if !remove(*first)? {
            break;
        }
        removed += 1;
    }
    Ok(removed)
}

/// Whether the first batch after a segment is older than the age at which that one goes. It is the one of the first
/// of the `later` segments that has one: a file that was cut or damaged says nothing, and one that was rolled to and
/// has no batch yet is as young as can be.
///
/// And whether the segment's own first batch is: so a single one with a time of long ago takes nothing young with it.
fn is_old(core: &Core, retention: &Retention, first: Offset, later: &[Offset]) -> Result<bool, QueueError> {
    let Some(age) = retention.age else { return Ok(false) };
    let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    let is_older =
        |header: BatchHeader| header.max_timestamp().0 < sys::wall_coarse_ms().saturating_sub(age_ms);
    for base in later {
        if let Some(after) = first_header(&core.segments.path(*base))? {
            let is_passed = is_older(after);
            return Ok(is_passed && first_header(&core.segments.path(first))?.is_none_or(is_older));
        }
    }
    Ok(false)
}

/// The first batch's header in a segment's file; none if nothing whole is there.
fn first_header(path: &Path) -> Result<Option<BatchHeader>, QueueError> {
    let file = match Access::Read.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.at("open", path)?,
    };
    let mut header = [0; layout::HEADER_BYTES];
    let read = file.read_exact_at(&mut header, 0);
    Ok(read.ok().and_then(|()| BatchHeader::parse(&header).ok()))
}

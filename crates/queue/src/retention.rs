//! Removing old segments, whole, the oldest first.
//!
//! Guarantees that the active segment stays, and that a segment a tailer has open stays too, unless `ignore_readers`
//! is set. A tailer that retention overtakes reads to the end of its segment, and then gets an error. An idle
//! appender keeps no file's name: only, until its next append, the blocks of the segment that it last appended to.

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

/// Removes the segments that `retention` does not keep, by `remove`, which returns whether it could. Returns the
/// number of removed segments.
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

/// True if both the segment's own first batch and the first batch after the segment are older than the retention age.
/// The former keeps one batch with an early timestamp from removing young records with it.
///
/// The first batch after the segment is that of the first of the `later` segments that has one: a truncated or
/// damaged file has no time, and a segment without a batch yet is as young as can be.
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

/// The first batch's header in a segment's file; `None` if there is no whole one.
fn first_header(path: &Path) -> Result<Option<BatchHeader>, QueueError> {
    let file = match Access::Read.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.at("open", path)?,
    };
    let mut header = [0; layout::HEADER_BYTES];
    let read = file.read_exact_at(&mut header, 0);
    Ok(read.ok().and_then(|()| BatchHeader::parse(&header).ok()))
}

//! Places that tailers keep in the queue's directory, by name.
//!
//! ```text
//!  two slots of 64 bytes, alternating      offset i64 | sequence u64 | queue id u128 | epoch u32
//!                                          | CRC-32C of the magic and these 36 bytes u32
//! ```
//!
//! Integers are little-endian. Queue id and epoch are those of the control file when the place was stored. They tell
//! a place in a queue that was made anew, or that has lost records since. One call writes a slot, and never the
//! newest one, so that a place is old or new however the process ends. It is as durable as the page cache: after a
//! power cut there may be an older place, or none.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use riverrun_types::{LeaderEpoch, Offset};

use crate::error::{At as _, QueueError};
use crate::opening::open_file;
use crate::sys::{self, LockFile, LockKind};

const MAGIC: &[u8; 8] = b"RRTAILR1";
const DIR_NAME: &str = "tailers";
const SLOT_BYTES: u64 = 64;
const COVERED_BYTES: usize = 36;
/// Longest name of a tailer.
const NAME_BYTES_MAX: usize = 100;

/// The content of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The next offset to read.
    pub(crate) offset: Offset,
    pub(crate) queue_id: u128,
    /// The queue's epoch at that time.
    pub(crate) epoch: LeaderEpoch,
}

/// The stored place of one named tailer, locked against other users.
///
/// Invariants: `file` holds the exclusive lock of its first byte; the newest slot has `sequence`.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    file: LockFile,
    sequence: u64,
    /// Records from the place on that retention had removed when it was opened.
    pub(crate) missed: i64,
}

impl Place {
    /// Opens the place called `name` and reads it; `None` as the content if it is new.
    pub(crate) fn open(queue_dir: &Path, name: &str) -> Result<(Self, Option<Kept>), QueueError> {
        check_name(name)?;
        let dir = queue_dir.join(DIR_NAME);
        std::fs::create_dir_all(&dir).at("create", &dir)?;
        let path = dir.join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = open_file(&mut options, &path).at("open", &path)?;
        if !sys::try_lock_byte(&file, 0, LockKind::Exclusive).at("lock", &path)? {
            return Err(QueueError::NameInUse { path });
        }
        let newest = (0..2).filter_map(|slot| read_slot(&file, slot)).max_by_key(|(_, sequence)| *sequence);
        let sequence = newest.map_or(0, |(_, sequence)| sequence);
        Ok((Self { path, file: file.into(), sequence, missed: 0 }, newest.map(|(kept, _)| kept)))
    }

    /// Removes the place called `name`, if it exists. Refuses one that is in use.
    pub(crate) fn remove(queue_dir: &Path, name: &str) -> Result<(), QueueError> {
        let (place, _) = Self::open(queue_dir, name)?;
        std::fs::remove_file(&place.path).at("remove", &place.path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Stores a place. It survives the process, but not a power cut.
    pub(crate) fn keep(&mut self, kept: &Kept) -> Result<(), QueueError> {
        let sequence = self.sequence + 1;
        let mut slot = [0; COVERED_BYTES + 4];
        slot[..8].copy_from_slice(&kept.offset.0.to_le_bytes());
        slot[8..16].copy_from_slice(&sequence.to_le_bytes());
        slot[16..32].copy_from_slice(&kept.queue_id.to_le_bytes());
        slot[32..COVERED_BYTES].copy_from_slice(&kept.epoch.0.to_le_bytes());
        let sum = checksum(&slot[..COVERED_BYTES]);
        slot[COVERED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        self.file.write_all_at(&slot, sequence % 2 * SLOT_BYTES).at("write", &self.path)?;
        self.sequence = sequence;
        Ok(())
    }
}

fn checksum(covered: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(MAGIC), covered)
}

/// Place and sequence of a slot; `None` if it was never written completely.
fn read_slot(file: &File, slot: u64) -> Option<(Kept, u64)> {
    let mut bytes = [0; COVERED_BYTES + 4];
    file.read_exact_at(&mut bytes, slot * SLOT_BYTES).ok()?;
    let (covered, stored) = bytes.split_at(COVERED_BYTES);
    if checksum(covered).to_le_bytes() != *stored {
        return None;
    }
    let kept = Kept {
        offset: Offset(i64::from_le_bytes(*covered.first_chunk()?)),
        queue_id: u128::from_le_bytes(*covered[16..].first_chunk()?),
        epoch: LeaderEpoch(i32::from_le_bytes(*covered.last_chunk()?)),
    };
    Some((kept, u64::from_le_bytes(*covered[8..].first_chunk()?)))
}

/// A tailer's name becomes a file name, and must not lead to another directory.
fn check_name(name: &str) -> Result<(), QueueError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.') {
        return Ok(());
    }
    Err(QueueError::Options(format!(
        "a tailer's name has 1 to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.', and does not begin with '.'"
    )))
}

//! The control file's layout, drawn once. All integers are little-endian.
//!
//! ```text
//!  byte 0      identity, never changed     magic "RRQUEUE1" | version u32 | zero u32 | segment bytes u64
//!                                          | created, ms since 1970 i64 | CRC-32C of these 32 bytes u32
//!  byte 64     life                        boot id u128 | mount u64 | device u64 | inode u64 | epoch u32
//!  byte 128    writer                      lock u32 | zero u32 | dirty end u64 | two heads of 24 bytes
//!  byte 256    published position u64
//!  byte 384    flags                       tailers asleep u32 | appenders asleep u32 | poisoned u32
//!  byte 512    synced position u64         | sync lock u32 | syncers asleep u32 | tailers of the synced asleep u32
//!  byte 1024   synced mark, even sequence  position u64 | next offset i64 | segment base i64 | epoch u32 | zero u32
//!                                          | sequence u64 | CRC-32C of the magic and these 40 bytes u32
//!  byte 1536   synced mark, odd sequence
//!  byte 4096   end
//!
//!  head        position u64 | next offset i64 | base offset of the segment that the position lies in i64
//!  position    segment's number, counted from the queue's first, times segment bytes, plus place in the segment
//! ```
//!
//! What different parties write lies in different cache lines, and what is often written lies two lines apart
//! from what is often read. A synced mark lies in a sector of its own, so that a cut of power leaves it old
//! or new.
//!
//! Whoever holds the writer lock appends, and moves the *dirty end* before it stores anything beyond the
//! published position: so the next holder knows what a dead one may have left. The head whose position is the
//! published one is the queue's head; the other is what the next append fills. So one store publishes
//! position and offset together.
//!
//! Locks of byte ranges, which the kernel keeps beside the file, say who lives: one byte for every open queue
//! ([`LIVE_BYTE`]) and one for every appender ([`owner_byte`]).

/// First eight bytes of the file.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"RRQUEUE1");
/// The format that this software writes.
pub(crate) const VERSION: u32 = 1;

pub(crate) const MAGIC_AT: usize = 0;
pub(crate) const VERSION_AT: usize = MAGIC_AT + 8;
pub(crate) const SEGMENT_BYTES_AT: usize = VERSION_AT + 8;
pub(crate) const CREATED_AT: usize = SEGMENT_BYTES_AT + 8;
pub(crate) const IDENTITY_CRC_AT: usize = CREATED_AT + 8;

pub(crate) const BOOT_AT: usize = 64;
pub(crate) const MOUNT_AT: usize = BOOT_AT + 16;
pub(crate) const DEVICE_AT: usize = MOUNT_AT + 8;
pub(crate) const INODE_AT: usize = DEVICE_AT + 8;
pub(crate) const EPOCH_AT: usize = INODE_AT + 8;

pub(crate) const WRITER_LOCK_AT: usize = 128;
pub(crate) const DIRTY_END_AT: usize = WRITER_LOCK_AT + 8;
pub(crate) const HEADS_AT: usize = DIRTY_END_AT + 8;
pub(crate) const HEAD_BYTES: usize = 24;

pub(crate) const PUBLISHED_AT: usize = 256;

pub(crate) const TAILERS_ASLEEP_AT: usize = 384;
pub(crate) const APPENDERS_ASLEEP_AT: usize = TAILERS_ASLEEP_AT + 4;
pub(crate) const POISONED_AT: usize = APPENDERS_ASLEEP_AT + 4;

pub(crate) const SYNCED_AT: usize = 512;
pub(crate) const SYNC_LOCK_AT: usize = SYNCED_AT + 8;
pub(crate) const SYNCERS_ASLEEP_AT: usize = SYNC_LOCK_AT + 4;
pub(crate) const SYNCED_TAILERS_ASLEEP_AT: usize = SYNCERS_ASLEEP_AT + 4;

pub(crate) const MARKS_AT: usize = 1024;
pub(crate) const MARK_STRIDE: usize = 512;
/// Bytes of a mark that its checksum covers.
pub(crate) const MARK_COVERED_BYTES: usize = 40;

/// Size of the file.
pub(crate) const CONTROL_BYTES: usize = 4096;

const _: () = assert!(IDENTITY_CRC_AT + 4 <= BOOT_AT);
const _: () = assert!(EPOCH_AT + 4 <= WRITER_LOCK_AT);
const _: () = assert!(HEADS_AT + 2 * HEAD_BYTES <= WRITER_LOCK_AT + 64);
const _: () = assert!(MARKS_AT + 2 * MARK_STRIDE <= CONTROL_BYTES);

/// The lock byte that every open queue shares; who gets it alone knows that nobody else has the queue open.
pub(crate) const LIVE_BYTE: u64 = 1 << 32;
/// The lock byte of the one who prepares the next segment.
pub(crate) const PREPARE_BYTE: u64 = LIVE_BYTE + 1;
/// Appenders and syncers that can be attached at once.
pub(crate) const OWNERS_MAX: u32 = 1024;

/// The lock byte of owner `owner`, 1 and up.
pub(crate) fn owner_byte(owner: u32) -> u64 {
    LIVE_BYTE + 1024 + u64::from(owner)
}

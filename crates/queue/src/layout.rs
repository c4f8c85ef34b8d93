//! The control file's layout, drawn once. All integers are little-endian.
//!
//! ```text
//!  byte 0      identity, never changed     magic "RRQUEUE1" | version u32 | zero u32 | segment bytes u64
//!                                          | created, ms since 1970 i64 | queue id, random u128
//!                                          | CRC-32C of these 48 bytes u32
//!  byte 64     life                        boot id u128 | mount u64 | device u64 | inode u64 | epoch u32
//!  byte 4096   writer                      lock u32 | zero u32 | dirty end u64 | two heads of 24 bytes
//!  byte 4224   published position u64
//!  byte 4352   flags                       tailers asleep u32 | appenders asleep u32 | poisoned u32
//!  byte 8192   synced position u64         | sync lock u32 | syncers asleep u32 | tailers of the synced asleep u32
//!                                          | mark lock u32 | markers asleep u32
//!  byte 12288  synced mark, even sequence  position u64 | next offset i64 | segment base i64 | epoch u32 | zero u32
//!                                          | sequence u64 | CRC-32C of the magic and these 40 bytes u32
//!  byte 12800  synced mark, odd sequence
//!  byte 16384  end
//!
//!  head        position u64 | next offset i64 | base offset of the segment that the position lies in i64
//!  position    segment's number, counted from the queue's first, times segment bytes, plus place in the segment
//! ```
//!
//! Fields written by different parties lie in different cache lines; fields that are written often lie two lines
//! apart from those that are read often. The synced marks have a page of their own, because they are synced alone and
//! the kernel blocks stores into a page that it is writing. Each mark lies in a sector of its own, so that a power
//! cut leaves it old or new.
//!
//! The holder of the writer lock appends. It moves the *dirty end* before it stores anything beyond the published
//! position, so that the next holder knows what a dead one may have left. The head whose position equals the
//! published one is the queue's head; the next append fills the other. One store thus publishes position and offset
//! together.
//!
//! Byte-range locks, which the kernel keeps beside the file, tell which processes live: one byte for every open queue
//! ([`LIVE_BYTE`]) and one for every appender ([`owner_byte`]).
//!
//! Beside the control file lie the segments, and files that are not segments yet:
//!
//! - `segment.new` and `.prepared-<n>` have a segment's size and are full of zeros; `.preparing` grows to become one
//!   of them. Where files lie in memory, a process holds the lock of [`MAKE_BYTE`] for each step by which it grows
//!   `.preparing`.
//! - `segment.spare-<n>` were segments until retention removed them, and become the next ones when they are full of
//!   zeros. This is done only where files lie in memory, and never with a file that is open for reading: its reader
//!   holds the file's lock, or in a view that of [`VIEW_BYTE`].
//!
//! The first process that opens a queue removes all of these files.

/// Size of a page in the layout, whatever the machine's: it separates the fields.
pub(crate) const PAGE_BYTES: usize = 4096;
/// A cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// First eight bytes of the file.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"RRQUEUE1");
/// The format that this software writes.
pub(crate) const VERSION: u32 = 1;

pub(crate) const MAGIC_AT: usize = 0;
pub(crate) const VERSION_AT: usize = MAGIC_AT + 8;
pub(crate) const SEGMENT_BYTES_AT: usize = VERSION_AT + 8;
pub(crate) const CREATED_AT: usize = SEGMENT_BYTES_AT + 8;
pub(crate) const QUEUE_ID_AT: usize = CREATED_AT + 8;
pub(crate) const IDENTITY_CRC_AT: usize = QUEUE_ID_AT + 16;
/// Bytes of the identity with its checksum.
pub(crate) const IDENTITY_BYTES: usize = IDENTITY_CRC_AT + 4;

pub(crate) const BOOT_AT: usize = 64;
pub(crate) const MOUNT_AT: usize = BOOT_AT + 16;
pub(crate) const DEVICE_AT: usize = MOUNT_AT + 8;
pub(crate) const INODE_AT: usize = DEVICE_AT + 8;
pub(crate) const EPOCH_AT: usize = INODE_AT + 8;

pub(crate) const WRITER_LOCK_AT: usize = PAGE_BYTES;
pub(crate) const DIRTY_END_AT: usize = WRITER_LOCK_AT + 8;
pub(crate) const HEADS_AT: usize = DIRTY_END_AT + 8;
pub(crate) const HEAD_BYTES: usize = 24;

pub(crate) const PUBLISHED_AT: usize = WRITER_LOCK_AT + 2 * LINE_BYTES;

pub(crate) const TAILERS_ASLEEP_AT: usize = PUBLISHED_AT + 2 * LINE_BYTES;
pub(crate) const APPENDERS_ASLEEP_AT: usize = TAILERS_ASLEEP_AT + 4;
pub(crate) const POISONED_AT: usize = APPENDERS_ASLEEP_AT + 4;

pub(crate) const SYNCED_AT: usize = 2 * PAGE_BYTES;
pub(crate) const SYNC_LOCK_AT: usize = SYNCED_AT + 8;
pub(crate) const SYNCERS_ASLEEP_AT: usize = SYNC_LOCK_AT + 4;
pub(crate) const SYNCED_TAILERS_ASLEEP_AT: usize = SYNCERS_ASLEEP_AT + 4;
pub(crate) const MARK_LOCK_AT: usize = SYNCED_TAILERS_ASLEEP_AT + 4;
pub(crate) const MARKERS_ASLEEP_AT: usize = MARK_LOCK_AT + 4;

pub(crate) const MARKS_AT: usize = 3 * PAGE_BYTES;
pub(crate) const MARK_STRIDE: usize = 512;
/// Bytes of a mark that its checksum covers.
pub(crate) const MARK_COVERED_BYTES: usize = 40;

/// Size of the file.
pub(crate) const CONTROL_BYTES: usize = 4 * PAGE_BYTES;

const _: () = assert!(IDENTITY_BYTES <= BOOT_AT);
const _: () = assert!(EPOCH_AT + 4 <= WRITER_LOCK_AT);
const _: () = assert!(HEADS_AT + 2 * HEAD_BYTES <= WRITER_LOCK_AT + LINE_BYTES);
const _: () = assert!(POISONED_AT + 4 <= SYNCED_AT);
const _: () = assert!(MARKERS_ASLEEP_AT + 4 <= MARKS_AT);
const _: () = assert!(MARKS_AT + 2 * MARK_STRIDE <= CONTROL_BYTES);

/// The lock byte that every open queue shares; a process that locks it exclusively has the queue alone.
pub(crate) const LIVE_BYTE: u64 = 1 << 32;
/// The lock byte of the process that prepares the next segment.
pub(crate) const PREPARE_BYTE: u64 = LIVE_BYTE + 1;
/// The lock byte of a segment's file that views share. While it is locked, the file is not used again for another
/// segment.
pub(crate) const VIEW_BYTE: u64 = LIVE_BYTE + 2;
/// The lock byte of a file that is to be a segment, held while a step of it is allocated.
pub(crate) const MAKE_BYTE: u64 = LIVE_BYTE + 3;
/// Appenders and syncers that can be attached at once.
pub(crate) const OWNERS_MAX: u32 = 1024;

/// The lock byte of owner `owner`, 1 and up.
pub(crate) fn owner_byte(owner: u32) -> u64 {
    LIVE_BYTE + 1024 + u64::from(owner)
}

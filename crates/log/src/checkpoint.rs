//! The state that a log dir keeps between starts, in two kinds of files, each replaced atomically as a whole.
//!
//! The *checkpoint* of a log dir holds what each partition needs so that it can be opened lazily: without it every
//! log would have to be read at start. The state of a partition's idempotent producers lies in it, too, as of the
//! recovery point: recovery replays what comes after. A file for each partition would be made, synced and removed with
//! every checkpoint. Only where the state is too large a state file of the partition (`state_file.rs`) holds it, as of one
//! offset, and the checkpoint holds the producers that have appended since.
//!
//! ```text
//! checkpoint
//!   magic "RRlogdir"          8
//!   version                   u16
//!   flags (bit 0: clean)      u16
//!   generation                u64
//!   partition count           u32
//!   per partition, by id:
//!     topic id                16
//!     partition index         i32
//!     recovery point          i64     -1: lost
//!     log start, log end      2 x i64
//!     first dirty, -1: none   i64
//!     state at, -1: none      i64
//!     cut at, -1: none        i64
//!     producers as of         i64
//!     cuts                    u32
//!     bytes of all segments   u64
//!     leader epochs (epochs.rs)
//!     bytes of the next       u32
//!     producers since that state (producer_state/encoding.rs)
//!   CRC-32C of all before     u32
//! ```
//! All big-endian. If a partition's recovery point is lost, because the checkpoint before was damaged, only the log
//! start counts: its log has not been opened since. The version rises with each change of layout or meaning; a newer
//! one is refused by name, and so are versions 1 to 3: in the first two no log could be cut, and the third names files
//! of producers that are no more.
//!
//! *Cuts* counts the cuts of the log (`partition_log/cut.rs`): entries of the journal from before the last of these are
//! in the segments, or were cut off. *Cut at* is the log's end after that cut, if no checkpoint has covered the log
//! since; bytes beyond it in the segments count for nothing. The producers are those of the recovery point that the log
//! had before it was cut, *producers as of*.
//!
//! A start that has no space for another checkpoint withdraws the statement that the server has stopped cleanly: it
//! inverts the last byte of the version (251 for 4). The file is as good as before then, with the checksum that it had.
//! A program that does not know of this takes it for one of a newer version.
//!
//! Guarantees: a flipped, missing or added byte is found; decoding is bounded by the length of the input. The caller
//! writes and syncs.

use std::collections::BTreeMap;

use riverrun_types::{Offset, PartitionId, TopicId};

use crate::epochs::EpochCache;
pub use crate::fields::DecodeError;
use crate::fields::{FieldReader, put_count};
use crate::log_starts::Change;
use crate::producer_state::EncodedProducers;

/// Name of a log dir's checkpoint file.
pub const CHECKPOINT_FILE: &str = "checkpoint";
/// Newest layout of the checkpoint that this program reads, and the one that it writes.
pub const CHECKPOINT_VERSION: u16 = 4;

const CHECKPOINT_NAME: &str = "the checkpoint of a log dir";
const CHECKPOINT_MAGIC: [u8; 8] = *b"RRlogdir";
const FLAG_CLEAN: u16 = 1;
/// The place of the last byte of a checkpoint's version. Inverted, it withdraws a clean checkpoint's flag: one byte is
/// written or is not, and no flipped bit makes one of the other.
pub(crate) const VERSION_BYTE_AT: usize = CHECKPOINT_MAGIC.len() + 1;
const CHECKSUM_BYTES: usize = size_of::<u32>();
/// Fields of a partition that take eight bytes each.
const PARTITION_FIELDS: usize = 8;
/// Topic id, index, these fields, how often it was cut, and the count that opens the list of epochs.
const PARTITION_BYTES_MIN: usize =
    16 + size_of::<i32>() + PARTITION_FIELDS * size_of::<i64>() + size_of::<u32>() + size_of::<u32>();

/// The checkpoint's statements about one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionCheckpoint {
    /// Everything below is synced to the segments: damage below is corruption, at or above it a torn tail.
    pub recovery_point: Offset,
    /// The statements of an earlier checkpoint are lost, and the log has not been opened since: only the log start is
    /// known, and the log may reach anywhere.
    pub is_lost: bool,
    /// Number of cuts of the log.
    pub cuts: u32,
    /// The log's end after its last cut, if no checkpoint has covered it since. All that was left then is synced.
    pub cut_end: Option<Offset>,
    /// First offset that readers may see.
    pub log_start: Offset,
    /// Log end when the checkpoint was written; exact after a clean shutdown, a lower bound otherwise.
    pub log_end: Offset,
    /// First offset that compaction has not covered, for a log that was compacted.
    pub first_dirty: Option<Offset>,
    /// Offset of the state file that has the producers as of there, if one is needed.
    pub producers_at: Option<Offset>,
    /// The recovery point that `producers` and the state file go with: the log may have been cut below it since.
    pub producers_end: Offset,
    /// The producers, as of `producers_end`, that have appended at or above `producers_at`; all if no state file is
    /// named.
    pub producers: EncodedProducers,
    /// Bytes of all segments, for answers about sizes that must not open the partition.
    pub size_bytes: u64,
    /// The partition's leader epochs.
    pub epochs: EpochCache,
}

/// The checkpoint of one log dir.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirCheckpoint {
    /// The server stopped cleanly after writing this. A hint at how little there is to do, never a proof that the
    /// segments are intact.
    pub is_clean: bool,
    /// Counts the checkpoints of this log dir.
    pub generation: u64,
    /// All partitions that ever had a record here and were not deleted.
    pub partitions: BTreeMap<PartitionId, PartitionCheckpoint>,
}

impl DirCheckpoint {
    /// The file's content.
    pub fn encode(&self) -> Vec<u8> {
        let producers: usize = self.partitions.values().map(|known| known.producers.size_bytes()).sum();
        let mut out = Vec::with_capacity(64 + self.partitions.len() * (PARTITION_BYTES_MIN + 16) + producers);
        out.extend_from_slice(&CHECKPOINT_MAGIC);
        out.extend_from_slice(&CHECKPOINT_VERSION.to_be_bytes());
        out.extend_from_slice(&if self.is_clean { FLAG_CLEAN } else { 0 }.to_be_bytes());
        out.extend_from_slice(&self.generation.to_be_bytes());
        put_count(&mut out, self.partitions.len());
        for (id, partition) in &self.partitions {
            put_partition_id(*id, &mut out);
            partition.encode(&mut out);
        }
        seal(out)
    }

    /// Reads a file's content; refuses everything that [`encode`](Self::encode) does not write, but for a version that was
    /// inverted.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if let Some(version) = bytes.get(VERSION_BYTE_AT).filter(|version| **version > u8::MAX / 2) {
            let mut before = bytes.to_vec();
            before[VERSION_BYTE_AT] = !version;
            let checkpoint = Self::decode(&before)?;
            // Only the flag of a clean checkpoint is ever withdrawn.
            let was_clean = checkpoint.is_clean.then_some(Self { is_clean: false, ..checkpoint });
            return was_clean.ok_or(DecodeError::Invalid("flags"));
        }
        let (version, mut reader) = open(bytes, CHECKPOINT_MAGIC, CHECKPOINT_VERSION, CHECKPOINT_NAME)?;
        if version < CHECKPOINT_VERSION {
            return Err(DecodeError::OldVersion {
                name: CHECKPOINT_NAME,
                found: version,
                oldest: CHECKPOINT_VERSION,
            });
        }
        let flags = reader.u16("flags")?;
        if flags & !FLAG_CLEAN != 0 {
            return Err(DecodeError::Invalid("flags"));
        }
        let generation = reader.u64("generation")?;
        let count = reader.count(PARTITION_BYTES_MIN, "partition count")?;
        let mut partitions = BTreeMap::new();
        for _ in 0..count {
            let id = read_partition_id(&mut reader)?;
            if partitions.last_key_value().is_some_and(|(last, _)| *last >= id) {
                return Err(DecodeError::Invalid("order of partitions"));
            }
            partitions.insert(id, PartitionCheckpoint::decode(&mut reader)?);
        }
        reader.finish("the end of the checkpoint")?;
        Ok(Self { is_clean: flags & FLAG_CLEAN != 0, generation, partitions })
    }
}

impl PartitionCheckpoint {
    /// A partition that has nothing durable, as far as is known.
    pub(crate) fn starting_at(log_start: Offset) -> Self {
        Self {
            recovery_point: Offset::ZERO,
            is_lost: false,
            cuts: 0,
            cut_end: None,
            producers_end: Offset::ZERO,
            log_start,
            log_end: log_start,
            first_dirty: None,
            producers_at: None,
            producers: EncodedProducers::default(),
            size_bytes: 0,
            epochs: EpochCache::new(),
        }
    }

    /// Takes over a change that was written down after the checkpoint. A log never ends below its start, also where its
    /// end was lost with the power. Records below a cut are in the segments, and synced; the producers stay as they
    /// were.
    pub(crate) fn change(&mut self, change: Change) {
        match change {
            Change::Start(log_start) => self.log_start = self.log_start.max(log_start),
            Change::Cut { number, is_carried_out: true, .. } if self.is_lost && number > self.cuts => {
                // The log may be far beyond by now, and be under a later checkpoint, which is lost.
                self.cuts = number;
                self.cut_end = None;
            }
            Change::Cut { number, end, .. } if number > self.cuts => {
                self.cuts = number;
                self.cut_end = Some(end);
                self.recovery_point = self.recovery_point.min(end);
                self.log_end = end;
                self.first_dirty = self.first_dirty.map(|first_dirty| first_dirty.min(end));
                self.epochs.truncate_end(end);
            }
            // The checkpoint knows of it already.
            Change::Cut { .. } => {}
        }
        self.log_end = self.log_end.max(self.log_start);
    }

    /// Everything below is in the segments, and synced; the journal has the records beyond.
    pub(crate) fn durable_end(&self) -> Offset {
        self.cut_end.unwrap_or(self.recovery_point)
    }

    /// A partition that exists, and whose state is lost.
    pub(crate) fn lost() -> Self {
        Self { is_lost: true, ..Self::starting_at(Offset::ZERO) }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let none = Offset(-1);
        for offset in [
            if self.is_lost { none } else { self.recovery_point },
            self.log_start,
            self.log_end,
            self.first_dirty.unwrap_or(none),
            self.producers_at.unwrap_or(none),
            self.cut_end.unwrap_or(none),
            self.producers_end,
        ] {
            out.extend_from_slice(&offset.0.to_be_bytes());
        }
        out.extend_from_slice(&self.cuts.to_be_bytes());
        out.extend_from_slice(&self.size_bytes.to_be_bytes());
        self.epochs.encode(out);
        self.producers.encode(out);
    }

    fn decode(reader: &mut FieldReader<'_>) -> Result<Self, DecodeError> {
        let recovery_point = optional(reader, "recovery point")?;
        Ok(Self {
            recovery_point: recovery_point.unwrap_or(Offset::ZERO),
            is_lost: recovery_point.is_none(),
            log_start: required(reader, "log start")?,
            log_end: required(reader, "log end")?,
            first_dirty: optional(reader, "first dirty offset")?,
            producers_at: optional(reader, "offset of the state file")?,
            cut_end: optional(reader, "offset of the last cut")?,
            producers_end: required(reader, "offset that the producers go with")?,
            cuts: reader.u32("number of cuts")?,
            size_bytes: reader.u64("size")?,
            epochs: EpochCache::decode(reader)?,
            producers: EncodedProducers::decode(reader)?,
        })
    }
}

/// Appends the checksum of `out`.
pub(crate) fn seal(mut out: Vec<u8>) -> Vec<u8> {
    let checksum = crc32c::crc32c(&out);
    out.extend_from_slice(&checksum.to_be_bytes());
    out
}

/// Checks magic, version and checksum, in this order: a newer layout may keep its checksum elsewhere. Returns the
/// version, and a reader of the fields behind it.
pub(crate) fn open<'a>(
    bytes: &'a [u8],
    magic: [u8; 8],
    supported: u16,
    name: &'static str,
) -> Result<(u16, FieldReader<'a>), DecodeError> {
    let mut reader = FieldReader::new(bytes);
    if reader.array::<8>(name)? != magic {
        return Err(DecodeError::WrongMagic(name));
    }
    let found = reader.u16(name)?;
    if found > supported {
        return Err(DecodeError::NewerVersion { name, found, supported });
    }
    if found == 0 {
        return Err(DecodeError::Invalid(name));
    }
    let body = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or(DecodeError::Truncated(name))?;
    let (content, checksum) = bytes.split_at(body);
    if crc32c::crc32c(content).to_be_bytes() != checksum {
        return Err(DecodeError::Checksum(name));
    }
    let mut reader = FieldReader::new(content);
    reader.bytes(magic.len() + size_of::<u16>(), name)?;
    Ok((found, reader))
}

pub(crate) fn put_partition_id(id: PartitionId, out: &mut Vec<u8>) {
    out.extend_from_slice(&id.topic.0);
    out.extend_from_slice(&id.index.to_be_bytes());
}

pub(crate) fn read_partition_id(reader: &mut FieldReader<'_>) -> Result<PartitionId, DecodeError> {
    let topic = TopicId(reader.array("topic id")?);
    let index = reader.i32("partition index")?;
    if index < 0 {
        return Err(DecodeError::Invalid("partition index"));
    }
    Ok(PartitionId { topic, index })
}

pub(crate) fn required(reader: &mut FieldReader<'_>, field: &'static str) -> Result<Offset, DecodeError> {
    optional(reader, field)?.ok_or(DecodeError::Invalid(field))
}

fn optional(reader: &mut FieldReader<'_>, field: &'static str) -> Result<Option<Offset>, DecodeError> {
    match reader.i64(field)? {
        -1 => Ok(None),
        offset if offset >= 0 => Ok(Some(Offset(offset))),
        _ => Err(DecodeError::Invalid(field)),
    }
}

#[cfg(test)]
pub(crate) mod tests;

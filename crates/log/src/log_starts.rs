//! Log starts that have moved since the last checkpoint of a log dir: a small file of fixed records, each synced
//! before the caller goes on.
//!
//! ```text
//! header                       record, 40 bytes
//!   magic "RRstarts"   8         generation            u64
//!   version            u16       topic id              16
//!   zero               u16       partition index       i32
//!                                log start             i64
//!                                CRC-32C of all before u32
//! ```
//! All big-endian. A record counts if its generation is not older than the checkpoint's. Once a checkpoint contains
//! all of them, writing begins again at the front, over blocks that the file has already: a full disk does not keep
//! retention from making space. Reading stops at the first record that is not intact, which is the torn one of a
//! move that was never answered.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::{ChangeError, File, FileSystem, OpenMode};
use riverrun_types::{Offset, PartitionId, TopicId};

use crate::error::LogError;
use crate::fields::{DecodeError, FieldReader};

/// Name of the file in a log dir.
pub(crate) const LOG_STARTS_FILE: &str = "log-starts";

const MAGIC: &[u8; 8] = b"RRstarts";
const VERSION: u16 = 1;
const NAME: &str = "the log starts of a log dir";
const HEADER_BYTES: usize = 12;
const RECORD_BYTES: usize = 40;
/// Bytes that are written when the file is made.
const PREALLOCATED_BYTES: usize = 64 * 1024;
/// Bytes of the file at most: four hundred thousand moves between two checkpoints.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The open file.
///
/// Invariants: records of generations that still count lie before `position`; `newest` is the generation of the
/// last one.
#[derive(Debug)]
pub(crate) struct LogStarts {
    path: PathBuf,
    file: Arc<dyn File>,
    position: u64,
    newest: u64,
}

impl LogStarts {
    /// Opens or makes the file in `dir`. Answers the records that are not older than `generation`, in the order in
    /// which they were written.
    pub(crate) fn open(
        fs: &dyn FileSystem,
        dir: &Path,
        generation: u64,
    ) -> Result<(Self, Vec<(PartitionId, Offset)>), LogError> {
        let path = dir.join(LOG_STARTS_FILE);
        let io = |error| LogError::io(&path, error);
        if !fs.exists(&path).map_err(io)? {
            riverrun_env::atomic_replace(fs, &path, &empty_file()).map_err(|error| io(error.into()))?;
        }
        let bytes = riverrun_env::read_whole(fs, &path, FILE_BYTES_MAX).map_err(io)?;
        let records = decode(&bytes).map_err(|source| LogError::Format { path: path.clone(), source })?;
        let counting = records.iter().filter(|record| record.generation >= generation);
        let moves = counting.clone().map(|record| (record.partition, record.log_start)).collect();
        let end =
            records.iter().rposition(|record| record.generation >= generation).map_or(0, |last| last + 1);
        let newest = counting.map(|record| record.generation).max().unwrap_or(0);
        let file = fs.open(&path, OpenMode::ReadWrite).map_err(io)?;
        let position = (HEADER_BYTES + end * RECORD_BYTES) as u64;
        Ok((Self { path, file, position, newest }, moves))
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Notes that a log start has moved. Durable when it returns. What a failed write has left is written over by
    /// the next one, and does not count before that: it is not intact.
    pub(crate) fn put(
        &mut self,
        generation: u64,
        partition: PartitionId,
        log_start: Offset,
    ) -> Result<(), ChangeError> {
        if self.position + RECORD_BYTES as u64 > FILE_BYTES_MAX {
            return Err(ChangeError::Undone(std::io::ErrorKind::StorageFull.into()));
        }
        let record = Record { generation, partition, log_start };
        self.file.write_all_at(&record.encode(), self.position).map_err(ChangeError::Undone)?;
        self.file.sync_data().map_err(ChangeError::Unknown)?;
        self.position += RECORD_BYTES as u64;
        self.newest = generation;
        Ok(())
    }

    /// A checkpoint of `generation` is durable: it contains all moves of older generations.
    pub(crate) fn checkpointed(&mut self, generation: u64) {
        if self.newest < generation {
            self.position = HEADER_BYTES as u64;
        }
    }
}

fn empty_file() -> Vec<u8> {
    let mut bytes = vec![0; PREALLOCATED_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_be_bytes());
    bytes
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    generation: u64,
    partition: PartitionId,
    log_start: Offset,
}

impl Record {
    fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(RECORD_BYTES);
        out.extend_from_slice(&self.generation.to_be_bytes());
        out.extend_from_slice(&self.partition.topic.0);
        out.extend_from_slice(&self.partition.index.to_be_bytes());
        out.extend_from_slice(&self.log_start.0.to_be_bytes());
        out.extend_from_slice(&crc32c::crc32c(&out).to_be_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::new(bytes);
        let record = Self {
            generation: reader.u64(NAME)?,
            partition: PartitionId { topic: TopicId(reader.array(NAME)?), index: reader.i32(NAME)? },
            log_start: Offset(reader.i64(NAME)?),
        };
        let checksum = crc32c::crc32c(&bytes[..RECORD_BYTES - size_of::<u32>()]);
        if reader.u32(NAME)? == checksum { Ok(record) } else { Err(DecodeError::Checksum(NAME)) }
    }
}

/// The intact records at the front of the file.
fn decode(bytes: &[u8]) -> Result<Vec<Record>, DecodeError> {
    let mut reader = FieldReader::new(bytes);
    if reader.array::<8>(NAME)? != *MAGIC {
        return Err(DecodeError::WrongMagic(NAME));
    }
    let found = reader.u16(NAME)?;
    if found > VERSION {
        return Err(DecodeError::NewerVersion { name: NAME, found, supported: VERSION });
    }
    let records = bytes.get(HEADER_BYTES..).unwrap_or_default().chunks_exact(RECORD_BYTES);
    Ok(records.map_while(|record| Record::decode(record).ok()).collect())
}

#[cfg(test)]
mod tests {
    use riverrun_env::sim::SimEnv;

    use super::*;

    fn partition(index: i32) -> PartitionId {
        PartitionId { topic: TopicId([1; 16]), index }
    }

    fn open(sim: &SimEnv, generation: u64) -> (LogStarts, Vec<(PartitionId, Offset)>) {
        LogStarts::open(&*sim.fs, Path::new("/"), generation).unwrap()
    }

    #[test]
    fn an_answered_move_survives_a_power_cut() {
        for seed in 0..20 {
            let sim = SimEnv::new(seed);
            let (mut starts, _) = open(&sim, 1);
            starts.put(1, partition(0), Offset(10)).unwrap();
            starts.put(1, partition(1), Offset(20)).unwrap();
            sim.fs.crash();
            let (_, moves) = open(&sim, 1);
            assert_eq!(moves, [(partition(0), Offset(10)), (partition(1), Offset(20))]);
        }
    }

    #[test]
    fn moves_that_a_checkpoint_contains_are_forgotten_and_written_over() {
        let sim = SimEnv::new(1);
        let (mut starts, _) = open(&sim, 1);
        for offset in 1..=3 {
            starts.put(1, partition(0), Offset(offset)).unwrap();
        }
        starts.checkpointed(2);
        starts.put(2, partition(1), Offset(7)).unwrap();
        assert_eq!(open(&sim, 2).1, [(partition(1), Offset(7))]);
        assert_eq!(open(&sim, 1).1.len(), 3, "the two behind are still there, and older");
    }

    #[test]
    fn a_move_between_a_checkpoint_and_its_sync_stays_where_it_is() {
        let sim = SimEnv::new(1);
        let (mut starts, _) = open(&sim, 1);
        starts.put(1, partition(0), Offset(5)).unwrap();
        starts.put(2, partition(1), Offset(6)).unwrap();
        starts.checkpointed(2);
        starts.put(2, partition(2), Offset(7)).unwrap();
        assert_eq!(open(&sim, 2).1, [(partition(1), Offset(6)), (partition(2), Offset(7))]);
    }

    #[test]
    fn a_full_disk_does_not_stop_moves() {
        let sim = SimEnv::new(1);
        let (mut starts, _) = open(&sim, 1);
        sim.fs.set_space(Some(0));
        starts.put(1, partition(0), Offset(5)).unwrap();
        assert_eq!(open(&sim, 1).1.len(), 1);
    }
}

//! Log starts that have moved, and logs that were cut, since the last checkpoint of a log dir: a small file of fixed
//! records, each synced before the caller goes on.
//!
//! ```text
//! header                       record, 44 bytes
//!   magic "RRstarts"   8         generation            u64
//!   version            u16       topic id              16
//!   zero               u16       partition index       i32
//!                                offset                i64
//!                                cuts                  u32
//!                                CRC-32C of all before u32
//! ```
//! All big-endian. The offset is the log's start if *cuts* is 0; else it is the log's end after the cut of that number.
//! The top bit of *cuts* is set until the cut is carried out: the segments may have records from before it. Such a
//! record is never written over, and is changed in its place then, so it lies in one sector. The version rises with
//! each change of layout or meaning; a newer one is refused by name, and so are version 1, in which no log could be
//! cut, and version 2, which does not tell whether a cut is carried out. A record counts if its generation is not older
//! than the checkpoint's. Once a checkpoint contains all of them, writing begins again at the front, over blocks that
//! the file has already: a full disk does not keep retention from making space. A record that is not intact is the torn
//! one of a move that was never answered, or damage, which is reported: a disk writes a sector of 512 bytes whole or
//! not at all, so only a record that lies in two of them can be torn, and only if it is the last one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::{ChangeError, File, FileSystem, OpenMode, is_device_error};
use riverrun_types::{Offset, PartitionId, TopicId};

use crate::error::LogError;
use crate::fields::{DecodeError, FieldReader};
use crate::presence::check_open_file;

/// Name of the file in a log dir.
pub(crate) const LOG_STARTS_FILE: &str = "log-starts";

const MAGIC: &[u8; 8] = b"RRstarts";
const VERSION: u16 = 3;
const NAME: &str = "the log starts of a log dir";
const HEADER_BYTES: usize = 12;
/// Two bytes of the header that are zero.
const HEADER_ZERO_AT: usize = HEADER_BYTES - 2;
const RECORD_BYTES: usize = 44;
/// The unit that a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;
/// Bytes that are written when the file is made.
const PREALLOCATED_BYTES: usize = 64 * 1024;
/// Bytes of the file at most: three hundred thousand records between two checkpoints.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Set in the number of a cut that is not carried out.
const BEGUN: u32 = 1 << 31;
/// The highest number of a cut.
pub(crate) const CUTS_MAX: u32 = BEGUN - 1;

/// The change of a log that a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The log begins there now.
    Start(Offset),
    /// The log was cut.
    Cut {
        /// The cut's number, from 1.
        number: u32,
        /// The log's end after it.
        end: Offset,
        /// Whether the segments have nothing from before it any more.
        is_carried_out: bool,
    },
}

/// The open file.
///
/// Invariants: records of generations that still count lie before slot `next`, or are among `begun`; `newest` is the
/// generation of the last one. `begun` has all cuts of the file that are not carried out.
#[derive(Debug)]
pub(crate) struct LogStarts {
    path: PathBuf,
    file: Arc<dyn File>,
    next: usize,
    newest: u64,
    begun: Vec<(usize, Record)>,
}

impl LogStarts {
    /// Opens or makes the file in `dir`. Returns the records that are not older than `generation`, in the order in
    /// which they were written.
    pub(crate) fn open(
        fs: &dyn FileSystem,
        dir: &Path,
        generation: u64,
    ) -> Result<(Self, Vec<(PartitionId, Change)>), LogError> {
        let path = dir.join(LOG_STARTS_FILE);
        let io = |error| LogError::io(&path, error);
        if !fs.exists(&path).map_err(io)? {
            riverrun_env::atomic_replace(fs, &path, &empty_file()).map_err(|error| io(error.into()))?;
        }
        let decoded = match riverrun_env::read_whole(fs, &path, FILE_BYTES_MAX) {
            Ok(bytes) => match decode(&bytes) {
                Err(source @ (DecodeError::NewerVersion { .. } | DecodeError::OldVersion { .. })) => {
                    return Err(LogError::Format { path, source });
                }
                decoded => decoded.map_err(|error| error.to_string()),
            },
            Err(error) if is_device_error(&error) => Err(error.to_string()),
            Err(error) => return Err(io(error)),
        };
        let content = match decoded {
            Ok(content) => content,
            Err(reason) => {
                tracing::error!(
                    path = %path.display(), reason,
                    "the log starts are unusable and begin anew: records that were deleted or cut may show again"
                );
                riverrun_env::atomic_replace(fs, &path, &empty_file()).map_err(|error| io(error.into()))?;
                Content::empty()
            }
        };
        for Flaw { position, what, .. } in content.flaws(generation) {
            tracing::error!(
                path = %path.display(), position, what,
                "the log starts are not intact: records that were deleted or cut may show again"
            );
        }
        let changes = content.changes(generation).collect();
        let next = content.counting(generation).last().map_or(0, |(slot, _)| slot + 1);
        let begun = content.records.iter().copied().filter(|(_, record)| record.is_begun()).collect();
        let newest = content.counting(generation).map(|(_, record)| record.generation).max().unwrap_or(0);
        let file = fs.open(&path, OpenMode::ReadWrite).map_err(io)?;
        Ok((Self { path, file, next, newest, begun }, changes))
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Fails unless the file is under its name.
    pub(crate) fn check_in_place(&self, fs: &dyn FileSystem) -> Result<(), LogError> {
        check_open_file(fs, &self.path, &*self.file)
    }

    /// Notes a change of a log. Durable when it returns. The rest of a failed write is written over by the next one,
    /// and does not count before that: it is not intact.
    pub(crate) fn put(
        &mut self,
        generation: u64,
        partition: PartitionId,
        change: Change,
    ) -> Result<(), ChangeError> {
        let record = Record { generation, partition, change };
        let slot = self.slot_for(&record);
        if slot_position(slot + 1) > FILE_BYTES_MAX {
            return Err(ChangeError::Undone(std::io::ErrorKind::StorageFull.into()));
        }
        self.write(slot, &record)?;
        if record.is_begun() {
            self.begun.push((slot, record));
        }
        self.next = slot + 1;
        self.newest = generation;
        Ok(())
    }

    /// Notes that the segments of a log have nothing from before its cuts. Durable when it returns, and before anything
    /// is appended.
    pub(crate) fn carry_out_cuts(&mut self, partition: PartitionId) -> Result<(), ChangeError> {
        while let Some(index) = self.begun.iter().position(|(_, record)| record.partition == partition) {
            let (slot, record) = self.begun[index];
            self.write(slot, &record.carried_out())?;
            self.begun.remove(index);
        }
        Ok(())
    }

    fn write(&self, slot: usize, record: &Record) -> Result<(), ChangeError> {
        self.file.write_all_at(&record.encode(), slot_position(slot)).map_err(ChangeError::Undone)?;
        self.file.sync_data().map_err(ChangeError::Unknown)
    }

    /// The next slot that may be written over, and that suits the record.
    fn slot_for(&self, record: &Record) -> usize {
        let is_begun = |slot: usize| self.begun.iter().any(|(begun, _)| *begun == slot);
        let must_be_whole = record.is_begun();
        let mut slot = self.next;
        while is_begun(slot) || (must_be_whole && lies_in_two_sectors(slot)) {
            slot += 1;
        }
        slot
    }

    /// A checkpoint of `generation` is durable: it contains all moves of older generations.
    pub(crate) fn checkpointed(&mut self, generation: u64) {
        if self.newest < generation {
            self.next = 0;
        }
    }
}

fn empty_file() -> Vec<u8> {
    let mut bytes = vec![0; PREALLOCATED_BYTES];
    bytes[..HEADER_BYTES].copy_from_slice(&header());
    bytes
}

fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..10].copy_from_slice(&VERSION.to_be_bytes());
    header
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    generation: u64,
    partition: PartitionId,
    change: Change,
}

impl Record {
    /// Whether it is about a cut that is not carried out.
    fn is_begun(&self) -> bool {
        matches!(self.change, Change::Cut { is_carried_out: false, .. })
    }

    fn carried_out(self) -> Self {
        let change = match self.change {
            Change::Cut { number, end, .. } => Change::Cut { number, end, is_carried_out: true },
            change @ Change::Start(_) => change,
        };
        Self { change, ..self }
    }

    fn encode(self) -> Vec<u8> {
        let (offset, cuts) = match self.change {
            Change::Start(log_start) => (log_start, 0),
            Change::Cut { number, end, is_carried_out: true } => (end, number),
            Change::Cut { number, end, is_carried_out: false } => (end, number | BEGUN),
        };
        let mut out = Vec::with_capacity(RECORD_BYTES);
        out.extend_from_slice(&self.generation.to_be_bytes());
        out.extend_from_slice(&self.partition.topic.0);
        out.extend_from_slice(&self.partition.index.to_be_bytes());
        out.extend_from_slice(&offset.0.to_be_bytes());
        out.extend_from_slice(&cuts.to_be_bytes());
        out.extend_from_slice(&crc32c::crc32c(&out).to_be_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::new(bytes);
        let generation = reader.u64(NAME)?;
        let partition = PartitionId { topic: TopicId(reader.array(NAME)?), index: reader.i32(NAME)? };
        let offset = Offset(reader.i64(NAME)?);
        if offset < Offset::ZERO {
            return Err(DecodeError::Invalid(NAME));
        }
        let change = match reader.u32(NAME)? {
            0 => Change::Start(offset),
            BEGUN => return Err(DecodeError::Invalid(NAME)),
            cuts => Change::Cut { number: cuts & !BEGUN, end: offset, is_carried_out: cuts & BEGUN == 0 },
        };
        let stored = reader.u32(NAME)?;
        let checksum = crc32c::crc32c(&bytes[..RECORD_BYTES - size_of::<u32>()]);
        if stored == checksum {
            Ok(Self { generation, partition, change })
        } else {
            Err(DecodeError::Checksum(NAME))
        }
    }
}

/// Position of slot `number`.
fn slot_position(number: usize) -> u64 {
    (HEADER_BYTES + number * RECORD_BYTES) as u64
}

/// The content of the file.
#[derive(Debug)]
pub(crate) struct Content {
    len: usize,
    /// Intact records and their slots, in order.
    records: Vec<(usize, Record)>,
    /// Slots with other bytes.
    broken: Vec<usize>,
    has_clean_header: bool,
}

/// A fault of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) position: u64,
    pub(crate) what: &'static str,
    /// A power cut while a move was written can have left it, and that move was never answered.
    pub(crate) may_be_torn: bool,
}

impl Content {
    /// The content of a file that was just made.
    fn empty() -> Self {
        Self { len: PREALLOCATED_BYTES, records: Vec::new(), broken: Vec::new(), has_clean_header: true }
    }

    /// The records that are not older than `generation`, with their slots, in the order in which they were written.
    fn counting(&self, generation: u64) -> impl Iterator<Item = (usize, Record)> {
        self.records.iter().copied().filter(move |(_, record)| record.generation >= generation)
    }

    /// The changes in those records.
    pub(crate) fn changes(&self, generation: u64) -> impl Iterator<Item = (PartitionId, Change)> {
        self.counting(generation).map(|(_, record)| (record.partition, record.change))
    }

    /// The faults, in the order of the file.
    pub(crate) fn flaws(&self, generation: u64) -> Vec<Flaw> {
        let last = self.counting(generation).last().map(|(slot, _)| slot);
        let mut flaws = Vec::new();
        if !self.has_clean_header {
            let what = "bytes of the header that are always zero are not";
            flaws.push(Flaw { position: HEADER_ZERO_AT as u64, what, may_be_torn: false });
        }
        for slot in &self.broken {
            let may_be_torn = lies_in_two_sectors(*slot) && last.is_none_or(|last| *slot == last + 1);
            let what = if may_be_torn {
                "a record that is torn or damaged; a power cut may have left it"
            } else {
                "a record is damaged: the log start that it moved, or the cut that it made, may be lost"
            };
            flaws.push(Flaw { position: slot_position(*slot), what, may_be_torn });
        }
        if self.len < PREALLOCATED_BYTES {
            let what = "the file is shorter than it was made";
            flaws.push(Flaw { position: self.len as u64, what, may_be_torn: false });
        }
        flaws
    }
}

fn lies_in_two_sectors(slot: usize) -> bool {
    let first = HEADER_BYTES + slot * RECORD_BYTES;
    first / SECTOR_BYTES != (first + RECORD_BYTES - 1) / SECTOR_BYTES
}

/// Reads the whole file.
pub(crate) fn decode(bytes: &[u8]) -> Result<Content, DecodeError> {
    let mut reader = FieldReader::new(bytes);
    if reader.array::<8>(NAME)? != *MAGIC {
        return Err(DecodeError::WrongMagic(NAME));
    }
    let found = reader.u16(NAME)?;
    if found > VERSION {
        return Err(DecodeError::NewerVersion { name: NAME, found, supported: VERSION });
    }
    if found == 0 {
        return Err(DecodeError::Invalid(NAME));
    }
    if found < VERSION {
        return Err(DecodeError::OldVersion { name: NAME, found, oldest: VERSION });
    }
    let has_clean_header = reader.u16(NAME)? == 0;
    let mut content = Content { len: bytes.len(), records: Vec::new(), broken: Vec::new(), has_clean_header };
    for (slot, chunk) in bytes[HEADER_BYTES..].chunks(RECORD_BYTES).enumerate() {
        if chunk.iter().all(|byte| *byte == 0) {
            continue;
        }
        match Record::decode(chunk) {
            Ok(record) => content.records.push((slot, record)),
            Err(_) => content.broken.push(slot),
        }
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use riverrun_env::sim::SimEnv;

    use super::*;

    fn partition(index: i32) -> PartitionId {
        PartitionId { topic: TopicId([1; 16]), index }
    }

    fn open(sim: &SimEnv, generation: u64) -> (LogStarts, Vec<(PartitionId, Change)>) {
        LogStarts::open(&*sim.fs, Path::new("/"), generation).unwrap()
    }

    #[test]
    fn an_answered_move_survives_a_power_cut() {
        for seed in 0..20 {
            let sim = SimEnv::new(seed);
            let (mut starts, _) = open(&sim, 1);
            starts.put(1, partition(0), Change::Start(Offset(10))).unwrap();
            starts.put(1, partition(1), Change::Start(Offset(20))).unwrap();
            sim.fs.crash();
            let (_, moves) = open(&sim, 1);
            assert_eq!(
                moves,
                [(partition(0), Change::Start(Offset(10))), (partition(1), Change::Start(Offset(20)))]
            );
        }
    }

    #[test]
    fn moves_in_a_checkpoint_are_forgotten_and_written_over() {
        let sim = SimEnv::new(1);
        let (mut starts, _) = open(&sim, 1);
        for offset in 1..=3 {
            starts.put(1, partition(0), Change::Start(Offset(offset))).unwrap();
        }
        starts.checkpointed(2);
        starts.put(2, partition(1), Change::Start(Offset(7))).unwrap();
        assert_eq!(open(&sim, 2).1, [(partition(1), Change::Start(Offset(7)))]);
        assert_eq!(open(&sim, 1).1.len(), 3, "the two behind are still there, and older");
    }

    #[test]
    fn a_move_between_a_checkpoint_and_its_sync_stays_where_it_is() {
        let sim = SimEnv::new(1);
        let (mut starts, _) = open(&sim, 1);
        starts.put(1, partition(0), Change::Start(Offset(5))).unwrap();
        starts.put(2, partition(1), Change::Start(Offset(6))).unwrap();
        starts.checkpointed(2);
        starts.put(2, partition(2), Change::Start(Offset(7))).unwrap();
        assert_eq!(
            open(&sim, 2).1,
            [(partition(1), Change::Start(Offset(6))), (partition(2), Change::Start(Offset(7)))]
        );
    }

    #[test]
    fn cut_is_read_as_written_and_older_versions_are_refused() {
        let sim = SimEnv::new(1);
        let (mut starts, _) = open(&sim, 1);
        let cut = |is_carried_out| Change::Cut { number: 3, end: Offset(9), is_carried_out };
        starts.put(1, partition(0), cut(false)).unwrap();
        sim.fs.crash();
        let (mut starts, changes) = open(&sim, 1);
        assert_eq!(changes, [(partition(0), cut(false))]);
        starts.carry_out_cuts(partition(0)).unwrap();
        sim.fs.crash();
        assert_eq!(open(&sim, 1).1, [(partition(0), cut(true))]);
        for found in [1, 2] {
            let mut older = empty_file();
            older[9] = found;
            let refusal = DecodeError::OldVersion { name: NAME, found: found.into(), oldest: VERSION };
            assert_eq!(decode(&older).unwrap_err(), refusal);
        }
    }

    #[test]
    fn cut_stays_until_it_is_carried_out_and_lies_in_one_sector() {
        let sim = SimEnv::new(1);
        let cut = |number| Change::Cut { number, end: Offset(9), is_carried_out: false };
        for number in 1..=12 {
            let (mut starts, _) = open(&sim, u64::from(number));
            starts.put(u64::from(number), partition(1), cut(number)).unwrap();
        }
        let bytes =
            riverrun_env::read_whole(&*sim.fs, &Path::new("/").join(LOG_STARTS_FILE), 1 << 20).unwrap();
        let records = decode(&bytes).unwrap().records;
        assert_eq!(records.len(), 12, "none was written over");
        assert!(records.iter().all(|(slot, _)| !lies_in_two_sectors(*slot)), "{records:?}");
        let (mut starts, _) = open(&sim, 20);
        starts.carry_out_cuts(partition(1)).unwrap();
        starts.put(20, partition(0), Change::Start(Offset(1))).unwrap();
        assert_eq!(open(&sim, 0).1[0], (partition(0), Change::Start(Offset(1))), "over the first one");
        assert!(starts.begun.is_empty());
    }

    #[test]
    fn a_full_disk_does_not_stop_moves() {
        let sim = SimEnv::new(1);
        let (mut starts, _) = open(&sim, 1);
        sim.fs.set_space(Some(0));
        starts.put(1, partition(0), Change::Start(Offset(5))).unwrap();
        assert_eq!(open(&sim, 1).1.len(), 1);
    }

    /// A file with twelve moves of generation 5, of which the last one lies in two sectors.
    fn file_of_moves() -> Vec<u8> {
        let sim = SimEnv::new(1);
        let (mut starts, _) = open(&sim, 1);
        for number in 0..12 {
            starts.put(5, partition(number), Change::Start(Offset(10 + i64::from(number)))).unwrap();
        }
        riverrun_env::read_whole(&*sim.fs, starts.path(), 1 << 20).unwrap()
    }

    #[test]
    fn every_flipped_byte_is_found_and_hides_at_most_its_own_record() {
        let bytes = file_of_moves();
        let whole: Vec<_> = decode(&bytes).unwrap().changes(5).collect();
        assert_eq!(whole.len(), 12);
        // The rest is zeros like the last of these, and its absence is one more flaw.
        for position in 0..1024 {
            let mut flipped = bytes[..1024].to_vec();
            flipped[position] ^= 1 << (position % 8);
            let Ok(content) = decode(&flipped) else {
                assert!(position < HEADER_ZERO_AT, "byte {position}");
                continue;
            };
            let flaws = content.flaws(5);
            let slot = position.checked_sub(HEADER_BYTES).map(|at| at / RECORD_BYTES);
            let expected = slot.map_or(HEADER_ZERO_AT as u64, slot_position);
            assert_eq!(flaws.len(), 2, "byte {position}");
            assert_eq!(flaws[0].position, expected, "byte {position}");
            let kept = whole.iter().enumerate().filter(|(number, _)| Some(*number) != slot);
            assert!(content.changes(5).eq(kept.map(|(_, kept)| *kept)), "byte {position}");
        }
    }

    #[test]
    fn undecodable_file_begins_anew_unless_its_version_is_newer() {
        let good = file_of_moves();
        for len in (0..HEADER_BYTES).chain([100, PREALLOCATED_BYTES]) {
            let mut bytes = good[..len].to_vec();
            if let Some(first) = bytes.first_mut().filter(|_| len > HEADER_BYTES) {
                *first ^= 1;
            }
            let sim = SimEnv::new(1);
            riverrun_env::atomic_replace(&*sim.fs, &Path::new("/").join(LOG_STARTS_FILE), &bytes).unwrap();
            let (mut starts, moves) = open(&sim, 5);
            assert_eq!(moves, [], "{len} bytes");
            starts.put(5, partition(0), Change::Start(Offset(7))).unwrap();
            sim.fs.crash();
            assert_eq!(open(&sim, 5).1, [(partition(0), Change::Start(Offset(7)))], "{len} bytes");
        }
        let sim = SimEnv::new(1);
        let mut newer = good;
        newer[9] = 4;
        riverrun_env::atomic_replace(&*sim.fs, &Path::new("/").join(LOG_STARTS_FILE), &newer).unwrap();
        let error = LogStarts::open(&*sim.fs, Path::new("/"), 5).unwrap_err();
        assert!(matches!(error, LogError::Format { .. }), "{error}");
    }

    #[test]
    fn every_cut_is_found() {
        let bytes = file_of_moves();
        for len in (0..1024).chain(bytes.len() - 100..bytes.len()) {
            let found = decode(&bytes[..len]).map(|content| content.flaws(5));
            assert!(found.is_err() || found.is_ok_and(|flaws| !flaws.is_empty()), "cut at {len}");
        }
        assert_eq!(decode(&bytes).unwrap().flaws(5), []);
    }

    #[test]
    fn only_the_last_record_can_be_torn_and_only_across_sectors() {
        let bytes = file_of_moves();
        for slot in 0..12 {
            let mut torn = bytes.clone();
            let from = usize::try_from(slot_position(slot)).unwrap();
            torn[from + 20..from + RECORD_BYTES].fill(0);
            let flaws = decode(&torn).unwrap().flaws(5);
            let may_be_torn: Vec<_> = flaws.iter().map(|flaw| flaw.may_be_torn).collect();
            assert_eq!(may_be_torn, [slot == 11], "slot {slot}");
        }
    }
}

//! Reading a server's partition on the same machine, from the files that the server writes.
//!
//! Guarantees that each batch is whole, checked by its CRC, in order and once. Changes nothing and locks nothing: the
//! server, its retention and its compaction do not know of these readers. A batch that is still being written is not
//! returned. Nothing is mapped, so a truncated file is an end or an error.
//!
//! Such a reader sees the bytes in the segments. At the levels that sync through the journal, these are the settled
//! records: about ten seconds behind Kafka's clients unless much is written. At the other levels they include the
//! page cache, which a power cut may lose.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use riverrun_records::{Batch, BatchError, UnverifiedBatch, layout};
use riverrun_types::Offset;

use crate::error::{At as _, QueueError};
use crate::opening::open_to_read;
use crate::segment::{list, segment_name};
use crate::tailer::StartAt;

/// Polling interval.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Reads a partition of a server, whose directory is `<log dir>/<topic id>/<partition>`
/// (`riverrun topic describe` tells the id).
///
/// It sees the records that the server has written into the segments: at durability levels 2 and 4 immediately (unless
/// `journal.async.write` is set), at 1 and 3, which sync through the journal, about ten seconds after the ack unless
/// much is written. The directory of a new partition may not exist before then: [`open`](Self::open) is an error until
/// it does.
///
/// ```no_run
/// use riverrun_queue::{PartitionTailer, StartAt};
///
/// let dir = std::path::Path::new("riverrun-data/logs/b6ce3c36-92a7-442d-8d3f-fef1335aacb2/0");
/// let mut tailer = PartitionTailer::open(dir, StartAt::Start)?;
/// while let Some(batch) = tailer.next_batch()? {
///     for record in &batch.records()? {
///         println!("{}", record?.offset);
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Invariants: `position` is where a batch begins or will begin in `segment`; `batch` holds the last batch read.
#[derive(Debug)]
pub struct PartitionTailer {
    dir: PathBuf,
    segment: Option<Segment>,
    position: u64,
    /// The next offset to be read; `None`: the log start offset.
    next: Option<Offset>,
    batch: Vec<u8>,
}

#[derive(Debug)]
struct Segment {
    base: Offset,
    path: PathBuf,
    file: File,
}

/// The bytes at a position in a segment.
enum Found {
    Batch,
    /// Nothing, or the beginning of a batch.
    NotYet,
    /// Bytes that are not a valid batch; possibly one that is being written.
    Wrong(BatchError),
}

impl PartitionTailer {
    /// Opens the partition in `dir`. The tailer waits for an offset that does not exist yet.
    pub fn open(dir: &Path, at: StartAt) -> Result<Self, QueueError> {
        let next = if let StartAt::Offset(offset) = at { Some(offset) } else { None };
        let mut tailer = Self { dir: dir.to_owned(), segment: None, position: 0, next, batch: Vec::new() };
        // Reports a bad directory at once.
        list(dir)?;
        match at {
            StartAt::Start | StartAt::Offset(_) => {}
            StartAt::End => {
                tailer.next = list(dir)?.last().copied();
                while tailer.read()? {}
            }
            StartAt::Time(time) => tailer.skip_until(|batch| batch.header().max_timestamp() >= time)?,
        }
        Ok(tailer)
    }

    /// Offset of the next record; `None` before the first batch when reading from the start.
    pub fn offset(&self) -> Option<Offset> {
        self.next
    }

    /// The next batch; `None` if there is none yet. The first one may begin below the requested offset. Its records
    /// may exceed a bound when they are inflated, which is no damage
    /// ([`BatchError::is_damage`](riverrun_records::BatchError::is_damage)).
    pub fn next_batch(&mut self) -> Result<Option<Batch<'_>>, QueueError> {
        if self.read()? { self.last().map(Some) } else { Ok(None) }
    }

    /// The next batch, waiting for it; `None` if none came within `timeout`.
    pub fn wait_batch(&mut self, timeout: Duration) -> Result<Option<Batch<'_>>, QueueError> {
        let begin = Instant::now();
        while !self.read()? {
            let Some(left) = timeout.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) else {
                return Ok(None);
            };
            std::thread::sleep(left.min(LOOK_INTERVAL));
        }
        self.last().map(Some)
    }

    /// Skips batches up to the first for which `is_it` is true.
    fn skip_until(&mut self, is_it: impl Fn(&Batch<'_>) -> bool) -> Result<(), QueueError> {
        while let Some(batch) = self.next_batch()? {
            if is_it(&batch) {
                let (base, size_bytes) = (batch.header().base_offset(), batch.header().size_bytes());
                (self.next, self.position) = (Some(base), self.position - size_bytes as u64);
                return Ok(());
            }
        }
        Ok(())
    }

    fn last(&self) -> Result<Batch<'_>, QueueError> {
        // It was checked when it was read.
        let batch = UnverifiedBatch::only(&self.batch).and_then(UnverifiedBatch::trust);
        batch.map_err(|error| QueueError::damaged(&self.dir, self.position, error))
    }

    /// Reads the next batch into `batch` and advances past it; false if it is not there yet.
    fn read(&mut self) -> Result<bool, QueueError> {
        loop {
            let Some(segment) = &self.segment else {
                if !self.open_segment()? {
                    return Ok(false);
                }
                continue;
            };
            let mut found = read_at(segment, self.position, &mut self.batch)?;
            let mut later = None;
            if !matches!(found, Found::Batch) {
                let base = segment.base;
                later = list(&self.dir)?.into_iter().find(|other| *other > base);
                if later.is_some() {
                    // It may have been finished before the server went on to the next.
                    found = read_at(segment, self.position, &mut self.batch)?;
                }
            }
            match (found, later) {
                (Found::Batch, _) => {
                    if self.pass()? {
                        return Ok(true);
                    }
                }
                (Found::NotYet | Found::Wrong(_), None) => return Ok(false),
                (Found::NotYet, Some(later)) => self.segment = open(&self.dir, later)?,
                (Found::Wrong(error), Some(_)) => {
                    return Err(QueueError::damaged(&segment.path, self.position, error));
                }
            }
            if later.is_some() {
                self.position = 0;
            }
        }
    }

    /// Advances past the batch that was read. False if it lies below the requested offset.
    fn pass(&mut self) -> Result<bool, QueueError> {
        let batch = self.last()?;
        let (size_bytes, next) = (batch.header().size_bytes(), batch.header().next_offset());
        self.position += size_bytes as u64;
        let is_wanted = self.next.is_none_or(|wanted| next > wanted);
        if is_wanted {
            self.next = Some(next);
        }
        Ok(is_wanted)
    }

    /// Opens the segment in which the next offset lies; false if there is none yet.
    fn open_segment(&mut self) -> Result<bool, QueueError> {
        let bases = list(&self.dir)?;
        let Some(first) = bases.first().copied() else { return Ok(false) };
        let wanted = self.next.unwrap_or(first);
        let Some(base) = bases.iter().rev().copied().find(|base| *base <= wanted) else {
            let end = bases.last().copied().unwrap_or(first);
            return Err(QueueError::OffsetOutOfRange { offset: wanted, start: first, end });
        };
        self.segment = open(&self.dir, base)?;
        self.position = 0;
        Ok(self.segment.is_some())
    }
}

/// Opens a segment; `None` if it was just removed.
fn open(dir: &Path, base: Offset) -> Result<Option<Segment>, QueueError> {
    let path = dir.join(segment_name(base));
    match open_to_read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        opened => Ok(Some(Segment { base, file: opened.at("open", &path)?, path })),
    }
}

/// Reads the batch at `position` into `into`, if it is there and whole.
fn read_at(segment: &Segment, position: u64, into: &mut Vec<u8>) -> Result<Found, QueueError> {
    let len = segment.file.metadata().at("look at", &segment.path)?.len();
    let mut prefix = [0; layout::LENGTH_END];
    if !fill(segment, &mut prefix, position)? {
        return Ok(Found::NotYet);
    }
    // After the last batch of a segment there may be zeros.
    let Some(length) = prefix[layout::LENGTH..].first_chunk().map(|field| i32::from_be_bytes(*field)) else {
        return Ok(Found::NotYet);
    };
    let Ok(length) = u64::try_from(length) else {
        return Ok(Found::Wrong(riverrun_records::CorruptCause::Length(length).into()));
    };
    let size_bytes = layout::LENGTH_END as u64 + length;
    if length == 0 || size_bytes > len.saturating_sub(position) {
        return Ok(Found::NotYet);
    }
    into.resize(size_bytes as usize, 0);
    if !fill(segment, into, position)? {
        return Ok(Found::NotYet);
    }
    match UnverifiedBatch::only(into).and_then(UnverifiedBatch::verify) {
        Ok(_) => Ok(Found::Batch),
        Err(error) => Ok(Found::Wrong(error)),
    }
}

/// Fills `bytes` from `position` on; false where the file ends earlier.
fn fill(segment: &Segment, bytes: &mut [u8], position: u64) -> Result<bool, QueueError> {
    match segment.file.read_exact_at(bytes, position) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.at("read", &segment.path).map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use riverrun_records::{BatchBuilder, BatchOptions};
    use riverrun_types::TimestampMs;

    use super::*;

    /// A batch of `count` records from `base` on, as a server writes it.
    fn batch(base: i64, count: i64) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        for number in base..base + count {
            builder.append(TimestampMs(number * 10), None, Some(b"value"), &[]).expect("small");
        }
        let mut bytes = builder.build().expect("small");
        bytes[..8].copy_from_slice(&base.to_be_bytes());
        bytes
    }

    fn write(dir: &Path, base: i64, bytes: &[u8]) {
        let path = dir.join(segment_name(Offset(base)));
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).expect("a file");
        file.write_all(bytes).expect("room");
    }

    fn rest(tailer: &mut PartitionTailer) -> Vec<i64> {
        let mut bases = Vec::new();
        while let Some(batch) = tailer.next_batch().expect("readable") {
            bases.push(batch.header().base_offset().0);
        }
        bases
    }

    #[test]
    fn batches_are_read_across_segments_and_as_they_come() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut tailer = PartitionTailer::open(dir.path(), StartAt::Start).expect("a directory");
        assert_eq!(rest(&mut tailer), Vec::<i64>::new(), "an empty partition has no files");
        write(dir.path(), 5, &batch(5, 3));
        write(dir.path(), 5, &batch(8, 1));
        assert_eq!(rest(&mut tailer), [5, 8]);
        let later = batch(9, 2);
        write(dir.path(), 5, &later[..20]);
        assert_eq!(rest(&mut tailer), Vec::<i64>::new(), "it is being written");
        write(dir.path(), 5, &later[20..]);
        write(dir.path(), 11, &batch(11, 1));
        assert_eq!(rest(&mut tailer), [9, 11]);
        assert_eq!(tailer.offset(), Some(Offset(12)));
        for (at, expected) in [
            (StartAt::Offset(Offset(6)), vec![5, 8, 9, 11]),
            (StartAt::Offset(Offset(11)), vec![11]),
            (StartAt::Time(TimestampMs(80)), vec![8, 9, 11]),
            (StartAt::End, vec![]),
        ] {
            let mut tailer = PartitionTailer::open(dir.path(), at).expect("a directory");
            assert_eq!(rest(&mut tailer), expected, "{at:?}");
        }
        let mut gone = PartitionTailer::open(dir.path(), StartAt::Offset(Offset(1))).expect("a directory");
        assert!(matches!(gone.next_batch(), Err(QueueError::OffsetOutOfRange { .. })));
    }

    #[test]
    fn damage_in_a_segment_that_has_a_next_one_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut damaged = batch(0, 3);
        *damaged.last_mut().expect("not empty") ^= 1;
        write(dir.path(), 0, &damaged);
        let mut tailer = PartitionTailer::open(dir.path(), StartAt::Start).expect("a directory");
        assert_eq!(rest(&mut tailer), Vec::<i64>::new(), "it may be being written");
        write(dir.path(), 3, &batch(3, 1));
        assert!(matches!(tailer.next_batch(), Err(QueueError::Damaged { .. })));
    }

    #[test]
    fn waiting_tailer_gets_a_batch_when_it_comes() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut tailer = PartitionTailer::open(dir.path(), StartAt::End).expect("a directory");
        assert!(tailer.wait_batch(Duration::from_millis(5)).expect("readable").is_none());
        let path = dir.path().to_owned();
        let writing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            write(&path, 0, &batch(0, 1));
        });
        let found = tailer.wait_batch(Duration::from_secs(20)).expect("readable");
        assert_eq!(found.map(|batch| batch.header().record_count()), Some(1));
        writing.join().expect("no panic");
    }
}

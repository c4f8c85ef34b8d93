//! `riverrun log verify`: reads all files of one partition, changes nothing, and lists what is wrong.
//!
//! Goes further than recovery does: every batch of every segment, its records, and the running checksums of the
//! index, which find a flipped bit in what a batch's own CRC leaves out and a batch that was replaced by another
//! valid one. Needs no server; with one running, the active segment's tail may show as damage that is none.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::{Env, File, OpenMode};
use riverrun_records::{BatchError, UnverifiedBatch};
use riverrun_types::{Offset, PartitionId};

use crate::error::LogError;
use crate::index::{ENTRY_BYTES, HEADER_BYTES, IndexCursor, IndexEntry, entry_position};
use crate::scan::{BatchScan, ScanStop, ScannedBatch};
use crate::segment::{FilePool, Home, LOG_SUFFIX, parse_name};

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// Where in it.
    pub position: u64,
    /// What is wrong there.
    pub what: String,
}

/// What a verification has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Segments.
    pub segments: usize,
    /// Intact batches.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// What is wrong, in the order of the files. Empty: nothing.
    pub findings: Vec<Finding>,
}

/// Verifies the partition whose files lie in `dir`. Fails only if the system cannot read; damage is a finding.
pub fn verify_partition(env: &Env, dir: &Path, partition: PartitionId) -> Result<VerifyReport, LogError> {
    let pool = Arc::new(FilePool::new(1));
    let home = Arc::new(Home { fs: env.fs.clone(), dir: dir.to_path_buf(), partition, pool });
    let entries = env.fs.read_dir(dir).map_err(|error| LogError::io(dir, error))?;
    let mut segments: Vec<(Offset, u64)> = entries
        .iter()
        .filter_map(|entry| Some((parse_name(entry.name.to_str()?, LOG_SUFFIX)?, entry.len)))
        .collect();
    segments.sort_unstable();
    let mut report = VerifyReport { segments: segments.len(), ..VerifyReport::default() };
    for (index, (base, size_bytes)) in segments.iter().enumerate() {
        let next_base = segments.get(index + 1).map(|(base, _)| *base);
        let mut check = SegmentCheck { home: &home, base: *base, next_base, report: &mut report };
        check.run(*size_bytes)?;
    }
    Ok(report)
}

/// The verification of one segment.
struct SegmentCheck<'a> {
    home: &'a Home,
    base: Offset,
    next_base: Option<Offset>,
    report: &'a mut VerifyReport,
}

impl SegmentCheck<'_> {
    fn run(&mut self, size_bytes: u64) -> Result<(), LogError> {
        let path = self.home.log_path(self.base);
        let file = self.home.fs.open(&path, OpenMode::Read).map_err(|error| LogError::io(&path, error))?;
        let entries = self.read_index()?;
        let mut expected_entries = entries.iter().peekable();
        let mut cursor = IndexCursor::at(self.base, IndexEntry::START, u32::MAX);
        let mut scan = BatchScan::new(&*file, self.base, self.base, 0, size_bytes);
        let end = loop {
            while let Some(entry) =
                expected_entries.next_if(|entry| u64::from(entry.position) <= cursor.position)
            {
                self.compare(entry, &cursor, scan.expected());
            }
            match scan.next_batch() {
                Ok(None) => break scan.expected(),
                Ok(Some(batch)) => {
                    self.count(&scan, &batch).map_err(|error| LogError::io(&path, error))?;
                    cursor.pass(&batch.header, &batch.stamp);
                }
                Err(ScanStop::Io(error)) => return Err(LogError::io(&path, error)),
                Err(ScanStop::Damage { position, what }) => {
                    self.find(path.clone(), position, what);
                    if !resume(&mut scan, &path)? {
                        return Ok(());
                    }
                    // Running checksums say nothing any more.
                    expected_entries = [].iter().peekable();
                }
            }
        };
        self.check_end(entries.last(), &cursor, end);
        Ok(())
    }

    fn find(&mut self, path: PathBuf, position: u64, what: impl Into<String>) {
        self.report.findings.push(Finding { path, position, what: what.into() });
    }

    fn compare(&mut self, entry: &IndexEntry, cursor: &IndexCursor, next_offset: Offset) {
        let path = self.home.index_path(self.base);
        let offset = self.base.plus(i64::from(entry.relative_offset));
        if u64::from(entry.position) != cursor.position {
            self.find(path, u64::from(entry.position), "an entry that points into a batch");
        } else if entry.running_checksum != cursor.running_checksum {
            let what = "the batches before are not those that were written (running checksum)";
            self.find(self.home.log_path(self.base), cursor.position, what);
        } else if offset < next_offset || entry.max_timestamp < cursor.max_timestamp {
            self.find(path, u64::from(entry.position), "an entry that contradicts the batches before it");
        }
    }

    fn check_end(&mut self, last: Option<&IndexEntry>, cursor: &IndexCursor, end: Offset) {
        let log_path = self.home.log_path(self.base);
        let indexed = last.map_or(0, |entry| u64::from(entry.position));
        if indexed > cursor.position {
            let what = format!("ends here, where the index goes on to {indexed}");
            self.find(log_path, cursor.position, what);
            return;
        }
        let Some(next_base) = self.next_base else { return };
        if indexed < cursor.position {
            self.find(
                self.home.index_path(self.base),
                indexed,
                "the index of a complete segment lacks its end",
            );
        }
        let indexed_end = last.map_or(end, |entry| self.base.plus(i64::from(entry.relative_offset)));
        if end > next_base || indexed_end != next_base {
            let what = format!("ends at offset {indexed_end}, and the next segment begins at {next_base}");
            self.find(log_path, cursor.position, what);
        }
    }

    /// Counts a batch and walks its records.
    fn count(&mut self, scan: &BatchScan<'_>, batch: &ScannedBatch) -> io::Result<()> {
        let bytes = scan.bytes_of(batch)?;
        match count_records(&bytes) {
            Ok(records) => {
                self.report.batches += 1;
                self.report.records += records;
                self.report.bytes += bytes.len() as u64;
            }
            Err(error) => self.find(self.home.log_path(self.base), batch.position, error.to_string()),
        }
        Ok(())
    }

    /// The index's entries, as far as they are intact.
    fn read_index(&mut self) -> Result<Vec<IndexEntry>, LogError> {
        let path = self.home.index_path(self.base);
        let file = match self.home.fs.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.find(path, 0, "the index is missing");
                return Ok(Vec::new());
            }
            file => file.map_err(|error| LogError::io(&path, error))?,
        };
        let bytes = read_all(&*file).map_err(|error| LogError::io(&path, error))?;
        let header = self.home.index_header(self.base);
        let Some((head, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            self.find(path, 0, "the index has no header");
            return Ok(Vec::new());
        };
        if let Err(error) = header.check(head) {
            self.find(path, 0, error.to_string());
            return Ok(Vec::new());
        }
        let codec = header.codec();
        let mut entries = Vec::new();
        for (number, chunk) in (0_u32..).zip(body.chunks(ENTRY_BYTES)) {
            match codec.decode(number, chunk) {
                Ok(entry) => entries.push(entry),
                Err(error) => {
                    self.find(path, entry_position(number), error.to_string());
                    break;
                }
            }
        }
        Ok(entries)
    }
}

fn read_all(file: &dyn File) -> io::Result<Vec<u8>> {
    let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn count_records(bytes: &[u8]) -> Result<u64, BatchError> {
    let batch = UnverifiedBatch::only(bytes)?.verify()?;
    let records = batch.records()?;
    let mut count = 0;
    for record in &records {
        record?;
        count += 1;
    }
    Ok(count)
}

/// Goes on behind damage, where a batch is intact again.
fn resume(scan: &mut BatchScan<'_>, path: &Path) -> Result<bool, LogError> {
    match scan.skip_damage() {
        Ok(found) => Ok(found),
        Err(ScanStop::Io(error)) => Err(LogError::io(path, error)),
        Err(ScanStop::Damage { .. }) => Ok(false),
    }
}

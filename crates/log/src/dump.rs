//! `riverrun log dump`: the batches of one `.log` file, in order, without an index and without a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::{Env, File, OpenMode};
use riverrun_records::BatchHeader;
use riverrun_types::Offset;

use crate::error::LogError;
use crate::file_names::{LOG_SUFFIX, parse_name};
use crate::scan::{BatchScan, ScanStop};

/// One batch of a dumped file.
#[derive(Clone, Debug)]
pub struct DumpedBatch {
    /// Its position in the file.
    pub position: u64,
    /// Its header.
    pub header: BatchHeader,
    /// All its bytes, for callers that want the records.
    pub bytes: Vec<u8>,
}

/// The batches of one file. Ends after the first error, which names the position.
#[derive(Debug)]
pub struct SegmentDump {
    path: PathBuf,
    file: Arc<dyn File>,
    base_offset: Offset,
    expected: Offset,
    position: u64,
    end: u64,
}

impl SegmentDump {
    /// Opens the file at `path`. Its name has the offset at which it begins; a file of another name is read all the
    /// same.
    pub fn open(env: &Env, path: &Path) -> Result<Self, LogError> {
        let io = |error| LogError::io(path, error);
        let file = env.fs.open(path, OpenMode::Read).map_err(io)?;
        let name = path.file_name().and_then(|name| name.to_str());
        let base_offset = name.and_then(|name| parse_name(name, LOG_SUFFIX)).unwrap_or(Offset::ZERO);
        let end = file.len().map_err(io)?;
        Ok(Self { path: path.to_path_buf(), file, base_offset, expected: base_offset, position: 0, end })
    }

    fn read(&mut self) -> Result<Option<DumpedBatch>, ScanStop> {
        let mut scan = BatchScan::new(&*self.file, self.base_offset, self.expected, self.position, self.end);
        let Some(batch) = scan.next_batch()? else { return Ok(None) };
        let bytes = scan.bytes_of(&batch)?;
        self.expected = scan.expected();
        self.position = scan.position();
        Ok(Some(DumpedBatch { position: batch.position, header: batch.header, bytes }))
    }
}

impl Iterator for SegmentDump {
    type Item = Result<DumpedBatch, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.read() {
            Ok(batch) => batch.map(Ok),
            Err(stop) => {
                self.position = self.end;
                Some(Err(match stop {
                    ScanStop::Io(error) => LogError::io(&self.path, error),
                    ScanStop::Damage { position, what, .. } => LogError::corrupt(&self.path, position, what),
                }))
            }
        }
    }
}

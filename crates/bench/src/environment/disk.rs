//! The disk at its best: long sequential writes, and single blocks that are synced one by one.
//!
//! The second is the floor under every synced ack: one writer, one block, one sync at a time.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use riverrun_measure::histogram::{Latencies, LatencySummary};
use serde::Serialize;

/// Bytes of one write of the sequential measurement.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes of a block that is written and synced alone.
const BLOCK_BYTES: usize = 4096;
/// Blocks of the file that the second measurement writes over and over.
const BLOCKS: u64 = 2048;
/// Name of the file, which is removed again.
const FILE_NAME: &str = "riverrun-bench-disk.tmp";

/// Bytes and time that a measurement may take.
#[derive(Clone, Copy, Debug)]
pub struct DiskMeasurement {
    /// Most bytes of the sequential file.
    pub sequential_bytes: u64,
    /// Longest time of each of the two measurements.
    pub time: Duration,
}

impl Default for DiskMeasurement {
    fn default() -> Self {
        Self { sequential_bytes: 512 << 20, time: Duration::from_secs(3) }
    }
}

/// Results of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DiskFigures {
    /// Bytes of the sequential measurement.
    pub sequential_bytes: u64,
    /// Rate of writing them one after the other, the sync at the end included.
    pub sequential_bytes_per_s: f64,
    /// Rate of the same writes without the sync: the speed at which one thread fills the page cache, which no ack at an
    /// async level can beat. It is low on a virtual machine that gets its memory only when that is first touched.
    pub page_cache_bytes_per_s: f64,
    /// Time to overwrite 4 KiB and sync them.
    pub sync_4k: LatencySummary,
}

impl DiskMeasurement {
    /// Measures the disk under `directory`, which exists, with a file that is removed afterwards.
    pub fn run(&self, directory: &Path) -> io::Result<DiskFigures> {
        let path = directory.join(FILE_NAME);
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
        let removed = Removed(&path);
        let (sequential_bytes, cached, synced) = self.sequential(&file)?;
        let sync_4k = self.blocks(&file)?;
        drop(removed);
        let rate = |time: Duration| sequential_bytes as f64 / time.as_secs_f64();
        Ok(DiskFigures {
            sequential_bytes,
            sequential_bytes_per_s: rate(synced),
            page_cache_bytes_per_s: rate(cached),
            sync_4k,
        })
    }

    /// Bytes written, the time until the last of them was in the page cache, and the time until all were on the disk.
    fn sequential(&self, mut file: &File) -> io::Result<(u64, Duration, Duration)> {
        let chunk = vec![b'r'; CHUNK_BYTES];
        let begun = Instant::now();
        let mut written = 0;
        while written < self.sequential_bytes.max(BLOCKS * BLOCK_BYTES as u64) {
            file.write_all(&chunk)?;
            written += chunk.len() as u64;
            if begun.elapsed() > self.time && written >= BLOCKS * BLOCK_BYTES as u64 {
                break;
            }
        }
        let cached = begun.elapsed();
        file.sync_all()?;
        Ok((written, cached, begun.elapsed()))
    }

    /// Overwrites blocks that were written and synced before, so that nothing but the blocks has to reach the disk.
    fn blocks(&self, file: &File) -> io::Result<LatencySummary> {
        let block = vec![b'b'; BLOCK_BYTES];
        let mut latencies = Latencies::new();
        let begun = Instant::now();
        for number in 0..BLOCKS {
            let one = Instant::now();
            file.write_all_at(&block, number * BLOCK_BYTES as u64)?;
            file.sync_data()?;
            latencies.record(one.elapsed());
            if begun.elapsed() > self.time {
                break;
            }
        }
        Ok(latencies.summary())
    }
}

/// Removes a file when it is dropped.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(self.0) {
            tracing::warn!(%error, "{} stays behind", self.0.display());
        }
    }
}

impl fmt::Display for DiskFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequential_bytes_per_s, page_cache_bytes_per_s, sync_4k, .. } = self;
        write!(
            f,
            "{:.0} MB/s sequential, {:.0} MB/s into the page cache; 4 KiB write and sync: p50 {} us, p99 {} us, max {} us",
            sequential_bytes_per_s / 1e6,
            page_cache_bytes_per_s / 1e6,
            sync_4k.p50_us,
            sync_4k.p99_us,
            sync_4k.max_us
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_measured_and_the_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let measurement = DiskMeasurement { sequential_bytes: 4 << 20, time: Duration::from_millis(50) };
        let figures = measurement.run(dir.path()).unwrap();
        assert!(figures.sequential_bytes >= 4 << 20 && figures.sequential_bytes_per_s > 0.0, "{figures:?}");
        assert!(figures.page_cache_bytes_per_s >= figures.sequential_bytes_per_s, "{figures:?}");
        assert!(figures.sync_4k.count > 0 && figures.sync_4k.max_us > 0, "{figures:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(measurement.run(&dir.path().join("missing")).is_err());
    }
}

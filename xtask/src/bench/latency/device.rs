//! The device's own time for a synced write of one block: the floor under every synced ack.
//!
//! Writes go to the journal's directory, and are made like the journal's: to a file that was filled with zeros and
//! synced before, one block after another, aligned.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::fs::OFlags;
use rustix::io::{ReadWriteFlags, pwritev2};

/// Blocks of the file; after the last one, writing begins anew at the first.
const BLOCKS: u64 = 4096;

/// The way in which a write becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Past the page cache, with a flag that makes the write a synced one.
    DirectDsync,
    /// Through the page cache, and a sync after it.
    BufferedFdatasync,
}

impl Method {
    pub(super) const ALL: [Self; 2] = [Self::DirectDsync, Self::BufferedFdatasync];

    /// Its name in the server's option.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::DirectDsync => "direct",
            Self::BufferedFdatasync => "buffered",
        }
    }
}

/// A file to measure with.
///
/// Invariants: all of its blocks were written and synced before; it is removed when this is dropped.
pub(super) struct Device {
    path: PathBuf,
    file: File,
    method: Method,
    /// Bytes of a write, and the alignment of its position and memory.
    block_bytes: usize,
    /// Memory with an aligned block in it.
    memory: Vec<u8>,
    next: u64,
}

impl Device {
    /// Makes the file in `dir`, which lies on the device.
    pub(super) fn open(dir: &Path, method: Method, block_bytes: usize) -> anyhow::Result<Self> {
        let path = dir.join(format!("device-{}", method.name()));
        zero(&path, block_bytes)?;
        let mut options = OpenOptions::new();
        options.write(true);
        if method == Method::DirectDsync {
            options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        }
        let file = options.open(&path).with_context(|| format!("{} with {method:?}", path.display()))?;
        Ok(Self { path, file, method, block_bytes, memory: vec![b'd'; 2 * block_bytes], next: 0 })
    }

    /// One write and its sync.
    pub(super) fn write(&mut self) -> anyhow::Result<Duration> {
        let block_bytes = self.block_bytes;
        let misaligned = self.memory.as_ptr().addr() % block_bytes;
        let first = if misaligned == 0 { 0 } else { block_bytes - misaligned };
        let block = [IoSlice::new(&self.memory[first..first + block_bytes])];
        let offset = self.next % BLOCKS * block_bytes as u64;
        self.next += 1;
        let flags = match self.method {
            Method::DirectDsync => ReadWriteFlags::DSYNC,
            Method::BufferedFdatasync => ReadWriteFlags::empty(),
        };
        let begun = Instant::now();
        let written = pwritev2(&self.file, &block, offset, flags)?;
        if self.method == Method::BufferedFdatasync {
            rustix::fs::fdatasync(&self.file)?;
        }
        let elapsed = begun.elapsed();
        anyhow::ensure!(written == block_bytes, "only {written} bytes were written");
        Ok(elapsed)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // The whole directory is removed soon anyway.
        drop(std::fs::remove_file(&self.path));
    }
}

fn zero(path: &Path, block_bytes: usize) -> anyhow::Result<()> {
    let mut file = File::create(path)?;
    let zeros = vec![0; block_bytes * 256];
    for _ in 0..BLOCKS / 256 {
        file.write_all(&zeros)?;
    }
    Ok(file.sync_all()?)
}

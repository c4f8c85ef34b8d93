//! A probe of the server's disk: a small write and its sync at short intervals, beside everything else.
//!
//! An ack waits for a sync, so no honest client is served faster than the disk syncs. Machines share disks, and a disk
//! in an image is served by the kernel's threads: now and then a sync takes a second while next to nothing is written.
//! The probe tells such a stall from one that the server causes, by the bytes that the device wrote meanwhile. A stall
//! counts as the disk's own if these were less than half of what the disk can take, which is measured when the probe
//! starts.

use std::fs::{self, File};
use std::io::Write;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use riverrun_measure::threads::own_held_up;

/// Time between two syncs.
const INTERVAL: Duration = Duration::from_millis(20);

const WRITE_BYTES: usize = 4096;

/// Bytes that `measure_rate` writes and syncs.
const RATE_BYTES: usize = 128 << 20;
const RATE_PIECE_BYTES: usize = 1 << 20;

/// Bytes of a sector in the kernel's statistics of any device.
const SECTOR_BYTES: u64 = 512;

/// Index of the sectors written among a device's statistics.
const SECTORS_WRITTEN_FIELD: usize = 6;

/// One sync of the probe.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sync {
    /// Duration, without the time for which the probe's thread had no processor.
    pub(super) took: Duration,
    /// Bytes per second that the device wrote meanwhile, for all processes.
    pub(super) written_bytes_per_second: f64,
}

/// The syncs of the probe since the last call of `slowest`.
#[derive(Debug, Default)]
struct Seen {
    slowest: Sync,
    /// The running sync.
    begun: Option<(Instant, u64)>,
}

/// A thread that syncs until this is dropped.
pub(super) struct DiskProbe {
    seen: Arc<Mutex<Seen>>,
    device: Device,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
    /// Bytes per second that the disk can take.
    rate: f64,
}

impl DiskProbe {
    /// Probes the device below `dir` with a file there.
    pub(super) fn start(dir: &Path) -> anyhow::Result<Self> {
        let device = Device::below(dir)?;
        let path = dir.join("probe");
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        let rate = measure_rate(&file)?;
        let (seen, ends) = (Arc::new(Mutex::new(Seen::default())), Arc::new(AtomicBool::new(false)));
        let prober =
            Prober { file, device: device.clone(), seen: Arc::clone(&seen), ends: Arc::clone(&ends) };
        let thread = thread::Builder::new().name("disk-probe".into()).spawn(move || prober.run())?;
        Ok(Self { seen, device, ends, thread: Some(thread), path, rate })
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// The slowest sync since the last call, a running one included.
    pub(super) fn slowest(&self) -> Sync {
        let mut seen = lock(&self.seen);
        let slowest = std::mem::take(&mut seen.slowest);
        let under_way = seen.begun.map(|begun| self.device.sync_since(begun, Duration::ZERO));
        under_way.into_iter().fold(slowest, Sync::slower)
    }

    /// Whether the disk was slow by itself.
    pub(super) fn is_own_stall(&self, sync: Sync) -> bool {
        sync.written_bytes_per_second < self.rate / 2.0
    }
}

impl Drop for DiskProbe {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A probe that has panicked sees no more stalls, so it excuses none.
            drop(thread.join());
        }
        drop(fs::remove_file(&self.path));
    }
}

impl Sync {
    fn slower(self, other: Self) -> Self {
        if other.took > self.took { other } else { self }
    }
}

/// State of the probe's thread.
struct Prober {
    file: File,
    device: Device,
    seen: Arc<Mutex<Seen>>,
    ends: Arc<AtomicBool>,
}

impl Prober {
    fn run(self) {
        while !self.ends.load(Ordering::Relaxed) {
            thread::sleep(INTERVAL);
            let begun = (Instant::now(), self.device.written_bytes());
            let held_up = own_held_up();
            lock(&self.seen).begun = Some(begun);
            let done = self.file.write_all_at(&[0; WRITE_BYTES], 0).and_then(|()| self.file.sync_data());
            let held_up = own_held_up().saturating_sub(held_up);
            let sync = self.device.sync_since(begun, held_up);
            let mut seen = lock(&self.seen);
            seen.begun = None;
            if done.is_ok() {
                seen.slowest = seen.slowest.slower(sync);
            }
        }
    }
}

/// A block device, known by its statistics.
#[derive(Clone, Debug)]
struct Device {
    statistics: PathBuf,
}

impl Device {
    fn below(dir: &Path) -> anyhow::Result<Self> {
        let number = fs::metadata(dir)?.st_dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let statistics = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        ensure!(
            statistics.exists(),
            "{} lies on no block device: {} is not there",
            dir.display(),
            statistics.display()
        );
        Ok(Self { statistics })
    }

    /// Bytes written since the machine was started; 0 for a device without statistics.
    fn written_bytes(&self) -> u64 {
        fs::read_to_string(&self.statistics)
            .ok()
            .and_then(|text| parse_written_bytes(&text))
            .unwrap_or_default()
    }

    /// The sync that began at `begun`, when the device had written `written_bytes`.
    fn sync_since(&self, (begun, written_bytes): (Instant, u64), held_up: Duration) -> Sync {
        let elapsed = begun.elapsed();
        let written_bytes = self.written_bytes().saturating_sub(written_bytes);
        let written_bytes_per_second = written_bytes as f64 / elapsed.as_secs_f64().max(f64::EPSILON);
        Sync { took: elapsed.saturating_sub(held_up), written_bytes_per_second }
    }
}

fn parse_written_bytes(statistics: &str) -> Option<u64> {
    let sectors = statistics.split_whitespace().nth(SECTORS_WRITTEN_FIELD)?.parse::<u64>().ok()?;
    Some(sectors * SECTOR_BYTES)
}

/// Writes and syncs, and truncates the file again.
fn measure_rate(mut file: &File) -> anyhow::Result<f64> {
    let piece = vec![1; RATE_PIECE_BYTES];
    let begun = Instant::now();
    for _ in 0..RATE_BYTES / RATE_PIECE_BYTES {
        file.write_all(&piece)?;
    }
    file.sync_data()?;
    let rate = RATE_BYTES as f64 / begun.elapsed().as_secs_f64();
    file.set_len(WRITE_BYTES as u64)?;
    file.sync_data()?;
    Ok(rate)
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_written_are_read_from_device_statistics() {
        let text = "   31959     5049  1544994     8593     6194     7654   701520     6884       47\n";
        assert_eq!(parse_written_bytes(text), Some(701_520 * 512));
        assert_eq!(parse_written_bytes(""), None);
    }

    #[test]
    fn probe_returns_the_slowest_sync_once() {
        let (dir, seen) = (std::env::temp_dir(), Arc::new(Mutex::new(Seen::default())));
        let device = Device { statistics: dir.join("riverrun-no-such-statistics") };
        let path = dir.join("riverrun-no-such-probe");
        let probe = DiskProbe { seen, device, ends: Arc::default(), thread: None, path, rate: 100.0 };
        let slow = Sync { took: Duration::from_secs(1), written_bytes_per_second: 49.0 };
        lock(&probe.seen).slowest = slow;
        assert_eq!(probe.slowest(), slow);
        assert_eq!(probe.slowest(), Sync::default());
        lock(&probe.seen).begun = Some((Instant::now(), 0));
        thread::sleep(Duration::from_millis(5));
        assert!(probe.slowest().took >= Duration::from_millis(5));
        assert!(probe.is_own_stall(slow));
        assert!(!probe.is_own_stall(Sync { written_bytes_per_second: 51.0, ..slow }));
    }
}

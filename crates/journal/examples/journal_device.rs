//! Measures the cost of one synced write on a device, by size and method, and the cost that a journal adds.
//!
//! `cargo run --profile dist -p riverrun-journal --example journal_device -- DIR [ROUNDS]`
//!
//! Writes blocks of four sizes into a file of synced zeros, by `O_DIRECT` with `RWF_DSYNC` and by a write and
//! `fdatasync` in turn, so that both meet the same moods of the device; then stores entries of the same sizes one at a
//! time in a journal, and last fills one and reads it as a restart does. Prints percentiles in microseconds.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use riverrun_env::{AlignedBuffer, Env, OpenMode};
use riverrun_journal::{
    EntryHeader, EntryKind, EntryOwner, Journal, JournalError, JournalOptions, StoredEntry, StreamId,
    Submission, SyncMethod, Wants,
};
use riverrun_types::{LeaderEpoch, Offset};

const SIZES: [usize; 4] = [4 << 10, 16 << 10, 128 << 10, 512 << 10];
const FILE_BYTES: usize = 64 << 20;
const METHODS: [SyncMethod; 2] = [SyncMethod::DirectDsync, SyncMethod::BufferedFdatasync];

const HEADER: EntryHeader = EntryHeader {
    stream: StreamId([1; 20]),
    kind: EntryKind::Records,
    index: 0,
    cuts: 1,
    base_offset: Offset(0),
    leader_epoch: LeaderEpoch(1),
};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().context("a directory on the device is needed")?);
    let rounds = arguments.next().map_or(Ok(1000), |rounds| rounds.parse())?;
    let env = Env::real();
    env.fs.create_dir_all(&dir)?;
    println!("write and sync of a preallocated file, {rounds} rounds");
    for bytes in SIZES {
        let times = device_times(&env, &dir, bytes, rounds)?;
        for (method, times) in METHODS.into_iter().zip(times) {
            print_line(bytes, &format!("{method:?}"), times);
        }
    }
    println!("one entry at a time through a journal, from submission to the owner, first 100 left out");
    for bytes in SIZES {
        for method in METHODS {
            let times = journal_times(&env, &dir.join("journal"), bytes - 200, rounds, method)?;
            print_line(bytes, &format!("{method:?}"), times);
            env.fs.remove_dir_all(&dir.join("journal"))?;
        }
    }
    restart_time(&env, &dir.join("journal"))?;
    env.fs.remove_dir_all(&dir.join("journal"))?;
    Ok(())
}

/// Fills a journal of the default size with entries of a few sizes, and reads it as a restart would.
fn restart_time(env: &Env, dir: &Path) -> anyhow::Result<()> {
    let options = JournalOptions::default();
    let (journal, _) = Journal::open(env, dir, options)?;
    let (sender, told) = sync_channel(64);
    let owner = Arc::new(Owner(sender));
    let mut submitted = 0;
    let start = env.clock.monotonic();
    while journal.used_bytes() < options.bytes - 2 * options.file_bytes {
        for _ in 0..64 {
            let payload = vec![7; 500 + submitted % 16 * 1000].into();
            journal.submit(Submission {
                header: HEADER,
                payload,
                wants: Wants::Sync,
                owner: owner.clone(),
            })?;
            submitted += 1;
        }
        for _ in 0..64 {
            anyhow::ensure!(told.recv()?, "not synced");
        }
    }
    println!("{submitted} entries written in {} ms", env.clock.monotonic().saturating_sub(start).as_millis());
    drop(journal);
    let start = env.clock.monotonic();
    let (_journal, mut replay) = Journal::open(env, dir, options)?;
    let opened = env.clock.monotonic().saturating_sub(start);
    let mut found = 0;
    while let Some(entries) = replay.next()? {
        found += entries.len();
    }
    let read = env.clock.monotonic().saturating_sub(start);
    println!(
        "{found} entries found again: opened in {} ms, read in {} ms",
        opened.as_millis(),
        read.as_millis()
    );
    Ok(())
}

fn print_line(bytes: usize, method: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_micros();
    println!("{:>6} KiB  {method:<18} p50 {:>6}  p99 {:>6}  max {:>6}", bytes >> 10, at(50), at(99), at(100));
}

/// Times by method, taken in turn.
fn device_times(env: &Env, dir: &Path, bytes: usize, rounds: usize) -> anyhow::Result<[Vec<Duration>; 2]> {
    let paths = [dir.join("direct"), dir.join("buffered")];
    let mut buffer = AlignedBuffer::zeroed(bytes, 4096);
    for path in &paths {
        let file = env.fs.open(path, OpenMode::CreateOrOpen)?;
        let zeros = vec![0; 1 << 20];
        for at in (0..FILE_BYTES).step_by(zeros.len()) {
            file.write_all_at(&zeros, at as u64)?;
        }
        file.sync_all()?;
    }
    buffer.fill(7);
    let files = [env.fs.open_direct(&paths[0])?, env.fs.open(&paths[1], OpenMode::ReadWrite)?];
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        let at = (round * bytes % FILE_BYTES) as u64;
        times[0].push(time(env, || files[0].write_durable_at(&buffer, at))?);
        times[1].push(time(env, || {
            files[1].write_all_at(&buffer, at)?;
            files[1].sync_data()
        })?);
    }
    for path in &paths {
        env.fs.remove_file(path)?;
    }
    Ok(times)
}

fn time(env: &Env, run: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<Duration> {
    let start = env.clock.monotonic();
    run()?;
    Ok(env.clock.monotonic().saturating_sub(start))
}

struct Owner(SyncSender<bool>);

impl EntryOwner for Owner {
    fn stored(&self, entry: StoredEntry<'_>) {
        let _ = self.0.send(entry.is_synced);
    }

    fn failed(&self, _header: &EntryHeader, _error: &JournalError) {
        let _ = self.0.send(false);
    }
}

fn journal_times(
    env: &Env,
    dir: &Path,
    bytes: usize,
    rounds: usize,
    sync_method: SyncMethod,
) -> anyhow::Result<Vec<Duration>> {
    let (journal, _) = Journal::open(env, dir, JournalOptions { sync_method, ..JournalOptions::default() })?;
    let (sender, told) = sync_channel(1);
    let owner = Arc::new(Owner(sender));
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds + 100 {
        let payload = vec![7; bytes].into();
        let submission = Submission { header: HEADER, payload, wants: Wants::Sync, owner: owner.clone() };
        let start = env.clock.monotonic();
        journal.submit(submission)?;
        anyhow::ensure!(told.recv()?, "not synced");
        if round >= 100 {
            times.push(env.clock.monotonic().saturating_sub(start));
        }
        journal.settle_to(journal.delivered());
    }
    let metrics = journal.metrics();
    println!(
        "           mean: queueing {} us, writing {} us, syncing {} us",
        metrics.queueing.sum_us / metrics.queueing.count(),
        metrics.writing.sum_us / metrics.writing.count(),
        metrics.syncing.sum_us / metrics.syncing.count()
    );
    journal.close()?;
    Ok(times)
}

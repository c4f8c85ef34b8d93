//! Measures a journal under steady load: while its files are made, and once they are used again.
//!
//! `cargo run --profile dist -p riverrun-journal --example journal_load -- DIR [ENTRY_BYTES [IN_FLIGHT [PASSES]]]`
//!
//! Submits synced entries of one size, so many in flight, and settles three quarters of the journal behind. A pass is
//! as much as the journal holds: the first one makes its files. Prints for each pass MB a second, times from submission
//! to the owner in microseconds, and seconds of the processor for each GB.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use riverrun_env::Env;
use riverrun_journal::{
    EntryHeader, EntryKind, EntryOwner, Journal, JournalError, JournalOptions, Position, StoredEntry,
    StreamId, Submission, Wants,
};
use riverrun_types::{LeaderEpoch, Offset};

struct Owner(SyncSender<Option<Bytes>>);

impl EntryOwner for Owner {
    fn stored(&self, entry: StoredEntry<'_>) {
        let _ = self.0.send(Some(entry.payload).filter(|_| entry.is_synced));
    }

    fn failed(&self, _header: &EntryHeader, _error: &JournalError) {
        let _ = self.0.send(None);
    }
}

/// A load on one journal. Entries are told in the order in which they were submitted.
struct Load {
    env: Env,
    journal: Journal,
    owner: Arc<Owner>,
    told: Receiver<Option<Bytes>>,
    payload: Bytes,
    in_flight: usize,
    /// The payloads that a broker would keep until they are settled.
    kept: Vec<Bytes>,
}

impl Load {
    fn submit(&self) -> anyhow::Result<Duration> {
        let header = EntryHeader {
            stream: StreamId([1; 20]),
            kind: EntryKind::Records,
            index: 0,
            cuts: 1,
            base_offset: Offset(0),
            leader_epoch: LeaderEpoch(1),
        };
        let at = self.env.clock.monotonic();
        self.journal.submit(Submission {
            header,
            payload: self.payload.clone(),
            wants: Wants::Sync,
            owner: self.owner.clone(),
        })?;
        Ok(at)
    }

    /// Stores `bytes`, and returns the time that each entry took.
    fn pass(&mut self, bytes: u64) -> anyhow::Result<Vec<Duration>> {
        let count = usize::try_from(bytes)? / self.payload.len();
        let mut submitted = Vec::with_capacity(count);
        let mut times = Vec::with_capacity(count);
        let lag = JournalOptions::default().bytes / 4 * 3;
        let kept_max = usize::try_from(lag)? / 12;
        while times.len() < count {
            while submitted.len() < count && submitted.len() - times.len() < self.in_flight {
                submitted.push(self.submit()?);
            }
            let payload = self.told.recv()?.context("not synced")?;
            self.kept.push(payload);
            times.push(self.env.clock.monotonic().saturating_sub(submitted[times.len()]));
            if self.kept.len() * self.payload.len() >= kept_max {
                self.kept.clear();
                self.journal.settle_to(Position(self.journal.delivered().0.saturating_sub(lag)));
            }
        }
        Ok(times)
    }
}

/// Seconds that this process has spent in its own code and in the kernel.
fn processor_seconds() -> anyhow::Result<(f64, f64)> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(") ").next().context("a name")?.split(' ').collect();
    // Counted in hundredths of a second, whatever the kernel's own clock.
    let seconds = |at: usize| -> anyhow::Result<f64> { Ok(fields[at].parse::<f64>()? / 100.0) };
    Ok((seconds(11)?, seconds(12)?))
}

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().context("a directory on the device is needed")?);
    let mut number = |default| arguments.next().map_or(Ok(default), |number| number.parse::<usize>());
    let (entry_bytes, in_flight, passes) = (number(16 << 10)?, number(256)?, number(3)?);
    let env = Env::real();
    let options = JournalOptions::default();
    let (journal, _) = Journal::open(&env, &dir, options)?;
    let (sender, told) = sync_channel(in_flight);
    let payload = vec![7; entry_bytes].into();
    let owner = Arc::new(Owner(sender));
    let mut load = Load { env: env.clone(), journal, owner, told, payload, in_flight, kept: Vec::new() };
    println!("{in_flight} entries of {entry_bytes} bytes in flight, synced");
    for pass in 1..=passes {
        let (start, before) = (env.clock.monotonic(), processor_seconds()?);
        let mut times = load.pass(options.bytes)?;
        let (end, after) = (env.clock.monotonic(), processor_seconds()?);
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_micros();
        let gigabytes = Duration::from_nanos(options.bytes).as_secs_f64();
        println!(
            "pass {pass}: {:>4.0} MB/s  p50 {:>6}  p99 {:>6}  max {:>6}  user {:.2} s/GB  kernel {:.2} s/GB",
            gigabytes * 1000.0 / end.saturating_sub(start).as_secs_f64(),
            at(50),
            at(99),
            at(100),
            (after.0 - before.0) / gigabytes,
            (after.1 - before.1) / gigabytes,
        );
    }
    load.journal.close()?;
    env.fs.remove_dir_all(&dir)?;
    Ok(())
}

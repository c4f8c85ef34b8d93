//! `riverrun queue bench`: producer -> queue [-> service -> queue ...] -> sink, in one process, paced.
//!
//! Latency counts from the instant at which a record was due, whether or not the producer kept up, and is
//! never clipped.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use riverrun_measure::histogram::Values;
use riverrun_measure::pacing::{Rate, Schedule};
use riverrun_measure::process::usage_of;
use riverrun_measure::text::number;
use riverrun_queue::{
    AppendOptions, BusySpin, CreateOptions, Durability, Park, Queue, QueueError, Retention, SpinThenYield,
    StartAt, Tailer, WaitStrategy,
};
use serde::Serialize;

use super::queue_failure;
use crate::exit::{Exit, Failure};
use crate::text::output::OutputArgs;

/// The greatest latency that has its place from the start, ten minutes: growing takes time of the thread that measures.
const EXPECTED_MAX_NS: u64 = 600_000_000_000;

/// How long a reader waits before it looks whether there is anything to wait for.
const LOOK_AROUND: Duration = Duration::from_millis(500);

/// How readers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Wait {
    /// Look again at once: for threads that have a core each
    Spin,
    /// Look some times, then let others run
    Yield,
    /// Look some times, then sleep until woken
    Park,
}

/// Flags of `queue bench`.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// Directory for the queues. Each is made in a directory of its own, which must not exist; these are removed after,
    /// and so are DIR and those above it if they did not exist
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Records a second; 0 for as many as go
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    rate: u64,
    /// How long; at rate 0, how many million records
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Bytes of a record's value
    #[arg(long, value_name = "BYTES", default_value_t = 512, value_parser = clap::value_parser!(u32).range(8..=1_000_000))]
    size: u32,
    /// Queues on the way
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    hops: u16,
    /// Threads that append to the first queue, each its part of the rate
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    appenders: u16,
    /// Threads that read the last queue, each all of it
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    tailers: u16,
    /// How readers wait
    #[arg(long, value_enum, default_value = "spin")]
    wait: Wait,
    /// Sync each append
    #[arg(long)]
    sync: bool,
    /// Bytes that each queue keeps
    #[arg(long, value_name = "BYTES", default_value_t = 2 << 30)]
    retention_bytes: u64,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Percentiles {
    p50: u64,
    p99: u64,
    p99_9: u64,
    p99_99: u64,
    max: u64,
}

#[derive(Serialize)]
struct Report {
    durability: &'static str,
    rate: u64,
    achieved: u64,
    size_bytes: u32,
    hops: u16,
    appenders: u16,
    tailers: u16,
    records: u64,
    /// Processor time of everything for each record.
    cpu_ns_per_record: u64,
    /// Memory that is no file's, when all was read.
    private_bytes: u64,
    publish_ns: Percentiles,
    end_to_end_ns: Percentiles,
}

impl From<&Values> for Percentiles {
    fn from(found: &Values) -> Self {
        let at = |percentile| found.percentile(percentile);
        Self { p50: at(50.0), p99: at(99.0), p99_9: at(99.9), p99_99: at(99.99), max: found.max() }
    }
}

pub(super) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let dirs: Vec<PathBuf> = (0..args.hops).map(|hop| args.dir.join(format!("bench-{hop}"))).collect();
    if let Some(dir) = dirs.iter().find(|dir| dir.exists()) {
        return Err(Failure::new(Exit::Conflict, format!("{} is there already", dir.display())));
    }
    let above = missing(&args.dir);
    let measured = measure(args, &dirs);
    for dir in &dirs {
        // A queue that was not made need not be removed, and a failed removal is reported below.
        if let Err(error) = std::fs::remove_dir_all(dir)
            && measured.is_ok()
        {
            return Err(Failure::io(dir.display(), &error));
        }
    }
    for dir in above {
        // A directory in which others have put files meanwhile stays.
        let _ = std::fs::remove_dir(dir);
    }
    args.output.print(&measured?, text)
}

/// The directory and those above it that are not there, and that the queues bring with them; the innermost first.
fn missing(dir: &Path) -> Vec<PathBuf> {
    let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    dir.ancestors().take_while(is_missing).map(Path::to_path_buf).collect()
}

fn measure(args: &BenchArgs, dirs: &[PathBuf]) -> Result<Report, Failure> {
    let made = dirs.iter().map(|dir| make(dir)).collect::<Result<Vec<Queue>, QueueError>>();
    let queues = made.map_err(|error| queue_failure(&error))?;
    let bench = Bench {
        args,
        share: share(args),
        epoch: Instant::now(),
        failed: AtomicBool::new(false),
        options: AppendOptions {
            durability: if args.sync { Durability::Sync } else { Durability::Async },
            retention: Retention { bytes: Some(args.retention_bytes), ..Retention::default() },
            ..AppendOptions::default()
        },
    };
    bench.run(&queues).map_err(|error| queue_failure(&error))
}

/// Records that each appender appends.
fn share(args: &BenchArgs) -> u64 {
    let count = if args.rate == 0 { args.seconds * 1_000_000 } else { args.rate * args.seconds };
    (count / u64::from(args.appenders)).max(1)
}

fn make(dir: &Path) -> Result<Queue, QueueError> {
    Queue::create(dir, CreateOptions { segment_bytes: 256 << 20 })
}

/// One measurement.
struct Bench<'a> {
    args: &'a BenchArgs,
    /// Records of one appender.
    share: u64,
    epoch: Instant,
    options: AppendOptions,
    /// Set when a part of the bench has failed, so that those who wait for its records end.
    failed: AtomicBool,
}

impl Bench<'_> {
    fn run(&self, queues: &[Queue]) -> Result<Report, QueueError> {
        std::thread::scope(|scope| {
            // A reader keeps its segment open, and retention stops there.
            let services: Vec<_> = queues
                .windows(2)
                .map(|pair| scope.spawn(|| self.note(self.serve(&pair[0], &pair[1]))))
                .collect();
            let last = &queues[queues.len() - 1];
            let sinks: Vec<_> =
                (0..self.args.tailers).map(|_| scope.spawn(|| self.note(self.sink(last)))).collect();
            let appenders: Vec<_> = (0..self.args.appenders)
                .map(|_| scope.spawn(|| self.note(self.produce(&queues[0]))))
                .collect();
            let (mut publishing, mut took) = (nanoseconds(), Duration::ZERO);
            for (found, time) in joined(appenders)? {
                publishing.merge(&found);
                took = took.max(time);
            }
            joined(services)?;
            let mut latency = nanoseconds();
            for found in joined(sinks)? {
                latency.merge(&found);
            }
            Ok(self.report(&publishing, &latency, took))
        })
    }

    fn report(&self, publishing: &Values, latency: &Values, took: Duration) -> Report {
        let records = self.count();
        // A figure that the system does not give is nought.
        let used = usage_of(std::process::id()).unwrap_or_default();
        let cpu_ns = u64::try_from(Duration::from_secs_f64(used.cpu_s).as_nanos()).unwrap_or(u64::MAX);
        Report {
            durability: if self.args.sync { "sync" } else { "async" },
            rate: self.args.rate,
            achieved: number::per_second(records, took),
            size_bytes: self.args.size,
            hops: self.args.hops,
            appenders: self.args.appenders,
            tailers: self.args.tailers,
            records,
            cpu_ns_per_record: cpu_ns / records,
            private_bytes: used.private_bytes,
            publish_ns: publishing.into(),
            end_to_end_ns: latency.into(),
        }
    }

    /// Records of all appenders.
    fn count(&self) -> u64 {
        self.share * u64::from(self.args.appenders)
    }

    fn note<T>(&self, outcome: Result<T, QueueError>) -> Result<T, QueueError> {
        if outcome.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        outcome
    }

    fn ns(&self) -> u64 {
        self.ns_at(Instant::now())
    }

    fn ns_at(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Records of the first fifth are not counted: memory is new to them.
    fn counts(index: u64, count: u64) -> bool {
        index >= count / 5
    }

    fn produce(&self, queue: &Queue) -> Result<(Values, Duration), QueueError> {
        let mut appender = queue.appender(self.options)?;
        let mut publishing = nanoseconds();
        let mut message = vec![0; self.args.size as usize];
        let begun = Instant::now();
        let rate = self.args.rate as f64 / f64::from(self.args.appenders);
        let schedule = Schedule::new(begun, Rate::per_second(rate));
        for index in 0..self.share {
            let due = self.wait_until_due(&schedule, index);
            message[..8].copy_from_slice(&due.to_le_bytes());
            let started = self.ns();
            appender.append(&message)?;
            if Self::counts(index, self.share) {
                publishing.record(self.ns() - started);
            }
        }
        Ok((publishing, begun.elapsed()))
    }

    /// Spins: a sleep wakes up later than most records take. Returns the time due, or now where nothing is paced.
    fn wait_until_due(&self, schedule: &Schedule, index: u64) -> u64 {
        let Some(due) = schedule.due(index) else { return self.ns() };
        let due = self.ns_at(due);
        while self.ns() < due {
            std::hint::spin_loop();
        }
        due
    }

    /// Reads every record, and gives it to `each`.
    fn read(
        &self,
        queue: &Queue,
        each: impl FnMut(u64, &[u8]) -> Result<(), QueueError>,
    ) -> Result<(), QueueError> {
        let tailer = queue.tailer(StartAt::Start)?;
        match self.args.wait {
            Wait::Spin => self.read_with(tailer, &mut BusySpin, each),
            Wait::Yield => self.read_with(tailer, &mut SpinThenYield::default(), each),
            Wait::Park => self.read_with(tailer, &mut Park::default(), each),
        }
    }

    fn read_with(
        &self,
        mut tailer: Tailer,
        strategy: &mut impl WaitStrategy,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), QueueError>,
    ) -> Result<(), QueueError> {
        let mut index = 0;
        while index < self.count() && !self.failed.load(Ordering::Relaxed) {
            if let Some(record) = tailer.wait(strategy, Some(LOOK_AROUND))? {
                each(index, record.value.unwrap_or_default())?;
                index += 1;
            }
        }
        Ok(())
    }

    fn serve(&self, from: &Queue, to: &Queue) -> Result<(), QueueError> {
        let mut appender = to.appender(self.options)?;
        self.read(from, |_, value| appender.append(value).map(|_| ()))
    }

    fn sink(&self, queue: &Queue) -> Result<Values, QueueError> {
        let mut latency = nanoseconds();
        self.read(queue, |index, value| {
            let due = value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            if Self::counts(index, self.count()) {
                latency.record(self.ns().saturating_sub(due));
            }
            Ok(())
        })?;
        Ok(latency)
    }
}

/// The results of all threads, or the first error among them.
fn joined<T>(
    threads: Vec<std::thread::ScopedJoinHandle<'_, Result<T, QueueError>>>,
) -> Result<Vec<T>, QueueError> {
    let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    };
    threads.into_iter().map(join).collect()
}

fn nanoseconds() -> Values {
    Values::with_room_to(EXPECTED_MAX_NS)
}

fn text(report: &Report) -> String {
    let line = |name: &str, found: &Percentiles| {
        format!(
            "{name} ns  p50 {}  p99 {}  p99.9 {}  p99.99 {}  max {}\n",
            found.p50, found.p99, found.p99_9, found.p99_99, found.max
        )
    };
    format!(
        "{} records of {} bytes, {}, {}: {} records/s, {} ns of processor time each\n{}{}",
        number::count(report.records),
        report.size_bytes,
        report.durability,
        number::counted(report.hops, "hop"),
        number::count(report.achieved),
        number::count(report.cpu_ns_per_record),
        line("publish   ", &report.publish_ns),
        line("end to end", &report.end_to_end_ns),
    )
}

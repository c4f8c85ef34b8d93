//! What the system knows of a process: processor time, memory, and how busy each of its threads is.
//!
//! Reads `/proc`, so it works on Linux only, as the server itself does. Processor time comes in clock ticks,
//! usually of 10 ms: fine for runs of seconds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use std::{fmt, fs};

use anyhow::Context;
use serde::Serialize;

/// Time between two looks at the threads of a process.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// A thread that has less of a processor than this is not busy.
const BUSY_SHARE: f64 = 0.1;

/// Index of the user time among the fields after a process's name; the system time follows it.
const USER_TIME_FIELD: usize = 11;

/// User and system time of a process since it began.
pub(crate) fn cpu_seconds(process: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{process}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("{path} cannot be read"))?;
    let ticks = parse_stat(&text).with_context(|| format!("{path} is not as expected"))?.ticks;
    Ok(seconds(ticks))
}

/// Memory of a process in bytes that lies in RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) resident_bytes: u64,
    /// The most that it ever was.
    pub(crate) peak_bytes: u64,
}

impl Memory {
    pub(crate) fn of(process: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{process}/status");
        let text = fs::read_to_string(&path).with_context(|| format!("{path} cannot be read"))?;
        parse_status(&text).with_context(|| format!("{path} is not as expected"))
    }
}

fn parse_status(text: &str) -> Option<Memory> {
    let bytes_of = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
    };
    Some(Memory { resident_bytes: bytes_of("VmRSS:")?, peak_bytes: bytes_of("VmHWM:")? })
}

#[derive(Debug, PartialEq, Eq)]
struct Stat<'a> {
    name: &'a str,
    ticks: u64,
}

/// A name may hold blanks and parentheses itself: it ends at the last one.
fn parse_stat(text: &str) -> Option<Stat<'_>> {
    let (begin, end) = (text.find('(')?, text.rfind(')')?);
    let fields: Vec<_> = text.get(end + 1..)?.split_whitespace().collect();
    let ticks_at = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = ticks_at(USER_TIME_FIELD)? + ticks_at(USER_TIME_FIELD + 1)?;
    Some(Stat { name: text.get(begin + 1..end)?, ticks })
}

/// How long a thread waited for a core: the second number of its `schedstat`, in nanoseconds.
fn parse_held_up(text: &str) -> Option<Duration> {
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// How long this thread has waited for a core since it began; nothing where the kernel does not tell.
pub(crate) fn own_held_up() -> Duration {
    fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| parse_held_up(&text))
        .unwrap_or_default()
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// The thread that had the most processor time, and its share of one core while it was watched.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct BusyThread {
    pub(super) name: String,
    pub(super) share: f64,
    /// The part of the time for which it could have run and did not get a core: others had them. What is left after this
    /// and `share`, it waited for something else.
    pub(super) held_up_share: f64,
}

impl fmt::Display for BusyThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, share, held_up_share } = self;
        write!(f, "{:.0}% (+{:.0}%) {name}", share * 100.0, held_up_share * 100.0)
    }
}

struct Sample {
    at: Duration,
    ticks: u64,
    held_up: Duration,
}

struct Thread {
    name: String,
    samples: Vec<Sample>,
}

/// Looks at all threads of one process from time to time.
///
/// Invariants: the samples of a thread ascend in time; a thread that ended keeps its last one.
pub(crate) struct ThreadSampler {
    begun: Instant,
    last: Option<Duration>,
    threads: BTreeMap<String, Thread>,
}

impl ThreadSampler {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), last: None, threads: BTreeMap::new() }
    }

    /// To be called often: looks only when [`SAMPLE_INTERVAL`] has passed.
    pub(crate) fn look(&mut self, process: u32) {
        let now = self.begun.elapsed();
        if self.last.is_some_and(|last| now < last + SAMPLE_INTERVAL) {
            return;
        }
        // A process or thread that has just ended has no more files: its last sample stands.
        let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { return };
        self.last = Some(now);
        for task in tasks.flatten() {
            if let Ok(text) = fs::read_to_string(task.path().join("stat"))
                && let Some(stat) = parse_stat(&text)
            {
                // A kernel that does not tell knows of no time lost.
                let held_up = fs::read_to_string(task.path().join("schedstat")).ok();
                let held_up = held_up.and_then(|text| parse_held_up(&text)).unwrap_or_default();
                self.add(task.file_name().to_string_lossy().into_owned(), now, &stat, held_up);
            }
        }
    }

    fn add(&mut self, id: String, at: Duration, stat: &Stat<'_>, held_up: Duration) {
        let fresh = || Thread { name: String::new(), samples: Vec::new() };
        let thread = self.threads.entry(id).or_insert_with(fresh);
        // Threads get their names after they begin, so the newest is the right one.
        stat.name.clone_into(&mut thread.name);
        thread.samples.push(Sample { at, ticks: stat.ticks, held_up });
    }

    /// Processor time of all threads, as far as it was seen.
    pub(super) fn cpu_seconds(&self) -> f64 {
        seconds(self.threads.values().filter_map(|thread| thread.samples.last()).map(|last| last.ticks).sum())
    }

    /// Threads that ran, or could have run, for more than a tenth of so many seconds: where there are more of them than cores,
    /// none runs for long, and all of them keep others waiting.
    pub(crate) fn busy_threads(&self, over_seconds: f64) -> usize {
        let wanted = |thread: &Thread| {
            let Some((first, last)) = thread.samples.first().zip(thread.samples.last()) else { return 0.0 };
            seconds(last.ticks - first.ticks) + last.held_up.saturating_sub(first.held_up).as_secs_f64()
        };
        self.threads.values().filter(|thread| wanted(thread) > over_seconds * BUSY_SHARE).count()
    }

    /// The busiest thread over the last `window` that was sampled, among those whose name `counts`; `None` if there
    /// were not two samples.
    pub(super) fn busiest(&self, window: Duration, counts: fn(&str) -> bool) -> Option<BusyThread> {
        let end = self.last?;
        let samples = || self.threads.values().flat_map(|thread| &thread.samples).map(|sample| sample.at);
        let begin = samples().filter(|at| *at + window <= end).max().or_else(|| samples().min())?;
        let elapsed = end.saturating_sub(begin).as_secs_f64();
        let thread = self
            .threads
            .values()
            .filter(|thread| counts(&thread.name))
            .max_by_key(|thread| thread.since(begin).ticks)?;
        let used = thread.since(begin);
        (elapsed > 0.0).then(|| BusyThread {
            name: thread.name.clone(),
            share: seconds(used.ticks) / elapsed,
            held_up_share: used.held_up.as_secs_f64() / elapsed,
        })
    }
}

/// What a thread had within some time.
struct Used {
    ticks: u64,
    held_up: Duration,
}

impl Thread {
    /// A thread that was first seen after `begin` began after it too, so all its time counts.
    fn since(&self, begin: Duration) -> Used {
        let before = self.samples.iter().take_while(|sample| sample.at <= begin).last();
        let of = |sample: Option<&Sample>| sample.map_or((0, Duration::ZERO), |at| (at.ticks, at.held_up));
        let ((ticks, held_up), (ticks_before, held_up_before)) = (of(self.samples.last()), of(before));
        Used { ticks: ticks - ticks_before, held_up: held_up.saturating_sub(held_up_before) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn after(looks: &[(&str, u32, u64)]) -> ThreadSampler {
        let mut sampler = ThreadSampler::new();
        for (name, second, ticks) in looks {
            let stat = Stat { name, ticks: *ticks };
            sampler.add((*name).to_owned(), SECOND * *second, &stat, SECOND * *second / 4);
            sampler.last = sampler.last.max(Some(SECOND * *second));
        }
        sampler
    }

    #[test]
    fn a_name_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let text = "71 (a) b (c) S 1 71 71 0 -1 4194560 1 2 3 4 250 30 0 0 20 0 1 0 99 1 1 1\n";
        assert_eq!(parse_stat(text), Some(Stat { name: "a) b (c", ticks: 280 }));
    }

    #[test]
    fn the_time_without_a_core_is_read_in_nanoseconds() {
        assert_eq!(parse_held_up("1036238 28531736 11\n"), Some(Duration::from_nanos(28_531_736)));
        assert_eq!(parse_held_up(""), None);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "Name:\tx\nVmPeak:\t 9 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let memory = Memory { resident_bytes: 1 << 20, peak_bytes: 2 << 20 };
        assert_eq!(parse_status(text), Some(memory));
    }

    #[test]
    fn a_thread_that_was_busy_before_the_window_is_not_the_busiest() {
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        let busy = |share: u64| ticks_per_second * share / 100;
        let sampler = after(&[
            ("start", 0, 0),
            ("start", 10, busy(900)),
            ("start", 12, busy(910)),
            ("work", 0, 0),
            ("work", 10, 0),
            ("work", 12, busy(180)),
        ]);
        let busiest = sampler.busiest(SECOND * 2, |_| true).unwrap();
        assert_eq!(busiest.name, "work");
        assert!((busiest.share - 0.9).abs() < 0.01, "{busiest:?}");
        assert!((busiest.held_up_share - 0.25).abs() < 0.01, "{busiest:?}");
        assert_eq!(busiest.to_string(), "90% (+25%) work");
        assert_eq!(sampler.busiest(SECOND * 12, |_| true).unwrap().name, "start");
    }

    #[test]
    fn threads_that_wait_for_a_core_are_busy_too() {
        let looks = [("waits", 0, 0), ("waits", 4, 1), ("runs", 3, 0), ("runs", 3, 90), ("new", 4, 0)];
        assert_eq!(after(&looks).busy_threads(2.0), 2);
        assert_eq!(after(&looks).busy_threads(20.0), 0);
    }

    #[test]
    fn a_thread_that_does_not_count_is_passed_over() {
        let sampler = after(&[("compiler", 0, 0), ("compiler", 1, 90), ("work", 0, 0), ("work", 1, 10)]);
        assert_eq!(sampler.busiest(SECOND, |name| name != "compiler").unwrap().name, "work");
    }

    #[test]
    fn a_thread_born_inside_the_window_counts_whole() {
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        let sampler = after(&[("old", 0, 0), ("old", 4, 1), ("new", 1, 0), ("new", 4, ticks_per_second * 2)]);
        let busiest = sampler.busiest(SECOND * 4, |_| true).unwrap();
        assert_eq!(busiest.name, "new");
        assert!((busiest.share - 0.5).abs() < 0.01, "{busiest:?}");
    }

    #[test]
    fn our_own_process_has_used_memory_and_can_be_sampled() {
        let process = std::process::id();
        let memory = Memory::of(process).unwrap();
        assert!(memory.peak_bytes >= memory.resident_bytes && memory.resident_bytes > 0);
        assert!(cpu_seconds(process).unwrap() >= 0.0);
        let mut sampler = ThreadSampler::new();
        sampler.look(process);
        assert!(!sampler.threads.is_empty());
    }
}

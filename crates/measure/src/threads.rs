//! How busy each thread of a process is, and how long it waits for a core.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use std::{fmt, fs};

use serde::Serialize;

use crate::procfs::{parse_held_up, parse_stat, seconds};

/// Time between two looks at the threads of a process.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// A thread that has less of a processor than this is not busy.
const BUSY_SHARE: f64 = 0.1;

/// Time that this thread has waited for a core since it began; 0 where the kernel does not tell.
pub fn own_held_up() -> Duration {
    fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| parse_held_up(&text))
        .unwrap_or_default()
}

/// The thread that had the most processor time, and its share of one core while it was watched.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BusyThread {
    /// Its name in the system.
    pub name: String,
    /// Its processor time by the time for which it was watched: 1 is a whole core.
    pub share: f64,
    /// The share of the time in which it could have run and other threads had the cores. In the remaining time it waited for
    /// something else.
    pub held_up_share: f64,
}

impl fmt::Display for BusyThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, share, held_up_share } = self;
        write!(f, "{:.0}% (+{:.0}%) {name}", share * 100.0, held_up_share * 100.0)
    }
}

#[derive(Debug)]
struct Sample {
    at: Duration,
    ticks: u64,
    held_up: Duration,
}

#[derive(Debug)]
struct Thread {
    name: String,
    samples: Vec<Sample>,
}

/// Samples of all threads of one process.
///
/// Invariants: the samples of a thread ascend in time; a thread that ended keeps its last one.
#[derive(Debug)]
pub struct ThreadSampler {
    begun: Instant,
    last: Option<Duration>,
    threads: BTreeMap<String, Thread>,
}

impl Default for ThreadSampler {
    fn default() -> Self {
        Self::new()
    }
}

impl ThreadSampler {
    /// A sampler without samples.
    pub fn new() -> Self {
        Self { begun: Instant::now(), last: None, threads: BTreeMap::new() }
    }

    /// To be called often: takes samples ten times a second.
    pub fn look(&mut self, process: u32) {
        let now = self.begun.elapsed();
        if self.last.is_some_and(|last| now < last + SAMPLE_INTERVAL) {
            return;
        }
        // A process or thread that has just ended has no files any more: its last sample stands.
        let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { return };
        self.last = Some(now);
        for task in tasks.flatten() {
            if let Ok(text) = fs::read_to_string(task.path().join("stat"))
                && let Some((name, stat)) = parse_stat(&text)
            {
                // Without `schedstat` no time counts as lost.
                let schedstat = fs::read_to_string(task.path().join("schedstat")).ok();
                let held_up = schedstat.and_then(|text| parse_held_up(&text)).unwrap_or_default();
                let id = task.file_name().to_string_lossy().into_owned();
                self.add(id, now, (name, stat.cpu_ticks), held_up);
            }
        }
    }

    fn add(&mut self, id: String, at: Duration, (name, ticks): (&str, u64), held_up: Duration) {
        let fresh = || Thread { name: String::new(), samples: Vec::new() };
        let thread = self.threads.entry(id).or_insert_with(fresh);
        // A thread gets its name after it begins, so the newest one is right.
        name.clone_into(&mut thread.name);
        thread.samples.push(Sample { at, ticks, held_up });
    }

    /// Processor time of all threads, up to their last samples.
    pub fn cpu_seconds(&self) -> f64 {
        seconds(self.threads.values().filter_map(|thread| thread.samples.last()).map(|last| last.ticks).sum())
    }

    /// Number of threads that ran, or could have run, for more than a tenth of so many seconds. With more of them than cores,
    /// none runs for long, and all keep others waiting.
    pub fn busy_threads(&self, over_seconds: f64) -> usize {
        let wanted = |thread: &Thread| {
            let Some((first, last)) = thread.samples.first().zip(thread.samples.last()) else { return 0.0 };
            seconds(last.ticks - first.ticks) + last.held_up.saturating_sub(first.held_up).as_secs_f64()
        };
        self.threads.values().filter(|thread| wanted(thread) > over_seconds * BUSY_SHARE).count()
    }

    /// The busiest thread of the last `window` before the newest sample, among those whose name `counts`; `None` if there
    /// were not two samples.
    pub fn busiest(&self, window: Duration, counts: fn(&str) -> bool) -> Option<BusyThread> {
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

/// The times that a thread ran and waited within some time.
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
            sampler.add((*name).to_owned(), SECOND * *second, (name, *ticks), SECOND * *second / 4);
            sampler.last = sampler.last.max(Some(SECOND * *second));
        }
        sampler
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
    fn own_threads_are_sampled() {
        let mut sampler = ThreadSampler::new();
        sampler.look(std::process::id());
        assert!(!sampler.threads.is_empty() && sampler.cpu_seconds() >= 0.0);
    }
}

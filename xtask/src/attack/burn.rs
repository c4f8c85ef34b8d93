//! The control run: a process that uses as much processor time, in as many threads, as an attack did.

use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use rustix::time::{ClockId, clock_gettime};

use super::attacker::{finish, step_back};

/// Time after which a burning thread looks at the clock again.
const SLICE: Duration = Duration::from_millis(2);

/// Arguments of the burner, which the suite starts itself.
#[derive(Args)]
pub(crate) struct BurnOptions {
    /// Threads that burn
    #[arg(long)]
    threads: u32,
    /// Processor seconds that all of them burn together
    #[arg(long)]
    cpu_seconds: f64,
    /// Seconds that it may take
    #[arg(long)]
    seconds: f64,
    /// It leaves the processors to the others, as an attack that does so
    #[arg(long)]
    steps_back: bool,
}

/// Processor use of an attack, and of the server on its behalf.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Effort {
    pub(super) cpu_seconds: f64,
    /// Number of threads that were busy.
    pub(super) threads: u32,
}

impl Effort {
    /// Adds the use of an attack that came after it.
    pub(super) fn add(&mut self, other: Self) {
        self.cpu_seconds += other.cpu_seconds;
        self.threads = self.threads.max(other.threads);
    }
}

/// Burns this much within `seconds`, in another process, which steps back if the attack did.
pub(super) fn burn(effort: Effort, seconds: f64, steps_back: bool) -> anyhow::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["attack-burner", "--threads", &effort.threads.max(1).to_string()]);
    command.args(["--cpu-seconds", &effort.cpu_seconds.to_string(), "--seconds", &seconds.to_string()]);
    command.args(steps_back.then_some("--steps-back"));
    let child: Child = command.spawn()?;
    let limit = Duration::from_secs_f64(seconds * 2.0 + 5.0);
    finish(child, limit)
}

/// Entry point of the burner's process.
pub(super) fn serve(options: &BurnOptions) -> anyhow::Result<()> {
    if options.steps_back {
        step_back()?;
    }
    let share = options.cpu_seconds / f64::from(options.threads.max(1)) / options.seconds.max(0.001);
    let limit = Duration::from_secs_f64(options.seconds);
    let threads = (0..options.threads).map(|_| thread::spawn(move || burn_share(share.min(1.0), limit)));
    for thread in threads.collect::<Vec<_>>() {
        ensure!(thread.join().is_ok(), "a burning thread has panicked");
    }
    Ok(())
}

/// Keeps to a share of one processor, and catches up after it had less.
fn burn_share(share: f64, limit: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        let slice_begun = Instant::now();
        while slice_begun.elapsed() < SLICE {
            std::hint::black_box(0_u64);
        }
        while used().as_secs_f64() > begun.elapsed().as_secs_f64() * share && begun.elapsed() < limit {
            thread::sleep(SLICE);
        }
    }
}

/// Processor time of this thread.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burner_keeps_to_its_share() {
        let thread = thread::spawn(|| {
            burn_share(0.25, Duration::from_millis(400));
            used()
        });
        let used = thread.join().unwrap();
        assert!(used > Duration::from_millis(20) && used < Duration::from_millis(200), "{used:?}");
    }
}

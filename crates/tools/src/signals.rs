//! SIGINT, SIGTERM and SIGHUP: each asks for an end, and every command that has something to finish hears all of them.
//! SIGHUP comes when a terminal goes away; a process that was started to outlive that, as by `nohup`, goes on
//! ignoring it.
//!
//! Guarantees that one wish counts once: `timeout`, supervisors and shells signal the process and then its
//! group, so that two signals come where one was meant.

use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failure};

/// A signal that is heard so soon after the last one only repeats it. On a machine that stalls the second one is heard late;
/// a user who presses Ctrl-C twice within this time has to press it again.
const REPEAT: Duration = Duration::from_millis(500);

/// The wishes for an end, from when this was made on: also one that comes while nobody waits for it.
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    /// None where it is ignored.
    hangup: Option<Signal>,
    /// When the last wish came.
    last: Option<Instant>,
}

impl StopSignals {
    /// Listens from now on.
    pub fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::io("cannot listen to signals", &error));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: may_hear_hangup().then(|| listen(SignalKind::hangup())).transpose()?,
            last: None,
        })
    }

    /// Waits for the next wish. May be dropped while it waits, without loss.
    pub async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
                () = heard(self.hangup.as_mut()) => {}
            }
            let now = Instant::now();
            if !repeats(self.last, now) {
                self.last = Some(now);
                return;
            }
        }
    }

    /// The end of what is to be finished, or of the patience with it: at the next wish it is given up.
    pub async fn or_at_once<T>(
        &mut self,
        finishing: impl Future<Output = Result<T, Failure>>,
        left_undone: &str,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            finished = finishing => finished,
            () = self.next() => {
                Err(Failure::new(Exit::Interrupted, format!("stopped at once: {left_undone}")))
            }
        }
    }
}

async fn heard(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether SIGHUP is not ignored, as the parent process may have set it. Listening would undo that, so the signal is left
/// alone also where the system does not tell.
fn may_hear_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status");
    status.ok().and_then(|status| ignored_signals(&status)).is_some_and(|ignored| ignored & SIGHUP_BIT == 0)
}

/// Signal 1.
const SIGHUP_BIT: u64 = 1;

/// The mask of signals that a process ignores; signal n is bit n - 1.
fn ignored_signals(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

fn repeats(last: Option<Instant>, now: Instant) -> bool {
    last.is_some_and(|last| now.saturating_duration_since(last) < REPEAT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_process_status() {
        let status = "Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        assert_eq!(ignored_signals(status), Some(0x1001));
        assert_eq!(ignored_signals("Name:\tx\n"), None);
        assert_eq!(ignored_signals("SigIgn:\tnothing\n"), None);
    }

    #[test]
    fn only_what_comes_at_once_after_a_signal_repeats_it() {
        let first = Instant::now();
        assert!(!repeats(None, first));
        assert!(repeats(Some(first), first) && repeats(Some(first), first + REPEAT / 2));
        assert!(!repeats(Some(first), first + REPEAT));
    }
}

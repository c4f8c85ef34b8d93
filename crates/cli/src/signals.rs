//! SIGINT and SIGTERM: both ask for an end, and every command that has something to finish hears both.
//!
//! Guarantees that what is one wish counts once: `timeout`, supervisors and shells signal the process and then its
//! group, so that two signals come where one was meant.

use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failure};

/// A signal that comes so soon after the last one repeats it. Nobody presses Ctrl-C twice in that time.
const REPEAT: Duration = Duration::from_millis(100);

/// The wishes for an end, from when this was made on: also one that comes while nobody waits for it.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    /// When the last wish came.
    last: Option<Instant>,
}

impl StopSignals {
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::io("cannot listen to signals", &error));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            last: None,
        })
    }

    /// Waits for the next wish. May be dropped while it waits, without loss.
    pub(crate) async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
            let now = Instant::now();
            if !repeats(self.last, now) {
                self.last = Some(now);
                return;
            }
        }
    }
}

impl StopSignals {
    /// The end of what is to be finished, or of the patience with it: at the next wish it is given up.
    pub(crate) async fn or_at_once<T>(
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

fn repeats(last: Option<Instant>, now: Instant) -> bool {
    last.is_some_and(|last| now.saturating_duration_since(last) < REPEAT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_at_once_after_a_signal_repeats_it() {
        let first = Instant::now();
        assert!(!repeats(None, first));
        assert!(repeats(Some(first), first) && repeats(Some(first), first + REPEAT / 2));
        assert!(!repeats(Some(first), first + REPEAT));
    }
}

//! Waiting for a queue to grow, for a thread that reads nothing itself and notifies others.
//!
//! Guarantees that each published, or synced, position wakes the waiting thread. To be woken, the bell stores one
//! flag in the control file, as a sleeping tailer does; where it must not write there, it polls each millisecond.

use std::sync::Arc;
use std::time::Duration;

use crate::control::Control;
use crate::mapping::Access;
use crate::queue::Core;
use crate::wait::Watch;

/// Polling interval over a queue that no process has recovered yet: no append wakes its readers.
const UNRECOVERED_SLEEP_MAX: Duration = Duration::from_millis(10);

/// Rings when a queue has grown.
#[derive(Debug)]
pub struct Bell {
    core: Arc<Core>,
    /// The control file, writable; `None` if this process must not write it.
    control: Option<Control>,
    synced_only: bool,
}

impl Bell {
    pub(crate) fn new(core: Arc<Core>, synced_only: bool) -> Self {
        let opened = Control::open(core.segments.dir(), Access::Write).ok().flatten();
        let control = opened.filter(|control| control.queue_id() == core.control.queue_id());
        Self { core, control, synced_only }
    }

    /// True when appenders wake the waiting thread, so that it need not poll.
    pub fn is_woken(&self) -> bool {
        self.control.is_some()
    }

    /// End of the queue, or of its synced part, in bytes since the queue's beginning.
    pub fn position(&self) -> u64 {
        if self.synced_only { self.core.synced() } else { self.core.published() }
    }

    /// Waits until the end of the queue differs from `seen`, or for about `timeout` (100 ms at most). Returns the
    /// end.
    pub fn wait(&self, seen: u64, timeout: Duration) -> u64 {
        let position = self.position();
        if position != seen || timeout.is_zero() {
            return position;
        }
        if self.core.is_unrecovered() {
            std::thread::sleep(timeout.min(UNRECOVERED_SLEEP_MAX));
        } else {
            let control = self.control.as_ref().unwrap_or(&self.core.control);
            Watch::new(control, self.synced_only, seen, timeout).sleep();
        }
        self.position()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::{AppendOptions, CreateOptions, Offset, Queue, QueueView};

    #[test]
    fn appends_and_syncs_ring_their_bells_of_a_view() {
        let dir = tempfile::tempdir().expect("a directory");
        let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: 4096 }).expect("made");
        let mut appender = queue.appender(AppendOptions::default()).expect("attached");
        let view = QueueView::open(dir.path()).expect("whole");
        for synced_only in [false, true] {
            let bell = view.bell(synced_only);
            assert!(bell.is_woken());
            let seen = bell.position();
            let waiting = std::thread::spawn(move || {
                let begin = Instant::now();
                let mut position = seen;
                while position == seen && begin.elapsed() < Duration::from_secs(20) {
                    position = bell.wait(seen, Duration::from_secs(1));
                }
                position
            });
            std::thread::sleep(Duration::from_millis(20));
            if synced_only {
                assert_eq!(view.synced_end_offset().expect("known"), Offset(0));
                appender.sync().expect("synced");
                assert_eq!(view.synced_end_offset().expect("known"), Offset(1));
            } else {
                appender.append(b"ring").expect("room");
            }
            assert!(waiting.join().expect("no panic") > seen);
        }
    }
}

//! Waiting for a queue to grow, for a thread that reads nothing itself and tells others.
//!
//! Guarantees that what is published, or synced, wakes who waits for it. To be woken it stores one flag in the control file, as a tailer
//! that sleeps; where it must not write there it looks again each millisecond.

use std::sync::Arc;
use std::time::Duration;

use crate::control::Control;
use crate::mapping::Access;
use crate::queue::Core;
use crate::wait::Watch;

/// How long one sleeps over a queue that nobody has recovered yet: no wake-up comes from it.
const UNRECOVERED_SLEEP_MAX: Duration = Duration::from_millis(10);

/// Rings when a queue has grown.
#[derive(Debug)]
pub struct Bell {
    core: Arc<Core>,
    /// The control file, writable; none if it may not be written.
    control: Option<Control>,
    synced_only: bool,
}

impl Bell {
    pub(crate) fn new(core: Arc<Core>, synced_only: bool) -> Self {
        let opened = Control::open(core.segments.dir(), Access::Write).ok().flatten();
        let control = opened.filter(|control| control.queue_id() == core.control.queue_id());
        Self { core, control, synced_only }
    }

    /// Whether appenders wake who waits, so that it need not look again and again.
    pub fn is_woken(&self) -> bool {
        self.control.is_some()
    }

    /// Where the queue ends, or what of it is synced, in bytes since its beginning.
    pub fn position(&self) -> u64 {
        if self.synced_only { self.core.synced() } else { self.core.published() }
    }

    /// Waits until the queue ends elsewhere than at `seen`, or about as long as `timeout` (never longer than a tenth of
    /// a second). Returns where it ends.
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
    fn an_append_rings_the_bell_of_a_view_and_a_sync_that_of_the_synced() {
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

//! The writer threads, one for each log dir: they write records that go to no journal, so that a disk that hangs holds up its
//! writer, and no thread of the network.
//!
//! With several log dirs they write all of these records. With a single one the threads of the network write, as long as its
//! disk takes a write at once, because handing a write over would cost each append a wake-up. When that disk begins to hang,
//! the threads that are at a write at that moment wait. A single thread of the network never writes. Nor does any of them write
//! records of groups: it would hold the lock of a shard meanwhile, for which others wait.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use riverrun_log::Leaves;

use crate::broker::Broker;
use crate::settle::join_all;

/// Longest wait for work; work that is left to the writer ends it, and so does a stop.
const PAUSE: Duration = Duration::from_hours(1);

/// The running threads.
#[derive(Debug)]
pub(crate) struct Writers {
    broker: Arc<Broker>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    pub(crate) fn start(broker: &Arc<Broker>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut writers = Self { broker: Arc::clone(broker), stop, threads: Vec::new() };
        let dirs = broker.logs.dir_count();
        let is_any_spared = dirs > 1 || broker.config.server.network_threads() == 1;
        let leaves = if is_any_spared { Leaves::Always } else { Leaves::WhileSlow };
        for dir in 0..dirs {
            let (for_thread, stopping) = (Arc::clone(broker), Arc::clone(&writers.stop));
            let run = move || run(&for_thread, dir, &stopping);
            let name = format!("write {}", broker.logs.dir_path(dir).display());
            writers.threads.push(broker.supervisor.thread(&name, run)?);
            broker.logs.set_leaves(dir, leaves);
        }
        Ok(writers)
    }

    /// Ends the threads once they have written what was left to them. One whose log dir hangs is left behind.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.broker.logs.wake_writers();
        join_all(&self.broker, self.threads);
    }
}

fn run(broker: &Broker, dir: usize, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        broker.logs.write_left(dir, PAUSE);
    }
    broker.logs.write_left(dir, Duration::ZERO);
}

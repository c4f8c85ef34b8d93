//! The threads that bring what the journals hold into the segments, one for each log dir: one whose disk is slow, or hangs,
//! holds up no other.
//!
//! Each works when the write cache or a journal is half full or a level is to change, and otherwise now and then, so that
//! little is left to recover. It also keeps an eye on the room in its log dir, and has producers that wait ask again now and
//! then: they are let in to be refused where there is none.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use riverrun_journal::Journal;
use riverrun_log::LogError;
use riverrun_types::Position;

use crate::broker::Broker;
use crate::log_limit::SETTLING_TROUBLE;

/// How often the room in the log dirs is measured while nothing is to be settled.
const PAUSE: Duration = Duration::from_millis(500);
/// After so many pauses what there is is settled although nothing asks for it.
const PAUSES_MAX: u32 = 20;

/// A stop looks so often whether the threads have ended.
const END_POLL: Duration = Duration::from_millis(5);

/// The running threads.
#[derive(Debug)]
pub(crate) struct Settlers {
    broker: Arc<Broker>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Settlers {
    pub(crate) fn start(broker: &Arc<Broker>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut settlers = Self { broker: Arc::clone(broker), stop, threads: Vec::new() };
        for dir in 0..broker.logs.dir_count() {
            let (for_thread, stopping) = (Arc::clone(broker), Arc::clone(&settlers.stop));
            let run = move || run(&for_thread, dir, &stopping);
            let name = format!("settle {}", broker.logs.dir_path(dir).display());
            settlers.threads.push(broker.supervisor.thread(&name, run)?);
        }
        Ok(settlers)
    }

    /// Ends the threads after the cycles that they are in. One whose log dir hangs is left behind.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.broker.logs.wake_settling();
        join_all(&self.broker, self.threads);
    }
}

/// Waits for the end of threads, one for each log dir. One whose log dir hangs is left behind.
pub(crate) fn join_all(broker: &Broker, threads: Vec<JoinHandle<()>>) {
    for (dir, thread) in threads.into_iter().enumerate() {
        while !thread.is_finished() && !broker.logs.dir_hangs(dir) {
            std::thread::sleep(END_POLL);
        }
        if thread.is_finished() {
            // The supervisor has caught its panic.
            let _ = thread.join();
        }
    }
}

fn run(broker: &Broker, dir: usize, stop: &AtomicBool) {
    let mut pauses = 0;
    while !stop.load(Ordering::Acquire) {
        let is_due = broker.logs.wait_for_settling(dir, PAUSE) || pauses >= PAUSES_MAX;
        broker.produce_gate.room_was_made();
        if !is_due {
            pauses += 1;
            broker.logs.measure_space_of(dir);
            continue;
        }
        pauses = 0;
        if let Err(error) = broker.logs.settle_dir(dir)
            && !matches!(error, LogError::OutOfTime)
        {
            SETTLING_TROUBLE.warn(|suppressed| {
                tracing::error!(%error, suppressed, "records of the journals cannot be brought into the segments");
            });
        }
        tell_level_changes(broker);
    }
}

/// One line for each topic, however many partitions it has.
fn tell_level_changes(broker: &Broker) {
    let image = broker.catalog.cluster();
    for ((id, level), partitions) in broker.logs.take_level_changes() {
        // One that is gone has no level any more.
        if let Some(topic) = image.topic_by_id(id) {
            tracing::info!(topic = &*topic.name, %level, partitions, "durability level reached");
        }
    }
}

/// The ids of the journals that hold records or have held some, in their order; no other id outlives the process.
pub(crate) fn used_journals(broker: &Broker) -> Vec<Option<String>> {
    let is_used = |journal: &Journal| journal.delivered() > Position(0) || journal.used_bytes() > 0;
    let journals = broker.logs.journals();
    journals.map(|journal| is_used(journal).then(|| journal.id().to_string())).collect()
}

//! The watchdog: notices a server that lives and does not get on, because producers or other requests wait.
//!
//! Owns a thread that looks at counters a few times a second. A wait that it sees at each look
//!
//! - for more than a second is shown by `/health` and a metric, and logged once then and once when it is over;
//! - for more than ten seconds is a trouble, unless it holds up only requests that ask for more than their share.
//!
//! The thread takes no lock that is held over work, and waits for none of the threads that it watches.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use riverrun_env::Clock;
use riverrun_log::DirWork;
use riverrun_types::PartitionId;
use tokio::runtime::Handle;

use crate::broker::Broker;
use crate::waits::{Event, TOLD_AFTER, Wait};

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Delay at which a thread of the network is late for a new task: its work is bounded by milliseconds.
const LATE_AFTER: Duration = Duration::from_millis(100);

/// The running thread.
#[derive(Debug)]
pub(crate) struct Watchdog {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Watchdog {
    /// Watches a server whose network threads are those of `network`.
    pub(crate) fn start(broker: &Arc<Broker>, network: Handle) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (watched, stopping) = (Arc::clone(broker), Arc::clone(&stop));
        let run = move || {
            let mut facts =
                Facts { network, beat: None, journals: Vec::new(), sent_bytes: 0, removed_bytes: 0 };
            while !stopping.load(Ordering::Acquire) {
                facts.look(&watched);
                std::thread::park_timeout(LOOK_EVERY);
            }
        };
        Ok(Self { stop, thread: broker.supervisor.thread("riverrun-watch", run)? })
    }

    /// Ends the thread.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        // The supervisor has caught the thread's panic.
        let _ = self.thread.join();
    }
}

/// The sources of facts, and their values at the look before.
struct Facts {
    network: Handle,
    /// The last heartbeat that was sent.
    beat: Option<Beat>,
    /// The position up to which each journal had delivered.
    journals: Vec<u64>,
    /// Bytes that had been sent to clients.
    sent_bytes: u64,
    /// Bytes that had left the write cache.
    removed_bytes: u64,
}

impl Facts {
    fn look(&mut self, broker: &Broker) {
        if broker.logs.is_any_stuck() {
            // Produce requests at the gate are let in to be refused. The settler waits for the disk, and wakes nobody.
            broker.produce_gate.room_was_made();
        }
        let mut present = self.journals(broker);
        present.extend(log_dirs(broker));
        present.extend(metadata(broker));
        if self.is_write_cache_waited_for(broker) {
            present.push((Wait::WriteCache, full_write_cache(broker)));
        }
        let budgets = &broker.budgets;
        let sent_before = std::mem::replace(&mut self.sent_bytes, broker.metrics.traffic.sent_bytes());
        let is_anybody_answered = self.sent_bytes != sent_before;
        present.extend(request_memory(
            budgets.requests.is_wanted(),
            budgets.requests.is_wanted_for_whole() && !is_anybody_answered,
        ));
        if budgets.responses.waiting() > 0 {
            present.push((Wait::ResponseMemory, "responses wait for the memory that others hold".to_owned()));
        }
        present.extend(self.network_threads(&broker.env.clock));
        present.extend(turns(broker));
        let events = broker.waits.look(broker.env.clock.monotonic(), present);
        for event in events {
            match event {
                Event::Began(cause) => tracing::warn!("{cause}"),
                Event::Ended(cause, lasted) => {
                    tracing::info!(seconds = lasted.as_secs(), "it is over that {cause}");
                }
            }
        }
    }

    /// Whether all produce requests wait for the write cache, or some and nothing has left it since the look before.
    fn is_write_cache_waited_for(&mut self, broker: &Broker) -> bool {
        let removed_bytes = broker.logs.write_cache().removed_bytes();
        let before = std::mem::replace(&mut self.removed_bytes, removed_bytes);
        let is_stuck = removed_bytes == before && broker.produce_gate.waiting() > 0;
        broker.logs.is_write_cache_full() || is_stuck
    }

    /// Waits for journals that have entries to store and have stored none since the look before.
    fn journals(&mut self, broker: &Broker) -> Vec<(Wait, String)> {
        let mut waits = Vec::new();
        let delivered: Vec<u64> = broker.logs.journals().map(|journal| journal.delivered().0).collect();
        for (index, journal) in broker.logs.journals().enumerate() {
            let has_moved = self.journals.get(index) != delivered.get(index);
            if !has_moved && !journal.has_delivered_all() && journal.failure().is_none() {
                let dir = journal.dir().display();
                let reason = if journal.full_for().is_some() {
                    format!("it is full, and {}", settling(broker))
                } else {
                    "its disk takes no writes".to_owned()
                };
                waits.push((
                    Wait::Journal(index),
                    format!("producers wait for the journal in {dir}: {reason}"),
                ));
            }
        }
        self.journals = delivered;
        waits
    }

    /// Whether the heartbeat of the look before was taken late, or is not taken yet; sends another one if it was taken.
    fn network_threads(&mut self, clock: &Arc<dyn Clock>) -> Option<(Wait, String)> {
        let now = clock.monotonic();
        let (is_taken, late) = self.beat.as_ref().map_or((true, Duration::ZERO), |beat| beat.lateness(now));
        if is_taken {
            let taken = Arc::<OnceLock<Duration>>::default();
            self.beat = Some(Beat { sent: now, taken: Arc::clone(&taken) });
            let clock = Arc::clone(clock);
            drop(self.network.spawn(async move { _ = taken.set(clock.monotonic()) }));
        }
        let ms = late.as_millis();
        let cause = || {
            format!(
                "the network's threads are busy with other work: they come to something new after {ms} ms"
            )
        };
        (late >= LATE_AFTER).then(|| (Wait::NetworkThreads, cause()))
    }
}

/// The waits for memory: of requests, and of small ones while no request is answered.
fn request_memory(is_wanted: bool, is_stuck: bool) -> impl Iterator<Item = (Wait, String)> {
    let wanted = (Wait::RequestMemory, "requests wait for the memory that others hold");
    let stuck =
        (Wait::AnyRequestMemory, "small requests wait for memory, too, and no client is sent an answer");
    let waits = [(is_wanted, wanted), (is_stuck, stuck)];
    waits.into_iter().filter(|(is_so, _)| *is_so).map(|(_, (wait, cause))| (wait, cause.to_owned()))
}

/// A heartbeat: a task for a thread of the network.
struct Beat {
    sent: Duration,
    taken: Arc<OnceLock<Duration>>,
}

impl Beat {
    /// Whether it was taken, and how long after it was sent, at least.
    fn lateness(&self, now: Duration) -> (bool, Duration) {
        let taken = self.taken.get();
        (taken.is_some(), taken.unwrap_or(&now).saturating_sub(self.sent))
    }
}

/// Whether connections wait for their turn, and those of which sources.
fn turns(broker: &Broker) -> Option<(Wait, String)> {
    let waiting = broker.turns.waiting();
    let busiest = broker.turns.busiest()?;
    let cause = format!(
        "{waiting} connections wait for their turn on the network's threads, most of all those of {busiest}; other sources have \
         theirs"
    );
    Some((Wait::Turns, cause))
}

fn full_write_cache(broker: &Broker) -> String {
    let cache = broker.logs.write_cache();
    format!(
        "producers wait for the write cache: {} of {} bytes are in no segment yet, and {}",
        cache.bytes(),
        cache.bytes_max(),
        settling(broker)
    )
}

/// The log dirs whose disks have not answered for longer than a wait may last unnoted.
fn log_dirs(broker: &Broker) -> Vec<(Wait, String)> {
    let waits = dir_works(broker).filter(|(_, _, waited)| *waited >= TOLD_AFTER);
    let told = waits.map(|(dir, work, waited)| {
        let path = broker.logs.dir_path(dir).display();
        let what =
            format!("the disk of the log dir {path} does not answer: {}", told_work(broker, work, waited));
        (Wait::LogDir(dir), what)
    });
    told.collect()
}

/// Whether the disk of the metadata has not answered for longer than a wait may last unnoted.
fn metadata(broker: &Broker) -> Option<(Wait, String)> {
    let since = broker.catalog.store().disk_asked_since()?;
    let waited = broker.env.clock.monotonic().saturating_sub(since);
    let cause = || {
        let (dir, ms) = (broker.config.meta_dir(), waited.as_millis());
        format!("changes of the metadata wait for the disk of {}: it was asked {ms} ms ago", dir.display())
    };
    (waited >= TOLD_AFTER).then(|| (Wait::Metadata, cause()))
}

/// The work that each log dir's disk is asked for, and for how long.
fn dir_works(broker: &Broker) -> impl Iterator<Item = (usize, DirWork, Duration)> + '_ {
    let now = broker.env.clock.monotonic();
    (0..broker.logs.dir_count()).filter_map(move |dir| {
        let (work, since) = broker.logs.dir_work(dir)?;
        Some((dir, work, now.saturating_sub(since)))
    })
}

fn told_work(broker: &Broker, work: DirWork, waited: Duration) -> String {
    let ms = waited.as_millis();
    let name = |id: PartitionId| {
        let image = broker.catalog.cluster();
        let topic = image.topic_by_id(id.topic);
        format!("{}-{}", topic.map_or_else(|| id.topic.to_string(), |it| it.name.to_string()), id.index)
    };
    match work {
        DirWork::Settles(id) => format!("settling has been at partition {} for {ms} ms", name(id)),
        DirWork::Writes(id) => format!("a write to partition {} has waited for it for {ms} ms", name(id)),
        DirWork::AwaitsWriter(id) => {
            format!("a write to partition {} has waited for its turn for {ms} ms", name(id))
        }
        DirWork::Opens(id) => format!("partition {} was to be opened {ms} ms ago", name(id)),
        DirWork::Checkpoint => format!("a checkpoint has waited for it for {ms} ms"),
        DirWork::Space => format!("it was asked {ms} ms ago how much space is left"),
    }
}

/// The work of settling on the log dir where it takes longest.
fn settling(broker: &Broker) -> String {
    match dir_works(broker).max_by_key(|(_, _, waited)| *waited) {
        Some((dir, work, waited)) => {
            format!("in {} {}", broker.logs.dir_path(dir).display(), told_work(broker, work, waited))
        }
        None => "settling is at no partition".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::Seen;

    #[test]
    fn wait_for_memory_is_a_trouble_only_if_nobody_is_answered() {
        for (is_stuck, troubles) in [(false, 0), (true, 1)] {
            let seen = Seen::default();
            for seconds in [100, 200] {
                let waits = request_memory(true, is_stuck).collect();
                seen.look(Duration::from_secs(seconds), waits);
            }
            assert_eq!(seen.troubles().len(), troubles, "{:?}", seen.troubles());
            assert_eq!(seen.notes(), ["for 100 seconds requests wait for the memory that others hold"]);
        }
        assert_eq!(request_memory(false, false).count(), 0);
    }

    #[test]
    fn heartbeat_is_late_by_the_time_until_it_was_taken() {
        let beat = Beat { sent: Duration::from_secs(5), taken: Arc::default() };
        assert_eq!(beat.lateness(Duration::from_secs(7)), (false, Duration::from_secs(2)));
        beat.taken.set(Duration::from_secs(8)).expect("once");
        assert_eq!(beat.lateness(Duration::from_secs(20)), (true, Duration::from_secs(3)));
    }
}

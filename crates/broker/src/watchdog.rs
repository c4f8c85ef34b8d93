//! Who notices that the server lives and does not get on: producers and other requests wait, and for what.
//!
//! Owns a thread that looks at counters a few times a second, and what it makes of them. What is so at each look for longer
//! than a second is told of by `/health` and a metric, and in the log once when it is first told of and once when it is over;
//! for longer than ten seconds it is a trouble, unless only those wait who ask for more than their share. The thread takes no lock that is held over work, and waits for none of those
//! that it watches.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_env::Clock;
use riverrun_log::DirWork;
use riverrun_types::PartitionId;
use tokio::runtime::Handle;

use crate::broker::Broker;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// What is over sooner is load, not a wait that somebody should know of.
const TOLD_AFTER: Duration = Duration::from_secs(1);
/// What lasts longer is a trouble: a server that is only busy gets on within that time.
const TROUBLE_AFTER: Duration = Duration::from_secs(10);

/// A thread of the network that takes so long to get to something new is late: its work is bounded by milliseconds.
const LATE_AFTER: Duration = Duration::from_millis(100);

/// What can be in the way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    /// The write cache is full.
    WriteCache,
    /// The disk of a log dir, by the dir's place among them.
    LogDir(usize),
    /// The disk of the metadata.
    Metadata,
    /// A journal, by its place among them, stores nothing of what was submitted.
    Journal(usize),
    /// The memory for requests is taken.
    RequestMemory,
    /// The same, and nobody is answered.
    AnyRequestMemory,
    /// The memory for responses is taken.
    ResponseMemory,
    /// The threads of the network do not get to what is to be done.
    NetworkThreads,
    /// Connections have more to do than the threads of the network can, and their sources take turns.
    Turns,
}

impl Wait {
    /// Its name in metrics.
    fn name(&self) -> &'static str {
        match self {
            Self::WriteCache => "write_cache",
            Self::LogDir(_) => "log_dir",
            Self::Metadata => "metadata",
            Self::Journal(_) => "journal",
            Self::RequestMemory => "request_memory",
            Self::AnyRequestMemory => "any_request_memory",
            Self::ResponseMemory => "response_memory",
            Self::NetworkThreads => "network_threads",
            Self::Turns => "turns",
        }
    }

    /// Whether it is a trouble when it lasts: somebody waits who asks for no more than others. A few large requests may hold
    /// the memory that others of their kind wait for as long as they like, if small ones are answered.
    fn is_trouble(&self) -> bool {
        !matches!(self, Self::Turns | Self::RequestMemory)
    }
}

/// One that goes on.
#[derive(Debug)]
struct Lasting {
    since: Duration,
    cause: String,
    is_told: bool,
}

/// What is to be told now.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    Began(String),
    Ended(String, Duration),
}

/// The waits that go on. Pure: facts and time in, what to tell out.
///
/// Invariants: each of them was there at every look since it began.
#[derive(Debug, Default)]
struct Waits {
    lasting: BTreeMap<Wait, Lasting>,
    seen_at: Duration,
}

impl Waits {
    /// Takes in what is waited for now, and why.
    fn look(&mut self, now: Duration, present: Vec<(Wait, String)>) -> Vec<Event> {
        self.seen_at = now;
        let mut before = std::mem::take(&mut self.lasting);
        let mut events = Vec::new();
        for (wait, cause) in present {
            let known = before.remove(&wait);
            let (since, was_told) = known.map_or((now, false), |known| (known.since, known.is_told));
            let is_told = was_told || now.saturating_sub(since) >= TOLD_AFTER;
            if is_told && !was_told {
                events.push(Event::Began(cause.clone()));
            }
            self.lasting.insert(wait, Lasting { since, cause, is_told });
        }
        let over = before.into_values().filter(|lasting| lasting.is_told);
        events.extend(over.map(|lasting| Event::Ended(lasting.cause, now.saturating_sub(lasting.since))));
        events
    }

    /// What is told, and for how long it has lasted.
    fn told(&self) -> impl Iterator<Item = (&Wait, &str, Duration)> {
        let told = self.lasting.iter().filter(|(_, lasting)| lasting.is_told);
        told.map(|(wait, it)| (wait, it.cause.as_str(), self.seen_at.saturating_sub(it.since)))
    }
}

/// What the watchdog has seen, for whoever asks.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<Waits>);

impl Seen {
    fn lines(&self, are_troubles: bool) -> Vec<String> {
        let waits = self.0.lock();
        let is_trouble = |wait: &Wait, lasted| wait.is_trouble() && lasted >= TROUBLE_AFTER;
        let told = waits.told().filter(|(wait, _, lasted)| is_trouble(wait, *lasted) == are_troubles);
        told.map(|(_, cause, lasted)| format!("for {} seconds {cause}", lasted.as_secs())).collect()
    }

    /// What has lasted so long that something is wrong.
    pub(crate) fn troubles(&self) -> Vec<String> {
        self.lines(true)
    }

    /// What has not, or is nothing wrong however long it lasts.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.lines(false)
    }

    /// For how many seconds somebody has waited, by the name of what for: of several journals the longest.
    pub(crate) fn seconds(&self) -> BTreeMap<&'static str, u64> {
        let waits = self.0.lock();
        let mut seconds = BTreeMap::new();
        for (wait, _, lasted) in waits.told() {
            let longest: &mut u64 = seconds.entry(wait.name()).or_default();
            *longest = (*longest).max(lasted.as_secs());
        }
        seconds
    }
}

/// The running thread.
#[derive(Debug)]
pub(crate) struct Watchdog {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Watchdog {
    /// Watches a server whose network's threads are those of `network`.
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
        // The supervisor has caught its panic.
        let _ = self.thread.join();
    }
}

/// Where facts come from, and what the look before has found there.
struct Facts {
    network: Handle,
    /// The last heartbeat that was sent.
    beat: Option<Beat>,
    /// Up to where each journal had delivered.
    journals: Vec<u64>,
    /// What clients had been sent.
    sent_bytes: u64,
    /// So much had left the write cache.
    removed_bytes: u64,
}

impl Facts {
    fn look(&mut self, broker: &Broker) {
        if broker.logs.is_any_stuck() {
            // Who waits at the gate is let in to be refused. Who settles waits for the disk, and says nothing.
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
        let events = broker.waits.0.lock().look(broker.env.clock.monotonic(), present);
        for event in events {
            match event {
                Event::Began(cause) => tracing::warn!("{cause}"),
                Event::Ended(cause, lasted) => {
                    tracing::info!(seconds = lasted.as_secs(), "it is over that {cause}");
                }
            }
        }
    }

    /// Whether all wait for the write cache, or some and nothing has left it since the look before.
    fn is_write_cache_waited_for(&mut self, broker: &Broker) -> bool {
        let removed_bytes = broker.logs.write_cache().removed_bytes();
        let before = std::mem::replace(&mut self.removed_bytes, removed_bytes);
        let is_stuck = removed_bytes == before && broker.produce_gate.waiting() > 0;
        broker.logs.is_write_cache_full() || is_stuck
    }

    /// The journals that have entries to store and have stored none since the look before.
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
                    "its disk does not take what is written".to_owned()
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

    /// Whether the heartbeat of the look before was taken late, or is still to be taken; sends another one if it was taken.
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

/// What is waited for if requests wait for memory, and if small ones do while nobody is answered.
fn request_memory(is_wanted: bool, is_stuck: bool) -> impl Iterator<Item = (Wait, String)> {
    let wanted = (Wait::RequestMemory, "requests wait for the memory that others hold");
    let stuck =
        (Wait::AnyRequestMemory, "small requests wait for memory, too, and no client is sent an answer");
    let waits = [(is_wanted, wanted), (is_stuck, stuck)];
    waits.into_iter().filter(|(is_so, _)| *is_so).map(|(_, (wait, cause))| (wait, cause.to_owned()))
}

/// Something that a thread of the network is to do at once.
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

/// Whether connections wait for their turn, and whose.
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

/// The log dirs whose disks have not answered for as long as nobody should have to wait.
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

/// Whether the disk of the metadata has not answered for as long as nobody should have to wait.
fn metadata(broker: &Broker) -> Option<(Wait, String)> {
    let since = broker.metadata.disk_asked_since()?;
    let waited = broker.env.clock.monotonic().saturating_sub(since);
    let cause = || {
        let (dir, ms) = (broker.config.meta_dir(), waited.as_millis());
        format!("changes of the metadata wait for the disk of {}: it was asked {ms} ms ago", dir.display())
    };
    (waited >= TOLD_AFTER).then(|| (Wait::Metadata, cause()))
}

/// What is waited for of each log dir's disk, and for how long.
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
        let image = broker.metadata.image();
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

/// What settling is at, where that takes longest.
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

    fn cache(cause: &str) -> Vec<(Wait, String)> {
        vec![(Wait::WriteCache, cause.to_owned())]
    }

    #[test]
    fn a_wait_is_told_once_when_it_lasts_and_once_when_it_is_over() {
        let mut waits = Waits::default();
        let at = |ms: u64| Duration::from_millis(10_000 + ms);
        assert!(waits.look(at(0), cache("first")).is_empty());
        assert!(waits.look(at(900), cache("first")).is_empty());
        assert!(waits.look(at(950), Vec::new()).is_empty(), "it was not worth a word");
        assert!(waits.look(at(1000), cache("first")).is_empty(), "it begins anew");
        assert_eq!(waits.look(at(2000), cache("second")), [Event::Began("second".to_owned())]);
        assert!(waits.look(at(3000), cache("third")).is_empty());
        let ended = Event::Ended("third".to_owned(), Duration::from_secs(3));
        assert_eq!(waits.look(at(4000), Vec::new()), [ended]);
        assert!(waits.look(at(9000), Vec::new()).is_empty());
    }

    #[test]
    fn a_wait_is_a_note_first_and_a_trouble_when_it_lasts_for_long() {
        let seen = Seen::default();
        let look = |seconds, present| _ = seen.0.lock().look(Duration::from_secs(seconds), present);
        let mut both = cache("producers wait");
        both.push((Wait::Journal(0), "one".to_owned()));
        look(100, both.clone());
        assert_eq!((seen.notes(), seen.troubles()), (Vec::new(), Vec::new()));
        both.push((Wait::Journal(1), "other".to_owned()));
        look(105, both.clone());
        assert_eq!(seen.notes(), ["for 5 seconds producers wait", "for 5 seconds one"]);
        look(110, both);
        assert_eq!(seen.troubles(), ["for 10 seconds producers wait", "for 10 seconds one"]);
        assert_eq!(seen.notes(), ["for 5 seconds other"]);
        assert_eq!(seen.seconds(), BTreeMap::from([("write_cache", 10), ("journal", 10)]));
    }

    #[test]
    fn those_who_wait_because_of_their_own_share_are_never_a_trouble() {
        let seen = Seen::default();
        for seconds in [100, 200] {
            seen.0.lock().look(Duration::from_secs(seconds), vec![(Wait::Turns, "they wait".to_owned())]);
        }
        assert_eq!(seen.troubles(), [""; 0]);
        assert_eq!(seen.notes(), ["for 100 seconds they wait"]);
    }

    #[test]
    fn requests_that_wait_for_memory_are_a_trouble_only_if_nobody_is_answered() {
        for (is_stuck, troubles) in [(false, 0), (true, 1)] {
            let seen = Seen::default();
            for seconds in [100, 200] {
                let waits = request_memory(true, is_stuck).collect();
                seen.0.lock().look(Duration::from_secs(seconds), waits);
            }
            assert_eq!(seen.troubles().len(), troubles, "{:?}", seen.troubles());
            assert_eq!(seen.notes(), ["for 100 seconds requests wait for the memory that others hold"]);
        }
        assert_eq!(request_memory(false, false).count(), 0);
    }

    #[test]
    fn threads_are_late_by_the_time_that_something_new_has_waited_for_them() {
        let beat = Beat { sent: Duration::from_secs(5), taken: Arc::default() };
        assert_eq!(beat.lateness(Duration::from_secs(7)), (false, Duration::from_secs(2)));
        beat.taken.set(Duration::from_secs(8)).expect("once");
        assert_eq!(beat.lateness(Duration::from_secs(20)), (true, Duration::from_secs(3)));
    }
}

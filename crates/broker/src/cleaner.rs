//! The cleaner: compacts the filthiest log, again and again.
//!
//! Owns when and how fast; the log decides which records are kept. Each log dir has workers of its own, so that one that
//! does not answer holds up no other. Of a dir at most `log.cleaner.threads` logs are compacted at once, and one more in
//! the quick lane, which takes only the server's own logs and small ones, because a large one takes long and is compacted
//! to its end. All dirs together read and write at most `log.cleaner.io.max.bytes.per.second`. A log whose compaction fails
//! holds up no other one: see [`crate::compaction_failures`].

use std::collections::HashSet;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_env::is_shortage;
use riverrun_log::compaction::execute::{CleanerControl, CleanerOptions};
use riverrun_log::compaction::pace::IoPace;
use riverrun_log::compaction::plan::{Cleanable, filthiest};
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{CompactOptions, LogError};
use riverrun_types::PartitionId;
use tokio::task::{JoinError, JoinSet};

use crate::broker::Broker;
use crate::compaction_failures::Turn;
use crate::config::UpkeepOptions;
use crate::error::is_log_trouble;
use crate::log_limit::UPKEEP_TROUBLE;
use crate::partitions::Partition;
use crate::stop_signal::{StopSignal, stopped};
use crate::supervisor::on_blocking_thread;
use crate::topic_names::OFFSETS_TOPIC;
use crate::upkeep::{Kept, Looks, checkpoint_dir, kept_partitions};

/// Bytes of a log in the quick lane at most: a second's work for a disk, so that no log waits there for long.
const QUICK_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// The quick lanes' share of the memory for keys: small logs need little.
const QUICK_LANE_SHARE: usize = 8;
/// Memory for keys of a run at least, however many runs share it: it is enough for some thousand keys, and the next run
/// goes on behind these.
const MAP_BYTES_MIN: usize = 64 * 1024;

/// The logs that a worker takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Any,
    /// Logs that a worker compacts in a short time, and the topic of group offsets, since groups wait for its load.
    Quick,
}

impl Lane {
    fn takes(self, topic: &str, cleanable: &Cleanable) -> bool {
        let bytes = cleanable.clean_bytes.saturating_add(cleanable.cleanable_bytes);
        self == Self::Any || topic == OFFSETS_TOPIC || bytes <= QUICK_BYTES_MAX
    }

    /// Memory for the keys of one run.
    fn map_bytes(self, upkeep: &UpkeepOptions, dir_count: usize) -> usize {
        let total = upkeep.log_cleaner_dedupe_buffer_size;
        let quick = total / QUICK_LANE_SHARE;
        let bytes = match self {
            Self::Any => (total - quick) / upkeep.log_cleaner_threads.max(1),
            Self::Quick => quick,
        };
        (bytes / dir_count.max(1)).max(MAP_BYTES_MIN)
    }
}

/// Lent to every run of a worker: the shared throttle, and the server's wish to stop.
struct Control {
    broker: Arc<Broker>,
    lane: Lane,
    pace: Arc<Mutex<IoPace>>,
    stop: StopSignal,
}

impl CleanerControl for Control {
    fn on_io(&self, bytes: u64) {
        let wait = self.pace.lock().charge(bytes, self.broker.env.clock.monotonic());
        if let Some(wait) = wait {
            std::thread::sleep(wait);
        }
    }

    fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }
}

/// The work that the cleaner's workers of one log dir divide.
#[derive(Debug, Default)]
struct State {
    /// The log dir.
    dir: usize,
    /// Logs that are being compacted.
    busy: HashSet<PartitionId>,
    looks: Looks,
    /// A log was seen that is due once a checkpoint has covered it.
    awaits_checkpoint: bool,
}

/// The throttle that the cleaners of all log dirs share.
pub(crate) fn pace(upkeep: &UpkeepOptions) -> Arc<Mutex<IoPace>> {
    Arc::new(Mutex::new(IoPace::new(rate(upkeep.log_cleaner_io_max_bytes_per_second))))
}

/// Compacts the logs of a log dir until `stop` turns true.
pub(crate) async fn run(broker: Arc<Broker>, dir: usize, pace: Arc<Mutex<IoPace>>, mut stop: StopSignal) {
    let state = Arc::new(Mutex::new(State { dir, ..State::default() }));
    let mut workers = JoinSet::new();
    let lanes = std::iter::repeat_n(Lane::Any, broker.config.upkeep.log_cleaner_threads);
    for lane in lanes.chain([Lane::Quick]) {
        let (broker, pace) = (Arc::clone(&broker), Arc::clone(&pace));
        let control = Control { broker, lane, pace, stop: stop.clone() };
        workers.spawn(work(Arc::new(control), Arc::clone(&state)));
    }
    tokio::select! {
        () = stopped(&mut stop) => {}
        // Before a stop a worker ends by a panic only.
        Some(ended) = workers.join_next() => pass_on_panic(ended),
    }
    while let Some(ended) = workers.join_next().await {
        pass_on_panic(ended);
    }
}

fn pass_on_panic(ended: Result<(), JoinError>) {
    if let Err(failed) = ended
        && failed.is_panic()
    {
        resume_unwind(failed.into_panic());
    }
}

/// A rate above all that a disk can do is none.
fn rate(bytes_per_second: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "checked to be in range; parts of a byte do not matter"
    )]
    (bytes_per_second < u64::MAX as f64).then(|| bytes_per_second.max(1.0) as u64)
}

async fn work(control: Arc<Control>, state: Arc<Mutex<State>>) {
    let mut stop = control.stop.clone();
    loop {
        let (for_run, state) = (Arc::clone(&control), Arc::clone(&state));
        let cleaned = on_blocking_thread(move || clean_filthiest(&for_run, &state)).await;
        if cleaned == Some(true) && !*stop.borrow() {
            continue;
        }
        let backoff = Duration::from_millis(control.broker.config.upkeep.log_cleaner_backoff_ms);
        tokio::select! {
            () = stopped(&mut stop) => return,
            () = tokio::time::sleep(backoff) => {}
        }
    }
}

/// Puts a log behind all others of its dir.
fn note_failure(broker: &Broker, dir: usize, topic: &str, id: PartitionId, error: &LogError) {
    UPKEEP_TROUBLE.warn(|suppressed| {
        let what = "compaction failed; it is tried again after a rest";
        tracing::error!(%topic, partition = id.index, %error, suppressed, "{what}");
    });
    let may_pass = match error {
        LogError::Io { source, .. } => is_shortage(source),
        error => matches!(error, LogError::DirFull { .. }),
    };
    broker.compaction_failures.note(dir, id, error.to_string(), may_pass, broker.env.clock.monotonic());
}

/// Compacts one log, if one is due; whether there may be another one. Blocks for the disk and for the throttle.
fn clean_filthiest(control: &Control, state: &Mutex<State>) -> bool {
    let claimed = claim_covered(&control.broker, state, control.lane);
    claimed.is_some_and(|(topic, partition)| clean(control, state, &topic, &partition))
}

/// Compacts a log that was claimed; whether there may be another one.
fn clean(control: &Control, state: &Mutex<State>, topic: &str, partition: &Partition) -> bool {
    let broker = &control.broker;
    let upkeep = &broker.config.upkeep;
    let options = CompactOptions {
        now: broker.env.clock.wall(),
        high_watermark: partition.high_watermark(),
        origin: origin_of(topic),
        cleaner: CleanerOptions {
            dedupe_buffer_bytes: control.lane.map_bytes(upkeep, broker.logs.dir_count()),
            ..CleanerOptions::default()
        },
        control,
    };
    let compacted = partition.log.compact(options);
    let dir = {
        let mut state = state.lock();
        state.busy.remove(&partition.id);
        state.dir
    };
    match compacted {
        Ok(outcome) => {
            broker.compaction_failures.forget(partition.id);
            tracing::info!(%topic, partition = partition.id.index, ?outcome, "compacted");
            outcome.is_some_and(|outcome| outcome.first_dirty.is_some())
        }
        Err(error) if is_log_trouble(&error) => {
            note_failure(broker, dir, topic, partition.id, &error);
            true
        }
        // The other logs are still there.
        Err(LogError::Deleted(_)) => true,
        Err(_) => false,
    }
}

/// A log in which nothing has changed is looked at again after this time at the latest.
const LOOK_AGAIN: Duration = Duration::from_mins(10);

/// A log that is due, and how filthy it is.
type Candidate = ((Arc<str>, Arc<Partition>), Cleanable);

/// Chooses a log; if none is due but one would be after a checkpoint, that is made first.
fn claim_covered(broker: &Broker, state: &Mutex<State>, lane: Lane) -> Option<(Arc<str>, Arc<Partition>)> {
    let claimed = claim(broker, state, lane);
    if claimed.is_some() {
        return claimed;
    }
    let dir = {
        let mut state = state.lock();
        std::mem::take(&mut state.awaits_checkpoint).then_some(state.dir)
    };
    checkpoint_dir(broker, dir?);
    claim(broker, state, lane)
}

/// Chooses the filthiest log among those that no worker compacts now. Only logs that may have become due are opened.
fn claim(broker: &Broker, state: &Mutex<State>, lane: Lane) -> Option<(Arc<str>, Arc<Partition>)> {
    let mut state = state.lock();
    let kept = kept_partitions(broker, state.dir);
    state.looks.keep_only(&kept);
    broker.compaction_failures.keep_only(state.dir, kept.iter().map(|kept| kept.known.id));
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let is_to_look_at = |kept: &&Kept| !kept.is_in_failed_dir(broker) && is_compacted(broker, kept);
    for kept in kept.iter().filter(is_to_look_at) {
        let due = match broker.compaction_failures.turn(kept.known.id, broker.env.clock.monotonic()) {
            Turn::First => &mut first,
            Turn::Last => &mut last,
            Turn::Never => continue,
        };
        due.extend(assess(broker, &mut state, kept).filter(|((topic, _), found)| lane.takes(topic, found)));
    }
    let (found, _) = filthiest(first).or_else(|| filthiest(last))?;
    state.busy.insert(found.1.id);
    Some(found)
}

fn is_compacted(broker: &Broker, kept: &Kept) -> bool {
    let options = broker.config.topic_options(&kept.topic.name, &kept.topic.configs);
    options.cleanup_policy.iter().any(|policy| policy == "compact")
}

/// The appender of a topic's logs, which decides whether they may use the reserve of their log dir.
fn origin_of(topic: &str) -> AppendOrigin {
    if topic == OFFSETS_TOPIC { AppendOrigin::Coordinator } else { AppendOrigin::Client }
}

/// Looks at one log, unless nothing can have changed since the last look.
fn assess(broker: &Broker, state: &mut State, kept: &Kept) -> Option<Candidate> {
    let (now, monotonic) = (broker.env.clock.wall(), broker.env.clock.monotonic());
    let period = look_again(broker, kept);
    if state.busy.contains(&kept.known.id) || !state.looks.is_due(kept, monotonic, period) {
        return None;
    }
    let partition = kept.open(broker)?;
    let covered = partition.log.recovery_point();
    // A log that needs compacting but was never rolled is rolled by its time.
    let (log, high_watermark) = (&partition.log, partition.high_watermark());
    let rolled = log.roll_if_due(now).and_then(|is_rolled| match origin_of(&kept.topic.name) {
        AppendOrigin::Coordinator if !is_rolled => log.roll_in_reserve(),
        _ => Ok(is_rolled),
    });
    let looked = rolled.and_then(|_| {
        let cleanable = log.cleanable(now, high_watermark)?;
        let awaits_checkpoint =
            !cleanable.is_due(&log.config()) && log.compaction_awaits_checkpoint(now, high_watermark)?;
        Ok((cleanable, awaits_checkpoint))
    });
    let (cleanable, awaits_checkpoint) = match looked {
        Ok(looked) => looked,
        Err(error) => {
            note_failure(broker, state.dir, &kept.topic.name, kept.known.id, &error);
            return None;
        }
    };
    if !cleanable.is_due(&log.config()) {
        state.awaits_checkpoint |= awaits_checkpoint;
        state.looks.note(kept, log, covered, monotonic);
        return None;
    }
    Some(((Arc::clone(&kept.topic.name), partition), cleanable))
}

/// The time until age alone may have made a log due: that of its records, or of its active segment.
fn look_again(broker: &Broker, kept: &Kept) -> Duration {
    let options = broker.config.topic_options(&kept.topic.name, &kept.topic.configs);
    let ages = [options.min_compaction_lag_ms, options.max_compaction_lag_ms, options.segment_ms];
    let soonest = ages.into_iter().filter(|&ms| ms > 0).min().map_or(LOOK_AGAIN, Duration::from_millis);
    soonest.min(LOOK_AGAIN)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use bytes::BytesMut;
    use riverrun_env::FileSystem;
    use riverrun_env::sim::SimEnv;
    use riverrun_records::{BatchBuilder, BatchOptions};
    use riverrun_types::{Offset, TimestampMs};
    use tokio::sync::watch;

    use super::*;
    use crate::config::BrokerConfig;
    use crate::jobs::checkpoint;
    use crate::metadata::NewTopic;
    use crate::start::open_broker;

    /// A compacted topic whose first segment holds `records` records of one key, all synced; and its directory.
    fn fill(broker: &Broker, name: &str, records: i64) -> (PartitionId, PathBuf) {
        let configs =
            [("cleanup.policy", "compact"), ("durability", "4"), ("min.cleanable.dirty.ratio", "0")];
        let configs = configs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let new = NewTopic { name: name.to_owned(), partition_count: 1, configs };
        let topic =
            broker.catalog.store().change(|draft| draft.create_topic(new)).expect("changed").expect("made");
        let partition = broker.partition(&topic, 0).expect("there");
        for record in 0..records {
            let mut batch = BatchBuilder::new(BatchOptions::default());
            batch.append(TimestampMs(record), Some(b"key"), Some(b"value"), &[]).expect("fits");
            let batch = BytesMut::from(&batch.build().expect("built")[..]);
            partition.log.append(batch, broker.append_options()).expect("taken");
            partition.log.write_staged().expect("written");
        }
        (partition.id, partition.log.path())
    }

    fn broker(sim: &SimEnv) -> Arc<Broker> {
        let config =
            BrokerConfig::from_pairs([("data.dir", "/data"), ("log.roll.ms", "1000")]).expect("valid");
        open_broker(sim.env(), config).expect("starts")
    }

    #[test]
    fn quick_lane_takes_small_logs_and_the_servers_own() {
        let holds = |clean_bytes, cleanable_bytes| Cleanable {
            first_dirty: Offset::ZERO,
            first_uncleanable: Offset(1),
            clean_bytes,
            cleanable_bytes,
            is_overdue: false,
        };
        let (little, much) = (holds(QUICK_BYTES_MAX - 1, 1), holds(QUICK_BYTES_MAX, 1));
        for (topic, found, is_quick) in [
            ("t", little, true),
            ("t", much, false),
            (OFFSETS_TOPIC, little, true),
            (OFFSETS_TOPIC, much, true),
        ] {
            assert_eq!(Lane::Quick.takes(topic, &found), is_quick, "{topic} {found:?}");
            assert!(Lane::Any.takes(topic, &found));
        }
    }

    #[test]
    fn all_workers_of_all_log_dirs_share_the_memory_for_keys() {
        let config = [("data.dir", "/data"), ("log.cleaner.threads", "3")];
        let upkeep = BrokerConfig::from_pairs(config).expect("valid").upkeep;
        for dirs in [1, 4] {
            let [any, quick] = [Lane::Any, Lane::Quick].map(|lane| lane.map_bytes(&upkeep, dirs));
            let all = dirs * (3 * any + quick);
            let total = upkeep.log_cleaner_dedupe_buffer_size;
            assert!(all <= total && all > total - 100, "{all} of {total}");
        }
        assert_eq!(Lane::Quick.map_bytes(&upkeep, 1_000_000), MAP_BYTES_MIN);
    }

    #[test]
    fn a_large_log_that_is_compacted_keeps_no_small_one_waiting() {
        let sim = SimEnv::new(1);
        let broker = broker(&sim);
        let filled = ["a", "b"].map(|name| fill(&broker, name, 10).0);
        sim.clock.advance(Duration::from_secs(1_000_000));
        let state = Mutex::new(State::default());
        // The only worker of the other lane compacts one of them, without an end.
        let (_, claimed) = claim_covered(&broker, &state, Lane::Any).expect("due");
        let small = filled.into_iter().find(|id| *id != claimed.id).expect("another one");
        let (mut control, _stop) = control(&broker);
        control.lane = Lane::Quick;
        let size = || broker.partitions.get(small).expect("live").log.size_bytes();
        let before = size();
        while clean_filthiest(&control, &state) {}
        assert!(size() < before, "{} of {before}", size());
    }

    #[test]
    fn log_deleted_while_compacted_holds_up_no_other() {
        let sim = SimEnv::new(1);
        let broker = broker(&sim);
        fill(&broker, "t", 10);
        sim.clock.advance(Duration::from_secs(1_000_000));
        let state = Mutex::new(State::default());
        let (_stop, stopping) = watch::channel(false);
        let pace = Arc::new(Mutex::new(IoPace::new(None)));
        let control = Control { broker: Arc::clone(&broker), lane: Lane::Any, pace, stop: stopping };
        let (topic, partition) = claim_covered(&broker, &state, Lane::Any).expect("due");
        broker.logs.delete(partition.id, 0).expect("deleted");
        assert!(clean(&control, &state, &topic, &partition), "the next one has its turn");
        assert!(state.lock().busy.is_empty());
    }

    /// Without a throttle; the cleaner stops when the sender says so.
    fn control(broker: &Arc<Broker>) -> (Control, watch::Sender<bool>) {
        let (stop, stopping) = watch::channel(false);
        let pace = Arc::new(Mutex::new(IoPace::new(None)));
        (Control { broker: Arc::clone(broker), lane: Lane::Any, pace, stop: stopping }, stop)
    }

    #[test]
    fn uncompactable_log_holds_up_no_other_and_shows_in_health() {
        let sim = SimEnv::new(1);
        let broker = broker(&sim);
        // The filthiest log is the one that fails.
        let (bad, path) = fill(&broker, "bad", 20);
        let (good, _) = fill(&broker, "good", 10);
        sim.clock.advance(Duration::from_secs(1_000_000));
        let state = Mutex::new(State::default());
        let (control, _stop) = control(&broker);
        let run = || while clean_filthiest(&control, &state) {};
        // Its index stays: a dir in which an index cannot be opened has failed.
        let records = path.join("00000000000000000000.log");
        sim.fs.make_unreadable(Some(&records)).expect("there");
        let size = |id: PartitionId| broker.partitions.get(id).expect("live").log.size_bytes();
        let before = (size(bad), size(good));
        run();
        assert_eq!(size(bad), before.0);
        assert!(size(good) < before.1, "{} of {}", size(good), before.1);
        let troubles = broker.health().troubles();
        assert!(
            troubles.len() == 1 && troubles[0].contains("partition bad-0 cannot be compacted"),
            "{troubles:?}"
        );
        sim.fs.make_unreadable(None).expect("readable");
        run();
        assert_eq!(size(bad), before.0, "it rests");
        sim.clock.advance(Duration::from_mins(2));
        run();
        assert!(size(bad) < before.0);
        assert_eq!(broker.health().troubles(), [""; 0]);
    }

    #[test]
    fn group_offsets_compact_in_the_reserve_when_space_runs_out() {
        let sim = SimEnv::new(1);
        // No segment is rolled for its age.
        let options =
            [("data.dir", "/data"), ("log.dir.reserve.bytes", "100000"), ("log.roll.ms", "9000000000000000")];
        let config = BrokerConfig::from_pairs(options).expect("valid");
        let broker = open_broker(sim.env(), config).expect("starts");
        let (own, _) = fill(&broker, OFFSETS_TOPIC, 100);
        let (clients, _) = fill(&broker, "t", 100);
        let size = |id: PartitionId| broker.partitions.get(id).expect("live").log.size_bytes();
        let before = size(own);
        let (control, _stop) = control(&broker);
        // With a new state, so that no earlier look keeps a log from being looked at.
        let run = || {
            let state = Mutex::new(State::default());
            while clean_filthiest(&control, &state) {}
        };
        run();
        assert_eq!((size(own), size(clients)), (before, before), "there is room");
        sim.fs.set_space(Some(50_000));
        broker.logs.measure_space();
        run();
        assert!(size(own) < before / 10, "{} of {before}", size(own));
        assert_eq!(size(clients), before);
    }

    #[test]
    fn log_is_compacted_once_there_is_room_and_health_says_so() {
        let sim = SimEnv::new(1);
        let broker = broker(&sim);
        let (id, path) = fill(&broker, "t", 100);
        sim.clock.advance(Duration::from_secs(1_000_000));
        let state = Mutex::new(State::default());
        let (control, _stop) = control(&broker);
        let run = || while clean_filthiest(&control, &state) {};
        let size = || broker.partitions.get(id).expect("live").log.size_bytes();
        let before = size();
        let reserve = broker.config.server.log_dir_reserve_bytes;
        // Enough for a checkpoint.
        sim.fs.set_space(Some(reserve + before / 2));
        run();
        assert_eq!(size(), before);
        let troubles = broker.health().troubles();
        let is_told = |trouble: &String| {
            trouble.contains("partition t-0 cannot be compacted") && trouble.contains("kept in reserve")
        };
        assert!(troubles.iter().any(is_told), "{troubles:?}");
        let names = sim.fs.read_dir(&path).expect("there");
        let is_left = |name: &str| name.contains(".cleaned") || name.contains(".swap");
        assert!(!names.iter().any(|entry| entry.name.to_str().is_some_and(is_left)), "{names:?}");
        sim.fs.set_space(None);
        sim.clock.advance(Duration::from_mins(2));
        run();
        assert!(size() < before, "{} of {before}", size());
        assert_eq!(broker.health().troubles(), [""; 0]);
    }

    #[test]
    fn logs_of_a_log_dir_that_has_failed_are_passed_over() {
        let sim = SimEnv::new(1);
        let config = [("data.dir", "/data"), ("log.roll.ms", "1000"), ("log.dirs", "/one,/two")];
        let broker =
            open_broker(sim.env(), BrokerConfig::from_pairs(config).expect("valid")).expect("starts");
        let filled = ["a", "b", "c", "d"].map(|name| fill(&broker, name, 10));
        let in_two: Vec<_> = filled.iter().filter(|(_, path)| path.starts_with("/two")).collect();
        assert_eq!(in_two.len(), 2);
        sim.fs.kill_device(Some("/two".as_ref())).expect("there");
        checkpoint(&broker);
        sim.fs.kill_device(None).expect("none");
        sim.clock.advance(Duration::from_secs(1_000_000));
        let before = in_two.iter().map(|(id, _)| broker.partitions.get(*id).expect("live").log.size_bytes());
        let before: Vec<_> = before.collect();
        let (control, _stop) = control(&broker);
        let state = Mutex::new(State::default());
        let mut cleaned = 0;
        while clean_filthiest(&control, &state) {
            cleaned += 1;
            assert!(cleaned < 100, "it comes to an end");
        }
        let told = broker.health().troubles();
        assert!(told.len() == 1 && told[0].contains("/two"), "only the dir is in trouble: {told:?}");
        let after = in_two.iter().map(|(id, _)| broker.partitions.get(*id).expect("live").log.size_bytes());
        assert_eq!(before, after.collect::<Vec<_>>());
    }
}

//! Work that is due by time: rolling, retention, compaction, checkpoints, forgetting.
//!
//! Each job is one task that sleeps, then works on the blocking pool, so that no other task waits for its disk. A job that
//! waits for the disk of a log dir has a task for each dir, and touches no other one: a dir that does not answer holds up its
//! own jobs only. A job that fails for one partition is logged and goes on with the next, and none takes more than a turn of
//! bounded work before the others had theirs. Partitions of a log dir that has failed are passed over: nothing is written
//! there, and its failure was logged once for all of them. Retention and compaction touch only records that a checkpoint
//! covers, and make one where newer records are due.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use riverrun_log::Retained;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::broker::Broker;
use crate::error::is_log_trouble;
use crate::log_limit::UPKEEP_TROUBLE;
use crate::stop_signal::{StopSignal, stopped};
use crate::supervisor::on_blocking_thread;
use crate::upkeep::{Kept, Looks, checkpoint_dir, in_turns, kept_partitions};
use crate::{cleaner, damaged_partitions, scrub};

/// Pause after a full log dir made retention run.
const ROOM_PAUSE: Duration = Duration::from_secs(5);
/// How often partitions that were not used since the last look are closed, and partitions tried again that a shortage kept
/// from being opened.
const IDLE_CHECK: Duration = Duration::from_secs(30);

/// Pause after partitions were closed to make room for others: partitions that are opened meanwhile have a reserve.
const SURPLUS_PAUSE: Duration = Duration::from_millis(250);

/// Starts all jobs; each ends when `stop` turns true.
pub(crate) fn spawn(broker: &Arc<Broker>, stop: &StopSignal, tasks: &mut JoinSet<()>) {
    let upkeep = &broker.config.upkeep;
    let every = |ms: u64| Duration::from_millis(ms.max(1));
    let server = &broker.config.server;
    let supervisor = &broker.supervisor;
    let mut start = |name: &str, work: BoxFuture<'static, ()>| _ = tasks.spawn(supervisor.task(name, work));
    start("group-timer", broker.groups.run_timer(stop.clone()).boxed());
    start("group-retries", broker.groups.run_retries(stop.clone()).boxed());
    start("group-patterns", broker.groups.run_patterns(stop.clone()).boxed());
    let interval = every(upkeep.log_flush_offset_checkpoint_interval_ms);
    start("checkpoint", job(broker, stop, interval, checkpoint_rest).boxed());
    let interval = every(server.producer_id_expiration_check_interval_ms);
    start("producer-expiration", job(broker, stop, interval, expire_producers).boxed());
    let cleaner_pace = cleaner::pace(upkeep);
    let weak = Arc::downgrade(broker);
    broker.logs.on_surplus(move || {
        weak.upgrade().into_iter().for_each(|broker| broker.surpluses.iter().for_each(Notify::notify_one));
    });
    for dir in 0..broker.logs.dir_count() {
        spawn_of_dir(broker, dir, stop, tasks);
        if upkeep.log_cleaner_enable {
            let work = cleaner::run(Arc::clone(broker), dir, Arc::clone(&cleaner_pace), stop.clone());
            tasks.spawn(supervisor.task(&name_of_job(broker, "cleaner", dir), work));
        }
    }
    tasks.spawn(supervisor.errand("marks", damaged_partitions::run(Arc::clone(broker), stop.clone())));
}

/// Starts the jobs of a log dir, but for the cleaner.
fn spawn_of_dir(broker: &Arc<Broker>, dir: usize, stop: &StopSignal, tasks: &mut JoinSet<()>) {
    let upkeep = &broker.config.upkeep;
    let every = |ms: u64| Duration::from_millis(ms.max(1));
    let supervisor = &broker.supervisor;
    let mut start = |job: &str, work: BoxFuture<'static, ()>| {
        tasks.spawn(supervisor.task(&name_of_job(broker, job, dir), work));
    };
    let looks = Arc::new(Mutex::new(Looks::default()));
    start("make-room", make_room(Arc::clone(broker), dir, stop.clone(), Arc::clone(&looks)).boxed());
    let stopping = stop.clone();
    let retention = move |broker: &Broker| apply_retention(broker, dir, &looks, &stopping);
    start("retention", job(broker, stop, every(upkeep.log_retention_check_interval_ms), retention).boxed());
    let checkpoint = move |broker: &Broker| checkpoint_dir(broker, dir);
    let interval = every(upkeep.log_flush_offset_checkpoint_interval_ms);
    start("checkpoint", job(broker, stop, interval, checkpoint).boxed());
    start("close-surplus", close_surplus(Arc::clone(broker), dir, stop.clone()).boxed());
    let idle_check = move |broker: &Broker| close_idle(broker, dir);
    start("idle-check", job(broker, stop, IDLE_CHECK, idle_check).boxed());
    if let Ok(interval_ms @ 1..) = u64::try_from(upkeep.log_scrub_interval_ms) {
        start("scrub", scrub::run(Arc::clone(broker), dir, every(interval_ms), stop.clone()).boxed());
    }
    let sync_found = sync_found(Arc::clone(broker), dir);
    tasks.spawn(supervisor.errand(&name_of_job(broker, "sync-found", dir), sync_found));
}

/// The name by which a log dir's job is known.
fn name_of_job(broker: &Broker, job: &str, dir: usize) -> String {
    format!("{job} {}", broker.logs.dir_path(dir).display())
}

/// Runs `work` every `period`, first after one period.
fn job(
    broker: &Arc<Broker>,
    stop: &StopSignal,
    period: Duration,
    work: impl Fn(&Broker) + Send + Sync + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let (broker, mut stop) = (Arc::clone(broker), stop.clone());
    let work = Arc::new(work);
    async move {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            tokio::select! {
                () = stopped(&mut stop) => return,
                _ = ticks.tick() => {}
            }
            let (broker, work) = (Arc::clone(&broker), Arc::clone(&work));
            on_blocking_thread(move || work(&broker)).await;
        }
    }
}

/// Syncs the files that a process which did not stop in order has left in a log dir, while clients are served already.
async fn sync_found(broker: Arc<Broker>, dir: usize) {
    on_blocking_thread(move || broker.logs.sync_found(dir)).await;
}

/// Runs retention for a log dir whenever it is full, instead of at its next turn.
async fn make_room(broker: Arc<Broker>, dir: usize, mut stop: StopSignal, looks: Arc<Mutex<Looks>>) {
    loop {
        tokio::select! {
            () = stopped(&mut stop) => return,
            () = broker.shortages[dir].notified() => {}
        }
        let (for_work, looks, stopping) = (Arc::clone(&broker), Arc::clone(&looks), stop.clone());
        on_blocking_thread(move || apply_retention(&for_work, dir, &looks, &stopping)).await;
        tokio::select! {
            () = stopped(&mut stop) => return,
            () = tokio::time::sleep(ROOM_PAUSE) => {}
        }
    }
}

/// Closes partitions of a log dir whenever hardly one more may be open, before an opening has to wait for that.
async fn close_surplus(broker: Arc<Broker>, dir: usize, mut stop: StopSignal) {
    loop {
        tokio::select! {
            () = stopped(&mut stop) => return,
            () = broker.surpluses[dir].notified() => {}
        }
        let (for_work, stopping) = (Arc::clone(&broker), stop.clone());
        on_blocking_thread(move || while !*stopping.borrow() && for_work.logs.close_some(dir) {}).await;
        tokio::select! {
            () = stopped(&mut stop) => return,
            () = tokio::time::sleep(SURPLUS_PAUSE) => {}
        }
    }
}

/// A partition that has not grown is looked at again after this share of the time in which its records become old.
const LOOKS_PER_RETENTION: u64 = 16;

fn apply_retention(broker: &Broker, dir: usize, looks: &Mutex<Looks>, stop: &StopSignal) {
    if look_at_all(broker, dir, looks, stop) {
        checkpoint_dir(broker, dir);
        look_at_all(broker, dir, looks, stop);
    }
}

/// Applies retention to each partition of a log dir that is due, until the server stops. Returns whether it would remove
/// more after a checkpoint.
fn look_at_all(broker: &Broker, dir: usize, looks: &Mutex<Looks>, stop: &StopSignal) -> bool {
    let mut looks = looks.lock();
    let kept = kept_partitions(broker, dir);
    looks.keep_only(&kept);
    let mut awaits_checkpoint = false;
    let is_done = in_turns(
        kept,
        || *stop.borrow(),
        |kept| {
            let look = look_at(broker, &mut looks, kept);
            awaits_checkpoint |= look == Look::AwaitsCheckpoint;
            look == Look::More
        },
    );
    is_done && awaits_checkpoint
}

/// The result of a partition's turn of retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Done,
    /// Another turn has something to do.
    More,
    /// Another turn would have something to do, if a checkpoint covered it.
    AwaitsCheckpoint,
}

/// One turn of retention, if the partition is due.
fn look_at(broker: &Broker, looks: &mut Looks, kept: &Kept) -> Look {
    let (now, monotonic) = (broker.env.clock.wall(), broker.env.clock.monotonic());
    let options = broker.config.topic_options(&kept.topic.name, &kept.topic.configs);
    let retention_ms = u64::try_from(options.retention_ms).unwrap_or(u64::MAX);
    let period = Duration::from_millis(retention_ms.min(options.segment_ms) / LOOKS_PER_RETENTION);
    if kept.is_in_failed_dir(broker) || !looks.is_due(kept, monotonic, period) {
        return Look::Done;
    }
    let Some(partition) = kept.open(broker) else { return Look::Done };
    let (log, high_watermark) = (&partition.log, partition.high_watermark());
    let covered = log.recovery_point();
    let applied = log.roll_if_due(now).and_then(|_| log.apply_retention(now, high_watermark));
    let looked = applied.and_then(|retained| match retained {
        Retained { is_more: true, .. } => Ok((retained, Look::More)),
        _ if log.retention_awaits_checkpoint(now, high_watermark)? => Ok((retained, Look::AwaitsCheckpoint)),
        _ => Ok((retained, Look::Done)),
    });
    match looked {
        // Looks once more after segments went: the rest may be due as well, and their files are removed later.
        Ok((Retained { segments: 0, .. }, Look::Done)) if !log.awaits_removals() => {
            looks.note(kept, log, covered, monotonic);
            Look::Done
        }
        Ok((_, look)) => look,
        Err(error) => {
            if is_log_trouble(&error) {
                UPKEEP_TROUBLE.warn(|suppressed| {
                    let (topic, partition) = (&*kept.topic.name, partition.id.index);
                    tracing::error!(topic, partition, %error, suppressed, "retention failed");
                });
            }
            Look::Done
        }
    }
}

#[cfg(test)]
pub(crate) fn checkpoint(broker: &Broker) {
    (0..broker.logs.dir_count()).for_each(|dir| checkpoint_dir(broker, dir));
    checkpoint_rest(broker);
}

/// The part of a checkpoint that belongs to no log dir.
fn checkpoint_rest(broker: &Broker) {
    broker.catalog.store().check_in_place();
    broker.logs.look_for_vanished_journals();
    broker.catalog.forget_discarded();
    write_metadata_copies(broker);
}

/// Writes the second copies of metadata files that found no room.
fn write_metadata_copies(broker: &Broker) {
    broker.catalog.store().write_copy();
    if let Err(error) = broker.journals.write_copy() {
        tracing::error!(%error, "the copy of the list of journals failed");
        broker.catalog.store().fail(&error);
    }
}

fn expire_producers(broker: &Broker) {
    // A producer that is forgotten because the clock was set has lost its protection against duplicates.
    let now = broker.patient_wall.now(&*broker.env.clock);
    for partition in broker.partitions.all() {
        partition.log.expire_producers(now);
    }
}

fn close_idle(broker: &Broker, dir: usize) {
    broker.partitions.release_unused();
    broker.logs.close_idle(dir, IDLE_CHECK);
    broker.open_after_shortages(dir);
}

#[cfg(test)]
mod tests {
    use riverrun_env::FileSystem as _;
    use riverrun_env::sim::SimEnv;
    use riverrun_log::config::LogConfig;
    use riverrun_types::{LeaderEpoch, PartitionId, TimestampMs, TopicId};
    use tokio::sync::watch;

    use super::*;
    use crate::config::BrokerConfig;
    use crate::metadata::{NewTopic, Topic};
    use crate::partitions::Partition;
    use crate::start::open_broker;
    use crate::testing::{log_lines, record};

    /// A stop signal of a server that does not stop.
    fn going_on() -> StopSignal {
        watch::channel(false).1
    }

    /// Applies retention in both log dirs.
    fn retain_both(broker: &Broker, looks: &[Mutex<Looks>; 2], stop: &StopSignal) {
        (0..2).for_each(|dir| apply_retention(broker, dir, &looks[dir], stop));
    }

    #[test]
    fn retention_ends_between_two_partitions_when_the_server_stops() {
        let sim = SimEnv::new(1);
        let (broker, _) = many_partitions(&sim);
        sim.clock.advance(Duration::from_hours(1));
        let kept = || (0..2).flat_map(|dir| kept_partitions(&broker, dir));
        let sizes = || kept().map(|kept| kept.known.size_bytes).sum::<u64>();
        let before = sizes();
        retain_both(&broker, &Default::default(), &watch::channel(true).1);
        assert_eq!(sizes(), before);
        retain_both(&broker, &Default::default(), &going_on());
        assert!(sizes() < before);
    }

    #[test]
    fn work_of_many_turns_holds_up_no_work_of_one() {
        let mut seen = Vec::new();
        let is_done = in_turns(
            vec![("large", 3), ("small", 1), ("other", 2)],
            || false,
            |(name, left)| {
                seen.push(*name);
                *left -= 1;
                *left > 0
            },
        );
        assert!(is_done);
        assert_eq!(seen, ["large", "small", "other", "large", "other", "large"]);
        assert!(!in_turns(vec![()], || true, |()| unreachable!("it is stopped")));
    }

    #[test]
    fn files_of_an_unknown_topic_are_left_alone() {
        let sim = SimEnv::new(1);
        let config = BrokerConfig::from_pairs([("data.dir", "/data")]).expect("valid");
        let broker = open_broker(sim.env(), config).expect("starts");
        let id = PartitionId { topic: TopicId([7; 16]), index: 0 };
        let log =
            broker.logs.partition(id, 0, Arc::new(LogConfig::default()), LeaderEpoch(0)).expect("a handle");
        sim.fs.create_dir_all(&log.path()).expect("made");
        assert!(kept_partitions(&broker, 0).is_empty());
        assert!(sim.fs.exists(&log.path()).expect("known"));
    }

    #[test]
    fn idle_log_dir_fails_once_its_device_is_dead() {
        let sim = SimEnv::new(1);
        let config = BrokerConfig::from_pairs([("data.dir", "/data"), ("log.dirs", "/one,/two")]);
        let broker = open_broker(sim.env(), config.expect("valid")).expect("starts");
        sim.fs.kill_device(Some("/two".as_ref())).expect("there");
        checkpoint(&broker);
        let failed: Vec<bool> = (0..2).map(|dir| broker.logs.dir_failure(dir).is_some()).collect();
        assert_eq!(failed, [false, true]);
        broker.logs.close().expect("the other one stops in order");
    }

    /// Partitions of a topic, each with a record, half of them in `/two`: one line for each would be many.
    const MANY: i32 = 80;

    fn many_partitions(sim: &SimEnv) -> (Arc<Broker>, Arc<Topic>) {
        let config = BrokerConfig::from_pairs([("data.dir", "/data"), ("log.dirs", "/one,/two")]);
        let broker = open_broker(sim.env(), config.expect("valid")).expect("starts");
        let configs = [("retention.ms", "1000"), ("durability", "4")];
        let configs = configs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let new = NewTopic { name: "t".to_owned(), partition_count: MANY, configs };
        let topic =
            broker.catalog.store().change(|draft| draft.create_topic(new)).expect("changed").expect("made");
        for index in 0..MANY {
            let partition = broker.partition(&topic, index).expect("there");
            partition.append(record(TimestampMs(0), b"value"), broker.append_options()).expect("taken");
            partition.write_staged().expect("written");
        }
        (broker, topic)
    }

    /// A few lines are the dir's own, or are rate-limited.
    fn assert_few_lines(of: &str, work: impl FnOnce()) {
        let lines = log_lines(work);
        assert!(lines < 10, "{of}: {lines} lines");
    }

    #[test]
    fn log_dir_that_fails_logs_no_line_for_each_partition() {
        let sim = SimEnv::new(1);
        let (broker, topic) = many_partitions(&sim);
        sim.clock.advance(Duration::from_secs(1_000_000));
        let looks: [Mutex<Looks>; 2] = Default::default();
        sim.fs.kill_device(Some("/two".as_ref())).expect("there");
        assert_few_lines("a checkpoint", || checkpoint(&broker));
        assert!(broker.logs.dir_failure(1).is_some() && broker.logs.dir_failure(0).is_none());
        assert_eq!(
            log_lines(|| _ = look_at_all(&broker, 1, &looks[1], &going_on())),
            0,
            "its failure was told"
        );
        let size = |index| {
            let dir = broker.replicas.log_dir(PartitionId { topic: topic.id, index });
            (dir, broker.partition(&topic, index).map(|partition| partition.log.size_bytes()))
        };
        let is_emptied = |index| matches!(size(index), (Some(0), Ok(0)));
        retain_both(&broker, &looks, &going_on());
        assert_eq!((0..MANY).filter(|index| is_emptied(*index)).count(), 40, "the other dir goes on");
        let id = topic.id;
        broker.catalog.store().change(|draft| draft.delete_topic(id).is_ok()).expect("changed");
        assert_few_lines("the deletion", || broker.catalog.discard_topics(&[id]));
    }

    #[test]
    fn retention_on_a_dead_device_logs_no_line_for_each_partition() {
        let sim = SimEnv::new(1);
        let (broker, _) = many_partitions(&sim);
        checkpoint(&broker);
        sim.clock.advance(Duration::from_secs(1_000_000));
        sim.fs.kill_device(Some("/two".as_ref())).expect("there");
        let looks: [Mutex<Looks>; 2] = Default::default();
        assert_few_lines("the first look", || retain_both(&broker, &looks, &going_on()));
        broker.logs.look_at_devices();
        assert!(broker.logs.dir_failure(1).is_some());
        assert_eq!(
            log_lines(|| _ = look_at_all(&broker, 1, &looks[1], &going_on())),
            0,
            "its failure was told"
        );
    }

    /// A log of three segments of which retention takes two, and to which nothing is appended any more.
    fn idle_log(broker: &Broker) -> Arc<Partition> {
        let configs = [("retention.bytes", "1000000"), ("segment.bytes", "1048576"), ("durability", "4")];
        let configs = configs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let new = NewTopic { name: "t".to_owned(), partition_count: 1, configs };
        let topic =
            broker.catalog.store().change(|draft| draft.create_topic(new)).expect("changed").expect("made");
        let partition = broker.partition(&topic, 0).expect("there");
        let value = vec![7; 400_000];
        for timestamp in 0..6 {
            let batch = record(TimestampMs(timestamp), &value);
            partition.log.append(batch, broker.append_options()).expect("taken");
            partition.log.write_staged().expect("written");
        }
        partition
    }

    #[test]
    fn shortage_that_has_passed_is_no_trouble_any_more() {
        let sim = SimEnv::new(1);
        let start = || {
            let config = BrokerConfig::from_pairs([("data.dir", "/data")]).expect("valid");
            open_broker(sim.env(), config).expect("starts")
        };
        let before = start();
        drop(idle_log(&before));
        drop(before);
        let broker = start();
        let topic = Arc::clone(broker.catalog.cluster().topic("t").expect("made"));
        sim.fs.exhaust_descriptors(true);
        broker.partition(&topic, 0).expect_err("there are no descriptors");
        close_idle(&broker, 0);
        assert!(
            broker.health().troubles().iter().any(|trouble| trouble.starts_with("partition t-0 is offline"))
        );
        sim.fs.exhaust_descriptors(false);
        close_idle(&broker, 0);
        assert_eq!(broker.health().troubles(), Vec::<String>::new());
    }

    #[test]
    fn full_log_dir_is_tried_with_one_partition_at_a_time() {
        let sim = SimEnv::new(1);
        let start = || {
            let config = BrokerConfig::from_pairs([("data.dir", "/data"), ("log.dirs", "/one,/two")]);
            open_broker(sim.env(), config.expect("valid")).expect("starts")
        };
        let before = start();
        let configs = [("durability".to_owned(), "4".to_owned())].into();
        let new = NewTopic { name: "t".to_owned(), partition_count: 8, configs };
        let made =
            before.catalog.store().change(|draft| draft.create_topic(new)).expect("changed").expect("made");
        let indexes = |topic: &Topic, path: &str| -> Vec<i32> {
            let is_there = |index: &i32| {
                let id = PartitionId { topic: topic.id, index: *index };
                before.replicas.log_dir(id).is_some_and(|dir| before.logs.dir_path(dir).ends_with(path))
            };
            (0..8).filter(is_there).collect()
        };
        let [in_one, in_two] = ["one", "two"].map(|path| indexes(&made, path));
        assert_eq!((in_one.len(), in_two.len()), (4, 4));
        let first = before.partition(&made, in_one[0]).expect("there").log.path();
        for index in 0..8 {
            let partition = before.partition(&made, index).expect("there");
            partition.append(record(TimestampMs(0), b"value"), before.append_options()).expect("taken");
            partition.write_staged().expect("written");
        }
        sim.fs.kill();
        drop(before);
        let broker = start();
        let topic = Arc::clone(broker.catalog.cluster().topic("t").expect("made"));
        sim.fs.exhaust_descriptors(true);
        for index in 0..8 {
            broker.partition(&topic, index).expect_err("there are no descriptors");
        }
        sim.fs.exhaust_descriptors(false);
        sim.fs.fill_device(Some("/one".as_ref()));
        let operations_of = |work: &dyn Fn()| {
            let before = sim.fs.operations();
            work();
            sim.fs.operations() - before
        };
        let of_one = operations_of(&|| {
            broker.partition(&topic, in_one[0]).expect_err("there is no space");
        });
        assert!(of_one > 0, "nothing was tried");
        let open_after_shortages = || (0..2).for_each(|dir| broker.open_after_shortages(dir));
        open_after_shortages();
        let live: Vec<_> = broker.partitions.all().iter().map(|partition| partition.id.index).collect();
        assert!(in_two.iter().all(|index| live.contains(index)) && live.len() == 4, "{live:?}");
        assert_eq!(operations_of(&open_after_shortages), of_one);
        // The partition that is tried first stays short.
        sim.fs.fill_device(Some(&first));
        (0..100).for_each(|_| open_after_shortages());
        assert_eq!(broker.partitions.all().len(), 7);
        sim.fs.fill_device(None);
        open_after_shortages();
        assert_eq!(broker.partitions.all().len(), 8);
    }

    #[test]
    fn missing_metadata_copies_are_written_at_a_checkpoint() {
        let sim = SimEnv::new(1);
        let config = BrokerConfig::from_pairs([("data.dir", "/data")]).expect("valid");
        let broker = open_broker(sim.env(), config).expect("starts");
        let note_used = |id: &str| {
            sim.fs.refuse_renames_after(1);
            broker.journals.note_used(0, id).expect("the list itself is written");
        };
        note_used("one");
        sim.fs.refuse_renames_after(1);
        let wide = NewTopic { name: "wide".to_owned(), partition_count: 100_000, configs: [].into() };
        for _ in 0..8 {
            let grown = broker.catalog.store().change(|draft| {
                let id = draft.create_topic(wide.clone()).expect("made").id;
                draft.delete_topic(id).expect("deleted");
            });
            grown.expect("changed");
        }
        let told = || {
            let troubles = broker.health().troubles();
            ["snapshot", "journals"]
                .map(|file| troubles.iter().any(|told| told.starts_with(&format!("/data/meta/{file}-copy"))))
        };
        assert_eq!(told(), [true, true]);
        checkpoint(&broker);
        assert_eq!(told(), [true, true], "there is no room yet");
        sim.fs.refuse_renames(false);
        checkpoint(&broker);
        assert_eq!(told(), [false, false]);
        note_used("other");
        sim.fs.refuse_renames(false);
        sim.fs.fail_sync_after(0);
        write_metadata_copies(&broker);
        let failure = broker.catalog.store().failure().expect("nobody knows what the disk holds");
        assert!(failure.contains("/data/meta/journals-copy"), "{failure}");
    }

    #[test]
    fn look_during_a_checkpoint_is_not_the_last_one() {
        let sim = SimEnv::new(1);
        let config = BrokerConfig::from_pairs([("data.dir", "/data")]).expect("valid");
        let broker = open_broker(sim.env(), config).expect("starts");
        let partition = idle_log(&broker);
        let before = partition.log.size_bytes();
        let looks = Arc::new(Mutex::new(Looks::default()));
        let (for_look, looks_then) = (Arc::clone(&broker), Arc::clone(&looks));
        sim.fs.during_next_sync(move || assert!(look_at_all(&for_look, 0, &looks_then, &going_on())));
        checkpoint(&broker);
        assert_eq!(partition.log.size_bytes(), before, "the look came too early");
        apply_retention(&broker, 0, &looks, &going_on());
        assert!(partition.log.size_bytes() < 2_000_000, "{}", partition.log.size_bytes());
    }
}

//! Changes to topics and what follows from them outside of the metadata: files go, open logs learn their new
//! options, the server's own topic comes to be.
//!
//! Everything here waits for the disk on a thread that may block, never on one that serves connections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use riverrun_log::JournalMark;
use riverrun_types::{PartitionId, TopicId};

use super::Broker;
use crate::aside::waiting;
use crate::config::{BrokerConfig, TopicOverrides};
use crate::flow::source::Source;
use crate::log_limit::REMOVAL_TROUBLE;
use crate::metadata::{Draft, MetadataError, NewTopic, Topic, TopicError};
use crate::stop_signal::StopSignal;
use crate::supervisor::aside;
use crate::topic_names::OFFSETS_TOPIC;

/// Deleted topics whose files are gone, while the journals may still have records of them. The metadata remembers them
/// that long: what a start finds of a topic that nobody knows is kept.
#[derive(Debug, Default)]
pub(crate) struct Discarded {
    waiting: Mutex<BTreeMap<TopicId, JournalMark>>,
}

impl Broker {
    /// Makes a change to the metadata for a source; it is durable and visible when this returns.
    pub(crate) async fn change_metadata<T: Send + 'static>(
        self: &Arc<Self>,
        source: Source,
        plan: impl FnOnce(&mut Draft<'_>) -> T + Send + 'static,
    ) -> Result<T, MetadataError> {
        self.change_metadata_and(source, plan, |_| {}).await
    }

    /// As [`Self::change_metadata`]; `tell` hears what has come of it, also if whoever waits for it has gone meanwhile.
    pub(crate) async fn change_metadata_and<T: Send + 'static>(
        self: &Arc<Self>,
        source: Source,
        plan: impl FnOnce(&mut Draft<'_>) -> T + Send + 'static,
        tell: impl FnOnce(&T) + Send + 'static,
    ) -> Result<T, MetadataError> {
        let change = move |broker: &Arc<Self>| {
            broker.close_failed_dirs();
            broker.metadata.change(plan).inspect(tell)
        };
        self.in_change_turn(source, change).await
    }

    /// Drafts a change and drops it, after which nothing has changed: what would come of it. As large as the change itself,
    /// so that no thread that serves connections works on it.
    pub(crate) async fn rehearse_change<T: Send + 'static>(
        self: &Arc<Self>,
        source: Source,
        plan: impl FnOnce(&mut Draft<'_>) -> T + Send + 'static,
    ) -> Result<T, MetadataError> {
        self.in_change_turn(source, move |broker| Ok(broker.metadata.rehearse(plan))).await
    }

    /// Does `work` that changes the metadata, or drafts a change, once it is the turn of this source. There is one change at a
    /// time in any case: those that wait for it take no thread meanwhile, and none of the turns to do much, so that whoever asks
    /// for something else does not wait for a slow disk with them. Sources come to their turn one after the other.
    pub(crate) async fn in_change_turn<T: Send + 'static>(
        self: &Arc<Self>,
        source: Source,
        work: impl FnOnce(&Arc<Self>) -> Result<T, MetadataError> + Send + 'static,
    ) -> Result<T, MetadataError> {
        waiting(async {
            let turn = self.change_turns.take(source).await;
            let work = move |broker: &Arc<Self>| {
                // It goes on although whoever waits for it may have gone.
                let _turn = turn;
                work(broker)
            };
            self.blocking(work).await
        })
        .await
    }

    /// Puts no new partition into a log dir that takes no more writes.
    fn close_failed_dirs(&self) {
        let dirs = 0..self.logs.dir_count();
        dirs.filter(|dir| self.logs.dir_failure(*dir).is_some()).for_each(|dir| self.metadata.close_dir(dir));
    }

    /// Runs `work` where waiting for the disk holds nobody up.
    pub(crate) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> Result<T, MetadataError> + Send + 'static,
    ) -> Result<T, MetadataError> {
        let broker = Arc::clone(self);
        match tokio::task::spawn_blocking(move || work(&broker)).await {
            Ok(outcome) => outcome,
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            Err(_) => Err(MetadataError::Stopping),
        }
    }

    /// Makes the topics that a client asked for without them being there. Answers why each that could not be made
    /// could not; those that somebody else has made meanwhile are fine.
    pub(crate) async fn create_missing_topics(
        self: &Arc<Self>,
        source: Source,
        names: Vec<String>,
    ) -> Result<BTreeMap<String, TopicError>, MetadataError> {
        let config = Arc::clone(&self.config);
        self.change_metadata(source, move |draft| {
            let mut refused = BTreeMap::new();
            for name in names {
                match draft.create_topic(default_topic(&config, &name)) {
                    Ok(_) | Err(TopicError::Exists(_)) => {}
                    Err(error) => _ = refused.insert(name, error),
                }
            }
            refused
        })
        .await
    }

    /// The topic of group offsets, made if it is not there.
    pub(crate) async fn offsets_topic(self: &Arc<Self>, source: Source) -> Result<Arc<Topic>, MetadataError> {
        if let Some(topic) = self.metadata.cluster().topic(OFFSETS_TOPIC) {
            return Ok(Arc::clone(topic));
        }
        let new = default_topic(&self.config, OFFSETS_TOPIC);
        let made =
            self.change_metadata(source, move |draft| match draft.image().cluster.topic(OFFSETS_TOPIC) {
                Some(topic) => Ok(Arc::clone(topic)),
                None => draft.create_topic(new),
            });
        made.await?.map_err(|error| MetadataError::OffsetsTopic(error.to_string()))
    }

    /// Takes deleted topics out of use and removes their files. Blocks for the disk. What cannot be removed is tried
    /// again after the next start.
    pub(crate) fn discard_topics(&self, deleted: &[TopicId]) {
        let node = self.metadata.node();
        // First what waits for them in memory, since a disk may not answer.
        for id in deleted {
            let partitions = node.doomed().get(id).map_or(0, |dirs| dirs.len());
            (0..)
                .take(partitions)
                .for_each(|index| self.partitions.remove(PartitionId { topic: *id, index }));
        }
        let is_gone =
            |id: &&TopicId| node.doomed().get(*id).is_some_and(|dirs| self.discard_partitions(**id, dirs));
        let mut gone: Vec<TopicId> = deleted.iter().filter(is_gone).copied().collect();
        if !self.is_removal_durable(&gone, node.doomed()) {
            gone.clear();
        }
        let mark = self.logs.mark_journals();
        self.discarded.waiting.lock().extend(gone.into_iter().map(|id| (id, mark.clone())));
        self.forget_discarded();
    }

    /// The deletion of these topics has failed. If nobody knows whether it was written down, the next start may find them
    /// gone: nothing is acked to them until then, and the server stops soon.
    pub(crate) fn doubt_topics(&self, topics: &[TopicId], failed: &MetadataError) {
        let was_tried = !matches!(failed, MetadataError::Poisoned(_));
        if was_tried && self.metadata.failure().is_some() {
            self.partitions.withdraw(topics);
        }
    }

    /// Has the metadata forget deleted topics of which nothing is left anywhere. Blocks for the disk.
    pub(crate) fn forget_discarded(&self) {
        let mut waiting = self.discarded.waiting.lock();
        let is_gone = |_: &TopicId, mark: &mut JournalMark| self.logs.have_journals_passed(mark);
        let gone: BTreeMap<TopicId, JournalMark> = waiting.extract_if(.., is_gone).collect();
        drop(waiting);
        if gone.is_empty() {
            return;
        }
        let ids: Vec<TopicId> = gone.keys().copied().collect();
        if let Err(error) = self.metadata.change(|draft| draft.forget_topics(&ids)) {
            tracing::warn!(%error, "that files of deleted topics are gone cannot be written down");
            self.discarded.waiting.lock().extend(gone);
        }
    }

    /// Whether nothing of the topic is left.
    fn discard_partitions(&self, topic: TopicId, dirs: &[u16]) -> bool {
        let mut is_gone = true;
        for (index, dir) in (0..).zip(dirs) {
            let id = PartitionId { topic, index };
            self.replicas.open_failures.forget(id);
            if let Err(error) = self.logs.delete(id, usize::from(*dir)) {
                REMOVAL_TROUBLE.warn(|suppressed| {
                    tracing::warn!(partition = %id, %error, suppressed, "files of a deleted topic stay");
                });
                is_gone = false;
            }
        }
        is_gone
    }

    /// Makes sure that the directories of topics stay away. One that came back after a power cut, when the metadata has
    /// forgotten the topic, would look like a topic that the metadata has lost.
    fn is_removal_durable(&self, gone: &[TopicId], dirs: &BTreeMap<TopicId, Arc<[u16]>>) -> bool {
        let dirs: BTreeSet<u16> =
            gone.iter().filter_map(|id| dirs.get(id)).flat_map(|of| of.iter().copied()).collect();
        dirs.into_iter().all(|dir| {
            let path = self.logs.dir_path(usize::from(dir));
            let synced = self.env.fs.sync_dir(path);
            if let Err(error) = &synced {
                tracing::warn!(path = %path.display(), %error, "the removal of topics may not be durable");
            }
            synced.is_ok()
        })
    }
}

/// Goes on with removals that the end of the process has cut short. Which ones is settled by the call; the disk's time
/// is spent when the future runs, on the blocking pool, so that a start does not wait for it. Ends between two topics
/// when `stop` turns true.
pub(crate) fn resume_removals(
    broker: &Arc<Broker>,
    stop: &StopSignal,
) -> impl Future<Output = ()> + Send + use<> {
    let (broker, stop) = (Arc::clone(broker), stop.clone());
    let doomed: Vec<TopicId> = broker.metadata.node().doomed().keys().copied().collect();
    async move {
        for id in doomed {
            if *stop.borrow() {
                return;
            }
            let broker = Arc::clone(&broker);
            aside(move || broker.discard_topics(&[id])).await;
        }
    }
}

/// A topic that is made because someone needs it: the server's own with the options that it needs, any other with the
/// defaults.
fn default_topic(config: &BrokerConfig, name: &str) -> NewTopic {
    let partition_count = match name {
        OFFSETS_TOPIC => config.groups.offsets_topic_num_partitions,
        _ => config.server.num_partitions,
    };
    NewTopic { name: name.to_owned(), partition_count, configs: required_configs(config, name) }
}

/// The configs that a topic of this name needs to do what it is for: none, but for the server's own.
fn required_configs(config: &BrokerConfig, name: &str) -> TopicOverrides {
    if name != OFFSETS_TOPIC {
        return TopicOverrides::new();
    }
    let configs = [
        ("cleanup.policy", "compact".to_owned()),
        ("compression.type", "producer".to_owned()),
        ("segment.bytes", config.groups.offsets_topic_segment_bytes.to_string()),
    ];
    configs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::path::PathBuf;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use riverrun_env::FileSystem as _;
    use riverrun_env::sim::SimEnv;
    use tokio::runtime::Runtime;
    use tokio::sync::watch;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;
    use crate::aside::{self, Aside};
    use crate::config::check_topic_configs;
    use crate::start::open_broker;

    /// Longer than anything takes, even on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn start(sim: &SimEnv) -> Arc<Broker> {
        let config = BrokerConfig::from_pairs([("data.dir", "/data")]).expect("valid");
        open_broker(sim.env(), config).expect("starts")
    }

    #[test]
    fn a_rehearsal_keeps_no_serving_thread_busy() {
        let sim = SimEnv::new(1);
        let broker = start(&sim);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let worked_on =
            runtime.block_on(broker.rehearse_change(Source::SOME, |_| std::thread::current().id()));
        assert_ne!(worked_on.expect("rehearsed"), std::thread::current().id());
    }

    /// Has a change made aside, in the turns of a source.
    fn change_aside(
        runtime: &Runtime,
        aside: &Aside,
        broker: &Arc<Broker>,
        last: u8,
        plan: impl FnOnce() -> bool + Send + 'static,
    ) -> JoinHandle<bool> {
        let (aside, broker) = (aside.clone(), Arc::clone(broker));
        runtime.spawn(async move {
            let address = IpAddr::from([192, 0, 2, last]);
            let change = broker.change_metadata(Source::of(address), move |_| plan());
            aside.in_turn(address, change).await.expect("changed")
        })
    }

    #[test]
    fn whoever_waits_to_change_metadata_keeps_nobody_from_other_work() {
        let sim = SimEnv::new(1);
        let broker = start(&sim);
        let runtime = aside::runtime().expect("a runtime");
        let aside = Aside::on(&runtime, 0);
        let ((tell, is_told), (go_on, may_go_on)) = (mpsc::sync_channel(1), mpsc::sync_channel(1));
        let slow = move || tell.send(()).is_ok() && may_go_on.recv().is_ok();
        let mut all = vec![change_aside(&runtime, &aside, &broker, 1, slow)];
        is_told.recv_timeout(PATIENCE).expect("it begins");
        all.extend((0..100).map(|number| change_aside(&runtime, &aside, &broker, number % 10, || true)));
        let until = Instant::now() + PATIENCE;
        while broker.change_turns.counts() != (1, 100) {
            assert!(Instant::now() < until, "{:?} change and wait", broker.change_turns.counts());
            std::thread::sleep(Duration::from_millis(1));
        }
        let other = IpAddr::from([192, 0, 2, 11]);
        let turn = runtime.block_on(async { timeout(PATIENCE, aside.turn(other)).await });
        assert!(turn.is_ok(), "all turns are taken");
        go_on.send(()).expect("it waits");
        for changed in all {
            let changed = runtime.block_on(async { timeout(PATIENCE, changed).await });
            assert!(matches!(changed, Ok(Ok(true))), "{changed:?}");
        }
    }

    /// The id of a topic, and where its partition's directory lies.
    fn made(sim: &SimEnv, broker: &Broker) -> (TopicId, PathBuf) {
        let new = default_topic(&broker.config, "doomed");
        let topic = broker.metadata.change(|draft| draft.create_topic(new)).expect("changed").expect("made");
        let path = broker.partition(&topic, 0).expect("there").log.path();
        sim.fs.create_dir_all(&path).expect("made");
        (topic.id, path)
    }

    #[test]
    fn a_removal_that_was_cut_short_goes_on_after_the_start_and_stops_with_the_server() {
        let sim = SimEnv::new(1);
        let broker = start(&sim);
        let (topic, path) = made(&sim, &broker);
        broker.metadata.change(|draft| draft.delete_topic(topic).is_ok()).expect("deleted");
        drop(broker);

        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let broker = start(&sim);
        let (stop, stopping) = watch::channel(true);
        runtime.block_on(resume_removals(&broker, &stopping));
        assert!(sim.fs.exists(&path).expect("known"), "neither the start nor a stopping server removes it");
        stop.send_replace(false);
        runtime.block_on(resume_removals(&broker, &stopping));
        assert!(!sim.fs.exists(&path).expect("known"));
        assert!(broker.metadata.node().doomed().is_empty());
    }

    #[test]
    fn a_removed_topic_does_not_come_back_as_an_unknown_one_after_a_power_cut() {
        let sim = SimEnv::new(1);
        let broker = start(&sim);
        let (topic, path) = made(&sim, &broker);
        let above = path.parent().expect("a topic's directory");
        sim.fs
            .sync_dir(above)
            .and_then(|()| sim.fs.sync_dir(above.parent().expect("a log dir")))
            .expect("synced");
        broker.metadata.change(|draft| draft.delete_topic(topic).is_ok()).expect("deleted");
        broker.discard_topics(&[topic]);
        broker.forget_discarded();
        assert!(broker.metadata.node().doomed().is_empty(), "nothing is left of it");
        for state in sim.crash_states(100) {
            start(&state);
        }
    }

    #[test]
    fn the_offsets_topic_is_compacted_and_its_configs_are_valid() {
        let config = BrokerConfig::default();
        let new = default_topic(&config, OFFSETS_TOPIC);
        assert_eq!(new.partition_count, 50);
        assert_eq!(new.configs.get("cleanup.policy").map(String::as_str), Some("compact"));
        assert_eq!(check_topic_configs(&config, &new.configs), Ok(()));
    }

    #[test]
    fn another_topic_takes_the_servers_defaults() {
        let config = BrokerConfig::from_pairs([("num.partitions", "7")]).expect("valid");
        let new = default_topic(&config, "clicks");
        assert_eq!((new.partition_count, new.configs.len()), (7, 0));
    }
}

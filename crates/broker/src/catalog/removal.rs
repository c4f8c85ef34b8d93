//! Removal of a deleted topic: its files go, and the node forgets it once no log dir and no journal has anything of it.
//!
//! Everything here waits for the disk on a thread that may block, never on one that serves connections. Removals concern
//! this node alone, so they are written to the node's own log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use riverrun_log::JournalMark;
use riverrun_types::{PartitionId, TopicId};

use super::Catalog;
use crate::log_limit::REMOVAL_TROUBLE;
use crate::metadata::MetadataError;
use crate::stop_signal::StopSignal;
use crate::supervisor::on_blocking_thread;

/// Deleted topics whose files are gone, while the journals may still have records of them. The metadata remembers them
/// that long, because a start keeps records of a topic that the metadata does not know.
#[derive(Debug, Default)]
pub(super) struct Discarded {
    waiting: Mutex<BTreeMap<TopicId, JournalMark>>,
}

impl Catalog {
    /// Takes deleted topics out of use and removes their files. Blocks for the disk. Files that cannot be removed are
    /// tried again after the next start.
    pub(crate) fn discard_topics(&self, deleted: &[TopicId]) {
        let node = self.node();
        // First their partitions, so that waiting requests end even if a disk does not answer.
        for id in deleted {
            let partitions = node.doomed().get(id).map_or(0, |dirs| dirs.len());
            (0..)
                .take(partitions)
                .for_each(|index| self.ports.partitions.remove(PartitionId { topic: *id, index }));
        }
        let is_gone =
            |id: &&TopicId| node.doomed().get(*id).is_some_and(|dirs| self.discard_partitions(**id, dirs));
        let mut gone: Vec<TopicId> = deleted.iter().filter(is_gone).copied().collect();
        if !self.is_removal_durable(&gone, node.doomed()) {
            gone.clear();
        }
        let mark = self.ports.logs.mark_journals();
        self.discarded.waiting.lock().extend(gone.into_iter().map(|id| (id, mark.clone())));
        self.forget_discarded();
    }

    /// The deletion of these topics has failed. If nobody knows whether it was written down, the next start may find them
    /// gone: nothing is acked to them until then, and the server stops soon.
    pub(crate) fn doubt_topics(&self, topics: &[TopicId], failed: &MetadataError) {
        let was_tried = !matches!(failed, MetadataError::Poisoned(_));
        if was_tried && self.ports.metadata.failure().is_some() {
            self.ports.partitions.withdraw(topics);
        }
    }

    /// Has the metadata forget deleted topics of which nothing is left anywhere. Blocks for the disk.
    pub(crate) fn forget_discarded(&self) {
        let mut waiting = self.discarded.waiting.lock();
        let is_gone = |_: &TopicId, mark: &mut JournalMark| self.ports.logs.have_journals_passed(mark);
        let gone: BTreeMap<TopicId, JournalMark> = waiting.extract_if(.., is_gone).collect();
        drop(waiting);
        if gone.is_empty() {
            return;
        }
        let ids: Vec<TopicId> = gone.keys().copied().collect();
        if let Err(error) = self.ports.metadata.change(|draft| draft.forget_topics(&ids)) {
            tracing::warn!(%error, "that files of deleted topics are gone cannot be written down");
            self.discarded.waiting.lock().extend(gone);
        }
    }

    /// Whether nothing of the topic is left.
    fn discard_partitions(&self, topic: TopicId, dirs: &[u16]) -> bool {
        let mut is_gone = true;
        for (index, dir) in (0..).zip(dirs) {
            let id = PartitionId { topic, index };
            self.ports.replicas.open_failures.forget(id);
            if let Err(error) = self.ports.logs.delete(id, usize::from(*dir)) {
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
            let path = self.ports.logs.dir_path(usize::from(dir));
            let synced = self.ports.env.fs.sync_dir(path);
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
    catalog: &Arc<Catalog>,
    stop: &StopSignal,
) -> impl Future<Output = ()> + Send + use<> {
    let (catalog, stop) = (Arc::clone(catalog), stop.clone());
    let doomed: Vec<TopicId> = catalog.node().doomed().keys().copied().collect();
    async move {
        for id in doomed {
            if *stop.borrow() {
                return;
            }
            let catalog = Arc::clone(&catalog);
            on_blocking_thread(move || catalog.discard_topics(&[id])).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use riverrun_env::FileSystem as _;
    use riverrun_env::sim::SimEnv;
    use tokio::sync::watch;

    use super::super::topics::default_topic;
    use super::*;
    use crate::broker::Broker;
    use crate::config::BrokerConfig;
    use crate::start::open_broker;

    fn start(sim: &SimEnv) -> Arc<Broker> {
        let config = BrokerConfig::from_pairs([("data.dir", "/data")]).expect("valid");
        open_broker(sim.env(), config).expect("starts")
    }

    /// The id of a topic, and where its partition's directory lies.
    fn made(sim: &SimEnv, broker: &Broker) -> (TopicId, PathBuf) {
        let new = default_topic(&broker.config, "doomed");
        let topic =
            broker.catalog.store().change(|draft| draft.create_topic(new)).expect("changed").expect("made");
        let path = broker.partition(&topic, 0).expect("there").log.path();
        sim.fs.create_dir_all(&path).expect("made");
        (topic.id, path)
    }

    #[test]
    fn cut_short_removal_goes_on_after_start_until_server_stops() {
        let sim = SimEnv::new(1);
        let broker = start(&sim);
        let (topic, path) = made(&sim, &broker);
        broker.catalog.store().change(|draft| draft.delete_topic(topic).is_ok()).expect("deleted");
        drop(broker);

        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let broker = start(&sim);
        let (stop, stopping) = watch::channel(true);
        runtime.block_on(resume_removals(&broker.catalog, &stopping));
        assert!(sim.fs.exists(&path).expect("known"), "neither the start nor a stopping server removes it");
        stop.send_replace(false);
        runtime.block_on(resume_removals(&broker.catalog, &stopping));
        assert!(!sim.fs.exists(&path).expect("known"));
        assert!(broker.catalog.node().doomed().is_empty());
    }

    #[test]
    fn removed_topic_leaves_no_unknown_files_after_a_power_cut() {
        let sim = SimEnv::new(1);
        let broker = start(&sim);
        let (topic, path) = made(&sim, &broker);
        let above = path.parent().expect("a topic's directory");
        sim.fs
            .sync_dir(above)
            .and_then(|()| sim.fs.sync_dir(above.parent().expect("a log dir")))
            .expect("synced");
        broker.catalog.store().change(|draft| draft.delete_topic(topic).is_ok()).expect("deleted");
        broker.catalog.discard_topics(&[topic]);
        broker.catalog.forget_discarded();
        assert!(broker.catalog.node().doomed().is_empty(), "nothing is left of it");
        for state in sim.crash_states(100) {
            start(&state);
        }
    }
}

//! The catalog: the topics with their configs, and every change to them.
//!
//! Owns the way of a change: sources come to their turn one after the other; the change is proposed to the metadata log and
//! awaited; its consequences on this node are carried out also if the request that asked for it has gone. Owns the life of
//! topics besides: those that are made because a request names them, and the files of deleted ones. Knows neither handlers
//! nor the server around it.

mod auto_creation;
mod change;
mod removal;
mod topics;

use std::sync::Arc;

use riverrun_env::Env;
use riverrun_log::LogStore;
use riverrun_types::ProducerId;

use self::auto_creation::AutoCreations;
use self::change::{Change, failed_dirs};
use self::removal::Discarded;
pub(crate) use self::removal::resume_removals;
use crate::aside::{Turns, waiting};
use crate::config::BrokerConfig;
use crate::flow::source::Source;
use crate::metadata::{
    ClusterImage, Draft, Image, MetadataError, MetadataLog, NodeImage, ProducerIds, Store,
};
use crate::partitions::Partitions;
use crate::replicas::Replicas;
use crate::supervisor::on_blocking_thread;

/// The parts of the server that the catalog reads and changes.
#[derive(Debug)]
pub(crate) struct Ports {
    pub(crate) env: Env,
    pub(crate) config: Arc<BrokerConfig>,
    pub(crate) metadata: Arc<Store>,
    pub(crate) logs: Arc<LogStore>,
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) replicas: Arc<Replicas>,
}

/// The catalog of one running server.
#[derive(Debug)]
pub(crate) struct Catalog {
    ports: Ports,
    /// The metadata log, to which changes are proposed.
    log: Arc<dyn MetadataLog>,
    /// Turns in which requests change the metadata, one after the other, and draft changes.
    turns: Arc<Turns>,
    producer_ids: Arc<ProducerIds>,
    auto_creations: AutoCreations,
    discarded: Discarded,
}

impl Catalog {
    pub(crate) fn new(ports: Ports) -> Self {
        Self {
            log: Arc::clone(&ports.metadata) as Arc<dyn MetadataLog>,
            turns: Turns::new(1, 1),
            producer_ids: Arc::default(),
            auto_creations: AutoCreations::new(ports.env.clock.monotonic()),
            discarded: Discarded::default(),
            ports,
        }
    }

    /// The cluster's half of the image: topics, configs and epochs as of now.
    pub(crate) fn cluster(&self) -> Arc<ClusterImage> {
        self.log.cluster()
    }

    /// The node's half of the image: log dirs and placements as of now.
    pub(crate) fn node(&self) -> Arc<NodeImage> {
        self.ports.metadata.node()
    }

    /// Both halves, as of one moment.
    pub(crate) fn image(&self) -> Arc<Image> {
        self.log.image()
    }

    /// This node's own log of the metadata, for the jobs that look after it, and for work that blocks in any case.
    pub(crate) fn store(&self) -> &Store {
        &self.ports.metadata
    }

    /// Requests that wait for their turn to make a change.
    pub(crate) fn waiting_changes(&self) -> usize {
        self.turns.counts().1
    }

    /// Makes a change for a source; it is durable and visible when this returns.
    pub(crate) async fn propose<T: Send + 'static>(
        &self,
        source: Source,
        plan: impl FnOnce(&mut Draft<'_>) -> T + Send + 'static,
    ) -> Result<T, MetadataError> {
        self.propose_and(source, plan, |ended| ended).await
    }

    /// As [`Self::propose`]; `follow` is given the outcome and carries out its consequences, also where the request has gone
    /// meanwhile. It may block.
    ///
    /// There is one change at a time in any case: requests that wait for it take no thread meanwhile, and no turn aside, so
    /// that other requests do not wait for a slow disk with them. Sources come to their turn one after the other.
    pub(crate) async fn propose_and<T: Send + 'static, R: Send + 'static>(
        &self,
        source: Source,
        plan: impl FnOnce(&mut Draft<'_>) -> T + Send + 'static,
        follow: impl FnOnce(Result<T, MetadataError>) -> Result<R, MetadataError> + Send + 'static,
    ) -> Result<R, MetadataError> {
        waiting(async {
            let turn = self.turns.take(source).await;
            let (change, told) = Change::new(plan, follow, &self.ports.logs, turn);
            Arc::clone(&self.log).propose(Box::new(change)).await;
            told.await.unwrap_or(Err(MetadataError::Stopping))
        })
        .await
    }

    /// Drafts a change, drops it, and returns the outcome; nothing has changed then. A draft is as much work as the change
    /// itself, so it is done on no thread that serves connections.
    pub(crate) async fn rehearse<T: Send + 'static>(
        &self,
        source: Source,
        plan: impl FnOnce(&mut Draft<'_>) -> T + Send + 'static,
    ) -> Result<T, MetadataError> {
        waiting(async {
            let turn = self.turns.take(source).await;
            let (env, log, logs) =
                (self.ports.env.clone(), Arc::clone(&self.log), Arc::clone(&self.ports.logs));
            let rehearsed = on_blocking_thread(move || {
                // The draft goes on although its request may have gone.
                let _turn = turn;
                let mut draft = Draft::new(&log.image(), &*env.random);
                draft.avoid(failed_dirs(&logs));
                plan(&mut draft)
            });
            rehearsed.await.ok_or(MetadataError::Stopping)
        })
        .await
    }

    /// A producer id that was never given out before. Waits for the disks once in a thousand calls.
    pub(crate) async fn producer_id(&self, source: Source) -> Result<ProducerId, MetadataError> {
        if let Some(ready) = self.producer_ids.ready() {
            return Ok(ready);
        }
        let [of_plan, of_end] = [&self.producer_ids, &self.producer_ids].map(Arc::clone);
        let reserve = move |draft: &mut Draft<'_>| of_plan.reserve(draft);
        let take = move |ended: Result<_, _>| ended.map(|reserved| of_end.take(reserved));
        self.propose_and(source, reserve, take).await
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use riverrun_env::sim::SimEnv;
    use tokio::runtime::Runtime;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;
    use crate::aside::{self, Aside};
    use crate::broker::Broker;
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
            runtime.block_on(broker.catalog.rehearse(Source::SOME, |_| std::thread::current().id()));
        assert_ne!(worked_on.expect("rehearsed"), std::thread::current().id());
    }

    #[test]
    fn follow_up_of_a_change_is_done_though_its_request_goes() {
        let broker = start(&SimEnv::new(1));
        let runtime = aside::runtime().expect("a runtime");
        let ((tell, is_told), (go_on, may_go_on)) = (mpsc::sync_channel(1), mpsc::sync_channel(1));
        let (hear, is_heard) = mpsc::sync_channel(1);
        let catalog = Arc::clone(&broker.catalog);
        let request = runtime.spawn(async move {
            let plan = move |draft: &mut Draft<'_>| {
                let is_told = tell.send(()).is_ok() && may_go_on.recv().is_ok();
                (is_told, draft.reserve_producer_ids(1))
            };
            let follow = move |ended: Result<_, _>| ended.inspect(|ended| hear.send(*ended).expect("heard"));
            catalog.propose_and(Source::SOME, plan, follow).await
        });
        is_told.recv_timeout(PATIENCE).expect("it begins");
        request.abort();
        assert!(runtime.block_on(request).is_err(), "its request has gone");
        go_on.send(()).expect("it waits");
        assert_eq!(is_heard.recv_timeout(PATIENCE), Ok((true, 0)));
        assert_eq!(broker.catalog.cluster().producer_ids_end(), 1);
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
            let change = broker.catalog.propose(Source::of(address), move |_| plan());
            aside.in_turn(address, change).await.expect("changed")
        })
    }

    #[test]
    fn changes_that_wait_for_metadata_take_no_turn_aside() {
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
        while broker.catalog.turns.counts() != (1, 100) {
            assert!(Instant::now() < until, "{:?} change and wait", broker.catalog.turns.counts());
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
}

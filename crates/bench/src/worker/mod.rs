//! The producers and consumers of one process: a worker's part of a load.
//!
//! Owns their threads, tasks and connections, and their counts. A runner gives it [`Order`]s and collects its counts
//! with [`Load::take`], in the same way from this process as from another.

mod consuming;
mod members;
mod meter;
mod remote;
mod settings;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{StreamExt as _, TryStreamExt as _, iter};
use riverrun_client::{ClientError, Consumer, ConsumerOptions, Producer, StartAt, TopicPartition};
use riverrun_measure::pacing::Rate;
use riverrun_types::ErrorKind;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use self::consuming::{Consuming, Gate, Pace};
use self::members::Member;
pub(crate) use self::members::{Held, HeldByGroup};
pub use self::meter::{Counts, Taken};
use self::meter::{Meters, SenderMeter};
pub use self::remote::serve;
pub(crate) use self::remote::{RemoteWorker, WorkerUsage};
pub(crate) use self::settings::{check as check_settings, shares_each_topic_apart};
use crate::load::clock::StampClock;
use crate::load::orders::{Orders, Produce};
use crate::load::sending::{Place, Sending, Source as RecordSource};
use crate::load::target::{Lane, Lanes};
use crate::plan::{ConsumerPlan, KeySource, LoadPlan, ProducerPlan, Source, ValueSource};

/// Most sending threads of one process. More producers than these share them.
const THREADS_MAX: usize = 64;
/// Most clients that connect at a time.
const CONNECTING_MAX: usize = 32;

/// Time for a load to end.
const END_TIMEOUT: Duration = Duration::from_secs(15);
/// Time between two looks at whether it has ended.
const END_LOOK_EVERY: Duration = Duration::from_millis(20);

/// A worker's part of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadShare {
    /// Bootstrap addresses of the servers.
    pub bootstrap: String,
    /// Records and client settings.
    pub load: LoadPlan,
    /// The producers of this worker.
    pub producers: Vec<ProducerPlan>,
    /// Number of producers that the workers before this one have.
    pub producers_before: usize,
    /// Number of producers of all workers.
    pub producers_total: usize,
    /// The consumers of this worker.
    pub consumers: Vec<ConsumerPlan>,
}

/// An order to a load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Order {
    /// Send, in place of the order before.
    Produce {
        /// Records a second over all producers of all workers; `None` for as fast as possible.
        rate: Option<Rate>,
        /// Records over all producers of all workers; `None` for no end.
        quota: Option<u64>,
    },
    /// Send nothing more.
    StopProducing,
    /// Stop waiting for room, and report the records that were due and will not be sent. No record is sent after this.
    GiveUp,
    /// Pause the consumers, except those of groups that catch up.
    PauseConsumers,
    /// Let these consumers read again.
    ResumeConsumers,
    /// Let the groups that catch up begin to read.
    StartCatchUp,
}

/// The reason why a load could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A client could not be made.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

impl LoadError {
    /// The caller's possible reaction.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Client(error) => error.kind(),
            Self::Thread(_) => ErrorKind::Retry,
        }
    }
}

/// Running producers and consumers.
///
/// Invariants: `producers` are those of `share`, in its order, as far as they are connected.
#[derive(Debug)]
pub struct Load {
    share: LoadShare,
    meters: Arc<Meters>,
    orders: Arc<Orders>,
    clock: StampClock,
    producers: Vec<Arc<Producer>>,
    threads: Vec<JoinHandle<()>>,
    /// Changed when threads that wait for room are to end.
    wanted: watch::Sender<()>,
    gate: watch::Sender<Gate>,
    /// The gate of the groups that catch up.
    catch_up_gate: watch::Sender<Gate>,
    members: Vec<Member>,
    tasks: JoinSet<()>,
}

impl Load {
    /// Connects every producer and every consumer, which makes groups assign their partitions. Nothing is sent before
    /// it is ordered. Groups that catch up read nothing before [`Order::StartCatchUp`]. Without producers the others
    /// read nothing before [`Order::ResumeConsumers`], because the records exist already and the measurement has not
    /// begun.
    pub async fn prepare(share: LoadShare) -> Result<Self, LoadError> {
        let gate = if share.producers_total == 0 { Gate::Paused } else { Gate::Open };
        let mut load = Self {
            share,
            meters: Arc::default(),
            orders: Arc::default(),
            clock: StampClock::new(),
            producers: Vec::new(),
            threads: Vec::new(),
            wanted: watch::Sender::new(()),
            gate: watch::Sender::new(gate),
            catch_up_gate: watch::Sender::new(Gate::Paused),
            members: Vec::new(),
            tasks: JoinSet::new(),
        };
        load.start_consumers().await?;
        load.connect_producers().await?;
        load.start_threads()?;
        Ok(load)
    }

    async fn connect_producers(&mut self) -> Result<(), ClientError> {
        let options = settings::producer(&self.share.load.producer_settings, &self.share.bootstrap)?;
        let connect = self.share.producers.iter().map(|_| Producer::new(options.clone()));
        self.producers = iter(connect).buffered(CONNECTING_MAX).map_ok(Arc::new).try_collect().await?;
        Ok(())
    }

    fn start_threads(&mut self) -> Result<(), LoadError> {
        if self.producers.is_empty() {
            return Ok(());
        }
        let seed = self.share.load.seed.wrapping_add(self.share.producers_before as u64);
        let mut keys = KeySource::new(&self.share.load.keys, seed);
        let mut values = ValueSource::new(&self.share.load.values, seed);
        let per_thread = self.producers.len().div_ceil(THREADS_MAX);
        for first in (0..self.producers.len()).step_by(per_thread) {
            let next = (keys.another(), values.another());
            let own = (std::mem::replace(&mut keys, next.0), std::mem::replace(&mut values, next.1));
            self.threads.push(self.sending(first, per_thread, own).start(&Handle::current())?);
        }
        Ok(())
    }

    fn sending(
        &self,
        first: usize,
        per_thread: usize,
        (keys, values): (KeySource, ValueSource),
    ) -> Sending<Lanes<SenderMeter>, SenderMeter> {
        let end = (first + per_thread).min(self.producers.len());
        let lane = |at: usize| {
            let producer = Arc::clone(&self.producers[at]);
            Lane::planned(producer, &self.share.producers[at], self.share.load.in_flight)
        };
        let place = Place {
            first: self.share.producers_before + first,
            own: end - first,
            total: self.share.producers_total,
        };
        let source = RecordSource { keys, values, stamp: self.share.load.stamp, clock: self.clock };
        let meter = SenderMeter { meters: Arc::clone(&self.meters), at: place.first };
        let wanted = self.wanted.subscribe();
        let lanes = (first..end).map(lane).collect();
        let lanes = Lanes::new(Handle::current(), lanes, wanted, || meter.clone());
        Sending::new(lanes, meter, place, source, Arc::clone(&self.orders))
    }

    async fn start_consumers(&mut self) -> Result<(), ClientError> {
        let options = settings::consumer(&self.share.load, &self.share.bootstrap)?;
        let plans = self.share.consumers.clone();
        let connect = plans.iter().map(|plan| connect(options.clone(), plan));
        let consumers: Vec<_> = iter(connect).buffered(CONNECTING_MAX).try_collect().await?;
        for ((consumer, member), plan) in consumers.into_iter().zip(plans) {
            self.members.extend(member);
            let gate = if plan.catch_up { &self.catch_up_gate } else { &self.gate };
            let consuming = Consuming {
                consumer,
                pace: Pace::new(plan.rate),
                plan,
                stamp: self.share.load.stamp,
                clock: self.clock,
                meters: Arc::clone(&self.meters),
                meter: self.tasks.len(),
                gate: gate.subscribe(),
                is_paused: false,
                // With producers, a consumer waits also for records that were not sent yet.
                are_polls_timed: self.share.producers_total == 0,
                asked: None,
            };
            self.tasks.spawn(consuming.run());
        }
        Ok(())
    }

    /// Gives an order; its effects come afterwards.
    pub async fn order(&mut self, order: Order) {
        match order {
            Order::Produce { rate, quota } => {
                self.orders.give(Some(Produce { start: Instant::now(), rate, quota }));
            }
            Order::StopProducing => self.orders.give(None),
            Order::GiveUp => self.give_up().await,
            Order::PauseConsumers => drop(self.gate.send_replace(Gate::Paused)),
            Order::ResumeConsumers => drop(self.gate.send_replace(Gate::Open)),
            Order::StartCatchUp => drop(self.catch_up_gate.send_replace(Gate::Open)),
        }
    }

    /// Returns when all threads have reported the records that they leave unsent, or after a bounded time.
    async fn give_up(&self) {
        self.orders.give(None);
        self.wanted.send_replace(());
        let deadline = Instant::now() + END_TIMEOUT;
        while self.orders.idle() < self.threads.len() && Instant::now() < deadline {
            tokio::time::sleep(END_LOOK_EVERY).await;
        }
    }

    /// Counts and latencies since the last time.
    pub fn take(&self) -> Taken {
        self.meters.take()
    }

    /// Partitions of each group's members in this load.
    pub(crate) fn held(&self) -> HeldByGroup {
        let mut held = HeldByGroup::new();
        for member in &self.members {
            held.entry(member.group().to_owned()).or_default().add(member.held());
        }
        held
    }

    /// Ends everything. Gives up records that are not acked by then, and threads that wait for a dead server for longer
    /// than [`END_TIMEOUT`].
    pub async fn finish(mut self) {
        self.orders.end();
        self.gate.send_replace(Gate::Closed);
        self.catch_up_gate.send_replace(Gate::Closed);
        let deadline = tokio::time::Instant::now() + END_TIMEOUT;
        let producers = std::mem::take(&mut self.producers);
        // Records that were given up must not reach a topic that is deleted, or that the next run uses.
        let closed = join_all(producers.iter().map(|producer| producer.close_within(END_TIMEOUT))).await;
        if closed.contains(&false) {
            tracing::warn!("records that were never acked are given up");
        }
        self.wanted.send_replace(());
        let deadline = deadline.max(tokio::time::Instant::now() + END_LOOK_EVERY * 10);
        while self.threads.iter().any(|thread| !thread.is_finished())
            && tokio::time::Instant::now() < deadline
        {
            tokio::time::sleep(END_LOOK_EVERY).await;
        }
        for thread in self.threads.drain(..).filter(JoinHandle::is_finished) {
            if thread.join().is_err() {
                tracing::error!("a producing thread has failed");
            }
        }
        while let Ok(Some(ended)) = timeout_at(deadline, self.tasks.join_next()).await {
            if let Err(error) = ended {
                tracing::error!(%error, "a consuming task has failed");
            }
        }
    }
}

/// Ends the threads of a load that is dropped; its tasks end with their set.
impl Drop for Load {
    fn drop(&mut self) {
        self.orders.end();
    }
}

/// A consumer and, if it is in a group, the count of its partitions.
async fn connect(
    mut options: ConsumerOptions,
    plan: &ConsumerPlan,
) -> Result<(Consumer, Option<Member>), ClientError> {
    match &plan.source {
        Source::Group(topics) => {
            options.group = Some(plan.subscription.clone());
            let mut consumer = Consumer::new(options).await?;
            let member = Member::new(&plan.subscription);
            consumer.set_listener(member.listener());
            consumer.subscribe(topics).await?;
            Ok((consumer, Some(member)))
        }
        Source::Partitions(partitions) => {
            options.group = None;
            let mut consumer = Consumer::new(options).await?;
            let mut places = Vec::new();
            for (topic, partition) in partitions {
                let indexes = match partition {
                    Some(index) => vec![*index],
                    None => partitions_of(&consumer, topic).await?,
                };
                let place = |index| (TopicPartition::new(topic.as_str(), index), StartAt::Earliest);
                places.extend(indexes.into_iter().map(place));
            }
            consumer.assign(places).await?;
            Ok((consumer, None))
        }
    }
}

async fn partitions_of(consumer: &Consumer, topic: &str) -> Result<Vec<i32>, ClientError> {
    let found = consumer.cluster().topic(topic, false).await?;
    Ok(found.partitions.iter().map(|partition| partition.index).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use riverrun_client::RebalanceListener as _;

    use super::members::Listener;
    pub(crate) use super::members::tests::partitions;
    use super::*;
    use crate::load::meter::Sent;
    use crate::load::target::{Outgoing, Target};
    use crate::plan::{KeyPlan, Stamp, ValuePlan};
    use crate::properties::Properties;

    pub(super) fn idle_share() -> LoadShare {
        LoadShare {
            bootstrap: "127.0.0.1:1".to_owned(),
            load: LoadPlan {
                producer_settings: Properties::default(),
                consumer_settings: Properties::default(),
                commits_each_poll: false,
                keys: KeyPlan::NONE,
                values: ValuePlan::Letters { bytes: 10 },
                value_bytes: 10,
                in_flight: None,
                stamp: Stamp::None,
                seed: 1,
            },
            producers: Vec::new(),
            producers_before: 0,
            producers_total: 1,
            consumers: Vec::new(),
        }
    }

    /// A client with a full buffer, whose server never comes back.
    struct Full(watch::Receiver<()>);

    impl Target for Full {
        type Error = ClientError;

        fn wait_for_room(&mut self, _: u64) -> bool {
            true
        }

        fn send(&mut self, _: u64, _: &Outgoing<'_>, _: Sent) -> Result<(), ClientError> {
            while !self.0.has_changed().unwrap_or(true) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(ClientError::Closed)
        }
    }

    /// A load whose one thread never gets a record through.
    pub(crate) async fn stalled_load() -> Load {
        let mut load = Load::prepare(idle_share()).await.expect("there is nobody to connect");
        let plan = &load.share.load;
        let source = RecordSource {
            keys: KeySource::new(&plan.keys, plan.seed),
            values: ValueSource::new(&plan.values, plan.seed),
            stamp: plan.stamp,
            clock: load.clock,
        };
        let place = Place { first: 0, own: 1, total: 1 };
        let meter = SenderMeter { meters: Arc::clone(&load.meters), at: 0 };
        let full = Full(load.wanted.subscribe());
        let sending = Sending::new(full, meter, place, source, Arc::clone(&load.orders));
        load.threads.push(sending.start(&Handle::current()).expect("a thread"));
        load
    }

    /// A load of these members, with their numbers of partitions. Their listeners can assign more.
    pub(crate) async fn load_of_members(members: &[(&str, usize)]) -> (Load, Vec<Listener>) {
        let mut load = Load::prepare(idle_share()).await.expect("there is nobody to connect");
        let mut listeners = Vec::new();
        for (group, count) in members {
            let member = Member::new(group);
            let mut listener = member.listener();
            listener.assigned(&mut partitions(*count));
            load.members.push(member);
            listeners.push(listener);
        }
        (load, listeners)
    }

    #[tokio::test]
    async fn consumers_without_producers_wait_for_their_order() {
        let gates = async |producers_total, order| {
            let share = LoadShare { producers_total, ..idle_share() };
            let mut load = Load::prepare(share).await.expect("there is nobody to connect");
            let gates = |load: &Load| (*load.gate.borrow(), *load.catch_up_gate.borrow());
            let before = gates(&load);
            load.order(order).await;
            (before, gates(&load))
        };
        let (open, paused) = (Gate::Open, Gate::Paused);
        assert_eq!(gates(0, Order::ResumeConsumers).await, ((paused, paused), (open, paused)));
        assert_eq!(gates(1, Order::StopProducing).await, ((open, paused), (open, paused)));
        assert_eq!(gates(1, Order::StartCatchUp).await, ((open, paused), (open, open)));
        assert_eq!(gates(1, Order::PauseConsumers).await, ((open, paused), (paused, paused)));
    }

    #[tokio::test]
    async fn partitions_are_counted_by_group() {
        let (load, _listeners) = load_of_members(&[("a", 3), ("b", 0), ("a", 0), ("a", 2)]).await;
        let held = |members, partitions| Held { members, partitions };
        assert_eq!(
            load.held(),
            [("a", held(2, 5)), ("b", held(0, 0))].map(|(group, held)| (group.to_owned(), held)).into()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn thread_stuck_on_a_dead_server_blocks_no_end() {
        let mut load = Load::prepare(idle_share()).await.expect("there is nobody to connect");
        let (end, waiting) = std::sync::mpsc::sync_channel::<()>(0);
        load.threads.push(std::thread::spawn(move || {
            let _ = waiting.recv();
        }));
        load.finish().await;
        drop(end);
    }
}

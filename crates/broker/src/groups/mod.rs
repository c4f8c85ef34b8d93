//! The shell around the coordinator's shards: it loads them, appends their records, sends their replies, and keeps
//! their time.
//!
//! Guarantees that a reply is sent only after the records of its step, and of every step before it on the same
//! shard, are in the log as durably as the topic of group offsets asks; the next steps do not wait for that. If an append
//! fails, or what was appended is lost, the shard is ahead of its log: it is discarded, what waits for it is answered
//! with `NOT_COORDINATOR`, and requests are refused for a while before one of them loads it again, the longer the more
//! often it has failed in a row. A shard in trouble holds back none of the others, and neither does a group with which a
//! request has much to do.

mod at_length;
mod batches;
mod check;
mod clock;
mod held;
pub(crate) mod line;
mod load;
mod names;
mod own_configs;
mod patterns;
mod rest;
mod timer;
mod topics;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use riverrun_coordinator::{
    CommittedSlice, Deletion, GroupConfig, GroupMemory, GroupResponse, Now, Reply, ReplyToken,
    RequestContext as GroupContext, STEP_COST_MAX, Shard, Step,
};
use riverrun_env::Clock;
use riverrun_journal::Journal;
use riverrun_log::{AppendError, Appended, LogError};
use riverrun_protocol::ErrorCode;
use riverrun_types::{Acks, TopicId};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::aside::{give_way, waiting};
use crate::broker::Broker;
use crate::changes;
use crate::config::BrokerConfig;
use crate::context::RequestContext;
use crate::flow::source::Source;
use crate::log_limit::{Change, GROUP_MEMORY_SHORTAGE, GROUP_TROUBLE};
use crate::partitions::{AckWaiter, NotDurable, Partition};
use crate::topic_names::OFFSETS_TOPIC;

use at_length::Work;
pub(crate) use check::NotOfGroups;
use held::{Held, Parked, Release};
use line::{Asker, Lines};
use load::LoadError;
pub(crate) use names::shard_of;
use patterns::Patterns;
pub(crate) use patterns::run as run_patterns;
use rest::{Failures, REST};
pub(crate) use timer::{run as run_timer, run_retries};
pub(crate) use topics::ImageTopics;

/// What acks of group records ask for: all that their level does.
const ACKS: Acks = Acks::All;

/// How many shards are read at once for those who ask for all of them: each takes one of the threads that may block.
const READS_MAX: usize = 4;

/// A shard that is loaded, and the partition that it writes to.
#[derive(Debug)]
struct Loaded {
    shard: Shard,
    partition: Arc<Partition>,
    /// The last batch that was appended for it.
    last: Option<Appended>,
    /// Records that its load has left out, because the bounds of groups had no room for them.
    left_out: u64,
    /// Which load of its shard it is: a group that was lent by another one does not come back to it.
    load: u64,
}

impl Loaded {
    /// Whether its log holds all that the shard knows; an error: never will.
    fn is_durable(&self) -> Option<Result<(), NotDurable>> {
        self.last.map_or(Some(Ok(())), |last| self.partition.outcome(last, ACKS))
    }
}

/// The last batch of a shard that failed, and the one waiter of all who try to load the shard until it is decided what
/// comes of that batch.
#[derive(Debug)]
struct Last {
    partition: Arc<Partition>,
    batch: Appended,
    waiter: Arc<AckWaiter>,
}

impl Last {
    fn new(partition: Arc<Partition>, batch: Appended) -> Self {
        let waiter = Arc::new(AckWaiter::default());
        partition.expect_ack(batch, ACKS, 0, &waiter);
        Self { partition, batch, waiter }
    }

    fn is_decided(&self) -> bool {
        self.partition.outcome(self.batch, ACKS).is_some()
    }
}

/// Whether a shard is there.
#[derive(Debug, Default)]
enum SlotState {
    /// Nobody has asked for it yet.
    #[default]
    NotLoaded,
    Loaded(Box<Loaded>),
    /// It could not be loaded, or not append. Nobody tries again before this monotonic time, nor before it is decided
    /// what comes of the last batch that was appended.
    Failed {
        retry_at: Duration,
        last: Option<Last>,
    },
}

impl SlotState {
    fn loaded(&self) -> Option<&Loaded> {
        match self {
            Self::Loaded(loaded) => Some(loaded),
            _ => None,
        }
    }

    fn loaded_mut(&mut self) -> Option<&mut Loaded> {
        match self {
            Self::Loaded(loaded) => Some(loaded),
            _ => None,
        }
    }

    fn fail(&mut self, retry_at: Duration) {
        let last = match std::mem::take(self) {
            Self::Loaded(loaded) => loaded.last.map(|last| Last::new(loaded.partition, last)),
            // That may still not be decided.
            Self::Failed { last, .. } => last,
            Self::NotLoaded => None,
        };
        *self = Self::Failed { retry_at, last };
    }

    /// Whether the shard is loaded, or why it is not to be loaded now.
    fn is_loaded(&self, clock: &dyn Clock) -> Result<bool, ErrorCode> {
        match self {
            Self::Loaded(_) => Ok(true),
            Self::Failed { retry_at, .. } if clock.monotonic() < *retry_at => {
                Err(ErrorCode::COORDINATOR_NOT_AVAILABLE)
            }
            Self::NotLoaded | Self::Failed { .. } => Ok(false),
        }
    }
}

/// One partition of `__consumer_offsets`.
///
/// Invariants: `loading` is held while `state` becomes loaded.
#[derive(Debug)]
struct Slot {
    state: Mutex<SlotState>,
    loading: tokio::sync::Mutex<()>,
    held: Arc<Held>,
    /// Who waits for a group that is lent.
    lines: Lines,
    loads: AtomicU64,
    failures: Failures,
    /// Why the shard has failed last.
    trouble: Mutex<String>,
    /// A request is answered after this time, if by then records of its shard have waited so long for the disk. They may
    /// still become durable.
    stuck_after: Duration,
}

impl Slot {
    fn new(index: usize, parked: &Parked, stuck_after: Duration) -> Self {
        let held = Arc::new(Held::new(index, Arc::clone(parked)));
        Self {
            state: Mutex::default(),
            loading: tokio::sync::Mutex::default(),
            held,
            lines: Lines::default(),
            loads: AtomicU64::new(0),
            failures: Failures::default(),
            trouble: Mutex::default(),
            stuck_after,
        }
    }

    /// The state, which is none of a shard whose records were lost.
    fn state(&self, clock: &dyn Clock) -> MutexGuard<'_, SlotState> {
        let mut state = self.state.lock();
        if self.held.take_failure()
            && let Some(why) = state.loaded().map(|loaded| lost(&loaded.partition))
        {
            self.fail(&mut state, clock, &why);
        }
        state
    }

    /// Why the shard has failed, if it has, and was not loaded again.
    fn failure(&self, clock: &dyn Clock) -> Option<String> {
        let has_failed = matches!(*self.state(clock), SlotState::Failed { .. });
        has_failed.then(|| self.trouble.lock().clone())
    }

    /// Discards the shard, and lets it rest. Says why, unless it is the same trouble as before, or others were in trouble
    /// a moment ago.
    fn fail(&self, state: &mut SlotState, clock: &dyn Clock, why: &dyn fmt::Display) {
        let rest = self.failures.count();
        state.fail(clock.monotonic() + rest.lasts);
        *self.trouble.lock() = why.to_string();
        let shard = self.held.shard();
        tracing::debug!(shard, error = %why, rest = ?rest.lasts, "the groups of a partition rest");
        if rest.is_first {
            GROUP_TROUBLE.warn(|suppressed| {
                let what = "groups take no changes while their partition is in trouble; others may follow";
                tracing::error!(shard, error = %why, suppressed, "{what}");
            });
        }
    }

    /// The log has taken records.
    fn note_appended(&self) {
        if self.failures.end() {
            tracing::info!(shard = self.held.shard(), "the groups of a partition take changes again");
        }
    }

    /// Waits until it is decided what comes of the last batch of a shard that failed: what the log holds is known then.
    /// But not for longer than requests wait for the disk. Whoever calls this holds `loading`: only one waits.
    async fn settle(&self, clock: &dyn Clock) -> Result<(), ErrorCode> {
        let waiter = match &*self.state.lock() {
            SlotState::Failed { last: Some(last), .. } => Some(Arc::clone(&last.waiter)),
            _ => None,
        };
        if let Some(waiter) = waiter
            && timeout(self.stuck_after, waiter.decided()).await.is_err()
        {
            self.state.lock().fail(clock.monotonic() + REST);
            return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
        // Of what was lost nothing is left in memory.
        self.held.take_failure();
        Ok(())
    }

    /// Waits for something that a step releases, this one or a later one; but not while the log takes nothing.
    async fn released<T>(&self, mut answer: oneshot::Receiver<T>) -> Result<T, ErrorCode> {
        loop {
            match waiting(timeout(self.stuck_after, &mut answer)).await {
                Ok(answer) => return answer.map_err(|_| ErrorCode::NOT_COORDINATOR),
                Err(_) if self.held.is_stuck(self.stuck_after) => {
                    return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
                }
                Err(_) => {}
            }
        }
    }

    /// Refuses what may add records, where many wait for the log and it takes nothing: nobody knows for how long.
    fn check_room(&self) -> Result<(), ErrorCode> {
        if self.held.has_no_room(self.stuck_after) {
            return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
        Ok(())
    }

    /// Sends what a step releases, now or when the log holds all that the shard knows.
    fn release(&self, loaded: &Loaded, release: Release) {
        if release.is_empty() {
            return;
        }
        match loaded.last.filter(|_| !(loaded.is_durable() == Some(Ok(())) && self.held.is_empty())) {
            None => release.send(),
            Some(last) => {
                if let Some(ticket) = self.held.push(last, release) {
                    loaded.partition.await_ack(last, ACKS, ticket, Arc::clone(&self.held) as _);
                }
            }
        }
    }
}

/// That records of groups were lost, and why that is.
fn lost(partition: &Partition) -> String {
    let reason = partition.log.loss_reason().map(|reason| format!(": {reason}"));
    format!("group records were lost{}", reason.unwrap_or_default())
}

/// A request that waits for its reply.
#[derive(Debug)]
struct Waiting {
    shard: usize,
    reply: oneshot::Sender<GroupResponse>,
}

/// So many of the sources that hold most are named where memory is short: those for whom the others go short.
const HOLDERS_TOLD: usize = 3;
/// For so long after somebody was refused for want of memory `/health` says so. Clients try again more often than that.
const SHORTAGE_TOLD: Duration = Duration::from_secs(10);

/// Refusals for want of memory of which the log was told, or that it left out.
#[derive(Debug, Default)]
struct Shortage {
    refusals: u64,
    /// When the last one was seen, in monotonic time.
    seen_at: Option<Duration>,
}

/// All groups of one server.
///
/// Invariants: there is one slot for each partition of `__consumer_offsets`, whose number never changes once the
/// first group was asked for.
#[derive(Debug)]
pub(crate) struct Groups {
    config: GroupConfig,
    /// `offsets.commit.timeout.ms`.
    stuck_after: Duration,
    /// What the groups of all shards take, and may take.
    memory: Arc<GroupMemory>,
    /// Refusals for want of memory.
    shortage: Mutex<Shortage>,
    slots: OnceLock<Vec<Slot>>,
    parked: Parked,
    next_token: AtomicU64,
    /// Permits to read a shard for somebody who asks for all of them.
    turns: Semaphore,
    timer: timer::Alarm,
    patterns: Arc<Patterns>,
}

impl Groups {
    pub(crate) fn new(config: &BrokerConfig) -> Self {
        Self {
            config: group_config(config),
            stuck_after: Duration::from_millis(config.groups.offsets_commit_timeout_ms),
            memory: GroupMemory::new(config.groups.groups_memory_max_bytes),
            shortage: Mutex::default(),
            slots: OnceLock::new(),
            parked: Parked::default(),
            next_token: AtomicU64::new(0),
            turns: Semaphore::new(READS_MAX),
            timer: timer::Alarm::default(),
            patterns: Arc::default(),
        }
    }

    /// What patterns of subscriptions name.
    pub(crate) fn patterns(&self) -> &Arc<Patterns> {
        &self.patterns
    }

    /// Runs a request on the shard of `group_id`, and waits for the reply, which may come with a later step.
    pub(crate) async fn request(
        &self,
        broker: &Arc<Broker>,
        context: &RequestContext,
        version: i16,
        group_id: &str,
        cost: impl Fn(&Shard) -> usize,
        handle: impl FnOnce(&mut Shard, &GroupContext<'_>) -> Step,
    ) -> Result<GroupResponse, ErrorCode> {
        self.begin(broker, context, version, group_id, cost, handle).await?.reply().await
    }

    /// As [`Self::request`], of somebody who is a member already, and stays one however long the log takes nothing.
    /// `handle` is told whether there is room for records.
    pub(crate) async fn keep_alive(
        &self,
        broker: &Arc<Broker>,
        context: &RequestContext,
        version: i16,
        group_id: &str,
        cost: impl Fn(&Shard) -> usize,
        handle: impl FnOnce(&mut Shard, &GroupContext<'_>, bool) -> Step,
    ) -> Result<GroupResponse, ErrorCode> {
        let shard = self.loaded(broker, group_id).await?;
        let has_room = self.slots()?[shard].check_room().is_ok();
        let handle = |shard: &mut Shard, context: &GroupContext<'_>| handle(shard, context, has_room);
        let work = Work { asker: Asker::of(context), group_id, cost };
        self.begin_in(broker, shard, context, version, work, handle).await?.reply().await
    }

    /// Runs a request on the shard of `group_id`. What waits for the reply holds nothing of the request.
    pub(crate) async fn begin(
        &self,
        broker: &Arc<Broker>,
        context: &RequestContext,
        version: i16,
        group_id: &str,
        cost: impl Fn(&Shard) -> usize,
        handle: impl FnOnce(&mut Shard, &GroupContext<'_>) -> Step,
    ) -> Result<Begun, ErrorCode> {
        let shard = self.loaded(broker, group_id).await?;
        self.slots()?[shard].check_room()?;
        let mut is_new = false;
        let work = Work { asker: Asker::of(context), group_id, cost };
        let begun = self.begin_in(broker, shard, context, version, work, |shard, of| {
            let before = shard.group_count();
            let step = handle(shard, of);
            is_new = shard.group_count() > before;
            step
        });
        let begun = begun.await;
        if is_new && begun.is_ok() {
            changes::tell(context, Change::GroupsCreated, [group_id]);
        }
        begun
    }

    async fn begin_in(
        &self,
        broker: &Arc<Broker>,
        shard: usize,
        context: &RequestContext,
        version: i16,
        work: Work<'_, impl Fn(&Shard) -> usize>,
        handle: impl FnOnce(&mut Shard, &GroupContext<'_>) -> Step,
    ) -> Result<Begun, ErrorCode> {
        let token = ReplyToken(self.next_token.fetch_add(1, Ordering::Relaxed));
        let (sender, reply) = oneshot::channel();
        self.parked.lock().insert(token, Waiting { shard, reply: sender });
        // A client that goes away leaves no entry behind.
        let forget = Forget { broker: Arc::clone(broker), token };
        let mut random = [0; 16];
        broker.env.random.fill(&mut random);
        let source = Source::of(context.connection.peer.ip());
        let step = self.step_of(broker, shard, work, None, |shard, now| {
            let client_host = context.client_host();
            let client_id = &*context.client_id;
            let context = GroupContext {
                now,
                token,
                client_id,
                client_host: &client_host,
                api_version: version,
                random,
            };
            shard.on_behalf_of(source.into(), |shard| handle(shard, &context))
        });
        step.await?;
        Ok(Begun { shard, reply, forget })
    }

    /// Changes the shard of `group_id` without a parked reply: what `handle` returns is the answer, once its
    /// records are durable.
    pub(crate) async fn change<T>(
        &self,
        broker: &Arc<Broker>,
        context: &RequestContext,
        group_id: &str,
        cost: impl Fn(&Shard) -> usize,
        handle: impl FnOnce(&mut Shard, Now) -> (T, Step),
    ) -> Result<T, ErrorCode> {
        let shard = self.loaded(broker, group_id).await?;
        self.slots()?[shard].check_room()?;
        let mut answer = None;
        let (notice, durable) = oneshot::channel();
        let work = Work { asker: Asker::of(context), group_id, cost };
        let step = self.step_of(broker, shard, work, Some(notice), |shard, now| {
            let (value, step) = handle(shard, now);
            answer = Some(value);
            step
        });
        step.await?;
        self.slots()?[shard].released(durable).await?;
        answer.ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)
    }

    /// Looks at the shard of `group_id`. The answer comes when all that was seen is durable: what a client is told does
    /// not go back.
    pub(crate) async fn read<T>(
        &self,
        broker: &Arc<Broker>,
        context: &RequestContext,
        group_id: &str,
        cost: impl Fn(&Shard) -> usize,
        look: impl FnOnce(&Shard) -> T,
    ) -> Result<T, ErrorCode> {
        let shard = self.loaded(broker, group_id).await?;
        let slot = &self.slots()?[shard];
        if slot.held.is_stuck(slot.stuck_after) {
            // It would be told so at the end of its wait.
            return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
        let mut seen = None;
        let (notice, durable) = oneshot::channel();
        let work = Work { asker: Asker::of(context), group_id, cost };
        let step = self.step_of(broker, shard, work, Some(notice), |shard, _| {
            seen = Some(look(shard));
            Step::default()
        });
        step.await?;
        slot.released(durable).await?;
        seen.ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)
    }

    /// What a request for this group would cost now, if its shard is loaded.
    pub(crate) fn cost(&self, group_id: &str, cost: impl Fn(&Shard) -> usize) -> usize {
        let Ok(slots) = self.slots() else { return 0 };
        let state = slots[shard_of(group_id, slots.len())].state.lock();
        state.loaded().map_or(0, |loaded| cost(&loaded.shard))
    }

    async fn look_at<T>(
        broker: &Broker,
        slot: &Slot,
        look: impl FnOnce(&Shard) -> T,
    ) -> Result<T, ErrorCode> {
        let (notice, durable) = oneshot::channel();
        let seen = {
            let state = slot.state(&*broker.env.clock);
            let loaded = state.loaded().ok_or(ErrorCode::NOT_COORDINATOR)?;
            if slot.held.is_stuck(slot.stuck_after) {
                // It would be told so at the end of its wait.
                return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
            }
            slot.release(loaded, Release { notices: vec![notice], ..Release::default() });
            look(&loaded.shard)
        };
        slot.released(durable).await?;
        Ok(seen)
    }

    /// Looks at every shard, loading those that are not loaded: one outcome for each, in their order. It looks in slices,
    /// each of which tells behind which group the next one goes on. Nothing to see while the topic does not exist.
    pub(crate) async fn read_all<T>(
        &self,
        broker: &Arc<Broker>,
        look: impl Fn(&Shard, Option<&str>) -> (Vec<T>, Option<Arc<str>>),
    ) -> Vec<Result<Vec<T>, ErrorCode>> {
        let look = &look;
        let look_in = |(index, slot)| async move {
            waiting(self.load_in_turn(broker, index)).await?;
            let (mut seen, mut behind) = Self::look_at(broker, slot, |shard| look(shard, None)).await?;
            while behind.is_some() {
                give_way().await;
                let more = Self::look_at(broker, slot, |shard| look(shard, behind.as_deref())).await?;
                seen.extend(more.0);
                behind = more.1;
            }
            Ok(seen)
        };
        // All at once: the time of one in trouble is enough for all that are.
        join_all(self.all_slots(broker).iter().enumerate().map(look_in)).await
    }

    /// Shows what groups have committed, of the shards that are loaded, in slices: between two of them whoever waits for the
    /// shard comes first.
    pub(crate) fn show_committed(&self, mut show: impl FnMut(CommittedSlice)) {
        for slot in self.slots.get().into_iter().flatten() {
            let mut place = None;
            loop {
                let state = slot.state.lock();
                let Some(mut slice) =
                    state.loaded().map(|loaded| loaded.shard.committed_slice(place.as_ref()))
                else {
                    break;
                };
                MutexGuard::unlock_fair(state);
                place = slice.next.take();
                show(slice);
                if place.is_none() {
                    break;
                }
            }
        }
    }

    /// What all groups take, for metrics.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory.held_bytes()
    }

    /// A shard that could not be loaded or not append, and has not been since; and why.
    pub(crate) fn failed_shard(&self, clock: &dyn Clock) -> Option<(usize, String)> {
        let mut slots = self.slots.get()?.iter().enumerate();
        slots.find_map(|(index, slot)| Some((index, slot.failure(clock)?)))
    }

    /// Why the shard of this group takes no changes, if it takes none now: for answers that have a text beside the code,
    /// which is the same whatever the trouble is.
    pub(crate) fn trouble(&self, broker: &Broker, group_id: &str) -> Option<String> {
        let slots = self.slots.get()?;
        let slot = &slots[shard_of(group_id, slots.len())];
        let failure = slot.failure(&*broker.env.clock);
        if failure.is_some() || !slot.held.is_stuck(slot.stuck_after) {
            return failure;
        }
        let shortage = broker.logs.journals().find_map(Journal::shortage);
        let reason = shortage.map(|shortage| format!(": {shortage}")).unwrap_or_default();
        Some(format!("group records wait for the disk{reason}"))
    }

    /// A shard whose log holds more than the bounds of groups allow, and how many of its records were left out.
    pub(crate) fn cut_shard(&self) -> Option<(usize, u64)> {
        let left_out = |slot: &Slot| slot.state.lock().loaded().map_or(0, |loaded| loaded.left_out);
        let shards = self.slots.get().into_iter().flatten().enumerate();
        shards.map(|(index, slot)| (index, left_out(slot))).find(|(_, count)| *count > 0)
    }

    /// Drops the offsets of topics that were deleted, durably. Answers the trouble of the last shard that had any; it
    /// drops them when it is loaded again, and what was made under their names meanwhile has no part in them.
    pub(crate) async fn topics_deleted(
        &self,
        broker: &Arc<Broker>,
        deleted: &[(&str, TopicId)],
    ) -> Result<(), ErrorCode> {
        let drop_in = |index| async move {
            waiting(self.load_in_turn(broker, index)).await?;
            self.drop_offsets_in(broker, index, deleted).await
        };
        // All at once: one sync is enough for many shards, and the time of one in trouble for all that are.
        let outcomes = join_all((0..self.all_slots(broker).len()).map(drop_in)).await;
        outcomes.into_iter().rfind(Result::is_err).unwrap_or(Ok(()))
    }

    /// Drops the offsets of topics that were deleted in one shard, a slice at a time.
    async fn drop_offsets_in(
        &self,
        broker: &Broker,
        index: usize,
        deleted: &[(&str, TopicId)],
    ) -> Result<(), ErrorCode> {
        let mut behind = None;
        loop {
            let (notice, durable) = oneshot::channel();
            let mut deletion = Deletion::default();
            self.step(broker, index, Some(notice), |shard, _| {
                deletion = shard.on_topics_deleted(deleted, behind.as_deref());
                std::mem::take(&mut deletion.step)
            })?;
            for group_id in &deletion.at_length {
                let cost = |shard: &Shard| shard.cost_of_all_offsets(group_id);
                let work = Work { asker: Asker::SERVER, group_id, cost };
                let step = self.step_of(broker, index, work, None, |shard, _| {
                    shard.on_topics_deleted_in(group_id, deleted)
                });
                step.await?;
            }
            behind = deletion.goes_on_behind;
            if behind.is_none() && deletion.at_length.is_empty() {
                return self.slots()?[index].released(durable).await;
            }
            if behind.is_none() {
                let (notice, durable) = oneshot::channel();
                self.step(broker, index, Some(notice), |_, _| Step::default())?;
                return self.slots()?[index].released(durable).await;
            }
            give_way().await;
        }
    }

    /// Whether a client may write these batches to this partition of the topic of group offsets.
    pub(crate) fn check_written(
        &self,
        broker: &Broker,
        index: i32,
        batches: &[u8],
    ) -> Result<(), NotOfGroups> {
        check::check_batch(batches, &self.config, index, self.all_slots(broker).len())
    }

    fn slots(&self) -> Result<&Vec<Slot>, ErrorCode> {
        self.slots.get().ok_or(ErrorCode::NOT_COORDINATOR)
    }

    fn open_slots(&self, broker: &Broker) -> Result<&Vec<Slot>, ErrorCode> {
        if let Some(slots) = self.slots.get() {
            return Ok(slots);
        }
        let image = broker.metadata.image();
        let topic = image.topic(OFFSETS_TOPIC).ok_or(ErrorCode::NOT_COORDINATOR)?;
        let count = topic.partition_count();
        Ok(self.slots.get_or_init(|| self.make_slots(count)))
    }

    fn make_slots(&self, count: i32) -> Vec<Slot> {
        let count = usize::try_from(count).unwrap_or_default();
        (0..count).map(|index| Slot::new(index, &self.parked, self.stuck_after)).collect()
    }

    /// All slots; none while the topic does not exist.
    fn all_slots(&self, broker: &Broker) -> &[Slot] {
        self.open_slots(broker).map_or(&[], Vec::as_slice)
    }

    /// The loaded shard that a group belongs to.
    async fn loaded(&self, broker: &Arc<Broker>, group_id: &str) -> Result<usize, ErrorCode> {
        let index = shard_of(group_id, self.open_slots(broker)?.len());
        waiting(self.load(broker, index)).await?;
        Ok(index)
    }

    /// As [`Self::load`], for somebody who asks for all shards: they wait for the disk together, and are read a few at a
    /// time. A request for one of them does not wait for its turn.
    async fn load_in_turn(&self, broker: &Arc<Broker>, index: usize) -> Result<(), ErrorCode> {
        let clock = &*broker.env.clock;
        let slot = &self.slots()?[index];
        {
            let _loading = slot.loading.lock().await;
            if slot.state(clock).is_loaded(clock)? {
                return Ok(());
            }
            slot.settle(clock).await?;
        }
        let _turn = self.turns.acquire().await;
        self.load(broker, index).await
    }

    async fn load(&self, broker: &Arc<Broker>, index: usize) -> Result<(), ErrorCode> {
        let clock = &*broker.env.clock;
        let slot = &self.slots()?[index];
        if slot.state(clock).is_loaded(clock)? {
            return Ok(());
        }
        let _loading = slot.loading.lock().await;
        if slot.state(clock).is_loaded(clock)? {
            return Ok(());
        }
        slot.settle(clock).await?;
        let (for_load, config, memory) = (Arc::clone(broker), self.config.clone(), Arc::clone(&self.memory));
        let loaded = tokio::task::spawn_blocking(move || load::load(&for_load, index, config, memory))
            .await
            .unwrap_or_else(|ended| Err(LoadError::Ended(ended)));
        // Under one lock, so that no request meets a shard whose timer is not set.
        let mut state = slot.state.lock();
        match loaded {
            Ok((mut loaded, records)) => {
                loaded.load = slot.loads.fetch_add(1, Ordering::Relaxed);
                *state = SlotState::Loaded(Box::new(loaded));
                // They were found aside, so that nobody waits for it.
                self.step_on(broker, index, &mut state, None, |_, _| Step { records, ..Step::default() })
            }
            Err(error) => {
                slot.fail(&mut state, clock, &error);
                Err(error.code())
            }
        }
    }

    /// Loads every shard, so that offsets expire and lag is shown whether or not anybody asks for a group. What
    /// cannot be loaded has been logged, and is tried again when somebody asks for it.
    pub(crate) async fn load_all(&self, broker: &Arc<Broker>) {
        for index in 0..self.all_slots(broker).len() {
            let _ = self.load(broker, index).await;
        }
    }

    /// Loads the shards again that have failed and rested. Of one whose records still wait for the disk it is known that
    /// it cannot be loaded yet.
    async fn load_rested(&self, broker: &Arc<Broker>) {
        let clock = &*broker.env.clock;
        let is_due = |slot: &Slot| match &*slot.state(clock) {
            SlotState::Failed { retry_at, last } => {
                *retry_at <= clock.monotonic() && last.as_ref().is_none_or(Last::is_decided)
            }
            _ => false,
        };
        let slots = self.slots.get().into_iter().flatten().enumerate();
        let due = slots.filter(|(_, slot)| is_due(slot));
        join_all(due.map(|(index, _)| self.load_in_turn(broker, index))).await;
    }

    /// One step of a shard: state changes, records go to the log, replies and the notice go out when they are durable, and
    /// the timer learns of the next deadline. All under the shard's lock, so that records and replies keep the order of
    /// the steps.
    fn step(
        &self,
        broker: &Broker,
        index: usize,
        notice: Option<oneshot::Sender<()>>,
        run: impl FnOnce(&mut Shard, Now) -> Step,
    ) -> Result<(), ErrorCode> {
        let mut state = self.slots()?[index].state(&*broker.env.clock);
        self.step_on(broker, index, &mut state, notice, run)
    }

    fn step_on(
        &self,
        broker: &Broker,
        index: usize,
        state: &mut SlotState,
        notice: Option<oneshot::Sender<()>>,
        run: impl FnOnce(&mut Shard, Now) -> Step,
    ) -> Result<(), ErrorCode> {
        let loaded = state.loaded_mut().ok_or(ErrorCode::NOT_COORDINATOR)?;
        let step = run(&mut loaded.shard, clock::now(&*broker.env.clock));
        self.tell_of_shortage(&*broker.env.clock);
        changes::tell_emptied(&loaded.shard.take_emptied());
        let slot = &self.slots()?[index];
        if let Err(error) = batches::append(broker, &loaded.partition, &step.records, &mut loaded.last) {
            return Err(self.discard(broker, slot, state, &error));
        }
        changes::tell_protocols(&loaded.shard.take_protocol_changes());
        if let Some(deadline) = loaded.shard.next_deadline() {
            self.timer.set(deadline);
        }
        if !step.records.is_empty() {
            slot.note_appended();
        }
        let replies = self.addressed(step.replies);
        slot.release(loaded, Release { replies, notices: notice.into_iter().collect() });
        Ok(())
    }

    /// Discards a shard that is ahead of its log, with all who wait for it.
    fn discard(&self, broker: &Broker, slot: &Slot, state: &mut SlotState, error: &AppendError) -> ErrorCode {
        let why = match (error, state.loaded()) {
            (AppendError::Storage(LogError::Lost(_)), Some(loaded)) => lost(&loaded.partition),
            _ => error.to_string(),
        };
        slot.fail(state, &*broker.env.clock, &why);
        self.parked.lock().retain(|_, waiting| waiting.shard != slot.held.shard());
        crate::error::group_append_error(error)
    }

    /// The same for a group that was lent by this load of its shard, unless that is gone already.
    fn fail_append(&self, broker: &Broker, slot: &Slot, load: u64, error: &AppendError) -> ErrorCode {
        let mut state = slot.state(&*broker.env.clock);
        if state.loaded().is_none_or(|loaded| loaded.load != load) {
            return ErrorCode::NOT_COORDINATOR;
        }
        self.discard(broker, slot, &mut state, error)
    }

    /// Logs that somebody was refused for want of memory, once in a while.
    fn tell_of_shortage(&self, clock: &dyn Clock) {
        let refusals = self.memory.refusals();
        {
            let mut shortage = self.shortage.lock();
            if shortage.refusals == refusals {
                return;
            }
            *shortage = Shortage { refusals, seen_at: Some(clock.monotonic()) };
        }
        GROUP_MEMORY_SHORTAGE.warn(|suppressed| {
            let holders = self.memory_holders();
            tracing::warn!(suppressed, "members or commits of groups were refused: {holders}");
        });
    }

    /// Who holds the memory of groups, while somebody was refused for want of it not long ago.
    pub(crate) fn shortage(&self, clock: &dyn Clock) -> Option<String> {
        let seen_at = self.shortage.lock().seen_at?;
        let is_over = clock.monotonic().saturating_sub(seen_at) > SHORTAGE_TOLD;
        (!is_over).then(|| format!("members or commits of groups are refused: {}", self.memory_holders()))
    }

    fn memory_holders(&self) -> String {
        let (held, max) = (self.memory.held_bytes(), self.memory.max_bytes());
        let largest = self.memory.largest_sources(HOLDERS_TOLD).into_iter();
        let largest: Vec<_> =
            largest.map(|(source, bytes)| format!(", {bytes} of them for {}", Source::of(source))).collect();
        let little = self.memory.little_bytes();
        format!(
            "groups hold {held} bytes of {max} (groups.memory.max.bytes){}; a group, and all that a source has made \
             grow, may be no larger than a third of what is left of seven eighths; the rest is for those that hold no more than \
             {little}",
            largest.concat()
        )
    }

    /// Replies with those who wait for them. Nobody waits any more for one whose client has given up.
    fn addressed(&self, replies: Vec<Reply>) -> Vec<(oneshot::Sender<GroupResponse>, GroupResponse)> {
        let mut parked = self.parked.lock();
        let addressed = replies.into_iter().filter_map(|reply| {
            let Waiting { reply: sender, .. } = parked.remove(&reply.token)?;
            Some((sender, reply.body))
        });
        addressed.collect()
    }
}

/// A request that its shard has taken, and whose reply may come with a later step.
pub(crate) struct Begun {
    shard: usize,
    reply: oneshot::Receiver<GroupResponse>,
    forget: Forget,
}

impl Begun {
    /// Waits for the reply.
    pub(crate) async fn reply(self) -> Result<GroupResponse, ErrorCode> {
        let Self { shard, reply, forget } = self;
        forget.broker.groups.slots()?[shard].released(reply).await
    }
}

/// What a request takes while it waits for its group: its place among the waiting ones, and what it is worked on with.
const WAITING_BYTES: usize = 1024;

/// Memory that a request of this client holds while it waits for its group.
pub(crate) fn waiting_bytes(context: &RequestContext) -> usize {
    WAITING_BYTES + context.client_id.len()
}

/// Takes a request out of the waiting ones when its connection gives it up.
struct Forget {
    broker: Arc<Broker>,
    token: ReplyToken,
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.broker.groups.parked.lock().remove(&self.token);
    }
}

/// Memory that work of this cost is charged for, while it is done aside, at most.
const WORK_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Memory that is charged for work of this cost; none if it is done in a step.
pub(crate) fn work_bytes(cost: usize) -> usize {
    if cost > STEP_COST_MAX { cost.min(WORK_BYTES_MAX) } else { 0 }
}

fn group_config(config: &BrokerConfig) -> GroupConfig {
    let groups = &config.groups;
    GroupConfig {
        min_session_timeout_ms: groups.group_min_session_timeout_ms,
        max_session_timeout_ms: groups.group_max_session_timeout_ms,
        initial_rebalance_delay_ms: groups.group_initial_rebalance_delay_ms,
        max_size: groups.group_max_size,
        offset_metadata_max_bytes: groups.offset_metadata_max_bytes,
        offsets_retention_ms: groups.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms: groups.offsets_retention_check_interval_ms,
        consumer_session_timeout_ms: groups.group_consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms: groups.group_consumer_heartbeat_interval_ms,
        consumer_max_size: groups.group_consumer_max_size,
        consumer_assignment_interval_ms: groups.group_consumer_assignment_interval_ms,
        consumer_migration_policy: groups.group_consumer_migration_policy,
        consumer_assignors: groups.group_consumer_assignors.clone(),
        ..GroupConfig::default()
    }
}

/// The topics as of now, as the coordinator sees them.
pub(crate) fn topics(broker: &Broker) -> ImageTopics {
    ImageTopics::new(broker.metadata.image(), Arc::clone(broker.groups.patterns()), None)
}

/// The same for a request: what it has to wait for it shares with the others of its source.
pub(crate) fn topics_for(broker: &Broker, context: &RequestContext) -> ImageTopics {
    let source = Source::of(context.connection.peer.ip());
    ImageTopics::new(broker.metadata.image(), Arc::clone(broker.groups.patterns()), Some(source))
}

#[cfg(test)]
mod tests;

//! Consumer groups of this server: the coordinator's shards, hosted over the partitions of `__consumer_offsets`.
//!
//! Owns the way of a group's request to its shard, with what the shard sees of the server: topics, patterns of topics, and
//! what groups set for themselves. How a shard is loaded, and when a reply is sent, is the [host](crate::shard_host)'s. A
//! group with which a request has much to do holds back none of the others.

mod check;
mod deletion;
mod machine;
mod own_configs;
mod patterns;
mod shortage;
mod topics;
mod world;

use std::sync::Arc;
use std::time::Duration;

use riverrun_coordinator::{
    CommittedSlice, GroupResponse, Now, RequestContext as GroupContext, STEP_COST_MAX, Shard, Step,
};
use riverrun_journal::Journal;
use riverrun_protocol::ErrorCode;
use riverrun_records::Compression;

use self::machine::step_of;
pub(crate) use self::topics::ImageTopics;
pub(crate) use self::world::Ports;
use self::world::World;
use crate::changes;
use crate::config::BrokerConfig;
use crate::context::RequestContext;
use crate::flow::source::Source;
use crate::log_limit::{Change, GROUP_TROUBLE};
use crate::shard_host::{Asker, HostOptions, ShardHost, Work};
use crate::stop_signal::StopSignal;
use crate::topic_names::OFFSETS_TOPIC;

pub(crate) use check::NotOfGroups;

/// The bounds on what a load takes: `GroupConfig::groups_max` and `GroupConfig::group_offsets_max`.
pub(crate) const BOUNDS: &str = "10,000 groups in a partition, 1,000,000 offsets of a group";

/// A request that its group's shard has taken, and whose reply may come with a later step.
pub(crate) type Begun = crate::shard_host::Begun<Shard>;

/// All groups of one server.
#[derive(Debug)]
pub(crate) struct Groups {
    /// The host that loads the shards, and runs requests on them.
    pub(crate) host: Arc<ShardHost<Shard>>,
}

impl Groups {
    pub(crate) fn new(config: &BrokerConfig, ports: Ports) -> Self {
        let options = HostOptions {
            what: "groups",
            records: "group records",
            topic: OFFSETS_TOPIC,
            bounds: BOUNDS,
            trouble: &GROUP_TROUBLE,
            compression: codec(config),
            stuck_after: Duration::from_millis(config.groups.offsets_commit_timeout_ms),
            clock: Arc::clone(&ports.env.clock),
        };
        Self { host: ShardHost::new(options, World::new(config, ports)) }
    }

    fn world(&self) -> &World {
        self.host.world()
    }

    /// Runs a request on the shard of `group_id`, and waits for the reply, which may come with a later step.
    pub(crate) async fn request(
        &self,
        context: &RequestContext,
        version: i16,
        group_id: &str,
        cost: impl Fn(&Shard) -> usize,
        handle: impl FnOnce(&mut Shard, &GroupContext<'_>) -> Step,
    ) -> Result<GroupResponse, ErrorCode> {
        self.begin(context, version, group_id, cost, handle).await?.reply().await
    }

    /// As [`Self::request`], for a member, which stays one however long the log takes nothing. `handle` gets whether there is
    /// room for records.
    pub(crate) async fn keep_alive(
        &self,
        context: &RequestContext,
        version: i16,
        group_id: &str,
        cost: impl Fn(&Shard) -> usize,
        handle: impl FnOnce(&mut Shard, &GroupContext<'_>, bool) -> Step,
    ) -> Result<GroupResponse, ErrorCode> {
        let index = self.host.loaded(group_id).await?;
        let has_room = self.host.has_room(index)?;
        let handle = |shard: &mut Shard, context: &GroupContext<'_>| handle(shard, context, has_room);
        let work = Work { asker: Asker::of(context), key: group_id, cost };
        self.begin_in(index, context, version, work, handle).await?.reply().await
    }

    /// Runs a request on the shard of `group_id`. The wait for the reply holds nothing of the request.
    pub(crate) async fn begin(
        &self,
        context: &RequestContext,
        version: i16,
        group_id: &str,
        cost: impl Fn(&Shard) -> usize,
        handle: impl FnOnce(&mut Shard, &GroupContext<'_>) -> Step,
    ) -> Result<Begun, ErrorCode> {
        let index = self.host.loaded(group_id).await?;
        self.host.check_room(index)?;
        let mut is_new = false;
        let work = Work { asker: Asker::of(context), key: group_id, cost };
        let begun = self.begin_in(index, context, version, work, |shard, of| {
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
        index: usize,
        context: &RequestContext,
        api_version: i16,
        work: Work<'_, impl Fn(&Shard) -> usize>,
        handle: impl FnOnce(&mut Shard, &GroupContext<'_>) -> Step,
    ) -> Result<Begun, ErrorCode> {
        let mut random = [0; 16];
        self.world().ports.env.random.fill(&mut random);
        let begun = self.host.begin(index, work, |shard, now, token| {
            let client_host = context.client_host();
            let (client_id, client_host) = (&*context.client_id, &*client_host);
            let of = GroupContext { now, token, client_id, client_host, api_version, random };
            step_of(shard.on_behalf_of(context.source().into(), |shard| handle(shard, &of)))
        });
        begun.await
    }

    /// Changes the shard of `group_id`. The answer is what `handle` returns, once its records are durable: no reply is awaited.
    pub(crate) async fn change<T>(
        &self,
        context: &RequestContext,
        group_id: &str,
        cost: impl Fn(&Shard) -> usize,
        handle: impl FnOnce(&mut Shard, Now) -> (T, Step),
    ) -> Result<T, ErrorCode> {
        let index = self.host.loaded(group_id).await?;
        let work = Work { asker: Asker::of(context), key: group_id, cost };
        let changed = self.host.change(index, work, |shard, now| {
            let (answer, step) = handle(shard, now);
            (answer, step_of(step))
        });
        changed.await
    }

    /// Looks at the shard of `group_id`. The answer comes when all that was seen is durable, so that no answer is taken back.
    pub(crate) async fn read<T>(
        &self,
        context: &RequestContext,
        group_id: &str,
        cost: impl Fn(&Shard) -> usize,
        look: impl FnOnce(&Shard) -> T,
    ) -> Result<T, ErrorCode> {
        let index = self.host.loaded(group_id).await?;
        let work = Work { asker: Asker::of(context), key: group_id, cost };
        self.host.read(index, work, look).await
    }

    /// The cost of a request for this group now, if its shard is loaded.
    pub(crate) fn cost(&self, group_id: &str, cost: impl Fn(&Shard) -> usize) -> usize {
        self.host.cost(group_id, cost)
    }

    /// Looks at every shard, loading those that are not loaded: one outcome for each, in their order. It looks in slices,
    /// each of which tells behind which group the next one goes on. Nothing to see while the topic does not exist.
    pub(crate) async fn read_all<T>(
        &self,
        look: impl Fn(&Shard, Option<&str>) -> (Vec<T>, Option<Arc<str>>),
    ) -> Vec<Result<Vec<T>, ErrorCode>> {
        self.host.read_all(look).await
    }

    /// Shows what groups have committed, of the shards that are loaded.
    pub(crate) fn show_committed(&self, show: impl FnMut(CommittedSlice)) {
        let look = |shard: &Shard, place: Option<_>| {
            let mut slice = shard.committed_slice(place.as_ref());
            let next = slice.next.take();
            (slice, next)
        };
        self.host.show_slices(look, show);
    }

    /// The memory that all groups take, for metrics.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.world().memory.held_bytes()
    }

    /// A shard that could not be loaded or not append, and has not been since; and why.
    pub(crate) fn failed_shard(&self) -> Option<(usize, String)> {
        self.host.failed_shard()
    }

    /// A shard whose log holds more than the bounds of groups allow, and how many of its records were left out.
    pub(crate) fn cut_shard(&self) -> Option<(usize, u64)> {
        self.host.cut_shard()
    }

    /// Why the shard of this group takes no changes, if it takes none now: for answers that have a text beside the code,
    /// which is the same whatever the trouble is.
    pub(crate) fn trouble(&self, group_id: &str) -> Option<String> {
        let failure = self.host.failure_of(group_id);
        if failure.is_some() || !self.host.is_stuck(group_id) {
            return failure;
        }
        let shortage = self.world().ports.logs.journals().find_map(Journal::shortage);
        let reason = shortage.map(|shortage| format!(": {shortage}")).unwrap_or_default();
        Some(format!("group records wait for the disk{reason}"))
    }

    /// The sources that hold the memory of groups, for a while after a refusal for want of it.
    pub(crate) fn shortage(&self) -> Option<String> {
        let world = self.world();
        world.shortage.told(&world.memory, &*world.ports.env.clock)
    }

    /// Whether a client may write these batches to this partition of the topic of group offsets.
    pub(crate) fn check_written(&self, index: i32, batches: &[u8]) -> Result<(), NotOfGroups> {
        check::check_batch(batches, &self.world().config, index, self.host.shard_count())
    }

    /// The topics as of now, as the coordinator sees them.
    pub(crate) fn topics(&self) -> ImageTopics {
        self.world().topics(None)
    }

    /// The same for a request. Its unknown patterns wait in the line of its source, shared with the source's other requests.
    pub(crate) fn topics_for(&self, context: &RequestContext) -> ImageTopics {
        self.world().topics(Some(context.source()))
    }

    /// Waits until the topics of a pattern are known, but not for long.
    pub(crate) async fn find_pattern(&self, source: Source, pattern: &str) {
        let world = self.world();
        world.patterns.find(&world.ports.metadata, source, pattern).await;
    }

    /// Loads all shards and keeps their time until `stop` turns true.
    pub(crate) fn run_timer(&self, stop: StopSignal) -> impl Future<Output = ()> + Send + use<> {
        Arc::clone(&self.host).run_timer(stop)
    }

    /// Loads shards again that have failed and rested, until `stop` turns true.
    pub(crate) fn run_retries(&self, stop: StopSignal) -> impl Future<Output = ()> + Send + use<> {
        Arc::clone(&self.host).run_retries(stop)
    }

    /// Works off the line of patterns until `stop` turns true.
    pub(crate) fn run_patterns(&self, stop: StopSignal) -> impl Future<Output = ()> + Send + use<> {
        let World { patterns, ports, .. } = self.world();
        patterns::run(Arc::clone(patterns), Arc::clone(&ports.metadata), Arc::clone(&ports.env.clock), stop)
    }
}

fn codec(config: &BrokerConfig) -> Compression {
    match config.groups.offsets_topic_compression_codec {
        1 => Compression::Gzip,
        2 => Compression::Snappy,
        3 => Compression::Lz4,
        4 => Compression::Zstd,
        _ => Compression::None,
    }
}

/// Memory of a request while it waits for its group: its place among the waiting ones, and the state of its work.
const WAITING_BYTES: usize = 1024;

/// Memory that a request of this client holds while it waits for its group.
pub(crate) fn waiting_bytes(context: &RequestContext) -> usize {
    WAITING_BYTES + context.client_id.len()
}

/// Memory that work of this cost is charged for, while it is done aside, at most.
const WORK_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Memory that is charged for work of this cost; none if it is done in a step.
pub(crate) fn work_bytes(cost: usize) -> usize {
    if cost > STEP_COST_MAX { cost.min(WORK_BYTES_MAX) } else { 0 }
}

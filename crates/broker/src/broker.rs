//! The server's state, shared by all its connections and tasks.
//!
//! Owns nothing but the parts and the paths between them: a topic's name or id to its entry in the image. What serves a
//! partition of that [`Replicas`] finds.

mod durability;
pub(crate) mod health;

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use riverrun_env::{Env, PatientWall};
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{AppendOptions, LogStore};
use riverrun_protocol::ErrorCode;
use riverrun_types::{LeaderEpoch, LogAccount, NodeId, TopicId};
use tokio::sync::Notify;

use crate::aside::Places;
use crate::catalog::Catalog;
use crate::catch_up::CatchUp;
use crate::compaction_failures::CompactionFailures;
use crate::config::{BrokerConfig, Listener};
use crate::context::RequestContext;
use crate::fetch_sessions::SessionCache;
use crate::flow::budget::MemoryBudget;
use crate::flow::inflate_offload::InflatingLeave;
use crate::flow::produce_backpressure::ProduceGate;
use crate::flow::responses::ResponseMemory;
use crate::flow::turns::Turns;
use crate::groups::Groups;
use crate::held_files::HeldFiles;
use crate::metadata::{ClusterImage, JournalRegistry, Topic};
use crate::metrics::SharedMetrics;
use crate::mounts::Mounts;
use crate::partitions::{Partition, Partitions};
use crate::replicas::Replicas;
use crate::scrub_progress::ScrubProgress;
use crate::supervisor::Supervisor;
use crate::waits::Seen;

/// How a request names a topic: by name in older versions, by id in newer ones (KIP-516).
#[derive(Clone, Copy, Debug)]
pub(crate) enum TopicKey<'a> {
    Name(&'a str),
    Id(TopicId),
}

impl TopicKey<'_> {
    /// The topic that is named.
    pub(crate) fn find(self, image: &ClusterImage) -> Result<&Arc<Topic>, ErrorCode> {
        match self {
            Self::Name(name) => image.topic(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
            Self::Id(id) => image.topic_by_id(id).ok_or(ErrorCode::UNKNOWN_TOPIC_ID),
        }
    }
}

/// The bounds of the memory and the files that requests and responses of all connections may hold.
#[derive(Debug)]
pub(crate) struct Budgets {
    pub(crate) requests: Arc<MemoryBudget>,
    pub(crate) responses: Arc<ResponseMemory>,
    /// Files that responses keep open.
    pub(crate) files: Arc<HeldFiles>,
}

/// All parts of one running server.
#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) env: Env,
    /// The clock for expiries, which must not come because the wall clock was set.
    pub(crate) patient_wall: PatientWall,
    pub(crate) config: Arc<BrokerConfig>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) logs: Arc<LogStore>,
    pub(crate) journals: Arc<JournalRegistry>,
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) mounts: Arc<Mounts>,
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) groups: Groups,
    pub(crate) fetch_sessions: SessionCache,
    /// Fetches that wait for records.
    pub(crate) parked_fetches: AtomicUsize,
    pub(crate) catch_up: Arc<CatchUp>,
    pub(crate) budgets: Budgets,
    pub(crate) metrics: SharedMetrics,
    pub(crate) supervisor: Arc<Supervisor>,
    /// For the jobs of each log dir: an append found no room for records.
    pub(crate) shortages: Vec<Notify>,
    /// For the jobs of each log dir: a partition was opened, and hardly more may be.
    pub(crate) surpluses: Vec<Notify>,
    /// The gate that requests with records pass.
    pub(crate) produce_gate: Arc<ProduceGate>,
    /// The leave that requests with many compressed records wait for.
    pub(crate) inflating: Arc<InflatingLeave>,
    /// The turns in which connections are served.
    pub(crate) turns: Arc<Turns>,
    /// The turns and the memory of requests aside; set once the router serves requests.
    pub(crate) aside: OnceLock<Places>,
    pub(crate) scrub: ScrubProgress,
    /// The waits that the watchdog has seen.
    pub(crate) waits: Seen,
    /// Logs whose compaction failed.
    pub(crate) compaction_failures: CompactionFailures,
    /// Counts of the log's lines that were lost; set where the process has a log writer that counts.
    pub(crate) log_account: OnceLock<Arc<LogAccount>>,
    /// The addresses that clients of each listener are told; set once the listeners are bound and ports are known.
    pub(crate) advertised: OnceLock<Vec<Listener>>,
}

impl Broker {
    /// This node.
    pub(crate) fn node_id(&self) -> NodeId {
        NodeId(self.config.server.node_id)
    }

    /// The address that this client is to use for us.
    pub(crate) fn endpoint(&self, context: &RequestContext) -> (String, i32) {
        let named = |listener: &&Listener| *listener.name == *context.connection.listener;
        let advertised = self.advertised.get().and_then(|all| all.iter().find(named));
        advertised.map_or_else(Default::default, |listener| (listener.host.clone(), i32::from(listener.port)))
    }

    /// A live partition of a topic, opened at its first touch.
    pub(crate) fn partition(&self, topic: &Topic, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        self.replicas.partition(topic, index)
    }

    /// The leader epoch of a partition, as the metadata says; the queue behind a mounted topic counts its own.
    pub(crate) fn leader_epoch(&self, topic: &Topic, index: i32) -> LeaderEpoch {
        self.replicas.leader_epoch(topic, index)
    }

    /// Whether the epoch that a client believes in is the partition's (KIP-320). Clients that do not check send -1.
    pub(crate) fn check_epoch(
        &self,
        topic: &Topic,
        index: i32,
        believed: LeaderEpoch,
    ) -> Result<(), ErrorCode> {
        if believed < LeaderEpoch(0) {
            return Ok(());
        }
        if !topic.has_partition(index) {
            return Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        }
        match believed.cmp(&self.leader_epoch(topic, index)) {
            Ordering::Less => Err(ErrorCode::FENCED_LEADER_EPOCH),
            Ordering::Greater => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
            Ordering::Equal => Ok(()),
        }
    }

    /// How a client's batch is appended now.
    pub(crate) fn append_options(&self) -> AppendOptions {
        AppendOptions { origin: AppendOrigin::Client, now: self.env.clock.wall() }
    }
}

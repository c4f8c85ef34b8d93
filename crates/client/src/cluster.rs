//! The servers: their addresses, the leaders of partitions, and one connection to each server for each lane.
//!
//! Owns the metadata cache and the connections of one client. Metadata is requested when it is needed and unknown,
//! when it is older than `metadata_max_age`, and when an answer shows that it is stale.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use riverrun_protocol::find_coordinator_response::Coordinator;
use riverrun_protocol::metadata_request::MetadataRequestTopic;
use riverrun_protocol::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use riverrun_protocol::{ApiKey, ErrorCode, FindCoordinatorRequest, MetadataRequest, MetadataResponse};
use riverrun_types::{ErrorKind, LeaderEpoch, NodeId, TopicId};
use tokio::time::Instant;

use crate::connection::{AnyRequest, CallLimits, Connection, ConnectionOptions, ResponseFrame};
use crate::error::ClientError;
use crate::options::{Kind, options};
use crate::retry::{Backoff, Pauses, Retry};
use crate::slot::Slot;
use crate::topic_partition::TopicPartition;
use crate::traffic::{Traffic, TrafficCounts};

/// Key type of a group in `FindCoordinator`.
const KEY_TYPE_GROUP: i8 = 0;
/// First version of `FindCoordinator` with several keys.
const COORDINATOR_KEYS_SINCE: i16 = 4;
/// First version of Metadata whose request can forbid the creation of topics.
const AUTO_CREATE_SINCE: i16 = 4;

options! {
    /// How to reach a cluster, and the timeouts of its requests.
    pub struct ClusterOptions {}

    /// `host:port` of one or more servers; the others are learnt from these.
    bootstrap: Vec<String> = "bootstrap.servers", Kind::List("a list of host:port"), Some("");
    /// The client's name, shown by the server's tools. Empty for a generated name with a number that counts the
    /// clients of its kind in this process: `producer-1`, `adminclient-1`, `consumer-GROUP-1`, or `consumer-1`
    /// without a group; a static member is `consumer-GROUP-INSTANCE`.
    client_id: String = "client.id", Kind::Text("a name, or empty"), Some("");
    /// Time for a connection to come up. The addresses of one host name share it.
    connect_timeout: Duration = "socket.connection.setup.timeout.ms", Kind::Millis(1, i64::MAX), Some("10000");
    /// Time for an answer, in addition to the time that a fetch or a join itself grants the server. A produce request
    /// grants the server nine tenths of it, so that the server can report a timeout before the client gives up.
    /// Unlike Kafka's clients, 0 is refused: no request would get an answer.
    request_timeout: Duration = "request.timeout.ms", Kind::Millis(1, i32::MAX as i64), Some("30000");
    /// Time in which retriable errors are retried before they are reported.
    retry_timeout: Duration = "default.api.timeout.ms", Kind::Millis(0, i32::MAX as i64), Some("60000");
    /// Pause between the first attempt and the second. Each later pause is twice as long, up to
    /// `retry.backoff.max.ms`, and varies at random by up to a fifth.
    retry_backoff: Duration = "retry.backoff.ms", Kind::Millis(0, i64::MAX), Some("100");
    /// Longest pause between two attempts. Where it is no more than `retry.backoff.ms`, it is every pause.
    retry_backoff_max: Duration = "retry.backoff.max.ms", Kind::Millis(0, i64::MAX), Some("1000");
    /// Pause before another connection attempt to a server. It grows with each failed attempt as that of
    /// `retry.backoff.ms` does, up to `reconnect.backoff.max.ms`.
    reconnect_backoff: Duration = "reconnect.backoff.ms", Kind::Millis(0, i64::MAX), Some("50");
    /// Longest pause before another connection attempt to a server. Where it is no more than `reconnect.backoff.ms`,
    /// it is every pause.
    reconnect_backoff_max: Duration = "reconnect.backoff.max.ms", Kind::Millis(0, i64::MAX), Some("1000");
    /// Age at which metadata is requested again.
    metadata_max_age: Duration = "metadata.max.age.ms", Kind::Millis(0, i64::MAX), Some("300000");
    /// Most unanswered requests on one connection. At most 5 batches of one partition are in flight, as many as a
    /// server remembers of an idempotent producer. More than 5 is therefore accepted with idempotence, too; Kafka's
    /// producer refuses it.
    in_flight_max: usize = "max.in.flight.requests.per.connection", Kind::Int(1, i32::MAX as i64), Some("5");
}

impl ClusterOptions {
    /// Defaults, with these servers to begin with (`host:port`, separated by commas).
    pub fn new(bootstrap: &str) -> Self {
        let bootstrap = bootstrap.split(',').map(str::trim).filter(|address| !address.is_empty());
        Self { bootstrap: bootstrap.map(str::to_owned).collect(), ..Self::defaults() }
    }

    /// Sets the client's name if none is configured.
    pub(crate) fn name_client(&mut self, name: impl FnOnce() -> String) {
        if self.client_id.is_empty() {
            self.client_id = name();
        }
    }
}

/// A server of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its id.
    pub id: NodeId,
    /// Its advertised host.
    pub host: String,
    /// Its advertised port.
    pub port: i32,
    /// Its rack or zone.
    pub rack: Option<String>,
}

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    /// Index, from 0.
    pub index: i32,
    /// Its leader; `None` while it has none.
    pub leader: Option<NodeId>,
    /// Epoch of that leader.
    pub leader_epoch: LeaderEpoch,
    /// All its replicas.
    pub replicas: Vec<NodeId>,
    /// Those that are in sync.
    pub in_sync: Vec<NodeId>,
    /// Replicas whose files cannot be used, although their servers are up.
    pub unusable: Vec<NodeId>,
}

impl PartitionInfo {
    /// A partition of which only the index is known.
    fn untold(index: i32) -> Self {
        Self {
            index,
            leader: None,
            leader_epoch: LeaderEpoch::UNKNOWN,
            replicas: Vec::new(),
            in_sync: Vec::new(),
            unusable: Vec::new(),
        }
    }

    /// The leader of this partition of a topic, or the reason why it has none.
    pub fn led(&self, topic: &str) -> Result<NodeId, ClientError> {
        let code = match self.leader {
            Some(leader) => return Ok(leader),
            None if self.unusable.is_empty() => ErrorCode::LEADER_NOT_AVAILABLE,
            None => ErrorCode::KAFKA_STORAGE_ERROR,
        };
        let name = TopicPartition::new(topic, self.index).to_string();
        Err(ClientError::Server { code, message: Some(name) })
    }
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    /// Name.
    pub name: String,
    /// Id; zero if the server has none.
    pub id: TopicId,
    /// True for the server's own topics, such as `__consumer_offsets`.
    pub internal: bool,
    /// Its partitions, by index.
    pub partitions: Vec<PartitionInfo>,
}

impl TopicInfo {
    /// Number of partitions.
    pub fn partition_count(&self) -> i32 {
        i32::try_from(self.partitions.len()).unwrap_or(i32::MAX)
    }
}

/// A topic of a metadata answer, or its name and the error in its place.
type Told = Result<Arc<TopicInfo>, (String, ClientError)>;

/// A topic in the cache.
#[derive(Clone, Debug)]
pub(crate) struct KnownTopic {
    pub(crate) topic: Arc<TopicInfo>,
    /// True if it was learnt less than `metadata_max_age` ago.
    pub(crate) fresh: bool,
}

/// Purpose of a connection. A waiting fetch or join delays later requests on the same connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// Produce, metadata, admin.
    Data,
    /// Fetches, which wait at the server.
    Fetch,
    /// Group membership, which waits for other members.
    Group,
}

impl Lane {
    const ALL: [Self; 3] = [Self::Data, Self::Fetch, Self::Group];
}

#[derive(Debug, Default)]
struct Known {
    nodes: BTreeMap<i32, Node>,
    controller: Option<NodeId>,
    cluster_id: Option<String>,
    topics: HashMap<String, (Arc<TopicInfo>, Instant)>,
}

/// The cluster as one client sees it. Cheap to share by `Arc`.
///
/// Invariants: at most one live connection for each node and lane; a slot is locked only by a task that runs on by
/// itself.
#[derive(Debug)]
pub struct Cluster {
    options: ClusterOptions,
    known: Mutex<Known>,
    slots: Mutex<HashMap<(NodeId, Lane), Arc<Slot>>>,
    traffic: Arc<Traffic>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// Connects to one of the bootstrap servers and learns the others from it.
    pub fn connect(options: ClusterOptions) -> BoxFuture<'static, Result<Arc<Self>, ClientError>> {
        Box::pin(async move {
            let (known, slots, traffic) = (Mutex::default(), Mutex::default(), Arc::default());
            let cluster = Arc::new(Self { options, known, slots, traffic });
            cluster.refresh(Some(&[]), false).await?;
            Ok(cluster)
        })
    }

    /// The options that it was made with.
    pub fn options(&self) -> &ClusterOptions {
        &self.options
    }

    /// Counts of the traffic on all connections.
    pub(crate) fn traffic(&self) -> TrafficCounts {
        self.traffic.counts()
    }

    /// The servers that are known now.
    pub fn nodes(&self) -> Vec<Node> {
        lock(&self.known).nodes.values().cloned().collect()
    }

    /// A server's name in messages: its id, and its address if that is known.
    pub(crate) fn name_of(&self, node: NodeId) -> String {
        match lock(&self.known).nodes.get(&node.0) {
            Some(Node { host, port, .. }) => format!("server {} ({host}:{port})", node.0),
            None => format!("server {}", node.0),
        }
    }

    /// The cluster's id, if a server has reported it.
    pub fn cluster_id(&self) -> Option<String> {
        lock(&self.known).cluster_id.clone()
    }

    /// Requests the metadata of these topics, or of all with `None`, and caches it. The result holds an entry for
    /// each topic of the answer: an error of one topic does not hide the others.
    pub fn refresh<'a>(
        &'a self,
        names: Option<&'a [&'a str]>,
        create: bool,
    ) -> BoxFuture<'a, Result<Vec<Told>, ClientError>> {
        Box::pin(async move {
            let mut request = MetadataRequest {
                topics: names.map(|names| names.iter().copied().map(wanted_topic).collect()),
                allow_auto_topic_creation: create,
                ..Default::default()
            };
            let connection = self.any_connection().await?;
            // Before that version a server creates topics whatever the request says.
            request.allow_auto_topic_creation |= connection.version_of(ApiKey::Metadata)? < AUTO_CREATE_SINCE;
            let frame = connection.call(&request, CallLimits::default()).await?;
            let answer = frame.decode::<MetadataRequest<'_>>()?;
            Ok(self.learn(&answer))
        })
    }

    fn learn(&self, answer: &MetadataResponse<'_>) -> Vec<Told> {
        let mut known = lock(&self.known);
        known.controller = (answer.controller_id >= 0).then_some(NodeId(answer.controller_id));
        known.cluster_id = answer.cluster_id.as_ref().map(ToString::to_string);
        known.nodes = answer
            .brokers
            .iter()
            .map(|broker| {
                let node = Node {
                    id: NodeId(broker.node_id),
                    host: broker.host.to_string(),
                    port: broker.port,
                    rack: broker.rack.as_ref().map(ToString::to_string),
                };
                (broker.node_id, node)
            })
            .collect();
        let now = Instant::now();
        let mut seen = Vec::with_capacity(answer.topics.len());
        for topic in &answer.topics {
            let name = topic.name.as_deref().unwrap_or_default().to_owned();
            let told = ClientError::check(topic.error_code, None)
                .and_then(|()| topic_info(topic, &name, &known.nodes));
            match told {
                Ok(info) => {
                    let info = Arc::new(info);
                    known.topics.insert(name, (Arc::clone(&info), now));
                    seen.push(Ok(info));
                }
                Err(error) => {
                    known.topics.remove(&name);
                    seen.push(Err((name, error)));
                }
            }
        }
        seen
    }

    /// A topic from the cache; `None` if it is unknown or too old.
    pub fn cached_topic(&self, name: &str) -> Option<Arc<TopicInfo>> {
        self.known_topic(name).filter(|known| known.fresh).map(|known| known.topic)
    }

    /// A topic from the cache, however old: records are sent by it while newer metadata is on its way.
    pub(crate) fn known_topic(&self, name: &str) -> Option<KnownTopic> {
        let known = lock(&self.known);
        let (topic, at) = known.topics.get(name)?;
        let fresh = at.elapsed() < self.options.metadata_max_age;
        Some(KnownTopic { topic: Arc::clone(topic), fresh })
    }

    /// A topic, from the cache while that is fresh. With `create`, waits for a server that creates topics on demand.
    /// Partitions may lack a leader, as long as one has one or is known to be unusable.
    pub fn topic<'a>(
        &'a self,
        name: &'a str,
        create: bool,
    ) -> BoxFuture<'a, Result<Arc<TopicInfo>, ClientError>> {
        Box::pin(async move {
            if let Some(topic) = self.cached_topic(name) {
                return Ok(topic);
            }
            let mut retry = Retry::new(&self.options);
            loop {
                let asked = self.ask_topic(name, create).await;
                if !may_change(&asked, create) || !retry.pause().await {
                    return asked;
                }
            }
        })
    }

    /// Requests a topic's metadata, once, even if it is cached.
    pub(crate) async fn ask_topic(&self, name: &str, create: bool) -> Result<Arc<TopicInfo>, ClientError> {
        let mut seen = self.refresh(Some(&[name]), create).await?;
        match seen.pop() {
            Some(Ok(topic)) => Ok(topic),
            Some(Err((_, error))) => Err(error),
            None => Err(ClientError::Server { code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, message: None }),
        }
    }

    /// Removes a topic from the cache, because its metadata proved stale: the next lookup asks a server.
    pub fn forget_topic(&self, name: &str) {
        lock(&self.known).topics.remove(name);
    }

    /// Asks for the coordinator of a group, once: the caller retries, and can report the reason meanwhile.
    pub(crate) async fn ask_coordinator(&self, group: &str) -> Result<NodeId, ClientError> {
        let connection = self.any_connection().await?;
        let version = connection.version_of(ApiKey::FindCoordinator)?;
        let several = version >= COORDINATOR_KEYS_SINCE;
        let request = FindCoordinatorRequest {
            key: if several { "".into() } else { group.into() },
            key_type: KEY_TYPE_GROUP,
            coordinator_keys: if several { vec![group.into()] } else { Vec::new() },
        };
        let frame = connection.call(&request, CallLimits::default()).await?;
        let answer = frame.decode::<FindCoordinatorRequest<'_>>()?;
        let single = Coordinator {
            node_id: answer.node_id,
            host: answer.host.clone(),
            port: answer.port,
            error_code: answer.error_code,
            error_message: answer.error_message.clone(),
            ..Default::default()
        };
        let found = answer.coordinators.first().unwrap_or(&single);
        ClientError::check(found.error_code, found.error_message.as_deref())?;
        Ok(self.learn_coordinator(found))
    }

    /// The address of a node may have changed since the metadata was requested. A live connection to the node stays
    /// in use.
    fn learn_coordinator(&self, found: &Coordinator<'_>) -> NodeId {
        let id = NodeId(found.node_id);
        let mut known = lock(&self.known);
        let rack = known.nodes.get(&id.0).and_then(|node| node.rack.clone());
        known.nodes.insert(id.0, Node { id, host: found.host.to_string(), port: found.port, rack });
        id
    }

    /// Sends a request to one server and waits for the answer.
    pub(crate) async fn call(
        &self,
        node: NodeId,
        lane: Lane,
        request: &dyn AnyRequest,
    ) -> Result<ResponseFrame, ClientError> {
        self.connection(node, lane).await?.call(request, CallLimits::default()).await
    }

    /// Sends a request that the server may delay for up to `server_wait`.
    pub(crate) async fn call_patiently(
        &self,
        node: NodeId,
        lane: Lane,
        request: &dyn AnyRequest,
        server_wait: Duration,
    ) -> Result<ResponseFrame, ClientError> {
        let limits = CallLimits { server_wait, ..CallLimits::default() };
        self.connection(node, lane).await?.call(request, limits).await
    }

    /// Sends a request to the controller, or to any server where there is none.
    pub(crate) async fn call_controller(
        &self,
        request: &dyn AnyRequest,
    ) -> Result<ResponseFrame, ClientError> {
        let controller = lock(&self.known).controller;
        match controller {
            Some(node) => self.call(node, Lane::Data, request).await,
            None => self.call_any(request).await,
        }
    }

    /// Sends a request to any server.
    pub(crate) async fn call_any(&self, request: &dyn AnyRequest) -> Result<ResponseFrame, ClientError> {
        self.any_connection().await?.call(request, CallLimits::default()).await
    }

    /// The newest version of a request that both this client and some server support.
    pub(crate) async fn version_of_any(&self, api: ApiKey) -> Result<i16, ClientError> {
        self.any_connection().await?.version_of(api)
    }

    /// Returns the live connection whose server owes the fewest answers, because a server with many may be hanging. A
    /// suspect server is asked only after those of unknown state: a machine that is gone closes no connection.
    async fn any_connection(&self) -> Result<Arc<Connection>, ClientError> {
        let (mut suspect, well): (Vec<_>, Vec<_>) =
            self.shuffled_nodes().into_iter().partition(|node| self.is_suspect(*node));
        let live = well.iter().filter_map(|node| self.live_connection(*node, Lane::Data));
        if let Some(least) = live.min_by_key(|connection| connection.unanswered()) {
            return Ok(least);
        }
        let owed = |node: &NodeId| Some(self.live_connection(*node, Lane::Data)?.unanswered());
        suspect.sort_by_cached_key(|node| owed(node).unwrap_or(usize::MAX));
        match self.first_connected(well.into_iter().chain(suspect)).await {
            Some(connection) => Ok(connection),
            None => self.bootstrap_connection().await,
        }
    }

    /// The first of these servers that can be connected to. All are tried within the timeout of one connection, each
    /// as soon as those before have failed or used up their share: a few dead servers do not hide a live one.
    async fn first_connected(&self, nodes: impl Iterator<Item = NodeId>) -> Option<Arc<Connection>> {
        // A server in its reconnect pause is skipped: others may answer at once.
        let nodes: Vec<NodeId> = nodes.filter(|node| !self.is_paused(*node, Lane::Data)).collect();
        let share = self.options.connect_timeout / u32::try_from(nodes.len().max(1)).unwrap_or(u32::MAX);
        let (mut left, mut attempts) = (nodes.into_iter(), FuturesUnordered::new());
        loop {
            attempts.extend(left.next().map(|node| self.connection(node, Lane::Data)));
            tokio::select! {
                tried = attempts.next() => match tried {
                    Some(Ok(connection)) => return Some(connection),
                    Some(Err(_)) => {}
                    None => return None,
                },
                () = tokio::time::sleep(share), if !left.as_slice().is_empty() => {}
            }
        }
    }

    /// The servers in rotated order, so that not all clients ask the same one first.
    fn shuffled_nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = lock(&self.known).nodes.values().map(|node| node.id).collect();
        if !nodes.is_empty() {
            let first = getrandom::u32().unwrap_or_default() as usize % nodes.len();
            nodes.rotate_left(first);
        }
        nodes
    }

    /// True if the server may be gone, judged by its connections in all lanes.
    fn is_suspect(&self, node: NodeId) -> bool {
        Lane::ALL.into_iter().filter_map(|lane| self.known_slot(node, lane)).any(|slot| slot.is_suspect())
    }

    async fn bootstrap_connection(&self) -> Result<Arc<Connection>, ClientError> {
        let mut last = ClientError::Invalid("no bootstrap server is given".to_owned());
        for address in &self.options.bootstrap {
            match Connection::open(address, &self.connection_options()).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// True if the node is among the known servers.
    pub(crate) fn has_node(&self, node: NodeId) -> bool {
        lock(&self.known).nodes.contains_key(&node.0)
    }

    /// A live connection, without waiting for one.
    pub(crate) fn live_connection(&self, node: NodeId, lane: Lane) -> Option<Arc<Connection>> {
        self.known_slot(node, lane)?.live()
    }

    fn is_paused(&self, node: NodeId, lane: Lane) -> bool {
        self.known_slot(node, lane).is_some_and(|slot| slot.is_paused())
    }

    fn known_slot(&self, node: NodeId, lane: Lane) -> Option<Arc<Slot>> {
        lock(&self.slots).get(&(node, lane)).map(Arc::clone)
    }

    fn slot(&self, node: NodeId, lane: Lane) -> Arc<Slot> {
        let new = || Arc::new(Slot::new(Pauses::new(Backoff::of_reconnects(&self.options))));
        Arc::clone(lock(&self.slots).entry((node, lane)).or_insert_with(new))
    }

    /// The connection to a server. Makes one if there is none, after the reconnect pause.
    pub(crate) async fn connection(&self, node: NodeId, lane: Lane) -> Result<Arc<Connection>, ClientError> {
        if let Some(live) = self.live_connection(node, lane) {
            return Ok(live);
        }
        let address = lock(&self.known).nodes.get(&node.0).map(|node| format!("{}:{}", node.host, node.port));
        // The server may have left the cluster; then the metadata will soon name the new leader, too.
        let address = address.ok_or(ClientError::UnknownNode(node))?;
        let slot = self.slot(node, lane);
        // In a task of its own: the caller may not be polled for long, as a consumer's fetch between two polls, and
        // must not keep the slot locked meanwhile.
        let (to, options) = (address.clone(), self.connection_options());
        let connecting = tokio::spawn(async move { slot.connect(&to, &options).await });
        connecting.await.unwrap_or_else(|ended| {
            Err(ClientError::Disconnected { address, reason: format!("connecting has ended: {ended}") })
        })
    }

    fn connection_options(&self) -> ConnectionOptions {
        ConnectionOptions {
            client_id: self.options.client_id.clone(),
            connect_timeout: self.options.connect_timeout,
            request_timeout: self.options.request_timeout,
            in_flight_max: self.options.in_flight_max,
            traffic: Arc::clone(&self.traffic),
        }
    }
}

/// True if asking for the topic again a moment later may help.
pub(crate) fn may_change(asked: &Result<Arc<TopicInfo>, ClientError>, create: bool) -> bool {
    match asked {
        // Waiting for the last partition would keep the caller from the others while one is unusable.
        Ok(topic) => !topic.partitions.iter().any(is_final),
        // A topic that is being created answers "unknown" or "no leader" for a moment.
        Err(error) if error.code() == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) => create,
        Err(error) => error.kind() == ErrorKind::Retry,
    }
}

fn wanted_topic(name: &str) -> MetadataRequestTopic<'_> {
    MetadataRequestTopic { name: Some(name.into()), ..Default::default() }
}

/// True if a later answer is unlikely to say more about the partition.
fn is_final(partition: &PartitionInfo) -> bool {
    partition.leader.is_some() || !partition.unusable.is_empty()
}

fn topic_info(
    topic: &MetadataResponseTopic<'_>,
    name: &str,
    nodes: &BTreeMap<i32, Node>,
) -> Result<TopicInfo, ClientError> {
    let told = topic.partitions.iter().map(|partition| partition_info(partition, nodes)).collect();
    let partitions = by_place(told).map_err(|what| ClientError::Impossible {
        api: ApiKey::Metadata,
        what: format!("{name} has {what}"),
    })?;
    Ok(TopicInfo { name: name.to_owned(), id: topic.topic_id, internal: topic.is_internal, partitions })
}

/// Most missing partitions for each one in the answer, and at least this many.
const HOLES_MAX: usize = 10;
const HOLES_ALWAYS: usize = 10_000;

/// Sorts partitions by index, which becomes their position. A missing one has no leader: servers of a cluster with
/// `ZooKeeper` leave out partitions that never had one. Fails for impossible indexes.
fn by_place(told: Vec<PartitionInfo>) -> Result<Vec<PartitionInfo>, String> {
    let (count, least) = (told.len(), told.iter().map(|partition| partition.index).min());
    let mut by_index: BTreeMap<i32, PartitionInfo> = told.into_iter().map(|one| (one.index, one)).collect();
    let greatest = by_index.last_key_value().map_or(-1, |(index, _)| *index);
    if let Some(least) = least.filter(|least| *least < 0) {
        return Err(format!("a partition {least}"));
    }
    if by_index.len() < count {
        return Err("a partition twice".to_owned());
    }
    let most = count.saturating_mul(HOLES_MAX).max(HOLES_ALWAYS);
    if usize::try_from(greatest).is_ok_and(|index| index > most) {
        return Err(format!("a partition {greatest} beside {} others", count - 1));
    }
    Ok((0..=greatest)
        .map(|index| by_index.remove(&index).unwrap_or_else(|| PartitionInfo::untold(index)))
        .collect())
}

fn partition_info(partition: &MetadataResponsePartition, nodes: &BTreeMap<i32, Node>) -> PartitionInfo {
    // A replica that is offline because of its server may return with it.
    let is_there = |node: &&i32| nodes.contains_key(node);
    PartitionInfo {
        unusable: partition.offline_replicas.iter().filter(is_there).copied().map(NodeId).collect(),
        index: partition.partition_index,
        // A leader that is not among the servers cannot be asked.
        leader: nodes.contains_key(&partition.leader_id).then_some(NodeId(partition.leader_id)),
        leader_epoch: LeaderEpoch(partition.leader_epoch),
        replicas: partition.replica_nodes.iter().copied().map(NodeId).collect(),
        in_sync: partition.isr_nodes.iter().copied().map(NodeId).collect(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::slot::tests::greeting_server;

    /// Servers at these addresses, with ids from 1 on.
    fn cluster_of(addresses: &[String], options: ClusterOptions) -> Cluster {
        let node = |(id, address): (i32, &String)| {
            let (host, port) = address.rsplit_once(':').expect("host and port");
            let (host, port) = (host.to_owned(), port.parse().expect("a port"));
            (id, Node { id: NodeId(id), host, port, rack: None })
        };
        let nodes = (1..).zip(addresses).map(node).collect();
        let known = Mutex::new(Known { nodes, ..Known::default() });
        Cluster { options, known, slots: Mutex::default(), traffic: Arc::default() }
    }

    /// The suspect server may have been slow once; the others are machines that were switched off.
    #[tokio::test]
    async fn suspect_server_is_asked_before_all_dead_ones_timed_out() {
        let listening = || TcpListener::bind("127.0.0.1:0");
        let (one, other) = (listening().await.expect("a port"), listening().await.expect("a port"));
        let address = |gone: &TcpListener| gone.local_addr().expect("an address").to_string();
        let mut options = ClusterOptions::new("127.0.0.1:1");
        options.connect_timeout = Duration::from_millis(600);
        options.request_timeout = Duration::from_mins(10);
        let there = greeting_server().await;
        let cluster = cluster_of(&[address(&one), address(&other), there], options);
        // In another lane, because the wanted lane has no connection.
        let (slot, options) = (cluster.slot(NodeId(3), Lane::Fetch), cluster.connection_options());
        slot.connect("127.0.0.1:1", &options).await.expect_err("no listener there");
        assert!(cluster.is_suspect(NodeId(3)));
        let found = timeout(Duration::from_mins(1), cluster.any_connection()).await;
        let found = found.expect("in time").expect("one is there");
        assert!(Arc::ptr_eq(&found, &cluster.live_connection(NodeId(3), Lane::Data).expect("up")));
    }
}

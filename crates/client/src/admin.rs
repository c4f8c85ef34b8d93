//! The admin client: topics, configs, groups, offsets, and descriptions of the cluster.
//!
//! Each call asks the servers that have the answer, retries errors that may pass, and returns a result for every
//! item, so that one item's error does not hide the others. Results are plain structs.

mod cluster_info;
mod configs;
mod groups;
mod offsets;
mod producers;
mod topics;

use std::collections::HashSet;
use std::fmt::Display;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use riverrun_protocol::ApiKey;
use riverrun_types::NodeId;

pub use self::cluster_info::{ClusterDescription, DescribedNode, LogDir, LogDirReplica};
pub use self::configs::{
    ConfigChange, ConfigEntry, ConfigOperation, ConfigResource, ConfigSource, ConfigSynonym,
};
pub use self::groups::{GroupDescription, GroupListing, GroupMember};
pub use self::producers::ActiveProducer;
pub use self::topics::{CreatedTopic, NewTopic};
use crate::cluster::{Cluster, ClusterOptions, Lane};
use crate::connection::{AnyRequest, ResponseFrame, wire_ms};
use crate::error::ClientError;
use crate::retry::Retry;

/// Number for the next admin client without a configured name.
static ADMINS: AtomicU64 = AtomicU64::new(1);

/// Describes and changes a cluster. Shared by reference or `Arc`: all of its methods take `&self`.
///
/// ```no_run
/// use riverrun_client::{Admin, ClusterOptions, NewTopic};
///
/// # async fn example() -> Result<(), riverrun_client::ClientError> {
/// let admin = Admin::new(ClusterOptions::new("localhost:9092")).await?;
/// let topic = NewTopic { partitions: Some(6), ..NewTopic::named("clicks") };
/// for (name, result) in admin.create_topics(vec![topic], false).await {
///     println!("{name}: {} partitions", result?.partitions);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Admin {
    cluster: Arc<Cluster>,
}

/// A result for each item of a call, by its name.
pub type Results<K, T> = Vec<(K, Result<T, ClientError>)>;

/// Gives each item the error of the whole call.
fn all_failed<K, T>(items: impl IntoIterator<Item = K>, error: &ClientError) -> Results<K, T> {
    items.into_iter().map(|item| (item, Err(error.clone()))).collect()
}

/// A result for each requested item: the one in the answer, or an error if the answer leaves it out.
fn complete<K: Clone + Display + Eq + Hash, T>(
    api: ApiKey,
    asked: impl IntoIterator<Item = K>,
    answered: impl IntoIterator<Item = (K, Result<T, ClientError>)>,
) -> Results<K, T> {
    let mut results: Results<K, T> = answered.into_iter().collect();
    let named: HashSet<K> = results.iter().map(|(item, _)| item.clone()).collect();
    let left_out = asked.into_iter().filter(|item| !named.contains(item)).map(|item| {
        let missing = item.to_string();
        (item, Err(ClientError::Incomplete { api, missing }))
    });
    results.extend(left_out);
    results
}

impl Admin {
    /// Connects to the cluster. Fails if no server can be reached.
    pub fn new(mut options: ClusterOptions) -> BoxFuture<'static, Result<Self, ClientError>> {
        Box::pin(async move {
            options.check_own()?;
            options.name_client(|| format!("adminclient-{}", ADMINS.fetch_add(1, Ordering::Relaxed)));
            Ok(Self { cluster: Cluster::connect(options).await? })
        })
    }

    /// The cluster that it is connected to.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    fn retry(&self) -> Retry {
        Retry::new(self.cluster.options())
    }

    /// The time that a request grants the server for a change.
    fn server_timeout(&self) -> Duration {
        self.cluster.options().request_timeout
    }

    fn server_timeout_ms(&self) -> i32 {
        wire_ms(self.server_timeout())
    }

    /// Asks the controller, and retries while it cannot be reached. `check` finds an error of the whole answer.
    async fn ask_controller(
        &self,
        request: &dyn AnyRequest,
        check: &(dyn Fn(&ResponseFrame) -> Result<(), ClientError> + Sync),
    ) -> Result<ResponseFrame, ClientError> {
        let mut retry = self.retry();
        loop {
            let answer = self.cluster.call_controller(request).await;
            match answer.and_then(|frame| check(&frame).map(|()| frame)) {
                Ok(frame) => return Ok(frame),
                Err(error) => retry.pause_after(error).await?,
            }
            // The controller may have moved; if this fails, the next attempt reports why.
            let _ = self.cluster.refresh(Some(&[]), false).await;
        }
    }

    /// Asks any server, and retries while none can be reached.
    async fn ask_any(&self, request: &dyn AnyRequest) -> Result<ResponseFrame, ClientError> {
        let mut retry = self.retry();
        loop {
            match self.cluster.call_any(request).await {
                Ok(frame) => return Ok(frame),
                Err(error) => retry.pause_after(error).await?,
            }
        }
    }

    /// Asks one server, and retries while it cannot be reached. Fails at once for a server that the others do not
    /// know.
    async fn ask_node(&self, node: NodeId, request: &dyn AnyRequest) -> Result<ResponseFrame, ClientError> {
        let mut retry = self.retry();
        loop {
            match self.cluster.call(node, Lane::Data, request).await {
                Ok(frame) => return Ok(frame),
                Err(error @ ClientError::UnknownNode(_)) => self.look_for(node, error, &mut retry).await?,
                Err(error) => retry.pause_after(error).await?,
            }
        }
    }

    /// Refreshes the list of servers, because this one may have joined since, and fails with `unknown` if it is not
    /// in the list.
    async fn look_for(
        &self,
        node: NodeId,
        unknown: ClientError,
        retry: &mut Retry,
    ) -> Result<(), ClientError> {
        match self.cluster.refresh(Some(&[]), false).await {
            Ok(_) if self.cluster.has_node(node) => Ok(()),
            Ok(_) => Err(unknown),
            Err(error) => retry.pause_after(error).await,
        }
    }

    async fn known_nodes(&self) -> Result<Vec<NodeId>, ClientError> {
        self.cluster.refresh(Some(&[]), false).await?;
        Ok(self.cluster.nodes().into_iter().map(|node| node.id).collect())
    }
}

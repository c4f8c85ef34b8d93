//! Metadata (key 3), versions 0 to 13.
//!
//! Tells the cluster's id and nodes, and the partitions of all topics or of those that are named (from version 10 on also
//! by id, KIP-516). The one node leads every partition. Its address is that of the listener that the client came in on. A
//! partition whose files cannot be used has no leader. A topic that does not exist is made if both the server's
//! configuration and the request allow it; it is ready when the response is sent, so that no client has to ask again. Each
//! source may make so many at once; for topics beyond that, and beyond the number that one `CreateTopics` makes, clients ask
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use riverrun_protocol::metadata_request::MetadataRequestTopic;
use riverrun_protocol::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use riverrun_protocol::{ErrorCode, MetadataRequest, MetadataResponse};
use riverrun_types::{NodeId, TopicId};

use super::bounds::partitions_bytes;
use super::operations;
use super::standing::Standing;
use crate::aside::give_way;
use crate::broker::Broker;
use crate::changes;
use crate::context::{Operation, RequestContext, Resource};
use crate::error;
use crate::flow::source::Source;
use crate::log_limit::{AUTO_CREATIONS, Change};
use crate::metadata::{ClusterImage, Topic};
use crate::topic_names::{check_name, is_internal};

/// First version in which an empty list of topics means none and not all.
const EMPTY_IS_NONE_SINCE: i16 = 1;
/// First version in which a topic may have no name in the response.
const NAME_MAY_BE_NULL_SINCE: i16 = 12;

/// Memory of one partition in the answer.
const PARTITION_BYTES: usize = 300;

/// Memory of the answer, about.
pub(crate) fn answer_bytes(broker: &Broker, request: &MetadataRequest<'_>, version: i16) -> usize {
    let image = broker.catalog.cluster();
    let Some(list) = wanted(request, version) else { return partitions_bytes(broker, PARTITION_BYTES) };
    let find = |topic: &MetadataRequestTopic<'_>| match &topic.name {
        Some(name) if topic.topic_id.is_zero() => image.topic(name).map(Arc::clone),
        _ => image.topic_by_id(topic.topic_id).map(Arc::clone),
    };
    let count = |topic: Arc<Topic>| usize::try_from(topic.partition_count()).unwrap_or(0);
    let partitions: usize = distinct(list).into_iter().filter_map(find).map(count).sum();
    partitions * PARTITION_BYTES
}

/// The topics that are named; none: all.
fn wanted<'r, 'a>(request: &'r MetadataRequest<'a>, version: i16) -> Option<&'r [MetadataRequestTopic<'a>]> {
    request.topics.as_deref().filter(|list| version >= EMPTY_IS_NONE_SINCE || !list.is_empty())
}

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: MetadataRequest<'_>,
    version: i16,
) -> MetadataResponse<'static> {
    let wanted = wanted(&request, version);
    let refused = match wanted {
        Some(list) if request.allow_auto_topic_creation && broker.config.server.auto_create_topics_enable => {
            create_missing(broker, context, list).await
        }
        _ => BTreeMap::new(),
    };
    let image = broker.catalog.cluster();
    let view = View {
        image: &image,
        context,
        broker,
        refused: &refused,
        tells_operations: request.include_topic_authorized_operations,
        version,
    };
    let mut topics = Vec::new();
    match wanted {
        None => {
            for topic in image.topics_sorted() {
                topics.extend(view.may_describe(&topic.name).then(|| view.describe(topic)));
                give_way().await;
            }
        }
        Some(list) => {
            for topic in distinct(list) {
                topics.push(view.wanted(topic));
                give_way().await;
            }
        }
    }
    let cluster_authorized_operations = if request.include_cluster_authorized_operations {
        operations::on_cluster(context)
    } else {
        operations::NOT_ASKED
    };
    let (host, port) = broker.endpoint(context);
    let NodeId(node_id) = broker.node_id();
    let rack = broker.config.server.broker_rack.clone().map(Into::into);
    MetadataResponse {
        brokers: vec![MetadataResponseBroker { node_id, host: host.into(), port, rack }],
        cluster_id: Some(image.id().to_string().into()),
        controller_id: node_id,
        topics,
        cluster_authorized_operations,
        ..Default::default()
    }
}

/// Makes missing topics that are named, as many as the source may make; answers the codes of the others.
async fn create_missing(
    broker: &Arc<Broker>,
    context: &RequestContext,
    wanted: &[MetadataRequestTopic<'_>],
) -> BTreeMap<String, ErrorCode> {
    let image = broker.catalog.cluster();
    let is_missing = |name: &&str| {
        image.topic(name).is_none() && context.authorize(Operation::Create, Resource::Topic(name))
    };
    let names =
        wanted.iter().filter(|topic| topic.topic_id.is_zero()).filter_map(|topic| topic.name.as_deref());
    let missing: BTreeSet<String> = names.filter(is_missing).map(str::to_owned).collect();
    if missing.is_empty() {
        return BTreeMap::new();
    }
    let peer = context.connection.peer;
    let source = Source::of(peer.ip());
    let granted = broker.catalog.grant_creations(source, missing.len());
    let mut names: Vec<String> = missing.into_iter().collect();
    let later = names.split_off(granted);
    if !later.is_empty() {
        AUTO_CREATIONS.warn_of(peer.ip(), |suppressed| {
            let count = later.len();
            tracing::warn!(%peer, count, suppressed, "topics that were named are not made yet: too many in a short time");
        });
    }
    let mut refused = make(broker, context, names).await;
    refused.extend(later.into_iter().map(|name| (name, ErrorCode::LEADER_NOT_AVAILABLE)));
    refused
}

/// Makes topics that are missing; answers the codes of those that could not be made.
async fn make(
    broker: &Arc<Broker>,
    context: &RequestContext,
    names: Vec<String>,
) -> BTreeMap<String, ErrorCode> {
    if names.is_empty() {
        return BTreeMap::new();
    }
    let of_change = context.clone();
    let tell = move |made: &[String]| {
        changes::tell(&of_change, Change::TopicsCreated, made.iter().map(String::as_str));
    };
    match broker.catalog.create_missing_topics(context.source(), names.clone(), tell).await {
        Ok(refused) => {
            refused.iter().map(|(name, reason)| (name.clone(), error::topic_error(reason))).collect()
        }
        Err(failed) => {
            let code = error::metadata_error(&failed);
            names.into_iter().map(|name| (name, code)).collect()
        }
    }
}

/// A client that names a topic twice is answered once, as by Kafka.
fn distinct<'r, 'a>(wanted: &'r [MetadataRequestTopic<'a>]) -> Vec<&'r MetadataRequestTopic<'a>> {
    let mut seen = BTreeSet::new();
    wanted.iter().filter(|topic| seen.insert((topic.topic_id, topic.name.as_deref()))).collect()
}

/// Parts from which the topics of one response are made.
struct View<'a> {
    image: &'a ClusterImage,
    context: &'a RequestContext,
    broker: &'a Broker,
    /// Topics that could not be made just now, and why.
    refused: &'a BTreeMap<String, ErrorCode>,
    tells_operations: bool,
    version: i16,
}

impl View<'_> {
    fn may_describe(&self, name: &str) -> bool {
        self.context.authorize(Operation::Describe, Resource::Topic(name))
    }

    fn wanted(&self, wanted: &MetadataRequestTopic<'_>) -> MetadataResponseTopic<'static> {
        if wanted.topic_id.is_zero() {
            return self.named(wanted.name.as_deref().unwrap_or_default());
        }
        match self.image.topic_by_id(wanted.topic_id) {
            Some(topic) if self.may_describe(&topic.name) => self.describe(topic),
            _ => self.failed(None, wanted.topic_id, ErrorCode::UNKNOWN_TOPIC_ID),
        }
    }

    fn named(&self, name: &str) -> MetadataResponseTopic<'static> {
        if !self.may_describe(name) {
            return self.failed(Some(name), TopicId::ZERO, ErrorCode::TOPIC_AUTHORIZATION_FAILED);
        }
        if let Some(topic) = self.image.topic(name) {
            return self.describe(topic);
        }
        let code = match self.refused.get(name) {
            Some(code) => *code,
            None if check_name(name).is_err() => ErrorCode::INVALID_TOPIC_EXCEPTION,
            None => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        };
        self.failed(Some(name), TopicId::ZERO, code)
    }

    fn failed(
        &self,
        name: Option<&str>,
        topic_id: TopicId,
        code: ErrorCode,
    ) -> MetadataResponseTopic<'static> {
        let name = match name {
            None if self.version >= NAME_MAY_BE_NULL_SINCE => None,
            name => Some(name.unwrap_or_default().to_owned().into()),
        };
        MetadataResponseTopic {
            error_code: code.0,
            name,
            topic_id,
            topic_authorized_operations: operations::NOT_ASKED,
            ..Default::default()
        }
    }

    fn describe(&self, topic: &Topic) -> MetadataResponseTopic<'static> {
        let partition = |partition_index| {
            let standing = Standing::of(self.broker, topic, partition_index);
            MetadataResponsePartition {
                error_code: standing.error_code,
                partition_index,
                leader_id: standing.leader_id,
                leader_epoch: self.broker.leader_epoch(topic, partition_index).0,
                isr_nodes: standing.replica_nodes.clone(),
                replica_nodes: standing.replica_nodes,
                offline_replicas: standing.offline_replicas,
            }
        };
        MetadataResponseTopic {
            error_code: ErrorCode::NONE.0,
            name: Some(topic.name.to_string().into()),
            topic_id: topic.id,
            is_internal: is_internal(&topic.name),
            partitions: (0..topic.partition_count()).map(partition).collect(),
            topic_authorized_operations: if self.tells_operations {
                operations::on_topic(self.context, &topic.name)
            } else {
                operations::NOT_ASKED
            },
        }
    }
}

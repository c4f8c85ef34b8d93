//! The topics of a run: made before it, and gone after it.

use std::time::Duration;

use riverrun_client::{Admin, ClientError, ClusterOptions, ErrorCode, NewTopic};

use super::error::RunError;
use crate::environment::TopicDurability;
use crate::plan::{Durability, Plan};

/// Topics of one request.
const TOPICS_PER_REQUEST: usize = 500;
/// Making and deleting many partitions takes its time.
const CHANGE_TIMEOUT: Duration = Duration::from_mins(2);
/// Our own server's config for what acked records survive.
const DURABILITY: &str = "durability";

/// The topics of one run on one server.
#[derive(Debug)]
pub(super) struct Topics {
    admin: Admin,
    names: Vec<String>,
}

impl Topics {
    /// Makes the topics of a plan. Those that are there already are taken as they are, and stay. Refuses more replicas
    /// than there are servers.
    pub(super) async fn create(bootstrap: &str, plan: &Plan) -> Result<Self, RunError> {
        let options = ClusterOptions { request_timeout: CHANGE_TIMEOUT, ..ClusterOptions::new(bootstrap) };
        let admin = Admin::new(options).await?;
        let (wanted, servers) = (plan.replication(), admin.cluster().nodes().len());
        if !plan.topics.is_empty() && usize::try_from(wanted).is_ok_and(|wanted| wanted > servers) {
            return Err(RunError::Replication { wanted, servers });
        }
        let durability = match plan.durability {
            Some(durability) => configs(durability, knows_durability(&admin).await?),
            None => Vec::new(),
        };
        let new_topic = |topic: &crate::plan::TopicPlan| {
            let mut new = NewTopic {
                partitions: Some(topic.partitions.cast_signed()),
                replication: Some(topic.replication),
                ..NewTopic::named(&topic.name)
            };
            let own = topic.configs.iter().chain(durability.iter().copied());
            new.configs.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
            new
        };
        let mut topics = Self { admin, names: Vec::new() };
        for chunk in plan.topics.chunks(TOPICS_PER_REQUEST) {
            if let Err(error) = topics.create_some(chunk.iter().map(new_topic).collect()).await {
                topics.delete().await;
                return Err(error);
            }
        }
        Ok(topics)
    }

    async fn create_some(&mut self, topics: Vec<NewTopic>) -> Result<(), RunError> {
        let mut first = None;
        for (name, result) in self.admin.create_topics(topics, false).await {
            match result {
                Ok(_) => self.names.push(name),
                Err(ClientError::Server { code: ErrorCode::TOPIC_ALREADY_EXISTS, .. }) => {}
                Err(error) => drop(first.get_or_insert((name, error))),
            }
        }
        match first {
            Some((topic, error)) => Err(RunError::Topic { topic, error }),
            None => Ok(()),
        }
    }

    /// How durable acked records of the first topic are.
    pub(super) async fn durability(&self, plan: &Plan) -> Result<Option<TopicDurability>, RunError> {
        match plan.topics.first() {
            Some(topic) => Ok(Some(TopicDurability::of(&self.admin, &topic.name).await?)),
            None => Ok(None),
        }
    }

    /// Deletes what was made. What cannot be deleted is logged: the figures are right all the same.
    pub(super) async fn delete(self) {
        for chunk in self.names.chunks(TOPICS_PER_REQUEST) {
            for (topic, result) in self.admin.delete_topics(chunk).await {
                if let Err(error) = result {
                    tracing::warn!(%error, topic, "a topic of the run stays behind");
                }
            }
        }
    }
}

/// Whether the server has our config. Asked for a topic that is not made.
async fn knows_durability(admin: &Admin) -> Result<bool, ClientError> {
    let mut topic = NewTopic { partitions: Some(1), ..NewTopic::named("riverrun-bench-durability") };
    topic.configs.insert(DURABILITY.to_owned(), "4".to_owned());
    match admin.create_topics(vec![topic], true).await.pop() {
        Some((_, Err(ClientError::Server { code: ErrorCode::INVALID_CONFIG, .. }))) | None => Ok(false),
        Some((_, Err(error))) => Err(error),
        Some((_, Ok(_))) => Ok(true),
    }
}

/// What asks for it: our server has levels, Kafka a count of records after which it syncs.
fn configs(durability: Durability, knows_levels: bool) -> Vec<(&'static str, &'static str)> {
    match (durability, knows_levels) {
        (Durability::Sync, true) => vec![(DURABILITY, "1")],
        (Durability::Async, true) => vec![(DURABILITY, "4")],
        (Durability::Sync, false) => vec![("flush.messages", "1"), ("flush.ms", "0")],
        (Durability::Async, false) => Vec::new(),
    }
}

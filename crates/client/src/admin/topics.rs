//! Topics: create, delete, list, describe, add partitions.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use riverrun_protocol::create_partitions_request::CreatePartitionsTopic;
use riverrun_protocol::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use riverrun_protocol::delete_topics_request::DeleteTopicState;
use riverrun_protocol::{
    ApiKey, CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, ErrorCode,
};
use riverrun_types::TopicId;

use super::{Admin, Results, all_failed, complete};
use crate::cluster::TopicInfo;
use crate::connection::ResponseFrame;
use crate::error::ClientError;

/// A topic to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// Number of partitions; `None` for the server's default.
    pub partitions: Option<i32>,
    /// Number of replicas of each partition; `None` for the server's default.
    pub replication: Option<i16>,
    /// Its own configuration, by Kafka's names.
    pub configs: BTreeMap<String, String>,
}

impl NewTopic {
    /// A topic with the server's defaults.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// A topic that was created, or would have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedTopic {
    /// Its id; zero if the server does not report it.
    pub id: TopicId,
    /// Number of its partitions; -1 if the server does not report it.
    pub partitions: i32,
    /// Number of replicas; -1 if the server does not report it.
    pub replication: i16,
}

impl Admin {
    /// Creates topics. With `validate_only` the server only checks whether it would.
    pub fn create_topics(
        &self,
        topics: Vec<NewTopic>,
        validate_only: bool,
    ) -> BoxFuture<'_, Results<String, CreatedTopic>> {
        Box::pin(async move {
            match self.ask_create_topics(&topics, validate_only).await {
                Ok(results) => results,
                Err(error) => all_failed(topics.into_iter().map(|topic| topic.name), &error),
            }
        })
    }

    async fn ask_create_topics(
        &self,
        topics: &[NewTopic],
        validate_only: bool,
    ) -> Result<Results<String, CreatedTopic>, ClientError> {
        let request = CreateTopicsRequest {
            topics: topics.iter().map(creatable).collect(),
            timeout_ms: self.server_timeout_ms(),
            validate_only,
        };
        let no_controller = |frame: &ResponseFrame| {
            let answer = frame.decode::<CreateTopicsRequest<'_>>()?;
            check_controller(answer.topics.iter().map(|topic| topic.error_code))
        };
        let frame = self.ask_controller(&request, &no_controller).await?;
        let answer = frame.decode::<CreateTopicsRequest<'_>>()?;
        let created = answer.topics.iter().map(|topic| {
            let result = ClientError::check(topic.error_code, topic.error_message.as_deref());
            let created = CreatedTopic {
                id: topic.topic_id,
                partitions: topic.num_partitions,
                replication: topic.replication_factor,
            };
            (topic.name.to_string(), result.map(|()| created))
        });
        Ok(complete(ApiKey::CreateTopics, topics.iter().map(|topic| topic.name.clone()), created))
    }

    /// Deletes topics with all of their records.
    pub fn delete_topics<'a>(&'a self, names: &'a [String]) -> BoxFuture<'a, Results<String, ()>> {
        Box::pin(async move {
            match self.ask_delete_topics(names).await {
                Ok(results) => results,
                Err(error) => all_failed(names.iter().cloned(), &error),
            }
        })
    }

    async fn ask_delete_topics(&self, names: &[String]) -> Result<Results<String, ()>, ClientError> {
        let by_state =
            |name: &'_ String| DeleteTopicState { name: Some(name.clone().into()), ..Default::default() };
        let version = self.cluster.version_of_any(ApiKey::DeleteTopics).await?;
        let mut request =
            DeleteTopicsRequest { timeout_ms: self.server_timeout_ms(), ..DeleteTopicsRequest::default() };
        if version >= DELETE_STATES_SINCE {
            request.topics = names.iter().map(by_state).collect();
        } else {
            request.topic_names = names.iter().map(|name| name.as_str().into()).collect();
        }
        let no_controller = |frame: &ResponseFrame| {
            let answer = frame.decode::<DeleteTopicsRequest<'_>>()?;
            check_controller(answer.responses.iter().map(|topic| topic.error_code))
        };
        let frame = self.ask_controller(&request, &no_controller).await?;
        let answer = frame.decode::<DeleteTopicsRequest<'_>>()?;
        let deleted = answer.responses.iter().map(|topic| {
            let name = topic.name.as_deref().unwrap_or_default().to_owned();
            self.cluster.forget_topic(&name);
            (name, ClientError::check(topic.error_code, topic.error_message.as_deref()))
        });
        Ok(complete(ApiKey::DeleteTopics, names.iter().cloned(), deleted))
    }

    /// All topics, the server's own included, sorted by name.
    pub fn list_topics(&self) -> BoxFuture<'_, Result<Vec<TopicInfo>, ClientError>> {
        Box::pin(async move {
            let mut retry = self.retry();
            let answer = loop {
                match self.cluster.refresh(None, false).await {
                    Ok(answer) => break answer,
                    Err(error) => retry.pause_after(error).await?,
                }
            };
            let mut topics: Vec<TopicInfo> =
                answer.into_iter().flatten().map(|topic| (*topic).clone()).collect();
            topics.sort_by(|one, other| one.name.cmp(&other.name));
            Ok(topics)
        })
    }

    /// Describes these topics, in their order.
    pub fn describe_topics<'a>(&'a self, names: &'a [String]) -> BoxFuture<'a, Results<String, TopicInfo>> {
        Box::pin(async move {
            match self.ask_describe_topics(names).await {
                Ok(results) => results,
                Err(error) => all_failed(names.iter().cloned(), &error),
            }
        })
    }

    async fn ask_describe_topics(&self, names: &[String]) -> Result<Results<String, TopicInfo>, ClientError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let wanted: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut retry = self.retry();
        let answer = loop {
            match self.cluster.refresh(Some(&wanted), false).await {
                Ok(answer) => break answer,
                Err(error) => retry.pause_after(error).await?,
            }
        };
        let mut found: BTreeMap<String, Result<TopicInfo, ClientError>> = answer
            .into_iter()
            .map(|topic| match topic {
                Ok(topic) => (topic.name.clone(), Ok((*topic).clone())),
                Err((name, error)) => (name, Err(error)),
            })
            .collect();
        let unknown =
            || Err(ClientError::Server { code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, message: None });
        let describe = |name: &String| (name.clone(), found.remove(name).unwrap_or_else(unknown));
        Ok(names.iter().map(describe).collect())
    }

    /// Raises the number of partitions of each topic to a new total. Keys may then map to other partitions.
    pub fn create_partitions<'a>(
        &'a self,
        totals: &'a BTreeMap<String, i32>,
        validate_only: bool,
    ) -> BoxFuture<'a, Results<String, ()>> {
        Box::pin(async move {
            match self.ask_create_partitions(totals, validate_only).await {
                Ok(results) => results,
                Err(error) => all_failed(totals.keys().cloned(), &error),
            }
        })
    }

    async fn ask_create_partitions(
        &self,
        totals: &BTreeMap<String, i32>,
        validate_only: bool,
    ) -> Result<Results<String, ()>, ClientError> {
        let topics = totals.iter().map(|(name, count)| CreatePartitionsTopic {
            name: name.as_str().into(),
            count: *count,
            assignments: None,
        });
        let request = CreatePartitionsRequest {
            topics: topics.collect(),
            timeout_ms: self.server_timeout_ms(),
            validate_only,
        };
        let no_controller = |frame: &ResponseFrame| {
            let answer = frame.decode::<CreatePartitionsRequest<'_>>()?;
            check_controller(answer.results.iter().map(|topic| topic.error_code))
        };
        let frame = self.ask_controller(&request, &no_controller).await?;
        let answer = frame.decode::<CreatePartitionsRequest<'_>>()?;
        let changed = answer.results.iter().map(|topic| {
            self.cluster.forget_topic(&topic.name);
            (topic.name.to_string(), ClientError::check(topic.error_code, topic.error_message.as_deref()))
        });
        Ok(complete(ApiKey::CreatePartitions, totals.keys().cloned(), changed))
    }
}

/// First version of `DeleteTopics` with a struct for each topic.
const DELETE_STATES_SINCE: i16 = 6;

fn creatable(topic: &NewTopic) -> CreatableTopic<'_> {
    CreatableTopic {
        name: topic.name.as_str().into(),
        num_partitions: topic.partitions.unwrap_or(-1),
        replication_factor: topic.replication.unwrap_or(-1),
        assignments: Vec::new(),
        configs: topic
            .configs
            .iter()
            .map(|(name, value)| CreatableTopicConfig {
                name: name.as_str().into(),
                value: Some(value.as_str().into()),
            })
            .collect(),
    }
}

/// Finds the error of a server that is not the controller: it did nothing, and repeats that error for every item.
pub(super) fn check_controller(mut codes: impl Iterator<Item = i16>) -> Result<(), ClientError> {
    match codes.find(|code| *code == ErrorCode::NOT_CONTROLLER.0) {
        Some(code) => ClientError::check(code, None),
        None => Ok(()),
    }
}

//! Configuration of topics and servers.

use std::collections::BTreeMap;
use std::fmt;

use futures_util::future::BoxFuture;
use riverrun_protocol::describe_configs_request::DescribeConfigsResource;
use riverrun_protocol::describe_configs_response::DescribeConfigsResourceResult;
use riverrun_protocol::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use riverrun_protocol::{ApiKey, DescribeConfigsRequest, IncrementalAlterConfigsRequest};
use riverrun_types::NodeId;

use super::{Admin, Results};
use crate::error::ClientError;

const TYPE_TOPIC: i8 = 2;
const TYPE_BROKER: i8 = 4;
const TYPE_GROUP: i8 = 32;

/// The resource that a configuration belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigResource {
    /// A topic's.
    Topic(String),
    /// A server's.
    Broker(NodeId),
    /// The default of all brokers.
    AllBrokers,
    /// A group's.
    Group(String),
}

impl ConfigResource {
    fn wire(&self) -> (i8, String) {
        match self {
            Self::Topic(name) => (TYPE_TOPIC, name.clone()),
            Self::Broker(node) => (TYPE_BROKER, node.0.to_string()),
            Self::AllBrokers => (TYPE_BROKER, String::new()),
            Self::Group(name) => (TYPE_GROUP, name.clone()),
        }
    }

    /// The server to ask: only the broker itself knows its own configuration.
    fn node(&self) -> Option<NodeId> {
        match self {
            Self::Broker(node) => Some(*node),
            Self::Topic(_) | Self::AllBrokers | Self::Group(_) => None,
        }
    }
}

impl fmt::Display for ConfigResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(name) => write!(f, "topic {name}"),
            Self::Broker(node) => write!(f, "broker {}", node.0),
            Self::AllBrokers => f.write_str("all brokers"),
            Self::Group(name) => write!(f, "group {name}"),
        }
    }
}

/// Source of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// The topic's own.
    Topic,
    /// Set on one broker at run time.
    DynamicBroker,
    /// Set on all brokers at run time.
    DynamicDefaultBroker,
    /// The server's file, flags or environment.
    StaticBroker,
    /// The built-in default.
    Default,
    /// The group's own.
    Group,
    /// Another, by its number on the wire.
    Other(i8),
}

impl ConfigSource {
    fn from_wire(source: i8) -> Self {
        match source {
            1 => Self::Topic,
            2 => Self::DynamicBroker,
            3 => Self::DynamicDefaultBroker,
            4 => Self::StaticBroker,
            5 => Self::Default,
            8 => Self::Group,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic => f.write_str("topic"),
            Self::DynamicBroker => f.write_str("dynamic broker"),
            Self::DynamicDefaultBroker => f.write_str("dynamic default broker"),
            Self::StaticBroker => f.write_str("static broker"),
            Self::Default => f.write_str("default"),
            Self::Group => f.write_str("group"),
            Self::Other(number) => write!(f, "source {number}"),
        }
    }
}

/// Another place that defines the option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSynonym {
    /// The option's name there.
    pub name: String,
    /// Its value there.
    pub value: Option<String>,
    /// The place.
    pub source: ConfigSource,
}

/// One option of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// Its name.
    pub name: String,
    /// Its value; `None` if it is unset or sensitive.
    pub value: Option<String>,
    /// Source of the value.
    pub source: ConfigSource,
    /// True if no place has set it.
    pub is_default: bool,
    /// True if it cannot be altered.
    pub read_only: bool,
    /// True if its value is hidden.
    pub sensitive: bool,
    /// Its documentation, if the server sends it.
    pub doc: Option<String>,
    /// All places that define it, the one in effect first.
    pub synonyms: Vec<ConfigSynonym>,
}

/// The change of one option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigOperation {
    /// Set it to this.
    Set(String),
    /// Return to the default.
    Delete,
    /// Append this to the list.
    Append(String),
    /// Remove this from the list.
    Subtract(String),
}

/// A change of one option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// The option.
    pub name: String,
    /// The operation.
    pub operation: ConfigOperation,
}

impl ConfigChange {
    /// Sets an option.
    pub fn set(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), operation: ConfigOperation::Set(value.into()) }
    }

    fn wire(&self) -> AlterableConfig<'_> {
        let (config_operation, value) = match &self.operation {
            ConfigOperation::Set(value) => (0, Some(value)),
            ConfigOperation::Delete => (1, None),
            ConfigOperation::Append(value) => (2, Some(value)),
            ConfigOperation::Subtract(value) => (3, Some(value)),
        };
        AlterableConfig {
            name: self.name.as_str().into(),
            config_operation,
            value: value.map(|value| value.as_str().into()),
        }
    }
}

impl Admin {
    /// All options of a resource, sorted by name.
    pub fn describe_configs<'a>(
        &'a self,
        resource: &'a ConfigResource,
    ) -> BoxFuture<'a, Result<Vec<ConfigEntry>, ClientError>> {
        Box::pin(self.describe_some_configs(resource, None))
    }

    /// The options of a resource that have one of these names, sorted by name. Names that the server does not know
    /// are left out.
    pub fn describe_configs_named<'a>(
        &'a self,
        resource: &'a ConfigResource,
        names: &'a [&'a str],
    ) -> BoxFuture<'a, Result<Vec<ConfigEntry>, ClientError>> {
        Box::pin(self.describe_some_configs(resource, Some(names)))
    }

    async fn describe_some_configs(
        &self,
        resource: &ConfigResource,
        names: Option<&[&str]>,
    ) -> Result<Vec<ConfigEntry>, ClientError> {
        let (resource_type, name) = resource.wire();
        let wanted = DescribeConfigsResource {
            resource_type,
            resource_name: name.as_str().into(),
            configuration_keys: names.map(|names| names.iter().map(|name| (*name).into()).collect()),
        };
        let request = DescribeConfigsRequest {
            resources: vec![wanted],
            include_synonyms: true,
            include_documentation: self.cluster.version_of_any(ApiKey::DescribeConfigs).await? >= DOCS_SINCE,
        };
        let frame = match resource.node() {
            Some(node) => self.ask_node(node, &request).await?,
            None => self.ask_any(&request).await?,
        };
        let answer = frame.decode::<DescribeConfigsRequest<'_>>()?;
        let result = answer.results.first().ok_or_else(|| ClientError::Incomplete {
            api: ApiKey::DescribeConfigs,
            missing: resource.to_string(),
        })?;
        ClientError::check(result.error_code, result.error_message.as_deref())?;
        let mut entries: Vec<ConfigEntry> = result.configs.iter().map(entry).collect();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    /// Changes options, and leaves the others as they are. With `validate_only` the server only checks whether it
    /// would. All changes of one resource are made together or none is.
    pub fn alter_configs<'a>(
        &'a self,
        changes: &'a BTreeMap<ConfigResource, Vec<ConfigChange>>,
        validate_only: bool,
    ) -> BoxFuture<'a, Results<ConfigResource, ()>> {
        Box::pin(async move {
            let mut results = Vec::with_capacity(changes.len());
            for (resource, changes) in changes {
                results.push((resource.clone(), self.alter_resource(resource, changes, validate_only).await));
            }
            results
        })
    }

    async fn alter_resource(
        &self,
        resource: &ConfigResource,
        changes: &[ConfigChange],
        validate_only: bool,
    ) -> Result<(), ClientError> {
        let (resource_type, name) = resource.wire();
        let request = IncrementalAlterConfigsRequest {
            resources: vec![AlterConfigsResource {
                resource_type,
                resource_name: name.into(),
                configs: changes.iter().map(ConfigChange::wire).collect(),
            }],
            validate_only,
        };
        let frame = match resource.node() {
            Some(node) => self.ask_node(node, &request).await?,
            None => self.ask_any(&request).await?,
        };
        let answer = frame.decode::<IncrementalAlterConfigsRequest<'_>>()?;
        let result = answer.responses.first().ok_or_else(|| ClientError::Incomplete {
            api: ApiKey::IncrementalAlterConfigs,
            missing: resource.to_string(),
        })?;
        ClientError::check(result.error_code, result.error_message.as_deref())
    }
}

/// First version of `DescribeConfigs` with documentation.
const DOCS_SINCE: i16 = 3;

fn entry(config: &DescribeConfigsResourceResult<'_>) -> ConfigEntry {
    let source = ConfigSource::from_wire(config.config_source);
    ConfigEntry {
        name: config.name.to_string(),
        value: config.value.as_ref().map(ToString::to_string),
        source,
        is_default: source == ConfigSource::Default,
        read_only: config.read_only,
        sensitive: config.is_sensitive,
        doc: config.documentation.as_ref().map(ToString::to_string),
        synonyms: config
            .synonyms
            .iter()
            .map(|synonym| ConfigSynonym {
                name: synonym.name.to_string(),
                value: synonym.value.as_ref().map(ToString::to_string),
                source: ConfigSource::from_wire(synonym.source),
            })
            .collect(),
    }
}

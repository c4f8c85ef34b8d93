//! Configuration: every option of the server and of topics, defined once.
//!
//! Owns the tables, and what is made from them: the parser of file, environment and flags ([`load`]), the typed
//! [`BrokerConfig`] and [`TopicOptions`], the answers of `DescribeConfigs` ([`describe`]) and the reference page
//! ([`docs`]). An unknown name, a value out of range, and a value that this server cannot honour are errors that
//! name option, value and what is allowed; nothing is taken and ignored.

mod alter;
mod broker;
mod definition;
pub mod describe;
pub mod docs;
mod durability;
mod error;
mod groups;
mod host_name;
mod kubernetes;
mod listener;
pub mod load;
mod log_config;
mod mount;
mod network;
mod own_group;
mod per_ip;
mod refused;
mod server;
mod topic;
mod upkeep;

pub use alter::{ConfigChange, alter_topic_configs};
pub(crate) use alter::{is_dynamic, list_items};
pub(crate) use broker::check_altered_configs;
pub use broker::{BrokerConfig, Settings, check_topic_configs, definition as broker_definition};
pub use definition::{Accept, Kind, OptionDef};
pub use durability::DurabilityOptions;
pub use error::{ConfigError, Origin};
pub use groups::GroupOptions;
pub use host_name::HostName;
pub use listener::Listener;
pub use mount::Mount;
pub use network::NetworkOptions;
pub use own_group::OwnGroupOptions;
pub(crate) use own_group::{GroupOverrides, alter_group_configs, check_group_configs, own_config};
pub use per_ip::ConnectionsOfIp;
pub(crate) use server::CORDONED_LOG_DIRS;
pub use server::{LogFormat, ServerOptions};
pub use topic::{TopicOptions, TopicOverrides, definition as topic_definition};
pub use upkeep::UpkeepOptions;

//! The owner of a configuration: a topic, a consumer group, or a server.

use clap::Args;
use riverrun_client::ConfigResource;
use riverrun_types::NodeId;

/// `--topic NAME`, `--group NAME` or `--broker ID`, one of them.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub(super) struct Target {
    /// The configuration of this topic
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    /// The configuration of this consumer group (KIP-848), which need not exist yet
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// The configuration of the server with this node id
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(i32).range(0..))]
    broker: Option<i32>,
}

impl Target {
    pub(super) fn resource(&self) -> ConfigResource {
        match (&self.topic, &self.group, self.broker) {
            (Some(name), ..) => ConfigResource::Topic(name.clone()),
            (None, Some(name), _) => ConfigResource::Group(name.clone()),
            (None, None, Some(id)) => ConfigResource::Broker(NodeId(id)),
            (None, None, None) => unreachable!("the command line requires one of the three"),
        }
    }
}

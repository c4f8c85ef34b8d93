//! The metadata image as the coordinator's view of what groups set for themselves.

use std::sync::Weak;

use riverrun_coordinator::{OwnConfig, OwnConfigs};

use crate::broker::Broker;
use crate::config::own_config;

/// The group configs that hold at the moment at which a shard asks.
#[derive(Debug)]
pub(super) struct ImageConfigs(pub(super) Weak<Broker>);

impl OwnConfigs for ImageConfigs {
    fn of(&self, group_id: &str) -> OwnConfig {
        let Some(broker) = self.0.upgrade() else { return OwnConfig::default() };
        let image = broker.metadata.image();
        image.group_configs(group_id).map_or_else(OwnConfig::default, own_config)
    }
}

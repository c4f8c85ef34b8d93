//! The metadata image as the coordinator's view of the groups' own configs.

use std::sync::Arc;

use riverrun_coordinator::{OwnConfig, OwnConfigs};

use crate::config::own_config;
use crate::metadata::Store;

/// The group configs that hold at the moment at which a shard asks.
#[derive(Debug)]
pub(super) struct ImageConfigs(pub(super) Arc<Store>);

impl OwnConfigs for ImageConfigs {
    fn of(&self, group_id: &str) -> OwnConfig {
        self.0.cluster().group_configs(group_id).map_or_else(OwnConfig::default, own_config)
    }
}

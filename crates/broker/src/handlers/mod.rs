//! The requests, one file each: key, versions, behaviour, the KIPs behind it, and what is left out.
//!
//! A handler authorizes, asks the parts, and answers in Kafka's words. Four handlers take the frame itself: Produce patches
//! it in place; Fetch, `JoinGroup` and `SyncGroup` may wait for long, and give its memory back before they answer.

pub(crate) mod alter_configs;
pub(crate) mod api_versions;
pub(crate) mod bounds;
mod config_change;
mod config_resource;
pub(crate) mod consumer_group_describe;
pub(crate) mod consumer_group_heartbeat;
pub(crate) mod create_acls;
pub(crate) mod create_partitions;
pub(crate) mod create_topics;
pub(crate) mod delete_acls;
pub(crate) mod delete_groups;
pub(crate) mod delete_records;
pub(crate) mod delete_topics;
pub(crate) mod describe_acls;
pub(crate) mod describe_cluster;
pub(crate) mod describe_configs;
pub(crate) mod describe_groups;
pub(crate) mod describe_log_dirs;
pub(crate) mod describe_producers;
pub(crate) mod describe_topic_partitions;
pub(crate) mod elect_leaders;
pub(crate) mod fetch;
pub(crate) mod find_coordinator;
pub(crate) mod get_telemetry_subscriptions;
pub(crate) mod heartbeat;
pub(crate) mod incremental_alter_configs;
pub(crate) mod init_producer_id;
pub(crate) mod join_group;
pub(crate) mod leave_group;
pub(crate) mod list_config_resources;
pub(crate) mod list_groups;
pub(crate) mod list_offsets;
pub(crate) mod metadata;
pub(crate) mod offset_commit;
pub(crate) mod offset_delete;
pub(crate) mod offset_fetch;
pub(crate) mod offset_for_leader_epoch;
mod operations;
pub(crate) mod produce;
pub(crate) mod router;
mod standing;
pub(crate) mod sync_group;

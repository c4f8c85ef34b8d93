//! The server in process, over real sockets, with raw frames: every request in every version, bytes that are
//! wrong in every way we know, and what a client may rely on.

#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "this program needs a part of it")]
mod support;

mod admin_port;
mod batches;
mod catch_up;
mod cordon;
mod damage;
mod dead_threads;
mod disk;
mod durability;
mod fetching;
mod framing;
mod group_configs;
mod groups;
mod hanging;
mod leader_epochs;
mod lifecycle;
mod log_dirs;
mod lost_metadata;
mod metrics_page;
mod mount_writes;
mod mounts;
mod names;
mod older_metadata;
mod repeats;
mod sharing;
mod topic_admin;
mod trouble;
mod upkeep;
mod vanished;
mod versions;

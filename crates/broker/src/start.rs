//! Opening a server's data: metadata first, then the log dirs, then the state in memory around them.
//!
//! Refuses data of another cluster or node, data in use, and damage, each with what to do about it. Its time does not
//! depend on the number of partitions.

use std::io;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use riverrun_env::Env;
use riverrun_log::{LogError, LogStore};
use thiserror::Error;

use crate::broker::{Broker, Budgets};
use crate::config::{BrokerConfig, ConfigError};
use crate::fetch::catch_up::CatchUp;
use crate::fetch::session::SessionCache;
use crate::groups::Groups;
use crate::health::OpenFailures;
use crate::metadata::{MetadataError, Store, StoreOptions};
use crate::metrics::Metrics;
use crate::net::budget::MemoryBudget;
use crate::net::gate::ProduceGate;
use crate::partitions::Partitions;
use crate::scrub::ScrubProgress;
use crate::space::DirSpace;

/// Why a server did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An option is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The metadata cannot be opened.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// A log dir cannot be opened.
    #[error(transparent)]
    Log(#[from] LogError),
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {source}; is another server running there?")]
    Bind {
        /// The address.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The temporary directory cannot be made.
    #[error("cannot make a temporary directory: {0}")]
    TemporaryDirectory(io::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The server's thread ended while it was starting.
    #[error("the server's thread died while starting")]
    Died,
}

/// Half of the descriptors that the process may have are for logs: connections and listeners need the others.
fn log_store_options() -> riverrun_log::StoreOptions {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    // `None`: there is no limit.
    riverrun_log::StoreOptions::for_descriptors(limit.current.unwrap_or(u64::MAX))
}

/// Opens everything that a configuration names. Blocks for the disk.
pub(crate) fn open_broker(env: Env, config: BrokerConfig) -> Result<Arc<Broker>, StartError> {
    let metadata = Store::open(
        &env,
        &StoreOptions {
            dir: config.server.data_dir.join("meta"),
            node_id: config.server.node_id,
            cluster_id: None,
            log_dirs: config.log_dirs(),
        },
    )?;
    let image = metadata.image();
    for (index, dir) in image.log_dirs().iter().enumerate() {
        if config.is_cordoned(&dir.path) {
            metadata.close_dir(index);
        }
    }
    // In the order of the metadata, which is what a partition's log dir index counts in.
    let dirs: Vec<_> = image.log_dirs().iter().map(|dir| dir.path.clone()).collect();
    let logs = Arc::new(LogStore::open(&env, &dirs, log_store_options())?);
    let config = Arc::new(config);
    let network = &config.network;
    let budgets = Budgets {
        requests: MemoryBudget::new(network.queued_max_request_bytes),
        responses: MemoryBudget::new(network.queued_max_response_bytes),
    };
    Ok(Arc::new_cyclic(|broker| {
        let mut metrics = Metrics::new();
        metrics.register_collectors(broker);
        Broker {
            partitions: Partitions::new(Arc::clone(&logs), image.leader_epoch()),
            groups: Groups::new(&config, &env),
            fetch_sessions: SessionCache::new(network.max_incremental_fetch_session_cache_slots),
            catch_up: CatchUp::new(network.catchup_reads_max, network.catchup_distance_bytes),
            budgets,
            metrics: Arc::new(metrics),
            space: DirSpace::new(&env, dirs.into_iter(), config.server.log_dir_reserve_bytes),
            produce_gate: Arc::new(ProduceGate::new(|| true)),
            open_failures: OpenFailures::default(),
            scrub: ScrubProgress::default(),
            applying_configs: Mutex::default(),
            advertised: OnceLock::new(),
            env,
            metadata,
            logs,
            config: Arc::clone(&config),
        }
    }))
}

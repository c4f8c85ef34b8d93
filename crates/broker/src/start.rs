//! Opening a server's data: metadata first, then the log dirs, then the state in memory around them.
//!
//! Refuses data of another cluster or node, data in use, and damage, each with what to do about it. Its time does not
//! depend on the number of partitions.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use riverrun_env::{Env, PatientWall};
use riverrun_journal::JournalError;
use riverrun_log::{LogError, LogStore, Place, RecoveryReport};
use riverrun_queue::CONTROL_NAME;
use riverrun_types::{ErrorKind, LeaderEpoch, PartitionId};
use tokio::sync::Notify;

use crate::broker::{Broker, Budgets};
use crate::catalog::{self, Catalog};
use crate::catch_up::CatchUp;
use crate::compaction_failures::CompactionFailures;
use crate::config::{BrokerConfig, ConfigError, NetworkOptions};
use crate::cordon::{Cordon, absolute};
use crate::descriptors::Descriptors;
use crate::fetch_sessions::SessionCache;
use crate::flow::budget::MemoryBudget;
use crate::flow::inflate_offload::InflatingLeave;
use crate::flow::produce_backpressure::{Load, ProduceGate};
use crate::flow::responses::ResponseMemory;
use crate::flow::turns::Turns;
use crate::groups::{self, Groups};
use crate::held_files::HeldFiles;
use crate::metadata::{
    JournalRegistry, Store, StoreOptions, check_unowned, first_start, log_dir_around, refuse_in_use,
};
use crate::metrics::Metrics;
use crate::mounts::Mounts;
use crate::partitions::Partitions;
use crate::replicas::Replicas;
use crate::scrape;
use crate::scrub_progress::ScrubProgress;
use crate::settle::used_journals;
use crate::start_error::StartError;
use crate::waits::Seen;

fn log_store_options(
    config: &BrokerConfig,
    metadata: &Store,
    journals: &JournalRegistry,
) -> riverrun_log::StoreOptions {
    riverrun_log::StoreOptions {
        journal_dirs: config.journal_dirs(),
        closed_journals: journals.settled(&config.journal_dirs()),
        journal: config.durability.journal_options(),
        journal_async_write: config.durability.journal_async_write,
        write_cache_bytes: config.durability.write_cache_bytes,
        reserve_bytes: config.server.log_dir_reserve_bytes,
        absent_dirs: metadata.absent_dirs().clone(),
        ..Descriptors::of_process().store_options()
    }
}

/// Refuses directories of queues: the server's files would mix with the queue's.
fn refuse_queues(env: &Env, config: &BrokerConfig) -> Result<(), StartError> {
    let named = [
        ("data.dir", vec![config.server.data_dir.clone()]),
        ("log.dirs", config.log_dirs()),
        ("journal.dirs", config.journal_dirs()),
    ];
    for (option, path) in
        named.into_iter().flat_map(|(option, dirs)| dirs.into_iter().map(move |dir| (option, dir)))
    {
        // A disk that does not answer is reported by the code that needs it.
        if env.fs.exists(&path.join(CONTROL_NAME)).unwrap_or(false) {
            return Err(StartError::QueueDir { option, path });
        }
    }
    Ok(())
}

/// Refuses directories inside a log dir of another server: that server, or its owner, may clear them away, and names would
/// collide. The metadata checks the owners of the log dirs themselves.
fn refuse_others_log_dirs(env: &Env, config: &BrokerConfig) -> Result<(), StartError> {
    let own = config.log_dirs();
    let data_dir = [("data.dir", config.server.data_dir.clone())];
    let journals = config.journal_dirs().into_iter().map(|dir| ("journal.dirs", dir));
    for (option, path) in data_dir.into_iter().chain(journals) {
        if let Some((log_dir, owner)) = log_dir_around(env, &absolute(&path), &own) {
            let (cluster, node) = (owner.cluster, owner.node);
            return Err(StartError::OthersLogDir { option, path, log_dir, cluster, node });
        }
    }
    Ok(())
}

/// Refuses mounts of queues that are not there, before anything is made for a server that cannot start.
fn refuse_missing_queues(env: &Env, config: &BrokerConfig) -> Result<(), StartError> {
    for mount in &config.server.mounts {
        // `Mounts::open` reports whatever else is wrong with a queue.
        if !env.fs.exists(&mount.dir.join(CONTROL_NAME)).unwrap_or(true) {
            return Err(StartError::NoQueue { mount: mount.to_string(), dir: mount.dir.clone() });
        }
    }
    Ok(())
}

fn without_journal(error: LogError, way_out: String) -> StartError {
    match error {
        LogError::Journal(source @ (JournalError::Io { .. } | JournalError::Write { .. }))
            if source.kind() == ErrorKind::GiveUp =>
        {
            StartError::Journal { source, way_out }
        }
        error => error.into(),
    }
}

/// Opens the metadata, or makes it where that is allowed.
fn open_metadata(env: &Env, config: &BrokerConfig, dir: &Path) -> Result<Store, StartError> {
    let server = &config.server;
    if !server.data_dir_create {
        first_start::refuse(env, dir)?;
    }
    // Before the directory is made: a start that is refused leaves nothing behind.
    if first_start::is_first(env, dir)? {
        refuse_in_use(env, &config.log_dirs())?;
        check_unowned(env, &config.log_dirs(), dir)?;
    }
    let options = StoreOptions {
        dir: dir.to_path_buf(),
        node_id: server.node_id,
        cluster_id: None,
        log_dirs: config.log_dirs(),
    };
    let metadata = Store::open(env, &options)?;
    let is_meant = config.settings().get(first_start::OPTION).is_some();
    first_start::tell(&metadata.cluster(), &server.data_dir, is_meant);
    let cordon = Cordon::parse(&server.cordoned_log_dirs, &metadata.node().log_dir_paths());
    metadata.cordon_by_default(cordon.map_err(ConfigError::Conflict)?);
    Ok(metadata)
}

/// Opens everything that a configuration names. Blocks for the disk.
pub(crate) fn open_broker(env: Env, config: BrokerConfig) -> Result<Arc<Broker>, StartError> {
    refuse_queues(&env, &config)?;
    refuse_others_log_dirs(&env, &config)?;
    refuse_missing_queues(&env, &config)?;
    let meta_dir = config.meta_dir();
    let metadata = open_metadata(&env, &config, &meta_dir)?;
    let mounts = Arc::new(Mounts::open(&env, &meta_dir, &config, &metadata)?);
    let node = metadata.node();
    // In the order of the metadata, in which the index of a partition's log dir counts.
    let dirs: Vec<_> = node.log_dirs().iter().map(|dir| dir.path.clone()).collect();
    let journals = Arc::new(JournalRegistry::open(&env, &meta_dir)?);
    let logs = LogStore::open(&env, &dirs, log_store_options(&config, &metadata, &journals));
    let logs = Arc::new(logs.map_err(|error| without_journal(error, journals.way_out()))?);
    let config = Arc::new(config);
    let metadata = Arc::new(metadata);
    let partitions = Arc::new(Partitions::new(Arc::clone(&logs)));
    let replicas = Arc::new(Replicas::new(&config, &metadata, &logs, &partitions, &mounts));
    let catalog = catalog::Ports {
        env: env.clone(),
        config: Arc::clone(&config),
        metadata: Arc::clone(&metadata),
        logs: Arc::clone(&logs),
        partitions: Arc::clone(&partitions),
        replicas: Arc::clone(&replicas),
    };
    let ports = groups::Ports {
        env: env.clone(),
        metadata,
        logs: Arc::clone(&logs),
        mounts: Arc::clone(&mounts),
        replicas: Arc::clone(&replicas),
    };
    let network = &config.network;
    let broker = Arc::new_cyclic(|broker| {
        let mut metrics = Metrics::new();
        scrape::register(&mut metrics, broker);
        Broker {
            partitions,
            mounts,
            groups: Groups::new(&config, ports),
            replicas,
            catalog: Arc::new(Catalog::new(catalog)),
            fetch_sessions: SessionCache::new(network.max_incremental_fetch_session_cache_slots),
            parked_fetches: AtomicUsize::new(0),
            catch_up: CatchUp::new(network.catchup_reads_max, dirs.len(), network.catchup_distance_bytes),
            budgets: budgets(network),
            metrics: Arc::new(metrics),
            supervisor: Arc::default(),
            shortages: dirs.iter().map(|_| Notify::new()).collect(),
            surpluses: dirs.iter().map(|_| Notify::new()).collect(),
            produce_gate: produce_gate(&logs),
            inflating: Arc::new(InflatingLeave::new()),
            turns: Turns::new(config.server.network_threads()),
            aside: OnceLock::new(),
            scrub: ScrubProgress::default(),
            compaction_failures: CompactionFailures::default(),
            waits: Seen::default(),
            log_account: OnceLock::new(),
            advertised: OnceLock::new(),
            patient_wall: PatientWall::new(&*env.clock),
            env,
            logs,
            journals,
            config: Arc::clone(&config),
        }
    });
    recover(&broker)?;
    Ok(broker)
}

fn budgets(network: &NetworkOptions) -> Budgets {
    Budgets {
        requests: MemoryBudget::new(network.queued_max_request_bytes),
        responses: ResponseMemory::new(network.queued_max_response_bytes),
        files: HeldFiles::new(Descriptors::of_process().held_files_max()),
    }
}

/// Logs one line for each partition that recovery has taken offline; those of a log dir that has failed share one.
fn tell_offline(broker: &Broker, report: &RecoveryReport) {
    let mut with_dir: BTreeMap<&Path, usize> = BTreeMap::new();
    for (id, error) in &report.offline {
        broker.replicas.open_failures.remember(*id, error.to_string(), error.kind());
        match error {
            LogError::DirFailed { path, .. } => *with_dir.entry(path).or_default() += 1,
            _ => {
                tracing::error!(partition = %id, %error, "a partition cannot take the records that the journal has for it");
            }
        }
    }
    for (path, partitions) in with_dir {
        tracing::error!(
            path = %path.display(), partitions,
            "a log dir that has failed cannot take the records that the journal has for it: they are kept aside until it is back"
        );
    }
}

/// Logs once what the journals have of partitions that the metadata does not know.
fn tell_unknown(broker: &Broker, report: &RecoveryReport) {
    if let Some(trouble) = broker.unknown_partitions() {
        let entries: u64 = report.unknown.values().sum();
        tracing::error!(entries, "{trouble}");
    }
}

/// The gate before the write cache. Records that wait for room on a disk do not count: there requests are refused.
fn produce_gate(logs: &Arc<LogStore>) -> Arc<ProduceGate> {
    let cache_of = Arc::downgrade(logs);
    let look = move || cache_of.upgrade().map_or_else(Load::default, |logs| load_of(&logs));
    let gate = Arc::new(ProduceGate::new(look));
    let opened = Arc::clone(&gate);
    logs.write_cache().on_room(Box::new(move || opened.room_was_made()));
    gate
}

fn load_of(logs: &LogStore) -> Load {
    let cache = logs.write_cache();
    let held_bytes = cache.bytes();
    let used_bytes = if cache.is_contended() { logs.write_cache_used_bytes() } else { held_bytes };
    Load { used_bytes, held_bytes, bytes_max: cache.bytes_max(), removed_bytes: cache.removed_bytes() }
}

/// Brings what the journals hold into the logs. Partitions that cannot take their records go offline, and `/health` says so.
fn recover(broker: &Broker) -> Result<(), StartError> {
    let way_out = broker.journals.way_out();
    broker.journals.begin(&broker.config.journal_dirs(), &used_journals(broker))?;
    for (index, journal) in broker.logs.journals().enumerate() {
        let journals = Arc::clone(&broker.journals);
        journal.on_first_use(Box::new(move |id| journals.note_used(index, &id.to_string())));
    }
    let image = broker.catalog.image();
    let known = |id: PartitionId| {
        let topic = image.cluster.topic_by_id(id.topic)?;
        Some(Place::In(image.node.log_dir(id)?, broker.replicas.log_config(topic)))
    };
    let lost = |id: PartitionId| {
        if image.node.doomed().contains_key(&id.topic) { Place::Deleted } else { Place::Unknown }
    };
    let epoch = |id: PartitionId| {
        let topic = image.cluster.topic_by_id(id.topic);
        topic.map_or(LeaderEpoch::UNKNOWN, |topic| image.cluster.leader_epoch(topic, id.index))
    };
    let recovered = broker.logs.recover(epoch, |id| known(id).unwrap_or_else(|| lost(id)));
    let report = recovered.map_err(|error| without_journal(error, way_out))?;
    tell_offline(broker, &report);
    tell_unknown(broker, &report);
    if report.entries + report.dropped_entries + report.held_entries > 0 {
        let (entries, bytes, partitions) = (report.entries, report.bytes, report.partitions);
        let (dropped, held) = (report.dropped_entries, report.held_entries);
        tracing::info!(entries, bytes, partitions, dropped, held, "recovered from the journals");
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! All logs of one server: its log dirs, and the partitions in them.
//!
//! Opening the store costs the same for ten partitions as for ten thousand, apart from reading the checkpoints,
//! and it does not matter how the server stopped: partitions are opened, and recovered, at their first use.
//! Threads belong to the caller, who calls [`LogStore::checkpoint`] and [`LogStore::close_idle`] now and then.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use riverrun_env::Env;
use riverrun_types::{LeaderEpoch, Offset, PartitionId};

use crate::config::LogConfig;
use crate::error::LogError;
use crate::log_dir::LogDir;
use crate::open_logs::OpenLogs;
use crate::partition_log::PartitionLog;

/// What a store may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Logs that may be open at the same time, in all log dirs together; at least one. An open log holds one
    /// descriptor. A fourth of that number, but at least 16, may be open besides: files of segments that are read.
    pub open_logs_max: usize,
}

impl StoreOptions {
    /// Open logs that a server is allowed at least, however few descriptors it may have.
    const OPEN_LOGS_MIN: usize = 64;

    /// For a process that may have `descriptors_max` descriptors: half of them are for logs, but at least 64.
    pub fn for_descriptors(descriptors_max: u64) -> Self {
        let half = usize::try_from(descriptors_max / 2).unwrap_or(usize::MAX);
        Self { open_logs_max: half.max(Self::OPEN_LOGS_MIN) }
    }
}

impl Default for StoreOptions {
    /// For the 1024 descriptors that a process has where nobody raised the limit.
    fn default() -> Self {
        Self::for_descriptors(1024)
    }
}

/// What is known of a partition without touching its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownPartition {
    /// The partition.
    pub id: PartitionId,
    /// Bytes of its segments.
    pub size_bytes: u64,
    /// First offset that can be read.
    pub log_start: Offset,
    /// The offset that the next record will get.
    pub log_end: Offset,
    /// Whether its files are open: then the above is as of now. Otherwise it is what the last checkpoint says, exact
    /// for a log that was closed in order; after a kill the log may reach further, until it is recovered.
    pub is_open: bool,
}

/// The log dirs of one server.
///
/// Invariants: every dir is locked by this process until the store is closed or dropped. Dropping syncs nothing.
#[derive(Debug)]
pub struct LogStore {
    open_logs: Arc<OpenLogs>,
    dirs: Vec<Arc<LogDir>>,
}

impl LogStore {
    /// Opens the log dirs and makes those that are not there.
    pub fn open(env: &Env, dirs: &[PathBuf], options: StoreOptions) -> Result<Self, LogError> {
        let open_logs = Arc::new(OpenLogs::new(options.open_logs_max));
        let open = |path: &PathBuf| LogDir::open(env.clone(), path, open_logs.clone()).map(Arc::new);
        let dirs = dirs.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { open_logs, dirs })
    }

    /// How many logs are open.
    pub fn open_log_count(&self) -> usize {
        self.open_logs.count()
    }

    /// Number of log dirs.
    pub fn dir_count(&self) -> usize {
        self.dirs.len()
    }

    /// Path of a log dir.
    pub fn dir_path(&self, dir_index: usize) -> &Path {
        self.dirs[dir_index].path()
    }

    /// Whether every log dir was closed in order when it was used last.
    pub fn was_clean(&self) -> bool {
        self.dirs.iter().all(|dir| dir.was_clean())
    }

    /// Why a log dir has failed, if it has.
    pub fn dir_failure(&self, dir_index: usize) -> Option<LogError> {
        self.dirs[dir_index].check_usable().err()
    }

    /// The log dir that holds a partition, if one does.
    pub fn find(&self, id: PartitionId) -> Result<Option<usize>, LogError> {
        for (index, dir) in self.dirs.iter().enumerate() {
            if dir.holds(id)? {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// The handle of a partition in log dir `dir_index`. Free of cost: files are opened at the first use, and then
    /// damage is found. A handle that exists gets the new options and the new epoch.
    pub fn partition(
        &self,
        id: PartitionId,
        dir_index: usize,
        config: Arc<LogConfig>,
        epoch: LeaderEpoch,
    ) -> Result<Arc<PartitionLog>, LogError> {
        let dir = &self.dirs[dir_index];
        dir.check_open()?;
        Ok(dir.partition(id, config, epoch))
    }

    /// Removes a partition and its files. Whoever holds the handle gets [`LogError::Deleted`].
    pub fn delete(&self, id: PartitionId, dir_index: usize) -> Result<(), LogError> {
        self.dirs[dir_index].delete(id)
    }

    /// All partitions of a log dir that a checkpoint remembers or that have a handle, in the order of their ids. From
    /// memory only: opens nothing, makes no handle, and does not wait for a partition that is being recovered.
    pub fn known(&self, dir_index: usize) -> Vec<KnownPartition> {
        self.dirs[dir_index].known()
    }

    /// Syncs each log dir in which something has changed, and remembers how far its partitions are synced: that much
    /// needs no recovery. Every dir is tried; the first error is returned.
    pub fn checkpoint(&self) -> Result<(), LogError> {
        self.for_each(|dir| dir.checkpoint(false))
    }

    /// Closes the files of partitions that nobody has used for `older_than` and that a checkpoint has covered;
    /// returns how many partitions were closed. Handles stay valid.
    pub fn close_idle(&self, older_than: Duration) -> usize {
        self.dirs.iter().map(|dir| dir.close_idle(older_than)).sum()
    }

    /// Checkpoints everything, closes all files and lets go of the log dirs: the next start finds nothing to
    /// recover. Handles answer [`LogError::Closed`] from now on.
    pub fn close(&self) -> Result<(), LogError> {
        self.for_each(LogDir::close)
    }

    fn for_each(&self, action: impl Fn(&LogDir) -> Result<(), LogError>) -> Result<(), LogError> {
        let results: Vec<_> = self.dirs.iter().map(|dir| action(dir)).collect();
        results.into_iter().collect()
    }
}

impl Drop for LogStore {
    /// As if the process had died: the next start recovers.
    fn drop(&mut self) {
        for dir in &self.dirs {
            dir.release();
        }
    }
}

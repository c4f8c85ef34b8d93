//! The resources of a store: room, journals, and log dirs that are away.

use std::collections::BTreeMap;
use std::path::PathBuf;

use riverrun_journal::{JournalId, JournalOptions};

/// The resources of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Logs that may be open at the same time, in all log dirs together; at least one. An open log takes some kilobytes
    /// of memory. To close one for another costs a file's removal and creation, so the partitions in use should all
    /// fit, with an eighth to spare: from there on openings wait for others to be closed.
    pub open_logs_max: usize,
    /// Files of segments that stay open between two uses; at least one.
    pub open_files_max: usize,
    /// Directories of the journals, one for each device. Without any no partition can have a level that syncs. They
    /// must be those of the last time, in the same order, unless the store was closed then: a partition's journal
    /// follows from their number. The caller sees to that, because it can recognise a journal that was moved.
    pub journal_dirs: Vec<PathBuf>,
    /// The ids of journals that, as far as the caller knows, were closed with everything in them settled, and not used
    /// since: damage of such a journal loses nothing.
    pub closed_journals: Vec<Option<JournalId>>,
    /// Options of each journal.
    pub journal: JournalOptions,
    /// Whether levels that do not sync go through the journal as well, which syncs them later.
    pub journal_async_write: bool,
    /// Bytes that may be in memory between the journal and the segments; see [`WriteCache`](crate::WriteCache).
    pub write_cache_bytes: u64,
    /// Clients' appends to a log dir are refused while less space than this is left there, or than a twentieth of its volume
    /// if that is less. The journals' reserves are cut alike.
    pub reserve_bytes: u64,
    /// Log dirs that the caller has found to be away, and the reasons. Each has failed from the start: nothing is read
    /// from it or written to it, whatever lies at its path now.
    pub absent_dirs: BTreeMap<PathBuf, String>,
}

impl StoreOptions {
    /// Open logs that a server is allowed at least, however few descriptors it may have: about 100 MB.
    const OPEN_LOGS_MIN: usize = 32 * 1024;
    /// Open files that a server is allowed at least.
    const OPEN_FILES_MIN: usize = 64;
    const WRITE_CACHE_BYTES: u64 = 128 * 1024 * 1024;

    /// For a process that may have `descriptors_max` descriptors: half of them are for files of segments, but at least
    /// 64. As many logs may be open, but at least 32,768.
    pub fn for_descriptors(descriptors_max: u64) -> Self {
        let half = usize::try_from(descriptors_max / 2).unwrap_or(usize::MAX);
        Self {
            open_logs_max: half.max(Self::OPEN_LOGS_MIN),
            open_files_max: half.max(Self::OPEN_FILES_MIN),
            journal_dirs: Vec::new(),
            closed_journals: Vec::new(),
            journal: JournalOptions::default(),
            journal_async_write: false,
            write_cache_bytes: Self::WRITE_CACHE_BYTES,
            reserve_bytes: 0,
            absent_dirs: BTreeMap::new(),
        }
    }
}

impl Default for StoreOptions {
    /// For the 1024 descriptors that a process has by default.
    fn default() -> Self {
        Self::for_descriptors(1024)
    }
}

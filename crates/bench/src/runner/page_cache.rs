//! Dropping the page cache, so that no run reads what an earlier one left in memory.

use std::fs::OpenOptions;
use std::io::{self, Write as _};

use serde::Serialize;

/// A write here drops the cache; only the machine's administrator may.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
/// Drops pages and the caches of directories.
const PAGES_AND_DIRECTORIES: &[u8] = b"3\n";

/// Whether the page cache was dropped before a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PageCache {
    /// Whether it was dropped.
    pub dropped: bool,
    /// The reason if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl PageCache {
    /// Writes everything to the disks and drops the cache of this machine.
    pub fn drop_now() -> Self {
        rustix::fs::sync();
        match write() {
            Ok(()) => Self { dropped: true, reason: None },
            Err(error) => Self { dropped: false, reason: Some(format!("{DROP_CACHES}: {error}")) },
        }
    }

    /// Not dropped: the server is on another machine.
    pub fn elsewhere() -> Self {
        Self { dropped: false, reason: Some("the server is on another machine".to_owned()) }
    }

    /// Not dropped, as requested.
    pub fn kept() -> Self {
        Self { dropped: false, reason: Some("kept as requested".to_owned()) }
    }
}

fn write() -> io::Result<()> {
    OpenOptions::new().write(true).open(DROP_CACHES)?.write_all(PAGES_AND_DIRECTORIES)
}

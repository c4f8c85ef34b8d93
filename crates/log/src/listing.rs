//! The files of a partition, listed without changing anything.

use std::path::{Path, PathBuf};

use riverrun_env::Env;
use riverrun_types::Offset;

use crate::checkpoint::PartitionCheckpoint;
use crate::compaction::swap::{self, Misfit};
use crate::error::LogError;
use crate::file_names::{LOG_SUFFIX, STATE_SUFFIX, parse_name};
use crate::segment_check::Facts;

/// The files of a partition, untouched.
pub(crate) struct Listing {
    /// Base offset and bytes of each `.log`, in order.
    pub(crate) logs: Vec<(Offset, u64)>,
    /// Offsets of the state files, in order.
    pub(crate) states: Vec<Offset>,
    /// Whether a compaction was interrupted while it put its segment into place, so that the next start ends it. A
    /// start refuses a swap that does not fit.
    pub(crate) is_swapping: Result<bool, Misfit>,
}

impl Listing {
    /// Fails if the directory is not there.
    pub(crate) fn read(env: &Env, dir: &Path) -> Result<Self, LogError> {
        let entries = env.fs.read_dir(dir).map_err(|error| LogError::io(dir, error))?;
        let (mut logs, mut states, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for entry in entries.iter().filter(|entry| !entry.is_dir) {
            let Some(name) = entry.name.to_str() else { continue };
            logs.extend(parse_name(name, LOG_SUFFIX).map(|base| (base, entry.len)));
            states.extend(parse_name(name, STATE_SUFFIX));
            names.push(name.to_owned());
        }
        logs.sort_unstable();
        states.sort_unstable();
        Ok(Self { logs, states, is_swapping: swap::is_unfinished(dir, &names) })
    }

    /// The facts of each segment, and the path of its `.log`.
    pub(crate) fn segments<'a>(
        &'a self,
        dir: &'a Path,
        known: Option<&'a PartitionCheckpoint>,
    ) -> impl Iterator<Item = (Facts, PathBuf)> + 'a {
        self.logs.iter().enumerate().map(move |(index, (base, size_bytes))| {
            let facts = Facts {
                base: *base,
                size_bytes: *size_bytes,
                next_base: self.logs.get(index + 1).map(|(base, _)| *base),
                gapless_from: known.map(|known| known.recovery_point),
                walks_records: true,
            };
            (facts, dir.join(format!("{:020}{LOG_SUFFIX}", base.0)))
        })
    }
}

//! Known log dirs that are away at a start: the path is missing or an empty mount point, because its disk is not mounted,
//! or the server has no right to it.
//!
//! A log dir that is away has failed until a start finds it. The others go on; without any the start is refused. Its path
//! is left as it is: anything made there would lie on another disk, and hide below the right one later. A path with a
//! file that gives its records up is not away but empty, and begins anew.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use riverrun_env::Env;

use super::NodeImage;
use super::log_dirs::{ACCEPT_LOSS_FILE, holds_topic_directories, read_identity};
use crate::metadata::error::MetadataError;

/// Log dirs that are away, by their paths, each with the reason.
#[derive(Debug)]
pub(crate) struct AbsentDirs(BTreeMap<PathBuf, String>);

impl AbsentDirs {
    /// Looks at the configured directories. Changes nothing. Fails if all of them are away.
    pub(crate) fn find(env: &Env, node: &NodeImage, configured: &[PathBuf]) -> Result<Self, MetadataError> {
        let reason_of = |path: &PathBuf| Some((path.clone(), absence(env, node, configured, path)?));
        let absent: BTreeMap<_, _> = configured.iter().filter_map(reason_of).collect();
        match absent.first_key_value() {
            Some((path, reason)) if configured.iter().all(|path| absent.contains_key(path)) => {
                Err(MetadataError::LogDir { path: path.clone(), reason: reason.clone() })
            }
            _ => Ok(Self(absent)),
        }
    }

    /// The paths, each with the reason.
    pub(crate) fn reasons(&self) -> &BTreeMap<PathBuf, String> {
        &self.0
    }

    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.0.contains_key(path)
    }

    /// The configured directories that are there.
    pub(crate) fn present(&self, configured: &[PathBuf]) -> Vec<PathBuf> {
        configured.iter().filter(|path| !self.contains(path)).cloned().collect()
    }
}

/// The reason why the log dir that lay at `path` at the last start is away, if it is and partitions lie in it.
fn absence(env: &Env, node: &NodeImage, configured: &[PathBuf], path: &Path) -> Option<String> {
    let index = node.log_dirs().iter().position(|dir| dir.path == path)?;
    let partitions = partitions_in(node, index);
    if partitions == 0 {
        return None;
    }
    let missing = missing(env, path)?;
    if configured.iter().any(|other| is_identity(env, other, &node.log_dirs()[index].id)) {
        return None;
    }
    Some(missing.reason(partitions))
}

/// How many partitions lie in a log dir. Those of deleted topics count while their files may be there: a missing disk does
/// not prove that they are gone.
pub(crate) fn partitions_in(node: &NodeImage, dir: usize) -> u64 {
    let doomed = node.doomed().values().flat_map(|dirs| dirs.iter());
    let doomed = doomed.filter(|other| usize::from(**other) == dir).count() as u64;
    node.log_dirs()[dir].partition_count + doomed
}

/// Why no log dir is seen at a path.
pub(crate) enum Missing {
    /// None is there, for this reason.
    Gone(&'static str),
    /// The server may not look there, for this reason.
    Forbidden(String),
}

impl Missing {
    /// Why a log dir with this many partitions cannot be used, with the way out.
    pub(crate) fn reason(&self, partitions: u64) -> String {
        match self {
            Self::Forbidden(why) => {
                format!(
                    "{why}, but {partitions} partitions lie in it. Give the server the right to read and write there"
                )
            }
            Self::Gone(what) => format!(
                "{what}, but {partitions} partitions lie in it. Is its disk mounted? Start again once it is; or, if its \
                 records are lost for good, make a file {ACCEPT_LOSS_FILE} in it and start again: they are given up then, also \
                 if the disk is found later"
            ),
        }
    }
}

/// Looks for a log dir at `path`. `None`: one is there, or its disk does not answer.
pub(crate) fn missing(env: &Env, path: &Path) -> Option<Missing> {
    match is_there(env, path) {
        Ok(false) => Some(Missing::Gone("it is empty")),
        Err(MetadataError::Io { path, source, .. }) => match source.kind() {
            io::ErrorKind::NotFound => Some(Missing::Gone("it is missing")),
            io::ErrorKind::PermissionDenied => {
                let why = format!("the server may not look into it ({}: {source})", path.display());
                Some(Missing::Forbidden(why))
            }
            // A disk that does not answer is reported by those who use it.
            _ => None,
        },
        Ok(true) | Err(_) => None,
    }
}

/// Whether the directory has an identity, records, or a file that gives them up.
fn is_there(env: &Env, path: &Path) -> Result<bool, MetadataError> {
    let accepts = path.join(ACCEPT_LOSS_FILE);
    Ok(read_identity(env, path)?.is_some()
        || env.fs.exists(&accepts).map_err(MetadataError::io("look at", &accepts))?
        || holds_topic_directories(env, path)?)
}

/// Whether the log dir of this id lies at `path` now.
fn is_identity(env: &Env, path: &Path, id: &str) -> bool {
    matches!(read_identity(env, path), Ok(Some(Ok(identity))) if identity.dir == id)
}

#[cfg(test)]
mod tests;

//! `riverrun log verify` for files that the log does not own: the metadata directory, and identity and mark of a log dir.
//!
//! Reads as a start does, and changes nothing: a torn tail stays, and so do the files of an interrupted start.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::Env;
use riverrun_types::PartitionId;

use super::cluster::Topic;
use super::error::MetadataError;
use super::frames::FrameError;
use super::image::Image;
use super::node::marks::{self, Marks};
use super::node::unknown::UnknownTopics;
use super::node::{journals, log_dirs};
use super::store;

/// A flaw of a metadata file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataFinding {
    /// The file.
    pub path: PathBuf,
    /// The byte where it is; 0 for the whole file.
    pub position: u64,
    /// The text of the flaw.
    pub what: String,
    /// A crash has left the beginning of a change that was never answered; the next start cuts it off.
    pub is_torn_tail: bool,
}

impl MetadataFinding {
    pub(super) fn torn(path: &Path, position: u64) -> Self {
        let what = "a change that was cut short; the next start cuts it off".to_owned();
        Self { path: path.to_path_buf(), position, what, is_torn_tail: true }
    }

    pub(super) fn damage(path: PathBuf, position: u64, what: String) -> Self {
        Self { path, position, what, is_torn_tail: false }
    }
}

/// Checks snapshot and log of the metadata directory `dir` (`<data>/meta`), and the list of journals beside them. Those of
/// `log_dirs` that belong to it are searched for topics and partitions that it does not know, and for marks that are ahead
/// of it. An error means that the system cannot read.
pub fn verify_metadata(
    env: &Env,
    dir: &Path,
    log_dirs: &[PathBuf],
) -> Result<Vec<MetadataFinding>, MetadataError> {
    let mut findings = Vec::new();
    match store::verify(env, dir) {
        Ok(store::Verified { flaws, torn, image }) => {
            findings = flaws.into_iter().map(finding).collect::<Result<_, _>>()?;
            findings.extend(torn);
            if let Some(image) = &image {
                let older = Marks::read(env, image, log_dirs).check(image, dir).err();
                findings.extend(older.map(finding).transpose()?);
                findings.extend(unknown(&UnknownTopics::find(env, image, log_dirs)));
                findings.extend(given_up(env, image, log_dirs));
            }
        }
        Err(error) => findings.push(finding(error)?),
    }
    for flaw in journals::verify(env, dir) {
        findings.push(finding(flaw)?);
    }
    Ok(findings)
}

/// The partitions that the metadata in `dir` has; none if it cannot be read.
pub fn named_partitions(env: &Env, dir: &Path) -> BTreeSet<PartitionId> {
    let Ok(store::Verified { image: Some(image), .. }) = store::verify(env, dir) else {
        return BTreeSet::new();
    };
    let of_topic = |topic: &Arc<Topic>| {
        let id = topic.id;
        (0..topic.partition_count()).map(move |index| PartitionId { topic: id, index })
    };
    image.cluster.topics().flat_map(of_topic).collect()
}

fn unknown(found: &UnknownTopics) -> impl Iterator<Item = MetadataFinding> {
    let lost = |path: &PathBuf, what: &str| {
        let what = format!("a {what} that the metadata does not know: the metadata has lost it");
        MetadataFinding::damage(path.clone(), 0, what)
    };
    let topics = found.topics().map(move |path| lost(path, "topic"));
    topics.chain(found.partitions().map(move |path| lost(path, "partition")))
}

fn given_up(env: &Env, image: &Image, log_dirs: &[PathBuf]) -> impl Iterator<Item = MetadataFinding> {
    log_dirs.iter().filter_map(|dir| {
        let what = log_dirs::why_given_up(env, image, dir)?;
        Some(MetadataFinding::damage(dir.join(log_dirs::IDENTITY_FILE), 0, what))
    })
}

/// Checks the identity file in the log dir `dir`.
pub fn verify_identity(env: &Env, dir: &Path) -> Result<Vec<MetadataFinding>, MetadataError> {
    let path = dir.join(log_dirs::IDENTITY_FILE);
    let what = match log_dirs::read_identity(env, dir)? {
        Some(Ok(_)) => return Ok(Vec::new()),
        Some(Err(reason)) => reason,
        None => "the identity file is missing".to_owned(),
    };
    Ok(vec![MetadataFinding::damage(path, 0, what)])
}

/// Checks the metadata mark in the log dir `dir`, if there is one.
pub fn verify_mark(env: &Env, dir: &Path) -> Result<Vec<MetadataFinding>, MetadataError> {
    marks::verify(env, dir).into_iter().map(finding).collect()
}

/// The finding of a read error, if it is a flaw of a file.
fn finding(error: MetadataError) -> Result<MetadataFinding, MetadataError> {
    match error {
        MetadataError::File { path, source } => {
            let position =
                if let FrameError::Damaged { position, .. } = source { position as u64 } else { 0 };
            Ok(MetadataFinding::damage(path, position, source.to_string()))
        }
        MetadataError::Lost { source, .. } => finding(*source),
        MetadataError::Older { has, mark, told, .. } => {
            let what =
                format!("the metadata is older than this mark: it says {has}, and the mark says {told}");
            Ok(MetadataFinding::damage(mark, 0, what))
        }
        MetadataError::Content { path, reason } => Ok(MetadataFinding::damage(path, 0, reason)),
        MetadataError::Io { path, source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Ok(MetadataFinding::damage(path, 0, "it is missing".to_owned()))
        }
        error => Err(error),
    }
}

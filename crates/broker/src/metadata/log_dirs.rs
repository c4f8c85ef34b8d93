//! Whose a log dir is: each carries a small file with the ids of its cluster and node and with its own.
//!
//! Partitions remember their log dir by index, so the directories must be recognised whatever their order and paths
//! are at the next start. Refuses directories of another cluster or node, records without an owner, and a configuration
//! that leaves out a known directory in which something lies; one that holds nothing is forgotten then, and is a new one
//! when it comes back. Repairs a damaged or lost identity file in a directory that still holds its records. A known
//! directory that the system cannot read, or that is [away](super::absent_dirs), keeps the others from nothing: its
//! partitions are offline.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::{Env, atomic_replace, read_whole};
use riverrun_types::TopicId;

use super::absent_dirs::AbsentDirs;
use super::directory::make_durable;
use super::draft::random_id;
use super::error::{MetadataError, first_few};
use super::frames::{first_line, read_frames, write_frame};
use super::image::{Image, LogDir, Topic};
use super::records::{DirIdentity, Record, to_json};
use super::unknown::is_lost_topic;

/// The identity file's name in each log dir.
pub(crate) const IDENTITY_FILE: &str = "directory.id";
/// A file of this name in an empty log dir says that its records are lost and that the owner knows.
pub(crate) const ACCEPT_LOSS_FILE: &str = "accept-loss";
/// Log dirs at most.
pub(crate) const LOG_DIRS_MAX: usize = 256;
/// An identity file in bytes at most.
const IDENTITY_BYTES_MAX: u64 = 4096;
const WHAT: &str = "log directory";

/// What a configured directory turned out to be.
enum Found {
    /// The known log dir of this index.
    Known(usize),
    /// One of ours that the metadata does not know yet, with its id.
    New(String),
}

/// Recognises the configured directories, gives identities to new ones (durable when it returns), and answers the
/// records that bring the image up to date. Leaves those alone that are away. While the owner gives up metadata, no
/// directory is forgotten: what the metadata has lost may lie in it.
pub(super) fn claim(
    env: &Env,
    image: &Image,
    configured: &[PathBuf],
    absent: &AbsentDirs,
    accepts_loss: bool,
) -> Result<Vec<Record>, MetadataError> {
    if configured.len() > LOG_DIRS_MAX {
        let reason = format!("at most {LOG_DIRS_MAX} log dirs are possible");
        return Err(MetadataError::LogDir { path: configured[LOG_DIRS_MAX].clone(), reason });
    }
    let mut seen: Vec<bool> = image.log_dirs().iter().map(|dir| absent.contains(&dir.path)).collect();
    let mut added = BTreeSet::new();
    let mut records = Vec::new();
    for path in configured.iter().filter(|path| !absent.contains(path)) {
        let path_text = path.to_string_lossy().into_owned();
        let is_copy = match identify(env, image, path).or_else(|error| without_disk(image, path, error))? {
            Found::Known(index) => {
                if image.log_dirs()[index].path != *path {
                    records.push(Record::LogDirMoved { index: index_of(index), path: path_text });
                }
                std::mem::replace(&mut seen[index], true)
            }
            Found::New(id) => {
                records.push(Record::LogDirAdded { id: id.clone(), path: path_text });
                !added.insert(id)
            }
        };
        if is_copy {
            let reason = "has the identity of another configured log dir; one is a copy".to_owned();
            return Err(MetadataError::LogDir { path: path.clone(), reason });
        }
    }
    let left_out = image.log_dirs().iter().enumerate().filter(|(index, _)| !seen[*index]);
    // The last one first: those behind one that goes get other indexes.
    for (index, dir) in left_out.rev() {
        if let Some(reason) = why_needed(env, image, index_of(index), accepts_loss) {
            let reason = format!("log.dirs does not name it any more, but {reason}");
            return Err(MetadataError::LogDir { path: dir.path.clone(), reason });
        }
        tracing::warn!(dir = %dir.path.display(), "log.dirs does not name this log dir any more, which holds nothing");
        records.push(Record::LogDirRemoved { index: index_of(index) });
    }
    Ok(records)
}

fn index_of(index: usize) -> u16 {
    u16::try_from(index).expect("an image has no more log dirs than that")
}

/// Why the server cannot do without a known directory, with the way out.
fn why_needed(env: &Env, image: &Image, index: u16, accepts_loss: bool) -> Option<String> {
    let dir = &image.log_dirs()[usize::from(index)];
    if dir.partition_count > 0 {
        let lies_in = |topic: &&&Arc<Topic>| topic.log_dirs().any(|dir| dir == usize::from(index));
        let sorted = image.topics_sorted();
        return Some(format!(
            "{} partitions are in it, of {}: name it again, as long as there are these topics: partitions do not move \
             between log dirs",
            dir.partition_count,
            first_few(sorted.iter().filter(lies_in).map(|topic| &topic.name))
        ));
    }
    let deleted = image.doomed_in(index);
    if deleted > 0 {
        return Some(format!(
            "files of {deleted} deleted topics may be in it: name it once more, so that the server removes them. If its \
             disk is lost, an empty directory with a file {ACCEPT_LOSS_FILE} in its place will do"
        ));
    }
    if accepts_loss {
        return Some("what the metadata has lost may be in it: name it once more".to_owned());
    }
    is_in_use(env, dir).then(|| {
        "topics that the metadata does not know, or that were set aside, are in it: name it again, or clear them away"
            .to_owned()
    })
}

/// Whether a directory still lies where it was and holds anything that the metadata does not tell of. A disk that cannot
/// be asked is taken at the metadata's word: nothing on it is changed.
fn is_in_use(env: &Env, dir: &LogDir) -> bool {
    let is_it = match read_identity(env, &dir.path) {
        Ok(Some(Ok(identity))) => identity.dir == dir.id,
        Ok(_) => true,
        Err(_) => false,
    };
    let is_topic = |name: &str| topic_of_directory(name).is_some() || is_lost_topic(name);
    is_it && holds_directory(env, &dir.path, is_topic).unwrap_or(false)
}

/// A known directory whose disk does not answer is taken for what it was: its logs will not open. One that was never used
/// is refused, and so is one that somebody has taken away or closed to us.
fn without_disk(image: &Image, path: &Path, error: MetadataError) -> Result<Found, MetadataError> {
    let is_disk = matches!(&error, MetadataError::Io { source, .. } if !matches!(
        source.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
    ));
    match image.log_dirs().iter().position(|dir| dir.path == path).filter(|_| is_disk) {
        Some(index) => {
            tracing::error!(dir = %path.display(), %error, "a log dir cannot be used; its partitions are offline");
            Ok(Found::Known(index))
        }
        None => Err(error),
    }
}

fn identify(env: &Env, image: &Image, path: &Path) -> Result<Found, MetadataError> {
    make_durable(&*env.fs, path).map_err(MetadataError::io("make the directory", path))?;
    let known = image.log_dirs().iter().position(|dir| dir.path == path);
    match read_identity(env, path)? {
        Some(Ok(identity)) => {
            // Whoever wrote it may have been killed before its name was durable.
            env.fs.sync_dir(path).map_err(MetadataError::io("sync the directory", path))?;
            recognise(image, path, identity)
        }
        Some(Err(reason)) => match known {
            Some(index) => repair(env, image, path, index, &reason),
            None => Err(not_recognised(path, &reason, holds_topic_directories(env, path)?)),
        },
        None => without_identity(env, image, path, known),
    }
}

/// A directory that lies at no known path and does not say whose it is.
fn not_recognised(path: &Path, reason: &str, holds_records: bool) -> MetadataError {
    let way_out = if holds_records {
        format!(
            "restore {IDENTITY_FILE} from a copy, or name the directory by the path that it had at the last start"
        )
    } else {
        // Nobody misses it, unless it is a known directory that was emptied and moved: its path is asked for then.
        format!("the directory holds no records; remove {IDENTITY_FILE} to have it written anew")
    };
    MetadataError::LogDir { path: path.to_owned(), reason: format!("{reason}: {way_out}") }
}

fn recognise(image: &Image, path: &Path, identity: DirIdentity) -> Result<Found, MetadataError> {
    if *identity.cluster != **image.cluster_id() || identity.node != image.node_id().0 {
        return Err(MetadataError::Foreign {
            path: path.to_owned(),
            found_cluster: identity.cluster,
            found_node: identity.node,
            cluster: image.cluster_id().to_string(),
            node: image.node_id().0,
        });
    }
    let known = image.log_dirs().iter().position(|dir| dir.id == identity.dir);
    Ok(known.map_or(Found::New(identity.dir), Found::Known))
}

fn without_identity(
    env: &Env,
    image: &Image,
    path: &Path,
    known: Option<usize>,
) -> Result<Found, MetadataError> {
    let holds_records = holds_topic_directories(env, path)?;
    let fail = |reason: String| Err(MetadataError::LogDir { path: path.to_owned(), reason });
    match known {
        None if holds_records => {
            Err(not_recognised(path, &format!("it holds records, but no {IDENTITY_FILE}"), true))
        }
        None => {
            let id = random_id(&*env.random).to_string();
            write_identity(env, image, path, &id)?;
            Ok(Found::New(id))
        }
        Some(index) if holds_records || image.log_dirs()[index].partition_count == 0 => {
            repair(env, image, path, index, "the identity file is missing")
        }
        Some(index) => {
            let accepts = path.join(ACCEPT_LOSS_FILE);
            if env.fs.exists(&accepts).map_err(MetadataError::io("look at", &accepts))? {
                return repair(env, image, path, index, "it was emptied, and its owner accepts the loss");
            }
            fail(format!(
                "it is empty, but {} partitions lay in it at the last start; if another directory has them now, start \
                 without this one first",
                image.log_dirs()[index].partition_count
            ))
        }
    }
}

fn repair(env: &Env, image: &Image, path: &Path, index: usize, reason: &str) -> Result<Found, MetadataError> {
    tracing::warn!(dir = %path.display(), reason, "the identity of a log dir is written anew");
    write_identity(env, image, path, &image.log_dirs()[index].id)?;
    Ok(Found::Known(index))
}

/// `None`: there is no identity file. An inner error is the reason why it does not read.
pub(super) fn read_identity(
    env: &Env,
    dir: &Path,
) -> Result<Option<Result<DirIdentity, String>>, MetadataError> {
    let path = dir.join(IDENTITY_FILE);
    let bytes = match read_whole(&*env.fs, &path, IDENTITY_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(Some(Err(error.to_string()))),
        Err(error) => return Err(MetadataError::io("read", path)(error)),
    };
    let parsed = read_frames(WHAT, &bytes).map_err(|error| format!("its {IDENTITY_FILE}: {error}")).and_then(
        |frames| {
            let payload = frames.payloads.first().ok_or_else(|| format!("its {IDENTITY_FILE} is cut"))?;
            serde_json::from_slice(payload).map_err(|error| format!("its {IDENTITY_FILE}: {error}"))
        },
    );
    Ok(Some(parsed))
}

fn write_identity(env: &Env, image: &Image, dir: &Path, dir_id: &str) -> Result<(), MetadataError> {
    let identity = DirIdentity {
        cluster: image.cluster_id().to_string(),
        node: image.node_id().0,
        dir: dir_id.to_owned(),
    };
    let mut bytes = first_line(WHAT).into_bytes();
    write_frame(&mut bytes, 0, &to_json(&identity));
    let path = dir.join(IDENTITY_FILE);
    let replaced = atomic_replace(&*env.fs, &path, &bytes);
    replaced.map_err(|error| MetadataError::io("write", path)(error.into()))
}

/// A first start makes a new cluster, which no log dir can belong to.
pub(crate) fn check_unowned(env: &Env, configured: &[PathBuf], meta: &Path) -> Result<(), MetadataError> {
    for path in configured {
        if let Ok(Some(Ok(identity))) = read_identity(env, path) {
            let reason = format!(
                "it belongs to cluster {}, node {}, but there is no metadata in {}: restore that from a copy, or start \
                 with other log dirs",
                identity.cluster,
                identity.node,
                meta.display()
            );
            return Err(MetadataError::LogDir { path: path.clone(), reason });
        }
    }
    Ok(())
}

/// Whether a directory says that it is this server's, or was known as one of its log dirs and does not say anything
/// else.
pub(super) fn is_ours(env: &Env, image: &Image, path: &Path) -> bool {
    match read_identity(env, path) {
        Ok(Some(Ok(found))) => *found.cluster == **image.cluster_id() && found.node == image.node_id().0,
        _ => image.log_dirs().iter().any(|dir| dir.path == path),
    }
}

/// Whether the directory holds directories of topics.
pub(super) fn holds_topic_directories(env: &Env, dir: &Path) -> Result<bool, MetadataError> {
    let held = holds_directory(env, dir, |name| topic_of_directory(name).is_some());
    held.map_err(MetadataError::io("read the directory", dir))
}

/// Whether the directory holds one of such a name.
fn holds_directory(env: &Env, dir: &Path, is_such: impl Fn(&str) -> bool) -> io::Result<bool> {
    let entries = env.fs.read_dir(dir)?;
    Ok(entries.iter().any(|entry| entry.is_dir && entry.name.to_str().is_some_and(&is_such)))
}

/// The log names a topic's directory by the topic's id in the usual form of a UUID: groups of 8, 4, 4, 4 and 12
/// hexadecimal digits, joined by hyphens.
pub(super) fn topic_of_directory(name: &str) -> Option<TopicId> {
    let is_uuid = name.split('-').map(str::len).eq([8, 4, 4, 4, 12])
        && name.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    let id = u128::from_str_radix(&name.replace('-', ""), 16).ok()?;
    is_uuid.then(|| TopicId(id.to_be_bytes()))
}

#[cfg(test)]
mod tests;

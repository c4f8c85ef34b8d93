//! Identities of log dirs: each has a small file with the ids of its cluster, of its node and of its own.
//!
//! Partitions remember their log dir by index, so the next start must recognise the directories whatever their order and
//! paths are. Refuses
//!
//! - directories of another cluster or node, and records without an owner;
//! - a configuration that leaves out a known directory in which something lies. One that holds nothing is forgotten then,
//!   and is a new one when it comes back;
//! - a directory that its owner has given up: another one, of a new id, has taken its place, and what was acked since
//!   lies there. So the old id is remembered.
//!
//! Repairs a damaged or lost identity file in a directory that still holds its records. A known directory that the system
//! cannot read, or that is [away](super::absent_dirs), does not keep the server from its start: its partitions are offline.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::{Env, atomic_replace, read_whole};
use riverrun_types::TopicId;

use super::LogDir;
use super::absent_dirs::AbsentDirs;
use super::directory::make_durable;
use super::unknown::is_lost_topic;
use crate::metadata::cluster::Topic;
use crate::metadata::draft::random_id;
use crate::metadata::error::{MetadataError, first_few};
use crate::metadata::frames::{first_line, read_frames, write_frame};
use crate::metadata::image::Image;
use crate::metadata::records::{DirIdentity, Record, to_json};

/// The identity file's name in each log dir.
pub(crate) const IDENTITY_FILE: &str = "directory.id";
/// A file of this name in an empty log dir gives up the records that were there. It counts for one start.
pub(crate) const ACCEPT_LOSS_FILE: &str = "accept-loss";
/// Upper bound of log dirs.
pub(crate) const LOG_DIRS_MAX: usize = 256;
/// Upper bound of an identity file in bytes.
const IDENTITY_BYTES_MAX: u64 = 4096;
const WHAT: &str = "log directory";
/// In a log dir: locked by the server that uses it.
const LOCK_FILE: &str = "lock";

/// A configured directory, recognised.
enum Found {
    /// The known log dir of this index.
    Known(usize),
    /// A log dir of this server that the metadata does not know, with its id, which is durable in it.
    New(String),
}

/// Recognises the configured directories, gives identities to new ones (durable when it returns), and answers the
/// records that bring the image up to date. Leaves those alone that are away. While the owner gives up metadata, no
/// directory is forgotten: lost topics may lie in it.
pub(crate) fn claim(
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
    let mut seen: Vec<bool> = image.node.log_dirs().iter().map(|dir| absent.contains(&dir.path)).collect();
    let mut new: Vec<(String, &PathBuf)> = Vec::new();
    let mut records = Vec::new();
    for path in configured.iter().filter(|path| !absent.contains(path)) {
        let is_copy = match identify(env, image, path).or_else(|error| without_disk(image, path, error))? {
            Found::Known(index) => {
                if image.node.log_dirs()[index].path != *path {
                    records.push(Record::LogDirMoved { index: index_of(index), path: text_of(path) });
                }
                std::mem::replace(&mut seen[index], true)
            }
            Found::New(id) => {
                let is_copy = new.iter().any(|(other, _)| *other == id);
                new.push((id, path));
                is_copy
            }
        };
        if is_copy {
            let reason = "has the identity of another configured log dir; one is a copy".to_owned();
            return Err(MetadataError::LogDir { path: path.clone(), reason });
        }
    }
    for (id, path) in new {
        records.push(match replaced_by(env, image, path, &seen)? {
            Some(index) => {
                seen[index] = true;
                Record::LogDirReplaced { index: index_of(index), id }
            }
            None => Record::LogDirAdded { id, path: text_of(path) },
        });
    }
    let left_out = image.node.log_dirs().iter().enumerate().filter(|(index, _)| !seen[*index]);
    // The last one first: a removal changes the indexes behind it.
    for (index, dir) in left_out.rev() {
        if let Some(reason) = why_needed(env, image, index_of(index), accepts_loss) {
            return Err(not_seen(&dir.path, configured, &reason));
        }
        tracing::warn!(dir = %dir.path.display(), "log.dirs does not name this log dir any more, which holds nothing");
        records.push(Record::LogDirRemoved { index: index_of(index) });
    }
    Ok(records)
}

/// The known log dir that the new one at `path` replaces: it lay there and was not `seen`. It held nothing, or a file in the
/// new one says that its owner gives up what it held.
///
/// The new identity is durable before the metadata has the replacement, and the file goes only after that. So a start that
/// follows a crash in between comes here again, and ends in the same way; if the lost directory is back by then, it is
/// still known, and nothing has been written elsewhere.
fn replaced_by(env: &Env, image: &Image, path: &Path, seen: &[bool]) -> Result<Option<usize>, MetadataError> {
    let Some(index) = known_at(image, path).filter(|index| !seen[*index]) else { return Ok(None) };
    if image.node.is_needed(index_of(index)) {
        if !is_loss_accepted(env, path)? {
            return Ok(None);
        }
        tracing::warn!(dir = %path.display(), "a log dir begins anew: what it held is given up, as its owner wishes");
    }
    Ok(Some(index))
}

/// Removes the files by which owners have accepted a loss: the metadata has it durably, and the next loss is another
/// matter. One that cannot be removed changes nothing as long as its directory has an identity.
pub(crate) fn end_acceptance(env: &Env, log_dirs: &[PathBuf]) {
    for path in log_dirs.iter().map(|dir| dir.join(ACCEPT_LOSS_FILE)) {
        match env.fs.remove_file(&path) {
            Ok(()) => tracing::info!(path = %path.display(), "the file is removed: it counts for one start"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the file cannot be removed; remove it by hand");
            }
        }
    }
}

fn is_loss_accepted(env: &Env, dir: &Path) -> Result<bool, MetadataError> {
    let path = dir.join(ACCEPT_LOSS_FILE);
    env.fs.exists(&path).map_err(MetadataError::io("look at", path))
}

/// The log dir that lay at this path at the last start.
fn known_at(image: &Image, path: &Path) -> Option<usize> {
    image.node.log_dirs().iter().position(|dir| dir.path == path)
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn index_of(index: usize) -> u16 {
    u16::try_from(index).expect("an image has no more log dirs than that")
}

/// The error for a known directory that is at none of the configured paths, and needed for this reason.
fn not_seen(path: &Path, configured: &[PathBuf], reason: &str) -> MetadataError {
    let reason = if configured.iter().any(|other| other == path) {
        format!(
            "another directory lies in its place, but {reason}. If its records are lost for good, a file \
             {ACCEPT_LOSS_FILE} in the other one gives them up"
        )
    } else {
        format!("log.dirs does not name it any more, but {reason}")
    };
    MetadataError::LogDir { path: path.to_owned(), reason }
}

/// Why the server cannot do without a known directory, with the way out.
fn why_needed(env: &Env, image: &Image, index: u16, accepts_loss: bool) -> Option<String> {
    let dir = &image.node.log_dirs()[usize::from(index)];
    if dir.partition_count > 0 {
        let lies_in = |topic: &&&Arc<Topic>| image.node.placement(topic.id).contains(&index);
        let sorted = image.cluster.topics_sorted();
        return Some(format!(
            "{} partitions are in it, of {}: name it again, as long as there are these topics: partitions do not move \
             between log dirs",
            dir.partition_count,
            first_few(sorted.iter().filter(lies_in).map(|topic| &topic.name))
        ));
    }
    let deleted = image.node.doomed_in(index);
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

/// Whether a known directory still lies at its path and holds topics that the metadata does not know. `false` if its disk
/// cannot be asked: nothing on it is changed.
fn is_in_use(env: &Env, dir: &LogDir) -> bool {
    let is_it = match read_identity(env, &dir.path) {
        Ok(Some(Ok(identity))) => identity.dir == dir.id,
        Ok(_) => true,
        Err(_) => false,
    };
    let is_topic = |name: &str| topic_of_directory(name).is_some() || is_lost_topic(name);
    is_it && holds_directory(env, &dir.path, is_topic).unwrap_or(false)
}

/// Keeps a known directory whose disk does not answer: its logs will not open. Refuses an unknown one, and one that was
/// taken away or closed to the server.
fn without_disk(image: &Image, path: &Path, error: MetadataError) -> Result<Found, MetadataError> {
    let is_disk = matches!(&error, MetadataError::Io { source, .. } if !matches!(
        source.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
    ));
    match known_at(image, path).filter(|_| is_disk) {
        Some(index) => {
            tracing::error!(dir = %path.display(), %error, "a log dir cannot be used; its partitions are offline");
            Ok(Found::Known(index))
        }
        None => Err(error),
    }
}

fn identify(env: &Env, image: &Image, path: &Path) -> Result<Found, MetadataError> {
    make_durable(&*env.fs, path).map_err(MetadataError::io("make the directory", path))?;
    let known = known_at(image, path);
    match read_identity(env, path)? {
        Some(Ok(identity)) => {
            // The process that wrote it may have been killed before its name was durable.
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

/// The error for a directory that lies at no known path and has no readable identity.
fn not_recognised(path: &Path, reason: &str, holds_records: bool) -> MetadataError {
    let way_out = if holds_records {
        format!(
            "restore {IDENTITY_FILE} from a copy, or name the directory by the path that it had at the last start"
        )
    } else {
        // It is not needed, unless a known directory was emptied and moved: the start asks for its path then.
        format!("the directory holds no records; remove {IDENTITY_FILE} to have it written anew")
    };
    MetadataError::LogDir { path: path.to_owned(), reason: format!("{reason}: {way_out}") }
}

fn recognise(image: &Image, path: &Path, identity: DirIdentity) -> Result<Found, MetadataError> {
    if *identity.cluster != **image.cluster.id() || identity.node != image.node.id().0 {
        return Err(MetadataError::Foreign {
            path: path.to_owned(),
            found_cluster: identity.cluster,
            found_node: identity.node,
            cluster: image.cluster.id().to_string(),
            node: image.node.id().0,
        });
    }
    if let Some(reason) = why_refused(image, &identity) {
        return Err(MetadataError::LogDir { path: path.to_owned(), reason });
    }
    let known = image.node.log_dirs().iter().position(|dir| dir.id == identity.dir);
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
        Some(index) if holds_records => repair(env, image, path, index, "the identity file is missing"),
        Some(index) if image.node.log_dirs()[index].partition_count > 0 && !is_loss_accepted(env, path)? => {
            fail(format!(
                "it is empty, but {} partitions lay in it at the last start; if another directory has them now, start \
                 without this one first",
                image.node.log_dirs()[index].partition_count
            ))
        }
        Some(_) | None => {
            let id = random_id(&*env.random).to_string();
            write_identity(env, image, path, &id)?;
            Ok(Found::New(id))
        }
    }
}

fn repair(env: &Env, image: &Image, path: &Path, index: usize, reason: &str) -> Result<Found, MetadataError> {
    tracing::warn!(dir = %path.display(), reason, "the identity of a log dir is written anew");
    write_identity(env, image, path, &image.node.log_dirs()[index].id)?;
    Ok(Found::Known(index))
}

/// Why a directory is refused that was given up and is back.
fn why_refused(image: &Image, identity: &DirIdentity) -> Option<String> {
    let start = image.node.given_up_at(&identity.dir)?;
    Some(format!(
        "its records were given up at start {start}, and another directory is used in its place since then, which lies below \
         it if it was mounted there. Unmount it or move it away; to use it as a new log dir, under another path, remove \
         all that is in it"
    ))
}

/// The same for the directory at `path`, if it has a readable identity.
pub(crate) fn why_given_up(env: &Env, image: &Image, path: &Path) -> Option<String> {
    match read_identity(env, path) {
        Ok(Some(Ok(identity))) => why_refused(image, &identity),
        _ => None,
    }
}

/// `None`: there is no identity file. The inner error is why the file cannot be read.
pub(crate) fn read_identity(
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
        cluster: image.cluster.id().to_string(),
        node: image.node.id().0,
        dir: dir_id.to_owned(),
    };
    let mut bytes = first_line(WHAT).into_bytes();
    write_frame(&mut bytes, 0, &to_json(&identity));
    let path = dir.join(IDENTITY_FILE);
    let replaced = atomic_replace(&*env.fs, &path, &bytes);
    replaced.map_err(|error| MetadataError::io("write", path)(error.into()))
}

/// Refuses log dirs that have an owner: the new cluster of a first start cannot be it.
pub(crate) fn check_unowned(env: &Env, configured: &[PathBuf], meta: &Path) -> Result<(), MetadataError> {
    for path in configured {
        if let Ok(Some(Ok(identity))) = read_identity(env, path) {
            let DirIdentity { cluster, node, .. } = identity;
            return Err(MetadataError::Missing { path: path.clone(), cluster, node, meta: meta.to_owned() });
        }
    }
    Ok(())
}

/// Refuses log dirs that a running server uses. A server on a copy of this metadata has the same identities: its marks
/// would get starts that it has not made. Changes nothing.
pub(crate) fn refuse_in_use(env: &Env, configured: &[PathBuf]) -> Result<(), MetadataError> {
    for path in configured {
        let lock = path.join(LOCK_FILE);
        // No file is made where no server was. A disk that does not answer is reported by those who use it.
        if !env.fs.exists(&lock).unwrap_or(false) {
            continue;
        }
        if env.fs.lock(&lock).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            let owner = read_identity(env, path).ok().flatten().and_then(Result::ok);
            let owner = owner.map(|owner| format!(" of cluster {}, node {}", owner.cluster, owner.node));
            return Err(MetadataError::LogDirInUse { path: path.clone(), owner: owner.unwrap_or_default() });
        }
    }
    Ok(())
}

/// The log dir that `path` is, or lies in, with its identity. Those in `own` do not count, whatever their paths.
pub(crate) fn log_dir_around(env: &Env, path: &Path, own: &[PathBuf]) -> Option<(PathBuf, DirIdentity)> {
    let identity_of = |dir: &Path| read_identity(env, dir).ok().flatten()?.ok();
    let own: Vec<_> = own.iter().filter_map(|dir| identity_of(dir)).map(|own| own.dir).collect();
    let mut found = path.ancestors().filter_map(|dir| Some((dir.to_path_buf(), identity_of(dir)?)));
    found.find(|(_, identity)| !own.contains(&identity.dir))
}

/// Whether a directory is a log dir of this server: by its identity, if that was not given up; or by its known path, if it
/// has none that can be read.
pub(crate) fn is_ours(env: &Env, image: &Image, path: &Path) -> bool {
    match read_identity(env, path) {
        Ok(Some(Ok(found))) => {
            let is_own = *found.cluster == **image.cluster.id() && found.node == image.node.id().0;
            is_own && image.node.given_up_at(&found.dir).is_none()
        }
        _ => known_at(image, path).is_some(),
    }
}

/// Whether the directory holds directories of topics.
pub(crate) fn holds_topic_directories(env: &Env, dir: &Path) -> Result<bool, MetadataError> {
    let held = holds_directory(env, dir, |name| topic_of_directory(name).is_some());
    held.map_err(MetadataError::io("read the directory", dir))
}

/// Whether the directory holds a directory of such a name.
fn holds_directory(env: &Env, dir: &Path, is_such: impl Fn(&str) -> bool) -> io::Result<bool> {
    let entries = env.fs.read_dir(dir)?;
    Ok(entries.iter().any(|entry| entry.is_dir && entry.name.to_str().is_some_and(&is_such)))
}

/// The log names a topic's directory by the topic's id in the usual form of a UUID: groups of 8, 4, 4, 4 and 12
/// hexadecimal digits, joined by hyphens.
pub(crate) fn topic_of_directory(name: &str) -> Option<TopicId> {
    let is_uuid = name.split('-').map(str::len).eq([8, 4, 4, 4, 12])
        && name.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    let id = u128::from_str_radix(&name.replace('-', ""), 16).ok()?;
    is_uuid.then(|| TopicId(id.to_be_bytes()))
}

#[cfg(test)]
mod tests;

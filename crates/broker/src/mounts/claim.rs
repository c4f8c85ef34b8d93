//! The claim of one server to append records to a queue: two files in the queue's directory.
//!
//! Each cluster counts producer ids for itself, so the producers that a queue remembers of one cluster mean nothing in another,
//! and would pass for producers of that. Owns `server.lock`, which the server holds that takes records, and
//! `server.producers`: a version, the cluster's id and the offset from which on the producers of batches are that
//! cluster's, each on a line. Guarantees that one server at a time takes records, and that the offset is durable before
//! the first of them. Refuses a queue that another server has.

use std::io;
use std::path::{Path, PathBuf};

use riverrun_env::{Env, LockGuard, atomic_replace, read_whole};
use riverrun_queue::QueueError;
use riverrun_types::Offset;

const LOCK: &str = "server.lock";
const PRODUCERS: &str = "server.producers";
/// The first line of `server.producers` is this and the version.
const MAGIC: &str = "riverrun producers ";
const VERSION: u32 = 1;
/// Longer than any file that a server writes.
const FILE_BYTES_MAX: u64 = 4096;

/// Why a queue cannot be claimed, with the file that is in the way.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClaimError {
    #[error(
        "{}: another server takes records for this queue: stop it, or mount the queue without :rw here",
        path.display()
    )]
    Taken { path: PathBuf },
    #[error("{}: format version {found} is newer than {VERSION}, the newest that is known", path.display())]
    Newer { path: PathBuf, found: u32 },
    #[error("{}: {reason}", path.display())]
    Io { path: PathBuf, reason: String },
    #[error(transparent)]
    Queue(#[from] QueueError),
}

/// This server's right to append produced records, as long as it lives.
///
/// Invariants: batches from `since` on that name a producer came by way of this cluster.
#[derive(Debug)]
pub(super) struct Claim {
    _lock: Box<dyn LockGuard>,
    pub(super) since: Offset,
}

impl Claim {
    /// Claims the queue in `dir`, which is open; `end` gives its end, once no other server appends for clients.
    pub(super) fn take(
        env: &Env,
        dir: &Path,
        cluster: &str,
        end: impl FnOnce() -> Result<Offset, QueueError>,
    ) -> Result<Self, ClaimError> {
        let path = dir.join(LOCK);
        // The file alone: `Queue::open` locks the directory for a moment.
        let lock = env.fs.lock_file(&path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => ClaimError::Taken { path: path.clone() },
            _ => ClaimError::Io { path: path.clone(), reason: error.to_string() },
        })?;
        let end = end()?;
        let path = dir.join(PRODUCERS);
        let known = match read_whole(&*env.fs, &path, FILE_BYTES_MAX) {
            Ok(bytes) => {
                let found = version(&bytes).unwrap_or_default();
                if found > VERSION {
                    return Err(ClaimError::Newer { path, found });
                }
                parse(&bytes, cluster)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(ClaimError::Io { path, reason: error.to_string() }),
        };
        // One beyond the end is of records that a cut of power has taken, or of a queue that was here before.
        if let Some(since) = known.filter(|since| *since <= end) {
            return Ok(Self { _lock: lock, since });
        }
        let text = format!("{MAGIC}{VERSION}\n{cluster}\n{}\n", end.0);
        let written = atomic_replace(&*env.fs, &path, text.as_bytes());
        written.map_err(|error| ClaimError::Io { path, reason: error.to_string() })?;
        Ok(Self { _lock: lock, since: end })
    }
}

/// The version that the file says it has.
fn version(bytes: &[u8]) -> Option<u32> {
    let line = bytes.strip_prefix(MAGIC.as_bytes())?.split(|byte| *byte == b'\n').next()?;
    std::str::from_utf8(line).ok()?.parse().ok()
}

/// The offset, if the file is this cluster's. An invalid file is no cluster's.
fn parse(bytes: &[u8], cluster: &str) -> Option<Offset> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.strip_suffix('\n')?.split('\n');
    let is_ours = lines.next()? == format!("{MAGIC}{VERSION}") && lines.next()? == cluster;
    let offset = lines.next()?.parse().ok().filter(|offset| *offset >= 0)?;
    (is_ours && lines.next().is_none()).then_some(Offset(offset))
}

#[cfg(test)]
mod tests {
    use riverrun_env::FileSystem as _;
    use riverrun_env::sim::SimEnv;

    use super::*;

    fn claim(sim: &SimEnv, cluster: &str, end: i64) -> Result<Claim, ClaimError> {
        Claim::take(&sim.env(), Path::new("/queue"), cluster, || Ok(Offset(end)))
    }

    fn since(sim: &SimEnv, cluster: &str, end: i64) -> i64 {
        claim(sim, cluster, end).expect("free").since.0
    }

    fn sim() -> SimEnv {
        let sim = SimEnv::new(1);
        sim.fs.create_dir_all(Path::new("/queue")).expect("made");
        sim
    }

    #[test]
    fn records_of_another_clusters_producers_are_not_ours() {
        let sim = sim();
        assert_eq!(since(&sim, "a", 10), 10);
        assert_eq!(since(&sim, "a", 25), 10, "it was ours since");
        assert_eq!(since(&sim, "b", 30), 30);
        assert_eq!(since(&sim, "a", 40), 40, "some of it was another's meanwhile");
        assert_eq!(since(&sim, "a", 35), 35, "records were lost");
        assert_eq!(since(&sim, "a", 50), 35);
    }

    #[test]
    fn one_server_at_a_time_takes_records() {
        let sim = sim();
        let first = claim(&sim, "a", 0).expect("free");
        let refused = claim(&sim, "b", 0).expect_err("taken").to_string();
        assert!(refused.contains("server.lock") && refused.contains("another server"), "{refused}");
        drop(first);
        assert!(claim(&sim, "b", 0).is_ok());
    }

    #[test]
    fn a_file_of_a_later_version_is_refused_by_name() {
        let sim = sim();
        let path = Path::new("/queue").join(PRODUCERS);
        atomic_replace(&*sim.fs, &path, b"riverrun producers 2\nanything").expect("written");
        let refused = claim(&sim, "a", 0).expect_err("later").to_string();
        assert!(refused.contains("server.producers") && refused.contains("version 2"), "{refused}");
    }

    #[test]
    fn a_file_that_is_not_whole_is_nobodys() {
        for text in
            ["", "riverrun producers 1\na\n5", "riverrun producers 2\na\n5\n", "x\na\n5\n", "\u{0}\n\n\n"]
        {
            assert_eq!(parse(text.as_bytes(), "a"), None, "{text:?}");
        }
        for text in ["riverrun producers 1\na\n-1\n", "riverrun producers 1\na\n5\n6\n"] {
            assert_eq!(parse(text.as_bytes(), "a"), None, "{text:?}");
        }
        assert_eq!(parse(b"riverrun producers 1\na\n5\n", "a"), Some(Offset(5)));
    }
}

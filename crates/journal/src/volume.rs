//! How much room the journal's volume has, and what the journal may take of it.
//!
//! Below its reserve the journal takes next to nothing more: it makes nothing ahead, goes on in files that it has and
//! that are settled, and grows in small steps, until it is as large as a small part of the reserve. So the reserve stays
//! for those for whom it is kept.

use std::path::{Path, PathBuf};

use riverrun_env::Env;

/// The reserve is this share of the volume at most.
const VOLUME_SHARE: u64 = 20;
/// A journal that is larger than this share of the reserve does not grow into it.
const RESERVE_SHARE: u64 = 8;

/// The volume that a journal's directory is on.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    env: Env,
    dir: PathBuf,
    reserve_bytes: u64,
}

impl Volume {
    pub(crate) fn new(env: &Env, dir: &Path, reserve_bytes: u64) -> Self {
        let total_bytes = env.fs.total_bytes(dir).unwrap_or(u64::MAX);
        let reserve_bytes = reserve_bytes.min(total_bytes / VOLUME_SHARE);
        Self { env: env.clone(), dir: dir.to_path_buf(), reserve_bytes }
    }

    /// Whether less is left than the reserve. Never without one: then the disk itself says when it is full.
    pub(crate) fn is_in_reserve(&self) -> bool {
        self.reserve_bytes > 0
            && self.env.fs.available_bytes(&self.dir).is_ok_and(|available| available < self.reserve_bytes)
    }

    /// What the journal may grow to within the reserve, of which half is for others alone.
    pub(crate) fn bytes_max_in_reserve(&self) -> u64 {
        let available = self.env.fs.available_bytes(&self.dir).unwrap_or(0);
        if available < self.reserve_bytes / 2 { 0 } else { self.share_bytes() }
    }

    /// Whether so many bytes may be put aside: into the reserve, too, because others wait for that, but not into the last
    /// of it. A start needs some space, and so does whoever makes some.
    pub(crate) fn has_room_to_hold(&self, bytes: u64) -> bool {
        let Ok(available) = self.env.fs.available_bytes(&self.dir) else { return true };
        available.checked_sub(bytes).is_some_and(|left| left >= self.share_bytes())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The journal's part of the reserve.
    pub(crate) fn share_bytes(&self) -> u64 {
        self.reserve_bytes / RESERVE_SHARE
    }
}

//! The free space of the journal's volume, and the journal's share of it.
//!
//! Below its reserve the journal takes next to nothing more: it makes nothing ahead, goes on in settled files that it
//! has, and grows in small steps, up to a small part of the reserve. So the reserve stays for its other users.

use std::path::{Path, PathBuf};

use riverrun_env::Env;

/// Divisor: the reserve is at most this share of the volume.
const VOLUME_SHARE: u64 = 20;
/// Divisor: a journal that is larger than this share of the reserve does not grow into it.
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

    /// Whether less space is free than the reserve. Never true without a reserve: then the disk itself says when it
    /// is full.
    pub(crate) fn is_in_reserve(&self) -> bool {
        self.reserve_bytes > 0
            && self.env.fs.available_bytes(&self.dir).is_ok_and(|available| available < self.reserve_bytes)
    }

    /// Bytes that the journal may grow to within the reserve, half of which is for other users alone.
    pub(crate) fn bytes_max_in_reserve(&self) -> u64 {
        let available = self.env.fs.available_bytes(&self.dir).unwrap_or(0);
        if available < self.reserve_bytes / 2 { 0 } else { self.share_bytes() }
    }

    /// Whether there is room for a side file of `bytes`. It may go into the reserve, because a log dir waits for it,
    /// but not into the last of it: a start needs some space, and so does an operator who frees some.
    pub(crate) fn has_room_to_hold(&self, bytes: u64) -> bool {
        let Ok(available) = self.env.fs.available_bytes(&self.dir) else { return true };
        available.checked_sub(bytes).is_some_and(|left| left >= self.share_bytes())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The journal's part of the reserve, in bytes.
    pub(crate) fn share_bytes(&self) -> u64 {
        self.reserve_bytes / RESERVE_SHARE
    }
}

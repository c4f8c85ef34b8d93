//! The room in the log dirs: producers leave a reserve free, so that a volume that fills up still takes group offsets,
//! checkpoints and what deletions write, and records that wait in memory or in a journal find their place.
//!
//! Nothing runs by itself: a volume is asked when somebody appends, and at most every [`LOOK_AGAIN_MS`]. So writing
//! resumes with the next request after there is room again.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use riverrun_env::Env;
use tokio::sync::Notify;

/// Milliseconds for which an answer holds. A disk of today writes less than the default reserve in this time.
const LOOK_AGAIN_MS: u64 = 50;
/// The reserve is this share of a volume at most.
const VOLUME_SHARE: u64 = 20;

#[derive(Debug)]
struct Dir {
    path: PathBuf,
    /// Monotonic time of the next look in milliseconds.
    look_at_ms: AtomicU64,
    is_short: AtomicBool,
}

/// The room in each log dir.
#[derive(Debug)]
pub(crate) struct DirSpace {
    env: Env,
    reserve_bytes: u64,
    dirs: Vec<Dir>,
    shortage: Notify,
}

impl DirSpace {
    pub(crate) fn new(env: &Env, paths: impl Iterator<Item = PathBuf>, reserve_bytes: u64) -> Self {
        let dir = |path| Dir { path, look_at_ms: AtomicU64::new(0), is_short: AtomicBool::new(false) };
        Self { env: env.clone(), reserve_bytes, dirs: paths.map(dir).collect(), shortage: Notify::new() }
    }

    /// Whether producers have to leave alone what room there is.
    pub(crate) fn is_short(&self, dir: usize) -> bool {
        let dir = &self.dirs[dir];
        let now_ms = u64::try_from(self.env.clock.monotonic().as_millis()).unwrap_or(u64::MAX);
        let look_at_ms = dir.look_at_ms.load(Ordering::Relaxed);
        if now_ms >= look_at_ms {
            let next_ms = now_ms + LOOK_AGAIN_MS;
            // One of those who come at the same time looks.
            let claimed =
                dir.look_at_ms.compare_exchange(look_at_ms, next_ms, Ordering::Relaxed, Ordering::Relaxed);
            if claimed.is_ok() {
                self.look(dir);
            }
        }
        dir.is_short.load(Ordering::Relaxed)
    }

    fn look(&self, dir: &Dir) {
        let fs = &self.env.fs;
        // A volume that does not answer is no full one: what is wrong with it shows when it is written to.
        let (Ok(available), Ok(total)) = (fs.available_bytes(&dir.path), fs.total_bytes(&dir.path)) else {
            return;
        };
        let is_short = available < self.reserve_bytes.min(total / VOLUME_SHARE);
        if is_short {
            self.shortage.notify_one();
        }
        if dir.is_short.swap(is_short, Ordering::Relaxed) != is_short {
            let path = dir.path.display();
            if is_short {
                tracing::warn!(dir = %path, available, "a log dir is full up to its reserve; producers are refused");
            } else {
                tracing::info!(dir = %path, available, "a log dir has room again");
            }
        }
    }

    /// Waits until somebody has met a shortage since the last call.
    pub(crate) async fn shortage(&self) {
        self.shortage.notified().await;
    }

    /// What is told of a full dir.
    pub(crate) fn shortage_of(&self, dir: usize) -> String {
        format!(
            "log dir {} is full up to the reserve that producers leave free (log.dir.reserve.bytes)",
            self.dirs[dir].path.display()
        )
    }

    /// A full dir, if one is.
    pub(crate) fn any_short(&self) -> Option<usize> {
        (0..self.dirs.len()).find(|dir| self.is_short(*dir))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use riverrun_env::sim::SimEnv;

    use super::*;

    #[test]
    fn producers_leave_the_reserve_alone_and_go_on_when_there_is_room_again() {
        let sim = SimEnv::new(1);
        let space = DirSpace::new(&sim.env(), ["/a".into()].into_iter(), 1 << 20);
        assert!(!space.is_short(0));
        sim.fs.set_space(Some((1 << 20) - 1));
        assert!(!space.is_short(0), "a look holds for a while");
        sim.clock.advance(Duration::from_millis(LOOK_AGAIN_MS));
        assert!(space.is_short(0) && space.any_short() == Some(0));
        assert!(space.shortage_of(0).contains("/a"));
        sim.fs.set_space(Some(1 << 20));
        sim.clock.advance(Duration::from_millis(LOOK_AGAIN_MS));
        assert!(!space.is_short(0) && space.any_short().is_none());
    }

    #[test]
    fn the_reserve_of_a_small_volume_is_small_and_may_be_none() {
        let sim = SimEnv::new(1);
        // The volume of a simulation is as large as can be.
        for (available, reserve, is_short) in
            [(u64::MAX / 20, u64::MAX, false), (u64::MAX / 20 - 1, u64::MAX, true), (0, 0, false)]
        {
            sim.fs.set_space(Some(available));
            let space = DirSpace::new(&sim.env(), ["/a".into()].into_iter(), reserve);
            assert_eq!(space.is_short(0), is_short, "{available} of a reserve of {reserve}");
        }
    }
}

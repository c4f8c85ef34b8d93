//! Shares of the process's descriptors: half are for files of logs, some for all that a server needs besides, and
//! connections have the rest. So no client, however many connections it makes, keeps a file from being opened.
//!
//! Responses that clients have not taken may hold a quarter of the descriptors for files of logs, and an eighth is kept free
//! for files that the settlers, new logs and reads open for one use. So no client keeps a file from being opened by taking no
//! responses either.

use riverrun_log::StoreOptions;
use rustix::process::{Resource, getrlimit};

use crate::start_error::StartError;

/// For listeners, the runtimes, metadata, standard streams, mounted queues, what is accepted and closed at once, and
/// libraries.
const OTHERS: u64 = 64;
/// Connections to the admin port at once: a few scrapers and probes, each of which has one at a time.
pub(crate) const VISITS_MAX: usize = 16;
/// For each log dir and each journal dir: the dir itself, journals' files, what a checkpoint and the cleaner open for a
/// moment.
const OF_DIR: u64 = 16;
/// Connections that a server has room for at least: with fewer it is of no use.
const CONNECTIONS_MIN: u64 = 16;

/// One of so many descriptors for files of logs is for such as answers hold.
const HELD_SHARE: usize = 4;
/// One of so many is kept free, for files that are opened for one use while all others are open.
const FREE_SHARE: usize = 8;

/// The descriptors of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    limit: u64,
}

impl Descriptors {
    /// Those that it may have now.
    pub(crate) fn of_process() -> Self {
        // `None`: there is no limit.
        Self { limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) }
    }

    /// The log store's share of them, and other defaults of it.
    pub(crate) fn store_options(self) -> StoreOptions {
        let files = self.files();
        StoreOptions {
            open_files_max: files - files / HELD_SHARE - files / FREE_SHARE,
            ..StoreOptions::for_descriptors(self.limit)
        }
    }

    /// How many files answers may hold.
    pub(crate) fn held_files_max(self) -> usize {
        self.files() / HELD_SHARE
    }

    /// All that files of logs have.
    fn files(self) -> usize {
        StoreOptions::for_descriptors(self.limit).open_files_max
    }

    /// How many connections may have one, in a server of so many log dirs and journal dirs.
    pub(crate) fn connections_max(self, dirs: usize) -> Result<usize, StartError> {
        let files = self.files() as u64;
        let others = OTHERS + VISITS_MAX as u64 + OF_DIR * dirs as u64;
        let left = self.limit.saturating_sub(files).saturating_sub(others);
        if left < CONNECTIONS_MIN {
            let needed = 2 * (others + CONNECTIONS_MIN);
            return Err(StartError::Descriptors { limit: self.limit, needed });
        }
        Ok(usize::try_from(left).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_what_files_and_all_else_leave() {
        for (limit, dirs, connections) in [
            (1024, 2, Some(400)),
            (256, 2, Some(16)),
            (254, 2, None),
            (256, 3, None),
            (288, 3, Some(16)),
            (0, 1, None),
        ] {
            let max = Descriptors { limit }.connections_max(dirs);
            assert_eq!(max.ok(), connections, "{limit} with {dirs} dirs");
        }
        assert!(Descriptors { limit: u64::MAX }.connections_max(2).is_ok_and(|max| max > 1 << 60));
        let few = Descriptors { limit: 1024 };
        let (kept, held) = (few.store_options().open_files_max, few.held_files_max());
        assert_eq!((kept, held), (320, 128), "64 of 512 files are free for others");
        let refused = Descriptors { limit: 100 }.connections_max(2).expect_err("too few").to_string();
        assert!(refused.contains("100 open descriptors") && refused.contains("at least 256"), "{refused}");
    }
}

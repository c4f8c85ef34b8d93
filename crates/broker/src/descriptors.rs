//! Shares of the process's descriptors: half are for files of logs, some for all that a server needs besides, and
//! connections have the rest. So no client, however many connections it makes, keeps a file from being opened.

use riverrun_log::StoreOptions;
use rustix::process::{Resource, getrlimit};

use crate::admin::VISITS_MAX;
use crate::start::StartError;

/// For listeners, the runtimes, metadata, standard streams, mounted queues, what is accepted and closed at once, and
/// libraries.
const OTHERS: u64 = 64;
/// For each log dir and each journal dir: the dir itself, journals' files, what a checkpoint and the cleaner open for a
/// moment.
const OF_DIR: u64 = 16;
/// Connections that a server has room for at least: with fewer it is of no use.
const CONNECTIONS_MIN: u64 = 16;

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
        StoreOptions::for_descriptors(self.limit)
    }

    /// How many connections may have one, in a server of so many log dirs and journal dirs.
    pub(crate) fn connections_max(self, dirs: usize) -> Result<usize, StartError> {
        let files = self.store_options().open_files_max as u64;
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
        let refused = Descriptors { limit: 100 }.connections_max(2).expect_err("too few").to_string();
        assert!(refused.contains("100 open descriptors") && refused.contains("at least 256"), "{refused}");
    }
}

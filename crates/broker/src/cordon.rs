//! Which log dirs take no new partitions (KIP-1066): from the text of `cordoned.log.dirs` to the dirs and back.
//!
//! Dirs are kept by their index, so that a cordon stays with its directory when that is found under another path.
//! Refuses a name that is no log dir, and `*` beside other names, as Kafka does. Pure besides the working directory,
//! which relative paths begin at.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Stands for all log dirs.
const ALL_DIRS: &str = "*";

/// Log dirs that take no new partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cordon {
    /// All, also later ones.
    All,
    /// Those of these indexes, in the order of their naming.
    Dirs(Vec<u16>),
}

impl Cordon {
    /// No dir is cordoned.
    pub(crate) fn none() -> Self {
        Self::Dirs(Vec::new())
    }

    /// Cordons the dirs of these names; the error is a sentence for the author of the names. A dir has two names: the path in
    /// the server's configuration, and its absolute path, which clients are told.
    pub(crate) fn parse<N: AsRef<str>>(names: &[N], log_dirs: &[&Path]) -> Result<Self, String> {
        if names.iter().any(|name| name.as_ref() == ALL_DIRS) {
            let is_alone = names.iter().all(|name| name.as_ref() == ALL_DIRS);
            return is_alone.then_some(Self::All).ok_or_else(|| {
                format!("cordoned.log.dirs names other directories beside {ALL_DIRS}, which is all of them")
            });
        }
        let mut dirs = Vec::new();
        for name in names {
            let dir = find(name.as_ref(), log_dirs).ok_or_else(|| unknown(name.as_ref(), log_dirs))?;
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
        Ok(Self::Dirs(dirs))
    }

    /// Without the dirs of these names; other names are ignored. `*` goes by its own name alone.
    pub(crate) fn without(&self, names: &[&str], log_dirs: &[&Path]) -> Self {
        match self {
            Self::Dirs(dirs) => {
                let gone: Vec<u16> = names.iter().filter_map(|name| find(name, log_dirs)).collect();
                Self::Dirs(dirs.iter().filter(|dir| !gone.contains(dir)).copied().collect())
            }
            Self::All if names.contains(&ALL_DIRS) => Self::none(),
            Self::All => Self::All,
        }
    }

    /// Follows the removal of the dir of this index: each dir behind it gets the index before its own.
    pub(crate) fn follow_removal(&mut self, index: u16) {
        if let Self::Dirs(dirs) = self {
            dirs.retain(|dir| *dir != index);
            dirs.iter_mut().filter(|dir| **dir > index).for_each(|dir| *dir -= 1);
        }
    }

    /// Whether the dir of this index is cordoned.
    pub(crate) fn covers(&self, index: usize) -> bool {
        match self {
            Self::All => true,
            Self::Dirs(dirs) => dirs.iter().any(|dir| usize::from(*dir) == index),
        }
    }

    /// Names that mean the same dirs today.
    pub(crate) fn names(&self, log_dirs: &[&Path]) -> Vec<String> {
        match self {
            Self::All => vec![ALL_DIRS.to_owned()],
            Self::Dirs(dirs) => {
                let paths = dirs.iter().filter_map(|dir| log_dirs.get(usize::from(*dir)));
                paths.map(|path| path.to_string_lossy().into_owned()).collect()
            }
        }
    }
}

fn find(name: &str, log_dirs: &[&Path]) -> Option<u16> {
    let is_named = |path: &&Path| Path::new(name) == *path || Path::new(name) == absolute(path);
    log_dirs.iter().position(is_named).and_then(|index| u16::try_from(index).ok())
}

fn unknown(name: &str, log_dirs: &[&Path]) -> String {
    let known: Vec<_> = log_dirs.iter().map(|dir| dir.display().to_string()).collect();
    let known = known.join(",");
    format!("cordoned.log.dirs names {}, which is not in log.dirs ({known})", crate::text::shown(name))
}

/// The absolute path, which means the same in every working directory.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG_DIRS: [&str; 3] = ["/a", "/b", "here/c"];

    fn parse(names: &[&str]) -> Result<Cordon, String> {
        Cordon::parse(names, &LOG_DIRS.map(Path::new))
    }

    #[test]
    fn log_dirs_are_cordoned_by_name_or_all_at_once() {
        let covered = |names: &[&str]| [0, 1].map(|index| parse(names).expect("known").covers(index));
        assert_eq!(covered(&[]), [false, false]);
        assert_eq!(covered(&["/b", "/b"]), [false, true]);
        assert_eq!(covered(&["*"]), [true, true]);
        assert_eq!(covered(&["*", "*"]), [true, true]);
        assert_eq!(parse(&["/b", "/a", "/b"]), Ok(Cordon::Dirs(vec![1, 0])));
    }

    #[test]
    fn subtracted_log_dirs_are_not_cordoned_and_all_goes_as_one() {
        let without = |names: &[&str], gone: &[&str]| {
            parse(names).expect("known").without(gone, &LOG_DIRS.map(Path::new))
        };
        assert_eq!(without(&["/a", "/b"], &["/a", "here/c"]), Cordon::Dirs(vec![1]));
        assert_eq!(without(&["/a", "/b"], &["/z", "/b", "*"]), Cordon::Dirs(vec![0]));
        assert_eq!(without(&["*"], &["/a"]), Cordon::All);
        assert_eq!(without(&["*"], &["*"]), Cordon::none());
        assert_eq!(without(&["/a"], &["*"]), Cordon::Dirs(vec![0]));
    }

    #[test]
    fn a_log_dir_has_its_configured_name_and_its_absolute_one() {
        let here = absolute("here/c".as_ref());
        for name in ["here/c", here.to_str().expect("text")] {
            assert_eq!(parse(&[name]), Ok(Cordon::Dirs(vec![2])), "{name}");
        }
    }

    #[test]
    fn unknown_log_dirs_and_all_beside_others_are_refused() {
        for (names, part) in [(["/a", "/z"], "/z, which is not in log.dirs"), (["*", "/a"], "all of them")] {
            let error = parse(&names).expect_err("refused");
            assert!(error.contains(part), "{error}");
        }
    }
}

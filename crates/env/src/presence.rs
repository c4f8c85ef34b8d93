//! Checks that files and directories in use are still what their names lead to.
//!
//! Files and directories may vanish under a running process, or others take their place: they are removed, renamed,
//! covered by a mount. The system goes on to accept writes to them, and no path leads there any more. So they are
//! recognised by their identity: an open one is compared with what its name leads to now. A closed one is recognised
//! by its size, or by the bytes that it begins with.

use std::fmt;
use std::io;
use std::path::Path;

use crate::{Directory, File, FileSystem, OpenMode, Stat};

/// The fate of a file or a directory that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vanishing {
    /// Nothing is under its name. It may come back, if it was renamed.
    Missing,
    /// It has no name any more: it ends with its last handle.
    Removed,
    /// Something else is under its name.
    Replaced,
    /// Bytes that it had are missing at its end.
    Cut,
    /// It begins with other bytes than those written there.
    Overwritten,
}

impl fmt::Display for Vanishing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "was taken away under the running server",
            Self::Removed => "was removed under the running server",
            Self::Replaced => {
                "is not the one that the running server has opened: something else was put in its place"
            }
            Self::Cut => "was cut under the running server",
            Self::Overwritten => "was written over under the running server",
        })
    }
}

impl Vanishing {
    /// Checks an open directory; `None` if it is in its place.
    pub fn of_directory(fs: &dyn FileSystem, path: &Path, open: &dyn Directory) -> io::Result<Option<Self>> {
        Ok(Self::compare(open.stat()?, named(fs, path)?))
    }

    /// As [`Self::of_directory`], for an open file.
    pub fn of_open_file(fs: &dyn FileSystem, path: &Path, open: &dyn File) -> io::Result<Option<Self>> {
        Ok(Self::compare(open.stat()?, named(fs, path)?))
    }

    /// As [`Self::of_directory`], for a file that may be open, and has at least `len_min` bytes.
    pub fn of_file(
        fs: &dyn FileSystem,
        path: &Path,
        open: Option<&dyn File>,
        len_min: u64,
    ) -> io::Result<Option<Self>> {
        let named = named(fs, path)?;
        let of_open = match open {
            Some(open) => Self::compare(open.stat()?, named),
            None => None,
        };
        Ok(of_open.or(match named {
            None => Some(Self::Missing),
            Some(stat) if stat.is_dir => Some(Self::Replaced),
            Some(stat) if stat.len < len_min => Some(Self::Cut),
            Some(_) => None,
        }))
    }

    /// As [`Self::of_directory`], for a file that begins with `head`, as the page cache has it.
    pub fn of_head(fs: &dyn FileSystem, path: &Path, head: &[u8]) -> io::Result<Option<Self>> {
        let mut found = vec![0; head.len()];
        let read = fs.open(path, OpenMode::Read).and_then(|file| file.read_exact_at(&mut found, 0));
        match read {
            Ok(()) => Ok((found != head).then_some(Self::Overwritten)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Some(Self::Cut)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Self::Missing)),
            Err(error) => Err(error),
        }
    }

    fn compare(opened: Stat, named: Option<Stat>) -> Option<Self> {
        match named {
            Some(named) if named.identity == opened.identity => None,
            Some(_) => Some(Self::Replaced),
            None if opened.links == 0 => Some(Self::Removed),
            None => Some(Self::Missing),
        }
    }
}

/// The file or directory under a name; `None` if there is none.
fn named(fs: &dyn FileSystem, path: &Path) -> io::Result<Option<Stat>> {
    match fs.stat(path) {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimEnv;

    #[test]
    fn fates_of_a_file_are_distinguished() {
        let sim = SimEnv::new(1);
        let fs = &*sim.fs;
        let (path, away) = (Path::new("/d/f"), Path::new("/away"));
        fs.create_dir_all(Path::new("/d")).unwrap();
        let file = fs.open(path, OpenMode::CreateNew).unwrap();
        file.write_all_at(b"abc", 0).unwrap();
        let look = |open: Option<&dyn File>| Vanishing::of_file(fs, path, open, 3).unwrap();
        let both = || [look(Some(&*file)), look(None)];
        assert_eq!(both(), [None; 2]);
        fs.rename(Path::new("/d"), away).unwrap();
        assert_eq!(both(), [Some(Vanishing::Missing); 2]);
        fs.rename(away, Path::new("/d")).unwrap();
        assert_eq!(both(), [None; 2], "it is back");
        file.set_len(2).unwrap();
        assert_eq!(both(), [Some(Vanishing::Cut); 2]);
        fs.remove_file(path).unwrap();
        assert_eq!(both(), [Some(Vanishing::Removed), Some(Vanishing::Missing)]);
        fs.open(path, OpenMode::CreateNew).unwrap().write_all_at(b"another", 0).unwrap();
        assert_eq!(both(), [Some(Vanishing::Replaced), None], "a closed one is known by its size only");
        fs.remove_file(path).unwrap();
        fs.create_dir(path).unwrap();
        assert_eq!(both(), [Some(Vanishing::Replaced); 2]);
    }

    #[test]
    fn heads_of_a_file_are_distinguished() {
        let sim = SimEnv::new(1);
        let (fs, path) = (&*sim.fs, Path::new("/f"));
        let look = || Vanishing::of_head(fs, path, b"head").unwrap();
        assert_eq!(look(), Some(Vanishing::Missing));
        let file = fs.open(path, OpenMode::CreateNew).unwrap();
        file.write_all_at(b"head and more", 0).unwrap();
        assert_eq!(look(), None);
        file.write_all_at(b"b", 0).unwrap();
        assert_eq!(look(), Some(Vanishing::Overwritten));
        file.set_len(3).unwrap();
        assert_eq!(look(), Some(Vanishing::Cut));
    }

    #[test]
    fn fates_of_a_directory_are_distinguished() {
        let sim = SimEnv::new(1);
        let fs = &*sim.fs;
        let (path, away) = (Path::new("/d"), Path::new("/away"));
        fs.create_dir(path).unwrap();
        let open = fs.open_dir(path).unwrap();
        let look = || Vanishing::of_directory(fs, path, &*open).unwrap();
        assert_eq!(look(), None);
        fs.rename(path, away).unwrap();
        assert_eq!(look(), Some(Vanishing::Missing));
        fs.create_dir(path).unwrap();
        assert_eq!(look(), Some(Vanishing::Replaced));
        fs.remove_dir(path).unwrap();
        fs.rename(away, path).unwrap();
        assert_eq!(look(), None);
        fs.remove_dir(path).unwrap();
        assert_eq!(look(), Some(Vanishing::Removed));
    }
}

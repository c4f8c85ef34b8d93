//! Opening files only as files, and directories only as directories.
//!
//! Guarantees that an opening never waits, whatever lies under the name: a FIFO would block its opener until its
//! other end is opened, and its reader for ever. The open handle is checked, not the name, which may change. A link
//! in place of a file is not followed, because the bytes would go to a foreign file; a link in place of a directory
//! is.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use riverrun_types::TimestampMs;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::{Identity, OddFile, Stat};

/// These flags keep the opening from waiting, from giving the process a terminal, and from following a link. None of
/// them changes how a file is used.
const ONLY_A_FILE: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::NOFOLLOW);
const A_FILE: &str = "a file";
const A_DIRECTORY: &str = "a directory";

/// Opens a file with these options, and these flags of the system.
pub(super) fn open_file(path: &Path, options: &mut OpenOptions, flags: OFlags) -> io::Result<File> {
    options.custom_flags(ONLY_A_FILE.union(flags).bits().cast_signed());
    match options.open(path) {
        Ok(file) => check_file(file),
        // A link, a socket, or a device node without a device cannot be opened at all: its name tells its kind.
        Err(error) => Err(odd_at(path).unwrap_or(error)),
    }
}

/// As [`open_file`], for an existing file, for reading and writing past the page cache.
pub(super) fn open_direct(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC | ONLY_A_FILE;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => check_file(file.into()),
        Err(error) => Err(odd_at(path).unwrap_or_else(|| match error {
            Errno::INVAL => io::Error::new(
                io::ErrorKind::Unsupported,
                format!("{}: the file system has no O_DIRECT", path.display()),
            ),
            error => error.into(),
        })),
    }
}

/// Opens a directory.
pub(super) fn open_dir(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

fn check_file(file: File) -> io::Result<File> {
    match odd(&file.metadata()?) {
        Some(odd) => Err(odd.into()),
        None => Ok(file),
    }
}

fn odd_at(path: &Path) -> Option<io::Error> {
    odd(&fs::symlink_metadata(path).ok()?).map(io::Error::from)
}

/// The kind that it has instead of a file's.
fn odd(metadata: &fs::Metadata) -> Option<OddFile> {
    let file_type = metadata.file_type();
    let found = match () {
        () if file_type.is_file() => return None,
        () if file_type.is_dir() => A_DIRECTORY,
        () if file_type.is_symlink() => "a link",
        () if file_type.is_fifo() => "a FIFO",
        () if file_type.is_socket() => "a socket",
        () => "a device",
    };
    Some(OddFile { found, wanted: A_FILE })
}

/// The facts in the system's metadata.
pub(super) fn stat_of(metadata: &fs::Metadata) -> Stat {
    let is_dir = metadata.is_dir();
    Stat {
        identity: Identity { device: metadata.dev(), inode: metadata.ino() },
        is_dir,
        links: metadata.nlink(),
        len: if is_dir { 0 } else { metadata.len() },
        modified: TimestampMs(
            metadata.mtime().saturating_mul(1000).saturating_add(metadata.mtime_nsec() / 1_000_000),
        ),
    }
}

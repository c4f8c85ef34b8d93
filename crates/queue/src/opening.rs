//! Opening files only as files, and directories only as directories.
//!
//! Guarantees that no call blocks, whatever lies under the name: opening a FIFO would wait for its other end, and
//! reading it could wait for ever. The check is made on the opened file and not on its name, which may change. A
//! symbolic link in place of a file is not followed: writes would go to the file of another owner.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Opens a regular file with these options.
pub(crate) fn open_file(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW);
    match options.open(path) {
        Ok(file) => check(&file.metadata()?).map(|()| file),
        // A link, a socket or a device without a driver cannot be opened at all: only its name tells what it is.
        Err(error) => {
            Err(std::fs::symlink_metadata(path).ok().and_then(|found| check(&found).err()).unwrap_or(error))
        }
    }
}

/// Opens an existing file for reading.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    open_file(OpenOptions::new().read(true), path)
}

/// Opens a directory.
pub(crate) fn open_dir(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NONBLOCK).open(path)
}

fn check(metadata: &std::fs::Metadata) -> io::Result<()> {
    let file_type = metadata.file_type();
    let (kind, found) = match () {
        () if file_type.is_file() => return Ok(()),
        () if file_type.is_dir() => (io::ErrorKind::IsADirectory, "a directory"),
        () if file_type.is_symlink() => (io::ErrorKind::InvalidInput, "a link"),
        () if file_type.is_fifo() => (io::ErrorKind::InvalidInput, "a FIFO"),
        () if file_type.is_socket() => (io::ErrorKind::InvalidInput, "a socket"),
        () => (io::ErrorKind::InvalidInput, "a device"),
    };
    Err(io::Error::new(kind, format!("it is {found}, where a file is expected")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_file_is_refused_by_its_type() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        assert!(std::process::Command::new("mkfifo").arg(at("fifo")).status().expect("run").success());
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("bound");
        std::fs::write(at("file"), "another owner's").expect("written");
        std::os::unix::fs::symlink(at("file"), at("link")).expect("linked");
        std::fs::create_dir(at("directory")).expect("made");
        for name in ["fifo", "socket", "link", "directory"] {
            for is_written in [false, true] {
                let mut options = OpenOptions::new();
                options.read(true).write(is_written).create(is_written);
                let error =
                    open_file(&mut options, &at(name)).expect_err("no file").to_string().to_lowercase();
                assert!(error.starts_with(&format!("it is a {name}, where")), "{error}");
            }
            assert_eq!(open_dir(&at(name)).is_ok(), name == "directory");
        }
        let error = open_to_read(Path::new("/dev/zero")).expect_err("no file").to_string();
        assert!(error.starts_with("it is a device, where"), "{error}");
    }
}

//! Shared by the tests of several files: a queue's files as a power cut may leave them.

use std::io::ErrorKind::NotFound;
use std::path::Path;

use tempfile::TempDir;

/// Place of the synced position in the control file, and the start of its synced marks; they reach to the end.
const SYNCED: std::ops::Range<usize> = 8192..8200;
const MARKS_AT: usize = 12288;

/// The control file, to restore its synced mark later.
pub(crate) fn control_of(dir: &Path) -> Vec<u8> {
    std::fs::read(dir.join("queue.control")).unwrap()
}

/// A copy of the queue in `dir`, as on a disk that got all bytes and lost every synced mark since `control_before`:
/// the syncer moves the mark at any time. It is another life, because the copied files have other inodes.
pub(crate) fn after_a_cut_of_power(dir: &Path, control_before: &[u8]) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let name = entry.file_name();
        if !entry.file_type().unwrap().is_file() {
            continue;
        }
        match std::fs::copy(entry.path(), copy.path().join(&name)) {
            // Files that the keeper prepares come and go, and hold nothing.
            Err(error) if error.kind() == NotFound && name.to_string_lossy().starts_with("segment.") => {}
            copied => assert!(copied.is_ok(), "{}: {copied:?}", name.display()),
        }
    }
    let mut control = control_of(dir);
    control[MARKS_AT..].copy_from_slice(&control_before[MARKS_AT..]);
    control[SYNCED].copy_from_slice(&control_before[SYNCED]);
    std::fs::write(copy.path().join("queue.control"), control).unwrap();
    copy
}

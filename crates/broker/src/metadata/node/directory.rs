//! Directories that survive a loss of power: made, and written into the directories above them.

use std::io;
use std::path::Path;

use riverrun_env::FileSystem;

/// Makes the directory and those above it, topmost first; each is durable before the next is made. So of those that a
/// killed process has made, only the lowest may not be durable yet: it is synced, too.
pub(crate) fn make_durable(fs: &dyn FileSystem, path: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut at = path;
    while !fs.exists(at)? {
        missing.push(at);
        at = above(at);
    }
    match fs.sync_dir(above(at)) {
        Err(error) if cannot_be_ours(&error) => {}
        synced => synced?,
    }
    for directory in missing.into_iter().rev() {
        fs.create_dir_all(directory)?;
        fs.sync_dir(above(directory))?;
    }
    Ok(())
}

/// Whether this error of a sync shows that we have made nothing in the directory: we may not open it, or its file system
/// is read-only or knows no such sync.
fn cannot_be_ours(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::Unsupported
    )
}

/// The directory that holds this one; the root holds itself.
fn above(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use riverrun_env::sim::SimEnv;

    use super::*;

    #[test]
    fn a_directory_survives_a_power_cut() {
        for seed in 0..20 {
            let sim = SimEnv::new(seed);
            make_durable(&*sim.fs, "/a/b/c".as_ref()).expect("made");
            sim.fs.crash();
            assert!(sim.fs.exists("/a/b/c".as_ref()).expect("readable"), "seed {seed}");
        }
    }

    #[test]
    fn directory_made_again_after_a_kill_survives_a_power_cut() {
        for stop in 0..8 {
            let sim = SimEnv::new(1);
            sim.fs.stop_after(stop);
            let is_made = make_durable(&*sim.fs, "/a/b/c".as_ref()).is_ok();
            sim.fs.kill();
            make_durable(&*sim.fs, "/a/b/c".as_ref()).expect("made");
            for state in sim.fs.crash_states(100) {
                assert!(state.exists("/a/b/c".as_ref()).expect("readable"), "stop {stop}");
            }
            assert_eq!(is_made, stop >= 7, "a sync of the root, and two operations for each directory");
        }
    }
}

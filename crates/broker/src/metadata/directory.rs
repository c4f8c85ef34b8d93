//! Directories that survive a loss of power: made, and written into the directories above them.

use std::io;
use std::path::Path;

use riverrun_env::FileSystem;

/// Makes the directory and those above it; each that was made is durable when it returns.
pub(crate) fn make_durable(fs: &dyn FileSystem, path: &Path) -> io::Result<()> {
    let mut made = Vec::new();
    let mut at = Some(path);
    while let Some(directory) = at.filter(|directory| !directory.as_os_str().is_empty()) {
        if fs.exists(directory)? {
            break;
        }
        made.push(directory);
        at = directory.parent();
    }
    fs.create_dir_all(path)?;
    for directory in made {
        let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
        fs.sync_dir(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
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
}

//! The file system of a directory, and whether its sync reports lost writes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::opening;
use crate::Volume;

/// `f_type` of overlayfs (`linux/magic.h`). The pages belong to the file system below, which records lost writes
/// there; a sync of the overlay does not ask for them.
const OVERLAYFS_MAGIC: u64 = 0x794c_7630;
/// Major and minor version of the first kernel whose `syncfs` reports lost writes (syncfs(2)).
const TELLING_KERNEL: (u32, u32) = (5, 8);

/// A descriptor of a directory, for syncs of its whole file system.
#[derive(Debug)]
pub(super) struct RealVolume {
    directory: File,
    device: u64,
    tells_of_lost_writes: bool,
}

impl RealVolume {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let directory = opening::open_dir(path)?;
        let type_id = u64::try_from(rustix::fs::fstatfs(&directory)?.f_type).unwrap_or_default();
        let tells_of_lost_writes = type_id != OVERLAYFS_MAGIC && kernel_version()? >= TELLING_KERNEL;
        let device = directory.metadata()?.dev();
        Ok(Self { directory, device, tells_of_lost_writes })
    }
}

impl Volume for RealVolume {
    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.directory)?)
    }

    fn tells_of_lost_writes(&self) -> bool {
        self.tells_of_lost_writes
    }

    fn holds(&self, path: &Path) -> io::Result<bool> {
        Ok(fs::metadata(path)?.dev() == self.device)
    }
}

/// Major and minor version of the kernel; zeros if its name has another form, as of an unknown kernel.
fn kernel_version() -> io::Result<(u32, u32)> {
    Ok(parse_release(&fs::read_to_string("/proc/sys/kernel/osrelease")?).unwrap_or_default())
}

fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_holds_what_is_of_its_own_file_system() {
        let directory = tempfile::tempdir().unwrap();
        let volume = RealVolume::open(directory.path()).unwrap();
        let below = directory.path().join("below");
        assert_eq!(volume.holds(&below).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::create_dir(&below).unwrap();
        assert!(volume.holds(&below).unwrap());
        std::os::unix::fs::symlink("/proc", directory.path().join("link")).unwrap();
        assert!(!volume.holds(&directory.path().join("link")).unwrap());
    }

    #[test]
    fn kernels_are_told_apart_by_their_release() {
        assert_eq!(parse_release("5.4.0-216-generic\n"), Some((5, 4)));
        assert_eq!(parse_release("4.14.355-276.639.amzn2.x86_64"), Some((4, 14)));
        assert_eq!(parse_release("6.18.1"), Some((6, 18)));
        assert_eq!(parse_release("5.8-rc1"), Some((5, 8)));
        assert_eq!(parse_release("unknown"), None);
        assert!(Some((4, 19)) < Some(TELLING_KERNEL) && (10, 0) > TELLING_KERNEL);
    }
}

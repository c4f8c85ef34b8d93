//! A disk that can lose its power: a file system in an image, mounted through a loop device.
//!
//! Shutting the file system down without flushing its log drops everything that was not synced, directory entries too,
//! as a loss of power does. That is one call of the kernel. A sync that returned before the call began is on the disk,
//! and one that begins after it has ended fails. A sync that is under way during the call may return success, though
//! nothing is on the disk, because aborting the log releases the threads that wait for it. After a real loss of power
//! no process would get that result.
//!
//! The image lies in the run's directory and nothing else is touched; however a run ends, the mount is removed. The
//! loop device itself is a disk without a volatile cache: a write that reached it is kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use riverrun_bench::ballast::take_all_room;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

use crate::clients::exec;
use crate::clients::install::Kit;

/// Longest making, mounting or unmounting.
const TOOL_LIMIT: Duration = Duration::from_mins(1);

/// A process that was just killed may keep its files open for an instant.
const UNMOUNT_TRIES: u32 = 100;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(50);

/// The call that shuts a file system down, and its flag: at once, without flushing. XFS and ext4 share both.
const GOING_DOWN: Opcode = opcode::read::<u32>(b'X', 125);
const NOTHING_FLUSHED: u32 = 2;

/// A file that reduces the free space, and one that takes the rest of it.
const BALLAST: &str = "ballast";
const FILLER: &str = "filler";

/// Size of an image that tests whether mounts are allowed: the smallest that every file system takes.
const TRIAL_BYTES: u64 = 320 << 20;

/// File system of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileSystem {
    /// XFS
    Xfs,
    /// ext4
    Ext4,
    /// Memory, which has no power to lose: for a full disk below a queue alone
    Tmpfs,
}

impl FileSystem {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Xfs => "xfs",
            Self::Ext4 => "ext4",
            Self::Tmpfs => "tmpfs",
        }
    }

    /// The package that it needs.
    pub(super) fn kit(self) -> Option<Kit> {
        match self {
            Self::Xfs => Some(Kit::Xfs),
            Self::Ext4 => Some(Kit::Ext4),
            Self::Tmpfs => None,
        }
    }

    /// The command that makes it in an image; `None` if it lies in no image.
    fn make(self) -> Option<Command> {
        let mut command = Command::new(format!("mkfs.{}", self.name()));
        match self {
            Self::Xfs => command.arg("-q"),
            // No blocks reserved for the super user, which runs this: a full disk is to be full.
            Self::Ext4 => command.args(["-q", "-m", "0"]),
            Self::Tmpfs => return None,
        };
        Some(command)
    }
}

/// A mounted image. For a file system in memory the size of the image is only its limit.
///
/// Invariants: `mounted` says whether it is mounted; when this is dropped it is not.
#[derive(Debug)]
pub(crate) struct Disk {
    fs: FileSystem,
    image: PathBuf,
    mount: PathBuf,
    mounted: bool,
}

impl Disk {
    /// Makes an image of this size in `dir`, and mounts it there.
    pub(crate) fn make(fs: FileSystem, dir: &Path, bytes: u64) -> anyhow::Result<Self> {
        let (image, mount) = (dir.join("disk.img"), dir.join("disk"));
        fs::File::create_new(&image)?.set_len(bytes)?;
        fs::create_dir(&mount)?;
        if let Some(mut make) = fs.make() {
            tool(make.arg(&image))?;
        }
        let mut disk = Self { fs, image, mount, mounted: false };
        disk.mount()?;
        Ok(disk)
    }

    /// The mount point.
    pub(crate) fn path(&self) -> &Path {
        &self.mount
    }

    /// Free bytes for a file.
    pub(crate) fn free_bytes(&self) -> anyhow::Result<u64> {
        let space = rustix::fs::statvfs(&self.mount)?;
        Ok(space.f_bavail * space.f_frsize)
    }

    /// Reduces the free space to this many bytes.
    pub(super) fn leave(&self, bytes: u64) -> anyhow::Result<()> {
        let ballast = fs::File::create_new(self.mount.join(BALLAST))?;
        let excess = self.free_bytes()?.saturating_sub(bytes);
        rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, excess)?;
        Ok(())
    }

    /// Returns this much of the space taken by [`leave`](Self::leave).
    pub(super) fn give_back(&self, bytes: u64) -> anyhow::Result<()> {
        let ballast = fs::File::options().write(true).open(self.mount.join(BALLAST))?;
        Ok(ballast.set_len(ballast.metadata()?.len().saturating_sub(bytes))?)
    }

    fn mount(&mut self) -> anyhow::Result<()> {
        let mut mount = Command::new("mount");
        if self.fs == FileSystem::Tmpfs {
            mount.args(["-t", "tmpfs", "-o", &format!("size={}", fs::metadata(&self.image)?.len())]);
        } else {
            mount.args(["-o", "loop"]);
        }
        tool(mount.arg(&self.image).arg(&self.mount))?;
        self.mounted = true;
        if self.fs != FileSystem::Tmpfs {
            self.pass_by_page_cache();
        }
        Ok(())
    }

    /// Makes the loop device write to the image past the page cache, as a disk would: else its first sync has to wait
    /// for everything that was ever written to it. If the image's file system cannot do that, the device stays as it
    /// is.
    fn pass_by_page_cache(&self) {
        let device =
            exec::run_ok(Command::new("findmnt").args(["-no", "SOURCE"]).arg(&self.mount), b"", TOOL_LIMIT);
        if let Ok(device) = device {
            drop(tool(Command::new("losetup").arg("--direct-io=on").arg(device.stdout.trim())));
        }
    }

    /// Takes all the remaining space, until [`relieve`](Self::relieve).
    pub(crate) fn fill(&self) -> anyhow::Result<()> {
        let filler = fs::File::create_new(self.mount.join(FILLER))?;
        Ok(take_all_room(&filler)?)
    }

    /// Returns the space taken by [`fill`](Self::fill).
    pub(crate) fn relieve(&self) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.mount.join(FILLER))?)
    }

    /// Cuts the power: from then on nothing is written, and every call on the mount fails.
    #[expect(unsafe_code, reason = "no library wraps this call safely")]
    pub(super) fn cut(&self) -> anyhow::Result<()> {
        let root = fs::File::open(&self.mount)?;
        // SAFETY: the call takes the address of four bytes, which it only reads.
        let down = unsafe { ioctl(&root, Setter::<GOING_DOWN, u32>::new(NOTHING_FLUSHED)) };
        down.with_context(|| format!("{} cannot be shut down", self.fs.name()))
    }

    /// Mounts it again, with the content of the disk. No process may have files open in it.
    pub(super) fn restore(&mut self) -> anyhow::Result<()> {
        self.unmount()?;
        self.mount()
    }

    fn unmount(&mut self) -> anyhow::Result<()> {
        for _ in 1..UNMOUNT_TRIES {
            if tool(Command::new("umount").arg(&self.mount)).is_ok() {
                self.mounted = false;
                return Ok(());
            }
            thread::sleep(UNMOUNT_PAUSE);
        }
        tool(Command::new("umount").arg(&self.mount))?;
        self.mounted = false;
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted && self.unmount().is_err() {
            // A process with open files keeps the image until it ends; the mount is removed now.
            if let Err(error) = tool(Command::new("umount").arg("-l").arg(&self.mount)) {
                eprintln!("{} is still mounted: {error:#}", self.mount.display());
            }
        }
    }
}

fn tool(command: &mut Command) -> anyhow::Result<()> {
    exec::run_ok(command, b"", TOOL_LIMIT).map(drop)
}

/// Checks that this machine allows mounting images and shutting them down; the error names what is missing.
pub(crate) fn allowed(fs: FileSystem) -> anyhow::Result<()> {
    let dir = std::env::temp_dir().join(format!("riverrun-crash-trial-{}", std::process::id()));
    fs::create_dir(&dir)?;
    let result = Disk::make(fs, &dir, TRIAL_BYTES).and_then(|mut disk| {
        if fs == FileSystem::Tmpfs {
            return Ok(());
        }
        fs::write(disk.path().join("trial"), "not synced")?;
        disk.cut()?;
        disk.restore()?;
        if disk.path().join("trial").exists() {
            bail!("a file that was not synced is there after the power was cut");
        }
        Ok(())
    });
    fs::remove_dir_all(&dir)?;
    result.with_context(|| {
        format!(
            "{} cannot be mounted and shut down here; that takes a super user, and for an image loop devices and the file \
             system's mkfs",
            fs.name()
        )
    })
}

//! The disk of the server, filled while a load goes on, and freed again.
//!
//! Owns the file that takes the free space. Guarantees that it is removed when [`DiskFull`] is dropped, and that no
//! bytes are written for it. Refuses the file system of `/`, since more than the server would suffer, and file systems
//! without a disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::statvfs;
use serde::Serialize;

use super::error::RunError;
use crate::ballast::take_all_room;
use crate::environment::FileSystem;
use crate::plan::Plan;
use crate::worker::Counts;

/// Name of the file.
const FILE_NAME: &str = "riverrun-bench-ballast.tmp";
/// A file system that shows the files of another one, as in containers.
const OVERLAY: &str = "overlay";

/// Effects of a full disk on a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskFullFigures {
    /// When the disk was full, from the beginning of the measurement.
    pub full_at_s: f64,
    /// When there was room again.
    pub freed_at_s: f64,
    /// Records that were acked while it was full: they went into room that the server had reserved.
    pub acked_meanwhile: u64,
    /// Time from the freeing to the first ack; `None` if no record was acked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_ack_s: Option<f64>,
}

/// The file system of a directory, as far as the system describes it.
#[derive(Clone, Debug, Default)]
struct Place {
    device: u64,
    /// 0 if it has none.
    id: u64,
    /// Blocks and files that it can hold.
    size: (u64, u64),
    kind: String,
    source: String,
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        let space = statvfs(path)?;
        let FileSystem { kind, source, .. } = FileSystem::of(path).unwrap_or_default();
        let (device, size) = (path.metadata()?.dev(), (space.f_blocks, space.f_files));
        Ok(Self { device, id: space.f_fsid, size, kind, source })
    }

    /// The reason not to fill it, given the file system of `/` as `root`.
    fn fault(&self, root: &Self) -> Option<&'static str> {
        // Parts of one file system may have devices and ids of their own, but their source is the same.
        let is_same_source = self.source.starts_with('/') && self.source == root.source;
        // An overlay does not name the file system below it, but has its size.
        let is_under_root = root.kind == OVERLAY && self.size == root.size;
        let is_same_id = self.id != 0 && self.id == root.id;
        if self.device == root.device || is_same_source || is_same_id || is_under_root {
            return Some("the file system of / is never filled: give the server one of its own");
        }
        match self.kind.as_str() {
            "tmpfs" | "ramfs" | "devtmpfs" => Some("memory is never filled: give the server a disk"),
            OVERLAY => Some("an overlay shares the file system below it: give the server one of its own"),
            _ => None,
        }
    }
}

#[derive(Debug)]
enum State {
    Before,
    Full,
    Freed,
}

/// The disk of a run that fills it.
///
/// Invariants: the file exists while `state` is `Full`, and not otherwise.
#[derive(Debug)]
pub(super) struct DiskFull {
    path: PathBuf,
    file: Option<File>,
    fill_at: Duration,
    lasts: Duration,
    begun: Instant,
    state: State,
    figures: DiskFullFigures,
}

impl DiskFull {
    /// `None` if the plan leaves the disk alone. `directory` lies on the file system that may be filled.
    pub(super) fn new(plan: &Plan, directory: Option<&Path>) -> Result<Option<Self>, RunError> {
        let Some(lasts) = plan.disk_full else { return Ok(None) };
        let refused = |reason: &str| Err(RunError::DiskFull(reason.to_owned()));
        let Some(directory) = directory else { return refused("no file system was named to fill") };
        if let Some(reason) = Place::of(directory)?.fault(&Place::of(Path::new("/"))?) {
            return refused(reason);
        }
        Ok(Some(Self {
            path: directory.join(FILE_NAME),
            file: None,
            fill_at: plan.test / 3,
            lasts,
            begun: Instant::now(),
            state: State::Before,
            figures: DiskFullFigures::default(),
        }))
    }

    /// Begins with the measurement.
    pub(super) fn begin(&mut self) {
        self.begun = Instant::now();
    }

    /// Fills or frees the disk when it is time; `counts` are those since the last look.
    pub(super) fn look(&mut self, counts: &Counts) -> io::Result<()> {
        let elapsed = self.begun.elapsed();
        match self.state {
            State::Before if elapsed >= self.fill_at => {
                self.fill()?;
                self.figures.full_at_s = self.begun.elapsed().as_secs_f64();
                self.state = State::Full;
            }
            State::Full => {
                self.figures.acked_meanwhile += counts.acked;
                if elapsed >= self.fill_at + self.lasts {
                    self.free()?;
                    self.figures.freed_at_s = self.begun.elapsed().as_secs_f64();
                    self.state = State::Freed;
                } else {
                    // Takes also the room that the server has given back meanwhile.
                    self.fill()?;
                }
            }
            State::Freed if self.figures.first_ack_s.is_none() && counts.acked > 0 => {
                self.figures.first_ack_s = Some(elapsed.as_secs_f64() - self.figures.freed_at_s);
            }
            State::Before | State::Freed => {}
        }
        Ok(())
    }

    pub(super) fn figures(&self) -> DiskFullFigures {
        self.figures
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            self.file = Some(options.write(true).create(true).truncate(true).open(&self.path)?);
        }
        self.file.as_ref().map_or(Ok(()), take_all_room)
    }

    fn free(&mut self) -> io::Result<()> {
        match self.file.take() {
            Some(_) => std::fs::remove_file(&self.path),
            None => Ok(()),
        }
    }
}

impl Drop for DiskFull {
    fn drop(&mut self) {
        if let Err(error) = self.free() {
            tracing::error!(%error, path = %self.path.display(), "the file that fills the disk stays behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::omb::{Driver, PlanOptions, Workload, to_plan};

    fn plan() -> Plan {
        let text = "name: n\ntopics: 1\npartitionsPerTopic: 1\nmessageSize: 9\nproducersPerTopic: 1
producerRate: 7\ntestDurationMinutes: 3\ndiskFullMinutes: 1\n";
        let workload = Workload::parse("w", text).expect("a workload");
        to_plan("w", &workload, &Driver::default(), &PlanOptions::default()).expect("a plan")
    }

    fn acked(acked: u64) -> Counts {
        Counts { acked, ..Counts::default() }
    }

    #[test]
    fn file_system_of_the_machine_is_never_filled() {
        for (directory, reason) in [(Some(Path::new("/")), "never filled"), (None, "was named to fill")] {
            let error = DiskFull::new(&plan(), directory).expect_err("refused");
            assert!(error.to_string().contains(reason), "{error}");
        }
        let other = Plan { disk_full: None, ..plan() };
        assert!(DiskFull::new(&other, None).expect("nothing to refuse").is_none());
    }

    #[test]
    fn shared_space_and_memory_are_never_filled() {
        let place = |device, id, kind: &str, source: &str| Place {
            device,
            id,
            size: (device, 9),
            kind: kind.to_owned(),
            source: source.to_owned(),
        };
        let root = place(1, 1, "btrfs", "/dev/a");
        let reason = |place: Place, root: &Place| place.fault(root).unwrap_or_default();
        assert_eq!(reason(place(2, 2, "ext4", "/dev/b"), &root), "", "a disk of its own");
        assert_eq!(reason(place(2, 0, "ext4", "/dev/b"), &place(1, 0, "ext4", "/dev/a")), "", "no ids");
        for same in [place(1, 2, "x", "b"), place(2, 1, "x", "b"), place(2, 2, "btrfs", "/dev/a")] {
            assert!(reason(same.clone(), &root).starts_with("the file system of /"), "{same:?}");
        }
        let container = place(1, 1, OVERLAY, "overlay");
        let below = Place { size: container.size, ..place(2, 2, "ext4", "/dev/b") };
        assert!(reason(below, &container).starts_with("the file system of /"));
        assert_eq!(reason(place(2, 2, "ext4", "/dev/b"), &container), "");
        assert!(reason(place(2, 2, "tmpfs", "tmpfs"), &root).starts_with("memory"));
        assert!(reason(place(2, 2, OVERLAY, "overlay"), &container).starts_with("an overlay"));
    }

    /// Fills no disk, and checks the times alone. A directory in which no file can be made stands for a full disk.
    #[test]
    fn disk_is_full_for_its_time_and_acks_count_apart() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut disk = DiskFull {
            path: dir.path().join(FILE_NAME),
            file: None,
            fill_at: Duration::MAX,
            lasts: Duration::ZERO,
            begun: Instant::now(),
            state: State::Before,
            figures: DiskFullFigures::default(),
        };
        disk.look(&acked(5)).expect("it is too early");
        assert!(!disk.path.exists());
        // As `look` does, but without taking the machine's space.
        disk.file = Some(File::create(&disk.path).expect("room"));
        disk.state = State::Full;
        disk.fill_at = Duration::ZERO;
        disk.look(&acked(3)).expect("freed");
        assert!(!disk.path.exists());
        disk.look(&acked(0)).expect("nothing to do");
        assert_eq!(disk.figures().first_ack_s, None);
        disk.look(&acked(1)).expect("nothing to do");
        let figures = disk.figures();
        assert_eq!(figures.acked_meanwhile, 3);
        assert!(figures.freed_at_s > 0.0 && figures.first_ack_s.is_some_and(|after| after > 0.0));
    }
}

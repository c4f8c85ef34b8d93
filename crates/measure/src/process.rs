//! Processor time and memory of a process while it is measured, as the system counts them.
//!
//! Refuses a process that has got the id of the watched one since, and tells an ended process from an idle one.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use crate::procfs::{Stat, bytes_of, parse_stat, seconds};

/// A watch on one process.
///
/// Invariants: `start_ticks` is the start of the process that `pid` named when the watch began.
#[derive(Clone, Debug)]
pub struct ProcessWatch {
    pid: u32,
    start_ticks: u64,
}

/// Processor time and memory that a process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessUsage {
    /// Processor time since it began, all threads, user and system.
    pub cpu_s: f64,
    /// Memory that lies in RAM now.
    pub resident_bytes: u64,
    /// The most that ever lay there, in bytes.
    pub peak_bytes: u64,
    /// The part of `resident_bytes` that belongs to no file; 0 where the system does not say.
    pub private_bytes: u64,
}

impl ProcessWatch {
    /// Watches the process of this id.
    pub fn new(pid: u32) -> io::Result<Self> {
        Ok(Self { pid, start_ticks: stat(pid)?.start_ticks })
    }

    /// Watches this process.
    pub fn own() -> io::Result<Self> {
        Self::new(std::process::id())
    }

    /// The watched process's id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its use so far. Fails when it has ended.
    pub fn usage(&self) -> io::Result<ProcessUsage> {
        let stat = stat(self.pid)?;
        if stat.start_ticks != self.start_ticks {
            return Err(ended(self.pid));
        }
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        // A process that is ending has no memory any more, and no such line in its status.
        let bytes = |name| bytes_of(&status, name).unwrap_or(0);
        Ok(ProcessUsage {
            cpu_s: seconds(stat.cpu_ticks),
            resident_bytes: bytes("VmRSS:"),
            peak_bytes: bytes("VmHWM:"),
            private_bytes: bytes("RssAnon:"),
        })
    }
}

/// Use so far of the process of this id; an error if it has ended.
pub fn usage_of(pid: u32) -> io::Result<ProcessUsage> {
    ProcessWatch::new(pid)?.usage()
}

/// Processor time of the children of this process that have ended and were waited for.
pub fn children_cpu_s() -> io::Result<f64> {
    stat(std::process::id()).map(|own| seconds(own.children_ticks))
}

fn stat(pid: u32) -> io::Result<Stat> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path)
        .map_err(|error| io::Error::new(error.kind(), format!("process {pid}: {error}")))?;
    match parse_stat(&text) {
        Some((_, stat)) if stat.has_ended => Err(ended(pid)),
        Some((_, stat)) => Ok(stat),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, format!("{path} is not as expected"))),
    }
}

fn ended(pid: u32) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("process {pid} has ended"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    use super::*;

    #[test]
    fn our_own_process_has_used_memory() {
        let used = usage_of(std::process::id()).expect("it runs");
        assert!(used.peak_bytes >= used.resident_bytes && used.resident_bytes > 0, "{used:?}");
        assert!(used.private_bytes > 0 && used.private_bytes <= used.resident_bytes, "{used:?}");
        assert!(used.cpu_s >= 0.0);
    }

    #[test]
    fn another_process_of_the_same_id_is_not_taken_for_it() {
        let mut watch = ProcessWatch::own().expect("it runs");
        watch.start_ticks += 1;
        assert_eq!(watch.usage().expect_err("another").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn ended_process_is_told_and_its_time_is_its_parents() {
        let before_s = children_cpu_s().expect("it runs");
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let mut child = Command::new("sh").args(["-c", busy]).spawn().expect("a shell");
        let watch = ProcessWatch::new(child.id()).expect("it runs");
        waitid(WaitId::Pid(Pid::from_child(&child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            .expect("a child of ours");
        assert_eq!(watch.usage().expect_err("ended").kind(), io::ErrorKind::NotFound);
        child.wait().expect("a child of ours");
        assert!(children_cpu_s().expect("it runs") > before_s);
    }
}

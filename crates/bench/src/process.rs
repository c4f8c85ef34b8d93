//! Processor time, memory and disk use of processes in a run, and the program of a server's process.
//!
//! Reads `/proc`, so it works on Linux only. A process that ends within a run keeps its figures of the last look.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use riverrun_measure::process::{ProcessUsage, ProcessWatch};
use serde::Serialize;

/// Use of a process in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProcessRun {
    /// Its id.
    pub pid: u32,
    /// Processor time within the run.
    pub cpu_s: f64,
    /// The most memory seen within the run.
    pub resident_bytes_max: u64,
    /// The most memory since the process began, which may have been before the run.
    pub peak_bytes: u64,
    /// Whether it had ended by the end of the run: then the figures are of the last look at which it lived.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
}

impl ProcessRun {
    /// Sets the use since `before`.
    pub(crate) fn look(&mut self, before: &ProcessUsage, now: &ProcessUsage) {
        self.cpu_s = now.cpu_s - before.cpu_s;
        self.resident_bytes_max = self.resident_bytes_max.max(now.resident_bytes);
        // A process that is ending has no memory any more, and reports none.
        self.peak_bytes = self.peak_bytes.max(now.peak_bytes);
        self.ended = false;
    }
}

/// Use of several processes in a run.
///
/// Invariants: one `before` and one run for each watch, in the same order.
#[derive(Debug)]
pub struct RunUsage {
    watches: Vec<ProcessWatch>,
    before: Vec<ProcessUsage>,
    runs: Vec<ProcessRun>,
}

impl RunUsage {
    /// Begins now. Fails if one of the processes does not exist.
    pub fn begin(watches: Vec<ProcessWatch>) -> io::Result<Self> {
        let before = watches.iter().map(ProcessWatch::usage).collect::<io::Result<Vec<_>>>()?;
        let begun = |(watch, usage): (&ProcessWatch, &ProcessUsage)| ProcessRun {
            pid: watch.pid(),
            cpu_s: 0.0,
            resident_bytes_max: usage.resident_bytes,
            peak_bytes: usage.peak_bytes,
            ended: false,
        };
        let runs = watches.iter().zip(&before).map(begun).collect();
        Ok(Self { watches, before, runs })
    }

    /// Looks again; to be called about once a second. A process that has ended keeps its figures of the last look, and
    /// is marked as ended.
    pub fn sample(&mut self) {
        for ((watch, before), run) in self.watches.iter().zip(&self.before).zip(&mut self.runs) {
            match watch.usage() {
                Ok(usage) => run.look(before, &usage),
                Err(_) => run.ended = true,
            }
        }
    }

    /// Looks a last time, and ends.
    pub fn finish(mut self) -> Vec<ProcessRun> {
        self.sample();
        self.runs
    }
}

/// Time for a program to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);
/// Time between two looks at whether the program has ended.
const VERSION_LOOK_EVERY: Duration = Duration::from_millis(5);

/// The server that a process is, with its version; `None` if that cannot be found out.
///
/// Kafka has its libraries open, and their names carry the version. Our server prints it, whatever its file is called.
pub fn software_of(pid: u32) -> Option<String> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let names = open.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    if let Some(version) = names.into_iter().find_map(|path| kafka_version(&path)) {
        return Some(format!("Apache Kafka {version}"));
    }
    let program = format!("/proc/{pid}/exe");
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let may_be_ours = may_be_ours(&fs::read_link(&program).ok()?, &arguments);
    may_be_ours.then(|| version_of(Path::new(&program), VERSION_TIMEOUT))?
}

/// Whether a program may be started to ask for its version. Others might do anything with that flag.
fn may_be_ours(program: &Path, arguments: &[u8]) -> bool {
    let is_named = program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("riverrun"));
    is_named || arguments.split(|byte| *byte == 0).skip(1).any(|argument| argument == b"serve")
}

/// The version line of our server; `None` if the program prints nothing, or another line.
fn version_of(program: &Path, allowed: Duration) -> Option<String> {
    let mut asked = Command::new(program);
    asked.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut asked = asked.spawn().ok()?;
    let deadline = Instant::now() + allowed;
    while asked.try_wait().ok()?.is_none() {
        if Instant::now() >= deadline {
            // It is no server of ours; the started program ends here.
            let _ = asked.kill().and_then(|()| asked.wait());
            return None;
        }
        std::thread::sleep(VERSION_LOOK_EVERY);
    }
    let text = String::from_utf8(asked.wait_with_output().ok()?.stdout).ok()?;
    let line = text.lines().next()?.trim();
    line.starts_with("riverrun ").then(|| line.to_owned())
}

fn kafka_version(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let version = name.strip_prefix("kafka-server-")?.strip_suffix(".jar")?;
    // Neighbours such as `kafka-server-common-4.3.1.jar` begin with the same words.
    version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    use super::*;

    #[test]
    fn a_run_counts_what_was_used_within_it() {
        let mut run = RunUsage::begin(vec![ProcessWatch::own().expect("it runs")]).expect("it runs");
        let begun = std::time::Instant::now();
        let mut memory = vec![1_u8; 32 << 20];
        while begun.elapsed().as_millis() < 200 {
            for byte in &mut memory {
                *byte = byte.wrapping_mul(3);
            }
        }
        run.sample();
        let used = run.finish()[0];
        assert!(used.cpu_s >= 0.05 && used.cpu_s < 100.0, "{used:?}");
        assert!(used.resident_bytes_max >= memory.len() as u64, "{used:?}");
    }

    #[test]
    fn ended_process_keeps_its_figures_and_is_marked() {
        let mut child = Command::new("sleep").arg("600").spawn().expect("a program of every system");
        let mut run =
            RunUsage::begin(vec![ProcessWatch::new(child.id()).expect("it runs")]).expect("it runs");
        run.sample();
        let before = run.runs[0];
        assert!(!before.ended && before.peak_bytes > 0, "{before:?}");
        child.kill().expect("it runs");
        // It has ended, but still exists: its exit status was not collected yet.
        let until_ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&child)), until_ended).expect("a child of ours");
        let used = run.finish()[0];
        child.wait().expect("a child of ours");
        assert_eq!(used, ProcessRun { ended: true, ..before });
    }

    #[test]
    fn version_of_kafka_is_found_in_its_library_name() {
        let version = |name: &str| kafka_version(Path::new(name));
        assert_eq!(version("/opt/kafka/lib/kafka-server-4.3.1.jar").as_deref(), Some("4.3.1"));
        assert_eq!(version("/opt/kafka/lib/kafka-server-common-4.3.1.jar"), None);
        assert_eq!(version("/dev/null"), None);
        assert_eq!(software_of(std::process::id()), None);
    }

    #[test]
    fn our_server_is_known_by_its_version_line() {
        let ours = |program: &str, arguments: &str| may_be_ours(Path::new(program), arguments.as_bytes());
        assert!(ours("/opt/riverrun-1.2", "x") && ours("/opt/riverrun (deleted)", "x"));
        assert!(
            ours("/opt/kept-build", "./kept-build\0serve\0--config\0a") && !ours("/bin/serve", "serve\0-x")
        );
        let dir = tempfile::tempdir().expect("a directory");
        let says = |script: &str, allowed| {
            let path = dir.path().join("program");
            // Written by another process: a file that this one has open for writing cannot be executed.
            let made = Command::new("sh")
                .args(["-c", "printf '#!/bin/sh\n%s\n' \"$1\" > \"$0\" && chmod 700 \"$0\""])
                .args([path.as_os_str(), script.as_ref()])
                .status();
            assert!(made.expect("a shell").success());
            version_of(&path, allowed)
        };
        assert_eq!(says("echo riverrun 9.8.7", VERSION_TIMEOUT).as_deref(), Some("riverrun 9.8.7"));
        assert_eq!(says("echo other 1.0", VERSION_TIMEOUT), None);
        assert_eq!(
            says("exec sleep 600", Duration::from_millis(1)),
            None,
            "a program that does not end is no server of ours"
        );
    }
}

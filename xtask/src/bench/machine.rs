//! What was measured on: a figure without it means nothing.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::Serialize;

use crate::clients::exec;
use crate::clients::install::Toolbox;

/// Programs that say their version do so at once.
const VERSION_LIMIT: Duration = Duration::from_secs(30);

/// The machine and the versions. What cannot be found out reads `unknown`.
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    cores: usize,
    processor: String,
    memory: String,
    kernel: String,
    /// Of the last minute before the run: a busy machine shows here.
    load_average: String,
    java: String,
    kafka: String,
    commit: String,
}

impl Machine {
    /// Looks at the machine before anything is started on it.
    pub(super) fn look(toolbox: &Toolbox) -> Self {
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        Self {
            cores,
            processor: field_of("/proc/cpuinfo", "model name"),
            memory: field_of("/proc/meminfo", "MemTotal"),
            kernel: known(fs::read_to_string("/proc/sys/kernel/osrelease").ok()),
            load_average: known(first_word("/proc/loadavg")),
            java: known(printed(toolbox.java("64m").arg("-version"))),
            kafka: "4.3.1".to_owned(),
            commit: commit_of(&toolbox.sources("")),
        }
    }
}

fn known(text: Option<String>) -> String {
    text.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn first_word(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()?.split_whitespace().next().map(str::to_owned)
}

/// The value of the first `name : value` line of a file.
fn field_of(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'));
    known(value.map(|(_, value)| value.to_owned()))
}

/// The first line that a program prints.
fn printed(command: &mut Command) -> Option<String> {
    let finished = exec::run_ok(command, b"", VERSION_LIMIT).ok()?;
    finished.output().lines().next().map(str::to_owned)
}

/// The commit, and whether the files differ from it.
fn commit_of(directory: &Path) -> String {
    let mut describe = Command::new("git");
    describe.current_dir(directory).args(["describe", "--always", "--dirty", "--abbrev=10"]);
    known(printed(&mut describe))
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "machine   {} cores, {}, memory {}", self.cores, self.processor, self.memory)?;
        writeln!(f, "kernel    {}, load average {} before the run", self.kernel, self.load_average)?;
        writeln!(f, "versions  riverrun {}, Kafka {}, {}", self.commit, self.kafka, self.java)
    }
}

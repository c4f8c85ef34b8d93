//! The machine of a measurement, without which a figure means nothing.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use riverrun_bench::environment::Environment;
use serde::Serialize;

use crate::clients::exec;
use crate::clients::install::Toolbox;

/// Longest wait for a program to print its version.
const VERSION_LIMIT: Duration = Duration::from_secs(30);

/// Stands for a version that cannot be found out.
const UNKNOWN: &str = "unknown";

/// The client of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// Kafka's own tools; each run is a virtual machine of its own.
    KafkaTools,
    /// A part of this program, or of the measured one.
    Ours(&'static str),
}

/// The machine, in the form of every result of `riverrun bench`, and the versions.
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    #[serde(flatten)]
    environment: Environment,
    /// The commit that our program was built from, or the file that was measured in its place.
    riverrun: String,
    #[serde(flatten)]
    kafka: Option<KafkaVersions>,
}

/// The measured programs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Programs<'a> {
    /// Ours, if it is not the one of this checkout.
    pub(super) binary: Option<&'a Path>,
    /// Whether any of Kafka's programs run.
    pub(super) has_kafka: bool,
}

/// Versions that matter only if Kafka's programs run.
#[derive(Debug, Serialize)]
struct KafkaVersions {
    kafka: &'static str,
    java: String,
}

impl Machine {
    /// Describes the machine before anything is started on it; `data` is the directory of the data.
    pub(super) fn look(
        toolbox: &Toolbox,
        data: Option<&Path>,
        client: Client,
        programs: Programs<'_>,
    ) -> Self {
        let name = match client {
            Client::KafkaTools => "Kafka's performance tools",
            Client::Ours(name) => name,
        };
        let environment = Environment { client: name.to_owned(), ..Environment::look(data) };
        let kafka = programs.has_kafka.then(|| KafkaVersions::look(toolbox));
        let checkout = || commit_of(&toolbox.sources(""));
        let riverrun = programs.binary.map_or_else(checkout, |file| file.display().to_string());
        Self { environment, riverrun, kafka }
    }
}

impl KafkaVersions {
    fn look(toolbox: &Toolbox) -> Self {
        Self { kafka: "4.3.1", java: first_line(toolbox.java("64m").arg("-version")) }
    }
}

/// The first line that a program prints.
fn first_line(command: &mut Command) -> String {
    let printed = exec::run_ok(command, b"", VERSION_LIMIT).ok();
    let line =
        printed.and_then(|finished| finished.output().lines().next().map(|line| line.trim().to_owned()));
    line.unwrap_or_else(|| UNKNOWN.to_owned())
}

/// The commit, and whether the files differ from it.
fn commit_of(directory: &Path) -> String {
    let mut describe = Command::new("git");
    first_line(describe.current_dir(directory).args(["describe", "--always", "--dirty", "--abbrev=10"]))
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}versions     riverrun {}", self.environment, self.riverrun)?;
        match &self.kafka {
            Some(KafkaVersions { kafka, java }) => writeln!(f, ", Kafka {kafka}, {java}"),
            None => writeln!(f),
        }
    }
}

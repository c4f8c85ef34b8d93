//! The server under test: ours, or Kafka 4.3.1 to see what Kafka answers. Fresh data, free ports, loopback.
//!
//! Guarantees that the process is gone when the value is dropped.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process};

use super::exec;
use super::install::Toolbox;

/// Kafka takes several seconds to start on a busy machine.
const START_LIMIT: Duration = Duration::from_mins(2);

/// A clean stop with the data of one suite.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// Lines of the server's log that a failure shows.
const LOG_TAIL_LINES: usize = 60;

/// Any 16 bytes in base64 do: these read `riverrun-clients`.
const KAFKA_CLUSTER_ID: &str = "cml2ZXJydW4tY2xpZW50cw";

/// Settings that both servers get: the first member of a group need not wait three seconds for others.
const COMMON_SETTINGS: &[&str] = &["group.initial.rebalance.delay.ms=0"];

/// Which server the clients talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ServerKind {
    /// The server of this checkout
    Riverrun,
    /// Apache Kafka 4.3.1
    Kafka,
}

impl ServerKind {
    /// The name that client programs are told.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Riverrun => "riverrun",
            Self::Kafka => "kafka",
        }
    }
}

/// A running server.
///
/// Invariants: `child` was started by us and not waited for until `stop` or drop.
pub(super) struct Server {
    kind: ServerKind,
    child: Child,
    port: u16,
    dir: PathBuf,
}

impl Server {
    /// Starts on an empty directory and waits until the port accepts.
    pub(super) fn start(kind: ServerKind, toolbox: &Toolbox) -> anyhow::Result<Self> {
        let dir = toolbox.run_dir();
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("could not clear {}", dir.display()))?;
        }
        fs::create_dir_all(&dir)?;
        let [port, other] = free_ports()?;
        let mut command = match kind {
            ServerKind::Riverrun => riverrun(toolbox, &dir, port, other),
            ServerKind::Kafka => kafka(toolbox, &dir, port, other)?,
        };
        let log = File::create(dir.join("server.log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("could not start {command:?}"))?;
        let mut server = Self { kind, child, port, dir };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// `host:port` for clients.
    pub(super) fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(super) fn kind(&self) -> ServerKind {
        self.kind
    }

    /// Data and log.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The last lines of what the server printed.
    pub(super) fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.dir.join("server.log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    /// Asks the server to stop as a service manager or a terminal would, and holds it to a clean end.
    pub(super) fn stop(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the server had ended by itself ({status}):\n{}", self.log_tail());
        }
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("the server has no process id")?;
        // The Java virtual machine reports the signal in its exit code; ours ends with zero.
        let (signal, expected) = match self.kind {
            ServerKind::Riverrun => (Signal::INT, 0),
            ServerKind::Kafka => (Signal::TERM, 143),
        };
        kill_process(pid, signal)?;
        let Some(status) = exec::wait(&mut self.child, STOP_LIMIT)? else {
            bail!("the server did not stop within {} s:\n{}", STOP_LIMIT.as_secs(), self.log_tail());
        };
        if status.code() != Some(expected) {
            bail!("the server ended with {status} when asked to stop:\n{}", self.log_tail());
        }
        Ok(())
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status} while it started:\n{}", self.log_tail());
            }
            if Instant::now() >= deadline {
                bail!("the server was not ready after {} s:\n{}", START_LIMIT.as_secs(), self.log_tail());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the process is gone already, which is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn riverrun(toolbox: &Toolbox, dir: &Path, port: u16, admin_port: u16) -> Command {
    let mut command = Command::new(toolbox.server_binary());
    command.arg("serve").arg("--data").arg(dir.join("data"));
    command.arg("--listen").arg(format!("127.0.0.1:{port}"));
    command.arg("--admin").arg(format!("127.0.0.1:{admin_port}"));
    for setting in COMMON_SETTINGS {
        command.arg("--set").arg(setting);
    }
    command
}

/// One node that is broker and controller, its log directory formatted first.
fn kafka(toolbox: &Toolbox, dir: &Path, port: u16, controller_port: u16) -> anyhow::Result<Command> {
    let properties = dir.join("server.properties");
    let own = format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.voters=1@127.0.0.1:{controller_port}\n\
         controller.listener.names=CONTROLLER\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}\n\
         log.dirs={}\n\
         offsets.topic.replication.factor=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         share.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\n",
        dir.join("data").display(),
    );
    fs::write(&properties, own + &COMMON_SETTINGS.join("\n") + "\n")?;
    let mut format = toolbox.java("256m");
    format.args(["kafka.tools.StorageTool", "format", "-t", KAFKA_CLUSTER_ID, "-c"]).arg(&properties);
    exec::run_ok(&mut format, b"", START_LIMIT).context("Kafka's log directory could not be formatted")?;
    let mut serve = toolbox.java("1g");
    serve.arg("kafka.Kafka").arg(&properties);
    Ok(serve)
}

/// Two free ports of the loopback interface. Both are held until both are known, so they differ.
fn free_ports() -> anyhow::Result<[u16; 2]> {
    let (one, other) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    Ok([one.local_addr()?.port(), other.local_addr()?.port()])
}

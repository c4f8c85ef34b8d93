//! The server under test: ours, or Kafka 4.3.1 as the reference. Fresh data, free ports, loopback.
//!
//! A [`Launch`] starts a server, any number of times on the same data; a [`Server`] is a running one. Guarantees that
//! the process has ended when the value is dropped.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ValueEnum;
#[cfg(feature = "bench")]
use riverrun_measure::process::{ProcessUsage, usage_of};
use rustix::process::{Pid, Signal, kill_process};

use super::exec;
use super::install::Toolbox;

/// Kafka takes several seconds to start on a busy machine.
const START_LIMIT: Duration = Duration::from_mins(2);

/// Longest clean stop, also with thousands of partitions.
const STOP_LIMIT: Duration = Duration::from_mins(2);

/// Lines of the server's log that a failure shows.
const LOG_TAIL_LINES: usize = 60;

/// File of the server's output, in its directory.
const LOG_FILE: &str = "server.log";

/// Kafka's configuration, in its directory.
const KAFKA_PROPERTIES: &str = "server.properties";

/// Any 16 bytes in base64 do: these read `riverrun-clients`.
const KAFKA_CLUSTER_ID: &str = "cml2ZXJydW4tY2xpZW50cw";

/// Settings that both servers get: the first member of a group need not wait three seconds for others.
const COMMON_SETTINGS: &[&str] = &["group.initial.rebalance.delay.ms=0"];

/// The server that the clients talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServerKind {
    /// The server of this checkout
    Riverrun,
    /// Apache Kafka 4.3.1
    Kafka,
}

impl ServerKind {
    /// Its name, as passed to client programs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Riverrun => "riverrun",
            Self::Kafka => "kafka",
        }
    }
}

/// Everything that is needed to start a server.
///
/// Invariants: `dir` holds what the kind needs before its first start; the ports stay the same over restarts, because
/// Kafka's are part of its properties.
#[derive(Clone)]
pub(crate) struct Launch<'a> {
    kind: ServerKind,
    toolbox: &'a Toolbox,
    dir: PathBuf,
    port: u16,
    /// Our server's admin port, or the controller's port of Kafka.
    other_port: u16,
    /// `name=value` settings for our server only.
    own_settings: Vec<String>,
    /// Options of Kafka's virtual machine; a later one overrides an earlier one.
    jvm_options: &'a [&'a str],
    /// Directory of our server's data, if not beside its log.
    data: Option<PathBuf>,
    /// Our server's binary, if not the one that was built.
    binary: Option<PathBuf>,
    /// Whether the reader of our server's output has gone.
    unread: bool,
    /// A program with its arguments that runs our server, such as a tracer; the server has to stay our child.
    wrapper: Vec<OsString>,
}

impl<'a> Launch<'a> {
    /// Empties `dir` and puts there the files that the server needs before its first start.
    pub(crate) fn prepare(kind: ServerKind, toolbox: &'a Toolbox, dir: PathBuf) -> anyhow::Result<Self> {
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("could not clear {}", dir.display()))?;
        }
        fs::create_dir_all(&dir)?;
        let [port, other_port] = free_ports()?;
        if kind == ServerKind::Kafka {
            format_kafka(toolbox, &dir, port, other_port)?;
        }
        Ok(Self {
            kind,
            toolbox,
            dir,
            port,
            other_port,
            own_settings: Vec::new(),
            jvm_options: &[],
            data: None,
            binary: None,
            unread: false,
            wrapper: Vec::new(),
        })
    }

    /// Sets options for Kafka's virtual machine.
    pub(crate) fn with_jvm_options(mut self, jvm_options: &'a [&'a str]) -> Self {
        self.jvm_options = jvm_options;
        self
    }

    /// Adds `name=value` settings for our server; settings of the same names are replaced.
    pub(crate) fn with_own_settings(mut self, settings: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let name = |setting: &str| setting.split('=').next().map(str::to_owned);
        for setting in settings {
            let setting = setting.into();
            if self.own_settings.iter().all(|known| name(known) != name(&setting)) {
                self.own_settings.push(setting);
            }
        }
        self
    }

    /// Sets these ports, in place of two free ones.
    pub(crate) fn with_ports(mut self, [port, other_port]: [u16; 2]) -> Self {
        (self.port, self.other_port) = (port, other_port);
        self
    }

    /// Sets another directory for our server's data.
    pub(crate) fn with_data(mut self, data: PathBuf) -> Self {
        self.data = Some(data);
        self
    }

    /// Sets another binary for our server.
    pub(crate) fn with_binary(mut self, binary: PathBuf) -> Self {
        self.binary = Some(binary);
        self
    }

    /// Sends the output of the next servers to a pipe whose reader has gone, or to the log again.
    pub(crate) fn unread(mut self, unread: bool) -> Self {
        self.unread = unread;
        self
    }

    /// Puts a program and its arguments in front of our server's command line. It has to become the server, or a kill
    /// would not reach the server.
    pub(crate) fn wrapped_in(mut self, program: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.wrapper = program.into_iter().map(Into::into).collect();
        self
    }

    /// `host:port` for clients.
    pub(crate) fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Output of all servers that were started from this.
    pub(crate) fn log(&self) -> io::Result<String> {
        // A killed server may have written a part of a character.
        Ok(String::from_utf8_lossy(&fs::read(self.dir.join(LOG_FILE))?).into_owned())
    }

    /// Starts the process without waiting for it. Its output is appended to `server.log`.
    pub(crate) fn spawn(&self) -> anyhow::Result<Server> {
        if self.unread {
            let (reader, writer) = io::pipe()?;
            drop(reader);
            return self.spawn_logging_to(writer.try_clone()?.into(), writer.into());
        }
        let log = OpenOptions::new().create(true).append(true).open(self.dir.join(LOG_FILE))?;
        self.spawn_logging_to(log.try_clone()?.into(), log.into())
    }

    /// Starts the process and waits until the port accepts.
    pub(crate) fn start(&self) -> anyhow::Result<Server> {
        let mut server = self.spawn()?;
        server.wait_until_ready()?;
        Ok(server)
    }

    /// As [`spawn`](Self::spawn), with other destinations of the output.
    pub(crate) fn spawn_logging_to(&self, stdout: Stdio, stderr: Stdio) -> anyhow::Result<Server> {
        let mut command = match self.kind {
            ServerKind::Riverrun => self.riverrun(),
            ServerKind::Kafka => self.kafka(),
        };
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        let child = command.spawn().with_context(|| format!("could not start {command:?}"))?;
        Ok(Server {
            kind: self.kind,
            child,
            port: self.port,
            other_port: self.other_port,
            dir: self.dir.clone(),
        })
    }

    fn riverrun(&self) -> Command {
        let binary = self.binary.clone().unwrap_or_else(|| self.toolbox.server_binary());
        let mut line = self.wrapper.iter().cloned().chain([binary.into_os_string()]);
        let mut command = Command::new(line.next().unwrap_or_default());
        let data = self.data.clone().unwrap_or_else(|| self.dir.join("data"));
        command.args(line).arg("serve").arg("--data").arg(data);
        command.arg("--listen").arg(format!("127.0.0.1:{}", self.port));
        command.arg("--admin").arg(format!("127.0.0.1:{}", self.other_port));
        for setting in COMMON_SETTINGS.iter().copied().chain(self.own_settings.iter().map(String::as_str)) {
            command.arg("--set").arg(setting);
        }
        command
    }

    fn kafka(&self) -> Command {
        let mut command = self.toolbox.java("1g");
        command.args(self.jvm_options).arg("kafka.Kafka").arg(self.dir.join(KAFKA_PROPERTIES));
        command
    }
}

/// Limits of repeated tries on a server.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) limit: Duration,
    /// Pause between two tries.
    pub(crate) pause: Duration,
    /// Whether another try would end with the same error.
    pub(crate) is_final: fn(&anyhow::Error) -> bool,
}

impl Default for Patience {
    /// The limits of a start.
    fn default() -> Self {
        Self { limit: START_LIMIT, pause: Duration::from_millis(20), is_final: |_| false }
    }
}

/// A running server.
///
/// Invariants: `child` was started by us and not waited for until `stop`, `kill` or drop.
pub(crate) struct Server {
    kind: ServerKind,
    child: Child,
    port: u16,
    other_port: u16,
    dir: PathBuf,
}

impl Server {
    /// Starts on an empty directory and waits until the port accepts connections. `binary` replaces our server's built
    /// one.
    pub(crate) fn start(
        kind: ServerKind,
        toolbox: &Toolbox,
        binary: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let launch = Launch::prepare(kind, toolbox, toolbox.run_dir())?;
        Launch { binary: binary.or(launch.binary), ..launch }.start()
    }

    /// `host:port` for clients.
    pub(crate) fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The port for clients.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Our server's port for metrics.
    pub(crate) fn admin_port(&self) -> u16 {
        self.other_port
    }

    pub(crate) fn kind(&self) -> ServerKind {
        self.kind
    }

    /// Directory of data and log.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Output of the server and of those before it in this directory.
    pub(crate) fn log(&self) -> io::Result<String> {
        fs::read_to_string(self.dir.join(LOG_FILE))
    }

    /// The last lines of the server's output.
    pub(crate) fn log_tail(&self) -> String {
        let log = self.log().unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    /// Asks the server to stop as a service manager or a terminal would; fails if its end is not clean.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        self.must_run()?;
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

    /// Ends the server as a crash of the process would.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("the server could not be killed")?;
        self.child.wait()?;
        Ok(())
    }

    /// Process id, for reading the system's data about it.
    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Use of the process so far.
    #[cfg(feature = "bench")]
    pub(crate) fn usage(&self) -> anyhow::Result<ProcessUsage> {
        Ok(usage_of(self.process_id())?)
    }

    /// Fails, with the last lines of the log, if the process has ended by itself.
    pub(crate) fn must_run(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the server ended with {status}:\n{}", self.log_tail());
        }
        Ok(())
    }

    /// Waits until the port accepts.
    pub(crate) fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        self.until(Patience::default(), |server| {
            TcpStream::connect(("127.0.0.1", server.port))?;
            Ok(())
        })
    }

    /// Repeats an attempt until it succeeds. Fails if the process ends, or with the error of the last try when that is
    /// final or patience is over.
    pub(crate) fn until(
        &mut self,
        patience: Patience,
        mut attempt: impl FnMut(&Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience.limit;
        loop {
            let Err(error) = attempt(self) else { return Ok(()) };
            self.must_run()?;
            if (patience.is_final)(&error) {
                return Err(error);
            }
            if Instant::now() >= deadline {
                let (limit_s, log) = (patience.limit.as_secs(), self.log_tail());
                return Err(error.context(format!("the server did not do it within {limit_s} s:\n{log}")));
            }
            thread::sleep(patience.pause);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the process has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// One node that is broker and controller: its properties, and its log directory formatted.
fn format_kafka(toolbox: &Toolbox, dir: &Path, port: u16, controller_port: u16) -> anyhow::Result<()> {
    let properties = dir.join(KAFKA_PROPERTIES);
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
    Ok(())
}

/// Two free ports of the loopback interface, below those that the system gives to clients. Otherwise a client that
/// keeps trying to reach a stopped server could get the server's port as its own, and connect to itself.
fn free_ports() -> anyhow::Result<[u16; 2]> {
    let random = RandomState::new();
    let free = (0..1000_u64).filter_map(|attempt| {
        let port = u16::try_from(20_000 + random.hash_one(attempt) % 12_000).ok()?;
        TcpListener::bind(("127.0.0.1", port)).ok().map(|_| port)
    });
    let found: BTreeSet<u16> = free.take(3).collect();
    match found.into_iter().collect::<Vec<_>>()[..] {
        [one, other, ..] => Ok([one, other]),
        _ => bail!("no free ports between 20000 and 32000"),
    }
}

//! Shared by the command-line tests: the real binary, a server of it on a free port, and a bound on every wait.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A command takes far less; this is for a machine under load.
pub(crate) const WAIT: Duration = Duration::from_mins(1);

/// The exit code and output of a command.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Finished {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).expect("text")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Each line as JSON.
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
    }

    /// The same, having ended with this exit code.
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{} {}", self.stderr, String::from_utf8_lossy(&self.stdout));
        self
    }
}

/// The binary under test, with no variable of ours in its environment.
pub(crate) fn riverrun(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_riverrun"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RIVERRUN_") {
            command.env_remove(name);
        }
    }
    command
        .args(args)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs a command to its end.
pub(crate) fn run(args: &[&str]) -> Finished {
    finish(riverrun(args).spawn().expect("the binary runs"), b"")
}

/// Gives a command its input, and waits for its end.
pub(crate) fn finish(mut child: Child, input: &[u8]) -> Finished {
    let mut stdin = child.stdin.take();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        if let Some(stdin) = &mut stdin {
            // A command that fails early does not read all of it.
            let _ = stdin.write_all(&input);
        }
    });
    let stdout = child.stdout.take();
    let mut stderr = child.stderr.take().expect("piped");
    let out = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // None where the test has taken it.
        stdout.map_or(Ok(0), |mut stdout| stdout.read_to_end(&mut bytes)).map(|_| bytes)
    });
    let err = std::thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).map(|_| text)
    });
    let code = wait(&mut child).code().unwrap_or(-1);
    writer.join().expect("no panic");
    let stdout = out.join().expect("no panic").expect("readable");
    Finished { code, stdout, stderr: err.join().expect("no panic").expect("text") }
}

/// Waits for the end of a process; one that does not end is killed and fails the test.
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + WAIT;
    loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            return status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("the command did not end in {WAIT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_child(child);
    kill_process(pid, signal).expect("the process is there");
}

/// A running `riverrun serve`. Dropping it kills it.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) ready: Value,
    dir: Option<TempDir>,
    data: PathBuf,
    log: Option<JoinHandle<io::Result<Vec<u8>>>>,
}

impl Server {
    /// A server with a directory of its own, on a free port.
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("data");
        let mut server = Self::on(&data, &[]);
        server.dir = Some(dir);
        server
    }

    /// A server on this directory.
    pub(crate) fn on(data: &Path, flags: &[&str]) -> Self {
        Self::start_on(data, "127.0.0.1:0", flags)
    }

    /// A server on this directory, which clients of an earlier one find at its address.
    pub(crate) fn on_address(data: &Path, listen: &str) -> Self {
        Self::start_on(data, listen, &[])
    }

    /// The same with flags.
    pub(crate) fn start_on(data: &Path, listen: &str, flags: &[&str]) -> Self {
        let data_flag = data.to_str().expect("text");
        let basic = ["serve", "--json", "--data", data_flag, "--listen", listen];
        let mut child = riverrun(&[&basic, flags].concat()).spawn().expect("the binary runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
        if line.is_empty() {
            let ended = wait(&mut child);
            let mut text = String::new();
            child.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
            panic!("the server did not start: {ended}: {text}");
        }
        let ready = serde_json::from_str(&line).expect("a JSON line");
        // Also when nobody asks what it logged: a full pipe would stop it.
        let mut stderr = child.stderr.take().expect("piped");
        let log = std::thread::spawn(move || {
            let mut logged = Vec::new();
            stderr.read_to_end(&mut logged).map(|_| logged)
        });
        Self { child, ready, dir: None, data: data.to_owned(), log: Some(log) }
    }

    pub(crate) fn bootstrap(&self) -> &str {
        self.ready["bootstrap"].as_str().expect("an address")
    }

    pub(crate) fn data(&self) -> &str {
        self.data.to_str().expect("text")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = riverrun(args);
        command.env("RIVERRUN_BOOTSTRAP", self.bootstrap());
        command
    }

    /// Runs a client command against this server.
    pub(crate) fn run(&self, args: &[&str]) -> Finished {
        finish(self.command(args).spawn().expect("the binary runs"), b"")
    }

    /// The same with text on stdin.
    pub(crate) fn feed(&self, args: &[&str], input: &[u8]) -> Finished {
        let child = self.command(args).stdin(Stdio::piped()).spawn();
        finish(child.expect("the binary runs"), input)
    }

    /// Stops it as Ctrl-C does, and gives back its exit code.
    pub(crate) fn interrupt(&mut self) -> i32 {
        signal(&self.child, Signal::INT);
        wait(&mut self.child).code().unwrap_or(-1)
    }

    /// All that it has logged, once it has ended.
    pub(crate) fn logged(&mut self) -> String {
        let log = self.log.take().expect("asked once").join().expect("no panic");
        String::from_utf8(log.expect("readable")).expect("text")
    }

    /// The directory, which otherwise goes with the server.
    pub(crate) fn keep_dir(&mut self) -> Option<TempDir> {
        self.dir.take()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! The server under attack, and the watch on its `/health`, its memory and its log.
//!
//! Guarantees that the server has ended when the value is dropped.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{PipeReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

use super::rows::{Ground, LogReader};
use crate::bench::probe::Probe;
use crate::clients::install::Toolbox;
use crate::clients::server::{Launch, Patience, Server, ServerKind};
use crate::wire::{Conn, Dial, http_get};

/// Time between two looks at a watched server.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A server that lives answers `/health` within this, on a busy machine too.
const HEALTH_PATIENCE: Duration = Duration::from_secs(2);

/// A server answers within this time after its start.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// Longest single try within that time.
const GREETING_PATIENCE: Duration = Duration::from_secs(1);

/// Sum of the options that bound the server's memory, at their defaults of 128 MiB each: `queued.max.request.bytes`,
/// `queued.max.response.bytes`, `write.cache.bytes`.
const OPTION_BYTES: u64 = 3 * (128 << 20);

/// Memory beyond these: 64 KiB for each of 1,000 connections, one batch being inflated (100 MiB) and recompressed, and
/// free memory that the allocator keeps.
const BESIDES_BYTES: u64 = 300 << 20;

/// Longest log of a run: nobody could read more.
const LOG_BYTES_MAX: u64 = 2 << 20;

/// Size of a pipe that nobody reads.
const PIPE_BYTES: usize = 4096;

/// Different lines of `/health` that are kept.
const TOLD_MAX: usize = 100;

/// Text in the log of a thread that panics.
const PANICKED: &str = " panicked at ";

/// Exceptions for an attack, and the words that the server has to report.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expected<'a> {
    /// Whether `/health` may be unanswered for as long as the attack lasts.
    pub(super) takes_admin_port: bool,
    /// Words of which the log has to contain one, and words of which `/health` has to have shown one; empty if nothing
    /// has to be reported.
    pub(super) log: &'a [&'a str],
    pub(super) health: &'a [&'a str],
}

/// Observations of a watched server.
#[derive(Debug, Default)]
struct Watched {
    /// Lines of `/health` that reported troubles or notes.
    told: Mutex<BTreeSet<String>>,
    /// The longest time without an answer of `/health`, in milliseconds.
    silent_ms: AtomicU64,
    ended: AtomicBool,
}

/// Program, directory and ports of servers.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) dir: PathBuf,
    pub(super) binary: PathBuf,
    /// The port and the admin port; `None` for any free ones.
    pub(super) ports: Option<[u16; 2]>,
}

/// A server that is watched.
pub(super) struct Rig<'a> {
    server: Server,
    launch: Launch<'a>,
    data: PathBuf,
    ground: Ground,
    watched: Arc<Watched>,
    looking: Option<JoinHandle<()>>,
    /// Resident bytes before the attack.
    resting_bytes: u64,
    /// The end of a pipe that nobody reads.
    unread: Option<PipeReader>,
}

impl<'a> Rig<'a> {
    /// Starts a server on fresh data.
    pub(super) fn start(place: &Place, toolbox: &'a Toolbox, ground: Ground) -> anyhow::Result<Self> {
        let dir = place.dir.join("server");
        let mut launch = Launch::prepare(ServerKind::Riverrun, toolbox, dir.clone())?
            .with_binary(place.binary.clone())
            .with_own_settings(ground.settings.iter().copied());
        if let Some(lay) = ground.lay {
            launch = launch.with_own_settings(lay(&dir)?);
        }
        if let Some(ports) = place.ports {
            launch = launch.with_ports(ports);
        }
        if let Some(descriptors) = ground.descriptors {
            let limit = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
            launch = launch.wrapped_in(["sh", "-c", &limit]);
        }
        let (server, unread) = spawn(&launch, ground.log_reader)?;
        let mut rig = Self {
            server,
            launch,
            data: dir.join("data"),
            ground,
            watched: Arc::default(),
            looking: None,
            resting_bytes: 0,
            unread,
        };
        rig.wait_until_ready()?;
        rig.watch()?;
        Ok(rig)
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let patience = Patience { limit: START_PATIENCE, ..Patience::default() };
        self.server.until(patience, |server| Probe::open(Dial::to(server.port(), GREETING_PATIENCE))?.greet())
    }

    fn watch(&mut self) -> anyhow::Result<()> {
        let (watched, admin) = (Arc::clone(&self.watched), self.server.admin_port());
        let looking = thread::Builder::new().name("watch".into()).spawn(move || watch(&watched, admin))?;
        self.looking = Some(looking);
        Ok(())
    }

    /// Directory of the server's files.
    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    pub(super) fn port(&self) -> u16 {
        self.server.port()
    }

    pub(super) fn ports(&self) -> [u16; 2] {
        [self.server.port(), self.server.admin_port()]
    }

    pub(super) fn process_id(&self) -> u32 {
        self.server.process_id()
    }

    /// Stops the process for this time.
    pub(super) fn freeze(&self, time: Duration) {
        let Some(id) = Pid::from_raw(self.process_id().cast_signed()) else { return };
        // A process that has ended cannot be frozen; the next look at it reports that.
        let _ = kill_process(id, Signal::STOP);
        thread::sleep(time);
        let _ = kill_process(id, Signal::CONT);
    }

    pub(super) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        Ok(self.server.usage()?.cpu_s)
    }

    /// A connection for requests that are no attack.
    pub(super) fn connect(&self) -> anyhow::Result<Conn> {
        Ok(Conn::open(Dial::to(self.port(), START_PATIENCE))?)
    }

    /// Notes the resident memory; to be called before the attack, after all preparations.
    pub(super) fn rest(&mut self) -> anyhow::Result<()> {
        self.resting_bytes = self.resident_bytes()?;
        Ok(())
    }

    pub(super) fn resident_bytes(&self) -> anyhow::Result<u64> {
        Ok(self.server.usage()?.resident_bytes)
    }

    /// The most memory that the process ever had.
    pub(super) fn peak_bytes(&self) -> anyhow::Result<u64> {
        Ok(self.server.usage()?.peak_bytes)
    }

    pub(super) fn budget_bytes(&self) -> u64 {
        self.resting_bytes + OPTION_BYTES + BESIDES_BYTES
    }

    /// Faults of the server itself, in words.
    pub(super) fn faults(&mut self, expected: Expected<'_>) -> anyhow::Result<Vec<String>> {
        let Expected { takes_admin_port, log, health } = expected;
        let mut faults = Vec::new();
        if let Err(error) = self.server.must_run() {
            return Ok(vec![format!("{error:#}")]);
        }
        let (peak, budget) = (self.peak_bytes()?, self.budget_bytes());
        if peak > budget {
            faults.push(format!("{} MiB of memory, its budget is {}", peak >> 20, budget >> 20));
        }
        let silent = Duration::from_millis(self.watched.silent_ms.load(Ordering::Relaxed));
        if silent > HEALTH_PATIENCE && !takes_admin_port {
            faults.push(format!("/health was not answered for {:.1} s", silent.as_secs_f64()));
        }
        if http_get(self.server.admin_port(), "/health", HEALTH_PATIENCE).is_err() {
            faults.push("/health is not answered afterwards".to_owned());
        }
        let told = self.told();
        if !health.is_empty() && !told.iter().any(|line| health.iter().any(|word| line.contains(word))) {
            faults.push(format!("/health said nothing of {}", health.join(" or ")));
        }
        if self.ground.log_reader == LogReader::Works {
            faults.extend(log_faults(&self.launch.log()?, log));
        }
        Ok(faults)
    }

    /// Troubles and notes that `/health` has shown.
    pub(super) fn told(&self) -> BTreeSet<String> {
        self.watched.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the server; fails if the server reports that it did not end in order.
    pub(super) fn stop(&mut self) -> anyhow::Result<()> {
        self.end_watch();
        self.server.stop()
    }

    /// Starts the server again on the same data; returns the time until it answered.
    pub(super) fn restart(&mut self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        (self.server, self.unread) = spawn(&self.launch, self.ground.log_reader)?;
        self.wait_until_ready()?;
        Ok(begun.elapsed())
    }

    fn end_watch(&mut self) {
        self.watched.ended.store(true, Ordering::Relaxed);
        if let Some(looking) = self.looking.take() {
            drop(looking.join());
        }
    }
}

impl Drop for Rig<'_> {
    fn drop(&mut self) {
        self.end_watch();
    }
}

/// Starts the process; returns it with the end of a pipe that has to stay open.
fn spawn(launch: &Launch<'_>, log_reader: LogReader) -> anyhow::Result<(Server, Option<PipeReader>)> {
    match log_reader {
        LogReader::Works => Ok((launch.spawn()?, None)),
        LogReader::Gone => Ok((launch.clone().unread(true).spawn()?, None)),
        LogReader::Paused => {
            let (reader, mut writer) = std::io::pipe()?;
            rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES)?;
            writer.write_all(&vec![b'-'; PIPE_BYTES])?;
            let stdout = File::options().write(true).open("/dev/null")?;
            Ok((launch.spawn_logging_to(Stdio::from(stdout), Stdio::from(writer))?, Some(reader)))
        }
    }
}

fn watch(watched: &Watched, admin: u16) {
    let mut answered = Instant::now();
    while !watched.ended.load(Ordering::Relaxed) {
        if let Ok((_, body)) = http_get(admin, "/health", HEALTH_PATIENCE) {
            answered = Instant::now();
            let mut told = watched.told.lock().unwrap_or_else(PoisonError::into_inner);
            let lines = told_lines(&body).take(TOLD_MAX.saturating_sub(told.len()));
            told.extend(lines);
        }
        let silent_ms = u64::try_from(answered.elapsed().as_millis()).unwrap_or(u64::MAX);
        watched.silent_ms.fetch_max(silent_ms, Ordering::Relaxed);
        thread::sleep(LOOK_INTERVAL);
    }
}

/// Troubles and notes in an answer of `/health`, without their durations.
fn told_lines(body: &str) -> impl Iterator<Item = String> {
    let lines = body.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "ok");
    lines.map(|line| {
        let lasted = line.strip_prefix("for ").and_then(|rest| rest.split_once(" seconds "));
        lasted.map_or(line, |(_, cause)| cause).to_owned()
    })
}

fn log_faults(log: &str, words: &[&str]) -> Vec<String> {
    let mut faults: Vec<_> =
        log.lines().filter(|line| line.contains(PANICKED)).take(3).map(str::to_owned).collect();
    if log.len() as u64 > LOG_BYTES_MAX {
        faults.push(format!("{} MiB of log", log.len() >> 20));
    }
    if !words.is_empty() && !words.iter().any(|word| log.contains(word)) {
        faults.push(format!("the log says nothing of {}", words.join(" or ")));
    }
    faults
}

/// Empties a directory of an earlier run.
pub(super) fn clear(dir: &Path) -> anyhow::Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("{} could not be removed", dir.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_shows_troubles_and_notes_without_durations() {
        let told = |body: &str| told_lines(body).collect::<Vec<_>>();
        assert_eq!(told("ok\n"), [""; 0]);
        assert_eq!(told("ok\nfor 3 seconds a journal waits\n"), ["a journal waits"]);
        assert_eq!(told("failed\ncordoned\n"), ["failed", "cordoned"]);
    }

    #[test]
    fn panic_flood_and_silence_in_the_log_are_faults() {
        assert_eq!(log_faults("INFO ready\n", &[]), [""; 0]);
        assert_eq!(log_faults("thread 'a' panicked at x\n", &[]), ["thread 'a' panicked at x"]);
        assert_eq!(log_faults(&"x".repeat(3 << 20), &[]), ["3 MiB of log"]);
        assert_eq!(log_faults("INFO ready\n", &["slow"]), ["the log says nothing of slow"]);
        assert_eq!(log_faults("WARN a slow client\n", &["slow", "late"]), [""; 0]);
    }
}

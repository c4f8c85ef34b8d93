//! A disk that fails to sync: each of the first system calls that sync is made to fail in turn.
//!
//! strace makes the calls fail without executing them. A failed `pwritev2` writes nothing; a failed `fdatasync` leaves
//! the bytes in the page cache, where a mere restart would find them. So the power is cut after each round, and records
//! that the server acked without having them on the disk are gone. Each round has a server and a directory of its own,
//! and ends when its call has failed: a call that is never made fails the run.
//!
//! strace counts the calls of each thread and each kind apart. The first syncs of a start hide all others, because a
//! server that cannot sync its metadata does not start. So there are several series, and in some the counting begins
//! when the server has a load.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use riverrun_client::NewTopic;

use super::disk::Disk;
use super::load::Shape;
use super::power;
use super::run::{Allowed, Run};
use super::verify::Tested;
use super::{Settings, topic_of};
use crate::clients::install::Toolbox;
use crate::clients::server::Server;

/// Calls that are counted together.
#[derive(Clone, Copy, Debug)]
enum Series {
    /// System calls that sync metadata, segments and checkpoints, from the start of a server.
    SyncsOfStart,
    /// The same calls, from when the server has a load.
    Syncs,
    /// The journal's writes, which a flag makes synced ones, from the start of a server.
    SyncedWrites,
    /// As `Syncs`, with a journal that writes through the page cache and syncs afterwards.
    BufferedSyncs,
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = if self.begins_with_load() { "under load" } else { "since the start" };
        let buffered = if matches!(self, Self::BufferedSyncs) { ", of a buffered journal too" } else { "" };
        write!(f, "{} {since}{buffered}", self.calls())
    }
}

impl Series {
    fn calls(self) -> &'static str {
        match self {
            Self::SyncsOfStart | Self::Syncs | Self::BufferedSyncs => "fdatasync,fsync,syncfs",
            Self::SyncedWrites => "pwritev2",
        }
    }

    fn begins_with_load(self) -> bool {
        matches!(self, Self::Syncs | Self::BufferedSyncs)
    }

    /// Checkpoints come often, so that one thread soon makes fifty syncs.
    fn server_settings(self) -> &'static [&'static str] {
        match self {
            Self::SyncsOfStart | Self::Syncs | Self::SyncedWrites => &[CHECKPOINTS],
            Self::BufferedSyncs => &[CHECKPOINTS, "journal.sync.method=buffered"],
        }
    }
}

const CHECKPOINTS: &str = "log.flush.offset.checkpoint.interval.ms=50";

/// Size of the disk that all rounds share.
const DISK_BYTES: u64 = 16 << 30;

/// Time of a server with its load before a call is made to fail.
const BEFORE: Duration = Duration::from_millis(200);

/// Time for which the server lives on after the failed call, and the next server without one.
const AFTERMATH: Duration = Duration::from_millis(300);

/// Longest wait for the call of a round; strace slows the server down.
const REACH_LIMIT: Duration = Duration::from_mins(5);

/// Longest time for strace to attach to a process.
const ATTACH_LIMIT: Duration = Duration::from_secs(30);

const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Records are given up early, because the server is made to refuse them.
const DELIVERY_LIMIT: Duration = Duration::from_secs(3);

/// One round for each call of each series, as many as there are cycles.
pub(super) async fn run(settings: &Settings, toolbox: &Toolbox) -> anyhow::Result<()> {
    let mut disk = Disk::make(settings.fs, &settings.dir, DISK_BYTES)?;
    let all_series = [Series::SyncsOfStart, Series::Syncs, Series::SyncedWrites, Series::BufferedSyncs];
    // The journal has no records of async levels.
    let all_series = if settings.level.syncs() { &all_series[..] } else { &all_series[..2] };
    for series in all_series {
        let mut all = Totals::default();
        for number in 1..=settings.cycles {
            let fault = Fault { series: *series, number };
            let round = round(settings, toolbox, &mut disk, fault).await;
            all.add(&round.with_context(|| fault.to_string())?);
        }
        all.report(*series)?;
    }
    drop(disk);
    fs::remove_dir_all(&settings.dir).context("the run's directory could not be removed")
}

/// The call that is made to fail.
#[derive(Clone, Copy, Debug)]
struct Fault {
    series: Series,
    number: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {} of {}", self.number, self.series)
    }
}

#[derive(Debug, Default)]
struct Totals {
    rounds: u64,
    injected: u64,
    acked: u64,
    begun: u64,
    tested: Tested,
}

impl Totals {
    fn add(&mut self, round: &Round) {
        self.rounds += 1;
        self.injected += round.injected;
        self.acked += round.acked;
        self.tested.add(round.tested);
        self.begun += u64::from(round.begun);
    }

    fn report(&self, series: Series) -> anyhow::Result<()> {
        println!(
            "{series}: {} calls made to fail in {} rounds, in {} of them under load; {} records acked\n",
            self.injected, self.rounds, self.begun, self.acked
        );
        if self.acked == 0 {
            bail!("nothing was acked: that proves nothing");
        }
        self.tested.check()
    }
}

/// Outcome of one round.
#[derive(Debug)]
struct Round {
    injected: u64,
    acked: u64,
    begun: bool,
    tested: Tested,
}

async fn round(
    settings: &Settings,
    toolbox: &Toolbox,
    disk: &mut Disk,
    fault: Fault,
) -> anyhow::Result<Round> {
    let begun_at = Instant::now();
    let name = format!("{:?}-{}", fault.series, fault.number).to_lowercase();
    let dir = settings.dir.join(&name);
    fs::create_dir(&dir)?;
    let trace = dir.join("strace.log");
    let allowed = Allowed { losses: !settings.level.syncs(), failures: true, ..Allowed::default() };
    let data = disk.path().join(&name);
    let mut run = Run::prepare(settings, toolbox, &dir, data.clone(), allowed)?.without_summary();
    run.launch = run.launch.with_own_settings(fault.series.server_settings().iter().copied());
    let begun = if fault.series.begins_with_load() {
        suffer_under_load(&mut run, disk, &trace, fault).await?;
        true
    } else {
        suffer(&mut run, disk, &trace, fault).await?
    };
    let mut server = run.start().await?;
    if !begun {
        // Its first syncs failed: the next server must not suffer from it.
        run.begin_load(&shape(), topic()).await?;
    }
    tokio::time::sleep(AFTERMATH).await;
    run.check().await?;
    let tested = run.judge().await?.tested;
    server.stop()?;
    let round = Round { injected: injected(&trace)?, acked: run.progress().acked(), begun, tested };
    if round.injected == 0 {
        bail!("the server took no load, though no call failed");
    }
    println!(
        "{fault}: {} failed, {} records acked, {} given up, {:.1} s",
        round.injected,
        round.acked,
        run.progress().failed(),
        begun_at.elapsed().as_secs_f64()
    );
    run.clear()?;
    fs::remove_dir_all(data)?;
    Ok(round)
}

/// Starts the server with the failing call, and cuts the power. Returns whether the load could begin.
async fn suffer(run: &mut Run<'_>, disk: &mut Disk, trace: &Path, fault: Fault) -> anyhow::Result<bool> {
    // `-D`: strace runs beside the server, which stays our child.
    let wrapper =
        ["strace", "-D", "--seccomp-bpf"].map(str::to_owned).into_iter().chain(inject(trace, fault));
    let plain = run.launch.clone();
    run.launch = plain.clone().wrapped_in(wrapper);
    let mut server = run.launch.spawn()?;
    let topic = topic();
    // A server that cannot sync its metadata refuses to start, or to create a topic, as it should.
    let begun = server.wait_until_ready().is_ok()
        && run.begin_load_within(&shape(), topic, DELIVERY_LIMIT).await.is_ok();
    if begun {
        until_injected(trace, || true).await?;
        tokio::time::sleep(AFTERMATH).await;
    }
    power::cut(run, disk, server).await?;
    run.launch = plain;
    Ok(begun)
}

/// Makes the call fail in a server that has a load, and cuts the power.
async fn suffer_under_load(
    run: &mut Run<'_>,
    disk: &mut Disk,
    trace: &Path,
    fault: Fault,
) -> anyhow::Result<()> {
    let server = run.start().await?;
    run.begin_load(&shape(), topic()).await?;
    tokio::time::sleep(BEFORE).await;
    let mut tracer = Tracer::attach(&server, inject(trace, fault))?;
    until_injected(trace, || tracer.is_running()).await?;
    tokio::time::sleep(AFTERMATH).await;
    power::cut(run, disk, server).await
}

/// Waits until the call has failed; fails if it cannot come any more (`may_come`) or takes too long.
async fn until_injected(trace: &Path, mut may_come: impl FnMut() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + REACH_LIMIT;
    loop {
        // All calls traced before the server's end are in the file after it.
        let is_last = !may_come() || Instant::now() >= deadline;
        if trace.exists() && injected(trace)? > 0 {
            return Ok(());
        }
        if is_last {
            bail!("the call was never made, or strace has ended: nothing failed, which proves nothing");
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// strace on a running server; it ends with the server, or when this is dropped.
struct Tracer(Child);

impl Tracer {
    fn attach(server: &Server, options: impl IntoIterator<Item = String>) -> anyhow::Result<Self> {
        let mut command = Command::new("strace");
        command.args(options).arg("-p").arg(server.process_id().to_string()).stdin(Stdio::null());
        Ok(Self(command.spawn().context("strace could not be started")?))
    }

    fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn shape() -> Shape {
    Shape { delivery_limit: DELIVERY_LIMIT, ..Shape::usual("crash") }
}

fn topic() -> NewTopic {
    NewTopic { partitions: Some(shape().partitions), ..topic_of("crash") }
}

/// Options of strace that make the n-th call of each thread fail.
fn inject(log: &Path, fault: Fault) -> impl Iterator<Item = String> + use<> {
    let (calls, log) = (fault.series.calls(), log.display().to_string());
    let inject = format!("inject={calls}:error=EIO:when={}", fault.number);
    let trace = format!("trace={calls}");
    ["-f", "-q", "-o", &log, "-e", &trace, "-e", &inject].map(str::to_owned).into_iter()
}

fn injected(trace: &Path) -> anyhow::Result<u64> {
    let text = fs::read_to_string(trace).context("strace has written nothing; is it installed?")?;
    Ok(text.matches("(INJECTED)").count() as u64)
}

/// Checks that strace exists and may trace processes; the error names what is missing.
pub(super) fn allowed() -> anyhow::Result<()> {
    let mut traced = Command::new("sleep").arg(ATTACH_LIMIT.as_secs().to_string()).spawn()?;
    let result = trial(traced.id());
    traced.kill()?;
    traced.wait()?;
    result
}

fn trial(process: u32) -> anyhow::Result<()> {
    let mut command = Command::new("strace");
    command.args(["-q", "-o", "/dev/null", "-p"]).arg(process.to_string());
    let started = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut tracer = Tracer(started.context("strace cannot be started; is it installed?")?);
    let deadline = Instant::now() + ATTACH_LIMIT;
    while !is_traced(process)? {
        if !tracer.is_running() || Instant::now() >= deadline {
            bail!(
                "strace may not trace processes here; that takes a super user, and a kernel that allows it"
            );
        }
        thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

fn is_traced(process: u32) -> io::Result<bool> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    Ok(status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|pid| pid.trim() != "0")))
}

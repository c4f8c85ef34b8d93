//! A disk that fails to sync: each of the first system calls that sync is made to fail in turn.
//!
//! The calls are made to fail by strace, which does not carry them out: of a failed `pwritev2` nothing is written, of
//! a failed `fdatasync` the bytes stay in the page cache, where a mere restart would find them. So the power is cut
//! after each round, and what the server acked without having it on the disk is gone. Each round has a server and a
//! directory of its own. strace counts the calls of each thread and each kind apart; the journal's kind gets rounds of
//! its own, or the metadata's first syncs would fail before it ever came to the journal.

use std::fmt;
use std::fs;
use std::path::Path;
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

/// System calls that put something on the disk for good.
#[derive(Clone, Copy, Debug)]
enum Calls {
    /// Of metadata, segments and checkpoints, and of a journal that is told to use them.
    Syncs,
    /// The journal's writes, which a flag makes synced ones.
    SyncedWrites,
    /// As the first, with a journal that is told to write through the page cache and to sync after it.
    BufferedSyncs,
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.server_settings().iter().map(|setting| format!(" with {setting}"));
        write!(f, "{}{}", self.names(), settings.collect::<String>())
    }
}

impl Calls {
    fn names(self) -> &'static str {
        match self {
            Self::Syncs | Self::BufferedSyncs => "fdatasync,fsync,syncfs",
            Self::SyncedWrites => "pwritev2",
        }
    }

    fn server_settings(self) -> &'static [&'static str] {
        match self {
            Self::Syncs | Self::SyncedWrites => &[],
            Self::BufferedSyncs => &["journal.sync.method=buffered"],
        }
    }
}

/// All rounds share the disk.
const DISK_BYTES: u64 = 16 << 30;

/// How long the server works, slowed down by strace.
const LIFE: Duration = Duration::from_millis(1200);

/// Records are given up early: the server was made to refuse them.
const DELIVERY_LIMIT: Duration = Duration::from_secs(3);

/// One round for each call of each kind, up to as many as there are cycles.
pub(super) async fn run(settings: &Settings, toolbox: &Toolbox) -> anyhow::Result<()> {
    let mut disk = Disk::make(settings.fs, &settings.dir, DISK_BYTES)?;
    let series = [Calls::Syncs, Calls::SyncedWrites, Calls::BufferedSyncs];
    let kinds = if settings.level.syncs() { &series[..] } else { &series[..1] };
    for calls in kinds {
        let mut all = Totals::default();
        for number in 1..=settings.cycles {
            let fault = Fault { calls: *calls, number };
            let round = round(settings, toolbox, &mut disk, fault).await;
            all.add(&round.with_context(|| fault.to_string())?);
        }
        all.report(*calls)?;
    }
    drop(disk);
    fs::remove_dir_all(&settings.dir).context("the run's directory could not be removed")
}

/// The call that is made to fail.
#[derive(Clone, Copy, Debug)]
struct Fault {
    calls: Calls,
    number: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {} of {}", self.number, self.calls)
    }
}

#[derive(Debug, Default)]
struct Totals {
    rounds: u64,
    injected: u64,
    acked: u64,
    hit: u64,
    begun: u64,
    tested: Tested,
}

impl Totals {
    fn add(&mut self, round: &Round) {
        self.rounds += 1;
        self.injected += round.injected;
        self.acked += round.acked;
        self.tested.add(round.tested);
        self.hit += u64::from(round.injected > 0);
        self.begun += u64::from(round.begun);
    }

    fn report(&self, calls: Calls) -> anyhow::Result<()> {
        println!(
            "{}: {} calls made to fail in {} of {} rounds, {} of which took a load; {} records acked\n",
            calls, self.injected, self.hit, self.rounds, self.begun, self.acked
        );
        if self.injected == 0 || self.acked == 0 {
            bail!("nothing failed, or nothing was acked: that proves nothing");
        }
        self.tested.check()
    }
}

/// What one round came to.
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
    let name = format!("{:?}-{}", fault.calls, fault.number).to_lowercase();
    let dir = settings.dir.join(&name);
    fs::create_dir(&dir)?;
    let trace = dir.join("strace.log");
    let allowed = Allowed { losses: !settings.level.syncs(), failures: true, ..Allowed::default() };
    let data = disk.path().join(&name);
    let mut run = Run::prepare(settings, toolbox, &dir, data.clone(), allowed)?.without_summary();
    run.launch = run.launch.with_own_settings(fault.calls.server_settings().iter().copied());
    let plain = run.launch.clone();
    run.launch = plain.clone().wrapped_in(tracer(&trace, fault));
    let begun = suffer(&mut run, disk).await?;
    run.launch = plain;
    let mut server = run.start()?;
    if !begun {
        // Its first syncs failed: the next server must be none the worse for it.
        run.begin_load(&shape(), topic(settings)).await?;
        tokio::time::sleep(LIFE / 4).await;
    }
    run.check().await?;
    let tested = run.judge().await?.tested;
    server.stop()?;
    let round = Round { injected: injected(&trace)?, acked: run.progress().acked(), begun, tested };
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

/// Lets the server work with the call that fails, and cuts the power. Whether the load could begin.
async fn suffer(run: &mut Run<'_>, disk: &mut Disk) -> anyhow::Result<bool> {
    let mut server = run.launch.spawn()?;
    let topic = topic(run.settings);
    // A server that cannot sync its metadata refuses to start, or to create a topic: that is right.
    let begun = server.wait_until_ready().is_ok()
        && run.begin_load_within(&shape(), topic, DELIVERY_LIMIT).await.is_ok();
    if begun {
        tokio::time::sleep(LIFE).await;
    }
    power::cut(run, disk, server).await?;
    Ok(begun)
}

fn shape() -> Shape {
    Shape { delivery_limit: DELIVERY_LIMIT, ..Shape::usual("crash") }
}

fn topic(settings: &Settings) -> NewTopic {
    NewTopic { partitions: Some(shape().partitions), ..topic_of(settings, "crash") }
}

/// strace, which makes the n-th call of each thread fail. `-D`: it runs beside the server, which stays our child.
fn tracer(log: &Path, fault: Fault) -> Vec<String> {
    let inject = format!("inject={}:error=EIO:when={}", fault.calls.names(), fault.number);
    let trace = format!("trace={}", fault.calls.names());
    let log = log.display().to_string();
    ["strace", "-D", "-f", "-q", "--seccomp-bpf", "-o", &log, "-e", &trace, "-e", &inject]
        .map(str::to_owned)
        .to_vec()
}

fn injected(trace: &Path) -> anyhow::Result<u64> {
    let text = fs::read_to_string(trace).context("strace has written nothing; is it installed?")?;
    Ok(text.matches("(INJECTED)").count() as u64)
}

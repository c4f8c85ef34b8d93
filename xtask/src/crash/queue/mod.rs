//! Crash of the embedded queue: processes that append to one queue are killed, or the disk below them loses its power
//! or fills up.
//!
//! Two processes append at once, each with and without a sync, and a third thread of each reads synced records. After
//! each crash the queue is read, by a view or by the opening that recovers it: earlier records must still be in their
//! places. In the end everything is compared with the recorder's file. After a kill no record may be gone; after a
//! power cut only unsynced ones at the end.

mod appender;
mod cuts;
mod full;
mod history;
mod recorder;

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use riverrun_queue::{AppendOptions, CreateOptions, Queue, QueueView};

pub(crate) use self::appender::AppenderOptions;
use self::appender::{Lie, STREAMS};
use self::history::History;
use self::recorder::{Follower, Recorder};
use super::disk::Disk;
use super::event::Event;
use super::ledger::Ledger;
use super::random::Rng;
use super::verify::{Observed, shown, verify};
use super::{Mode, Settings};

/// Small, so that they roll often.
const SEGMENT_BYTES: u64 = 256 << 10;

/// Position in the control file of the id of the boot in which the queue was used last.
const BOOT_AT: u64 = 64;
/// Room for the data of hundreds of cycles. The image is sparse.
const DISK_BYTES: u64 = 8 << 30;

/// Number of processes that append at once.
const PROCESSES: u32 = 2;

/// Longest life of the processes before a crash.
const LIFE_MAX: Duration = Duration::from_millis(200);

/// One crash in this many comes while a process opens the queue.
const EARLY_ONE_IN: u64 = 6;

/// About the longest opening.
const OPENING_MAX: Duration = Duration::from_millis(15);

/// Longest time between the cut and the end of the processes.
const AGONY_MAX: Duration = Duration::from_millis(20);

/// Entry point of the process that is crashed.
pub(super) fn append(options: &AppenderOptions) -> anyhow::Result<()> {
    appender::run(options)
}

/// Crashes for each cycle of the settings, and judges.
pub(super) async fn run(mode: Mode, settings: &Settings) -> anyhow::Result<()> {
    match mode {
        Mode::Kill => kill(settings).await,
        Mode::Power => power(settings).await,
        Mode::DiskFull => full::run(settings).await,
        Mode::SyncErrors => bail!("a queue is not crashed by failing syncs"),
    }?;
    Ok(fs::remove_dir_all(&settings.dir)?)
}

async fn kill(settings: &Settings) -> anyhow::Result<()> {
    let mut run = Run::new(settings, &settings.dir, &[])?;
    for _ in 0..settings.cycles {
        run.work().await?;
        run.mark()?;
        run.kill_some()?;
        run.crashed()?;
    }
    let (_, ledger) = run.finish()?;
    let observed = run.everything()?;
    println!("{}", run.judged(&ledger, &observed, &[])?);
    run.goes_on()
}

async fn power(settings: &Settings) -> anyhow::Result<()> {
    let mut disk = Disk::make(settings.fs, &settings.dir, DISK_BYTES)?;
    let mut run = Run::new(settings, disk.path(), &[])?;
    let cycled = power_cycles(&mut run, &mut disk, settings.cycles).await;
    let judged = cycled.and_then(|()| judge_power(&mut run));
    // Its processes keep the disk busy.
    drop(run);
    judged
}

async fn power_cycles(run: &mut Run, disk: &mut Disk, cycles: u64) -> anyhow::Result<()> {
    for _ in 0..cycles {
        run.work().await?;
        // Every ack in the recorder's pipe before this mark preceded the cut.
        run.mark()?;
        disk.cut()?;
        run.mark()?;
        tokio::time::sleep(run.rng.up_to(AGONY_MAX)).await;
        run.kill_all()?;
        run.mark()?;
        disk.restore()?;
        end_boot(&run.queue)?;
        run.crashed()?;
    }
    Ok(())
}

/// Ends the boot, as a power cut does. Within one boot a queue remembers a failed sync, whose data the disk may have
/// taken just before the file system was shut down.
fn end_boot(queue: &Path) -> anyhow::Result<()> {
    let control = queue.join("queue.control");
    if !control.try_exists()? {
        return Ok(());
    }
    let file = fs::File::options().write(true).open(&control)?;
    file.write_all_at(&[0; 16], BOOT_AT).context("the boot's id cannot be written")
}

fn judge_power(run: &mut Run) -> anyhow::Result<()> {
    let (events, mut ledger) = run.finish()?;
    let observed = run.everything()?;
    let taken = cuts::forgive(&mut ledger, &events, &observed, &run.history);
    let judged = run.judged(&ledger, &observed, &taken.findings)?;
    println!(
        "{judged}; besides, {} unsynced ones are gone, and of {} acked as synced since the cut began {}",
        taken.unsynced, taken.late, taken.late_gone
    );
    ensure!(taken.unsynced > 0, "no cut took a record, so the power was never cut");
    run.goes_on()
}

/// Processes at a queue, and the known state of the queue.
///
/// Invariants: every process of `processes` runs until it is killed; none is left when this is dropped.
struct Run {
    id: u64,
    queue: PathBuf,
    /// File of the processes' error output: each prints an error when the disk is gone.
    said: PathBuf,
    /// Further arguments of the processes.
    arguments: Vec<String>,
    rng: Rng,
    recorder: Recorder,
    follower: Follower,
    processes: Vec<Process>,
    streams: u32,
    history: History,
    marks: u64,
}

/// A process, and the number of its first stream.
struct Process {
    child: Child,
    stream: u32,
}

impl Run {
    fn new(settings: &Settings, above: &Path, arguments: &[&str]) -> anyhow::Result<Self> {
        let mut arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        for set in &settings.set {
            let lie = Lie::of(set).context("with --queue, --set takes sync=never or sync=late only")?;
            arguments.extend(["--lie".to_owned(), lie.name().to_owned()]);
        }
        let queue = above.join("queue");
        drop(Queue::create(&queue, CreateOptions { segment_bytes: SEGMENT_BYTES })?);
        let mut rng = Rng::new(settings.seed);
        let written = settings.dir.join("acked.log");
        Ok(Self {
            id: rng.next(),
            queue,
            said: settings.dir.join("appenders.log"),
            arguments,
            rng,
            recorder: Recorder::start(&written)?,
            follower: Follower::new(&written),
            processes: Vec::new(),
            streams: 0,
            history: History::default(),
            marks: 0,
        })
    }

    /// Lets processes work for a while; now and then only until they begin.
    async fn work(&mut self) -> anyhow::Result<()> {
        self.start_missing()?;
        let is_early = self.rng.one_in(EARLY_ONE_IN);
        let life = self.rng.up_to(if is_early { OPENING_MAX } else { LIFE_MAX });
        tokio::time::sleep(life).await;
        self.must_run()
    }

    fn start_missing(&mut self) -> anyhow::Result<()> {
        while self.processes.len() < PROCESSES as usize {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("crash-appender").arg(&self.queue).args(["--run", &self.id.to_string()]);
            command.args(["--stream", &self.streams.to_string()]).args(&self.arguments);
            let said = fs::File::options().create(true).append(true).open(&self.said)?;
            command.stdin(Stdio::null()).stdout(self.recorder.pipe()?).stderr(said);
            let child = command.spawn().context("an appender could not be started")?;
            self.processes.push(Process { child, stream: self.streams });
            self.streams += STREAMS;
        }
        Ok(())
    }

    /// The streams of the running processes.
    fn living(&self) -> impl Iterator<Item = u32> {
        self.processes.iter().flat_map(|process| process.stream..process.stream + STREAMS)
    }

    /// Number of processes started in all.
    fn started(&self) -> u32 {
        self.streams / STREAMS
    }

    fn must_run(&mut self) -> anyhow::Result<()> {
        for process in &mut self.processes {
            if let Some(status) = process.child.try_wait()? {
                let said = fs::read_to_string(&self.said)?;
                let said = said.lines().last().unwrap_or("nothing");
                let crashes = self.history.crashes();
                bail!(
                    "after {crashes} crashes an appender ended by itself, with {status}; its last line was: {said}"
                );
            }
        }
        Ok(())
    }

    /// Kills one process or all of them.
    fn kill_some(&mut self) -> anyhow::Result<()> {
        if self.rng.one_in(2) {
            self.processes.rotate_left(1);
        }
        let all = self.rng.one_in(3);
        self.kill(if all { self.processes.len() } else { 1 })
    }

    fn kill_all(&mut self) -> anyhow::Result<()> {
        self.kill(self.processes.len())
    }

    fn kill(&mut self, count: usize) -> anyhow::Result<()> {
        for Process { mut child, .. } in self.processes.drain(..count) {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Records the next mark of a crash.
    fn mark(&mut self) -> anyhow::Result<()> {
        self.marks += 1;
        self.recorder.tell(&Event::Crash(self.marks))
    }

    fn open(&self) -> anyhow::Result<Queue> {
        Ok(Queue::open(&self.queue)?)
    }

    /// Looks at the queue after a crash.
    fn crashed(&mut self) -> anyhow::Result<()> {
        self.look().with_context(|| format!("after crash {}", self.history.crashes() + 1))?;
        self.history.crashed();
        Ok(())
    }

    /// Reads the queue, through an opening or through a view.
    fn look(&mut self) -> anyhow::Result<()> {
        if self.rng.one_in(2) {
            let view = QueueView::open(&self.queue)?;
            self.history.look(self.id, view.start_offset()?, |at| view.tailer(at))
        } else {
            let queue = self.open()?;
            self.history.look(self.id, queue.start_offset()?, |at| queue.tailer(at))
        }
    }

    fn everything(&self) -> anyhow::Result<Observed> {
        history::everything(&self.open()?, self.id)
    }

    /// Ends all processes. Returns the recorded events.
    fn finish(&mut self) -> anyhow::Result<(Vec<Event>, Ledger)> {
        self.kill_all()?;
        let events = self.recorder.finish()?;
        let mut ledger = Ledger::default();
        for event in &events {
            ledger.add(event.clone())?;
        }
        Ok((events, ledger))
    }

    /// The verdict: fails with the findings, or returns the text to print.
    fn judged(&self, ledger: &Ledger, observed: &Observed, others: &[String]) -> anyhow::Result<String> {
        let verdict = verify(ledger, observed);
        let findings: Vec<_> = verdict.findings.iter().collect();
        ensure!(findings.is_empty(), "{}", shown(&findings));
        ensure!(others.is_empty(), "{}", others.join("\n  "));
        let synced = ledger.acks.iter().filter(|ack| appender::is_synced(ack.identity.stream)).count();
        ensure!(
            synced > 0 && !ledger.sightings.is_empty(),
            "nothing was synced or seen, which proves nothing"
        );
        Ok(format!(
            "{} crashes of {} processes; {} records acked, {synced} of them synced, and {} seen as synced: all are there; {} \
             read back",
            self.history.crashes(),
            self.started(),
            ledger.acks.len(),
            ledger.sightings.len(),
            verdict.records_read,
        ))
    }

    /// Checks that the queue is whole, and accepts records.
    fn goes_on(&self) -> anyhow::Result<()> {
        let queue = self.open()?;
        queue.verify()?;
        queue.appender(AppendOptions::default())?.append(b"it goes on")?;
        Ok(())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Err(error) = self.kill_all() {
            eprintln!("{error:#}");
        }
    }
}

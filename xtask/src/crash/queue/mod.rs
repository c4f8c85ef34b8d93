//! Crash of the embedded queue: processes that append to one queue are killed, or the disk below them loses its power.
//!
//! Two processes append at once, each with and without a sync, and a third thread of each reads what is synced. After each
//! crash the queue is read, by one that only looks or by the one that recovers it: what was there is still there, in its
//! place. In the end everything is held against what the recorder wrote down. After a kill nothing may be gone; after a cut
//! of power only what nobody synced, and of that only the end.

mod appender;
mod history;

use std::fs;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use riverrun_queue::{AppendOptions, CreateOptions, Queue, QueueView};

pub(crate) use self::appender::AppenderOptions;
use self::history::{History, MARKS};
use super::disk::Disk;
use super::event::Event;
use super::ledger::Ledger;
use super::random::Rng;
use super::verify::{Rules, shown, verify};
use super::{Mode, Settings};

/// Small, so that they roll often.
const SEGMENT_BYTES: u64 = 256 << 10;

/// Room for what a run of hundreds of cycles keeps. The image is sparse.
const DISK_BYTES: u64 = 8 << 30;

/// Processes that append at once.
const PROCESSES: usize = 2;

/// They work for at most so long before a crash.
const LIFE_MAX: Duration = Duration::from_millis(200);

/// One crash in so many comes while a process opens the queue.
const EARLY_ONE_IN: u64 = 6;

/// An opening takes about so long.
const OPENING_MAX: Duration = Duration::from_millis(15);

/// Between the cut and the end of the processes.
const AGONY_MAX: Duration = Duration::from_millis(20);

/// A setting with which the processes claim to sync, and do not.
const LIE: &str = "sync=never";

/// What the process does that is crashed.
pub(super) fn append(options: &AppenderOptions) -> anyhow::Result<()> {
    appender::run(options)
}

/// Crashes as often as asked, and judges.
pub(super) async fn run(mode: Mode, settings: &Settings) -> anyhow::Result<()> {
    ensure!(settings.set.iter().all(|set| set == LIE), "with --queue, --set takes {LIE} only");
    let disk = match mode {
        Mode::Power => Some(Disk::make(settings.fs, &settings.dir, DISK_BYTES)?),
        _ => None,
    };
    // Dropped before the disk, which its processes keep busy.
    let mut run = Run::new(settings, disk.as_ref().map_or(&settings.dir, |disk| disk.path()))?;
    let mut disk = disk;
    for _ in 0..settings.cycles {
        run.start_missing()?;
        let is_early = run.rng.one_in(EARLY_ONE_IN);
        let life = run.rng.up_to(if is_early { OPENING_MAX } else { LIFE_MAX });
        tokio::time::sleep(life).await;
        run.must_run()?;
        run.mark()?;
        match &mut disk {
            None => run.kill_some()?,
            Some(disk) => {
                disk.cut()?;
                tokio::time::sleep(run.rng.up_to(AGONY_MAX)).await;
                run.kill(PROCESSES)?;
                disk.restore()?;
            }
        }
        run.crashed()?;
    }
    run.kill(PROCESSES)?;
    run.judge(mode)?;
    drop(run);
    drop(disk);
    Ok(fs::remove_dir_all(&settings.dir)?)
}

/// Processes at a queue, and what is known of it.
///
/// Invariants: none of `processes` has ended but by a kill; when this is dropped none is left.
struct Run {
    id: u64,
    queue: PathBuf,
    lie: bool,
    rng: Rng,
    recorder: Recorder,
    processes: Vec<Child>,
    streams: u32,
    history: History,
    marks: u64,
}

impl Run {
    fn new(settings: &Settings, above: &Path) -> anyhow::Result<Self> {
        let queue = above.join("queue");
        drop(Queue::create(&queue, CreateOptions { segment_bytes: SEGMENT_BYTES })?);
        let mut rng = Rng::new(settings.seed);
        Ok(Self {
            id: rng.next(),
            queue,
            lie: !settings.set.is_empty(),
            rng,
            recorder: Recorder::start(&settings.dir.join("acked.log"))?,
            processes: Vec::new(),
            streams: 0,
            history: History::default(),
            marks: 0,
        })
    }

    fn start_missing(&mut self) -> anyhow::Result<()> {
        while self.processes.len() < PROCESSES {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("crash-appender").arg(&self.queue).args(["--run", &self.id.to_string()]);
            command.args(["--stream", &self.streams.to_string()]).args(self.lie.then_some("--lie"));
            // What it says when the disk has gone is no news.
            command.stdin(Stdio::null()).stdout(self.recorder.pipe()?).stderr(Stdio::null());
            self.processes.push(command.spawn().context("an appender could not be started")?);
            self.streams += appender::STREAMS;
        }
        Ok(())
    }

    fn must_run(&mut self) -> anyhow::Result<()> {
        for process in &mut self.processes {
            if let Some(status) = process.try_wait()? {
                bail!("after crash {}: an appender ended by itself, with {status}", self.crashes());
            }
        }
        Ok(())
    }

    /// Kills one process or all of them.
    fn kill_some(&mut self) -> anyhow::Result<()> {
        if self.rng.one_in(2) {
            self.processes.rotate_left(1);
        }
        let count = if self.rng.one_in(3) { PROCESSES } else { 1 };
        self.kill(count)
    }

    fn kill(&mut self, count: usize) -> anyhow::Result<()> {
        let end = count.min(self.processes.len());
        for mut process in self.processes.drain(..end) {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Says that a crash begins, or is over.
    fn mark(&mut self) -> anyhow::Result<()> {
        self.marks += 1;
        self.recorder.tell(&Event::Crash(self.marks))
    }

    /// Looks at what a crash has left.
    fn crashed(&mut self) -> anyhow::Result<()> {
        self.mark()?;
        let looked = if self.rng.one_in(2) {
            QueueView::open(&self.queue)
                .map_err(anyhow::Error::from)
                .and_then(|view| self.history.look(self.id, |at| view.tailer(at)))
        } else {
            Queue::open(&self.queue)
                .map_err(anyhow::Error::from)
                .and_then(|queue| self.history.look(self.id, |at| queue.tailer(at)))
        };
        looked.with_context(|| format!("after crash {}", self.crashes()))
    }

    fn crashes(&self) -> u64 {
        self.marks / MARKS
    }

    fn judge(&mut self, mode: Mode) -> anyhow::Result<()> {
        let file = self.recorder.finish()?;
        let mut ledger = Ledger::read(&file)?;
        let queue = Queue::open(&self.queue)?;
        let observed = history::everything(&queue, self.id)?;
        let gone = if mode == Mode::Power { self.history.forgive(&mut ledger, &observed) } else { 0 };
        let verdict = verify(&ledger, &observed, Rules::default());
        println!(
            "{} crashes of {} processes; {} records acked, of which {} that nobody had synced are gone; {} seen as synced; {} \
             read back",
            self.crashes(),
            self.streams / appender::STREAMS,
            ledger.acks.len() + gone,
            gone,
            ledger.sightings.len(),
            verdict.records_read,
        );
        let findings: Vec<_> = verdict.findings.iter().collect();
        ensure!(findings.is_empty(), "{}", shown(&findings));
        let synced = ledger.acks.iter().filter(|ack| appender::is_synced(ack.identity.stream)).count();
        ensure!(
            synced > 0 && !ledger.sightings.is_empty(),
            "nothing was synced or seen, which proves nothing"
        );
        ensure!(mode == Mode::Kill || gone > 0, "no cut took anything, so there was none");
        queue.verify()?;
        queue.appender(AppendOptions::default())?.append(b"it goes on")?;
        Ok(())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Err(error) = self.kill(PROCESSES) {
            eprintln!("{error:#}");
        }
    }
}

/// The recorder, whose input each process has as its output.
struct Recorder {
    file: PathBuf,
    process: Child,
    input: Option<fs::File>,
}

impl Recorder {
    fn start(file: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("crash-recorder").arg(file).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut process = command.spawn().context("the recorder could not be started")?;
        let input = process.stdin.take().context("the recorder has no input")?;
        Ok(Self { file: file.to_owned(), process, input: Some(fs::File::from(OwnedFd::from(input))) })
    }

    fn input(&self) -> anyhow::Result<&fs::File> {
        self.input.as_ref().context("the recorder has ended")
    }

    fn pipe(&self) -> anyhow::Result<Stdio> {
        Ok(self.input()?.as_fd().try_clone_to_owned()?.into())
    }

    fn tell(&self, event: &Event) -> anyhow::Result<()> {
        Ok(self.input()?.write_all(format!("{event}\n\n").as_bytes())?)
    }

    /// Ends it when nobody else has its input. Returns what it has written.
    fn finish(&mut self) -> anyhow::Result<PathBuf> {
        drop(self.input.take());
        let status = self.process.wait()?;
        ensure!(status.success(), "the recorder ended with {status}");
        Ok(self.file.clone())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        drop(self.input.take());
        if let Err(error) = self.process.wait() {
            eprintln!("the recorder: {error}");
        }
    }
}

//! One run: a server that is crashed again and again under load, and judged at the end.
//!
//! Owns the run's directory, the recorder, the load and the counts. The modes own the way of crashing.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use riverrun_client::{Admin, ErrorCode, NewTopic, TopicPartition};

use super::event::{Event, Start};
use super::flip::Flips;
use super::follow::Follow;
use super::ledger::Ledger;
use super::load::{Load, Progress, Shape, Shared, cluster_options};
use super::payload::{Identity, Placed};
use super::random::Rng;
use super::readback;
use super::recorder::Recorder;
use super::tail::{Held, Tail};
use super::verify::{Verdict, counted, shown, verify};
use super::{Level, Settings};
use crate::clients::install::Toolbox;
use crate::clients::server::{Launch, Server, ServerKind};

/// The recorder's file, in the run's directory.
const RECORD_FILE: &str = "acked.log";

/// Time for a server to answer its first request after its start.
const CREATE_LIMIT: Duration = Duration::from_secs(30);

/// Lost acks that are shown after a crash; the verdict shows all.
const LOST_SHOWN_MAX: usize = 5;

/// Texts in the log of a thread that panics, in this order.
const PANICKED: [&str; 2] = ["thread '", " panicked at "];

/// Losses and failures that are no fault of the server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowed {
    /// Acked records may be gone: the level does not sync, and the power was cut.
    pub(crate) losses: bool,
    /// Records that no level has synced may be gone: the level changes, and the power is cut.
    pub(crate) unsynced_losses: bool,
    /// A producer may give up, because the server was made to refuse; but it must not be refused for good.
    pub(crate) failures: bool,
}

/// The printer of a run's summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Summary {
    Printed,
    /// The mode prints its own.
    Left,
}

/// Counts of a run.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) crashes: u64,
    /// Crashes while the server was starting.
    pub(super) early_crashes: u64,
    /// Acks that were gone right after a crash.
    pub(super) lost: u64,
    /// Crashes after which some acks were gone.
    pub(super) losing_crashes: u64,
    /// Crashes without an ack since the one before.
    pub(super) barren_crashes: u64,
    acked_before: u64,
    /// Crashes before the last look for endangered records.
    looked_at: u64,
    /// The longest time from start to ready.
    pub(super) slowest_start: Duration,
}

/// A run.
///
/// Invariants: everything in `dir` was made by this run; the load and the reader are stopped before the verdict. From a
/// crash until the look at the positions of groups, the reader is in `held`, not in `tail`.
pub(crate) struct Run<'a> {
    pub(super) settings: &'a Settings,
    pub(super) dir: PathBuf,
    pub(crate) launch: Launch<'a>,
    pub(super) shared: Shared,
    pub(crate) rng: Rng,
    pub(super) counts: Counts,
    pub(super) begun: Instant,
    allowed: Allowed,
    summary: Summary,
    load: Option<Load>,
    tail: Option<Tail>,
    held: Option<Held>,
    follow: Follow,
    ledger: Ledger,
    flips: Option<Flips>,
}

impl<'a> Run<'a> {
    /// Prepares a server in `dir`, with its data at `data`, and starts the recorder.
    pub(crate) fn prepare(
        settings: &'a Settings,
        toolbox: &'a Toolbox,
        dir: &Path,
        data: PathBuf,
        allowed: Allowed,
    ) -> anyhow::Result<Self> {
        let mut rng = Rng::new(settings.seed);
        let launch = Launch::prepare(ServerKind::Riverrun, toolbox, dir.join("server"))?;
        let mut launch = launch
            .with_data(data)
            .with_own_settings(settings.set.iter().cloned())
            .with_own_settings(settings.level.server_settings());
        if let Some(binary) = &settings.binary {
            launch = launch.with_binary(binary.clone());
        }
        let written = dir.join(RECORD_FILE);
        let recorder = Arc::new(Recorder::start(&written)?);
        let shared =
            Shared { run: rng.next(), bootstrap: launch.bootstrap(), recorder, progress: Arc::default() };
        Ok(Self {
            settings,
            dir: dir.to_path_buf(),
            launch,
            shared,
            rng,
            counts: Counts::default(),
            begun: Instant::now(),
            allowed,
            summary: Summary::Printed,
            load: None,
            tail: None,
            held: None,
            follow: Follow::new(&written),
            ledger: Ledger::default(),
            flips: None,
        })
    }

    /// Leaves the printing to the mode.
    pub(super) fn without_summary(mut self) -> Self {
        self.summary = Summary::Left;
        self
    }

    pub(super) fn level(&self) -> Level {
        self.settings.level
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.shared.progress
    }

    /// Starts the server and waits until it accepts connections. After a crash it looks at the positions of groups
    /// before the reader may commit again.
    pub(crate) async fn start(&mut self) -> anyhow::Result<Server> {
        let begun = Instant::now();
        let server = self.launch.start()?;
        self.counts.slowest_start = self.counts.slowest_start.max(begun.elapsed());
        if let Some(held) = self.held.take() {
            self.look_at_positions().await?;
            self.tail = Some(held.resume());
        }
        Ok(server)
    }

    /// Compares the groups' positions with their acked commits. No commit may be under way.
    async fn look_at_positions(&mut self) -> anyhow::Result<()> {
        let known = self.ledger()?;
        let (groups, places): (_, Vec<_>) = (known.groups(), known.positions.keys().cloned().collect());
        let positions = readback::positions(&self.shared, &groups).await?;
        let found = |(group, partition): (String, TopicPartition)| {
            let offset = positions.get(&(group.clone(), partition.clone())).copied();
            Event::Found { group, partition, offset }
        };
        let found: Vec<_> = places.into_iter().map(found).collect();
        self.shared.recorder.record(&found).await?;
        let regressions = &self.ledger()?.regressions;
        let shown: Vec<_> = regressions.iter().take(LOST_SHOWN_MAX).map(ToString::to_string).collect();
        ensure!(shown.is_empty(), "{} acked commits went back\n  {}", regressions.len(), shown.join("\n  "));
        Ok(())
    }

    /// Records where the load's partitions begin, when nothing is deleted from them any more: no crash may take more.
    pub(super) async fn note_beginnings(&mut self) -> anyhow::Result<()> {
        let partitions = self.ledger()?.partitions();
        let bounds = readback::bounds(&self.shared, &partitions).await?;
        let begins = |(partition, Range { start: offset, .. })| Event::Begins(Start { partition, offset });
        self.shared.recorder.record(&bounds.into_iter().map(begins).collect::<Vec<_>>()).await?;
        self.ledger().map(drop)
    }

    /// The ledger of all events recorded so far.
    fn ledger(&mut self) -> anyhow::Result<&Ledger> {
        let Self { follow, ledger, .. } = self;
        follow.read_on(|event| ledger.add(event))?;
        Ok(ledger)
    }

    /// Creates the topic and starts the load and the reader.
    pub(crate) async fn begin_load(&mut self, shape: &Shape, topic: NewTopic) -> anyhow::Result<()> {
        self.begin_load_within(shape, topic, CREATE_LIMIT).await
    }

    /// As [`begin_load`](Self::begin_load), with another limit.
    pub(super) async fn begin_load_within(
        &mut self,
        shape: &Shape,
        topic: NewTopic,
        limit: Duration,
    ) -> anyhow::Result<()> {
        create(&self.shared, topic, limit).await?;
        if self.settings.flip {
            let watched = self.allowed.unsynced_losses;
            let flips = Flips::start(&self.shared, &shape.topic, self.rng.fork(), watched);
            self.flips = Some(flips.await?);
        }
        self.load = Some(Load::start(&self.shared, shape, 0, &mut self.rng).await?);
        self.tail = Some(Tail::start(&self.shared, shape.partitions()));
        Ok(())
    }

    /// Shared state for another load on the same server, which is not part of the verdict.
    pub(super) fn beside(&self, record_file: &str) -> anyhow::Result<Shared> {
        let recorder = Arc::new(Recorder::start(&self.dir.join(record_file))?);
        Ok(Shared { recorder, progress: Arc::default(), ..self.shared.clone() })
    }

    /// To be called before a crash that takes time.
    pub(super) fn begin_crash(&self) {
        self.progress().begin_crash();
    }

    /// To be called after each crash, before another server is started.
    pub(crate) async fn crashed(&mut self) -> anyhow::Result<()> {
        if let Some(tail) = self.tail.take() {
            self.held = Some(tail.hold().await?);
        }
        self.must_flip().await?;
        let acked = self.progress().acked();
        self.counts.crashes += 1;
        self.counts.barren_crashes += u64::from(acked == self.counts.acked_before);
        self.counts.acked_before = acked;
        self.shared.recorder.record(&[Event::Crash(self.counts.crashes)]).await?;
        self.progress().end_crash(self.counts.crashes);
        match &mut self.load {
            Some(load) => load.must_run(),
            None => Ok(()),
        }
    }

    /// Fails if the task that changes the level has ended.
    async fn must_flip(&mut self) -> anyhow::Result<()> {
        match &mut self.flips {
            Some(flips) => flips.must_run().await,
            None => Ok(()),
        }
    }

    /// Looks for all acks since the last check. The load goes on meanwhile.
    pub(crate) async fn check(&mut self) -> anyhow::Result<()> {
        if self.allowed.unsynced_losses {
            self.look_for_left().await?;
        }
        let recent = self.progress().take_recent();
        self.ledger()?;
        let missing = readback::missing(&self.shared, &recent, &self.ledger).await?;
        if missing.is_empty() {
            return Ok(());
        }
        self.counts.lost += missing.len() as u64;
        self.counts.losing_crashes += 1;
        if !self.allowed.losses {
            let first: Vec<_> = missing.iter().take(LOST_SHOWN_MAX).map(String::as_str).collect();
            bail!(
                "after crash {}: {} acked records are gone\n  {}",
                self.counts.crashes,
                missing.len(),
                first.join("\n  ")
            );
        }
        println!("crash {:>4}: {} acked records are gone", self.counts.crashes, missing.len());
        Ok(())
    }

    /// Looks for records that crashes since the last look may have taken, and records those found, which counts as
    /// seeing them.
    async fn look_for_left(&mut self) -> anyhow::Result<()> {
        let since = std::mem::replace(&mut self.counts.looked_at, self.counts.crashes);
        let doubtful = self.ledger()?.doubtful(since);
        let mut events = Vec::new();
        for (partition, places) in readback::left(&self.shared, doubtful).await? {
            events.extend(places.into_iter().map(|Placed { offset, identity }| {
                let Identity { stream, sequence } = identity;
                Event::Left { partition: partition.clone(), offset, stream, sequence }
            }));
        }
        self.shared.recorder.record(&events).await
    }

    /// As [`judge`](Self::judge), for callers that need only the error.
    pub(crate) async fn must_be_kept(&mut self) -> anyhow::Result<()> {
        self.judge().await.map(drop)
    }

    /// Ends the load on a running server, reads everything back, and judges.
    pub(super) async fn judge(&mut self) -> anyhow::Result<Verdict> {
        self.must_flip().await?;
        drop(self.flips.take());
        if let Some(load) = self.load.take() {
            load.stop().await?;
        }
        if let Some(tail) = self.tail.take() {
            tail.hold().await?;
        }
        let (partitions, groups) = (self.ledger()?.partitions(), self.ledger()?.groups());
        let observed = readback::everything(&self.shared, &partitions, &groups).await?;
        let verdict = verify(self.ledger()?, &observed);
        self.report(&self.ledger, &verdict)?;
        check_log(&self.launch.log()?)?;
        Ok(verdict)
    }

    /// Prints the summary; fails if there are findings.
    fn report(&self, ledger: &Ledger, verdict: &Verdict) -> anyhow::Result<()> {
        let (losses, faults) = verdict.split();
        if self.summary == Summary::Printed {
            self.print_counts(ledger, verdict);
        }
        if !faults.is_empty() {
            bail!("findings that no level allows: {}", shown(&faults));
        }
        if !losses.is_empty() && !self.allowed.losses {
            bail!("{} nothing may be gone: {}", self.promise(), shown(&losses));
        }
        if !losses.is_empty() && self.summary == Summary::Printed {
            println!("acked or seen, and gone in the end: {}", counted(&losses));
        }
        match self.summary {
            Summary::Printed => self.check_tested(verdict)?,
            // The rounds of such a mode count together.
            Summary::Left if ledger.acks.is_empty() => bail!("nothing was acked, which proves nothing"),
            Summary::Left => {}
        }
        if self.settings.flip && self.progress().flips() == 0 {
            bail!("the topic's level was never changed");
        }
        self.progress().check_failures(self.allowed.failures)
    }

    /// The promise about acked records, in words.
    fn promise(&self) -> String {
        if self.allowed.unsynced_losses {
            return "of what a level has synced".to_owned();
        }
        format!("at level {}", self.level())
    }

    fn check_tested(&self, verdict: &Verdict) -> anyhow::Result<()> {
        verdict.tested.check()?;
        let counts = &self.counts;
        if self.allowed.unsynced_losses && self.ledger.binding.bound_before_crashes() == 0 {
            bail!("nothing was tested: no crash came after a change of level that bound acked records");
        }
        if counts.crashes > 0 && counts.barren_crashes == counts.crashes {
            bail!("nothing was tested: no crash came after an ack");
        }
        if counts.crashes > 0 && self.ledger.positions_found == 0 {
            bail!("nothing was tested: no crash came after an acked commit");
        }
        self.ledger.lives.check()
    }

    fn print_counts(&self, ledger: &Ledger, verdict: &Verdict) {
        let (counts, elapsed_s) = (&self.counts, self.begun.elapsed().as_secs_f64());
        println!(
            "level {}: {} crashes, {} of them while starting, {:.2} a second; slowest start {:.0} ms",
            self.level(),
            counts.crashes,
            counts.early_crashes,
            counts.crashes as f64 / elapsed_s,
            counts.slowest_start.as_secs_f64() * 1e3,
        );
        println!(
            "{} records acked ({} crashes without one since the crash before), {} given up; {} seen by a reader; \
             {} groups' positions, looked at {} times after crashes",
            ledger.acks.len(),
            counts.barren_crashes,
            ledger.failed,
            verdict.tested.seen,
            verdict.tested.committed,
            ledger.positions_found,
        );
        println!("{}", ledger.lives);
        println!(
            "{} records read back, {} of them repeats where that is allowed",
            verdict.records_read, verdict.repeats
        );
        if self.settings.flip {
            println!("the topic's level was changed {} times", self.progress().flips());
        }
        for (error, count) in self.progress().errors() {
            println!("  {count} given up: {error}");
        }
        if self.allowed.unsynced_losses {
            println!(
                "{} acked records were bound by a change of level before a crash; of those that no change had bound {} \
                 acked and {} seen are gone, and {} were found after a crash and have had to stay since",
                ledger.binding.bound_before_crashes(),
                verdict.excused.acked,
                verdict.excused.seen,
                ledger.bound_again(),
            );
        }
        if self.allowed.losses {
            println!("{} acked records gone in {} of the crashes", counts.lost, counts.losing_crashes);
        }
    }

    /// Ends the recorder and removes the run's directory.
    pub(crate) fn clear(self) -> anyhow::Result<()> {
        let (dir, recorder) = (self.dir, self.shared.recorder);
        // Every other holder of it has ended with the load.
        if let Some(recorder) = Arc::into_inner(recorder) {
            recorder.finish()?;
        }
        fs::remove_dir_all(&dir).with_context(|| format!("{} could not be removed", dir.display()))
    }
}

/// Fails if a thread of a server has panicked, which need not end the process. `log` is the output of all servers.
fn check_log(log: &str) -> anyhow::Result<()> {
    let is_panic = |line: &&str| PANICKED.iter().all(|words| line.contains(words));
    let panics: Vec<_> = log.lines().filter(is_panic).take(LOST_SHOWN_MAX).collect();
    ensure!(panics.is_empty(), "a server has panicked:\n  {}", panics.join("\n  "));
    Ok(())
}

/// Creates a topic as soon as the server answers.
pub(super) async fn create(shared: &Shared, topic: NewTopic, limit: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + limit;
    loop {
        let error = match Admin::new(cluster_options(&shared.bootstrap)).await {
            Ok(admin) => match admin.create_topics(vec![topic.clone()], false).await.pop() {
                Some((_, Ok(_))) => return Ok(()),
                // The answer to an earlier try was lost.
                Some((_, Err(error))) if error.code() == Some(ErrorCode::TOPIC_ALREADY_EXISTS) => {
                    return Ok(());
                }
                Some((_, Err(error))) => error,
                None => bail!("the server says nothing of the topic"),
            },
            Err(error) => error,
        };
        if Instant::now() >= deadline {
            return Err(error).context("the topic cannot be created");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_of_a_server_thread_is_found_in_its_log() {
        assert!(check_log("INFO ready\nWARN nobody has panicked\n").is_ok());
        let log = "INFO ready\nthread 'settle' (71) panicked at crates/log/src/store.rs:7:5:\nINFO goes on\n";
        assert!(check_log(log).unwrap_err().to_string().contains("thread 'settle' (71) panicked"));
    }
}

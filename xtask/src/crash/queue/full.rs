//! A disk that fills up below a queue: appends are refused with an error, published records can be read, and when there
//! is room again appending goes on. All that happens in one life of the processes, or in a second one that begins on
//! the full disk.
//!
//! Each cycle takes all room away at a random instant, lets retention make a little, which is used up again, and
//! returns the rest.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use riverrun_queue::{Retention, StartAt};

use super::Run;
use super::history::History;
use super::recorder::Count;
use crate::crash::Settings;
use crate::crash::disk::{Disk, FileSystem};
use crate::crash::event::Event;
use crate::crash::payload::Identity;
use crate::crash::verify::{shown, verify};

/// Size of a disk: the smallest that every file system on a disk takes; and size of one in memory.
const DISK_BYTES: u64 = 400 << 20;
const MEMORY_BYTES: u64 = 64 << 20;

/// Bytes of a queue before its disk is filled, and bytes that retention leaves of it.
const GROWN_BYTES: u64 = 4 << 20;
const RETAINED_BYTES: u64 = 1 << 20;

/// Longest life of the processes before the disk is full, and before they are killed on the full disk.
const LIFE_MAX: Duration = Duration::from_millis(100);

/// Refused appends of each stream that show that the disk is full, and acked ones that show that it is not.
const TURNED_MIN: u64 = 5;

/// Longest step of a cycle.
const STEP_LIMIT: Duration = Duration::from_mins(1);

/// The tailer that stores its place while the disk is full.
const TAILER: &str = "full";

/// Fills the disk for each cycle of the settings, and judges.
pub(super) async fn run(settings: &Settings) -> anyhow::Result<()> {
    // Dropped after the run, whose processes keep it busy.
    let bytes = if settings.fs == FileSystem::Tmpfs { MEMORY_BYTES } else { DISK_BYTES };
    let disk = Disk::make(settings.fs, &settings.dir, bytes)?;
    let run = Run::new(settings, disk.path(), &["--through-full"])?;
    let mut full = Full { run, disk: &disk, filled: 0, slowest_resume: Duration::ZERO };
    full.run.open()?.named_tailer(TAILER, StartAt::Start)?.keep_place()?;
    for cycle in 0..settings.cycles {
        full.cycle(cycle).await.with_context(|| format!("cycle {}", cycle + 1))?;
    }
    full.judge()
}

/// Counts by stream.
type Counts = BTreeMap<u32, Count>;

struct Full<'a> {
    run: Run,
    disk: &'a Disk,
    /// How often all streams were refused.
    filled: u64,
    slowest_resume: Duration,
}

impl Full<'_> {
    async fn cycle(&mut self, cycle: u64) -> anyhow::Result<()> {
        self.run.start_missing()?;
        self.wait("the queue has grown", |full| Ok(full.queue_bytes()? >= GROWN_BYTES)).await?;
        tokio::time::sleep(self.run.rng.up_to(LIFE_MAX)).await;
        self.disk.fill()?;
        self.refused("the disk is full").await?;
        if !cycle.is_multiple_of(2) {
            self.die_on_full().await?;
        }
        self.others_go_on()?;
        let before = self.counts()?;
        self.retain()?;
        // A quick stream uses it up, and the others may get none of it.
        self.resumed("after retention", &before, 1).await?;
        self.refused("the disk is full again").await?;
        self.others_go_on()?;
        let before = self.counts()?;
        self.disk.relieve()?;
        // The queue may have had nearly all room before the disk was filled.
        self.retain()?;
        self.resumed("with room again", &before, before.len()).await
    }

    /// Lets retention make room.
    fn retain(&self) -> anyhow::Result<()> {
        let retention = Retention { bytes: Some(RETAINED_BYTES), ..Retention::default() };
        ensure!(self.run.open()?.apply_retention(&retention)? > 0, "retention found nothing to remove");
        Ok(())
    }

    /// Kills processes on the full disk. Their successors open the queue on it.
    async fn die_on_full(&mut self) -> anyhow::Result<()> {
        tokio::time::sleep(self.run.rng.up_to(LIFE_MAX)).await;
        self.run.mark()?;
        self.run.kill_some()?;
        self.run.start_missing()?;
        self.refused("the disk is full for others").await
    }

    /// Checks that published records can be read, and that a tailer's place can be stored.
    fn others_go_on(&mut self) -> anyhow::Result<()> {
        self.run.look().context("with the disk full")?;
        let queue = self.run.open()?;
        let mut tailer = queue.named_tailer(TAILER, StartAt::Start);
        // Retention has removed the record at its place.
        if tailer.is_err() {
            queue.remove_tailer(TAILER)?;
            tailer = queue.named_tailer(TAILER, StartAt::Start);
        }
        let mut tailer = tailer?;
        tailer.next()?;
        Ok(tailer.keep_place()?)
    }

    fn queue_bytes(&self) -> anyhow::Result<u64> {
        let status = self.run.open()?.status()?;
        Ok(status.segments as u64 * status.segment_bytes)
    }

    /// Numbers of acked and of refused appends, for the streams of running processes.
    fn counts(&mut self) -> anyhow::Result<Counts> {
        self.run.follower.follow()?;
        Ok(self.run.living().map(|stream| (stream, self.run.follower.of(stream))).collect())
    }

    /// Waits until every stream is refused.
    async fn refused(&mut self, when: &str) -> anyhow::Result<()> {
        self.filled += 1;
        let before = self.counts()?;
        let has_turned = |stream, count: Count| count.refused >= before[&stream].refused + TURNED_MIN;
        self.wait(when, |full| Ok(full.counts()?.iter().all(|(stream, count)| has_turned(*stream, *count))))
            .await
    }

    /// Waits until `streams_min` streams have appended more than `before`.
    async fn resumed(&mut self, when: &str, before: &Counts, streams_min: usize) -> anyhow::Result<()> {
        let begun = Instant::now();
        let has_turned = |(stream, count): &(&u32, &Count)| count.acked >= before[*stream].acked + TURNED_MIN;
        self.wait(when, |full| Ok(full.counts()?.iter().filter(has_turned).count() >= streams_min)).await?;
        self.slowest_resume = self.slowest_resume.max(begun.elapsed());
        Ok(())
    }

    async fn wait(
        &mut self,
        what: &str,
        done: impl Fn(&mut Self) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + STEP_LIMIT;
        while !done(self)? {
            self.run.must_run()?;
            if Instant::now() >= deadline {
                let free_kb = self.disk.free_bytes()? / 1000;
                bail!("waited {} s: {what}; {free_kb} kB are free", STEP_LIMIT.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Checks that no acked record is gone, except those that retention removed after they were read, and that no
    /// refused record was stored.
    fn judge(mut self) -> anyhow::Result<()> {
        let run = &mut self.run;
        run.kill_all()?;
        run.look()?;
        let (events, ledger) = run.finish()?;
        let observed = run.history.observed();
        let verdict = verify(&ledger, &observed);
        let findings: Vec<_> = verdict.findings.iter().collect();
        ensure!(findings.is_empty(), "{}", shown(&findings));
        let refused = refused(&events, &run.history)?;
        ensure!(refused > 0 && !ledger.acks.is_empty(), "nothing was refused or acked, which proves nothing");
        println!(
            "the disk was full {} times, for {} processes; {refused} appends were refused; {} records acked, none of them \
             gone; appending resumed at the latest {:.2} s after there was room",
            self.filled,
            run.started(),
            ledger.acks.len(),
            self.slowest_resume.as_secs_f64()
        );
        run.goes_on()
    }
}

/// Number of refused appends; fails if one of them was stored all the same.
fn refused(events: &[Event], history: &History) -> anyhow::Result<usize> {
    let there = history.identities();
    let mut count = 0;
    for event in events {
        let Event::Failed(span) = event else { continue };
        count += 1;
        let mut records =
            (span.first..span.first + span.count).map(|sequence| Identity { stream: span.stream, sequence });
        let found = records.find(|record| there.contains(record));
        ensure!(found.is_none(), "{found:?} was refused, and is there");
    }
    Ok(count)
}

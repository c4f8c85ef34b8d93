//! A disk that fills up: producers are refused with an error that may pass, everything else goes on, and when there is
//! room again writing resumes, all in one life of the server.
//!
//! Room is made in turn by deleting records, by retention, and by deleting a topic.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use riverrun_client::{Admin, ConfigChange, ConfigOperation, ConfigResource, NewTopic, TopicPartition};
use riverrun_types::Offset;

use super::disk::Disk;
use super::event::{Commit, Event};
use super::load::{Load, Shape, cluster_options};
use super::run::{Allowed, Run, create};
use super::verify::Rules;
use super::{Settings, topic_of};
use crate::clients::install::Toolbox;
use crate::clients::server::Server;

/// The smallest that every file system takes; most of it is ballast.
const DISK_BYTES: u64 = 400 << 20;

/// What the server gets of it.
const ROOM_BYTES: u64 = 120 << 20;

/// The server looks often for what retention lets go, and its reserve suits the small room.
const SERVER_SETTINGS: &[&str] = &["log.retention.check.interval.ms=500", "log.dir.reserve.bytes=16777216"];

/// No more than this is free on a full disk: its reserve, and what a refusal in between has kept free. What the last
/// cycle deleted may still be on its way out while the first records are refused.
const FULL_BYTES: u64 = 32 << 20;

/// A deleted segment's file is gone soon after.
const DELETE_DELAY_MS: &str = "100";

/// What retention leaves of a partition where it makes room.
const RETAINED_BYTES: &str = "1000000";

/// So many records were refused: the disk is full.
const REFUSED_MIN: u64 = 40;

/// So many were acked: writing has resumed.
const RESUMED_MIN: u64 = 100;

/// Producers give up early, so that the refusal is seen.
const DELIVERY_LIMIT: Duration = Duration::from_secs(1);

/// Filling, and resuming.
const STEP_LIMIT: Duration = Duration::from_mins(1);

/// The group that commits while the disk is full.
const GROUP: &str = "full";

/// The load's topic, and the one that is deleted.
const TOPIC: &str = "crash";
const BALLAST_TOPIC: &str = "ballast";

/// Fills the disk as often as asked.
pub(super) async fn run(settings: &Settings, toolbox: &Toolbox) -> anyhow::Result<()> {
    let disk = Disk::make(settings.fs, &settings.dir, DISK_BYTES)?;
    disk.leave(ROOM_BYTES)?;
    let allowed = Allowed { failures: true, rules: Rules { deletes: true }, ..Allowed::default() };
    let mut run = Run::prepare(settings, toolbox, &settings.dir, disk.path().join("data"), allowed)?;
    run.launch = run.launch.with_own_settings(SERVER_SETTINGS.iter().copied());
    let mut server = run.start()?;
    run.begin_load(&shape(TOPIC), topic(settings, TOPIC)).await?;
    let mut full = Full { run, server: &mut server, disk: &disk, slowest_resume: Duration::ZERO };
    for cycle in 0..settings.cycles {
        full.cycle(cycle).await.with_context(|| format!("cycle {}", cycle + 1))?;
    }
    println!(
        "filled {} times; writing resumed at the latest {:.1} s after room was made",
        settings.cycles,
        full.slowest_resume.as_secs_f64()
    );
    let mut run = full.run;
    run.judge().await?;
    server.stop()?;
    drop(disk);
    run.clear()
}

fn shape(topic: &str) -> Shape {
    Shape { large_one_in: 2, large_bytes_max: 100_000, delivery_limit: DELIVERY_LIMIT, ..Shape::usual(topic) }
}

fn topic(settings: &Settings, name: &str) -> NewTopic {
    let mut topic = NewTopic { partitions: Some(shape(name).partitions), ..topic_of(settings, name) };
    topic.configs.insert("file.delete.delay.ms".to_owned(), DELETE_DELAY_MS.to_owned());
    topic
}

/// Who makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relief {
    DeleteRecords,
    Retention,
    DeleteTopic,
}

impl Relief {
    fn of(cycle: u64) -> Self {
        match cycle % 3 {
            0 => Self::DeleteRecords,
            1 => Self::Retention,
            _ => Self::DeleteTopic,
        }
    }
}

struct Full<'a, 'r> {
    run: Run<'r>,
    server: &'a mut Server,
    disk: &'a Disk,
    slowest_resume: Duration,
}

impl Full<'_, '_> {
    async fn cycle(&mut self, cycle: u64) -> anyhow::Result<()> {
        let relief = Relief::of(cycle);
        self.fill(relief, cycle).await?;
        let free_mb = self.disk.free_bytes()? as f64 / 1e6;
        self.others_go_on(cycle)
            .await
            .with_context(|| format!("with the disk full, {free_mb:.1} MB free"))?;
        let acked = self.run.progress().acked();
        self.relieve(relief).await.with_context(|| format!("{relief:?}"))?;
        let begun = Instant::now();
        self.wait("writing resumes", |run| run.progress().acked() > acked + RESUMED_MIN).await?;
        self.slowest_resume = self.slowest_resume.max(begun.elapsed());
        let errors = self.run.progress().final_failures();
        if errors > 0 {
            bail!("{errors} records were refused for good: {:?}", self.run.progress().errors());
        }
        println!(
            "cycle {:>3}: refused with {free_mb:.1} MB free, {:.1} s from room by {relief:?} to the next acks",
            cycle + 1,
            begun.elapsed().as_secs_f64()
        );
        Ok(())
    }

    /// Lets the load run until it is refused. Where a topic is to be deleted, another load fills that too.
    async fn fill(&mut self, relief: Relief, cycle: u64) -> anyhow::Result<()> {
        let refused = self.run.progress().failed();
        let ballast = match relief {
            Relief::DeleteTopic => Some(self.load_ballast(cycle).await?),
            Relief::DeleteRecords | Relief::Retention => None,
        };
        let disk = self.disk;
        let is_full = |run: &Run<'_>| {
            run.progress().failed() > refused + REFUSED_MIN
                && disk.free_bytes().is_ok_and(|free| free < FULL_BYTES)
        };
        self.wait("the disk is full", is_full).await?;
        match ballast {
            Some(ballast) => ballast.stop().await,
            None => Ok(()),
        }
    }

    async fn load_ballast(&mut self, cycle: u64) -> anyhow::Result<Load> {
        let shared = self.run.beside(&format!("ballast-{cycle}.log"))?;
        create(&shared, topic(self.run.settings, BALLAST_TOPIC), STEP_LIMIT).await?;
        Load::start(&shared, &shape(BALLAST_TOPIC), 0, &mut self.run.rng).await
    }

    /// What is there can be read, and groups can commit.
    async fn others_go_on(&mut self, cycle: u64) -> anyhow::Result<()> {
        self.run.check().await.context("reading")?;
        let partition = TopicPartition::new(TOPIC, 0);
        let commit =
            Commit { group: GROUP.to_owned(), partition: partition.clone(), offset: i64::try_from(cycle)? };
        let offsets = BTreeMap::from([(partition, Offset(commit.offset))]);
        self.run.shared.recorder.record(&[Event::Committing(commit.clone())]).await?;
        for (partition, result) in self.admin().await?.alter_group_offsets(GROUP, &offsets).await {
            result.with_context(|| format!("committing an offset of {partition}"))?;
        }
        self.run.shared.recorder.record(&[Event::Committed(commit)]).await?;
        self.server.must_run()
    }

    async fn relieve(&mut self, relief: Relief) -> anyhow::Result<()> {
        let admin = self.admin().await?;
        match relief {
            Relief::DeleteRecords => {
                let before = shape(TOPIC).partitions().into_iter().map(|partition| (partition, Offset(-1)));
                for (partition, result) in admin.delete_records(&before.collect()).await {
                    result.with_context(|| format!("deleting records of {partition}"))?;
                }
                Ok(())
            }
            Relief::Retention => {
                let free_bytes = self.disk.free_bytes()?;
                retain(&admin, ConfigOperation::Set(RETAINED_BYTES.to_owned())).await?;
                let disk = self.disk;
                let has_room =
                    |_: &Run<'_>| disk.free_bytes().is_ok_and(|free| free > free_bytes + ROOM_BYTES / 4);
                self.wait("retention makes room", has_room).await?;
                retain(&admin, ConfigOperation::Delete).await
            }
            Relief::DeleteTopic => match admin.delete_topics(&[BALLAST_TOPIC.to_owned()]).await.pop() {
                Some((_, result)) => Ok(result?),
                None => bail!("the server says nothing of the topic"),
            },
        }
    }

    async fn admin(&self) -> anyhow::Result<Admin> {
        Ok(Admin::new(cluster_options(&self.run.shared.bootstrap)).await?)
    }

    async fn wait(&mut self, what: &str, done: impl Fn(&Run<'_>) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + STEP_LIMIT;
        while !done(&self.run) {
            self.server.must_run()?;
            if Instant::now() >= deadline {
                let free_mb = self.disk.free_bytes()? as f64 / 1e6;
                bail!(
                    "waited {} s until {what}; {free_mb:.1} MB are free; errors so far: {:?}",
                    STEP_LIMIT.as_secs(),
                    self.run.progress().errors()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// Changes how much retention leaves of the load's topic.
async fn retain(admin: &Admin, operation: ConfigOperation) -> anyhow::Result<()> {
    let change = ConfigChange { name: "retention.bytes".to_owned(), operation };
    let changes = BTreeMap::from([(ConfigResource::Topic(TOPIC.to_owned()), vec![change])]);
    for (resource, result) in admin.alter_configs(&changes, false).await {
        result.with_context(|| resource.to_string())?;
    }
    Ok(())
}

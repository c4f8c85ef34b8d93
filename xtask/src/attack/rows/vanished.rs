//! Directories of partitions that are removed under the server while clients write to the topic.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use riverrun_records::Compression;

use super::{Attack, Ground, must_create_topic};
use crate::attack::attacker::{From, Shot, Tally, Target};
use crate::wire::{Conn, batch, produce_frame, produced};

/// The topic, and its number of partitions: each pair of runs removes the directory of one.
const TOPIC: &str = "gone";
const PARTITIONS: i32 = 24;

/// Time for the server to make the directories of partitions that are written to.
const MADE_MAX: Duration = Duration::from_secs(20);

/// Connections that write to all partitions.
const WORKERS: usize = 2;

/// Writers to a topic that loses a partition's directory.
pub(super) struct Directories;

impl Attack for Directories {
    fn name(&self) -> &'static str {
        "directories-gone"
    }

    fn about(&self) -> &'static str {
        "2 connections write to a topic while the directory of one of its partitions is removed"
    }

    fn short(&self) -> Option<From> {
        Some(From::Others)
    }

    fn ground(&self) -> Ground {
        // A missing directory is noticed at a checkpoint.
        Ground { settings: &["log.flush.offset.checkpoint.interval.ms=500"], ..Ground::default() }
    }

    fn log_words(&self) -> &'static [&'static str] {
        &["was removed under the running server"]
    }

    fn health_words(&self) -> &'static [&'static str] {
        &["gone-0"]
    }

    fn leaves_records_in_the_journal(&self) -> bool {
        true
    }

    fn prepare(&self, conn: &mut Conn) -> anyhow::Result<()> {
        must_create_topic(conn, TOPIC, PARTITIONS, &[])?;
        let records = batch(Compression::None, &[b"v"])?;
        for partition in 0..PARTITIONS {
            let result = write(conn, partition, &records)?;
            ensure!(result.is_ok(), "{TOPIC} takes no records: error {result:?}");
        }
        Ok(())
    }

    fn harm(&self, data: &Path, pair: u32) -> anyhow::Result<()> {
        let dir = topic_dir(&data.join("logs"))?.join(pair.to_string());
        fs::remove_dir_all(&dir).with_context(|| format!("{} cannot be removed", dir.display()))
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let records = batch(Compression::None, &[b"v"])?;
        let frames = (0..PARTITIONS).map(|partition| produce_frame(TOPIC, &[(partition, &records)]));
        let frames = frames.collect::<anyhow::Result<Vec<_>>>()?;
        target.storm(WORKERS, |worker, kept: &mut Option<Conn>| {
            let turn = usize::try_from(worker.shot)? + worker.index;
            let mut conn = match kept.take() {
                Some(conn) => conn,
                None => worker.connect()?,
            };
            conn.send(&frames[turn % frames.len()])?;
            conn.skip_answer()?;
            *kept = Some(conn);
            Ok(Shot::Answered)
        })
    }

    fn check(&self, conn: &mut Conn) -> anyhow::Result<()> {
        let records = batch(Compression::None, &[b"v"])?;
        let result = write(conn, 0, &records)?;
        ensure!(result.is_err(), "a partition whose directory has gone takes records");
        let result = write(conn, PARTITIONS - 1, &records)?;
        ensure!(result.is_ok(), "a partition whose directory is there takes no records: error {result:?}");
        Ok(())
    }
}

/// The topic's directory, which is named by its id: the only one with so many partitions. It is made when the journal's
/// first records of the topic are settled.
fn topic_dir(logs: &Path) -> anyhow::Result<PathBuf> {
    let last = (PARTITIONS - 1).to_string();
    let deadline = Instant::now() + MADE_MAX;
    loop {
        for entry in fs::read_dir(logs)? {
            let dir = entry?.path();
            if dir.join(&last).is_dir() {
                return Ok(dir);
            }
        }
        ensure!(Instant::now() < deadline, "no directory of {TOPIC} is made");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Writes a batch; returns its offset, or the error code.
fn write(conn: &mut Conn, partition: i32, records: &[u8]) -> anyhow::Result<Result<i64, i16>> {
    conn.send(&produce_frame(TOPIC, &[(partition, records)])?)?;
    produced(&conn.answer()?)
}

//! A mounted queue that lost a page: a sealed segment that begins with zeros.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::Context;
use riverrun_protocol::fetch_request::{FetchPartition, FetchTopic};
use riverrun_protocol::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use riverrun_protocol::{FetchRequest, ListOffsetsRequest};
use riverrun_queue::{AppendOptions, CreateOptions, Queue as EmbeddedQueue};

use super::{Attack, Ground};
use crate::attack::attacker::{From, Shot, Tally, Target};
use crate::wire::{Conn, frame};

/// The topic that the queue is mounted as.
const TOPIC: &str = "damaged";

/// Number of records, and bytes of each: several segments.
const RECORDS: i64 = 200;
const RECORD_BYTES: usize = 999;
const SEGMENT_BYTES: u64 = 64 << 10;

/// Lost bytes of a segment.
const LOST_BYTES: usize = 4096;

/// Connections that read.
const WORKERS: usize = 4;

/// Clients that read the lost page, from every offset and by time.
pub(super) struct Queue;

impl Attack for Queue {
    fn name(&self) -> &'static str {
        "damaged-queue"
    }

    fn about(&self) -> &'static str {
        "4 connections read a mounted queue whose second segment begins with zeros, by offset and by time"
    }

    fn short(&self) -> Option<From> {
        Some(From::Others)
    }

    fn ground(&self) -> Ground {
        Ground { lay: Some(lay), ..Ground::default() }
    }

    fn log_words(&self) -> &'static [&'static str] {
        &["damaged"]
    }

    fn health_words(&self) -> &'static [&'static str] {
        &["damaged"]
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let fetches = (0..RECORDS).step_by(10).map(fetch);
        let frames = fetches.chain([by_time()]).collect::<anyhow::Result<Vec<_>>>()?;
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
}

/// Makes the queue and damages it.
fn lay(dir: &Path) -> anyhow::Result<Vec<String>> {
    let queue_dir = dir.join("queue");
    let queue = EmbeddedQueue::create(&queue_dir, CreateOptions { segment_bytes: SEGMENT_BYTES })?;
    let mut appender = queue.appender(AppendOptions::default())?;
    for _ in 0..RECORDS {
        appender.append(&[b'x'; RECORD_BYTES])?;
    }
    drop((appender, queue));
    let names =
        fs::read_dir(&queue_dir)?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    let mut segments: Vec<_> = names
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    segments.sort();
    let sealed = segments.get(1).context("the queue has one segment")?;
    File::options().write(true).open(sealed)?.write_all_at(&[0; LOST_BYTES], 0)?;
    Ok(vec![format!("mounts={TOPIC}={}", queue_dir.display())])
}

fn fetch(offset: i64) -> anyhow::Result<Vec<u8>> {
    let partition =
        FetchPartition { fetch_offset: offset, partition_max_bytes: 1 << 20, ..FetchPartition::default() };
    let topic = FetchTopic { topic: TOPIC.into(), partitions: vec![partition], ..FetchTopic::default() };
    let request = FetchRequest { max_bytes: 1 << 20, topics: vec![topic], ..FetchRequest::default() };
    frame(&request, 11)
}

fn by_time() -> anyhow::Result<Vec<u8>> {
    let partition = ListOffsetsPartition { timestamp: i64::MAX - 1, ..ListOffsetsPartition::default() };
    let topic = ListOffsetsTopic { name: TOPIC.into(), partitions: vec![partition] };
    frame(&ListOffsetsRequest { topics: vec![topic], ..ListOffsetsRequest::default() }, 5)
}

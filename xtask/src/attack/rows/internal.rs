//! Records in the server's internal topics.

use riverrun_protocol::offsets_topic::{self, OffsetCommitKey, OffsetCommitValue};
use riverrun_records::{BatchBuilder, BatchOptions, Compression};

use super::{Attack, find_coordinator};
use crate::attack::attacker::{From, Shot, Tally, Target, Worker};
use crate::wire::{Conn, now_ms, produce_frame_as, produced};

/// The topic of group offsets.
const TOPIC: &str = "__consumer_offsets";

/// The client id of Kafka's own tools, which alone grants no access.
const ADMIN_CLIENT: &str = "__admin_client";

/// Its partitions, which get batches in turn.
const PARTITIONS: u64 = 50;

/// Forged commits of one batch, and bytes of metadata of each.
const COMMITS: i32 = 3200;
const METADATA_BYTES: usize = 30_000;

/// Garbage keys of one batch.
const GARBAGE: usize = 100_000;

/// Commits that no group made.
pub(super) struct Commits;

impl Attack for Commits {
    fn name(&self) -> &'static str {
        "internal-commits"
    }

    fn about(&self) -> &'static str {
        "forged commits of 30 kB each, 3,200 in a compressed batch, to __consumer_offsets"
    }

    fn short(&self) -> Option<From> {
        Some(From::Others)
    }

    fn prepare(&self, conn: &mut Conn) -> anyhow::Result<()> {
        find_coordinator(conn, "g")
    }

    fn log_words(&self) -> &'static [&'static str] {
        &["records for an internal topic are refused"]
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let commits = forged_commits()?;
        target.storm(1, |worker, conn| write(&commits, worker, conn))
    }
}

/// Records of types that the server does not know.
pub(super) struct Keys;

impl Attack for Keys {
    fn name(&self) -> &'static str {
        "internal-garbage"
    }

    fn about(&self) -> &'static str {
        "100,000 records of no meaning in a compressed batch, to __consumer_offsets"
    }

    fn prepare(&self, conn: &mut Conn) -> anyhow::Result<()> {
        find_coordinator(conn, "g")
    }

    fn log_words(&self) -> &'static [&'static str] {
        &["records for an internal topic are refused"]
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let garbage = garbage()?;
        target.storm(1, |worker, conn| write(&garbage, worker, conn))
    }
}

/// Offsets of one group with as much metadata as fits.
fn forged_commits() -> anyhow::Result<Vec<u8>> {
    let metadata = "m".repeat(METADATA_BYTES);
    let now = now_ms()?;
    let value = OffsetCommitValue {
        offset: 1,
        metadata: metadata.as_str().into(),
        commit_timestamp: now.0,
        ..OffsetCommitValue::default()
    };
    let value = offsets_topic::encode_value(&value, 3)?;
    let options = BatchOptions { compression: Compression::Zstd, ..BatchOptions::default() };
    let mut builder = BatchBuilder::new(options);
    for partition in 0..COMMITS {
        let key = OffsetCommitKey { group: "forged".into(), topic: "t".into(), partition };
        builder.append(now, Some(&offsets_topic::encode_key(&key)?), Some(&value), &[])?;
    }
    Ok(builder.build()?)
}

/// Records whose key has the type of an offset, and ends there.
fn garbage() -> anyhow::Result<Vec<u8>> {
    let now = now_ms()?;
    let options = BatchOptions { compression: Compression::Zstd, ..BatchOptions::default() };
    let mut builder = BatchBuilder::new(options);
    for _ in 0..GARBAGE {
        builder.append(now, Some(&[0, 1]), Some(b""), &[])?;
    }
    Ok(builder.build()?)
}

/// Sends a batch; an accepted one was let in.
fn write(records: &[u8], worker: &Worker, kept: &mut Option<Conn>) -> anyhow::Result<Shot> {
    let partition = i32::try_from(worker.shot % PARTITIONS)?;
    let mut conn = match kept.take() {
        Some(conn) => conn,
        None => worker.connect()?,
    };
    conn.send(&produce_frame_as(ADMIN_CLIENT, TOPIC, &[(partition, records)])?)?;
    let result = produced(&conn.answer()?)?;
    *kept = Some(conn);
    Ok(if result.is_ok() { Shot::LetIn } else { Shot::Answered })
}

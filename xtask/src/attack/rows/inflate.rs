//! Compressed batches that are small to send and large to inflate.

use riverrun_records::Compression;

use super::{Attack, must_create_topic};
use crate::attack::attacker::{From, Shot, Tally, Target};
use crate::attack::honest::Shape;
use crate::wire::{Conn, batch, produce_frame};

/// Connections that send such batches.
const WORKERS: usize = 4;

/// Batches of one request, each for a partition of its own.
const BATCHES: i32 = 100;

/// Records of a batch, of a megabyte each.
const RECORDS: usize = 99;
const RECORD_BYTES: usize = 1 << 20;

const TOPIC: &str = "inflate";

/// A hundred batches in a request, each inflating to 99 MiB.
pub(super) struct Inflate;

impl Attack for Inflate {
    fn name(&self) -> &'static str {
        "inflate"
    }

    fn about(&self) -> &'static str {
        "4 connections send 100 batches in a request, each of which inflates to 99 MiB"
    }

    fn short(&self) -> Option<From> {
        Some(From::Others)
    }

    fn beside(&self) -> &'static [Shape] {
        &[Shape::Small, Shape::Compressed]
    }

    fn prepare(&self, conn: &mut Conn) -> anyhow::Result<()> {
        must_create_topic(conn, TOPIC, BATCHES, &[("durability", "4")])
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let zeros = vec![0; RECORD_BYTES];
        let bomb = batch(Compression::Zstd, &vec![zeros.as_slice(); RECORDS])?;
        let batches: Vec<_> = (0..BATCHES).map(|partition| (partition, bomb.as_slice())).collect();
        let request = produce_frame(TOPIC, &batches)?;
        target.storm(WORKERS, |worker, (): &mut ()| {
            let mut conn = worker.connect()?;
            conn.send(&request)?;
            conn.skip_answer()?;
            Ok(Shot::Answered)
        })
    }
}

//! Connections: many idle ones, and many one after another.

use std::time::Duration;

use anyhow::ensure;
use riverrun_protocol::ApiVersionsRequest;
use riverrun_records::Compression;

use super::{Attack, Ground, must_create_topic};
use crate::attack::attacker::{From, Shot, Tally, Target};
use crate::wire::{Conn, batch, frame, produce_frame, produced};

/// Number of workers, and connections of each.
const WORKERS: usize = 50;
const HELD: usize = 26;

/// Descriptors of the server, which these connections would exhaust.
const DESCRIPTORS: u32 = 1024;

/// Partitions that are made afterwards, each with a log of its own.
const PARTITIONS: i32 = 3;

/// Idle connections, as many as the process has descriptors.
pub(super) struct Idle;

impl Attack for Idle {
    fn name(&self) -> &'static str {
        "idle-connections"
    }

    fn about(&self) -> &'static str {
        "1,300 connections that say nothing, with 1,024 descriptors"
    }

    fn short(&self) -> Option<From> {
        Some(From::Others)
    }

    fn ground(&self) -> Ground {
        Ground { descriptors: Some(DESCRIPTORS), ..Ground::default() }
    }

    fn log_words(&self) -> &'static [&'static str] {
        &["there are no descriptors for more"]
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        target.storm(WORKERS, |worker, held: &mut Vec<Conn>| {
            if held.len() >= HELD {
                worker.pause(Duration::from_millis(300));
                return Ok(Shot::Sent);
            }
            held.push(worker.connect()?);
            Ok(Shot::Sent)
        })
    }

    fn check(&self, conn: &mut Conn) -> anyhow::Result<()> {
        must_create_topic(conn, "later", PARTITIONS, &[])?;
        let records = batch(Compression::None, &[b"v"])?;
        for partition in 0..PARTITIONS {
            conn.send(&produce_frame("later", &[(partition, &records)])?)?;
            let result = produced(&conn.answer()?)?;
            ensure!(result.is_ok(), "a new partition takes no records: error {result:?}");
        }
        Ok(())
    }
}

/// Connections that are opened, send one request and are closed, as fast as possible.
pub(super) struct Churn;

impl Attack for Churn {
    fn name(&self) -> &'static str {
        "connection-storm"
    }

    fn about(&self) -> &'static str {
        "8 workers connect, ask for versions and close, as fast as they can"
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let request = frame(&ApiVersionsRequest::default(), 0)?;
        target.storm(8, |worker, (): &mut ()| {
            let mut conn = worker.connect()?;
            conn.send(&request)?;
            conn.skip_answer()?;
            Ok(Shot::Answered)
        })
    }
}

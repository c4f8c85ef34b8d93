//! The reader of the server's log has gone, or does not read, while clients make the server log.

use std::time::Duration;

use riverrun_protocol::IncrementalAlterConfigsRequest;
use riverrun_protocol::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use riverrun_records::Compression;

use super::{Attack, Ground, LogReader, must_create_topic};
use crate::attack::attacker::{From, Shot, Tally, Target};
use crate::wire::{Conn, batch, frame, produce_frame};

/// Connections that make the server log.
const WORKERS: usize = 2;

const TOPIC: &str = "levels";

/// Bytes that are no request, and that the server logs.
const GARBAGE: &[u8] = b"\xff\xff\xff\xff";

/// The resource type of topics.
const TOPIC_RESOURCE: i8 = 2;

/// The reader has gone.
pub(super) struct Gone;

/// The reader exists, but does not read.
pub(super) struct Paused;

impl Attack for Gone {
    fn name(&self) -> &'static str {
        "log-reader-gone"
    }

    fn about(&self) -> &'static str {
        "the reader of stderr has gone; 2 connections alter a topic's level, and send garbage"
    }

    fn short(&self) -> Option<From> {
        Some(From::Others)
    }

    fn ground(&self) -> Ground {
        Ground { log_reader: LogReader::Gone, ..Ground::default() }
    }

    fn health_words(&self) -> &'static [&'static str] {
        &["the log cannot be written"]
    }

    fn prepare(&self, conn: &mut Conn) -> anyhow::Result<()> {
        must_create_topic(conn, TOPIC, 1, &[])
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        alter_levels(target)
    }
}

impl Attack for Paused {
    fn name(&self) -> &'static str {
        "log-reader-paused"
    }

    fn about(&self) -> &'static str {
        "stderr is a pipe that is full; 2 connections alter a topic's level, and send garbage"
    }

    fn short(&self) -> Option<From> {
        Some(From::Others)
    }

    fn ground(&self) -> Ground {
        Ground { log_reader: LogReader::Paused, ..Ground::default() }
    }

    fn prepare(&self, conn: &mut Conn) -> anyhow::Result<()> {
        must_create_topic(conn, TOPIC, 1, &[])
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        alter_levels(target)
    }
}

fn alter_levels(target: &Target) -> anyhow::Result<Tally> {
    let records = batch(Compression::None, &[b"v"])?;
    let produce = produce_frame(TOPIC, &[(0, &records)])?;
    target.storm(WORKERS, |worker, (): &mut ()| {
        let mut garbage = worker.connect()?;
        garbage.send(GARBAGE)?;
        let level = if worker.shot.is_multiple_of(2) { "4" } else { "1" };
        let mut conn = worker.connect()?;
        conn.send(&frame(&alter(level), 0)?)?;
        conn.skip_answer()?;
        conn.send(&produce)?;
        conn.skip_answer()?;
        worker.pause(Duration::from_millis(20));
        Ok(Shot::Answered)
    })
}

fn alter(level: &str) -> IncrementalAlterConfigsRequest<'_> {
    let config = AlterableConfig {
        name: "durability".into(),
        value: Some(level.into()),
        ..AlterableConfig::default()
    };
    let resource = AlterConfigsResource {
        resource_type: TOPIC_RESOURCE,
        resource_name: TOPIC.into(),
        configs: vec![config],
    };
    IncrementalAlterConfigsRequest { resources: vec![resource], ..IncrementalAlterConfigsRequest::default() }
}

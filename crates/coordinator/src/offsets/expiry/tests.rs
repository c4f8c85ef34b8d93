//! Offsets under clocks that are moved apart.

use riverrun_protocol::OffsetCommitRequest;
use riverrun_protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use riverrun_types::{LeaderEpoch, Offset, TopicId};

use super::*;
use crate::pattern::PatternTopics;
use crate::time::Stamp;
use crate::topics::TopicMetadata;
use crate::{GroupConfig, GroupMemory, ReplyToken, RequestContext};

const DAY: i64 = 24 * 3_600_000;
/// The time at which all clocks are right.
const START: i64 = 20_000 * DAY;
const INTERVAL: i64 = 600_000;

/// One topic `t`, with every partition that a test asks for.
struct OneTopic;

impl TopicMetadata for OneTopic {
    fn topic_id(&self, name: &str) -> Option<TopicId> {
        (name == "t").then_some(TopicId([1; 16]))
    }

    fn topic_name(&self, _id: TopicId) -> Option<&str> {
        Some("t")
    }

    fn partition_count(&self, _id: TopicId) -> Option<i32> {
        Some(i32::MAX)
    }

    fn topics_of_pattern(&self, _pattern: &str) -> PatternTopics {
        PatternTopics::Pending
    }

    fn partition_racks(&self, _id: TopicId, _partition: i32) -> Vec<&str> {
        Vec::new()
    }

    fn generation(&self) -> u64 {
        1
    }
}

/// A shard with its log, and its clocks.
struct World {
    shard: Shard,
    log: Vec<OffsetsRecord>,
    now: Now,
}

impl World {
    fn new(log: Vec<OffsetsRecord>, wall_ms: i64) -> Self {
        let mut shard = Shard::new(GroupConfig::default(), GroupMemory::unbounded());
        for record in &log {
            shard.replay(&record.key, record.value.as_deref()).unwrap();
        }
        let now = Now { wall: TimestampMs(wall_ms), ..Now::simulated(5_000) };
        assert_eq!(shard.on_loaded(now), Step::default());
        Self { shard, log, now }
    }

    fn restart(self, wall_ms: i64) -> Self {
        Self::new(self.log, wall_ms)
    }

    fn set_wall(&mut self, wall_ms: i64) {
        self.now.wall = TimestampMs(wall_ms);
    }

    /// Lets time pass for all clocks, and handles the deadlines then.
    fn advance(&mut self, ms: i64) {
        let Now { moment, passed_ms, wall } = self.now;
        self.now =
            Now { moment: moment.after(ms), passed_ms: passed_ms + ms, wall: TimestampMs(wall.0 + ms) };
        self.shard.note_clocks(self.now);
        while self.shard.next_deadline().is_some_and(|at| at <= self.now.moment) {
            self.log.extend(self.shard.expire(self.now, &OneTopic).records);
        }
    }

    fn commit(&mut self) {
        self.commit_to(0);
    }

    fn commit_to(&mut self, partition_index: i32) {
        let partition =
            OffsetCommitRequestPartition { partition_index, committed_offset: 7, ..Default::default() };
        let topic = OffsetCommitRequestTopic {
            name: "t".into(),
            partitions: vec![partition],
            ..OffsetCommitRequestTopic::default()
        };
        let request = OffsetCommitRequest {
            group_id: "g".into(),
            generation_id_or_member_epoch: -1,
            topics: vec![topic],
            ..OffsetCommitRequest::default()
        };
        let context = RequestContext {
            now: self.now,
            token: ReplyToken(1),
            client_id: "c",
            client_host: "/h",
            api_version: 9,
            random: [0; 16],
        };
        self.log.extend(self.shard.offset_commit(&context, &request, &OneTopic).records);
        assert!(self.is_kept());
    }

    /// The commit's time in the log.
    fn written_ms(&self) -> i64 {
        let mut shard = Shard::new(GroupConfig::default(), GroupMemory::unbounded());
        for record in &self.log {
            shard.replay(&record.key, record.value.as_deref()).unwrap();
        }
        let (.., offset) = shard.committed_offsets().next().unwrap();
        offset.committed_at.wall.0
    }

    fn is_kept(&self) -> bool {
        self.shard.committed_offsets().next().is_some()
    }
}

/// The default retention.
fn retention() -> i64 {
    GroupConfig::default().offsets_retention_ms
}

#[test]
fn a_commit_outlives_a_start_with_a_clock_behind() {
    let mut world = World::new(Vec::new(), START - 30 * DAY);
    world.advance(1_000);
    world.set_wall(START);
    world.advance(3 * DAY);
    world.commit();
    world.advance(1_000);
    let mut world = world.restart(START + 3 * DAY + 60_000);
    world.advance(INTERVAL);
    assert!(world.is_kept(), "it was written down with the time of the start");
}

#[test]
fn a_commit_before_the_clock_is_mended_outlives_a_restart() {
    let mut world = World::new(Vec::new(), START - 30 * DAY);
    world.commit();
    world.set_wall(START);
    world.advance(INTERVAL);
    assert!(world.is_kept(), "it is ten minutes old");
    let mut world = world.restart(START + DAY);
    world.advance(INTERVAL);
    assert!(world.is_kept());
    world.advance(retention());
    assert!(!world.is_kept(), "it expires in the end");
}

#[test]
fn a_clock_that_is_set_expires_and_keeps_nothing() {
    for by in [-300 * DAY, 300 * DAY] {
        let mut world = World::new(Vec::new(), START);
        world.commit();
        world.set_wall(START + by);
        world.advance(retention() - INTERVAL);
        assert!(world.is_kept(), "{by}");
        world.advance(2 * INTERVAL);
        assert!(!world.is_kept(), "{by}");
    }
}

#[test]
fn a_start_with_a_clock_ahead_expires_nothing_once_it_is_mended() {
    let mut world = World::new(Vec::new(), START);
    world.commit();
    let mut world = world.restart(START + 300 * DAY);
    world.set_wall(START + 1_000);
    world.advance(INTERVAL);
    assert!(world.is_kept());
}

#[test]
fn times_are_written_anew_as_soon_as_the_clock_is_set() {
    for by in [-30 * DAY, 30 * DAY] {
        let mut world = World::new(Vec::new(), START + by);
        world.commit();
        world.advance(1_000);
        assert_eq!(world.log.len(), 1, "the clock was not set");
        world.set_wall(START);
        world.advance(1_000);
        assert_eq!(world.written_ms(), START - 1_000, "it was a second before the clock was set");
        world.advance(INTERVAL / 2);
        assert_eq!(world.log.len(), 2, "once");
        let mut world = world.restart(START + INTERVAL / 2 + 2_000);
        world.advance(INTERVAL);
        assert!(world.is_kept(), "{by}");
    }
}

#[test]
fn a_clock_that_is_moved_by_little_writes_nothing() {
    let mut world = World::new(Vec::new(), START);
    world.commit();
    world.set_wall(START + 59_000);
    world.advance(1_000);
    assert_eq!(world.log.len(), 1);
    world.set_wall(START + 1_000 + 61_000);
    world.advance(1_000);
    assert_eq!(world.log.len(), 2, "by little twice is much");
}

#[test]
fn lent_group_is_corrected_after_the_clock_was_set() {
    let mut world = World::new(Vec::new(), START - 30 * DAY);
    world.commit();
    let lent = world.shard.lend("g").unwrap();
    // Another one, so that the shard has something to examine.
    world.shard.create("h", crate::group::GroupEntry::new(Group::Consumer(Box::default()))).unwrap();
    world.set_wall(START);
    world.advance(1_000);
    world.shard.take_back(lent);
    world.advance(AGAIN_MS);
    assert_eq!(world.written_ms(), START);
}

#[test]
fn a_clock_that_is_set_during_a_sweep_has_it_begin_anew() {
    let mut world = World::new(Vec::new(), START);
    for partition in 0..2 * SLICE_LOOKS_MAX {
        world.commit_to(i32::try_from(partition).unwrap());
    }
    world.now.moment = world.now.moment.after(INTERVAL);
    assert_eq!(world.shard.expire(world.now, &OneTopic), Step::default());
    assert_eq!(world.shard.next_deadline(), Some(world.now.moment), "it goes on");
    world.set_wall(START + DAY);
    world.advance(1_000);
    assert_eq!(world.written_ms(), START + DAY);
}

#[test]
fn a_sweep_goes_on_in_slices_until_it_has_seen_all() {
    let offset = CommittedOffset {
        offset: Offset(1),
        leader_epoch: LeaderEpoch::UNKNOWN,
        metadata: "".into(),
        committed_at: Stamp::recorded(TimestampMs(START)),
        expires_at: None,
        topic_id: TopicId::ZERO,
    };
    let groups = ["a", "b", "c"].into_iter();
    let offsets = groups.flat_map(|group| (0..3_000).map(move |partition| (group, partition)));
    let log = offsets.map(|(group, partition)| records::offset_commit(group, "t", partition, &offset));
    let mut world = World::new(log.collect(), START + retention() + DAY);
    let Now { moment, wall, .. } = world.now;
    world.now = Now { moment: moment.after(INTERVAL), wall: TimestampMs(wall.0 + INTERVAL), ..world.now };
    let mut slices = 0;
    while world.shard.next_deadline().is_some_and(|at| at <= world.now.moment) {
        let records = world.shard.expire(world.now, &OneTopic).records;
        assert!(records.len() <= SLICE_LOOKS_MAX, "{}", records.len());
        slices += 1;
    }
    assert!(!world.is_kept());
    assert_eq!(slices, 9_000 / SLICE_LOOKS_MAX + 1);
}

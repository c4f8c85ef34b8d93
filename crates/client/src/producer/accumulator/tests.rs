//! Requests, lingering, flush.

mod buffer;
mod gone;
mod history;
mod order;

use std::time::Duration;

use futures_util::future::FutureExt as _;
use proptest::prelude::*;
use riverrun_types::{LeaderEpoch, NodeId, Offset, TopicId};

use super::*;
use crate::cluster::{ClusterOptions, PartitionInfo};
use crate::producer::Delivery;
use crate::producer::delivery::BatchPlace;
use crate::producer::listener::Callback;
use crate::producer::partitioner::partition_of_key;

const NODE: NodeId = NodeId(1);

fn accumulator(change: impl FnOnce(&mut ProducerOptions)) -> Accumulator {
    let mut options = ProducerOptions::new(ClusterOptions::new("nowhere:1"));
    options.linger = Duration::from_hours(1);
    options.batch_bytes = 200;
    change(&mut options);
    let accumulator = Accumulator::new(Arc::new(options));
    accumulator.learn(&topic(TopicId::ZERO, &[NODE; 3]), 1, None);
    accumulator
}

/// The topic with these leaders.
fn topic(id: TopicId, leaders: &[NodeId]) -> TopicInfo {
    let partition = |(index, leader): (i32, &NodeId)| PartitionInfo {
        index,
        leader: Some(*leader),
        leader_epoch: LeaderEpoch(0),
        replicas: vec![*leader],
        in_sync: vec![*leader],
        unusable: Vec::new(),
    };
    let partitions = (0..).zip(leaders).map(partition).collect();
    TopicInfo { name: "t".to_owned(), id, internal: false, partitions }
}

const VALUE: [u8; 1024] = [b'x'; 1024];

fn record(partition: i32, bytes: usize) -> RecordRef<'static> {
    RecordRef::new("t", &VALUE[..bytes]).with_partition(partition)
}

fn append(accumulator: &Accumulator, record: &RecordRef<'_>) -> Delivery {
    let bytes = record.size_bound_bytes();
    assert!(matches!(accumulator.reserve(bytes).now_or_never(), Some(Ok(()))), "there is room");
    match accumulator.append(record, TimestampMs(1), bytes, &mut None).unwrap() {
        Appended::Yes(delivery) => delivery,
        other => panic!("{other:?}"),
    }
}

fn drain(accumulator: &Accumulator) -> Vec<Batch> {
    let mut plan = DrainPlan {
        now: Instant::now(),
        producer: None,
        fresh_allowed: true,
        leader: &mut |_, _| Some(NODE),
        has_room: &mut |_| true,
        full: &[],
    };
    accumulator.drain(&mut plan).requests.remove(&NODE).unwrap_or_default()
}

fn partitions(batches: &[Batch]) -> Vec<i32> {
    batches.iter().map(|batch| batch.key.partition).collect()
}

fn deliver(accumulator: &Accumulator, batches: Vec<Batch>) {
    for batch in batches {
        let place = BatchPlace { base_offset: Some(Offset(0)), append_time: None };
        accumulator.complete(batch, Ok(place), false);
    }
}

#[test]
fn a_request_has_one_batch_of_each_partition() {
    let accumulator = accumulator(|_| {});
    for partition in [0, 0, 1] {
        append(&accumulator, &record(partition, 190));
    }
    let first = drain(&accumulator);
    assert_eq!(partitions(&first), [0, 1]);
    assert_eq!(partitions(&drain(&accumulator)), [0; 0], "the first batch of a partition goes alone");
    deliver(&accumulator, first);
    assert_eq!(partitions(&drain(&accumulator)), [0]);
}

#[test]
fn queue_without_room_in_a_request_is_first_in_the_next() {
    let accumulator = accumulator(|options| options.request_bytes_max = 600);
    for partition in [0, 1, 2, 0, 1, 2] {
        append(&accumulator, &record(partition, 190));
    }
    let first = drain(&accumulator);
    assert_eq!(partitions(&first), [0, 1]);
    deliver(&accumulator, first);
    assert_eq!(partitions(&drain(&accumulator)), [2, 0]);
}

#[test]
fn small_records_wait_for_company() {
    let accumulator = accumulator(|_| {});
    append(&accumulator, &record(0, 1));
    append(&accumulator, &record(0, 1));
    assert_eq!(partitions(&drain(&accumulator)), [0; 0]);
    append(&accumulator, &record(0, 150));
    let batches = drain(&accumulator);
    assert_eq!(batches.iter().map(Batch::record_count).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_batch_does_not_linger_when_the_partitioner_has_left_it() {
    let accumulator = accumulator(|_| {});
    append(&accumulator, &RecordRef::new("t", &VALUE[..100]));
    for _ in 0..20 {
        // Only one fits: the next record goes to a batch of its own, of the same partition or another.
        append(&accumulator, &RecordRef::new("t", &VALUE[..100]));
        let batches = drain(&accumulator);
        assert_eq!(batches.len(), 1, "the one before");
        deliver(&accumulator, batches);
    }
}

#[test]
fn sender_is_not_woken_with_the_maximum_in_flight() {
    let accumulator = accumulator(|_| {});
    append(&accumulator, &record(0, 190));
    let first = drain(&accumulator);
    assert!(accumulator.wake.notified().now_or_never().is_some());
    for _ in 0..3 {
        append(&accumulator, &record(0, 190));
    }
    assert!(accumulator.wake.notified().now_or_never().is_none(), "the first goes alone");
    deliver(&accumulator, first);
    assert_eq!(partitions(&drain(&accumulator)), [0], "a returning batch lists its queue");
}

#[tokio::test]
async fn flush_waits_for_earlier_records_only() {
    let accumulator = accumulator(|_| {});
    append(&accumulator, &record(0, 1));
    let mut flush = Box::pin(accumulator.flush());
    assert!(flush.as_mut().now_or_never().is_none());
    append(&accumulator, &record(1, 1));
    let batches = drain(&accumulator);
    assert_eq!(partitions(&batches), [0], "the later record lingers");
    deliver(&accumulator, batches);
    assert!(flush.now_or_never().is_some());
}

#[test]
fn a_flush_ends_after_the_last_callback_and_not_before() {
    let accumulator = accumulator(|_| {});
    let (entered, has_entered) = std::sync::mpsc::sync_channel(1);
    let (go_on, may_go_on) = std::sync::mpsc::sync_channel(1);
    let callback = Callback::new(move |_| {
        entered.send(()).unwrap();
        may_go_on.recv().unwrap();
    });
    let record = record(0, 190);
    let bytes = record.size_bound_bytes();
    accumulator.append(&record, TimestampMs(1), bytes, &mut Some(callback)).unwrap();
    let mut flush = Box::pin(accumulator.flush());
    assert!(flush.as_mut().now_or_never().is_none());
    let batches = drain(&accumulator);
    std::thread::scope(|scope| {
        scope.spawn(|| deliver(&accumulator, batches));
        has_entered.recv().unwrap();
        assert!(flush.as_mut().now_or_never().is_none(), "the callback has not returned");
        go_on.send(()).unwrap();
    });
    assert!(flush.now_or_never().is_some());
}

/// The result of a drain, and how often it asked for a leader and for a node's room.
fn look(accumulator: &Accumulator, leads: bool, takes: bool, now: Instant) -> (Drained, usize, usize) {
    let (mut leaders, mut rooms) = (0, 0);
    let mut plan = DrainPlan {
        now,
        producer: None,
        fresh_allowed: true,
        leader: &mut |_, _| {
            leaders += 1;
            leads.then_some(NODE)
        },
        has_room: &mut |_| {
            rooms += 1;
            takes
        },
        full: &[],
    };
    let drained = accumulator.drain(&mut plan);
    (drained, leaders, rooms)
}

#[test]
fn stalled_queues_are_visited_only_when_their_leader_accepts() {
    let accumulator = accumulator(|_| {});
    for partition in [0, 1, 2] {
        append(&accumulator, &record(partition, 190));
    }
    let now = Instant::now();
    let asked = |leads, takes| {
        let (drained, leaders, rooms) = look(&accumulator, leads, takes, now);
        let taken = drained.requests.get(&NODE).map(|batches| partitions(batches)).unwrap_or_default();
        drop(drained.requests);
        (taken, leaders, rooms, drained.leaderless.len())
    };
    let none = Vec::<i32>::new();
    assert_eq!(asked(false, true), (none.clone(), 3, 0, 1), "no leader");
    assert_eq!(asked(false, true), (none.clone(), 0, 0, 0), "nothing is known that was not");
    accumulator.list_stalled();
    assert_eq!(asked(true, false), (none.clone(), 3, 1, 0), "the leader takes nothing");
    assert_eq!(asked(true, false), (none, 0, 1, 0), "only whether it does now is asked");
    assert_eq!(asked(true, true), (vec![0, 1, 2], 3, 1, 0));
}

#[test]
fn drain_costs_by_taken_batches_not_by_waiting_ones() {
    let accumulator = accumulator(|options| options.request_bytes_max = 300);
    for partition in [0, 1, 2] {
        append(&accumulator, &record(partition, 190));
    }
    let now = Instant::now();
    assert_eq!(look(&accumulator, true, false, now).1, 3);
    for (partition, leaders) in [(0, 2), (1, 2), (2, 1)] {
        let (drained, asked, _) = look(&accumulator, true, true, now);
        assert_eq!((partitions(&drained.requests[&NODE]), asked), (vec![partition], leaders));
        assert_eq!(drained.more, partition < 2);
    }
}

#[test]
fn a_leader_for_which_nothing_waits_any_more_is_left_alone() {
    let accumulator = accumulator(|options| options.delivery_timeout = Duration::from_secs(1));
    let delivery = append(&accumulator, &record(0, 190));
    let now = Instant::now();
    assert_eq!(look(&accumulator, true, false, now).2, 1);
    let (drained, ..) = look(&accumulator, true, false, now + Duration::from_secs(2));
    assert_eq!(drained.expired.len(), 1);
    for batch in drained.expired {
        accumulator.complete(batch, Err(ClientError::Closed), false);
    }
    drop(delivery);
    assert_eq!(look(&accumulator, true, false, now + Duration::from_secs(3)).2, 0);
}

/// Puts records without a key into batches of their own, each sent at once if its leader accepts it. Returns the
/// partitions that they were sent to.
fn spread(
    accumulator: &Accumulator,
    leaders: &[NodeId],
    takes: impl Fn(NodeId) -> bool,
    now: Instant,
) -> Vec<i32> {
    let mut sent = Vec::new();
    for _ in 0..50 {
        append(accumulator, &RecordRef::new("t", &VALUE[..190]));
        let mut plan = DrainPlan {
            now,
            producer: None,
            fresh_allowed: true,
            leader: &mut |_, partition| leaders.get(usize::try_from(partition).ok()?).copied(),
            has_room: &mut |node| takes(node),
            full: &[],
        };
        let drained = accumulator.drain(&mut plan);
        for batch in drained.expired {
            accumulator.complete(batch, Err(ClientError::Closed), false);
        }
        for batches in drained.requests.into_values() {
            sent.extend(partitions(&batches));
            deliver(accumulator, batches);
        }
    }
    sent
}

#[test]
fn slow_leader_is_used_again_once_nothing_waits_for_it() {
    const OTHER: NodeId = NodeId(2);
    const LEADERS: [NodeId; 3] = [NODE, NODE, OTHER];
    let timeout = Duration::from_millis(10);
    let accumulator = accumulator(|options| {
        options.partitioner_availability_timeout = timeout;
        options.delivery_timeout = Duration::from_mins(1);
    });
    accumulator.learn(&topic(TopicId::ZERO, &LEADERS), 1, None);
    append(&accumulator, &record(2, 190));
    let now = Instant::now();
    let but_other = |node: NodeId| node != OTHER;
    spread(&accumulator, &LEADERS, but_other, now);
    let sent = spread(&accumulator, &LEADERS, but_other, now + timeout * 2);
    assert!(sent.len() >= 49, "from the first look on the others get all: {sent:?}");
    // Its waiting batches have expired by now.
    let later = now + Duration::from_mins(2);
    spread(&accumulator, &LEADERS, but_other, later);
    let sent = spread(&accumulator, &LEADERS, |_| true, later);
    assert!(sent.contains(&2), "{sent:?}");
}

#[test]
fn a_look_says_whether_another_may_take_more() {
    let accumulator = accumulator(|options| options.request_bytes_max = 300);
    append(&accumulator, &record(0, 190));
    append(&accumulator, &record(1, 190));
    let now = Instant::now();
    let (first, ..) = look(&accumulator, true, true, now);
    assert!(first.more, "the second had no room in the request");
    let (second, ..) = look(&accumulator, true, true, now);
    assert_eq!((second.requests.len(), second.more), (1, false));
}

#[test]
fn invalid_records_are_refused() {
    let accumulator = accumulator(|_| {});
    let too_long = accumulator.reserve(2 * 1024 * 1024).now_or_never();
    assert!(matches!(too_long, Some(Err(ClientError::RecordTooLarge { option: "max.request.size", .. }))));
    let other = RecordRef::new("other", b"v");
    assert!(matches!(accumulator.append(&other, TimestampMs(1), 1, &mut None), Ok(Appended::UnknownTopic)));
    assert!(matches!(
        accumulator.append(&record(3, 1), TimestampMs(1), 1, &mut None),
        Ok(Appended::NoSuchPartition { count: 3, .. })
    ));
    assert!(matches!(
        accumulator.append(&record(-1, 1), TimestampMs(1), 1, &mut None),
        Ok(Appended::NoSuchPartition { count: 3, .. })
    ));
    accumulator.close();
    assert!(matches!(
        accumulator.append(&record(0, 1), TimestampMs(1), 1, &mut None),
        Err(ClientError::Closed)
    ));
    assert!(accumulator.is_done());
}

#[test]
fn records_with_a_key_go_where_the_key_says() {
    let accumulator = accumulator(|_| {});
    let keyed = RecordRef::new("t", &VALUE[..190]).with_key(b"21");
    append(&accumulator, &keyed);
    assert_eq!(partitions(&drain(&accumulator)), [partition_of_key(b"21", 3)]);
}

proptest! {
    /// Records without a key: unless a flush hurries them, every batch is as full as possible, except the last one.
    #[test]
    fn keyless_batches_stay_whole(sizes in prop::collection::vec(0_usize..100, 1..300)) {
        let accumulator = accumulator(|options| options.batch_bytes = 500);
        let mut whole = Vec::new();
        for bytes in sizes {
            append(&accumulator, &RecordRef::new("t", &VALUE[..bytes]));
            let batches = drain(&accumulator);
            whole.extend(batches.iter().map(Batch::size_bytes));
            deliver(&accumulator, batches);
        }
        // The largest record here is bounded by 140 bytes.
        prop_assert!(whole.iter().all(|bytes| *bytes > 500 - 140), "{whole:?}");
        accumulator.close();
        let mut left = 0;
        while !accumulator.is_done() {
            let batches = drain(&accumulator);
            left += batches.iter().filter(|batch| batch.size_bytes() <= 500 - 140).count();
            deliver(&accumulator, batches);
        }
        prop_assert!(left <= 1, "{left} batches were left");
    }
}

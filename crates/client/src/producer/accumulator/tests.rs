//! Buffer, requests, flush.

mod history;
mod order;

use futures_util::future::FutureExt as _;
use proptest::prelude::*;
use riverrun_protocol::ErrorCode;
use riverrun_types::{LeaderEpoch, Offset, TopicId};

use super::*;
use crate::cluster::{ClusterOptions, PartitionInfo};
use crate::producer::Delivery;
use crate::producer::batch::BATCH_BYTES;
use crate::producer::listener::{Callback, CompletedRecords, DeliveryListener, Tagging};
use crate::producer::partitioner::partition_of_key;
use crate::producer::topics::GONE_GRACE;

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

#[tokio::test]
async fn waiting_for_room_ends_the_linger_of_buffered_batches() {
    // Enough for two batches, but not for another record of the second one's size.
    let accumulator = accumulator(|options| options.buffer_bytes = 2 * BATCH_BYTES + 1260);
    append(&accumulator, &record(0, 900));
    assert_eq!(partitions(&drain(&accumulator)).len(), 1, "a full batch");
    append(&accumulator, &record(1, 100));
    assert_eq!(partitions(&drain(&accumulator)), [0; 0]);
    let mut waiting = Box::pin(accumulator.reserve(150));
    assert!(waiting.as_mut().now_or_never().is_none());
    let batches = drain(&accumulator);
    assert_eq!(partitions(&batches), [1]);
    deliver(&accumulator, batches);
    assert!(waiting.now_or_never().is_some());
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
async fn room_is_given_back_in_lumps_while_senders_wait() {
    const EACH: usize = BATCH_BYTES + 281;
    let accumulator = accumulator(|options| options.buffer_bytes = 16 * (4 * EACH + 100));
    for _ in 0..64 {
        append(&accumulator, &record(0, 180));
    }
    let mut waiting = Box::pin(accumulator.reserve(1700));
    assert!(waiting.as_mut().now_or_never().is_none());
    for _ in 0..4 {
        deliver(&accumulator, drain(&accumulator));
        assert!(waiting.as_mut().now_or_never().is_none());
    }
    assert_eq!(accumulator.freed_bytes(), 4 * EACH);
    deliver(&accumulator, drain(&accumulator));
    assert_eq!(accumulator.freed_bytes(), 0, "a sixteenth of the buffer");
    assert!(waiting.now_or_never().is_some());
    deliver(&accumulator, drain(&accumulator));
    assert_eq!(accumulator.freed_bytes(), 0, "no sender waits");
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

/// The batches found gone after metadata of the topic that was requested at a time.
fn gone_by(accumulator: &Accumulator, told: &TopicInfo, asked_at: Instant) -> (Vec<Batch>, bool) {
    accumulator.learn(told, 1, Some(asked_at));
    accumulator.list_stalled();
    let drained = look(accumulator, true, true, Instant::now()).0;
    (drained.gone, drained.leaderless.contains("t"))
}

/// Fails the batches for partitions that are gone when it is time, and returns the partitions. The topic has this id
/// and one partition.
async fn fail_gone(accumulator: &Accumulator, id: TopicId) -> Vec<i32> {
    let told = topic(id, &[NODE; 1]);
    assert!(gone_by(accumulator, &told, Instant::now()).0.is_empty(), "a server may lag behind");
    tokio::time::advance(GONE_GRACE).await;
    let (gone, _) = gone_by(accumulator, &told, Instant::now());
    let partitions = partitions(&gone);
    for batch in gone {
        accumulator.complete(batch, Err(ClientError::Closed), false);
    }
    partitions
}

fn has_no_partition_2(accumulator: &Accumulator) -> bool {
    let appended = accumulator.append(&record(2, 1), TimestampMs(1), 1, &mut None);
    matches!(appended, Ok(Appended::NoSuchPartition { count: 1, .. }))
}

#[tokio::test(start_paused = true)]
async fn recreated_topic_with_fewer_partitions_is_filled_as_it_is() {
    let accumulator = accumulator(|_| {});
    let made = |number| TopicId([number; 16]);
    accumulator.learn(&topic(made(1), &[NODE; 3]), 1, None);
    append(&accumulator, &record(1, 1));
    append(&accumulator, &record(2, 1));
    accumulator.learn(&topic(made(1), &[NODE; 1]), 1, None);
    assert_eq!(fail_gone(&accumulator, made(1)).await, [0; 0], "no topic loses a partition");
    let mut last = topic(made(1), &[NODE; 3]);
    last.partitions[..2].iter_mut().for_each(|partition| partition.leader = None);
    accumulator.learn(&last, 1, None);
    append(&accumulator, &RecordRef::new("t", b"v"));
    accumulator.learn(&topic(made(2), &[NODE; 1]), 1, None);
    // The last record's batch still has room.
    append(&accumulator, &RecordRef::new("t", b"v"));
    assert_eq!(fail_gone(&accumulator, made(2)).await, [1, 2]);
    assert!(has_no_partition_2(&accumulator));
    let keyless = RecordRef::new("t", &VALUE[..190]);
    assert_eq!(partition_of_key(b"b", 3), 2);
    for record in [keyless, keyless.with_key(b"b")].iter().cycle().take(20) {
        append(&accumulator, record);
        let batches = drain(&accumulator);
        assert_eq!(partitions(&batches), [0]);
        deliver(&accumulator, batches);
    }
    accumulator.learn(&topic(made(3), &[NODE; 3]), 1, None);
    append(&accumulator, &record(2, 190));
    assert!(partitions(&drain(&accumulator)).contains(&2), "it is there again");
}

#[tokio::test(start_paused = true)]
async fn batch_for_a_gone_partition_is_not_retried() {
    let accumulator = accumulator(|_| {});
    accumulator.learn(&topic(TopicId([1; 16]), &[NODE; 3]), 1, None);
    append(&accumulator, &record(2, 190));
    let under_way = drain(&accumulator);
    accumulator.learn(&topic(TopicId([2; 16]), &[NODE; 1]), 1, None);
    for batch in under_way {
        let error = ClientError::Server { code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, message: None };
        assert!(accumulator.handle_error(batch, error, Instant::now()));
    }
    assert_eq!(fail_gone(&accumulator, TopicId([2; 16])).await, [2]);
}

#[tokio::test(start_paused = true)]
async fn missing_partition_fails_only_by_metadata_after_the_grace() {
    let accumulator = accumulator(|_| {});
    let (before, behind) = (TopicId([1; 16]), topic(TopicId([2; 16]), &[NODE; 1]));
    accumulator.learn(&topic(before, &[NODE; 3]), 1, None);
    append(&accumulator, &record(1, 190));
    append(&accumulator, &record(2, 190));
    let mut asked_at = Instant::now();
    for _ in 0..3 {
        let (gone, asks) = gone_by(&accumulator, &behind, asked_at);
        assert!(gone.is_empty() && asks, "each answer leads to the next question");
        asked_at = Instant::now();
        tokio::time::advance(GONE_GRACE / 3).await;
    }
    assert!(
        gone_by(&accumulator, &behind, asked_at).0.is_empty(),
        "an answer may have been on its way for long"
    );
    let (gone, _) = gone_by(&accumulator, &topic(behind.id, &[NODE; 2]), Instant::now());
    assert_eq!(partitions(&gone), [2], "a server knows the other one by now");
}

/// The metadata may come from a server that lags behind.
#[tokio::test(start_paused = true)]
async fn without_topic_ids_batches_wait_for_missing_partitions() {
    let accumulator = accumulator(|_| {});
    append(&accumulator, &record(2, 190));
    assert!(!accumulator.learn(&topic(TopicId::ZERO, &[NODE; 1]), 1, None), "it waits for a leader");
    assert!(has_no_partition_2(&accumulator));
    assert_eq!(fail_gone(&accumulator, TopicId::ZERO).await, [0; 0]);
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

/// How many records of so many bytes have room at once, each with its share of a batch.
fn records_with_room(accumulator: &Accumulator, bytes: usize) -> usize {
    records_with_room_told(accumulator, bytes, || None::<Callback>)
}

/// The same with a callback or listener for each.
fn records_with_room_told<W: Enlist>(
    accumulator: &Accumulator,
    bytes: usize,
    mut waiter: impl FnMut() -> W,
) -> usize {
    let record = record(0, bytes);
    let reserved_bytes = record.size_bound_bytes();
    let mut count = 0;
    while accumulator.try_reserve(reserved_bytes).unwrap() {
        accumulator.append(&record, TimestampMs(1), reserved_bytes, &mut waiter()).unwrap();
        count += 1;
    }
    count
}

struct Unheard;

impl DeliveryListener for Unheard {
    type Tag = [u64; 8];

    fn completed(&self, _: &CompletedRecords<'_, Self::Tag>) {}
}

#[test]
fn callbacks_and_tags_count_against_the_buffer() {
    let buffer = || {
        accumulator(|options| {
            options.buffer_bytes = 1 << 20;
            options.batch_bytes = 16_384;
        })
    };
    let untold = records_with_room(&buffer(), 0);
    let listener = Arc::new(Unheard);
    let tagged = records_with_room_told(&buffer(), 0, || Tagging { listener: &listener, tag: Some([0; 8]) });
    let called = records_with_room_told(&buffer(), 0, || Some(Callback::new(|_| {})));
    // A tag takes 80 bytes here, a callback 32, and a record 7 of its own.
    assert!(tagged * 80 < 1 << 20 && called * 32 < 1 << 20, "{untold} {tagged} {called}");
    assert!(untold > 4 * called && called > tagged && tagged > 5000, "{untold} {tagged} {called}");
}

#[test]
fn buffer_counts_the_memory_of_batches_besides_records() {
    for (batch_bytes, bytes, least, most) in [
        (0, 10, 1000, 1600),
        // Compared with which a record of that length has only 17 or so.
        (16_384, 10, 50_000, 62_000),
        (16_384, 1000, 900, 1000),
    ] {
        let accumulator = accumulator(|options| {
            options.buffer_bytes = 1 << 20;
            options.batch_bytes = batch_bytes;
        });
        let count = records_with_room(&accumulator, bytes);
        assert!((least..most).contains(&count), "{batch_bytes}, {bytes}: {count}");
        let free_bytes = accumulator.space.free_bytes();
        accumulator.close();
        let mut taken_bytes = 0;
        while !accumulator.is_done() {
            let batches = drain(&accumulator);
            taken_bytes += batches.iter().map(Batch::memory_bytes).sum::<usize>();
            deliver(&accumulator, batches);
        }
        let uneven_bytes = batch_bytes / UNEVEN_PART;
        assert!(free_bytes + taken_bytes + uneven_bytes >= 1 << 20, "{free_bytes}, {taken_bytes}");
        // At most one batch is owed.
        assert!(taken_bytes < (1 << 20) + BATCH_BYTES + batch_bytes, "{taken_bytes}");
        assert_eq!(accumulator.space.free_bytes(), 1 << 20);
    }
}

#[test]
fn no_more_than_so_many_buffers_are_kept_however_small_they_are() {
    let accumulator = accumulator(|_| {});
    for _ in 0..2 * SPARE_BUFFERS_MAX {
        accumulator.keep(Vec::with_capacity(200).into());
    }
    assert_eq!(accumulator.spare().len(), SPARE_BUFFERS_MAX);
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

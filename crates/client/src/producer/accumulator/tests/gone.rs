//! Batches for partitions that a topic does not have any more.

use riverrun_protocol::ErrorCode;

use super::*;
use crate::producer::topics::GONE_GRACE;

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

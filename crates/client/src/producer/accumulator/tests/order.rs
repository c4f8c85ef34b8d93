//! Outcomes of a partition are told in the order of its records, whatever comes back first.

use super::*;

/// A record that is a batch of its own.
const BYTES: usize = 190;

fn told(delivery: &mut Delivery) -> Option<Result<i64, ClientError>> {
    delivery.now_or_never().map(|told| told.map(|placed| placed.offset.0))
}

fn is_told(delivery: &mut Delivery) -> bool {
    told(delivery).is_some()
}

/// So many batches of partition 0 under way, and what tells of their records.
fn under_way(accumulator: &Accumulator, count: usize) -> (Vec<Batch>, Vec<Delivery>) {
    append(accumulator, &record(0, BYTES));
    deliver(accumulator, drain(accumulator));
    let deliveries = (0..count).map(|_| append(accumulator, &record(0, BYTES))).collect();
    let batches: Vec<Batch> = (0..count).flat_map(|_| drain(accumulator)).collect();
    assert_eq!(batches.len(), count);
    (batches, deliveries)
}

fn settle_at(accumulator: &Accumulator, batch: Batch, offset: i64) {
    let place = BatchPlace { base_offset: Some(Offset(offset)), append_time: None };
    accumulator.settle(batch, Ok(place), false);
}

fn refuse(accumulator: &Accumulator, batch: Batch, code: ErrorCode) {
    accumulator.settle_error(batch, ClientError::Server { code, message: None }, Instant::now());
}

#[test]
fn what_is_delivered_before_an_earlier_batch_is_told_after_it() {
    let accumulator = accumulator(|options| options.buffer_bytes = 10_000);
    let (batches, mut deliveries) = under_way(&accumulator, 3);
    let free_before = accumulator.space.free_bytes();
    let mut flush = Box::pin(accumulator.flush());
    let [first, second, third] = batches.try_into().unwrap();
    refuse(&accumulator, first, ErrorCode::REQUEST_TIMED_OUT);
    settle_at(&accumulator, second, 11);
    accumulator.settle(third, Err(ClientError::Closed), false);
    assert!(!deliveries.iter_mut().any(is_told));
    assert!(flush.as_mut().now_or_never().is_none());
    assert_eq!((accumulator.space.free_bytes(), accumulator.metrics().batches_waiting), (free_before, 3));
    let again = drain(&accumulator).remove(0);
    settle_at(&accumulator, again, 10);
    assert!(flush.now_or_never().is_some());
    assert!(matches!(
        [told(&mut deliveries[0]), told(&mut deliveries[1]), told(&mut deliveries[2])],
        [Some(Ok(10)), Some(Ok(11)), Some(Err(ClientError::Closed))]
    ));
    let metrics = accumulator.metrics();
    assert_eq!((metrics.records_delivered, metrics.records_failed, metrics.batches_waiting), (3, 1, 0));
    assert_eq!(accumulator.space.free_bytes(), 10_000);
}

#[test]
fn when_nobody_sends_any_longer_each_has_the_outcome_that_is_known() {
    let accumulator = accumulator(|_| {});
    let (batches, mut deliveries) = under_way(&accumulator, 2);
    deliveries.push(append(&accumulator, &record(0, BYTES)));
    let flush = accumulator.flush();
    let [first, second] = batches.try_into().unwrap();
    settle_at(&accumulator, second, 11);
    drop(first);
    accumulator.end_of_sender();
    assert!(matches!(
        [told(&mut deliveries[0]), told(&mut deliveries[1]), told(&mut deliveries[2])],
        [Some(Err(ClientError::Closed)), Some(Ok(11)), Some(Err(ClientError::Closed))]
    ));
    assert!(flush.now_or_never().is_some());
    let metrics = accumulator.metrics();
    assert_eq!(metrics.batches_waiting, 0);
    assert_eq!((metrics.records_delivered, metrics.records_failed), (2, 1), "but for the one under way");
}

#[test]
fn what_was_tried_for_too_long_is_told_after_what_is_under_way_before_it() {
    let accumulator = accumulator(|_| {});
    let (mut batches, mut deliveries) = under_way(&accumulator, 1);
    deliveries.push(append(&accumulator, &record(0, BYTES)));
    let timeout = accumulator.options.delivery_timeout;
    let (now, mut expired) = (Instant::now(), Vec::new());
    // The first look notes when the next is due.
    for looks in [1, 2] {
        expired.extend(look(&accumulator, true, false, now + timeout * looks).0.expired);
    }
    for batch in expired {
        accumulator.settle(batch, Err(ClientError::Closed), false);
    }
    assert!(!deliveries.iter_mut().any(is_told));
    settle_at(&accumulator, batches.remove(0), 1);
    assert!(deliveries.iter_mut().all(is_told));
}

#[test]
fn what_is_delivered_behind_a_batch_that_is_split_is_told_after_both_parts() {
    let accumulator = accumulator(|_| {});
    append(&accumulator, &record(0, BYTES));
    deliver(&accumulator, drain(&accumulator));
    let mut parts = [append(&accumulator, &record(0, 20)), append(&accumulator, &record(0, 20))];
    let mut behind = append(&accumulator, &record(0, BYTES));
    let (first, second) = (drain(&accumulator).remove(0), drain(&accumulator).remove(0));
    settle_at(&accumulator, second, 12);
    refuse(&accumulator, first, ErrorCode::MESSAGE_TOO_LARGE);
    settle_at(&accumulator, drain(&accumulator).remove(0), 10);
    assert!(matches!(told(&mut parts[0]), Some(Ok(10))));
    assert!(!is_told(&mut parts[1]) && !is_told(&mut behind));
    settle_at(&accumulator, drain(&accumulator).remove(0), 11);
    assert!(is_told(&mut parts[1]) && is_told(&mut behind));
}

#[test]
fn behind_a_batch_that_does_not_come_back_no_more_is_sent_than_may_be_under_way() {
    let accumulator = accumulator(|_| {});
    let (mut batches, _) = under_way(&accumulator, IN_FLIGHT_MAX);
    let first = batches.remove(0);
    deliver(&accumulator, batches);
    append(&accumulator, &record(0, BYTES));
    assert_eq!(partitions(&drain(&accumulator)), [0; 0]);
    deliver(&accumulator, vec![first]);
    assert_eq!(partitions(&drain(&accumulator)), [0]);
}

//! Outcomes of a partition come in the order of its records, whichever batch returns first.

use riverrun_protocol::ErrorCode;

use super::*;

/// A record that is a batch of its own.
const BYTES: usize = 190;

fn told(delivery: &mut Delivery) -> Option<Result<i64, ClientError>> {
    delivery.now_or_never().map(|told| told.map(|placed| placed.offset.0))
}

fn is_told(delivery: &mut Delivery) -> bool {
    told(delivery).is_some()
}

/// So many batches of partition 0 in flight, and the deliveries of their records.
fn under_way(accumulator: &Accumulator, count: usize) -> (Vec<Batch>, Vec<Delivery>) {
    append(accumulator, &record(0, BYTES));
    deliver(accumulator, drain(accumulator));
    let deliveries = (0..count).map(|_| append(accumulator, &record(0, BYTES))).collect();
    let batches: Vec<Batch> = (0..count).flat_map(|_| drain(accumulator)).collect();
    assert_eq!(batches.len(), count);
    (batches, deliveries)
}

fn complete_at(accumulator: &Accumulator, batch: Batch, offset: i64) {
    let place = BatchPlace { base_offset: Some(Offset(offset)), append_time: None };
    accumulator.complete(batch, Ok(place), false);
}

fn refuse(accumulator: &Accumulator, batch: Batch, code: ErrorCode) {
    accumulator.handle_error(batch, ClientError::Server { code, message: None }, Instant::now());
}

#[test]
fn early_delivery_completes_after_earlier_batches() {
    let accumulator = accumulator(|options| options.buffer_bytes = 10_000);
    let (batches, mut deliveries) = under_way(&accumulator, 3);
    let free_before = accumulator.space.free_bytes();
    let mut flush = Box::pin(accumulator.flush());
    let [first, second, third] = batches.try_into().unwrap();
    refuse(&accumulator, first, ErrorCode::REQUEST_TIMED_OUT);
    complete_at(&accumulator, second, 11);
    accumulator.complete(third, Err(ClientError::Closed), false);
    assert!(!deliveries.iter_mut().any(is_told));
    assert!(flush.as_mut().now_or_never().is_none());
    assert_eq!((accumulator.space.free_bytes(), accumulator.metrics().batches_waiting), (free_before, 3));
    let again = drain(&accumulator).remove(0);
    complete_at(&accumulator, again, 10);
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
fn end_of_the_sender_keeps_known_outcomes() {
    let accumulator = accumulator(|_| {});
    let (batches, mut deliveries) = under_way(&accumulator, 2);
    deliveries.push(append(&accumulator, &record(0, BYTES)));
    let flush = accumulator.flush();
    let [first, second] = batches.try_into().unwrap();
    complete_at(&accumulator, second, 11);
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
fn expired_batch_completes_after_earlier_ones_in_flight() {
    let accumulator = accumulator(|_| {});
    let (mut batches, mut deliveries) = under_way(&accumulator, 1);
    deliveries.push(append(&accumulator, &record(0, BYTES)));
    let timeout = accumulator.options.delivery_timeout;
    let (now, mut expired) = (Instant::now(), Vec::new());
    // The first drain sets the time of the next.
    for looks in [1, 2] {
        expired.extend(look(&accumulator, true, false, now + timeout * looks).0.expired);
    }
    for batch in expired {
        accumulator.complete(batch, Err(ClientError::Closed), false);
    }
    assert!(!deliveries.iter_mut().any(is_told));
    complete_at(&accumulator, batches.remove(0), 1);
    assert!(deliveries.iter_mut().all(is_told));
}

#[test]
fn batch_behind_a_split_one_completes_after_both_parts() {
    let accumulator = accumulator(|_| {});
    append(&accumulator, &record(0, BYTES));
    deliver(&accumulator, drain(&accumulator));
    let mut parts = [append(&accumulator, &record(0, 20)), append(&accumulator, &record(0, 20))];
    let mut behind = append(&accumulator, &record(0, BYTES));
    let (first, second) = (drain(&accumulator).remove(0), drain(&accumulator).remove(0));
    complete_at(&accumulator, second, 12);
    refuse(&accumulator, first, ErrorCode::MESSAGE_TOO_LARGE);
    complete_at(&accumulator, drain(&accumulator).remove(0), 10);
    assert!(matches!(told(&mut parts[0]), Some(Ok(10))));
    assert!(!is_told(&mut parts[1]) && !is_told(&mut behind));
    complete_at(&accumulator, drain(&accumulator).remove(0), 11);
    assert!(is_told(&mut parts[1]) && is_told(&mut behind));
}

#[test]
fn unanswered_batch_limits_the_batches_sent_behind_it() {
    let accumulator = accumulator(|_| {});
    let (mut batches, _) = under_way(&accumulator, IN_FLIGHT_MAX);
    let first = batches.remove(0);
    deliver(&accumulator, batches);
    append(&accumulator, &record(0, BYTES));
    assert_eq!(partitions(&drain(&accumulator)), [0; 0]);
    deliver(&accumulator, vec![first]);
    assert_eq!(partitions(&drain(&accumulator)), [0]);
}

//! The order of batches, and the conditions for sending them.

use riverrun_protocol::ErrorCode;
use riverrun_records::Compression;
use riverrun_types::TimestampMs;

use super::*;
use crate::error::ClientError;
use crate::producer::batch::{BatchShape, QueueKey};
use crate::producer::delivery::Outcome;
use crate::producer::record::RecordRef;

const PRODUCER: Option<(ProducerId, ProducerEpoch)> = Some((ProducerId(7), ProducerEpoch(0)));
const LINGER: Duration = Duration::from_secs(1);

fn batch(id: u64, records: usize) -> Batch {
    let shape = BatchShape { compression: Compression::None, level: None, full_bytes: 1000 };
    let mut batch =
        Batch::new(id, QueueKey { topic: 0, partition: 0 }, Outcome::new("t".into(), 0), shape, Vec::new());
    for _ in 0..records {
        batch.append(&RecordRef::new("t", b"v"), TimestampMs(1), 1, &mut None).unwrap();
    }
    batch
}

fn queue(batches: u64) -> PartitionQueue {
    let mut queue = PartitionQueue::default();
    (0..batches).for_each(|id| queue.push(batch(id, 1)));
    queue
}

fn rules(now: Instant) -> SendRules {
    SendRules { now, linger: LINGER, hurry_below: 0, fresh_allowed: true, in_flight_max: IN_FLIGHT_MAX }
}

/// A queue whose first batch the server has accepted.
fn confirmed(batches: u64) -> PartitionQueue {
    let mut queue = queue(batches);
    let first = queue.take(PRODUCER).unwrap();
    queue.came_back(first.id);
    queue.confirm();
    queue
}

/// The batch as it comes back from a server whose sequence it does not fit.
fn out_of_order(mut batch: Batch) -> Batch {
    let code = ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER;
    batch.last_error = Some(ClientError::Server { code, message: None });
    batch
}

fn sequence(batch: &Batch) -> i32 {
    batch.stamp.unwrap().base_sequence
}

#[test]
fn a_batch_lingers_unless_something_hurries_it() {
    let mut queue = queue(1);
    let now = Instant::now();
    assert!(matches!(queue.readiness(&rules(now)), Readiness::At(at) if at <= now + LINGER));
    assert_eq!(queue.readiness(&rules(now + LINGER)), Readiness::Now);
    assert_eq!(queue.readiness(&SendRules { hurry_below: 1, ..rules(now) }), Readiness::Now);
    queue.push(batch(1, 1));
    assert_eq!(queue.readiness(&rules(now)), Readiness::Now, "the next batch has begun");
    assert_eq!(PartitionQueue::default().readiness(&rules(now)), Readiness::Empty);
}

#[test]
fn the_first_batch_goes_alone_and_then_five_at_once() {
    let mut queue = queue(9);
    let rules = rules(Instant::now() + LINGER);
    let first = queue.take(PRODUCER).unwrap();
    assert_eq!(queue.readiness(&rules), Readiness::Blocked);
    queue.came_back(first.id);
    queue.confirm();
    for _ in 0..IN_FLIGHT_MAX {
        assert_eq!(queue.readiness(&rules), Readiness::Now);
        queue.take(PRODUCER).unwrap();
    }
    assert_eq!(queue.readiness(&rules), Readiness::Blocked);
}

#[test]
fn new_leader_waits_for_the_old_with_one_request_in_flight() {
    let mut queue = confirmed(3);
    let rules = SendRules { in_flight_max: 1, ..rules(Instant::now() + LINGER) };
    let second = queue.take(None).unwrap();
    assert_eq!(queue.readiness(&rules), Readiness::Blocked);
    queue.came_back(second.id);
    assert_eq!(queue.readiness(&rules), Readiness::Now);
}

#[test]
fn sequence_numbers_follow_the_records() {
    let mut queue = PartitionQueue::default();
    for (id, records) in [(0, 3), (1, 1), (2, 5)] {
        queue.push(batch(id, records));
    }
    let taken: Vec<i32> = (0..3).map(|_| sequence(&queue.take(PRODUCER).unwrap())).collect();
    assert_eq!(taken, [0, 3, 4]);
}

#[test]
fn retry_goes_alone_and_first_with_its_old_sequence() {
    let mut queue = confirmed(4);
    let (second, third) = (queue.take(PRODUCER).unwrap(), queue.take(PRODUCER).unwrap());
    let now = Instant::now() + LINGER;
    let old = sequence(&second);
    // The later one comes back first, as answers of two servers may.
    for batch in [third, second] {
        assert_eq!(queue.is_next(batch.id), batch.id == 1);
        queue.came_back(batch.id);
        queue.put_back(batch, now + LINGER);
    }
    assert_eq!(queue.readiness(&rules(now)), Readiness::At(now + LINGER));
    let rules = rules(now + LINGER);
    assert_eq!(queue.readiness(&rules), Readiness::Now);
    let again = queue.take(PRODUCER).unwrap();
    assert_eq!((again.id, sequence(&again), again.attempts), (1, old, 2));
    assert_eq!(queue.readiness(&rules), Readiness::Blocked, "the third waits for the second");
    queue.came_back(again.id);
    assert_eq!(queue.readiness(&rules), Readiness::Now);
}

#[test]
fn broken_chain_restarts_at_zero_under_a_new_id() {
    let mut queue = confirmed(3);
    let second = queue.take(PRODUCER).unwrap();
    let rules = rules(Instant::now() + LINGER);
    assert!(!queue.allows_new_id(), "a batch is under way");
    queue.came_back(second.id);
    queue.put_back(out_of_order(second), rules.now);
    assert!(!queue.allows_new_id(), "it is sent again as it is");
    queue.break_chain();
    assert!(!queue.is_next(1), "the fault lies before it");
    assert!(queue.allows_new_id());
    assert_eq!(queue.readiness(&rules), Readiness::Blocked);
    queue.restart();
    let again = queue.take(Some((ProducerId(8), ProducerEpoch(0)))).unwrap();
    assert_eq!((again.id, sequence(&again)), (1, 0));
    assert_eq!(again.stamp.unwrap().id, ProducerId(8));
    assert_eq!(queue.readiness(&rules), Readiness::Blocked, "the first under a new id goes alone");
}

#[test]
fn doubtful_batches_are_retried_before_a_new_producer_id() {
    let mut queue = confirmed(4);
    let (second, third) = (queue.take(PRODUCER).unwrap(), queue.take(PRODUCER).unwrap());
    let rules = rules(Instant::now() + LINGER);
    for batch in [second, third] {
        queue.came_back(batch.id);
        queue.put_back(batch, rules.now);
    }
    // The answers to both were lost, and the second has expired.
    drop(queue.take_expired(rules.now, Duration::ZERO).unwrap());
    queue.break_chain();
    assert!(!queue.allows_new_id(), "under a new id the third would be there twice");
    assert_eq!(queue.readiness(&rules), Readiness::Now);
    let third = queue.take(PRODUCER).unwrap();
    assert_eq!((third.id, sequence(&third), third.attempts), (2, 2, 2));
    queue.came_back(third.id);
    queue.put_back(out_of_order(third), rules.now);
    assert!(queue.allows_new_id(), "it is not there, and can be sent under a new id");
    assert_eq!(queue.readiness(&rules), Readiness::Blocked);
}

#[test]
fn broken_chain_restarts_at_zero_in_the_next_epoch() {
    let epoch = ProducerEpoch(i16::MAX - 1);
    let producer = Some((ProducerId(7), epoch));
    let mut queue = confirmed(3);
    let mut batch = queue.take(producer).unwrap();
    queue.break_chain();
    assert!(queue.mend(epoch) && queue.broken, "a batch is under way");
    for goes_on in [true, false] {
        queue.came_back(batch.id);
        queue.put_back(out_of_order(batch), Instant::now());
        queue.break_chain();
        assert_eq!(queue.mend(epoch), goes_on);
        batch = queue.take(producer).unwrap();
        assert_eq!((sequence(&batch), batch.stamp.unwrap().epoch), (0, ProducerEpoch(i16::MAX)));
    }
    queue.came_back(batch.id);
    queue.put_back(batch, Instant::now());
    queue.restart();
    let again = queue.take(PRODUCER).unwrap();
    assert_eq!(again.stamp.unwrap().epoch, ProducerEpoch(0), "a new id has its own epochs");
}

#[test]
fn while_there_is_no_producer_id_only_old_batches_go() {
    let mut queue = confirmed(3);
    let rules = SendRules { fresh_allowed: false, ..rules(Instant::now() + LINGER) };
    assert_eq!(queue.readiness(&rules), Readiness::Blocked);
    let second = queue.take(PRODUCER).unwrap();
    queue.came_back(second.id);
    queue.put_back(second, rules.now);
    assert_eq!(queue.readiness(&rules), Readiness::Now);
}

#[test]
fn only_batches_past_the_delivery_timeout_expire() {
    let before = Instant::now();
    let mut queue = queue(1);
    let after = Instant::now();
    assert!(queue.take_expired(before + LINGER - Duration::from_millis(1), LINGER).is_none());
    assert!(queue.take_expired(after + LINGER, LINGER).is_some());
    assert!(queue.is_empty());
}

//! The consequence of an error for the batch that it answers.
//!
//! Pure. Together with the queue's rules, this keeps the records of a partition in order and free of duplicates.

use riverrun_protocol::ErrorCode;
use riverrun_types::ErrorKind;

use super::batch::Batch;
use crate::error::ClientError;

/// The consequence for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The server has it, without reporting where.
    Delivered,
    /// Its halves take its place.
    Split,
    /// It is sent again. `broken`: its sequence has to begin again before.
    Again { broken: bool },
    /// It has failed. `broken`: its sequence numbers stay unused, or it is unknown which batch used them, so later
    /// ones would not fit.
    Failed { broken: bool },
}

/// The verdict on a batch that came back with this error. `next`: the server expects its sequence numbers, as far as
/// is known.
pub(super) fn of_error(batch: &Batch, error: &ClientError, next: bool, retries: u32) -> Verdict {
    let (again, broken) = match error.code() {
        // The server has the batch already, and no longer remembers its offset.
        Some(ErrorCode::DUPLICATE_SEQUENCE_NUMBER) => return Verdict::Delivered,
        // A smaller one may fit; a record that is too large alone is refused when it is alone.
        Some(ErrorCode::MESSAGE_TOO_LARGE) if batch.record_count() > 1 => return Verdict::Split,
        // Behind a failed batch, all others are out of order; they are sent again after it.
        Some(
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
            | ErrorCode::UNKNOWN_PRODUCER_ID
            | ErrorCode::INVALID_PRODUCER_EPOCH,
        ) if !next => (true, false),
        // The server has forgotten the producer, or its last batches, and so does not have this one: it remembers as
        // many as may be in flight. The sequence begins again in the next epoch, as with Kafka's producer.
        Some(
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
            | ErrorCode::UNKNOWN_PRODUCER_ID
            | ErrorCode::INVALID_PRODUCER_EPOCH,
        ) if batch.stamp.is_some() => (true, true),
        _ => (error.kind() == ErrorKind::Retry, false),
    };
    if again && batch.attempts <= retries {
        Verdict::Again { broken }
    } else {
        Verdict::Failed { broken: batch.stamp.is_some() }
    }
}

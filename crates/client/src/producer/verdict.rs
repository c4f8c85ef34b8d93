//! What an error means for the batch that it is the answer to.
//!
//! Pure. With the queue's rules this is what keeps the records of a partition in order and once there.

use riverrun_protocol::ErrorCode;
use riverrun_types::ErrorKind;

use super::batch::Batch;
use crate::error::ClientError;

/// What becomes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The server has it, and does not say where.
    Delivered,
    /// Its halves take its place.
    Split,
    /// It is sent again. `broken`: its sequence has to begin again before.
    Again { broken: bool },
    /// It has failed. `broken`: its sequence numbers stay unused, or used by nobody knows what, so later ones would not
    /// fit.
    Failed { broken: bool },
}

/// What becomes of a batch that came back with this error. `next`: the server expects its sequence numbers, as far as is
/// known.
pub(super) fn of_error(batch: &Batch, error: &ClientError, next: bool, retries: u32) -> Verdict {
    let (again, broken) = match error.code() {
        // The server has the batch already, and no longer remembers where.
        Some(ErrorCode::DUPLICATE_SEQUENCE_NUMBER) => return Verdict::Delivered,
        // A smaller one may fit; a record that is too large alone is refused when it is alone.
        Some(ErrorCode::MESSAGE_TOO_LARGE) if batch.record_count() > 1 => return Verdict::Split,
        // Behind a batch that failed, all others must come out of order; they are sent again after it.
        Some(
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
            | ErrorCode::UNKNOWN_PRODUCER_ID
            | ErrorCode::INVALID_PRODUCER_EPOCH,
        ) if !next => (true, false),
        // The server has forgotten the producer, or what it had of it last, and so has not got the batch: it remembers as
        // many of a producer as may be under way. It begins again in the next epoch, as with Kafka's producer.
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

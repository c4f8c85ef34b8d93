//! Owns how errors of the log and of the metadata become Kafka's error codes.
//!
//! Errors of a mounted queue become codes in `mounts`, and the coordinator answers with codes of its own.

use riverrun_log::producer_state::SequenceError;
use riverrun_log::{AppendError, LogError, ReadError};
use riverrun_protocol::ErrorCode;
use riverrun_records::{BatchError, CorruptCause, RefusedRecord};

use crate::log_limit::METADATA_TROUBLE;
use crate::metadata::{MetadataError, TopicError};

pub(crate) fn append_error(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::Batch(error) => batch_error(error),
        AppendError::Records(refused) => batch_error(&refused.error()),
        AppendError::TooLarge { .. } => ErrorCode::MESSAGE_TOO_LARGE,
        AppendError::LargerThanSegment { .. } | AppendError::LargerThanJournal { .. } => {
            ErrorCode::RECORD_LIST_TOO_LARGE
        }
        AppendError::Sequence(error) => sequence_error(error),
        AppendError::Storage(error) => log_error(error),
    }
}

/// The code for a coordinator's records that could not be appended, in the words that its clients know: look for the
/// coordinator again, or give up.
pub(crate) fn coordinator_append_error(error: &AppendError) -> ErrorCode {
    match append_error(error) {
        ErrorCode::KAFKA_STORAGE_ERROR
        | ErrorCode::NOT_LEADER_OR_FOLLOWER
        | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => ErrorCode::NOT_COORDINATOR,
        _ => ErrorCode::UNKNOWN_SERVER_ERROR,
    }
}

fn batch_error(error: &BatchError) -> ErrorCode {
    match error {
        // A batch that is cut is the sender's doing, and stays so when it is sent again; so is a format from before there
        // were batches, and a stream that does not inflate under a right checksum.
        BatchError::Corrupt(CorruptCause::Cut | CorruptCause::Stream(_))
        | BatchError::Invalid(_)
        | BatchError::UnsupportedMagic(0 | 1) => ErrorCode::INVALID_RECORD,
        // An undefined format may be a defined one that was garbled on its way.
        BatchError::Corrupt(_) | BatchError::UnsupportedMagic(_) => ErrorCode::CORRUPT_MESSAGE,
        BatchError::TooLarge { .. } => ErrorCode::MESSAGE_TOO_LARGE,
        BatchError::UnsupportedCompression(_) => ErrorCode::UNSUPPORTED_COMPRESSION_TYPE,
        BatchError::InvalidTimestamp { .. } => ErrorCode::INVALID_TIMESTAMP,
        BatchError::UnsupportedLevel { .. } | BatchError::CompressFailed(_) => {
            ErrorCode::UNKNOWN_SERVER_ERROR
        }
    }
}

/// A record of a batch, counted from 0, that is to blame for the refusal of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlamedRecord {
    pub(crate) index: i32,
    pub(crate) reason: String,
}

/// The records for which an append was refused; none where the batch as a whole is at fault. A client's other records
/// fail because of them, and it can say so.
pub(crate) fn blamed_records(error: &AppendError) -> Vec<BlamedRecord> {
    let AppendError::Records(refused) = error else { return Vec::new() };
    let blamed =
        |record: &RefusedRecord| BlamedRecord { index: record.index, reason: record.error.to_string() };
    refused.named().iter().map(blamed).collect()
}

pub(crate) fn read_error(error: &ReadError) -> ErrorCode {
    match error {
        ReadError::OutOfRange { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
        ReadError::Storage(error) => log_error(error),
        // A fetch reads it in a later pass by itself.
        ReadError::FarFromIndex => ErrorCode::UNKNOWN_SERVER_ERROR,
    }
}

/// Whether work on a log failed for a reason that its owner should know: that its topic was deleted meanwhile, or that
/// the server stops, is none.
pub(crate) fn is_log_trouble(error: &LogError) -> bool {
    is_our_trouble(log_error(error))
}

pub(crate) fn log_error(error: &LogError) -> ErrorCode {
    match error {
        LogError::Deleted(_) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        // A server that stops is a leader that moves, and a log is cut for another leader: clients look for the next.
        LogError::Closed | LogError::OutOfTime | LogError::NotRecovered | LogError::BeingCut(_) => {
            ErrorCode::NOT_LEADER_OR_FOLLOWER
        }
        // Asking again does not help.
        LogError::Unprocessed { .. } => ErrorCode::UNKNOWN_SERVER_ERROR,
        LogError::DirFull { .. }
        | LogError::DirHangs { .. }
        | LogError::Lost(_)
        | LogError::Journal(_)
        | LogError::JournalFailed(_)
        | LogError::NoJournal { .. }
        | LogError::LevelWaits(_)
        | LogError::Aside(_)
        | LogError::NotSettled { .. }
        | LogError::Io { .. }
        | LogError::Write { .. }
        | LogError::Corrupt { .. }
        | LogError::Unreadable { .. }
        | LogError::Vanished { .. }
        | LogError::BeingReshaped(_)
        | LogError::CutTooFar { .. }
        | LogError::CutWaits(_)
        | LogError::Format { .. }
        | LogError::Locked { .. }
        | LogError::DirFailed { .. } => ErrorCode::KAFKA_STORAGE_ERROR,
    }
}

fn sequence_error(error: &SequenceError) -> ErrorCode {
    match error {
        SequenceError::OutOfOrder { .. } => ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
        SequenceError::InvalidEpoch { .. } => ErrorCode::INVALID_PRODUCER_EPOCH,
    }
}

pub(crate) fn topic_error(error: &TopicError) -> ErrorCode {
    match error {
        TopicError::InvalidName(_) | TopicError::Reserved | TopicError::Collides { .. } => {
            ErrorCode::INVALID_TOPIC_EXCEPTION
        }
        TopicError::Exists(_) | TopicError::MountedTwice { .. } => ErrorCode::TOPIC_ALREADY_EXISTS,
        TopicError::Unknown => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        TopicError::InvalidPartitions(_) => ErrorCode::INVALID_PARTITIONS,
        TopicError::TooManyPartitions(_) | TopicError::Mounted(_) => ErrorCode::POLICY_VIOLATION,
        // Kafka's words for a server without a place for a replica (KIP-1066).
        TopicError::NoLogDir => ErrorCode::INVALID_REPLICATION_FACTOR,
    }
}

/// The code for metadata that could not be changed; logged here, because it is always the server's own trouble. Errors of
/// the disk are logged within a limit: while they last every request meets them.
pub(crate) fn metadata_error(error: &MetadataError) -> ErrorCode {
    let code = match error {
        MetadataError::Stopping => ErrorCode::NOT_CONTROLLER,
        MetadataError::TooLarge => ErrorCode::POLICY_VIOLATION,
        _ => ErrorCode::KAFKA_STORAGE_ERROR,
    };
    if code == ErrorCode::KAFKA_STORAGE_ERROR {
        METADATA_TROUBLE.warn(|suppressed| tracing::error!(%error, suppressed, "metadata cannot be changed"));
    } else {
        tracing::error!(%error, "metadata cannot be changed");
    }
    code
}

/// Whether the server's own log should have the error as well: the client is told in any case, but the disk is ours.
pub(crate) fn is_our_trouble(code: ErrorCode) -> bool {
    code == ErrorCode::KAFKA_STORAGE_ERROR || code == ErrorCode::UNKNOWN_SERVER_ERROR
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use riverrun_types::{PartitionId, TopicId};

    use super::*;
    use crate::testing::log_lines;

    /// The log lines of a hundred requests that fail with this error, each of which must be answered with `told`.
    fn lines_of(error: &MetadataError, told: ErrorCode) -> usize {
        log_lines(|| {
            for _ in 0..100 {
                assert_eq!(metadata_error(error), told);
            }
        })
    }

    #[test]
    fn metadata_that_has_failed_is_not_told_of_with_each_request() {
        let failed = MetadataError::Poisoned("a sync failed".to_owned());
        // Lines of other tests use up the limit for a moment.
        let mut tries = (0..1000).map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            lines_of(&failed, ErrorCode::KAFKA_STORAGE_ERROR)
        });
        let first = tries.find(|lines| *lines > 0);
        assert!(first.is_some_and(|lines| lines < 10), "{first:?}");
        assert_eq!(lines_of(&MetadataError::TooLarge, ErrorCode::POLICY_VIOLATION), 100);
    }

    #[test]
    fn a_topic_that_went_while_its_log_was_worked_on_is_no_trouble() {
        let id = PartitionId { topic: TopicId([1; 16]), index: 0 };
        assert!(!is_log_trouble(&LogError::Deleted(id)));
        assert!(!is_log_trouble(&LogError::Closed));
        assert!(is_log_trouble(&LogError::NotSettled { path: PathBuf::from("journal") }));
    }
}

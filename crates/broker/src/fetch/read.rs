//! Reading what one fetch may take: partition by partition, within its byte limits.

use std::sync::Arc;

use riverrun_log::{Chunk, ReadError, ReadSlice};
use riverrun_protocol::ErrorCode;
use riverrun_types::{LeaderEpoch, Offset};

use super::catch_up::{CatchUp, FileRead};
use super::readers::ReaderId;
use super::session::{TopicRef, Wanted};
use crate::broker::{Broker, TopicKey};
use crate::context::{Operation, RequestContext, Resource};
use crate::error;
use crate::log_limit::STORAGE_TROUBLE;
use crate::metadata::Image;
use crate::net::response::Part;
use crate::partitions::{Partition, Waiter};

/// What a fetch may take in all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes in all. The first batch found is returned whole even if it is larger, so that a consumer with small
    /// limits moves on.
    pub(crate) bytes_max: usize,
}

/// What one partition answers.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) error: ErrorCode,
    pub(crate) high_watermark: Offset,
    pub(crate) log_start: Offset,
    /// Where the client's log and ours part (KIP-595), if it asked and they do.
    pub(crate) diverging: Option<(LeaderEpoch, Offset)>,
    pub(crate) parts: Vec<Part>,
    pub(crate) bytes: usize,
    /// Whether the limits, and not the high watermark, ended the read.
    pub(crate) more: bool,
}

impl Answer {
    fn error(error: ErrorCode) -> Self {
        let unknown = Offset(-1);
        Self {
            error,
            high_watermark: unknown,
            log_start: unknown,
            diverging: None,
            parts: Vec::new(),
            bytes: 0,
            more: false,
        }
    }
}

/// A partition's turn in a pass.
#[derive(Clone, Copy)]
struct Turn<'a> {
    catch_up: &'a Arc<CatchUp>,
    connection: u64,
    bytes_left: usize,
    /// Whether nothing was found before.
    first: bool,
}

/// One pass over all that is wanted.
#[derive(Debug)]
pub(crate) struct Pass {
    /// One for each wanted partition, in order.
    pub(crate) answers: Vec<Answer>,
    pub(crate) bytes: usize,
    /// Whether something is to be said at once: an error, or records of a partition that has more than the limits
    /// let through, so that waiting brings nothing.
    pub(crate) urgent: bool,
}

/// Reads everything once. If `waiter` is given, it is enrolled at each partition *before* that is read, so that
/// no advance is missed.
pub(crate) fn read_all(
    broker: &Arc<Broker>,
    context: &RequestContext,
    wanted: &[Wanted],
    limits: Limits,
    waiter: Option<&Arc<Waiter>>,
) -> Pass {
    let image = broker.metadata.image();
    let mut pass = Pass { answers: Vec::with_capacity(wanted.len()), bytes: 0, urgent: false };
    for wanted in wanted {
        let answer = match resolve(broker, context, &image, wanted) {
            Ok(partition) => {
                if let Some(waiter) = waiter {
                    partition.enroll(waiter);
                }
                let turn = Turn {
                    catch_up: &broker.catch_up,
                    connection: context.connection.id,
                    bytes_left: limits.bytes_max.saturating_sub(pass.bytes),
                    first: pass.bytes == 0,
                };
                read_one(&partition, wanted, turn)
            }
            Err(code) => Answer::error(code),
        };
        pass.bytes += answer.bytes;
        pass.urgent |= answer.error != ErrorCode::NONE || answer.diverging.is_some();
        pass.urgent |= answer.bytes > 0 && answer.more;
        pass.answers.push(answer);
    }
    pass
}

fn resolve(
    broker: &Arc<Broker>,
    context: &RequestContext,
    image: &Image,
    wanted: &Wanted,
) -> Result<Arc<Partition>, ErrorCode> {
    let key = match &wanted.partition.topic {
        TopicRef::Name(name) => TopicKey::Name(name),
        TopicRef::Id(id) => TopicKey::Id(*id),
    };
    let topic = key.find(image)?;
    if !context.authorize(Operation::Read, Resource::Topic(&topic.name)) {
        return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    }
    broker.check_epoch(wanted.current_leader_epoch)?;
    broker.partition(topic, wanted.partition.index)
}

fn read_one(partition: &Partition, wanted: &Wanted, turn: Turn<'_>) -> Answer {
    let high_watermark = partition.high_watermark();
    match try_read(partition, wanted, high_watermark, turn) {
        Ok(answer) => answer,
        Err(error) => {
            let code = error::read_error(&error);
            if error::is_our_trouble(code) {
                STORAGE_TROUBLE.warn(|suppressed| {
                    tracing::error!(partition = %partition.id, suppressed, %error, "read failed");
                });
            }
            // A client that is out of range learns the range with the error.
            let log_start =
                Offset(if let ReadError::OutOfRange { log_start, .. } = error { log_start.0 } else { -1 });
            Answer { high_watermark, log_start, ..Answer::error(code) }
        }
    }
}

fn try_read(
    partition: &Partition,
    wanted: &Wanted,
    high_watermark: Offset,
    turn: Turn<'_>,
) -> Result<Answer, ReadError> {
    if let Some(diverging) = diverging(partition, wanted)? {
        let log_start = partition.log.log_start_offset()?;
        return Ok(Answer {
            high_watermark,
            log_start,
            diverging: Some(diverging),
            ..Answer::error(ErrorCode::NONE)
        });
    }
    let bytes_max = usize::try_from(wanted.max_bytes).unwrap_or_default().min(turn.bytes_left);
    let slice = partition.log.read(wanted.fetch_offset, bytes_max, high_watermark, turn.first)?;
    let more = slice.next_offset < high_watermark;
    Ok(Answer {
        error: ErrorCode::NONE,
        high_watermark,
        log_start: slice.log_start,
        diverging: None,
        bytes: slice.len,
        more,
        parts: parts(slice, turn, partition, wanted),
    })
}

fn diverging(partition: &Partition, wanted: &Wanted) -> Result<Option<(LeaderEpoch, Offset)>, ReadError> {
    if wanted.last_fetched_epoch.0 < 0 {
        return Ok(None);
    }
    let (epoch, end) = partition.log.epoch_end_offset(wanted.last_fetched_epoch)?;
    Ok((epoch < wanted.last_fetched_epoch || end < wanted.fetch_offset).then_some((epoch, end)))
}

fn parts(slice: ReadSlice, turn: Turn<'_>, partition: &Partition, wanted: &Wanted) -> Vec<Part> {
    let id = ReaderId { partition: partition.id, connection: turn.connection };
    let offsets = wanted.fetch_offset..slice.next_offset;
    // What is partly in memory reaches up to the end of the log.
    let is_whole = slice.chunks.len() == 1;
    let part = |chunk| match chunk {
        Chunk::File { file, position, len } => {
            let read =
                FileRead { file: &file, position, len, offsets: offsets.clone(), log_end: slice.log_end };
            let far = if is_whole { turn.catch_up.follow(id, read) } else { None };
            Part::File { file, position, len, far }
        }
        Chunk::Memory(bytes) => Part::Bytes(bytes),
    };
    slice.chunks.into_iter().map(part).collect()
}

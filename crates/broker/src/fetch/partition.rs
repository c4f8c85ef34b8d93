//! Reading one partition of a fetch: finds its replica, and reads as many of its records as there is room for.
//!
//! Owns the way from a wanted partition to its answer. Reads that may have to wait for the disk go by the plan of the pass
//! ([`crate::catch_up::plan`]), which is told how each read has ended.

use std::sync::Arc;

use riverrun_log::{Chunk, ReadError, ReadSlice};
use riverrun_protocol::ErrorCode;
use riverrun_types::{LeaderEpoch, Offset, PartitionId};

use crate::broker::{Broker, TopicKey};
use crate::catch_up::FileRead;
use crate::catch_up::plan::{COPIED_BYTES_MAX, PassPlan, ReadEnd, Step, TurnOf};
use crate::catch_up::readers::ReaderId;
use crate::context::{Operation, RequestContext, Resource};
use crate::error;
use crate::fetch_sessions::{TopicRef, Wanted};
use crate::flow::source::Source;
use crate::held_files::HeldFile;
use crate::log_limit::STORAGE_TROUBLE;
use crate::metadata::ClusterImage;
use crate::mounts::{MountedQueue, Refused};
use crate::partitions::{Partition, Waiter};
use crate::replicas::{KnownRange, Replica, known_range};
use crate::response::Part;

/// The answer for one partition.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) error: ErrorCode,
    pub(crate) high_watermark: Offset,
    pub(crate) log_start: Offset,
    /// The end of the last epoch that both logs have, if the client's log and ours part (KIP-595), and it asked.
    pub(crate) diverging: Option<(LeaderEpoch, Offset)>,
    /// The partition's leader epoch, if it is known, for a client that believes in another one.
    pub(crate) leader_epoch: LeaderEpoch,
    pub(crate) parts: Vec<Part>,
    pub(crate) bytes: usize,
    /// Whether the limits, and not the high watermark, ended the read.
    pub(crate) more: bool,
}

impl Answer {
    pub(super) fn error(error: ErrorCode) -> Self {
        let unknown = Offset(-1);
        Self {
            error,
            high_watermark: unknown,
            log_start: unknown,
            diverging: None,
            leader_epoch: LeaderEpoch::UNKNOWN,
            parts: Vec::new(),
            bytes: 0,
            more: false,
        }
    }

    /// An answer without records. High watermark and log start are those that are known without a look at the files, else
    /// those that the client was told last.
    fn postponed(known: Option<KnownRange>, wanted: &Wanted) -> Self {
        let unknown = Self::error(ErrorCode::NONE);
        let told = wanted.told.unwrap_or((unknown.high_watermark, unknown.log_start));
        let (high_watermark, log_start) = known.unwrap_or((None, None));
        Self {
            high_watermark: high_watermark.unwrap_or(told.0),
            log_start: log_start.unwrap_or(told.1),
            ..unknown
        }
    }
}

/// The room that a pass has left.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) bytes: usize,
    pub(super) memory_bytes: usize,
    /// Whether the pass has found nothing yet: one batch fits, however large.
    pub(super) is_empty: bool,
}

/// The read of one wanted partition in a pass.
pub(super) struct PartitionRead<'a> {
    pub(super) broker: &'a Arc<Broker>,
    pub(super) context: &'a RequestContext,
    pub(super) image: &'a ClusterImage,
    pub(super) wanted: &'a Wanted,
    pub(super) waiter: Option<&'a Arc<Waiter>>,
    pub(super) room: Room,
    pub(super) pass: &'a PassPlan,
    pub(super) turn: TurnOf,
}

/// The outcome of such a read.
pub(super) struct Finished {
    pub(super) answer: Answer,
    pub(super) end: ReadEnd,
    /// Whether the log was open already.
    pub(super) was_open: bool,
}

/// A partition, and the index of the log dir that holds it.
struct Placed {
    partition: Arc<Partition>,
    log_dir: usize,
}

/// The replica of a partition, and whether this pass reads it.
enum Resolved {
    Read {
        replica: Replica,
        /// The log dir of its files, if it has files; else 0.
        log_dir: usize,
        is_open: bool,
    },
    /// Left to a later pass. Without a replica it is not open, and its range is unknown.
    Postponed(Option<Replica>),
    /// Left out because its log dir hangs.
    LeftOut(Option<Replica>),
}

impl PartitionRead<'_> {
    /// Reads the partition, or postpones it as the plan of the pass says.
    pub(super) fn read(&self) -> Finished {
        let mut leader_epoch = LeaderEpoch::UNKNOWN;
        let mut was_open = true;
        let (answer, end) = match self.resolve(&mut leader_epoch) {
            Ok(Resolved::Read { replica, log_dir, is_open }) => {
                was_open = is_open;
                if let Some(waiter) = self.waiter {
                    replica.enroll(waiter);
                }
                match replica {
                    Replica::Local(partition) => self.read_log(&Placed { partition, log_dir }),
                    Replica::Queue(queue) => (self.read_mounted(&queue), ReadEnd::WARM),
                }
            }
            // A pass that postpones a partition is answered at once: no waiter is needed.
            Ok(Resolved::Postponed(replica)) => (self.unread(replica.as_ref()), ReadEnd::Postponed),
            // The fetch waits for its other partitions only.
            Ok(Resolved::LeftOut(replica)) => (self.unread(replica.as_ref()), ReadEnd::LeftOut),
            Err(code) => (Answer::error(code), ReadEnd::WARM),
        };
        Finished { answer: Answer { leader_epoch, ..answer }, end, was_open }
    }

    fn unread(&self, replica: Option<&Replica>) -> Answer {
        Answer::postponed(replica.map(Replica::known_range), self.wanted)
    }

    /// Finds the replica, and the partition's epoch as soon as the topic is known. A postponed partition is not opened.
    fn resolve(&self, leader_epoch: &mut LeaderEpoch) -> Result<Resolved, ErrorCode> {
        let (broker, wanted) = (self.broker, self.wanted);
        let topic = topic_key(wanted).find(self.image)?;
        if !self.context.authorize(Operation::Read, Resource::Topic(&topic.name)) {
            return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
        }
        let index = wanted.partition.index;
        *leader_epoch = broker.leader_epoch(topic, index);
        broker.check_epoch(topic, index, wanted.current_leader_epoch)?;
        let in_use = broker.replicas.in_use(topic, index)?;
        let may_meet_disk = in_use.as_ref().is_none_or(Replica::takes_turns);
        match self.pass.step(self.turn, may_meet_disk) {
            Step::Read => {}
            Step::Postpone => return Ok(Resolved::Postponed(in_use)),
            Step::LeaveOut => return Ok(Resolved::LeftOut(in_use)),
        }
        let is_open = in_use.as_ref().is_some_and(Replica::is_open);
        let replica = in_use.map_or_else(|| broker.replicas.find(topic, index), Ok)?;
        let log_dir = broker.replicas.log_dir(PartitionId { topic: topic.id, index });
        Ok(Resolved::Read { replica, log_dir: log_dir.unwrap_or_default(), is_open })
    }

    fn read_mounted(&self, queue: &MountedQueue) -> Answer {
        self.try_read_mounted(queue).unwrap_or_else(|refused| {
            let high_watermark = queue.high_watermark().unwrap_or(Offset(-1));
            Answer { high_watermark, log_start: refused.log_start, ..Answer::error(refused.code) }
        })
    }

    fn try_read_mounted(&self, queue: &MountedQueue) -> Result<Answer, Refused> {
        let wanted = self.wanted;
        if wanted.last_fetched_epoch >= LeaderEpoch(0) {
            let (epoch, end) = queue.epoch_end_offset(wanted.last_fetched_epoch)?;
            if epoch < wanted.last_fetched_epoch || end < wanted.fetch_offset {
                return Ok(Answer {
                    high_watermark: queue.high_watermark()?,
                    log_start: queue.log_start(),
                    diverging: Some((epoch, end)),
                    ..Answer::error(ErrorCode::NONE)
                });
            }
        }
        let bytes_max = self.bytes_max().min(self.room.memory_bytes);
        let slice = queue.read(wanted.fetch_offset, bytes_max, self.room.is_empty)?;
        let bytes = slice.bytes.len();
        let parts = if bytes > 0 { vec![Part::Bytes(slice.bytes.into())] } else { Vec::new() };
        Ok(Answer {
            high_watermark: slice.high_watermark,
            log_start: slice.log_start,
            bytes,
            more: slice.more,
            parts,
            ..Answer::error(ErrorCode::NONE)
        })
    }

    fn bytes_max(&self) -> usize {
        usize::try_from(self.wanted.max_bytes).unwrap_or_default().min(self.room.bytes)
    }

    fn read_log(&self, log: &Placed) -> (Answer, ReadEnd) {
        let high_watermark = log.partition.high_watermark();
        self.try_read_log(log, high_watermark)
            .unwrap_or_else(|error| failed(&log.partition, high_watermark, &error))
    }

    fn try_read_log(&self, log: &Placed, high_watermark: Offset) -> Result<(Answer, ReadEnd), ReadError> {
        let partition = &*log.partition;
        if let Some(diverging) = diverging(partition, self.wanted)? {
            let log_start = partition.log.log_start_offset()?;
            let diverging = Some(diverging);
            let answer = Answer { high_watermark, log_start, diverging, ..Answer::error(ErrorCode::NONE) };
            return Ok((answer, ReadEnd::WARM));
        }
        let bytes_max = self.bytes_max();
        let mut slice = match self.find(partition, bytes_max, high_watermark) {
            Err(ReadError::FarFromIndex) => return Ok(self.postponed(partition, ReadEnd::FarFromIndex)),
            found => found?,
        };
        let in_memory = slice_memory_bytes(&slice);
        if in_memory > self.room.memory_bytes {
            // Records in files come before those in memory.
            let bytes_max = slice.len - in_memory + self.room.memory_bytes;
            slice = self.find(partition, bytes_max, high_watermark)?;
        }
        let mut copied_bytes = 0;
        let mut held = self.held_files(&slice);
        if held.is_none() {
            let bytes_max = bytes_max.min(self.room.memory_bytes).min(COPIED_BYTES_MAX);
            slice = self.find(partition, bytes_max, high_watermark)?;
            copied_bytes = slice.len - slice_memory_bytes(&slice);
            if !self.pass.thread.may_copy(copied_bytes) {
                return Ok(self.postponed(partition, ReadEnd::TooMuchToCopy));
            }
            partition.log.copy_to_memory(&mut slice)?;
            held = Some(Vec::new());
        }
        let proved_bytes = slice.proved_bytes + copied_bytes as u64;
        let end = ReadEnd::Done { proved_bytes, met_disk: slice.met_disk };
        let answer = Answer {
            high_watermark,
            log_start: slice.log_start,
            bytes: slice.len,
            more: slice.next_offset < high_watermark,
            parts: self.parts(slice, held.unwrap_or_default(), log),
            ..Answer::error(ErrorCode::NONE)
        };
        Ok((answer, end))
    }

    fn find(
        &self,
        partition: &Partition,
        bytes_max: usize,
        high_watermark: Offset,
    ) -> Result<ReadSlice, ReadError> {
        let patience = self.pass.thread.patience();
        let from = self.wanted.fetch_offset;
        partition.log.read_with(patience, from, bytes_max, high_watermark, self.room.is_empty)
    }

    /// An answer without records, after the log was asked.
    fn postponed(&self, partition: &Partition, end: ReadEnd) -> (Answer, ReadEnd) {
        (Answer::postponed(Some(known_range(partition)), self.wanted), end)
    }

    /// Holds the files of the records, in their order; none if the client may not hold all of them.
    fn held_files(&self, slice: &ReadSlice) -> Option<Vec<HeldFile>> {
        let source = Source::of(self.context.connection.peer.ip());
        let files = slice.chunks.iter().filter_map(|chunk| match chunk {
            Chunk::File { file, .. } => Some(file),
            Chunk::Memory(_) => None,
        });
        files.map(|file| self.broker.budgets.files.hold(source, file)).collect()
    }

    /// The slice as parts of a response. `held` are its files.
    fn parts(&self, slice: ReadSlice, held: Vec<HeldFile>, log: &Placed) -> Vec<Part> {
        let mut held = held.into_iter();
        let id = ReaderId { partition: log.partition.id, connection: self.context.connection.id };
        let offsets = self.wanted.fetch_offset..slice.next_offset;
        // A slice that is partly in memory reaches up to the end of the log.
        let is_whole = slice.chunks.len() == 1;
        let part = |chunk| match chunk {
            Chunk::File { file, position, len } => {
                let read =
                    FileRead { file: &file, position, len, offsets: offsets.clone(), log_end: slice.log_end };
                let far = if is_whole { self.broker.catch_up.follow(id, read) } else { None };
                if slice.met_disk
                    && let Some(far) = &far
                {
                    far.met_disk();
                }
                let file = held.next().expect("each file is held");
                Part::File { file, position, len, log_dir: log.log_dir, far }
            }
            Chunk::Memory(bytes) => Part::Shared(bytes),
        };
        slice.chunks.into_iter().map(part).collect()
    }
}

pub(super) fn topic_key(wanted: &Wanted) -> TopicKey<'_> {
    match &wanted.partition.topic {
        TopicRef::Name(name) => TopicKey::Name(name),
        TopicRef::Id(id) => TopicKey::Id(*id),
    }
}

fn failed(partition: &Partition, high_watermark: Offset, error: &ReadError) -> (Answer, ReadEnd) {
    let code = error::read_error(error);
    if error::is_our_trouble(code) {
        STORAGE_TROUBLE.warn(|suppressed| {
            tracing::error!(partition = %partition.id, suppressed, %error, "read failed");
        });
    }
    // An out-of-range client learns the range with the error.
    let log_start =
        Offset(if let ReadError::OutOfRange { log_start, .. } = error { log_start.0 } else { -1 });
    let end = match error {
        ReadError::Storage(error) if error.is_descriptor_shortage() => ReadEnd::NoDescriptor,
        _ => ReadEnd::WARM,
    };
    (Answer { high_watermark, log_start, ..Answer::error(code) }, end)
}

fn slice_memory_bytes(slice: &ReadSlice) -> usize {
    let in_memory = |chunk: &Chunk| match chunk {
        Chunk::File { .. } => 0,
        Chunk::Memory(bytes) => bytes.len(),
    };
    slice.chunks.iter().map(in_memory).sum()
}

fn diverging(partition: &Partition, wanted: &Wanted) -> Result<Option<(LeaderEpoch, Offset)>, ReadError> {
    if wanted.last_fetched_epoch.0 < 0 {
        return Ok(None);
    }
    let (epoch, end) = partition.log.epoch_end_offset(wanted.last_fetched_epoch)?;
    Ok((epoch < wanted.last_fetched_epoch || end < wanted.fetch_offset).then_some((epoch, end)))
}

//! Reading what one fetch may take: partition by partition, within its byte limits.

use std::sync::Arc;
use std::time::Duration;

use riverrun_log::{Chunk, Patience, ReadError, ReadSlice};
use riverrun_protocol::ErrorCode;
use riverrun_types::{LeaderEpoch, Offset, PartitionId};
use tokio::task::yield_now;

use crate::aside::{give_way, waiting};
use crate::broker::{Broker, TopicKey};
use crate::catch_up::readers::ReaderId;
use crate::catch_up::{CatchUp, FileRead, Whose};
use crate::context::{Operation, RequestContext, Resource};
use crate::error;
use crate::fetch_sessions::{NO_SESSION, Plan, TopicRef, Wanted};
use crate::flow::source;
use crate::held_files::{HeldFile, HeldFiles};
use crate::log_limit::STORAGE_TROUBLE;
use crate::metadata::ClusterImage;
use crate::mounts::{MountedQueue, Refused};
use crate::partitions::{Partition, Waiter};
use crate::replicas::{KnownRange, Replica, known_range};
use crate::response::Part;

/// Bytes of records that one pass proves before it answers what it has: it must not keep who else waits, for the disk or
/// for its thread. What one partition had to prove is bounded alike by the log.
const PROVED_BYTES_MAX: u64 = 1024 * 1024;
/// Time that one pass spends on opening logs and on finding and proving what was not proved, before it answers what it has.
/// Many small partitions that are cold cost little each in bytes, and a turn of the disk each.
const COLD_TIME_MAX: Duration = Duration::from_millis(10);
/// Bytes of files that one pass copies on a thread that serves others, for want of descriptors: well under a millisecond.
const COPIED_BYTES_MAX: usize = 1024 * 1024;

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
    /// Of the partition, if it is known: what a client is told that believes in another one.
    pub(crate) leader_epoch: LeaderEpoch,
    pub(crate) parts: Vec<Part>,
    pub(crate) bytes: usize,
    /// Whether the limits, and not the high watermark, ended the read.
    pub(crate) more: bool,
    /// Bytes that the log had to prove, or that were copied out of its files.
    proved_bytes: u64,
    /// Whether its records are left to a pass aside.
    is_left: bool,
    /// Whether its files cannot be opened for want of descriptors.
    is_short: bool,
}

impl Answer {
    fn error(error: ErrorCode) -> Self {
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
            proved_bytes: 0,
            is_left: false,
            is_short: false,
        }
    }
}

/// What a pass has spent on partitions that are cold.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    proved_bytes: u64,
    time: Duration,
    /// There is no descriptor for what comes next either.
    is_short: bool,
}

impl Spent {
    /// Whether that is enough for now.
    fn is_enough(self) -> bool {
        self.is_short || self.proved_bytes >= PROVED_BYTES_MAX || self.time >= COLD_TIME_MAX
    }

    fn add(&mut self, proved_bytes: u64, time: Duration) {
        self.proved_bytes += proved_bytes;
        self.time += time;
    }
}

/// A partition's turn in a pass.
#[derive(Clone, Copy)]
struct Turn<'a> {
    catch_up: &'a Arc<CatchUp>,
    connection: u64,
    files: &'a Arc<HeldFiles>,
    source: source::Source,
    bytes_left: usize,
    memory_bytes_left: usize,
    /// Whether nothing was found before.
    first: bool,
    /// Whether this thread serves nobody else meanwhile.
    is_aside: bool,
}

/// One pass over all that is wanted.
#[derive(Debug)]
pub(crate) struct Pass {
    /// One for each wanted partition, in order.
    pub(crate) answers: Vec<Answer>,
    pub(crate) bytes: usize,
    /// Whether something is to be said at once: an error, or records of a partition that has more than the limits
    /// let through, so that waiting brings nothing, or what has cost so much, or would take so long, that the rest must
    /// wait.
    pub(crate) urgent: bool,
    /// Whether it ended for want of descriptors: another one would end alike.
    pub(crate) is_short: bool,
}

/// Reads everything once. If `waiter` is given, it is enrolled at each partition *before* that is read, so that
/// no advance is missed.
///
/// What may lie on the disk is read log dir by log dir, each in its turn. Who has found something waits for no other turn:
/// it would hold memory meanwhile.
///
/// Once enough was spent on what is cold, the partitions that are left come first in the next pass: a session sees to
/// that itself, and without one it begins with the first that was left.
pub(crate) async fn read_all(
    broker: &Arc<Broker>,
    context: &RequestContext,
    plan: &Plan,
    limits: Limits,
    waiter: Option<&Arc<Waiter>>,
) -> Pass {
    let is_cold = broker.catch_up.begins_cold(context.connection.id);
    let mut reading = Reading::new(broker, context, plan, limits, waiter);
    reading.is_aside = is_cold;
    if !is_cold {
        for place in reading.order() {
            reading.read([place]);
            give_way().await;
        }
        return reading.finish();
    }
    let whose = Whose::of(&context.connection);
    for (log_dir, places) in reading.by_log_dir() {
        match log_dir {
            None => reading.read(places),
            Some(log_dir) if reading.bytes == 0 => {
                waiting(broker.catch_up.read_aside(log_dir, whose, || reading.read(places))).await;
            }
            Some(log_dir) => {
                let read_these = || reading.read(places.iter().copied());
                if broker.catch_up.try_read_aside(log_dir, whose, read_these).is_some() {
                    yield_now().await;
                } else {
                    reading.leave(places);
                }
            }
        }
    }
    reading.finish()
}

/// A pass that is under way.
struct Reading<'a> {
    broker: &'a Arc<Broker>,
    context: &'a RequestContext,
    plan: &'a Plan,
    limits: Limits,
    waiter: Option<&'a Arc<Waiter>>,
    image: Arc<ClusterImage>,
    /// Where it begins.
    first: usize,
    /// Whether it runs aside.
    is_aside: bool,
    /// One for each wanted partition; it says nothing before it was read.
    answers: Vec<Answer>,
    /// How far behind `first` the first partition is that was left.
    left: Option<usize>,
    spent: Spent,
    bytes: usize,
    /// Bytes in memory that may still be found: an answer holds them until its client has taken it.
    memory_bytes_left: usize,
    urgent: bool,
}

impl<'a> Reading<'a> {
    fn new(
        broker: &'a Arc<Broker>,
        context: &'a RequestContext,
        plan: &'a Plan,
        limits: Limits,
        waiter: Option<&'a Arc<Waiter>>,
    ) -> Self {
        let count = plan.len();
        let begin_at = broker.catch_up.begin_at(context.connection.id);
        let has_session = plan.session_id != NO_SESSION;
        Self {
            broker,
            context,
            plan,
            limits,
            waiter,
            image: broker.catalog.cluster(),
            first: if has_session || begin_at >= count { 0 } else { begin_at },
            is_aside: false,
            answers: plan.wanted().map(|_| Answer::error(ErrorCode::NONE)).collect(),
            left: None,
            spent: Spent::default(),
            bytes: 0,
            memory_bytes_left: broker.budgets.responses.fetch_bytes_max(context.connection.peer.ip()),
            urgent: false,
        }
    }

    /// The places of all that is wanted, in the order in which they are read.
    fn order(&self) -> impl Iterator<Item = usize> + use<> {
        let count = self.plan.len();
        (self.first..count).chain(0..self.first)
    }

    /// The same for each log dir, and for what lies in none: it is not known, or mounted.
    fn by_log_dir(&self) -> Vec<(Option<usize>, Vec<usize>)> {
        let mut all: Vec<(Option<usize>, Vec<usize>)> = Vec::new();
        for place in self.order() {
            let log_dir = self.log_dir(self.plan.at(place));
            match all.iter_mut().find(|(of, _)| *of == log_dir) {
                Some((_, places)) => places.push(place),
                None => all.push((log_dir, vec![place])),
            }
        }
        all
    }

    fn log_dir(&self, wanted: &Wanted) -> Option<usize> {
        let topic = topic_key(wanted).find(&self.image).ok()?.id;
        self.broker.replicas.log_dir(PartitionId { topic, index: wanted.partition.index })
    }

    /// Reads these, until enough was spent. Blocks for the disk if they are cold.
    fn read(&mut self, places: impl IntoIterator<Item = usize>) {
        for place in places {
            self.answer(place, self.spent.is_enough());
        }
    }

    /// Leaves these to the next pass.
    fn leave(&mut self, places: Vec<usize>) {
        for place in places {
            self.answer(place, true);
        }
    }

    fn answer(&mut self, place: usize, is_left: bool) {
        let answer = self.read_one(place, is_left);
        self.bytes += answer.bytes;
        self.memory_bytes_left = self.memory_bytes_left.saturating_sub(memory_bytes(&answer.parts));
        self.urgent |= answer.error != ErrorCode::NONE || answer.diverging.is_some();
        self.urgent |= answer.bytes > 0 && answer.more;
        self.answers[place] = answer;
    }

    fn note_left(&mut self, place: usize) {
        let behind = (place + self.answers.len() - self.first) % self.answers.len();
        self.left = Some(self.left.map_or(behind, |left| left.min(behind)));
        self.urgent = true;
    }

    fn read_one(&mut self, place: usize, is_left: bool) -> Answer {
        let (broker, context, plan) = (self.broker, self.context, self.plan);
        let wanted = plan.at(place);
        let clock = &broker.env.clock;
        let begun = clock.monotonic();
        let mut leader_epoch = LeaderEpoch::UNKNOWN;
        let mut was_open = true;
        let mut answer = match resolve(broker, context, &self.image, wanted, &mut leader_epoch, is_left) {
            Ok(source) => {
                if let Some(waiter) = self.waiter {
                    source.enroll(waiter);
                }
                let turn = Turn {
                    catch_up: &broker.catch_up,
                    connection: context.connection.id,
                    files: &broker.budgets.files,
                    source: source::Source::of(context.connection.peer.ip()),
                    bytes_left: self.limits.bytes_max.saturating_sub(self.bytes),
                    memory_bytes_left: self.memory_bytes_left,
                    first: self.bytes == 0,
                    is_aside: self.is_aside,
                };
                match source {
                    Source::Left(replica) => {
                        self.note_left(place);
                        leave(replica.as_ref().map(Replica::known_range), wanted)
                    }
                    Source::Found { replica, log_dir, is_open } => {
                        was_open = is_open;
                        read(replica, log_dir, wanted, turn)
                    }
                }
            }
            Err(code) => Answer::error(code),
        };
        if answer.is_left {
            self.note_left(place);
        }
        self.spent.is_short |= answer.is_short;
        // What is warm costs nothing, however many there are.
        if !was_open || answer.proved_bytes > 0 {
            self.spent.add(answer.proved_bytes, clock.monotonic().saturating_sub(begun));
        }
        answer.leader_epoch = leader_epoch;
        answer
    }

    fn finish(self) -> Pass {
        let goes_on = self.left.is_some() || self.spent.is_enough();
        if goes_on && self.plan.session_id == NO_SESSION {
            let begin_at = (self.first + self.left.unwrap_or(0)) % self.answers.len();
            self.broker.catch_up.go_on_at(self.context.connection.id, begin_at);
        }
        let is_short = self.spent.is_short;
        Pass { answers: self.answers, bytes: self.bytes, urgent: self.urgent, is_short }
    }
}

/// A partition, and the index of the log dir that holds it.
struct Placed {
    partition: Arc<Partition>,
    log_dir: usize,
}

/// What a partition's records are read from.
enum Source {
    Found {
        replica: Replica,
        /// The log dir of its files, if it has files.
        log_dir: usize,
        is_open: bool,
    },
    /// Enough was spent before, or it is the turn of others; of a partition that nobody has opened nothing is known.
    Left(Option<Replica>),
}

impl Source {
    fn enroll(&self, waiter: &Arc<Waiter>) {
        match self {
            Self::Found { replica, .. } => replica.enroll(waiter),
            // A pass that leaves something is answered at once.
            Self::Left(_) => {}
        }
    }
}

/// Finds what is wanted, and tells the partition's epoch as soon as the topic is known. What `is_left` is not opened.
fn resolve(
    broker: &Arc<Broker>,
    context: &RequestContext,
    image: &ClusterImage,
    wanted: &Wanted,
    leader_epoch: &mut LeaderEpoch,
    is_left: bool,
) -> Result<Source, ErrorCode> {
    let topic = topic_key(wanted).find(image)?;
    if !context.authorize(Operation::Read, Resource::Topic(&topic.name)) {
        return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    }
    let index = wanted.partition.index;
    *leader_epoch = broker.leader_epoch(topic, index);
    broker.check_epoch(topic, index, wanted.current_leader_epoch)?;
    let in_use = broker.replicas.in_use(topic, index)?;
    if is_left && in_use.as_ref().is_none_or(Replica::takes_turns) {
        return Ok(Source::Left(in_use));
    }
    let is_open = in_use.as_ref().is_some_and(Replica::is_open);
    let replica = in_use.map_or_else(|| broker.replicas.find(topic, index), Ok)?;
    let log_dir = broker.replicas.log_dir(PartitionId { topic: topic.id, index });
    Ok(Source::Found { replica, log_dir: log_dir.unwrap_or_default(), is_open })
}

fn topic_key(wanted: &Wanted) -> TopicKey<'_> {
    match &wanted.partition.topic {
        TopicRef::Name(name) => TopicKey::Name(name),
        TopicRef::Id(id) => TopicKey::Id(*id),
    }
}

fn read(replica: Replica, log_dir: usize, wanted: &Wanted, turn: Turn<'_>) -> Answer {
    match replica {
        Replica::Local(partition) => read_log(&Placed { partition, log_dir }, wanted, turn),
        Replica::Queue(queue) => read_mounted(&queue, wanted, turn),
    }
}

fn read_mounted(queue: &MountedQueue, wanted: &Wanted, turn: Turn<'_>) -> Answer {
    try_read_mounted(queue, wanted, turn).unwrap_or_else(|refused| {
        let high_watermark = queue.high_watermark().unwrap_or(Offset(-1));
        Answer { high_watermark, log_start: refused.log_start, ..Answer::error(refused.code) }
    })
}

fn try_read_mounted(queue: &MountedQueue, wanted: &Wanted, turn: Turn<'_>) -> Result<Answer, Refused> {
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
    let bytes_max = usize::try_from(wanted.max_bytes).unwrap_or_default().min(turn.bytes_left);
    let bytes_max = bytes_max.min(turn.memory_bytes_left);
    let slice = queue.read(wanted.fetch_offset, bytes_max, turn.first)?;
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

/// Leaves a partition's records to the next pass, and waits for nothing. Of its high watermark and its start, what nobody
/// knows without a look at its files stays as the client was told.
fn leave(known: Option<KnownRange>, wanted: &Wanted) -> Answer {
    let unknown = Answer::error(ErrorCode::NONE);
    let told = wanted.told.unwrap_or((unknown.high_watermark, unknown.log_start));
    let (high_watermark, log_start) = known.unwrap_or((None, None));
    Answer {
        high_watermark: high_watermark.unwrap_or(told.0),
        log_start: log_start.unwrap_or(told.1),
        ..unknown
    }
}

fn read_log(log: &Placed, wanted: &Wanted, turn: Turn<'_>) -> Answer {
    let high_watermark = log.partition.high_watermark();
    match try_read(log, wanted, high_watermark, turn) {
        Ok(answer) => answer,
        Err(error) => failed(&log.partition, high_watermark, &error),
    }
}

fn failed(partition: &Partition, high_watermark: Offset, error: &ReadError) -> Answer {
    let code = error::read_error(error);
    if error::is_our_trouble(code) {
        STORAGE_TROUBLE.warn(|suppressed| {
            tracing::error!(partition = %partition.id, suppressed, %error, "read failed");
        });
    }
    // A client that is out of range learns the range with the error.
    let log_start =
        Offset(if let ReadError::OutOfRange { log_start, .. } = error { log_start.0 } else { -1 });
    let is_short = matches!(error, ReadError::Storage(error) if error.is_descriptor_shortage());
    Answer { high_watermark, log_start, is_short, ..Answer::error(code) }
}

fn try_read(
    log: &Placed,
    wanted: &Wanted,
    high_watermark: Offset,
    turn: Turn<'_>,
) -> Result<Answer, ReadError> {
    let partition = &*log.partition;
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
    let patience = if turn.is_aside { Patience::Slice } else { Patience::None };
    let read = |bytes_max| {
        partition.log.read_with(patience, wanted.fetch_offset, bytes_max, high_watermark, turn.first)
    };
    let mut slice = match read(bytes_max) {
        Err(ReadError::FarFromIndex) => {
            turn.catch_up.met_cold(turn.connection, None);
            let left = leave(Some(known_range(partition)), wanted);
            return Ok(Answer { is_left: true, proved_bytes: PROVED_BYTES_MAX, ..left });
        }
        found => found?,
    };
    let in_memory = slice_memory_bytes(&slice);
    if in_memory > turn.memory_bytes_left {
        // Records in files come before those in memory.
        slice = read(slice.len - in_memory + turn.memory_bytes_left)?;
    }
    let mut held = held_files(&slice, turn);
    let mut copied_bytes = 0;
    if held.is_none() {
        slice = read(bytes_max.min(turn.memory_bytes_left).min(COPIED_BYTES_MAX))?;
        copied_bytes = slice.len - slice_memory_bytes(&slice);
        if copied_bytes > COPIED_BYTES_MAX && !turn.is_aside {
            turn.catch_up.met_cold(turn.connection, None);
            return Ok(Answer { is_left: true, ..leave(Some(known_range(partition)), wanted) });
        }
        partition.log.copy_to_memory(&mut slice)?;
        held = Some(Vec::new());
    }
    Ok(Answer {
        error: ErrorCode::NONE,
        high_watermark,
        log_start: slice.log_start,
        bytes: slice.len,
        more: slice.next_offset < high_watermark,
        proved_bytes: slice.proved_bytes + copied_bytes as u64,
        parts: parts(slice, held.unwrap_or_default(), turn, log, wanted),
        ..Answer::error(ErrorCode::NONE)
    })
}

/// Holds the files that the records lie in, in their order; none if the client may not hold all of them.
fn held_files(slice: &ReadSlice, turn: Turn<'_>) -> Option<Vec<HeldFile>> {
    let files = slice.chunks.iter().filter_map(|chunk| match chunk {
        Chunk::File { file, .. } => Some(file),
        Chunk::Memory(_) => None,
    });
    files.map(|file| turn.files.hold(turn.source, file)).collect()
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

fn memory_bytes(parts: &[Part]) -> usize {
    parts.iter().filter(|part| !matches!(part, Part::File { .. })).map(Part::len).sum()
}

/// The slice as parts of a response. `held` are its files.
fn parts(slice: ReadSlice, held: Vec<HeldFile>, turn: Turn<'_>, log: &Placed, wanted: &Wanted) -> Vec<Part> {
    let mut held = held.into_iter();
    let id = ReaderId { partition: log.partition.id, connection: turn.connection };
    let offsets = wanted.fetch_offset..slice.next_offset;
    // What is partly in memory reaches up to the end of the log.
    let is_whole = slice.chunks.len() == 1;
    // By the time it is sent it lies in the page cache, and nobody would know any more that it did not before.
    if slice.met_disk {
        turn.catch_up.met_cold(turn.connection, None);
    }
    let part = |chunk| match chunk {
        Chunk::File { file, position, len } => {
            let read =
                FileRead { file: &file, position, len, offsets: offsets.clone(), log_end: slice.log_end };
            let far = if is_whole { turn.catch_up.follow(id, read) } else { None };
            if slice.met_disk {
                turn.catch_up.met_cold(turn.connection, far.as_deref());
            }
            let file = held.next().expect("each file is held");
            Part::File { file, position, len, log_dir: log.log_dir, far }
        }
        Chunk::Memory(bytes) => Part::Shared(bytes),
    };
    slice.chunks.into_iter().map(part).collect()
}

#[cfg(test)]
mod tests;

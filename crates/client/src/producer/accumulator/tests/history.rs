//! Random histories of an idempotent producer: lost answers, moving leaders, requests of a closed connection that
//! arrive after those of the next one, batches that are given up.
//!
//! A request that is still on its way when its batch is given up is taken to be lost: no epoch can keep a server from
//! accepting it before it has heard of that epoch.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use riverrun_protocol::ErrorCode;
use riverrun_records::{ProducerStamp, UnverifiedBatch};
use riverrun_types::{ProducerEpoch, ProducerId};

use super::*;
use crate::producer::listener::Callback;

const NODES: usize = 2;
const PARTITIONS: i32 = 3;
/// Batches of a producer that a server remembers.
const REMEMBERED: usize = 5;
const BUFFER_BYTES: usize = 40_000;

/// A step of a random history.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Appends a record of so many bytes, for a partition or for any.
    Append(Option<i32>, usize),
    /// Drains requests.
    Drain,
    /// A node answers its oldest batch.
    Answer(usize),
    /// A node stores its oldest batch, and answers that other replicas do not have it in time.
    Doubt(usize),
    /// A node's connection breaks: it stores so many of its batches, whose answers are lost. The others arrive later,
    /// or never.
    Cut { node: usize, taken: usize, late: bool },
    /// A node stores the oldest late batch.
    Late,
    /// A partition gets another leader.
    Move(i32),
    /// A partition's server expects other sequence numbers than the next ones.
    Confuse(i32),
    /// All waiting batches expire.
    Expire,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (prop::option::of(0..PARTITIONS), 8..120_usize).prop_map(|(partition, bytes)| Step::Append(partition, bytes)),
        4 => Just(Step::Drain),
        5 => (0..NODES).prop_map(Step::Answer),
        2 => (0..NODES).prop_map(Step::Doubt),
        2 => (0..NODES, 0..4_usize, any::<bool>())
            .prop_map(|(node, taken, late)| Step::Cut { node, taken, late }),
        2 => Just(Step::Late),
        1 => (0..PARTITIONS).prop_map(Step::Move),
        1 => (0..PARTITIONS).prop_map(Step::Confuse),
        1 => Just(Step::Expire),
    ]
}

/// A batch as it goes over the wire.
#[derive(Clone, Debug)]
struct Wire {
    node: usize,
    partition: i32,
    stamp: ProducerStamp,
    numbers: Vec<usize>,
}

impl Wire {
    fn of(batch: &mut Batch, node: usize) -> Self {
        let bytes = batch.seal().expect("a batch");
        let verified = UnverifiedBatch::only(&bytes).unwrap().verify().unwrap();
        let number = |value: &[u8]| usize::from_be_bytes(value[..8].try_into().unwrap());
        let records = verified.records().unwrap();
        let numbers = records.into_iter().map(|record| number(record.unwrap().value.unwrap())).collect();
        Self { node, partition: batch.key.partition, stamp: batch.stamp.expect("a stamp"), numbers }
    }
}

/// A server's state of a partition.
#[derive(Debug, Default)]
struct Log {
    leader: usize,
    epoch: i16,
    next_sequence: Option<i32>,
    /// True if it accepts nothing new in this epoch.
    confused: bool,
    recent: VecDeque<(i32, usize, usize)>,
    numbers: Vec<usize>,
}

impl Log {
    /// The offset of the batch's first record, now or when it came first.
    fn take(&mut self, wire: &Wire, records_max: usize) -> Result<usize, ErrorCode> {
        let (epoch, sequence, records) = (wire.stamp.epoch.0, wire.stamp.base_sequence, wire.numbers.len());
        if self.leader != wire.node {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        if records > records_max {
            return Err(ErrorCode::MESSAGE_TOO_LARGE);
        }
        if epoch < self.epoch {
            return Err(ErrorCode::INVALID_PRODUCER_EPOCH);
        }
        if epoch > self.epoch {
            if sequence != 0 {
                return Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
            }
            self.recent.clear();
            (self.epoch, self.next_sequence, self.confused) = (epoch, Some(0), false);
        }
        if let Some((.., offset)) = self.recent.iter().find(|known| (known.0, known.1) == (sequence, records))
        {
            return Ok(*offset);
        }
        if self.confused || self.next_sequence.is_some_and(|next| next != sequence) {
            return Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
        }
        let offset = self.numbers.len();
        self.numbers.extend(&wire.numbers);
        self.next_sequence = Some(sequence + i32::try_from(records).unwrap());
        self.recent.push_back((sequence, records, offset));
        if self.recent.len() > REMEMBERED {
            self.recent.pop_front();
        }
        Ok(offset)
    }
}

/// The outcome of a record.
#[derive(Clone, Copy, Debug)]
struct Told {
    number: usize,
    /// The partition that the record names, if any.
    partition: Option<i32>,
    /// Its partition and offset, unless it has failed.
    place: Option<(i32, i64)>,
}

/// True if the outcomes of each partition came in the order of sending.
fn in_order(told: &[Told]) -> bool {
    let mut last = BTreeMap::new();
    told.iter().all(|one| match one.place.map(|place| place.0).or(one.partition) {
        Some(partition) => last.insert(partition, one.number) < Some(one.number),
        None => true,
    })
}

/// The producer without the accumulator, and the servers.
struct World {
    accumulator: Accumulator,
    logs: BTreeMap<i32, Log>,
    under_way: Vec<VecDeque<Batch>>,
    late: VecDeque<Wire>,
    told: Arc<Mutex<Vec<Told>>>,
    appended: usize,
    records_max: usize,
    now: Instant,
}

impl World {
    fn new(records_max: usize) -> Self {
        let accumulator = accumulator(|options| {
            options.buffer_bytes = BUFFER_BYTES;
            options.request_bytes_max = 1000;
        });
        Self {
            accumulator,
            logs: (0..PARTITIONS).map(|partition| (partition, Log::default())).collect(),
            under_way: (0..NODES).map(|_| VecDeque::new()).collect(),
            late: VecDeque::new(),
            told: Arc::default(),
            appended: 0,
            records_max,
            now: Instant::now(),
        }
    }

    fn append(&mut self, partition: Option<i32>, bytes: usize) {
        let mut value = self.appended.to_be_bytes().to_vec();
        value.resize(bytes, b'x');
        let record = RecordRef { partition, ..RecordRef::new("t", &value) };
        let reserved = record.size_bound_bytes();
        if !self.accumulator.try_reserve(reserved).unwrap() {
            return;
        }
        let (number, told) = (self.appended, Arc::clone(&self.told));
        let mut callback = Some(Callback::new(move |result| {
            let place = result.ok().map(|placed| (placed.partition, placed.offset.0));
            told.lock().unwrap().push(Told { number, partition, place });
        }));
        let appended = self.accumulator.append(&record, TimestampMs(1), reserved, &mut callback);
        assert!(matches!(appended, Ok(Appended::Yes(_))) && callback.is_none());
        self.appended += 1;
    }

    fn drain(&mut self, now: Instant) {
        let logs = &self.logs;
        let mut plan = DrainPlan {
            now,
            producer: Some((ProducerId(1), ProducerEpoch(0))),
            fresh_allowed: true,
            leader: &mut |_, partition| Some(NodeId(i32::try_from(logs[&partition].leader).unwrap())),
            has_room: &mut |_| true,
            full: &[],
        };
        let drained = self.accumulator.drain(&mut plan);
        for batch in drained.expired {
            self.accumulator.complete(batch, Err(ClientError::Closed), false);
        }
        for (node, batches) in drained.requests {
            self.under_way[usize::try_from(node.0).unwrap()].extend(batches);
        }
    }

    fn expire(&mut self) {
        self.late.clear();
        let timeout = self.accumulator.options.delivery_timeout;
        // The first drain sets the time of the next.
        for looks in [1, 2] {
            self.drain(self.now + timeout * looks);
        }
    }

    /// The node's result for the oldest batch that it was sent.
    fn take(&mut self, node: usize) -> Option<(Batch, Result<usize, ErrorCode>)> {
        let mut batch = self.under_way[node].pop_front()?;
        let wire = Wire::of(&mut batch, node);
        let taken = self.logs.get_mut(&wire.partition)?.take(&wire, self.records_max);
        Some((batch, taken))
    }

    fn answer(&mut self, node: usize) {
        let Some((batch, taken)) = self.take(node) else { return };
        match taken {
            Ok(offset) => {
                let base_offset = Some(Offset(i64::try_from(offset).unwrap()));
                self.accumulator.complete(batch, Ok(BatchPlace { base_offset, append_time: None }), false);
            }
            Err(code) => self.fail(batch, ClientError::Server { code, message: None }),
        }
    }

    fn doubt(&mut self, node: usize) {
        let Some((batch, taken)) = self.take(node) else { return };
        let code = taken.err().unwrap_or(ErrorCode::REQUEST_TIMED_OUT);
        self.fail(batch, ClientError::Server { code, message: None });
    }

    fn fail(&self, batch: Batch, error: ClientError) {
        self.accumulator.handle_error(batch, error, self.now);
    }

    fn cut(&mut self, node: usize, taken: usize, late: bool) {
        let mut back = Vec::new();
        for _ in 0..taken {
            back.extend(self.take(node).map(|(batch, _)| batch));
        }
        for mut batch in std::mem::take(&mut self.under_way[node]) {
            if late {
                self.late.push_back(Wire::of(&mut batch, node));
            }
            back.push(batch);
        }
        for batch in back {
            let error = ClientError::Disconnected { address: String::new(), reason: String::new() };
            self.fail(batch, error);
        }
    }

    fn take_late(&mut self) {
        let Some(wire) = self.late.pop_front() else { return };
        // The connection for the answer is gone.
        let _ = self.logs.get_mut(&wire.partition).map(|log| log.take(&wire, self.records_max));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Append(partition, bytes) => self.append(partition, bytes),
            Step::Drain => self.drain(Instant::now()),
            Step::Answer(node) => self.answer(node),
            Step::Doubt(node) => self.doubt(node),
            Step::Cut { node, taken, late } => self.cut(node, taken, late),
            Step::Late => self.take_late(),
            Step::Move(partition) => {
                if let Some(log) = self.logs.get_mut(&partition) {
                    log.leader = (log.leader + 1) % NODES;
                }
            }
            Step::Confuse(partition) => {
                if let Some(log) = self.logs.get_mut(&partition) {
                    log.confused = true;
                }
            }
            Step::Expire => self.expire(),
        }
    }

    /// Continues without faults until all batches have their outcome; then the late requests arrive.
    fn finish(&mut self) -> usize {
        self.accumulator.close();
        let mut rounds = 0;
        while !self.accumulator.is_done() && rounds < 10_000 {
            self.drain(Instant::now());
            (0..NODES).for_each(|node| self.answer(node));
            rounds += 1;
        }
        (0..self.late.len()).for_each(|_| self.take_late());
        rounds
    }
}

proptest! {
    /// Every record gets one outcome, in the order of sending. Every record reported as delivered is at its reported
    /// offset, and there are no others unless batches expired. No record is stored twice, each partition is in the
    /// order of sending, and all memory is given back.
    #[test]
    fn lost_messages_neither_reorder_nor_duplicate_records(
        records_max in 1..12_usize,
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let mut world = World::new(records_max);
        let expires = steps.iter().any(|step| matches!(step, Step::Expire));
        for step in steps {
            world.step(step);
        }
        prop_assert!(world.finish() < 10_000, "it comes to an end");
        prop_assert_eq!(world.accumulator.space.free_bytes(), BUFFER_BYTES);
        let told = world.told.lock().unwrap();
        let numbers: BTreeSet<usize> = told.iter().map(|one| one.number).collect();
        prop_assert_eq!((told.len(), numbers.len()), (world.appended, world.appended));
        prop_assert!(in_order(&told), "{told:?}");
        prop_assert!(expires || told.iter().all(|one| one.place.is_some()), "{told:?}");
        for (partition, log) in &world.logs {
            prop_assert!(log.numbers.is_sorted_by(|one, other| one < other), "{partition}: {:?}", log.numbers);
        }
        for Told { number, place, .. } in told.iter() {
            let Some((partition, offset)) = place else { continue };
            let there = &world.logs[partition].numbers;
            let known = usize::try_from(*offset).map_or(there.contains(number), |at| there.get(at) == Some(number));
            prop_assert!(known, "record {number} is not at {offset} of {there:?}");
        }
        drop(told);
    }
}

//! The real log on a simulated machine beside the oracle, and every step that can be taken with both.

use std::cell::Cell;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::BytesMut;
use riverrun_env::sim::{SimEnv, SimRandom};
use riverrun_env::{Clock, Random, RealClock};
use riverrun_journal::JournalOptions;
use riverrun_log::compaction::execute::{CleanerControl, CleanerOptions};
use riverrun_log::config::{CleanupPolicy, LogConfig};
use riverrun_log::producer_state::{AppendOrigin, SequenceError, next_sequence};
use riverrun_log::{
    AppendError, AppendOptions, Appended, CompactOptions, LogError, LogStore, PartitionLog, Place,
    StoreOptions,
};
use riverrun_records::{BatchBuilder, BatchOptions, Batches, Compression, Header, ProducerStamp};
use riverrun_types::{
    Acks, DurabilityLevel, LeaderEpoch, Offset, PartitionId, ProducerEpoch, ProducerId, TimestampMs, TopicId,
    ack_offset,
};

use crate::oracle::{Oracle, Sent, Written};

const PARTITION: PartitionId = PartitionId { topic: TopicId([5; 16]), index: 3 };
/// A log that takes this one's place among the open logs.
const OTHER: PartitionId = PartitionId { topic: TopicId([5; 16]), index: 4 };
const LEVELS: [DurabilityLevel; 4] = [
    DurabilityLevel::SyncSync,
    DurabilityLevel::SyncAsync,
    DurabilityLevel::AsyncSync,
    DurabilityLevel::AsyncAsync,
];
/// Records of a batch at most.
const BATCH_MAX: i64 = 8;
const HOUR_MS: i64 = 60 * 60 * 1000;
const DELETE_RETENTION_MS: i64 = 2 * HOUR_MS;
const RETENTION_MS: i64 = 6 * HOUR_MS;
const RETENTION_BYTES: u64 = 4_000;

/// Draws from one seed; everything in a run follows from it.
pub(crate) struct Dice(SimRandom);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SimRandom::new(seed))
    }

    /// 0 to `bound` - 1.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    fn index(&self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap()
    }

    fn offset(&self, bound: i64) -> i64 {
        i64::try_from(self.below(u64::try_from(bound.max(1)).unwrap())).unwrap()
    }

    fn one_in(&self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    fn pick<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }
}

/// Log and oracle.
pub(crate) struct World {
    dice: Dice,
    sim: SimEnv,
    options: StoreOptions,
    config: Arc<LogConfig>,
    /// Counts the starts, which are the leader epochs.
    starts: i32,
    store: Option<LogStore>,
    oracle: Oracle,
    /// The steps of the run, for the search for a failure's cause.
    history: Vec<String>,
}

fn draw_config(dice: &Dice) -> LogConfig {
    let (delete, compact) = dice.pick(&[(true, false), (false, true), (true, true), (false, true)]);
    LogConfig {
        segment_bytes: dice.pick(&[2_000, 3_000, 10_000]),
        segment_ms: dice.pick(&[u64::MAX, 2 * 60 * 60 * 1000]),
        index_interval_bytes: dice.pick(&[1, 200, 4096]),
        segment_index_bytes: dice.pick(&[24 * 20, 10 * 1024 * 1024]),
        cleanup: CleanupPolicy { delete, compact },
        retention_ms: dice.pick(&[None, Some(RETENTION_MS.unsigned_abs())]),
        retention_bytes: dice.pick(&[None, None, Some(RETENTION_BYTES)]),
        delete_retention_ms: DELETE_RETENTION_MS.unsigned_abs(),
        compression: dice.pick(&[None, None, Some(Compression::Lz4), Some(Compression::None)]),
        producer_id_expiration_ms: u64::MAX,
        durability: dice.pick(&LEVELS),
        ..LogConfig::default()
    }
}

fn draw_options(dice: &Dice) -> StoreOptions {
    let journals = dice.pick(&[&["/journal"][..], &["/journal-1", "/journal-2"]]);
    StoreOptions {
        open_logs_max: 1,
        open_files_max: 1,
        journal_dirs: journals.iter().map(PathBuf::from).collect(),
        journal: JournalOptions::with_bytes(2 << 20),
        journal_async_write: dice.one_in(4),
        write_cache_bytes: dice.pick(&[1 << 30, 1 << 30, 4_000, 1]),
        ..StoreOptions::default()
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let dice = Dice::new(seed);
        let config = Arc::new(draw_config(&dice));
        let sim = SimEnv::new(seed);
        let options = draw_options(&dice);
        let oracle = Oracle::default();
        let mut world = Self { dice, sim, options, config, starts: 0, store: None, oracle, history: vec![] };
        world.start();
        world
    }

    fn start(&mut self) {
        self.starts += 1;
        let dirs = [PathBuf::from("/data/logs")];
        let store = LogStore::open(&self.sim.env(), &dirs, self.options.clone()).unwrap();
        let place = |_| Place::In(0, self.config.clone());
        let report = store.recover(|_| LeaderEpoch(self.starts), place).unwrap();
        assert!(report.offline.is_empty(), "{report:?}");
        self.note(format!("  start {}: {report:?}", self.starts));
        self.store = Some(store);
    }

    fn store(&self) -> &LogStore {
        self.store.as_ref().expect("the store is open between steps")
    }

    fn log(&self) -> Arc<PartitionLog> {
        self.store().partition(PARTITION, 0, self.config.clone(), LeaderEpoch(self.starts)).unwrap()
    }

    fn now(&self) -> TimestampMs {
        self.sim.env().clock.wall()
    }

    fn note(&mut self, what: impl Into<String>) {
        self.history.push(what.into());
    }

    /// The last steps, oldest first.
    pub(crate) fn history(&self) -> String {
        self.history.join("\n")
    }

    /// One random step, and what must hold after it.
    pub(crate) fn step(&mut self) {
        match self.dice.below(100) {
            0..45 => self.append_plain(),
            45..60 => self.append_idempotent(),
            60..66 => self.advance(),
            66..69 => self.retain(),
            69..72 => self.change_level(),
            72..78 => self.compact(),
            78..81 => self.delete_records(),
            81..83 => self.roll(),
            83..86 => self.settle(),
            86..90 => self.checkpoint(),
            90..92 => self.restart_cleanly(),
            92..94 => self.kill(),
            94..96 => self.cut_power(),
            96..97 => self.crowd_out(),
            97..99 => self.cut(),
            _ => self.look_up(),
        }
        self.check_bounds();
        if self.dice.one_in(8) {
            self.check_records();
        }
    }

    /// Everything that can be checked, at the end of a run.
    pub(crate) fn finish(&mut self) {
        self.check_records();
        self.restart_cleanly();
        self.check_records();
    }

    // Appends.

    fn draw_records(&self) -> Vec<Written> {
        let count = 1 + self.dice.below(8);
        let record = |_| {
            let key = format!("key {}", self.dice.below(12)).into_bytes();
            let has_key = self.config.cleanup.compact || self.dice.one_in(2);
            let value = vec![b'v'; self.dice.index(80)];
            Written {
                key: has_key.then_some(key),
                value: (!self.dice.one_in(5)).then_some(value),
                timestamp: self.now().0 - self.dice.offset(HOUR_MS),
                epoch: self.starts,
            }
        };
        (0..count).map(record).collect()
    }

    fn build(&self, records: &[Written], producer: ProducerStamp) -> Vec<u8> {
        let compression = self.dice.pick(&Compression::ALL);
        let mut builder =
            BatchBuilder::new(BatchOptions { compression, producer, ..BatchOptions::default() });
        let header = [Header { key: b"header", value: Some(b"value") }];
        for record in records {
            let headers: &[Header<'_>] = if self.dice.one_in(4) { &header } else { &[] };
            let (key, value) = (record.key.as_deref(), record.value.as_deref());
            builder.append(TimestampMs(record.timestamp), key, value, headers).unwrap();
        }
        builder.build().unwrap()
    }

    fn append(&self, records: &[Written], producer: ProducerStamp) -> Result<Appended, AppendError> {
        let bytes = self.build(records, producer);
        let options = AppendOptions { origin: AppendOrigin::Client, now: self.now() };
        put(&self.log(), &bytes, options)
    }

    /// Adds appended records to the oracle.
    fn accept(&mut self, records: Vec<Written>, appended: &Appended) {
        let base = self.oracle.end();
        self.oracle.records.extend(records);
        assert_eq!(appended.base_offset, Offset(base));
        assert_eq!(appended.last_offset, Offset(self.oracle.end() - 1));
        assert_eq!(appended.log_start_offset, Offset(self.oracle.log_start));
        assert!(!appended.duplicate);
        if self.log().level_reached().syncs_locally() {
            self.oracle.durable_end = self.oracle.end();
        }
        self.note(format!("append {base}..{}", self.oracle.end()));
    }

    fn append_plain(&mut self) {
        let records = self.draw_records();
        let appended = self.append(&records, ProducerStamp::NONE).unwrap();
        self.accept(records, &appended);
        if self.config.cleanup.compact && self.dice.one_in(10) {
            let keyless = Written { key: None, ..self.draw_records().remove(0) };
            let refused = self.append(&[keyless], ProducerStamp::NONE);
            assert!(matches!(refused, Err(AppendError::Records(_))), "{refused:?}");
        }
    }

    fn append_idempotent(&mut self) {
        let id = 1000 + self.dice.offset(3);
        if self.oracle.retired.contains(&id) {
            return self.append_plain();
        }
        let last = self.oracle.remembered(id).last().copied();
        match (last, self.dice.below(10)) {
            (Some(_), 0..3) => self.retry(id),
            (Some(last), 3) => self.append_with_gap(id, last),
            (Some(last), 4) => self.append_fenced(id, last),
            (Some(last), 5) => self.append_next(id, last.epoch + 1, 0),
            (Some(last), _) => self.append_next(id, last.epoch, next_sequence(last.last_sequence)),
            // Near the largest, so that sequences wrap.
            (None, _) if self.oracle.end() == 0 => self.begin_log(id),
            (None, _) => self.append_next(id, 0, self.dice.pick(&[0, i32::MAX - 20])),
        }
    }

    /// A log that never held a record begins with no later batch of a producer than its first.
    fn begin_log(&mut self, id: i64) {
        let refused = self.append(&self.draw_records(), stamp(id, 0, i32::MAX - 20));
        let is_gap = matches!(refused, Err(AppendError::Sequence(SequenceError::OutOfOrder { .. })));
        assert!(is_gap, "{refused:?}");
        self.append_next(id, 0, 0);
    }

    fn append_next(&mut self, id: i64, epoch: i16, first_sequence: i32) {
        let records = self.draw_records();
        let appended = self.append(&records, stamp(id, epoch, first_sequence)).unwrap();
        let mut last_sequence = first_sequence;
        for _ in 1..records.len() {
            last_sequence = next_sequence(last_sequence);
        }
        self.accept(records, &appended);
        self.oracle.producers.entry(id).or_default().push(Sent {
            epoch,
            first_sequence,
            last_sequence,
            base_offset: appended.base_offset.0,
            last_offset: appended.last_offset.0,
        });
        self.note(format!("  by producer {id}, epoch {epoch}, sequences {first_sequence}..={last_sequence}"));
    }

    /// The answer to a retry of one of the last batches is that batch's place.
    fn retry(&self, id: i64) {
        let sent = self.dice.pick(self.oracle.remembered(id));
        let count = usize::try_from(sent.last_offset - sent.base_offset + 1).unwrap();
        let records: Vec<_> = self.draw_records().into_iter().cycle().take(count).collect();
        let appended = self.append(&records, stamp(id, sent.epoch, sent.first_sequence)).unwrap();
        assert!(appended.duplicate, "{sent:?}");
        let found = (appended.base_offset.0, appended.last_offset.0, appended.bytes);
        assert_eq!(found, (sent.base_offset, sent.last_offset, 0));
    }

    fn append_with_gap(&self, id: i64, last: Sent) {
        let records = self.draw_records();
        let gap = next_sequence(next_sequence(last.last_sequence));
        let refused = self.append(&records, stamp(id, last.epoch, gap));
        let is_gap = matches!(refused, Err(AppendError::Sequence(SequenceError::OutOfOrder { .. })));
        assert!(is_gap, "{refused:?}");
    }

    fn append_fenced(&self, id: i64, last: Sent) {
        if last.epoch == 0 {
            return;
        }
        let refused = self.append(&self.draw_records(), stamp(id, last.epoch - 1, 0));
        let is_fenced = matches!(refused, Err(AppendError::Sequence(SequenceError::InvalidEpoch { .. })));
        assert!(is_fenced, "{refused:?}");
    }

    // Time and cleaning.

    fn advance(&self) {
        let ms = self.dice.pick(&[1, 60_000, 60 * 60 * 1000, 3 * 60 * 60 * 1000]);
        self.sim.clock.advance(Duration::from_millis(ms));
    }

    fn retain(&mut self) {
        if self.dice.one_in(2) {
            self.checkpoint();
        }
        let log = self.log();
        let before = self.oracle.log_start;
        log.apply_retention(self.now(), Offset(self.oracle.end())).unwrap();
        let after = log.log_start_offset().unwrap().0;
        assert!((before..=self.oracle.end()).contains(&after), "{after}");
        self.note(format!("retention, log start {after}"));
        let horizon = self.now().0 - RETENTION_MS;
        let is_old = |offset: i64| self.oracle.records[usize::try_from(offset).unwrap()].timestamp < horizon;
        let gone: Vec<i64> = (before..after).filter(|offset| self.oracle.must_be_there(*offset)).collect();
        let by_size = self.config.cleanup.delete && self.config.retention_bytes.is_some();
        let by_time = self.config.cleanup.delete && self.config.retention_ms.is_some();
        assert!(gone.is_empty() || by_size || by_time, "{gone:?} went without a policy");
        if by_size && !by_time {
            assert!(gone.is_empty() || log.size_bytes() >= RETENTION_BYTES, "{}", log.size_bytes());
        }
        if by_time && !by_size {
            assert!(gone.iter().all(|offset| is_old(*offset)), "{gone:?} are too young");
        }
        self.oracle.log_start = after;
        let left = self.read_all();
        let is_covered = self.oracle.covered_end == self.oracle.end();
        if is_covered && by_time && left.iter().all(|(offset, _)| is_old(*offset)) {
            assert_eq!(left, [], "all of it had expired");
        }
    }

    fn compact(&mut self) {
        if !self.config.cleanup.compact {
            return;
        }
        let log = self.log();
        let (now, high_watermark) = (self.now(), Offset(self.oracle.end()));
        let reached = log.cleanable(now, high_watermark).unwrap().first_uncleanable.0;
        let buffer_bytes = self.dice.pick(&[24 * 8, 24 * 100]);
        let cleaner = CleanerOptions { dedupe_buffer_bytes: buffer_bytes, load_factor: 0.9 };
        let control = StopAfter(Cell::new(self.dice.pick(&[u64::MAX, u64::MAX, self.dice.below(60)])));
        let outcome = log
            .compact(CompactOptions {
                now,
                high_watermark,
                origin: AppendOrigin::Client,
                cleaner,
                control: &control,
            })
            .unwrap();
        let Some(outcome) = outcome else { return };
        let is_complete = outcome.first_dirty.is_some();
        let reached = outcome.first_dirty.map_or(reached, |offset| offset.0);
        self.note(format!("compaction up to {reached}, complete: {is_complete}"));
        self.oracle.compacted(reached, is_complete, now.0, DELETE_RETENTION_MS);
        self.check_records();
    }

    fn delete_records(&mut self) {
        let before = self.oracle.log_start + self.dice.offset(self.oracle.end() - self.oracle.log_start + 1);
        let log = self.log();
        assert_eq!(log.delete_records(Offset(before)).unwrap(), Offset(before));
        assert!(log.delete_records(Offset(self.oracle.end() + 1)).is_err());
        self.oracle.log_start = before;
        self.note(format!("delete records before {before}"));
    }

    fn roll(&self) {
        self.log().roll_if_due(self.now()).unwrap();
    }

    // Levels and the journal.

    /// Brings the tail into the segments, and a change of level to its end.
    fn settle(&mut self) {
        self.store().settle().unwrap();
        let log = self.log();
        log.ensure_open().unwrap();
        self.store().settle().unwrap();
        assert_eq!(log.level_reached(), self.config.durability);
        assert_eq!(self.store().write_cache().bytes(), 0);
        self.note(format!("settle, level {}", log.level_reached()));
    }

    fn change_level(&mut self) {
        let durability = self.dice.pick(&LEVELS);
        self.config = Arc::new(LogConfig { durability, ..(*self.config).clone() });
        self.log().set_config(self.config.clone());
        self.note(format!("level {durability} is asked for"));
        if self.dice.one_in(2) {
            self.settle();
            if durability.syncs_locally() {
                self.oracle.durable_end = self.oracle.end();
            }
        }
    }

    // Cuts.

    /// Takes back the records beyond some offset, as in a cluster none that compaction may have looked at; it may have
    /// ended within a batch.
    fn cut(&mut self) {
        let floor = self.oracle.log_start.max(self.oracle.maybe_cleaned + BATCH_MAX);
        let before = self.oracle.end();
        if floor > before {
            return;
        }
        let offset = floor + self.dice.offset(before - floor + 1);
        let end = match self.log().truncate_to(Offset(offset)) {
            Ok(end) => end.0,
            // The batch that holds the offset begins below the start of the log.
            Err(LogError::CutTooFar { .. }) => return,
            Err(error) => panic!("{error}"),
        };
        let is_in_batch = (0..BATCH_MAX).contains(&(offset - end)) && end >= self.oracle.log_start;
        assert!(is_in_batch, "cut at {end}, not at {offset}");
        self.note(format!("cut at {end} of {before}"));
        if end < before {
            self.oracle.cut(end);
            self.reconcile_producers();
        }
    }

    /// Until a checkpoint covers a log that was cut, it finds the producers that had appended beyond the cut in its
    /// records: by their last batches, if neither retention nor compaction may have removed these. Otherwise its
    /// knowledge of them is uncertain.
    fn reconcile_producers(&mut self) {
        let views = self.log().active_producers().unwrap();
        let floor = self.oracle.log_start.max(self.oracle.maybe_cleaned);
        let end = self.oracle.end();
        let Oracle { producers, retired, .. } = &mut self.oracle;
        for (id, sent) in producers {
            let is_touched = sent.last().is_some_and(|last| last.last_offset >= end);
            sent.retain(|batch| batch.last_offset < end);
            let known = views.iter().find(|view| view.producer_id.0 == *id).map(|view| view.last_offset.0);
            let last = sent.last().copied();
            if last.is_some_and(|last| last.base_offset >= floor) {
                assert_eq!(
                    known,
                    last.map(|last| last.last_offset),
                    "producer {id} is not as it was at the cut"
                );
                sent.retain(|batch| batch.base_offset >= floor);
            } else if is_touched || known != last.map(|last| last.last_offset) {
                sent.clear();
                retired.insert(*id);
            }
        }
    }

    // Restarts.

    fn checkpoint(&mut self) {
        self.store().checkpoint().unwrap();
        self.note("checkpoint");
        self.oracle.cover();
    }

    /// Opens another log while only one may be open.
    fn crowd_out(&mut self) {
        let end = self.log().log_end_offset().unwrap();
        let other = self.store().partition(OTHER, 0, self.config.clone(), LeaderEpoch(self.starts)).unwrap();
        let records = self.draw_records();
        let bytes = self.build(&records, ProducerStamp::NONE);
        put(&other, &bytes, AppendOptions { origin: AppendOrigin::Client, now: self.now() }).unwrap();
        assert_eq!(self.store().open_log_count(), 1);
        assert_eq!(self.log().known_range().1, end, "closed in order");
        self.note("closed for another");
        self.oracle.cover();
    }

    fn restart_cleanly(&mut self) {
        self.store.take().expect("the store is open").close().unwrap();
        self.oracle.cover();
        self.note("clean restart");
        self.start();
    }

    /// The process dies: appended records lie in the page cache.
    fn kill(&mut self) {
        self.sim.fs.kill();
        self.store = None;
        self.note("kill");
        self.start();
        if self.oracle.cut_end.is_some() {
            self.reconcile_producers();
        }
    }

    /// The machine dies: the log may end anywhere above the last checkpoint.
    fn cut_power(&mut self) {
        self.sim.fs.crash();
        self.store = None;
        self.start();
        let end = self.log().log_end_offset().unwrap().0;
        let possible = self.oracle.durable_end.max(self.oracle.log_start)..=self.oracle.end();
        assert!(possible.contains(&end), "the log ends at {end}, possible is {possible:?}");
        self.oracle.truncate(end);
        if end == self.oracle.log_start {
            self.forget_lost_batches();
        }
        if self.oracle.cut_end.is_some() {
            self.reconcile_producers();
        }
        self.note(format!("power cut, log end {end}"));
    }

    /// A log whose end is its log start, because that was moved past the durable end: the batches between may be lost,
    /// and only the log knows from which one on. The durable rest after a cut goes with its segments.
    fn forget_lost_batches(&mut self) {
        let views = self.log().active_producers().unwrap();
        let Oracle { durable_end, producers, .. } = &mut self.oracle;
        for (id, sent) in producers {
            let view = views.iter().find(|view| view.producer_id.0 == *id);
            let known = view.map_or(-1, |view| view.last_offset.0);
            sent.retain(|batch| batch.last_offset < *durable_end || batch.last_offset <= known);
        }
    }

    // Checks.

    fn check_bounds(&self) {
        let log = self.log();
        assert_eq!(log.log_start_offset().unwrap(), Offset(self.oracle.log_start));
        assert_eq!(log.log_end_offset().unwrap(), Offset(self.oracle.end()));
    }

    /// Reads from the log start to the end as a consumer does, in pieces of random size.
    fn read_all(&self) -> Vec<(i64, Written)> {
        let log = self.log();
        let end = Offset(self.oracle.end());
        let mut from = Offset(self.oracle.log_start);
        let mut found = vec![];
        while from < end {
            let bytes_max = self.dice.index(3_000);
            let slice = log.read(from, bytes_max, end, true).unwrap();
            for chunk in &slice.chunks {
                read_batches(&chunk.to_bytes().unwrap(), from, &mut found);
            }
            if slice.len == 0 {
                break;
            }
            assert!(slice.next_offset > from, "{slice:?}");
            from = slice.next_offset;
        }
        found
    }

    fn check_records(&self) {
        let found = self.read_all();
        let rises = found.windows(2).all(|pair| pair[0].0 < pair[1].0);
        assert!(rises, "offsets rise: {:?}", offsets(&found));
        for (offset, record) in &found {
            assert!(self.oracle.may_be_there(*offset), "{offset} was compacted away");
            assert_eq!(*record, self.oracle.records[usize::try_from(*offset).unwrap()], "offset {offset}");
        }
        let present = offsets(&found);
        let missing: Vec<_> = (self.oracle.log_start..self.oracle.end())
            .filter(|offset| self.oracle.must_be_there(*offset) && present.binary_search(offset).is_err())
            .collect();
        assert_eq!(missing, [], "records are missing");
        self.check_times(&found);
        self.check_epochs();
        self.check_producers();
    }

    fn check_times(&self, found: &[(i64, Written)]) {
        let log = self.log();
        for _ in 0..5 {
            let timestamp = self.now().0 - self.dice.offset(10 * HOUR_MS);
            let answer = log.offset_for_timestamp(TimestampMs(timestamp)).unwrap();
            let expected = found.iter().find(|(_, record)| record.timestamp >= timestamp);
            let expected = expected
                .map(|(at, record)| (TimestampMs(record.timestamp), Offset(*at), LeaderEpoch(record.epoch)));
            assert_eq!(answer, expected, "first record at or after {timestamp}");
        }
    }

    fn check_epochs(&self) {
        let log = self.log();
        for (epoch, end) in self.oracle.epoch_ends() {
            let answer = log.epoch_end_offset(LeaderEpoch(epoch)).unwrap();
            assert_eq!(answer, (LeaderEpoch(epoch), Offset(end)));
        }
    }

    fn check_producers(&self) {
        let views = self.log().active_producers().unwrap();
        let found: Vec<_> = views
            .iter()
            .filter(|view| !self.oracle.retired.contains(&view.producer_id.0))
            .map(|view| (view.producer_id.0, view.epoch.0, view.last_sequence, view.last_offset.0))
            .collect();
        let expected: Vec<_> = self
            .oracle
            .producers
            .iter()
            .filter_map(|(id, sent)| Some((id, sent.last()?)))
            .map(|(id, last)| (*id, last.epoch, last.last_sequence, last.last_offset))
            .collect();
        assert_eq!(found, expected);
    }

    /// Lookups that must fail or find nothing.
    fn look_up(&self) {
        let log = self.log();
        let end = self.oracle.end();
        assert!(log.read(Offset(end + 1), 100, Offset(end), true).is_err());
        assert!(log.read(Offset(self.oracle.log_start - 1), 100, Offset(end), true).is_err());
        let at_end = log.read(Offset(end), 100, Offset(end), true).unwrap();
        assert_eq!((at_end.len, at_end.next_offset), (0, Offset(end)));
        let future = TimestampMs(self.now().0 + 1);
        assert_eq!(log.offset_for_timestamp(future).unwrap(), None);
    }
}

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Appends, and waits until it may be acked.
fn put(log: &PartitionLog, batches: &[u8], options: AppendOptions) -> Result<Appended, AppendError> {
    let appended = log.append(BytesMut::from(batches), options)?;
    log.write_staged()?;
    let clock = RealClock::new();
    while ack_offset(log.level_reached(), Acks::All, log.watermarks(), &[]) <= appended.last_offset {
        assert!(!log.is_lost(&appended) && clock.monotonic() < PATIENCE, "{appended:?}");
        thread::yield_now();
    }
    Ok(appended)
}

fn stamp(id: i64, epoch: i16, base_sequence: i32) -> ProducerStamp {
    ProducerStamp { id: ProducerId(id), epoch: ProducerEpoch(epoch), base_sequence }
}

fn offsets(found: &[(i64, Written)]) -> Vec<i64> {
    found.iter().map(|(offset, _)| *offset).collect()
}

/// Appends the records of whole batches that are at or above `from`.
fn read_batches(bytes: &[u8], from: Offset, found: &mut Vec<(i64, Written)>) {
    for batch in Batches::new(bytes) {
        let batch = batch.unwrap().verify().unwrap();
        for record in &batch.records().unwrap() {
            let record = record.unwrap();
            if record.offset >= from {
                let written = Written {
                    key: record.key.map(<[u8]>::to_vec),
                    value: record.value.map(<[u8]>::to_vec),
                    timestamp: record.timestamp.0,
                    epoch: batch.leader_epoch().0,
                };
                found.push((record.offset.0, written));
            }
        }
    }
}

/// Stops a run of compaction after a number of looks.
struct StopAfter(Cell<u64>);

impl CleanerControl for StopAfter {
    fn on_io(&self, _bytes: u64) {}

    fn is_stopped(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left == 0
    }
}

impl Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("config", &self.config)
            .field("starts", &self.starts)
            .field("log_start", &self.oracle.log_start)
            .field("end", &self.oracle.end())
            .finish_non_exhaustive()
    }
}

//! Random troubles: two log dirs and a journal or two, partitions at all levels, disks that fail, are full or away or
//! die in a recovery, starts that do not know a partition, kills and power cuts, deleted records and topics, logs that
//! are cut. After all that, acked records that were not cut are there as soon as their disk is, in their order, and no
//! other records are there, nor cut ones.
//!
//! Everything but the journals' threads follows from a seed. `RIVERRUN_STORM_SEED=<seed>` runs one alone,
//! `RIVERRUN_STORM_RUNS=<n>` sets the budget, `RIVERRUN_STORM_SHOW=1` prints what was done.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use riverrun_env::sim::{SimEnv, SimRandom};
use riverrun_env::{Env, FileSystem, OpenMode, Random};
use riverrun_journal::JournalOptions;
use riverrun_log::config::LogConfig;
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{AppendOptions, LogError, LogStore, PartitionLog, Place, ReadError, StoreOptions};
use riverrun_records::{BatchOptions, Batches};
use riverrun_types::{Acks, DurabilityLevel, LeaderEpoch, Offset, PartitionId, TopicId, ack_offset};

use crate::machine::batch_at;

const RUNS_DEFAULT: u64 = 15;
const STEPS: u64 = 250;
const DIRS: [&str; 2] = ["/one", "/two"];
const AWAY: &str = "/away";
const LEVELS: [DurabilityLevel; 3] =
    [DurabilityLevel::SyncSync, DurabilityLevel::SyncSync, DurabilityLevel::AsyncAsync];

/// One partition, and its known records and bounds.
struct Part {
    id: PartitionId,
    dir: usize,
    config: Arc<LogConfig>,
    /// Numbers of the records that were acked, by offset, or found after a start.
    known: BTreeMap<i64, u64>,
    /// Everything below survives the loss of power.
    durable_end: i64,
    /// Everything below survives the end of the process.
    written_end: i64,
    log_start: i64,
    log_start_asked: i64,
    /// The log ends there at the most: cut records do not come back.
    end_max: i64,
    /// A cut has failed: the next start finds out whether it is made.
    is_being_cut: bool,
}

impl Part {
    fn new(number: usize, topic: u8) -> Self {
        let config = LogConfig { segment_bytes: 24_000, index_interval_bytes: 100, ..LogConfig::default() };
        Self {
            id: PartitionId { topic: TopicId([topic; 16]), index: i32::try_from(number).unwrap() },
            dir: number % DIRS.len(),
            config: LogConfig { durability: LEVELS[number % LEVELS.len()], ..config }.into(),
            known: BTreeMap::new(),
            durable_end: 0,
            written_end: 0,
            log_start: 0,
            log_start_asked: 0,
            end_max: i64::MAX,
            is_being_cut: false,
        }
    }
}

struct Storm {
    sim: SimEnv,
    dice: SimRandom,
    options: StoreOptions,
    epoch: i32,
    store: Option<LogStore>,
    parts: Vec<Part>,
    sent: u64,
    topics: u8,
    /// A disk may have failed since the start: bytes that are only in the page cache may be lost.
    has_trouble: bool,
    /// A power cut, or trouble, may have torn bytes in segments, and no checkpoint of everything has been made since:
    /// the journal has them all.
    is_torn: bool,
    away: Option<usize>,
    /// A partition that is unknown since the start.
    forgotten: Option<PartitionId>,
    /// Logs are cut, and checkpoints are not damaged: only they know which bytes a cut has left.
    has_cuts: bool,
    /// When recovery asks for the place of so many entries' partition, a dir dies.
    dies_at: u64,
    history: Vec<String>,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let dice = SimRandom::new(seed);
        let journals = if seed.is_multiple_of(2) { &["/journal"][..] } else { &["/journal-1", "/journal-2"] };
        let options = StoreOptions {
            journal_dirs: journals.iter().map(PathBuf::from).collect(),
            journal: JournalOptions::with_bytes(2 << 20),
            journal_async_write: seed.is_multiple_of(3),
            open_logs_max: [2, 100, 100, 100, 100, 5, 100, 100, 100, 100]
                [usize::try_from(seed % 10).unwrap()],
            open_files_max: if seed.is_multiple_of(3) { 1 } else { 100 },
            write_cache_bytes: [1 << 30, 1, 60_000, 1 << 30][usize::try_from(seed % 4).unwrap()],
            ..StoreOptions::default()
        };
        let mut storm = Self {
            sim: SimEnv::new(seed),
            dice,
            options,
            epoch: 0,
            store: None,
            parts: (0..6).map(|number| Part::new(number, 1)).collect(),
            sent: 0,
            topics: 1,
            has_trouble: false,
            is_torn: false,
            away: None,
            forgotten: None,
            has_cuts: seed % 5 < 3,
            dies_at: u64::MAX,
            history: Vec::new(),
        };
        storm.start();
        storm
    }

    fn below(&self, bound: u64) -> u64 {
        self.dice.next_u64() % bound
    }

    /// A partition that is known.
    fn pick(&self) -> usize {
        loop {
            let number = usize::try_from(self.below(self.parts.len() as u64)).unwrap();
            if self.is_known(number) {
                return number;
            }
        }
    }

    fn is_known(&self, number: usize) -> bool {
        self.forgotten != Some(self.parts[number].id)
    }

    fn note(&mut self, what: impl Into<String>) {
        self.history.push(what.into());
    }

    fn try_start(&mut self) -> Result<LogStore, LogError> {
        self.epoch += 1;
        let store = LogStore::open(&self.sim.env(), &DIRS.map(PathBuf::from), self.options.clone())?;
        let calls = Cell::new(0);
        let place = |id: PartitionId| {
            if calls.replace(calls.get() + 1) == self.dies_at {
                let dir = Path::new(DIRS[usize::try_from(self.below(2)).unwrap()]);
                self.sim.fs.make_unreadable(Some(dir)).unwrap();
                self.sim.fs.fail_write_after(self.below(3));
            }
            if self.forgotten == Some(id) {
                return Place::Unknown;
            }
            let part = self.parts.iter().find(|part| part.id == id);
            part.map_or(Place::Deleted, |part| Place::In(part.dir, part.config.clone()))
        };
        let report = store.recover(|_| LeaderEpoch(self.epoch), place)?;
        for (id, error) in &report.offline {
            let is_damage = matches!(error, LogError::Corrupt { .. } | LogError::Format { .. });
            assert!(!is_damage, "{id}: {error}");
        }
        self.history.push(format!("  start {}: {report:?}", self.epoch));
        Ok(store)
    }

    fn start(&mut self) {
        for _ in 0..10 {
            match self.try_start() {
                Ok(store) => {
                    self.store = Some(store);
                    return;
                }
                Err(error) => {
                    self.note(format!("  start fails: {error}"));
                    assert!(!error.to_string().contains("corrupt"), "{error}");
                    if self.has_trouble && self.below(2) == 0 {
                        self.sim.fs.crash();
                    } else {
                        self.sim.fs.kill();
                    }
                    self.sim.fs.set_space(None);
                    self.sim.fs.make_unreadable(None).unwrap();
                    self.dies_at = u64::MAX;
                }
            }
        }
        panic!("it does not start");
    }

    fn store(&self) -> &LogStore {
        self.store.as_ref().unwrap()
    }

    fn log(&self, part: &Part) -> Arc<PartitionLog> {
        let epoch = LeaderEpoch(self.epoch);
        self.store().partition(part.id, part.dir, part.config.clone(), epoch).unwrap()
    }

    fn step(&mut self) {
        match self.below(100) {
            0..60 => self.append(),
            60..74 => {
                let result = self.store().settle();
                self.note(format!("settle: {result:?}"));
            }
            74..79 => {
                let result = self.store().checkpoint();
                self.note(format!("checkpoint: {result:?}"));
                self.is_torn &= result.is_err() || self.away.is_some() || self.forgotten.is_some();
            }
            79..84 => self.change_level(),
            84..87 => self.delete_records(),
            87..88 => self.delete_topic(),
            88..89 if self.has_cuts => self.cut(),
            88..90 => self.retain(),
            90..92 => self.make_trouble(),
            92..93 => _ = self.store().close_idle(0, Duration::ZERO),
            93..94 => {
                let dir = self.pick() % DIRS.len();
                let is_more = self.store().close_some(dir);
                self.note(format!("close some of {dir}: {is_more}"));
            }
            _ => self.restart(),
        }
        self.learn();
    }

    fn append(&mut self) {
        let number = self.pick();
        let part = &self.parts[number];
        if part.is_being_cut {
            return;
        }
        let log = self.log(part);
        let size = if self.below(10) == 0 { 10_000 } else { self.below(500) };
        let value = format!("{}:{}", self.sent, "x".repeat(usize::try_from(size).unwrap()));
        let options = AppendOptions { origin: AppendOrigin::Client, now: self.sim.env().clock.wall() };
        let batch = batch_at(&[(options.now.0, &value)], BatchOptions::default());
        let what = match log.append(BytesMut::from(&batch[..]), options) {
            Err(error) => format!("refused: {error}"),
            Ok(appended) => {
                let end_max = &mut self.parts[number].end_max;
                *end_max = end_max.saturating_add(1);
                let _told_below = log.write_staged();
                let mut outcome = "unknown";
                for _ in 0..300 {
                    if log.is_lost(&appended) {
                        outcome = "lost";
                        break;
                    }
                    if ack_offset(log.level_reached(), Acks::All, log.watermarks(), &[])
                        > appended.last_offset
                    {
                        outcome = "acked";
                        break;
                    }
                    Env::real().clock.sleep(Duration::from_micros(100));
                }
                if outcome == "acked" {
                    self.parts[number].known.insert(appended.base_offset.0, self.sent);
                    let end = &mut self.parts[number].written_end;
                    *end = (*end).max(appended.base_offset.0 + 1);
                }
                format!("{outcome} at {}", appended.base_offset)
            }
        };
        self.note(format!("append {} to {number}: {what}", self.sent));
        self.sent += 1;
    }

    fn change_level(&mut self) {
        let number = self.pick();
        let durability = LEVELS[usize::try_from(self.below(3)).unwrap()];
        let config = LogConfig { durability, ..(*self.parts[number].config).clone() };
        self.parts[number].config = config.into();
        self.log(&self.parts[number]).set_config(self.parts[number].config.clone());
        self.note(format!("level {durability} for {number}"));
    }

    fn delete_records(&mut self) {
        let number = self.pick();
        let log = self.log(&self.parts[number]);
        let Ok(end) = log.log_end_offset() else { return };
        let high_watermark = ack_offset(log.level_reached(), Acks::All, log.watermarks(), &[]).0.min(end.0);
        let before = i64::try_from(self.below(u64::try_from(high_watermark).unwrap() + 1)).unwrap();
        let part = &mut self.parts[number];
        part.log_start_asked = part.log_start_asked.max(before);
        let result = log.delete_records(Offset(before));
        if result.is_ok() {
            part.log_start = part.log_start.max(before);
        }
        self.note(format!("delete below {before} of {number}: {result:?}"));
    }

    /// Each record has a batch of its own, so that a log can be cut at any offset.
    fn cut(&mut self) {
        let number = self.pick();
        let log = self.log(&self.parts[number]);
        let (Ok(start), Ok(end)) = (log.log_start_offset(), log.log_end_offset()) else { return };
        let kept = i64::try_from(self.below(u64::try_from(end.0 - start.0).unwrap() + 1)).unwrap();
        let at = Offset(start.0 + kept);
        let result = log.truncate_to(at);
        let part = &mut self.parts[number];
        part.durable_end = part.durable_end.min(at.0);
        part.written_end = part.written_end.min(at.0);
        match &result {
            Ok(end) => {
                assert_eq!(*end, at);
                part.known.split_off(&at.0);
                part.end_max = at.0;
            }
            Err(_) => part.is_being_cut = true,
        }
        self.note(format!("cut {number} at {at} of {end}: {result:?}"));
    }

    fn retain(&mut self) {
        let number = self.pick();
        let log = self.log(&self.parts[number]);
        let high_watermark = ack_offset(log.level_reached(), Acks::All, log.watermarks(), &[]);
        let result = log.apply_retention(self.sim.env().clock.wall(), high_watermark);
        self.note(format!("retention of {number}: {result:?}"));
    }

    fn delete_topic(&mut self) {
        let number = self.pick();
        let part = &self.parts[number];
        let result = self.store().delete(part.id, part.dir);
        self.topics += 1;
        self.parts[number] = Part::new(number, self.topics);
        self.note(format!("topic of {number} is deleted: {result:?}"));
    }

    fn make_trouble(&mut self) {
        let count = self.below(12);
        let what = self.below(9);
        match what {
            0 => self.sim.fs.fail_sync_after(count),
            1 => self.sim.fs.fail_write_after(count),
            2 | 3 => self.sim.fs.stop_after(count),
            4 | 5 => self.sim.fs.set_space(Some(count * 5_000)),
            6 => self
                .sim
                .fs
                .make_unreadable(Some(Path::new(DIRS[usize::try_from(count % 2).unwrap()])))
                .unwrap(),
            _ => self.sim.fs.set_space(None),
        }
        self.has_trouble |= what < 4 || what == 6;
        self.note(format!("trouble {what}, {count}"));
    }

    /// Notes the promises of the watermarks.
    fn learn(&mut self) {
        for number in (0..self.parts.len()).filter(|number| self.is_known(*number)).collect::<Vec<_>>() {
            let synced = self.log(&self.parts[number]).watermarks().synced.0;
            let part = &mut self.parts[number];
            if !part.is_being_cut {
                part.durable_end = part.durable_end.max(synced);
            }
        }
    }

    fn restart(&mut self) {
        let how = self.below(5);
        let store = self.store.take().unwrap();
        match how {
            0 | 1 => self.sim.fs.kill(),
            2 | 3 => self.sim.fs.crash(),
            _ => {
                // The close would wait for a journal without room.
                self.sim.fs.set_space(None);
                let result = store.close();
                self.history.push(format!("closes: {result:?}"));
                self.sim.fs.kill();
            }
        }
        drop(store);
        self.note(format!("restart {how}"));
        self.sim.fs.make_unreadable(None).unwrap();
        self.forgotten = (self.below(6) == 0).then(|| self.parts[self.pick()].id);
        // The rest of a power cut there is still to be put right.
        let was_away = self.away.is_some();
        self.bring_dir_back();
        if self.below(6) == 0 {
            self.take_dir_away();
        }
        if self.below(3) > 0 {
            self.sim.fs.set_space(None);
        }
        self.options.journal_async_write ^= self.below(8) == 0;
        let is_cut = how == 2 || how == 3;
        self.is_torn |= is_cut || self.has_trouble;
        let is_calm = !self.is_torn && !was_away && self.away.is_none();
        let is_damaged = is_calm && !self.has_cuts && self.below(4) == 0;
        if is_damaged {
            self.damage_checkpoint();
        }
        // A start has its own trouble, now and then.
        let trouble = if is_damaged { u64::MAX } else { self.below(12) };
        let count = self.below(60);
        match trouble {
            0 => self.sim.fs.stop_after(count),
            1 => self.sim.fs.fail_write_after(count),
            2 => self.sim.fs.fail_sync_after(count / 4),
            3 => self.dies_at = count / 6,
            _ => {}
        }
        let is_start_troubled = trouble < 4;
        if is_cut || self.has_trouble || is_start_troubled {
            for part in &mut self.parts {
                part.written_end = 0;
            }
        }
        self.has_trouble = is_start_troubled;
        self.start();
        self.dies_at = u64::MAX;
        self.check();
        while is_damaged && self.store().checkpoint().is_err() {
            self.sim.fs.set_space(None);
        }
    }

    /// Deleted records may show again after that.
    fn damage_checkpoint(&mut self) {
        let dir = usize::try_from(self.below(2)).unwrap();
        let path = Path::new(DIRS[dir]).join("checkpoint");
        let file = self.sim.fs.open(&path, OpenMode::ReadWrite).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 20).unwrap();
        file.write_all_at(&[byte[0] ^ 1], 20).unwrap();
        file.sync_all().unwrap();
        for part in self.parts.iter_mut().filter(|part| part.dir == dir) {
            part.log_start = 0;
        }
        // Some starts end before they have read anything.
        let opened = LogStore::open(&self.sim.env(), &DIRS.map(PathBuf::from), self.options.clone());
        drop(opened.map(|store| self.below(2) == 0 && store.close().is_ok()));
        self.sim.fs.kill();
        self.note(format!("the checkpoint of {} is damaged", DIRS[dir]));
    }

    fn bring_dir_back(&mut self) {
        if let Some(dir) = self.away.take() {
            self.note(format!("{} is back", DIRS[dir]));
            self.sim.fs.remove_file(Path::new(DIRS[dir])).unwrap();
            self.sim.fs.rename(Path::new(AWAY), Path::new(DIRS[dir])).unwrap();
            self.sim.fs.sync_dir(Path::new("/")).unwrap();
        }
    }

    fn take_dir_away(&mut self) {
        let dir = usize::try_from(self.below(2)).unwrap();
        self.note(format!("{} is away", DIRS[dir]));
        self.sim.fs.rename(Path::new(DIRS[dir]), Path::new(AWAY)).unwrap();
        self.sim.fs.open(Path::new(DIRS[dir]), OpenMode::CreateNew).unwrap();
        self.sim.fs.sync_dir(Path::new("/")).unwrap();
        self.away = Some(dir);
    }

    /// Compares the readable records with the promised ones.
    fn check(&mut self) {
        for number in (0..self.parts.len()).filter(|number| self.is_known(*number)).collect::<Vec<_>>() {
            let log = self.log(&self.parts[number]);
            match read_all(&log) {
                Ok((start, found)) => self.check_part(number, start, &found, log.log_end_offset().unwrap().0),
                Err(error) => {
                    self.note(format!("  {number} cannot be read: {error}"));
                    let is_damage = matches!(error, LogError::Corrupt { .. } | LogError::Format { .. });
                    assert!(!is_damage, "partition {number}: {error}");
                }
            }
        }
    }

    fn check_part(&mut self, number: usize, start: i64, found: &BTreeMap<i64, u64>, end: i64) {
        let sent = self.sent;
        let part = &mut self.parts[number];
        assert!(
            (part.log_start..=part.log_start_asked).contains(&start),
            "partition {number} starts at {start}"
        );
        let must_end = part.durable_end.max(part.written_end).max(start);
        assert!(end >= must_end, "partition {number} ends at {end} of {must_end}");
        assert!(
            end <= part.end_max,
            "partition {number} ends at {end}, and was cut to end at {}",
            part.end_max
        );
        assert!(found.keys().copied().eq(start..end), "partition {number} has holes");
        let rises = found.values().is_sorted_by(|one, next| one < next);
        assert!(rises && found.values().all(|number| *number < sent), "partition {number}: order");
        for (offset, known) in part.known.range(start..must_end) {
            assert_eq!(found.get(offset), Some(known), "partition {number} at {offset}");
        }
        part.known.clone_from(found);
        part.is_being_cut = false;
        part.end_max = end;
        part.log_start = start;
        part.log_start_asked = part.log_start_asked.max(start);
        part.written_end = end;
    }
}

/// Log start, and the number of the record at each offset.
fn read_all(log: &PartitionLog) -> Result<(i64, BTreeMap<i64, u64>), LogError> {
    let (start, end) = (log.log_start_offset()?, log.log_end_offset()?);
    let (mut found, mut from) = (BTreeMap::new(), start);
    while from < end {
        let slice = log.read(from, 100_000, end, true).map_err(|error| match error {
            ReadError::Storage(error) => error,
            error @ (ReadError::OutOfRange { .. } | ReadError::FarFromIndex) => panic!("{error}"),
        })?;
        for chunk in &slice.chunks {
            for batch in Batches::new(&chunk.to_bytes().unwrap()) {
                for record in &batch.unwrap().verify().unwrap().records().unwrap() {
                    let record = record.unwrap();
                    let text = std::str::from_utf8(record.value.unwrap()).unwrap();
                    let number = text.split_once(':').unwrap().0.parse().unwrap();
                    if record.offset >= start {
                        found.insert(record.offset.0, number);
                    }
                }
            }
        }
        assert!(slice.next_offset > from);
        from = slice.next_offset;
    }
    Ok((start.0, found))
}

fn run(seed: u64) {
    let mut storm = Storm::new(seed);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..STEPS {
            storm.step();
        }
        storm.sim.fs.set_space(None);
        storm.restart();
        storm.restart();
    }));
    if outcome.is_err() || number("RIVERRUN_STORM_SHOW").is_some() {
        eprintln!("{}", storm.history.join("\n"));
    }
    if let Err(panic) = outcome {
        eprintln!("RIVERRUN_STORM_SEED={seed}");
        std::panic::resume_unwind(panic);
    }
}

fn number(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().unwrap())
}

#[test]
fn acked_records_outlive_every_storm() {
    if let Some(seed) = number("RIVERRUN_STORM_SEED") {
        return run(seed);
    }
    for seed in 1..=number("RIVERRUN_STORM_RUNS").unwrap_or(RUNS_DEFAULT) {
        run(seed);
    }
}

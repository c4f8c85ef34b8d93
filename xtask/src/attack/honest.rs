//! The honest client: a process of its own that produces a record and fetches it, again and again, and reports the time
//! of each pair.
//!
//! Time counts from when a pair was due, so that a pair that had to wait for the one before counts with its whole wait.
//! A pair under way at the end of a phase counts in it with its time so far. The suite sends lines to its standard
//! input: `phase` asks for the pairs since the last one, `verify` for whether every acked record still exists. The
//! process ends when its input does.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use riverrun_protocol::create_topics_request::CreatableTopic;
use riverrun_protocol::fetch_request::{FetchPartition, FetchTopic};
use riverrun_protocol::{CreateTopicsRequest, FetchRequest, Records};
use riverrun_records::{Batches, Compression};
use serde::{Deserialize, Serialize};

use super::attacker::HONEST_ADDRESS;
use crate::wire::{Conn, Dial, batch, produce_frame, produced};

/// Time after which an honest client gives a request up and connects again.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pause of an honest client after an error.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// Most errors that are reported by their text; all are counted.
const ERRORS_TOLD_MAX: usize = 5;

/// Bytes of one fetch, with room for the largest honest record.
const FETCH_BYTES: i32 = 4 << 20;

/// The newest version that fetches by name.
const FETCH_VERSION: i16 = 11;

/// A version that reports errors with their text.
const CREATE_TOPICS_VERSION: i16 = 5;

/// Kafka's error code for a topic that exists already.
pub(super) const TOPIC_ALREADY_EXISTS: i16 = 36;

/// Arguments of an honest client.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct HonestOptions {
    /// The server's port
    #[arg(long)]
    port: u16,
    /// The topic, which is made if it is not there
    #[arg(long, default_value = "honest")]
    topic: String,
    /// Bytes of a record
    #[arg(long, default_value_t = 32)]
    bytes: usize,
    /// Milliseconds from one pair to the next
    #[arg(long, default_value_t = 20)]
    every_ms: u64,
    /// Compress the records with zstd
    #[arg(long)]
    compressed: bool,
}

/// The kinds of honest clients that run beside an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A small record every 20 ms.
    Small,
    /// A record of 900 kB every 200 ms.
    Large,
    /// A compressed record of 20 kB every 40 ms.
    Compressed,
}

impl Shape {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
            Self::Compressed => "compressed",
        }
    }

    fn options(self, port: u16) -> HonestOptions {
        let (bytes, every_ms, compressed) = match self {
            Self::Small => (32, 20, false),
            Self::Large => (900_000, 200, false),
            Self::Compressed => (20_000, 40, true),
        };
        HonestOptions { port, topic: format!("honest-{}", self.name()), bytes, every_ms, compressed }
    }

    /// The longest time of a pair that is borne.
    pub(super) fn slowest_allowed(self) -> Duration {
        match self {
            Self::Small | Self::Compressed => Duration::from_millis(250),
            // Two times 900 kB over a machine that the attack may keep fully busy.
            Self::Large => Duration::from_secs(1),
        }
    }
}

/// Pairs of a phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Microseconds of each pair.
    pub(super) pairs_us: Vec<u64>,
    /// Pairs that ended with an error.
    pub(super) failed: u64,
    /// Texts of the first of these errors.
    pub(super) errors: Vec<String>,
}

impl Seen {
    /// Adds another phase of the same kind.
    pub(super) fn extend(&mut self, other: Self) {
        self.pairs_us.extend(other.pairs_us);
        self.failed += other.failed;
        self.errors.extend(other.errors);
    }
}

/// Result of reading the acked records back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) acked: u64,
    pub(super) missing: u64,
}

/// A running honest client. Guarantees that the process has ended when the value is dropped.
pub(super) struct Honest {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Honest {
    /// Starts the process and waits until its topic exists and its first pair was answered.
    pub(super) fn start(shape: Shape, port: u16) -> anyhow::Result<Self> {
        let options = shape.options(port);
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["attack-honest", "--port", &port.to_string(), "--topic", &options.topic]);
        command.args(["--bytes", &options.bytes.to_string(), "--every-ms", &options.every_ms.to_string()]);
        if options.compressed {
            command.arg("--compressed");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("the pipe was asked for")?;
        let output = BufReader::new(child.stdout.take().context("the pipe was asked for")?);
        let mut honest = Self { child, input, output };
        ensure!(honest.line()? == "ready", "the honest client does not get ready");
        Ok(honest)
    }

    /// Pairs since the last call.
    pub(super) fn phase(&mut self) -> anyhow::Result<Seen> {
        self.ask("phase")
    }

    /// Reads all acked records back.
    pub(super) fn verify(&mut self) -> anyhow::Result<Kept> {
        self.ask("verify")
    }

    fn ask<T: for<'de> Deserialize<'de>>(&mut self, question: &str) -> anyhow::Result<T> {
        writeln!(self.input, "{question}")?;
        Ok(serde_json::from_str(&self.line()?)?)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the honest client has ended");
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Honest {
    fn drop(&mut self) {
        // Both fail only if the process has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// State that the loop shares with the reader of questions.
#[derive(Debug, Default)]
struct State {
    seen: Seen,
    /// Offset and number of each acked record.
    acked: Vec<(i64, u64)>,
    /// When the pair under way was due.
    due: Option<Instant>,
}

/// Entry point of the honest client's process: works until its input ends.
pub(super) fn serve(options: &HonestOptions) -> anyhow::Result<()> {
    make_topic(options)?;
    let state = Arc::<Mutex<State>>::default();
    let (loop_options, loop_state) = (options.clone(), Arc::clone(&state));
    thread::Builder::new().name("honest".into()).spawn(move || work(&loop_options, &loop_state))?;
    while lock(&state).acked.is_empty() {
        thread::sleep(Duration::from_millis(5));
    }
    drop(take_phase(&state));
    println!("ready");
    for question in std::io::stdin().lines() {
        let answer = match question?.as_str() {
            "phase" => serde_json::to_string(&take_phase(&state))?,
            "verify" => {
                let acked = lock(&state).acked.clone();
                serde_json::to_string(&read_back(options, &acked)?)?
            }
            other => bail!("unknown question: {other}"),
        };
        println!("{answer}");
    }
    Ok(())
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take_phase(state: &Mutex<State>) -> Seen {
    let mut state = lock(state);
    let mut seen = std::mem::take(&mut state.seen);
    if let Some(due) = state.due {
        seen.pairs_us.push(micros(due));
    }
    seen
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn connect(options: &HonestOptions) -> anyhow::Result<Conn> {
    Ok(Conn::open(Dial { source: HONEST_ADDRESS, ..Dial::to(options.port, PATIENCE) })?)
}

fn make_topic(options: &HonestOptions) -> anyhow::Result<()> {
    let topic = CreatableTopic {
        name: options.topic.as_str().into(),
        num_partitions: 1,
        replication_factor: 1,
        ..CreatableTopic::default()
    };
    let request =
        CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..CreateTopicsRequest::default() };
    let mut buffer = Vec::new();
    let answer = connect(options)?.call(&request, CREATE_TOPICS_VERSION, &mut buffer)?;
    let code = answer.topics.first().context("the server says nothing of the topic")?.error_code;
    ensure!(code == 0 || code == TOPIC_ALREADY_EXISTS, "the honest topic cannot be made: error {code}");
    Ok(())
}

/// Pair after pair, without an end.
fn work(options: &HonestOptions, state: &Mutex<State>) {
    let mut conn = None;
    let mut due = Instant::now();
    for number in 0.. {
        due += Duration::from_millis(options.every_ms);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        lock(state).due = Some(due);
        let result = pair(options, &mut conn, number);
        let mut state = lock(state);
        state.due = None;
        match result {
            Ok(offset) => {
                state.seen.pairs_us.push(micros(due));
                state.acked.push((offset, number));
                continue;
            }
            Err(error) => {
                state.seen.failed += 1;
                if state.seen.errors.len() < ERRORS_TOLD_MAX {
                    state.seen.errors.push(format!("{error:#} after {} ms", micros(due) / 1000));
                }
                conn = None;
            }
        }
        drop(state);
        // Pairs that could not be tried count as one failure, not as one for each that was due.
        thread::sleep(PAUSE_AFTER_ERROR);
        due = Instant::now();
    }
}

/// Produces a record and fetches it; returns its offset.
fn pair(options: &HonestOptions, held: &mut Option<Conn>, number: u64) -> anyhow::Result<i64> {
    let conn = match held {
        Some(conn) => conn,
        None => held.insert(connect(options).context("no connection")?),
    };
    let value = value_of(options, number);
    let compression = if options.compressed { Compression::Zstd } else { Compression::None };
    let records = batch(compression, &[&value])?;
    conn.send(&produce_frame(&options.topic, &[(0, &records)])?).context("producing")?;
    let offset = match produced(&conn.answer().context("producing")?)? {
        Ok(offset) => offset,
        Err(code) => bail!("producing: error {code}"),
    };
    let mut found = false;
    fetch(options, conn, offset, |at, value_there| found |= at == offset && value_there == value)
        .context("fetching")?;
    ensure!(found, "the record at offset {offset} is not the one that was acked there");
    Ok(offset)
}

/// A record's value begins with its number. The rest is incompressible unless the client compresses.
fn value_of(options: &HonestOptions, number: u64) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    let mut mixed = number | 1;
    while value.len() < options.bytes {
        if !options.compressed {
            mixed = mixed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        }
        value.extend_from_slice(&mixed.to_be_bytes());
    }
    value.truncate(options.bytes.max(size_of::<u64>()));
    value
}

/// Fetches from an offset on, and shows each record with its offset. Returns the offset after the last.
fn fetch(
    options: &HonestOptions,
    conn: &mut Conn,
    offset: i64,
    mut show: impl FnMut(i64, &[u8]),
) -> anyhow::Result<i64> {
    let partition = FetchPartition {
        fetch_offset: offset,
        partition_max_bytes: FETCH_BYTES,
        ..FetchPartition::default()
    };
    let topic = FetchTopic {
        topic: options.topic.as_str().into(),
        partitions: vec![partition],
        ..FetchTopic::default()
    };
    let request = FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: FETCH_BYTES,
        topics: vec![topic],
        ..FetchRequest::default()
    };
    let mut buffer = Vec::new();
    let answer = conn.call(&request, FETCH_VERSION, &mut buffer)?;
    ensure!(answer.error_code == 0, "error {}", answer.error_code);
    let topic = answer.responses.first().and_then(|topic| topic.partitions.first());
    let partition = topic.context("the server says nothing of the partition")?;
    ensure!(partition.error_code == 0, "error {}", partition.error_code);
    let bytes = partition.records.as_ref().and_then(Records::as_bytes).unwrap_or_default();
    let mut next = offset;
    for batch in Batches::new(bytes) {
        let batch = batch?.verify()?;
        for record in &batch.records()? {
            let record = record?;
            show(record.offset.0, record.value.unwrap_or_default());
        }
        next = batch.next_offset().0;
    }
    Ok(next)
}

/// Looks for all acked records.
fn read_back(options: &HonestOptions, acked: &[(i64, u64)]) -> anyhow::Result<Kept> {
    let mut conn = connect(options)?;
    let mut wanted = acked.iter().peekable();
    let mut missing = 0;
    let (mut next, end) = (0, acked.last().map_or(0, |(offset, _)| offset + 1));
    while next < end {
        let before = next;
        next = fetch(options, &mut conn, before, |at, value| {
            while wanted.next_if(|(offset, _)| *offset < at).is_some() {
                missing += 1;
            }
            if let Some((_, number)) = wanted.next_if(|(offset, _)| *offset == at) {
                missing += u64::from(value != value_of(options, *number));
            }
        })?;
        if next == before {
            break;
        }
    }
    missing += wanted.count() as u64;
    Ok(Kept { acked: acked.len() as u64, missing })
}
